/*
 * manifest - MANIFEST.json: the files of a committed checkpoint, with digests.
 *
 *   {"format": "ckpt-manifest", "version": 1, ...facts..., "files": [{"name", "size", "sha256"}],
 *    "digest": SHA-256 of the compact text of all the rest}
 */
#ifndef CKPT_TRAINER_CHECKPOINT_MANIFEST_H
#define CKPT_TRAINER_CHECKPOINT_MANIFEST_H

#include <jansson.h>

#include "libckpt/file.h"

#define MANIFEST_NAME "MANIFEST.json"

/* How much manifest_check looks at. */
enum manifest_depth { MANIFEST_SIZES, MANIFEST_DIGESTS };

/*
 * Digest every file below directory path (two levels) and give the manifest's text: the facts'
 * members first.  *text is yours (ckpt_free).
 */
int manifest_make(char **text, const char *path, const json_t *facts, struct ckpt_err *err);
/*
 * Read and prove a directory's manifest.  *out (may be NULL) gets it as a new reference.
 * CKPT_ENOTFOUND when there is none; CKPT_EFORMAT "digest", "truncated" or "missing" names the
 * file that does not fit.
 */
int manifest_check(json_t **out, const char *path, enum manifest_depth depth,
                   struct ckpt_err *err);
/* The manifest alone, with its own digest proved: *out has an array "files". */
int manifest_read(json_t **out, struct ckpt_dir *dir, struct ckpt_err *err);
/* One row of its "files" against the file; codes as manifest_check's. */
int manifest_check_file(const json_t *row, struct ckpt_dir *dir, enum manifest_depth depth,
                        struct ckpt_err *err);

#endif

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

/* How much manifest_check verifies. */
enum manifest_depth { MANIFEST_SIZES, MANIFEST_DIGESTS };

/*
 * Digest every file below directory path (two levels) and make the manifest's text, with the
 * members of facts first.  *text is yours (ckpt_free).
 */
int manifest_make(char **text, const char *path, const json_t *facts, struct ckpt_err *err);
/* Change what a manifest has of a file; false where it has none of that name. */
bool manifest_set(json_t *manifest, const char *name, uint64_t size, const char *sha256);
/* The text of a manifest with its digest, which is computed anew; yours (ckpt_free). */
int manifest_text(char **text, json_t *manifest, struct ckpt_err *err);
/*
 * Read and verify a directory's manifest.  *out (may be NULL) gets it as a new reference.
 * CKPT_ENOTFOUND when there is none; CKPT_EFORMAT "digest", "truncated" or "missing" names the
 * file that differs.
 */
int manifest_check(json_t **out, const char *path, enum manifest_depth depth,
                   struct ckpt_err *err);
/* Read the manifest alone, and verify its own digest: *out has an array "files". */
int manifest_read(json_t **out, struct ckpt_dir *dir, struct ckpt_err *err);
/* Verify one file against its row of "files"; codes as manifest_check's. */
int manifest_check_file(const json_t *row, struct ckpt_dir *dir, enum manifest_depth depth,
                        struct ckpt_err *err);

#endif

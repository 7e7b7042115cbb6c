/*
 * provenance - the record of where an output came from: which files, by digest, and with which
 * options.
 *
 * No date, no host, no absolute path: the same inputs and options give the same bytes.  Threads
 * digest the files while the copy runs; until they have ended the record holds zeros of the same
 * length instead.
 *
 * xxh128 of a zip archive (a torch file) is taken of its members' names, sizes and CRC-32s, so
 * that optimizer state beside the weights need not be read: "members_xxh128", the digest of a
 * line "<crc32, 8 hex digits> <size> <name>\n" for each member, sorted by name.  An archive
 * without CRCs is read whole as any other file.
 */
#ifndef CKPT_TOOLS_MERGE_PROVENANCE_H
#define CKPT_TOOLS_MERGE_PROVENANCE_H

#include <sys/stat.h>

#include "tools/merge/merge.h"

struct provenance;

/* Begin a record of the options in w. */
int provenance_new(struct provenance **p, const struct merge_want *w, struct ckpt_err *err);
/* The input consists of these folders too; call before it is added. */
void provenance_parts(struct provenance *p, const char *const *part, size_t n);
/*
 * Add an input by its role ("input", "base", "adapter"): its format and the files its tensors and
 * side files lie in.  They are src's: close p before src.
 */
int provenance_add(struct provenance *p, const char *role, const char *path,
                   const struct ckpt_source *src, struct ckpt_err *err);
/* Forget the input that was added last, of which nothing is taken; before provenance_text. */
void provenance_forget(struct provenance *p);
/*
 * The record's text, owned by p.  digests: begin to compute those w asks for, by so many workers
 * (0: by CPUs), a file each; the text changes in place until provenance_finish has returned 0.
 * Without, the text has names and sizes only and is final.
 */
int provenance_text(struct provenance *p, bool digests, size_t workers, const char **text,
                    struct ckpt_err *err);
/* Wait for the digests and put them into the text. */
int provenance_finish(struct provenance *p, struct ckpt_err *err);
void provenance_free(struct provenance *p);         /* stops what runs; NULL accepted */

/* Whether st is that of a file of an added input. */
bool provenance_has(const struct provenance *p, const struct stat *st);

#endif

/*
 * fsdp_files - find the files of a set of ranks.
 */
#ifndef CKPT_FORMATS_DCP_FSDP_FILES_H
#define CKPT_FORMATS_DCP_FSDP_FILES_H

#include "formats/place.h"

#define FSDP_MAX_RANKS 65536u

/* A set's files in rank order. */
struct fsdp_set {
    const char **name;
    size_t       n;
};

/* "x_rank_12.pt": position and length of the number; false for names without one. */
bool fsdp_rank_in(const char *name, size_t *at, size_t *len);

/*
 * The files beside `name` that differ from it only in the rank's number; if it has no number,
 * name itself.  CKPT_EFORMAT "missing" names a rank that is absent below the highest one present.
 */
int fsdp_set_of(struct fsdp_set *s, const char *name, const struct ckpt_entry *entry,
                size_t n_entry, struct ckpt_arena *arena, struct ckpt_err *err);

/* FSDP_ASIDE: random states, and files of other formats. */
enum fsdp_kind { FSDP_WEIGHTS, FSDP_OPTIMIZER, FSDP_ASIDE };

/*
 * The first file, among a directory's, of its set of weights, or of optimizer state; *out NULL:
 * none.  CKPT_EUNSUPPORTED "ambiguous" when there are two sets.
 */
int fsdp_set_in(const char **out, enum fsdp_kind kind, const struct ckpt_entry *entry, size_t n,
                struct ckpt_err *err);

#endif

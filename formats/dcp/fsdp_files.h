/*
 * fsdp_files - which files a set of ranks consists of.
 */
#ifndef CKPT_FORMATS_DCP_FSDP_FILES_H
#define CKPT_FORMATS_DCP_FSDP_FILES_H

#include "formats/place.h"

#define FSDP_MAX_RANKS 65536u

/* A set's files in the order of ranks. */
struct fsdp_set {
    const char **name;
    size_t       n;
};

/* "x_rank_12.pt": offset and bytes of the number; false for names without one. */
bool fsdp_rank_in(const char *name, size_t *at, size_t *len);

/*
 * The files beside `name` that differ from it in the rank's number only, name itself when it has
 * none.  CKPT_EFORMAT "missing" names a rank that is absent below the highest there is.
 */
int fsdp_set_of(struct fsdp_set *s, const char *name, const struct ckpt_entry *entry,
                size_t n_entry, struct ckpt_arena *arena, struct ckpt_err *err);

/*
 * Among a directory's files the first of its set of weights, of optimizer state; *out NULL: none.
 * CKPT_EUNSUPPORTED "ambiguous" when there are two.
 */
int fsdp_weights_in(const char **out, const struct ckpt_entry *entry, size_t n,
                    struct ckpt_err *err);
int fsdp_optimizer_in(const char **out, const struct ckpt_entry *entry, size_t n,
                      struct ckpt_err *err);

#endif

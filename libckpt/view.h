/*
 * view - transformations of a source.  Each view takes the source beneath it (on failure too,
 * when *out is NULL) and changes exactly one thing; extras and info pass through.  out may point
 * to the source itself: ckpt_view_cast(&src, src, ...).
 */
#ifndef CKPT_LIBCKPT_VIEW_H
#define CKPT_LIBCKPT_VIEW_H

#include "libckpt/api.h"
#include "libckpt/source.h"

CKPT_BEGIN_C

/* One rule of a cast: names that match glob become dtype.  The last matching rule wins. */
struct ckpt_cast_rule {
    const char     *glob;               /* fnmatch(3) without path rules; "*" for all */
    enum ckpt_dtype dtype;
};

/* The rule that applies to a tensor, or NULL. */
const struct ckpt_cast_rule *ckpt_view_cast_rule(const struct ckpt_tensor *t,
                                                 const struct ckpt_cast_rule *rule,
                                                 size_t n_rule);
/* Only floating tensors are cast; integers and bools pass unless a rule names them exactly. */
int ckpt_view_cast(struct ckpt_source **out, struct ckpt_source *src,
                   const struct ckpt_cast_rule *rule, size_t n_rule, struct ckpt_err *err);

/* The dtype that a tensor becomes, its own to leave it. */
typedef enum ckpt_dtype ckpt_cast_fn(const void *ctx, const struct ckpt_tensor *t);
int ckpt_view_cast_by(struct ckpt_source **out, struct ckpt_source *src, ckpt_cast_fn *to,
                      const void *ctx, struct ckpt_err *err);

/* One renaming: a literal prefix `from` becomes `to`.  The first matching rule wins. */
struct ckpt_rename_rule {
    const char *from;
    const char *to;
};

/* The rule that applies to a name, or NULL. */
const struct ckpt_rename_rule *ckpt_view_rename_rule(const char *name,
                                                     const struct ckpt_rename_rule *rule,
                                                     size_t n_rule);
/* CKPT_EFORMAT "duplicate" when two tensors end up under one name. */
int ckpt_view_rename(struct ckpt_source **out, struct ckpt_source *src,
                     const struct ckpt_rename_rule *rule, size_t n_rule, struct ckpt_err *err);

/*
 * keep[i] (index in src) in the order given.  Indices must be distinct.
 */
int ckpt_view_select(struct ckpt_source **out, struct ckpt_source *src, const size_t *keep,
                     size_t n_keep, struct ckpt_err *err);

/* As select, by globs: a name passes when some include (or none is given) and no exclude
 * matches.  CKPT_ENOTFOUND when an include matches nothing. */
int ckpt_view_filter(struct ckpt_source **out, struct ckpt_source *src,
                     const char *const *include, size_t n_include, const char *const *exclude,
                     size_t n_exclude, struct ckpt_err *err);

/*
 * Several sources as one list, in order.  Takes all.  Duplicate names are refused.  The extras of
 * all are joined, the first of each name; info is the first source's.
 */
int ckpt_view_join(struct ckpt_source **out, struct ckpt_source **src, size_t n,
                   struct ckpt_err *err);

/*
 * n >= 1 checkpoints of one model as sum(weight[k] * x[k]) / sum(weight); weight NULL: equal
 * weights.  Takes all.  Sums are taken in f64 and rounded by ckpt_convert to the first's dtype;
 * integers and bools must be the same in all (found while reading: CKPT_EMISMATCH).  Names and
 * shapes must agree: CKPT_EMISMATCH.  Extras and info are the first's.
 */
int ckpt_view_average(struct ckpt_source **out, struct ckpt_source **src, size_t n,
                      const double *weight, struct ckpt_err *err);

CKPT_END_C

#endif

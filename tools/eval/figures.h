/*
 * eval/figures - the list of figures that are printed and that the gate looks at: the figures of
 * each metric with their intervals, and beside them those of a base over the same rows.
 */
#ifndef CKPT_TOOLS_EVAL_FIGURES_H
#define CKPT_TOOLS_EVAL_FIGURES_H

#include "tools/eval/score/score.h"
#include "tools/out.h"

#define FIGURES_SAMPLES 1000    /* choices of rows for intervals and p */

struct figure {
    const char *name, *metric, *signature;      /* of the score, which outlives it */
    double      value, low, high;               /* 95 % of resampled values are between the two */
    double      base, p;                        /* of the base; NaN where there is none */
};

/* A zeroed struct is an empty list. */
struct figures {
    struct figure *of;
    size_t         n, cap;
    bool           beside;      /* there is a base */
};

/* Append the figures of a; base is NULL or has the same metric over the same rows.  A figure
 * without a value is left out. */
int figures_add(struct figures *f, const struct score *a, const struct score *base, uint64_t seed,
                struct ckpt_err *err);
/* The table "figures". */
void figures_put(const struct figures *f, struct out *o);
void figures_release(struct figures *f);

#endif

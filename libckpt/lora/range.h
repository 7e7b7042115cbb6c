/*
 * lora/range - read a range of one updated tensor: find the updates that touch it and sum them;
 * the reading half of view_lora.
 */
#ifndef CKPT_LIBCKPT_LORA_RANGE_H
#define CKPT_LIBCKPT_LORA_RANGE_H

#include <pthread.h>

#include "libckpt/lora/factors.h"
#include "libckpt/lora/view.h"

/* A tensor of the result. */
struct lora_item {
    size_t base;                /* index of the base's tensor it starts from */
    size_t first, n;            /* its updates */
    bool   resized;             /* its rows are those of the update's own copy, not the base's */
};

/* What rounding leaves of the changes: sums over a sample of the elements of W, where these are
 * narrower than f32. */
struct lora_kept {
    double  wanted;             /* of change^2, where change = W' - W in f32 */
    double  got;                /* of change * (W' rounded - W) */
    int64_t n;                  /* elements so far, sampled or not, for each update */
};

struct lora {
    struct ckpt_source      *base;
    struct ckpt_source     **adapter;
    size_t                   n_adapter;
    struct ckpt_lora_update *update;    /* sorted by item */
    size_t                   n_update;
    struct lora_item        *item;
    struct lora_factors     *factors;   /* one pair per update; NULL: no update has factors */
    pthread_mutex_t          lock;      /* of kept */
    struct lora_kept         kept;
};

/* Elements [start, start + count) of item i in its base's dtype.  Any thread. */
int lora_range_read(struct lora *l, size_t i, int64_t start, int64_t count, void *dst,
                    struct ckpt_err *err);
/* Elements of the matrix that update u starts from, as f32; a lora_read_fn. */
int lora_range_start(void *l, size_t u, int64_t start, int64_t n, float *w, struct ckpt_err *err);
/* Whether it only adds to W: neither W nor any row of it is replaced. */
bool lora_only_adds(const struct ckpt_lora_update *up);
/* Elements that an update covers: [first, end). */
void lora_range_of(const struct lora *l, size_t u, int64_t *first, int64_t *end);

#endif

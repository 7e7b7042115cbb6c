/*
 * segments - sum rows with equal ids in order, without atomics: ids are sorted together with
 * their rows, and each run of equal ids is one sum.
 */
#ifndef CKPT_TRAINER_CUDA_SEGMENTS_H
#define CKPT_TRAINER_CUDA_SEGMENTS_H

#include "trainer/cuda/row.h"

struct segments {
    const int32_t *ids, *at;            /* [n]: sorted ids; the original row of each */
    float         *parts;               /* workspace of sums */
    int64_t        n;
};

/* Workspace for n ids and rows of at most that width. */
uint64_t segments_bytes(int64_t n, int64_t dim);
/* Sort ids[n], all below `limit` (0: below 2^31); false, and the device marked, on failure. */
bool segments_sort(struct segments *s, struct device *dev, const char *op, void *work,
                   const int32_t *ids, int64_t n, int64_t limit);
/* table[id] += the sum of rows[i] over ids[i] = id, except for the id `none`; rows are
 * activations [n, dim].  The table is f32, or with `act` an activation. */
void segments_add(const struct segments *s, struct device *dev, const char *op, void *table,
                  bool act, const void *rows, int64_t dim, int64_t none);
/* table[k] += the sum of rows whose id is chosen[k], k < n; f32. */
void segments_pick(const struct segments *s, struct device *dev, const char *op, float *table,
                   const int32_t *chosen, int64_t n, const void *rows, int64_t dim, int64_t none);
/* table[r, id] += the sum of rows[i, r]; both f32, the table's rows `stride` apart. */
void segments_columns(const struct segments *s, struct device *dev, const char *op, float *table,
                      int64_t stride, const float *rows, int64_t dim, int64_t none);

#endif

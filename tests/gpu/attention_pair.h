/*
 * attention_pair - the arrays of attention that depend on neither documents nor a cache: slopes
 * by head and a bias by distance.
 */
#ifndef CKPT_TESTS_GPU_ATTENTION_PAIR_H
#define CKPT_TESTS_GPU_ATTENTION_PAIR_H

#include "tests/gpu/gpu.h"

/* Ends a list of lengths. */
#define END -1

/* An array of the side that the caller's `on_gpu` names. */
#define SIDE(b) (on_gpu ? (b).gpu : (b).cpu)

struct bias_pair { struct both slopes, bucket, table; };

static inline struct bias_pair attention_bias(struct gpu *g, int64_t n_head, bool slopes,
                                              int64_t reach, int64_t n_bucket)
{
    struct bias_pair p = {0};
    int32_t bucket[4096];
    float slope[128];

    for (int64_t h = 0; h < n_head; h++)
        slope[h] = powf(0.5f, (float)(h + 1));
    if (slopes)
        p.slopes = gpu_values(g, CKPT_F32, slope, n_head);
    for (int64_t k = 0; k <= 2 * reach; k++)
        bucket[k] = (int32_t)(k * n_bucket / (2 * reach + 1));
    if (n_bucket) {
        p.bucket = gpu_ints(g, bucket, 2 * reach + 1);
        p.table = gpu_random(g, g->type, n_bucket * n_head, 1.0f);
    }
    return p;
}

/* The bound of results made of P, which a 16-bit type rounds; in f32 see test_attention.c. */
static inline double attention_bound(const struct gpu *g)
{
    return g->type == CKPT_F32 ? 1e-5 : gpu_bound(g->type);
}

#endif

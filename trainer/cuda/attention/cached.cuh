/*
 * attention/cached - shared by the two kernels that attend to a cache: each row is cut into
 * parts.
 */
#ifndef CKPT_TRAINER_CUDA_ATTENTION_CACHED_H
#define CKPT_TRAINER_CUDA_ATTENTION_CACHED_H

#include "trainer/cuda/attention/attention.cuh"

enum {
    THREADS = 128, WARPS = THREADS / 32,
    CLUSTER = 8,                        /* parts that cached_heads combines itself */
};

/* How a row's queries and key are rotated before use; table NULL: not at all. */
struct cached_rope {
    const float   *table;               /* columns of a head */
    const int32_t *positions;
    const void    *q_norm, *k_norm;     /* or NULL */
    float          eps;
};

/* A part of a row: its position, its keys [from, to), and where the cache of its key head
 * begins. */
struct part {
    int     pos, from, to;
    int64_t at;
};

__device__ __forceinline__ struct part cached_part_of(const struct attn &a, int row, int g,
                                                      int part, int n_parts)
{
    int seg = a.new_k ? row : attn_segment_of(a.doc_start, a.n_docs, row); /* rows alone */
    int pos = a.past[seg] + (a.new_k ? 0 : row - a.doc_start[seg]);
    int first = attn_sees_from(a, pos), each = (pos + 1 - first + n_parts - 1) / n_parts;
    int from = first + part * each;

    return {pos, from, min(from + each, pos + 1),
            (g * a.capacity + a.first[seg]) * a.dim};
}

/* If this part holds the row's own position, append the row's key and value to the cache before
 * the part is read. Called by the whole block. */
template <typename T>
__device__ __forceinline__ void cached_append(const struct attn &a, int row, int g,
                                              const struct part &p)
{
    int64_t from = row * a.row_stride + g * a.kv_head, to = p.at + (int64_t)p.pos * a.dim;

    if (!a.new_k || p.pos < p.from || p.pos >= p.to)
        return;
    for (int c = (int)threadIdx.x; c < a.dim; c += THREADS) {
        ((T *)(uintptr_t)a.k)[to + c] = ((const T *)a.new_k)[from + c];
        ((T *)(uintptr_t)a.v)[to + c] = ((const T *)a.new_v)[from + c];
    }
    __syncthreads();
}

/* cached_heads.cu: 16-bit rows whose heads share keys. parts: workspace as row_part fills it;
 * NULL: there are at most CLUSTER parts, and out is written directly. */
template <typename T>
void cached_heads(struct device *dev, const struct attn &a, const struct cached_rope &t,
                  float *parts, int64_t n_parts);

#endif

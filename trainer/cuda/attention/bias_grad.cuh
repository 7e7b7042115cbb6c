/*
 * attention/bias_grad - the gradient of the relative bias: sums of dS along diagonals, without
 * atomics.
 *
 * Each warp sums the diagonals of its part of a tile, first within a lane, then by exchange
 * between lanes, and adds them to its line of sums in shared memory.  Distances beyond the
 * table share one sum a lane.
 */
#ifndef CKPT_TRAINER_CUDA_ATTENTION_BIAS_GRAD_H
#define CKPT_TRAINER_CUDA_ATTENTION_BIAS_GRAD_H

#include "trainer/cuda/attention/attention.cuh"

/* How far past the table's last distance a part of a tile reaches at most. */
enum { BIAS_GRAD_BEYOND = 96 };

/* A warp's sums: by distance [bias_grad_floats], and for each lane one sum of all distances
 * beyond. */
struct bias_grad {
    float *line, low, high;
};

static inline __host__ __device__ int bias_grad_floats(const struct attn &a)
{
    return 2 * (a.far + BIAS_GRAD_BEYOND) + 1;
}

/* Of two values in as many lanes, each lane keeps the sum of one: the first where its `bit` is
 * not set. */
__device__ __forceinline__ float bias_grad_exchange(float x0, float x1, bool bit, int with)
{
    return (bit ? x1 : x0) + __shfl_sync(0xffffffffu, bit ? x0 : x1, with);
}

/*
 * Sum the diagonals of a warp's part, 16 MR rows by 8 NT keys; its first row and key are at
 * distance rel.  A lane holds rows g = lane / 4 and every eighth, keys 2 c = 2 (lane % 4), the
 * next and every eighth: its distances are rel + 8 u + p + 2 c - g, p 0 or 1.
 */
template <int MR, int NT>
__device__ __forceinline__ void bias_grad_diagonals(float *line, const float (&ds)[MR][NT][4],
                                                    int rel)
{
    const int U = NT + 2 * MR, PAD = (U + 3) / 4 * 4;   /* u from -2 MR on, one more for both p */
    int lane = (int)threadIdx.x % 32, c = lane % 4, g = lane / 4;
    float x[PAD] = {}, y[2][U + 1];

    static_assert(8 * PAD <= BIAS_GRAD_BEYOND, "what a line holds");
#pragma unroll
    for (int u = 0; u <= U; u++)
        y[0][u] = y[1][u] = -0.0f;    /* -0, because x + -0 is x: the compiler drops the addition */
#pragma unroll
    for (int m = 0; m < MR; m++)
#pragma unroll
        for (int n = 0; n < NT; n++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                y[e % 2][n - 2 * m - e / 2 + 2 * MR] += ds[m][n][e];
    /* Group by multiples of eight and by the remainder (p + 2 c - g) % 8: the lane with the next
     * row has the same remainder for p = 1. */
#pragma unroll
    for (int u = 0; u < U; u++) {
        float y0 = 2 * c >= g ? y[0][u] : y[0][u + 1];
        float y1 = 2 * c + 1 >= g ? y[1][u] : y[1][u + 1];

        x[u] = y0 + __shfl_sync(0xffffffffu, y1, lane + 4);
    }
    /* The same holds for lanes of the next two keys two rows on, and of the next four keys four
     * rows on. */
#pragma unroll
    for (int u = 0; u < PAD / 2; u++)
        x[u] = bias_grad_exchange(x[2 * u], x[2 * u + 1], c & 1, (lane ^ 1) + (c & 1 ? -8 : 8));
    line += rel - 16 * MR + 8 * c + ((2 * c - g) & 7);
#pragma unroll
    for (int u = 0; u < PAD / 4; u++)
        line[32 * u] += bias_grad_exchange(x[2 * u], x[2 * u + 1], c & 2, lane ^ 18);
}

/* Add dS of a warp's rows, from position pos on, and keys from j on. */
template <int MR, int NT>
__device__ __forceinline__ void bias_grad_add(const struct attn &a, struct bias_grad &w,
                                              const float (&ds)[MR][NT][4], int pos, int j)
{
    int least = j - (pos + 16 * MR - 1), most = j + 8 * NT - 1 - pos;
    float sum = 0;

    if (attn_terms_differ(a, least, most)) {
        __syncwarp();                   /* the last part's writes are done */
        bias_grad_diagonals(w.line + a.far + BIAS_GRAD_BEYOND, ds, j - pos);
        return;
    }
#pragma unroll
    for (int m = 0; m < MR; m++)
#pragma unroll
        for (int n = 0; n < NT; n++)
            sum += ds[m][n][0] + ds[m][n][1] + ds[m][n][2] + ds[m][n][3];
    if (least >= a.far)
        w.high += sum;
    else
        w.low += sum;
}

/* Clear a warp's sums. */
__device__ __forceinline__ void bias_grad_begin(const struct attn &a, struct bias_grad &w,
                                                float *lines)
{
    w.line = lines + (int)threadIdx.x / 32 * bias_grad_floats(a);
    w.low = w.high = 0;
    for (int k = (int)threadIdx.x % 32; k < bias_grad_floats(a); k += 32)
        w.line[k] = 0;
}

/* The block's row of sums [2 far + 1], whose two ends take all distances beyond, from its warps'
 * sums. */
template <int WARPS>
__device__ __forceinline__ void bias_grad_end(const struct attn &a, const struct bias_grad &w,
                                              const float *lines, float *ends, float *to)
{
    int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32, all = attn_sums_floats(a);
    float low = w.low, high = w.high;

    __syncwarp();
    for (int k = lane; k < BIAS_GRAD_BEYOND; k += 32) {
        low += w.line[k];
        high += w.line[BIAS_GRAD_BEYOND + all + k];
    }
    low = cuda_warp_sum(low);
    high = cuda_warp_sum(high);
    if (lane == 0) {
        ends[2 * warp] = low;
        ends[2 * warp + 1] = high;
    }
    __syncthreads();
    for (int k = (int)threadIdx.x; k < all; k += WARPS * 32) {
        float sum = 0;

        for (int i = 0; i < WARPS; i++) {
            sum += lines[i * bias_grad_floats(a) + BIAS_GRAD_BEYOND + k];
            if (k == 0)
                sum += ends[2 * i];
            if (k == all - 1)
                sum += ends[2 * i + 1];
        }
        to[k] = sum;
    }
}

#endif

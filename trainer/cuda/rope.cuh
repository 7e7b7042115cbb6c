/*
 * cuda/rope - norms and rotation of heads, shared so that all kernels use the same order of
 * operations and get the same bits.
 */
#ifndef CKPT_TRAINER_CUDA_ROPE_H
#define CKPT_TRAINER_CUDA_ROPE_H

#include "trainer/cuda/row.h"

template <int N>
__device__ __forceinline__ void rope_rotate(float (&x)[N], float (&y)[N], const float (&cos)[N],
                                            const float (&sin)[N])
{
#pragma unroll
    for (int k = 0; k < N; k++) {
        float first = x[k];

        x[k] = first * cos[k] - y[k] * sin[k];
        y[k] = y[k] * cos[k] + first * sin[k];
    }
}

/* The sum over the threads of a group; the whole warp calls it. */
__device__ __forceinline__ float rope_group_sum(float x, int group)
{
    for (int i = group / 2; i > 0; i /= 2)
        x += __shfl_xor_sync(0xffffffffu, x, i);
    return x;
}

template <int N> __device__ __forceinline__ float rope_squares(const float (&x)[N])
{
    float sum = 0;

#pragma unroll
    for (int k = 0; k < N; k++)
        sum += x[k] * x[k];
    return sum;
}

template <int N>
__device__ __forceinline__ void rope_scale(float (&x)[N], float r, const float (&w)[N])
{
#pragma unroll
    for (int k = 0; k < N; k++)
        x[k] = x[k] * r * w[k];
}

/* 1 / rms of a head, from the sum of its squares. */
__device__ __forceinline__ float rope_head_rstd(float squares, int dim, float eps)
{
    return 1.0f / sqrtf(squares / (float)dim + eps);
}

#endif

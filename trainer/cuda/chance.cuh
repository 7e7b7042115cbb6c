/*
 * chance - rounding to bf16 up or down with the odds of what is cut off: the random bits of
 * ops/optimizer.h, the same as the CPU's.
 */
#ifndef CKPT_TRAINER_CUDA_CHANCE_H
#define CKPT_TRAINER_CUDA_CHANCE_H

#include "trainer/cuda/cuda.h"

/* Of which bits: of moments or weights, in a step. */
struct chance {
    uint64_t key, step;
};

/* The 16 random bits of element e. */
static __device__ __noinline__ uint32_t chance_bits(const struct chance &c, uint64_t e)
{
    uint32_t word[4];

    philox(word, c.key, c.step, e / 8);
    return word[e % 8 / 2] >> (e % 2 * 16) & 0xffff;
}

/* The random bits of four elements. */
__device__ __forceinline__ void chance_four(uint32_t bits[4], const struct chance &c, uint64_t e)
{
    if (e % 4 == 0) {
        uint32_t word[4], low, high;

        philox(word, c.key, c.step, e / 8);
        low = e % 8 ? word[2] : word[0];
        high = e % 8 ? word[3] : word[1];
        bits[0] = low & 0xffff;
        bits[1] = low >> 16;
        bits[2] = high & 0xffff;
        bits[3] = high >> 16;
    } else {
#pragma unroll
        for (int k = 0; k < 4; k++)
            bits[k] = chance_bits(c, e + (uint64_t)k);
    }
}

__device__ __forceinline__ __nv_bfloat16 chance_round(float x, uint32_t bits)
{
    return __ushort_as_bfloat16((unsigned short)((__float_as_uint(x) + bits) >> 16));
}

/* Element e, and four from e on, at a multiple of 8 bytes. */
__device__ __forceinline__ void chance_store(__nv_bfloat16 *at, float x, const struct chance &c,
                                             uint64_t e)
{
    *at = chance_round(x, chance_bits(c, e));
}

__device__ __forceinline__ void chance_store4(__nv_bfloat16 *at, const float x[4],
                                              const struct chance &c, uint64_t e)
{
    cuda_pack<__nv_bfloat16, 4> four;
    uint32_t bits[4];

    chance_four(bits, c, e);
#pragma unroll
    for (int k = 0; k < 4; k++)
        four.at[k] = chance_round(x[k], bits[k]);
    *(cuda_pack<__nv_bfloat16, 4> *)at = four;
}

#endif

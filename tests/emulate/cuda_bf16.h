/* cuda_bf16 - see tests/emulate/cuda_runtime.h. */
#ifndef CKPT_TESTS_EMULATE_CUDA_BF16_H
#define CKPT_TESTS_EMULATE_CUDA_BF16_H

#include "tests/emulate/cuda_runtime.h"

extern "C" {
#include "libckpt/convert.h"
}

struct __nv_bfloat16 { uint16_t bits; };
struct __attribute__((aligned(4))) __nv_bfloat162 { __nv_bfloat16 x, y; };

static inline float __bfloat162float(__nv_bfloat16 x) { return __uint_as_float((unsigned)x.bits << 16); }
static inline __nv_bfloat16 __ushort_as_bfloat16(unsigned short u) { return {u}; }

static inline __nv_bfloat16 __float2bfloat16_rn(float x)
{
    __nv_bfloat16 y;

    ckpt_convert(&y, CKPT_BF16, &x, CKPT_F32, 1);
    return y;
}

static inline __nv_bfloat162 __floats2bfloat162_rn(float x, float y)
{
    return {__float2bfloat16_rn(x), __float2bfloat16_rn(y)};
}

#endif

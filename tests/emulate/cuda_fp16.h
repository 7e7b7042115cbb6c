/* cuda_fp16 - see tests/emulate/cuda_runtime.h. */
#ifndef CKPT_TESTS_EMULATE_CUDA_FP16_H
#define CKPT_TESTS_EMULATE_CUDA_FP16_H

#include "tests/emulate/cuda_runtime.h"

extern "C" {
#include "libckpt/convert.h"
}

struct __half { uint16_t bits; };
struct __attribute__((aligned(4))) __half2 { __half x, y; };

static inline float __half2float(__half x)
{
    float y;

    ckpt_convert(&y, CKPT_F32, &x, CKPT_F16, 1);
    return y;
}

static inline __half __float2half_rn(float x)
{
    __half y;

    ckpt_convert(&y, CKPT_F16, &x, CKPT_F32, 1);
    return y;
}

static inline __half2 __floats2half2_rn(float x, float y)
{
    return {__float2half_rn(x), __float2half_rn(y)};
}

#endif

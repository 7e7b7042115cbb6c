/*
 * cuda_runtime - in the place of CUDA's: rooms of trainer/cuda are compiled by the host's C++, and
 * their kernels run on it.
 *
 * A block's threads are fibers of one thread, the only one that may launch; blocks run one after
 * another.  A fiber runs until a barrier or a shuffle; one that not all threads reach ends the
 * program.  Every second launch runs its threads from the last to the first: a result that depends
 * on their order differs between two runs.  What a launch queues is done when it returns.
 *
 * Only what those rooms use is here.  Products are not contracted into fused multiply-adds, and
 * approximate functions are exact.
 */
#ifndef CKPT_TESTS_EMULATE_CUDA_RUNTIME_H
#define CKPT_TESTS_EMULATE_CUDA_RUNTIME_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define __global__
#define __device__
#define __host__
#define __launch_bounds__(...)
#define __align__(n)    __attribute__((aligned(n)))
#define __forceinline__ inline
#define __noinline__    __attribute__((noinline))
#define __shared__      static

/* -- the runtime ------------------------------------------------------------------------------ */

struct dim3 {
    unsigned x, y, z;
    dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};

typedef int cudaError_t;
typedef struct emulate_stream *cudaStream_t;
typedef struct emulate_event *cudaEvent_t;
enum { cudaSuccess = 0, cudaFuncAttributeMaxDynamicSharedMemorySize = 8,
       cudaLaunchAttributeProgrammaticStreamSerialization = 6 };

struct cudaLaunchAttribute {
    int id;
    struct { int programmaticStreamSerializationAllowed; } val;
};

struct cudaLaunchConfig_t {
    dim3 gridDim, blockDim;
    size_t dynamicSmemBytes;
    cudaStream_t stream;
    cudaLaunchAttribute *attrs;
    unsigned numAttrs;
};

template <typename F> cudaError_t cudaFuncSetAttribute(F *, int, int) { return cudaSuccess; }

/* -- threads ---------------------------------------------------------------------------------- */

extern dim3 threadIdx, blockIdx, blockDim, gridDim;

/* Run body(ctx) as each thread of each block. */
void emulate_run(dim3 grid, dim3 block, void (*body)(void *ctx), void *ctx);
/* The thread waits for those of its warp, or of its block, that have not ended. */
void emulate_wait(bool whole_block);
/* Eight bytes of each thread of the block, others at the next call; and which thread calls. */
uint64_t *emulate_slots(void);
unsigned emulate_thread(void);

template <typename... P, typename... A>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t *c, void (*kernel)(P...), const A &...args)
{
    auto call = [&] { kernel(args...); };

    emulate_run(c->gridDim, c->blockDim, [](void *f) { (*(decltype(call) *)f)(); }, &call);
    return cudaSuccess;
}

static inline void __syncthreads(void) { emulate_wait(true); }
static inline void __syncwarp(void) { emulate_wait(false); }

/* What the lane has that `lane` says. */
template <typename F> F emulate_exchange(F x, unsigned lane)
{
    uint64_t *slot = emulate_slots(), bits = 0;
    F other;

    static_assert(sizeof x <= sizeof bits, "a slot");
    memcpy(&bits, &x, sizeof x);
    slot[emulate_thread()] = bits;
    emulate_wait(false);
    memcpy(&other, &slot[emulate_thread() / 32 * 32 + lane % 32], sizeof other);
    return other;
}

template <typename F> F __shfl_xor_sync(unsigned, F x, int by)
{
    return emulate_exchange(x, emulate_thread() % 32 ^ (unsigned)by);
}

template <typename F> F __shfl_sync(unsigned, F x, int lane)
{
    return emulate_exchange(x, (unsigned)lane);
}

static inline unsigned __reduce_max_sync(unsigned mask, unsigned x)
{
    for (int i = 16; i > 0; i /= 2) {
        unsigned y = __shfl_xor_sync(mask, x, i);

        x = y > x ? y : x;
    }
    return x;
}

/* -- numbers ---------------------------------------------------------------------------------- */

struct __attribute__((aligned(16))) float4 { float x, y, z, w; };
struct __attribute__((aligned(8))) float2 { float x, y; };
struct __attribute__((aligned(8))) uint2 { unsigned x, y; };
struct __attribute__((aligned(16))) uint4 { unsigned x, y, z, w; };

static inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
static inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
static inline float2 make_float2(float x, float y) { return {x, y}; }

template <typename F> F min(F x, F y) { return y < x ? y : x; }
template <typename F> F max(F x, F y) { return y > x ? y : x; }
template <typename F> F __ldcs(const F *p) { return *p; }
template <typename F> void __stcs(F *p, F x) { *p = x; }

static inline unsigned __float_as_uint(float x)
{
    unsigned u;

    memcpy(&u, &x, sizeof u);
    return u;
}

static inline float __uint_as_float(unsigned u)
{
    float x;

    memcpy(&x, &u, sizeof x);
    return x;
}

static inline float __fdividef(float x, float y) { return x / y; }
static inline float __fsqrt_rn(float x) { return sqrtf(x); }
static inline size_t __cvta_generic_to_shared(const void *) { return 0; }

#endif

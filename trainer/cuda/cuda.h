/*
 * cuda - shared by the rooms of the CUDA backend: the device's own fields, launching, types.
 *
 * A C++17 header, for .cu rooms alone.  Operations run in order on one stream; only sync,
 * to_host waits for it; copies run beside it (cuda/streams.cu).  Activations and
 * weights have one type T (f32, bf16, f16), gradients of parameters are f32.  A kernel loads T,
 * computes in f32 and rounds once when it stores.  No atomics on floats: sums over rows go
 * through the workspace in a fixed order, so that a rerun gives the same bits.
 *
 * Weights and their gradients are aligned to their element only (parameters of a layer follow
 * each other without gaps); activations, statistics and the workspace to 256 bytes, their rows to
 * the element.  Code that moves 16 bytes at once checks cuda_aligned first.
 *
 * Indices of elements are int64_t; rooms skip a launch of zero blocks.
 */
#ifndef CKPT_TRAINER_CUDA_CUDA_H
#define CKPT_TRAINER_CUDA_CUDA_H

extern "C" {
#include "trainer/ops/ops.h"
}
#include "trainer/philox.h"

#include <cublasLt.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

struct matmul;                          /* matmul.cu */
struct fp8;                             /* fp8.cu */
struct cuda_streams;                    /* cuda/streams.cu */
struct bnb_codec;                       /* formats/bnb/codes.h */
struct cuda_device {
    struct device  dev;                 /* first: a struct device * is one of these */
    cudaStream_t   stream;
    int            index, sms;
    size_t         shared_most;         /* bytes of shared memory that a block may use */
    uint64_t       limit;               /* bytes that dev.held and the context may reach; 0:
                                           no limit */
    cudaEvent_t   *timestamps;              /* [n_timestamps] */
    int64_t        n_timestamps;
    bool           hopper;              /* the code for 9.0a was loaded.  Later chips run the
                                           code for 8.0, in which Hopper's kernels are empty */
    bool           tf32;                /* f32 products may round their factors to tf32 */
    double        *host;                /* pinned [CUDA_SMALL]: results for the host */
    double        *small;               /* on the GPU [CUDA_SMALL]: for ops outside of passes,
                                           which may have no workspace */
    struct matmul *matmul;
    struct fp8    *fp8;                 /* NULL without dev.fp8 */
    uint64_t       tail;                /* bytes at the end of the workspace that fp8 uses */
    struct cuda_streams *streams;       /* NULL until something is pinned */
    struct bnb_codec *codec;            /* on the GPU [2]: for exp_avg and exp_avg_sq */
};

enum { CUDA_SMALL = 8192 };

static inline struct cuda_device *cuda_of(struct device *dev) { return (struct cuda_device *)dev; }

/* Mark the device with that failure, unless it is marked already; returns false. */
__attribute__((format(printf, 3, 4)))
bool cuda_fail(struct device *dev, int code, const char *fmt, ...);
/* True on success and if nothing failed before; else the device is marked with the op's name,
 * once. */
bool cuda_ok(struct device *dev, const char *op, cudaError_t rc);
/* After a launch: check the launch's error in the same way. */
bool cuda_launched(struct device *dev, const char *op);
/*
 * The workspace, `bytes` from its start, 256-byte aligned; NULL, and the device marked, when it
 * is too small (our bug).  An op that needs several arrays makes one call and divides the result
 * itself.
 */
static inline void *cuda_work(struct device *dev, const char *op, uint64_t bytes)
{
    if (bytes <= dev->work_bytes)
        return dev->work;
    cuda_fail(dev, CKPT_ESTATE, "%s: workspace has %llu bytes, %llu are needed", op,
              (unsigned long long)dev->work_bytes, (unsigned long long)bytes);
    return NULL;
}

/* Bytes rounded up to the alignment of a workspace's parts. */
static inline uint64_t cuda_align(uint64_t bytes) { return (bytes + 255) / 256 * 256; }

/* Take the next array, of that many bytes, from a workspace at `base`: *at is its offset and
 * moves past it; with base NULL only *at moves.  bytes 0: the array is not needed, and *to is
 * NULL. */
template <typename P>
static inline void cuda_take(P **to, unsigned char *base, uint64_t *at, uint64_t bytes)
{
    *to = base && bytes ? (P *)(void *)(base + *at) : NULL;
    *at += cuda_align(bytes);
}

static inline bool cuda_aligned(const void *p, size_t bytes) { return (uintptr_t)p % bytes == 0; }

/* Bytes of an element of an activation. */
static inline size_t cuda_size(const struct device *dev) { return dev->act == CKPT_F32 ? 4 : 2; }

static inline int64_t cuda_blocks(int64_t n, int64_t each) { return (n + each - 1) / each; }

/* -- launching -------------------------------------------------------------------------------- */

/* A struct that is a kernel's parameter, read where the launch put it. */
#ifdef __CUDACC__
#define CUDA_PARAM(type_, name_) const __grid_constant__ type_ name_
#else
#define CUDA_PARAM(type_, name_) const type_ &name_
#endif

/* As <<<>>>, in words that a C++ compiler of the host knows too (tests/emulate). */
template <typename... P, typename... A>
static inline void cuda_launch(cudaStream_t stream, void (*kernel)(P...), int64_t blocks,
                               int threads, const A &...args)
{
    cudaLaunchConfig_t c = {};

    c.gridDim = dim3((unsigned)blocks);
    c.blockDim = dim3((unsigned)threads);
    c.stream = stream;
    cudaLaunchKernelEx(&c, kernel, P(args)...);
}

/* -- launching early ------------------------------------------------------------------------ */

/*
 * A kernel of a few rows takes less time than its launch.  On Hopper, a kernel launched by
 * cuda_pdl_launch (programmatic dependent launch) may start while its predecessor still runs:
 * it calls cuda_pdl_wait first, after which all earlier work is done and visible, and before
 * which it touches no memory (only gemv_ring.cu prefetches weights).  Every thread calls it, so
 * that no kernel ends before its predecessors.  In a plain launch it does nothing.
 */
__device__ __forceinline__ void cuda_pdl_wait(void)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;");
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/* Allow a kernel more than 48 KiB of shared memory. */
template <typename F> static inline cudaError_t cuda_allow_shared(F *kernel, size_t bytes)
{
    return cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes);
}

enum { CUDA_FEW_ROWS = 64 };     /* from this many rows on a launch costs nothing beside the work */

template <typename... P, typename... A>
static inline void cuda_pdl_launch(struct device *dev, bool early, void (*kernel)(P...),
                                   dim3 grid, dim3 block, size_t shared, A... args)
{
    cudaLaunchAttribute how = {};
    cudaLaunchConfig_t c = {};

    how.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    how.val.programmaticStreamSerializationAllowed = 1;
    c.gridDim = grid;
    c.blockDim = block;
    c.dynamicSmemBytes = shared;
    c.stream = cuda_of(dev)->stream;
    c.attrs = &how;
    c.numAttrs = early && cuda_of(dev)->hopper ? 1 : 0;
    cudaLaunchKernelEx(&c, kernel, P(args)...);
}

/* -- types ------------------------------------------------------------------------------------ */

/* Run the statements with T as the device's type of activations and weights. */
#define CUDA_ACT(dev_, ...)                                                                    \
    do {                                                                                       \
        if ((dev_)->act == CKPT_BF16) {                                                        \
            using T = __nv_bfloat16;                                                           \
            __VA_ARGS__;                                                                       \
        } else if ((dev_)->act == CKPT_F16) {                                                  \
            using T = __half;                                                                  \
            __VA_ARGS__;                                                                       \
        } else {                                                                               \
            using T = float;                                                                   \
            __VA_ARGS__;                                                                       \
        }                                                                                      \
    } while (0)

__device__ __forceinline__ float cuda_to_f32(float x) { return x; }
__device__ __forceinline__ float cuda_to_f32(__nv_bfloat16 x) { return __bfloat162float(x); }
__device__ __forceinline__ float cuda_to_f32(__half x) { return __half2float(x); }

template <typename T> __device__ __forceinline__ T cuda_from_f32(float x);
template <> __device__ __forceinline__ float cuda_from_f32<float>(float x) { return x; }
template <> __device__ __forceinline__ __nv_bfloat16 cuda_from_f32(float x)
{
    return __float2bfloat16_rn(x);
}
template <> __device__ __forceinline__ __half cuda_from_f32(float x)
{
    return __float2half_rn(x);
}

/* N elements that are accessed as one where both the pointer and N allow it. */
template <typename T, int N> struct __align__(sizeof(T) * N) cuda_pack { T at[N]; };

/* Two elements as fragments hold them, the first in the low half. */
template <typename T> __device__ __forceinline__ uint32_t cuda_pack2(float lo, float hi);
template <> __device__ __forceinline__ uint32_t cuda_pack2<__nv_bfloat16>(float lo, float hi)
{
    __nv_bfloat162 x = __floats2bfloat162_rn(lo, hi);

    return *(uint32_t *)&x;
}
template <> __device__ __forceinline__ uint32_t cuda_pack2<__half>(float lo, float hi)
{
    __half2 x = __floats2half2_rn(lo, hi);

    return *(uint32_t *)&x;
}

/* -- one warp, one block ---------------------------------------------------------------------- */

/* The address of shared memory as PTX takes it. */
__device__ __forceinline__ uint32_t cuda_shared_addr(const void *p)
{
    return (uint32_t)__cvta_generic_to_shared(p);
}

/* Tell the compiler that a value is the same in all threads of a warp, so that it computes
 * dependent values once per warp. */
__device__ __forceinline__ int cuda_uniform(int x) { return __shfl_sync(0xffffffffu, x, 0); }

/* The sum or maximum over LANES neighbours, in each of them; the whole warp calls it. */
template <int LANES = 32, typename F> __device__ __forceinline__ F cuda_warp_sum(F x)
{
    for (int i = LANES / 2; i > 0; i /= 2)
        x += __shfl_xor_sync(0xffffffffu, x, i);
    return x;
}

template <int LANES = 32> __device__ __forceinline__ float cuda_warp_max(float x)
{
    for (int i = LANES / 2; i > 0; i /= 2)
        x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, i));
    return x;
}

/* The sum over a block, in every thread; threads a multiple of 32; all threads call it. */
template <typename F> __device__ __forceinline__ F cuda_block_sum(F x)
{
    __shared__ F part[32];
    int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32, n = (int)blockDim.x / 32;
    F sum = 0;

    for (int i = 16; i > 0; i /= 2)
        x += __shfl_xor_sync(0xffffffffu, x, i);
    __syncthreads();                    /* reads of the last call are done */
    if (lane == 0)
        part[warp] = x;
    __syncthreads();
    for (int i = 0; i < n; i++)
        sum += part[i];
    return sum;
}

/* The square root but for its last bits. */
__device__ __forceinline__ float cuda_sqrt_roughly(float x)
{
#ifdef __CUDACC__
    float root;

    asm("sqrt.approx.f32 %0, %1;" : "=f"(root) : "f"(x));
    return root;
#else
    return sqrtf(x);
#endif
}

/* -- dropout ---------------------------------------------------------------------------------- */

/* Dropout in a kernel: an element whose random word is below `least` is dropped. */
struct cuda_drop {
    uint64_t seed;
    const uint64_t *rows;               /* op_drop_row of each */
    uint32_t stream, least;
    float    scale;                     /* 1 / (1 - p) */
    bool     on, all;                   /* p > 0; p 1 */
};

static inline struct cuda_drop cuda_drop_of(const struct op_drop *d)
{
    struct cuda_drop k = {d->seed, d->rows, d->stream, 0, 1.0f, d->p > 0, d->p >= 1};

    if (k.on && !k.all) {
        k.least = (uint32_t)(d->p * 4294967296.0);
        k.scale = (float)(1 / (1 - d->p));
    }
    return k;
}

/* The words of columns 4 col4 to 4 col4 + 3 of a row, given as its element of `rows`. */
__device__ __forceinline__ void cuda_drop_words(uint32_t (&w)[4], const struct cuda_drop &d,
                                                uint64_t row, uint32_t col4)
{
    philox(w, d.seed, row >> 32 << 32 | d.stream, row << 32 | col4);
}

/* -- the rooms -------------------------------------------------------------------------------- */

/* Copies beside the main stream; sync waits for theirs alone. */
void cuda_streams_sync(struct device *dev);
/* One of the streams; NULL when the device is broken. */
cudaStream_t cuda_stream_of(struct device *dev, enum op_stream stream);
void cuda_streams_close(struct cuda_device *d);

/* Workspace of each room, bytes. */
uint64_t cuda_norm_work(const struct device *dev, const struct op_limits *l);
uint64_t cuda_embed_work(const struct device *dev, const struct op_limits *l);
uint64_t cuda_rope_work(const struct device *dev, const struct op_limits *l);
uint64_t cuda_linear_work(const struct device *dev, const struct op_limits *l);
uint64_t cuda_experts_work(const struct device *dev, const struct op_limits *l);
uint64_t cuda_attention_work(const struct device *dev, const struct op_limits *l);
uint64_t cuda_cached_work(const struct device *dev, const struct op_limits *l);
uint64_t cuda_head_work(const struct device *dev, const struct op_limits *l);
uint64_t cuda_top_work(const struct device *dev, const struct op_limits *l);

/* Operations, by room. */
void *cuda_pin(struct device *dev, size_t bytes);
void cuda_unpin(struct device *dev, void *at);
void cuda_stream_copy(struct device *dev, enum op_stream stream, void *dst, const void *src,
                      size_t bytes);
void cuda_event_record(struct device *dev, enum op_stream stream, int i);
void cuda_stream_wait_event(struct device *dev, enum op_stream stream, int i);
void cuda_event_sync(struct device *dev, int i);
void cuda_cast(struct device *dev, enum op_stream stream, void *dst, enum ckpt_dtype to,
               const void *src, enum ckpt_dtype from, int64_t n);
void cuda_adamw(struct device *dev, const struct adamw_run *run, int64_t n_run,
                const struct adamw *a);
/* Its rules beside AdamW (rules.cu). */
void cuda_rules(struct device *dev, const struct adamw_run *run, int64_t n_run,
                const struct adamw *a);
void cuda_factored(struct device *dev, enum op_factored_part part, const struct op_factored *f,
                   int64_t n, const struct adamw *a);
void cuda_muon(struct device *dev, enum op_muon_part part, const struct op_matrix *m,
               const struct adamw *a);
void cuda_sum_squares(struct device *dev, double *sum, const float *grad, int64_t n);
void cuda_judge(struct device *dev, struct op_verdict *verdict, const double *sum, double max_norm,
                double scale);
void cuda_add(struct device *dev, enum op_stream stream, float *dst, const float *src, int64_t n);
void cuda_drop_op(struct device *dev, void *x, int64_t n, int64_t width, const struct op_drop *d);
void cuda_jitter(struct device *dev, void *x, int64_t n, int64_t width, const struct op_drop *d);
void cuda_embed_fwd(struct device *dev, const struct op_embed *a);
void cuda_embed_bwd(struct device *dev, const struct op_embed *a);
void cuda_norm_fwd(struct device *dev, const struct op_rownorm *a);
void cuda_norm_bwd(struct device *dev, const struct op_rownorm *a);
void cuda_linear_fwd(struct device *dev, const struct op_linear *a);
void cuda_linear_bwd(struct device *dev, const struct op_linear *a);
void cuda_linears_fwd(struct device *dev, const struct op_linear *a, int n);
void cuda_linears_bwd(struct device *dev, const struct op_linear *a, int n);
void cuda_rope_fwd(struct device *dev, const struct op_rope *a);
void cuda_rope_bwd(struct device *dev, const struct op_rope *a);
void cuda_gate_fwd(struct device *dev, const struct op_gate *a);
void cuda_gate_bwd(struct device *dev, const struct op_gate *a);
void cuda_experts_fwd(struct device *dev, const struct op_experts *a);
void cuda_experts_bwd(struct device *dev, const struct op_experts *a);
void cuda_attention_fwd(struct device *dev, const struct op_attention *a);
void cuda_attention_bwd(struct device *dev, const struct op_attention *a);
void cuda_attention_cached(struct device *dev, const struct op_cached *a);
void cuda_head_loss(struct device *dev, const struct op_head *a);
void cuda_head_logits(struct device *dev, float *logits, const void *x, const void *w, int64_t n,
                      int64_t dim, int64_t vocab, float mul);
void cuda_gated_fwd(struct device *dev, const struct op_linear *a, const struct op_gate *gate);
void cuda_normed_fwd(struct device *dev, const struct op_rownorm *norm, const struct op_linear *a,
                     const struct op_gate *gate);
void cuda_head_top(struct device *dev, const struct op_top *a);
void cuda_head_forbid(struct device *dev, const struct op_forbid *a);

/* cuda/graph.cu */
bool cuda_graph_begin(struct device *dev);
/* Whether work is being captured, or may be: then it runs again later, unseen by the host. */
bool cuda_graph_capturing(struct device *dev);
struct op_graph *cuda_graph_end(struct device *dev);
void cuda_graph_launch(struct device *dev, struct op_graph *r);
void cuda_graph_free(struct device *dev, struct op_graph *r);

#endif

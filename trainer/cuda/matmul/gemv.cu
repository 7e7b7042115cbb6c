/*
 * gemv - see gemv.h.
 *
 * A warp computes one output column for all rows: its lanes read the weights' row 16 bytes at
 * once, several loads in flight, and the rows of x from the nearest cache.  The order of the
 * sum depends on n_in alone.
 *
 * On Hopper, 16-bit rows use rings that are filled ahead (gemv_ring.cu).  Weights are not
 * prefetched here before x is ready: in a chain like one token of Qwen3-8B, prefetching 4 or 8
 * KB of each row to the L2 cache took 6 to 12 % longer.
 */
#include "trainer/cuda/matmul/gemv.h"

#include "trainer/cuda/act.h"
#include "trainer/cuda/row.h"

enum { THREADS = 128, WARPS = THREADS / 32, MOST = 4, AHEAD = 8 };

struct place {
    int64_t n_in, n_out, out_ld;
    float   alpha;
};

template <typename T> __device__ __forceinline__ float times(const row_pack<T> &a,
                                                             const row_pack<T> &b, float sum)
{
#pragma unroll
    for (int i = 0; i < CUDA_PACK<T>; i++)
        sum = fmaf(a.at(i), b.at(i), sum);
    return sum;
}

template <typename T, typename O, int R, enum op_act A>
static __global__ void __launch_bounds__(THREADS)
gemv_kernel(O *out, T *pre, const T *x, const T *w, const T *b, const T *residual, struct place p)
{
    constexpr int N = CUDA_PACK<T>;
    int64_t o = (int64_t)blockIdx.x * WARPS + threadIdx.x / 32;
    int lane = (int)threadIdx.x % 32;
    float sum[R] = {};
    int64_t c = lane * N;

    w += (o < p.n_out ? o : 0) * p.n_in;
    cuda_pdl_wait();
    if (o >= p.n_out)
        return;
    for (; c + (AHEAD - 1) * 32 * N < p.n_in; c += AHEAD * 32 * N) {
        row_pack<T> held[AHEAD];

#pragma unroll
        for (int i = 0; i < AHEAD; i++)
            held[i].raw = __ldcs((const uint4 *)(w + c + i * 32 * N));
#pragma unroll
        for (int i = 0; i < AHEAD; i++)
#pragma unroll
            for (int r = 0; r < R; r++)
                sum[r] = times(held[i], row_load(x + r * p.n_in, c + i * 32 * N), sum[r]);
    }
    for (; c < p.n_in; c += 32 * N) {
        row_pack<T> held = row_load(w, c);

#pragma unroll
        for (int r = 0; r < R; r++)
            sum[r] = times(held, row_load(x + r * p.n_in, c), sum[r]);
    }
#pragma unroll
    for (int r = 0; r < R; r++) {
        float v = cuda_warp_sum(sum[r]) * p.alpha;

        if (lane != 0)
            continue;
        v += b ? cuda_to_f32(b[o]) : 0.0f;
        if (pre)
            pre[r * p.n_out + o] = cuda_from_f32<T>(v);
        v = act_value<A>(v);
        v += residual ? cuda_to_f32(residual[r * p.n_out + o]) : 0.0f;
        out[r * p.out_ld + o] = cuda_from_f32<O>(v);
    }
}

/* The same for a gated output: a column of each half. */
template <typename T, int R, enum op_act A>
static __global__ void __launch_bounds__(THREADS)
gated_kernel(T *out, const T *x, const T *w, struct place p)
{
    constexpr int N = CUDA_PACK<T>, EACH = AHEAD / 2;
    int64_t half = p.n_out / 2, o = (int64_t)blockIdx.x * WARPS + threadIdx.x / 32;
    int lane = (int)threadIdx.x % 32;
    const T *row[2] = {w + (o < half ? o : 0) * p.n_in, w + (half + (o < half ? o : 0)) * p.n_in};
    float sum[2][R] = {};

    cuda_pdl_wait();
    if (o >= half)
        return;
    for (int64_t c = lane * N; c < p.n_in; c += EACH * 32 * N) {
        row_pack<T> held[2][EACH];

#pragma unroll
        for (int i = 0; i < EACH; i++)
#pragma unroll
            for (int k = 0; k < 2; k++)
                if (c + i * 32 * N < p.n_in)
                    held[k][i].raw = __ldcs((const uint4 *)(row[k] + c + i * 32 * N));
#pragma unroll
        for (int i = 0; i < EACH; i++)
#pragma unroll
            for (int r = 0; r < R; r++) {
                row_pack<T> in;

                if (c + i * 32 * N >= p.n_in)
                    continue;
                in = row_load(x + r * p.n_in, c + i * 32 * N);
                sum[0][r] = times(held[0][i], in, sum[0][r]);
                sum[1][r] = times(held[1][i], in, sum[1][r]);
            }
    }
#pragma unroll
    for (int r = 0; r < R; r++) {
        float g = cuda_to_f32(cuda_from_f32<T>(cuda_warp_sum(sum[0][r]) * p.alpha));
        float u = cuda_to_f32(cuda_from_f32<T>(cuda_warp_sum(sum[1][r]) * p.alpha));

        if (lane == 0)
            out[r * p.out_ld + o] = cuda_from_f32<T>(u * act_value<A>(g));
    }
}

template <typename T, typename O, int R>
static void launch(struct device *dev, const struct gemv *g)
{
    struct place p = {g->n_in, g->n_out, g->out_ld, g->alpha};
    unsigned blocks = (unsigned)cuda_blocks(g->gated ? g->n_out / 2 : g->n_out, WARPS);

    if (g->gated) {
        CUDA_OP_ACT(g->act,
                    cuda_pdl_launch(dev, true, gated_kernel<T, R, A>, blocks, THREADS, 0,
                                    (T *)g->out, (const T *)g->x, (const T *)g->w, p));
        return;
    }
    CUDA_OP_ACT(g->act,
                cuda_pdl_launch(dev, true, gemv_kernel<T, O, R, A>, blocks, THREADS, 0,
                                (O *)g->out, (T *)g->pre, (const T *)g->x, (const T *)g->w,
                                (const T *)g->b, (const T *)g->residual, p));
}

template <typename T, typename O> static void by_rows(struct device *dev, const struct gemv *g)
{
    switch (g->n) {
    case 1: launch<T, O, 1>(dev, g); break;
    case 2: launch<T, O, 2>(dev, g); break;
    case 3: launch<T, O, 3>(dev, g); break;
    default: launch<T, O, MOST>(dev, g); break;
    }
}

bool gemv(struct device *dev, const struct gemv *g)
{
    const void *x = g->norm ? g->norm->x : g->x;

    if (g->n > MOST || (uint64_t)g->n_in * cuda_size(dev) % 16 != 0 || !cuda_aligned(x, 16) ||
        !cuda_aligned(g->w, 16))
        return false;
    if (dev->err.code || g->n == 0 || gemv_ring(dev, g))
        return true;
    if (g->norm)
        return false;
    CUDA_ACT(dev, {
        if (g->wide)
            by_rows<T, float>(dev, g);
        else
            by_rows<T, T>(dev, g);
    });
    cuda_launched(dev, g->op);
    return true;
}

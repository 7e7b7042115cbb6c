/*
 * gate - gated activations and their backward.
 *
 * A thread takes one pack of columns of one row (a single column where rows are odd) and reads
 * both halves of u there.  Backward drops dout out for itself and leaves the caller's
 * unchanged.
 */
#include "trainer/cuda/act.h"
#include "trainer/cuda/row.h"

namespace {

const int block = 256;

template <typename T> struct args {
    T               *out;               /* bwd: du */
    T               *recomputed;        /* bwd: out, or NULL */
    const T         *u, *dout;
    int64_t          n, ff;
    unsigned         across;            /* blocks of one row */
    struct cuda_drop drop;
};

template <typename T, int N, enum op_act A>
__global__ void __launch_bounds__(block) forward(struct args<T> a)
{
    int64_t i = blockIdx.x / a.across;
    int64_t c = ((int64_t)(blockIdx.x % a.across) * blockDim.x + threadIdx.x) * N;
    float g[N], u[N];

    cuda_pdl_wait();
    if (c >= a.ff)
        return;
    row_get(g, a.u + 2 * i * a.ff + c);
    row_get(u, a.u + (2 * i + 1) * a.ff + c);
#pragma unroll
    for (int k = 0; k < N; k++)
        u[k] *= act_value<A>(g[k]);
    row_drop<N>(u, a.drop, i, c);
    row_put(a.out + i * a.ff + c, u);
}

template <typename T, int N, enum op_act A>
__global__ void __launch_bounds__(block) backward(struct args<T> a)
{
    int64_t i = blockIdx.x / a.across;
    int64_t c = ((int64_t)(blockIdx.x % a.across) * blockDim.x + threadIdx.x) * N;
    float g[N], u[N], d[N], o[N];

    if (c >= a.ff)
        return;
    row_get(d, a.dout + i * a.ff + c);
    row_get(g, a.u + 2 * i * a.ff + c);
    row_get(u, a.u + (2 * i + 1) * a.ff + c);
    row_drop<N>(d, a.drop, i, c);
#pragma unroll
    for (int k = 0; k < N; k++) {
        float value, slope = act_slope<A>(g[k], &value);

        o[k] = value * u[k];
        g[k] = d[k] * u[k] * slope;
        u[k] = d[k] * value;
    }
    if (a.recomputed) {
        row_drop<N>(o, a.drop, i, c);
        row_put(a.recomputed + i * a.ff + c, o);
    }
    row_put(a.out + 2 * i * a.ff + c, g);
    row_put(a.out + (2 * i + 1) * a.ff + c, u);
}

template <typename T, int N>
void launch(struct device *dev, const struct op_gate *op, bool back)
{
    struct args<T> a = {};
    int64_t packs = op->ff / N, across = cuda_blocks(packs, block);
    /* threads of a block: the row's packs shared out evenly, in whole warps */
    unsigned threads = (unsigned)(cuda_blocks(cuda_blocks(packs, across), 32) * 32);
    unsigned blocks = (unsigned)(op->n * across);
    cudaStream_t on = cuda_of(dev)->stream;

    a.out = (T *)(back ? op->du : op->out);
    a.recomputed = op->recompute ? (T *)op->out : NULL;
    a.u = (const T *)op->u;
    a.dout = (const T *)op->dout;
    a.n = op->n;
    a.ff = op->ff;
    a.across = (unsigned)across;
    a.drop = cuda_drop_of(&op->drop);
    if (back)
        CUDA_OP_ACT(op->act, backward<T, N, A><<<blocks, threads, 0, on>>>(a));
    else
        CUDA_OP_ACT(op->act, cuda_pdl_launch(dev, op->n <= CUDA_FEW_ROWS, forward<T, N, A>,
                                             blocks, threads, 0, a));
}

template <typename T> void run(struct device *dev, const struct op_gate *op, bool back)
{
    bool whole = row_packable<T>(op->u, op->ff) &&
                 (!back || (row_packable<T>(op->du, op->ff) &&
                            row_packable<T>(op->dout, op->ff))) &&
                 ((back && !op->recompute) || row_packable<T>(op->out, op->ff));

    if (whole)
        launch<T, CUDA_PACK<T>>(dev, op, back);
    else
        launch<T, 1>(dev, op, back);
}

void gate(struct device *dev, const char *name, const struct op_gate *op, bool back)
{
    if (dev->err.code || op->n * op->ff == 0)
        return;
    CUDA_ACT(dev, run<T>(dev, op, back));
    cuda_launched(dev, name);
}

} /* namespace */

void cuda_gate_fwd(struct device *dev, const struct op_gate *a) { gate(dev, "gate_fwd", a, false); }

void cuda_gate_bwd(struct device *dev, const struct op_gate *a) { gate(dev, "gate_bwd", a, true); }

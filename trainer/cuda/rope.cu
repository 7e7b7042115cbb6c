/*
 * rope - rotate heads by position, after norms where there are any; forward and backward.
 *
 * Columns j and j + R/2 form a pair: a thread takes a pack of N columns (one, where heads are odd
 * or not aligned) of each half.  With norms, a group of 4 to 32 threads takes one head of one
 * row, walks its pairs and then the columns after the rotated ones, sums the squares by shuffles,
 * and walks them again, now from the L1.
 *
 * Gradients of the norms' weights: each group adds those of its heads to its own place in shared
 * memory, the block adds its groups' in order, a second kernel the blocks' in order.
 */
#include "trainer/cuda/rope.cuh"

namespace {

const int block = 256, back_each = 3;   /* backward: blocks per multiprocessor */

template <typename T> struct heads {
    T      *q, *k, *v;
    int64_t row, kv_row, q_head, kv_head;
};

template <typename T> struct args {
    struct heads<T> in, out;            /* bwd: out is the gradient */
    float          *stats, *part;
    const float    *table;
    const int32_t  *positions;
    const T        *q_norm, *k_norm;
    int64_t         n;
    int             n_head, n_kv, dim, rotary_dim, pairs, tail; /* pairs, tail: in packs */
    int             group;              /* threads of a head, with norms */
    unsigned        across;             /* blocks of one row */
    float           eps, sign;
};

template <typename T>
__device__ __forceinline__ T *head_at(const struct heads<T> &h, int64_t row, int head, int n_head,
                                      int n_kv)
{
    if (head < n_head)
        return h.q + row * h.row + head * h.q_head;
    head -= n_head;
    return (head < n_kv ? h.k + head * h.kv_head : h.v + (head - n_kv) * h.kv_head) +
           row * h.kv_row;
}

/* Cosines and sines of N columns from c on; the sines times sign. */
template <typename T, int N>
__device__ __forceinline__ void angles(float (&cos)[N], float (&sin)[N], const struct args<T> &a,
                                       int64_t row, int c)
{
    const float *at = a.table + (int64_t)a.positions[row] * a.rotary_dim + c;

    row_get(cos, at);
    row_get(sin, at + a.rotary_dim / 2);
#pragma unroll
    for (int k = 0; k < N; k++)
        sin[k] *= a.sign;
}

/* Without norms, forward or (with sign -1) back. */
template <typename T, int N>
__global__ void __launch_bounds__(block) rotate_rows(struct args<T> a)
{
    int64_t row = blockIdx.x / a.across;
    int item = (int)(blockIdx.x % a.across * blockDim.x + threadIdx.x);
    int head = item / a.pairs, c = item % a.pairs * N, half = a.rotary_dim / 2;
    float x[N], y[N], cos[N], sin[N];
    const T *from;
    T *to;

    cuda_pdl_wait();
    if (head >= a.n_head + a.n_kv)
        return;
    from = head_at(a.in, row, head, a.n_head, a.n_kv);
    to = head_at(a.out, row, head, a.n_head, a.n_kv);
    row_get(x, from + c);
    row_get(y, from + c + half);
    angles<T, N>(cos, sin, a, row, c);
    rope_rotate(x, y, cos, sin);
    row_put(to + c, x);
    row_put(to + c + half, y);
}

/* With norms; the heads of k are followed by those of v, which are copied. */
template <typename T, int N> __global__ void __launch_bounds__(block) norm_rows(struct args<T> a)
{
    int64_t row = blockIdx.x / a.across;
    int each = (int)blockDim.x / a.group, me = (int)threadIdx.x % a.group, half = a.rotary_dim / 2;
    int head = (int)(blockIdx.x % a.across) * each + (int)threadIdx.x / a.group;
    bool on = head < a.n_head + 2 * a.n_kv, copied = head >= a.n_head + a.n_kv;
    const T *from = on ? head_at(a.in, row, head, a.n_head, a.n_kv) : NULL;
    T *to = on ? head_at(a.out, row, head, a.n_head, a.n_kv) : NULL;
    const T *w = head < a.n_head ? a.q_norm : a.k_norm;
    float x[N], y[N], wx[N], wy[N], cos[N], sin[N], r = 0;

    cuda_pdl_wait();
    for (int p = me; on && !copied && p < a.pairs; p += a.group) {
        row_get(x, from + p * N);
        row_get(y, from + p * N + half);
        r += rope_squares(x) + rope_squares(y);
    }
    for (int p = me; on && !copied && p < a.tail; p += a.group) {
        row_get(x, from + a.rotary_dim + p * N);
        r += rope_squares(x);
    }
    r = rope_head_rstd(rope_group_sum(r, a.group), a.dim, a.eps);
    if (on && !copied && me == 0 && a.stats)
        a.stats[row * (a.n_head + a.n_kv) + head] = r;
    for (int p = me; on && p < a.pairs; p += a.group) {
        row_get(x, from + p * N);
        row_get(y, from + p * N + half);
        if (!copied) {
            row_get(wx, w + p * N);
            row_get(wy, w + p * N + half);
            rope_scale(x, r, wx);
            rope_scale(y, r, wy);
            angles<T, N>(cos, sin, a, row, p * N);
            rope_rotate(x, y, cos, sin);
        }
        row_put(to + p * N, x);
        row_put(to + p * N + half, y);
    }
    for (int p = me; on && p < a.tail; p += a.group) {
        row_get(x, from + a.rotary_dim + p * N);
        if (!copied) {
            row_get(wx, w + a.rotary_dim + p * N);
            rope_scale(x, r, wx);
        }
        row_put(to + a.rotary_dim + p * N, x);
    }
}

/*
 * The same for one pair per thread with all columns rotated: a group takes two heads of a row,
 * holds their packs, and issues all loads before it needs the sums.
 */
template <typename T, int N> __global__ void __launch_bounds__(block) norm_pairs(struct args<T> a)
{
    int64_t row = blockIdx.x / a.across;
    int each = (int)blockDim.x / a.group, me = (int)threadIdx.x % a.group, half = a.rotary_dim / 2;
    int first = (int)(blockIdx.x % a.across) * 2 * each + (int)threadIdx.x / a.group;
    int all = me < a.pairs ? a.n_head + 2 * a.n_kv : 0, c = me * N;
    float cos[N] = {}, sin[N] = {}, x[2][N], y[2][N];

    cuda_pdl_wait();
#pragma unroll
    for (int k = 0; k < 2; k++) {
        const T *from = head_at(a.in, row, first + k * each, a.n_head, a.n_kv);

#pragma unroll
        for (int i = 0; i < N; i++)
            x[k][i] = y[k][i] = 0;
        if (first + k * each < all) {
            row_get(x[k], from + c);
            row_get(y[k], from + c + half);
        }
    }
    if (all)
        angles<T, N>(cos, sin, a, row, c);
#pragma unroll
    for (int k = 0; k < 2; k++) {
        int head = first + k * each;
        float r = rope_group_sum(rope_squares(x[k]) + rope_squares(y[k]), a.group), wx[N],
              wy[N];
        const T *w = head < a.n_head ? a.q_norm : a.k_norm;
        T *to;

        if (head >= all)
            continue;
        to = head_at(a.out, row, head, a.n_head, a.n_kv);
        if (head < a.n_head + a.n_kv) {
            r = rope_head_rstd(r, a.dim, a.eps);
            row_get(wx, w + c);
            row_get(wy, w + c + half);
            rope_scale(x[k], r, wx);
            rope_scale(y[k], r, wy);
            rope_rotate(x[k], y[k], cos, sin);
            if (me == 0 && a.stats)
                a.stats[row * (a.n_head + a.n_kv) + head] = r;
        }
        row_put(to + c, x[k]);
        row_put(to + c + half, y[k]);
    }
}

/* dw += g x r; gives the sum of g w x r. */
template <int N>
__device__ __forceinline__ float back_sums(float *dw, const float (&g)[N], const float (&x)[N],
                                           const float (&w)[N], float r)
{
    float sum = 0;

#pragma unroll
    for (int k = 0; k < N; k++) {
        float part = g[k] * x[k] * r;

        if (dw)
            dw[k] += part;
        sum += part * w[k];
    }
    return sum;
}

template <int N>
__device__ __forceinline__ void back_norm(float (&g)[N], const float (&x)[N], const float (&w)[N],
                                          float r, float mean)
{
#pragma unroll
    for (int k = 0; k < N; k++)
        g[k] = r * (g[k] * w[k] - x[k] * r * mean);
}

/* The gradient of the norm's output, for a pack of each half. */
template <typename T, int N>
__device__ __forceinline__ void unrotated(float (&gx)[N], float (&gy)[N], const T *g,
                                          const struct args<T> &a, int64_t row, int c)
{
    float cos[N], sin[N];

    row_get(gx, g + c);
    row_get(gy, g + c + a.rotary_dim / 2);
    angles<T, N>(cos, sin, a, row, c);
    rope_rotate(gx, gy, cos, sin);
}

/* One head of a row, backward; dw [d] is in shared memory, NULL: not needed. */
template <typename T, int N>
__device__ __forceinline__ void head_back(const struct args<T> &a, float *dw, int64_t row, int head,
                                          bool on, int me)
{
    const T *from = on ? head_at(a.in, row, head, a.n_head, a.n_kv) : NULL;
    T *g = on ? head_at(a.out, row, head, a.n_head, a.n_kv) : NULL;
    const T *w = head < a.n_head ? a.q_norm : a.k_norm;
    float r = on ? a.stats[row * (a.n_head + a.n_kv) + head] : 0.0f, mean = 0;
    float x[N], gx[N], gy[N], wx[N];
    int half = a.rotary_dim / 2;

    for (int p = me; on && p < a.pairs; p += a.group) {
        int c = p * N, d = c + half;

        unrotated<T, N>(gx, gy, g, a, row, c);
        row_get(x, from + c);
        row_get(wx, w + c);
        mean += back_sums(dw ? dw + c : NULL, gx, x, wx, r);
        row_get(x, from + d);
        row_get(wx, w + d);
        mean += back_sums(dw ? dw + d : NULL, gy, x, wx, r);
    }
    for (int p = me; on && p < a.tail; p += a.group) {
        int c = a.rotary_dim + p * N;

        row_get(gx, g + c);
        row_get(x, from + c);
        row_get(wx, w + c);
        mean += back_sums(dw ? dw + c : NULL, gx, x, wx, r);
    }
    mean = rope_group_sum(mean, a.group) / (float)a.dim;
    for (int p = me; on && p < a.pairs; p += a.group) {
        unrotated<T, N>(gx, gy, g, a, row, p * N);
        row_get(x, from + p * N);
        row_get(wx, w + p * N);
        back_norm(gx, x, wx, r, mean);
        row_get(x, from + p * N + half);
        row_get(wx, w + p * N + half);
        back_norm(gy, x, wx, r, mean);
        row_put(g + p * N, gx);
        row_put(g + p * N + half, gy);
    }
    for (int p = me; on && p < a.tail; p += a.group) {
        int c = a.rotary_dim + p * N;

        row_get(gx, g + c);
        row_get(x, from + c);
        row_get(wx, w + c);
        back_norm(gx, x, wx, r, mean);
        row_put(g + c, gx);
    }
}

/* The same for one pair per thread with all columns rotated: everything is read once. */
template <typename T, int N>
__device__ __forceinline__ void pair_back(const struct args<T> &a, float *dw, int64_t row, int head,
                                          bool on, int me)
{
    const T *from = head_at(a.in, row, head, a.n_head, a.n_kv);
    T *g = head_at(a.out, row, head, a.n_head, a.n_kv);
    const T *w = head < a.n_head ? a.q_norm : a.k_norm;
    float x[N], y[N], gx[N], gy[N], wx[N], wy[N], r = 0, mean = 0;
    int c = me * N, d = c + a.rotary_dim / 2;

    on = on && me < a.pairs;
    if (on) {
        r = a.stats[row * (a.n_head + a.n_kv) + head];
        row_get(x, from + c);
        row_get(y, from + d);
        unrotated<T, N>(gx, gy, g, a, row, c);
        row_get(wx, w + c);
        row_get(wy, w + d);
        mean = back_sums(dw ? dw + c : NULL, gx, x, wx, r) +
               back_sums(dw ? dw + d : NULL, gy, y, wy, r);
    }
    mean = rope_group_sum(mean, a.group) / (float)a.dim;
    if (on) {
        back_norm(gx, x, wx, r, mean);
        back_norm(gy, y, wy, r, mean);
        row_put(g + c, gx);
        row_put(g + d, gy);
    }
}

/* shared: [groups][2][d], sums of q's weights and of k's. */
template <typename T, int N, bool ONE>
__global__ void __launch_bounds__(block, back_each) norm_back_rows(struct args<T> a)
{
    extern __shared__ float shared[];
    int groups = block / a.group, me = (int)threadIdx.x % a.group, heads = a.n_head + a.n_kv;
    int group = (int)threadIdx.x / a.group, places = 2 * a.dim;
    float *own = a.part ? shared + group * places : NULL;
    int64_t all = a.n * heads;

    for (int j = (int)threadIdx.x; own && j < groups * places; j += block)
        shared[j] = 0;
    __syncthreads();
    for (int64_t i = (int64_t)blockIdx.x * groups; i < all; i += (int64_t)gridDim.x * groups) {
        bool on = i + group < all;
        int64_t row = on ? (i + group) / heads : 0;
        int head = on ? (int)(i + group - row * heads) : 0;
        float *dw;

        dw = own ? own + (head < a.n_head ? 0 : a.dim) : NULL;
        if (ONE)
            pair_back<T, N>(a, dw, row, head, on, me);
        else
            head_back<T, N>(a, dw, row, head, on, me);
    }
    __syncthreads();
    for (int j = (int)threadIdx.x; own && j < places; j += block) {
        float sum = 0;

        for (int k = 0; k < groups; k++)
            sum += shared[k * places + j];
        a.part[(int64_t)blockIdx.x * places + j] = sum;
    }
}

template <typename T> struct heads<T> heads_of(const struct op_heads *h)
{
    return {(T *)h->q, (T *)h->k, (T *)h->v, h->row_stride,
            h->kv_stride ? h->kv_stride : h->row_stride, h->q_head, h->kv_head};
}

/* Whether packs of heads are aligned to 16 bytes. */
template <typename T> bool heads_whole(const struct heads<T> *h, bool v)
{
    const int64_t N = CUDA_PACK<T>;

    return cuda_aligned(h->q, 16) && cuda_aligned(h->k, 16) && (!v || cuda_aligned(h->v, 16)) &&
           h->row % N == 0 && h->kv_row % N == 0 && h->q_head % N == 0 && h->kv_head % N == 0;
}

template <typename T> struct args<T> args_of(const struct op_rope *op, bool back)
{
    struct args<T> a = {};

    a.in = a.out = heads_of<T>(&op->in);
    if (back) {
        a.out = heads_of<T>(&op->grad);
        a.out.row = a.in.row;           /* grad has the strides of in, as ops.h says */
        a.out.kv_row = a.in.kv_row;
    } else if (op->q_norm) {
        a.out = heads_of<T>(&op->out);
    }
    if (!op->q_norm)                    /* in place */
        a.in = a.out;
    a.stats = op->stats;
    a.table = op->table;
    a.positions = op->positions;
    a.q_norm = (const T *)op->q_norm;
    a.k_norm = (const T *)op->k_norm;
    a.n = op->n;
    a.n_head = (int)op->n_head;
    a.n_kv = (int)op->n_kv;
    a.dim = (int)op->dim;
    a.rotary_dim = op->table ? (int)op->rotary_dim : 0;
    a.eps = op->eps;
    a.sign = back ? -1.0f : 1.0f;
    return a;
}

template <typename T> bool whole(const struct args<T> *a, bool back)
{
    const int N = CUDA_PACK<T>;

    return a->rotary_dim % (2 * N) == 0 && a->dim % N == 0 && cuda_aligned(a->table, 16) &&
           heads_whole(&a->in, a->q_norm && !back) && heads_whole(&a->out, a->q_norm && !back) &&
           cuda_aligned(a->q_norm, 16) && cuda_aligned(a->k_norm, 16);
}

/* Threads of a block that shares `items` of a row evenly with other blocks; *across: their
 * number. */
unsigned share(unsigned *across, int64_t items, int64_t at_once)
{
    *across = (unsigned)cuda_blocks(items, at_once);
    return (unsigned)cuda_blocks(items, *across);
}

template <typename T, int N> void launch_rotate(struct device *dev, struct args<T> a)
{
    unsigned threads = share(&a.across, (int64_t)(a.n_head + a.n_kv) * a.pairs, block);

    cuda_pdl_launch(dev, a.n <= CUDA_FEW_ROWS, rotate_rows<T, N>, (unsigned)a.n * a.across,
                    (threads + 31) / 32 * 32, 0, a);
}

/* Whether each thread of a group has exactly one pair, and no column is left. */
template <typename T> bool one_pair(const struct args<T> *a)
{
    return a->tail == 0 && a->pairs <= a->group;
}

template <typename T, int N> void launch_norm(struct device *dev, struct args<T> a)
{
    int64_t all = a.n_head + 2 * a.n_kv;
    unsigned groups = share(&a.across, one_pair(&a) ? (all + 1) / 2 : all, block / a.group);
    unsigned threads = (groups * (unsigned)a.group + 31) / 32 * 32;

    cuda_pdl_launch(dev, a.n <= CUDA_FEW_ROWS,
                    one_pair(&a) ? norm_pairs<T, N> : norm_rows<T, N>, (unsigned)a.n * a.across,
                    threads, 0, a);
}

uint64_t part_bytes(const struct device *dev, int64_t dim)
{
    return (uint64_t)((const struct cuda_device *)dev)->sms * back_each * 2 * (uint64_t)dim *
           sizeof(float);
}

template <typename T, int N, bool ONE>
void launch_back(struct device *dev, struct args<T> a, const struct op_rope *op)
{
    bool sums = op->dq_norm || op->dk_norm;
    int64_t groups = block / a.group, most = (int64_t)cuda_of(dev)->sms * back_each;
    int64_t blocks = cuda_blocks(a.n * (a.n_head + a.n_kv), groups);
    size_t shared = sums ? (size_t)(groups * 2 * a.dim) * sizeof(float) : 0;

    blocks = blocks < most ? blocks : most;
    if (sums && !(a.part = (float *)cuda_work(dev, "rope_bwd", part_bytes(dev, a.dim))))
        return;
    if (shared > 48 * 1024 &&
        !cuda_ok(dev, "rope_bwd", cuda_allow_shared(norm_back_rows<T, N, ONE>, shared)))
        return;
    norm_back_rows<T, N, ONE><<<(unsigned)blocks, block, shared, cuda_of(dev)->stream>>>(a);
    if (cuda_launched(dev, "rope_bwd") && sums)
        cuda_add_parts(dev, "rope_bwd", (float *)op->dq_norm, (float *)op->dk_norm, a.part, blocks,
                       a.dim);
}

template <typename T, int N>
void launch(struct device *dev, struct args<T> a, const struct op_rope *op, bool back)
{
    a.pairs = a.rotary_dim / 2 / N;
    a.tail = (a.dim - a.rotary_dim) / N;
    for (a.group = 4; a.group < 32 && (a.group < a.pairs || a.group < a.tail);)
        a.group *= 2;
    if (op->q_norm && back && one_pair(&a))
        launch_back<T, N, true>(dev, a, op);
    else if (op->q_norm && back)
        launch_back<T, N, false>(dev, a, op);
    else if (op->q_norm)
        launch_norm<T, N>(dev, a);
    else if (a.pairs)
        launch_rotate<T, N>(dev, a);
}

template <typename T> void run(struct device *dev, const struct op_rope *op, bool back)
{
    struct args<T> a = args_of<T>(op, back);

    if (whole(&a, back))
        launch<T, CUDA_PACK<T>>(dev, a, op, back);
    else
        launch<T, 1>(dev, a, op, back);
}

} /* namespace */

uint64_t cuda_rope_work(const struct device *dev, const struct op_limits *l)
{
    return l->train ? part_bytes(dev, l->head_dim) : 0;
}

void cuda_rope_fwd(struct device *dev, const struct op_rope *a)
{
    if (dev->err.code || a->n == 0)
        return;
    CUDA_ACT(dev, run<T>(dev, a, false));
    cuda_launched(dev, "rope_fwd");
}

void cuda_rope_bwd(struct device *dev, const struct op_rope *a)
{
    if (dev->err.code || a->n == 0)
        return;
    CUDA_ACT(dev, run<T>(dev, a, true));
    cuda_launched(dev, "rope_bwd");
}

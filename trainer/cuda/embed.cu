/*
 * embed - gather rows of the embedding table, add positions, token types and LoRA, normalise
 * and drop out; and the backward of it.
 *
 * A team of warps computes one row and adds its parts in registers.  LoRA on embeddings is rare
 * and small: plain tiles compute it, SLAB rows at a time, so that the workspace stays small.
 *
 * Backward: dropout and norm turn dout into the gradient of the gathered row, in place; rows
 * with one id are then summed in their order (segments.h).  For a norm over adapted rows these
 * are gathered again, as activations, SLAB at a time.
 */
#include "trainer/cuda/segments.h"

#include "trainer/ops/noise.h"

namespace {

const int block = 256;
const int64_t SLAB = 2048;

template <typename T> struct args {
    T               *out;
    float           *stats;
    const T         *table, *tokens, *pos, *token_type, *w, *b;
    const float     *delta;             /* of the slab, [.., dim]; NULL: no LoRA */
    const int32_t   *ids, *token_ids, *positions, *token_type_ids;
    const struct op_noise_row *noise;   /* NULL: none */
    int64_t          first, n, dim, n_tokens;   /* rows [first, n); out begins with row first */
    float            eps;
    bool             rms;
    struct cuda_drop drop;
};

/* The weights' row of an id; whole warps call it. */
template <typename T>
__device__ __forceinline__ const T *row_of(const struct args<T> &a, int32_t id)
{
    int lane = (int)threadIdx.x % 32;

    for (int64_t k = 0; k < a.n_tokens; k += 32) {
        bool same = k + lane < a.n_tokens && a.token_ids[k + lane] == id;
        unsigned hit = __ballot_sync(0xffffffffu, same);

        if (hit)
            return a.tokens + (k + __ffs((int)hit) - 1) * a.dim;
    }
    return a.table + id * a.dim;
}

/* v += a pack or an element at `at`. */
template <typename S, int N> __device__ __forceinline__ void add(float (&v)[N], const S *at)
{
    float x[N];

    row_get(x, at);
#pragma unroll
    for (int k = 0; k < N; k++)
        v[k] += x[k];
}

/* v += the noise of columns [c, c + N) of a row: N is a multiple of 4, and so is c, or N is 1. */
template <int N>
__device__ __forceinline__ void add_noise(float (&v)[N], const struct op_noise_row *row, int64_t c)
{
    struct op_noise_row r = *row;
    float x[4];

#pragma unroll
    for (int k = 0; k < N; k++) {
        if (k % 4 == 0)
            noise_four(x, &r, (uint32_t)((c + k) / 4));
        if (N == 1)
            v[0] += c % 4 == 0 ? x[0] : c % 4 == 1 ? x[1] : c % 4 == 2 ? x[2] : x[3];
        else
            v[k] += x[k % 4];
    }
}

/* Columns [c, c + N) of the gathered row i. */
template <typename T, int N>
__device__ __forceinline__ void gathered(float (&v)[N], const struct args<T> &a, const T *row,
                                         int64_t i, int64_t c)
{
    row_get(v, row + c);
    if (a.delta)
        add(v, a.delta + (i - a.first) * a.dim + c);
    if (a.noise)
        add_noise(v, a.noise + i, c);
    if (a.pos)
        add(v, a.pos + a.positions[i] * a.dim + c);
    if (a.token_type)
        add(v, a.token_type + (a.token_type_ids ? a.token_type_ids[i] : 0) * a.dim + c);
}

template <typename T, int WARPS, int PACKS>
__global__ void __launch_bounds__(WARPS * 32 * row_team_count(WARPS, block))
    gather(struct args<T> a)
{
    constexpr int N = CUDA_PACK<T>, SPAN = WARPS * 32, TEAMS = row_team_count(WARPS, block);
    int team = (int)threadIdx.x / SPAN, lane = (int)threadIdx.x % SPAN, phase = 0;
    int64_t step = (int64_t)gridDim.x * TEAMS;

    for (int64_t i = a.first + (int64_t)blockIdx.x * TEAMS + team; i < a.n; i += step) {
        const T *row = row_of(a, a.ids[i]);
        float2 s = make_float2(0, 1);
        float v[PACKS][N];

#pragma unroll
        for (int p = 0; p < PACKS; p++) {
            int64_t c = (int64_t)(p * SPAN + lane) * N;

#pragma unroll
            for (int k = 0; k < N; k++)
                v[p][k] = 0;
            if (c < a.dim)
                gathered(v[p], a, row, i, c);
        }
        if (a.w)
            s = row_stats<T, WARPS, PACKS>(v, a.rms, a.eps, a.dim, team, lane, &phase);
        if (a.w && lane == 0 && a.stats)
            reinterpret_cast<float2 *>(a.stats)[i] = s;
#pragma unroll
        for (int p = 0; p < PACKS; p++) {
            int64_t c = (int64_t)(p * SPAN + lane) * N;

            if (c >= a.dim)
                continue;
            if (a.w) {
                row_pack<T> w = row_load(a.w, c), b = a.b ? row_load(a.b, c) : row_zero<T>();

#pragma unroll
                for (int k = 0; k < N; k++)
                    v[p][k] = (v[p][k] - s.x) * s.y * w.at(k) + b.at(k);
            }
            row_drop<N>(v[p], a.drop, i, c);
            row_put(a.out + (i - a.first) * a.dim + c, v[p]);
        }
    }
}

/* Any width and alignment: a block computes a row, and gathers it again for each step. */
template <typename T> __global__ void __launch_bounds__(block) gather_any(struct args<T> a)
{
    for (int64_t i = a.first + blockIdx.x; i < a.n; i += gridDim.x) {
        const T *row = row_of(a, a.ids[i]);
        float2 s = make_float2(0, 1);
        auto at = [&](int64_t c) {
            float v[1];

            gathered(v, a, row, i, c);
            return v[0];
        };

        if (a.w)
            s = row_stats_block(at, a.rms, a.eps, a.dim);
        if (a.w && threadIdx.x == 0 && a.stats)
            reinterpret_cast<float2 *>(a.stats)[i] = s;
        for (int64_t c = threadIdx.x; c < a.dim; c += block) {
            float v[1] = {at(c)};

            if (a.w)
                v[0] = (v[0] - s.x) * s.y * cuda_to_f32(a.w[c]) +
                       (a.b ? cuda_to_f32(a.b[c]) : 0.0f);
            row_drop<1>(v, a.drop, i, c);
            row_put(a.out + (i - a.first) * a.dim + c, v);
        }
    }
}

/* -- narrow products of LoRA ------------------------------------------------------------------ */

/* Element (i, k) of a matrix with those strides. */
template <typename T> struct plain {
    const T *p;
    int64_t  row, col;

    __device__ float operator()(int64_t i, int64_t k) const
    {
        return cuda_to_f32(p[i * row + k * col]);
    }
};

/* Element (i, r) of A's columns of the ids; SWAP: element (r, i). */
template <typename T, bool SWAP> struct by_id {
    const T       *p;
    const int32_t *ids;
    int64_t        stride;

    __device__ float operator()(int64_t i, int64_t k) const
    {
        return SWAP ? cuda_to_f32(p[i * stride + ids[k]]) : cuda_to_f32(p[k * stride + ids[i]]);
    }
};

/* c[m, n] = alpha sum_k x(i, k) y(j, k), or += with `added`: tiles of 32 by 32. */
template <typename X, typename Y>
__global__ void __launch_bounds__(block)
product(float *c, int64_t m, int64_t n, int64_t depth, float alpha, bool added, X x, Y y)
{
    __shared__ float xs[32][33], ys[32][33];
    int64_t i0 = (int64_t)blockIdx.x * 32, j0 = (int64_t)blockIdx.y * 32;
    int me = (int)threadIdx.x % 32, first = (int)threadIdx.x / 32;
    float sum[4] = {};

    for (int64_t k0 = 0; k0 < depth; k0 += 32) {
        __syncthreads();
        for (int t = first; t < 32; t += 8) {
            bool in = k0 + me < depth;

            xs[t][me] = in && i0 + t < m ? x(i0 + t, k0 + me) : 0.0f;
            ys[t][me] = in && j0 + t < n ? y(j0 + t, k0 + me) : 0.0f;
        }
        __syncthreads();
#pragma unroll 8
        for (int k = 0; k < 32; k++)
#pragma unroll
            for (int t = 0; t < 4; t++)
                sum[t] += xs[first + 8 * t][k] * ys[me][k];
    }
#pragma unroll
    for (int t = 0; t < 4; t++) {
        int64_t i = i0 + first + 8 * t, j = j0 + me;

        if (i < m && j < n)
            c[i * n + j] = alpha * sum[t] + (added ? c[i * n + j] : 0.0f);
    }
}

template <typename X, typename Y>
void launch_product(struct device *dev, float *c, int64_t m, int64_t n, int64_t depth, float alpha,
                    bool added, X x, Y y)
{
    dim3 grid((unsigned)cuda_blocks(m, 32), (unsigned)cuda_blocks(n, 32));

    product<<<grid, block, 0, cuda_of(dev)->stream>>>(c, m, n, depth, alpha, added, x, y);
}

/* -- one call ---------------------------------------------------------------------------------- */

/* Its workspace. */
struct space {
    float *delta;                       /* [SLAB, D] */
    float *dt;                          /* [n, r] */
    float *part;                        /* the norm's */
    void  *e;                           /* activation [SLAB, D] */
    void  *sort;
    uint64_t bytes;
};

struct space lay_out(const struct device *dev, unsigned char *base, int64_t n, int64_t dim,
                     int64_t rank, bool back)
{
    uint64_t slab = (uint64_t)((n < SLAB ? n : SLAB) * dim), dt = (uint64_t)(n * rank);
    struct space s = {};

    cuda_take(&s.delta, base, &s.bytes, rank ? slab * sizeof(float) : 0);
    cuda_take(&s.dt, base, &s.bytes, back ? dt * sizeof(float) : 0);
    cuda_take(&s.e, base, &s.bytes, back ? slab * cuda_size(dev) : 0);
    cuda_take(&s.part, base, &s.bytes, back ? cuda_norm_parts(dev, dim) : 0);
    cuda_take(&s.sort, base, &s.bytes, back ? segments_bytes(n, dim) : 0);
    return s;
}

bool open_space(struct space *s, struct device *dev, const struct op_embed *op, bool back,
                const char *name)
{
    struct space need = lay_out(dev, NULL, op->n, op->dim, op->lora.rank, back);
    unsigned char *base =
        need.bytes ? (unsigned char *)cuda_work(dev, name, need.bytes) : NULL;

    *s = lay_out(dev, base, op->n, op->dim, op->lora.rank, back);
    return dev->err.code == 0;
}

template <typename T> struct args<T> args_of(const struct op_embed *op)
{
    struct args<T> a = {};

    a.out = (T *)op->out;
    a.table = (const T *)op->table;
    a.tokens = (const T *)op->tokens;
    a.token_ids = op->token_ids;
    a.n_tokens = op->tokens ? op->n_tokens : 0;
    a.pos = (const T *)op->pos;
    a.token_type = (const T *)op->token_type;
    a.ids = op->ids;
    a.positions = op->positions;
    a.token_type_ids = op->token_type_ids;
    a.noise = op->noise;
    a.n = op->n;
    a.dim = op->dim;
    return a;
}

template <typename T> bool whole(const struct args<T> *a)
{
    return row_packable<T>(a->out, a->dim) && row_packable<T>(a->table, a->dim) &&
           row_packable<T>(a->tokens, a->dim) && row_packable<T>(a->pos, a->dim) &&
           row_packable<T>(a->token_type, a->dim) && row_packable<T>(a->w, a->dim) &&
           row_packable<T>(a->b, a->dim);
}

template <typename T> void launch_gather(struct device *dev, const struct args<T> &a)
{
    int64_t n = a.n - a.first, most = 16 * (int64_t)cuda_of(dev)->sms, blocks;
    int64_t packs = whole(&a) ? a.dim / CUDA_PACK<T> : INT64_MAX;
    cudaStream_t on = cuda_of(dev)->stream;

    CUDA_TEAM4(packs, {
        const int teams = row_team_count(WARPS, block);

        blocks = cuda_blocks(n, teams);
        blocks = blocks < most ? blocks : most;
        gather<T, WARPS, PACKS><<<(unsigned)blocks, WARPS * 32 * teams, 0, on>>>(a);
    })
        gather_any<T><<<(unsigned)(n < most ? n : most), block, 0, on>>>(a);
}

/* The LoRA delta of rows [first, end) to s->delta. */
template <typename T>
void make_delta(struct device *dev, const struct op_embed *op, const struct space *s, int64_t first,
                int64_t end)
{
    const struct op_lora *l = &op->lora;

    launch_product(dev, s->delta, end - first, op->dim, l->rank, l->scale, false,
                   by_id<T, false>{(const T *)l->a, op->ids + first, op->vocab},
                   plain<T>{(const T *)l->b, l->rank, 1});
}

template <typename T>
void run_forward(struct device *dev, const struct op_embed *op, const struct space *s)
{
    struct args<T> a = args_of<T>(op);

    if (op->norm) {
        a.stats = op->stats;
        a.w = (const T *)op->norm->w;
        a.b = (const T *)op->norm->b;
        a.eps = op->norm->eps;
        a.rms = op->norm->kind == OP_NORM_RMS;
    }
    a.drop = cuda_drop_of(&op->drop);
    if (!op->lora.rank) {
        launch_gather(dev, a);
        return;
    }
    a.delta = s->delta;
    for (int64_t i = 0; i < op->n; i += SLAB) {
        a.first = i;
        a.n = i + SLAB < op->n ? i + SLAB : op->n;
        a.out = (T *)op->out + i * op->dim;
        make_delta<T>(dev, op, s, i, a.n);
        launch_gather(dev, a);
    }
}

/* dout becomes the gradient of the gathered rows. */
template <typename T>
void norm_back(struct device *dev, const struct op_embed *op, const struct space *s)
{
    struct op_rownorm norm = {};
    struct args<T> a = args_of<T>(op);
    int64_t at = 0;

    norm.norm = *op->norm;
    norm.dim = op->dim;
    norm.stats = op->stats;
    norm.dx = op->dout;
    norm.dout = op->dout;
    if (!op->lora.rank && !op->tokens && !op->noise) {
        norm.x = op->table;
        norm.rows = op->ids;
        norm.n = op->n;
        cuda_norm_back(dev, "embed_bwd", &norm, true, s->part);
        return;
    }
    a.out = (T *)s->e;
    a.delta = op->lora.rank ? s->delta : NULL;
    norm.x = s->e;
    for (; at < op->n && dev->err.code == 0; at = a.n) {
        a.first = at;
        a.n = at + SLAB < op->n ? at + SLAB : op->n;
        if (op->lora.rank)
            make_delta<T>(dev, op, s, at, a.n);
        launch_gather(dev, a);
        norm.n = a.n - at;
        norm.stats = op->stats + 2 * at;
        norm.dx = (T *)op->dout + at * op->dim;
        norm.dout = norm.dx;
        cuda_norm_back(dev, "embed_bwd", &norm, true, s->part);
    }
}

/* Gradients of LoRA. */
template <typename T>
void lora_bwd(struct device *dev, const struct op_embed *op, const struct space *s,
              const struct segments *by_ids)
{
    const struct op_lora *l = &op->lora;
    const T *dout = (const T *)op->dout;

    if (l->db)
        launch_product(dev, (float *)l->db, op->dim, l->rank, op->n, l->scale, true,
                       plain<T>{dout, 1, op->dim},
                       by_id<T, true>{(const T *)l->a, op->ids, op->vocab});
    if (l->da) {
        launch_product(dev, s->dt, op->n, l->rank, op->dim, l->scale, false,
                       plain<T>{dout, op->dim, 1}, plain<T>{(const T *)l->b, 1, l->rank});
        segments_columns(by_ids, dev, "embed_bwd", (float *)l->da, op->vocab, s->dt, l->rank,
                         op->no_grad);
    }
}

} /* namespace */

uint64_t cuda_embed_work(const struct device *dev, const struct op_limits *l)
{
    return lay_out(dev, NULL, l->n, l->embed > l->dim ? l->embed : l->dim, l->lora_rank, l->train)
        .bytes;
}

void cuda_embed_fwd(struct device *dev, const struct op_embed *op)
{
    struct space s = {};

    if (dev->err.code || op->n == 0 ||
        (op->lora.rank && !open_space(&s, dev, op, false, "embed_fwd")))
        return;
    CUDA_ACT(dev, run_forward<T>(dev, op, &s));
    cuda_launched(dev, "embed_fwd");
}

void cuda_embed_bwd(struct device *dev, const struct op_embed *op)
{
    static const char name[] = "embed_bwd";
    bool by_ids = op->dtable || (op->tokens && op->dtokens) || (op->lora.rank && op->lora.da);
    struct segments seg;
    struct space s;

    if (dev->err.code || op->n == 0 || !open_space(&s, dev, op, true, name))
        return;
    cuda_drop_op(dev, op->dout, op->n, op->dim, &op->drop);
    if (op->norm)
        CUDA_ACT(dev, norm_back<T>(dev, op, &s));
    if (by_ids && !segments_sort(&seg, dev, name, s.sort, op->ids, op->n, op->vocab))
        return;
    if (op->lora.rank)
        CUDA_ACT(dev, lora_bwd<T>(dev, op, &s, &seg));
    if (op->tokens && op->dtokens)
        segments_pick(&seg, dev, name, (float *)op->dtokens, op->token_ids, op->n_tokens, op->dout,
                      op->dim, op->no_grad);
    if (op->dtable)
        segments_add(&seg, dev, name, op->dtable, op->gather, op->dout, op->dim, op->no_grad);
    if (op->dpos && segments_sort(&seg, dev, name, s.sort, op->positions, op->n, 0))
        segments_add(&seg, dev, name, op->dpos, false, op->dout, op->dim, -1);
    cuda_launched(dev, name);
}

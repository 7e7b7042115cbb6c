/*
 * attention/cached - attention of new rows against a cache of keys and values (generation).
 *
 * First the new keys and values are appended to the cache; where a sequence has one new row, the
 * block that reads its last part appends it.  Prompts, many rows of a sequence, go through the
 * tiles of fwd.cu.  With a few rows per sequence, time is bound by reading the cache once: a
 * block takes one row, one key head with the heads that share it, and a part of the keys; groups
 * of lanes read whole keys and values, 16 bytes a lane, and keep a softmax each.  Heads that
 * share keys go to cached_heads.cu.  The groups of a block, then the parts of a row, are joined
 * in a fixed order.
 *
 * Source: Dao et al. 2023 (Flash-Decoding).
 */
#include "trainer/cuda/attention/cached.cuh"

enum {
    ENOUGH = 1056,                      /* blocks: eight on each of 132 multiprocessors */
    LEAST_KEYS = 64,                    /* least keys of a part, to be worth a block; but */
    MANY = 264, MANY_KEYS = 256,        /* from this many rows x heads on, to save the join */
    RESIDENT = 528,                     /* blocks of cached_heads.cu, four on each */
    FEW_ROWS = 8,                       /* rows per sequence from which tiles are faster */
    MOST_SHARE = 8,                     /* heads of a block */
};

/* Eight elements as loaded. */
template <typename T> struct __align__(16) raw { T at[8]; };

/* Columns [c, c + 8) of a row of the cache, zeros beyond dim. */
template <typename T>
__device__ __forceinline__ struct raw<T> eight(const T *at, int c, int dim, bool vec)
{
    struct raw<T> x;

    if (vec && c < dim) {
#pragma unroll
        for (int i = 0; i < (int)sizeof x / 16; i++)
            ((uint4 *)&x)[i] = ((const uint4 *)(at + c))[i];
    } else {
#pragma unroll
        for (int i = 0; i < 8; i++)
            x.at[i] = c + i < dim ? at[c + i] : cuda_from_f32<T>(0.0f);
    }
    return x;
}

/* Softmax state of a group of lanes for one head: the lane's eight columns. */
struct seen {
    float max, sum, out[8];
};

__device__ __forceinline__ void join(struct seen &to, float max, float sum, const float *out)
{
    float most = fmaxf(to.max, max), low = most == -INFINITY ? 0.0f : most;
    float fix = attn_exp2(to.max - low), add = attn_exp2(max - low);

    to.max = most;
    to.sum = to.sum * fix + sum * add;
#pragma unroll
    for (int i = 0; i < 8; i++)
        to.out[i] = to.out[i] * fix + out[i] * add;
}

/* KEYS keys at once, so that their loads are in flight together. */
template <typename T, int LANES, int HEADS, int KEYS>
__device__ __forceinline__ void step(const struct attn &a, struct seen (&w)[HEADS],
                                     const float (&q)[HEADS][8], const T *k, const T *v, int j,
                                     int stride, int end, int pos, int heads, const float *slopes,
                                     int h0)
{
    int c = (int)threadIdx.x % LANES * 8;
    struct raw<T> rk[KEYS], rv[KEYS];
    float s[HEADS][KEYS];

#pragma unroll
    for (int i = 0; i < KEYS; i++) {
        int64_t at = min(j + i * stride, end - 1);

        rk[i] = eight(k + at * a.dim, c, a.dim, a.vec);
        rv[i] = eight(v + at * a.dim, c, a.dim, a.vec);
    }
#pragma unroll
    for (int h = 0; h < HEADS; h++)
#pragma unroll
        for (int i = 0; i < KEYS; i++) {
            float sum = 0;

#pragma unroll
            for (int e = 0; e < 8; e++)
                sum = fmaf(q[h][e], cuda_to_f32(rk[i].at[e]), sum);
            s[h][i] = cuda_warp_sum<LANES>(sum);
        }
#pragma unroll
    for (int h = 0; h < HEADS; h++) {
        float most = w[h].max, low, fix;

#pragma unroll
        for (int i = 0; i < KEYS; i++) {
            int at = j + i * stride, rel = min(max(at - pos, -a.far), a.far);
            float y = fmaf(slopes[h], (float)(at - pos), s[h][i]);

            if (a.table && h < heads)
                y += LOG2E *
                     cuda_to_f32(
                         ((const T *)
                              a.table)[(int64_t)a.bucket[a.far + rel] * a.n_head + h0 + h]);
            s[h][i] = at < end ? y : -INFINITY;
            most = fmaxf(most, s[h][i]);
        }
        low = most == -INFINITY ? 0.0f : most;
        fix = attn_exp2(w[h].max - low);
        w[h].max = most;
        w[h].sum *= fix;
#pragma unroll
        for (int e = 0; e < 8; e++)
            w[h].out[e] *= fix;
#pragma unroll
        for (int i = 0; i < KEYS; i++) {
            float p = attn_exp2(s[h][i] - low);

            w[h].sum += p;
#pragma unroll
            for (int e = 0; e < 8; e++)
                w[h].out[e] = fmaf(p, cuda_to_f32(rv[i].at[e]), w[h].out[e]);
        }
    }
}

/* A part of a row: its largest score, sum and out [parts][n][H][2 + dim], in the workspace. */
template <typename T, int LANES, int HEADS>
__global__ void __launch_bounds__(THREADS)
    row_part(const __grid_constant__ struct attn a, float *parts, int n_parts, int chunks)
{
    const int GROUPS = THREADS / LANES, KEYS = HEADS > 4 ? 2 : 4;
    __shared__ float stats[GROUPS][HEADS][2], outs[GROUPS][HEADS][LANES * 8];
    int chunk = (int)(blockIdx.x % (unsigned)chunks), g = (int)(blockIdx.x / (unsigned)chunks);
    int part = (int)blockIdx.y, row = g / a.n_kv;
    int group = (int)threadIdx.x / LANES, lane = (int)threadIdx.x % LANES, c = lane * 8;
    struct seen w[HEADS];
    float q[HEADS][8], slopes[HEADS];

    cuda_pdl_wait();
    g %= a.n_kv;
    int h0 = g * a.share + chunk * HEADS, heads = min(HEADS, a.share - chunk * HEADS);
    struct part p = cached_part_of(a, row, g, part, n_parts);

    cached_append<T>(a, row, g, p);
#pragma unroll
    for (int h = 0; h < HEADS; h++) {
        bool there = h < heads;

        slopes[h] = there ? attn_head_slope(a, h0 + h) : 0.0f;
        struct raw<T> x = eight((const T *)a.q + row * a.row_stride +
                                (there ? h0 + h : h0) * a.q_head, c, a.dim, false);

        for (int e = 0; e < 8; e++) {
            q[h][e] = cuda_to_f32(x.at[e]) * a.scale2;
            w[h].out[e] = 0;
        }
        w[h].max = -INFINITY;
        w[h].sum = 0;
    }
    for (int j = p.from; j < p.to; j += GROUPS * KEYS)
        step<T, LANES, HEADS, KEYS>(a, w, q, (const T *)a.k + p.at, (const T *)a.v + p.at,
                                    j + group, GROUPS, p.to, p.pos, heads, slopes, h0);
#pragma unroll
    for (int h = 0; h < HEADS; h++) {
        if (lane == 0) {
            stats[group][h][0] = w[h].max;
            stats[group][h][1] = w[h].sum;
        }
#pragma unroll
        for (int e = 0; e < 8; e++)
            outs[group][h][c + e] = w[h].out[e];
    }
    __syncthreads();
    for (int h = group; h < heads; h += GROUPS) {
        struct seen all = {-INFINITY, 0, {}};
        int64_t id = (int64_t)row * a.n_head + h0 + h;
        float *to_part = parts + (part * a.n * a.n_head + id) * (a.dim + 2);

        for (int i = 0; i < GROUPS; i++)
            join(all, stats[i][h][0], stats[i][h][1], &outs[i][h][c]);
        if (n_parts > 1 && lane == 0) {
            to_part[0] = all.max;
            to_part[1] = all.sum;
        }
        for (int e = 0; e < 8 && c + e < a.dim; e++) {
            if (n_parts > 1)
                to_part[2 + c + e] = all.out[e];
            else
                ((T *)a.out)[id * a.dim + c + e] = cuda_from_f32<T>(all.out[e] / all.sum);
        }
    }
}

/* Join out[row, h] from its parts: a block each, so that many loads are in flight. */
template <typename T>
__global__ void __launch_bounds__(THREADS)
    join_parts(const __grid_constant__ struct attn a, const float *parts, int n_parts)
{
    __shared__ float by[ENOUGH], sums[ENOUGH];
    int64_t id = blockIdx.x, next = a.n * a.n_head * (a.dim + 2);
    const float *at = parts + id * (a.dim + 2);
    float max = -INFINITY, sum = 0;

    cuda_pdl_wait();
    for (int i = (int)threadIdx.x; i < n_parts; i += THREADS)
        by[i] = at[i * next];
    __syncthreads();
    for (int i = 0; i < n_parts; i++)
        max = fmaxf(max, by[i]);
    __syncthreads();
    for (int i = (int)threadIdx.x; i < n_parts; i += THREADS) {
        by[i] = attn_exp2(by[i] - max);
        sums[i] = by[i] * at[i * next + 1];
    }
    __syncthreads();
    for (int i = 0; i < n_parts; i++)
        sum += sums[i];
    for (int c = (int)threadIdx.x; c < a.dim; c += THREADS) {
        float x = 0;

#pragma unroll 8
        for (int i = 0; i < n_parts; i++)
            x = fmaf(by[i], at[i * next + 2 + c], x);
        ((T *)a.out)[id * a.dim + c] = cuda_from_f32<T>(x / sum);
    }
}

/* The number of parts that the keys of a row are cut into.  Blocks of cached_heads.cu have loads
 * enough in flight: where they fill the chip once, more of them only begin and join more often
 * (H200, 64 rows, 8 key heads, 570 keys: 1 part 51 us, 2 parts 61, 3 parts 68). */
static int64_t parts_of(int64_t n, int64_t n_kv, int64_t max_keys, bool shared)
{
    int64_t blocks = n * n_kv, least = blocks < MANY ? LEAST_KEYS : MANY_KEYS;
    int64_t want = shared && blocks >= MANY ? (RESIDENT + blocks / 2) / blocks
                                            : cuda_blocks(ENOUGH, blocks);
    int64_t most = cuda_blocks(max_keys, least);

    want = want < 1 ? 1 : want;
    return want < most ? want : most < 1 ? 1 : most;
}

/* More than one part only while n * K < ENOUGH: then parts * n * K < 2 * ENOUGH. */
static uint64_t parts_bytes(int64_t blocks, int64_t share, int64_t dim)
{
    return (uint64_t)(blocks * share * (dim + 2)) * sizeof(float);
}

uint64_t cuda_cached_work(const struct device *dev, const struct op_limits *l)
{
    (void)dev;
    return l->max_keys > 0 && l->n_kv > 0 ?
               parts_bytes(2 * ENOUGH, l->n_head / l->n_kv, l->head_dim) : 0;
}

template <typename T, int LANES, int HEADS>
static void launch_rows(struct device *dev, const struct attn &a, float *parts, int64_t n_parts)
{
    int64_t chunks = cuda_blocks(a.share, HEADS);
    dim3 grid((unsigned)(a.n * a.n_kv * chunks), (unsigned)n_parts, 1);

    cuda_pdl_launch(dev, true, row_part<T, LANES, HEADS>, grid, THREADS, 0, a, parts,
                    (int)n_parts, (int)chunks);
    cuda_launched(dev, "attention_cached");
}

template <typename T, int LANES>
static void by_share(struct device *dev, const struct attn &a, float *parts, int64_t n_parts)
{
    if (a.share == 1)
        launch_rows<T, LANES, 1>(dev, a, parts, n_parts);
    else if (a.share <= 4)
        launch_rows<T, LANES, 4>(dev, a, parts, n_parts);
    else
        launch_rows<T, LANES, MOST_SHARE>(dev, a, parts, n_parts);
}

/* Whether heads that share keys are processed as rows of products. */
static bool shares(const struct device *dev, const struct attn &a)
{
    return dev->act != CKPT_F32 && a.share > 1;
}

template <typename T>
static void by_width(struct device *dev, const struct attn &a, const struct cached_rope &t,
                     float *parts, int64_t n_parts)
{
    if constexpr (sizeof(T) == 2) {
        if (shares(dev, a)) {
            cached_heads<T>(dev, a, t, parts, n_parts);
            return;
        }
    }
    if (a.dim <= 64)
        by_share<T, 8>(dev, a, parts, n_parts);
    else if (a.dim <= 128)
        by_share<T, 16>(dev, a, parts, n_parts);
    else
        by_share<T, 32>(dev, a, parts, n_parts);
}

/* Rows one by one. */
template <typename T>
static void rows(struct device *dev, const struct attn &a, const struct cached_rope &t,
                 int64_t max_keys)
{
    int64_t n_parts = parts_of(a.n, a.n_kv, max_keys, shares(dev, a)), all = a.n * a.n_head;
    bool at_once = shares(dev, a) && a.wide &&      /* the code for 9.0a supports clusters */
                   (n_parts <= CLUSTER || max_keys <= CLUSTER * MANY_KEYS);
    float *parts = NULL;

    if (at_once && n_parts > CLUSTER)   /* larger parts take less time than a second kernel */
        n_parts = CLUSTER;
    if (n_parts > 1 && !at_once) {
        parts = (float *)cuda_work(dev, "attention_cached",
                                   parts_bytes(n_parts * a.n * a.n_kv, a.share, a.dim));
        if (!parts)
            return;
    }
    by_width<T>(dev, a, t, parts, n_parts);
    if (parts && !dev->err.code) {
        cuda_pdl_launch(dev, true, join_parts<T>, (unsigned)all, THREADS, 0, a, parts,
                        (int)n_parts);
        cuda_launched(dev, "attention_cached");
    }
}

static struct attn of_cached(const struct device *dev, const struct op_cached *o)
{
    struct attn a = attn_common(dev, o, o->seg_start, o->n_seg, o->max_keys);

    a.first = o->seg_first;
    a.past = o->seg_past;
    a.capacity = o->capacity;
    a.vec = a.vec && o->dim % 8 == 0 && cuda_aligned(o->k_cache, 16) &&
            cuda_aligned(o->v_cache, 16);
    return a;
}

/* Whether the block that reads a row's queries can rotate them itself: then t describes the
 * rotation, and a the unrotated queries. */
static bool rotates(const struct device *dev, const struct op_cached *o, struct attn *a,
                    struct cached_rope *t)
{
    const struct op_rope *r = o->rope;
    size_t size = ckpt_dtype_size(dev->act);
    struct op_heads in = r->in;

    in.kv_stride = in.kv_stride ? in.kv_stride : in.row_stride;
    if (!shares(dev, *a) || o->n != o->n_seg || !a->vec || !r->table || r->rotary_dim != o->dim ||
        o->dim % 16 != 0 || in.kv_stride != in.row_stride || !attn_vec(&in, o->dim, size) ||
        !cuda_aligned(r->q_norm, 16) || !cuda_aligned(r->k_norm, 16) ||
        !cuda_aligned(r->table, 16))
        return false;
    a->q = in.q;
    a->new_k = in.k;
    a->new_v = in.v;
    a->row_stride = in.row_stride;
    a->q_head = in.q_head;
    a->kv_head = in.kv_head;
    t->table = r->table;
    t->positions = r->positions;
    t->q_norm = r->q_norm;
    t->k_norm = r->k_norm;
    t->eps = r->eps;
    return true;
}

/* A block takes a new row, E elements at once. */
template <typename T, int E>
__global__ void append(const __grid_constant__ struct attn a, T *k_cache, T *v_cache)
{
    using pack = cuda_pack<T, E>;
    int row = (int)blockIdx.x, each = a.dim / E;

    cuda_pdl_wait();
    int seg = attn_segment_of(a.doc_start, a.n_docs, row);
    int64_t pos = a.past[seg] + row - a.doc_start[seg];
    int64_t first = a.first[seg];

    for (int c = (int)threadIdx.x; c < a.n_kv * each; c += (int)blockDim.x) {
        int64_t g = c / each, at = c % each * E;
        int64_t from = row * a.row_stride + g * a.kv_head + at;
        int64_t to = (first + g * a.capacity + pos) * a.dim + at;

        *(pack *)(k_cache + to) = *(const pack *)((const T *)a.k + from);
        *(pack *)(v_cache + to) = *(const pack *)((const T *)a.v + from);
    }
}

template <typename T>
static void append_rows(struct device *dev, const struct attn &a, const struct op_cached *o)
{
    const int E = 16 / sizeof(T);
    T *k = (T *)o->k_cache, *v = (T *)o->v_cache;

    cuda_pdl_launch(dev, a.n <= CUDA_FEW_ROWS, a.vec ? append<T, E> : append<T, 1>,
                    (unsigned)a.n, 256, 0, a, k, v);
    cuda_launched(dev, "attention_cached");
}

void cuda_attention_cached(struct device *dev, const struct op_cached *o)
{
    struct cached_rope t = {};
    struct attn a;

    if (dev->err.code || o->n == 0 || o->n_seg == 0)
        return;
    a = of_cached(dev, o);
    if (o->n == o->n_seg) {
        a.new_k = a.k;
        a.new_v = a.v;
    }
    if (o->rope && !rotates(dev, o, &a, &t))
        cuda_rope_fwd(dev, o->rope);
    if (o->n != o->n_seg)
        CUDA_ACT(dev, append_rows<T>(dev, a, o));
    a.k = o->k_cache;
    a.v = o->v_cache;
    a.kv_stride = a.dim;
    if (dev->err.code)
        return;
    if (o->n >= FEW_ROWS * o->n_seg)
        CUDA_ACT(dev, attn_fwd<T>(dev, "attention_cached", a));
    else
        CUDA_ACT(dev, rows<T>(dev, a, t, o->max_keys));
}

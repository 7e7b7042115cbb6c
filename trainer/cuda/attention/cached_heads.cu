/*
 * attention/cached_heads - attention of single rows against a cache where heads share keys
 * (GQA, MQA).
 *
 * The heads are the rows of products on the tensor cores: each of a block's warps takes 16 keys
 * of a tile.  The warps of a block, then the parts of a row, are joined in a fixed order; up to
 * eight parts form a cluster and are joined within the kernel.  Where all columns of a head
 * rotate, the blocks rotate queries and the new key themselves, which saves a kernel.
 *
 * Source: Dao et al. 2023 (Flash-Decoding).
 */
#include <cooperative_groups.h>

#include "trainer/cuda/attention/cached.cuh"
#include "trainer/cuda/rope.cuh"

enum {
    ROWS = 16,                          /* heads of a block */
    TILE = 64, TILES = 3                /* keys of a tile, 16 of each warp; tiles of a ring */
};

/* A lane's state for its two heads. */
struct two_heads {
    float max[2], sum[2], slope[2];
    int   head[2];
};

/* Turn scores, of keys from `key` (the lane's first) on, into probabilities relative to the
 * warp's largest; earlier sums must be multiplied by fix. */
template <typename T>
__device__ __forceinline__ void softmax_step(const struct attn &a, float (&s)[1][2][4],
                                             struct two_heads &w, float (&fix)[2], int key,
                                             const struct part &p)
{
#pragma unroll
    for (int r = 0; r < 2; r++) {
        float most = w.max[r], low, sum = 0;

#pragma unroll
        for (int i = 0; i < 4; i++) {
            int rel = key + i / 2 * 8 + i % 2 - p.pos;
            float x = fmaf(w.slope[r], (float)rel, s[0][i / 2][2 * r + i % 2] * a.scale2);

            if (a.table) {
                int64_t bucket = a.bucket[a.far + min(max(rel, -a.far), a.far)];

                x += LOG2E * cuda_to_f32(((const T *)a.table)[bucket * a.n_head + w.head[r]]);
            }
            s[0][i / 2][2 * r + i % 2] = rel + p.pos < p.to ? x : -INFINITY;
            most = fmaxf(most, s[0][i / 2][2 * r + i % 2]);
        }
        most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 1));
        most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 2));
        low = most == -INFINITY ? 0.0f : most;
        fix[r] = attn_exp2(w.max[r] - low);
        w.max[r] = most;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            float e = attn_exp2(s[0][i / 2][2 * r + i % 2] - low);

            s[0][i / 2][2 * r + i % 2] = e;
            sum += e;
        }
        w.sum[r] = w.sum[r] * fix[r] + sum;
    }
}

/* Join the warps' results of a part: into `parts`, or into out if it is the only one. */
template <typename T, int D>
__device__ __forceinline__ void join_warps(const struct attn &a, const float *stats,
                                           const float *outs, float *parts, int n_parts,
                                           int64_t id, int heads)
{
    for (int x = (int)threadIdx.x; x < heads * D; x += THREADS) {
        int r = x / D, c = x % D;
        float *to = parts + r * (a.dim + 2);
        float max = -INFINITY, low, sum = 0, out = 0;

        for (int w = 0; w < WARPS; w++)
            max = fmaxf(max, stats[2 * (w * ROWS + r)]);
        low = max == -INFINITY ? 0.0f : max;
        for (int w = 0; w < WARPS; w++) {
            float by = attn_exp2(stats[2 * (w * ROWS + r)] - low);

            sum += by * stats[2 * (w * ROWS + r) + 1];
            out += by * outs[(w * ROWS + r) * D + c];
        }
        if (n_parts == 1 && c < a.dim)
            ((T *)a.out)[(id + r) * a.dim + c] = cuda_from_f32<T>(out / sum);
        if (n_parts > 1 && c < a.dim)
            to[2 + c] = out;
        if (n_parts > 1 && c == 0) {
            to[0] = max;
            to[1] = sum;
        }
    }
}

/* Join the results of a cluster's blocks; own is each block's. */
template <typename T, int D>
__device__ __forceinline__ void join_cluster(const struct attn &a, float *own, int n_parts,
                                             int64_t id, int heads)
{
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
    cooperative_groups::cluster_group cluster = cooperative_groups::this_cluster();

    cluster.sync();
    for (int x = (int)(blockIdx.y * THREADS + threadIdx.x); x < heads * D; x += n_parts * THREADS) {
        int r = x / D, c = x % D, at = r * (a.dim + 2);
        float max = -INFINITY, sum = 0, out = 0, m[CLUSTER], s[CLUSTER], o[CLUSTER];

#pragma unroll
        for (int i = 0; i < CLUSTER; i++) {
            const float *from = cluster.map_shared_rank(own, i < n_parts ? i : 0) + at;

            m[i] = i < n_parts ? from[0] : -INFINITY;
            s[i] = from[1];
            o[i] = c < a.dim ? from[2 + c] : 0.0f;
            max = fmaxf(max, m[i]);
        }
#pragma unroll
        for (int i = 0; i < CLUSTER; i++) {
            float by = attn_exp2(m[i] - max);

            sum += by * s[i];
            out = fmaf(by, o[i], out);
        }
        if (c < a.dim)
            ((T *)a.out)[(id + r) * a.dim + c] = cuda_from_f32<T>(out / sum);
    }
    cluster.sync();                     /* a block must not exit while others read its memory */
#endif
}

__device__ __forceinline__ void to_l2(const void *p)
{
    asm volatile("prefetch.global.L2 [%0];" ::"l"(p));
}

/* Prefetch the inputs of a single row that no earlier kernel writes, before those kernels end:
 * weights and its part of the cache. The position is read past the L1, and read again later for
 * use. */
template <typename T>
__device__ __forceinline__ void ask_ahead(const struct attn &a, const struct cached_rope &t,
                                          int row, int g, int n_parts)
{
    const int LINE = 128;
    int x = (int)threadIdx.x * LINE, head = a.dim * (int)sizeof(T), pos = __ldcg(a.past + row);
    int from = attn_sees_from(a, pos), each = (pos + 1 - from + n_parts - 1) / n_parts;
    int64_t at = g * a.capacity + __ldcg(a.first + row);
    const char *k, *v;

    from += (int)blockIdx.y * each;
    each = min(each, pos - from);
    k = (const char *)a.k + (at + from) * head;
    v = (const char *)a.v + (at + from) * head;
    for (int c = x; c < min(each, (int)TILE) * head; c += THREADS * LINE) {
        to_l2(k + c);
        to_l2(v + c);
    }
    if (!t.table)
        return;
    if (x < a.dim * 4)
        to_l2((const char *)(t.table + (int64_t)__ldcg(t.positions + row) * a.dim) + x);
    if (t.q_norm && x < head) {
        to_l2((const char *)t.q_norm + x);
        to_l2((const char *)t.k_norm + x);
    }
}

/* Load the row's queries as a tile, and append its key and value to the cache if this part
 * holds its position: rotated, after norms by head where there are any. Called by the whole
 * block. */
template <typename T, int D>
__device__ __forceinline__ void take_rotated(const struct attn &a, const struct cached_rope &t,
                                             T *q, int row, int g, int h0, int heads,
                                             const struct part &p)
{
    const int N = 8, GROUP = D / 16, EACH = THREADS / GROUP, WORDS = (D + 8) / 8;
    int me = (int)threadIdx.x % GROUP, c = me * N, half = a.dim / 2;
    int64_t from_kv = row * a.row_stride + g * a.kv_head, to_kv = p.at + (int64_t)p.pos * a.dim;
    int col = (int)threadIdx.x * N;
    uint4 fresh = make_uint4(0, 0, 0, 0);
    float cos[N] = {}, sin[N] = {};

    if (col < a.dim)
        fresh = *(const uint4 *)((const T *)a.new_v + from_kv + col);
    if (c < half) {
        const float *at = t.table + (int64_t)t.positions[row] * a.dim + c;

        row_get(cos, at);
        row_get(sin, at + half);
    }
    for (int x = (int)threadIdx.x; x < ROWS * WORDS; x += THREADS)
        if (x / WORDS >= heads || x % WORDS * 8 >= a.dim)
            ((uint4 *)q)[x] = make_uint4(0, 0, 0, 0);
    for (int first = 0; first <= heads; first += EACH) {    /* the key after the queries */
        int i = first + (int)threadIdx.x / GROUP;
        bool key = i == heads, on = i <= heads && c < half;
        const T *from = key ? (const T *)a.new_k + from_kv :
                              (const T *)a.q + row * a.row_stride + (h0 + i) * a.q_head;
        const T *w = (const T *)(key ? t.k_norm : t.q_norm);
        float x[N] = {}, y[N] = {}, wx[N] = {}, wy[N] = {}, r;

        if (on) {
            row_get(x, from + c);
            row_get(y, from + c + half);
        }
        if (on && w) {
            row_get(wx, w + c);
            row_get(wy, w + c + half);
        }
        r = rope_group_sum(rope_squares(x) + rope_squares(y), GROUP);
        if (w) {
            r = rope_head_rstd(r, a.dim, t.eps);
            rope_scale(x, r, wx);
            rope_scale(y, r, wy);
        }
        rope_rotate(x, y, cos, sin);
        if (on && (!key || (p.pos >= p.from && p.pos < p.to))) {
            T *to = key ? (T *)(uintptr_t)a.k + to_kv : q + i * (D + 8);

            row_put(to + c, x);
            row_put(to + c + half, y);
        }
    }
    if (col < a.dim && p.pos >= p.from && p.pos < p.to)
        *(uint4 *)((T *)(uintptr_t)a.v + to_kv + col) = fresh;
    __syncthreads();
}

/* A part of a row, for up to 16 heads that share keys; the result is as row_part's. Without
 * `parts` the blocks of a row form a cluster. */
template <typename T, int D>
__global__ void __launch_bounds__(THREADS, D > 128 ? 2 : 4)
    heads_part(const __grid_constant__ struct attn a,
               const __grid_constant__ struct cached_rope t, float *parts, int n_parts,
               int chunks)
{
    const int SIZE = attn_tile_size<D, false>(TILE), OT = D / 8;
    extern __shared__ __align__(16) unsigned char pool[];
    T *q = (T *)pool, *ring = q + attn_tile_size<D, false>(ROWS);
    float *stats = (float *)ring, *outs = stats + 2 * WARPS * ROWS;    /* at last */
    float *own = outs + WARPS * ROWS * D;
    int chunk = (int)(blockIdx.x % (unsigned)chunks), g = (int)(blockIdx.x / (unsigned)chunks);
    int row = g / a.n_kv, lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    int mine = warp * ROWS * (D + 8), stage = 0;

    g %= a.n_kv;
    if (a.new_k)
        ask_ahead<T>(a, t, row, g, n_parts);
    cuda_pdl_wait();
    int h0 = g * a.share + chunk * ROWS, heads = min((int)ROWS, a.share - chunk * ROWS);
    struct part p = cached_part_of(a, row, g, (int)blockIdx.y, n_parts);
    float out[1][OT][4], fix[2];
    struct two_heads w;

    if (t.table)
        take_rotated<T, D>(a, t, q, row, g, h0, heads, p);
    else
        cached_append<T>(a, row, g, p);
    attn_clear(out);
    for (int r = 0; r < 2; r++) {
        int h = lane / 4 + 8 * r;

        w.max[r] = -INFINITY;
        w.sum[r] = 0;
        w.head[r] = h0 + min(h, heads - 1);
        w.slope[r] = attn_head_slope(a, w.head[r]);
    }
    if (!t.table)
        attn_load_tile<false, D, ROWS, THREADS>(
            q, (const T *)a.q + row * a.row_stride + h0 * a.q_head, a.q_head, heads, a.dim,
            a.vec);
    /* Keys and values alternate; two tiles are being loaded. */
    auto load = [&](const void *from, int j, int to) {
        if (j < p.to)
            attn_load_tile<false, D, TILE, THREADS>(ring + to * SIZE,
                                                    (const T *)from + p.at + (int64_t)j * a.dim,
                                                    a.dim, p.to - j, a.dim, a.vec);
        cp_async_commit();
    };
    auto next = [&](const void *from, int j) {
        cp_async_wait<1>();
        __syncthreads();                /* the tile has arrived, and the one before was read */
        load(from, j, stage ? stage - 1 : TILES - 1);
    };

    load(a.k, p.from, 0);
    load(a.v, p.from, 1);
    for (int j = p.from; j < p.to; j += TILE) {
        float s[1][2][4];
        uint32_t f[1][1][4];

        next(a.k, j + TILE);
        attn_rows_by_rows<false, D, ROWS>(s, q, 0, ring + mine + stage * SIZE);
        softmax_step<T>(a, s, w, fix, j + warp * ROWS + lane % 4 * 2, p);
#pragma unroll
        for (int n = 0; n < OT; n++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                out[0][n][e] *= fix[e / 2];
        attn_as_factor<T>(f, s);
        stage = stage + 1 < TILES ? stage + 1 : 0;
        next(a.v, j + TILE);
        attn_times_rows<false, D>(out, f, ring + stage * SIZE + mine, 0);
        stage = stage + 1 < TILES ? stage + 1 : 0;
    }
    attn_tiles_ready<false>();          /* all have finished with the last tile */
#pragma unroll
    for (int r = 0; r < 2; r++) {
        int at = warp * ROWS + lane / 4 + 8 * r;
        float sum = w.sum[r];

        sum += __shfl_xor_sync(0xffffffffu, sum, 1);
        sum += __shfl_xor_sync(0xffffffffu, sum, 2);
        stats[2 * at] = w.max[r];
        stats[2 * at + 1] = sum;
#pragma unroll
        for (int n = 0; n < OT; n++) {
            outs[at * D + 8 * n + lane % 4 * 2] = out[0][n][2 * r];
            outs[at * D + 8 * n + lane % 4 * 2 + 1] = out[0][n][2 * r + 1];
        }
    }
    __syncthreads();
    int64_t id = (int64_t)row * a.n_head + h0;
    int64_t place = ((int64_t)blockIdx.y * a.n * a.n_head + id) * (a.dim + 2);

    join_warps<T, D>(a, stats, outs, parts ? parts + place : own, n_parts, id, heads);
    if (!parts && n_parts > 1)
        join_cluster<T, D>(a, own, n_parts, id, heads);
}

/* The parts of a row form a cluster where they have no workspace. */
template <typename T, int D>
static void launch_heads(struct device *dev, const struct attn &a, const struct cached_rope &t,
                         float *parts, int64_t n_parts)
{
    int64_t chunks = cuda_blocks(a.share, ROWS);
    cudaLaunchAttribute how[2] = {};
    cudaLaunchConfig_t c = {};

    c.dynamicSmemBytes = sizeof(T) * (size_t)attn_tile_size<D, false>(ROWS + TILES * TILE);
    c.gridDim = dim3((unsigned)(a.n * a.n_kv * chunks), (unsigned)n_parts, 1);
    c.blockDim = THREADS;
    c.stream = cuda_of(dev)->stream;
    c.attrs = how;
    if (!cuda_ok(dev, "attention_cached",
                 cuda_allow_shared(heads_part<T, D>, c.dynamicSmemBytes)))
        return;
    if (cuda_of(dev)->hopper) {
        how[c.numAttrs].id = cudaLaunchAttributeProgrammaticStreamSerialization;
        how[c.numAttrs++].val.programmaticStreamSerializationAllowed = 1;
    }
    if (!parts && n_parts > 1) {
        how[c.numAttrs].id = cudaLaunchAttributeClusterDimension;
        how[c.numAttrs].val.clusterDim.x = how[c.numAttrs].val.clusterDim.z = 1;
        how[c.numAttrs++].val.clusterDim.y = (unsigned)n_parts;
    }
    cudaLaunchKernelEx(&c, heads_part<T, D>, a, t, parts, (int)n_parts, (int)chunks);
    cuda_launched(dev, "attention_cached");
}

template <typename T>
void cached_heads(struct device *dev, const struct attn &a, const struct cached_rope &t,
                  float *parts, int64_t n_parts)
{
    if (a.dim <= 64)
        launch_heads<T, 64>(dev, a, t, parts, n_parts);
    else if (a.dim <= 128)
        launch_heads<T, 128>(dev, a, t, parts, n_parts);
    else
        launch_heads<T, 256>(dev, a, t, parts, n_parts);
}

template void cached_heads<__nv_bfloat16>(struct device *, const struct attn &,
                                          const struct cached_rope &, float *, int64_t);
template void cached_heads<__half>(struct device *, const struct attn &,
                                   const struct cached_rope &, float *, int64_t);

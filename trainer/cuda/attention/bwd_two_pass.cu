/*
 * attention/bwd_two_pass - attention backward in two passes, on Hopper.
 *
 * The kernels are those of bwd.cu: one holds queries and computes dq, the other holds keys and
 * computes dk and dv; scores are computed twice, and no sum is shared between blocks.
 *
 * A block is one warpgroup; several share a multiprocessor, and the softmax of one runs beside
 * the products of others.  A tile's scores are queued while the product of the tile before
 * still runs, and the next tile's rows are loaded meanwhile.
 *
 * With a relative bias (bias_grad.cuh) a block walks over several tiles of queries and leaves
 * one line of sums, which bwd_choice.cu adds up.
 *
 * Source: Dao 2023 (FlashAttention-2), section 3.1.2; Shah et al. 2024 (FlashAttention-3).
 */
#include "trainer/cuda/attention/bwd_two_pass.cuh"
#include "trainer/cuda/attention/bias_grad.cuh"

namespace {

/* Blocks per multiprocessor, within the limit of registers. */
template <int D, int MODE> struct at_once {
    static const int QUERIES = attn_has_table(MODE) || D > 96 ? 2 : D > 64 ? 3 : 4;
    static const int KEYS = D <= 64 && MODE != ATTN_ANY ? 3 : 2;
};

/* Shared memory of a block of queries. */
template <typename T, int D> struct queries_pool {
    T        q[TILE * D], dout[TILE * D], k[2][TILE * D], v[2][TILE * D];
    float    lse[TILE], delta[TILE];
    uint64_t own, full[2];
    float    line[];                    /* terms by distance; sums; sums beyond */
};

/* Shared memory of a block of keys. */
template <typename T, int D> struct keys_pool {
    T        k[TILE * D], v[TILE * D], q[2][TILE * D], dout[2][TILE * D];
    float    stats[2][2][TILE];         /* lse, delta */
    uint64_t own, full[2];
    float    line[];
};

template <typename P> __device__ __forceinline__ void init_mbars(P *m)
{
    if (threadIdx.x == 0) {
        mbarrier_init(&m->own, 1);
        mbarrier_init(&m->full[0], 1);
        mbarrier_init(&m->full[1], 1);
        mbarrier_fence_init();
    }
    __syncthreads();
}

/* -- dq ---------------------------------------------------------------------------------------- */

template <typename T, int D, int MODE>
__device__ __forceinline__ void queries_tiles(const struct attn &a, const struct bwd_maps &maps,
                                              struct queries_pool<T, D> *m)
{
    float *lines = m->line + attn_line_floats(a);
    int h = (int)(blockIdx.x % (unsigned)a.n_head), g = h / a.share;
    int groups = (int)(gridDim.x / (unsigned)a.n_head), group = (int)blockIdx.x / a.n_head;
    int lane = (int)threadIdx.x % 32, warp = cuda_uniform((int)threadIdx.x / 32);
    int row = warp * 16 + lane / 4, col = lane % 4 * 2, it = 0, phase = 0;
    float slope = attn_head_slope(a, h);
    const struct bwd_pair<T> qs = bwd_queries_of<T>(a, maps, h),
                             ks = bwd_keys_of<T>(a, maps, g);
    struct bias_grad w = {};

    if (attn_has_table(MODE) && a.dline)
        bias_grad_begin(a, w, lines);
    init_mbars(m);
    for (int slot = a.slots - 1 - group; slot >= 0; slot -= groups) {
        struct place p;
        float dq[1][D / 8][4], lse[2], delta[2];

        if (!attn_query_tile(a, &p, TILE, slot, g))
            continue;
        int pos = cuda_uniform(p.begin), len = cuda_uniform(p.len), keys = cuda_uniform(p.keys);
        int first = cuda_uniform((int)p.first), first_key = cuda_uniform((int)p.key_first);
        int i0 = first + pos, last = min(len, pos + TILE) - 1;
        int j = attn_sees_from(a, pos) / TILE * TILE, end = attn_sees_to(a, last, keys);
        int none_before = attn_sees_to(a, pos, keys), all_after = attn_sees_from(a, last);
        uint64_t of = MODE == ATTN_ANY ? dropout_of(a, dropout_sample(a, p), h) : 0;

        /* rows past the end have an lse of infinity: their P are zero */
        float mine = (int)threadIdx.x < min(len - pos, (int)TILE)
                         ? a.lse[h * a.n + i0 + threadIdx.x] * LOG2E : INFINITY;

        __syncthreads();                /* reads of the last tile are done */
        bwd_load_pair<D>(maps, qs, m->q, m->dout, i0, len - pos, &m->own);
        bwd_load_pair<D>(maps, ks, m->k[it & 1], m->v[it & 1], first_key + j, keys - j,
                         &m->full[it & 1]);
        if (attn_has_table(MODE) && phase == 0)
            attn_bias_line<T>(a, m->line, h);
        bwd_deltas<T, D>(a, m->delta, i0, h, len - pos);
        if (threadIdx.x < TILE) {
            m->lse[threadIdx.x] = mine;
            if ((int)threadIdx.x < len - pos)
                a.lse2[h * a.n + i0 + threadIdx.x] = mine;
        }
        attn_clear(dq);
        __syncthreads();
#pragma unroll
        for (int r = 0; r < 2; r++) {
            lse[r] = m->lse[row + 8 * r];
            delta[r] = m->delta[row + 8 * r];
        }
        bwd_wait_pair<D>(a, maps, qs, m->q, m->dout, i0, len - pos, &m->own, phase++);
        for (; j < end; j += TILE, it++) {
            const int st = it & 1;
            T *kt = m->k[st], *vt = m->v[st];
            float s[1][8][4], dp[1][8][4], base[2];
            uint32_t f[1][4][4];
            uint64_t kept = 0;
            int rel = j + col - pos - row, row0 = pos + warp * 16;

            bwd_wait_pair<D>(a, maps, ks, kt, vt, first_key + j, keys - j, &m->full[st],
                             it >> 1, dq);
            wgmma_fence<true>();
            wgmma_rows_by_rows<T, D, TILE>(s, m->q, 0, kt);
            wgmma_commit<true>();
            wgmma_wait<true, 1>(dq);
            wgmma_fence<true>();
            wgmma_rows_by_rows<T, D, TILE>(dp, m->dout, 0, vt);
            wgmma_commit<true>();
            __syncthreads();            /* reads of the last tile are done */
            if (j + TILE < end)
                bwd_load_pair<D>(maps, ks, m->k[st ^ 1], m->v[st ^ 1], first_key + j + TILE,
                                 keys - j - TILE, &m->full[st ^ 1]);
            if (MODE == ATTN_ANY && a.drop.on)
                kept = dropout_tile<1, 8>(a, of, pos + row, j);
#pragma unroll
            for (int r = 0; r < 2; r++) {
                base[r] = -lse[r];
                if (attn_has_slopes(MODE))
                    base[r] = fmaf(slope, (float)(rel - 8 * r), base[r]);
            }
            wgmma_wait<true, 1>(s);
            if (j + TILE > none_before || j < all_after) {
                int from[2], to[2];

#pragma unroll
                for (int r = 0; r < 2; r++) {
                    from[r] = attn_sees_from(a, pos + row + 8 * r) - j - col;
                    to[r] = attn_sees_to(a, pos + row + 8 * r, keys) - j - col;
                }
                bwd_mask(a, s, from, to);
            }
            if (attn_has_table(MODE) && a.table &&
                attn_terms_differ(a, j - row0 - 15, j - row0 + TILE - 1)) {
                bwd_p_of_queries<MODE, true>(a, s, base, slope, m->line + a.span + rel);
            } else {
                if (attn_has_table(MODE) && a.table) {
                    float beyond = m->line[j > row0 ? 2 * a.span : 0];

                    base[0] += beyond;
                    base[1] += beyond;
                }
                bwd_p_of_queries<MODE, false>(a, s, base, slope, NULL);
            }
            wgmma_hold(s);              /* must not be moved after the wait */
            wgmma_wait<true, 0>(dp);
            bwd_ds_of_queries<MODE>(a, dp, s, delta, kept);
            attn_as_factor<T>(f, dp);
            wgmma_fence<true>();
            wgmma_times_rows<T, D, 8>(dq, f[0], kt);
            wgmma_commit<true>();
            if (attn_has_table(MODE) && a.dline)
                bias_grad_add(a, w, dp, row0, j);
        }
        wgmma_wait<true, 0>(dq);
        __syncthreads();                /* reads of the queries are done */
        bwd_store_rows<D>(a, maps, (T *)a.dq + i0 * a.row_stride + h * a.dq_head, a.row_stride,
                          m->q, warp * 16, len - pos, dq[0], a.scale);
        wgmma_proxy_fence();            /* TMA writes there next */
    }
    if (attn_has_table(MODE) && a.dline) {
        __syncthreads();
        bias_grad_end<GROUP / 32>(a, w, lines, m->lse,
                                  a.dline +
                                      ((int64_t)group * a.n_head + h) * attn_sums_floats(a));
    }
}

/* -- dk and dv --------------------------------------------------------------------------------- */

/* A tile of queries of a head, its gradients of out and its statistics. */
template <typename T, int D>
__device__ __forceinline__ void bwd_load_queries(const struct attn &a,
                                                 const struct bwd_maps &maps,
                                                 struct keys_pool<T, D> *m, int st, int first,
                                                 int len, int h, int i)
{
    int which = (int)threadIdx.x / TILE, r = (int)threadIdx.x % TILE;
    bool there = i + r < len;

    static_assert(GROUP == 2 * TILE, "a thread brings one of the statistics");
    cp_async_4(&m->stats[st][which][r],
               (which ? a.delta : a.lse2) + (there ? h * a.n + first + i + r : 0), there);
    cp_async_commit();
    bwd_load_pair<D>(maps, bwd_queries_of<T>(a, maps, h), m->q[st], m->dout[st], first + i,
                     len - i, &m->full[st]);
}

template <typename T, int D, int MODE>
__device__ __forceinline__ void keys_tile(const struct attn &a, const struct bwd_maps &maps,
                                          struct keys_pool<T, D> *m)
{
    const bool EARLY = at_once<D, MODE>::KEYS < 3;      /* dv, where registers allow */
    int g = (int)blockIdx.x % a.n_kv, slot = (int)blockIdx.x / a.n_kv, it = 0;
    int lane = (int)threadIdx.x % 32, warp = cuda_uniform((int)threadIdx.x / 32);
    int row = warp * 16 + lane / 4, col = lane % 4 * 2, h = g * a.share;
    const struct bwd_pair<T> ks = bwd_keys_of<T>(a, maps, g);
    float dk[1][D / 8][4], dv[1][D / 8][4], slope = 0;
    struct place p;

    if (!attn_key_tile(a, &p, TILE, slot, g))
        return;
    int j = cuda_uniform(p.begin), len = cuda_uniform(p.len), keys = cuda_uniform(p.keys);
    int first = cuda_uniform((int)p.first), first_key = cuda_uniform((int)p.key_first);
    int last = min(keys, j + TILE) - 1, from = a.whole ? 0 : j, to = len, i = from, tiles;
    uint32_t sample = MODE == ATTN_ANY ? dropout_sample(a, p) : 0;

    if (!a.whole && a.window > 0)
        to = min(to, last + a.window);
    tiles = from < to ? (to - from + TILE - 1) / TILE * a.share : 0;
    init_mbars(m);
    bwd_load_pair<D>(maps, ks, m->k, m->v, first_key + j, keys - j, &m->own);
    if (tiles > 0)
        bwd_load_queries(a, maps, m, 0, first, len, h, i);
    if (attn_has_table(MODE))
        attn_bias_line<T>(a, m->line, h);
    attn_clear(dk);
    attn_clear(dv);
    bwd_wait_pair<D>(a, maps, ks, m->k, m->v, first_key + j, keys - j, &m->own, 0);
    for (; it < tiles; it++) {
        const int st = it & 1;
        T *qt = m->q[st], *dt = m->dout[st];
        const float *lse = m->stats[st][0], *delta = m->stats[st][1];
        float s[1][8][4], dp[1][8][4], base[2];
        uint32_t f[1][4][4], df[1][4][4];
        uint64_t kept = 0;
        int end = i + TILE, next_i = end < to ? end : from, next_h = end < to ? h : h + 1;
        int rel = j + row - i - col, key0 = j + warp * 16;

        if (attn_has_slopes(MODE))
            slope = attn_head_slope(a, h);
        if (attn_has_table(MODE) && it > 0 && i == from) {
            __syncthreads();            /* reads of the last head are done */
            attn_bias_line<T>(a, m->line, h);
        }
        bwd_wait_pair<D>(a, maps, bwd_queries_of<T>(a, maps, h), qt, dt, first + i, len - i,
                         &m->full[st], it >> 1);
        wgmma_fence<true>();
        wgmma_rows_by_rows<T, D, TILE>(s, m->k, 0, qt);
        wgmma_commit<true>();
        wgmma_rows_by_rows<T, D, TILE>(dp, m->v, 0, dt);
        wgmma_commit<true>();
        cp_async_wait<0>();
        __syncthreads();           /* reads of the last tile are done, and statistics are written */
        if (it + 1 < tiles)
            bwd_load_queries(a, maps, m, st ^ 1, first, len, next_h, next_i);
        if (MODE == ATTN_ANY && a.drop.on)
            kept = dropout_tile_t<1, 8>(a, dropout_of(a, sample, h), i + col, j + row);
        base[0] = attn_has_slopes(MODE) ? slope * (float)rel : 0.0f;
        base[1] = attn_has_slopes(MODE) ? slope * (float)(rel + 8) : 0.0f;
        wgmma_wait<true, 1>(s);
        if (end > len || (!a.whole && (last > i || (a.window > 0 && end - 1 - a.window >= j)))) {
            int least[2], most[2];

#pragma unroll
            for (int r = 0; r < 2; r++) {
                int key = j + row + 8 * r;

                least[r] = (a.whole ? 0 : key) - i - col;
                most[r] = (a.whole || a.window <= 0 ? len : min(len, key + a.window)) - i - col;
            }
            bwd_mask(a, s, least, most);
        }
        if (attn_has_table(MODE) && a.table &&
            attn_terms_differ(a, key0 - i - TILE + 1, key0 - i + 15)) {
            bwd_p_of_keys<MODE, true>(a, s, lse, base, slope, m->line + a.span + rel);
        } else {
            if (attn_has_table(MODE) && a.table) {
                float beyond = m->line[key0 > i ? 2 * a.span : 0];

                base[0] += beyond;
                base[1] += beyond;
            }
            bwd_p_of_keys<MODE, false>(a, s, lse, base, slope, NULL);
        }
        bwd_p_factor<MODE, T>(a, f, s, kept);
        if (EARLY) {
            wgmma_fence<true>();
            wgmma_times_rows<T, D, 8>(dv, f[0], dt);
            wgmma_commit<true>();
            wgmma_wait<true, 1>(dp);
        } else {
            wgmma_hold(s);              /* must not be moved after the wait */
            wgmma_wait<true, 0>(dp);
        }
        bwd_ds_of_keys<MODE>(a, dp, s, delta, kept);
        attn_as_factor<T>(df, dp);
        wgmma_fence<true>();
        if (!EARLY)
            wgmma_times_rows<T, D, 8>(dv, f[0], dt);
        wgmma_times_rows<T, D, 8>(dk, df[0], qt);
        wgmma_finish<true>(dv, dk);
        h = next_h;
        i = next_i;
    }
    int64_t at = (int64_t)(first_key + j) * a.kv_stride + g * a.dkv_head;

    __syncthreads();                    /* reads of the keys are done */
    bwd_store_rows<D>(a, maps, (T *)a.dk + at, a.kv_stride, m->k, warp * 16, keys - j, dk[0],
                      a.scale);
    bwd_store_rows<D>(a, maps, (T *)a.dv + at, a.kv_stride, m->v, warp * 16, keys - j, dv[0],
                      1.0f);
}

/* -- launches ---------------------------------------------------------------------------------- */

template <typename T, int D, int MODE>
__global__ void __launch_bounds__(GROUP, at_once<D, MODE>::QUERIES)
    queries_back(const __grid_constant__ struct attn a,
                 const __grid_constant__ struct bwd_maps maps)
{
    extern __shared__ __align__(1024) unsigned char pool[];

#if WGMMA_HERE
    cuda_pdl_wait();
    queries_tiles<T, D, MODE>(a, maps, (struct queries_pool<T, D> *)pool);
#endif
}

template <typename T, int D, int MODE>
__global__ void __launch_bounds__(GROUP, at_once<D, MODE>::KEYS)
    keys_back(const __grid_constant__ struct attn a,
              const __grid_constant__ struct bwd_maps maps)
{
    extern __shared__ __align__(1024) unsigned char pool[];

#if WGMMA_HERE
    cuda_pdl_wait();
    keys_tile<T, D, MODE>(a, maps, (struct keys_pool<T, D> *)pool);
#endif
}

/* The number of keys' rows in other sequences is unknown here: see keys_of. */
template <int D> static struct bwd_maps maps_of(const struct attn &a)
{
    struct bwd_maps m = {};
    int64_t keys = a.key_start ? INT_MAX : a.n, dout_ld = (int64_t)a.n_head * a.dim;

    m.wide_out = a.vec && a.dq_head % 8 == 0 && a.dkv_head % 8 == 0 && cuda_aligned(a.dq, 16) &&
                 cuda_aligned(a.dk, 16) && cuda_aligned(a.dv, 16);
    m.valid = a.vec &&
             tma_map_of<D>(&m.q, a.q, a.n, a.row_stride, a.n_head, a.q_head, a.dim, TILE) &&
             tma_map_of<D>(&m.dout, a.dout, a.n, dout_ld, a.n_head, a.dim, a.dim, TILE) &&
             tma_map_of<D>(&m.k, a.k, keys, a.kv_stride, a.n_kv, a.kv_head, a.dim, TILE) &&
             tma_map_of<D>(&m.v, a.v, keys, a.kv_stride, a.n_kv, a.kv_head, a.dim, TILE);
    return m;
}

template <typename T, int D, int MODE> static void launch(struct device *dev, struct attn a)
{
    const struct bwd_maps maps = maps_of<D>(a);
    size_t line = sizeof(float) * (size_t)attn_line_floats(a);
    size_t bytes_q = sizeof(struct queries_pool<T, D>) + line;
    size_t bytes_k = sizeof(struct keys_pool<T, D>) + line;
    int64_t slots = attn_slots(a.n, a.n_docs, TILE), groups = a.dline ? a.groups : slots;
    int64_t blocks = attn_key_slots(a, TILE) * a.n_kv;

    if (a.dline)
        bytes_q += sizeof(float) * (size_t)(GROUP / 32 * bias_grad_floats(a));
    a.slots = (int)slots;
    if (!cuda_ok(dev, "attention_bwd", cuda_allow_shared(queries_back<T, D, MODE>, bytes_q)) ||
        !cuda_ok(dev, "attention_bwd", cuda_allow_shared(keys_back<T, D, MODE>, bytes_k)))
        return;
    if (slots > 0)
        cuda_pdl_launch(dev, true, queries_back<T, D, MODE>, (unsigned)(groups * a.n_head),
                        (unsigned)GROUP, bytes_q, a, maps);
    if (blocks > 0 && cuda_launched(dev, "attention_bwd"))
        cuda_pdl_launch(dev, true, keys_back<T, D, MODE>, (unsigned)blocks, (unsigned)GROUP,
                        bytes_k, a, maps);
    cuda_launched(dev, "attention_bwd");
}

template <typename T, int D> static void launch_terms(struct device *dev, const struct attn &a)
{
    if (a.drop.on || (a.table && a.slopes))
        launch<T, D, ATTN_ANY>(dev, a);
    else if (a.table)
        launch<T, D, ATTN_TABLE>(dev, a);
    else if (a.slopes)
        launch<T, D, ATTN_SLOPES>(dev, a);
    else
        launch<T, D, ATTN_PLAIN>(dev, a);
}

} /* namespace */

/* For rare widths, plain heads are treated as heads with slopes of zero. */
template <typename T> void attn_bwd_two_pass(struct device *dev, const struct attn &a)
{
    bool rare = !a.table && !a.drop.on;

    if (a.dim <= 64)
        launch_terms<T, 64>(dev, a);
    else if (rare && a.dim <= 80)
        launch<T, 80, ATTN_SLOPES>(dev, a);
    else if (rare && a.dim <= 96)
        launch<T, 96, ATTN_SLOPES>(dev, a);
    else
        launch_terms<T, 128>(dev, a);
}

template void attn_bwd_two_pass<__nv_bfloat16>(struct device *, const struct attn &);
template void attn_bwd_two_pass<__half>(struct device *, const struct attn &);

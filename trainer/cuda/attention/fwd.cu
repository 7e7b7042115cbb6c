/*
 * attention/fwd - attention over packed documents on the tensor cores: forward.
 *
 * A block takes one tile of queries of one head and walks over the tiles of keys they see:
 * scores, an online softmax, and the product with the values, all in registers.  Keys and
 * values are loaded a tile ahead, whole tiles by TMA, others by each thread's own copies.
 * Tiles that the mask leaves empty are skipped, and only tiles on its edge test each element.
 * Longer documents go to fwd_producer.cu, f32 to f32.cu.
 *
 * cuDNN's attention is not used: its deterministic backward on Hopper has neither slopes nor a
 * bias with a gradient, and takes two bytes for each pair of a head's queries and keys
 * (cudnn-frontend 1.x, scaled_dot_product_flash_attention.h); BLOOM and T5 need the first, long
 * documents the memory.
 *
 * Source: Dao 2023 (FlashAttention-2), Milakov and Gimelshein 2018 (online softmax).
 */
#include "trainer/cuda/attention/fwd.cuh"

/*
 * Sizes by the width of a head and the number of warpgroups that multiply by wgmma (0:
 * mma.sync).  Several groups share loaded keys and values; a single one waits less at the ends
 * of short documents.
 */
template <int D, int GROUPS> struct fwd_shape {
    static const bool WG = GROUPS > 0;
    static const int WARPS = WG ? 4 * GROUPS : D > 128 ? 8 : 4;
    static const int MR = WG || D > 128 ? 1 : 2;    /* 16-row parts of a warp */
    static const int BM = WARPS * MR * 16, BN = 64;
    static const int BLOCKS = GROUPS != 1 ? 1 : D == 64 ? 4 : D < 128 ? 3 : 2;
    static const int KS = 2, VS = WG ? 3 : 2;       /* tiles of keys, of values in memory */
};

enum { SHORT_DOC = 4096, MBARS = 6 };

template <typename T, int D, int MODE, int GROUPS>
__device__ __forceinline__ void
forward_tile(const struct attn &a, const struct fwd_maps &maps, unsigned char *pool)
{
    using S = fwd_shape<D, GROUPS>;
    static_assert(!attn_has_table(MODE) || 16 * S::MR + S::BN <= TERMS_BEYOND,
                  "what a line holds");
    const int BM = S::BM, BN = S::BN, MR = S::MR, NT = BN / 8, OT = D / 8, THREADS = S::WARPS * 32;
    const bool WG = S::WG;
    const int SIZE = attn_tile_size<D, WG>(BN);
    T *q = (T *)pool, *k = q + attn_tile_size<D, WG>(BM), *v = k + S::KS * SIZE;
    uint64_t *q_mbar = (uint64_t *)(v + S::VS * SIZE), *k_mbar = q_mbar + 1,
             *v_mbar = k_mbar + 2;
    float *line = (float *)(q_mbar + MBARS);
    int h = (int)(blockIdx.x % (unsigned)a.n_head), g = h / a.share;
    int slot = a.slots - 1 - (int)(blockIdx.x / (unsigned)a.n_head);
    int lane = (int)threadIdx.x % 32, row = cuda_uniform((int)threadIdx.x / 32) * MR * 16;
    int ks = 0, vs = 0, it = 0, was = 0, was_vs = 0, was_at = 0;    /* the tile before */
    bool first_thread = threadIdx.x == 0;
    struct place p;
    float slope = attn_head_slope(a, h), out[MR][OT][4], s[MR][NT][4], fix[MR][2];
    uint32_t f[MR][NT / 2][4];
    struct softmax<MR> w;

    if (!attn_query_tile(a, &p, BM, slot, g))
        return;
    const T *kf = (const T *)a.k + p.key_at, *vf = (const T *)a.v + p.key_at;
    int64_t i0 = p.first + p.begin;
    int pos = p.shift + p.begin, last = p.len - p.begin < BM ? p.shift + p.len - 1 : pos + BM - 1;
    int j = attn_sees_from(a, pos) / BN * BN, end = attn_sees_to(a, last, p.keys);
    int mine_last, mine = attn_together<WG, MR>(row, &mine_last);
    int none_before = attn_sees_to(a, pos + mine, p.keys);
    uint64_t of = MODE == ATTN_ANY ? dropout_of(a, dropout_sample(a, p), h) : 0;
    int all_after = attn_sees_from(a, min(last, pos + mine_last));

    /* Whole tiles are loaded through maps; others are not, as rows past a document's last may
     * hold anything. */
    auto mapped = [&](int at) { return WG && a.mapped && at + BN <= p.keys; };
    auto load_keys = [&](int at, int to_k, int to_v) {
        T *kt = k + to_k * SIZE, *vt = v + to_v * SIZE;

        if (mapped(at)) {
            int head = a.past ? 0 : g, first = (int)p.key_first + at;

            if (first_thread) {
                mbarrier_expect_tx(&k_mbar[to_k], SIZE * (int)sizeof(T));
                tma_load_tile<D, BN>(kt, &maps.k, head, first, &k_mbar[to_k]);
                mbarrier_expect_tx(&v_mbar[to_v], SIZE * (int)sizeof(T));
                tma_load_tile<D, BN>(vt, &maps.v, head, first, &v_mbar[to_v]);
            }
            return;
        }
        attn_load_tile<WG, D, BN, THREADS>(kt, kf + at * a.kv_stride, a.kv_stride, p.keys - at,
                                           a.dim, a.vec);
        attn_load_tile<WG, D, BN, THREADS>(vt, vf + at * a.kv_stride, a.kv_stride, p.keys - at,
                                           a.dim, a.vec);
        cp_async_commit();
    };
    /* Wait until the tile has been loaded by this thread, and the one before is free. */
    auto tile_ready = [&]() {
        if (!mapped(j))
            attn_tiles_here<WG>();
        __syncthreads();
    };
    if (WG && a.mapped && first_thread) {
        for (int i = 0; i < MBARS; i++)
            mbarrier_init(&q_mbar[i], 1);
        mbarrier_fence_init();
        mbarrier_expect_tx(q_mbar, attn_tile_size<D, WG>(BM) * (int)sizeof(T));
        tma_load_tile<D, BM>(q, &maps.q, h, (int)i0, q_mbar);
    }
    if (!WG || !a.mapped)
        attn_load_tile<WG, D, BM, THREADS>(q, (const T *)a.q + i0 * a.row_stride + h * a.q_head,
                                           a.row_stride, p.len - p.begin, a.dim, a.vec);
    load_keys(j, 0, 0);
    if (attn_has_table(MODE))
        attn_bias_line<T>(a, line, h);
    attn_clear(out);
#pragma unroll
    for (int m = 0; m < MR; m++)
        for (int r = 0; r < 2; r++) {
            w.max[m][r] = -INFINITY;
            w.sum[m][r] = 0;
        }
    auto next_and_wait = [&]() {
        if (j + BN < end)
            load_keys(j + BN, (ks + 1) % S::KS, (vs + 1) % S::VS);
        if (mapped(j))
            mbarrier_wait(&k_mbar[ks], it / S::KS);
    };
    /* Queued one tile later than the scores. */
    auto add_values = [&]() {
        if (mapped(was_at))
            mbarrier_wait(&v_mbar[was_vs], was / S::VS);
        wgmma_fence<WG>();
        attn_times_rows<WG, D>(out, f, v + was_vs * SIZE, 0);
        wgmma_commit<WG>();
    };
    auto scores_to_p = [&]() {
        int col = j + lane % 4 * 2, first = pos + row, i = first + lane / 4;

        if (attn_has_table(MODE) && a.table &&
            attn_terms_differ(a, j - first - 16 * MR + 1, j - first + BN - 1))
            fwd_add_terms<MODE, true>(a, s, col, i, slope, 0.0f, line);
        else if (MODE != ATTN_PLAIN)
            fwd_add_terms<MODE, false>(a, s, col, i, slope,
                                       attn_has_table(MODE) && a.table
                                       ? line[j > first ? 2 * a.span : 0] : 0.0f, line);
        fwd_mask<BN>(a, s, j, i, p.keys, none_before, all_after);
        fwd_softmax_step<MODE>(s, w, fix, a.scale2);
    };
    auto p_to_factor = [&]() {
        if (MODE == ATTN_ANY && a.drop.on)
            fwd_drop_tile(a, s, of, p.begin + row + lane / 4, j);
        attn_as_factor<T>(f, s);
        was = it;
        was_vs = vs;
        was_at = j;
        if (!WG)
            attn_times_rows<WG, D>(out, f, v + vs * SIZE, 0);
    };

    tile_ready();
    next_and_wait();
    if (WG && a.mapped)
        mbarrier_wait(q_mbar, 0);
    wgmma_fence<WG>();
    attn_rows_by_rows<WG, D, BM>(s, q, row, k);
    wgmma_finish<WG>(s);
    scores_to_p();
    p_to_factor();
    /* The product with a tile's values runs during the softmax of the next tile's scores. Rows
     * that are finished (at most two tiles before others) find their last values still in
     * memory. */
    for (j += BN; j < end; j += BN) {
        ks = (ks + 1) % S::KS;
        vs = (vs + 1) % S::VS;
        it++;
        tile_ready();
        next_and_wait();
        if (!a.whole && j > pos + mine_last)
            continue;
        wgmma_fence<WG>();
        attn_rows_by_rows<WG, D, BM>(s, q, row, k + ks * SIZE);
        wgmma_commit<WG>();
        if (WG)
            add_values();
        wgmma_wait<WG, 1>(s);
        scores_to_p();
        wgmma_hold(s);                  /* must not be moved after the wait */
        wgmma_wait<WG, 0>(out);
        fwd_rescale(out, fix);
        p_to_factor();
    }
    if (WG) {
        add_values();
        wgmma_wait<WG, 0>(out);
    }
#pragma unroll
    for (int m = 0; m < MR; m++) {
        float by[2];

#pragma unroll
        for (int r = 0; r < 2; r++) {
            int i = row + 16 * m + 8 * r + lane / 4;
            float sum = w.sum[m][r];

            sum += __shfl_xor_sync(0xffffffffu, sum, 1);
            sum += __shfl_xor_sync(0xffffffffu, sum, 2);
            by[r] = 1.0f / sum;
            if (a.lse && lane % 4 == 0 && p.begin + i < p.len)
                a.lse[h * a.n + i0 + i] =
                    w.max[m][r] * (MODE == ATTN_PLAIN ? a.scale : LN2) + logf(sum);
        }
        attn_store_rows((T *)a.out + i0 * a.n_head * a.dim + h * a.dim,
                        (int64_t)a.n_head * a.dim, row + 16 * m, p.len - p.begin, a.dim,
                        a.pairs, out[m], by[0], by[1]);
    }
}

template <typename T, int D, int MODE, int GROUPS>
__global__ void __launch_bounds__(fwd_shape<D, GROUPS>::WARPS * 32, fwd_shape<D, GROUPS>::BLOCKS)
    forward(const __grid_constant__ struct attn a,
            const __grid_constant__ struct fwd_maps maps)
{
    extern __shared__ __align__(1024) unsigned char pool[];

    if constexpr (attn_runs_here<D, (GROUPS > 0)>())
        forward_tile<T, D, MODE, GROUPS>(a, maps, pool);
}

template <typename T, int D, int MODE, int GROUPS>
static void launch_kind(struct device *dev, const char *op, struct attn a)
{
    using S = fwd_shape<D, GROUPS>;
    size_t bytes =
        sizeof(T) * (size_t)attn_tile_size<D, S::WG>(S::BM + (S::KS + S::VS) * S::BN) +
        sizeof(uint64_t) * MBARS + sizeof(float) * (size_t)attn_line_floats(a);
    struct fwd_maps maps = {};
    int64_t slots = attn_slots(a.n, a.n_docs, S::BM), blocks = slots * a.n_head;

    a.slots = (int)slots;
    a.mapped = S::WG && fwd_maps_of<D>(&maps, a, S::BM, S::BN);
    if (blocks == 0 || !cuda_ok(dev, op, cuda_allow_shared(forward<T, D, MODE, GROUPS>, bytes)))
        return;
    forward<T, D, MODE, GROUPS>
        <<<(unsigned)blocks, S::WARPS * 32, bytes, cuda_of(dev)->stream>>>(a, maps);
    cuda_launched(dev, op);
}

template <typename T, int D, int MODE>
static void launch(struct device *dev, const char *op, const struct attn &a)
{
    if constexpr (D <= 128) {
        if (a.wide && (a.max_doc <= SHORT_DOC || D == 64 || attn_has_table(MODE))) {
            launch_kind<T, D, MODE, 1>(dev, op, a);
            return;
        }
        if constexpr (!attn_has_table(MODE) && D > 64)
            if (a.wide) {
                launch_kind<T, D, MODE, 3>(dev, op, a);
                return;
            }
    }
    launch_kind<T, D, MODE, 0>(dev, op, a);
}

template <typename T, int D>
static void plain_or_slopes(struct device *dev, const char *op, const struct attn &a)
{
    if (a.slopes)
        launch<T, D, ATTN_SLOPES>(dev, op, a);
    else
        launch<T, D, ATTN_PLAIN>(dev, op, a);
}

/* Rare terms and wide heads share a kernel, since each kernel takes time to compile. */
template <typename T> void attn_fwd(struct device *dev, const char *op, const struct attn &a)
{
    if (attn_fwd_producer_supported(a) && attn_fwd_producer<T>(dev, op, a))
        return;
    if (a.wide && attn_table_only(a)) {
        if (a.dim <= 64)
            launch_kind<T, 64, ATTN_TABLE, 1>(dev, op, a);
        else
            launch_kind<T, 128, ATTN_TABLE, 1>(dev, op, a);
    } else if (a.table || a.drop.on || a.dim > 128 || !(a.scale > 0)) {
        if (a.dim <= 64)
            launch<T, 64, ATTN_ANY>(dev, op, a);
        else if (a.dim <= 128)
            launch<T, 128, ATTN_ANY>(dev, op, a);
        else
            launch<T, 256, ATTN_ANY>(dev, op, a);
    } else if (a.dim <= 64) {
        plain_or_slopes<T, 64>(dev, op, a);
    } else if (a.dim <= 80) {
        plain_or_slopes<T, 80>(dev, op, a);
    } else if (a.dim <= 96) {
        plain_or_slopes<T, 96>(dev, op, a);
    } else {
        plain_or_slopes<T, 128>(dev, op, a);
    }
}

template void attn_fwd<__nv_bfloat16>(struct device *, const char *, const struct attn &);
template void attn_fwd<__half>(struct device *, const char *, const struct attn &);

bool attn_vec(const struct op_heads *at, int64_t dim, size_t size)
{
    int64_t each = 16 / (int64_t)size;

    return cuda_aligned(at->q, 16) && cuda_aligned(at->k, 16) && cuda_aligned(at->v, 16) &&
           at->row_stride % each == 0 && at->kv_stride % each == 0 && at->q_head % each == 0 &&
           at->kv_head % each == 0 && dim % each == 0;
}

struct attn attn_of(const struct device *dev, const struct op_attention *o)
{
    struct attn a = attn_common(dev, o, o->doc_start, o->n_docs, o->max_doc);

    a.lse = o->lse;
    a.key_start = o->key_start;
    a.key_end = o->key_end;
    a.whole = o->whole || o->key_start;
    a.drop = cuda_drop_of(&o->drop);
    return a;
}

void cuda_attention_fwd(struct device *dev, const struct op_attention *o)
{
    if (dev->err.code || o->n == 0 || o->n_docs == 0)
        return;
    if (o->real_start) {
        attn_padded_fwd(dev, o);
        return;
    }
    CUDA_ACT(dev, attn_fwd<T>(dev, "attention_fwd", attn_of(dev, o)));
}

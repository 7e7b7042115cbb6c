/*
 * attention/fwd_producer - attention forward on Hopper, with producer warps that load tiles
 * ahead.
 *
 * Blocks are persistent and take tiles of queries of a head, round by round.  The warpgroups of
 * a block have 64 queries each and walk over tiles of keys: the product with a tile's values
 * runs during the softmax of the next tile's scores, and the softmax of one group during the
 * products of the others.  One more warp loads queries, keys and values as buffers become free,
 * also across the border between tiles of queries.
 *
 * Source: Shah et al. 2024 (FlashAttention-3), section 3.
 */
#include "trainer/cuda/attention/fwd.cuh"

enum { GROUP = 128, STAGES = 2, DOCS = 1024 };

/* Sizes by the width of a head. Registers of a thread: MANY in the groups that multiply, FEW in
 * the producer's group; 504 in all with two groups, 512 with three. */
template <int D> struct producer_shape {
    static const int GROUPS = D > 96 ? 2 : 3, BM = 64 * GROUPS, BN = 128, NT = BN / 8;
    static const int PRODUCTS = GROUPS * GROUP, ALL = PRODUCTS + GROUP;
    static const int MANY = D > 96 ? 232 : 160, FEW = D > 96 ? 40 : 32;
};

namespace {

template <typename T, int D> struct pool_of {
    T        q[2][producer_shape<D>::BM * D];
    T        k[STAGES][producer_shape<D>::BN * D], v[STAGES][producer_shape<D>::BN * D];
    uint64_t q_full[2], q_free[2], k_full[STAGES], k_free[STAGES], v_full[STAGES], v_free[STAGES];
    int      tile[DOCS + 1];            /* first tile of queries of each document */
    float    line[];                    /* terms by distance, of two tiles' heads */
};

/* A tile of queries, and the keys [from, end) that it sees. */
struct job {
    struct place p;
    int h, g, pos, last, from, end;
};

/* Number the documents' first tiles, by a warp: without numbers, unused slots would be unequal
 * work. */
template <int BM> __device__ __forceinline__ void number_tiles(const struct attn &a, int *tile)
{
    int lane = (int)threadIdx.x % 32, before = 0;

    for (int d = 0; d < a.n_docs; d += 32) {
        int at = d + lane;
        bool there = at < a.n_docs && !(a.key_start && a.key_end[at] <= a.key_start[at]);
        int mine = there ? a.doc_start[at + 1] - a.doc_start[at] : 0;
        int sum = (mine + BM - 1) / BM;

        for (int step = 1; step < 32; step *= 2) {
            int other = __shfl_up_sync(0xffffffffu, sum, step);

            sum += lane >= step ? other : 0;
        }
        if (d + lane < a.n_docs)
            tile[d + lane + 1] = before + sum;
        before += __shfl_sync(0xffffffffu, sum, 31);
    }
    if (lane == 0)
        tile[0] = 0;
}

/* The document of a tile: the last whose first tile is not after it. */
template <int BM> __device__ __forceinline__ int doc_of_tile(const int *tile, int n_docs, int at)
{
    int lane = (int)threadIdx.x % 32, lo = 0, n = n_docs;

    while (n > 1) {
        int step = (n + 31) / 32;
        bool fits = lane * step < n && tile[lo + lane * step] <= at;
        int last = 31 - __clz((int)__ballot_sync(0xffffffffu, fits));

        lo += last * step;
        n = min(n - last * step, step);
    }
    return lo;
}

/* The block's job of a round; false: none is left. Rounds alternate in direction over the
 * blocks, as long tiles precede short ones. */
template <int BM, int BN>
__device__ __forceinline__ bool job_of(const struct attn &a, const int *tile, struct job *j,
                                       int round)
{
    int blocks = (int)gridDim.x, x = (int)blockIdx.x, tiles = cuda_uniform(tile[a.n_docs]);
    int at = round * blocks + (round % 2 ? blocks - 1 - x : x), mine;

    if (at >= tiles * a.n_head)
        return false;
    j->h = a.by_head ? at / tiles : at % a.n_head;
    j->g = j->h / a.share;
    mine = tiles - 1 - (a.by_head ? at % tiles : at / a.n_head);
    attn_document(a, &j->p, cuda_uniform(doc_of_tile<BM>(tile, a.n_docs, mine)), j->g);
    j->p.begin = (mine - cuda_uniform(tile[j->p.doc])) * BM;
    j->pos = j->p.shift + j->p.begin;
    j->last = min(j->p.len - j->p.begin, BM) + j->pos - 1;
    j->from = attn_sees_from(a, j->pos) / BN * BN;
    j->end = max(attn_sees_to(a, j->last, j->p.keys), j->from + 1); /* wait for at least one tile */
    return true;
}

template <typename T, int MODE, int OT>
__device__ __forceinline__ void end_rows(const struct attn &a, const float (&out)[1][OT][4],
                                         const struct softmax<1> &w, const struct job &job, int row)
{
    int lane = (int)threadIdx.x % 32, rows = job.p.len - job.p.begin;
    int64_t i0 = job.p.first + job.p.begin, ld = (int64_t)a.n_head * a.dim;
    float by[2];

#pragma unroll
    for (int r = 0; r < 2; r++) {
        int i = row + 8 * r + lane / 4;
        float sum = w.sum[0][r];

        sum += __shfl_xor_sync(0xffffffffu, sum, 1);
        sum += __shfl_xor_sync(0xffffffffu, sum, 2);
        by[r] = 1.0f / sum;
        if (a.lse && lane % 4 == 0 && i < rows)
            a.lse[job.h * a.n + i0 + i] =
                w.max[0][r] * (MODE == ATTN_PLAIN ? a.scale : LN2) + logf(sum);
    }
    attn_store_rows((T *)a.out + i0 * ld + job.h * a.dim, ld, row, rows, a.dim, true, out[0],
                    by[0], by[1]);
}

template <typename T, int D, int MODE>
__device__ __forceinline__ void products_group_of(const struct attn &a, struct pool_of<T, D> *m)
{
    using S = producer_shape<D>;
    const int BM = S::BM, BN = S::BN, NT = S::NT;
    int lane = (int)threadIdx.x % 32, row = cuda_uniform((int)threadIdx.x / 32) * 16, it = 0;
    struct job job;

    if (row / 64 == S::GROUPS - 1)
        hopper_bar_arrive<2 * GROUP>(1);
    for (int round = 0; job_of<BM, BN>(a, m->tile, &job, round); round++) {
        float out[1][D / 8][4], s[1][NT][4], fix[1][2];
        uint32_t f[1][NT / 2][4];
        struct softmax<1> w;
        const int b = round & 1, first = job.pos + row, mine = job.pos + row / 64 * 64;
        int last = min(mine + 63, job.last);
        /* the group's rows may see fewer keys than the tile's */
        int j = job.from, end = attn_sees_to(a, last, job.p.keys);
        int none_before = attn_sees_to(a, mine, job.p.keys),
            all_after = attn_sees_from(a, last);
        float slope = attn_head_slope(a, job.h);
        const T *q = m->q[b];
        const float *line = m->line + b * attn_line_floats(a);
        /* Wait for the tile of keys from `at` on; one not loaded by TMA needs a fence. */
        auto wait_for = [&](uint64_t *mbar, int phase, int at) {
            mbarrier_wait(mbar, phase);
            if (at + BN > job.p.keys)
                wgmma_proxy_fence();
        };
        /* Groups queue their products in a fixed order, so that their softmax phases alternate. */
        auto await_order = [&]() { hopper_bar_sync<2 * GROUP>(1 + row / 64); };
        auto pass_order = [&]() {
            hopper_bar_arrive<2 * GROUP>(1 + (row / 64 + 1) % S::GROUPS);
        };
        auto scores_to_p = [&]() {
            int col = j + lane % 4 * 2, i = first + lane / 4;

            if (attn_has_table(MODE) &&
                attn_terms_differ(a, j - first - 15, j - first + BN - 1))
                fwd_add_terms<MODE, true>(a, s, col, i, slope, 0.0f, line);
            else if (MODE != ATTN_PLAIN)
                fwd_add_terms<MODE, false>(
                    a, s, col, i, slope,
                    attn_has_table(MODE) ? line[j > first ? 2 * a.span : 0] : 0.0f, line);
            fwd_mask<BN>(a, s, j, i, job.p.keys, none_before, all_after);
            fwd_softmax_step<MODE>(s, w, fix, a.scale2);
        };

        attn_clear(out);
        for (int r = 0; r < 2; r++) {
            w.max[0][r] = -INFINITY;
            w.sum[0][r] = 0;
        }
        mbarrier_wait(&m->q_full[b], round >> 1);
        wait_for(&m->k_full[it % STAGES], it / STAGES, j);
        wgmma_fence<true>();
        wgmma_rows_by_rows<T, D, BM>(s, q, row, m->k[it % STAGES]);
        wgmma_finish<true>(s);
        if (lane == 0)
            mbarrier_arrive(&m->k_free[it % STAGES]);
        scores_to_p();
        attn_as_factor<T>(f, s);
        for (j += BN; j < end; j += BN) {
            int was = it % STAGES, now = (it + 1) % STAGES;

            wait_for(&m->k_full[now], (it + 1) / STAGES, j);
            await_order();
            wgmma_fence<true>();
            wgmma_rows_by_rows<T, D, BM>(s, q, row, m->k[now]);
            wgmma_commit<true>();
            mbarrier_wait(&m->v_full[was], it / STAGES);
            wgmma_fence<true>();
            wgmma_times_rows<T, D, NT>(out, f[0], m->v[was]);
            wgmma_commit<true>();
            pass_order();
            wgmma_wait<true, 1>(s);
            if (lane == 0)
                mbarrier_arrive(&m->k_free[now]);
            scores_to_p();
            wgmma_hold(s);              /* must not be moved after the wait */
            wgmma_wait<true, 0>(out);
            if (lane == 0)
                mbarrier_arrive(&m->v_free[was]);
            fwd_rescale(out, fix);
            attn_as_factor<T>(f, s);
            it++;
        }
        __syncwarp();                   /* reads of the line are done */
        if (lane == 0)
            mbarrier_arrive(&m->q_free[b]);
        wait_for(&m->v_full[it % STAGES], it / STAGES, j - BN);
        wgmma_fence<true>();
        wgmma_times_rows<T, D, NT>(out, f[0], m->v[it % STAGES]);
        wgmma_finish<true>(out);
        if (lane == 0)
            mbarrier_arrive(&m->v_free[it % STAGES]);
        it++;
        end_rows<T, MODE>(a, out, w, job, row);
        /* Tiles that only other groups need: pass their barriers, since buffers become free only
         * after all groups have arrived. */
        for (; j < job.end; j += BN, it++) {
            await_order();
            pass_order();
            mbarrier_wait(&m->k_full[it % STAGES], it / STAGES);
            if (lane == 0)
                mbarrier_arrive(&m->k_free[it % STAGES]);
            mbarrier_wait(&m->v_full[it % STAGES], it / STAGES);
            if (lane == 0)
                mbarrier_arrive(&m->v_free[it % STAGES]);
        }
    }
}

/* Load keys or values [j, j + BN) by a warp: whole tiles through the map, as rows past the last
 * may hold anything. */
template <int D, int BN, typename T>
__device__ __forceinline__ void bring_keys(const struct attn &a, T *tile,
                                           const CUtensorMap *map, const void *from,
                                           const struct job &job, int j, uint64_t *mbar)
{
    int lane = (int)threadIdx.x % 32;

    if (j + BN > job.p.keys) {
        tma_copy_rows<D, BN, 32>(tile, (const T *)from + job.p.key_at + j * a.kv_stride,
                                 a.kv_stride, job.p.keys - j, a.dim, lane);
        mbarrier_arrive_copies(mbar);
    } else if (lane == 0) {
        mbarrier_expect_tx(mbar, BN * D * (int)sizeof(T));
        tma_load_tile<D, BN>(tile, map, a.past ? 0 : job.g, (int)job.p.key_first + j, mbar);
    } else {
        mbarrier_arrive(mbar);
    }
}

template <typename T, int D, int MODE>
__device__ __forceinline__ void copies_warp(const struct attn &a, const struct fwd_maps &maps,
                                            struct pool_of<T, D> *m)
{
    const int BM = producer_shape<D>::BM, BN = producer_shape<D>::BN;
    int lane = (int)threadIdx.x % 32, it = 0;
    struct job job;

    for (int round = 0; job_of<BM, BN>(a, m->tile, &job, round); round++) {
        const int b = round & 1;

        if (round > 1)
            mbarrier_wait(&m->q_free[b], (round >> 1) - 1);
        if (lane == 0)                  /* rows past the last are not used */
            tma_load_tile<D, BM>(m->q[b], &maps.q, job.h, (int)job.p.first + job.p.begin,
                                 &m->q_full[b]);
        if (attn_has_table(MODE))
            attn_bias_part<T, 8>(a, m->line + b * attn_line_floats(a), job.h, lane, 32);
        __syncwarp();
        if (lane == 0)
            mbarrier_expect_tx(&m->q_full[b], BM * D * (int)sizeof(T));
        for (int j = job.from; j < job.end; j += BN, it++) {
            const int st = it % STAGES, phase = it / STAGES;

            if (phase)
                mbarrier_wait(&m->k_free[st], phase - 1);
            bring_keys<D, BN>(a, m->k[st], &maps.k, a.k, job, j, &m->k_full[st]);
            if (phase)
                mbarrier_wait(&m->v_free[st], phase - 1);
            bring_keys<D, BN>(a, m->v[st], &maps.v, a.v, job, j, &m->v_full[st]);
        }
    }
    cp_async_wait<0>();
}

template <typename T, int D, int MODE>
__global__ void __launch_bounds__(producer_shape<D>::ALL, 1)
    fwd_producer(const __grid_constant__ struct attn a,
                 const __grid_constant__ struct fwd_maps maps)
{
    extern __shared__ __align__(1024) unsigned char pool[];

#if WGMMA_HERE
    struct pool_of<T, D> *m = (struct pool_of<T, D> *)pool;

    if (threadIdx.x == 0) {
        for (int i = 0; i < 2; i++) {
            mbarrier_init(&m->q_full[i], 1);
            mbarrier_init(&m->q_free[i], producer_shape<D>::PRODUCTS / 32);
            mbarrier_init(&m->k_full[i], 32);
            mbarrier_init(&m->k_free[i], producer_shape<D>::PRODUCTS / 32);
            mbarrier_init(&m->v_full[i], 32);
            mbarrier_init(&m->v_free[i], producer_shape<D>::PRODUCTS / 32);
        }
        mbarrier_fence_init();
    }
    if (cuda_uniform((int)threadIdx.x / 32) == producer_shape<D>::ALL / 32 - 1)
        number_tiles<producer_shape<D>::BM>(a, m->tile);
    __syncthreads();
    if (threadIdx.x < producer_shape<D>::PRODUCTS) {
        hopper_registers_inc<producer_shape<D>::MANY>();
        products_group_of<T, D, MODE>(a, m);
    } else {
        hopper_registers_dec<producer_shape<D>::FEW>();
        if (threadIdx.x < producer_shape<D>::PRODUCTS + 32)
            copies_warp<T, D, MODE>(a, maps, m);
    }
#endif
}

template <typename T, int D, int MODE>
bool launch(struct device *dev, const char *op, struct attn a)
{
    size_t bytes =
        sizeof(struct pool_of<T, D>) + 2 * sizeof(float) * (size_t)attn_line_floats(a);
    int64_t jobs, blocks = cuda_of(dev)->sms;
    struct fwd_maps maps;

    if (!fwd_maps_of<D>(&maps, a, producer_shape<D>::BM, producer_shape<D>::BN))
        return false;
    /* With documents of equal length, long and short tiles are spread evenly if those of a head
     * follow each other; else long tiles go first. */
    a.by_head = !a.whole && a.n_docs > 1 && a.n == (int64_t)a.n_docs * a.max_doc;
    jobs = attn_slots(a.n, a.n_docs, producer_shape<D>::BM) * a.n_head; /* at most */
    if (jobs == 0 || !cuda_ok(dev, op, cuda_allow_shared(fwd_producer<T, D, MODE>, bytes)))
        return true;
    jobs = jobs < blocks ? jobs : blocks;
    fwd_producer<T, D, MODE><<<(unsigned)jobs, producer_shape<D>::ALL, bytes,
                        cuda_of(dev)->stream>>>(a, maps);
    cuda_launched(dev, op);
    return true;
}

} /* namespace */

/* For wide heads with documents of medium length, and narrow heads with long documents: other
 * shapes lose more by the single resident block than they gain.  With dropout the time goes into
 * random words anyway. */
bool attn_fwd_producer_supported(const struct attn &a)
{
    bool wide = a.dim > 96 && a.dim <= 128 && a.n >= 256 * (int64_t)a.n_docs;
    bool narrow = a.dim <= 64 && !a.table && a.n >= 2048 * (int64_t)a.n_docs;

    return a.wide && a.vec && a.pairs && (wide || narrow) && a.n_docs <= DOCS && !a.drop.on &&
           !(a.table && a.slopes) && a.far <= 1024;
}

template <typename T>
bool attn_fwd_producer(struct device *dev, const char *op, const struct attn &a)
{
    bool terms = a.slopes || !(a.scale > 0);

    if (a.dim <= 64)
        return terms ? launch<T, 64, ATTN_SLOPES>(dev, op, a)
                     : launch<T, 64, ATTN_PLAIN>(dev, op, a);
    if (a.table)
        return launch<T, 128, ATTN_TABLE>(dev, op, a);
    return terms ? launch<T, 128, ATTN_SLOPES>(dev, op, a)
                 : launch<T, 128, ATTN_PLAIN>(dev, op, a);
}

template bool attn_fwd_producer<__nv_bfloat16>(struct device *, const char *,
                                               const struct attn &);
template bool attn_fwd_producer<__half>(struct device *, const char *, const struct attn &);

/*
 * attention/bwd_one_pass - attention backward with dropout in one pass, on Hopper.
 *
 * A block holds 128 keys and walks over tiles of 64 queries that see them, of all heads that
 * share the keys.  Two warpgroups, with 64 keys each, compute S^T and dP^T and from them dv and
 * dk, which stay in registers; dS goes to shared memory, where the groups alternately compute
 * the tile's part of dq.  Producer warps load tiles ahead, add parts of dq to the sums of
 * earlier blocks in the workspace, and round a tile after the last block has added to it.  Each
 * tile of queries passes from block to block in a fixed order, so that every rerun gives the
 * same bits.
 *
 * The order.  Causal: from the tile's last keys back to the document's first; a block begins at
 * its diagonal, so that blocks of a document that start together find each tile ready when they
 * reach it.  Where all keys are seen, a block begins at its share of the queries and wraps
 * around; this needs all blocks of a head resident at once, else they go straight.  Blocks are
 * numbered so that those that wait start last.
 *
 * Source: Dao 2023 (FlashAttention-2), section 3.1.2; Shah et al. 2024 (FlashAttention-3),
 * section 3 (warpgroups with roles); PTX ISA 8.5, 9.7.13.15 (mbarrier).
 */
#include "trainer/cuda/attention/bwd_one_pass_producer.cuh"

namespace {

/* -- the multiplying warpgroups --------------------------------------------------------------- */

/*
 * Turn scores, rows keys and columns queries, into P. rel: the lane's first key minus the
 * tile's first query.  lse is in base 2.
 */
template <int NT>
__device__ __forceinline__ void to_p(const struct attn &a, float (&s)[1][NT][4],
                                     const float *lse, int rel, float slope)
{
    int col = (int)threadIdx.x % 4 * 2;
    float low = slope * (float)rel, high = fmaf(slope, 8.0f, low);

#pragma unroll
    for (int n = 0; n < NT; n++) {
        float2 l = *(const float2 *)(lse + 8 * n + col);
        float c0 = fmaf(slope, (float)(8 * n + col), l.x);
        float c1 = fmaf(slope, (float)(8 * n + col + 1), l.y);

        s[0][n][0] = attn_exp2(fmaf(s[0][n][0], a.scale2, low - c0));
        s[0][n][1] = attn_exp2(fmaf(s[0][n][1], a.scale2, low - c1));
        s[0][n][2] = attn_exp2(fmaf(s[0][n][2], a.scale2, high - c0));
        s[0][n][3] = attn_exp2(fmaf(s[0][n][3], a.scale2, high - c1));
    }
}

/* P with dropout (mask `kept`) as the first factor of dv. */
template <typename T>
__device__ __forceinline__ void bwd_p_factor(const struct attn &a, uint32_t (&f)[1][4][4],
                                             const float (&s)[1][8][4], uint64_t kept)
{
    float x[1][8][4];

#pragma unroll
    for (int n = 0; n < 8; n++)
#pragma unroll
        for (int e = 0; e < 4; e++)
            x[0][n][e] = kept >> (4 * n + e) & 1 ? s[0][n][e] * a.drop.scale : 0.0f;
    attn_as_factor<T>(f, x);
}

/* Turn dP into dS. */
template <int NT>
__device__ __forceinline__ void to_ds(const struct attn &a, float (&dp)[1][NT][4],
                                      const float (&p)[1][NT][4], const float *delta, uint64_t kept)
{
    int col = (int)threadIdx.x % 4 * 2;

#pragma unroll
    for (int n = 0; n < NT; n++) {
        float2 d = *(const float2 *)(delta + 8 * n + col);

#pragma unroll
        for (int e = 0; e < 4; e++) {
            float x = kept >> (4 * n + e) & 1 ? dp[0][n][e] * a.drop.scale : 0.0f;

            dp[0][n][e] = p[0][n][e] * (x - (e % 2 ? d.y : d.x));
        }
    }
}

/* Set masked scores to -inf, or to a value that becomes -inf after scaling. first: query minus
 * key of the lane's first element; keys, queries: how many exist from there on. */
template <int NT>
__device__ __forceinline__ void bwd_mask(const struct attn &a, float (&s)[1][NT][4], int first,
                                         int keys, int queries)
{
    float never = a.scale2 < 0 ? INFINITY : -INFINITY;
    int most = a.whole || a.window <= 0 ? INT_MAX : a.window - 1, least = a.whole ? INT_MIN : 0;

#pragma unroll
    for (int n = 0; n < NT; n++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            int row = e / 2 * 8, col = 8 * n + e % 2, diff = first + col - row;
            bool hidden = (diff < least) | (diff > most) | (row >= keys) | (col >= queries);

            s[0][n][e] = hidden ? never : s[0][n][e];
        }
}

/* Store dS^T of a warp, whose rows are its keys from `key` on, into the tile of dS, whose rows
 * are queries. */
template <typename T>
__device__ __forceinline__ void put_ds(T *ds, const uint32_t (&f)[1][4][4], int key)
{
    int lane = (int)threadIdx.x % 32, query = lane / 16 * 8 + lane % 8;
    int piece = key / 8 + lane / 8 % 2;

#pragma unroll
    for (int k = 0; k < 4; k++)
        asm volatile(
            "stmatrix.sync.aligned.m8n8.x4.trans.shared::cta.b16 [%0], {%1, %2, %3, %4};" ::"r"(
                cuda_shared_addr(ds + wgmma_panel_at<KEYS, ROWS>(16 * k + query, piece))),
            "r"(f[0][k][0]), "r"(f[0][k][1]), "r"(f[0][k][2]), "r"(f[0][k][3])
            : "memory");
}

/*
 * Store a tile's part of dq for the third group, in the workspace's layout: a float4 holds
 * columns 2 q, 2 q + 1 of two fragments side by side, and those of odd rows change places, so
 * that rows that are written together lie on different banks.
 */
template <int D>
__device__ __forceinline__ void put_dq(float *to, const float (&dq)[1][D / 8][4], int64_t row0)
{
    int lane = (int)threadIdx.x % 32, row = (int)threadIdx.x % GROUP / 32 * 16 + lane / 4;
    int other = ((int)row0 + row) % 2 * 4;
    float4 *at = (float4 *)to + row * (D / 4);

#pragma unroll
    for (int k = 0; k < D / 8; k++) {
        const float *x = dq[0][k / 2 * 2] + k % 2 * 2, *y = dq[0][k / 2 * 2 + 1] + k % 2 * 2;

        at[k % 2 * 8 * (D / 4) + ((k / 2 * 4 + lane % 4) ^ other)] =
            make_float4(x[0], x[1], y[0], y[1]);
    }
}

template <typename T, int D>
__device__ __forceinline__ void keys_group(const struct attn &a, struct bwd_pool<T, D> *m,
                                           const struct place &p, int g)
{
    int w = cuda_uniform((int)threadIdx.x / GROUP), lane = (int)threadIdx.x % 32;
    int row = (int)threadIdx.x % GROUP / 32 * 16 + lane / 4, mine = p.begin + 64 * w, it = 0;
    int last = min(p.keys, p.begin + KEYS) - 1;
    uint32_t sample = dropout_sample(a, p);
    struct walk walk = bwd_walk_of(a, p);
    float dk[1][D / 8][4], dv[1][D / 8][4];

    const T *from = (const T *)(w ? a.v : a.k) + p.key_at + p.begin * a.kv_stride;

    tma_copy_rows<D, KEYS, GROUP>(w ? m->v : m->k, from, a.kv_stride, p.keys - p.begin, a.dim,
                                  (int)threadIdx.x % GROUP);
    mbarrier_arrive_copies(&m->keys);
    attn_clear(dk);
    attn_clear(dv);
    mbarrier_wait(&m->keys, 0);
    for (int h = g * a.share; h < (g + 1) * a.share; h++) {
        float slope = attn_head_slope(a, h);

        for (int x = 0; x < walk.tiles; x++, it++) {
            int i = bwd_tile_of(walk, x) * ROWS, st = it & 1, end = i + ROWS;
            const T *q = m->q[st], *dout = m->dout[st];
            bool out = !a.whole && (mine + 63 > i || (a.window > 0 && end - 1 - a.window >= mine));
            bool edge = out || end > p.len || mine + 64 > p.keys;

            mbarrier_wait(&m->full[st], it >> 1);
            wgmma_proxy_fence();
            if (mine <= last && attn_meet(a, i, end - 1, mine, mine + 63)) {
                float s[1][8][4], dp[1][8][4];
                uint32_t f[1][4][4], df[1][4][4];
                uint64_t kept;

                wgmma_fence<true>();
                wgmma_rows_by_rows<T, D, KEYS>(s, m->k, 64 * w, q);
                wgmma_commit<true>();
                wgmma_rows_by_rows<T, D, KEYS>(dp, m->v, 64 * w, dout);
                wgmma_commit<true>();
                kept = dropout_tile_t<1, 8>(a, dropout_of(a, sample, h), i + lane % 4 * 2,
                                            mine + row);
                wgmma_wait<true, 1>(s);
                if (edge)
                    bwd_mask(a, s, i + lane % 4 * 2 - mine - row, p.keys - mine - row,
                             p.len - i - lane % 4 * 2);
                to_p(a, s, m->lse[st], mine + row - i, slope);
                bwd_p_factor<T>(a, f, s, kept);
                wgmma_fence<true>();
                wgmma_times_rows<T, D, 8>(dv, f[0], dout);
                wgmma_commit<true>();
                if (D > 96)             /* too few registers for more at once */
                    wgmma_wait<true, 0>(dp, dv);
                else
                    wgmma_wait<true, 1>(dp);
                to_ds(a, dp, s, m->delta[st], kept);
                attn_as_factor<T>(df, dp);
                put_ds(m->ds[st], df, 64 * w + row / 16 * 16);
                wgmma_proxy_fence();
                wgmma_fence<true>();
                wgmma_times_rows<T, D, 8>(dk, df[0], q);
                wgmma_commit<true>();
            } else {
                const uint32_t none[1][4][4] = {};

                put_ds(m->ds[st], none, 64 * w + row / 16 * 16);
                wgmma_proxy_fence();
            }
            if (st != w) {
                hopper_bar_arrive<2 * GROUP>(1 + st);
                wgmma_wait<true, 0>(dv, dk);
            } else {
                float dq[1][D / 8][4];

                if (D > 96)             /* too few registers for all of it at once */
                    wgmma_wait<true, 0>(dv, dk);
                hopper_bar_sync<2 * GROUP>(1 + st);
                wgmma_fence<true>();
                wgmma_rows_sum<T, D, KEYS>(dq, m->ds[st], m->k);
                wgmma_commit<true>();
                wgmma_wait<true, 0>(dq, dv, dk);
                if (it > 1)
                    mbarrier_wait(&m->taken[st], (it >> 1) - 1);
                put_dq<D>(m->dq[st], dq, p.first);
                wgmma_proxy_fence();
            }
            __syncwarp();
            if (lane == 0)
                mbarrier_arrive(&m->done[st]);
        }
    }
    int64_t at = (p.key_first + p.begin) * a.kv_stride + g * a.dkv_head;
    int first = 64 * w + row / 16 * 16;

    attn_store_rows((T *)a.dk + at, a.kv_stride, first, p.keys - p.begin, a.dim, true, dk[0],
                    a.scale, a.scale);
    attn_store_rows((T *)a.dv + at, a.kv_stride, first, p.keys - p.begin, a.dim, true, dv[0],
                    1.0f, 1.0f);
}

/* -- kernels ----------------------------------------------------------------------------------- */

template <typename T, int D>
__device__ __forceinline__ void one_pass_tile(const struct attn &a, struct bwd_pool<T, D> *m)
{
    struct place p;
    int g;

    if (!bwd_block_keys(a, &p, &g))
        return;
    if (threadIdx.x == 0) {
        for (int i = 0; i < 2; i++) {
            mbarrier_init(&m->full[i], 32);
            mbarrier_init(&m->done[i], 2 * GROUP / 32);
            mbarrier_init(&m->taken[i], 1);
        }
        mbarrier_init(&m->keys, 2 * GROUP);
    }
    __syncthreads();
    if (threadIdx.x < 2 * GROUP) {
        hopper_registers_inc<registers<D>::MANY>();
        keys_group<T, D>(a, m, p, g);
    } else {
        hopper_registers_dec<registers<D>::FEW>();
        bwd_producer_group(a, m, p, g);
    }
}

template <typename T, int D>
__global__ void __launch_bounds__(ALL, 1) bwd_one_pass(const __grid_constant__ struct attn a)
{
    extern __shared__ __align__(1024) unsigned char pool[];

#if WGMMA_HERE
    cuda_pdl_wait();
    one_pass_tile<T, D>(a, (struct bwd_pool<T, D> *)pool);
#endif
}

/* Values that the kernel above reads per row: D = dout . out, lse in base 2; also clears all
 * tickets. LANES threads take a row of a head. */
template <typename T, int LANES>
__global__ void __launch_bounds__(256) prepare(const __grid_constant__ struct attn a)
{
    int64_t at = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) / LANES;
    int c = (int)threadIdx.x % LANES * 8;
    bool there = at < a.n * a.n_head;
    float sum = 0;

    cuda_pdl_wait();
    if (there && c < a.dim) {
        cuda_pack<T, 8> x = *(const cuda_pack<T, 8> *)((const T *)a.out + at * a.dim + c);
        cuda_pack<T, 8> y = *(const cuda_pack<T, 8> *)((const T *)a.dout + at * a.dim + c);

#pragma unroll
        for (int e = 0; e < 8; e++)
            sum += cuda_to_f32(x.at[e]) * cuda_to_f32(y.at[e]);
    }
    sum = cuda_warp_sum<LANES>(sum);
    if (there && c == 0) {
        int64_t to = at % a.n_head * a.n + at / a.n_head;

        a.delta[to] = sum;
        a.lse2[to] = a.lse[to] * LOG2E;
        a.tickets[to] = 0;
    }
}

template <typename T, int D> void launch(struct device *dev, struct attn a)
{
    const size_t bytes = sizeof(struct bwd_pool<T, D>);
    const int LANES = D > 64 ? 16 : 8;

    static_assert(bytes <= 227 << 10, "what a block of 9.0 may have");

    prepare<T, LANES><<<(unsigned)cuda_blocks(a.n * a.n_head, 256 / LANES), 256, 0,
                        cuda_of(dev)->stream>>>(a);
    if (!cuda_launched(dev, "attention_bwd") ||
        !cuda_ok(dev, "attention_bwd", cuda_allow_shared(bwd_one_pass<T, D>, bytes)))
        return;
    cuda_pdl_launch(dev, true, bwd_one_pass<T, D>, (unsigned)(attn_key_slots(a, KEYS) * a.n_kv),
                    (unsigned)ALL, bytes, a);
    cuda_launched(dev, "attention_bwd");
}

} /* namespace */

template <typename T> void attn_bwd_one_pass(struct device *dev, struct attn a)
{
    a.slots = cuda_of(dev)->sms;
    if (a.dim <= 64)
        launch<T, 64>(dev, a);
    else
        launch<T, 128>(dev, a);
}

template void attn_bwd_one_pass<__nv_bfloat16>(struct device *, struct attn);
template void attn_bwd_one_pass<__half>(struct device *, struct attn);

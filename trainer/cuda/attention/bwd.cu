/*
 * attention/bwd - attention over packed documents on the tensor cores: backward.
 *
 * Two kernels rebuild P = exp(s - lse) and dS = P (dP - D) tile by tile.  One holds queries and
 * walks over keys: dq += dS k.  The other holds keys and walks over the queries that see them,
 * of all heads that share the keys: it computes the transposes, so that dv += P^T dout and dk
 * += dS^T q read them from registers.  No sum is shared between blocks, so every rerun gives
 * the same bits; the price is that scores are computed twice.
 *
 * With a relative bias (bias_grad.cuh) a block walks over several tiles of queries and leaves
 * one line of sums, which bwd_choice.cu adds up.  Heads of up to 128 columns have kernels of
 * their own on Hopper: bwd_two_pass.cu.
 *
 * Source: Dao 2023 (FlashAttention-2), section 3.1.2.
 */
#include "trainer/cuda/attention/dropout.cuh"
#include "trainer/cuda/attention/bias_grad.cuh"

#include <limits.h>

/* The kernel of dq: rows are queries. */
template <int D> struct dq_shape {
    static const int WARPS = D > 128 ? 8 : 4, MR = D > 128 ? 1 : 2;
    static const int BM = WARPS * MR * 16, BN = D <= 64 ? 64 : 32;
};

/* The kernel of dk and dv: rows are keys, COLS the columns of dk and dv that a block computes. */
template <int D> struct dkv_shape {
    static const int WARPS = D == 64 || D > 128 ? 4 : 8, MR = D == 64 ? 2 : 1;
    static const int BM = WARPS * MR * 16, BN = D > 64 && D <= 128 ? 64 : 32;
    static const int COLS = D > 128 ? D / 2 : D;
};

/* D[h, i] = dout[i, h] . out[i, h] of a tile's rows, for this block and for those of keys. */
template <typename T, int BM, int THREADS>
__device__ __forceinline__ void deltas(const struct attn &a, float *to, int64_t i0, int h,
                                       int rows)
{
    const int LANES = THREADS / BM;
    int r = (int)threadIdx.x / LANES, lane = (int)threadIdx.x % LANES;
    int64_t at = ((i0 + r) * a.n_head + h) * a.dim;
    const T *x = (const T *)a.out + at, *y = (const T *)a.dout + at;
    float sum = 0;

    for (int c = lane * 8; r < rows && c < a.dim; c += LANES * 8) {
        if (a.vec) {
            cuda_pack<T, 8> px = *(const cuda_pack<T, 8> *)(x + c);
            cuda_pack<T, 8> py = *(const cuda_pack<T, 8> *)(y + c);

#pragma unroll
            for (int e = 0; e < 8; e++)
                sum += cuda_to_f32(px.at[e]) * cuda_to_f32(py.at[e]);
        } else {
            for (int e = c; e < c + 8 && e < a.dim; e++)
                sum += cuda_to_f32(x[e]) * cuda_to_f32(y[e]);
        }
    }
    sum = cuda_warp_sum<LANES>(sum);
    if (lane == 0) {
        to[r] = sum;
        if (r < rows)
            a.delta[h * a.n + i0 + r] = sum;
    }
}

/* -- P and dS ---------------------------------------------------------------------------------- */

/* From a score s and dP = dout . v: s becomes P after dropout (the factor of dv), dp becomes dS
 * (the factor of dk and dq). lse is in base 2. */
template <int MODE, bool DIFFER>
__device__ __forceinline__ void p_ds(const struct attn &a, float &s, float &dp, float lse,
                                     float delta, float slope, float rel, float term, float keep)
{
    float x = fmaf(s, a.scale2, -lse), p;

    if (attn_has_slopes(MODE))
        x = fmaf(slope, rel, x);
    if (DIFFER)
        x += term;
    p = attn_exp2(x);
    dp = p * ((MODE == ATTN_ANY ? dp * keep : dp) - delta);
    s = MODE == ATTN_ANY ? p * keep : p;
}

/*
 * Set masked scores to -inf, or to a value that becomes -inf after scaling. first: i - j of the
 * lane's first element; step: its change from row to row (columns go the other way); rows end at
 * rows_end, columns at cols_end.
 */
template <int MR, int NT>
__device__ __forceinline__ void bwd_mask(const struct attn &a, float (&s)[MR][NT][4], int first,
                                         int step, int rows_end, int cols_end)
{
    float never = a.scale2 < 0 ? INFINITY : -INFINITY;
    int most = a.whole || a.window <= 0 ? INT_MAX : a.window - 1, least = a.whole ? INT_MIN : 0;

#pragma unroll
    for (int m = 0; m < MR; m++)
#pragma unroll
        for (int n = 0; n < NT; n++)
#pragma unroll
            for (int e = 0; e < 4; e++) {
                int row = 16 * m + e / 2 * 8, col = 8 * n + e % 2;
                int diff = first + step * (row - col);
                bool hidden = (diff < least) | (diff > most) | (row >= rows_end) |
                              (col >= cols_end);

                s[m][n][e] = hidden ? never : s[m][n][e];
            }
}

/* Rows are queries: lse and delta by row. Terms by distance come from the line where they
 * DIFFER inside the tile, else from `beyond`, which is added to lse. */
template <int MODE, bool DIFFER, int MR, int NT>
__device__ __forceinline__ void backs(const struct attn &a, float (&s)[MR][NT][4],
                                      float (&dp)[MR][NT][4], const float (&lse)[MR][2],
                                      const float (&delta)[MR][2], int pos, int j, float slope,
                                      float beyond, const float *line, uint64_t of, int drop_row)
{
    int lane = (int)threadIdx.x % 32;
    float base = (float)(j + lane % 4 * 2 - pos);
    uint64_t bits = 0;

    line += a.span + j + lane % 4 * 2 - pos;
    if (MODE == ATTN_ANY && a.drop.on)
        bits = dropout_tile<MR, NT>(a, of, drop_row, j);
#pragma unroll
    for (int m = 0; m < MR; m++) {
        float less[2] = {lse[m][0], lse[m][1]};

        if (attn_has_table(MODE) && !DIFFER) {
            less[0] -= beyond;
            less[1] -= beyond;
        }
#pragma unroll
        for (int n = 0; n < NT; n++) {
#pragma unroll
            for (int e = 0; e < 4; e++) {
                const int step = 8 * n + e % 2 - 16 * m - e / 2 * 8;
                float rel = base + (float)step, keep = 1, term = DIFFER ? line[step] : 0.0f;

                if (MODE == ATTN_ANY && a.drop.on)
                    keep = bits >> (4 * (m * NT + n) + e) & 1 ? a.drop.scale : 0.0f;
                p_ds<MODE, DIFFER>(a, s[m][n][e], dp[m][n][e], less[e / 2], delta[m][e / 2],
                                   slope, rel, term, keep);
            }
        }
    }
}

template <typename T, int D, int MODE>
__device__ __forceinline__ void queries_tiles(const struct attn &a, unsigned char *pool)
{
    using S = dq_shape<D>;
    const int BM = S::BM, BN = S::BN, MR = S::MR, NT = BN / 8, OT = D / 8, THREADS = S::WARPS * 32;
    const int SIZE = attn_tile_size<D, false>(BN), SIZE_Q = attn_tile_size<D, false>(BM);
    T *q = (T *)pool, *dout = q + SIZE_Q, *k = dout + SIZE_Q, *v = k + 2 * SIZE;
    float *line = (float *)(v + 2 * SIZE), *lines = line + attn_line_floats(a);
    float *spare = lines + (a.dline ? S::WARPS * bias_grad_floats(a) : 0);
    int h = (int)(blockIdx.x % (unsigned)a.n_head), g = h / a.share;
    int groups = (int)(gridDim.x / (unsigned)a.n_head), group = (int)blockIdx.x / a.n_head;
    int lane = (int)threadIdx.x % 32, row = cuda_uniform((int)threadIdx.x / 32) * MR * 16;
    int mine_last, mine = attn_together<false, MR>(row, &mine_last);
    float slope = attn_head_slope(a, h);
    bool has_line = false;
    struct bias_grad w = {};

    if (attn_has_table(MODE) && a.dline)
        bias_grad_begin(a, w, lines);
    for (int slot = a.slots - 1 - group; slot >= 0; slot -= groups) {
        struct place p;
        float dq[MR][OT][4], lse[MR][2], delta[MR][2];

        if (!attn_query_tile(a, &p, BM, slot, g))
            continue;
        const T *kf = (const T *)a.k + p.key_at, *vf = (const T *)a.v + p.key_at;
        int64_t i0 = p.first + p.begin, out_ld = (int64_t)a.n_head * a.dim;
        int pos = p.begin, last = (p.len < pos + BM ? p.len : pos + BM) - 1;
        int j = attn_sees_from(a, pos) / BN * BN, end = attn_sees_to(a, last, p.keys),
            stage = 0;
        int none_before = attn_sees_to(a, pos, p.keys), all_after = attn_sees_from(a, last);
        uint64_t of = MODE == ATTN_ANY ? dropout_of(a, dropout_sample(a, p), h) : 0;

        __syncthreads();                /* reads of the last tile are done */
        attn_load_tile<false, D, BM, THREADS>(q,
                                              (const T *)a.q + i0 * a.row_stride + h * a.q_head,
                                              a.row_stride, p.len - pos, a.dim, a.vec);
        attn_load_tile<false, D, BM, THREADS>(dout, (const T *)a.dout + i0 * out_ld + h * a.dim,
                                              out_ld, p.len - pos, a.dim, a.vec);
        attn_load_tile<false, D, BN, THREADS>(k, kf + j * a.kv_stride, a.kv_stride, p.keys - j,
                                              a.dim, a.vec);
        attn_load_tile<false, D, BN, THREADS>(v, vf + j * a.kv_stride, a.kv_stride, p.keys - j,
                                              a.dim, a.vec);
        cp_async_commit();
        if (attn_has_table(MODE) && !has_line)
            attn_bias_line<T>(a, line, h);
        has_line = true;
        deltas<T, BM, THREADS>(a, spare, i0, h, p.len - pos);
        attn_clear(dq);
        __syncthreads();
#pragma unroll
        for (int m = 0; m < MR; m++)
#pragma unroll
            for (int r = 0; r < 2; r++) {
                int i = row + 16 * m + 8 * r + lane / 4;
                bool there = pos + i < p.len;

                lse[m][r] = there ? a.lse[h * a.n + i0 + i] * LOG2E : INFINITY;
                delta[m][r] = spare[i];
            }
        for (; j < end; j += BN, stage ^= 1) {
            float s[MR][NT][4], dp[MR][NT][4];
            uint32_t f[MR][NT / 2][4];
            const T *kt = k + stage * SIZE, *vt = v + stage * SIZE;

            attn_tiles_ready<false>();
            if (j + BN < end) {
                int next = j + BN;

                attn_load_tile<false, D, BN, THREADS>(k + (stage ^ 1) * SIZE,
                                                      kf + next * a.kv_stride, a.kv_stride,
                                                      p.keys - next, a.dim, a.vec);
                attn_load_tile<false, D, BN, THREADS>(v + (stage ^ 1) * SIZE,
                                                      vf + next * a.kv_stride, a.kv_stride,
                                                      p.keys - next, a.dim, a.vec);
                cp_async_commit();
            }
            if (!attn_meet(a, pos + mine, pos + mine_last, j, j + BN - 1))
                continue;
            attn_rows_by_rows<false, D, BM>(s, q, row, kt);
            attn_rows_by_rows<false, D, BM>(dp, dout, row, vt);
            if (j + BN > none_before || j < all_after)
                bwd_mask(a, s, pos + row + lane / 4 - j - lane % 4 * 2, 1, INT_MAX,
                         p.keys - j - lane % 4 * 2);
            if (attn_has_table(MODE) && a.table &&
                attn_terms_differ(a, j - pos - row - 16 * MR + 1, j - pos - row + BN - 1))
                backs<MODE, true>(a, s, dp, lse, delta, pos + row + lane / 4, j, slope, 0.0f, line,
                                  of, pos + row + lane / 4);
            else
                backs<MODE, false>(a, s, dp, lse, delta, pos + row + lane / 4, j, slope,
                                   attn_has_table(MODE) && a.table
                                       ? line[j > pos + row ? 2 * a.span : 0] : 0.0f,
                                   line, of, pos + row + lane / 4);
            if (attn_has_table(MODE) && a.dline)
                bias_grad_add(a, w, dp, pos + row, j);
            attn_as_factor<T>(f, dp);
            attn_times_rows<false, D>(dq, f, kt, 0);
        }
#pragma unroll
        for (int m = 0; m < MR; m++)
            attn_store_rows((T *)a.dq + i0 * a.row_stride + h * a.dq_head, a.row_stride,
                            row + 16 * m, p.len - pos, a.dim, a.pairs, dq[m], a.scale, a.scale);
    }
    if (attn_has_table(MODE) && a.dline) {
        __syncthreads();
        bias_grad_end<S::WARPS>(a, w, lines, spare,
                                a.dline +
                                    ((int64_t)group * a.n_head + h) * attn_sums_floats(a));
    }
}

/* Rows are keys, columns queries: lse and delta by column. */
template <int MODE, bool DIFFER, int MR, int NT>
__device__ __forceinline__ void backs_t(const struct attn &a, float (&s)[MR][NT][4],
                                        float (&dp)[MR][NT][4], const float *lse,
                                        const float *delta, int j, int i0, float slope,
                                        float beyond, const float *line, uint64_t of, int drop_row)
{
    int col = (int)threadIdx.x % 4 * 2;
    float base = (float)(j - i0 - col);
    uint64_t bits = 0;

    line += a.span + j - i0 - col;
    if (MODE == ATTN_ANY && a.drop.on)
        bits = dropout_tile_t<MR, NT>(a, of, drop_row + col, j);
#pragma unroll
    for (int n = 0; n < NT; n++) {
        float2 l = *(const float2 *)(lse + 8 * n + col), d = *(const float2 *)(delta + 8 * n + col);

#pragma unroll
        for (int m = 0; m < MR; m++) {
#pragma unroll
            for (int e = 0; e < 4; e++) {
                const int step = 16 * m + e / 2 * 8 - 8 * n - e % 2;
                float rel = base + (float)step, keep = 1, term = DIFFER ? line[step] : 0.0f;
                float less = e % 2 ? l.y : l.x;

                less =
                    attn_has_table(MODE) && !DIFFER ? fmaf(less, LOG2E, -beyond) : less * LOG2E;
                if (MODE == ATTN_ANY && a.drop.on)
                    keep = bits >> (4 * (m * NT + n) + e) & 1 ? a.drop.scale : 0.0f;
                p_ds<MODE, DIFFER>(a, s[m][n][e], dp[m][n][e], less, e % 2 ? d.y : d.x, slope,
                                   rel, term, keep);
            }
        }
    }
}

/* A stage of the kernel below: queries, their gradients of out and statistics. */
template <int D, int BN, int THREADS, typename T>
__device__ __forceinline__ void load_queries(const struct attn &a, T *q, T *dout, float *lse,
                                             float *delta, const struct place &p, int h, int i)
{
    int64_t at = p.first + i, out_ld = (int64_t)a.n_head * a.dim;
    int x = (int)threadIdx.x;

    attn_load_tile<false, D, BN, THREADS>(q, (const T *)a.q + at * a.row_stride + h * a.q_head,
                                 a.row_stride, p.len - i, a.dim, a.vec);
    attn_load_tile<false, D, BN, THREADS>(dout, (const T *)a.dout + at * out_ld + h * a.dim,
                                          out_ld, p.len - i, a.dim, a.vec);
    if (x < BN) {
        bool there = i + x < p.len;

        cp_async_4(lse + x, a.lse + (there ? h * a.n + at + x : 0), there);
        cp_async_4(delta + x, a.delta + (there ? h * a.n + at + x : 0), there);
    }
    cp_async_commit();
}

template <typename T, int D, int MODE>
__device__ __forceinline__ void keys_tile(const struct attn &a, unsigned char *pool)
{
    using S = dkv_shape<D>;
    const int BM = S::BM, BN = S::BN, MR = S::MR, NT = BN / 8, OT = S::COLS / 8;
    const int SIZE = attn_tile_size<D, false>(BN), SIZE_K = attn_tile_size<D, false>(BM);
    const int THREADS = S::WARPS * 32, PARTS = D / S::COLS;
    T *k = (T *)pool, *v = k + SIZE_K, *q = v + SIZE_K, *dout = q + 2 * SIZE;
    float *lse = (float *)(dout + 2 * SIZE), *delta = lse + 2 * BN, *line = delta + 2 * BN;
    int part = (int)blockIdx.x % PARTS, at = (int)(blockIdx.x / PARTS);
    int g = at % a.n_kv, slot = at / a.n_kv, lane = (int)threadIdx.x % 32, stage = 0;
    int row = cuda_uniform((int)threadIdx.x / 32) * MR * 16;
    int mine_last, mine = attn_together<false, MR>(row, &mine_last);
    struct place p;
    float dk[MR][OT][4], dv[MR][OT][4];

    if (!attn_key_tile(a, &p, BM, slot, g))
        return;
    int j = p.begin, last = (p.keys < j + BM ? p.keys : j + BM) - 1;
    int from = a.whole ? 0 : j / BN * BN, to = p.len;
    uint32_t sample = MODE == ATTN_ANY ? dropout_sample(a, p) : 0;

    if (!a.whole && a.window > 0 && last + a.window < to)
        to = last + a.window;
    attn_load_tile<false, D, BM, THREADS>(k, (const T *)a.k + p.key_at + j * a.kv_stride,
                                          a.kv_stride, p.keys - j, a.dim, a.vec);
    attn_load_tile<false, D, BM, THREADS>(v, (const T *)a.v + p.key_at + j * a.kv_stride,
                                          a.kv_stride, p.keys - j, a.dim, a.vec);
    attn_clear(dk);
    attn_clear(dv);
    for (int h = g * a.share; from < to && h < (g + 1) * a.share; h++) {
        float slope = attn_head_slope(a, h);
        uint64_t of = dropout_of(a, sample, h);

        __syncthreads();                /* reads of the last head are done */
        load_queries<D, BN, THREADS>(a, q + stage * SIZE, dout + stage * SIZE,
                                         lse + stage * BN, delta + stage * BN, p, h, from);
        if (attn_has_table(MODE))
            attn_bias_line<T>(a, line, h);
        for (int i = from; i < to; i += BN, stage ^= 1) {
            float s[MR][NT][4], dp[MR][NT][4];
            uint32_t f[MR][NT / 2][4], df[MR][NT / 2][4];
            const T *qt = q + stage * SIZE, *dt = dout + stage * SIZE;
            int next = stage ^ 1, end = i + BN;
            bool edge = end > p.len || j + BM > p.keys ||
                        (!a.whole && (last > i || (a.window > 0 && end - 1 - a.window >= j)));

            attn_tiles_ready<false>();
            if (end < to)
                load_queries<D, BN, THREADS>(a, q + next * SIZE, dout + next * SIZE,
                                                 lse + next * BN, delta + next * BN, p, h, end);
            if (!attn_meet(a, i, end - 1, j + mine, j + mine_last))
                continue;
            attn_rows_by_rows<false, D, BM>(s, k, row, qt);
            attn_rows_by_rows<false, D, BM>(dp, v, row, dt);
            if (edge)
                bwd_mask(a, s, i + lane % 4 * 2 - j - row - lane / 4, -1,
                         p.keys - j - row - lane / 4, p.len - i - lane % 4 * 2);
            if (attn_has_table(MODE) && a.table &&
                attn_terms_differ(a, j + row - i - BN + 1, j + row - i + 16 * MR - 1))
                backs_t<MODE, true>(a, s, dp, lse + stage * BN, delta + stage * BN,
                                    j + row + lane / 4, i, slope, 0.0f, line,
                                    of, i);
            else
                backs_t<MODE, false>(a, s, dp, lse + stage * BN, delta + stage * BN,
                                     j + row + lane / 4, i, slope,
                                     attn_has_table(MODE) && a.table
                                         ? line[j + row > i ? 2 * a.span : 0] : 0.0f,
                                     line, of, i);
            attn_as_factor<T>(f, s);
            attn_as_factor<T>(df, dp);
            attn_times_rows<false, D>(dv, f, dt, part * S::COLS);
            attn_times_rows<false, D>(dk, df, qt, part * S::COLS);
        }
    }
    cp_async_wait<0>();
#pragma unroll
    for (int m = 0; m < MR; m++) {
        int64_t to_at = (p.key_first + j) * a.kv_stride + g * a.dkv_head + part * S::COLS;

        attn_store_rows((T *)a.dk + to_at, a.kv_stride, row + 16 * m, p.keys - j,
                        a.dim - part * S::COLS, a.pairs, dk[m], a.scale, a.scale);
        attn_store_rows((T *)a.dv + to_at, a.kv_stride, row + 16 * m, p.keys - j,
                        a.dim - part * S::COLS, a.pairs, dv[m], 1.0f, 1.0f);
    }
}

/* -- launches ---------------------------------------------------------------------------------- */

template <typename T, int D, int MODE>
__global__ void __launch_bounds__(dq_shape<D>::WARPS * 32)
    queries_back(const __grid_constant__ struct attn a)
{
    extern __shared__ __align__(1024) unsigned char pool[];

    if constexpr (attn_runs_here<D, false>())
        queries_tiles<T, D, MODE>(a, pool);
}

template <typename T, int D, int MODE>
__global__ void __launch_bounds__(dkv_shape<D>::WARPS * 32)
    keys_back(const __grid_constant__ struct attn a)
{
    extern __shared__ __align__(1024) unsigned char pool[];

    if constexpr (attn_runs_here<D, false>())
        keys_tile<T, D, MODE>(a, pool);
}

template <typename T, int D, int MODE>
static void launch_dq(struct device *dev, struct attn a)
{
    using S = dq_shape<D>;
    size_t floats = (size_t)attn_line_floats(a) + S::BM;
    size_t bytes = sizeof(T) * (size_t)attn_tile_size<D, false>(2 * S::BM + 4 * S::BN);
    int64_t slots = attn_slots(a.n, a.n_docs, S::BM), groups = slots;

    if (a.dline) {
        groups = a.groups;
        floats += S::WARPS * (size_t)bias_grad_floats(a);
    }
    bytes += sizeof(float) * floats;
    a.slots = (int)slots;
    if (slots == 0 ||
        !cuda_ok(dev, "attention_bwd", cuda_allow_shared(queries_back<T, D, MODE>, bytes)))
        return;
    queries_back<T, D, MODE><<<(unsigned)(groups * a.n_head), S::WARPS * 32, bytes,
                                   cuda_of(dev)->stream>>>(a);
    cuda_launched(dev, "attention_bwd");
}

template <typename T, int D, int MODE>
static void launch_dkv(struct device *dev, struct attn a)
{
    using S = dkv_shape<D>;
    size_t bytes = sizeof(T) * (size_t)attn_tile_size<D, false>(2 * S::BM + 4 * S::BN) +
                   sizeof(float) * (size_t)(4 * S::BN + attn_line_floats(a));
    int64_t blocks = attn_key_slots(a, S::BM) * a.n_kv * (D / S::COLS);

    if (blocks == 0 ||
        !cuda_ok(dev, "attention_bwd", cuda_allow_shared(keys_back<T, D, MODE>, bytes)))
        return;
    keys_back<T, D, MODE><<<(unsigned)blocks, S::WARPS * 32, bytes,
                                cuda_of(dev)->stream>>>(a);
    cuda_launched(dev, "attention_bwd");
}

template <typename T, int D, int MODE>
static void launch(struct device *dev, const struct attn &a)
{
    launch_dq<T, D, MODE>(dev, a);
    launch_dkv<T, D, MODE>(dev, a);
}

/* Plain heads are treated as heads with slopes of zero: one more multiply-add per element. */
template <typename T> void attn_bwd(struct device *dev, const struct attn &a)
{
    if (a.wide && a.dim <= 128) {
        attn_bwd_two_pass<T>(dev, a);
    } else if (a.table || a.drop.on || a.dim > 128) {
        if (a.dim <= 64)
            launch<T, 64, ATTN_ANY>(dev, a);
        else if (a.dim <= 128)
            launch<T, 128, ATTN_ANY>(dev, a);
        else
            launch<T, 256, ATTN_ANY>(dev, a);
    } else if (a.dim <= 64) {
        launch<T, 64, ATTN_SLOPES>(dev, a);
    } else if (a.dim <= 80) {
        launch<T, 80, ATTN_SLOPES>(dev, a);
    } else if (a.dim <= 96) {
        launch<T, 96, ATTN_SLOPES>(dev, a);
    } else {
        launch<T, 128, ATTN_SLOPES>(dev, a);
    }
}

template void attn_bwd<__nv_bfloat16>(struct device *, const struct attn &);
template void attn_bwd<__half>(struct device *, const struct attn &);

/*
 * attention/f32 - attention over packed documents in f32, forward and backward.
 *
 * Walks over tiles as fwd.cu and bwd.cu do, without tensor cores: of 256 threads as 16 x 16,
 * each computes R x R scores of a tile of 16 R x 16 R, and R rows by every 16th column of the
 * sums.  Rows of a tile in shared memory are an odd number of floats apart.
 */
#include "trainer/cuda/attention/dropout.cuh"

enum { THREADS = 256, ROW = 16 };       /* threads of a block, of a row */

/* The thread's column and row among 16 x 16. */
__device__ __forceinline__ int across() { return (int)threadIdx.x % 16; }
__device__ __forceinline__ int down() { return (int)threadIdx.x / 16; }

static inline __host__ __device__ int tile_ld(int dim) { return dim | 1; }

/* Load rows [0, rows) of a matrix [.., dim] into a tile, zeros below. */
template <int TILE>
__device__ __forceinline__ void fill(float *tile, const float *from, int64_t stride, int rows,
                                     int dim)
{
    for (int c = (int)threadIdx.x; c < TILE * dim; c += THREADS) {
        int r = c / dim, col = c % dim;

        tile[r * tile_ld(dim) + col] = r < rows ? from[r * stride + col] : 0.0f;
    }
}

/* s[R, R] = rows of a . rows of b */
template <int R>
__device__ __forceinline__ void dots(float (&s)[R][R], const float *a, const float *b, int dim)
{
    int ld = tile_ld(dim);

    for (int x = 0; x < R; x++)
        for (int y = 0; y < R; y++)
            s[x][y] = 0;
    a += down() * ld;
    b += across() * ld;
    for (int c = 0; c < dim; c++) {
        float fb[R];

#pragma unroll
        for (int y = 0; y < R; y++)
            fb[y] = b[16 * y * ld + c];
#pragma unroll
        for (int x = 0; x < R; x++) {
            float fa = a[16 * x * ld + c];

#pragma unroll
            for (int y = 0; y < R; y++)
                s[x][y] = fmaf(fa, fb[y], s[x][y]);
        }
    }
}

/* acc[R, DB] += p[rows, TILE] b[TILE, columns]; p has 16 R + 1 floats from row to row. */
template <int R, int DB>
__device__ __forceinline__ void times(float (&acc)[R][DB], const float *p, const float *b, int dim)
{
    const int ld_p = 16 * R + 1;
    int ld = tile_ld(dim);

    p += down() * ld_p;
    b += across();
    for (int j = 0; j < 16 * R; j++)
#pragma unroll
        for (int y = 0; y < DB; y++) {
            if (16 * y < dim) {
                float fb = b[j * ld + 16 * y];

#pragma unroll
                for (int x = 0; x < R; x++)
                    acc[x][y] = fmaf(p[16 * x * ld_p + j], fb, acc[x][y]);
            }
        }
}

template <int R, int DB> __device__ __forceinline__ void nothing(float (&acc)[R][DB])
{
#pragma unroll
    for (int x = 0; x < R; x++)
#pragma unroll
        for (int y = 0; y < DB; y++)
            acc[x][y] = 0;
}

template <int R, int DB>
__device__ __forceinline__ void put(float *to, int64_t stride, int rows, int dim,
                                    const float (&acc)[R][DB], float by)
{
#pragma unroll
    for (int x = 0; x < R; x++)
#pragma unroll
        for (int y = 0; y < DB; y++) {
            int r = down() + 16 * x, c = across() + 16 * y;

            if (r < rows && c < dim)
                to[r * stride + c] = acc[x][y] * by;
        }
}

/* The score of a query at that position and a key, in base 2; -inf where it is masked. */
__device__ __forceinline__ float score(const struct attn &a, float s, int pos, int j, int keys,
                                       float slope, const float *line)
{
    float x = fmaf(slope, (float)(j - pos), s * a.scale2);

    if (a.table)
        x += attn_bias_term(a, line, j - pos);
    return j >= attn_sees_from(a, pos) && j < attn_sees_to(a, pos, keys) ? x : -INFINITY;
}

/* The dropout factor of an element of P. */
__device__ __forceinline__ float kept(const struct attn &a, uint64_t of, int row, int j)
{
    if (!a.drop.on)
        return 1.0f;
    return dropout_bits(a, of, row, j / 4) >> (j % 4) & 1 ? a.drop.scale : 0.0f;
}

template <int R, int DB> __global__ void __launch_bounds__(THREADS)
    forward_f32(const __grid_constant__ struct attn a)
{
    const int TILE = 16 * R;
    extern __shared__ float pool[];
    int size = TILE * tile_ld(a.dim), h = (int)(blockIdx.x % (unsigned)a.n_head);
    int slot = a.slots - 1 - (int)(blockIdx.x / (unsigned)a.n_head);
    float *q = pool, *k = q + size, *v = k + size, *s = v + size, *line = s + TILE * (TILE + 1);
    float out[R][DB], max[R], sum[R], slope = attn_head_slope(a, h);
    struct place p;

    if (!attn_query_tile(a, &p, TILE, slot, h / a.share))
        return;
    int64_t i0 = p.first + p.begin, ld_out = (int64_t)a.n_head * a.dim;
    int pos = p.shift + p.begin;
    int last = p.len - p.begin < TILE ? p.shift + p.len - 1 : pos + TILE - 1;
    int end = attn_sees_to(a, last, p.keys);
    uint64_t of = dropout_of(a, dropout_sample(a, p), h);

    fill<TILE>(q, (const float *)a.q + i0 * a.row_stride + h * a.q_head, a.row_stride,
               p.len - p.begin, a.dim);
    attn_bias_line<float>(a, line, h);
    nothing(out);
    for (int x = 0; x < R; x++) {
        max[x] = -INFINITY;
        sum[x] = 0;
    }
    for (int j = attn_sees_from(a, pos) / TILE * TILE; j < end; j += TILE) {
        int64_t at = p.key_at + j * a.kv_stride;
        float w[R][R];

        __syncthreads();
        fill<TILE>(k, (const float *)a.k + at, a.kv_stride, p.keys - j, a.dim);
        fill<TILE>(v, (const float *)a.v + at, a.kv_stride, p.keys - j, a.dim);
        __syncthreads();
        dots<R>(w, q, k, a.dim);
#pragma unroll
        for (int x = 0; x < R; x++) {
            int r = down() + 16 * x;
            float most = max[x], part = 0, low, fix;

            for (int y = 0; y < R; y++) {
                w[x][y] = score(a, w[x][y], pos + r, j + across() + 16 * y, p.keys, slope, line);
                most = fmaxf(most, w[x][y]);
            }
            most = cuda_warp_max<ROW>(most);
            low = most == -INFINITY ? 0.0f : most;
            fix = exp2f(max[x] - low);
            max[x] = most;
            for (int y = 0; y < R; y++) {
                float e = exp2f(w[x][y] - low);

                part += e;
                s[r * (TILE + 1) + across() + 16 * y] =
                    e * kept(a, of, p.begin + r, j + across() + 16 * y);
            }
            sum[x] = sum[x] * fix + part;
            for (int y = 0; y < DB; y++)
                out[x][y] *= fix;
        }
        __syncthreads();
        times<R, DB>(out, s, v, a.dim);
    }
#pragma unroll
    for (int x = 0; x < R; x++) {
        int r = down() + 16 * x;
        float all = cuda_warp_sum<ROW>(sum[x]);

        for (int y = 0; y < DB; y++)
            out[x][y] /= all;
        if (a.lse && across() == 0 && p.begin + r < p.len)
            a.lse[h * a.n + i0 + r] = max[x] * LN2 + logf(all);
    }
    put((float *)a.out + i0 * ld_out + h * a.dim, ld_out, p.len - p.begin, a.dim, out, 1.0f);
}

/* D[h, i] = dout[i, h] . out[i, h]: eight lanes a row and head. */
__global__ void deltas_f32(const __grid_constant__ struct attn a)
{
    int64_t at = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) / 8, all = a.n * a.n_head;
    const float *x = (const float *)a.out + at * a.dim, *y = (const float *)a.dout + at * a.dim;
    float sum = 0;

    for (int c = (int)threadIdx.x % 8; at < all && c < a.dim; c += 8)
        sum += x[c] * y[c];
    sum = cuda_warp_sum<8>(sum);
    if (at < all && threadIdx.x % 8 == 0)
        a.delta[at % a.n_head * a.n + at / a.n_head] = sum;
}

/* P (after dropout) into s, dS into ds, of R x R elements; rows are queries, or keys. */
template <int R>
__device__ __forceinline__ void backs(const struct attn &a, const float (&w)[R][R],
                                      const float (&dp)[R][R], float *s, float *ds,
                                      const struct place &p, int i0, int j0, int h, float slope,
                                      const float *line, bool keys_down)
{
    const int ld = 16 * R + 1;
    uint64_t of = dropout_of(a, dropout_sample(a, p), h);

    for (int x = 0; x < R; x++)
        for (int y = 0; y < R; y++) {
            int r = down() + 16 * x, c = across() + 16 * y;
            int i = i0 + (keys_down ? c : r), j = j0 + (keys_down ? r : c);
            float e = 0, d = 0;

            if (i < p.len && j < p.keys) {
                int64_t at = h * a.n + p.first + i;
                float keep = kept(a, of, i, j);

                e = exp2f(score(a, w[x][y], i, j, p.keys, slope, line) - a.lse[at] * LOG2E);
                d = e * (dp[x][y] * keep - a.delta[at]);
                e *= keep;
            }
            if (s)
                s[r * ld + c] = e;
            ds[r * ld + c] = d;
        }
}

template <int R, int DB> __global__ void __launch_bounds__(THREADS)
    queries_back_f32(const __grid_constant__ struct attn a)
{
    const int TILE = 16 * R;
    extern __shared__ float pool[];
    int size = TILE * tile_ld(a.dim), h = (int)(blockIdx.x % (unsigned)a.n_head);
    int groups = (int)(gridDim.x / (unsigned)a.n_head), group = (int)blockIdx.x / a.n_head;
    float *q = pool, *dout = q + size, *k = dout + size, *v = k + size, *ds = v + size;
    float *line = ds + TILE * (TILE + 1), *sums = line + attn_line_floats(a);
    float slope = attn_head_slope(a, h), low = 0, high = 0;

    attn_bias_line<float>(a, line, h);
    for (int x = (int)threadIdx.x; a.dline && x < attn_sums_floats(a); x += THREADS)
        sums[x] = 0;
    for (int slot = a.slots - 1 - group; slot >= 0; slot -= groups) {
        float dq[R][DB];
        struct place p;

        if (!attn_query_tile(a, &p, TILE, slot, h / a.share))
            continue;
        int64_t i0 = p.first + p.begin, ld_out = (int64_t)a.n_head * a.dim;
        int last = (p.len < p.begin + TILE ? p.len : p.begin + TILE) - 1;
        int end = attn_sees_to(a, last, p.keys);

        __syncthreads();
        fill<TILE>(q, (const float *)a.q + i0 * a.row_stride + h * a.q_head, a.row_stride,
                   p.len - p.begin, a.dim);
        fill<TILE>(dout, (const float *)a.dout + i0 * ld_out + h * a.dim, ld_out,
                   p.len - p.begin, a.dim);
        nothing(dq);
        for (int j = attn_sees_from(a, p.begin) / TILE * TILE; j < end; j += TILE) {
            int64_t at = p.key_at + j * a.kv_stride;
            float w[R][R], dp[R][R];

            __syncthreads();
            fill<TILE>(k, (const float *)a.k + at, a.kv_stride, p.keys - j, a.dim);
            fill<TILE>(v, (const float *)a.v + at, a.kv_stride, p.keys - j, a.dim);
            __syncthreads();
            dots<R>(w, q, k, a.dim);
            dots<R>(dp, dout, v, a.dim);
            backs<R>(a, w, dp, NULL, ds, p, p.begin, j, h, slope, line, false);
            __syncthreads();
            times<R, DB>(dq, ds, k, a.dim);
            if (a.dline && threadIdx.x < 2 * TILE - 1) {
                int d = (int)threadIdx.x - (TILE - 1), rel = j - p.begin + d;
                float sum = 0;

                for (int r = d < 0 ? -d : 0; r < TILE && r + d < TILE; r++)
                    sum += ds[r * (TILE + 1) + r + d];
                if (rel > -a.far && rel < a.far)
                    sums[a.far + rel] += sum;
                else
                    *(rel >= a.far ? &high : &low) += sum;
            }
        }
        put((float *)a.dq + i0 * a.row_stride + h * a.dq_head, a.row_stride, p.len - p.begin,
            a.dim, dq, a.scale);
    }
    if (a.dline) {
        float lows = cuda_block_sum(low), highs = cuda_block_sum(high);

        for (int x = (int)threadIdx.x; x < attn_sums_floats(a); x += THREADS)
            a.dline[((int64_t)group * a.n_head + h) * attn_sums_floats(a) + x] =
                sums[x] + (x == 0 ? lows : 0.0f) + (x == 2 * a.far ? highs : 0.0f);
    }
}

template <int R, int DB> __global__ void __launch_bounds__(THREADS)
    keys_back_f32(const __grid_constant__ struct attn a)
{
    const int TILE = 16 * R;
    extern __shared__ float pool[];
    int size = TILE * tile_ld(a.dim), g = (int)(blockIdx.x % (unsigned)a.n_kv);
    float *k = pool, *v = k + size, *q = v + size, *dout = q + size, *s = dout + size;
    float *ds = s + TILE * (TILE + 1), *line = ds + TILE * (TILE + 1), dk[R][DB], dv[R][DB];
    struct place p;

    if (!attn_key_tile(a, &p, TILE, (int)(blockIdx.x / (unsigned)a.n_kv), g))
        return;
    int64_t at = p.key_at + p.begin * a.kv_stride, ld_out = (int64_t)a.n_head * a.dim;
    int64_t to_at = (p.key_first + p.begin) * a.kv_stride + g * a.dkv_head;
    int last = (p.keys < p.begin + TILE ? p.keys : p.begin + TILE) - 1, to = p.len;

    if (!a.whole && a.window > 0 && last + a.window < to)
        to = last + a.window;
    fill<TILE>(k, (const float *)a.k + at, a.kv_stride, p.keys - p.begin, a.dim);
    fill<TILE>(v, (const float *)a.v + at, a.kv_stride, p.keys - p.begin, a.dim);
    nothing(dk);
    nothing(dv);
    for (int h = g * a.share; h < (g + 1) * a.share; h++) {
        float slope = attn_head_slope(a, h);

        __syncthreads();
        attn_bias_line<float>(a, line, h);
        for (int i = a.whole ? 0 : p.begin; i < to; i += TILE) {
            int64_t row = p.first + i;
            float w[R][R], dp[R][R];

            __syncthreads();
            fill<TILE>(q, (const float *)a.q + row * a.row_stride + h * a.q_head, a.row_stride,
                       p.len - i, a.dim);
            fill<TILE>(dout, (const float *)a.dout + row * ld_out + h * a.dim, ld_out, p.len - i,
                       a.dim);
            __syncthreads();
            dots<R>(w, k, q, a.dim);
            dots<R>(dp, v, dout, a.dim);
            backs<R>(a, w, dp, s, ds, p, i, p.begin, h, slope, line, true);
            __syncthreads();
            times<R, DB>(dv, s, dout, a.dim);
            times<R, DB>(dk, ds, q, a.dim);
        }
    }
    put((float *)a.dk + to_at, a.kv_stride, p.keys - p.begin, a.dim, dk, a.scale);
    put((float *)a.dv + to_at, a.kv_stride, p.keys - p.begin, a.dim, dv, 1.0f);
}

template <int R, int DB>
static void launch_fwd(struct device *dev, const char *op, struct attn a)
{
    const int TILE = 16 * R;
    size_t bytes = sizeof(float) * (size_t)(3 * TILE * tile_ld(a.dim) + TILE * (TILE + 1) +
                                            attn_line_floats(a));
    int64_t slots = attn_slots(a.n, a.n_docs, TILE);

    a.slots = (int)slots;
    if (!cuda_ok(dev, op, cuda_allow_shared(forward_f32<R, DB>, bytes)))
        return;
    forward_f32<R, DB><<<(unsigned)(slots * a.n_head), THREADS, bytes, cuda_of(dev)->stream>>>(a);
    cuda_launched(dev, op);
}

template <int R, int DB> static void launch_bwd(struct device *dev, struct attn a)
{
    const int TILE = 16 * R;
    size_t tile = (size_t)TILE * (TILE + 1), four = 4 * (size_t)(TILE * tile_ld(a.dim));
    size_t line = (size_t)attn_line_floats(a), sums = (size_t)attn_sums_floats(a);
    size_t bytes_q = sizeof(float) * (four + tile + line + sums);
    size_t bytes_k = sizeof(float) * (four + 2 * tile + line);
    int64_t slots = attn_slots(a.n, a.n_docs, TILE), keys = attn_key_slots(a, TILE) * a.n_kv;
    int64_t groups = a.dline ? (int64_t)a.groups : slots;
    cudaStream_t stream = cuda_of(dev)->stream;

    a.slots = (int)slots;
    if (a.n > 0)
        deltas_f32<<<(unsigned)cuda_blocks(a.n * a.n_head * 8, THREADS), THREADS, 0, stream>>>(a);
    if (!cuda_ok(dev, "attention_bwd", cuda_allow_shared(queries_back_f32<R, DB>, bytes_q)) ||
        !cuda_ok(dev, "attention_bwd", cuda_allow_shared(keys_back_f32<R, DB>, bytes_k)))
        return;
    queries_back_f32<R, DB><<<(unsigned)(groups * a.n_head), THREADS, bytes_q, stream>>>(a);
    if (cuda_launched(dev, "attention_bwd") && keys > 0) {
        keys_back_f32<R, DB><<<(unsigned)keys, THREADS, bytes_k, stream>>>(a);
        cuda_launched(dev, "attention_bwd");
    }
}

template <> void attn_fwd<float>(struct device *dev, const char *op, const struct attn &a)
{
    if (a.dim <= 64)
        launch_fwd<4, 4>(dev, op, a);
    else if (a.dim <= 128)
        launch_fwd<4, 8>(dev, op, a);
    else
        launch_fwd<2, 16>(dev, op, a);
}

template <> void attn_bwd<float>(struct device *dev, const struct attn &a)
{
    if (a.dim <= 64)
        launch_bwd<4, 4>(dev, a);
    else if (a.dim <= 128)
        launch_bwd<4, 8>(dev, a);
    else
        launch_bwd<2, 16>(dev, a);
}

/*
 * matmul/tiles - dense 16-bit products on Hopper by tiles.cuh, with their epilogues:
 *   D = epilogue(alpha (A op(B) + parts') + bias + beta C)
 *
 * A warp applies the epilogue and stores its sums while the other warpgroup goes on
 * multiplying.  Matrices that the epilogue reads and writes pass through the warp's part of
 * shared memory, in rows of 256 bytes.
 */
#include "trainer/cuda/act.h"
#include "trainer/cuda/matmul/call.h"
#include "trainer/cuda/hopper/tiles.cuh"

namespace {

enum { LEAST = 1024, NARROW = 128 };    /* rows; columns: below, cuBLASLt's smaller tiles win */

struct args {
    void       *d, *aux;
    const void *c, *bias;
    int64_t     ldd, ldc;
    int         m, n, band;
    float       alpha, beta;
};

/* f(sums[n] + 2 h, x) for each pair of a warp's fragments of 128 columns, x the elements of a
 * matrix with rows [0, rows) there; zeros beyond. */
template <typename T, typename F>
__device__ __forceinline__ void with_fragments(const T *from, int64_t stride, T *tile, int rows,
                                               int cols, float (*sums)[4], F f)
{
    int lane = (int)threadIdx.x % 32;

    asm volatile("" : "+r"(lane));
#pragma unroll
    for (int u = 0; u < TILE_HALF / 16; u++) {
        int r = (32 * u + lane) / (TILE_HALF / 8), c = (32 * u + lane) % (TILE_HALF / 8);
        uint4 x = make_uint4(0, 0, 0, 0);

        if (r < rows && 8 * c < cols)
            x = *(const uint4 *)(from + r * stride + 8 * c);
        *(uint4 *)(tile + wgmma_panel_at<TILE_HALF, 16>(r, c)) = x;
    }
    __syncwarp();
#pragma unroll
    for (int k = 0; k < TILE_HALF / 16; k++) {
        uint32_t x[4];

        wgmma_ldmatrix(x, tile + wgmma_panel_at<TILE_HALF, 16>(lane % 16, 2 * k + lane / 16));
#pragma unroll
        for (int i = 0; i < 4; i++)
            f(sums[2 * k + i / 2] + i % 2 * 2, *(const cuda_pack<T, 2> *)&x[i]);
    }
    __syncwarp();
}

template <typename T>
__device__ __forceinline__ void add_bias(float (&sums)[TILE_COLS / 8][4], const T *bias, int cols)
{
    int col = (int)threadIdx.x % 4 * 2;

#pragma unroll
    for (int n = 0; n < TILE_COLS / 8; n++)
        if (8 * n + col < cols) {
            cuda_pack<T, 2> x = *(const cuda_pack<T, 2> *)(bias + 8 * n + col);

#pragma unroll
            for (int e = 0; e < 4; e++)
                sums[n][e] += cuda_to_f32(x.at[e % 2]);
        }
}

/* Zero the fragments of 128 columns whose bit is not set; rows of bits are `stride` bytes
 * apart. */
[[maybe_unused]] __device__ __forceinline__ void clip(float (*sums)[4], const unsigned char *bits,
                                                      int64_t stride, int rows)
{
    int lane = (int)threadIdx.x % 32;

#pragma unroll
    for (int h = 0; h < 2; h++) {
        int r = lane / 4 + 8 * h;
        uint4 x = r < rows ? *(const uint4 *)(bits + r * stride) : make_uint4(0, 0, 0, 0);
        const uint32_t word[4] = {x.x, x.y, x.z, x.w};

#pragma unroll
        for (int n = 0; n < TILE_HALF / 8; n++)
#pragma unroll
            for (int e = 0; e < 2; e++)
                if (!(word[n / 4] >> (n % 4 * 8 + lane % 4 * 2 + e) & 1))
                    sums[n][2 * h + e] = 0;
    }
}

template <typename T, enum matmul_epilogue E>
__device__ __forceinline__ void put(const struct args &g, const struct tile &t, T *mine, int row,
                                    float (&all)[1][TILE_COLS / 8][4])
{
    int rows = t.rows - row, cols = g.n - t.col;
    int64_t first = t.row + row;

    if (g.alpha != 1.0f)
#pragma unroll
        for (int n = 0; n < TILE_COLS / 8; n++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                all[0][n][e] *= g.alpha;
    if (g.bias)
        add_bias<T>(all[0], (const T *)g.bias + t.col, cols);
#pragma unroll
    for (int h = 0; h < 2; h++) {
        float (*sums)[4] = all[0] + h * TILE_HALF / 8;
        int64_t col = t.col + h * TILE_HALF;
        int left = cols - h * TILE_HALF;

        if (E == MATMUL_PLAIN && g.c)
            with_fragments<T>((const T *)g.c + first * g.ldc + col, g.ldc, mine, rows, left, sums,
                              [&](float *s, const cuda_pack<T, 2> &x) {
                                  s[0] += g.beta * cuda_to_f32(x.at[0]);
                                  s[1] += g.beta * cuda_to_f32(x.at[1]);
                              });
        if (E == MATMUL_DGELU)
            with_fragments<T>((const T *)g.aux + first * g.n + col, g.n, mine, rows, left, sums,
                              [&](float *s, const cuda_pack<T, 2> &x) {
                                  float value;

                                  s[0] *=
                                      act_slope<OP_ACT_GELU_TANH>(cuda_to_f32(x.at[0]), &value);
                                  s[1] *=
                                      act_slope<OP_ACT_GELU_TANH>(cuda_to_f32(x.at[1]), &value);
                              });
        if (E == MATMUL_DRELU && left > 0)
            clip(sums, (const unsigned char *)g.aux + (first * g.n + col) / 8, g.n / 8, rows);
        if (E == MATMUL_GELU && g.aux) {
            wgmma_store_fragments<TILE_HALF, 16>((T *)g.aux + first * g.n + col, g.n, mine, 0,
                                                rows, left, sums, 1.0f);
            __syncwarp();
        }
#pragma unroll
        for (int n = 0; n < TILE_HALF / 8; n++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                if (E == MATMUL_GELU)
                    sums[n][e] = act_value<OP_ACT_GELU_TANH>(sums[n][e]);
                else if (E == MATMUL_RELU)
                    sums[n][e] = act_value<OP_ACT_RELU>(sums[n][e]);
        wgmma_store_fragments<TILE_HALF, 16>((T *)g.d + first * g.ldd + col, g.ldd, mine, 0,
                                            rows, left, sums, 1.0f);
        __syncwarp();
    }
}

[[maybe_unused]] __device__ __forceinline__ bool tile_of(const struct args &g, struct tile *t,
                                                         int at)
{
    int across = (g.n + TILE_COLS - 1) / TILE_COLS, both = TILE_PAIR * TILE_ROWS, pair;
    int pairs = (g.m + both - 1) / both;

    if (at >= pairs * across)
        return false;
    tiles_place(at, pairs, across, g.band, &pair, &t->col);
    t->row = (pair * TILE_PAIR + hopper_cluster_rank()) * TILE_ROWS;
    t->rows = min(g.m - t->row, (int)TILE_ROWS);
    t->col *= TILE_COLS;
    t->second = TILE_HALF;
    t->cols = g.n;
    t->matrix = 0;
    t->beside = false;
    return true;
}

template <typename T, bool BT, enum matmul_epilogue E>
__global__ void __launch_bounds__(TILE_BLOCK, 1)
    dense_kernel(const __grid_constant__ struct args g,
                 const __grid_constant__ struct tile_maps maps)
{
#if WGMMA_HERE
    tiles_all<T, BT>(
        maps, [&](struct tile *t, int at) { return tile_of(g, t, at); },
        [&](const struct tile &t, T *out, int row, float (&sums)[1][TILE_COLS / 8][4]) {
            put<T, E>(g, t, out, row, sums);
        });
#endif
}

template <typename T, bool BT, enum matmul_epilogue E>
void launch(struct device *dev, const struct matmul_args *a)
{
    const void *old = a->c ? a->c : a->d;
    struct args g = {a->d, a->aux, a->beta != 0 ? old : NULL, a->bias, a->ldd,
                     a->ldc ? a->ldc : a->ldd, (int)a->m, (int)a->n, tiles_band(a->k), a->alpha,
                     a->beta};
    struct tile_part p = {a->a, a->b, a->m, a->n, a->k, a->lda, a->ldb, 1, 0};
    int64_t pairs = cuda_blocks(a->m, TILE_PAIR * TILE_ROWS);
    struct tile_maps maps = {};
    bool fine = tiles_add(&maps, &p, BT);

    for (int i = 0; i < a->parts; i++) {
        p.a = a->part[i].a;
        p.b = a->part[i].b;
        p.k = a->part[i].k;
        p.lda = a->part[i].lda;
        p.ldb = a->part[i].ldb;
        fine = fine && tiles_add(&maps, &p, BT);
    }
    if (fine)
        tiles_launch<T>(dev, a->op, pairs * cuda_blocks(a->n, TILE_COLS), dense_kernel<T, BT, E>, g,
                        maps);
    else
        cuda_ok(dev, a->op, cudaErrorNotSupported);
}

template <typename T, bool BT> void launch_for(struct device *dev, const struct matmul_args *a)
{
    switch (a->epilogue) {
    case MATMUL_GELU: launch<T, BT, MATMUL_GELU>(dev, a); break;
    case MATMUL_DGELU: launch<T, BT, MATMUL_DGELU>(dev, a); break;
    case MATMUL_RELU: launch<T, BT, MATMUL_RELU>(dev, a); break;
    case MATMUL_DRELU: launch<T, BT, MATMUL_DRELU>(dev, a); break;
    default: launch<T, BT, MATMUL_PLAIN>(dev, a);
    }
}

bool rows_of_16(const void *p, int64_t ld) { return cuda_aligned(p, 16) && ld % 8 == 0; }

bool parts_supported(const struct matmul_args *a)
{
    bool can = a->parts < TILE_PARTS;

    for (int i = 0; can && i < a->parts; i++)
        can = rows_of_16(a->part[i].a, a->part[i].lda) && rows_of_16(a->part[i].b, a->part[i].ldb);
    return can;
}

} /* namespace */

bool matmul_tiles_supported(const struct device *dev, const struct matmul_args *a)
{
    bool plain = a->epilogue == MATMUL_PLAIN || a->epilogue == MATMUL_BIAS;
    bool known = a->epilogue != MATMUL_RELU || !a->aux;

    return (a->in == CKPT_BF16 || a->in == CKPT_F16) && a->out == a->in && known && !a->a_t &&
           a->batch <= 1 && (plain || a->beta == 0) && a->m >= LEAST && a->n >= NARROW &&
           a->m <= INT32_MAX && a->n <= INT32_MAX && a->k <= INT32_MAX && a->n % 8 == 0 &&
           a->k % 8 == 0 && rows_of_16(a->a, a->lda) && rows_of_16(a->b, a->ldb) &&
           rows_of_16(a->c, a->ldc) && rows_of_16(a->d, a->ldd) && rows_of_16(a->aux, 0) &&
           parts_supported(a) && cuda_aligned(a->bias, 4) &&
           tiles_supported((const struct cuda_device *)dev) &&
           cuda_blocks(a->m, TILE_ROWS) * cuda_blocks(a->n, TILE_COLS) <= INT32_MAX;
}

void matmul_tiles(struct device *dev, const struct matmul_args *a)
{
    if (dev->err.code)
        return;
    if (a->in == CKPT_BF16)
        a->b_t ? launch_for<__nv_bfloat16, true>(dev, a)
               : launch_for<__nv_bfloat16, false>(dev, a);
    else
        a->b_t ? launch_for<__half, true>(dev, a) : launch_for<__half, false>(dev, a);
}

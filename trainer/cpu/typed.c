/* typed - see typed.h. */
#include "trainer/cpu/typed.h"

#include <immintrin.h>
#include <string.h>
#include <sys/platform/x86.h>

#include "libckpt/convert.h"
#include "trainer/cpu/gemm.h"
#include "trainer/cpu/row_product.h"

#define PANEL  TYPED_PANEL
#define VECTOR ((int64_t)1 << 18)       /* floats of a place for a vector */
#define FEW    4                        /* up to this many rows, 16-bit numbers are used without
                                           widening */

uint64_t typed_reserve(const struct device *dev)
{
    if (dev->weight == CKPT_F32)
        return 0;
    return (uint64_t)(TYPED_VECTORS * VECTOR + dev->threads * PANEL) * sizeof(float) + 64;
}

/* The places for vectors, followed by the panels. */
static float *reserve(const struct device *dev)
{
    uint64_t at = (dev->work_bytes - typed_reserve(dev) + 63) & ~(uint64_t)63;

    return (float *)(void *)((unsigned char *)dev->work + at);
}

float *typed_panel(const struct device *dev)
{
    return reserve(dev) + TYPED_VECTORS * VECTOR + omp_get_thread_num() * PANEL;
}

void typed_wide(const struct device *dev, float *dst, const void *w, int64_t n)
{
    ckpt_convert(dst, CKPT_F32, w, dev->weight, (size_t)n);
}

const float *typed_vector(struct device *dev, int place, const void *w, int64_t n)
{
    float *to;

    if (!w || dev->weight == CKPT_F32 || dev->err.code)
        return w;
    if (n > VECTOR) {
        ckpt_fail(&dev->err, CKPT_ELIMIT, "a vector of %lld 16-bit weights: at most %lld",
                  (long long)n, (long long)VECTOR);
        n = VECTOR;
    }
    to = reserve(dev) + place * VECTOR;
    typed_wide(dev, to, w, n);
    return to;
}

#define X86_HALF __attribute__((target("avx2,fma,f16c")))

/* Eight weights as f32. */
X86_HALF static inline __m256 wide8(const uint16_t *w, bool bf16)
{
    __m128i h = _mm_loadu_si128((const __m128i *)(const void *)w);

    return bf16 ? _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16))
                : _mm256_cvtph_ps(h);
}

X86_HALF static inline float sum8(__m256 v)
{
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));

    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}

/* The last k mod 8 weights of a row, padded with zeros. */
X86_HALF static inline __m256 wide_tail(const uint16_t *w, int64_t n, bool bf16)
{
    uint16_t part[8] = {0};

    memcpy(part, w, (size_t)n * sizeof *w);
    return wide8(part, bf16);
}

X86_HALF static inline __m256 tail(const float *x, int64_t n)
{
    float part[8] = {0};

    memcpy(part, x, (size_t)n * sizeof *x);
    return _mm256_loadu_ps(part);
}

/* One row of W times m <= FEW rows of x: four sums per row, so that additions need not wait for
 * each other. */
X86_HALF static inline void dots(float out[FEW], const float *x, int64_t x_ld, const uint16_t *w,
                                 int64_t m, int64_t k, bool bf16)
{
    for (int64_t i = 0; i < m; i++) {
        const float *r = x + i * x_ld;
        __m256 s[4] = {_mm256_setzero_ps(), _mm256_setzero_ps(), _mm256_setzero_ps(),
                       _mm256_setzero_ps()};
        int64_t j = 0;

        for (; j + 32 <= k; j += 32)
            for (int q = 0; q < 4; q++)
                s[q] = _mm256_fmadd_ps(_mm256_loadu_ps(r + j + 8 * q),
                                       wide8(w + j + 8 * q, bf16), s[q]);
        for (; j + 8 <= k; j += 8)
            s[0] = _mm256_fmadd_ps(_mm256_loadu_ps(r + j), wide8(w + j, bf16), s[0]);
        if (j < k)
            s[1] = _mm256_fmadd_ps(tail(r + j, k - j), wide_tail(w + j, k - j, bf16), s[1]);
        out[i] = sum8(_mm256_add_ps(_mm256_add_ps(s[0], s[1]), _mm256_add_ps(s[2], s[3])));
    }
}

/*
 * Reorder x in groups of sixteen: elements at even positions, then the others.  A word of two
 * bf16 numbers then needs no unpacking: shifted, or masked, it is one of them as f32.
 */
static void split_pairs(float *to, const float *x, int64_t k)
{
    memset(to + k / 16 * 16, 0, 16 * sizeof *to);
    for (int64_t j = 0; j < k; j++)
        to[j / 16 * 16 + j % 2 * 8 + j % 16 / 2] = x[j];
}

/* Sixteen weights, sixteen of x. */
X86_HALF static inline void pairs(__m256 sum[2], const float *x, __m256i w)
{
    const __m256i high = _mm256_set1_epi32((int32_t)0xffff0000u);

    sum[0] = _mm256_fmadd_ps(_mm256_loadu_ps(x), _mm256_castsi256_ps(_mm256_slli_epi32(w, 16)),
                             sum[0]);
    sum[1] = _mm256_fmadd_ps(_mm256_loadu_ps(x + 8),
                             _mm256_castsi256_ps(_mm256_and_si256(w, high)), sum[1]);
}

/* A row of W times x in the order of split_pairs. */
X86_HALF static inline float dot_pairs(const float *x, const uint16_t *w, int64_t k)
{
    __m256 s[4] = {_mm256_setzero_ps(), _mm256_setzero_ps(), _mm256_setzero_ps(),
                   _mm256_setzero_ps()};
    int64_t j = 0;

    for (; j + 32 <= k; j += 32)
        for (int q = 0; q < 2; q++)
            pairs(s + 2 * q, x + j + 16 * q,
                  _mm256_loadu_si256((const __m256i *)(const void *)(w + j + 16 * q)));
    for (; j < k; j += 16) {
        uint16_t part[16] = {0};

        memcpy(part, w + j, (size_t)(k - j < 16 ? k - j : 16) * sizeof *w);
        pairs(s, x + j, _mm256_loadu_si256((const __m256i *)(const void *)part));
    }
    return sum8(_mm256_add_ps(_mm256_add_ps(s[0], s[1]), _mm256_add_ps(s[2], s[3])));
}

/* y = alpha x W^T + beta y, bf16; split has space for m reordered rows. */
X86_HALF static void few_pairs(int64_t m, int64_t n, int64_t k, float alpha, const float *x,
                               int64_t x_ld, const uint16_t *w, int64_t ld, float beta, float *y,
                               int64_t y_ld, float *split)
{
    int64_t split_ld = k / 16 * 16 + 16;

    for (int64_t i = 0; i < m; i++)
        split_pairs(split + i * split_ld, x + i * x_ld, k);
    for (int64_t j = 0; j < n; j++)
        for (int64_t i = 0; i < m; i++) {
            float *to = y + i * y_ld + j;

            *to = alpha * dot_pairs(split + i * split_ld, w + j * ld, k) +
                  (beta == 0 ? 0 : beta * *to);
        }
}

X86_HALF static void few_nt(int64_t m, int64_t n, int64_t k, float alpha, const float *x,
                            int64_t x_ld, const uint16_t *w, int64_t ld, float beta, float *y,
                            int64_t y_ld, bool bf16)
{
    float out[FEW];

    for (int64_t j = 0; j < n; j++) {
        dots(out, x, x_ld, w + j * ld, m, k, bf16);
        for (int64_t i = 0; i < m; i++)
            y[i * y_ld + j] = alpha * out[i] + (beta == 0 ? 0 : beta * y[i * y_ld + j]);
    }
}

X86_HALF static void few_nn(int64_t m, int64_t n, int64_t k, float alpha, const float *x,
                            int64_t x_ld, const uint16_t *w, int64_t ld, float beta, float *y,
                            int64_t y_ld, bool bf16)
{
    for (int64_t i = 0; i < m; i++) {
        float *to = y + i * y_ld;

        for (int64_t j = 0; j < n; j++)
            to[j] = beta == 0 ? 0 : beta * to[j];
        for (int64_t r = 0; r < k; r++) {
            const uint16_t *row = w + r * ld;
            float by = alpha * x[i * x_ld + r];
            __m256 by8 = _mm256_set1_ps(by);
            int64_t j = 0;

            for (; j + 8 <= n; j += 8)
                _mm256_storeu_ps(to + j, _mm256_fmadd_ps(by8, wide8(row + j, bf16),
                                                         _mm256_loadu_ps(to + j)));
            for (; j < n; j++)
                to[j] += by * _mm_cvtss_f32(_mm256_castps256_ps128(wide_tail(row + j, 1, bf16)));
        }
    }
}

/* Whether a product of m rows uses the 16-bit numbers without widening. */
static bool reads_half(const struct device *dev, int64_t m)
{
    return dev->weight != CKPT_F32 && m <= FEW && CPU_FEATURE_ACTIVE(AVX2) &&
           CPU_FEATURE_ACTIVE(FMA) && CPU_FEATURE_ACTIVE(F16C);
}

/* Whether a product's rows must not depend on each other; a 16-bit matrix is not multiplied so. */
static bool by_row(const struct device *dev, float alpha, float beta)
{
    return dev->by_row && dev->weight == CKPT_F32 && alpha == 1.0f && (beta == 0 || beta == 1.0f);
}

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/* Widen rows [r, r + rows), columns [c, c + cols) of W into the thread's panel. */
static const float *widen(const struct device *dev, const void *w, int64_t ld, int64_t r,
                          int64_t rows, int64_t c, int64_t cols)
{
    float *to = typed_panel(dev);

    for (int64_t i = 0; i < rows; i++)
        typed_wide(dev, to + i * cols, typed_at(dev, w, (r + i) * ld + c), cols);
    return to;
}

/* y[m, n] = alpha x W^T + beta y, W [n, k] f32; with nn, W [k, n]: alpha x W + beta y. */
static void wide_product(bool nn, int64_t m, int64_t n, int64_t k, float alpha, const float *x,
                         int64_t x_ld, const float *w, int64_t ld, float beta, float *y,
                         int64_t y_ld)
{
    if (m == 1)
        cblas_sgemv(CblasRowMajor, nn ? CblasTrans : CblasNoTrans, (int)(nn ? k : n),
                    (int)(nn ? n : k), alpha, w, (int)ld, x, 1, beta, y, 1);
    else
        (nn ? gemm_nn : gemm_nt)(m, n, k, alpha, x, x_ld, w, ld, beta, y, y_ld);
}

/*
 * A long product is computed in parts, between which a stop is noticed.  A part is as many
 * multiply-adds as take a quarter of a second or less, of enough rows that packing W once more for
 * it costs nothing that can be measured.  The bits are those of the whole: parts begin at rows
 * where kernels of any width (4, 8, 12, 16 rows; BLOCK of row_product) begin anew; none is so small
 * that OpenBLAS has other kernels for it; and a product of more rows than MOST_ROWS, which OpenBLAS
 * cuts itself, at places that differ between processors, is left to it.
 */
#define PART_WORK ((int64_t)1 << 33)
#define PART_ROWS 1920
#define PART_UNIT 192
#define MOST_ROWS 49152

static int64_t parts_of(int64_t m, int64_t n, int64_t k)
{
    int64_t wanted = (m * n * k + PART_WORK - 1) / PART_WORK, most = m / PART_ROWS;

    return m > MOST_ROWS || most < 2 || wanted < 2 ? 1 : least(wanted, most);
}

/* The same, or without OpenBLAS, in parts.  The first is always computed: the caller has looked for
 * a stop. */
static void in_parts(const struct device *dev, bool by_row, bool nn, int64_t m, int64_t n,
                     int64_t k, float alpha, const float *x, int64_t x_ld, const float *w,
                     int64_t ld, float beta, float *y, int64_t y_ld)
{
    int64_t parts = parts_of(m, n, k), begin, end;

    for (int i = 0; i < (int)parts && !(i && device_stopped(dev)); i++) {
        const float *xi;
        float *yi;

        cpu_range(&begin, &end, m, PART_UNIT, i, (int)parts);
        xi = x + begin * x_ld;
        yi = y + begin * y_ld;
        if (by_row)
            (nn ? row_product_nn : row_product_nt)(end - begin, n, k, xi, x_ld, w, ld, beta != 0,
                                                   yi, y_ld);
        else
            wide_product(nn, end - begin, n, k, alpha, xi, x_ld, w, ld, beta, yi, y_ld);
    }
}

/* The same, W of the device's type: panel by panel of its rows and columns. */
static void product(const struct device *dev, bool nn, int64_t m, int64_t n, int64_t k, float alpha,
                    const float *x, int64_t x_ld, const void *w, int64_t ld, float beta, float *y,
                    int64_t y_ld)
{
    int64_t all_rows = nn ? k : n, all_cols = nn ? n : k, width = least(all_cols, PANEL), step;

    if (dev->weight == CKPT_F32) {
        in_parts(dev, false, nn, m, n, k, alpha, x, x_ld, w, ld, beta, y, y_ld);
        return;
    }
    step = PANEL / width;
    for (int64_t r = 0; r < all_rows; r += step)
        for (int64_t c = 0; c < all_cols && !((r || c) && device_stopped(dev)); c += width) {
            int64_t rows = least(all_rows - r, step), cols = least(all_cols - c, width);
            const float *panel = widen(dev, w, ld, r, rows, c, cols);

            if (nn)
                wide_product(nn, m, cols, rows, alpha, x + r, x_ld, panel, cols, r ? 1.0f : beta,
                             y + c, y_ld);
            else
                wide_product(nn, m, rows, cols, alpha, x + c, x_ld, panel, cols, c ? 1.0f : beta,
                             y + r, y_ld);
        }
}

void typed_nt(const struct device *dev, int64_t m, int64_t n, int64_t k, float alpha,
              const float *x, int64_t x_ld, const void *w, int64_t ld, float beta, float *y,
              int64_t y_ld)
{
    bool bf16 = dev->weight == CKPT_BF16;

    if (m <= 0 || n <= 0)
        return;
    if (by_row(dev, alpha, beta))
        in_parts(dev, true, false, m, n, k, alpha, x, x_ld, w, ld, beta, y, y_ld);
    else if (!reads_half(dev, m))
        product(dev, false, m, n, k, alpha, x, x_ld, w, ld, beta, y, y_ld);
    else if (bf16 && m * (k + 16) <= PANEL)
        few_pairs(m, n, k, alpha, x, x_ld, w, ld, beta, y, y_ld, typed_panel(dev));
    else
        few_nt(m, n, k, alpha, x, x_ld, w, ld, beta, y, y_ld, bf16);
}

void typed_nn(const struct device *dev, int64_t m, int64_t n, int64_t k, float alpha,
              const float *x, int64_t x_ld, const void *w, int64_t ld, float beta, float *y,
              int64_t y_ld)
{
    if (m <= 0 || n <= 0)
        return;
    if (by_row(dev, alpha, beta))
        in_parts(dev, true, true, m, n, k, alpha, x, x_ld, w, ld, beta, y, y_ld);
    else if (reads_half(dev, m))
        few_nn(m, n, k, alpha, x, x_ld, w, ld, beta, y, y_ld, dev->weight == CKPT_BF16);
    else
        product(dev, true, m, n, k, alpha, x, x_ld, w, ld, beta, y, y_ld);
}

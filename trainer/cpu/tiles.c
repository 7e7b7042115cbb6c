/* tiles - see tiles.h. */
#include "trainer/cpu/tiles.h"

#include <immintrin.h>
#include <string.h>
#include <sys/platform/x86.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "trainer/cpu/cpu.h"

#define TILE_NUMBERS (TILE * TILE_K)

#define X86_512 __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")))
#define X86_AMX \
    __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16,amx-tile,amx-bf16")))

enum tiles_kernel tiles_best(void)
{
    enum { REQUEST_PERMISSION = 0x1023, TILE_DATA = 18 };       /* asm/prctl.h; XCR0's bit */

    if (!CPU_FEATURE_ACTIVE(AVX512F) || !CPU_FEATURE_ACTIVE(AVX512BW) ||
        !__builtin_cpu_supports("avx512vl") ||  /* AVX512-BF16 is bit 31, for which glibc's macro
                                                   overflows an int */
        !CPU_FEATURE_ACTIVE(AVX512DQ) ||
        !CPU_FEATURE_ACTIVE(AVX512_BF16))
        return TILES_NONE;
    if (CPU_FEATURE_ACTIVE(AMX_TILE) && CPU_FEATURE_ACTIVE(AMX_BF16) &&
        syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) == 0)
        return TILES_AMX;
    return TILES_AVX512;
}

/* Round to nearest, ties to even; a NaN stays NaN. */
static uint16_t round_bf16(float x)
{
    uint32_t u;

    memcpy(&u, &x, sizeof u);
    if ((u & 0x7fffffffu) > 0x7f800000u)
        return (uint16_t)((u >> 16) | 0x40u);
    return (uint16_t)((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
}

static float widen(uint16_t h)
{
    uint32_t u = (uint32_t)h << 16;
    float x;

    memcpy(&x, &u, sizeof x);
    return x;
}

/* Pack one tile of n rows and k terms, the rest 0. */
static void pack_plain(uint16_t *to, const struct tiles_side *s, bool right, int64_t i0, int64_t n,
                       int64_t k0, int64_t k)
{
    memset(to, 0, TILE_NUMBERS * sizeof *to);
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < k; j++) {
            int64_t at = s->along ? (i0 + i) * s->ld + k0 + j : (k0 + j) * s->ld + i0 + i;
            uint16_t x = s->bf16 ? ((const uint16_t *)s->at)[at]
                                 : round_bf16(((const float *)s->at)[at]);

            to[right ? j / 2 * 2 * TILE + 2 * i + j % 2 : i * TILE_K + j] = x;
        }
}

/* Transpose 16 x 16 words. */
X86_512 static inline void transpose(__m512i r[16])
{
    __m512i t[16];

    for (int i = 0; i < 16; i += 2) {
        t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
        t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
    }
    for (int i = 0; i < 16; i += 4) {
        r[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
        r[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
        r[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
        r[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
    }
    for (int j = 0; j < 4; j++) {
        __m512i even0 = _mm512_shuffle_i32x4(r[j], r[4 + j], 0x88);
        __m512i even1 = _mm512_shuffle_i32x4(r[8 + j], r[12 + j], 0x88);
        __m512i odd0 = _mm512_shuffle_i32x4(r[j], r[4 + j], 0xdd);
        __m512i odd1 = _mm512_shuffle_i32x4(r[8 + j], r[12 + j], 0xdd);

        t[j] = _mm512_shuffle_i32x4(even0, even1, 0x88);
        t[8 + j] = _mm512_shuffle_i32x4(even0, even1, 0xdd);
        t[4 + j] = _mm512_shuffle_i32x4(odd0, odd1, 0x88);
        t[12 + j] = _mm512_shuffle_i32x4(odd0, odd1, 0xdd);
    }
    memcpy(r, t, sizeof t);
}

/* 32 terms of one row. */
X86_512 static inline __m512i row_along(const struct tiles_side *s, int64_t at)
{
    const float *x = (const float *)s->at + at;

    if (s->bf16)
        return _mm512_loadu_si512((const uint16_t *)s->at + at);
    return (__m512i)_mm512_cvtne2ps_pbh(_mm512_loadu_ps(x + 16), _mm512_loadu_ps(x));
}

/* Two terms of 16 rows, interleaved. */
X86_512 static inline __m512i pair_across(const struct tiles_side *s, int64_t at)
{
    __m256i a, b;

    if (s->bf16) {
        const uint16_t *x = (const uint16_t *)s->at + at;

        a = _mm256_loadu_si256((const __m256i *)(const void *)x);
        b = _mm256_loadu_si256((const __m256i *)(const void *)(x + s->ld));
    } else {
        const float *x = (const float *)s->at + at;

        a = (__m256i)_mm512_cvtneps_pbh(_mm512_loadu_ps(x));
        b = (__m256i)_mm512_cvtneps_pbh(_mm512_loadu_ps(x + s->ld));
    }
    return _mm512_or_si512(_mm512_cvtepu16_epi32(a),
                           _mm512_slli_epi32(_mm512_cvtepu16_epi32(b), 16));
}

/* A whole tile. */
X86_512 static void pack_512(uint16_t *to, const struct tiles_side *s, bool right, int64_t i0,
                             int64_t k0)
{
    __m512i r[16];

    if (s->along)
        for (int i = 0; i < 16; i++)
            r[i] = row_along(s, (i0 + i) * s->ld + k0);
    else
        for (int i = 0; i < 16; i++)
            r[i] = pair_across(s, (k0 + 2 * i) * s->ld + i0);
    if (s->along == right)
        transpose(r);
    for (int i = 0; i < 16; i++)
        _mm512_storeu_si512(to + i * TILE_K, r[i]);
}

void tiles_pack(enum tiles_kernel kernel, uint16_t *to, const struct tiles_side *s, bool right,
                int64_t i0, int64_t n, int64_t k0, int64_t k)
{
    for (int64_t i = 0; i < n; i += TILE)
        for (int64_t j = 0; j < k; j += TILE_K, to += TILE_NUMBERS) {
            int64_t rows = n - i < TILE ? n - i : TILE, terms = k - j < TILE_K ? k - j : TILE_K;

            if (kernel >= TILES_AVX512 && rows == TILE && terms == TILE_K)
                pack_512(to, s, right, i0 + i, k0 + j);
            else
                pack_plain(to, s, right, i0 + i, rows, k0 + j, terms);
        }
}

/* c[16, 16] += tiles of one panel each. */
static void plain_block(float *c, int64_t ld, const uint16_t *left, const uint16_t *right,
                        int64_t tiles)
{
    for (int64_t t = 0; t < tiles; t++, left += TILE_NUMBERS, right += TILE_NUMBERS)
        for (int i = 0; i < TILE; i++)
            for (int j = 0; j < TILE; j++) {
                float sum = 0;

                for (int k = 0; k < TILE_K; k++)
                    sum += widen(left[i * TILE_K + k]) *
                           widen(right[k / 2 * 2 * TILE + 2 * j + k % 2]);
                c[i * ld + j] += sum;
            }
}

/* c[8, 16 * cols] += eight rows of left, from row `from` on. */
X86_512 CPU_INLINE void eight_rows(float *c, int64_t ld, const uint16_t *left,
                                   const uint16_t *right, int64_t tiles, int from, int cols)
{
    __m512 sum[8][2];

    for (int i = 0; i < 8; i++)
        for (int j = 0; j < cols; j++)
            sum[i][j] = _mm512_loadu_ps(c + (from + i) * ld + TILE * j);
    for (int64_t t = 0; t < tiles; t++)
        for (int k = 0; k < TILE_K / 2; k++) {
            __m512bh y[2];

            for (int j = 0; j < cols; j++)
                y[j] = (__m512bh)_mm512_loadu_si512(right + (j * tiles + t) * TILE_NUMBERS +
                                                    k * 2 * TILE);
            for (int i = 0; i < 8; i++) {
                int32_t pair;
                __m512bh x;

                memcpy(&pair, left + t * TILE_NUMBERS + (from + i) * TILE_K + 2 * k, sizeof pair);
                x = (__m512bh)_mm512_set1_epi32(pair);
                for (int j = 0; j < cols; j++)
                    sum[i][j] = _mm512_dpbf16_ps(sum[i][j], x, y[j]);
            }
        }
    for (int i = 0; i < 8; i++)
        for (int j = 0; j < cols; j++)
            _mm512_storeu_ps(c + (from + i) * ld + TILE * j, sum[i][j]);
}

X86_512 static void block_512(float *c, int64_t ld, const uint16_t *left, const uint16_t *right,
                              int64_t tiles)
{
    eight_rows(c, ld, left, right, tiles, 0, 1);
    eight_rows(c, ld, left, right, tiles, 8, 1);
}

/* c[16, 32] */
X86_512 static void pair_512(float *c, int64_t ld, const uint16_t *left, const uint16_t *right,
                             int64_t tiles)
{
    eight_rows(c, ld, left, right, tiles, 0, 2);
    eight_rows(c, ld, left, right, tiles, 8, 2);
}

/* Tell the compiler that memory is read: not all of the intrinsics declare it. */
#define WRITTEN() __asm__ volatile("" ::: "memory")

/* Configure all eight tile registers as 16 rows of 64 bytes. */
X86_AMX static void amx_begin(void)
{
    struct {
        uint8_t  palette, start_row, reserved[14];
        uint16_t bytes[16];
        uint8_t  rows[16];
    } config = {.palette = 1};

    for (int i = 0; i < 8; i++) {
        config.bytes[i] = 64;
        config.rows[i] = 16;
    }
    __asm__ volatile("" : : "r"(&config) : "memory");
    _tile_loadconfig(&config);
}

X86_AMX static void amx_end(void) { _tile_release(); }

X86_AMX static void block_amx(float *c, int64_t ld, const uint16_t *left, const uint16_t *right,
                              int64_t tiles)
{
    size_t bytes = (size_t)ld * sizeof *c;

    WRITTEN();
    _tile_loadd(0, c, bytes);
    for (int64_t t = 0; t < tiles; t++) {
        _tile_loadd(4, left + t * TILE_NUMBERS, 64);
        _tile_loadd(6, right + t * TILE_NUMBERS, 64);
        _tile_dpbf16ps(0, 4, 6);
    }
    _tile_stored(0, c, bytes);
}

/* c[32, 32] += two panels of each side. */
X86_AMX static void square_amx(float *c, int64_t ld, const uint16_t *left, const uint16_t *left1,
                               const uint16_t *right, int64_t tiles)
{
    const uint16_t *right1 = right + tiles * TILE_NUMBERS;
    size_t bytes = (size_t)ld * sizeof *c;

    WRITTEN();
    _tile_loadd(0, c, bytes);
    _tile_loadd(1, c + TILE, bytes);
    _tile_loadd(2, c + TILE * ld, bytes);
    _tile_loadd(3, c + TILE * ld + TILE, bytes);
    for (int64_t t = 0; t < tiles; t++) {
        int64_t at = t * TILE_NUMBERS;

        _tile_loadd(4, left + at, 64);
        _tile_loadd(6, right + at, 64);
        _tile_loadd(7, right1 + at, 64);
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        _tile_loadd(5, left1 + at, 64);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
    _tile_stored(0, c, bytes);
    _tile_stored(1, c + TILE, bytes);
    _tile_stored(2, c + TILE * ld, bytes);
    _tile_stored(3, c + TILE * ld + TILE, bytes);
}

/* One panel by one; a partial block goes through a complete one. */
static void one_block(enum tiles_kernel kernel, float *c, int64_t ld, int64_t rows, int64_t cols,
                      const uint16_t *left, const uint16_t *right, int64_t tiles)
{
    float whole[TILE * TILE] = {0}, *to = c;
    bool cut = rows < TILE || cols < TILE;
    int64_t to_ld = cut ? TILE : ld;

    for (int64_t i = 0; cut && i < rows; i++)
        memcpy(whole + i * TILE, c + i * ld, (size_t)cols * sizeof *c);
    if (cut)
        to = whole;
    if (kernel == TILES_AMX)
        block_amx(to, to_ld, left, right, tiles);
    else if (kernel == TILES_AVX512)
        block_512(to, to_ld, left, right, tiles);
    else
        plain_block(to, to_ld, left, right, tiles);
    for (int64_t i = 0; cut && i < rows; i++)
        memcpy(c + i * ld, whole + i * TILE, (size_t)cols * sizeof *c);
}

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/* Two panels by two. */
static void square(enum tiles_kernel kernel, float *c, int64_t ld, int64_t rows, int64_t cols,
                   const uint16_t *left, int64_t left_panel, const uint16_t *right, int64_t tiles)
{
    int64_t panel = tiles * TILE_NUMBERS;

    if (kernel == TILES_AMX && rows == 2 * TILE && cols == 2 * TILE) {
        square_amx(c, ld, left, left + left_panel, right, tiles);
        return;
    }
    for (int64_t i = 0; i < rows; i += TILE, left += left_panel) {
        int64_t here = least(rows - i, TILE);

        if (kernel == TILES_AVX512 && here == TILE && cols == 2 * TILE) {
            pair_512(c + i * ld, ld, left, right, tiles);
            continue;
        }
        for (int64_t j = 0; j < cols; j += TILE)
            one_block(kernel, c + i * ld + j, ld, here, least(cols - j, TILE), left,
                      right + j / TILE * panel, tiles);
    }
}

void tiles_product(enum tiles_kernel kernel, float *c, int64_t ld, int64_t m, int64_t n,
                   int64_t k, const uint16_t *left, int64_t left_k, const uint16_t *right,
                   bool add)
{
    int64_t tiles = (k + TILE_K - 1) / TILE_K, panel = tiles * TILE_NUMBERS;
    int64_t left_panel = (left_k + TILE_K - 1) / TILE_K * TILE_NUMBERS;

    for (int64_t i = 0; !add && i < m; i++)
        memset(c + i * ld, 0, (size_t)n * sizeof *c);
    if (kernel == TILES_AMX)
        amx_begin();
    for (int64_t j = 0; j < n; j += 2 * TILE)
        for (int64_t i = 0; i < m; i += 2 * TILE)
            square(kernel, c + i * ld + j, ld, least(m - i, 2 * TILE), least(n - j, 2 * TILE),
                   left + i / TILE * left_panel, left_panel, right + j / TILE * panel, tiles);
    if (kernel == TILES_AMX)
        amx_end();
}

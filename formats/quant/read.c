/* quant/read - see quant/read.h.  The layouts are in quant/parts.h. */
#include "formats/quant/read.h"

#include <immintrin.h>
#include <string.h>
#include <sys/platform/x86.h>

#include "libckpt/convert.h"

#define PIECE 32768             /* codes read at a time */
#define STEP  4096              /* values computed at a time: they fit in the L1 cache */
#define WORDS 1024              /* words or numbers read at a time */

/* State of one call. */
struct reader {
    struct ckpt_source      *src;
    const struct quant_part *p;
    float    value_of[256];     /* value of each code, before zero and scale */
    int64_t  at;                /* row of the grid in scale and zero, or -1 */
    float   *scale, *zero;      /* [grid columns]; zero NULL: there are none */
    int32_t *order;             /* [columns], or NULL */
    bool     e4m3;              /* F8_E4M3 codes, on a processor with fast conversion */
    unsigned char *codes;       /* [PIECE] */
};

/* Zeros packed in words down the rows: those of row r. */
static int read_packed_zeros(struct reader *r, int64_t row, struct ckpt_err *err)
{
    const struct quant_part *p = r->p;
    int64_t per = 32 / (int64_t)p->bits, n = p->grid[1];
    unsigned shift = (unsigned)(row % per) * p->bits;
    uint32_t raw[WORDS];
    int rc;

    for (int64_t at = 0; at < n; at += WORDS) {
        int64_t some = n - at < WORDS ? n - at : WORDS;

        if ((rc = ckpt_source_read(r->src, p->zero, row / per * n + at, some, raw, err)) != 0)
            return rc;
        for (int64_t k = 0; k < some; k++)
            r->zero[at + k] = (float)(int)(raw[k] >> shift & ((1u << p->bits) - 1)) -
                              (float)(1 << (p->bits - 1));
    }
    return 0;
}

/* Load row `row` of the grid of all matrices. */
static int load_grid(struct reader *r, int64_t row, struct ckpt_err *err)
{
    const struct quant_part *p = r->p;
    int rc;

    if (r->at == row)
        return 0;
    rc = quant_read_scales(r->scale, r->src, p->scale, row * p->grid[1], p->grid[1], err);
    if (rc == 0 && r->zero)
        rc = p->how == QUANT_PACKED && ckpt_source_tensor(r->src, p->zero)->dtype == CKPT_I32
                 ? read_packed_zeros(r, row, err)
                 : quant_read_scales(r->zero, r->src, p->zero, row * p->grid[1], p->grid[1], err);
    r->at = rc ? -1 : row;
    return rc;
}

static void fill_values(struct reader *r)
{
    enum ckpt_dtype t = ckpt_source_tensor(r->src, r->p->seen.codes)->dtype;
    unsigned char byte[256];

    for (int i = 0; i < 256; i++) {
        byte[i] = (unsigned char)i;
        r->value_of[i] = (float)(i - (1 << (r->p->how == QUANT_PACKED ? r->p->bits - 1 : 0)));
    }
    if (r->p->how == QUANT_SCALED)
        ckpt_convert(r->value_of, CKPT_F32, byte, t, 256);
    r->e4m3 = r->p->how == QUANT_SCALED && t == CKPT_F8_E4M3 && !r->zero &&
              CPU_FEATURE_ACTIVE(AVX2) && CPU_FEATURE_ACTIVE(F16C);
}

int quant_read_order(int32_t **out, struct ckpt_source *src, const struct quant_part *p,
                     int64_t groups, struct ckpt_err *err)
{
    int32_t *order;
    int rc;

    *out = NULL;
    if (p->order == QUANT_NONE)
        return 0;
    order = ckpt_alloc_buffer((size_t)p->columns * sizeof *order);
    rc = order ? ckpt_source_read(src, p->order, 0, p->columns, order, err)
               : ckpt_nomem(err, (size_t)p->columns * sizeof *order);
    for (int64_t c = 0; rc == 0 && c < p->columns; c++)
        if (order[c] < 0 || order[c] >= groups)
            rc = ckpt_fail(err, CKPT_EFORMAT, "%s: column %lld is in group %d of %lld",
                           ckpt_source_tensor(src, p->order)->name, (long long)c, order[c],
                           (long long)groups);
    if (rc)
        ckpt_free(order);
    else
        *out = order;
    return rc;
}

static int begin(struct reader *r, struct ckpt_err *err)
{
    const struct quant_part *p = r->p;
    size_t grid = (size_t)p->grid[1] * sizeof(float);

    r->at = -1;
    r->scale = ckpt_alloc_buffer(grid);
    r->zero = p->zero != QUANT_NONE ? ckpt_alloc_buffer(grid) : NULL;
    r->codes = ckpt_alloc_buffer(PIECE);
    if (!r->scale || !r->codes || (p->zero != QUANT_NONE && !r->zero))
        return ckpt_nomem(err, grid);
    fill_values(r);
    return quant_read_order(&r->order, r->src, p, p->grid[1], err);
}

static void end(struct reader *r)
{
    ckpt_free(r->scale);
    ckpt_free(r->zero);
    ckpt_free(r->order);
    ckpt_free(r->codes);
}

/*
 * F8_E4M3 times a scale, eight at once, the same bits as the loop over value_of: the seven bits,
 * shifted to F16's exponent and mantissa, are the value / 256, subnormals included; all ones are
 * NaN, with the bits of half.h.  Returns how many were done.
 */
__attribute__((target("avx2,f16c"))) static int64_t scale_e4m3(float *value,
                                                               const unsigned char *code,
                                                               int64_t n, float scale)
{
    const __m128i seven = _mm_set1_epi16(0x7f), sign = _mm_set1_epi16(0x80);
    const __m256 by = _mm256_set1_ps(scale), up = _mm256_set1_ps(256.0f);
    const __m256 nan = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fc00000));
    int64_t i = 0;

    for (; i + 8 <= n; i += 8) {
        __m128i c = _mm_cvtepu8_epi16(_mm_loadl_epi64((const __m128i_u *)(code + i)));
        __m128i low = _mm_and_si128(c, seven);
        __m128i h = _mm_or_si128(_mm_slli_epi16(_mm_and_si128(c, sign), 8), _mm_slli_epi16(low, 7));
        __m256i ones = _mm256_cvtepi16_epi32(_mm_cmpeq_epi16(low, seven));
        __m256 v = _mm256_mul_ps(_mm256_cvtph_ps(h), up);

        v = _mm256_or_ps(v, _mm256_and_ps(nan, _mm256_castsi256_ps(ones)));
        _mm256_storeu_ps(value + i, _mm256_mul_ps(v, by));
    }
    return i;
}

/* Values of columns [c, c + n) of the row whose grid is loaded, from one code per byte. */
static void work_out(float *value, const struct reader *r, const unsigned char *code, int64_t c,
                     int64_t n)
{
    int64_t block = r->p->block[1];

    for (int64_t i = 0; i < n;) {
        int64_t k = r->order ? r->order[c + i] : (c + i) / block;
        int64_t run = r->order ? 1 : block - (c + i) % block;
        float scale = r->scale[k], zero = r->zero ? r->zero[k] : 0;

        run = run < n - i ? run : n - i;
        if (r->zero)
            for (int64_t j = i; j < i + run; j++)
                value[j] = (r->value_of[code[j]] - zero) * scale;
        else
            for (int64_t j = i + (r->e4m3 ? scale_e4m3(value + i, code + i, run, scale) : 0);
                 j < i + run; j++)
                value[j] = r->value_of[code[j]] * scale;
        i += run;
    }
}

/* Unpack the codes of columns [c, c + n) of a row of words, one per byte. */
static int unpack(struct reader *r, int64_t row, int64_t c, int64_t n, unsigned char *code,
                  struct ckpt_err *err)
{
    const struct quant_part *p = r->p;
    int64_t per = 32 / (int64_t)p->bits, width = (p->columns + per - 1) / per;
    uint32_t raw[STEP / 4 + 2], mask = (1u << p->bits) - 1;
    int64_t first = c / per, last = (c + n - 1) / per;
    int rc;

    if ((rc = ckpt_source_read(r->src, p->seen.codes, row * width + first, last - first + 1,
                               raw, err)) != 0)
        return rc;
    for (int64_t i = 0; i < n; i++)
        code[i] = (unsigned char)(raw[(c + i) / per - first] >>
                                  ((unsigned)((c + i) % per) * p->bits) & mask);
    return 0;
}

/* Read n codes from element `at` on, of one row when they are in words; *code points to them. */
static int read_codes(struct reader *r, int64_t at, int64_t n, struct ckpt_err *err)
{
    return r->p->how == QUANT_PACKED
               ? unpack(r, at / r->p->columns, at % r->p->columns, n, r->codes, err)
               : ckpt_source_read(r->src, r->p->seen.codes, at, n, r->codes, err);
}

/* Convert codes that were read to values of p->seen.dtype. */
static int convert(struct reader *r, int64_t at, int64_t n, unsigned char *dst,
                   struct ckpt_err *err)
{
    const struct quant_part *p = r->p;
    size_t width = ckpt_dtype_size(p->seen.dtype);
    CKPT_UNSET float value[STEP];
    int rc;

    for (int64_t i = 0; i < n;) {
        int64_t row = (at + i) / p->columns, c = (at + i) % p->columns, some = p->columns - c;

        some = some < n - i ? some : n - i;
        some = some < STEP ? some : STEP;
        if ((rc = load_grid(r, row / p->rows * p->grid[0] + row % p->rows / p->block[0],
                            err)) != 0)
            return rc;
        work_out(value, r, r->codes + i, c, some);
        ckpt_convert(dst + (size_t)i * width, p->seen.dtype, value, CKPT_F32, (size_t)some);
        i += some;
    }
    return 0;
}

int quant_read(struct ckpt_source *src, const void *part, int64_t start, int64_t count,
               void *dst, struct ckpt_err *err)
{
    const struct quant_part *p = part;
    struct reader r = {.src = src, .p = p};
    size_t width = ckpt_dtype_size(p->seen.dtype);
    int rc;

    if (p->how == QUANT_GPTQ || p->how == QUANT_AWQ)
        return quant_read_words(src, p, start, count, dst, err);
    rc = begin(&r, err);
    for (int64_t at = 0; rc == 0 && at < count;) {
        int64_t n = count - at < PIECE ? count - at : PIECE, row;

        if (p->how == QUANT_PACKED) {
            row = p->columns - (start + at) % p->columns;
            n = n < STEP ? n : STEP;
            n = n < row ? n : row;
        }
        rc = read_codes(&r, start + at, n, err);
        if (rc == 0)
            rc = convert(&r, start + at, n, (unsigned char *)dst + (size_t)at * width, err);
        at += n;
    }
    end(&r);
    return rc;
}

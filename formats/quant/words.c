/*
 * quant/words - values of GPTQ's and AWQ's transposed matrices; see quant/read.h.
 *
 * Codes lie [inputs, outputs], values are wanted [outputs, inputs]: a strip of neighbouring
 * outputs is read down all inputs, a tile at a time, and written across.
 */
#include <string.h>

#include "formats/quant/read.h"
#include "libckpt/convert.h"

#define MAX_STRIP 1024                  /* outputs of a strip: a page of the file per read */
#define STRIP_SCALES ((int64_t)1 << 20) /* most scales held for a strip */
#define TILE 256                        /* inputs of a tile */

/* AWQ's position of outputs 0 .. 7 in a word. */
static const unsigned char awq_place[8] = {0, 4, 1, 5, 2, 6, 3, 7};

struct strip {
    struct ckpt_source      *src;
    const struct quant_part *p;
    int64_t   first, n;         /* its outputs; begins and ends at whole words of zeros */
    float    *scale, *zero;     /* [groups, n] */
    int32_t  *order;            /* [inputs], or NULL */
    uint32_t *words;            /* of a tile, or of a row of zeros */
    int64_t   start, count;     /* the requested range */
    unsigned char *dst;
};

/* Code i of a row of words that starts at a whole word. */
static inline unsigned code_of(const uint32_t *word, int64_t i, unsigned bits, bool awq)
{
    unsigned per = 32 / bits, place = (unsigned)(i % per);

    return word[i / per] >> (awq ? awq_place[place] : place) * bits & ((1u << bits) - 1);
}

/* Load scales and zeros of all groups, for the strip's outputs. */
static int load_groups(struct strip *s, struct ckpt_err *err)
{
    const struct quant_part *p = s->p;
    int64_t per = 32 / (int64_t)p->bits, width = p->rows / per;
    unsigned mask = (1u << p->bits) - 1;
    int rc;

    for (int64_t g = 0; g < p->grid[0]; g++) {
        if ((rc = quant_read_scales(s->scale + g * s->n, s->src, p->scale,
                                    g * p->rows + s->first, s->n, err)) != 0 ||
            (rc = ckpt_source_read(s->src, p->zero, g * width + s->first / per, s->n / per,
                                   s->words, err)) != 0)
            return rc;
        for (int64_t i = 0; i < s->n; i++)
            s->zero[g * s->n + i] = (float)(
                (code_of(s->words, i, p->bits, p->how == QUANT_AWQ) + p->less) & mask);
    }
    return 0;
}

/* Load the words of inputs [k, k + n) for the strip's outputs. */
static int load_tile(struct strip *s, int64_t k, int64_t n, struct ckpt_err *err)
{
    const struct quant_part *p = s->p;
    bool awq = p->how == QUANT_AWQ;
    int64_t per = 32 / (int64_t)p->bits, rows = awq ? n : (n + per - 1) / per;
    int64_t width = awq ? p->rows / 8 : p->rows, first = awq ? s->first / 8 : s->first;
    int64_t some = awq ? s->n / 8 : s->n;
    int rc;

    for (int64_t r = 0; r < rows; r++)
        if ((rc = ckpt_source_read(s->src, p->seen.codes, ((awq ? k : k / per) + r) * width +
                                   first, some, s->words + r * some, err)) != 0)
            return rc;
    return 0;
}

/* Dequantise inputs [k, k + n) of output o of the strip, from the tile. */
static void work_out(float *value, const struct strip *s, int64_t o, int64_t k, int64_t n)
{
    const struct quant_part *p = s->p;
    unsigned per = 32 / p->bits, mask = (1u << p->bits) - 1;

    for (int64_t i = 0; i < n; i++) {
        int64_t g = (s->order ? s->order[k + i] : (k + i) / p->block[0]) * s->n + o;
        unsigned code;

        if (p->how == QUANT_AWQ)
            code = code_of(s->words + i * (s->n / 8), o, 4, true);
        else
            code = s->words[i / per * s->n + o] >> (unsigned)(i % per) * p->bits & mask;
        value[i] = ((float)code - s->zero[g]) * s->scale[g];
    }
}

/* Write the requested part of output row o, from input k on, as values into dst. */
static void put_row(const struct strip *s, int64_t o, int64_t k, int64_t n)
{
    const struct quant_part *p = s->p;
    int64_t at = (s->first + o) * p->columns + k - s->start, skip = at < 0 ? -at : 0;
    enum ckpt_dtype dtype = p->seen.dtype;
    float value[TILE];

    n = n < s->count - at ? n : s->count - at;
    if (n <= skip)
        return;
    work_out(value, s, o, k, n);
    ckpt_convert(s->dst + (size_t)(at + skip) * ckpt_dtype_size(dtype), dtype, value + skip,
                 CKPT_F32, (size_t)(n - skip));
}

static int read_strip(struct strip *s, struct ckpt_err *err)
{
    const struct quant_part *p = s->p;
    int rc;

    if ((rc = load_groups(s, err)) != 0)
        return rc;
    for (int64_t k = 0; k < p->columns; k += TILE) {
        int64_t n = p->columns - k < TILE ? p->columns - k : TILE;

        if ((rc = load_tile(s, k, n, err)) != 0)
            return rc;
        for (int64_t o = 0; o < s->n; o++)
            put_row(s, o, k, n);
    }
    return 0;
}

/* Outputs of a strip: as many as the limit of scales allows, in whole words. */
static int64_t strip_size(const struct quant_part *p)
{
    int64_t n = STRIP_SCALES / p->grid[0];

    n = n < MAX_STRIP ? n - n % 16 : MAX_STRIP;
    return n < 16 ? 16 : n;
}

int quant_read_words(struct ckpt_source *src, const struct quant_part *p, int64_t start,
                     int64_t count, void *dst, struct ckpt_err *err)
{
    struct strip s = {.src = src, .p = p, .start = start, .count = count, .dst = dst};
    int64_t per = 32 / (int64_t)p->bits, most = strip_size(p);
    int64_t o = start / p->columns, end = (start + count - 1) / p->columns + 1;
    size_t scales, words;
    int rc = 0;

    o -= o % per;
    end = end + (per - end % per) % per;        /* rows are whole words: not beyond them */
    most = end - o < most ? end - o : most;
    scales = (size_t)(p->grid[0] * most) * sizeof(float);
    words = (size_t)(most * TILE) * sizeof(uint32_t);
    s.scale = ckpt_alloc_buffer(scales);
    s.zero = ckpt_alloc_buffer(scales);
    s.words = ckpt_alloc_buffer(words);
    if (!s.scale || !s.zero || !s.words)
        rc = ckpt_nomem(err, scales + words);
    if (rc == 0)
        rc = quant_read_order(&s.order, src, p, p->grid[0], err);
    for (; rc == 0 && o < end; o += s.n) {
        s.first = o;
        s.n = end - o < most ? end - o : most;
        rc = read_strip(&s, err);
    }
    ckpt_free(s.scale);
    ckpt_free(s.zero);
    ckpt_free(s.words);
    ckpt_free(s.order);
    return rc;
}

/* bnb - see bnb.h. */
#include "formats/bnb/bnb.h"

#include "formats/bnb/parts.h"
#include "libckpt/convert.h"

#define PIECE  8192             /* elements dequantised at a time */
#define WINDOW 256              /* scales held at a time */

/* Scales of consecutive blocks. */
struct scales {
    struct ckpt_source    *src;
    const struct bnb_part *p;
    int64_t                from, n;
    float                  value[WINDOW];
};

static int fill(struct scales *s, int64_t k, struct ckpt_err *err)
{
    const struct bnb_part *p = s->p;
    unsigned char code[WINDOW];
    float outer = 0;
    int64_t at = -1;
    int rc;

    s->from = k;
    s->n = p->n_scale - k < WINDOW ? p->n_scale - k : WINDOW;
    if (!p->nested_map)
        return quant_read_scales(s->value, s->src, p->scale, k, s->n, err);
    if ((rc = ckpt_source_read(s->src, p->scale, k, s->n, code, err)) != 0)
        return rc;
    for (int64_t i = 0; i < s->n; i++) {
        if ((k + i) / p->nested_block != at) {
            at = (k + i) / p->nested_block;
            if ((rc = quant_read_scales(&outer, s->src, p->nested_scale, at, 1, err)) != 0)
                return rc;
        }
        s->value[i] = p->nested_map[code[i]] * outer + p->offset;
    }
    return 0;
}

/* The scale of block k, or of row k. */
static int scale_of(struct scales *s, int64_t k, float *out, struct ckpt_err *err)
{
    int rc;

    if ((k < s->from || k >= s->from + s->n) && (rc = fill(s, k, err)) != 0)
        return rc;
    *out = s->value[k - s->from];
    return 0;
}

/* Read the codes of elements [at, at + n), one per byte. */
static int read_codes(struct ckpt_source *src, const struct bnb_part *p, int64_t at, int64_t n,
                      unsigned char *code, struct ckpt_err *err)
{
    unsigned char raw[PIECE / 2 + 32];
    int64_t width, first, last;
    int rc;

    if (p->kind != BNB_NIBBLES)
        return ckpt_source_read(src, p->seen.codes, at, n, code, err);
    width = (int64_t)ckpt_dtype_size(ckpt_source_tensor(src, p->seen.codes)->dtype);
    first = at / 2 / width;
    last = (at + n - 1) / 2 / width;
    if ((rc = ckpt_source_read(src, p->seen.codes, first, last - first + 1, raw, err)) != 0)
        return rc;
    for (int64_t i = 0; i < n; i++) {
        unsigned char byte = raw[(at + i) / 2 - first * width];

        code[i] = (at + i) % 2 ? byte & 15 : byte >> 4;
    }
    return 0;
}

/* Dequantise elements [at, at + n), n at most a piece. */
static int work_out(struct scales *s, int64_t at, int64_t n, float *value, struct ckpt_err *err)
{
    const struct bnb_part *p = s->p;
    unsigned char code[PIECE];
    int64_t i = 0;
    int rc;

    if ((rc = read_codes(s->src, p, at, n, code, err)) != 0)
        return rc;
    while (i < n) {                     /* a run of elements with one scale */
        int64_t slice = (at + i) / p->slice, in = (at + i) % p->slice;
        int64_t k = slice * p->scales_of_slice + in / p->block;
        int64_t end = in - in % p->block + p->block, run;
        float scale;

        end = end < p->slice ? end : p->slice;
        run = end - in < n - i ? end - in : n - i;
        if ((rc = scale_of(s, k, &scale, err)) != 0)
            return rc;
        if (p->kind == BNB_INT8)
            for (int64_t j = 0; j < run; j++)
                value[i + j] = (float)(int8_t)code[i + j] * scale * 7.874015718698502e-3f;
        else
            for (int64_t j = 0; j < run; j++)
                value[i + j] = p->map[code[i + j]] * scale;
        i += run;
    }
    return 0;
}

static int bnb_read(struct ckpt_source *src, const void *part, int64_t start, int64_t count,
                    void *dst, struct ckpt_err *err)
{
    const struct bnb_part *p = part;
    struct scales s = {.src = src, .p = p};
    size_t width = ckpt_dtype_size(p->seen.dtype);
    float value[PIECE];
    int rc;

    for (int64_t at = 0; at < count; at += PIECE) {
        int64_t n = count - at < PIECE ? count - at : PIECE;

        if ((rc = work_out(&s, start + at, n, value, err)) != 0)
            return rc;
        ckpt_convert((unsigned char *)dst + (size_t)at * width, p->seen.dtype, value, CKPT_F32,
                     (size_t)n);
    }
    return 0;
}

size_t bnb_count(const struct ckpt_source *src, const char **what)
{
    size_t n = 0;

    *what = NULL;
    if (!bnb_hint(src))
        return 0;
    for (size_t i = 0; i < ckpt_source_count(src); i++) {
        const char *kind = bnb_kind(src, i);

        if (kind && !*what)
            *what = kind;
        n += kind != NULL;
    }
    return n;
}

int bnb_view(struct ckpt_source **out, struct ckpt_source *src, struct ckpt_err *err)
{
    struct quant_seen_list list = {.size = sizeof(struct bnb_part), .read = bnb_read};
    const char *what;
    int rc;

    if (bnb_count(src, &what) == 0) {
        *out = src;
        return 0;
    }
    rc = bnb_parts(&list, src, err);
    return quant_seen_view(out, src, &list, rc, err);
}

/* bnb - see bnb.h. */
#include "formats/bnb/bnb.h"

#include <math.h>
#include <string.h>

#include "formats/bnb/parts.h"
#include "libckpt/convert.h"

#define PIECE  8192             /* elements worked out at once */
#define WINDOW 256              /* scales held at once */

struct bnb {
    struct ckpt_source *below;
    struct bnb_part    *part;   /* [n], in the list's arena */
};

/* Scales of neighbouring blocks. */
struct scales {
    const struct bnb     *b;
    const struct bnb_part *p;
    int64_t               from, n;
    float                 value[WINDOW];
};

/* n floats of a tensor of any floating dtype. */
static int read_floats(struct ckpt_source *src, size_t i, int64_t start, int64_t n, float *dst,
                       struct ckpt_err *err)
{
    unsigned char raw[WINDOW * 8];
    enum ckpt_dtype t = ckpt_source_tensor(src, i)->dtype;
    int rc;

    if ((rc = ckpt_source_read(src, i, start, n, raw, err)) != 0)
        return rc;
    ckpt_convert(dst, CKPT_F32, raw, t, (size_t)n);
    return 0;
}

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
        return read_floats(s->b->below, p->scale, k, s->n, s->value, err);
    if ((rc = ckpt_source_read(s->b->below, p->scale, k, s->n, code, err)) != 0)
        return rc;
    for (int64_t i = 0; i < s->n; i++) {
        if ((k + i) / p->nested_block != at) {
            at = (k + i) / p->nested_block;
            if ((rc = read_floats(s->b->below, p->nested_scale, at, 1, &outer, err)) != 0)
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

/* The codes of elements [at, at + n), one a byte. */
static int read_codes(const struct bnb *b, const struct bnb_part *p, int64_t at, int64_t n,
                      unsigned char *code, struct ckpt_err *err)
{
    unsigned char raw[PIECE / 2 + 32];
    int64_t width, first, last;
    int rc;

    if (p->kind != BNB_NIBBLES)
        return ckpt_source_read(b->below, p->codes, at, n, code, err);
    width = (int64_t)ckpt_dtype_size(ckpt_source_tensor(b->below, p->codes)->dtype);
    first = at / 2 / width;
    last = (at + n - 1) / 2 / width;
    if ((rc = ckpt_source_read(b->below, p->codes, first, last - first + 1, raw, err)) != 0)
        return rc;
    for (int64_t i = 0; i < n; i++) {
        unsigned char byte = raw[(at + i) / 2 - first * width];

        code[i] = (at + i) % 2 ? byte & 15 : byte >> 4;
    }
    return 0;
}

/* Values of elements [at, at + n), n at most a piece. */
static int work_out(struct scales *s, int64_t at, int64_t n, float *value, struct ckpt_err *err)
{
    const struct bnb_part *p = s->p;
    unsigned char code[PIECE];
    int64_t i = 0;
    int rc;

    if ((rc = read_codes(s->b, p, at, n, code, err)) != 0)
        return rc;
    while (i < n) {                     /* a run of one scale */
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

static int bnb_read(void *self, size_t i, int64_t start, int64_t count, void *dst,
                    struct ckpt_err *err)
{
    const struct bnb *b = self;
    const struct bnb_part *p = &b->part[i];
    struct scales s = {.b = b, .p = p};
    size_t width = ckpt_dtype_size(p->dtype);
    float value[PIECE];
    int rc;

    if (p->kind == BNB_PLAIN)
        return ckpt_source_read(b->below, p->codes, start, count, dst, err);
    for (int64_t at = 0; at < count; at += PIECE) {
        int64_t n = count - at < PIECE ? count - at : PIECE;

        if ((rc = work_out(&s, start + at, n, value, err)) != 0)
            return rc;
        ckpt_convert((unsigned char *)dst + (size_t)at * width, p->dtype, value, CKPT_F32,
                     (size_t)n);
    }
    return 0;
}

static bool bnb_locate(void *self, size_t i, int64_t start, int64_t count,
                       struct ckpt_extent *out)
{
    const struct bnb *b = self;

    return b->part[i].kind == BNB_PLAIN &&
           ckpt_source_locate(b->below, b->part[i].codes, start, count, out);
}

static void bnb_close(void *self)
{
    struct bnb *b = self;

    ckpt_source_close(b->below);
    ckpt_free(b);
}

static const struct ckpt_source_ops ops = {
    .format = "view", .read = bnb_read, .locate = bnb_locate, .close = bnb_close,
};

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

static int add_parts(struct bnb *b, struct ckpt_tensors *list, struct ckpt_err *err)
{
    size_t n = 0;
    int rc;

    if ((rc = bnb_parts(&b->part, &n, b->below, &list->arena, err)) != 0)
        return rc;
    for (size_t i = 0; i < n; i++) {
        const struct bnb_part *p = &b->part[i];
        const struct ckpt_tensor *below = ckpt_source_tensor(b->below, p->codes);
        struct ckpt_tensor *t;

        if ((rc = ckpt_tensors_add(list, &t, p->name, strlen(p->name), p->dtype, &p->shape,
                                   NULL, 0, p->kind == BNB_PLAIN && below->flat, err)) != 0)
            return rc;
        t->kind = below->kind;
    }
    return 0;
}

int bnb_view(struct ckpt_source **out, struct ckpt_source *src, struct ckpt_err *err)
{
    struct ckpt_tensors list = {0};
    const struct ckpt_extra *extra;
    size_t n_extra = ckpt_source_extras(src, &extra);
    json_t *info = json_incref((json_t *)ckpt_source_info(src));
    const char *what;
    struct bnb *b;
    int rc;

    *out = NULL;
    if (bnb_count(src, &what) == 0) {
        json_decref(info);
        *out = src;
        return 0;
    }
    b = ckpt_alloc(1, sizeof *b);
    if (b)
        b->below = src;
    rc = b ? add_parts(b, &list, err) : ckpt_nomem(err, sizeof *b);
    if (rc) {
        json_decref(info);
        ckpt_tensors_release(&list);
        ckpt_source_close(src);
        ckpt_free(b);
        return rc;
    }
    return ckpt_source_new(out, &ops, b, &list, extra, n_extra, info, err);
}

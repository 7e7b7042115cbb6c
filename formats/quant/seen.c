/* quant/seen - see quant/seen.h. */
#include "formats/quant/seen.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "libckpt/convert.h"
#include "libckpt/views/views.h"

#define SCALES 1024             /* read at once */

struct seen {
    struct view    v;
    const char    *part;
    size_t         size;
    quant_seen_fn *read;
};

static const struct quant_seen *part_of(const struct seen *s, size_t i)
{
    return (const void *)(s->part + i * s->size);
}

static int seen_read(void *self, size_t i, int64_t start, int64_t count, void *dst,
                     struct ckpt_err *err)
{
    const struct seen *s = self;
    const struct quant_seen *p = part_of(s, i);

    return p->packed ? s->read(s->v.below, p, start, count, dst, err)
                     : ckpt_source_read(s->v.below, p->codes, start, count, dst, err);
}

static bool seen_locate(void *self, size_t i, int64_t start, int64_t count,
                        struct ckpt_extent *out)
{
    const struct seen *s = self;
    const struct quant_seen *p = part_of(s, i);

    return !p->packed && ckpt_source_locate(s->v.below, p->codes, start, count, out);
}

static const struct ckpt_source_ops ops = {
    .format = "view", .read = seen_read, .locate = seen_locate, .close = view_close,
};

static int fill(struct seen *s, struct quant_seen_list *list, struct ckpt_err *err)
{
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < list->n; i++) {
        const struct quant_seen *p = part_of(s, i);
        const struct ckpt_tensor *below = ckpt_source_tensor(s->v.below, p->codes);
        struct ckpt_tensor *t;

        rc = ckpt_tensors_add(&list->tensors, &t, p->name, strlen(p->name), p->dtype, &p->shape,
                              NULL, 0, !p->packed && below->flat, err);
        if (rc == 0) {
            t->kind = below->kind;
            t->unread = below->unread;
            s->v.map[i] = p->codes;
        }
    }
    if (rc == 0)
        rc = view_tie(&s->v, &list->tensors, err);
    for (size_t i = 0; rc == 0 && i < list->n; i++)
        if (part_of(s, i)->packed)
            list->tensors.item[i].alias_of = i;     /* scales of its own */
    return rc;
}

int quant_seen_view(struct ckpt_source **out, struct ckpt_source *src,
                    struct quant_seen_list *list, int rc, struct ckpt_err *err)
{
    struct view *v = NULL;
    struct seen *s;

    *out = NULL;
    if (rc)
        ckpt_source_close(src);
    else
        rc = view_new(&v, sizeof *s, src, list->n, err);
    if (rc) {
        ckpt_tensors_release(&list->tensors);
        return rc;
    }
    s = (struct seen *)v;
    s->part = list->part;
    s->size = list->size;
    s->read = list->read;
    return view_finish(out, &ops, v, &list->tensors, fill(s, list, err), err);
}

size_t quant_beside(const struct ckpt_source *src, const char *base, size_t n, const char *tail)
{
    char name[CKPT_MAX_NAME + 1];
    int len = snprintf(name, sizeof name, "%.*s%s", (int)n, base, tail);

    return len > 0 && (size_t)len < sizeof name ? ckpt_source_find(src, name) : QUANT_NONE;
}

size_t quant_stem(const char *name, const char *tail)
{
    size_t n = strlen(name), k = strlen(tail);

    return n > k && strcmp(name + n - k, tail) == 0 ? n - k : 0;
}

/* 2^(byte - 127), 255 is NaN. */
static float of_e8m0(unsigned char b) { return b == 255 ? NAN : ldexpf(1.0f, b - 127); }

int quant_read_scales(float *dst, struct ckpt_source *src, size_t i, int64_t start, int64_t n,
                      struct ckpt_err *err)
{
    enum ckpt_dtype t = ckpt_source_tensor(src, i)->dtype;
    unsigned char raw[SCALES * 8];
    int rc;

    for (int64_t at = 0; at < n; at += SCALES) {
        int64_t some = n - at < SCALES ? n - at : SCALES;

        if ((rc = ckpt_source_read(src, i, start + at, some, raw, err)) != 0)
            return rc;
        if (t != CKPT_F8_E8M0)
            ckpt_convert(dst + at, CKPT_F32, raw, t, (size_t)some);
        for (int64_t k = 0; t == CKPT_F8_E8M0 && k < some; k++)
            dst[at + k] = of_e8m0(raw[k]);
    }
    return 0;
}

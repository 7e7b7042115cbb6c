/* views/cast - a source in another dtype; see view.h. */
#include <fnmatch.h>
#include <math.h>
#include <string.h>

#include "libckpt/convert.h"
#include "libckpt/log.h"
#include "libckpt/views/views.h"

#define STAGE_BYTES 65536u      /* buffer for reads that become narrower */
#define BLOCK_BYTES 4096u       /* fits in the L1 cache */

static int cast_read(void *self, size_t i, int64_t start, int64_t count, void *dst,
                     struct ckpt_err *err);
static void cast_close(void *self);
static bool cast_locate(void *self, size_t i, int64_t start, int64_t count,
                        struct ckpt_extent *out);

/* A view, and the dtype of each tensor. */
struct cast {
    struct view      view;      /* first: view_close frees both as one block */
    enum ckpt_dtype *to;        /* lives in the list's arena */
    bool            *over;      /* finite values became infinite; set by any thread */
};

static const struct ckpt_source_ops cast_ops = {
    .format = "view", .read = cast_read, .locate = cast_locate, .close = cast_close,
};

const struct ckpt_cast_rule *ckpt_view_cast_rule(const struct ckpt_tensor *t,
                                                 const struct ckpt_cast_rule *rule,
                                                 size_t n_rule)
{
    const struct ckpt_cast_rule *last = NULL;

    for (size_t k = 0; k < n_rule; k++)
        if ((ckpt_dtype_class(t->dtype) == CKPT_CLASS_FLOAT ||
             strcmp(rule[k].glob, t->name) == 0) &&
            fnmatch(rule[k].glob, t->name, 0) == 0)
            last = &rule[k];
    return last;
}

static bool has_infinite_f16(const unsigned char *p, size_t n)
{
    unsigned found = 0;
    uint16_t v;

    for (size_t j = 0; j < n; j++) {
        memcpy(&v, p + j * sizeof v, sizeof v);
        found |= (v & 0x7fff) == 0x7c00;
    }
    return found;
}

/* Notice finite values of src that are infinite in dst.  Of dtypes that are written only F16 has a
 * range that weights exceed. */
static void notice(struct cast *c, size_t i, const unsigned char *dst, const unsigned char *src,
                   enum ckpt_dtype from, size_t n)
{
    double v[256];

    if (c->to[i] != CKPT_F16 || !ckpt_convert_can(CKPT_F64, from) || !has_infinite_f16(dst, n))
        return;
    for (size_t j = 0, k; j < n; j += k) {
        k = n - j < sizeof v / sizeof v[0] ? n - j : sizeof v / sizeof v[0];
        ckpt_convert(v, CKPT_F64, src + j * ckpt_dtype_size(from), from, k);
        for (size_t m = 0; m < k; m++)
            if (isfinite(v[m]) && has_infinite_f16(dst + (j + m) * 2, 1))
                __atomic_store_n(&c->over[i], true, __ATOMIC_RELAXED);
    }
}

static void cast_close(void *self)
{
    struct cast *c = self;
    const char *first = NULL;
    size_t n = 0;

    for (size_t i = 0; c->over && i < ckpt_source_count(c->view.below); i++)
        if (c->over[i] && n++ == 0)
            first = ckpt_source_tensor(c->view.below, c->view.map[i])->name;
    if (n == 1)
        ckpt_log(CKPT_LOG_WARNING, "tensor %s: values beyond 65504 are infinite in F16; BF16 and "
                 "F32 hold them", first);
    else if (n > 1)
        ckpt_log(CKPT_LOG_WARNING, "tensor %s and %zu more: values beyond 65504 are infinite in "
                 "F16; BF16 and F32 hold them", first, n - 1);
    ckpt_free(c->over);
    view_close(c);
}

/*
 * Convert to elements at least as wide: read all of them into the rear of dst at once, then
 * convert from the front.  A result never overwrites elements that are not converted yet, since
 * the gap between both closes only at the last element; each block is copied to a buffer first.
 */
static int cast_wider(struct cast *c, size_t i, int64_t start, int64_t count,
                      unsigned char *dst, enum ckpt_dtype from, struct ckpt_err *err)
{
    size_t in = ckpt_dtype_size(from), width = ckpt_dtype_size(c->to[i]);
    unsigned char *rear = dst + (size_t)count * (width - in);
    _Alignas(64) unsigned char block[BLOCK_BYTES];
    int64_t step = (int64_t)(sizeof block / in);
    int rc;

    if ((rc = ckpt_source_read(c->view.below, c->view.map[i], start, count, rear, err)) != 0)
        return rc;
    for (int64_t at = 0; at < count; at += step) {
        size_t n = (size_t)(count - at < step ? count - at : step);

        memcpy(block, rear + (size_t)at * in, n * in);
        ckpt_convert(dst + (size_t)at * width, c->to[i], block, from, n);
        notice(c, i, dst + (size_t)at * width, block, from, n);
    }
    return 0;
}

static int cast_narrower(struct cast *c, size_t i, int64_t start, int64_t count,
                         unsigned char *dst, enum ckpt_dtype from, struct ckpt_err *err)
{
    size_t in = ckpt_dtype_size(from), width = ckpt_dtype_size(c->to[i]);
    _Alignas(64) unsigned char stage[STAGE_BYTES];
    int64_t step = (int64_t)(sizeof stage / in);
    int rc;

    for (int64_t at = 0; at < count; at += step) {
        int64_t n = count - at < step ? count - at : step;

        if ((rc = ckpt_source_read(c->view.below, c->view.map[i], start + at, n, stage,
                                   err)) != 0)
            return rc;
        ckpt_convert(dst + (size_t)at * width, c->to[i], stage, from, (size_t)n);
        notice(c, i, dst + (size_t)at * width, stage, from, (size_t)n);
    }
    return 0;
}

static int cast_read(void *self, size_t i, int64_t start, int64_t count, void *dst,
                     struct ckpt_err *err)
{
    struct cast *c = self;
    enum ckpt_dtype from = ckpt_source_tensor(c->view.below, c->view.map[i])->dtype;

    if (c->to[i] == from)
        return ckpt_source_read(c->view.below, c->view.map[i], start, count, dst, err);
    return ckpt_dtype_size(c->to[i]) < ckpt_dtype_size(from)
               ? cast_narrower(c, i, start, count, dst, from, err)
               : cast_wider(c, i, start, count, dst, from, err);
}

static bool cast_locate(void *self, size_t i, int64_t start, int64_t count,
                        struct ckpt_extent *out)
{
    struct cast *c = self;

    return c->to[i] == ckpt_source_tensor(c->view.below, c->view.map[i])->dtype &&
           ckpt_source_locate(c->view.below, c->view.map[i], start, count, out);
}

int ckpt_view_cast_by(struct ckpt_source **out, struct ckpt_source *src, ckpt_cast_fn *to,
                      const void *ctx, struct ckpt_err *err)
{
    size_t n = ckpt_source_count(src);
    struct ckpt_tensors list = {0};
    struct cast *c;
    struct view *v;
    int rc = view_new(&v, sizeof *c, src, n, err);

    *out = NULL;
    if (rc)
        return rc;
    c = (struct cast *)v;
    c->to = ckpt_arena_alloc(&list.arena, n, sizeof *c->to);
    c->over = ckpt_alloc(n, sizeof *c->over);
    if (!c->to || !c->over)
        rc = ckpt_nomem(err, n * sizeof *c->to);
    for (size_t i = 0; rc == 0 && i < n; i++) {
        const struct ckpt_tensor *t = ckpt_source_tensor(src, i);

        c->to[i] = to(ctx, t);
        if (!ckpt_convert_can(c->to[i], t->dtype) && t->dtype != c->to[i])
            rc = ckpt_fail(err, CKPT_EUNSUPPORTED, "tensor %s: %s cannot be cast to %s",
                           t->name, ckpt_dtype_name(t->dtype), ckpt_dtype_name(c->to[i]));
        else
            rc = view_add(v, &list, i, t->name, c->to[i], err);
    }
    if (rc == 0)
        rc = view_tie(v, &list, err);
    return view_finish(out, &cast_ops, v, &list, rc, err);
}

struct rules {
    const struct ckpt_cast_rule *rule;
    size_t                       n;
};

static enum ckpt_dtype by_rules(const void *ctx, const struct ckpt_tensor *t)
{
    const struct rules *r = ctx;
    const struct ckpt_cast_rule *how = ckpt_view_cast_rule(t, r->rule, r->n);

    return how ? how->dtype : t->dtype;
}

int ckpt_view_cast(struct ckpt_source **out, struct ckpt_source *src,
                   const struct ckpt_cast_rule *rule, size_t n_rule, struct ckpt_err *err)
{
    return ckpt_view_cast_by(out, src, by_rules, &(struct rules){rule, n_rule}, err);
}

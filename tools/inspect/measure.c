/* measure - statistics and digests of tensors, in pieces of bounded size; see inspect.h. */
#include <math.h>
#include <string.h>

#include "tools/inspect/inspect.h"

#define PIECE_BYTES ((size_t)4 << 20)

/* Call fn for every piece of tensor i, as stored or (wide) as f64. */
typedef int piece_fn(void *ctx, const void *data, int64_t n, struct ckpt_err *err);

static int for_pieces(struct ckpt_source *src, size_t i, bool wide, piece_fn *fn, void *ctx,
                      struct ckpt_err *err)
{
    const struct ckpt_tensor *t = ckpt_source_tensor(src, i);
    size_t width = ckpt_dtype_size(t->dtype);
    int64_t step = (int64_t)(PIECE_BYTES / (wide ? 8 : width ? width : 1));
    void *raw = ckpt_alloc_buffer(PIECE_BYTES), *f = wide ? ckpt_alloc_buffer(PIECE_BYTES) : NULL;
    int rc = raw && (f || !wide) ? 0 : ckpt_nomem(err, PIECE_BYTES);

    if (rc == 0 && wide && !ckpt_convert_can(CKPT_F64, t->dtype))
        rc = ckpt_fail(err, CKPT_EUNSUPPORTED, "tensor %s: %s has no numbers to measure", t->name,
                       ckpt_dtype_name(t->dtype));
    for (int64_t at = 0; rc == 0 && at < t->numel; at += step) {
        int64_t n = t->numel - at < step ? t->numel - at : step;

        rc = ckpt_source_read(src, i, at, n, raw, err);
        if (rc == 0 && wide)
            ckpt_convert(f, CKPT_F64, raw, t->dtype, (size_t)n);
        if (rc == 0)
            rc = fn(ctx, wide ? f : raw, n, err);
    }
    ckpt_free(raw);
    ckpt_free(f);
    return rc;
}

/* Welford's running mean and sum of squared differences. */
struct running {
    struct tensor_stats *s;
    double               m2;
};

static int add_stats(void *ctx, const void *data, int64_t n, struct ckpt_err *err)
{
    struct running *r = ctx;
    const double *v = data;

    (void)err;
    for (int64_t k = 0; k < n; k++) {
        double d;

        if (isnan(v[k])) {
            r->s->n_nan++;
        } else if (isinf(v[k])) {
            r->s->n_inf++;
        } else {
            r->s->min = r->s->n == 0 || v[k] < r->s->min ? v[k] : r->s->min;
            r->s->max = r->s->n == 0 || v[k] > r->s->max ? v[k] : r->s->max;
            d = v[k] - r->s->mean;
            r->s->mean += d / (double)++r->s->n;
            r->m2 += d * (v[k] - r->s->mean);
        }
    }
    return 0;
}

int tensor_stats(struct tensor_stats *s, struct ckpt_source *src, size_t i, struct ckpt_err *err)
{
    struct running r = {.s = s};

    memset(s, 0, sizeof *s);
    if (for_pieces(src, i, true, add_stats, &r, err))
        return err->code;
    s->std = s->n > 1 ? sqrt(r.m2 / (double)(s->n - 1)) : 0;
    return 0;
}

struct digesting {
    struct ckpt_sha256 *sha;
    size_t              width;
};

static int add_digest(void *ctx, const void *data, int64_t n, struct ckpt_err *err)
{
    struct digesting *d = ctx;

    return ckpt_sha256_add(d->sha, data, (size_t)n * d->width, err);
}

int tensor_digest(char hex[CKPT_SHA256_HEX], struct ckpt_source *src, size_t i,
                  struct ckpt_err *err)
{
    struct digesting d = {.width = ckpt_dtype_size(ckpt_source_tensor(src, i)->dtype)};
    unsigned char digest[CKPT_SHA256_BYTES];
    int rc = ckpt_sha256_new(&d.sha, err);

    if (rc == 0)
        rc = for_pieces(src, i, false, add_digest, &d, err);
    if (rc == 0)
        rc = ckpt_sha256_end(d.sha, digest, err);
    if (rc == 0)
        ckpt_hex(hex, digest, sizeof digest);
    ckpt_sha256_free(d.sha);
    return rc;
}

/* lora/factors - see lora/factors.h. */
#include "libckpt/lora/factors.h"

#include <math.h>
#include <pthread.h>
#include <string.h>

#include "libckpt/convert.h"
#include "libckpt/lora/ring.h"

#define STAY   16               /* unused pairs that stay loaded */
#define CHUNK  ((int64_t)65536) /* elements of W read at a time for the norms of DoRA */
#define STAGE  4096             /* elements of another dtype read at a time */
#define WIDEST 16               /* bytes of the widest element */

/* A loaded pair, as used by lora_product. */
struct loaded {
    float *panel, *coef, *stretch;
};

/* B whose columns are shared out among many pairs (experts): read once for neighbours. */
struct shared_b {
    pthread_mutex_t           lock;
    const struct ckpt_source *adapter;
    size_t                    b;
    unsigned char            *raw;
};

struct lora_factors {
    lora_read_fn       *read_w;
    void               *ctx;
    struct lora_pair   *pair;
    size_t              n;
    struct loaded      *loaded;
    struct lora_ring   *ring;
    struct shared_b     shared;
};

/* Keep the DoRA factors: computing them takes a pass over W. */
static void unload(void *ctx, size_t i)
{
    struct loaded *s = &((struct lora_factors *)ctx)->loaded[i];

    ckpt_free(s->panel);
    ckpt_free(s->coef);
    s->panel = s->coef = NULL;
}

static int load_pair(void *ctx, size_t i, struct ckpt_err *err);

static const struct lora_ring_ops ring_ops = {.load = load_pair, .unload = unload};

int lora_factors_new(struct lora_factors **out, const struct lora_pair *pair, size_t n,
                     lora_read_fn *read_w, void *ctx, struct ckpt_err *err)
{
    struct lora_factors *f = ckpt_alloc(1, sizeof *f);
    int rc;

    *out = NULL;
    if (!f)
        return ckpt_nomem(err, sizeof *f);
    pthread_mutex_init(&f->shared.lock, NULL);
    f->read_w = read_w;
    f->ctx = ctx;
    f->n = n;
    f->pair = ckpt_alloc(n, sizeof *f->pair);
    f->loaded = ckpt_alloc(n, sizeof *f->loaded);
    rc = f->pair && f->loaded ? lora_ring_new(&f->ring, n, STAY, &ring_ops, f, err)
                              : ckpt_nomem(err, n * sizeof *f->pair);
    if (rc) {
        lora_factors_free(f);
        return rc;
    }
    memcpy(f->pair, pair, n * sizeof *pair);
    *out = f;
    return 0;
}

void lora_factors_free(struct lora_factors *f)
{
    if (!f)
        return;
    lora_ring_free(f->ring);
    for (size_t i = 0; f->loaded && i < f->n; i++)
        ckpt_free(f->loaded[i].stretch);
    pthread_mutex_destroy(&f->shared.lock);
    ckpt_free(f->shared.raw);
    ckpt_free(f->loaded);
    ckpt_free(f->pair);
    ckpt_free(f);
}

/* -- loading --------------------------------------------------------------------------------- */

int lora_read_as(void *dst, enum ckpt_dtype to, struct ckpt_source *src, size_t i, int64_t start,
                 int64_t n, struct ckpt_err *err)
{
    enum ckpt_dtype from = ckpt_source_tensor(src, i)->dtype;
    size_t width = ckpt_dtype_size(to);
    CKPT_UNSET _Alignas(64) unsigned char stage[STAGE * WIDEST];
    int rc;

    if (to == from)
        return ckpt_source_read(src, i, start, n, dst, err);
    for (int64_t at = 0; at < n; at += STAGE) {
        int64_t k = n - at < STAGE ? n - at : STAGE;

        if ((rc = ckpt_source_read(src, i, start + at, k, stage, err)) != 0)
            return rc;
        ckpt_convert((unsigned char *)dst + (size_t)at * width, to, stage, from, (size_t)k);
    }
    return 0;
}

/* Elements [first, first + n) of a tensor as f32. */
static int load(float **out, struct ckpt_source *src, size_t i, int64_t first, int64_t n,
                struct ckpt_err *err)
{
    float *f = ckpt_alloc_buffer((size_t)n * sizeof *f);
    int rc = f ? lora_read_as(f, CKPT_F32, src, i, first, n, err)
               : ckpt_nomem(err, (size_t)n * sizeof *f);

    if (rc == 0)
        *out = f;
    else
        ckpt_free(f);
    return rc;
}

static int load_shared(struct shared_b *s, const struct lora_pair *p, struct ckpt_err *err)
{
    const struct ckpt_tensor *b = ckpt_source_tensor(p->adapter, p->b);
    int rc;

    if (s->raw && s->adapter == p->adapter && s->b == p->b)
        return 0;
    ckpt_free(s->raw);
    s->raw = ckpt_alloc_buffer((size_t)ckpt_tensor_bytes(b));
    if (!s->raw)
        return ckpt_nomem(err, (size_t)ckpt_tensor_bytes(b));
    s->adapter = p->adapter;
    s->b = p->b;
    rc = ckpt_source_read(p->adapter, p->b, 0, b->numel, s->raw, err);
    if (rc) {
        ckpt_free(s->raw);
        s->raw = NULL;
        return rc;
    }
    return 0;
}

/* The pair's own columns of B, [out, r]. */
static int load_columns(float **out, struct lora_factors *f, const struct lora_pair *p,
                        int64_t n_out, struct ckpt_err *err)
{
    const struct ckpt_tensor *b = ckpt_source_tensor(p->adapter, p->b);
    int64_t cols = b->numel / b->shape.dim[0];
    size_t width = ckpt_dtype_size(b->dtype);
    float *m = ckpt_alloc_buffer((size_t)(n_out * p->r) * sizeof *m);
    int rc;

    if (!m)
        return ckpt_nomem(err, (size_t)(n_out * p->r) * sizeof *m);
    pthread_mutex_lock(&f->shared.lock);
    rc = load_shared(&f->shared, p, err);
    for (int64_t i = 0; rc == 0 && i < n_out; i++)
        for (int64_t k = 0; k < p->r; k++)
            ckpt_convert(&m[i * p->r + k], CKPT_F32,
                         f->shared.raw + (size_t)((p->b_row + i) * cols + p->b_col +
                                                  k * p->b_step) * width, b->dtype, 1);
    pthread_mutex_unlock(&f->shared.lock);
    if (rc == 0)
        *out = m;
    else
        ckpt_free(m);
    return rc;
}

static int load_b(float **out, struct lora_factors *f, const struct lora_pair *p, int64_t n_out,
                  struct ckpt_err *err)
{
    const struct ckpt_tensor *b = ckpt_source_tensor(p->adapter, p->b);

    return b->numel == b->shape.dim[0] * p->r
               ? load(out, p->adapter, p->b, p->b_row * p->r, n_out * p->r, err)
               : load_columns(out, f, p, n_out, err);
}

/* m [rows, cols] becomes [cols, rows]. */
static int transpose(float **m, int64_t rows, int64_t cols, struct ckpt_err *err)
{
    float *t = ckpt_alloc_buffer((size_t)(rows * cols) * sizeof *t);

    if (!t)
        return ckpt_nomem(err, (size_t)(rows * cols) * sizeof *t);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < cols; j++)
            t[j * rows + i] = (*m)[i * cols + j];
    ckpt_free(*m);
    *m = t;
    return 0;
}

/* sum[k] += the square of each element of output k. */
static int add_squares(double *sum, const struct lora_product *use, struct lora_factors *f,
                       size_t i, struct ckpt_err *err)
{
    const struct lora_pair *p = &f->pair[i];
    int64_t numel = p->n_row * p->n_col;
    float *w = ckpt_alloc_buffer((size_t)CHUNK * sizeof *w);
    int rc = w ? 0 : ckpt_nomem(err, (size_t)CHUNK * sizeof *w);

    for (int64_t at = 0; rc == 0 && at < numel; at += CHUNK) {
        int64_t n = numel - at < CHUNK ? numel - at : CHUNK;

        rc = f->read_w(f->ctx, i, at, n, w, err);
        if (rc)
            break;
        lora_add_product(w, use, at, n);
        for (int64_t j = 0; j < n; j++)
            sum[p->transposed ? (at + j) % p->n_col : (at + j) / p->n_col] += (double)w[j] * w[j];
    }
    ckpt_free(w);
    return rc;
}

/* DoRA: magnitude / norm of each row of W (its output), norms summed in f64. */
static int load_stretch(struct lora_factors *f, size_t i, const struct lora_product *use,
                        struct ckpt_err *err)
{
    const struct lora_pair *p = &f->pair[i];
    int64_t n_out = p->transposed ? p->n_col : p->n_row;
    double *sum = ckpt_alloc((size_t)n_out, sizeof *sum);
    float *m = NULL;
    int rc = sum ? load(&m, p->adapter, p->magnitude, 0, n_out, err)
                 : ckpt_nomem(err, (size_t)n_out * sizeof *sum);

    if (rc == 0)
        rc = add_squares(sum, use, f, i, err);
    for (int64_t k = 0; rc == 0 && k < n_out; k++)
        m[k] /= (float)sqrt(sum[k]);
    ckpt_free(sum);
    if (rc == 0)
        f->loaded[i].stretch = m;
    else
        ckpt_free(m);
    return rc;
}

static void show(struct lora_product *use, const struct lora_factors *f, size_t i)
{
    const struct lora_pair *p = &f->pair[i];
    const struct loaded *s = &f->loaded[i];

    *use = (struct lora_product){.n_col = p->n_col, .r = p->r, .panel = s->panel, .coef = s->coef,
                                 .scale = p->scale, .stretch = s->stretch,
                                 .by_column = p->transposed};
}

/* Load line and coefficients: A and B, or for a transposed W B and A, both transposed. */
static int load_both(struct loaded *s, struct lora_factors *f, const struct lora_pair *p,
                     struct ckpt_err *err)
{
    int64_t in = p->transposed ? p->n_row : p->n_col;
    int64_t out = p->transposed ? p->n_col : p->n_row;
    float *line = NULL;
    int rc = load(p->transposed ? &s->coef : &line, p->adapter, p->a, p->a_row * in, p->r * in,
                  err);

    if (rc == 0)
        rc = load_b(p->transposed ? &line : &s->coef, f, p, out, err);
    if (rc == 0 && p->transposed) {
        rc = transpose(&s->coef, p->r, in, err);
        if (rc == 0)
            rc = transpose(&line, out, p->r, err);
    }
    if (rc == 0)
        rc = lora_panels(&s->panel, line, p->r, p->n_col, err);
    ckpt_free(line);
    return rc;
}

static int load_pair(void *ctx, size_t i, struct ckpt_err *err)
{
    struct lora_factors *f = ctx;
    struct loaded *s = &f->loaded[i];
    struct lora_product use;
    int rc = load_both(s, f, &f->pair[i], err);

    if (rc == 0 && f->pair[i].magnitude != SIZE_MAX && !s->stretch) {
        show(&use, f, i);
        rc = load_stretch(f, i, &use, err);
    }
    return rc;
}

int lora_factors_begin(struct lora_product *use, struct lora_factors *f, size_t i,
                       struct ckpt_err *err)
{
    int rc = lora_ring_begin(f->ring, i, err);

    if (rc == 0)
        show(use, f, i);
    return rc;
}

void lora_factors_end(struct lora_factors *f, size_t i) { lora_ring_end(f->ring, i); }

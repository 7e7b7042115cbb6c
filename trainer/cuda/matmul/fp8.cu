/*
 * fp8 - see fp8.h.
 *
 * At the end of the workspace, from the end down: the factor made of x, transposed for dw;
 * weights that are not cached; dy, and dy transposed.  They are valid from dx to dw, and x until
 * the next projection with another x.
 */
#include "trainer/cuda/matmul/fp8.h"

#include <stdlib.h>

/*
 * Where 8 bits are faster.  An H200 multiplies them at 1250 TFLOP/s, 16 bits at 680; rounding
 * reads a factor twice and writes it once, five bytes per element at 3.3 TB/s.  So each element
 * of x or of dy must be used by 1130 columns to break even, and by twice that for a gain: WIDE,
 * or NARROW where x is rounded already.  With fewer rows, launches cost as much as 8 bits save.
 */
enum { LEAST_ROWS = 1024, WIDE = 2048, NARROW = 1024 };

enum { CACHED_MOST = 4096, CACHED_PLACES = 2 * CACHED_MOST };
enum { SCALE_X, SCALE_DY, SCALE_W, SCALE_CACHED };

/* A weight stored in 8 bits. */
struct cached_weight {
    const void    *w;                   /* NULL: a free place */
    int64_t        rows, cols;
    unsigned char *plain, *transposed;
    uint64_t       stepped;             /* the device's count of optimizer steps when it was
                                           rounded */
    bool           rounded, frozen;     /* it was; an optimizer does not change it */
    struct fp8_scale *scale;
};

struct fp8 {
    uint32_t         *parts;            /* as fp8_cast expects */
    struct fp8_scale *scale;            /* [SCALE_CACHED + CACHED_MOST] on the device */
    struct cached_weight      *cached;    /* [CACHED_PLACES], hashed */
    int64_t           n_cached;
    const void       *cache;            /* dev->fp8_cache, which holds the weights */
    uint64_t          loaded, taken;    /* dev->loaded when the cache was filled; bytes of it in
                                           use */
    const void       *transposed;       /* dy whose transpose is there; NULL: none */
    const void       *x;                /* x that is there; with x_transposed its transpose too */
    int64_t           n, n_in;          /* of it */
    bool              x_transposed;
};

/* One operation's part of the workspace. */
struct space { unsigned char *x, *w, *dy, *dy_t; };

bool fp8_open(struct cuda_device *d)
{
    const size_t parts = (FP8_PARTS + 1) * sizeof(uint32_t);
    const size_t scales = (SCALE_CACHED + CACHED_MOST) * sizeof(struct fp8_scale);
    struct device *dev = &d->dev;
    struct fp8 *f;

    if (!dev->fp8)
        return true;
    f = d->fp8 = (struct fp8 *)calloc(1, sizeof *f);
    if (f)
        f->cached = (struct cached_weight *)calloc(CACHED_PLACES, sizeof *f->cached);
    if (!f || !f->cached)
        return cuda_ok(dev, "opening", cudaErrorMemoryAllocation);
    return cuda_ok(dev, "opening", cudaMalloc((void **)&f->parts, parts)) &&
           cuda_ok(dev, "opening", cudaMalloc((void **)&f->scale, scales)) &&
           cuda_ok(dev, "opening", cudaMemsetAsync(f->parts, 0, parts, d->stream));
}

void fp8_close(struct cuda_device *d)
{
    struct fp8 *f = d->fp8;

    if (!f)
        return;
    cudaFree(f->parts);
    cudaFree(f->scale);
    free(f->cached);
    free(f);
    d->fp8 = NULL;
}

static int64_t filled(int64_t n) { return (n + 15) / 16 * 16; }

static uint64_t size_of_all(int64_t n, int64_t in, int64_t out, uint64_t weights)
{
    return cuda_align((uint64_t)(filled(n) * in)) + cuda_align(weights) +
           2 * cuda_align((uint64_t)(filled(n) * out));
}

uint64_t fp8_work(const struct device *dev, const struct op_limits *l, int64_t in, int64_t out)
{
    int64_t wide = in > out ? in : out, dim = l->dim > l->n_head * l->head_dim
                                                  ? l->dim
                                                  : l->n_head * l->head_dim;

    return dev->fp8 ? size_of_all(l->n, in, wide, (uint64_t)(dim * wide)) : 0;
}

/* Whether all arrays of the products and casts are aligned to 16 bytes: 8-bit kernels move no
 * less. */
static bool aligned(const struct op_linear *a)
{
    const void *all[] = {a->x,        a->proj.w, a->proj.b, a->out, a->pre,
                         a->residual, a->dout,   a->x_pre,  a->dx,  a->proj.dw};

    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        if (!cuda_aligned(all[i], 16))
            return false;
    return a->out_ld % 8 == 0;
}

/* Also forgets an x other than this one. */
static bool possible(struct device *dev, const struct op_linear *a)
{
    if (dev->err.code || !dev->fp8)
        return false;
    if (!(a->flags & OP_LINEAR_SAME_X))
        cuda_of(dev)->fp8->x = NULL;
    return a->n >= LEAST_ROWS && a->n_in >= NARROW && a->n_out >= NARROW && a->n_in % 16 == 0 &&
           a->n_out % 16 == 0 && aligned(a);
}

/* Whether rounding x pays off. */
static bool x_pays(const struct op_linear *a)
{
    return (a->flags & OP_LINEAR_SAME_X) || a->n_out >= WIDE;
}

/* Whether rounding dy pays off: for dx, and then for dw too. */
static bool dy_pays(const struct op_linear *a) { return a->n_in >= WIDE; }

/* False, and the device marked, when the workspace is too small: our bug. */
static bool open_space(struct space *s, struct device *dev, const struct op_linear *a,
                       const struct matmul_args *p)
{
    uint64_t weights = (uint64_t)(a->n_in * a->n_out);
    uint64_t need = size_of_all(a->n, a->n_in, a->n_out, weights);
    uint64_t end = dev->work_bytes / 256 * 256;
    struct fp8 *f = cuda_of(dev)->fp8;

    if (!cuda_work(dev, p->op, MATMUL_WORK + cuda_align(p->busy) + need))
        return false;
    s->x = (unsigned char *)dev->work + end - cuda_align((uint64_t)(filled(a->n) * a->n_in));
    s->w = s->x - cuda_align(weights);
    s->dy = s->w - cuda_align((uint64_t)(filled(a->n) * a->n_out));
    s->dy_t = s->dy - cuda_align((uint64_t)(filled(a->n) * a->n_out));
    cuda_of(dev)->tail = dev->work_bytes - end + need;
    if (f->n != a->n || f->n_in != a->n_in)
        f->x = NULL;
    f->n = a->n;
    f->n_in = a->n_in;
    return true;
}

/* x rounded, in its layout or transposed. */
static const struct fp8_scale *cast_x(struct device *dev, const struct op_linear *a,
                                      const struct matmul_args *p, const void *x,
                                      const struct space *s, bool transposed)
{
    struct fp8 *f = cuda_of(dev)->fp8;
    struct fp8_cast c = {};

    c.scale = &f->scale[SCALE_X];
    if (f->x == x && f->x_transposed == transposed)
        return c.scale;
    c.x = x;
    c.rows = a->n;
    c.cols = c.ld = a->n_in;
    *(transposed ? &c.transposed : &c.plain) = s->x;
    fp8_cast(dev, p->op, &c, f->parts);
    f->x = x;
    f->x_transposed = transposed;
    return c.scale;
}

/* -- weights ---------------------------------------------------------------------------------- */

/* Position of a weight in the hash table, or its free place. */
static struct cached_weight *seat_of(struct fp8 *f, const void *w)
{
    size_t i = (size_t)((uintptr_t)w * 0x9E3779B97F4A7C15u >> 32) % CACHED_PLACES;

    while (f->cached[i].w && f->cached[i].w != w)
        i = (i + 1) % CACHED_PLACES;
    return &f->cached[i];
}

/* The place of a weight; NULL: it is not cached. */
static struct cached_weight *place_of(struct device *dev, const struct op_linear *a)
{
    struct fp8 *f = cuda_of(dev)->fp8;
    int64_t rows = op_linear_rows(a), cols = op_linear_cols(a);
    uint64_t each = cuda_align((uint64_t)(rows * cols));
    struct cached_weight *k;

    if (f->cache != dev->fp8_cache || f->loaded != dev->loaded) {
        for (size_t i = 0; i < CACHED_PLACES; i++)
            f->cached[i].w = NULL;
        f->cache = dev->fp8_cache;
        f->loaded = dev->loaded;
        f->taken = 0;
        f->n_cached = 0;
    }
    if (!dev->fp8_cache)
        return NULL;
    k = seat_of(f, a->proj.w);
    if (k->w)
        return k->rows == rows && k->cols == cols ? k : NULL;
    if (f->n_cached == CACHED_MOST || f->taken + 2 * each > dev->fp8_cache_bytes)
        return NULL;
    *k = {a->proj.w, rows, cols, (unsigned char *)dev->fp8_cache + f->taken,
          (unsigned char *)dev->fp8_cache + f->taken + each, 0, false, false,
          &f->scale[SCALE_CACHED + f->n_cached++]};
    f->taken += 2 * each;
    return k;
}

/* A captured graph runs again after optimizer steps, which we cannot see. */
static bool fresh(struct device *dev, const struct cached_weight *k)
{
    return k->rounded && (k->frozen || (k->stepped == dev->stepped && !cuda_graph_capturing(dev)));
}

/* The rounded weights with the columns of W innermost, or with transposed its rows; *scale:
 * their scale. */
static const unsigned char *weights(struct device *dev, const struct op_linear *a,
                                    const char *op, unsigned char *to, bool transposed,
                                    struct fp8_scale **scale)
{
    struct fp8 *f = cuda_of(dev)->fp8;
    struct fp8_cast c = {};
    struct cached_weight *k;

    c.rows = op_linear_rows(a);
    c.cols = c.ld = op_linear_cols(a);
    c.x = a->proj.w;
    k = place_of(dev, a);
    *scale = c.scale = k ? k->scale : &f->scale[SCALE_W];
    if (!k) {
        *(transposed ? &c.transposed : &c.plain) = to;
        fp8_cast(dev, op, &c, f->parts);
        return to;
    }
    if (!fresh(dev, k)) {
        c.plain = k->plain;
        c.transposed = k->transposed;
        fp8_cast(dev, op, &c, f->parts);
        k->stepped = dev->stepped;
        k->rounded = true;
        k->frozen = false;
    }
    return transposed ? k->transposed : k->plain;
}

/* An optimizer does not change a weight without a gradient; dw may be computed by a separate
 * call, after the one for dx. */
static void note_gradient(struct device *dev, const struct op_linear *a)
{
    struct fp8 *f = cuda_of(dev)->fp8;
    struct cached_weight *k = f ? seat_of(f, a->proj.w) : NULL;

    if (k && k->w)
        k->frozen = k->rounded && !a->proj.dw;
}

/* -- products --------------------------------------------------------------------------------- */

/* p's factors: A [m, k] and B [n, k], both with k innermost. */
static void factors(struct matmul_args *p, const unsigned char *a, const struct fp8_scale *a_scale,
                    const unsigned char *b, const struct fp8_scale *b_scale, int64_t k)
{
    p->a = a;
    p->b = b;
    p->k = p->lda = p->ldb = k;
    p->a_t = false;
    p->b_t = true;
    p->in = p->in_b = CKPT_F8_E4M3;
    p->scale_a = &a_scale->back;
    p->scale_b = &b_scale->back;
}

static bool wide_gradients(const struct device *dev) { return dev->fp8 == DEVICE_FP8_HYBRID; }

void fp8_fwd(struct device *dev, const struct op_linear *a, struct matmul_args *p)
{
    const struct fp8_scale *x_scale;
    struct fp8_scale *w_scale;
    const unsigned char *w;
    struct space s;

    if (!possible(dev, a) || !x_pays(a) || !open_space(&s, dev, a, p))
        return;
    x_scale = cast_x(dev, a, p, p->a, &s, false);
    w = weights(dev, a, p->op, s.w, op_linear_in_out(a), &w_scale);
    factors(p, s.x, x_scale, w, w_scale, a->n_in);
    p->fast = true;
}

/* Rounding of dy, transposed too where dw is requested. */
static struct fp8_cast cast_dy(struct device *dev, const struct op_linear *a, const void *dy,
                               int64_t ld, const struct space *s)
{
    struct fp8_cast c = {};

    c.x = dy;
    c.rows = a->n;
    c.cols = a->n_out;
    c.ld = ld;
    c.scale = &cuda_of(dev)->fp8->scale[SCALE_DY];
    c.e5m2 = wide_gradients(dev);
    c.plain = s->dy;
    c.transposed = a->proj.dw && x_pays(a) ? s->dy_t : NULL;
    return c;
}

void fp8_dx(struct device *dev, const struct op_linear *a, const void *dy, int64_t ld,
            struct matmul_args *p)
{
    struct fp8 *f = cuda_of(dev)->fp8;
    struct fp8_scale *w_scale;
    const unsigned char *w;
    struct fp8_cast c;
    struct space s;

    if (!possible(dev, a) || !dy_pays(a) || !open_space(&s, dev, a, p))
        return;
    c = cast_dy(dev, a, dy, ld, &s);
    fp8_cast(dev, p->op, &c, f->parts);
    f->transposed = c.transposed ? dy : NULL;
    w = weights(dev, a, p->op, s.w, !op_linear_in_out(a), &w_scale);
    factors(p, s.dy, c.scale, w, w_scale, a->n_out);
    if (c.e5m2)
        p->in = CKPT_F8_E5M2;
}

void fp8_dw(struct device *dev, const struct op_linear *a, const void *dy, int64_t ld,
            struct matmul_args *p)
{
    struct fp8 *f = cuda_of(dev)->fp8;
    const struct fp8_scale *x_scale;
    struct fp8_cast c;
    struct space s;
    bool there;

    note_gradient(dev, a);
    if (!possible(dev, a))
        return;
    there = f->transposed == dy;
    f->transposed = NULL;
    if (!a->proj.dw || !x_pays(a) || !dy_pays(a) || !open_space(&s, dev, a, p))
        return;
    c = cast_dy(dev, a, dy, ld, &s);
    c.plain = NULL;
    if (!there)
        fp8_cast(dev, p->op, &c, f->parts);
    x_scale = cast_x(dev, a, p, a->x, &s, true);
    if (op_linear_in_out(a))
        factors(p, s.x, x_scale, s.dy_t, c.scale, filled(a->n));
    else
        factors(p, s.dy_t, c.scale, s.x, x_scale, filled(a->n));
    if (c.e5m2)
        *(op_linear_in_out(a) ? &p->in_b : &p->in) = CKPT_F8_E5M2;
}

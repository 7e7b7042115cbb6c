/*
 * lora - projections with LoRA, with dropout, or with both.
 *
 * The narrow products t = scale * xd A^T [n, r] and dt = scale * dz B [n, r] are computed once,
 * by rows, and not stored between the passes: recomputing them costs r / n_out of the product
 * itself.  Threads own rows for dx, columns of the output for the gradients of B and of the
 * magnitude, columns of the input for A's.
 */
#include "trainer/cpu/linear.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "trainer/cpu/act.h"
#include "trainer/cpu/drop.h"
#include "trainer/cpu/gemm.h"
#include "trainer/cpu/row_product.h"
#include "trainer/cpu/typed.h"

/* The workspace of one call; NULL: not needed. */
struct space {
    float *t, *dt;              /* [n, r] */
    float *xd, *xr;             /* [n, n_in]: x after dropout; x - xd, and backward's value to be
                                   dropped out */
    float *dy;                  /* [n, n_out]: dout after dropout */
    float *dz, *z;              /* [n, n_out], with a magnitude: W' x before scaling, and its
                                   gradient */
    float *gain, *inv;          /* [n_out]: magnitude / length of the row; 1 / length */
    float *a, *b, *m;           /* 16-bit weights of LoRA as f32 */
    const struct device *dev;
};

/* Floats that a projection of these sizes needs; s gets the arrays from base on. */
static uint64_t lay_out(struct space *s, float *base, int64_t n, int64_t n_in, int64_t n_out,
                        int64_t r, bool drop, bool x_drop, bool magnitude, bool narrow)
{
    uint64_t at = 0, rows = (uint64_t)n;

#define TAKE(field, wanted, floats)                                                            \
    do {                                                                                       \
        if (wanted) {                                                                          \
            if (base)                                                                          \
                s->field = base + at;                                                          \
            at += (floats);                                                                    \
        }                                                                                      \
    } while (0)
    TAKE(t, r > 0, rows * (uint64_t)r);
    TAKE(dt, r > 0, rows * (uint64_t)r);
    TAKE(xd, r > 0 && x_drop, rows * (uint64_t)n_in);
    TAKE(xr, r > 0 && x_drop, 2 * rows * (uint64_t)n_in);
    TAKE(dy, drop, rows * (uint64_t)n_out);
    TAKE(dz, magnitude, rows * (uint64_t)n_out);
    TAKE(z, magnitude, rows * (uint64_t)n_out);
    TAKE(gain, magnitude, (uint64_t)n_out);
    TAKE(inv, magnitude, (uint64_t)n_out);
    TAKE(a, narrow, (uint64_t)(r * n_in));
    TAKE(b, narrow, (uint64_t)(r * n_out));
    TAKE(m, narrow && magnitude, (uint64_t)n_out);
#undef TAKE
    return at;
}

/* Convert a's weights to f32, except the matrix. */
static bool open_space(struct space *s, struct device *dev, struct op_linear *a, bool back,
                       const char *op)
{
    bool narrow = dev->weight != CKPT_F32;
    struct op_lora *l = &a->proj.lora;
    uint64_t floats;

    *s = (struct space){.dev = dev};
    a->proj.b = typed_vector(dev, 0, a->proj.b, a->n_out);
    if (dev->err.code || a->n == 0)
        return false;
    floats = lay_out(s, dev->work, a->n, a->n_in, a->n_out, l->rank, back && a->drop.p > 0,
                     l->drop.p > 0, l->magnitude != NULL, narrow);
    if (cpu_work_short(dev, op, floats * sizeof(float)))
        return false;
    if (narrow && l->rank) {
        typed_wide(dev, s->a, l->a, l->rank * a->n_in);
        typed_wide(dev, s->b, l->b, l->rank * a->n_out);
        if (l->magnitude)
            typed_wide(dev, s->m, l->magnitude, a->n_out);
        l->a = s->a;
        l->b = s->b;
        l->magnitude = s->m;
    }
    return true;
}

static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

uint64_t cpu_linear_work(const struct device *dev, const struct op_limits *l)
{
    int64_t q = l->n_head * l->head_dim, D = larger(l->dim, l->embed);
    int64_t out = larger(larger(D, 2 * l->ff), (l->n_head + 2 * l->n_kv) * l->head_dim);
    struct space none;
    uint64_t floats = lay_out(&none, NULL, l->n, larger(D, larger(q, l->ff)), out, l->lora_rank,
                              false, l->lora_drop, l->lora_magnitude,
                              dev->weight != CKPT_F32);
    uint64_t tiles = tiles_linear_work(dev, l->n, larger(D, larger(q, l->ff)), out);

    floats += l->drop ? (uint64_t)(l->n * l->dim) : 0;
    return floats * sizeof(float) > tiles ? floats * sizeof(float) : tiles;
}

/* to[rows][ld] <- rows from o on, columns from c on of the matrix, as f32. */
static void matrix(const struct op_linear *a, const struct space *s, float *to, int64_t ld,
                   int64_t o, int64_t rows, int64_t c, int64_t cols)
{
    float part[8];

    for (int64_t i = 0; !op_linear_in_out(a) && i < rows; i++)
        typed_wide(s->dev, to + i * ld, typed_at(s->dev, a->proj.w, (o + i) * a->n_in + c), cols);
    for (int64_t j = 0; op_linear_in_out(a) && j < cols; j++) {
        typed_wide(s->dev, part, typed_at(s->dev, a->proj.w, (c + j) * a->n_out + o), rows);
        for (int64_t i = 0; i < rows; i++)
            to[i * ld + j] = part[i];
    }
}

/* gain and inv for rows [o0, o1) of W' = W + scale B A: a panel of columns at a time. */
static void gains(const struct op_linear *a, const struct space *s, int64_t o0, int64_t o1)
{
    enum { ROWS = 8, COLS = 256 };
    const struct op_lora *l = &a->proj.lora;
    const float *m = l->magnitude;
    float panel[ROWS * COLS];

    for (int64_t o = o0; o < o1; o += ROWS) {
        int64_t rows = o1 - o < ROWS ? o1 - o : ROWS;
        double sum[ROWS] = {0};

        for (int64_t c = 0; c < a->n_in; c += COLS) {
            int64_t cols = a->n_in - c < COLS ? a->n_in - c : COLS;

            matrix(a, s, panel, COLS, o, rows, c, cols);
            gemm_nn(rows, cols, l->rank, l->scale, (const float *)l->b + o * l->rank, l->rank,
                    (const float *)l->a + c, a->n_in, 1.0f, panel, COLS);
            for (int64_t i = 0; i < rows; i++)
                for (int64_t j = 0; j < cols; j++)
                    sum[i] += (double)panel[i * COLS + j] * (double)panel[i * COLS + j];
        }
        for (int64_t i = 0; i < rows; i++) {
            s->inv[o + i] = 1.0f / (float)sqrt(sum[i]);
            s->gain[o + i] = m[o + i] * s->inv[o + i];
        }
    }
}

/* y[m, n] = scale x W^T + beta y, beta 0 or 1: a product with one of the factors. */
static void narrow_nt(const struct device *dev, int64_t m, int64_t n, int64_t k, float scale,
                      const float *x, const float *w, float beta, float *y, int64_t y_ld)
{
    if (!dev->by_row || dev->weight != CKPT_F32) {
        gemm_nt(m, n, k, scale, x, k, w, k, beta, y, y_ld);
        return;
    }
    row_product_nt(m, n, k, x, k, w, k, beta != 0, y, y_ld);
    for (int64_t i = 0; scale != 1.0f && i < m; i++)
        for (int64_t j = 0; j < n; j++)
            y[i * y_ld + j] *= scale;
}

/* For rows [r0, r1): xd, x - xd where it is needed, and t. */
static void narrow(const struct op_linear *a, const struct space *s, int64_t r0, int64_t r1,
                   bool rest)
{
    const struct op_lora *l = &a->proj.lora;
    const float *x = (const float *)a->x + r0 * a->n_in, *xd = x;
    int64_t m = r1 - r0;

    if (m <= 0 || !l->rank)
        return;
    if (s->xd) {
        float *to = s->xd + r0 * a->n_in, *xr = s->xr + r0 * a->n_in;

        cpu_drop_rows(to, a->n_in, x, a->n_in, &l->drop, r0, r1, a->n_in);
        for (int64_t i = 0; rest && i < m * a->n_in; i++)
            xr[i] = x[i] - to[i];
        xd = to;
    }
    narrow_nt(s->dev, m, l->rank, a->n_in, l->scale, xd, l->a, 0.0f, s->t + r0 * l->rank, l->rank);
}

/* to[m, n] += t B^T, columns from c0 on. */
static void widen(const struct op_linear *a, const struct space *s, float *to, int64_t ld,
                  int64_t r0, int64_t c0, int64_t m, int64_t n)
{
    const struct op_lora *l = &a->proj.lora;

    if (l->rank && m > 0 && n > 0)
        narrow_nt(s->dev, m, n, l->rank, 1.0f, s->t + r0 * l->rank,
                  (const float *)l->b + c0 * l->rank, 1.0f, to, ld);
}

CPU_HOT static void times_row(float *restrict to, const float *restrict by, int64_t n)
{
#pragma omp simd
    for (int64_t j = 0; j < n; j++)
        to[j] *= by[j];
}

CPU_HOT static void add_row(float *restrict to, const float *restrict by, int64_t n)
{
#pragma omp simd
    for (int64_t j = 0; j < n; j++)
        to[j] += by[j];
}

/* act(p) of rows [r0, r1), columns [c0, c1); a residual that is in out already is added at once. */
static void forward(const struct op_linear *a, const struct space *s, int64_t r0, int64_t r1,
                    int64_t c0, int64_t c1)
{
    int64_t ld = linear_out_ld(a), to_ld = s->z ? a->n_out : ld, m = r1 - r0, n = c1 - c0;
    bool both = s->gain && s->xd, there = a->residual == a->out && !s->z;
    const float *x = both ? s->xd : a->x, *b = a->proj.b;
    float *p = (float *)(a->pre ? a->pre : a->out) + r0 * ld + c0;
    float *out = (float *)a->out + r0 * ld + c0, *to = s->z ? s->z + r0 * a->n_out + c0 : p;

    linear_product(s->dev, a, to, to_ld, x + r0 * a->n_in, c0, m, n, there ? 1.0f : 0.0f);
    widen(a, s, to, to_ld, r0, c0, m, n);
    for (int64_t i = 0; s->gain && i < m; i++)
        times_row(to + i * to_ld, s->gain + c0, n);
    if (both)
        linear_product(s->dev, a, to, to_ld, s->xr + r0 * a->n_in, c0, m, n, 1.0f);
    for (int64_t i = 0; i < m; i++) {
        if (b)
            add_row(to + i * to_ld, b + c0, n);
        if (s->z && a->residual == a->out)
            add_row(out + i * ld, to + i * to_ld, n);
        else if (s->z)
            memcpy(p + i * ld, to + i * to_ld, (size_t)n * sizeof(float));
        if (a->act != OP_ACT_NONE)
            cpu_act_rows(a->act, out + i * ld, p + i * ld, n);
        else if (a->pre)
            memcpy(out + i * ld, p + i * ld, (size_t)n * sizeof(float));
    }
}

/* The steps after act(p), by whole rows. */
static void leave(const struct op_linear *a, int64_t r0, int64_t r1)
{
    int64_t ld = linear_out_ld(a);
    float *out = (float *)a->out + r0 * ld;
    const float *res = a->residual == a->out ? NULL : a->residual;

    if (a->drop.p > 0)
        cpu_drop_rows(out, ld, out, ld, &a->drop, r0, r1, a->n_out);
    for (int64_t i = 0; res && i < r1 - r0; i++)
        add_row(out + i * ld, res + (r0 + i) * a->n_out, a->n_out);
}

void lora_linear_fwd(struct device *dev, const struct op_linear *op)
{
    struct op_linear wide = *op, *a = &wide;
    struct space s;

    if (device_stopped(dev) || !open_space(&s, dev, a, false, "linear_fwd"))
        return;
#pragma omp parallel num_threads(cpu_threads(dev, a->n * a->n_in * a->n_out))
    {
        int me = omp_get_thread_num(), threads = omp_get_num_threads();
        int64_t begin, end;

        cpu_range(&begin, &end, a->n_out, 8, me, threads);
        if (s.gain)
            gains(a, &s, begin, end);
        cpu_range(&begin, &end, a->n, 8, me, threads);
        narrow(a, &s, begin, end, s.gain != NULL);
#pragma omp barrier
        if (a->n >= (int64_t)threads * LINEAR_MIN_ROWS) {
            forward(a, &s, begin, end, 0, a->n_out);
        } else {
            cpu_range(&begin, &end, a->n_out, 16, me, threads);
            forward(a, &s, 0, a->n, begin, end);
        }
#pragma omp barrier
        cpu_range(&begin, &end, a->n, 8, me, threads);
        leave(a, begin, end);
    }
}

/* The gradient of the product's output, and its row stride. */
static const float *seen(const struct op_linear *a, const struct space *s, int64_t *ld)
{
    *ld = s->dy ? a->n_out : linear_out_ld(a);
    return s->dy ? s->dy : a->dout;
}

/* dz and dt of rows [r0, r1). */
static void narrow_back(const struct op_linear *a, const struct space *s, int64_t r0, int64_t r1)
{
    const struct op_lora *l = &a->proj.lora;
    int64_t ld, m = r1 - r0;
    const float *dz = seen(a, s, &ld) + r0 * ld;

    if (m <= 0 || !l->rank)
        return;
    for (int64_t i = 0; s->dz && i < m; i++) {
        memcpy(s->dz + (r0 + i) * a->n_out, dz + i * ld, (size_t)a->n_out * sizeof(float));
        times_row(s->dz + (r0 + i) * a->n_out, s->gain, a->n_out);
    }
    if (s->dz) {
        dz = s->dz + r0 * a->n_out;
        ld = a->n_out;
    }
    gemm_nn(m, l->rank, a->n_out, l->scale, dz, ld, l->b, l->rank, 0.0f, s->dt + r0 * l->rank,
            l->rank);
}

/* to[m, n_in] = dt A + beta to, rows from r0 on. */
static void widen_back(const struct op_linear *a, const struct space *s, float *to, int64_t r0,
                       int64_t m, float beta)
{
    const struct op_lora *l = &a->proj.lora;

    gemm_nn(m, a->n_in, l->rank, 1.0f, s->dt + r0 * l->rank, l->rank, l->a, a->n_in, beta, to,
            a->n_in);
}

/*
 * dx of rows [r0, r1).  With dropout of LoRA's input, its gradient is dropped out likewise: q +
 * drop(dz W + dt A - q), where q = dy W and, without a magnitude, dz W = q.
 */
static void dx_rows(const struct op_linear *a, const struct space *s, int64_t r0, int64_t r1)
{
    int64_t ld, m = r1 - r0, count = m * a->n_in;
    const float *dy = seen(a, s, &ld) + r0 * ld;
    bool add = a->flags & OP_LINEAR_DX_ADD;
    float *dx = (float *)a->dx + r0 * a->n_in, beta = add ? 1.0f : 0.0f, *q, *back;

    if (s->gain && !s->xd)
        linear_product_back(s->dev, a, dx, s->dz + r0 * a->n_out, a->n_out, 0, m, a->n_in, beta);
    else if (!s->gain || !s->xd)
        linear_product_back(s->dev, a, dx, dy, ld, 0, m, a->n_in, beta);
    if (!a->proj.lora.rank)
        return;
    if (!s->xd) {
        widen_back(a, s, dx, r0, m, 1.0f);
        return;
    }
    back = s->xr + 2 * r0 * a->n_in;
    q = back + count;
    if (s->gain) {
        linear_product_back(s->dev, a, q, dy, ld, 0, m, a->n_in, 0.0f);
        linear_product_back(s->dev, a, back, s->dz + r0 * a->n_out, a->n_out, 0, m, a->n_in, 0.0f);
        for (int64_t i = 0; i < count; i++) {
            back[i] -= q[i];
            dx[i] = q[i] + (add ? dx[i] : 0.0f);
        }
    }
    widen_back(a, s, back, r0, m, s->gain ? 1.0f : 0.0f);
    cpu_drop_rows(back, a->n_in, back, a->n_in, &a->proj.lora.drop, r0, r1, a->n_in);
    add_row(dx, back, count);
}

/* Rows [r0, r1) of dx, of x when it is recomputed, and of t and z. */
static void backward_rows(const struct op_linear *a, const struct space *s, int64_t r0, int64_t r1)
{
    int64_t at = r0 * a->n_in, m = r1 - r0;
    float *x = a->x, *dx = a->dx;

    if (m <= 0)
        return;
    if (s->dy)
        cpu_drop_rows(s->dy + r0 * a->n_out, a->n_out, (const float *)a->dout + r0 * a->n_out,
                      a->n_out, &a->drop, r0, r1, a->n_out);
    narrow_back(a, s, r0, r1);
    if (dx)
        dx_rows(a, s, r0, r1);
    if (dx && a->x_act != OP_ACT_NONE)
        cpu_act_back(a->x_act, x + at, dx + at, (const float *)a->x_pre + at, m * a->n_in);
    if (dx && a->x_act != OP_ACT_NONE && a->x_drop.p > 0) {
        if (x != a->x_pre)
            cpu_drop_rows(x + at, a->n_in, x + at, a->n_in, &a->x_drop, r0, r1, a->n_in);
        cpu_drop_rows(dx + at, a->n_in, dx + at, a->n_in, &a->x_drop, r0, r1, a->n_in);
    }
    narrow(a, s, r0, r1, false);
    if (s->z) {
        linear_product(s->dev, a, s->z + r0 * a->n_out, a->n_out, s->xd ? s->xd + at : x + at, 0, m,
                       a->n_out, 0.0f);
        widen(a, s, s->z + r0 * a->n_out, a->n_out, r0, 0, m, a->n_out);
    }
}

/* Gradients of B and of the magnitude for output columns [c0, c1). */
static void out_grads(const struct op_linear *a, const struct space *s, int64_t c0, int64_t c1)
{
    const struct op_lora *l = &a->proj.lora;
    int64_t ld, z_ld;
    const float *dy = seen(a, s, &ld), *dz = s->dz ? s->dz : dy;
    float *dm = l->dmagnitude;

    linear_grads(a, dy, ld, c0, c1);
    if (c0 == c1 || !l->rank)
        return;
    z_ld = s->dz ? a->n_out : ld;
    if (l->db)
        gemm_tn(c1 - c0, l->rank, a->n, 1.0f, dz + c0, z_ld, s->t, l->rank, 1.0f,
                (float *)l->db + c0 * l->rank, l->rank);
    assert(!dm || (s->z && s->inv));
    for (int64_t o = c0; dm && o < c1; o++) {
        double sum = 0;

        for (int64_t i = 0; i < a->n; i++)
            sum += (double)dy[i * ld + o] * (double)s->z[i * a->n_out + o];
        dm[o] += (float)sum * s->inv[o];
    }
}

/* Columns [c0, c1) of A's gradient. */
static void in_grads(const struct op_linear *a, const struct space *s, int64_t c0, int64_t c1)
{
    const struct op_lora *l = &a->proj.lora;
    const float *xd = s->xd ? s->xd : a->x;

    if (l->da && c0 < c1)
        gemm_tn(l->rank, c1 - c0, a->n, 1.0f, s->dt, l->rank, xd + c0, a->n_in, 1.0f,
                (float *)l->da + c0, a->n_in);
}

void lora_linear_bwd(struct device *dev, const struct op_linear *op)
{
    struct op_linear wide = *op, *a = &wide;
    struct space s;

    if (!open_space(&s, dev, a, true, "linear_bwd"))
        return;
#pragma omp parallel num_threads(cpu_threads(dev, a->n * a->n_in * a->n_out))
    {
        int me = omp_get_thread_num(), threads = omp_get_num_threads();
        int64_t begin, end;

        cpu_range(&begin, &end, a->n_out, 8, me, threads);
        if (s.gain)
            gains(a, &s, begin, end);
#pragma omp barrier
        cpu_range(&begin, &end, a->n, 8, me, threads);
        backward_rows(a, &s, begin, end);
#pragma omp barrier
        cpu_range(&begin, &end, a->n_out, 16, me, threads);
        out_grads(a, &s, begin, end);
        cpu_range(&begin, &end, a->n_in, 16, me, threads);
        in_grads(a, &s, begin, end);
    }
}

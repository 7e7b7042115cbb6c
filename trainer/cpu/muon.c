/*
 * muon - the parts of a step of Muon of one matrix, by the formulas of ops/optimizer.h.
 *
 * The matrix is used as it lies: of a high one x x^T is that of its transpose, x^T x, and stands on
 * the other side.  Products are cut into blocks of one size, each a one-threaded OpenBLAS call, so
 * that the bits do not depend on the number of threads: every rank gets the same x.
 */
#include "trainer/cpu/cpu.h"

#include <math.h>
#include <string.h>

#include "libckpt/convert.h"
#include "trainer/cpu/gemm.h"

enum {
    EDGE = 256,                     /* rows and columns of a block */
    SLOTS = 64                      /* pieces of elements */
};

/* -- momentum --------------------------------------------------------------------------------- */

CPU_HOT static void follow(float *restrict m, float *restrict d, const float *restrict grad,
                           int64_t n, float factor, float momentum, bool nesterov)
{
#pragma omp simd
    for (int64_t k = 0; k < n; k++) {
        float g = grad[k] * factor, x = m[k] + (1.0f - momentum) * (g - m[k]);

        m[k] = x;
        d[k] = nesterov ? g + momentum * (x - g) : x;
    }
}

static void momentum(struct device *dev, const struct op_matrix *m, const struct op_muon *o,
                     float factor)
{
#pragma omp parallel for schedule(static) num_threads(cpu_threads(dev, 8 * m->n))
    for (int i = 0; i < SLOTS; i++) {
        unsigned was = cpu_flush();
        int64_t begin, end;

        cpu_range(&begin, &end, m->n, 16, i, SLOTS);
        follow(m->momentum + begin, m->direction + m->start + begin, m->grad + begin, end - begin,
               factor, (float)o->momentum, o->nesterov);
        cpu_flush_end(was);
    }
}

/* -- the orthogonal matrix -------------------------------------------------------------------- */

/* One product, of a result [rows, cols] without gaps between its rows. */
struct product {
    float       *to;
    const float *x;                     /* to = first x + alpha (left right) */
    const float *left, *right;
    int64_t      rows, cols, terms, left_ld, right_ld;
    float        alpha, first;          /* first 0: there is no x */
    enum { NN, NT, TN } how;            /* which factor is read transposed */
    bool         symmetric;             /* the result: blocks above the diagonal are copies */
};

static void mirror(const struct product *p, int64_t r, int64_t c, int64_t m, int64_t n)
{
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++)
            p->to[(c + j) * p->cols + r + i] = p->to[(r + i) * p->cols + c + j];
}

static void block(const struct product *p, int64_t r, int64_t c)
{
    int64_t m = p->rows - r < EDGE ? p->rows - r : EDGE;
    int64_t n = p->cols - c < EDGE ? p->cols - c : EDGE;
    float *to = p->to + r * p->cols + c;

    if (p->symmetric && c > r)
        return;
    for (int64_t i = 0; p->x && i < m; i++)
        memcpy(to + i * p->cols, p->x + (r + i) * p->cols + c, (size_t)n * sizeof *to);
    if (p->how == NN)
        gemm_nn(m, n, p->terms, p->alpha, p->left + r * p->left_ld, p->left_ld, p->right + c,
                p->right_ld, p->first, to, p->cols);
    else if (p->how == NT)
        gemm_nt(m, n, p->terms, p->alpha, p->left + r * p->left_ld, p->left_ld,
                p->right + c * p->right_ld, p->right_ld, p->first, to, p->cols);
    else
        gemm_tn(m, n, p->terms, p->alpha, p->left + r, p->left_ld, p->right + c, p->right_ld,
                p->first, to, p->cols);
    if (p->symmetric && c < r)
        mirror(p, r, c, m, n);
}

static void multiply(struct device *dev, const struct product *p)
{
    int64_t across = (p->cols + EDGE - 1) / EDGE, n = (p->rows + EDGE - 1) / EDGE * across;

#pragma omp parallel for schedule(dynamic, 1) \
    num_threads(n == 1 ? 1 : cpu_threads(dev, p->rows * p->cols * p->terms))
    for (int64_t i = 0; i < n; i++)
        block(p, i / across * EDGE, i % across * EDGE);
}

/* to = a x + (b s + c s s) x, with s and what x is multiplied by in work. */
static void iterate(struct device *dev, float *to, const float *x, float *work,
                    const struct op_matrix *m, const struct op_muon *o)
{
    bool high = m->rows > m->cols;
    int64_t k = high ? m->cols : m->rows, ld = m->cols;
    float *s = work, *by = work + k * k;
    struct product square = {.to = s, .left = x, .right = x, .rows = k, .cols = k,
                             .terms = high ? m->rows : m->cols, .left_ld = ld, .right_ld = ld,
                             .alpha = 1, .how = high ? TN : NT, .symmetric = true};
    struct product fourth = {.to = by, .x = s, .left = s, .right = s, .rows = k, .cols = k,
                             .terms = k, .left_ld = k, .right_ld = k, .alpha = (float)o->c,
                             .first = (float)o->b, .how = NN, .symmetric = true};
    struct product next = {.to = to, .x = x, .left = high ? x : by, .right = high ? by : x,
                           .rows = m->rows, .cols = m->cols, .terms = k,
                           .left_ld = high ? ld : k, .right_ld = high ? k : ld, .alpha = 1,
                           .first = (float)o->a, .how = NN};

    multiply(dev, &square);
    multiply(dev, &fourth);
    multiply(dev, &next);
}

static void scale(struct device *dev, float *to, const float *x, int64_t n, float factor)
{
#pragma omp parallel for simd schedule(static) num_threads(cpu_threads(dev, 8 * n))
    for (int64_t k = 0; k < n; k++)
        to[k] = x[k] * factor;
}

/* The direction, made orthogonal: of an odd number of steps the first goes back to it. */
static void orthogonal(struct device *dev, const struct op_matrix *m, const struct op_muon *o)
{
    int64_t n = m->rows * m->cols;
    float *x = o->ns_steps % 2 ? m->work : m->direction;
    float *other = o->ns_steps % 2 ? m->direction : m->work;
    double sum;

    cpu_sum_squares(dev, &sum, m->direction, n);
    scale(dev, x, m->direction, n, (float)(1.0 / fmax(sqrt(sum), o->eps)));
    for (int64_t k = 0; k < o->ns_steps; k++) {
        float *was = x;

        iterate(dev, other, x, m->work + n, m, o);
        x = other;
        other = was;
    }
}

/* -- weights ---------------------------------------------------------------------------------- */

CPU_HOT static void move(float *restrict p, const float *restrict x, int64_t n, float keep,
                         float rate)
{
#pragma omp simd
    for (int64_t k = 0; k < n; k++)
        p[k] = p[k] * keep - rate * x[k];
}

static void update(struct device *dev, const struct op_matrix *m, const struct op_muon *o)
{
    const float *x = m->direction + m->start;
    float keep = (float)(1.0 - m->lr * m->weight_decay);
    float rate = (float)(m->lr * op_muon_adjust(o, m->rows, m->cols));
    size_t wide = ckpt_dtype_size(dev->weight);

#pragma omp parallel for schedule(static) num_threads(cpu_threads(dev, 8 * m->n))
    for (int i = 0; i < SLOTS; i++) {
        int64_t begin, end;

        cpu_range(&begin, &end, m->n, 16, i, SLOTS);
        move(m->param + begin, x + begin, end - begin, keep, rate);
        if (m->rounded)
            ckpt_convert((unsigned char *)m->rounded + (size_t)begin * wide, dev->weight,
                         m->param + begin, CKPT_F32, (size_t)(end - begin));
    }
}

void cpu_muon(struct device *dev, enum op_muon_part part, const struct op_matrix *m,
              const struct adamw *a)
{
    if (dev->err.code || (a->verdict && !a->verdict->finite))
        return;
    if (part == OP_MUON_MOMENTUM)
        momentum(dev, m, a->muon, a->verdict ? a->verdict->factor : (float)a->grad_scale);
    else if (part == OP_MUON_ORTHOGONAL)
        orthogonal(dev, m, a->muon);
    else
        update(dev, m, a->muon);
}

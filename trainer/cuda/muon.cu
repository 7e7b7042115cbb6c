/*
 * muon - the parts of a step of Muon of one matrix: what trainer/cpu/muon.c does.
 *
 * Products are cuBLASLt's, in f32 (or tf32, where the device says so); the matrix is used as it
 * lies, as there.  Whether the step is finite is known on the device alone: x is made in any case,
 * and goes nowhere when it is not.
 */
#include "trainer/cuda/matmul/matmul.h"

#include <math.h>

namespace {

const int block = 256;

struct gradient {
    float                    scale;
    const struct op_verdict *verdict;   /* NULL: scale is its factor */
};

__global__ void __launch_bounds__(block)
follow(float *m, float *d, const float *grad, int64_t n, float momentum, bool nesterov,
       struct gradient how)
{
    int64_t k = (int64_t)blockIdx.x * block + threadIdx.x;
    float g, x;

    if (k >= n || (how.verdict && !how.verdict->finite))
        return;
    g = grad[k] * (how.verdict ? how.verdict->factor : how.scale);
    x = m[k] + (1.0f - momentum) * (g - m[k]);
    m[k] = x;
    d[k] = nesterov ? g + momentum * (x - g) : x;
}

/* to = x / max(norm, eps), of a norm whose square is *sum. */
__global__ void __launch_bounds__(block)
normalise(float *to, const float *x, int64_t n, const double *sum, double eps)
{
    int64_t k = (int64_t)blockIdx.x * block + threadIdx.x;

    if (k < n)
        to[k] = x[k] * (float)(1.0 / fmax(sqrt(*sum), eps));
}

template <typename T>
__global__ void __launch_bounds__(block)
move(float *p, T *rounded, const float *x, int64_t n, float keep, float rate,
     const struct op_verdict *verdict)
{
    int64_t k = (int64_t)blockIdx.x * block + threadIdx.x;

    if (k >= n || (verdict && !verdict->finite))
        return;
    p[k] = p[k] * keep - rate * x[k];
    if (rounded)
        rounded[k] = cuda_from_f32<T>(p[k]);
}

/* -- the orthogonal matrix -------------------------------------------------------------------- */

struct matmul_args product(const struct device *dev, float *to, const float *left, int64_t left_ld,
                           const float *right, int64_t right_ld, int64_t m, int64_t n, int64_t k)
{
    struct matmul_args p = matmul_of(dev, "muon", m, n, k, 0);

    p.in = p.out = CKPT_F32;
    p.a = left;
    p.lda = left_ld;
    p.b = right;
    p.ldb = right_ld;
    p.d = to;
    p.ldd = n;
    return p;
}

/* to = a x + (b s + c s s) x, with s and what x is multiplied by in work. */
void iterate(struct device *dev, float *to, const float *x, float *work, const struct op_matrix *m,
             const struct op_muon *o)
{
    bool high = m->rows > m->cols;
    int64_t k = high ? m->cols : m->rows, terms = high ? m->rows : m->cols, ld = m->cols;
    float *s = work, *by = work + k * k;
    struct matmul_args square = product(dev, s, x, ld, x, ld, k, k, terms);
    struct matmul_args fourth = product(dev, by, s, k, s, k, k, k, k);
    struct matmul_args next = high ? product(dev, to, x, ld, by, k, m->rows, m->cols, k)
                                   : product(dev, to, by, k, x, ld, m->rows, m->cols, k);

    square.a_t = high;
    square.b_t = !high;
    fourth.alpha = (float)o->c;
    fourth.beta = (float)o->b;
    fourth.c = s;
    next.beta = (float)o->a;
    next.c = x;
    matmul(dev, &square);
    matmul(dev, &fourth);
    matmul(dev, &next);
}

/* The direction, made orthogonal: of an odd number of steps the first goes back to it. */
void orthogonal(struct device *dev, const struct op_matrix *m, const struct op_muon *o)
{
    int64_t n = m->rows * m->cols;
    float *x = o->ns_steps % 2 ? m->work : m->direction;
    float *other = o->ns_steps % 2 ? m->direction : m->work;
    double *sum = cuda_of(dev)->small + CUDA_SMALL - 1;     /* cuda_sum_squares uses the first */

    cuda_sum_squares(dev, sum, m->direction, n);
    cuda_launch(cuda_of(dev)->stream, normalise, cuda_blocks(n, block), block, x, m->direction, n,
                sum, o->eps);
    for (int64_t k = 0; k < o->ns_steps; k++) {
        float *was = x;

        iterate(dev, other, x, m->work + n, m, o);
        x = other;
        other = was;
    }
}

/* -- weights ---------------------------------------------------------------------------------- */

template <typename T>
void update(struct device *dev, const struct op_matrix *m, const struct adamw *a)
{
    cuda_launch(cuda_of(dev)->stream, move<T>, cuda_blocks(m->n, block), block, m->param,
                (T *)m->rounded, m->direction + m->start, m->n,
                (float)(1.0 - m->lr * m->weight_decay),
                (float)(m->lr * op_muon_adjust(a->muon, m->rows, m->cols)), a->verdict);
}

} /* namespace */

void cuda_muon(struct device *dev, enum op_muon_part part, const struct op_matrix *m,
               const struct adamw *a)
{
    struct gradient how = {(float)a->grad_scale, a->verdict};

    if (dev->err.code || (m->n == 0 && part != OP_MUON_ORTHOGONAL))
        return;
    if (part == OP_MUON_MOMENTUM)
        cuda_launch(cuda_of(dev)->stream, follow, cuda_blocks(m->n, block), block, m->momentum,
                    m->direction + m->start, m->grad, m->n, (float)a->muon->momentum,
                    a->muon->nesterov, how);
    else if (part == OP_MUON_ORTHOGONAL)
        orthogonal(dev, m, a->muon);
    else
        CUDA_ACT(dev, update<T>(dev, m, a));
    cuda_launched(dev, "muon");
}

/*
 * products - in the place of cuBLASLt and of kernels that read a GPU's tiles: products on the
 * host, summed in f32 and rounded once.
 *
 * EMULATE_PRODUCTS=joined: every epilogue, and further products in one sum, as where a kernel
 * computes both; else plain products alone, with passes after them.
 */
#include "tests/emulate/rows.h"

#include <cblas.h>
#include <stdlib.h>

#include "trainer/cuda/act.h"
#include "trainer/cuda/matmul/fp8.h"
#include "trainer/cuda/matmul/gemv.h"

static bool joins(void)
{
    const char *how = getenv("EMULATE_PRODUCTS");

    return how && strcmp(how, "joined") == 0;
}

/* -- a product -------------------------------------------------------------------------------- */

/* rows x cols values of that type, rows ld apart, as f32, dense; the caller frees them. */
static float *widened(const void *from, enum ckpt_dtype type, int64_t rows, int64_t cols,
                      int64_t ld)
{
    size_t each = type == CKPT_F32 ? 4 : 2;
    float *to = (float *)malloc((size_t)(rows * cols + 1) * sizeof *to);

    if (!to)
        abort();
    for (int64_t i = 0; i < rows; i++)
        ckpt_convert(to + i * cols, CKPT_F32, (const unsigned char *)from + (size_t)(i * ld) * each,
                     type, (size_t)cols);
    return to;
}

/* sum[m, n] += alpha op(A) op(B). */
static void add_product(float *sum, const struct matmul_args *p, const struct matmul_part *of)
{
    int64_t a_rows = p->a_t ? of->k : p->m, a_cols = p->a_t ? p->m : of->k;
    int64_t b_rows = p->b_t ? p->n : of->k, b_cols = p->b_t ? of->k : p->n;
    float *a = widened(of->a, p->in, a_rows, a_cols, of->lda);
    float *b = widened(of->b, p->in, b_rows, b_cols, of->ldb);

    cblas_sgemm(CblasRowMajor, p->a_t ? CblasTrans : CblasNoTrans,
                p->b_t ? CblasTrans : CblasNoTrans, (int)p->m, (int)p->n, (int)of->k, p->alpha, a,
                (int)a_cols, b, (int)b_cols, 1.0f, sum, (int)p->n);
    free(a);
    free(b);
}

/* A row's sums through the epilogue; aux: the row's. */
static void epilogue(float *sum, const struct matmul_args *p, const float *bias, void *aux,
                     int64_t row)
{
    size_t each = p->out == CKPT_F32 ? 4 : 2;
    unsigned char *at = (unsigned char *)aux + (size_t)(row * p->n) * each;
    const unsigned char *bits = (const unsigned char *)aux + row * p->n / 8;
    float unused;

    for (int64_t j = 0; j < p->n; j++) {
        float v = sum[j] + (bias ? bias[j] : 0.0f), x;

        switch (p->epilogue) {
        case MATMUL_RELU:
            v = v > 0 ? v : 0;
            break;
        case MATMUL_GELU:
            if (aux)
                ckpt_convert(at + (size_t)j * each, p->out, &v, CKPT_F32, 1);
            v = act_value<OP_ACT_GELU_TANH>(v);
            break;
        case MATMUL_DGELU:
            ckpt_convert(&x, CKPT_F32, at + (size_t)j * each, p->out, 1);
            v *= act_slope<OP_ACT_GELU_TANH>(x, &unused);
            break;
        case MATMUL_DRELU:
            v = bits[j / 8] >> j % 8 & 1 ? v : 0;
            break;
        default:
            break;
        }
        sum[j] = v;
    }
}

bool matmul_supported(struct device *, const struct matmul_args *a)
{
    return joins() || (a->epilogue == MATMUL_PLAIN && a->parts == 0);
}

bool matmul(struct device *dev, const struct matmul_args *p)
{
    struct matmul_part first = {p->a, p->b, p->lda, p->ldb, p->k};
    const void *c = p->c ? p->c : p->d;
    int64_t ldc = p->ldc ? p->ldc : p->ldd;
    size_t each = p->out == CKPT_F32 ? 4 : 2;
    float *sum, *bias, *add;

    if (!matmul_supported(dev, p))
        return false;
    if (dev->err.code || p->m <= 0 || p->n <= 0)
        return true;
    if (p->batch > 1 || p->scale_a)
        return !cuda_fail(dev, CKPT_ESTATE, "%s: no such product is emulated", p->op);
    sum = (float *)calloc((size_t)(p->m * p->n), sizeof *sum);
    if (!sum)
        abort();
    add_product(sum, p, &first);
    for (int i = 0; i < p->parts; i++)
        add_product(sum, p, &p->part[i]);
    add = p->beta ? widened(c, p->out, p->m, p->n, ldc) : NULL;
    bias = p->bias ? widened(p->bias, p->out, 1, p->n, p->n) : NULL;
    for (int64_t i = 0; add && i < p->m * p->n; i++)
        sum[i] += p->beta * add[i];
    for (int64_t i = 0; i < p->m; i++) {
        epilogue(sum + i * p->n, p, bias, p->aux, i);
        ckpt_convert((unsigned char *)p->d + (size_t)(i * p->ldd) * each, p->out, sum + i * p->n,
                     CKPT_F32, (size_t)p->n);
    }
    free(bias);
    free(add);
    free(sum);
    return true;
}

/* -- rooms that projections ask, which are not emulated --------------------------------------- */

bool gemv(struct device *, const struct gemv *) { return false; }
uint64_t fp8_work(const struct device *, const struct op_limits *, int64_t, int64_t) { return 0; }
void fp8_fwd(struct device *, const struct op_linear *, struct matmul_args *) {}
void fp8_dw(struct device *, const struct op_linear *, const void *, int64_t, struct matmul_args *)
{
}

void fp8_dx(struct device *, const struct op_linear *, const void *, int64_t, struct matmul_args *)
{
}

void cuda_norm_fwd(struct device *dev, const struct op_rownorm *a) { dev->ops->norm_fwd(dev, a); }
void cuda_gate_fwd(struct device *dev, const struct op_gate *a) { dev->ops->gate_fwd(dev, a); }

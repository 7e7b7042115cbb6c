/*
 * linear - projections with bias, activation and residual, and their backward.
 *
 * Each product is cut into blocks of rows and columns (when rows are few, of columns alone), so
 * that little of either side is packed by more than one thread; a block is a one-threaded
 * OpenBLAS call followed by the elementwise part on its result.  Results do not depend on which
 * thread takes a block: no sum spans two blocks.  Bias and residual are written first and the
 * product is added to them: OpenBLAS' kernels always add, so they cost no pass of their own.
 */
#include "trainer/cpu/linear.h"

#include <cblas.h>
#include <string.h>

#include "trainer/cpu/act.h"
#include "trainer/cpu/gemm.h"
#include "trainer/cpu/tile_tasks.h"
#include "trainer/cpu/typed.h"

CPU_HOT void linear_add_columns(float *restrict sum, const float *restrict x, int64_t rows,
                                int64_t stride, int64_t begin, int64_t end)
{
    for (int64_t i = 0; i < rows; i++)
#pragma omp simd
        for (int64_t j = begin; j < end; j++)
            sum[j] += x[i * stride + j];
}

CPU_HOT static void add_bias(float *restrict out, const float *restrict residual,
                             const float *restrict b, int64_t n)
{
#pragma omp simd
    for (int64_t j = 0; j < n; j++)
        out[j] = residual[j] + b[j];
}

/* Prepare out[row][c0, c1): the values that the product is added to. */
static void prefill(const struct op_linear *a, float *out, int64_t row, int64_t c0, int64_t c1)
{
    const float *b = a->proj.b, *res = a->residual;
    float *to = out + row * linear_out_ld(a) + c0;
    size_t bytes = (size_t)(c1 - c0) * sizeof(float);

    if (res && b)
        add_bias(to, res + row * a->n_out + c0, b + c0, c1 - c0);
    else if (res || b)
        memmove(to, res ? res + row * a->n_out + c0 : b + c0, bytes);
}

void linear_product(const struct device *dev, const struct op_linear *a, float *to, int64_t ld,
                    const float *x, int64_t c0, int64_t m, int64_t n, float beta)
{
    int64_t k = a->n_in;

    if (op_linear_in_out(a))
        typed_nn(dev, m, n, k, 1.0f, x, k, typed_at(dev, a->proj.w, c0), a->n_out, beta, to, ld);
    else
        typed_nt(dev, m, n, k, 1.0f, x, k, typed_at(dev, a->proj.w, c0 * k), k, beta, to, ld);
}

bool linear_before(const struct op_linear *a, int64_t r0, int64_t r1, int64_t c0, int64_t c1)
{
    for (int64_t i = r0; i < r1; i++)
        prefill(a, linear_to(a), i, c0, c1);
    return a->proj.b || a->residual;
}

void linear_after(const struct op_linear *a, int64_t r0, int64_t r1, int64_t c0, int64_t c1)
{
    float *out = a->out, *to = linear_to(a);

    for (int64_t i = r0; i < r1 && (a->act != OP_ACT_NONE || a->pre); i++) {
        int64_t at = i * a->n_out + c0;

        if (a->act != OP_ACT_NONE)
            cpu_act_rows(a->act, out + at, to + at, c1 - c0);
        else
            memcpy(out + at, to + at, (size_t)(c1 - c0) * sizeof(float));
    }
}

/* Compute rows [r0, r1), columns [c0, c1) of the output. */
static void forward(const struct device *dev, const struct op_linear *a, int64_t r0, int64_t r1,
                    int64_t c0, int64_t c1)
{
    float beta = linear_before(a, r0, r1, c0, c1) ? 1.0f : 0.0f;

    linear_product(dev, a, linear_to(a) + r0 * linear_out_ld(a) + c0, linear_out_ld(a),
                   (const float *)a->x + r0 * a->n_in, c0, r1 - r0, c1 - c0, beta);
    linear_after(a, r0, r1, c0, c1);
}

void cpu_linear_fwd(struct device *dev, const struct op_linear *a)
{
    int threads = cpu_threads(dev, a->n * a->n_in * a->n_out);
    struct op_linear w = *a;            /* for its bias as f32 */
    struct task_cut cut;

    if (a->proj.lora.rank || a->drop.p > 0) {
        lora_linear_fwd(dev, a);
        return;
    }
    w.proj.b = typed_vector(dev, 0, a->proj.b, a->n_out);
    if (cpu_ended(dev) || a->n == 0 || tiles_linear_fwd(dev, &w))
        return;
    cut = task_grid(a->n, a->n_out, threads);
#pragma omp parallel num_threads(threads)
    if (a->n < (int64_t)threads * LINEAR_MIN_ROWS) {    /* split by columns: contiguous rows of
                                                           the weights */
        int64_t begin, end;

        cpu_range(&begin, &end, a->n_out, 16, omp_get_thread_num(), omp_get_num_threads());
        forward(dev, &w, 0, a->n, begin, end);
    } else {
#pragma omp for schedule(dynamic, 1)
        for (int64_t i = 0; i < cut.tasks; i++) {
            struct task_block b = task_block(&cut, i);

            if (!device_stopped(dev))
                forward(dev, &w, b.r0, b.r1, b.c0, b.c1);
        }
    }
}

void linear_product_back(const struct device *dev, const struct op_linear *a, float *dx,
                         const float *dout, int64_t ld, int64_t c0, int64_t m, int64_t n,
                         float beta)
{
    int64_t k = a->n_out;

    if (op_linear_in_out(a))
        typed_nt(dev, m, n, k, 1.0f, dout, ld, typed_at(dev, a->proj.w, c0 * k), k, beta, dx,
                 a->n_in);
    else
        typed_nn(dev, m, n, k, 1.0f, dout, ld, typed_at(dev, a->proj.w, c0), a->n_in, beta, dx,
                 a->n_in);
}

/* Compute a block of dx, and of x when it is recomputed. */
static void backward_block(const struct device *dev, const struct op_linear *a,
                           const struct task_block *b)
{
    const float *dout = a->dout, *pre = a->x_pre;
    float *dx = a->dx, *x = a->x;
    int64_t ld = linear_out_ld(a);

    linear_product_back(dev, a, dx + b->r0 * a->n_in + b->c0, dout + b->r0 * ld, ld, b->c0,
                        b->r1 - b->r0, b->c1 - b->c0, (a->flags & OP_LINEAR_DX_ADD) ? 1.0f : 0.0f);
    for (int64_t i = b->r0; a->x_act != OP_ACT_NONE && i < b->r1; i++) {
        int64_t at = i * a->n_in + b->c0;

        cpu_act_back(a->x_act, x + at, dx + at, pre + at, b->c1 - b->c0);
    }
}

/* Compute a block of dw, in its layout, from dout (row stride out_ld). */
static void grads_block(const struct op_linear *a, const float *dout, int64_t out_ld,
                        const struct task_block *b)
{
    bool in_out = op_linear_in_out(a);
    const float *left = in_out ? a->x : dout, *right = in_out ? dout : a->x;
    int64_t left_ld = in_out ? a->n_in : out_ld, right_ld = in_out ? out_ld : a->n_in;
    int64_t ld = op_linear_cols(a);

    gemm_tn(b->r1 - b->r0, b->c1 - b->c0, a->n, 1.0f, left + b->r0, left_ld, right + b->c0,
            right_ld, 1.0f, (float *)a->proj.dw + b->r0 * ld + b->c0, ld);
}

void linear_grads(const struct op_linear *a, const float *dout, int64_t ld, int64_t c0, int64_t c1)
{
    struct task_block rows = {.r0 = c0, .r1 = c1, .c1 = a->n_in};
    struct task_block cols = {.r1 = a->n_in, .c0 = c0, .c1 = c1};

    if (c0 == c1)
        return;
    if (a->proj.dw)
        grads_block(a, dout, ld, op_linear_in_out(a) ? &cols : &rows);
    if (a->proj.db)
        linear_add_columns(a->proj.db, dout, a->n, ld, c0, c1);
}

void cpu_linear_bwd(struct device *dev, const struct op_linear *a)
{
    int64_t rows = op_linear_rows(a), cols = op_linear_cols(a);
    int threads = cpu_threads(dev, a->n * a->n_in * a->n_out);
    struct task_cut dx = task_grid(a->n, a->n_in, threads), dw = task_grid(rows, cols, threads);

    if ((a->flags & OP_LINEAR_OVERWRITE) && a->proj.dw)
        dev->ops->zero(dev, a->proj.dw, (size_t)(a->n_in * a->n_out) * sizeof(float));
    if ((a->flags & OP_LINEAR_OVERWRITE) && a->proj.db)
        dev->ops->zero(dev, a->proj.db, (size_t)a->n_out * sizeof(float));
    if (a->proj.lora.rank || a->drop.p > 0 || a->x_drop.p > 0) {
        lora_linear_bwd(dev, a);
        return;
    }
    if (dev->err.code || a->n == 0 || tiles_linear_bwd(dev, a))
        return;
#pragma omp parallel num_threads(threads)
    {
        int64_t begin, end;

        if (a->dx) {          /* dx completely before dw, which may read the x recomputed with it */
#pragma omp for schedule(dynamic, 1)
            for (int64_t i = 0; i < dx.tasks; i++) {
                struct task_block b = task_block(&dx, i);

                backward_block(dev, a, &b);
            }
        }
        if (a->proj.dw) {
#pragma omp for schedule(dynamic, 1) nowait
            for (int64_t i = 0; i < dw.tasks; i++) {
                struct task_block b = task_block(&dw, i);

                grads_block(a, a->dout, linear_out_ld(a), &b);
            }
        }
        cpu_range(&begin, &end, a->n_out, 16, omp_get_thread_num(), omp_get_num_threads());
        if (a->proj.db)
            linear_add_columns(a->proj.db, a->dout, a->n, linear_out_ld(a), begin, end);
    }
}

void cpu_head_logits(struct device *dev, float *logits, const void *x, const void *w, int64_t n,
                     int64_t dim, int64_t vocab, float mul)
{
    /* x of an op_linear is not const for its backward, which may recompute it. */
    struct op_linear a = {.out = logits, .x = (void *)(uintptr_t)x, .proj.w = w, .n = n,
                          .n_in = dim, .n_out = vocab};

    cpu_linear_fwd(dev, &a);
    if (mul != 1.0f && !cpu_ended(dev))
        cblas_sscal((int)(n * vocab), mul, logits, 1);
}

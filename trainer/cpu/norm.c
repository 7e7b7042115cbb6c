/*
 * norm - LayerNorm and RMSNorm by rows, their backward, and the embedding that is normalised
 * as it is gathered.
 *
 * Statistics are f32 over one row in two passes (mean, then centred squares).  Gradients of
 * gain and bias are summed per thread over its rows and then over threads in their order.
 */
#include "trainer/cpu/cpu.h"

#include <math.h>
#include <string.h>

#include "trainer/cpu/linear.h"
#include "trainer/cpu/typed.h"

CPU_HOT static void forward(float *out, float *stats, const float *x, const int32_t *rows,
                            const struct op_norm *norm, int64_t begin, int64_t end, int64_t dim)
{
    const float *w = norm->w, *b = norm->b;
    float inv = 1.0f / (float)dim;

    for (int64_t i = begin; i < end; i++) {
        const float *row = x + (rows ? rows[i] : i) * dim;
        float *o = out + i * dim, sum = 0, sq = 0, mean, rstd;

        if (norm->kind == OP_NORM_LAYER) {
#pragma omp simd reduction(+ : sum)
            for (int64_t j = 0; j < dim; j++)
                sum += row[j];
        }
        mean = sum * inv;
#pragma omp simd reduction(+ : sq)
        for (int64_t j = 0; j < dim; j++)
            sq += (row[j] - mean) * (row[j] - mean);
        rstd = 1.0f / sqrtf(sq * inv + norm->eps);
        if (b) {
#pragma omp simd
            for (int64_t j = 0; j < dim; j++)
                o[j] = (row[j] - mean) * rstd * w[j] + b[j];
        } else {
#pragma omp simd
            for (int64_t j = 0; j < dim; j++)
                o[j] = (row[j] - mean) * rstd * w[j];
        }
        stats[2 * i] = mean;
        stats[2 * i + 1] = rstd;
    }
}

/* Add one row to dw[dim], db[dim]; sums gets the two means that dx needs. */
CPU_HOT static void row_sums(float *restrict dw, float *restrict db, float sums[2],
                             const float *restrict g, const float *restrict add,
                             const float *restrict x, const float *restrict w, float mean,
                             float rstd, int64_t dim)
{
    float s1 = 0, s2 = 0;

#pragma omp simd reduction(+ : s1, s2)
    for (int64_t j = 0; j < dim; j++) {
        float gj = g[j] + (add ? add[j] : 0.0f), xhat = (x[j] - mean) * rstd;

        dw[j] += gj * xhat;
        db[j] += gj;
        s1 += gj * w[j];
        s2 += gj * w[j] * xhat;
    }
    sums[0] = s1 / (float)dim;
    sums[1] = s2 / (float)dim;
}

CPU_HOT static void row_dx(float *dx, const float *g, const float *add, const float *dx_add,
                           const float *x, const float *w, const float sums[2], float mean,
                           float rstd, int64_t dim)
{
    float s1 = sums[0], s2 = sums[1];

#pragma omp simd
    for (int64_t j = 0; j < dim; j++) {
        float gj = (g[j] + (add ? add[j] : 0.0f)) * w[j], xhat = (x[j] - mean) * rstd;

        dx[j] = rstd * (gj - s1 - xhat * s2) + (dx_add ? dx_add[j] : 0.0f);
    }
}

/*
 * One thread's rows: dx, and the thread's own sums dw, db.  gathered: dx has one row per row of
 * dout, not per row of x.
 */
static void backward(const struct op_rownorm *a, bool gathered, float *dw, float *db,
                     int64_t begin, int64_t end)
{
    const float *x = a->x, *g = a->dout, *add = a->dout_add, *dx_add = a->dx_add;
    float *dx = a->dx, sums[2];
    int64_t dim = a->dim;

    memset(dw, 0, (size_t)dim * sizeof *dw);
    memset(db, 0, (size_t)dim * sizeof *db);
    for (int64_t i = begin; i < end; i++) {
        int64_t r = a->rows ? a->rows[i] : i, to = gathered ? i : r;
        const float *gi = g + i * dim, *ai = add ? add + i * dim : NULL;
        float mean = a->stats[2 * i], rstd = a->stats[2 * i + 1];

        row_sums(dw, db, sums, gi, ai, x + r * dim, a->norm.w, mean, rstd, dim);
        if (a->norm.kind == OP_NORM_RMS)        /* RMSNorm does not subtract a mean */
            sums[0] = 0;
        row_dx(dx + to * dim, gi, ai, dx_add ? dx_add + to * dim : NULL, x + r * dim, a->norm.w,
               sums, mean, rstd, dim);
    }
}

/* Add the threads' sums, in order of threads, to total[begin, end). */
CPU_HOT static void add_parts(float *total, const float *part, int64_t stride, int threads,
                              int64_t begin, int64_t end)
{
    for (int t = 0; t < threads; t++)
#pragma omp simd
        for (int64_t j = begin; j < end; j++)
            total[j] += part[t * stride + j];
}

uint64_t cpu_norm_work(const struct device *dev, const struct op_limits *l)
{
    return l->train ? (uint64_t)dev->threads * 2 * (uint64_t)l->dim * sizeof(float) : 0;
}

/* The norm with its weights converted to f32. */
static struct op_norm wide(struct device *dev, const struct op_rownorm *a)
{
    struct op_norm norm = a->norm;

    norm.w = typed_vector(dev, 0, norm.w, a->dim);
    norm.b = typed_vector(dev, 1, norm.b, a->dim);
    return norm;
}

void cpu_norm_fwd(struct device *dev, const struct op_rownorm *a)
{
    struct op_norm norm = wide(dev, a);

    if (dev->err.code)
        return;
#pragma omp parallel num_threads(cpu_threads(dev, 8 * a->n * a->dim))
    {
        int64_t begin, end;

        cpu_range(&begin, &end, a->n, 1, omp_get_thread_num(), omp_get_num_threads());
        forward(a->out, a->stats, a->x, a->rows, &norm, begin, end, a->dim);
    }
}

/* The column sums of x, if requested. */
static void columns(struct device *dev, const struct op_rownorm *a, float *sum, const float *x)
{
    int64_t dim = a->dim;

    if (!sum)
        return;
#pragma omp parallel num_threads(cpu_threads(dev, a->n * dim))
    {
        int64_t begin, end;

        cpu_range(&begin, &end, dim, 16, omp_get_thread_num(), omp_get_num_threads());
        if (a->fresh && end > begin)
            memset(sum + begin, 0, (size_t)(end - begin) * sizeof *sum);
        linear_add_columns(sum, x, a->n, dim, begin, end);
    }
}

static void norm_bwd(struct device *dev, const struct op_rownorm *op, bool gathered)
{
    struct op_limits limits = {.dim = op->dim, .train = true};
    struct op_rownorm typed = *op, *a = &typed;
    int64_t dim = a->dim;
    float *work = dev->work;

    a->norm = wide(dev, op);
    if (dev->err.code || cpu_work_short(dev, "norm_bwd", cpu_norm_work(dev, &limits)))
        return;
    columns(dev, a, a->add_sum, a->dx_add);
#pragma omp parallel num_threads(cpu_threads(dev, 8 * a->n * a->dim))
    {
        int me = omp_get_thread_num(), threads = omp_get_num_threads();
        int64_t begin, end;

        if (a->rows && !gathered) {
            cpu_range(&begin, &end, a->n_x, 1, me, threads);
            memset((float *)a->dx + begin * dim, 0,
                   (size_t)((end - begin) * dim) * sizeof(float));
#pragma omp barrier
        }
        cpu_range(&begin, &end, a->n, 1, me, threads);
        backward(a, gathered, work + 2 * me * dim, work + (2 * me + 1) * dim, begin, end);
#pragma omp barrier
        cpu_range(&begin, &end, dim, 16, me, threads);
        if (a->norm.dw)
            add_parts(a->norm.dw, work, 2 * dim, threads, begin, end);
        if (a->norm.db)
            add_parts(a->norm.db, work + dim, 2 * dim, threads, begin, end);
    }
    columns(dev, a, a->dx_sum, a->dx);
}

void cpu_norm_bwd(struct device *dev, const struct op_rownorm *a) { norm_bwd(dev, a, false); }

void cpu_norm_bwd_gathered(struct device *dev, const struct op_rownorm *a)
{
    norm_bwd(dev, a, true);
}

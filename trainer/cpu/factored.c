/*
 * factored - the parts of a step of Adafactor over the elements that a rank owns.
 *
 * Formulas are those of ops/optimizer.h, sums are made in f64.  Every row and every column is
 * summed by one thread in the order of its elements: the same bits for any number of threads.
 * Ranks add sums, not means: several ranks get the numbers of one but for the last bits.
 */
#include "trainer/cpu/cpu.h"

#include <math.h>

#include "libckpt/convert.h"

enum {
    SLOTS = 64,                     /* pieces whose sums are added in their order */
    COLUMNS = 64                    /* neighbouring columns that one thread sums */
};

/* What a rank owns of a row: [from, to) of its columns. */
struct span {
    int64_t from, to;
};

static struct span span_of(const struct op_factored *f, int64_t row)
{
    int64_t at = row * f->cols, end = f->start + f->n;

    return (struct span){f->start > at ? f->start - at : 0,
                         end - at < f->cols ? end - at : f->cols};
}

static int64_t first_row(const struct op_factored *f) { return f->start / f->cols; }
static int64_t end_row(const struct op_factored *f)
{
    return f->n > 0 ? (f->start + f->n - 1) / f->cols + 1 : first_row(f);
}

/* The gradient of column 0 of a row: not all columns need be there. */
static int64_t skip_of(const struct op_factored *f, int64_t row)
{
    return row * f->cols - f->start;
}

/* -- sums ------------------------------------------------------------------------------------- */

static double row_squares(const float *g, int64_t n, float factor)
{
    double sum = 0;

#pragma omp simd reduction(+ : sum)
    for (int64_t c = 0; c < n; c++) {
        double x = g[c] * factor;

        sum += x * x;
    }
    return sum;
}

/* Columns [begin, end) of all matrices. */
static void column_squares(const struct op_factored *f, int64_t begin, int64_t end, float factor)
{
    for (int64_t r = first_row(f); r < end_row(f); r++) {
        struct span s = span_of(f, r);
        double *sum = f->sum + f->rows + r / f->height * f->cols;
        const float *g = f->grad;
        int64_t from = s.from > begin ? s.from : begin, to = s.to < end ? s.to : end;
        int64_t skip = skip_of(f, r);

        for (int64_t c = from; c < to; c++) {
            double x = g[skip + c] * factor;

            sum[c] += x * x;
        }
    }
}

static int64_t sums_of(const struct op_factored *f)
{
    return f->rows + (f->cols ? f->rows / f->height * f->cols : 0);
}

static void sums(struct device *dev, const struct op_factored *f, float factor)
{
    double squares;

    cpu_sum_squares(dev, &squares, f->param, f->n);
    *f->weight_square = f->first ? squares : *f->weight_square + squares;
    for (int64_t k = 0; k < sums_of(f); k++)
        f->sum[k] = 0;
    for (int64_t k = 0; !f->cols && k < f->n; k++) {
        double x = f->grad[k] * factor;

        f->sum[f->start + k] = x * x;
    }
    if (!f->cols)
        return;
#pragma omp parallel num_threads(cpu_threads(dev, 8 * f->n))
    {
#pragma omp for schedule(static)
        for (int64_t r = first_row(f); r < end_row(f); r++) {
            struct span s = span_of(f, r);

            f->sum[r] = row_squares(f->grad + skip_of(f, r) + s.from, s.to - s.from, factor);
        }
#pragma omp for schedule(static)
        for (int64_t c = 0; c < f->cols; c += COLUMNS)
            column_squares(f, c, c + COLUMNS < f->cols ? c + COLUMNS : f->cols, factor);
    }
}

/* -- moments ---------------------------------------------------------------------------------- */

/* moment[n] decays towards sum[n] / count + eps; more: what else is in the sums, or NULL. */
static void decay(float *moment, const double *sum, const double *more, int64_t n, double count,
                  double keep, double eps)
{
    for (int64_t k = 0; k < n; k++) {
        double x = more ? sum[k] + more[k] : sum[k];

        moment[k] = (float)(moment[k] * keep + (1.0 - keep) * (x / count + eps));
    }
}

/* sqrt(mean(row) / row) of one row, its matrix's mean given. */
static float row_factor(const struct op_factored *f, int64_t row, double mean)
{
    return (float)sqrt(mean / f->row[row]);
}

static double row_mean(const struct op_factored *f, int64_t matrix)
{
    const float *row = f->row + matrix * f->height - f->above;
    double sum = 0;

    for (int64_t r = 0; r < f->tall; r++)
        sum += row[r];
    return sum / (double)f->tall;
}

/* u[n] of columns [from, from + n) of a row. */
CPU_HOT static void direction(float *restrict u, const float *restrict g, const float *restrict col,
                              int64_t n, float factor)
{
#pragma omp simd
    for (int64_t c = 0; c < n; c++)
        u[c] = g[c] * factor / sqrtf(col[c]);
}

/* A piece of neighbouring elements of one row, or of a vector. */
enum { PIECE = 1024 };
typedef double piece_fn(const struct op_factored *f, int64_t at, const float *u, int64_t n,
                        const void *ctx);

/* fn of elements [begin, end) of those that a rank owns, with their u; the sum of its results. */
static double over(const struct op_factored *f, int64_t begin, int64_t end, float factor,
                   piece_fn *fn, const void *ctx)
{
    int64_t matrix = -1;
    double mean = 0, sum = 0;
    float u[PIECE];

    for (int64_t at = begin, n; at < end; at += n) {
        int64_t whole = f->start + at, row = f->cols ? whole / f->cols : 0;
        int64_t c = f->cols ? whole % f->cols : whole, left = (f->cols ? f->cols : f->rows) - c;
        const float *col = f->cols ? f->col + row / f->height * f->cols : f->row;

        n = left < PIECE ? left : PIECE;
        n = end - at < n ? end - at : n;
        if (f->cols && row / f->height != matrix)
            mean = row_mean(f, matrix = row / f->height);
        direction(u, f->grad + at, col + c, n,
                  f->cols ? factor * row_factor(f, row, mean) : factor);
        sum += fn(f, at, u, n, ctx);
    }
    return sum;
}

/* The same over all of them, with the device's threads. */
static double over_all(struct device *dev, const struct op_factored *f, float factor, piece_fn *fn,
                       const void *ctx)
{
    double part[SLOTS], sum = 0;

#pragma omp parallel for schedule(static) num_threads(cpu_threads(dev, 8 * f->n))
    for (int i = 0; i < SLOTS; i++) {
        int64_t begin, end;

        cpu_range(&begin, &end, f->n, 16, i, SLOTS);
        part[i] = over(f, begin, end, factor, fn, ctx);
    }
    for (int i = 0; i < SLOTS; i++)
        sum += part[i];
    return sum;
}

static double square(const struct op_factored *f, int64_t at, const float *u, int64_t n,
                     const void *ctx)
{
    double sum = 0;

    (void)f;
    (void)at;
    (void)ctx;
    for (int64_t k = 0; k < n; k++)
        sum += (double)u[k] * (double)u[k];
    return sum;
}

static void moments(const struct op_factored *f, const struct adamw *a)
{
    const struct op_adafactor *o = a->adafactor;
    double keep = 1.0 - pow((double)a->step, o->decay_rate);

    if (f->first)
        *f->rms = (float)sqrt(*f->weight_square / (double)f->numel);
    decay(f->row, f->sum, NULL, f->rows, f->cols ? (double)f->cols : 1, keep, o->eps);
    if (f->cols && f->above == 0)       /* one parameter does it for a matrix */
        decay(f->col, f->sum + f->rows, f->beside, f->rows / f->height * f->cols, (double)f->tall,
              keep, o->eps);
}

static void update_squares(struct device *dev, const struct op_factored *f, float factor)
{
    double squares = over_all(dev, f, factor, square, NULL);

    *f->update_square = f->first ? squares : *f->update_square + squares;
}

/* -- weights ---------------------------------------------------------------------------------- */

struct scalars {
    float scale, beta1, one_minus_b1, keep;
    struct device *dev;
};

static double step_weights(const struct op_factored *f, int64_t at, const float *u, int64_t n,
                           const void *ctx)
{
    const struct scalars *s = ctx;
    float *p = f->param + at, *m = f->exp_avg ? f->exp_avg + at : NULL;
    size_t wide = ckpt_dtype_size(s->dev->weight);

    for (int64_t k = 0; k < n; k++) {
        float x = u[k] * s->scale;

        if (m)
            x = m[k] = m[k] * s->beta1 + x * s->one_minus_b1;
        p[k] = p[k] * s->keep - x;
    }
    if (f->rounded)
        ckpt_convert((unsigned char *)f->rounded + (size_t)at * wide, s->dev->weight, p, CKPT_F32,
                     (size_t)n);
    return 0;
}

static double rate_of(const struct op_factored *f, const struct adamw *a)
{
    const struct op_adafactor *o = a->adafactor;
    double lr = f->lr, t = (double)a->step;

    if (o->relative_step)
        lr = fmin(o->warmup_init ? 1e-6 * t : 1e-2, 1.0 / sqrt(t));
    return o->scale_parameter ? lr * fmax(o->eps_rms, *f->rms) : lr;
}

static void update(struct device *dev, const struct op_factored *f, float factor,
                   const struct adamw *a)
{
    const struct op_adafactor *o = a->adafactor;
    double lr = rate_of(f, a), rms = sqrt(*f->update_square / (double)f->numel) / o->clip_threshold;
    struct scalars s = {.scale = (float)(lr / fmax(1.0, rms)), .beta1 = (float)o->beta1,
                        .one_minus_b1 = (float)(1.0 - o->beta1),
                        .keep = (float)(1.0 - lr * f->weight_decay), .dev = dev};

    over_all(dev, f, factor, step_weights, &s);
}

void cpu_factored(struct device *dev, enum op_factored_part part, const struct op_factored *f,
                  int64_t n, const struct adamw *a)
{
    float factor = a->verdict ? a->verdict->factor : (float)a->grad_scale;

    if (dev->err.code || (a->verdict && !a->verdict->finite))
        return;
    for (int64_t i = 0; i < n; i++) {
        if (part == OP_FACTORED_SUMS)
            sums(dev, &f[i], factor);
        else if (part == OP_FACTORED_MOMENTS)
            moments(&f[i], a);
        else
            update(dev, &f[i], factor, a);
    }
    /* Once the rows are there that others have of a matrix. */
    for (int64_t i = 0; part == OP_FACTORED_MOMENTS && i < n; i++)
        update_squares(dev, &f[i], factor);
}

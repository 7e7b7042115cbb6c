/*
 * linear_tiles - projections with bf16 weights, using the CPU's bf16 instructions (tiles.h).
 *
 * Activations are rounded to bf16 as they are packed, sums and everything elementwise stay f32.
 * How threads share the work: tile_tasks.h.
 */
#include "trainer/cpu/linear.h"

#include "trainer/cpu/act.h"
#include "trainer/cpu/tile_tasks.h"
#include "trainer/cpu/typed.h"

#define MIN_ROWS 16                     /* below, packing costs more than it saves */

static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

/* Size of the packed left factor; x is packed after it. */
static int64_t left_numbers(int64_t n, int64_t n_in, int64_t n_out)
{
    int64_t forward = tiles_packed(n, n_in), back = tiles_packed(n, n_out);

    return larger(larger(forward, back), tiles_packed(n_out, n));
}

uint64_t tiles_linear_work(const struct device *dev, int64_t n, int64_t n_in, int64_t n_out)
{
    if (cpu_kernel(dev) == TILES_NONE)
        return 0;
    return (uint64_t)(left_numbers(n, n_in, n_out) + tiles_packed(n_in, n)) * sizeof(uint16_t);
}

static bool taken(const struct device *dev, const struct op_linear *a)
{
    return cpu_kernel(dev) != TILES_NONE && a->n >= MIN_ROWS &&
           tiles_linear_work(dev, a->n, a->n_in, a->n_out) + typed_reserve(dev) <= dev->work_bytes;
}

static struct tiles_side matrix_of(const struct op_linear *a, bool back)
{
    return (struct tiles_side){.at = a->proj.w, .ld = op_linear_cols(a),
                               .along = op_linear_in_out(a) == back, .bf16 = true};
}

bool tiles_linear_fwd(struct device *dev, const struct op_linear *a)
{
    struct tiles_side x = {.at = a->x, .ld = a->n_in, .along = true}, w = matrix_of(a, false);
    int threads = cpu_threads(dev, a->n * a->n_in * a->n_out);
    struct task_cut cut = task_cut(a->n, a->n_out, threads);
    uint16_t *left = dev->work;

    if (!taken(dev, a))
        return false;
#pragma omp parallel num_threads(threads)
    {
        task_pack(dev, left, &x, false, a->n, a->n_in);
#pragma omp for schedule(dynamic, 1)
        for (int64_t i = 0; i < cut.tasks; i++) {
            struct task_block b = task_block(&cut, i);
            bool add;

            if (device_stopped(dev))
                continue;
            add = linear_before(a, b.r0, b.r1, b.c0, b.c1);
            task_matrix(dev, linear_to(a), linear_out_ld(a), &b, left, &w, a->n_in, add);
            linear_after(a, b.r0, b.r1, b.c0, b.c1);
        }
    }
    return true;
}

/* Compute a block of dx, and of x when it is recomputed. */
static void back_block(const struct device *dev, const struct op_linear *a,
                       const struct task_block *b, const uint16_t *left)
{
    struct tiles_side w = matrix_of(a, true);
    float *x = a->x, *dx = a->dx;
    const float *pre = a->x_pre;

    task_matrix(dev, dx, a->n_in, b, left, &w, a->n_out, a->flags & OP_LINEAR_DX_ADD);
    for (int64_t i = b->r0; a->x_act != OP_ACT_NONE && i < b->r1; i++) {
        int64_t at = i * a->n_in + b->c0;

        cpu_act_back(a->x_act, x + at, dx + at, pre + at, b->c1 - b->c0);
    }
}

/* dw and db, by all threads. */
static void grads(const struct device *dev, const struct op_linear *a, uint16_t *out, uint16_t *in)
{
    struct tiles_side dout = {.at = a->dout, .ld = linear_out_ld(a)};
    struct tiles_side x = {.at = a->x, .ld = a->n_in};
    bool in_out = op_linear_in_out(a);
    int64_t rows = op_linear_rows(a), cols = op_linear_cols(a);
    struct task_cut cut = task_cut(rows, cols, omp_get_num_threads());
    int64_t begin, end;

    if (a->proj.dw) {
        task_pack(dev, out, &dout, in_out, a->n_out, a->n);
        task_pack(dev, in, &x, !in_out, a->n_in, a->n);
#pragma omp for schedule(dynamic, 1) nowait
        for (int64_t i = 0; i < cut.tasks; i++) {
            struct task_block b = task_block(&cut, i);

            task_packed(dev, a->proj.dw, cols, &b, in_out ? in : out, in_out ? out : in, a->n);
        }
    }
    cpu_range(&begin, &end, a->n_out, 16, omp_get_thread_num(), omp_get_num_threads());
    if (a->proj.db)
        linear_add_columns(a->proj.db, a->dout, a->n, linear_out_ld(a), begin, end);
}

bool tiles_linear_bwd(struct device *dev, const struct op_linear *a)
{
    struct tiles_side dout = {.at = a->dout, .ld = linear_out_ld(a), .along = true};
    int threads = cpu_threads(dev, a->n * a->n_in * a->n_out);
    struct task_cut cut = task_cut(a->n, a->n_in, threads);
    uint16_t *left = dev->work, *right = left + left_numbers(a->n, a->n_in, a->n_out);

    if (!taken(dev, a))
        return false;
#pragma omp parallel num_threads(threads)
    {
        if (a->dx) {
            task_pack(dev, left, &dout, false, a->n, a->n_out);
#pragma omp for schedule(dynamic, 1)
            for (int64_t i = 0; i < cut.tasks; i++) {
                struct task_block b = task_block(&cut, i);

                back_block(dev, a, &b, left);
            }
        }
        grads(dev, a, left, right);
    }
    return true;
}

/*
 * embed - rows of the embedding table, normalised as they are gathered or with their position's
 * row added; and back.
 *
 * The table's gradient is split by columns: each thread adds all rows in their order to its own
 * strip, so two tokens with one id never meet and the sum's order is fixed.
 */
#include "trainer/cpu/cpu.h"

#include <string.h>

/* Rows of id `not` are left out. */
CPU_HOT static void add_strip(float *restrict table, const float *restrict rows,
                              const int32_t *restrict ids, int64_t not, int64_t n, int64_t dim,
                              int64_t begin, int64_t end)
{
    for (int64_t i = 0; i < n; i++) {
        float *to = table + ids[i] * dim;
        const float *from = rows + i * dim;

        if (ids[i] == not)
            continue;
#pragma omp simd
        for (int64_t j = begin; j < end; j++)
            to[j] += from[j];
    }
}

CPU_HOT static void add_rows(float *restrict out, const float *restrict a,
                             const float *restrict b, int64_t n)
{
#pragma omp simd
    for (int64_t j = 0; j < n; j++)
        out[j] = a[j] + b[j];
}

void cpu_embed_fwd(struct device *dev, const struct op_embed *a)
{
    float *out = a->out;
    const float *table = a->table, *pos = a->pos;

    if (dev->err.code)
        return;
    if (a->norm) {
        cpu_norm_fwd(dev, &(struct op_rownorm){
            .out = a->out, .stats = a->stats, .x = a->table, .rows = a->ids, .norm = *a->norm,
            .n = a->n, .n_x = a->vocab, .dim = a->dim});
        return;
    }
#pragma omp parallel for schedule(static) num_threads(cpu_threads(dev, 8 * a->n * a->dim))
    for (int64_t i = 0; i < a->n; i++)
        if (pos)
            add_rows(out + i * a->dim, table + a->ids[i] * a->dim, pos + a->positions[i] * a->dim,
                     a->dim);
        else
            memcpy(out + i * a->dim, table + a->ids[i] * a->dim, (size_t)a->dim * sizeof(float));
}

void cpu_embed_bwd(struct device *dev, const struct op_embed *a)
{
    if (a->norm)
        cpu_norm_bwd_gathered(dev, &(struct op_rownorm){
            .stats = a->stats, .dx = a->dout, .x = a->table, .dout = a->dout, .rows = a->ids,
            .norm = *a->norm, .n = a->n, .n_x = a->vocab, .dim = a->dim});
    if (dev->err.code)
        return;
#pragma omp parallel num_threads(cpu_threads(dev, 8 * a->n * a->dim))
    {
        int64_t begin, end;

        cpu_range(&begin, &end, a->dim, 16, omp_get_thread_num(), omp_get_num_threads());
        if (a->dtable)
            add_strip(a->dtable, a->dout, a->ids, a->no_grad, a->n, a->dim, begin, end);
        if (a->dpos)
            add_strip(a->dpos, a->dout, a->positions, -1, a->n, a->dim, begin, end);
    }
}

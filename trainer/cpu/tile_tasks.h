/*
 * tile_tasks - how threads share a product of tiles.
 *
 * The factor whose rows are those of the batch is packed once, by all threads together.  A task
 * is a block of the result: its thread packs the matching part of the matrix into its own panel,
 * which stays in a cache while all rows use it.  Threads take the next task when they are free,
 * so a slow thread delays nobody, and every number is summed by one task in one order.
 */
#ifndef CKPT_TRAINER_CPU_TILE_TASKS_H
#define CKPT_TRAINER_CPU_TILE_TASKS_H

#include "trainer/cpu/cpu.h"

/* How a result [m, n] is cut. */
struct task_cut {
    int64_t m, n, high, wide, across, tasks;
};

struct task_block {
    int64_t r0, r1, c0, c1;
};

struct task_cut task_cut(int64_t m, int64_t n, int threads);
/* The same where a task packs both its factors: near to square. */
struct task_cut task_grid(int64_t m, int64_t n, int threads);
struct task_block task_block(const struct task_cut *c, int64_t task);

/* Called by all threads of a team, with a barrier at the end: panels of n rows (or columns), k
 * terms. */
void task_pack(const struct device *dev, uint16_t *to, const struct tiles_side *s, bool right,
               int64_t n, int64_t k);
/* Compute a block of to[m, n] (row stride ld) from packed rows of k terms and the matrix on the
 * right. */
void task_matrix(const struct device *dev, float *to, int64_t ld, const struct task_block *b,
                 const uint16_t *rows, const struct tiles_side *matrix, int64_t k, bool add);
/* Add to a block of to, from both factors packed over k terms. */
void task_packed(const struct device *dev, float *to, int64_t ld, const struct task_block *b,
                 const uint16_t *left, const uint16_t *right, int64_t k);

#endif

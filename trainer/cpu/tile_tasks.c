/* tile_tasks - see tile_tasks.h. */
#include "trainer/cpu/tile_tasks.h"

#include "trainer/cpu/typed.h"

#define WIDE      64                    /* columns of a task */
#define NARROW    32
#define HIGH      128                   /* least rows of a task, when rows are split */
#define LOW       32                    /* the same for products that pack both factors */
#define FEW       8                     /* threads: with fewer, one block each, to pack less
                                           often */
#define TERMS     4096                  /* terms of a sum at a time: the size of a panel of the
                                           matrix */

struct task_cut task_cut(int64_t m, int64_t n, int threads)
{
    struct task_cut c = {.m = m, .n = n, .high = (m + 2 * TILE - 1) / (2 * TILE) * 2 * TILE};

    c.wide = n >= 3 * WIDE * (int64_t)threads ? WIDE : NARROW;
    c.across = (n + c.wide - 1) / c.wide;
    while (c.across * ((m + c.high - 1) / c.high) < 3 * threads && c.high / 2 >= HIGH)
        c.high = (c.high / 2 + 2 * TILE - 1) / (2 * TILE) * 2 * TILE;
    c.tasks = c.across * ((m + c.high - 1) / c.high);
    return c;
}

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

static int64_t part(int64_t n, int64_t parts, int64_t unit)
{
    int64_t each = (n + parts - 1) / parts;

    return each <= unit ? unit : (each + unit - 1) / unit * unit;
}

struct task_cut task_grid(int64_t m, int64_t n, int threads)
{
    int64_t parts = threads < FEW ? threads : 2 * threads;
    struct task_cut c = {.m = m, .n = n, .high = part(m, 1, 8), .wide = part(n, parts, 16)};

    for (int64_t down = 2; down <= parts && part(m, down, 8) >= LOW; down++) {
        int64_t high = part(m, down, 8), wide = part(n, parts / down, 16);

        if (parts % down == 0 && high + wide < c.high + c.wide) {
            c.high = high;
            c.wide = wide;
        }
    }
    c.across = (n + c.wide - 1) / c.wide;
    c.tasks = c.across * ((m + c.high - 1) / c.high);
    return c;
}

struct task_block task_block(const struct task_cut *c, int64_t task)
{
    int64_t row = task / c->across * c->high, col = task % c->across * c->wide;

    return (struct task_block){.r0 = row, .r1 = least(row + c->high, c->m),
                               .c0 = col, .c1 = least(col + c->wide, c->n)};
}

void task_pack(const struct device *dev, uint16_t *to, const struct tiles_side *s, bool right,
               int64_t n, int64_t k)
{
#pragma omp for schedule(static)
    for (int64_t i = 0; i < n; i += TILE)
        tiles_pack(cpu_kernel(dev), to + tiles_packed(i, k), s, right, i, least(n - i, TILE), 0, k);
}

void task_matrix(const struct device *dev, float *to, int64_t ld, const struct task_block *b,
                 const uint16_t *rows, const struct tiles_side *matrix, int64_t k, bool add)
{
    uint16_t *panel = (uint16_t *)(void *)typed_panel(dev);
    enum tiles_kernel kernel = cpu_kernel(dev);

    _Static_assert(2 * TYPED_PANEL >= WIDE * TERMS, "a task's part of the matrix fits a panel");
    for (int64_t at = 0; at < k; at += TERMS) {
        int64_t terms = least(k - at, TERMS);

        tiles_pack(kernel, panel, matrix, true, b->c0, b->c1 - b->c0, at, terms);
        tiles_product(kernel, to + b->r0 * ld + b->c0, ld, b->r1 - b->r0, b->c1 - b->c0, terms,
                      rows + tiles_packed(b->r0, k) + at * TILE, k, panel, add || at > 0);
    }
}

void task_packed(const struct device *dev, float *to, int64_t ld, const struct task_block *b,
                 const uint16_t *left, const uint16_t *right, int64_t k)
{
    tiles_product(cpu_kernel(dev), to + b->r0 * ld + b->c0, ld, b->r1 - b->r0, b->c1 - b->c0, k,
                  left + tiles_packed(b->r0, k), k, right + tiles_packed(b->c0, k), true);
}

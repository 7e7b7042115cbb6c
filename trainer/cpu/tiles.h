/*
 * tiles - matrix products of bf16 numbers with f32 sums, by the CPU's own instructions: AMX
 * (TDPBF16PS) or AVX512-BF16 (VDPBF16PS), chosen at run time.
 *
 * Both sides are packed into tiles first, rounded to bf16 where they are f32.  A tile is 1 KiB:
 * TILE rows (or columns) of the product by TILE_K terms of its sums.
 *   left   [TILE rows][TILE_K terms]
 *   right  [TILE_K / 2 pairs of terms][TILE columns][2]
 * A panel is the tiles of TILE rows one after another along the sum; panels follow each other.
 * Elements beyond the matrix are 0.  Both instructions read this layout, and so does a plain
 * loop, with which tests verify the packing on machines that have neither instruction.
 *
 * Denormal numbers count as 0 in both instructions.  Source: Intel 64 and IA-32 Architectures
 * Software Developer's Manual, vol. 2, TDPBF16PS, VDPBF16PS; vol. 1, chapter 18 (tile
 * configuration).
 */
#ifndef CKPT_TRAINER_CPU_TILES_H
#define CKPT_TRAINER_CPU_TILES_H

#include <stdbool.h>
#include <stdint.h>

#define TILE   16
#define TILE_K 32

enum tiles_kernel { TILES_NONE, TILES_PLAIN, TILES_AVX512, TILES_AMX };

/* The best kernel that the CPU and the operating system allow; TILES_NONE without one. */
enum tiles_kernel tiles_best(void);

/* A factor of a product: element i of term k is at[i * ld + k] with along, else at[k * ld + i]. */
struct tiles_side {
    const void *at;
    int64_t     ld;
    bool        along;
    bool        bf16;                   /* else f32 */
};

/* Numbers of n rows (or columns) packed over k terms. */
static inline int64_t tiles_packed(int64_t n, int64_t k)
{
    return (n + TILE - 1) / TILE * TILE * ((k + TILE_K - 1) / TILE_K * TILE_K);
}

/* to <- rows (right: columns) [i0, i0 + n), terms [k0, k0 + k), in panels. */
void tiles_pack(enum tiles_kernel kernel, uint16_t *to, const struct tiles_side *s, bool right,
                int64_t i0, int64_t n, int64_t k0, int64_t k);

/*
 * c[m, n], rows ld apart, = left right, + c with add.  Panels of right hold k terms; panels of
 * left hold left_k, of which the k from `left` on are used.
 */
void tiles_product(enum tiles_kernel kernel, float *c, int64_t ld, int64_t m, int64_t n,
                   int64_t k, const uint16_t *left, int64_t left_k, const uint16_t *right,
                   bool add);

#endif

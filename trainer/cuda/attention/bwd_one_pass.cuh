/*
 * attention/bwd_one_pass - shared by the warpgroups of attention/bwd_one_pass.cu: the layout of
 * shared memory, the tiles of queries that a block visits, and the ticket with which it may add
 * to a tile's dq.
 */
#ifndef CKPT_TRAINER_CUDA_ATTENTION_BWD_ONE_PASS_H
#define CKPT_TRAINER_CUDA_ATTENTION_BWD_ONE_PASS_H

#include "trainer/cuda/attention/dropout.cuh"
#include "trainer/cuda/hopper/tma.cuh"

#include <limits.h>

enum { KEYS = 128, ROWS = 64, GROUP = 128, ALL = 3 * GROUP, PAIR = 64 };

/* Registers per thread of the multiplying warpgroups (2) and of the producer (1): 504 in all. */
template <int D> struct registers {
    static const int MANY = D > 96 ? 240 : 232, FEW = 504 - 2 * MANY;
};

/* Layout of a block's shared memory. */
template <typename T, int D> struct bwd_pool {
    T        k[KEYS * D], v[KEYS * D], q[2][ROWS * D], dout[2][ROWS * D], ds[2][ROWS * KEYS];
    float    dq[2][ROWS * D];           /* each is written by one warpgroup alone */
    float    lse[2][ROWS], delta[2][ROWS];
    uint64_t keys, full[2], done[2], taken[2];
};

/* Tiles of queries that a block visits: from `first` on; at `wrap` it continues from 0. */
struct walk {
    int first, wrap, tiles;
};

/* -- order of blocks --------------------------------------------------------------------------- */

/* The block's tile of keys; false: there is none. */
__device__ __forceinline__ bool bwd_block_keys(const struct attn &a, struct place *p, int *g)
{
    int b = (int)(gridDim.x - 1 - blockIdx.x), each, first;

    if (a.key_start) {
        each = (a.max_doc + KEYS - 1) / KEYS;
        p->doc = b / (each * a.n_kv);
        first = p->doc * each;
    } else {
        p->doc = attn_doc_of_slot(a.doc_start, a.n_docs, KEYS, b / a.n_kv);
        first = a.doc_start[p->doc] / KEYS + p->doc;
        each = a.doc_start[p->doc + 1] / KEYS + p->doc + 1 - first;
    }
    b -= first * a.n_kv;
    *g = b / each;
    attn_document(a, p, p->doc, *g);
    p->begin = b % each * KEYS;
    return p->begin < p->keys;
}

__device__ __forceinline__ int bwd_ceil_div(int n, int each) { return (n + each - 1) / each; }

/* Whether blocks of a head wrap around: only where all of them are resident at once. */
__device__ __forceinline__ bool bwd_goes_round(const struct attn &a, int blocks)
{
    return blocks <= a.slots;
}

__device__ __forceinline__ struct walk bwd_walk_of(const struct attn &a, const struct place &p)
{
    int tiles = bwd_ceil_div(p.len, ROWS), blocks = bwd_ceil_div(p.keys, KEYS),
        block = p.begin / KEYS;
    int last = min(p.keys, p.begin + KEYS) - 1, to = p.len;

    if (a.whole)
        return {bwd_goes_round(a, blocks) ? block * tiles / blocks : 0, tiles, tiles};
    if (a.window > 0)
        to = min(to, last + a.window);
    return {p.begin / ROWS, INT_MAX, bwd_ceil_div(to, ROWS) - p.begin / ROWS};
}

/* How many blocks add to a tile of queries before this one; *last: this one is the last. */
__device__ __forceinline__ int bwd_ticket_of(const struct attn &a, const struct place &p,
                                             int tile, bool *last)
{
    int tiles = bwd_ceil_div(p.len, ROWS), blocks = bwd_ceil_div(p.keys, KEYS),
        block = p.begin / KEYS;
    int least = a.window > 0 ? max(0, tile * ROWS - a.window + 1) / KEYS : 0, before;

    if (a.whole) {
        int begun =
            bwd_goes_round(a, blocks) ? bwd_ceil_div((tile + 1) * blocks, tiles) : blocks;

        before = block < begun ? begun - 1 - block : begun + blocks - 1 - block;
        *last = before == blocks - 1;
        return before;
    }
    *last = block == least;
    return (min(min(p.len, tile * ROWS + ROWS), p.keys) - 1) / KEYS - block;
}

__device__ __forceinline__ int bwd_tile_of(const struct walk &w, int x)
{
    int tile = w.first + x;

    return tile >= w.wrap ? tile - w.wrap : tile;
}

#endif

/*
 * attention/bwd_one_pass_producer - the producer warps of attention/bwd_one_pass.cu: one loads
 * tiles to shared memory, one adds parts of dq to the workspace, two round tiles that are
 * complete.
 */
#ifndef CKPT_TRAINER_CUDA_ATTENTION_BWD_ONE_PASS_PRODUCER_H
#define CKPT_TRAINER_CUDA_ATTENTION_BWD_ONE_PASS_PRODUCER_H

#include "trainer/cuda/attention/bwd_one_pass.cuh"

/* Load a tile of queries, its gradients of out and its statistics, by one warp. */
template <typename T, int D>
__device__ __forceinline__ void bwd_load_queries(const struct attn &a, struct bwd_pool<T, D> *m,
                                                 const struct place &p, int h, int i, int st)
{
    int64_t at = p.first + i, ld = (int64_t)a.n_head * a.dim;
    int t = (int)threadIdx.x % 32;

    tma_copy_rows<D, ROWS, 32>(m->q[st], (const T *)a.q + at * a.row_stride + h * a.q_head,
                               a.row_stride, p.len - i, a.dim, t);
    tma_copy_rows<D, ROWS, 32>(m->dout[st], (const T *)a.dout + at * ld + h * a.dim, ld,
                               p.len - i, a.dim, t);
#pragma unroll
    for (int x = t; x < ROWS; x += 32) {
        bool there = i + x < p.len;

        cp_async_4(&m->lse[st][x], a.lse2 + (there ? h * a.n + at + x : 0), there);
        cp_async_4(&m->delta[st][x], a.delta + (there ? h * a.n + at + x : 0), there);
    }
    mbarrier_arrive_copies(&m->full[st]);
}

/* The warp that loads tiles of queries, two ahead of their products. */
template <typename T, int D>
__device__ __forceinline__ void bwd_load_warp(const struct attn &a, struct bwd_pool<T, D> *m,
                                              const struct place &p, const struct walk &walk,
                                              int g)
{
    int it = 0;

    for (int h = g * a.share; h < (g + 1) * a.share; h++)
        for (int x = 0; x < walk.tiles; x++, it++) {
            int st = it & 1, phase = (it >> 1) - 1;

            if (phase >= 0)
                mbarrier_wait(&m->done[st], phase);
            bwd_load_queries<T, D>(a, m, p, h, bwd_tile_of(walk, x) * ROWS, st);
        }
    cp_async_wait<0>();
}

/*
 * The thread that adds parts of dq to the workspace when its ticket is up.  A bulk store takes
 * a while to arrive: if the next tile's part is ready, that is sent first, but this thread
 * never delays while other blocks wait.
 */
template <typename T, int D>
__device__ __forceinline__ void bwd_add_dq(const struct attn &a, struct bwd_pool<T, D> *m,
                                           const struct place &p, const struct walk &walk,
                                           int g)
{
    int *held = NULL;
    int it = 0, done = 0;

    for (int h = g * a.share; h < (g + 1) * a.share; h++)
        for (int x = 0; x < walk.tiles; x++, it++) {
            int tile = bwd_tile_of(walk, x), i = tile * ROWS, st = it & 1;
            int64_t at = h * a.n + p.first + i;
            bool last;
            int before = bwd_ticket_of(a, p, tile, &last);

            if (held && !(mbarrier_test_wait(&m->done[st], it >> 1) &&
                          hopper_ticket_read(a.tickets + at) >= before)) {
                hopper_bulk_wait<0>();
                hopper_ticket_write(held, done);
                held = NULL;
            }
            while (hopper_ticket_read(a.tickets + at) < before)
                ;
            mbarrier_wait(&m->done[st], it >> 1);
            hopper_bulk_store(a.sums + at * D, m->dq[st],
                              min((int)ROWS, p.len - i) * D * (int)sizeof(float), before > 0);
            hopper_bulk_wait_read();
            mbarrier_arrive(&m->taken[st]);
            if (held) {
                hopper_bulk_wait<1>();
                hopper_ticket_write(held, done);
            }
            held = a.tickets + at;
            done = before + 1;
        }
    hopper_bulk_wait<0>();
    if (held)
        hopper_ticket_write(held, done);
}

/* Round 8 columns of dq from the sums; row is the workspace's: h N + the operation's row. */
template <typename T, int D>
__device__ __forceinline__ void bwd_round_dq(const struct attn &a, int64_t row, int h, int c)
{
    int64_t mine = row - h * a.n;
    const float2 *from = (const float2 *)(a.sums + row * D) + (c / 2 ^ (int)(mine % 2)) * 8 + c % 2;
    cuda_pack<T, 8> to;

#pragma unroll
    for (int q = 0; q < 4; q++) {
        float2 v = __ldcg(from + 2 * q);

        to.at[2 * q] = cuda_from_f32<T>(v.x * a.scale);
        to.at[2 * q + 1] = cuda_from_f32<T>(v.y * a.scale);
    }
    *(cuda_pack<T, 8> *)((T *)a.dq + mine * a.row_stride + h * a.dq_head + 8 * c) = to;
}

/* The two warps that round a tile's dq after the last block has added to it. */
template <typename T, int D>
__device__ __forceinline__ void bwd_round_warps(const struct attn &a, const struct place &p,
                                             const struct walk &walk, int g)
{
    for (int h = g * a.share; h < (g + 1) * a.share; h++)
        for (int x = 0; x < walk.tiles; x++) {
            int tile = bwd_tile_of(walk, x), rows = p.len - tile * ROWS;
            int64_t at = h * a.n + p.first + tile * ROWS;
            bool last;
            int before = bwd_ticket_of(a, p, tile, &last);

            if (!last)
                continue;
            while (hopper_ticket_read(a.tickets + at) <= before)
                ;
#pragma unroll 2
            for (int u = (int)threadIdx.x % PAIR; u < ROWS * D / 8; u += PAIR)
                if (u / (D / 8) < rows && u % (D / 8) * 8 < a.dim)
                    bwd_round_dq<T, D>(a, at + u / (D / 8), h, u % (D / 8));
        }
}

template <typename T, int D>
__device__ __forceinline__ void bwd_producer_group(const struct attn &a,
                                                   struct bwd_pool<T, D> *m,
                                                   const struct place &p, int g)
{
    struct walk walk = bwd_walk_of(a, p);
    int warp = __shfl_sync(0xffffffffu, (int)threadIdx.x / 32 - 2 * GROUP / 32, 0);

    if (warp == 0)
        bwd_load_warp(a, m, p, walk, g);
    else if (warp == 1 && threadIdx.x % 32 == 0)
        bwd_add_dq(a, m, p, walk, g);
    else if (warp > 1)
        bwd_round_warps<T, D>(a, p, walk, g);
}

#endif

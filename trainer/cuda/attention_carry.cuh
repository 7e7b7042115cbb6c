/*
 * attention_carry - the group of warps of attention_once.cu that carries: tiles to shared memory,
 * parts of dq to the next block, and the table's gradient out of dS.
 */
#ifndef CKPT_ATTENTION_CARRY_H
#define CKPT_ATTENTION_CARRY_H

#include "trainer/cuda/attention_once.cuh"

template <typename T, int D>
__device__ __forceinline__ void bring_queries(const struct attend &a, struct pool_of<T, D> *m,
                                              const struct place &p, int h, int i, int st, int t)
{
    int64_t at = p.first + i, ld = (int64_t)a.n_head * a.dim;

    bring<D, ROWS>(m->q[st], (const T *)a.q + at * a.row_stride + h * a.q_head, a.row_stride,
                   p.len - i, a.dim, t);
    bring<D, ROWS>(m->dout[st], (const T *)a.dout + at * ld + h * a.dim, ld, p.len - i, a.dim, t);
    if (t < ROWS) {
        bool there = i + t < p.len;

        copy_4(&m->lse[st][t], a.lse2 + (there ? h * a.n + at + t : 0), there);
        copy_4(&m->delta[st][t], a.delta + (there ? h * a.n + at + t : 0), there);
    }
    gate_copies(&m->full[st]);
}

__device__ __forceinline__ int read_turn(const int *turn)
{
    int x;

    asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(x) : "l"(turn) : "memory");
    return x;
}

/* A tile's part of dq and what the blocks before have left: to the next, or the sum as dq. */
template <typename T, int D>
__device__ __forceinline__ void hand_on(const struct attend &a, const float4 *dq, int64_t row0,
                                        int rows, int h, bool first, bool last, int t)
{
    const int EACH = D > 96 ? 2 : 4;    /* on their way; few registers */
    int row = t / 32 * 16 + t % 32 / 4, quad = t % 4;
    float *sums = a.sums + ((h * a.n + row0 + row) * D + 4 * quad);
    T *out = (T *)a.dq + (row0 + row) * a.row_stride + h * a.dq_head + 2 * quad;

#pragma unroll 1
    for (int k0 = 0; k0 < D / 8; k0 += EACH) {
        float4 v[EACH];

#pragma unroll
        for (int k = 0; k < EACH; k++) {
            v[k] = make_float4(0, 0, 0, 0);
            if (!first && row + k % 2 * 8 < rows)
                v[k] = __ldcg((const float4 *)(sums + k % 2 * 8 * D + (k0 + k) / 2 * 16));
        }
#pragma unroll
        for (int k = 0; k < EACH; k++) {
            float4 x = dq[(k0 + k) * GROUP + t];
            int col = (k0 + k) / 2 * 16 + 2 * quad;

            v[k].x += x.x;
            v[k].y += x.y;
            v[k].z += x.z;
            v[k].w += x.w;
            if (row + k % 2 * 8 >= rows)
                continue;
            if (!last) {
                __stcg((float4 *)(sums + k % 2 * 8 * D + (k0 + k) / 2 * 16), v[k]);
                continue;
            }
            T *to = out + k % 2 * 8 * a.row_stride + (k0 + k) / 2 * 16;

            if (col < a.dim)
                *(uint32_t *)to = two<T>(v[k].x * a.scale, v[k].y * a.scale);
            if (col + 8 < a.dim)
                *(uint32_t *)(to + 8) = two<T>(v[k].z * a.scale, v[k].w * a.scale);
        }
    }
}

/* Adds a tile's dS along its diagonals; rel: its first key less its first query.  What lies beyond
 * the distances that the table tells apart goes to the thread's own sums, low and high. */
template <typename T>
__device__ __forceinline__ void spread(const struct attend &a, const T *ds, float *sums, int rel,
                                       float2 *ends, int t)
{
    if (rel - (ROWS - 1) >= a.far || rel + KEYS - 1 <= -a.far) {
        const T *at = ds + (t % 2 * ROWS + t / 2) * 64;
        float sum = 0;

#pragma unroll
        for (int c = 0; c < 8; c++) {
            cuda_pack<T, 8> x = *(const cuda_pack<T, 8> *)(at + ((c ^ t / 2) & 7) * 8);

#pragma unroll
            for (int e = 0; e < 8; e++)
                sum += to_f32(x.at[e]);
        }
        *(rel > 0 ? &ends->y : &ends->x) += sum;
        return;
    }
    for (int d = t; d < ROWS + KEYS - 1; d += GROUP) {  /* key - query = d - (ROWS - 1) */
        int from = max(0, ROWS - 1 - d), to = min(ROWS, KEYS + ROWS - 1 - d);
        int at = rel + d - (ROWS - 1);
        float sum = 0;

#pragma unroll 4
        for (int r = from; r < to; r++) {
            int c = r + d - (ROWS - 1);

            sum += to_f32(ds[panel_at<KEYS, ROWS>(r, c / 8) + c % 8]);
        }
        if (at > -a.far && at < a.far)
            sums[a.far + at] += sum;
        else
            *(at > 0 ? &ends->y : &ends->x) += sum;
    }
}

/* The block's line of sums, for the kernel that adds them up. */
__device__ __forceinline__ void end_spread(const struct attend &a, float *sums, float *ends,
                                           float2 mine, int h, int slot, int t)
{
    int all = sums_floats(a);
    float *to = a.dline + ((int64_t)slot * a.n_head + h) * all;

    mine.x = warp_sum(mine.x);
    mine.y = warp_sum(mine.y);
    if (t % 32 == 0) {
        ends[t / 32] = mine.x;
        ends[4 + t / 32] = mine.y;
    }
    meet_at<GROUP>(3);
    for (int k = t; k < all; k += GROUP) {
        float sum = sums[k];

        for (int i = 0; (k == 0 || k == all - 1) && i < 4; i++)
            sum += ends[(k ? 4 : 0) + i];
        to[k] = sum;
    }
}

template <typename T, int D, int MODE>
__device__ __forceinline__ void carry_group(const struct attend &a, struct pool_of<T, D> *m,
                                            const struct place &p, int g, int slot)
{
    struct walk walk = walk_of(a, p);
    int t = (int)threadIdx.x - 2 * GROUP, total = walk.tiles * a.share, h = g * a.share, x = 0;
    int next_h = h, next_x = 0;
    float *sums = m->line + line_floats(a);
    float2 ends = make_float2(0, 0);

    auto bring_next = [&](int it) {
        if (it >= total)
            return;
        bring_queries<T, D>(a, m, p, next_h, tile_of(walk, next_x) * ROWS, it & 1, t);
        if (++next_x == walk.tiles) {
            next_x = 0;
            next_h++;
        }
    };
    bring<D, KEYS>(m->k, (const T *)a.k + p.key_at + p.begin * a.kv_stride, a.kv_stride,
                   p.keys - p.begin, a.dim, t);
    bring<D, KEYS>(m->v, (const T *)a.v + p.key_at + p.begin * a.kv_stride, a.kv_stride,
                   p.keys - p.begin, a.dim, t);
    bring_next(0);
    bring_next(1);
    for (int it = 0; it < total; it++) {
        int tile = tile_of(walk, x), i = tile * ROWS;
        int *turn = a.turns + h * a.n + p.first + i;
        bool last;
        int before = turn_of(a, p, tile, &last);
        bool mine = before == 0 || (t == 0 && read_turn(turn) >= before);

        gate_wait(&m->done[it & 1], it >> 1);
        if (MODE == ATTEND_ANY && a.dline)      /* first: it + 2 makes dS in the same place */
            spread(a, m->ds[it & 1], sums, p.begin - i, &ends, t);
        bring_next(it + 2);
        if (t == 0)
            while (!mine)
                mine = read_turn(turn) >= before;
        meet_at<GROUP>(3);
        hand_on<T, D>(a, m->dq, p.first + i, p.len - i, h, before == 0, last, t);
        __syncwarp();
        if (t % 32 == 0)
            gate_arrive(&m->taken);
        if (!last) {
            meet_at<GROUP>(3);
            if (t == 0) {
                asm volatile("st.release.gpu.global.s32 [%0], %1;" ::"l"(turn), "r"(before + 1)
                             : "memory");
            }
        }
        if (++x == walk.tiles) {
            x = 0;
            h++;
        }
    }
    if (MODE == ATTEND_ANY && a.dline)
        end_spread(a, sums, m->ends, ends, g * a.share, slot, t);
    copies_wait<0>();
}

#endif

/*
 * spread - the gradient of terms by distance: sums of dS along diagonals, without atomics.
 *
 * Each warp lays the part of a tile that is near the diagonal into shared memory and adds up its
 * diagonals in order; what lies farther than the table tells apart is one sum a lane.
 */
#ifndef CKPT_SPREAD_H
#define CKPT_SPREAD_H

#include "trainer/cuda/attention.cuh"

enum { SPREAD = 33 };                   /* floats from row to row of a warp's part: 32 keys */

/* A warp's sums: line by distance [2 far + 1], and a lane's of what lies beyond. */
struct spread {
    float *line, *part;                 /* part [rows][SPREAD] */
    float  low, high;
};

/* Adds dS of a warp's rows, from position pos on, and 32 keys from j on. */
template <int MR, int NT>
__device__ __forceinline__ void add_spread(const struct attend &a, struct spread &w,
                                           const float (&ds)[MR][NT][4], int pos, int j)
{
    const int rows = 16 * MR;
    int lane = (int)threadIdx.x % 32;

#pragma unroll
    for (int n0 = 0; n0 < NT; n0 += 4) {
        int least = j + 8 * n0 - (pos + rows - 1), most = j + 8 * n0 + 31 - pos;

        if (least >= a.far || most <= -a.far) {
            float sum = 0;

#pragma unroll
            for (int m = 0; m < MR; m++)
#pragma unroll
                for (int n = n0; n < n0 + 4; n++)
                    sum += ds[m][n][0] + ds[m][n][1] + ds[m][n][2] + ds[m][n][3];
            *(least >= a.far ? &w.high : &w.low) += sum;
            continue;
        }
        __syncwarp();
#pragma unroll
        for (int m = 0; m < MR; m++)
#pragma unroll
            for (int n = 0; n < 4; n++)
#pragma unroll
                for (int e = 0; e < 4; e++)
                    w.part[(16 * m + lane / 4 + e / 2 * 8) * SPREAD + 8 * n + lane % 4 * 2 +
                           e % 2] = ds[m][n0 + n][e];
        __syncwarp();
        for (int d = lane; d < rows + 31; d += 32) {    /* column - row = d - (rows - 1) */
            int from = d < rows ? rows - 1 - d : 0, c = d < rows ? 0 : d - rows + 1;
            int rel = least + d;
            float sum = 0;

            for (int r = from; r < rows && c < 32; r++, c++)
                sum += w.part[r * SPREAD + c];
            if (rel > -a.far && rel < a.far)
                w.line[a.far + rel] += sum;
            else
                *(rel >= a.far ? &w.high : &w.low) += sum;
        }
    }
}

/* The block's line from those of its warps. */
template <int WARPS>
__device__ __forceinline__ void end_spread(const struct attend &a, const struct spread &w,
                                           const float *lines, float *ends, float *to)
{
    int warp = (int)threadIdx.x / 32, all = sums_floats(a);
    float low = warp_sum(w.low), high = warp_sum(w.high);

    if (threadIdx.x % 32 == 0) {
        ends[2 * warp] = low;
        ends[2 * warp + 1] = high;
    }
    __syncthreads();
    for (int k = (int)threadIdx.x; k < all; k += WARPS * 32) {
        float sum = 0;

        for (int i = 0; i < WARPS; i++) {
            sum += lines[i * all + k];
            if (k == 0)
                sum += ends[2 * i];
            if (k == all - 1)
                sum += ends[2 * i + 1];
        }
        to[k] = sum;
    }
}

#endif

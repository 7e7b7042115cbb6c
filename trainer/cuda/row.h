/*
 * row - rows of activations in kernels: 16-byte accesses, a team of warps that holds one row in
 * registers, and sums over rows in two stages.
 *
 * A row of `dim` elements is cut into packs of CUDA_PACK<T> elements; thread l of a team of t
 * threads holds packs l, l + t, ... A row whose width or alignment does not allow packs
 * (row_packable) is left to slower kernels that go element by element.
 */
#ifndef CKPT_TRAINER_CUDA_ROW_H
#define CKPT_TRAINER_CUDA_ROW_H

#include "trainer/cuda/cuda.h"

template <typename T> constexpr int CUDA_PACK = 16 / (int)sizeof(T);

/* 16 bytes of elements of type T. */
template <typename T> struct row_pack {
    union {
        uint4 raw;
        unsigned char bytes[16];
    };

    __device__ __forceinline__ float at(int i) const
    {
        T x;

        memcpy(&x, bytes + i * (int)sizeof(T), sizeof x);
        return cuda_to_f32(x);
    }
};

/* Whether rows of that width at p allow 16-byte accesses. */
template <typename T> static inline bool row_packable(const void *p, int64_t dim)
{
    return cuda_aligned(p, 16) && dim % CUDA_PACK<T> == 0;
}

/* Columns [c, c + pack) of a row. */
template <typename T> __device__ __forceinline__ row_pack<T> row_load(const T *row, int64_t c)
{
    row_pack<T> p;

    p.raw = *reinterpret_cast<const uint4 *>(row + c);
    return p;
}

template <typename T> __device__ __forceinline__ row_pack<T> row_zero()
{
    row_pack<T> p;

    p.raw = make_uint4(0, 0, 0, 0);
    return p;
}

template <typename T>
__device__ __forceinline__ void row_store(T *row, int64_t c, const float (&v)[CUDA_PACK<T>])
{
    row_pack<T> p;

#pragma unroll
    for (int i = 0; i < CUDA_PACK<T>; i++) {
        T x = cuda_from_f32<T>(v[i]);

        memcpy(p.bytes + i * (int)sizeof(T), &x, sizeof x);
    }
    *reinterpret_cast<uint4 *>(row + c) = p.raw;
}

/* N elements as f32: a pack or a single one (of f32: a number of packs). */
template <typename T, int N> __device__ __forceinline__ void row_get(float (&v)[N], const T *at)
{
    if constexpr (N == 1) {
        v[0] = cuda_to_f32(*at);
    } else {
        constexpr int EACH = CUDA_PACK<T>;

#pragma unroll
        for (int p = 0; p < N; p += EACH) {
            row_pack<T> pack = row_load(at, p);

#pragma unroll
            for (int i = 0; i < EACH; i++)
                v[p + i] = pack.at(i);
        }
    }
}

template <typename T, int N> __device__ __forceinline__ void row_put(T *at, const float (&v)[N])
{
    if constexpr (N == 1) {
        *at = cuda_from_f32<T>(v[0]);
    } else {
        constexpr int EACH = CUDA_PACK<T>;

#pragma unroll
        for (int p = 0; p < N; p += EACH) {
            float part[EACH];

#pragma unroll
            for (int i = 0; i < EACH; i++)
                part[i] = v[p + i];
            row_store(at, p, part);
        }
    }
}

/* Apply dropout to v[N], columns [c, c + N) of the row, c a multiple of 4; N 1: any column. */
template <int N>
__device__ __forceinline__ void row_drop(float (&v)[N], const struct cuda_drop &d, int64_t row,
                                         int64_t c)
{
    if (!d.on)
        return;
    if constexpr (N == 1) {
        uint32_t w[4];

        cuda_drop_words(w, d, d.rows[row], (uint32_t)(c / 4));
        v[0] = !d.all && w[c % 4] >= d.least ? v[0] * d.scale : 0.0f;
    } else {
        uint64_t at = d.rows[row];

#pragma unroll
        for (int i = 0; i < N; i += 4) {
            uint32_t w[4] = {0, 0, 0, 0};

            if (!d.all)
                cuda_drop_words(w, d, at, (uint32_t)(c / 4) + (uint32_t)(i / 4));
#pragma unroll
            for (int k = 0; k < 4; k++)
                v[i + k] = !d.all && w[k] >= d.least ? v[i + k] * d.scale : 0.0f;
        }
    }
}

/* -- a team of WARPS warps -------------------------------------------------------------------- */

/* Threads of a block of teams: as many teams as fit into `most` threads. */
__host__ __device__ constexpr int row_team_count(int warps, int most)
{
    return warps * 32 >= most ? 1 : most / (warps * 32);
}

template <int WARPS> __device__ __forceinline__ void row_team_wait(int team)
{
    asm volatile("bar.sync %0, %1;" ::"r"(team + 1), "n"(WARPS * 32) : "memory");
}

/* A barrier of all teams; called twice, since racecheck does not see the first one after the
 * teams' own barriers. */
__device__ __forceinline__ void row_teams_wait(void)
{
    __syncthreads();
    __syncthreads();
}

/* The sums over the team, in all its threads; all of them call it, with `phase` rising by one a
 * call. At most 15 teams of more than one warp live in a block (barrier 0 is its own). */
template <int WARPS>
__device__ __forceinline__ float2 row_team_sum(float2 v, int team, int phase)
{
    v.x = cuda_warp_sum(v.x);
    v.y = cuda_warp_sum(v.y);
    if constexpr (WARPS > 1) {
        __shared__ float2 part[2][32];  /* alternating: the last call's values may still be read */
        int warp = (int)threadIdx.x / 32, first = team * WARPS;

        if (threadIdx.x % 32 == 0)
            part[phase & 1][warp] = v;
        row_team_wait<WARPS>(team);
        v = part[phase & 1][first];
#pragma unroll
        for (int i = 1; i < WARPS; i++) {
            v.x += part[phase & 1][first + i].x;
            v.y += part[phase & 1][first + i].y;
        }
    }
    return v;
}

/* Run the first statements with WARPS and PACKS set for rows of that many packs, or else the
 * block that follows. */
#define CUDA_TEAM_IF(packs_, warps_, each_, ...)                                               \
    if ((packs_) <= 32 * (warps_) * (each_)) {                                                 \
        constexpr int WARPS = (warps_), PACKS = (each_);                                       \
        __VA_ARGS__;                                                                           \
    } else
#define CUDA_TEAM4(packs_, ...)                                                                \
    CUDA_TEAM_IF(packs_, 1, 4, __VA_ARGS__)                                                    \
    CUDA_TEAM_IF(packs_, 2, 4, __VA_ARGS__)                                                    \
    CUDA_TEAM_IF(packs_, 4, 4, __VA_ARGS__)                                                    \
    CUDA_TEAM_IF(packs_, 8, 4, __VA_ARGS__)                                                    \
    CUDA_TEAM_IF(packs_, 16, 4, __VA_ARGS__)
#define CUDA_TEAM_LONG(packs_, ...)                                                            \
    CUDA_TEAM_IF(packs_, 4, 3, __VA_ARGS__)                                                    \
    CUDA_TEAM_IF(packs_, 8, 2, __VA_ARGS__)                                                    \
    CUDA_TEAM_IF(packs_, 16, 2, __VA_ARGS__)                                                   \
    CUDA_TEAM_IF(packs_, 16, 4, __VA_ARGS__)
#define CUDA_TEAM2(packs_, ...)                                                                \
    CUDA_TEAM_IF(packs_, 2, 2, __VA_ARGS__)                                                    \
    CUDA_TEAM_IF(packs_, 2, 3, __VA_ARGS__)                                                    \
    CUDA_TEAM_IF(packs_, 4, 2, __VA_ARGS__)                                                    \
    CUDA_TEAM_LONG(packs_, __VA_ARGS__)

/* -- norms ------------------------------------------------------------------------------------ */

/* Mean and 1 / std of the row that the team holds; 0 from dim on. phase: as above, 2 a row. */
template <typename T, int WARPS, int PACKS>
__device__ __forceinline__ float2 row_stats(const float (&v)[PACKS][CUDA_PACK<T>], bool rms,
                                            float eps, int64_t dim, int team, int lane,
                                            int *phase)
{
    constexpr int N = CUDA_PACK<T>;
    float inv = 1.0f / (float)dim, mean = 0, sq = 0;

    if (!rms) {
        float sum = 0;

#pragma unroll
        for (int p = 0; p < PACKS; p++)
#pragma unroll
            for (int i = 0; i < N; i++)
                sum += v[p][i];
        mean = row_team_sum<WARPS>(make_float2(sum, 0), team, (*phase)++).x * inv;
    }
#pragma unroll
    for (int p = 0; p < PACKS; p++) {
        float part = 0;

#pragma unroll
        for (int i = 0; i < N; i++)
            part = fmaf(v[p][i] - mean, v[p][i] - mean, part);
        sq += (p * WARPS * 32 + lane) * N < dim ? part : 0.0f;
    }
    sq = row_team_sum<WARPS>(make_float2(sq, 0), team, (*phase)++).x;
    return make_float2(mean, 1.0f / sqrtf(sq * inv + eps));
}

/* The same for a row that a block reads from memory: at(c) is element c. */
template <typename F>
__device__ __forceinline__ float2 row_stats_block(const F &at, bool rms, float eps, int64_t dim)
{
    float inv = 1.0f / (float)dim, mean = 0, sq = 0;

    if (!rms) {
        for (int64_t c = threadIdx.x; c < dim; c += blockDim.x)
            mean += at(c);
        mean = cuda_block_sum(mean) * inv;
    }
    for (int64_t c = threadIdx.x; c < dim; c += blockDim.x)
        sq += (at(c) - mean) * (at(c) - mean);
    return make_float2(mean, 1.0f / sqrtf(cuda_block_sum(sq) * inv + eps));
}

/*
 * norm_bwd; with `gathered` dx has a row per row of dout, as cpu_norm_bwd_gathered.  Its
 * workspace is at `part`: cuda_norm_parts bytes.
 */
uint64_t cuda_norm_parts(const struct device *dev, int64_t dim);
void cuda_norm_back(struct device *dev, const char *op, const struct op_rownorm *a, bool gathered,
                    float *part);

/* total[k][dim] += the sum over parts of part[i][k][dim], i < n, k < 2, in order; NULL: skipped. */
void cuda_add_parts(struct device *dev, const char *op, float *first, float *second,
                    const float *part, int64_t n, int64_t dim);

#endif

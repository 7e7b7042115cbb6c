/*
 * norm - LayerNorm and RMSNorm by rows, and their backward.
 *
 * A team of warps holds a row in registers, so that the row is read once; a block is several
 * teams and persistent: while a team works on a row, its next ones are copied to shared memory.
 * Statistics as on the CPU: the mean first, then centred squares.  Backward runs one block a
 * multiprocessor; each thread sums the gradients of gain and bias for its columns over the rows
 * of its team, a block adds its teams' sums in order through shared memory, and a second kernel
 * adds the blocks' sums in order.
 *
 * Rows that are wider than any known model's (16384 elements of 16 bits, 8192 of 32), odd or
 * not aligned are read again for each step by a whole block.
 */
#include "trainer/cuda/row.h"

#include "trainer/cuda/matmul/linear.h"

#include <cuda_pipeline_primitives.h>

namespace {

/* Most threads of a block of teams. */
template <int PACKS> constexpr int BLOCK = PACKS == 1 ? 768 : 512;

template <typename T> struct args {
    T             *out;                 /* bwd: dx */
    float         *stats, *part;
    const T       *x, *dout, *dout_add, *dx_add, *w, *b;
    const int32_t *rows;
    int64_t        n, dim;
    float          eps;
    bool           rms, gathered, whole;
    int            stages;              /* rows being loaded */
};

/*
 * Rows being loaded: a thread copies its packs of its team's next rows (ARRAYS of them: x, or x,
 * dout and dx_add) to its own places in shared memory, `stages` rows ahead, so that it need not
 * wait for other threads.
 */
extern __shared__ uint4 ring[];

template <int ARRAYS, int PACKS>
__device__ __forceinline__ uint4 *place(int slot, int array, int p)
{
    return ring + ((slot * ARRAYS + array) * PACKS + p) * (int)blockDim.x + (int)threadIdx.x;
}

__device__ __forceinline__ void wait_oldest(int stages)
{
    if (stages == 4)
        __pipeline_wait_prior(3);
    else if (stages == 3)
        __pipeline_wait_prior(2);
    else if (stages == 2)
        __pipeline_wait_prior(1);
    else
        __pipeline_wait_prior(0);
}

template <typename T, int WARPS, int PACKS>
__device__ __forceinline__ void ask_x(const struct args<T> &a, int64_t i, int slot, int lane)
{
    if (i < a.n) {
        const T *x = a.x + (a.rows ? a.rows[i] : i) * a.dim;

#pragma unroll
        for (int p = 0; p < PACKS; p++) {
            int64_t c = (int64_t)(p * WARPS * 32 + lane) * CUDA_PACK<T>;

            if (c < a.dim)
                __pipeline_memcpy_async(place<1, PACKS>(slot, 0, p), x + c, 16);
        }
    }
    __pipeline_commit();
}

template <typename T, int WARPS, int PACKS>
__global__ void __launch_bounds__(WARPS * 32 * row_team_count(WARPS, BLOCK<PACKS>),
                                  PACKS > 2 ? 1 : 2) forward(struct args<T> a)
{
    constexpr int N = CUDA_PACK<T>, SPAN = WARPS * 32,
                  TEAMS = row_team_count(WARPS, BLOCK<PACKS>);
    int team = (int)threadIdx.x / SPAN, lane = (int)threadIdx.x % SPAN;
    int64_t i = (int64_t)blockIdx.x * TEAMS + team, step = (int64_t)gridDim.x * TEAMS;
    row_pack<T> w[PACKS];
    int phase = 0;

    cuda_pdl_wait();
    for (int k = 0; k < a.stages; k++)
        ask_x<T, WARPS, PACKS>(a, i + k * step, k, lane);
#pragma unroll
    for (int p = 0; p < PACKS; p++) {
        int64_t c = (int64_t)(p * SPAN + lane) * N;

        w[p] = c < a.dim ? row_load(a.w, c) : row_zero<T>();
    }
    for (int slot = 0; i < a.n; i += step) {
        float v[PACKS][N];
        float2 s;

        wait_oldest(a.stages);
#pragma unroll
        for (int p = 0; p < PACKS; p++) {
            row_pack<T> raw = row_zero<T>();

            if ((int64_t)(p * SPAN + lane) * N < a.dim)
                raw.raw = *place<1, PACKS>(slot, 0, p);
#pragma unroll
            for (int k = 0; k < N; k++)
                v[p][k] = raw.at(k);
        }
        s = row_stats<T, WARPS, PACKS>(v, a.rms, a.eps, a.dim, team, lane, &phase);
        if (lane == 0 && a.stats)
            reinterpret_cast<float2 *>(a.stats)[i] = s;
#pragma unroll
        for (int p = 0; p < PACKS; p++) {
            int64_t c = (int64_t)(p * SPAN + lane) * N;

            if (c >= a.dim)
                continue;
            row_pack<T> b = a.b ? row_load(a.b, c) : row_zero<T>();
#pragma unroll
            for (int k = 0; k < N; k++)
                v[p][k] = (v[p][k] - s.x) * s.y * w[p].at(k) + b.at(k);
            row_store(a.out + i * a.dim, c, v[p]);
        }
        ask_x<T, WARPS, PACKS>(a, i + a.stages * step, slot, lane);
        slot = slot + 1 < a.stages ? slot + 1 : 0;
    }
}

template <typename T> __device__ __forceinline__ int64_t dx_row(const struct args<T> &a, int64_t i)
{
    return !a.rows || a.gathered ? i : a.rows[i];
}

/* Row i, if it exists. */
template <typename T, int WARPS, int PACKS>
__device__ __forceinline__ void ask(const struct args<T> &a, int64_t i, int slot, int lane)
{
    if (i < a.n) {
        const T *x = a.x + (a.rows ? a.rows[i] : i) * a.dim, *g = a.dout + i * a.dim;
        const T *more = a.dx_add ? a.dx_add + dx_row(a, i) * a.dim : NULL;

#pragma unroll
        for (int p = 0; p < PACKS; p++) {
            int64_t c = (int64_t)(p * WARPS * 32 + lane) * CUDA_PACK<T>;

            if (c >= a.dim)
                continue;
            __pipeline_memcpy_async(place<3, PACKS>(slot, 0, p), x + c, 16);
            __pipeline_memcpy_async(place<3, PACKS>(slot, 1, p), g + c, 16);
            if (more)
                __pipeline_memcpy_async(place<3, PACKS>(slot, 2, p), more + c, 16);
        }
    }
    __pipeline_commit();
}

/* The block's sums: those of its teams, from shared memory, added in order. */
template <typename T, int WARPS, int PACKS, int SUMS>
__device__ __forceinline__ void add_teams(const struct args<T> &a, float *to,
                                          const float (&dw)[PACKS][CUDA_PACK<T>],
                                          const float (&db)[PACKS][CUDA_PACK<T>], int team,
                                          int lane)
{
    constexpr int N = CUDA_PACK<T>, SPAN = WARPS * 32,
                  TEAMS = row_team_count(WARPS, BLOCK<PACKS>);
    const int wide = SUMS * (int)a.dim;
    float *shared = reinterpret_cast<float *>(ring) + team * wide;

    row_teams_wait();                   /* no row is being loaded or read any more */
#pragma unroll
    for (int p = 0; p < PACKS; p++) {
        int c = (p * SPAN + lane) * N;

        if (c < a.dim) {
            row_put<float>(shared + c, dw[p]);
            if (SUMS > 1)
                row_put<float>(shared + a.dim + c, db[p]);
        }
    }
    row_teams_wait();
    shared = reinterpret_cast<float *>(ring);
    for (int c = (int)threadIdx.x * 4; c < wide; c += (int)blockDim.x * 4) {
        float4 sum = *reinterpret_cast<float4 *>(shared + c);

#pragma unroll
        for (int k = 1; k < TEAMS; k++) {
            float4 x = *reinterpret_cast<float4 *>(shared + k * wide + c);

            sum.x += x.x;
            sum.y += x.y;
            sum.z += x.z;
            sum.w += x.w;
        }
        *reinterpret_cast<float4 *>(to + c) = sum;
    }
}

/* The incoming gradient of a pack of a row: dout, plus dout_add if there is one. */
template <typename T>
__device__ __forceinline__ void reaches(float (&g)[CUDA_PACK<T>], const struct args<T> &a,
                                        const uint4 *dout, int64_t i, int64_t c)
{
    row_pack<T> x;

    x.raw = *dout;
#pragma unroll
    for (int k = 0; k < CUDA_PACK<T>; k++)
        g[k] = x.at(k);
    if (a.dout_add) {
        x = row_load(a.dout_add + i * a.dim, c);
#pragma unroll
        for (int k = 0; k < CUDA_PACK<T>; k++)
            g[k] += x.at(k);
    }
}

/* SUMS 0: no gradients of parameters, 1: of the gain, 2: of gain and bias; 4: also the column
 * sums of dx and dx_add, whose parts follow those of all blocks. */
template <typename T, int WARPS, int PACKS, int SUMS>
__global__ void __launch_bounds__(WARPS * 32 * row_team_count(WARPS, BLOCK<PACKS>))
backward(struct args<T> a)
{
    constexpr int N = CUDA_PACK<T>, SPAN = WARPS * 32,
                  TEAMS = row_team_count(WARPS, BLOCK<PACKS>);
    int team = (int)threadIdx.x / SPAN, lane = (int)threadIdx.x % SPAN, phase = 0;
    float dw[PACKS][N] = {}, db[PACKS][N] = {}, inv = 1.0f / (float)a.dim;
    float left[PACKS][N] = {}, came[PACKS][N] = {};
    float *part = a.part + (int64_t)blockIdx.x * 2 * a.dim;
    int64_t i = (int64_t)blockIdx.x * TEAMS + team, step = (int64_t)gridDim.x * TEAMS;
    const float2 *stats = reinterpret_cast<const float2 *>(a.stats);
    float2 s, next = make_float2(0, 0);
    row_pack<T> w[PACKS];

    cuda_pdl_wait();
    for (int k = 0; k < a.stages; k++)
        ask<T, WARPS, PACKS>(a, i + k * step, k, lane);
    if (i < a.n)
        next = stats[i];
#pragma unroll
    for (int p = 0; p < PACKS; p++) {
        int64_t c = (int64_t)(p * SPAN + lane) * N;

        w[p] = c < a.dim ? row_load(a.w, c) : row_zero<T>();
    }
    for (int slot = 0; i < a.n; i += step) {
        float2 sum = make_float2(0, 0);
        float gw[PACKS][N], shift;

        s = next;
        if (i + step < a.n)
            next = stats[i + step];
        shift = -s.x * s.y;
        wait_oldest(a.stages);
#pragma unroll
        for (int p = 0; p < PACKS; p++) {
            int64_t c = (int64_t)(p * SPAN + lane) * N;
            row_pack<T> x;

            if (c >= a.dim)
                continue;
            x.raw = *place<3, PACKS>(slot, 0, p);
            reaches(gw[p], a, place<3, PACKS>(slot, 1, p), i, c);
#pragma unroll
            for (int k = 0; k < N; k++) {
                float xhat = fmaf(x.at(k), s.y, shift);

                if (SUMS > 0)
                    dw[p][k] = fmaf(gw[p][k], xhat, dw[p][k]);
                if (SUMS > 1)
                    db[p][k] += gw[p][k];
                gw[p][k] *= w[p].at(k);
                sum.x += gw[p][k];
                sum.y = fmaf(gw[p][k], xhat, sum.y);
            }
        }
        sum = row_team_sum<WARPS>(sum, team, phase++);
        sum.x = a.rms ? 0.0f : sum.x * inv;
        sum.y *= inv;
#pragma unroll
        for (int p = 0; p < PACKS; p++) {
            int64_t c = (int64_t)(p * SPAN + lane) * N;
            row_pack<T> x, more = row_zero<T>();

            if (c >= a.dim)
                continue;
            x.raw = *place<3, PACKS>(slot, 0, p);
            if (a.dx_add)
                more.raw = *place<3, PACKS>(slot, 2, p);
#pragma unroll
            for (int k = 0; k < N; k++) {
                float xhat = fmaf(x.at(k), s.y, shift);

                gw[p][k] = fmaf(s.y, fmaf(-xhat, sum.y, gw[p][k] - sum.x), more.at(k));
                if (SUMS > 2) {
                    came[p][k] += more.at(k);
                    left[p][k] += cuda_to_f32(cuda_from_f32<T>(gw[p][k]));
                }
            }
            row_store(a.out + dx_row(a, i) * a.dim, c, gw[p]);
        }
        ask<T, WARPS, PACKS>(a, i + a.stages * step, slot, lane);
        slot = slot + 1 < a.stages ? slot + 1 : 0;
    }
    if (SUMS > 0)
        add_teams<T, WARPS, PACKS, SUMS == 1 ? 1 : 2>(a, part, dw, db, team, lane);
    if (SUMS > 2)
        add_teams<T, WARPS, PACKS, 2>(a, part + (int64_t)gridDim.x * 2 * a.dim, left, came, team,
                                      lane);
}

/* Any width and alignment: a block takes a row at a time. */
template <typename T> __global__ void __launch_bounds__(256) forward_any(struct args<T> a)
{
    for (int64_t i = blockIdx.x; i < a.n; i += gridDim.x) {
        const T *x = a.x + (a.rows ? a.rows[i] : i) * a.dim;
        float2 s =
            row_stats_block([=](int64_t c) { return cuda_to_f32(x[c]); }, a.rms, a.eps, a.dim);

        if (threadIdx.x == 0 && a.stats)
            reinterpret_cast<float2 *>(a.stats)[i] = s;
        for (int64_t c = threadIdx.x; c < a.dim; c += blockDim.x)
            a.out[i * a.dim + c] =
                cuda_from_f32<T>((cuda_to_f32(x[c]) - s.x) * s.y * cuda_to_f32(a.w[c]) +
                                 (a.b ? cuda_to_f32(a.b[c]) : 0.0f));
    }
}

/* Backward for any width and alignment; a thread's sums are in the block's part, where no other
 * thread touches its columns. */
template <typename T> __global__ void __launch_bounds__(256) backward_any(struct args<T> a)
{
    float *dw = a.part ? a.part + (int64_t)blockIdx.x * 2 * a.dim : NULL, *db = dw + a.dim;
    float inv = 1.0f / (float)a.dim;

    for (int64_t c = threadIdx.x; dw && c < a.dim; c += blockDim.x)
        dw[c] = db[c] = 0;
    for (int64_t i = blockIdx.x; i < a.n; i += gridDim.x) {
        float2 s = reinterpret_cast<const float2 *>(a.stats)[i];
        int64_t r = a.rows ? a.rows[i] : i, to = a.gathered ? i : r;
        float s1 = 0, s2 = 0;

        for (int64_t c = threadIdx.x; c < a.dim; c += blockDim.x) {
            float g = cuda_to_f32(a.dout[i * a.dim + c]), w = cuda_to_f32(a.w[c]);
            float xhat = (cuda_to_f32(a.x[r * a.dim + c]) - s.x) * s.y;

            if (a.dout_add)
                g += cuda_to_f32(a.dout_add[i * a.dim + c]);
            if (dw) {
                dw[c] += g * xhat;
                db[c] += g;
            }
            s1 += g * w;
            s2 += g * w * xhat;
        }
        s1 = a.rms ? 0.0f : cuda_block_sum(s1) * inv;
        s2 = cuda_block_sum(s2) * inv;
        for (int64_t c = threadIdx.x; c < a.dim; c += blockDim.x) {
            float g = cuda_to_f32(a.dout[i * a.dim + c]);
            float xhat = (cuda_to_f32(a.x[r * a.dim + c]) - s.x) * s.y;

            if (a.dout_add)
                g += cuda_to_f32(a.dout_add[i * a.dim + c]);
            g = s.y * (g * cuda_to_f32(a.w[c]) - s1 - xhat * s2);
            if (a.dx_add)
                g += cuda_to_f32(a.dx_add[to * a.dim + c]);
            a.out[to * a.dim + c] = cuda_from_f32<T>(g);
        }
    }
}

/* Destinations of the sums; the parts of the third and fourth follow all parts of the first two. */
struct totals {
    float *at[4];
    bool   fresh;                       /* overwrite the third and fourth instead of adding */
};

/* 32 columns by 32 threads, each of which adds every 32nd part. */
__global__ void __launch_bounds__(1024)
add_parts(struct totals to, const float *part, int64_t n, int64_t dim)
{
    __shared__ float sums[32][33];
    int64_t c = (int64_t)blockIdx.x * 32 + threadIdx.x;
    float *total = to.at[blockIdx.y], sum = 0;

    cuda_pdl_wait();
    if (total && c < dim) {
        const float *from = part + ((int64_t)(blockIdx.y / 2) * n * 2 + blockIdx.y % 2) * dim + c;

#pragma unroll 5
        for (int64_t i = threadIdx.y; i < n; i += 32)
            sum += from[i * 2 * dim];
    }
    sums[threadIdx.x][threadIdx.y] = sum;
    __syncthreads();
    sum = cuda_warp_sum(sums[threadIdx.y][threadIdx.x]);
    c = (int64_t)blockIdx.x * 32 + threadIdx.y;
    if (threadIdx.x == 0 && total && c < dim)
        total[c] = (blockIdx.y > 1 && to.fresh ? 0.0f : total[c]) + sum;
}

template <typename T> struct args<T> args_of(const struct op_rownorm *op, const void *out)
{
    struct args<T> a = {};

    a.out = (T *)out;
    a.stats = op->stats;
    a.x = (const T *)op->x;
    a.w = (const T *)op->norm.w;
    a.b = (const T *)op->norm.b;
    a.rows = op->rows;
    a.n = op->n;
    a.dim = op->dim;
    a.eps = op->norm.eps;
    a.rms = op->norm.kind == OP_NORM_RMS;
    a.whole = row_packable<T>(op->x, op->dim) && row_packable<T>(out, op->dim) &&
              row_packable<T>(op->norm.w, op->dim) &&
              (!op->norm.b || row_packable<T>(op->norm.b, op->dim));
    return a;
}

int64_t fewer(int64_t a, int64_t b) { return a < b ? a : b; }

template <typename T> void run_forward(struct device *dev, const struct op_rownorm *op)
{
    struct args<T> a = args_of<T>(op, op->out);
    int64_t most = 16 * (int64_t)cuda_of(dev)->sms;
    int64_t packs = a.whole ? a.dim / CUDA_PACK<T> : INT64_MAX;
    cudaStream_t on = cuda_of(dev)->stream;

    CUDA_TEAM2(packs, {
        const int teams = row_team_count(WARPS, BLOCK<PACKS>), each = PACKS > 2 ? 1 : 2;
        const size_t row = (size_t)(PACKS * WARPS * 32 * teams) * sizeof(uint4);
        unsigned blocks = (unsigned)fewer(cuda_blocks(a.n, teams), each * cuda_of(dev)->sms);

        a.stages = (int)fewer(4, (int64_t)(cuda_of(dev)->shared_most / row));
        if (cuda_ok(dev, "norm_fwd", cuda_allow_shared(forward<T, WARPS, PACKS>,
                                                       row * (size_t)a.stages)))
            cuda_pdl_launch(dev, true, forward<T, WARPS, PACKS>, blocks, WARPS * 32 * teams,
                            row * (size_t)a.stages, a);
    })
        forward_any<T><<<(unsigned)fewer(a.n, most), 256, 0, on>>>(a);
}

void sum_parts(struct device *dev, const char *op, const struct totals &to, int rows,
               const float *part, int64_t n, int64_t dim)
{
    cuda_pdl_launch(dev, true, add_parts, dim3((unsigned)cuda_blocks(dim, 32), (unsigned)rows),
                    dim3(32, 32), 0, to, part, n, dim);
    cuda_launched(dev, op);
}

/* The column sums of x, in a separate pass. */
void columns(struct device *dev, const struct op_rownorm *op, void *sum, const void *x, float *part)
{
    if (sum)
        linear_sums(dev, (float *)sum, x, op->dim, op->n, op->dim, part, !op->fresh);
}

template <typename T, int WARPS, int PACKS, int SUMS>
void launch_backward(struct device *dev, const char *op, struct args<T> a,
                     const struct op_rownorm *r)
{
    const struct op_norm *norm = &r->norm;
    const int teams = row_team_count(WARPS, BLOCK<PACKS>);
    const size_t row = (size_t)(3 * PACKS * WARPS * 32 * teams) * sizeof(uint4);
    int64_t blocks = fewer(cuda_blocks(a.n, teams), cuda_of(dev)->sms);
    size_t shared, sums = (size_t)((SUMS < 2 ? SUMS : 2) * teams * a.dim) * sizeof(float);

    a.stages = (int)fewer(3, (int64_t)(cuda_of(dev)->shared_most / row));
    shared = (size_t)a.stages * row;
    shared = shared > sums ? shared : sums;
    if (!cuda_ok(dev, op, cuda_allow_shared(backward<T, WARPS, PACKS, SUMS>, shared)))
        return;
    cuda_pdl_launch(dev, true, backward<T, WARPS, PACKS, SUMS>, (unsigned)blocks,
                    WARPS * 32 * teams, shared, a);
    if (cuda_launched(dev, op) && SUMS)
        sum_parts(dev, op, {{(float *)norm->dw, SUMS > 1 ? (float *)norm->db : NULL,
                             (float *)r->dx_sum, (float *)r->add_sum}, r->fresh},
                  SUMS > 1 ? SUMS : 1, a.part, blocks, a.dim);
}

template <typename T>
void launch_any(struct device *dev, const char *op, const struct args<T> &a,
                const struct op_norm *norm)
{
    int64_t blocks = fewer(a.n, cuda_of(dev)->sms);

    backward_any<T><<<(unsigned)blocks, 256, 0, cuda_of(dev)->stream>>>(a);
    if (cuda_launched(dev, op) && a.part)
        cuda_add_parts(dev, op, (float *)norm->dw, (float *)norm->db, a.part, blocks, a.dim);
}

/* As CUDA_TEAM2, but rows of up to 256 packs have a thread for each: with the sums of more, too
 * few threads fit a multiprocessor to hide latency. */
#define CUDA_TEAM2_BACK(packs_, ...)                                                           \
    CUDA_TEAM_IF(packs_, 2, 1, __VA_ARGS__)                                                    \
    CUDA_TEAM_IF(packs_, 4, 1, __VA_ARGS__)                                                    \
    CUDA_TEAM_IF(packs_, 6, 1, __VA_ARGS__)                                                    \
    CUDA_TEAM_IF(packs_, 8, 1, __VA_ARGS__)                                                    \
    CUDA_TEAM_LONG(packs_, __VA_ARGS__)

template <typename T>
void run_backward(struct device *dev, const char *op, const struct op_rownorm *r, bool gathered,
                  float *part)
{
    struct args<T> a = args_of<T>(r, r->dx);
    int sums = r->norm.db ? 2 : r->norm.dw ? 1 : 0;
    int64_t packs;

    a.dout = (const T *)r->dout;
    a.dout_add = (const T *)r->dout_add;
    a.dx_add = (const T *)r->dx_add;
    a.part = sums ? part : NULL;
    a.gathered = gathered;
    a.whole = a.whole && row_packable<T>(a.dout, a.dim) &&
              (!a.dout_add || row_packable<T>(a.dout_add, a.dim)) &&
              (!a.dx_add || row_packable<T>(a.dx_add, a.dim));
    packs = a.whole ? a.dim / CUDA_PACK<T> : INT64_MAX;
    CUDA_TEAM2_BACK(packs, {
        if (sums == 2 && PACKS < 3 && (r->dx_sum || r->add_sum)) {
            launch_backward<T, WARPS, PACKS, PACKS < 3 ? 4 : 2>(dev, op, a, r);
            return;
        }
        columns(dev, r, r->add_sum, r->dx_add, part);
        if (sums == 2)
            launch_backward<T, WARPS, PACKS, 2>(dev, op, a, r);
        else if (sums == 1)
            launch_backward<T, WARPS, PACKS, 1>(dev, op, a, r);
        else
            launch_backward<T, WARPS, PACKS, 0>(dev, op, a, r);
    }) {
        columns(dev, r, r->add_sum, r->dx_add, part);
        launch_any<T>(dev, op, a, &r->norm);
    }
    columns(dev, r, r->dx_sum, r->dx, part);
}

} /* namespace */

uint64_t cuda_norm_parts(const struct device *dev, int64_t dim)
{
    uint64_t sums = linear_sums_bytes(dim);
    uint64_t parts = (uint64_t)((const struct cuda_device *)dev)->sms * 4 * (uint64_t)dim *
                     sizeof(float);

    return parts > sums ? parts : sums;
}

void cuda_add_parts(struct device *dev, const char *op, float *first, float *second,
                    const float *part, int64_t n, int64_t dim)
{
    if (dev->err.code || dim == 0 || (!first && !second))
        return;
    sum_parts(dev, op, {{first, second}, false}, second ? 2 : 1, part, n, dim);
}

uint64_t cuda_norm_work(const struct device *dev, const struct op_limits *l)
{
    return l->train ? cuda_norm_parts(dev, l->dim > l->embed ? l->dim : l->embed) : 0;
}

void cuda_norm_fwd(struct device *dev, const struct op_rownorm *a)
{
    if (dev->err.code || a->n == 0)
        return;
    CUDA_ACT(dev, run_forward<T>(dev, a));
    cuda_launched(dev, "norm_fwd");
}

void cuda_norm_back(struct device *dev, const char *op, const struct op_rownorm *a, bool gathered,
                    float *part)
{
    if (dev->err.code || a->n == 0)
        return;
    CUDA_ACT(dev, run_backward<T>(dev, op, a, gathered, part));
}

void cuda_norm_bwd(struct device *dev, const struct op_rownorm *a)
{
    bool sums = a->norm.dw || a->norm.db || a->dx_sum || a->add_sum;
    float *part = NULL;

    if (dev->err.code)
        return;
    if (a->rows && a->n < a->n_x)       /* rows are increasing, so otherwise they are all rows */
        dev->ops->zero(dev, a->dx, (size_t)(a->n_x * a->dim) * cuda_size(dev));
    if (sums)
        part = (float *)cuda_work(dev, "norm_bwd", cuda_norm_parts(dev, a->dim));
    if (!sums || part)
        cuda_norm_back(dev, "norm_bwd", a, false, part);
}

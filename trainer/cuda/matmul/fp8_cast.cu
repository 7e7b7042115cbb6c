/*
 * fp8_cast - matrices of bf16 to 8 bits, in the same layout and transposed.
 *
 * First the largest element: magnitudes are compared as integers, where a NaN is above
 * infinity, and infinity above the numbers; each block stores its maximum, and the last to
 * finish computes the scale.  This goes from the end to the beginning, since the L2 cache still
 * holds the end of x from its producer; the rounding that follows finds the beginning there.
 *
 * The transpose goes by tiles of 128 x 128 through shared memory.  A word there is four
 * neighbours of a row; word c of row r is at c ^ (r / 16 * 4), so that both the rows that are
 * written and the pieces of 16 rows that are read fall into different banks.
 */
#include "trainer/cuda/matmul/fp8.h"

#include <cuda_fp8.h>

namespace {

const int block = 256;
const int tile = 128, words = tile / 4;

__device__ __forceinline__ uint4 load8(const __nv_bfloat16 *x, bool whole)
{
    uint4 v;

    if (whole)
        return *(const uint4 *)x;
    v.x = (uint32_t)((const uint16_t *)x)[0] | (uint32_t)((const uint16_t *)x)[1] << 16;
    v.y = (uint32_t)((const uint16_t *)x)[2] | (uint32_t)((const uint16_t *)x)[3] << 16;
    v.z = (uint32_t)((const uint16_t *)x)[4] | (uint32_t)((const uint16_t *)x)[5] << 16;
    v.w = (uint32_t)((const uint16_t *)x)[6] | (uint32_t)((const uint16_t *)x)[7] << 16;
    return v;
}

/* The larger of two pairs of magnitudes. */
__device__ __forceinline__ uint32_t larger(uint32_t most, uint32_t pair)
{
    return __vmaxu2(most, pair & 0x7fff7fffu);
}

/* The largest power of two by which a, the bits of a bf16 without its sign, stays within the
 * type: 448 = 1.75 * 2^8, 57344 = 1.75 * 2^15. */
__device__ struct fp8_scale scale_of(uint32_t a, bool e5m2)
{
    int power = (e5m2 ? 15 : 8), e = (int)(a >> 7) - 127;
    struct fp8_scale s;

    if (a == 0) {
        s.by = s.back = 1.0f;
        return s;
    }
    if (a >= 0x7f80) {
        s.by = s.back = __int_as_float(0x7fc00000);
        return s;
    }
    power -= e + ((a & 0x7f) > 0x60);   /* above 1.75 */
    power = min(power, 126);            /* so that both stay normal numbers */
    s.by = __int_as_float((power + 127) << 23);
    s.back = __int_as_float((127 - power) << 23);
    return s;
}

__device__ __forceinline__ uint32_t block_largest(uint32_t most)
{
    __shared__ uint32_t part[block / 32];

    most = __reduce_max_sync(0xffffffffu, max(most & 0xffff, most >> 16));
    __syncthreads();
    if (threadIdx.x % 32 == 0)
        part[threadIdx.x / 32] = most;
    __syncthreads();
    most = part[threadIdx.x % (block / 32)];
    return __reduce_max_sync(0xffffffffu, most);
}

/* n: pieces of eight, `each` of them a row. */
__global__ void __launch_bounds__(block)
largest(const __nv_bfloat16 *x, uint32_t n, uint32_t each, int64_t ld, bool whole, uint32_t *parts,
        struct fp8_scale *scale, bool e5m2)
{
    __shared__ bool last;
    uint32_t stride = gridDim.x * block, most = 0;

    for (uint32_t i = blockIdx.x * block + threadIdx.x; i < n; i += 4 * stride) {
        uint4 v[4];

#pragma unroll
        for (int k = 0; k < 4; k++) {
            uint32_t left = i + (uint32_t)k * stride, at = n - 1 - left;

            v[k] = left < n ? load8(x + (int64_t)(at / each) * ld + at % each * 8, whole)
                            : make_uint4(0, 0, 0, 0);
        }
#pragma unroll
        for (int k = 0; k < 4; k++)
            most = larger(larger(larger(larger(most, v[k].x), v[k].y), v[k].z), v[k].w);
    }
    most = block_largest(most);
    if (threadIdx.x == 0) {
        parts[blockIdx.x] = most;
        __threadfence();
        last = atomicAdd(&parts[FP8_PARTS], 1) == gridDim.x - 1;
    }
    __syncthreads();
    if (!last)
        return;
    __threadfence();
    most = 0;
    for (uint32_t i = threadIdx.x; i < gridDim.x; i += block)
        most = max(most, __ldcg(&parts[i]));
    most = block_largest(most);
    if (threadIdx.x == 0) {
        *scale = scale_of(most, e5m2);
        parts[FP8_PARTS] = 0;
    }
}

template <__nv_fp8_interpretation_t F>
__device__ __forceinline__ uint32_t round2(uint32_t pair, float by)
{
    float2 f = make_float2(__uint_as_float(pair << 16) * by,
                           __uint_as_float(pair & 0xffff0000u) * by);

    return __nv_cvt_float2_to_fp8x2(f, __NV_SATFINITE, F);
}

template <__nv_fp8_interpretation_t F> __device__ __forceinline__ uint2 round8(uint4 v, float by)
{
    return make_uint2(round2<F>(v.x, by) | round2<F>(v.y, by) << 16,
                      round2<F>(v.z, by) | round2<F>(v.w, by) << 16);
}

/* n: pieces of sixteen, `each` of them a row; two of them a thread. */
template <__nv_fp8_interpretation_t F>
__global__ void __launch_bounds__(block)
plain_kernel(uint4 *to, const __nv_bfloat16 *x, uint32_t n, uint32_t each, int64_t ld, bool whole,
             const struct fp8_scale *scale)
{
    uint32_t i = blockIdx.x * (2 * block) + threadIdx.x;
    float by = scale->by;
    uint4 v[2][2];

#pragma unroll
    for (int k = 0; k < 2; k++) {
        uint32_t at = i + (uint32_t)k * block;
        const __nv_bfloat16 *from = x + (int64_t)(at / each) * ld + at % each * 16;

        if (at < n) {
            v[k][0] = load8(from, whole);
            v[k][1] = load8(from + 8, whole);
        }
    }
#pragma unroll
    for (int k = 0; k < 2; k++)
        if (i + (uint32_t)k * block < n) {
            uint2 a = round8<F>(v[k][0], by), b = round8<F>(v[k][1], by);

            to[i + (uint32_t)k * block] = make_uint4(a.x, a.y, b.x, b.y);
        }
}

/* Four rows of four bytes to four columns: word k gets byte k of each. */
__device__ __forceinline__ void turn4(uint32_t w[4])
{
    uint32_t a = __byte_perm(w[0], w[1], 0x5140), b = __byte_perm(w[2], w[3], 0x5140);
    uint32_t c = __byte_perm(w[0], w[1], 0x7362), d = __byte_perm(w[2], w[3], 0x7362);

    w[0] = __byte_perm(a, b, 0x5410);
    w[1] = __byte_perm(a, b, 0x7632);
    w[2] = __byte_perm(c, d, 0x5410);
    w[3] = __byte_perm(c, d, 0x7632);
}

template <__nv_fp8_interpretation_t F>
__global__ void __launch_bounds__(block)
turn_kernel(struct fp8_cast c, int64_t filled, bool whole)
{
    __shared__ __align__(16) uint32_t at[tile * words];
    int64_t row0 = (int64_t)blockIdx.y * tile, col0 = (int64_t)blockIdx.x * tile;
    const __nv_bfloat16 *x = (const __nv_bfloat16 *)c.x;
    int t = (int)threadIdx.x, piece = t % 16, warp = t / 32, lane = t % 32;
    int part = lane % 8, word = warp * 4 + lane / 8;
    float by = c.scale->by;
    int64_t col = col0 + piece * 8;
    uint32_t w[4][4];
    uint4 v[8];

#pragma unroll
    for (int k = 0; k < 8; k++) {
        int64_t row = row0 + t / 16 + 16 * k;

        v[k] = row < c.rows && col < c.cols ? load8(x + row * c.ld + col, whole)
                                            : make_uint4(0, 0, 0, 0);
    }
#pragma unroll
    for (int k = 0; k < 8; k++) {
        int r = t / 16 + 16 * k;
        bool there = row0 + r < c.rows && col < c.cols;
        uint2 b = there ? round8<F>(v[k], by) : make_uint2(0, 0);

        *(uint2 *)&at[r * words + ((piece * 2) ^ (k * 4))] = b;
        if (there && c.plain)
            *(uint2 *)(c.plain + (row0 + r) * c.cols + col) = b;
    }
    __syncthreads();
    col = col0 + word * 4;
    if (col >= c.cols || row0 + part * 16 >= filled)
        return;
#pragma unroll
    for (int i = 0; i < 4; i++) {
#pragma unroll
        for (int j = 0; j < 4; j++)
            w[i][j] = at[(part * 16 + i * 4 + j) * words + (word ^ (part * 4))];
        turn4(w[i]);
    }
#pragma unroll
    for (int j = 0; j < 4; j++)
        *(uint4 *)(c.transposed + (col + j) * filled + row0 + part * 16) =
            make_uint4(w[0][j], w[1][j], w[2][j], w[3][j]);
}

template <__nv_fp8_interpretation_t F>
void round_all(struct device *dev, const struct fp8_cast *c, bool whole)
{
    cudaStream_t on = cuda_of(dev)->stream;
    uint32_t n = (uint32_t)(c->rows * (c->cols / 16));

    if (!c->transposed)
        plain_kernel<F><<<(n + 2 * block - 1) / (2 * block), block, 0, on>>>(
            (uint4 *)c->plain, (const __nv_bfloat16 *)c->x, n, (uint32_t)(c->cols / 16), c->ld,
            whole, c->scale);
    else
        turn_kernel<F><<<dim3((unsigned)cuda_blocks(c->cols, tile),
                              (unsigned)cuda_blocks(c->rows, tile)), block, 0, on>>>(
            *c, (c->rows + 15) / 16 * 16, whole);
}

} /* namespace */

void fp8_cast(struct device *dev, const char *op, const struct fp8_cast *c, uint32_t *parts)
{
    struct cuda_device *d = cuda_of(dev);
    int64_t n = c->rows * (c->cols / 8), blocks = cuda_blocks(n, 4 * block);
    int64_t most = min((int64_t)d->sms * 8, (int64_t)FP8_PARTS);
    bool whole = cuda_aligned(c->x, 16) && c->ld % 8 == 0;

    if (dev->err.code || n == 0)
        return;
    largest<<<(unsigned)min(blocks, most), block, 0, d->stream>>>(
        (const __nv_bfloat16 *)c->x, (uint32_t)n, (uint32_t)(c->cols / 8), c->ld, whole, parts,
        c->scale, c->e5m2);
    if (c->e5m2)
        round_all<__NV_E5M2>(dev, c, whole);
    else
        round_all<__NV_E4M3>(dev, c, whole);
    cuda_launched(dev, op);
}

/*
 * wgmma - products of 16-bit tiles on Hopper's tensor cores, by warpgroups.
 *
 * A tile of width D lies in shared memory as panels of PANEL columns, each [rows][PANEL], with
 * its 16-byte pieces permuted by the hardware's swizzle of that width (128, 64 or 32 bytes a
 * row).  The first factor of a product is a tile too, or registers that hold fragments as
 * mma.m16n8k16 does; warp w of the block has rows 16 w and on.  Products are asynchronous until
 * wgmma_finish.  The code is empty except on 9.0a: no other chip runs it.
 *
 * Source: PTX ISA 8.5, sections 9.7.15 (asynchronous warpgroup matrix instructions) and
 * 9.7.15.5.1 (matrix descriptors); CUTLASS 3.5, cute/atom/mma_traits_sm90_gmma.hpp (layouts).
 */
#ifndef CKPT_TRAINER_CUDA_HOPPER_WGMMA_H
#define CKPT_TRAINER_CUDA_HOPPER_WGMMA_H

#include "trainer/cuda/cuda.h"

#include <type_traits>

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define WGMMA_HERE 1
#else
#define WGMMA_HERE 0
#endif

template <int D> struct wgmma_panels {
    static const int PANEL = D % 64 == 0 ? 64 : D % 32 == 0 ? 32 : 16;
    static const int BYTES = PANEL * 2;         /* bytes of a row of a panel; the swizzle's width */
    static const int MODE = PANEL == 64 ? 1 : PANEL == 32 ? 2 : 3;
};

/* Offset of the 8 elements from column 8 c of row r, in a tile of that many rows. */
template <int D, int ROWS> __device__ __forceinline__ int wgmma_panel_at(int r, int c)
{
    const int P = wgmma_panels<D>::PANEL, pieces = P / 8;

    int piece = c % pieces ^ (P == 64 ? r & 7 : P == 32 ? r >> 1 & 3 : r >> 2 & 1);

    return (c / pieces * ROWS + r) * P + piece * 8;
}

/* A descriptor: address and strides in units of 16 bytes.  Its low word has the address, below
 * 256 KiB, and the stride from panel to panel: parts of a tile differ by an addition to that
 * word. */
__device__ __forceinline__ uint32_t wgmma_desc_low(const void *tile, int leading)
{
    return (uint32_t)cuda_uniform((int)(cuda_shared_addr(tile) >> 4 & 0x3fff)) |
           (uint32_t)(leading >> 4) << 16;
}

/* The descriptor of the part at `bytes` after the beginning of the tile. */
template <int D> __device__ __forceinline__ uint64_t wgmma_desc(uint32_t low, int bytes)
{
    const uint32_t HIGH =
        (uint32_t)(8 * wgmma_panels<D>::BYTES >> 4) | (uint32_t)wgmma_panels<D>::MODE << 30;

    return (uint64_t)HIGH << 32 | (low + (uint32_t)(bytes >> 4));
}

__device__ __forceinline__ void wgmma_ldmatrix(uint32_t to[4], const void *p)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(cuda_shared_addr(p)));
}

/* Products between wgmma_fence and wgmma_finish are asynchronous; without WG they are complete
 * at once. */
template <bool WG> __device__ __forceinline__ void wgmma_fence()
{
#if WGMMA_HERE
    if constexpr (WG)
        asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#endif
}

/* Make generic writes to shared memory visible to later products. */
__device__ __forceinline__ void wgmma_proxy_fence()
{
#if WGMMA_HERE
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}

/* Keep the compiler from moving definitions or uses of these values across this point. */
template <int MR, int NT> __device__ __forceinline__ void wgmma_hold(float (&x)[MR][NT][4])
{
#pragma unroll
    for (int m = 0; m < MR; m++)
#pragma unroll
        for (int n = 0; n < NT; n++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                asm volatile("" : "+f"(x[m][n][e])::"memory");
}

/* The products so far are one group; groups end in order. */
template <bool WG> __device__ __forceinline__ void wgmma_commit()
{
#if WGMMA_HERE
    if constexpr (WG)
        asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
#endif
}

/* Wait until all groups but the last LEFT are in their accumulators, which are the arguments. */
template <bool WG, int LEFT, typename... A>
__device__ __forceinline__ void wgmma_wait(A &...acc)
{
#if WGMMA_HERE
    if constexpr (WG) {
        asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(LEFT) : "memory");
        (wgmma_hold(acc), ...);
    }
#endif
}

/* Wait until all products since wgmma_fence are in their accumulators. */
template <bool WG, typename... A> __device__ __forceinline__ void wgmma_finish(A &...acc)
{
    wgmma_commit<WG>();
    wgmma_wait<WG, 0>(acc...);
}

/* The accumulator's registers by the columns of a product: as operands and in the text. */
#define WGMMA_4(x) "+f"((x)[0]), "+f"((x)[1]), "+f"((x)[2]), "+f"((x)[3])
#define WGMMA_8(x) WGMMA_4((x)[0]), WGMMA_4((x)[1])
#define WGMMA_16(x) WGMMA_8(x), WGMMA_8((x) + 2)
#define WGMMA_32(x) WGMMA_16(x), WGMMA_16((x) + 4)
#define WGMMA_40(x) WGMMA_32(x), WGMMA_8((x) + 8)
#define WGMMA_48(x) WGMMA_32(x), WGMMA_16((x) + 8)
#define WGMMA_64(x) WGMMA_32(x), WGMMA_32((x) + 8)
#define WGMMA_128(x) WGMMA_64(x), WGMMA_64((x) + 16)
#define WGMMA_TEXT_32                                                                          \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "                   \
    "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define WGMMA_TEXT_40 WGMMA_TEXT_32 ", %32, %33, %34, %35, %36, %37, %38, %39"
#define WGMMA_TEXT_48 WGMMA_TEXT_40 ", %40, %41, %42, %43, %44, %45, %46, %47"
#define WGMMA_TEXT_64                                                                          \
    WGMMA_TEXT_48 ", %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, "   \
    "%62, %63"
#define WGMMA_TEXT_128                                                                         \
    WGMMA_TEXT_64                                                                              \
    ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77"                   \
    ", %78, %79, %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91"                   \
    ", %92, %93, %94, %95, %96, %97, %98, %99, %100, %101, %102, %103, %104, %105"             \
    ", %106, %107, %108, %109, %110, %111, %112, %113, %114, %115, %116, %117, %118, %119"     \
    ", %120, %121, %122, %123, %124, %125, %126, %127"

#define WGMMA_BEGIN(add, n, type, regs)                                                        \
    "{ .reg .pred p; setp.ne.b32 p, " add ", 0; wgmma.mma_async.sync.aligned.m64n" n           \
    "k16.f32." type "." type " {" WGMMA_TEXT_##regs "}, "
/* acc = (or +=) a b of two tiles: a is contiguous along k; b too, or along n with by_rows 1. */
#define WGMMA_SS(n, regs, type, by_rows, x, y, add)                                            \
    asm volatile(WGMMA_BEGIN(add, #n, type, regs) x ", " y ", p, 1, 1, 0, " by_rows "; }"      \
                 : WGMMA_##regs(acc) : "l"(a), "l"(b), "r"((int)add_to))
/* acc += a b: a in registers, b by rows. */
#define WGMMA_RS(n, regs, type, x, y, add)                                                     \
    asm volatile(WGMMA_BEGIN(add, #n, type, regs) "{" x "}, " y ", p, 1, 1, 1; }"              \
                 : WGMMA_##regs(acc)                                                           \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(1))
/* Operands after the accumulator, by the width N. */
#define WGMMA_SS_OF(type, by_rows)                                                             \
    do {                                                                                       \
        if constexpr (N == 64)                                                                 \
            WGMMA_SS(64, 32, type, by_rows, "%32", "%33", "%34");                              \
        else if constexpr (N == 96)                                                            \
            WGMMA_SS(96, 48, type, by_rows, "%48", "%49", "%50");                              \
        else if constexpr (N == 128)                                                           \
            WGMMA_SS(128, 64, type, by_rows, "%64", "%65", "%66");                             \
        else                                                                                   \
            WGMMA_SS(256, 128, type, by_rows, "%128", "%129", "%130");                         \
    } while (0)
#define WGMMA_RS_OF(type)                                                                      \
    do {                                                                                       \
        if constexpr (N == 64)                                                                 \
            WGMMA_RS(64, 32, type, "%32, %33, %34, %35", "%36", "%37");                        \
        else if constexpr (N == 80)                                                            \
            WGMMA_RS(80, 40, type, "%40, %41, %42, %43", "%44", "%45");                        \
        else if constexpr (N == 96)                                                            \
            WGMMA_RS(96, 48, type, "%48, %49, %50, %51", "%52", "%53");                        \
        else                                                                                   \
            WGMMA_RS(128, 64, type, "%64, %65, %66, %67", "%68", "%69");                       \
    } while (0)

/* 64 x N: a b^T, or a b with b BY_ROWS; added to acc, or instead of it. */
template <typename T, int N, bool BY_ROWS>
__device__ __forceinline__ void wgmma_ss(float (*acc)[4], uint64_t a, uint64_t b, bool add_to)
{
    static_assert(N == 64 || N == 96 || N == 128 || N == 256, "widths that are written here");
#if WGMMA_HERE
    if constexpr (std::is_same<T, __half>::value && BY_ROWS)
        WGMMA_SS_OF("f16", "1");
    else if constexpr (std::is_same<T, __half>::value)
        WGMMA_SS_OF("f16", "0");
    else if constexpr (BY_ROWS)
        WGMMA_SS_OF("bf16", "1");
    else
        WGMMA_SS_OF("bf16", "0");
#endif
}

/* 64 x N, added: a in registers, b by rows. */
template <typename T, int N>
__device__ __forceinline__ void wgmma_rs(float (*acc)[4], const uint32_t a[4], uint64_t b)
{
    static_assert(N == 64 || N == 80 || N == 96 || N == 128, "widths that are written here");
#if WGMMA_HERE
    if constexpr (std::is_same<T, __half>::value)
        WGMMA_RS_OF("f16");
    else
        WGMMA_RS_OF("bf16");
#endif
}

/* acc[64, 8 NT] = a b^T for the warp's group: its 64 rows of a, a tile of ROWS_A rows, among which
 * `row` is; b a tile of 8 NT rows. */
template <typename T, int D, int ROWS_A, int NT>
__device__ __forceinline__ void wgmma_rows_by_rows(float (&acc)[1][NT][4], const T *a, int row,
                                                   const T *b)
{
    const int B = wgmma_panels<D>::BYTES, P = wgmma_panels<D>::PANEL,
              EACH = NT % 16 == 0 ? 16 : 8;
    uint32_t low_a = wgmma_desc_low(a + row / 64 * 64 * P, 16), low_b = wgmma_desc_low(b, 16);

    static_assert(NT % 8 == 0, "64 columns a product, or 128");
#pragma unroll
    for (int n = 0; n < NT; n += EACH)
#pragma unroll
        for (int k = 0; k < D; k += 16)
            wgmma_ss<T, 8 * EACH, false>(
                &acc[0][n], wgmma_desc<D>(low_a, k / P * ROWS_A * B + k % P * 2),
                wgmma_desc<D>(low_b, (k / P * NT * 8 + 8 * n) * B + k % P * 2), k > 0);
}

/* acc[64, 8 NT] += p[64, 8 KT] b: p fragments, b a tile of 8 KT rows. */
template <typename T, int D, int KT, int NT>
__device__ __forceinline__ void wgmma_times_rows(float (&acc)[1][NT][4],
                                                 const uint32_t (&p)[KT / 2][4], const T *b)
{
    const int B = wgmma_panels<D>::BYTES, LEAD = KT * 8 * B;
    uint32_t low = wgmma_desc_low(b, LEAD);

#pragma unroll
    for (int k = 0; k < KT / 2; k++)
        wgmma_rs<T, 8 * NT>(acc[0], p[k], wgmma_desc<D>(low, 16 * k * B));
}

/* acc[64, D] = a b: a a tile [64][ROWS], b a tile of width D of ROWS rows. */
template <typename T, int D, int ROWS>
__device__ __forceinline__ void wgmma_rows_sum(float (&acc)[1][D / 8][4], const T *a,
                                               const T *b)
{
    const int BA = wgmma_panels<ROWS>::BYTES, PA = wgmma_panels<ROWS>::PANEL;
    const int B = wgmma_panels<D>::BYTES, LEAD = ROWS * B;
    uint32_t low_a = wgmma_desc_low(a, 16), low_b = wgmma_desc_low(b, LEAD);

#pragma unroll
    for (int k = 0; k < ROWS; k += 16)
        wgmma_ss<T, D, true>(acc[0], wgmma_desc<ROWS>(low_a, k / PA * 64 * BA + k % PA * 2),
                             wgmma_desc<D>(low_b, k * B), k > 0);
}

/*
 * Store a warp's fragments [16, D], times by, to rows [row, rows) of a matrix whose row 0 is at
 * `to`, as adjacent pieces of 16 bytes: staged in the same rows of a tile of ROWS, which nothing
 * else reads.  The matrix' address, stride and columns are multiples of 8 elements.  For Hopper.
 */
template <int D, int ROWS, typename T>
__device__ __forceinline__ void wgmma_store_fragments(T *to, int64_t stride, T *tile, int row,
                                                     int rows, int64_t dim, const float (*x)[4],
                                                     float by)
{
    int lane = (int)threadIdx.x % 32;

    asm volatile("" : "+r"(lane));      /* values derived from lane before this point must not
                                           occupy registers */
#pragma unroll
    for (int k = 0; k < D / 16; k++) {
        const float *l = x[2 * k], *r = x[2 * k + 1];

        asm volatile(
            "stmatrix.sync.aligned.m8n8.x4.shared::cta.b16 [%0], {%1, %2, %3, %4};" ::"r"(
                cuda_shared_addr(tile +
                                 wgmma_panel_at<D, ROWS>(row + lane % 16, 2 * k + lane / 16))),
            "r"(cuda_pack2<T>(l[0] * by, l[1] * by)), "r"(cuda_pack2<T>(l[2] * by, l[3] * by)),
            "r"(cuda_pack2<T>(r[0] * by, r[1] * by)), "r"(cuda_pack2<T>(r[2] * by, r[3] * by))
            : "memory");
    }
    __syncwarp();
#pragma unroll
    for (int u = 0; u < D / 16; u++) {
        int r = row + (32 * u + lane) / (D / 8), c = (32 * u + lane) % (D / 8);

        if (r < rows && 8 * c < dim)
            *(uint4 *)(to + r * stride + 8 * c) =
                *(const uint4 *)(tile + wgmma_panel_at<D, ROWS>(r, c));
    }
}

#endif

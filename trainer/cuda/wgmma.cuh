/*
 * wgmma - products of 16-bit tiles on Hopper's tensor cores, by groups of four warps.
 *
 * A tile of width D lies in shared memory as panels of PANEL columns, each [rows][PANEL], with
 * its 16-byte pieces exchanged as the hardware's swizzle of that width asks (128, 64 or 32 bytes
 * a row).  The first factor of a product is a tile too, or registers that hold fragments as
 * mma.m16n8k16 does; warp w of the block has rows 16 w and on.  Products run by themselves until
 * products_end.  The code is empty but for 9.0a: no other chip is asked to run it.
 *
 * Source: PTX ISA 8.5, sections 9.7.15 (asynchronous warpgroup matrix instructions) and
 * 9.7.15.5.1 (matrix descriptors); CUTLASS 3.5, cute/atom/mma_traits_sm90_gmma.hpp (layouts).
 */
#ifndef CKPT_WGMMA_H
#define CKPT_WGMMA_H

#include "trainer/cuda/cuda.h"

#include <type_traits>

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define WGMMA_HERE 1
#else
#define WGMMA_HERE 0
#endif

template <int D> struct panels {
    static const int PANEL = D % 64 == 0 ? 64 : D % 32 == 0 ? 32 : 16;
    static const int BYTES = PANEL * 2;                 /* a row of a panel; the swizzle's width */
    static const int MODE = PANEL == 64 ? 1 : PANEL == 32 ? 2 : 3;
};

/* Where the 8 elements of row r from column 8 c on lie in a tile of that many rows. */
template <int D, int ROWS> __device__ __forceinline__ int panel_at(int r, int c)
{
    const int P = panels<D>::PANEL, pieces = P / 8;

    int piece = c % pieces ^ (P == 64 ? r & 7 : P == 32 ? r >> 1 & 3 : r >> 2 & 1);

    return (c / pieces * ROWS + r) * P + piece * 8;
}

/* A descriptor: address and strides in units of 16 bytes. */
template <int D> __device__ __forceinline__ uint64_t tile_desc(uint32_t at, int leading)
{
    return (uint64_t)(at >> 4 & 0x3fff) | (uint64_t)(leading >> 4 & 0x3fff) << 16 |
           (uint64_t)(8 * panels<D>::BYTES >> 4) << 32 | (uint64_t)panels<D>::MODE << 62;
}

/* Between these two products run by themselves; without WG they are done at once. */
template <bool WG> __device__ __forceinline__ void products_begin()
{
#if WGMMA_HERE
    if constexpr (WG)
        asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#endif
}

/* What generic writes put into shared memory becomes seen by the products to come. */
__device__ __forceinline__ void products_see()
{
#if WGMMA_HERE
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}

/* Keeps the compiler from moving what makes or uses these values over this point. */
template <int MR, int NT> __device__ __forceinline__ void hold(float (&x)[MR][NT][4])
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
template <bool WG> __device__ __forceinline__ void products_group()
{
#if WGMMA_HERE
    if constexpr (WG)
        asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
#endif
}

/* All groups but the last LEFT are in their accumulators, which are named. */
template <bool WG, int LEFT, typename... A> __device__ __forceinline__ void products_wait(A &...acc)
{
#if WGMMA_HERE
    if constexpr (WG) {
        asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(LEFT) : "memory");
        (hold(acc), ...);
    }
#endif
}

/* All products since products_begin are in their accumulators. */
template <bool WG, typename... A> __device__ __forceinline__ void products_end(A &...acc)
{
    products_group<WG>();
    products_wait<WG, 0>(acc...);
}

#define WGMMA_4(x) "+f"((x)[0]), "+f"((x)[1]), "+f"((x)[2]), "+f"((x)[3])
#define WGMMA_8(x) WGMMA_4((x)[0]), WGMMA_4((x)[1])
#define WGMMA_16(x) WGMMA_8(x), WGMMA_8((x) + 2)
#define WGMMA_32(x) WGMMA_16(x), WGMMA_16((x) + 4)

#define WGMMA_64(x) WGMMA_32(x), WGMMA_32((x) + 8)

/* acc = (or +=) a b^T, both tiles by columns: 64 x 64, 64 x 128. */
#define WGMMA_TILES(type)                                                                      \
    asm volatile("{ .reg .pred p; setp.ne.b32 p, %34, 0; "                                     \
        "wgmma.mma_async.sync.aligned.m64n64k16.f32." type "." type " {"                       \
        "%0, %1, %2, %3, %4, %5, %6, %7, "                                                     \
        "%8, %9, %10, %11, %12, %13, %14, %15, "                                               \
        "%16, %17, %18, %19, %20, %21, %22, %23, "                                             \
        "%24, %25, %26, %27, %28, %29, %30, %31}, "                                            \
        "%32, %33, p, 1, 1, 0, 0; }" : WGMMA_32(acc) : "l"(a), "l"(b), "r"((int)add))
#define WGMMA_TILES_128(type)                                                                  \
    asm volatile("{ .reg .pred p; setp.ne.b32 p, %66, 0; "                                     \
        "wgmma.mma_async.sync.aligned.m64n128k16.f32." type "." type " {"                      \
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "               \
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "     \
        "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "     \
        "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "    \
        "%64, %65, p, 1, 1, 0, 0; }" : WGMMA_64(acc) : "l"(a), "l"(b), "r"((int)add))
/* acc += a b: a in registers, b a tile by rows: 64 x n. */
#define WGMMA_ROWS_64(type)                                                                    \
    asm volatile("{ .reg .pred p; setp.ne.b32 p, 1, 0; "                                       \
        "wgmma.mma_async.sync.aligned.m64n64k16.f32." type "." type " {"                       \
        "%0, %1, %2, %3, %4, %5, %6, %7, "                                                     \
        "%8, %9, %10, %11, %12, %13, %14, %15, "                                               \
        "%16, %17, %18, %19, %20, %21, %22, %23, "                                             \
        "%24, %25, %26, %27, %28, %29, %30, %31}, "                                            \
        "{%32, %33, %34, %35}, %36, p, 1, 1, 1; }" : WGMMA_32(acc)                             \
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b))
#define WGMMA_ROWS_32(type)                                                                    \
    asm volatile("{ .reg .pred p; setp.ne.b32 p, 1, 0; "                                       \
        "wgmma.mma_async.sync.aligned.m64n32k16.f32." type "." type " {"                       \
        "%0, %1, %2, %3, %4, %5, %6, %7, "                                                     \
        "%8, %9, %10, %11, %12, %13, %14, %15}, "                                              \
        "{%16, %17, %18, %19}, %20, p, 1, 1, 1; }" : WGMMA_16(acc)                             \
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b))
#define WGMMA_ROWS_16(type)                                                                    \
    asm volatile("{ .reg .pred p; setp.ne.b32 p, 1, 0; "                                       \
        "wgmma.mma_async.sync.aligned.m64n16k16.f32." type "." type " {"                       \
        "%0, %1, %2, %3, %4, %5, %6, %7}, "                                                    \
        "{%8, %9, %10, %11}, %12, p, 1, 1, 1; }" : WGMMA_8(acc)                                \
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b))

/* acc = (or +=) a b: a tile by columns, b a tile by rows: 64 x n. */
#define WGMMA_BOTH_64(type)                                                                    \
    asm volatile("{ .reg .pred p; setp.ne.b32 p, %34, 0; "                                     \
        "wgmma.mma_async.sync.aligned.m64n64k16.f32." type "." type " {"                       \
        "%0, %1, %2, %3, %4, %5, %6, %7, "                                                     \
        "%8, %9, %10, %11, %12, %13, %14, %15, "                                               \
        "%16, %17, %18, %19, %20, %21, %22, %23, "                                             \
        "%24, %25, %26, %27, %28, %29, %30, %31}, "                                            \
        "%32, %33, p, 1, 1, 0, 1; }" : WGMMA_32(acc) : "l"(a), "l"(b), "r"((int)add))
#define WGMMA_BOTH_32(type)                                                                    \
    asm volatile("{ .reg .pred p; setp.ne.b32 p, %18, 0; "                                     \
        "wgmma.mma_async.sync.aligned.m64n32k16.f32." type "." type " {"                       \
        "%0, %1, %2, %3, %4, %5, %6, %7, "                                                     \
        "%8, %9, %10, %11, %12, %13, %14, %15}, "                                              \
        "%16, %17, p, 1, 1, 0, 1; }" : WGMMA_16(acc) : "l"(a), "l"(b), "r"((int)add))

template <typename T, int N>
__device__ __forceinline__ void wg_tiles(float (*acc)[4], uint64_t a, uint64_t b, bool add)
{
#if WGMMA_HERE
    if constexpr (std::is_same<T, __half>::value) {
        if constexpr (N == 128)
            WGMMA_TILES_128("f16");
        else
            WGMMA_TILES("f16");
    } else {
        if constexpr (N == 128)
            WGMMA_TILES_128("bf16");
        else
            WGMMA_TILES("bf16");
    }
#endif
}

template <typename T, int N>
__device__ __forceinline__ void wg_rows(float (*acc)[4], const uint32_t a[4], uint64_t b)
{
#if WGMMA_HERE
    if constexpr (std::is_same<T, __half>::value) {
        if constexpr (N == 64)
            WGMMA_ROWS_64("f16");
        else if constexpr (N == 32)
            WGMMA_ROWS_32("f16");
        else
            WGMMA_ROWS_16("f16");
    } else {
        if constexpr (N == 64)
            WGMMA_ROWS_64("bf16");
        else if constexpr (N == 32)
            WGMMA_ROWS_32("bf16");
        else
            WGMMA_ROWS_16("bf16");
    }
#endif
}

template <typename T, int N>
__device__ __forceinline__ void wg_both(float (*acc)[4], uint64_t a, uint64_t b, bool add)
{
#if WGMMA_HERE
    if constexpr (std::is_same<T, __half>::value) {
        if constexpr (N == 64)
            WGMMA_BOTH_64("f16");
        else
            WGMMA_BOTH_32("f16");
    } else {
        if constexpr (N == 64)
            WGMMA_BOTH_64("bf16");
        else
            WGMMA_BOTH_32("bf16");
    }
#endif
}

/* acc[64, 8 NT] = a b^T for the warp's group: its 64 rows of a, a tile of ROWS_A rows; b a tile
 * of 8 NT rows. */
template <typename T, int D, int ROWS_A, int NT>
__device__ __forceinline__ void wg_rows_by_rows(float (&acc)[1][NT][4], const T *a, const T *b)
{
    const int B = panels<D>::BYTES, P = panels<D>::PANEL;
    uint32_t at_a = (uint32_t)__cvta_generic_to_shared(a) + threadIdx.x / 128 * 64 * B;
    uint32_t at_b = (uint32_t)__cvta_generic_to_shared(b);

    const int EACH = NT % 16 == 0 ? 16 : 8;

    static_assert(NT % 8 == 0, "64 columns a product, or 128");
#pragma unroll
    for (int n = 0; n < NT; n += EACH)
#pragma unroll
        for (int k = 0; k < D; k += 16) {
            uint32_t da = at_a + k / P * ROWS_A * B + k % P * 2;
            uint32_t db = at_b + k / P * NT * 8 * B + 8 * n * B + k % P * 2;

            wg_tiles<T, 8 * EACH>(&acc[0][n], tile_desc<D>(da, 16), tile_desc<D>(db, 16), k > 0);
        }
}

/* acc[64, 8 NT] += p[64, 8 KT] b: p fragments, b a tile of 8 KT rows. */
template <typename T, int D, int KT, int NT>
__device__ __forceinline__ void wg_times_rows(float (&acc)[1][NT][4],
                                              const uint32_t (&p)[KT / 2][4], const T *b)
{
    const int B = panels<D>::BYTES, P = panels<D>::PANEL, ROWS = KT * 8, LEAD = ROWS * B;
    uint32_t at = (uint32_t)__cvta_generic_to_shared(b);

#pragma unroll
    for (int k = 0; k < KT / 2; k++, at += 16 * B) {
#pragma unroll
        for (int n = 0; n + 8 <= NT; n += 8)
            wg_rows<T, 64>(&acc[0][n], p[k], tile_desc<D>(at + n * 8 / P * LEAD, LEAD));
        if constexpr (NT % 8 >= 4)
            wg_rows<T, 32>(&acc[0][NT / 8 * 8], p[k],
                           tile_desc<D>(at + NT / 8 * 64 / P * LEAD, LEAD));
        if constexpr (NT % 4 >= 2)
            wg_rows<T, 16>(&acc[0][NT / 4 * 4], p[k],
                           tile_desc<D>(at + NT / 4 * 32 / P * LEAD, LEAD));
    }
}

/* acc[64, D] = a b: a a tile [64][ROWS], b a tile of width D of ROWS rows. */
template <typename T, int D, int ROWS>
__device__ __forceinline__ void wg_rows_sum(float (&acc)[1][D / 8][4], const T *a, const T *b)
{
    const int BA = panels<ROWS>::BYTES, PA = panels<ROWS>::PANEL;
    const int B = panels<D>::BYTES, P = panels<D>::PANEL, LEAD = ROWS * B;
    uint32_t at_a = (uint32_t)__cvta_generic_to_shared(a);
    uint32_t at_b = (uint32_t)__cvta_generic_to_shared(b);

    static_assert(D % 32 == 0, "32 columns a product");
#pragma unroll
    for (int k = 0; k < ROWS; k += 16) {
        uint64_t da = tile_desc<ROWS>(at_a + k / PA * 64 * BA + k % PA * 2, 16);

#pragma unroll
        for (int n = 0; n + 64 <= D; n += 64)
            wg_both<T, 64>(&acc[0][n / 8], da, tile_desc<D>(at_b + k * B + n / P * LEAD, LEAD),
                           k > 0);
        if constexpr (D % 64 > 0)
            wg_both<T, 32>(&acc[0][D / 64 * 8], da,
                           tile_desc<D>(at_b + k * B + D / 64 * 64 / P * LEAD, LEAD), k > 0);
    }
}

#endif

/*
 * gates - barriers in shared memory (mbarrier), and numbered ones of the block, on Hopper; and
 * copies that open them.
 *
 * A gate opens when all its arrivals are there, and counts how often: who waits says for which
 * time, of which the lowest bit tells apart the last two.
 *
 * Source: PTX ISA 8.5, 9.7.13.15 (mbarrier), 9.7.13.1 (bar).
 */
#ifndef CKPT_GATES_H
#define CKPT_GATES_H

#include "trainer/cuda/attention.cuh"

__device__ __forceinline__ void gate_init(uint64_t *gate, int arrivals)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_at(gate)), "r"(arrivals)
                 : "memory");
}

__device__ __forceinline__ void gate_arrive(uint64_t *gate)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_at(gate)) : "memory");
}

/* This thread arrives once its copies so far are there. */
__device__ __forceinline__ void gate_copies(uint64_t *gate)
{
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(shared_at(gate))
                 : "memory");
}

/* Until the gate has opened for the time whose number's lowest bit that is. */
__device__ __forceinline__ void gate_wait(uint64_t *gate, int time)
{
    uint32_t open;

    do {
        asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; "
                     "selp.u32 %0, 1, 0, p; }"
                     : "=r"(open)
                     : "r"(shared_at(gate)), "r"(time & 1)
                     : "memory");
    } while (!open);
}

/* From here on a thread of this group of four warps has that many registers: others leave theirs
 * first. */
template <int N> __device__ __forceinline__ void take_registers()
{
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N));
}

template <int N> __device__ __forceinline__ void leave_registers()
{
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N));
}

template <int N> __device__ __forceinline__ void meet_at(int barrier)
{
    asm volatile("bar.sync %0, %1;" ::"r"(barrier), "n"(N) : "memory");
}

template <int N> __device__ __forceinline__ void pass_by(int barrier)
{
    asm volatile("bar.arrive %0, %1;" ::"r"(barrier), "n"(N) : "memory");
}

/* ROWS rows of a matrix [rows, dim] into a tile, by one group of four warps; t: the
 * thread in it. */
template <int D, int ROWS, typename T>
__device__ __forceinline__ void bring(T *tile, const T *from, int64_t stride, int rows, int dim,
                                      int t)
{
    const int EACH = D / 8, LANES = EACH % 8 == 0 ? 8 : 4, STEP = 128 / LANES;
    int row = t / LANES, lane = t % LANES;
    const T *at = from + row * stride + lane * 8;

#pragma unroll
    for (int i = 0; i < ROWS; i += STEP, at += STEP * stride)
#pragma unroll
        for (int c = 0; c < EACH; c += LANES) {
            bool there = row + i < rows && 8 * (lane + c) < dim;

            copy_16(tile + panel_at<D, ROWS>(row + i, lane + c), there ? at + 8 * c : from, there);
        }
}

#endif

/*
 * gates - barriers in shared memory (mbarrier), and numbered ones of the block, on Hopper.
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

template <int N> __device__ __forceinline__ void meet_at(int barrier)
{
    asm volatile("bar.sync %0, %1;" ::"r"(barrier), "n"(N) : "memory");
}

template <int N> __device__ __forceinline__ void pass_by(int barrier)
{
    asm volatile("bar.arrive %0, %1;" ::"r"(barrier), "n"(N) : "memory");
}

#endif

/*
 * hopper/mbarrier - barriers in shared memory (mbarrier), and numbered ones of the block, on
 * Hopper; and memory that one block hands to others.
 *
 * A mbar opens when all its arrivals are there, and counts how often: who waits says for which
 * phase, of which the lowest bit tells apart the last two.
 *
 * Source: PTX ISA 8.5, 9.7.13.15 (mbarrier), 9.7.13.1 (bar), 9.7.13.4 (barrier.cluster).
 */
#ifndef CKPT_TRAINER_CUDA_HOPPER_MBARRIER_H
#define CKPT_TRAINER_CUDA_HOPPER_MBARRIER_H

#include "trainer/cuda/hopper/wgmma.cuh"

__device__ __forceinline__ void mbarrier_init(uint64_t *mbar, int arrivals)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(cuda_shared_addr(mbar)),
                 "r"(arrivals)
                 : "memory");
}

__device__ __forceinline__ void mbarrier_arrive(uint64_t *mbar)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(cuda_shared_addr(mbar))
                 : "memory");
}

/* The same at the mbar in this place of another block of the cluster, or of this one; of what this
 * thread did before, only what the tensor cores and copies did is behind it (a release for the
 * whole cluster would wait for all its memory). */
__device__ __forceinline__ void mbarrier_arrive_remote(uint64_t *mbar, int block)
{
#if WGMMA_HERE
    asm volatile("{ .reg .b32 there; mapa.shared::cluster.u32 there, %0, %1; "
                 "mbarrier.arrive.shared::cluster.b64 _, [there]; }"
                 ::"r"(cuda_shared_addr(mbar)), "r"(block) : "memory");
#endif
}

/* Which block of its cluster this is. */
__device__ __forceinline__ int hopper_cluster_rank()
{
    int x = 0;

#if WGMMA_HERE
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(x));
#endif
    return x;
}

/* All threads of all blocks of a cluster come here; what they wrote before is seen behind it. */
__device__ __forceinline__ void hopper_cluster_sync()
{
#if WGMMA_HERE
    asm volatile("barrier.cluster.arrive.release; barrier.cluster.wait.acquire;" ::: "memory");
#endif
}

/* This thread arrives, and the mbar waits for that many bytes more. */
__device__ __forceinline__ void mbarrier_expect_tx(uint64_t *mbar, int bytes)
{
#if WGMMA_HERE
    asm volatile(
        "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(cuda_shared_addr(mbar)),
        "r"(bytes)
        : "memory");
#endif
}

/* Gates made by this thread are seen by copies to come; the block meets behind it. */
__device__ __forceinline__ void mbarrier_fence_init()
{
#if WGMMA_HERE
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
#endif
}

/* This thread arrives once its copies so far are there. */
__device__ __forceinline__ void mbarrier_arrive_copies(uint64_t *mbar)
{
    asm volatile(
        "cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(cuda_shared_addr(mbar))
        : "memory");
}

/* Whether the mbar has opened for the phase whose number's lowest bit that is (after a while). */
__device__ __forceinline__ bool mbarrier_try_wait(uint64_t *mbar, int phase)
{
    uint32_t open;

    asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; "
                 "selp.u32 %0, 1, 0, p; }"
                 : "=r"(open)
                 : "r"(cuda_shared_addr(mbar)), "r"(phase & 1)
                 : "memory");
    return open;
}

/* The same at once. */
__device__ __forceinline__ bool mbarrier_test_wait(uint64_t *mbar, int phase)
{
    uint32_t open;

    asm volatile("{ .reg .pred p; mbarrier.test_wait.parity.shared::cta.b64 p, [%1], %2; "
                 "selp.u32 %0, 1, 0, p; }"
                 : "=r"(open)
                 : "r"(cuda_shared_addr(mbar)), "r"(phase & 1)
                 : "memory");
    return open;
}

/* Until it has. */
__device__ __forceinline__ void mbarrier_wait(uint64_t *mbar, int phase)
{
    while (!mbarrier_try_wait(mbar, phase))
        ;
}

/* From here on a thread of this group of four warps has that many registers: others leave theirs
 * first. */
template <int N> __device__ __forceinline__ void hopper_registers_inc()
{
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N));
}

template <int N> __device__ __forceinline__ void hopper_registers_dec()
{
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N));
}

template <int N> __device__ __forceinline__ void hopper_bar_sync(int barrier)
{
    asm volatile("bar.sync %0, %1;" ::"r"(barrier), "n"(N) : "memory");
}

template <int N> __device__ __forceinline__ void hopper_bar_arrive(int barrier)
{
    asm volatile("bar.arrive %0, %1;" ::"r"(barrier), "n"(N) : "memory");
}

/* -- memory that blocks hand on ---------------------------------------------------------------- */

/* `bytes` of shared memory to global, or added to the floats there, by the one thread that asks;
 * writers of the source have called wgmma_proxy_fence.  Both multiples of 16, as the addresses. */
__device__ __forceinline__ void hopper_bulk_store(float *to, const float *from, int bytes,
                                                  bool add)
{
    if (add)
        asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;"
                     ::"l"(to), "r"(cuda_shared_addr(from)), "r"(bytes) : "memory");
    else
        asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;"
                     ::"l"(to), "r"(cuda_shared_addr(from)), "r"(bytes) : "memory");
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

/* The source of what this thread has sent may change; all but the last LEFT are there for all. */
__device__ __forceinline__ void hopper_bulk_wait_read()
{
    asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
}

template <int LEFT> __device__ __forceinline__ void hopper_bulk_wait()
{
    asm volatile("cp.async.bulk.wait_group %0;" ::"n"(LEFT) : "memory");
}

__device__ __forceinline__ int hopper_ticket_read(const int *ticket)
{
    int x;

    asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(x) : "l"(ticket) : "memory");
    return x;
}

__device__ __forceinline__ void hopper_ticket_write(int *ticket, int x)
{
    asm volatile("st.release.gpu.global.s32 [%0], %1;" ::"l"(ticket), "r"(x) : "memory");
}

#endif

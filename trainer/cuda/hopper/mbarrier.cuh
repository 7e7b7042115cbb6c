/*
 * hopper/mbarrier - barriers in shared memory (mbarrier), numbered barriers of the block,
 * clusters, and bulk stores, on Hopper.
 *
 * A phase of an mbarrier completes when all expected arrivals and bytes have come.  A waiter
 * names the phase; only its lowest bit counts, which tells the last two phases apart.
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

/* Arrive at the mbarrier at this address in another block of the cluster, or in this one. It
 * orders only this thread's earlier tensor core work and copies (a release for the cluster would
 * wait for all of the thread's memory accesses). */
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

/* A barrier of all threads of a cluster; earlier writes are visible after it. */
__device__ __forceinline__ void hopper_cluster_sync()
{
#if WGMMA_HERE
    asm volatile("barrier.cluster.arrive.release; barrier.cluster.wait.acquire;" ::: "memory");
#endif
}

/* Arrive, and make the phase wait for that many more bytes. */
__device__ __forceinline__ void mbarrier_expect_tx(uint64_t *mbar, int bytes)
{
#if WGMMA_HERE
    asm volatile(
        "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(cuda_shared_addr(mbar)),
        "r"(bytes)
        : "memory");
#endif
}

/* Make mbarriers that this thread initialised visible to later copies; the block synchronises
 * after it. */
__device__ __forceinline__ void mbarrier_fence_init()
{
#if WGMMA_HERE
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
#endif
}

/* Arrive when this thread's copies so far are complete. */
__device__ __forceinline__ void mbarrier_arrive_copies(uint64_t *mbar)
{
    asm volatile(
        "cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(cuda_shared_addr(mbar))
        : "memory");
}

/* Whether the phase with that lowest bit is complete, after waiting a bounded time. */
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

/* The same without waiting. */
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

/* Set the number of registers of a thread in this warpgroup; other groups release theirs first. */
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

/* -- bulk stores, and tickets between blocks --------------------------------------------------- */

/* Copy `bytes` of shared to global memory, or add them to the floats there, by one thread;
 * writers of the source have called wgmma_proxy_fence. Addresses and bytes are multiples of 16. */
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

/* Wait until the sources of this thread's stores may be overwritten; or until all but the last
 * LEFT stores are visible to all. */
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

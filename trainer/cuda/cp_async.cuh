/*
 * cp_async - a thread's asynchronous copies from global to shared memory (cp.async, from 8.0 on).
 *
 * Source: PTX ISA 8.5, 9.7.8.24.3 (cp.async).
 */
#ifndef CKPT_TRAINER_CUDA_CP_ASYNC_H
#define CKPT_TRAINER_CUDA_CP_ASYNC_H

#include "trainer/cuda/cuda.h"

/* Copy 16 bytes to shared memory, or write zeros where there is nothing to read. */
__device__ __forceinline__ void cp_async_16(void *to, const void *from, bool there)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(cuda_shared_addr(to)),
                 "l"(from), "r"(there ? 16 : 0));
}

__device__ __forceinline__ void cp_async_4(void *to, const void *from, bool there)
{
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(cuda_shared_addr(to)),
                 "l"(from), "r"(there ? 4 : 0));
}

__device__ __forceinline__ void cp_async_commit() { asm volatile("cp.async.commit_group;"); }

template <int LEFT> __device__ __forceinline__ void cp_async_wait()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(LEFT));
}

#endif

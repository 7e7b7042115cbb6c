/*
 * host_device - for functions that gcc and nvcc compile from one text (philox.h, act_math.h).
 */
#ifndef CKPT_TRAINER_HOST_DEVICE_H
#define CKPT_TRAINER_HOST_DEVICE_H

#ifdef __CUDACC__
#define HOST_DEVICE __device__ __forceinline__
#define HOST_DEVICE_UNROLL _Pragma("unroll")
#else
#define HOST_DEVICE static inline __attribute__((always_inline))
#define HOST_DEVICE_UNROLL
#endif

#endif

/*
 * cuda_plugin - what libckpt_cuda.so exports under the name cuda_plugin.
 *
 * The plug-in links neither libckpt nor the program; it needs the driver (libcuda.so.1, by way of
 * the static runtime) and libcublasLt.
 */
#ifndef CKPT_CUDA_PLUGIN_H
#define CKPT_CUDA_PLUGIN_H

#include "trainer/ops/ops.h"

#define CUDA_PLUGIN_VERSION 1

struct cuda_plugin {
    int version;
    /* Device `index` with activations and weights of that type; limit in bytes, 0: none.
     * CKPT_EDEVICE without a driver or such a device. */
    int (*open)(struct device **out, int index, enum ckpt_dtype type, uint64_t limit,
                struct ckpt_err *err);
    /* How many devices there are; 0 without a driver. */
    int (*count)(void);
};

#endif

/*
 * cuda/plugin - the table that libckpt_cuda.so exports under the name cuda_plugin.
 *
 * The plug-in links neither libckpt nor the program; it needs the driver (libcuda.so.1, through
 * the static runtime) and libcublasLt.
 */
#ifndef CKPT_TRAINER_CUDA_PLUGIN_H
#define CKPT_TRAINER_CUDA_PLUGIN_H

#include "trainer/comm/comm.h"
#include "trainer/comm/simulate.h"
#include "trainer/ops/ops.h"

#define CUDA_PLUGIN_VERSION 12
#define CUDA_PLUGIN_ID      128         /* bytes */

struct cuda_plugin {
    int version;
    /* Open device `index` with opts, whatever its name there; CKPT_EDEVICE without a driver or
     * such a device. */
    int (*open)(struct device **out, int index, const struct device_opts *opts,
                struct ckpt_err *err);
    /* Number of devices; 0 without a driver. */
    int (*count)(void);
    /* PCI bus address of device `index`, as NVML names it, before it is opened; "": unknown. */
    void (*bus)(int index, char *to, int size);
    /* Bytes of a communicator over this backend's buffers, struct comm first. */
    size_t (*comm_size)(void);
    /* Make the id on rank 0 that all ranks pass to comm_connect: id [CUDA_PLUGIN_ID]. */
    int (*comm_id)(void *id, struct ckpt_err *err);
    /* Fill c, whose rank and world size are set; all ranks call it together.  CKPT_EDEVICE
     * without NCCL. */
    int (*comm_connect)(struct comm *c, struct device *dev, const void *id, struct ckpt_err *err);
    /* For collectives that are simulated. */
    const struct simulate_device *simulate;
};

#endif

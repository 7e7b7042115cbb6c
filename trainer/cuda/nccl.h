/*
 * cuda/nccl - a communicator over buffers of a GPU.
 */
#ifndef CKPT_TRAINER_CUDA_NCCL_H
#define CKPT_TRAINER_CUDA_NCCL_H

#include "trainer/cuda/cuda.h"
extern "C" {
#include "trainer/comm/comm.h"
}

#define CUDA_NCCL_ID 128                /* bytes of ncclUniqueId: CUDA_PLUGIN_ID */

/* As struct cuda_plugin has them. */
int cuda_nccl_id(void *id, struct ckpt_err *err);
int cuda_nccl_connect(struct comm *c, struct device *dev, const void *id, struct ckpt_err *err);
size_t cuda_nccl_size(void);

#endif

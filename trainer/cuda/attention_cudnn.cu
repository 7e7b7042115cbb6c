/*
 * attention_cudnn - the door for cuDNN's attention, which is not opened: own kernels do all.
 *
 * Its deterministic backward on Hopper has neither slopes nor a bias with a gradient, and takes two
 * bytes for each pair of a head's queries and keys (cudnn-frontend 1.x,
 * scaled_dot_product_flash_attention.h); BLOOM and T5 need the first, long documents the memory.
 */
#include "trainer/cuda/cuda.h"

void sdpa_open(struct cuda_device *d) { d->sdpa = NULL; }

void sdpa_close(struct cuda_device *d) { d->sdpa = NULL; }

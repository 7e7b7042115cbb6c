/* attention_cudnn - attention of cuDNN, where it is found: not opened yet, own kernels only. */
#include "trainer/cuda/cuda.h"

void sdpa_open(struct cuda_device *d) { d->sdpa = NULL; }

void sdpa_close(struct cuda_device *d) { d->sdpa = NULL; }

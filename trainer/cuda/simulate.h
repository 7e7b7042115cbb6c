/*
 * cuda/simulate - collectives that are simulated: the time on the GPU.
 */
#ifndef CKPT_TRAINER_CUDA_SIMULATE_H
#define CKPT_TRAINER_CUDA_SIMULATE_H

#include "trainer/cuda/cuda.h"
extern "C" {
#include "trainer/comm/simulate.h"
}

extern const struct simulate_device cuda_simulate;

#endif

/*
 * noise - uniform noise of embedded rows, the same on every device: see op_noise_row in ops.h.
 */
#ifndef CKPT_TRAINER_OPS_NOISE_H
#define CKPT_TRAINER_OPS_NOISE_H

#include "trainer/ops/ops.h"
#include "trainer/philox.h"

/* The noise of columns 4 q to 4 q + 3 of a row. */
HOST_DEVICE void noise_four(float v[4], const struct op_noise_row *row, uint32_t q)
{
    uint32_t w[4];

    philox(w, row->key, row->index, q);
    HOST_DEVICE_UNROLL
    for (int k = 0; k < 4; k++)
        v[k] = row->size * ((float)(int32_t)(w[k] >> 8) * 0x1p-23f - 1.0f);
}

#endif

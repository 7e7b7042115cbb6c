/*
 * philox - Philox4x32-10: four words that are a pure function of a key and a counter.
 *
 * Inline, since the innermost loops make dropout's masks with it, on the host and on a GPU.
 * Source: Salmon et al. 2011, Random123 1.14 (philox.h); the constants are theirs.
 */
#ifndef CKPT_TRAINER_PHILOX_H
#define CKPT_TRAINER_PHILOX_H

#include <stdint.h>

#include "trainer/host_device.h"

#define PHILOX_ROUNDS 10

/* Both halves of the product a b. */
HOST_DEVICE void philox_multiply(uint32_t *high, uint32_t *low, uint32_t a, uint32_t b)
{
#ifdef __CUDACC__
    *high = __umulhi(a, b);
    *low = a * b;
#else
    uint64_t p = (uint64_t)a * b;

    *high = (uint32_t)(p >> 32);
    *low = (uint32_t)p;
#endif
}

HOST_DEVICE void philox(uint32_t out[4], uint64_t key, uint64_t high, uint64_t low)
{
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    uint32_t c0 = (uint32_t)low, c1 = (uint32_t)(low >> 32);
    uint32_t c2 = (uint32_t)high, c3 = (uint32_t)(high >> 32);

    HOST_DEVICE_UNROLL
    for (int r = 0; r < PHILOX_ROUNDS; r++) {
        uint32_t h0, l0, h1, l1;

        philox_multiply(&h0, &l0, 0xD2511F53u, c0);
        philox_multiply(&h1, &l1, 0xCD9E8D57u, c2);
        c0 = h1 ^ c1 ^ k0;
        c1 = l1;
        c2 = h0 ^ c3 ^ k1;
        c3 = l0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

#endif

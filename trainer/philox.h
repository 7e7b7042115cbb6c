/*
 * philox - Philox4x32-10: four words that are a pure function of a key and a counter.
 *
 * Inline, since masks are made in the innermost loops.
 * Source: Salmon et al. 2011, Random123 1.14 (philox.h); the constants are theirs.
 */
#ifndef CKPT_TRAINER_PHILOX_H
#define CKPT_TRAINER_PHILOX_H

#include <stdint.h>

#define PHILOX_ROUNDS 10

static inline __attribute__((always_inline)) void philox(uint32_t out[4], uint64_t key,
                                                         uint64_t high, uint64_t low)
{
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    uint32_t c0 = (uint32_t)low, c1 = (uint32_t)(low >> 32);
    uint32_t c2 = (uint32_t)high, c3 = (uint32_t)(high >> 32);

    for (int r = 0; r < PHILOX_ROUNDS; r++) {
        uint64_t p0 = (uint64_t)0xD2511F53u * c0, p1 = (uint64_t)0xCD9E8D57u * c2;

        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)p1;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)p0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

#endif

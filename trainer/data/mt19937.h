/*
 * mt19937 - the Mersenne twister as torch's CPU generator runs it, and torch.randperm over it.
 *
 * Source: PyTorch aten/src/ATen/core/MT19937RNGEngine.h and native/TensorFactories.cpp (2.x);
 * vectors in tests/golden/shuffles.json.  Only the low 32 bits of a seed count.
 */
#ifndef CKPT_TRAINER_DATA_MT19937_H
#define CKPT_TRAINER_DATA_MT19937_H

#include <stddef.h>
#include <stdint.h>

#define MT19937_N           624
#define MT19937_TORCH_BYTES 5056        /* torch.get_rng_state() of the CPU generator */

struct mt19937 {
    uint64_t seed;                      /* as given */
    uint32_t state[MT19937_N];
    uint32_t next; /* index of the next word; from MT19937_N on: twist first */
};

/* torch.Generator().manual_seed(seed) */
void mt19937_seed(struct mt19937 *g, uint64_t seed);
uint32_t mt19937_u32(struct mt19937 *g);
uint64_t mt19937_u64(struct mt19937 *g);        /* first draw is the high word */
/* torch.randperm(n, generator=g) on the CPU into out[n]. */
void mt19937_randperm(struct mt19937 *g, int64_t *out, int64_t n);
/* The generator as the bytes of torch.get_rng_state(), with no normal sample waiting. */
void mt19937_to_torch(const struct mt19937 *g, unsigned char bytes[MT19937_TORCH_BYTES]);
/* Restore from those bytes.  0, or -1 when they are not such a state (g is then unchanged). */
int mt19937_from_torch(struct mt19937 *g, const unsigned char bytes[MT19937_TORCH_BYTES]);

#endif

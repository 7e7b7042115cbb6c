/*
 * pcg64 - NumPy's default generator (PCG64, seeded by SeedSequence), and the orders that Hugging
 * Face's datasets draws from it.
 *
 * Source: numpy 2.4 random/bit_generator.pyx, src/pcg64, src/distributions (random_interval);
 * datasets 5.2 arrow_dataset.py; vectors in tests/golden/shuffles.json.
 */
#ifndef CKPT_TRAINER_DATA_PCG64_H
#define CKPT_TRAINER_DATA_PCG64_H

#include <stdbool.h>
#include <stdint.h>

struct pcg64 {
    unsigned __int128 state, inc;
    uint32_t          half;             /* the upper half of a draw, when has_half */
    bool              has_half;
};

/* As numpy.random.default_rng(seed). */
void pcg64_seed(struct pcg64 *g, uint64_t seed);
uint64_t pcg64_u64(struct pcg64 *g);
uint32_t pcg64_u32(struct pcg64 *g);
/* Generator.permutation(n) into out[n]: what Dataset.shuffle(seed) selects, in order. */
void pcg64_permutation(struct pcg64 *g, int64_t *out, int64_t n);

/*
 * Dataset.train_test_split of n rows.  test: a fraction of n below 1, rounded up, or a number of
 * rows.  out[n] gets the rows of train, then those of test; returns how many train has. shuffle
 * false: train is the first rows and test the last.
 */
int64_t pcg64_train_test_split(int64_t *out, int64_t n, double test, bool shuffle,
                               uint64_t seed);

#endif

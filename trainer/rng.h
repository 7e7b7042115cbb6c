/*
 * rng - counter-based random numbers: Philox4x32-10 (philox.h).
 *
 * A number is a pure function of (seed, stream, index): any rank can generate any part of a
 * sequence, and those three integers are the whole state.
 */
#ifndef CKPT_TRAINER_RNG_H
#define CKPT_TRAINER_RNG_H

#include <stdint.h>

/* Four words for one index of a stream. */
void rng_words(uint32_t out[4], uint64_t seed, uint64_t stream, uint64_t index);
/* Uniform in [0, 1), 53 bits. */
double rng_uniform(uint64_t seed, uint64_t stream, uint64_t index);
/*
 * Elements [start, start + count) of an endless array of standard normals (Box-Muller), times
 * scale.
 */
void rng_normal(float *dst, int64_t start, int64_t count, float scale, uint64_t seed,
                uint64_t stream);
/* The same numbers, by so many threads where they are many. */
void rng_normal_by(int threads, float *dst, int64_t start, int64_t count, float scale,
                   uint64_t seed, uint64_t stream);
/* The stream that belongs to a name (FNV-1a, 64 bits). */
uint64_t rng_stream(const char *name);

#endif

/* rng - see rng.h. */
#include "trainer/rng.h"

#include <math.h>

#include "trainer/philox.h"

void rng_words(uint32_t out[4], uint64_t seed, uint64_t stream, uint64_t index)
{
    philox(out, seed, stream, index);
}

/* Uniform in [0, 1) of 53 bits from two words. */
static double unit(uint32_t hi, uint32_t lo)
{
    return (double)((uint64_t)(hi >> 5) << 26 | lo >> 6) * 0x1p-53;
}

double rng_uniform(uint64_t seed, uint64_t stream, uint64_t index)
{
    uint32_t w[4];

    rng_words(w, seed, stream, index);
    return unit(w[0], w[1]);
}

/* One index gives elements 2k and 2k + 1. */
static void normals(float *dst, int64_t start, int64_t end, float scale, uint64_t seed,
                    uint64_t stream)
{
    const double two_pi = 6.283185307179586;
    int64_t i = start;

    while (i < end) {
        uint32_t w[4];
        double r, phi, z[2];

        rng_words(w, seed, stream, (uint64_t)i / 2);
        r = sqrt(-2.0 * log(1.0 - unit(w[0], w[1])));
        phi = two_pi * unit(w[2], w[3]);
        z[0] = r * cos(phi);
        z[1] = r * sin(phi);
        do
            dst[i - start] = scale * (float)z[i % 2];
        while (++i < end && i % 2);
    }
}

/* A thread's part: 40 ns an element, so that fewer are not worth a second thread's start. */
enum { PART = 1 << 14 };

void rng_normal(float *dst, int64_t start, int64_t count, float scale, uint64_t seed,
                uint64_t stream)
{
    normals(dst, start, start + count, scale, seed, stream);
}

void rng_normal_by(int threads, float *dst, int64_t start, int64_t count, float scale,
                   uint64_t seed, uint64_t stream)
{
#pragma omp parallel for schedule(static) num_threads(threads) if (count >= 2 * PART)
    for (int64_t at = 0; at < count; at += PART)
        normals(dst + at, start + at, start + (count - at < PART ? count : at + PART), scale,
                seed, stream);
}

uint64_t rng_stream(const char *name)
{
    uint64_t h = 0xcbf29ce484222325u;

    for (; *name; name++)
        h = (h ^ (unsigned char)*name) * 0x100000001b3u;
    return h;
}

/* pcg64 - see pcg64.h. */
#include "trainer/data/pcg64.h"

#include <math.h>

#define POOL 4

/* SeedSequence's hash; *a is advanced by its multiplier. */
static uint32_t hashmix(uint32_t v, uint32_t *a)
{
    v ^= *a;
    *a *= 0x931e8875u;
    v *= *a;
    return v ^ v >> 16;
}

static uint32_t mix(uint32_t x, uint32_t y)
{
    uint32_t v = 0xca01f9ddu * x - 0x4973f715u * y;

    return v ^ v >> 16;
}

/* SeedSequence(seed).generate_state(4, uint64) */
static void seed_words(uint64_t out[4], uint64_t seed)
{
    uint32_t pool[POOL], a = 0x43b0d7e5u, b = 0x8b51f9ddu, word[8];

    for (unsigned i = 0; i < POOL; i++)
        pool[i] = hashmix(i == 0 ? (uint32_t)seed : i == 1 ? (uint32_t)(seed >> 32) : 0, &a);
    for (unsigned i = 0; i < POOL; i++)
        for (unsigned k = 0; k < POOL; k++)
            if (k != i)
                pool[k] = mix(pool[k], hashmix(pool[i], &a));
    for (unsigned i = 0; i < 8; i++) {
        uint32_t v = pool[i % POOL] ^ b;

        b *= 0x58f38dedu;
        v *= b;
        word[i] = v ^ v >> 16;
    }
    for (unsigned i = 0; i < 4; i++)
        out[i] = (uint64_t)word[2 * i + 1] << 32 | word[2 * i];
}

static void step(struct pcg64 *g)
{
    const unsigned __int128 multiplier =
        (unsigned __int128)UINT64_C(2549297995355413924) << 64 | UINT64_C(4865540595714422341);

    g->state = g->state * multiplier + g->inc;
}

void pcg64_seed(struct pcg64 *g, uint64_t seed)
{
    uint64_t w[4];

    seed_words(w, seed);
    *g = (struct pcg64){.inc = ((unsigned __int128)w[2] << 64 | w[3]) << 1 | 1};
    step(g);
    g->state += (unsigned __int128)w[0] << 64 | w[1];
    step(g);
}

uint64_t pcg64_u64(struct pcg64 *g)
{
    uint64_t x;
    unsigned turn;

    step(g);
    x = (uint64_t)(g->state >> 64) ^ (uint64_t)g->state;
    turn = (unsigned)(g->state >> 122);
    return x >> turn | x << (-turn & 63);
}

uint32_t pcg64_u32(struct pcg64 *g)
{
    uint64_t x;

    if (g->has_half) {
        g->has_half = false;
        return g->half;
    }
    x = pcg64_u64(g);
    g->half = (uint32_t)(x >> 32);
    g->has_half = true;
    return (uint32_t)x;
}

/* A number in 0..max, by drawing until one fits. */
static uint64_t interval(struct pcg64 *g, uint64_t max)
{
    uint64_t mask = max, v;

    for (unsigned shift = 1; shift < 64; shift *= 2)
        mask |= mask >> shift;
    do
        v = (max <= UINT32_MAX ? pcg64_u32(g) : pcg64_u64(g)) & mask;
    while (v > max);
    return v;
}

void pcg64_permutation(struct pcg64 *g, int64_t *out, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        out[i] = i;
    for (int64_t i = n - 1; i > 0; i--) {
        int64_t k = (int64_t)interval(g, (uint64_t)i), kept = out[i];

        out[i] = out[k];
        out[k] = kept;
    }
}

int64_t pcg64_train_test_split(int64_t *out, int64_t n, double test, bool shuffle,
                               uint64_t seed)
{
    int64_t n_test = (int64_t)(test < 1 ? ceil(test * (double)n) : test);
    int64_t n_train;
    struct pcg64 g;

    n_test = n_test < 0 ? 0 : n_test > n ? n : n_test;
    n_train = n - n_test;
    if (!shuffle) {
        for (int64_t i = 0; i < n; i++)
            out[i] = i;
        return n_train;
    }
    pcg64_seed(&g, seed);
    pcg64_permutation(&g, out, n);
    /* test took the first rows: rotate the list by n_test, in place by three reversals. */
    for (int part = 0; part < 3; part++) {
        int64_t a = part == 1 ? n_test : 0, b = part == 0 ? n_test : n;

        for (b--; a < b; a++, b--) {
            int64_t kept = out[a];

            out[a] = out[b];
            out[b] = kept;
        }
    }
    return n_train;
}

/* mt19937 - see mt19937.h. */
#include "trainer/data/mt19937.h"

#include <string.h>

#define M          397
#define MATRIX     0x9908b0dfu
#define UPPER      0x80000000u
#define LOWER      0x7fffffffu
/* From here on torch draws 64 bits an element: (2^32 - 1) / 20. */
#define WIDE_PERM  INT64_C(214748364)

void mt19937_seed(struct mt19937 *g, uint64_t seed)
{
    g->seed = seed;
    g->state[0] = (uint32_t)seed;
    for (uint32_t i = 1; i < MT19937_N; i++)
        g->state[i] = 1812433253u * (g->state[i - 1] ^ (g->state[i - 1] >> 30)) + i;
    g->next = MT19937_N + 1;
}

static void twist(struct mt19937 *g)
{
    for (size_t i = 0; i < MT19937_N; i++) {
        uint32_t y = (g->state[i] & UPPER) | (g->state[(i + 1) % MT19937_N] & LOWER);

        g->state[i] = g->state[(i + M) % MT19937_N] ^ (y >> 1) ^ (y & 1 ? MATRIX : 0);
    }
    g->next = 0;
}

uint32_t mt19937_u32(struct mt19937 *g)
{
    uint32_t y;

    if (g->next >= MT19937_N)
        twist(g);
    y = g->state[g->next++];
    y ^= y >> 11;
    y ^= (y << 7) & 0x9d2c5680u;
    y ^= (y << 15) & 0xefc60000u;
    return y ^ (y >> 18);
}

uint64_t mt19937_u64(struct mt19937 *g)
{
    uint64_t high = mt19937_u32(g);

    return high << 32 | mt19937_u32(g);
}

void mt19937_randperm(struct mt19937 *g, int64_t *out, int64_t n)
{
    if (n >= WIDE_PERM) {
        for (int64_t i = 0; i < n; i++) {
            int64_t z = (int64_t)(mt19937_u64(g) % (uint64_t)(i + 1));

            out[i] = out[z];
            out[z] = i;
        }
        return;
    }
    for (int64_t i = 0; i < n; i++)
        out[i] = i;
    for (int64_t i = 0; i + 1 < n; i++) {
        int64_t z = (int64_t)(mt19937_u32(g) % (uint64_t)(n - i)) + i, keep = out[i];

        out[i] = out[z];
        out[z] = keep;
    }
}

/*
 * The legacy layout torch keeps for its CPU generator (CPUGeneratorImpl.cpp):
 *   u64 seed | i32 left | i32 seeded | u64 next | u64 state[624] | f64 normal x, y, rho |
 *   i32 normal is valid | 4 bytes padding | f32 next float normal | u8 is valid | 3 padding
 * left counts the words before the next twist plus one, next is the index of the next word; a
 * generator just seeded has left 1 and next 0, one that used up its words left 1 and next 624.
 */
enum { AT_SEED = 0, AT_LEFT = 8, AT_SEEDED = 12, AT_NEXT = 16, AT_STATE = 24 };

static void put(unsigned char *p, uint64_t v, size_t n)
{
    for (size_t i = 0; i < n; i++)
        p[i] = (unsigned char)(v >> (8 * i));
}

static uint64_t get(const unsigned char *p, size_t n)
{
    uint64_t v = 0;

    while (n-- > 0)
        v = v << 8 | p[n];
    return v;
}

void mt19937_to_torch(const struct mt19937 *g, unsigned char bytes[MT19937_TORCH_BYTES])
{
    memset(bytes, 0, MT19937_TORCH_BYTES);
    put(bytes + AT_SEED, g->seed, 8);
    put(bytes + AT_LEFT, g->next > MT19937_N ? 1 : MT19937_N - g->next + 1, 4);
    put(bytes + AT_SEEDED, 1, 4);
    put(bytes + AT_NEXT, g->next > MT19937_N ? 0 : g->next, 8);
    for (size_t i = 0; i < MT19937_N; i++)
        put(bytes + AT_STATE + 8 * i, g->state[i], 8);
}

int mt19937_from_torch(struct mt19937 *g, const unsigned char bytes[MT19937_TORCH_BYTES])
{
    uint64_t left = get(bytes + AT_LEFT, 4), next = get(bytes + AT_NEXT, 8);

    if (get(bytes + AT_SEEDED, 4) != 1 || next > MT19937_N ||
        left != (next ? MT19937_N - next + 1 : 1))
        return -1;
    g->seed = get(bytes + AT_SEED, 8);
    for (size_t i = 0; i < MT19937_N; i++)
        g->state[i] = (uint32_t)get(bytes + AT_STATE + 8 * i, 8);
    g->next = next ? (uint32_t)next : MT19937_N + 1;
    return 0;
}

/* bnb/codes - see bnb/codes.h. */
#include "formats/bnb/codes.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static int ascending(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;

    return x < y ? -1 : x > y;
}

/* Element i of n evenly spaced values from 0.1 to 1, as torch's linspace computes them in f32. */
static float even(int i, int n)
{
    float step = (1.0f - 0.1f) / (float)(n - 1);

    return i < n / 2 ? 0.1f + step * (float)i : 1.0f - step * (float)(n - 1 - i);
}

void bnb_map(float map[256], bool with_sign)
{
    size_t n = 0;

    for (int i = 0; i < 7; i++) {       /* one decade each: midpoints of the interval's edges */
        int edges = (with_sign ? 1 << i : 2 << i) + 1;
        float power = (float)pow(10, i - 6);

        for (int k = 0; k + 1 < edges; k++) {
            float mean = (even(k, edges) + even(k + 1, edges)) / 2 * power;

            map[n++] = mean;
            if (with_sign)
                map[n++] = -mean;
        }
    }
    map[n++] = 0;
    map[n++] = 1;
    qsort(map, n, sizeof *map, ascending);
}

void bnb_codec_init(struct bnb_codec *c, bool with_sign)
{
    int sizes, size = 0;

    memset(c, 0, sizeof *c);
    bnb_map(c->map, with_sign);
    c->zero = with_sign ? 127 : 0;
    sizes = 255 - c->zero;              /* besides zero */
    for (int i = 0; i < sizes; i++)
        c->border[i] = (c->map[c->zero + i] + c->map[c->zero + i + 1]) / 2;
    c->border[sizes] = INFINITY;
    for (int i = 0; i < BNB_CELLS; i++) {
        union { uint32_t bits; float f; } low;

        low.bits = (uint32_t)(i + BNB_CELL_BASE) << (23 - BNB_CELL_BITS);
        while (c->border[size] < low.f)
            size++;
        c->cell[i] = (uint8_t)size;
    }
}

/* Whether codes with that scale give each of n numbers again. */
static bool gives_again(const float *src, int64_t n, float scale, const struct bnb_codec *c)
{
    for (int64_t i = 0; i < n; i++)
        if (c->map[bnb_code(c, src[i] / scale)] * scale != src[i])
            return false;
    return true;
}

/*
 * The scale of a block whose largest size is `most`.  There is no code for -1: where -1 was the
 * largest, a block that was opened has the lowest entry of map as its largest, and its scale was
 * larger than `most` by that entry, up to rounding.
 */
static float scale_of(const float *src, int64_t n, float most, const struct bnb_codec *c)
{
    float lowest = -c->map[0], scale;

    if (!(most > 0) || lowest <= 0 || gives_again(src, n, most, c))
        return most;
    scale = most / lowest;
    for (int i = 0; i < 2; i++)
        scale = nextafterf(scale, 0);
    for (int i = 0; i < 5; i++, scale = nextafterf(scale, INFINITY))
        if (scale > 0 && gives_again(src, n, scale, c))
            return scale;
    return most;
}

void bnb_pack(uint8_t *code, float *scale, const float *src, int64_t n, const struct bnb_codec *c)
{
    for (int64_t at = 0; at < n; at += BNB_BLOCK) {
        int64_t end = n - at < BNB_BLOCK ? n : at + BNB_BLOCK;
        float most = 0;

        for (int64_t i = at; i < end; i++)
            most = fabsf(src[i]) > most ? fabsf(src[i]) : most;
        most = scale_of(src + at, end - at, most, c);
        scale[at / BNB_BLOCK] = most;
        for (int64_t i = at; i < end; i++)
            code[i] = bnb_code(c, most > 0 ? src[i] / most : 0);
    }
}

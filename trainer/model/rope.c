/* rope - see rope.h. */
#include "trainer/model/rope.h"

#include <math.h>

int64_t rope_regime(const struct arch *arch, int64_t length)
{
    const struct rope *r = &arch->rope;

    if (r->kind == ARCH_ROPE_DYNAMIC)
        return length > arch->max_position_embeddings ? length : 0;
    if (r->kind == ARCH_ROPE_LONG)
        return length > r->original_max_position_embeddings;
    return 0;
}

int64_t rope_batch(const struct arch *arch, int64_t wanted, int64_t longest)
{
    return arch->pos == ARCH_POS_ROPE && rope_regime(arch, longest) ? 1 : wanted;
}

/* The dimension that makes that many rotations over the original length. */
static double yarn_dim(const struct rope *r, double rotations, int64_t original)
{
    return (double)r->rotary_dim * log((double)original / (rotations * 2 * M_PI)) /
           (2 * log(r->theta));
}

static void yarn(double *inv, const struct arch *a)
{
    const struct rope *r = &a->rope;
    int64_t n = r->rotary_dim / 2, original = r->original_max_position_embeddings;
    double low, high;

    original = original ? original : a->max_position_embeddings;
    low = yarn_dim(r, r->beta_fast, original);
    high = yarn_dim(r, r->beta_slow, original);
    if (r->truncate) {
        low = floor(low);
        high = ceil(high);
    }
    low = fmax(low, 0);
    high = fmin(high, (double)r->rotary_dim - 1);
    if (low == high)
        high += 0.001;
    for (int64_t i = 0; i < n; i++) {
        double ramp = fmin(fmax(((double)i - low) / (high - low), 0), 1);

        inv[i] = inv[i] / r->factor * ramp + inv[i] * (1 - ramp);
    }
}

static void llama3(double *inv, const struct rope *r)
{
    double original = (double)r->original_max_position_embeddings;

    for (int64_t i = 0; i < r->rotary_dim / 2; i++) {
        double wave = 2 * M_PI / inv[i], s;

        if (wave < original / r->high_freq_factor)
            continue;
        if (wave > original / r->low_freq_factor) {
            inv[i] /= r->factor;
            continue;
        }
        s = (original / wave - r->low_freq_factor) / (r->high_freq_factor - r->low_freq_factor);
        inv[i] = (1 - s) * inv[i] / r->factor + s * inv[i];
    }
}

void rope_frequencies(double *inv, const struct arch *a, int64_t length)
{
    const struct rope *r = &a->rope;
    int64_t n = r->rotary_dim / 2;
    double base = r->theta, R = (double)r->rotary_dim;

    if (r->kind == ARCH_ROPE_DYNAMIC && R > 2) {
        double P = (double)a->max_position_embeddings, most = fmax((double)length, P);

        base *= pow(r->factor * most / P - (r->factor - 1), R / (R - 2));
    }
    for (int64_t i = 0; i < n; i++)
        inv[i] = pow(base, -2.0 * (double)i / R);
    if (r->kind == ARCH_ROPE_YARN)
        yarn(inv, a);
    if (r->kind == ARCH_ROPE_LLAMA3)
        llama3(inv, r);
    for (int64_t i = 0; i < n; i++) {
        if (r->kind == ARCH_ROPE_LINEAR)
            inv[i] /= r->factor;
        if (r->kind == ARCH_ROPE_LONG)
            inv[i] /= (rope_regime(a, length) ? r->long_factor : r->short_factor)[i];
    }
}

void rope_table(float *table, int64_t positions, const struct arch *a, int64_t length)
{
    double inv[ARCH_MAX_ROTARY_DIM / 2];
    int64_t n = a->rope.rotary_dim / 2;

    rope_frequencies(inv, a, length);
    for (int64_t p = 0; p < positions; p++)
        for (int64_t i = 0; i < n; i++) {
            /* The reference's angles are f32 products of f32 frequencies. */
            double angle = (double)((float)p * (float)inv[i]);

            table[2 * p * n + i] = (float)(cos(angle) * a->rope.attention_factor);
            table[(2 * p + 1) * n + i] = (float)(sin(angle) * a->rope.attention_factor);
        }
}

/* The vector functions against libm in f64: the errors their header states. */
#include "tests/unit/model_help.h"

#include <float.h>
#include <math.h>

#include "trainer/cpu/vmath.h"

static double worst_exp(float from, float to, int64_t steps)
{
    double worst = 0;

    for (int64_t i = 0; i <= steps; i++) {
        float x = from + (to - from) * (float)i / (float)steps;
        double want = exp((double)x);

        worst = fmax(worst, fabs((double)cpu_exp(x) - want) / want);
    }
    return worst;
}

TEST(exp_is_within_its_stated_error)
{
    assert_true(worst_exp(-87, 88, 1000000) <= 1.2e-7);
    assert_true(worst_exp(-1, 1, 1000000) <= 1.2e-7);
    assert_true(worst_exp(-1e-3f, 1e-3f, 100000) <= 1.2e-7);
    assert_true(cpu_exp(0) == 1);
}

static float gelu(float x)
{
    float value;

    cpu_gelu_both(x, &value);
    return value;
}

TEST(exp_keeps_to_its_range)
{
    assert_true(cpu_exp(-INFINITY) == 0 && cpu_exp(-87) >= FLT_MIN);
    assert_true(cpu_exp(INFINITY) == cpu_exp(88) && isfinite(cpu_exp(88)));
    assert_true(isnan(cpu_exp(NAN)) && isnan(gelu(NAN)));
    assert_true(cpu_exp(-1e30f) == 0 && cpu_exp(-87.001f) == 0 && cpu_exp(1e30f) == cpu_exp(88));
}

TEST(gelu_and_its_derivative_follow_the_formula)
{
    for (int i = -120000; i <= 120000; i++) {
        float x = (float)i / 10000, value;
        double d = (double)x, u = 0.79788456 * d * (1 + 0.044715 * d * d), t = tanh(u);
        double want = 0.5 * d * (1 + t);
        double slope =
            0.5 * (1 + t) + 0.5 * d * (1 - t * t) * (0.79788456 + 0.1070322243 * d * d);

        assert_true(fabs((double)cpu_gelu_both(x, &value) - slope) <= 6e-7);
        assert_true(fabs((double)value - want) <= 3e-7 * fabs(want) + 1e-8);
    }
    assert_true(gelu(1e20f) == 1e20f && fabsf(gelu(-1e20f)) < 1e-15f);
}

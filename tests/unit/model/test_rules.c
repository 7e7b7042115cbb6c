/* Rules of a step beside AdamW: ten steps of torch's SGD and of Lion; rates of runs; 8-bit
 * moments; weights of bfloat16 alone. */
#include "tests/unit/golden_model.h"

#include "libckpt/convert.h"
#include "trainer/ops/ops.h"

enum { N = 1024 };

static const float *numbers(struct golden *g, struct ckpt_source *file, const char *what, int step)
{
    char name[64];
    int64_t n;
    const float *x;

    snprintf(name, sizeof name, step ? "%s.%d" : "%s", what, step);
    x = golden_floats(g, file, name, &n);
    assert_int_equal(n, N);
    return x;
}

static void near(const float *got, const float *want, const char *name, int step, double bound)
{
    for (int i = 0; i < N; i++)
        if (!(fabs((double)got[i] - (double)want[i]) <= bound * (fabs((double)want[i]) + 0.1)))
            fail_msg("%s, step %d, element %d: %.9g, %.9g wanted", name, step, i, (double)got[i],
                     (double)want[i]);
}

TEST(ten_steps_are_torchs)
{
    static const struct { const char *name; struct adamw a; double decay; bool moment; } cases[] = {
        {"sgd", {.rule = OP_RULE_SGD}, 0, false},
        {"momentum", {.rule = OP_RULE_SGD, .momentum = 0.9}, 0.1, true},
        {"dampened", {.rule = OP_RULE_SGD, .momentum = 0.8, .dampening = 0.25}, 0, true},
        {"nesterov", {.rule = OP_RULE_SGD, .momentum = 0.9, .nesterov = true}, 0.1, true},
        {"lion", {.rule = OP_RULE_LION, .beta1 = 0.9, .beta2 = 0.99}, 0.1, true},
    };
    struct golden g = {0};
    struct ckpt_source *file = golden_source("safetensors", "tests/golden/optim",
                                             "/rules.safetensors");

    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
        struct device *dev = cpu_device(1 + (int)k % 3);
        struct adamw a = cases[k].a;
        float p[N], m[N] = {0};
        char name[64];
        double lr = 3e-3;

        memcpy(p, numbers(&g, file, "start.p", 0), sizeof p);
        a.lr = k % 2 ? 99 : lr;
        a.grad_scale = 1;
        for (a.step = 1; a.step <= 10; a.step++) {
            struct adamw_run run = {.param = p, .exp_avg = cases[k].moment ? m : NULL, .n = N,
                                    .grad = numbers(&g, file, "grad", (int)a.step),
                                    .weight_decay = cases[k].decay, .lr = k % 2 ? &lr : NULL};

            dev->ops->adamw(dev, &run, 1, &a);
            if (a.step > 2 && a.step < 10)
                continue;
            snprintf(name, sizeof name, "%s.p", cases[k].name);
            near(p, numbers(&g, file, name, (int)a.step), name, (int)a.step, 1e-6);
            snprintf(name, sizeof name, "%s.m", cases[k].name);
            if (cases[k].moment)
                near(m, numbers(&g, file, name, (int)a.step), name, (int)a.step, 1e-6);
        }
        device_close(dev);
    }
    ckpt_source_close(file);
    ckpt_arena_release(&g.arena);
}

/* Lion in 8 bits: the first step is float32's, later moments are within a code of it; what is not
 * finite steps nothing. */
TEST(eight_bits_follow)
{
    struct device *dev = cpu_device(2);
    float p[2][N], m[N] = {0}, g[N], absmax[N / OP_MOMENTS_BLOCK] = {0}, was[N];
    struct op_verdict bad = {.factor = 1};
    uint8_t code[N];
    struct adamw a = {.rule = OP_RULE_LION, .lr = 1e-2, .beta1 = 0.9, .beta2 = 0.99,
                      .grad_scale = 0.5};
    struct adamw_run run[2] = {{.param = p[0], .exp_avg = m, .grad = g, .n = N},
                               {.param = p[1], .exp_avg = code, .absmax = absmax, .grad = g, .n = N,
                                .moments = OP_MOMENTS_8BIT}};
    int differ = 0;

    memset(code, 127, sizeof code);             /* the code of 0 */
    for (int i = 0; i < N; i++)
        p[0][i] = p[1][i] = (float)(i % 17) - 8;
    for (a.step = 1; a.step <= 5; a.step++) {
        for (int i = 0; i < N; i++)
            g[i] = sinf((float)(i * 7 + (int)a.step * 3));
        dev->ops->adamw(dev, run, 2, &a);
        for (int i = 0; i < N; i++)
            differ += a.step == 1 ? p[0][i] != p[1][i] ? N : 0 : fabsf(p[0][i] - p[1][i]) > 1e-3f;
    }
    assert_true(differ < N / 4);
    memcpy(was, p[1], sizeof was);
    a.verdict = &bad;
    dev->ops->adamw(dev, run, 2, &a);
    assert_memory_equal(was, p[1], sizeof was);
    device_close(dev);
}

/* Weights of bfloat16 alone: small steps count on average, bits are the element's own however the
 * run is cut, another seed gives others. */
TEST(narrow_weights_are_rounded_by_chance)
{
    struct device *dev = cpu_device(2);
    static uint16_t w[3][N];
    float g[N], back[N];
    struct adamw a = {.rule = OP_RULE_SGD, .lr = 1.0 / 4096, .grad_scale = 1, .seed = 7};
    double sum = 0;

    dev->weight = CKPT_BF16;
    for (int i = 0; i < N; i++) {
        w[0][i] = w[1][i] = w[2][i] = 0x3f80;   /* 1; the next one is 1/128 above */
        g[i] = -1;
    }
    for (a.step = 1; a.step <= 64; a.step++) {
        struct adamw_run whole = {.rounded = w[0], .grad = g, .n = N, .index = 24};
        struct adamw_run half[2] = {{.rounded = w[1], .grad = g, .n = 331, .index = 24},
                                    {.rounded = w[1] + 331, .grad = g + 331, .n = N - 331,
                                     .index = 24 + 331}};

        dev->ops->adamw(dev, &whole, 1, &a);
        dev->ops->adamw(dev, half, 2, &a);
        assert_memory_equal(w[0], w[1], sizeof w[0]);
        a.seed = 8;
        whole.rounded = w[2];
        dev->ops->adamw(dev, &whole, 1, &a);
        a.seed = 7;
    }
    assert_memory_not_equal(w[0], w[2], sizeof w[0]);
    ckpt_convert(back, CKPT_F32, w[0], CKPT_BF16, N);
    for (int i = 0; i < N; i++)
        sum += (double)back[i] - 1;
    assert_true(fabs(sum / N - 64.0 / 4096) < 1e-3);    /* to nearest it would be 0 */
    device_close(dev);
}

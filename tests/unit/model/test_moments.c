/*
 * AdamW with narrow moments on the CPU: codes against bitsandbytes' own steps, bf16 against the
 * rule of ops.h; cut anywhere and by any threads to the same bits; the verdict obeyed.
 */
#include "tests/unit/compare.h"
#include "tests/unit/model_help.h"

#include <math.h>
#include <stdlib.h>

#include "formats/bnb/codes.h"
#include "trainer/ops/verdict.h"
#include "trainer/philox.h"
#include "trainer/rng.h"

#define GOLDEN "tests/golden/optim/adamw8bit.safetensors"
enum { N = 4100, BLOCKS = (N + 255) / 256 };

static void *golden(struct ckpt_source *s, const char *when, int step, const char *what)
{
    char name[64];
    size_t i;

    snprintf(name, sizeof name, "%s.%d%s", when, step, what);
    i = ckpt_source_find(s, name);
    assert_true(i != SIZE_MAX);
    return read_whole(s, i);
}

/*
 * Codes that differ from theirs, by one at most.  What is below 3e-5 of the largest, whose codes lie
 * within `coarse` of zero's, their CPU library takes for 1.5e-5: only CUDA finds the nearest.
 */
static int count_differing(const uint8_t *got, const uint8_t *want, int zero, int coarse)
{
    int n = 0;

    for (int i = 0; i < N; i++) {
        bool small = abs(want[i] - zero) <= coarse;

        if (abs(got[i] - want[i]) > (small ? 2 * coarse : 1))
            fail_msg("element %d: code %d, %d wanted", i, got[i], want[i]);
        n += !small && got[i] != want[i];
    }
    return n;
}

TEST(codes_step_as_bitsandbytes_does)
{
    struct ckpt_source *s = must_open(GOLDEN, NULL);
    struct device *dev = cpu_device(2);

    for (int step = 1; step <= 3; step++) {
        struct adamw a = {.lr = 1e-2, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8, .grad_scale = 1,
                          .step = step};
        bool first = step == 1;
        float *p = golden(s, first ? "before" : "after", first ? 1 : step - 1, ".p");
        float *g = golden(s, "grad", step, ""), *want = golden(s, "after", step, ".p");
        uint8_t *c1 = first ? calloc(N, 1) : golden(s, "after", step - 1, ".state1");
        uint8_t *c2 = first ? calloc(N, 1) : golden(s, "after", step - 1, ".state2");
        float *m1 = first ? calloc(BLOCKS, 4) : golden(s, "after", step - 1, ".absmax1");
        float *m2 = first ? calloc(BLOCKS, 4) : golden(s, "after", step - 1, ".absmax2");
        uint8_t *w1 = golden(s, "after", step, ".state1"), *w2 = golden(s, "after", step, ".state2");
        float *x1 = golden(s, "after", step, ".absmax1"), *x2 = golden(s, "after", step, ".absmax2");
        struct adamw_run run = {.param = p, .exp_avg = c1, .exp_avg_sq = c2, .absmax = m1,
                                .absmax_sq = m2, .grad = g, .n = N, .weight_decay = 0.1,
                                .moments = OP_MOMENTS_8BIT};
        void *all[] = {p, g, want, c1, c2, m1, m2, w1, w2, x1, x2};

        dev->ops->adamw(dev, &run, 1, &a);
        for (int i = 0; i < N; i++)
            if (!(fabsf(p[i] - want[i]) <= 2e-6f * (fabsf(want[i]) + 1e-2f)))
                fail_msg("step %d, element %d: %g, %g wanted", step, i, p[i], want[i]);
        for (int i = 0; i < BLOCKS; i++)
            assert_true(fabsf(m1[i] - x1[i]) <= 1e-6f * x1[i] &&
                        fabsf(m2[i] - x2[i]) <= 1e-6f * x2[i]);
        /* between larger ones their table is coarse too: of two neighbours now and then the other */
        assert_true(count_differing(c1, w1, 127, 5) <= N / 20);
        assert_true(count_differing(c2, w2, 0, 9) <= N / 20);
        for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
            free(all[i]);
    }
    device_close(dev);
    ckpt_source_close(s);
}

/* Arrays of one run, random; fewer threads or a cut at a block must not show. */
struct arrays {
    float    p[N], g[N], most[2][BLOCKS];
    uint16_t moment[2][N];              /* or codes, in their first bytes */
    uint16_t rounded[N];
};

static void fill(struct arrays *x)
{
    memset(x, 0, sizeof *x);
    rng_normal(x->p, 0, N, 1, 5, 1);
    rng_normal(x->g, 0, N, 0.1f, 5, 2);
}

static struct adamw_run run_of(struct arrays *x, enum op_moments m, int from, int to)
{
    size_t wide = m == OP_MOMENTS_BF16 ? 2 : 1;

    return (struct adamw_run){
        .param = x->p + from, .exp_avg = (unsigned char *)x->moment[0] + wide * (size_t)from,
        .exp_avg_sq = (unsigned char *)x->moment[1] + wide * (size_t)from,
        .absmax = x->most[0] + from / 256, .absmax_sq = x->most[1] + from / 256, .grad = x->g + from,
        .rounded = x->rounded + from, .n = to - from, .index = (uint64_t)(1000 + from),
        .weight_decay = 0.1, .moments = m};
}

TEST(cuts_and_threads_do_not_show)
{
    static struct arrays one, cut;

    for (int m = OP_MOMENTS_BF16; m <= OP_MOMENTS_8BIT; m++) {
        struct device *dev = cpu_device(1), *many = cpu_device(3);

        dev->weight = many->weight = CKPT_BF16;
        fill(&one);
        fill(&cut);
        for (int step = 1; step <= 4; step++) {
            struct adamw a = {.lr = 1e-2, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8,
                              .grad_scale = 0.5, .step = step, .seed = 77};
            struct adamw_run whole = run_of(&one, (enum op_moments)m, 0, N), part[4];

            part[0] = run_of(&cut, (enum op_moments)m, 2048, N);
            part[1] = run_of(&cut, (enum op_moments)m, 0, 256);
            part[2] = run_of(&cut, (enum op_moments)m, 256, 256);
            part[3] = run_of(&cut, (enum op_moments)m, 256, 2048);
            dev->ops->adamw(dev, &whole, 1, &a);
            many->ops->adamw(many, part, 4, &a);
            assert_memory_equal(&one, &cut, sizeof one);
        }
        device_close(dev);
        device_close(many);
    }
}

static float of_bf16(uint16_t x)
{
    union { uint32_t bits; float f; } y = {(uint32_t)x << 16};

    return y.f;
}

/* Each second moment is one of the two neighbours of what f32 would give, by its own word. */
TEST(bf16_is_rounded_as_ops_says)
{
    static struct arrays x;
    struct device *dev = cpu_device(2);
    struct adamw a = {.lr = 1e-2, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .grad_scale = 1,
                      .step = 9, .seed = 1234567890123u};
    struct adamw_run run;

    fill(&x);
    run = run_of(&x, OP_MOMENTS_BF16, 0, N);
    run.rounded = NULL;
    dev->ops->adamw(dev, &run, 1, &a);
    for (int i = 0; i < N; i++) {
        float g = x.g[i], v = (float)(1 - 0.999) * g * g, low, high;
        union { float f; uint32_t bits; } y = {v};
        uint64_t e = 1000 + (uint64_t)i;
        uint32_t word[4];

        low = of_bf16((uint16_t)(y.bits >> 16));
        high = of_bf16((uint16_t)((y.bits >> 16) + 1));
        assert_true(fabsf(of_bf16(x.moment[0][i]) - 0.1f * g) <= fabsf(g) * 0.1f * 0x1p-8f);
        assert_true(of_bf16(x.moment[1][i]) >= low * (1 - 1e-6f) &&
                    of_bf16(x.moment[1][i]) <= high * (1 + 1e-6f));
        philox(word, a.seed, 9, e / 8);
        y.bits += word[e % 8 / 2] >> (e % 2 * 16) & 0xffff;
        /* contraction may carry in the last bits of v */
        if (abs((int)(y.bits >> 16) - (int)x.moment[1][i]) > ((y.bits & 0xffff) < 4 ||
                                                             (y.bits & 0xffff) > 0xfffb))
            fail_msg("element %d: %04x, %04x wanted", i, x.moment[1][i], y.bits >> 16);
    }
    device_close(dev);
}

/* Of a constant gradient the second moment comes to its square, where the nearest would stall. */
TEST(bf16_does_not_stall)
{
    static struct arrays x;
    struct device *dev = cpu_device(2);
    struct adamw_run run;
    double mean = 0;

    fill(&x);
    for (int i = 0; i < N; i++)
        x.g[i] = 0.5f;
    run = run_of(&x, OP_MOMENTS_BF16, 0, N);
    run.rounded = NULL;
    for (int step = 1; step <= 2000; step++) {
        struct adamw a = {.lr = 0, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .grad_scale = 1,
                          .step = step, .seed = 3};

        dev->ops->adamw(dev, &run, 1, &a);
    }
    for (int i = 0; i < N; i++)
        mean += (double)of_bf16(x.moment[1][i]) / N;
    /* 0.25 (1 - 0.999^2000) = 0.2162; 4100 walks of some percent each leave their mean near it */
    assert_true(fabs(mean - 0.2162) < 0.002);
    device_close(dev);
}

static void judged(struct device *dev, struct op_verdict *v, const float *grad, int64_t n,
                   double max_norm, double scale)
{
    double sum;

    dev->ops->sum_squares(dev, &sum, grad, n);
    dev->ops->judge(dev, v, &sum, max_norm, scale);
}

TEST(a_verdict_is_obeyed)
{
    static struct arrays x, y, was;
    struct device *dev = cpu_device(1);
    struct adamw a = {.lr = 1e-2, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .grad_scale = 99,
                      .step = 1};
    struct op_verdict v;
    struct adamw_run run;
    double sum = 0;

    fill(&x);
    fill(&y);
    for (int i = 0; i < N; i++)
        sum += (double)x.g[i] * (double)x.g[i];
    judged(dev, &v, x.g, N, 1.0, 4.0);
    assert_true(v.finite && fabs(v.norm - sqrt(sum) / 4) <= 1e-9);
    assert_true(fabsf(v.factor - (float)(1 / (v.norm + 1e-6) / 4)) <= 1e-6f * v.factor);
    a.verdict = &v;
    run = run_of(&x, OP_MOMENTS_8BIT, 0, N);
    run.rounded = NULL;
    dev->ops->adamw(dev, &run, 1, &a);
    a.verdict = NULL;
    a.grad_scale = (double)v.factor;
    run = run_of(&y, OP_MOMENTS_8BIT, 0, N);
    run.rounded = NULL;
    dev->ops->adamw(dev, &run, 1, &a);
    assert_memory_equal(&x, &y, sizeof x);
    judged(dev, &v, x.g, N, 0, 2.0);
    assert_true(v.factor == 0.5f);              /* exactly: nothing is clipped */
    x.g[17] = NAN;
    was = x;
    judged(dev, &v, x.g, N, 1.0, 4.0);
    assert_false(v.finite);
    a.verdict = &v;
    run = run_of(&x, OP_MOMENTS_8BIT, 0, N);
    run.rounded = NULL;
    dev->ops->adamw(dev, &run, 1, &a);
    assert_memory_equal(&x, &was, sizeof x);
    device_close(dev);
}

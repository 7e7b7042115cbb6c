/*
 * Where states lie does not change what they become: on the device, on the host, on both; with
 * moments of each kind; on streams that copy late, in discrete memory.
 */
#include "tests/unit/zero_side.h"

#include "tests/unit/lazy_streams.h"
#include "trainer/rng.h"

static const struct model_opts train = {.max_tokens = 16, .max_docs = 2, .max_rows = 16,
                                        .train = true};

static int fill(void *ctx, size_t i, int64_t start, int64_t count, float *dst,
                struct ckpt_err *err)
{
    const uint64_t *seed = ctx;

    (void)err;
    rng_normal(dst, start, count, 0.5f, *seed, i);
    return 0;
}

/* Only one side may be lazy at a time. */
static void open_model(struct side *s, struct golden *g, const struct model_opts *model,
                       const struct zero_opts *opts)
{
    struct device *dev = cpu_device(2);
    struct ckpt_err err = {0};
    uint64_t seed = 3;

    dev->weight = CKPT_BF16;
    dev->discrete = true;               /* as a GPU's: what is read passes the stage */
    lazy_streams(dev);
    side_open(s, g, dev, model, opts);
    OK(zero_fill(s->zero, ZERO_MASTER, fill, &seed, &err), err);
}

static void open_side(struct side *s, struct golden *g, const struct zero_opts *opts)
{
    open_model(s, g, &train, opts);
}

static void steps(struct side *s, int n)
{
    uint64_t n_alloc = s->dev->n_alloc;
    struct ckpt_err err = {0};

    for (int k = 1; k <= n; k++) {
        struct adamw a = {.lr = 1e-2, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8, .grad_scale = 0.5,
                          .step = k, .seed = 5};
        uint64_t seed = 100 + (uint64_t)k;

        zero_begin(s->zero);
        OK(zero_fill(s->zero, ZERO_GRAD, fill, &seed, &err), err);
        zero_step(s->zero, &a, 0.1);
    }
    assert_int_equal(s->dev->n_alloc, n_alloc);         /* all was planned */
}

TEST(where_states_lie_changes_nothing)
{
    static const enum op_moments kinds[] = {OP_MOMENTS_F32, OP_MOMENTS_BF16, OP_MOMENTS_8BIT};
    bool kinds_seen[3] = {false};
    struct ckpt_err err = {0};
    struct golden g;

    golden_open(&g, "bloom-a", &train, 1);
    for (int k = 0; k < 3; k++) {
        struct zero_opts resident = {.train = true, .moments = kinds[k]};
        struct zero_size all;
        struct saved want = {0};
        struct side s;

        open_side(&s, &g, &resident);
        steps(&s, 3);
        want = side_save(&g, &s);
        for (size_t i = 0; i < model_params(s.model)->n; i++)
            kinds_seen[zero_moments(s.zero, i)] = true;
        OK(zero_size(&all, model_params(s.model), &resident, 1, s.dev, &err), err);
        assert_int_equal(all.optim_host, 0);
        assert_int_equal(all.ring, 0);
        side_close(&s);
        for (int t = 0; t < 4; t++) {
            struct zero_opts paged = {.train = true, .moments = kinds[k], .paged = true,
                                      .optim_on_device = t == 1   ? all.optim / 2
                                                          : t == 2 ? 70000 : 0,
                                      .chunk = t == 3 ? 0 : 512};
            struct zero_size size;
            struct saved got;

            open_side(&s, &g, &paged);
            steps(&s, 3);
            got = side_save(&g, &s);
            OK(zero_size(&size, model_params(s.model), &paged, 1, s.dev, &err), err);
            assert_same_saved(got, want, t == 1 ? "half on the device" : "on the host");
            assert_int_equal(size.optim + size.optim_host, all.optim);
            assert_true(size.optim <= paged.optim_on_device && size.ring > 0);
            if (t == 1)
                assert_true(size.optim > 0);
            side_close(&s);
        }
    }
    assert_true(kinds_seen[0] && kinds_seen[1] && kinds_seen[2]);
    golden_close(&g);
}

/* Two steps of two passes each; the losses of all passes and an evaluation's. */
static void passes(struct side *s, struct golden *g, double loss[5])
{
    uint64_t n_alloc = s->dev->n_alloc;
    struct ckpt_err err = {0};
    struct batch b;

    golden_batch(g, "right", &b, NULL);
    for (int k = 0; k < 2; k++) {
        struct adamw a = {.lr = 1e-2, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8, .step = k + 1,
                          .seed = 5, .verdict = zero_verdict(s->zero)};

        zero_begin(s->zero);
        for (int j = 0; j < 2; j++)
            OK(model_loss_grad(s->model, zero_weights(s->zero), &b, 0.5f / (float)b.n_rows,
                               &loss[2 * k + j], &err), err);
        zero_reduce(s->zero);
        zero_judge(s->zero, 1.0, 1);
        assert_true(zero_verdict_host(s->zero).finite);
        zero_step(s->zero, &a, 0.1);
    }
    OK(model_loss(s->model, zero_weights(s->zero), &b, &loss[4], NULL, &err), err);
    assert_int_equal(s->dev->n_alloc, n_alloc);
}

/* Weights and gradients on the host: every family's order of layers, blocks recomputed or not. */
TEST(weights_on_the_host_change_nothing)
{
    static const char *const names[] = {"bloom-a", "llama-a", "mixtral-a", "t5-v10", "opt-350m",
                                        "opt-bare"};

    struct ckpt_err err = {0};

    for (size_t n = 0; n < sizeof names / sizeof names[0]; n++)
        for (int full = 0; full < 2; full++) {
            struct model_opts opts = {.max_tokens = 160, .max_docs = 8, .max_rows = 160,
                                      .max_enc = 320, .train = true,
                                      .recompute = full ? RECOMPUTE_FULL : RECOMPUTE_NONE};
            struct zero_opts here = {.train = true, .chunk = 2048}, there = here;
            double want_loss[5], got_loss[5];
            struct saved want, got;
            struct zero_size size;
            struct golden g;
            struct side s;

            there.offload_param = true;
            golden_open(&g, names[n], &opts, 1);
            open_model(&s, &g, &opts, &here);
            passes(&s, &g, want_loss);
            want = side_save(&g, &s);
            side_close(&s);
            open_model(&s, &g, &opts, &there);
            OK(zero_size(&size, model_params(s.model), &there, 1, s.dev, &err), err);
            assert_true(size.optim == 0 && size.ring > 0);
            assert_int_equal(size.weights_host, 2 * model_params(s.model)->numel);
            passes(&s, &g, got_loss);
            got = side_save(&g, &s);
            assert_memory_equal(want_loss, got_loss, sizeof want_loss);
            assert_same_saved(got, want, names[n]);
            side_close(&s);
            golden_close(&g);
        }
}

/* A gradient that is not finite leaves all as it was, what is on the host too. */
TEST(nothing_is_stepped_without_a_verdict)
{
    struct zero_opts opts = {.train = true, .offload_param = true, .chunk = 512};
    struct ckpt_err err = {0};
    struct saved before, after;
    struct golden g;
    struct side s;
    float nan = NAN;

    golden_open(&g, "bloom-a", &train, 1);
    open_side(&s, &g, &opts);
    before = side_save(&g, &s);
    zero_begin(s.zero);
    zero_reduce(s.zero);                /* no pass: all zeros */
    OK(zero_write(s.zero, ZERO_GRAD, 0, 5, 1, &nan, &err), err);
    {
        struct op_verdict bad = {.norm = NAN, .finite = 0};
        struct adamw a = {.lr = 1, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8, .step = 1,
                          .verdict = zero_verdict(s.zero)};

        s.dev->ops->to_device(s.dev, (void *)(uintptr_t)a.verdict, &bad, sizeof bad);
        zero_step(s.zero, &a, 0.1);
    }
    after = side_save(&g, &s);
    assert_same_saved(after, before, "a step that was not judged");
    side_close(&s);
    golden_close(&g);
}

/* What was written comes back, wherever it lies, in runs that cross from one place to the other. */
TEST(what_is_written_is_read)
{
    struct zero_opts opts = {.train = true, .paged = true, .optim_on_device = 60000, .chunk = 512};
    struct ckpt_err err = {0};
    struct golden g;
    struct side s;

    golden_open(&g, "bloom-a", &train, 1);
    open_side(&s, &g, &opts);
    for (int of = ZERO_MASTER; of <= ZERO_EXP_AVG_SQ; of++) {
        uint64_t seed = 40 + (uint64_t)of;

        OK(zero_fill(s.zero, (enum zero_array)of, fill, &seed, &err), err);
    }
    for (size_t i = 0; i < model_params(s.model)->n; i++)
        for (int of = ZERO_MASTER; of <= ZERO_EXP_AVG_SQ; of++) {
            int64_t n = model_params(s.model)->item[i].numel, from = n > 3 ? 3 : 0;
            float *x = malloc((size_t)n * 4 + 4), *y = malloc((size_t)n * 4 + 4);

            rng_normal(x, 0, n, 0.5f, 40 + (uint64_t)of, i);
            OK(zero_read(s.zero, (enum zero_array)of, i, from, n - from, y, &err), err);
            assert_memory_equal(x + from, y, (size_t)(n - from) * 4);
            free(x);
            free(y);
        }
    side_close(&s);
    golden_close(&g);
}

/* Without parts that ranks own, weights lie on the host of one rank alone. */
TEST(several_ranks_are_refused_at_stage_0)
{
    struct zero_opts opts = {.train = true, .offload_param = true};
    struct ckpt_err err = {0};
    struct golden g;
    struct side s;
    struct comm two;

    golden_open(&g, "bloom-a", &train, 1);
    s.dev = cpu_device(1);
    OK(comm_open(&s.comm, 0, &err), err);
    OK(model_new(&s.model, g.arch, &train, s.dev, &err), err);
    two = *s.comm;
    two.world_size = 2;
    assert_int_equal(zero_new(&s.zero, model_params(s.model), &opts, s.dev, &two, &err),
                     CKPT_EUNSUPPORTED);
    assert_null(s.zero);
    assert_non_null(strstr(err.text, "at stage 0 of one rank"));
    side_close(&s);
    golden_close(&g);
}

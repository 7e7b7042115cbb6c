/*
 * Where states lie does not change what they become: on the device, on the host, on both; with
 * moments of each kind; on lanes that copy late and memory that is apart.
 */
#include "tests/unit/golden_model.h"
#include "tests/unit/lazy_streams.h"

#include "trainer/comm/comm.h"
#include "trainer/rng.h"
#include "trainer/shard/zero.h"

static const struct model_opts train = {.max_tokens = 16, .max_docs = 2, .max_rows = 16,
                                        .train = true};

/* A model's states somewhere, filled the same each time. */
struct side {
    struct device *dev;
    struct comm   *comm;
    struct model  *model;
    struct zero   *zero;
};

static int fill(void *ctx, size_t i, int64_t start, int64_t count, float *dst,
                struct ckpt_err *err)
{
    const uint64_t *seed = ctx;

    (void)err;
    rng_normal(dst, start, count, 0.5f, *seed, i);
    return 0;
}

static void open_model(struct side *s, struct golden *g, enum ckpt_dtype weight,
                       const struct model_opts *model, const struct zero_opts *opts)
{
    struct ckpt_err err = {0};
    uint64_t seed = 3;

    OK(device_open_cpu(&s->dev, 2, &err), err);
    s->dev->weight = weight;
    s->dev->discrete = true;               /* as a GPU's: what is read passes the stage */
    lazy_streams(s->dev);
    OK(comm_open(&s->comm, 0, &err), err);
    OK(model_new(&s->model, g->arch, model, s->dev, &err), err);
    OK(zero_new(&s->zero, model_params(s->model), opts, s->dev, s->comm, &err), err);
    OK(zero_fill(s->zero, ZERO_MASTER, fill, &seed, &err), err);
}

static void open_side(struct side *s, struct golden *g, enum ckpt_dtype weight,
                      const struct zero_opts *opts)
{
    open_model(s, g, weight, &train, opts);
}

static void close_side(struct side *s)
{
    zero_free(s->zero);
    model_free(s->model);
    comm_close(s->comm);
    device_close(s->dev);
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

/* Everything there is of parameter i, as it is stored; in the golden's arena. */
static void *stored(struct golden *g, struct side *s, enum optim_state_array of, size_t i, size_t *bytes)
{
    enum op_moments m = zero_moments(s->zero, i);
    int64_t n = model_params(s->model)->item[i].numel;
    struct ckpt_err err = {0};
    void *to;

    *bytes = of == OPTIM_STATE_MASTER ? (size_t)n * 4
             : of == OPTIM_STATE_AVG || of == OPTIM_STATE_AVG_SQ ? (size_t)n * moments_size(m)
             : m == OP_MOMENTS_8BIT ? (size_t)(n + 255) / 256 * 4 : 0;
    to = ckpt_arena_alloc(&g->arena, *bytes + 1, 1);
    if (*bytes)
        OK(zero_read_stored(s->zero, of, i, 0, n, to, &err), err);
    return to;
}

/* A copy of all that a side has, and of what passes see: only one side may be lazy at a time. */
struct saved {
    unsigned char *at;
    size_t         bytes;
};

static struct saved save(struct golden *g, struct side *s)
{
    const struct params *p = model_params(s->model);
    struct saved all = {NULL, 0};
    struct ckpt_err err = {0};

    for (int pass = 0; pass < 2; pass++) {
        size_t at = 0;

        for (size_t i = 0; i < p->n; i++)
            for (int of = 0; of < OPTIM_STATE_ARRAYS; of++) {
                size_t n;
                void *x = stored(g, s, (enum optim_state_array)of, i, &n);

                if (pass)
                    memcpy(all.at + at, x, n);
                at += n;
            }
        for (int u = 0; u < p->n_layers; u++) {
            const struct model_weights *w = zero_weights(s->zero);
            const void *x = w->acquire(w->ctx, u);
            size_t n = (size_t)p->layer_numel[u] * 2;

            OK(device_sync(s->dev, &err), err);
            if (pass)
                memcpy(all.at + at, x, n);
            at += n;
            w->release(w->ctx, u);
        }
        if (!pass)
            all.at = ckpt_arena_alloc(&g->arena, at, 1);
        all.bytes = at;
    }
    return all;
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

        open_side(&s, &g, CKPT_BF16, &resident);
        steps(&s, 3);
        want = save(&g, &s);
        for (size_t i = 0; i < model_params(s.model)->n; i++)
            kinds_seen[zero_moments(s.zero, i)] = true;
        OK(zero_size(&all, model_params(s.model), &resident, 1, CKPT_BF16, &err), err);
        assert_int_equal(all.optim_host, 0);
        assert_int_equal(all.ring, 0);
        close_side(&s);
        for (int t = 0; t < 4; t++) {
            struct zero_opts paged = {.train = true, .moments = kinds[k], .paged = true,
                                      .optim_on_device = t == 1   ? all.optim / 2
                                                          : t == 2 ? 70000 : 0,
                                      .chunk = t == 3 ? 0 : 512};
            struct zero_size size;
            struct saved got;

            open_side(&s, &g, CKPT_BF16, &paged);
            steps(&s, 3);
            got = save(&g, &s);
            OK(zero_size(&size, model_params(s.model), &paged, 1, CKPT_BF16, &err), err);
            assert_int_equal(got.bytes, want.bytes);
            if (memcmp(got.at, want.at, want.bytes) != 0)
                fail_msg("moments %d, place %d: states differ", k, t);
            assert_int_equal(size.optim + size.optim_host, all.optim);
            assert_true(size.optim <= paged.optim_on_device && size.ring > 0);
            if (t == 1)
                assert_true(size.optim > 0);
            close_side(&s);
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
    int32_t *place;
    struct batch b;

    golden_batch(g, "right", &b, &place);
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

/* Weights and gradients on the host: every family's order of layers, blocks made again or not. */
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
            open_model(&s, &g, CKPT_BF16, &opts, &here);
            passes(&s, &g, want_loss);
            want = save(&g, &s);
            close_side(&s);
            open_model(&s, &g, CKPT_BF16, &opts, &there);
            OK(zero_size(&size, model_params(s.model), &there, 1, CKPT_BF16, &err), err);
            assert_true(size.optim == 0 && size.ring > 0);
            assert_int_equal(size.weights_host, 2 * model_params(s.model)->numel);
            passes(&s, &g, got_loss);
            got = save(&g, &s);
            assert_memory_equal(want_loss, got_loss, sizeof want_loss);
            assert_int_equal(got.bytes, want.bytes);
            if (memcmp(got.at, want.at, want.bytes) != 0)
                fail_msg("%s: states differ", names[n]);
            close_side(&s);
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
    open_side(&s, &g, CKPT_BF16, &opts);
    before = save(&g, &s);
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
    after = save(&g, &s);
    assert_memory_equal(before.at, after.at, before.bytes);
    close_side(&s);
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
    open_side(&s, &g, CKPT_BF16, &opts);
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
    close_side(&s);
    golden_close(&g);
}

/* Of several ranks none pages. */
TEST(several_ranks_are_refused)
{
    struct zero_opts opts = {.train = true, .paged = true};
    struct ckpt_err err = {0};
    struct golden g;
    struct side s;
    struct comm two;

    golden_open(&g, "bloom-a", &train, 1);
    OK(device_open_cpu(&s.dev, 1, &err), err);
    OK(comm_open(&s.comm, 0, &err), err);
    OK(model_new(&s.model, g.arch, &train, s.dev, &err), err);
    two = *s.comm;
    two.world_size = 2;
    assert_int_equal(zero_new(&s.zero, model_params(s.model), &opts, s.dev, &two, &err),
                     CKPT_EUNSUPPORTED);
    assert_null(s.zero);
    assert_non_null(strstr(err.text, "one rank"));
    close_side(&s);
    golden_close(&g);
}

/*
 * A step of the optimizer by the door that training uses, optim_step over zero: weights and moments
 * are torch's, and no number of the options reaches the device narrower than it was given.
 */
#include "tests/unit/zero_side.h"

#include "trainer/optim/optim.h"

/* Numbers that no float is. */
#define LR 3e-3
static const struct optim_opts options = {.beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8,
                                          .weight_decay = 0.1, .seed = 5};

static const struct model_opts train = {.max_tokens = 16, .max_docs = 2, .max_rows = 16,
                                        .train = true};

/* torch's numbers (tests/golden/make_adamw.py): element j of parameter i is number (37 i + j) mod n. */
struct torch {
    struct golden *g;
    struct ckpt_source *file;
    int64_t n;
};

static const float *numbers(struct torch *t, const char *kind, const char *what, int step)
{
    char name[64];

    if (step)
        snprintf(name, sizeof name, "%s%s.%d", kind, what, step);
    else
        snprintf(name, sizeof name, "%s%s", kind, what);
    return golden_floats(t->g, t->file, name, &t->n);
}

struct filling {
    const float *from;
    int64_t n;
};

static int fill(void *ctx, size_t i, int64_t start, int64_t count, float *dst,
                struct ckpt_err *err)
{
    const struct filling *f = ctx;

    (void)err;
    for (int64_t j = 0; j < count; j++)
        dst[j] = f->from[(37 * (int64_t)i + start + j) % f->n];
    return 0;
}

static void fill_from(struct side *s, struct torch *t, enum zero_array of, const char *what,
                      int step)
{
    struct filling f = {.from = numbers(t, "", what, step)};
    struct ckpt_err err = {0};

    f.n = t->n;
    OK(zero_fill(s->zero, of, fill, &f, &err), err);
}

static void open_side(struct side *s, struct torch *t, enum ckpt_dtype weight,
                      const struct zero_opts *opts)
{
    struct device *dev = cpu_device(2);

    dev->weight = weight;
    side_open(s, t->g, dev, &train, opts);
    fill_from(s, t, ZERO_MASTER, "start.p", 0);
}

/* The gradient of step k, judged as one that is finite and not clipped. */
static void gradient(struct side *s, struct torch *t, int k)
{
    zero_begin(s->zero);
    fill_from(s, t, ZERO_GRAD, "grad", k);
    zero_judge(s->zero, 0, 1);
}

static void check(struct side *s, struct torch *t, enum zero_array of, const char *what, int step)
{
    const struct params *p = model_params(s->model);
    struct ckpt_err err = {0};

    for (size_t i = 0; i < p->n; i++) {
        const char *kind = p->item[i].decay ? "decay." : "plain.";
        const float *want = numbers(t, kind, what, step);
        float *got = ckpt_arena_alloc(&t->g->arena, (size_t)p->item[i].numel, sizeof *got);

        OK(zero_read(s->zero, of, i, 0, p->item[i].numel, got, &err), err);
        for (int64_t j = 0; j < p->item[i].numel; j++) {
            double w = (double)want[(37 * (int64_t)i + j) % t->n], x = (double)got[j];
            double size = fabs(w) + (of == ZERO_MASTER ? step * LR : 0);

            if (!(fabs(x - w) <= 2.5e-7 * size + 1e-37))        /* two units in the last place */
                fail_msg("step %d, %s: %s %lld: %.9g, torch's %.9g, off by %.3g", step,
                         p->item[i].name, what, (long long)j, x, w, fabs(x - w) / size);
        }
    }
}

static const struct zero_opts places[] = {
    {.train = true},
    {.train = true, .paged = true, .offload = true, .chunk = 512},
    {.train = true, .stage = 3},
};

TEST(steps_are_torchs)
{
    struct golden g;
    struct torch t = {.g = &g};

    golden_open(&g, "bloom-a", &train, 1);
    t.file = golden_source("safetensors", "tests/golden/optim", "/adamw.safetensors");
    for (size_t k = 0; k < sizeof places / sizeof places[0]; k++) {
        struct side s;

        open_side(&s, &t, CKPT_F32, &places[k]);
        for (int step = 1; step <= 3; step++) {
            gradient(&s, &t, step);
            optim_step(s.zero, &options, LR, step);
            for (int of = 0; step != 2 && of < 3; of++) {
                static const enum zero_array array[] = {ZERO_EXP_AVG_SQ, ZERO_EXP_AVG,
                                                        ZERO_MASTER};
                static const char *const name[] = {"exp_avg_sq", "exp_avg", "p"};

                check(&s, &t, array[of], name[of], step);
            }
        }
        side_close(&s);
    }
    ckpt_source_close(t.file);
    golden_close(&g);
}

/* Moments of every kind: what optim_step leaves is what the operation leaves that is given doubles. */
TEST(no_number_is_narrowed_on_its_way)
{
    static const enum op_moments kinds[] = {OP_MOMENTS_F32, OP_MOMENTS_BF16, OP_MOMENTS_8BIT};
    struct optim_opts far = options;
    struct golden g;
    struct torch t = {.g = &g};

    golden_open(&g, "bloom-a", &train, 1);
    t.file = golden_source("safetensors", "tests/golden/optim", "/adamw.safetensors");
    far.weight_decay = 333.3;           /* 1 - lr wd is small: its last digits count */
    for (size_t k = 0; k < 3 * sizeof places / sizeof places[0]; k++) {
        struct zero_opts opts = places[k / 3];
        struct saved all[2];

        if (opts.stage == 3 && kinds[k % 3] != OP_MOMENTS_F32)
            continue;
        opts.moments = kinds[k % 3];
        for (int way = 0; way < 2; way++) {
            struct side s;

            open_side(&s, &t, CKPT_BF16, &opts);
            for (int step = 1; step <= 2; step++) {
                struct adamw a = {.lr = LR, .beta1 = far.beta1, .beta2 = far.beta2,
                                  .eps = far.eps, .seed = far.seed, .step = step,
                                  .verdict = zero_verdict(s.zero)};

                gradient(&s, &t, step);
                if (way)
                    zero_step(s.zero, &a, far.weight_decay);
                else
                    optim_step(s.zero, &far, LR, step);
            }
            all[way] = side_save(&g, &s);
            side_close(&s);
        }
        assert_same_saved(all[0], all[1], "a number that is narrowed");
    }
    ckpt_source_close(t.file);
    golden_close(&g);
}

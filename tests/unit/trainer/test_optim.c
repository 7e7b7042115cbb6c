/*
 * A step of the optimizer by the door that training uses, optim_step over zero: weights and moments
 * are torch's, and no number of the options reaches the device narrower than it was given.
 */
#include "tests/unit/golden_model.h"

#include "trainer/comm/comm.h"
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

struct side {
    struct device *dev;
    struct comm   *comm;
    struct model  *model;
    struct zero   *zero;
};

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
    struct ckpt_err err = {0};

    OK(device_open_cpu(&s->dev, 2, &err), err);
    s->dev->weight = weight;
    OK(comm_open(&s->comm, 0, &err), err);
    OK(model_new(&s->model, t->g->arch, &train, s->dev, &err), err);
    OK(zero_new(&s->zero, model_params(s->model), opts, s->dev, s->comm, &err), err);
    fill_from(s, t, ZERO_MASTER, "start.p", 0);
}

static void close_side(struct side *s)
{
    zero_free(s->zero);
    model_free(s->model);
    comm_close(s->comm);
    device_close(s->dev);
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
    struct ckpt_err err = {0};
    struct golden g;
    struct torch t = {.g = &g};

    golden_open(&g, "bloom-a", &train, 1);
    OK(ckpt_open_as(&t.file, "safetensors", "tests/golden/optim/adamw.safetensors", NULL, &err),
       err);
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
        close_side(&s);
    }
    ckpt_source_close(t.file);
    golden_close(&g);
}

/* All that a side keeps, byte for byte. */
static unsigned char *stored(struct golden *g, struct side *s, size_t *bytes)
{
    const struct params *p = model_params(s->model);
    struct ckpt_err err = {0};
    unsigned char *all = NULL;

    for (int pass = 0; pass < 2; pass++) {
        *bytes = 0;
        for (size_t i = 0; i < p->n; i++)
            for (int of = 0; of < OPTIM_STATE_ARRAYS; of++) {
                enum op_moments m = zero_moments(s->zero, i);
                int64_t n = p->item[i].numel;
                size_t size = of == OPTIM_STATE_MASTER ? (size_t)n * 4
                              : of <= OPTIM_STATE_AVG_SQ ? (size_t)n * moments_size(m)
                              : m == OP_MOMENTS_8BIT ? (size_t)(n + 255) / 256 * 4 : 0;

                if (pass && size)
                    OK(zero_read_stored(s->zero, (enum optim_state_array)of, i, 0, n, all + *bytes,
                                        &err), err);
                *bytes += size;
            }
        if (!pass)
            all = ckpt_arena_alloc(&g->arena, *bytes, 1);
    }
    return all;
}

/* Moments of every kind: what optim_step leaves is what the operation leaves that is given doubles. */
TEST(no_number_is_narrowed_on_its_way)
{
    static const enum op_moments kinds[] = {OP_MOMENTS_F32, OP_MOMENTS_BF16, OP_MOMENTS_8BIT};
    struct optim_opts far = options;
    struct ckpt_err err = {0};
    struct golden g;
    struct torch t = {.g = &g};

    golden_open(&g, "bloom-a", &train, 1);
    OK(ckpt_open_as(&t.file, "safetensors", "tests/golden/optim/adamw.safetensors", NULL, &err),
       err);
    far.weight_decay = 333.3;           /* 1 - lr wd is small: its last digits count */
    for (size_t k = 0; k < 3 * sizeof places / sizeof places[0]; k++) {
        struct zero_opts opts = places[k / 3];
        unsigned char *all[2];
        size_t bytes[2];

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
            all[way] = stored(&g, &s, &bytes[way]);
            close_side(&s);
        }
        assert_int_equal(bytes[0], bytes[1]);
        if (memcmp(all[0], all[1], bytes[0]) != 0)
            fail_msg("moments %d, place %zu: a number is narrowed", (int)opts.moments, k / 3);
    }
    ckpt_source_close(t.file);
    golden_close(&g);
}

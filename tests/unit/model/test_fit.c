/*
 * What a plan says is what is allocated, to the byte; what fits is taken in the order that is
 * promised; a refusal names a way that does fit.
 */
#include "tests/unit/golden_model.h"

#include "trainer/comm/comm.h"
#include "trainer/run/fit.h"

static const struct model_opts train = {.max_tokens = 64, .max_docs = 4, .max_rows = 64,
                                        .train = true};

/* A CPU device that counts what it gives away. */
static uint64_t given;
static const struct ops *inner;
static struct ops counting;

static void *count_alloc(struct device *dev, size_t bytes)
{
    given += bytes;
    return inner->alloc(dev, bytes);
}

static struct device *open_counting(enum ckpt_dtype weight)
{
    struct ckpt_err err = {0};
    struct device *dev;

    OK(device_open_cpu(&dev, 1, &err), err);
    dev->weight = weight;
    inner = dev->ops;
    counting = *inner;
    counting.alloc = count_alloc;
    dev->ops = &counting;
    given = 0;
    return dev;
}

/* The plan's bytes beside those that the rooms then take. */
static void as_planned(const struct golden *g, struct device *dev, const struct fit_opts *o,
                       const struct fit *f)
{
    struct model_opts with = o->model;
    struct zero_opts zero = o->zero;
    struct ckpt_err err = {0};
    struct model *model;
    struct comm *comm;
    struct zero *z;

    with.recompute = f->recompute;
    zero.train = with.train;
    zero.paged = f->paged;
    zero.optim_on_device = f->optim_on_device;
    OK(comm_open(&comm, 0, &err), err);
    given = 0;
    OK(model_new(&model, g->arch, &with, dev, &err), err);
    OK(zero_new(&z, model_params(model), &zero, dev, comm, &err), err);
    assert_int_equal(given, f->all);
    zero_free(z);
    model_free(model);
    comm_close(comm);
}

static struct fit_opts wanted(const struct golden *g, struct device *dev, uint64_t room)
{
    return (struct fit_opts){.arch = g->arch, .dev = dev, .world_size = 1, .model = train,
                             .zero = {.train = true, .chunk = 1024}, .free_bytes = room};
}

TEST(plans_are_exact)
{
    static const enum ckpt_dtype type[] = {CKPT_F32, CKPT_BF16};
    static const enum op_moments kinds[] = {OP_MOMENTS_F32, OP_MOMENTS_BF16, OP_MOMENTS_8BIT};
    struct ckpt_err err = {0};
    struct golden g;

    golden_open(&g, "bloom-a", &train, 1);
    for (int t = 0; t < 2; t++)
        for (int k = 0; k < 3; k++)
            for (int way = 0; way < 4; way++) {
                struct device *dev = open_counting(type[t]);
                struct fit_opts o = wanted(&g, dev, UINT64_MAX);
                struct fit f;

                o.model.train = way != 3;
                o.zero.moments = kinds[k];
                o.zero.offload = way == 1;
                OK(fit_find(&f, &o, &err), err);
                assert_int_equal(given, 0);
                as_planned(&g, dev, &o, &f);
                if (way == 2) {         /* a part of the states on the host */
                    o.zero.paged = true;
                    o.free_bytes = f.all - f.zero.optim / 2;
                    OK(fit_find(&f, &o, &err), err);
                    assert_true(f.paged && f.all <= o.free_bytes);
                    assert_true(f.zero.optim > 0 && f.zero.optim_host > 0);
                    as_planned(&g, dev, &o, &f);
                }
                device_close(dev);
            }
    golden_close(&g);
}

TEST(the_first_that_fits)
{
    struct ckpt_err err = {0};
    struct golden g;
    struct device *dev;
    struct fit_opts o;
    struct fit all, norms, f;

    golden_open(&g, "bloom-a", &train, 1);
    dev = open_counting(CKPT_BF16);
    o = wanted(&g, dev, UINT64_MAX);
    OK(fit_find(&all, &o, &err), err);
    o.model.recompute = RECOMPUTE_NORMS;
    OK(fit_find(&norms, &o, &err), err);
    assert_true(norms.all < all.all);
    o.model.recompute = RECOMPUTE_NONE;
    o.choose = o.zero.paged = true;
    o.free_bytes = all.all;
    OK(fit_find(&f, &o, &err), err);
    assert_true(f.recompute == RECOMPUTE_NONE && !f.paged);
    o.free_bytes = all.all - 1;
    OK(fit_find(&f, &o, &err), err);
    assert_true(f.recompute == RECOMPUTE_NORMS && !f.paged);
    o.free_bytes = norms.all - 1;
    OK(fit_find(&f, &o, &err), err);
    assert_true(f.recompute == RECOMPUTE_NORMS && f.paged && f.all <= o.free_bytes);
    device_close(dev);
    golden_close(&g);
}

/* Figures have two places: each may be off by half of the second. */
static void parts_add_up(const char *text)
{
    double sum = 0, all = strtod(strstr(text, ": ") + 2, NULL);

    for (const char *at = strchr(text, '('); at && *at != ')'; at++)
        if (*at == ' ' && at[1] >= '0' && at[1] <= '9')
            sum += strtod(at, NULL);
    assert_true(fabs(sum - all) < 0.04);
}

TEST(the_parts_of_a_refusal_add_up)
{
    static const struct model_opts wide = {.max_tokens = 8 << 20, .max_docs = 8,
                                           .max_rows = 4 << 20, .train = true};
    struct ckpt_err err = {0};
    struct golden g;
    struct device *dev;
    struct fit_opts o;
    struct fit f, one;

    golden_open(&g, "bloom-a", &train, 1);
    dev = open_counting(CKPT_BF16);
    o = wanted(&g, dev, 1 << 20);
    o.model = wide;
    o.zero.chunk = 1 << 28;             /* a ring and gathered weights that count */
    o.zero.stage = 3;
    o.world_size = 3;
    assert_int_equal(fit_find(&f, &o, &err), CKPT_ENOMEM);
    assert_non_null(strstr(err.text, "gathered "));
    parts_add_up(err.text);
    assert_true(f.zero.weights + f.zero.grads + f.zero.optim + f.zero.ring + f.zero.gathered +
                f.activations + f.workspace == f.all);
    ckpt_err_clear(&err);
    o.batch = 8;
    o.batch_option = "per_device_eval_batch_size";
    o.model.recompute = RECOMPUTE_FULL;
    o.free_bytes = UINT64_MAX;
    OK(fit_find(&f, &o, &err), err);
    o.model.max_tokens /= 8;
    o.model.max_rows /= 8;
    o.model.max_docs = 1;
    OK(fit_find(&one, &o, &err), err);
    o.model = wide;
    o.model.recompute = RECOMPUTE_FULL;
    o.free_bytes = one.all;                   /* one sample fits, two do not */
    assert_int_equal(fit_find(&f, &o, &err), CKPT_ENOMEM);
    assert_non_null(strstr(err.hint, "`per_device_eval_batch_size 1` makes it"));
    ckpt_err_clear(&err);
    o.batch = 1;                        /* there is none smaller */
    assert_int_equal(fit_find(&f, &o, &err), CKPT_ENOMEM);
    assert_null(strstr(err.hint, "batch-size"));
    assert_non_null(strstr(err.hint, "`max_seq_length`"));
    device_close(dev);
    golden_close(&g);
}

TEST(a_refusal_names_what_would_fit)
{
    struct ckpt_err err = {0};
    struct golden g;
    struct device *dev;
    struct fit_opts o;
    struct fit all, full, f;

    golden_open(&g, "bloom-a", &train, 1);
    dev = open_counting(CKPT_BF16);
    o = wanted(&g, dev, UINT64_MAX);
    OK(fit_find(&all, &o, &err), err);
    o.model.recompute = RECOMPUTE_FULL;
    OK(fit_find(&full, &o, &err), err);
    o.model.recompute = RECOMPUTE_NONE;
    o.free_bytes = full.all;
    assert_int_equal(fit_find(&f, &o, &err), CKPT_ENOMEM);
    assert_non_null(strstr(err.text, "GiB are needed (weights"));
    parts_add_up(err.text);
    assert_non_null(strstr(err.hint, "`gradient_checkpointing` makes it"));
    ckpt_err_clear(&err);
    o.free_bytes = all.zero.weights;          /* nothing helps */
    assert_int_equal(fit_find(&f, &o, &err), CKPT_ENOMEM);
    assert_null(strstr(err.hint, "per_device_train_batch_size"));
    assert_non_null(strstr(err.hint, "without any data"));
    ckpt_err_clear(&err);
    o.zero.offload = true;              /* the host is asked too */
    o.free_bytes = UINT64_MAX;
    OK(fit_find(&f, &o, &err), err);
    assert_true(f.zero.optim == 0 && f.zero.optim_host == all.zero.optim);
    assert_true(fit_host_free() > (uint64_t)1 << 20);
    device_close(dev);
    golden_close(&g);
}

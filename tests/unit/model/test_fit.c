/*
 * What a plan says is what is allocated, to the byte; what fits is taken in the order that is
 * promised; a refusal names a way that does fit.
 */
#include "tests/unit/golden_model.h"

#include "trainer/comm/comm.h"
#include "trainer/plan/fit.h"

static const struct model_opts train = {.max_tokens = 64, .max_docs = 4, .max_rows = 64,
                                        .train = true};

/* A CPU device that counts the bytes it allocates. */
static uint64_t given;
static const struct ops *inner;
static struct ops counting;
static struct device *dev;
static struct golden g;
static struct ckpt_err err;

BEFORE_ALL()
{
    golden_open(&g, "bloom-a", &train, 1);
}

AFTER_ALL()
{
    golden_close(&g);
}

BEFORE_EACH()
{
    err = (struct ckpt_err){0};
}

AFTER_EACH()
{
    device_close(dev);
    dev = NULL;
}

static void *count_alloc(struct device *d, size_t bytes)
{
    given += bytes;
    return inner->alloc(d, bytes);
}

/* The options of a run on a fresh device of that type. */
static struct fit_opts open_counting(enum ckpt_dtype weight, uint64_t free_bytes)
{
    device_close(dev);
    OK(device_open_cpu(&dev, 1, &err), err);
    dev->weight = weight;
    inner = dev->ops;
    counting = *inner;
    counting.alloc = count_alloc;
    dev->ops = &counting;
    given = 0;
    return (struct fit_opts){.arch = g.arch, .dev = dev, .world_size = 1, .model = train,
                             .zero = {.train = true, .chunk = 1024}, .free_bytes = free_bytes};
}

static struct fit found(const struct fit_opts *o)
{
    struct fit f;

    OK(fit_find(&f, o, &err), err);
    return f;
}

/* The error text and the hint stay in err. */
static void refused(const struct fit_opts *o)
{
    struct fit f;

    ckpt_err_clear(&err);
    assert_int_equal(fit_find(&f, o, &err), CKPT_ENOMEM);
}

/* The plan's bytes beside those that the model and its states then allocate. */
static void as_planned(const struct fit_opts *o, const struct fit *f)
{
    struct model_opts with = o->model;
    struct zero_opts zero = o->zero;
    struct model *model;
    struct comm *comm;
    struct zero *z;

    with.recompute = f->recompute;
    zero.train = with.train;
    zero.paged = f->paged;
    zero.optim_on_device = f->optim_on_device;
    OK(comm_open(&comm, 0, &err), err);
    given = 0;
    OK(model_new(&model, g.arch, &with, dev, &err), err);
    OK(zero_new(&z, model_params(model), &zero, dev, comm, &err), err);
    assert_int_equal(given, f->all);
    zero_free(z);
    model_free(model);
    comm_close(comm);
}

TEST(plans_are_exact)
{
    static const enum ckpt_dtype type[] = {CKPT_F32, CKPT_BF16};
    static const enum op_moments kinds[] = {OP_MOMENTS_F32, OP_MOMENTS_BF16, OP_MOMENTS_8BIT};

    for (int t = 0; t < 2; t++)
        for (int k = 0; k < 3; k++)
            for (int way = 0; way < 4; way++) {
                struct fit_opts o = open_counting(type[t], UINT64_MAX);
                struct fit f;

                o.model.train = way != 3;
                o.zero.moments = kinds[k];
                o.zero.offload = way == 1;
                f = found(&o);
                assert_int_equal(given, 0);
                as_planned(&o, &f);
                if (way == 2) {         /* a part of the states on the host */
                    o.zero.paged = true;
                    o.free_bytes = f.all - f.zero.optim / 2;
                    f = found(&o);
                    assert_true(f.paged && f.all <= o.free_bytes);
                    assert_true(f.zero.optim > 0 && f.zero.optim_host > 0);
                    as_planned(&o, &f);
                }
            }
}

TEST(the_first_that_fits)
{
    struct fit_opts o = open_counting(CKPT_BF16, UINT64_MAX);
    struct fit all = found(&o), norms, f;

    o.model.recompute = RECOMPUTE_NORMS;
    norms = found(&o);
    assert_true(norms.all < all.all);
    o.model.recompute = RECOMPUTE_NONE;
    o.choose = o.zero.paged = true;
    o.free_bytes = all.all;
    f = found(&o);
    assert_true(f.recompute == RECOMPUTE_NONE && !f.paged);
    o.free_bytes = all.all - 1;
    f = found(&o);
    assert_true(f.recompute == RECOMPUTE_NORMS && !f.paged);
    o.free_bytes = norms.all - 1;
    f = found(&o);
    assert_true(f.recompute == RECOMPUTE_NORMS && f.paged && f.all <= o.free_bytes);
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
    struct fit_opts o = open_counting(CKPT_BF16, 1 << 20);
    struct fit f;

    o.model = wide;
    o.zero.chunk = 1 << 28;             /* a ring and gathered weights that count */
    o.zero.stage = 3;
    o.world_size = 3;
    assert_int_equal(fit_find(&f, &o, &err), CKPT_ENOMEM);
    assert_non_null(strstr(err.text, "gathered "));
    parts_add_up(err.text);
    assert_true(f.zero.weights + f.zero.grads + f.zero.optim + f.zero.ring + f.zero.gathered +
                f.activations + f.workspace == f.all);
    o.batch = 8;
    o.batch_option = "per_device_eval_batch_size";
    o.model.recompute = RECOMPUTE_FULL;
    o.free_bytes = UINT64_MAX;
    found(&o);
    o.model.max_tokens /= 8;
    o.model.max_rows /= 8;
    o.model.max_docs = 1;
    o.free_bytes = found(&o).all;             /* one sample fits, two do not */
    o.model = wide;
    o.model.recompute = RECOMPUTE_FULL;
    refused(&o);
    assert_non_null(strstr(err.hint, "`per_device_eval_batch_size 1` makes it"));
    o.batch = 1;                        /* there is none smaller */
    refused(&o);
    assert_null(strstr(err.hint, "batch-size"));
    assert_non_null(strstr(err.hint, "`max_seq_length`"));
}

TEST(stage_3_keeps_what_there_is_memory_for)
{
    static const struct { bool weights, grads, few; } wanted[] = {
        {true, true, false}, {true, false, false}, {false, true, false}, {false, false, false},
        {false, false, true}};
    struct fit_opts o = open_counting(CKPT_BF16, UINT64_MAX);
    int64_t layers = g.arch->num_hidden_layers;
    uint64_t least = UINT64_MAX;

    g.arch->num_hidden_layers = 12;     /* more than there are slots */
    o.zero.stage = 3;
    o.world_size = 2;
    o.model.ranks = 2;
    o.dev->discrete = true;
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
        struct fit f = found(&o);

        if (i == 2 && !f.keep_grads)    /* of all gradients: more than all weights were */
            continue;
        assert_true(f.keep_weights == wanted[i].weights && f.keep_grads == wanted[i].grads &&
                    f.few == wanted[i].few);
        assert_true(f.all < least);
        least = f.all;
        o.free_bytes = f.all - 1;
    }
    refused(&o);
    o.free_bytes = UINT64_MAX;
    o.reshard = true;
    assert_false(found(&o).keep_weights);
    o.reshard = false;
    o.keep = true;
    assert_true(found(&o).keep_weights);
    o.free_bytes = least;
    refused(&o);
    o.free_bytes = UINT64_MAX;
    o.dev->discrete = false;            /* on the CPU weights are kept on request alone */
    assert_true(found(&o).keep_weights);
    o.keep = false;
    assert_false(found(&o).keep_weights);
    o.keep = true;                      /* one rank gathers nothing */
    o.world_size = 1;
    assert_false(found(&o).keep_weights);
    g.arch->num_hidden_layers = layers;
}

/* Ranks whose weights lie on the host keep nothing on the device, at any stage. */
TEST(weights_on_the_host_of_ranks_keep_nothing)
{
    struct fit_opts o = open_counting(CKPT_BF16, UINT64_MAX);
    int64_t layers = g.arch->num_hidden_layers;

    g.arch->num_hidden_layers = 12;
    o.world_size = 2;
    o.model.ranks = 2;
    o.dev->discrete = true;
    o.model.recompute = RECOMPUTE_FULL;
    o.zero.offload_param = true;
    for (int stage = 1; stage <= 3; stage++) {
        struct fit f, few;

        o.zero.stage = stage;
        o.free_bytes = UINT64_MAX;
        f = found(&o);
        assert_true(!f.keep_weights && !f.keep_grads && !f.few);
        assert_true(f.zero.weights_host > 0 && f.zero.grads_host == 2 * f.zero.weights_host);
        o.free_bytes = f.all - 1;
        few = found(&o);
        assert_true(few.few && few.zero.weights_host == f.zero.weights_host);
        o.free_bytes = few.all - 1;
        refused(&o);
        o.zero.offload_param = false;   /* with all of it on the device there is a hint */
        o.free_bytes = few.all;
        refused(&o);
        assert_non_null(strstr(err.hint, "`offload_param cpu`"));
        o.zero.stage = 0;               /* but without parts there is none */
        refused(&o);
        assert_null(strstr(err.hint, "`offload_param cpu`"));
        o.zero.offload_param = true;
    }
    g.arch->num_hidden_layers = layers;
}

TEST(a_refusal_names_what_would_fit)
{
    struct fit_opts o = open_counting(CKPT_BF16, UINT64_MAX);
    struct fit all = found(&o), f;

    o.model.recompute = RECOMPUTE_FULL;
    o.free_bytes = found(&o).all;
    o.model.recompute = RECOMPUTE_NONE;
    refused(&o);
    assert_non_null(strstr(err.text, "GiB are needed (weights"));
    parts_add_up(err.text);
    assert_non_null(strstr(err.hint, "`gradient_checkpointing` makes it"));
    o.free_bytes = all.zero.weights;          /* nothing helps */
    refused(&o);
    assert_null(strstr(err.hint, "per_device_train_batch_size"));
    assert_non_null(strstr(err.hint, "without any data"));
    o.zero.offload = true;              /* the host is asked too */
    o.free_bytes = UINT64_MAX;
    f = found(&o);
    assert_true(f.zero.optim == 0 && f.zero.optim_host == all.zero.optim);
    assert_true(fit_host_free() > (uint64_t)1 << 20);
}

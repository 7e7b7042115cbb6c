/*
 * What belongs to several ranks, on GPUs' collectives: the same bits wherever weights and gradients
 * lie, in the memory that was planned, and the same random bits however many ranks share moments.
 */
#include "tests/unit/golden_model.h"

#include "tests/unit/rank_threads.h"
#include "trainer/checkpoint/weights.h"
#include "trainer/model/lora.h"
#include "trainer/rng.h"
#include "trainer/shard/zero.h"

enum { STEPS = 2, LOSSES = 2 * STEPS + 1 };

/* What ranks do, and what comes of it. */
struct work {
    struct golden          *g;
    const struct batch     *batch;
    struct model_opts       model;
    struct zero_opts        zero;
    bool                    discrete;
    bool                    filled;     /* gradients are no passes', but numbers */
    float                  *whole[ZERO_EXP_AVG_SQ + 1]; /* where asked for: the model's, together */
    /* of each rank; a test reads rank 0's, and compares them */
    double                  loss[RANK_THREADS][LOSSES], norm[RANK_THREADS][STEPS];
    unsigned char          *states[RANK_THREADS];       /* own weights and moments, f32 */
    size_t                  bytes[RANK_THREADS];
    uint64_t                planned[RANK_THREADS], given[RANK_THREADS], later[RANK_THREADS];
    struct zero_size        size;
    struct ckpt_err         err[RANK_THREADS];
};

static _Thread_local uint64_t given;
static _Thread_local const struct ops *inner;
static _Thread_local struct ops counting;

static void *count_alloc(struct device *dev, size_t bytes)
{
    given += bytes;
    return inner->alloc(dev, bytes);
}

static int fill(void *ctx, size_t i, int64_t start, int64_t count, float *dst,
                struct ckpt_err *err)
{
    (void)ctx;
    (void)err;
    rng_normal(dst, start, count, 0.5f, 3, i);
    return 0;
}

/* Two steps of two passes each, of gradients that differ by rank, and an evaluation. */
static int passes(struct work *w, int rank, struct model *m, struct zero *z, struct ckpt_err *err)
{
    double *loss = w->loss[rank];
    int rc = 0;

    for (int k = 0; rc == 0 && k < STEPS; k++) {
        struct adamw a = {.lr = 1e-2, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8, .step = k + 1,
                          .seed = 5, .verdict = zero_verdict(z)};

        zero_begin(z);
        for (int j = 0; rc == 0 && j < 2; j++) {
            float scale = (float)(rank + 2 * j + 1) * 0.25f / (float)w->batch->n_rows;

            if (j == 1)
                zero_last(z);
            rc = model_loss_grad(m, zero_weights(z), w->batch, scale, &loss[2 * k + j], err);
        }
        zero_reduce(z);
        zero_judge(z, 1.0, 1);
        w->norm[rank][k] = zero_verdict_host(z).norm;
        zero_step(z, &a, 0.1);
    }
    return rc ? rc : model_loss(m, zero_weights(z), w->batch, &loss[LOSSES - 1], NULL, err);
}

/* Steps of gradients that do not depend on ranks. */
static int steps(struct zero *z, struct ckpt_err *err)
{
    int rc = 0;

    for (int k = 1; rc == 0 && k <= STEPS; k++) {
        struct adamw a = {.lr = 1e-2, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .grad_scale = 0.5,
                          .step = k, .seed = 5};

        zero_begin(z);
        rc = zero_fill(z, ZERO_GRAD, fill, NULL, err);
        zero_step(z, &a, 0.1);
    }
    return rc;
}

/* This rank's share of all parameters, each at its place in the model. */
static int keep_whole(struct work *w, struct zero *z, struct ckpt_err *err)
{
    const struct flat *f = zero_flat(z);
    int64_t at = 0;
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < f->params->n; i++) {
        struct flat_piece p = flat_piece(f, i, f->rank);

        for (int of = ZERO_MASTER; rc == 0 && p.count > 0 && of <= ZERO_EXP_AVG_SQ; of++)
            if (w->whole[of])
                rc = zero_read(z, (enum zero_array)of, i, 0, p.count, w->whole[of] + at + p.start,
                               err);
        at += f->params->item[i].numel;
    }
    return rc;
}

static int keep_states(struct work *w, int rank, struct zero *z, struct ckpt_err *err)
{
    const struct flat *f = zero_flat(z);
    size_t at = 0;
    int rc = 0;

    w->bytes[rank] = (size_t)(f->numel + 2 * f->grad_numel) * sizeof(float);
    w->states[rank] = malloc(w->bytes[rank]);
    for (size_t i = 0; rc == 0 && i < f->params->n; i++)
        for (int of = ZERO_MASTER; rc == 0 && of <= ZERO_EXP_AVG_SQ; of++) {
            int64_t n = flat_part(f, i);

            if (of == ZERO_GRAD || (of != ZERO_MASTER && !f->params->item[i].trainable))
                continue;
            rc = zero_read(z, (enum zero_array)of, i, 0, n,
                           (float *)(void *)(w->states[rank] + at), err);
            at += (size_t)n * sizeof(float);
        }
    return rc;
}

/* -- what is gathered of an adapter's model --------------------------------------------------------- */

static _Thread_local const struct comm_ops *inner_comm;
static _Thread_local struct comm_ops counting_comm;
static _Thread_local int64_t moved;     /* elements of each rank */

static void count_gather(struct comm *c, void *dst, const void *src, int64_t n, enum ckpt_dtype t)
{
    moved += n;
    inner_comm->all_gather(c, dst, src, n, t);
}

struct taken { float **of; };           /* [params] */

static int keep_taken(void *ctx, size_t i, int64_t start, int64_t n, const float *from,
                      struct ckpt_err *err)
{
    struct taken *t = ctx;
    float *to = realloc(t->of[i], (size_t)(start + n) * sizeof *to);

    if (!to)
        return ckpt_nomem(err, (size_t)n);
    memcpy(to + start, from, (size_t)n * sizeof *to);
    t->of[i] = to;
    return 0;
}

/* What is saved comes alone, as it is in whole layers. */
static int gather_saved(struct zero *z, struct comm *comm, struct ckpt_err *err)
{
    const struct flat *f = zero_flat(z);
    struct taken taken = {calloc(f->params->n, sizeof(float *))};
    struct weights_taker taker = {keep_taken, &taken};
    int rc;

    inner_comm = comm->ops;
    counting_comm = *inner_comm;
    counting_comm.all_gather = count_gather;
    comm->ops = &counting_comm;
    moved = 0;
    rc = weights_gather_to(z, comm, NULL, (const struct weights_taker *[]){&taker}, 1, err);
    comm->ops = inner_comm;
    if (rc == 0 && moved > f->grad_numel)
        rc = ckpt_fail(err, CKPT_ESTATE, "%lld elements moved, %lld are trained", (long long)moved,
                       (long long)f->grad_numel);
    for (int l = 0; rc == 0 && l < f->params->n_layers; l++) {
        const float *all = zero_master(z, l, err);
        size_t i, end;

        rc = all ? 0 : ckpt_err_code(err);
        for (flat_layer(f, l, &i, &end); rc == 0 && i < end; i++) {
            const struct param *q = &f->params->item[i];

            if (q->trainable != (taken.of[i] != NULL) ||
                (q->trainable && memcmp(taken.of[i], all + q->offset,
                                        (size_t)q->numel * sizeof *all) != 0))
                rc = ckpt_fail(err, CKPT_ESTATE, "%s was not gathered as it is", q->name);
        }
    }
    for (size_t i = 0; i < f->params->n; i++)
        free(taken.of[i]);
    free(taken.of);
    return rc;
}

static void body(struct rank_thread *t)
{
    struct work *w = t->arg;
    struct ckpt_err *err = &w->err[t->rank];
    struct rank_comms comms;
    struct comm *comm = rank_join(&comms, t->world, t->rank);
    struct zero_size *size = t->rank == 0 ? &w->size : &(struct zero_size){0};
    struct model *m = NULL;
    struct zero *z = NULL;
    struct device *dev;
    int rc = device_open_cpu(&dev, 1, err);

    if (rc)
        return;
    dev->weight = CKPT_BF16;
    dev->discrete = w->discrete;
    inner = dev->ops;
    counting = *inner;
    counting.alloc = count_alloc;
    dev->ops = &counting;
    if (w->discrete)
        lazy_streams(dev);
    else
        comm->device = NULL;
    rc = model_new(&m, w->g->arch, &w->model, dev, err);
    given = 0;
    if (rc == 0)
        rc = zero_new(&z, model_params(m), &w->zero, dev, comm, err);
    w->given[t->rank] = given;
    if (rc == 0)
        rc = zero_size(size, model_params(m), &w->zero, t->world->n, dev, err);
    w->planned[t->rank] = size->weights + size->grads + size->optim + size->ring + size->gathered;
    if (rc == 0)
        rc = zero_fill(z, ZERO_MASTER, fill, NULL, err);
    given = 0;
    if (rc == 0)
        rc = w->filled ? steps(z, err) : passes(w, t->rank, m, z, err);
    w->later[t->rank] = given;
    if (rc == 0)
        rc = device_sync(dev, err);
    if (rc == 0)
        rc = keep_states(w, t->rank, z, err);
    if (rc == 0)
        rc = keep_whole(w, z, err);
    if (rc == 0 && w->model.lora)
        rc = gather_saved(z, comm, err);
    zero_free(z);
    model_free(m);
    device_close(dev);
}

static const struct model_opts train = {.max_tokens = 160, .max_docs = 8, .max_rows = 160,
                                        .max_enc = 320, .train = true};

static void run(struct work *w, int ranks)
{
    w->model.ranks = w->zero.stage > 0 ? ranks : 1;
    rank_threads(ranks, body, w);
    for (int r = 0; r < ranks; r++) {
        OK(w->err[r].code, w->err[r]);
        assert_int_equal(w->given[r], w->planned[r]);
        assert_int_equal(w->later[r], 0);
    }
}

static void done(struct work *w)
{
    for (int r = 0; r < RANK_THREADS; r++)
        free(w->states[r]);
}

/* All ranks: the losses, the states, and but for its last bits the norm. */
static void assert_same_work(const struct work *found, const struct work *wanted, const char *what)
{
    for (int r = 0; r < RANK_THREADS; r++) {
        if (memcmp(found->loss[r], wanted->loss[r], sizeof found->loss[r]) != 0)
            fail_msg("%s, rank %d: losses differ", what, r);
        for (int k = 0; found->states[r] && k < STEPS; k++)
            golden_near(found->norm[r][k], wanted->norm[r][k], 1e-12, what);
        assert_int_equal(found->bytes[r], wanted->bytes[r]);
        if (found->bytes[r] && memcmp(found->states[r], wanted->states[r], found->bytes[r]) != 0)
            fail_msg("%s, rank %d: states differ", what, r);
    }
}

/* The same work with weights and gradients on the device and on the host, at any stage above 0. */
static void same_on_host(const struct work *how, int ranks, int stage, const char *what)
{
    struct work want = *how, got = *how;

    run(&want, ranks);
    got.zero.offload_param = true;
    got.zero.stage = stage;
    run(&got, ranks);
    assert_same_work(&got, &want, what);
    assert_int_equal(got.size.optim, 0);
    assert_int_equal(got.size.optim_host, want.size.optim);
    assert_int_equal(got.size.weights_host, want.size.weights);
    assert_true(got.size.grads_host > 0 && got.size.grads_host < want.size.grads);
    done(&got);
    done(&want);
}

/* Every family's order of layers, blocks recomputed or not, two and three ranks, slots enough or
 * few; on CPUs too. */
TEST(weights_on_the_host_of_ranks_change_nothing)
{
    static const char *const names[] = {"bloom-a", "llama-a", "mixtral-a", "t5-v10", "opt-350m",
                                        "opt-bare"};

    for (size_t n = 0; n < sizeof names / sizeof names[0]; n++) {
        struct golden g;
        struct batch b;

        golden_open(&g, names[n], &train, 1);
        golden_batch(&g, "right", &b, NULL);
        for (int t = 0; t < 6; t++) {
            struct work how = {.g = &g, .batch = &b, .model = train, .discrete = t != 4,
                               .zero = {.stage = 3, .train = true, .chunk = 2048,
                                        .few = t / 2 == 2}};

            how.model.recompute = t / 2 == 1 ? RECOMPUTE_FULL : RECOMPUTE_NONE;
            same_on_host(&how, 2 + t % 2, 1 + t % 3, names[n]);
        }
        golden_close(&g);
    }
}

/* Some layers have nothing that is trained. */
TEST(an_adapters_base_on_the_host_of_ranks_changes_nothing)
{
    json_t *config = json_pack("{s:s, s:i, s:i, s:s, s:s}", "peft_type", "LORA", "r", 4,
                               "lora_alpha", 8, "target_modules", "all-linear", "task_type",
                               "CAUSAL_LM");
    struct ckpt_err err = {0};
    struct work how = {.model = train, .discrete = true,
                       .zero = {.stage = 3, .train = true, .chunk = 512}};
    struct lora *lora;
    struct golden g;
    struct batch b;

    golden_open(&g, "bloom-a", &train, 1);
    golden_batch(&g, "right", &b, NULL);
    OK(lora_new(&lora, config, &err), err);
    how.g = &g;
    how.batch = &b;
    how.model.lora = lora;
    for (int stage = 1; stage <= 3; stage++)
        same_on_host(&how, 2 + stage % 2, stage, "an adapter");
    lora_free(lora);
    json_decref(config);
    golden_close(&g);
}

/* Gradients that travel in 16 bits leave as their sums do; and moments of each kind. */
TEST(narrow_gradients_and_moments_leave_alike)
{
    static const enum op_moments kinds[] = {OP_MOMENTS_BF16, OP_MOMENTS_8BIT};
    struct golden g;
    struct batch b;

    golden_open(&g, "bloom-a", &train, 1);
    golden_batch(&g, "right", &b, NULL);
    for (int k = 0; k < 2; k++) {
        struct work how = {.g = &g, .batch = &b, .model = train, .discrete = true,
                           .zero = {.stage = 3, .train = true, .chunk = 512, .moments = kinds[k],
                                    .reduce = k ? CKPT_F32 : CKPT_BF16}};

        same_on_host(&how, 2, 3, k ? "8 bits" : "16 bits");
    }
    golden_close(&g);
}

/* What is drawn for an element is its own, whoever has it: moments in 16 bits are those of one
 * rank. */
TEST(random_bits_do_not_depend_on_ranks)
{
    const int arrays[] = {ZERO_MASTER, ZERO_EXP_AVG, ZERO_EXP_AVG_SQ};
    float *want[ZERO_EXP_AVG_SQ + 1] = {NULL};
    struct golden g;
    size_t bytes;

    golden_open(&g, "bloom-a", &train, 1);
    bytes = (size_t)model_params(g.model)->numel * sizeof(float);
    for (int t = 0; t < 6; t++) {
        struct work w = {.g = &g, .model = train, .discrete = t % 2 == 1, .filled = true,
                         .zero = {.stage = t % 4, .train = true, .chunk = 512,
                                  .moments = OP_MOMENTS_BF16, .offload = t > 3}};

        for (int k = 0; k < 3; k++)
            w.whole[arrays[k]] = calloc(bytes, 1);
        run(&w, 1 + t / 2);
        for (int k = 0; k < 3; k++) {
            int of = arrays[k];

            if (t > 0 && memcmp(w.whole[of], want[of], bytes) != 0)
                fail_msg("array %d differs at stage %d of %d ranks", of, w.zero.stage, 1 + t / 2);
            free(t > 0 ? w.whole[of] : NULL);
            want[of] = t > 0 ? want[of] : w.whole[of];
        }
        done(&w);
    }
    for (int k = 0; k < 3; k++)
        free(want[arrays[k]]);
    golden_close(&g);
}

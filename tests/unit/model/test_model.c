/*
 * Every family against transformers: logits, losses, every gradient, five AdamW steps, with and
 * without recomputing, on one and on several threads.
 */
#include "tests/unit/golden_model.h"

static const struct model_opts train = {.max_tokens = 87, .max_docs = 3, .max_rows = 84,
                                        .max_enc = 300, .train = true};

/*
 * Each supervised row's loss against the recorded logits in f64; the right side's mean also
 * against the recorded loss.  (The left side's counts the step from padding into the first
 * token, whose logits are arbitrary.)
 */
static void check_loss(struct golden *g, const char *side)
{
    struct ckpt_err err = {0};
    struct batch b;
    int32_t *place;
    float nll[128], *logits;
    double sum, again = 0;
    char name[64];
    int64_t V = g->arch->vocab_size, n;

    golden_batch(g, side, &b, &place);
    snprintf(name, sizeof name, "%s.logits", side);
    logits = golden_floats(g, g->expect, name, &n);
    OK(model_loss(g->model, resident_door(g->weights), &b, &sum, nll, &err), err);
    for (int64_t i = 0; i < b.n_rows; i++) {
        const float *z = logits + place[b.rows[i]] * V;
        double total = 0;

        for (int64_t j = 0; j < V; j++)
            total += exp((double)z[j]);
        golden_near((double)nll[i], log(total) - (double)z[b.targets[i]], 1e-5, "a row's loss");
        again += (double)nll[i];
    }
    if (g->arch->router_aux == 0)
        assert_true(again == sum);
    if (strcmp(side, "right") == 0)
        golden_near(sum / (double)b.n_rows, golden_number(g->json, "right.loss"), 1e-6,
                    "right.loss");
}

/* Each tensor's gradient within 2e-5 of its own largest entry. */
static void check_gradients(struct golden *g)
{
    const struct params *p = model_params(g->model);
    struct batch b;
    double norm;

    golden_batch(g, "right", &b, NULL);
    golden_near(golden_mean_grad(g, &b), golden_number(g->json, "right.loss"), 1e-6, "right.loss");
    for (size_t i = 0; i < p->n; i++) {
        char name[160];
        int64_t n;
        const float *wanted;

        snprintf(name, sizeof name, "grad.%s", p->item[i].name);
        wanted = golden_floats(g, g->expect, name, &n);
        golden_close_to(resident_grad(g->weights, i), wanted, n, 2e-5f, name);
    }
    g->dev->ops->sum_squares(g->dev, &norm, resident_grads(g->weights), p->numel);
    golden_near(sqrt(norm), golden_number(g->json, "grad_norm"), 1e-5, "grad_norm");
}

static void each_model(void (*check)(struct golden *g, const void *arg), const void *arg,
                       const struct model_opts *opts, int threads)
{
    for (size_t i = 0; i < GOLDEN_MODELS; i++) {
        struct golden g;

        golden_open(&g, golden_models[i], opts, threads);
        check(&g, arg);
        golden_close(&g);
    }
}

static void passes(struct golden *g, const void *arg)
{
    (void)arg;
    golden_check_logits(g, "right");
    check_loss(g, "right");
    check_gradients(g);
    check_loss(g, "left");
    golden_check_logits(g, "left");
    if (ckpt_source_find(g->expect, "leftpos.logits") != SIZE_MAX)
        golden_check_logits(g, "leftpos");
    if (ckpt_source_find(g->expect, "long.logits") != SIZE_MAX)
        golden_check_logits(g, "long");
}

TEST(model_agrees_with_transformers)
{
    each_model(passes, NULL, &train, 1);
}

TEST(model_agrees_when_blocks_are_recomputed)
{
    struct model_opts opts = train;

    opts.recompute = RECOMPUTE_FULL;
    each_model(passes, NULL, &opts, 1);
    opts.recompute = RECOMPUTE_NORMS;
    each_model(passes, NULL, &opts, 1);
}

TEST(model_agrees_on_any_number_of_threads)
{
    for (int threads = 2; threads <= 7; threads += 5)
        each_model(passes, NULL, &train, threads);
}

static void evaluation(struct golden *g, const void *arg)
{
    struct ckpt_err err = {0};
    struct batch b;
    double sum;

    (void)arg;
    golden_check_logits(g, "right");
    check_loss(g, "left");
    golden_batch(g, "right", &b, NULL);
    assert_int_equal(model_loss_grad(g->model, resident_door(g->weights), &b, 1, &sum, &err),
                     CKPT_ESTATE);
}

TEST(model_agrees_without_a_backward_plan)
{
    struct model_opts opts = train, kept = train;
    uint64_t bytes[3];
    struct golden g;

    opts.train = false;
    each_model(evaluation, NULL, &opts, 2);
    /* The plans shrink in this order: kept, norms recomputed, blocks recomputed, forward only. */
    golden_open(&g, "bloom-a", &opts, 1);
    bytes[0] = model_planned_bytes(g.model);
    golden_close(&g);
    for (int i = 1; i < 3; i++) {
        kept.recompute = i == 1 ? RECOMPUTE_FULL : RECOMPUTE_NORMS;
        golden_open(&g, "bloom-a", &kept, 1);
        bytes[i] = model_planned_bytes(g.model);
        golden_close(&g);
    }
    golden_open(&g, "bloom-a", &train, 1);
    assert_true(bytes[0] < bytes[1] && bytes[1] < bytes[2]);
    assert_true(bytes[2] < model_planned_bytes(g.model));
    golden_close(&g);
}

/* One of the two recorded runs. */
struct adamw_case {
    const char *name;
    bool        groups;             /* no decay on norms and biases */
    double      clip, eps;
};

static double train_step(struct golden *g, const struct batch *b, const struct adamw_case *run,
                         float *moments, int64_t step, double *norm)
{
    const struct params *p = model_params(g->model);
    double loss = golden_mean_grad(g, b);
    struct adamw a = {.lr = 1e-3, .beta1 = 0.9, .beta2 = 0.95, .eps = run->eps, .grad_scale = 1,
                      .step = step};

    g->dev->ops->sum_squares(g->dev, norm, resident_grads(g->weights), p->numel);
    *norm = sqrt(*norm);
    if (run->clip > 0)
        a.grad_scale = fmin(1.0, run->clip / (*norm + 1e-6));
    for (size_t i = 0; i < p->n; i++) {
        int64_t at = resident_weight(g->weights, i) - resident_weights(g->weights);

        struct adamw_run one = {.param = resident_weight(g->weights, i),
                                .exp_avg = moments + at, .exp_avg_sq = moments + p->numel + at,
                                .grad = resident_grad(g->weights, i), .n = p->item[i].numel,
                                .weight_decay = !run->groups || p->item[i].decay ? 0.1 : 0.0};

        g->dev->ops->adamw(g->dev, &one, 1, &a);
    }
    return loss;
}

/* Sums of a final tensor against the recorded ones, 1e-4 relative to the sum of |x|. */
static void check_sums(struct golden *g, const json_t *run, const json_t *skip)
{
    const struct params *p = model_params(g->model);
    const json_t *sums = json_object_get(run, "final_checksums");

    for (size_t i = 0; i < p->n; i++) {
        const json_t *want = json_object_get(sums, p->item[i].name);
        const float *x = resident_weight(g->weights, i);
        double s[4] = {0, 0, 0, 0};
        bool skipped = false;

        for (size_t k = 0; k < json_array_size(skip); k++)
            skipped |= !strcmp(json_string_value(json_array_get(skip, k)), p->item[i].name);
        if (skipped)
            continue;
        for (int64_t j = 0; j < p->item[i].numel; j++) {
            double v = (double)x[j];

            s[0] += v;
            s[1] += fabs(v);
            s[2] += v * v;
            s[3] += v * ((double)((uint32_t)j * 2654435761u) / 4294967296.0 - 0.5);
        }
        for (size_t k = 0; k < 4; k++) {
            double w = json_number_value(json_array_get(want, k));

            if (!(fabs(s[k] - w) <= 1e-4 * s[1]))
                fail_msg("%s: sum %zu is %.10g, wanted %.10g", p->item[i].name, k, s[k], w);
        }
    }
}

static void five_steps(struct golden *g, const void *arg)
{
    const struct adamw_case *run = arg;
    const json_t *want = json_object_get(json_object_get(g->json, "adamw"), run->name);
    const json_t *losses = json_object_get(want, "losses");
    const json_t *norms = json_object_get(want, "grad_norms_before_clip");
    size_t n = (size_t)model_params(g->model)->numel;
    float *moments = ckpt_arena_alloc(&g->arena, 2 * n, sizeof *moments);
    struct batch b;
    double norm;

    golden_batch(g, "right", &b, NULL);
    assert_int_equal(json_array_size(losses), 5);
    for (size_t i = 0; i < 5; i++) {
        double loss = train_step(g, &b, run, moments, (int64_t)i + 1, &norm);

        golden_near(loss, json_number_value(json_array_get(losses, i)), 1e-5, run->name);
        golden_near(norm, json_number_value(json_array_get(norms, i)), 1e-4, "norm");
    }
    golden_near(golden_mean_grad(g, &b), golden_number(want, "loss_after"), 1e-5, "loss_after");
    check_sums(g, want,
               run->groups ? NULL : json_object_get(g->json, "skip_in_eps1e-8_checksums"));
}

TEST(model_trains_as_torch_does)
{
    static const struct adamw_case runs[] = {{"adamw_all_decay_eps1e-8", false, 0, 1e-8},
                                            {"adamw_hf_groups_clip1_eps1e-6", true, 1.0, 1e-6}};

    for (size_t i = 0; i < 2; i++)
        each_model(five_steps, &runs[i], &train, 2);
}

/* Two runs of one pass give the same bits, and gradients are added. */
static void repeatable(struct golden *g, const void *arg)
{
    struct ckpt_err err = {0};
    size_t n = (size_t)model_params(g->model)->numel;
    float *first = ckpt_arena_alloc(&g->arena, n, sizeof *first);
    float *grads = resident_grads(g->weights);
    struct batch b;
    double sum;

    (void)arg;
    golden_batch(g, "right", &b, NULL);
    golden_mean_grad(g, &b);
    memcpy(first, grads, n * sizeof *first);
    golden_mean_grad(g, &b);
    assert_memory_equal(first, grads, n * sizeof *first);
    OK(model_loss_grad(g->model, resident_door(g->weights), &b, 1.0f / (float)b.n_rows, &sum,
                       &err),
       err);
    for (size_t i = 0; i < n; i++)
        if (!(fabsf(grads[i] - 2 * first[i]) <= 1e-5f * fabsf(first[i]) + 1e-6f))
            fail_msg("gradient %zu: %g twice is %g", i, (double)first[i], (double)grads[i]);
}

TEST(model_repeats_bit_for_bit)
{
    each_model(repeatable, NULL, &train, 2);
}

/* An empty batch, and one without supervised rows, still touch every layer in order. */
TEST(model_passes_when_nothing_is_supervised)
{
    struct ckpt_err err = {0};
    struct golden g;
    struct batch b, empty = {.doc_start = (const int32_t[]){0}};
    double sum = 1;
    float *grads;

    golden_open(&g, "bloom-a", &train, 2);
    golden_batch(&g, "right", &b, NULL);
    b.n_rows = 0;
    OK(model_loss_grad(g.model, resident_door(g.weights), &b, 1, &sum, &err), err);
    assert_true(sum == 0);
    OK(model_loss_grad(g.model, resident_door(g.weights), &empty, 1, &sum, &err), err);
    assert_true(sum == 0);
    grads = resident_grads(g.weights);
    for (int64_t i = 0; i < model_params(g.model)->numel; i++)
        assert_true(grads[i] == 0);
    golden_close(&g);
}

TEST(model_refuses_a_batch_that_does_not_fit)
{
    struct ckpt_err err = {0};
    struct golden g;
    struct batch b, bad;
    int32_t wrong[128];
    double sum;

    golden_open(&g, "bloom-a", &train, 1);
    golden_batch(&g, "right", &b, NULL);
#define REFUSED(change)                                                                        \
    do {                                                                                       \
        bad = b;                                                                               \
        change;                                                                                \
        assert_int_equal(model_loss(g.model, resident_door(g.weights), &bad, &sum, NULL, &err),\
                         CKPT_ELIMIT);                                                         \
    } while (0)
    REFUSED(bad.n_tokens = 88);
    REFUSED(bad.n_docs = 4);
    REFUSED(bad.n_rows = 85);
    REFUSED(bad.n_tokens--);
    memcpy(wrong, b.ids, (size_t)b.n_tokens * sizeof *wrong);
    wrong[3] = 261;
    REFUSED(bad.ids = wrong);
    wrong[3] = -1;
    REFUSED(bad.ids = wrong);
    memcpy(wrong, b.rows, (size_t)b.n_rows * sizeof *wrong);
    wrong[1] = wrong[0];
    REFUSED(bad.rows = wrong);
    wrong[b.n_rows - 1] = (int32_t)b.n_tokens;
    REFUSED(bad.rows = wrong);
    memcpy(wrong, b.targets, (size_t)b.n_rows * sizeof *wrong);
    wrong[0] = 261;
    REFUSED(bad.targets = wrong);
    OK(model_loss(g.model, resident_door(g.weights), &b, &sum, NULL, &err), err);
    golden_close(&g);
}

/* A weights provider that checks the brackets. */
struct watch {
    const struct model_weights *inner;
    int held[16], graded[16], done[16], most, now;
};

static const void *watch_acquire(void *ctx, int layer)
{
    struct watch *w = ctx;

    w->held[layer]++;
    w->now++;
    w->most = w->now > w->most ? w->now : w->most;
    return w->inner->acquire(w->inner->ctx, layer);
}

static void watch_release(void *ctx, int layer)
{
    struct watch *w = ctx;

    assert_true(w->held[layer] > 0);
    w->held[layer]--;
    w->now--;
}

static void *watch_grad(void *ctx, int layer)
{
    struct watch *w = ctx;

    assert_int_equal(w->done[layer], 0);
    w->graded[layer]++;
    return w->inner->grad(w->inner->ctx, layer);
}

static void watch_done(void *ctx, int layer)
{
    struct watch *w = ctx;

    assert_true(w->graded[layer] > 0);
    w->done[layer]++;
}

static void brackets(const char *name, int most)
{
    struct ckpt_err err = {0};
    struct golden g;
    struct watch w = {0};
    struct model_weights door = {&w, watch_acquire, watch_release, watch_grad, watch_done, NULL,
                                 false};
    struct batch b;
    double sum;

    golden_open(&g, name, &train, 1);
    w.inner = resident_door(g.weights);
    golden_batch(&g, "right", &b, NULL);
    OK(model_loss_grad(g.model, &door, &b, 1, &sum, &err), err);
    for (int u = 0; u < model_params(g.model)->n_layers; u++) {
        assert_int_equal(w.held[u], 0);
        assert_int_equal(w.done[u], 1);
    }
    assert_int_equal(w.most, most);
    golden_close(&g);
}

TEST(model_brackets_every_unit_when_training)
{
    brackets("bloom-a", 2);             /* the final norm and the tied head */
    brackets("t5-v10", 2);              /* also a block and the first, for its distances */
    brackets("t5-v11", 2);
}

/* Hidden states after every block, both paddings left out. */
static void check_hidden(const char *name, const char *side)
{
    static const struct model_opts opts = {.max_tokens = 39, .max_docs = 3, .max_rows = 1};
    struct ckpt_err err = {0};
    struct golden g;
    int64_t R, C, D, n, *ids, *mask, *types = NULL;
    int32_t id[39], pos[39], kind[39], start[4] = {0}, place[39];
    struct batch b = {.ids = id, .positions = pos, .doc_start = start};
    float found[39 * 36];
    char key[64];

    golden_open(&g, name, &opts, 2);
    D = g.arch->hidden_size;
    ids = golden_ints(&g, side, "input_ids", &R, &C);
    mask = golden_ints(&g, side, "attention_mask", &R, &C);
    if (ckpt_source_find(g.expect, golden_name(key, side, "token_type_ids")) != SIZE_MAX)
        types = golden_ints(&g, side, "token_type_ids", &R, &C);
    for (int64_t i = 0; i < R * C; i++) {
        /* BERT counts padding in front as places, RoBERTa never. */
        if (mask[i]) {
            place[b.n_tokens] = (int32_t)i;
            pos[b.n_tokens] = (int32_t)(g.arch->pos_from_ids ? b.n_tokens - start[i / C] : i % C);
            kind[b.n_tokens] = types ? (int32_t)types[i] : 0;
            id[b.n_tokens++] = (int32_t)ids[i];
        }
        start[i / C + 1] = (int32_t)b.n_tokens;
    }
    b.n_docs = R;
    b.token_type_ids = types ? kind : NULL;
    for (int64_t l = 0; l <= g.arch->num_hidden_layers; l++) {
        OK(model_hidden(g.model, resident_door(g.weights), &b, l, found, &err), err);
        snprintf(key, sizeof key, "%s.hidden.%d", side, (int)l);
        golden_same_rows(found, golden_floats(&g, g.expect, key, &n), place, b.n_tokens, D, key);
    }
    assert_int_equal(model_loss(g.model, resident_door(g.weights), &b, &(double){0}, NULL, &err),
                     CKPT_EUNSUPPORTED);
    assert_int_equal(model_hidden(g.model, resident_door(g.weights), &b, 9, found, &err),
                     CKPT_EUNSUPPORTED);
    golden_close(&g);
}

TEST(encoders_agree_with_transformers)
{
    check_hidden("bert-a", "right");
    check_hidden("bert-a", "left");
    check_hidden("roberta-a", "right");
    check_hidden("roberta-a", "left");
}

/* -- products whose rows differ ------------------------------------------------------------------ */

static const struct ops *own;
static int n_same, n_varying;

static void count_varying(struct device *dev, const struct op_linear *a)
{
    *(dev->varies ? &n_varying : &n_same) += 1;
    own->linear_fwd(dev, a);
}

/* Batches of an evaluation have other sizes each, unless they are full; those of training do not. */
TEST(evaluations_tell_which_passes_differ)
{
    for (int full = 0; full < 2; full++) {
        struct model_opts opts = {.max_tokens = 64, .max_docs = 8, .max_rows = 64, .train = true};
        struct ckpt_err err = {0};
        struct ops watched;
        struct golden g;
        struct batch b;
        double sum;

        golden_open(&g, "bloom-a", &opts, 1);
        golden_batch(&g, "right", &b, NULL);
        if (full) {
            golden_close(&g);
            opts.max_tokens = b.n_tokens;
            golden_open(&g, "bloom-a", &opts, 1);
            golden_batch(&g, "right", &b, NULL);
        }
        own = g.dev->ops;
        watched = *own;
        watched.linear_fwd = count_varying;
        g.dev->ops = &watched;
        n_same = n_varying = 0;
        OK(model_loss(g.model, resident_door(g.weights), &b, &sum, NULL, &err), err);
        assert_true(full ? n_same > 0 && n_varying == 0 : n_varying > 0 && n_same == 0);
        n_same = n_varying = 0;
        OK(model_loss_grad(g.model, resident_door(g.weights), &b, 1, &sum, &err), err);
        assert_true(n_same > 0 && n_varying == 0);
        g.dev->ops = own;
        golden_close(&g);
    }
}

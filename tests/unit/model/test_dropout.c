/*
 * Dropout of whole models: gradients against differences of the loss under the same masks, the
 * same masks on any number of threads and when blocks are recomputed, and for a sample in any batch,
 * others for other keys, none without gradients; the mean over masks; which words make a mask.
 */
#include "tests/unit/golden_model.h"

#include "trainer/model/lora.h"
#include "trainer/rng.h"

static const struct model_opts train = {.max_tokens = 87, .max_docs = 3, .max_rows = 84,
                                        .max_enc = 320, .train = true};

static void everywhere(struct arch *a)
{
    a->hidden_dropout = a->attention_dropout = a->embed_dropout = 0.15;
    a->ff_dropout = a->final_dropout = 0.15;
    a->router_jitter = a->num_experts ? 0.15 : 0;
}

static void lightly(struct arch *a)
{
    a->hidden_dropout = a->attention_dropout = a->embed_dropout = 0.02;
    a->ff_dropout = a->final_dropout = 0.02;
}

/* Along a random direction, a parameter at a time: the loss falls as the gradient says. */
static void check_slopes(struct golden *g, const struct batch *b)
{
    const struct params *p = model_params(g->model);
    float *grads, *kept;
    double norm = 0;

    golden_loss_grad(g, b, 1);
    grads = ckpt_arena_alloc(&g->arena, (size_t)p->grad_numel, sizeof *grads);
    memcpy(grads, resident_grads(g->weights), (size_t)p->grad_numel * sizeof *grads);
    for (int64_t i = 0; i < p->grad_numel; i++)
        norm += (double)grads[i] * (double)grads[i];
    for (size_t i = 0; i < p->n; i++) {
        float *w = resident_weight(g->weights, i);
        int64_t at = resident_grad(g->weights, i) - resident_grads(g->weights);
        int64_t n = p->item[i].numel;
        double along = 0, length = 0, side[2];
        float *way = ckpt_arena_alloc(&g->arena, (size_t)n, sizeof *way);

        kept = ckpt_arena_alloc(&g->arena, (size_t)n, sizeof *kept);
        memcpy(kept, w, (size_t)n * sizeof *w);
        rng_normal(way, 0, n, 1, 3, rng_stream(p->item[i].name));
        for (int64_t j = 0; j < n; j++)
            length += (double)way[j] * (double)way[j];
        for (int64_t j = 0; j < n; j++)
            along += (double)(way[j] * grads[at + j]) / sqrt(length);
        for (int s = 0; s < 2; s++) {
            for (int64_t j = 0; j < n; j++)
                w[j] = kept[j] + (float)((s ? 4e-3 : -4e-3) / sqrt(length)) * way[j];
            side[s] = golden_loss_grad(g, b, 1);
        }
        memcpy(w, kept, (size_t)n * sizeof *w);
        along -= (side[1] - side[0]) / 8e-3;
        if (!(fabs(along) <= 1e-3 * sqrt(norm) + 1e-2))
            fail_msg("%s: off by %g along a direction, the gradient's length is %g",
                     p->item[i].name, along, sqrt(norm));
    }
}

TEST(gradients_are_those_of_the_loss_under_the_same_masks)
{
    static const char *const models[] = {"bloom-a", "opt-350m", "opt-bare", "gpt2-a", "llama-a", "phi3-a",
                                         "mixtral-a", "t5-v10", "t5-v11"};

    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++) {
        struct golden g;
        struct batch b;

        golden_open_as(&g, models[i], &train, 2, everywhere);
        golden_batch(&g, "right", &b, NULL);
        model_drop_key(g.model, 11, 5);
        check_slopes(&g, &b);
        golden_close(&g);
    }
}

static const struct model_opts noisy = {.max_tokens = 87, .max_docs = 3, .max_rows = 84,
                                        .max_enc = 320, .train = true, .neftune_alpha = 20,
                                        .label_smoothing = 0.1, .z_loss = 1e-3};

static void as_it_is(struct arch *a) { (void)a; }

TEST(gradients_are_those_of_the_loss_with_noise)
{
    static const char *const models[] = {"bloom-a", "opt-350m", "gpt2-a", "llama-a", "t5-v11"};

    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++) {
        struct golden g;
        struct batch b;

        golden_open_as(&g, models[i], &noisy, 2, as_it_is);
        golden_batch(&g, "right", &b, NULL);
        model_noise_key(g.model, 11, 5);
        check_slopes(&g, &b);
        golden_close(&g);
    }
}

/* Document d of a batch alone. */
static struct batch one_of(struct golden *g, const struct batch *b, int64_t d)
{
    int32_t from = b->doc_start[d], end = b->doc_start[d + 1], *p;
    struct batch one = {.n_docs = 1, .n_tokens = end - from, .ids = b->ids + from,
                        .positions = b->positions + from};
    int32_t *start = ckpt_arena_alloc(&g->arena, 2, sizeof *start);
    int64_t k = 0;

    p = ckpt_arena_alloc(&g->arena, (size_t)b->n_rows, sizeof *p);
    while (k < b->n_rows && b->rows[k] < from)
        k++;
    one.targets = b->targets + k;
    for (; k < b->n_rows && b->rows[k] < end; k++)
        p[one.n_rows++] = b->rows[k] - from;
    start[1] = end - from;
    one.doc_start = start;
    one.rows = p;
    return one;
}

/* A document's noise is its own, in whatever batch it is; another for another seed and step, and
 * none without gradients. */
TEST(noise_is_the_documents)
{
    static const char *const models[] = {"bloom-a", "gpt2-a", "llama-a"};

    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++) {
        double together, separate = 0, other[2], plain;
        struct ckpt_err err = {0};
        struct golden g;
        struct batch b;

        golden_open_as(&g, models[i], &noisy, 2, as_it_is);
        golden_batch(&g, "right", &b, NULL);
        assert_true(b.n_docs > 1);
        model_noise_key(g.model, 11, 5);
        together = golden_loss_grad(&g, &b, 1);
        for (int64_t d = b.n_docs - 1; d >= 0; d--) {
            struct batch one = one_of(&g, &b, d);

            separate += golden_loss_grad(&g, &one, 1);
        }
        assert_true(fabs(together - separate) <= 1e-5 * fabs(together));
        for (int k = 0; k < 2; k++) {
            model_noise_key(g.model, k ? 11 : 12, k ? 6 : 5);
            other[k] = golden_loss_grad(&g, &b, 1);
            assert_true(fabs(other[k] - together) > 1e-3);
        }
        OK(model_loss(g.model, resident_door(g.weights), &b, &plain, NULL, &err), err);
        assert_true(fabs(plain - together) > 1e-3);
        golden_close(&g);
    }
}

/* Gradients of one pass, in the arena. */
static float *grads_of(struct golden *g, uint64_t seed, uint64_t step, double *loss)
{
    size_t n = (size_t)model_params(g->model)->grad_numel;
    float *out = ckpt_arena_alloc(&g->arena, n, sizeof *out);
    struct batch b;

    golden_batch(g, "right", &b, NULL);
    model_drop_key(g->model, seed, step);
    *loss = golden_loss_grad(g, &b, 1);
    memcpy(out, resident_grads(g->weights), n * sizeof *out);
    return out;
}

TEST(masks_are_those_of_their_key)
{
    static const char *const models[] = {"gpt2-a", "opt-350m", "t5-v11", "mixtral-a"};

    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++) {
        struct model_opts again = train;
        struct golden g[3];
        double loss[5], plain;
        float *grad[3];
        size_t bytes;
        struct ckpt_err err = {0};
        struct batch b;

        again.recompute = i % 2 ? RECOMPUTE_NORMS : RECOMPUTE_FULL;
        golden_open_as(&g[0], models[i], &train, 1, everywhere);
        golden_open_as(&g[1], models[i], &again, 1, everywhere);
        golden_open_as(&g[2], models[i], &train, 5, everywhere);
        bytes = (size_t)model_params(g[0].model)->grad_numel * sizeof(float);
        for (int k = 0; k < 3; k++)
            grad[k] = grads_of(&g[k], 11, 7, &loss[k]);
        assert_true(loss[0] == loss[1]);
        assert_memory_equal(grad[0], grad[1], bytes);
        assert_true(fabs(loss[0] - loss[2]) <= 1e-5 * fabs(loss[0]));
        grads_of(&g[0], 12, 7, &loss[3]);
        grads_of(&g[0], 11, 8, &loss[4]);
        assert_true(fabs(loss[3] - loss[0]) > 1e-4 && fabs(loss[4] - loss[0]) > 1e-4);
        assert_memory_equal(grads_of(&g[0], 11, 7, &loss[3]), grad[0], bytes);
        golden_batch(&g[0], "right", &b, NULL);
        OK(model_loss(g[0].model, resident_door(g[0].weights), &b, &plain, NULL, &err), err);
        assert_true(fabs(plain / (double)b.n_rows -
                         golden_number(g[0].json, "right.loss")) < 1e-4);
        for (int k = 0; k < 3; k++)
            golden_close(&g[k]);
    }
}

/* A batch of the documents of another's, in some order: sample k is document k modulo their
 * number. */
struct part {
    int32_t ids[200], positions[200], start[4], rows[200], targets[200], enc_ids[500], enc_start[4];
    int64_t samples[3];
    struct batch b;
};

static void take(struct part *p, const struct batch *all, const int *sample, int n)
{
    struct batch *b = &p->b;

    *b = (struct batch){.ids = p->ids, .positions = p->positions, .doc_start = p->start,
                        .rows = p->rows, .targets = p->targets, .samples = p->samples,
                        .enc_ids = p->enc_ids, .enc_start = p->enc_start};
    for (int k = 0; k < n; k++) {
        int64_t doc = sample[k] % all->n_docs;
        int32_t from = all->doc_start[doc], to = all->doc_start[doc + 1];

        for (int64_t r = 0; r < all->n_rows; r++)
            if (all->rows[r] >= from && all->rows[r] < to) {
                p->rows[b->n_rows] = all->rows[r] - from + (int32_t)b->n_tokens;
                p->targets[b->n_rows++] = all->targets[r];
            }
        p->samples[k] = sample[k];
        p->start[k] = (int32_t)b->n_tokens;
        for (int32_t i = from; i < to; i++) {
            p->ids[b->n_tokens] = all->ids[i];
            p->positions[b->n_tokens++] = all->positions[i];
        }
        p->enc_start[k] = (int32_t)b->n_enc;
        for (int32_t i = all->n_enc ? all->enc_start[doc] : 0;
             all->n_enc && i < all->enc_start[doc + 1]; i++)
            p->enc_ids[b->n_enc++] = all->enc_ids[i];
    }
    b->n_docs = n;
    p->start[n] = (int32_t)b->n_tokens;
    p->enc_start[n] = (int32_t)b->n_enc;
}

/* LoRA beside every matrix. */
static struct lora *lora_everywhere(double dropout)
{
    struct ckpt_err err = {0};
    struct lora *lora;
    json_t *config = json_pack("{s:s, s:i, s:i, s:s, s:f}", "peft_type", "LORA", "r", 4,
                               "lora_alpha", 4, "target_modules", "all-linear", "lora_dropout",
                               dropout);

    OK(lora_new(&lora, config, &err), err);
    json_decref(config);
    return lora;
}

/* Nothing of an adapter stays at zero. */
static void fill_adapter(struct golden *g)
{
    const struct params *p = model_params(g->model);

    for (size_t i = 0; i < p->n; i++)
        if (p->item[i].kind != PARAM_BASE)
            rng_normal(resident_weight(g->weights, i), 0, p->item[i].numel, 0.1f, 4,
                       rng_stream(p->item[i].name));
}

/* Loss and gradients of those samples, as parts that follow each other. */
static float *grads_by_parts(struct golden *g, const struct batch *all, const int parts[3][3],
                             double *loss)
{
    size_t n = (size_t)model_params(g->model)->grad_numel;
    float *sum = ckpt_arena_alloc(&g->arena, n, sizeof *sum);

    *loss = 0;
    for (int i = 0; i < 3 && parts[i][0] >= 0; i++) {
        struct part p;
        int k = 0;

        while (k < 3 && parts[i][k] >= 0)
            k++;
        take(&p, all, parts[i], k);
        *loss += golden_loss_grad(g, &p.b, 1);
        for (size_t j = 0; j < n; j++)
            sum[j] += resident_grads(g->weights)[j];
    }
    return sum;
}

/* Samples together, one by one, and together in another order; with LoRA's dropout too, and beside
 * an encoder. */
TEST(a_sample_has_its_masks_in_any_batch)
{
    static const char *const models[] = {"gpt2-a", "opt-350m", "bloom-a", "phi3-a", "mixtral-a",
                                         "t5-v10", "t5-v11"};
    static const int ways[][3][3] = {{{0, 1, 2}, {-1}}, {{0, -1}, {1, -1}, {2, -1}},
                                     {{2, 0, 1}, {-1}}, {{1, -1}, {2, 0, -1}, {-1}}};

    for (size_t i = 0; i < 2 * sizeof models / sizeof models[0]; i++) {
        struct model_opts opts = train;
        struct golden g;
        struct batch b;
        struct lora *lora = i % 2 ? lora_everywhere(0.2) : NULL;
        double loss, other;
        float *grad;

        opts.lora = lora;
        opts.max_tokens = opts.max_rows = 200;
        opts.max_enc = 500;
        golden_open_as(&g, models[i / 2], &opts, 2, everywhere);
        fill_adapter(&g);
        golden_batch(&g, "right", &b, NULL);
        model_drop_key(g.model, 11, 5);
        grad = grads_by_parts(&g, &b, ways[0], &loss);
        for (int w = 1; w < 4; w++) {
            float *again = grads_by_parts(&g, &b, ways[w], &other), most = 0, off = 0;

            for (int64_t j = 0; j < model_params(g.model)->grad_numel; j++) {
                most = fmaxf(most, fabsf(grad[j]));
                off = fmaxf(off, fabsf(grad[j] - again[j]));
            }
            if (!(fabs(other - loss) <= 1e-6 * fabs(loss)) || !(off <= 2e-5f * most))
                fail_msg("%s%s, way %d: loss %.9g, %.9g together; gradients differ by %g of %g",
                         models[i / 2], lora ? " with LoRA" : "", w, other, loss, (double)off,
                         (double)most);
        }
        golden_close(&g);
        lora_free(lora);
    }
}

/* Lightly dropped out, the mean loss over many masks is near the loss without. */
TEST(the_mean_over_masks_is_near_the_loss_without)
{
    struct golden g;
    double sum = 0, loss, wanted;

    golden_open_as(&g, "gpt2-a", &train, 1, lightly);
    wanted = golden_number(g.json, "right.loss");
    for (uint64_t k = 0; k < 200; k++) {
        struct batch b;

        golden_batch(&g, "right", &b, NULL);
        model_drop_key(g.model, 11, k);
        loss = golden_loss_grad(&g, &b, 1) / (double)b.n_rows;
        assert_true(fabs(loss - wanted) < 0.25 * wanted);
        sum += loss;
    }
    assert_true(fabs(sum / 200 - wanted) < 0.02 * wanted);
    golden_close(&g);
}

/* The words of a column, by the numbers of its row: each has a part of the counter of its own. */
static void words_of(uint32_t w[4], const struct op_drop *d, int64_t row, int64_t col,
                     uint32_t head)
{
    uint64_t sample = d->rows[row] >> 32, at = d->rows[row] & 0xffffffff;

    rng_words(w, d->seed, sample << 32 | (d->stream + (head << 20)),
              at << 32 | (uint64_t)(col / 4));
}

/* Each probability of one key is 1, of which dropout keeps by head, query and sample: the columns
 * of out show which are kept, since values are unit vectors. */
TEST(a_head_drops_by_the_words)
{
    enum { DOCS = 3, N = 21, H = 3, D = 8 };
    static const int32_t start[DOCS + 1] = {0, 8, 13, N};
    static float in[N * 3 * H * D], out[N * H * D], lse[H * N], work[1 << 16];
    struct device *dev = cpu_device(2);
    uint64_t rows[N];
    struct op_attention a = {
        .out = out, .lse = lse, .in = {.q = in, .k = in + H * D, .v = in + 2 * H * D,
                                       .row_stride = 3 * H * D, .q_head = D, .kv_head = D},
        .doc_start = start, .n = N, .n_docs = DOCS, .max_doc = 8, .n_head = H, .n_kv = H, .dim = D,
        .scale = 1, .whole = true, .drop = {0.5, 77, 12, rows},
    };

    dev->work = work;
    dev->work_bytes = sizeof work;
    for (int d = 0; d < DOCS; d++)
        for (int i = start[d]; i < start[d + 1]; i++) {
            rows[i] = op_drop_row(1000000 * d + 5, i - start[d]);
            for (int h = 0; h < H; h++)     /* all scores are 0, the value of key j is e_j */
                in[i * 3 * H * D + 2 * H * D + h * D + i - start[d]] = 1;
        }
    dev->ops->attention_fwd(dev, &a);
    for (int d = 0; d < DOCS; d++)
        for (int i = start[d]; i < start[d + 1]; i++)
            for (int h = 0; h < H; h++)
                for (int j = 0; j < start[d + 1] - start[d]; j++) {
                    float share = 2.0f / (float)(start[d + 1] - start[d]), got;
                    uint32_t w[4];

                    words_of(w, &a.drop, i, j, (uint32_t)h);
                    got = out[(i * H + h) * D + j];
                    if (!(fabsf(got - (w[j % 4] >> 31 ? share : 0)) < 1e-6f))
                        fail_msg("row %d, head %d, key %d: %g, a share is %g", i, h, j,
                                 (double)got, (double)share);
                }
    device_close(dev);
}

/* The factor of element (i, j) by the words themselves, in columns beyond one block of them. */
TEST(noise_is_uniform_by_the_words)
{
    enum { N = 3, W = 301 };
    const uint64_t rows[N] = {op_drop_row(3, 1), op_drop_row(0, 0), op_drop_row(-1, 1 << 29)};
    const struct op_drop by = {.p = 0.25f, .seed = 5, .stream = 9, .rows = rows};
    struct device *dev[2];
    float x[2][N * W], low = 2, high = 0;

    for (int d = 0; d < 2; d++) {
        dev[d] = cpu_device(d ? 3 : 1);
        for (int i = 0; i < N * W; i++)
            x[d][i] = i % 2 ? 1.0f : -4.0f;
        dev[d]->ops->jitter(dev[d], x[d], N, W, &by);
        device_close(dev[d]);
    }
    assert_memory_equal(x[0], x[1], sizeof x[0]);
    for (int i = 0; i < N * W; i++) {
        uint32_t w[4];
        float was = i % 2 ? 1.0f : -4.0f, factor = x[0][i] / was;
        double u;

        words_of(w, &by, i / W, i % W, 0);
        u = (double)(w[i % W % 4] >> 8) * 0x1p-24;
        assert_true(fabs((double)factor - (1 + 0.25 * (2 * u - 1))) < 2e-7);
        low = factor < low ? factor : low;
        high = factor > high ? factor : high;
    }
    assert_true(low >= 0.75f && low < 0.76f && high < 1.25f && high > 1.24f);
}

/* What stays is multiplied by 1 / (1 - p), rounded once: 1 - p of a float near 1 has few digits. */
TEST(what_stays_is_scaled_as_torch_does)
{
    enum { N = 64, W = 1024 };
    uint64_t rows[N];
    const struct op_drop by = {.p = 0.999, .seed = 5, .stream = 9, .rows = rows};
    static float x[N * W];
    struct device *dev = cpu_device(1);
    int kept = 0;

    for (int i = 0; i < N; i++)
        rows[i] = op_drop_row(100 - i, 3 * i);
    for (int i = 0; i < N * W; i++)
        x[i] = 1;
    dev->ops->drop(dev, x, N, W, &by);
    for (int i = 0; i < N * W; i++) {
        uint32_t w[4];

        words_of(w, &by, i / W, i % W, 0);
        assert_true((x[i] != 0) == (w[i % 4] >= (uint32_t)(0.999 * 0x1p32)));
        if (x[i] != 0 && x[i] != (float)(1 / (1 - 0.999)))
            fail_msg("scale %.9g, torch's %.9g", (double)x[i], 1 / (1 - 0.999));
        kept += x[i] != 0;
    }
    assert_true(kept > 30 && kept < 110);
    device_close(dev);
}

/*
 * Dropout of whole models: gradients against differences of the loss under the same masks, the
 * same masks on any number of threads and when blocks are recomputed, others for other keys, none
 * without gradients; the mean over masks.
 */
#include "tests/unit/golden_model.h"

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
        model_drop_key(g.model, 11, 0, 5);
        check_slopes(&g, &b);
        golden_close(&g);
    }
}

/* Gradients of one pass, in the arena. */
static float *grads_of(struct golden *g, int rank, uint64_t number, double *loss)
{
    size_t n = (size_t)model_params(g->model)->grad_numel;
    float *out = ckpt_arena_alloc(&g->arena, n, sizeof *out);
    struct batch b;

    golden_batch(g, "right", &b, NULL);
    model_drop_key(g->model, 11, rank, number);
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
            grad[k] = grads_of(&g[k], 0, 7, &loss[k]);
        assert_true(loss[0] == loss[1]);
        assert_memory_equal(grad[0], grad[1], bytes);
        assert_true(fabs(loss[0] - loss[2]) <= 1e-5 * fabs(loss[0]));
        grads_of(&g[0], 1, 7, &loss[3]);
        grads_of(&g[0], 0, 8, &loss[4]);
        assert_true(fabs(loss[3] - loss[0]) > 1e-4 && fabs(loss[4] - loss[0]) > 1e-4);
        assert_memory_equal(grads_of(&g[0], 0, 7, &loss[3]), grad[0], bytes);
        golden_batch(&g[0], "right", &b, NULL);
        OK(model_loss(g[0].model, resident_door(g[0].weights), &b, &plain, NULL, &err), err);
        assert_true(fabs(plain / (double)b.n_rows -
                         golden_number(g[0].json, "right.loss")) < 1e-4);
        for (int k = 0; k < 3; k++)
            golden_close(&g[k]);
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
        model_drop_key(g.model, 11, 0, k);
        loss = golden_loss_grad(&g, &b, 1) / (double)b.n_rows;
        assert_true(fabs(loss - wanted) < 0.25 * wanted);
        sum += loss;
    }
    assert_true(fabs(sum / 200 - wanted) < 0.02 * wanted);
    golden_close(&g);
}

/* The factor of element (i, j) by the words themselves, in columns beyond one block of them. */
TEST(noise_is_uniform_by_the_words)
{
    enum { N = 3, W = 301 };
    const struct op_drop by = {.p = 0.25f, .seed = 5, .stream = 9};
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

        rng_words(w, 5, 9, (uint64_t)(i / W * ((W + 3) / 4) + i % W / 4));
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
    const struct op_drop by = {.p = 0.999, .seed = 5, .stream = 9};
    static float x[N * W];
    struct device *dev = cpu_device(1);
    int kept = 0;

    for (int i = 0; i < N * W; i++)
        x[i] = 1;
    dev->ops->drop(dev, x, N, W, &by);
    for (int i = 0; i < N * W; i++) {
        uint32_t w[4];

        rng_words(w, 5, 9, (uint64_t)(i / W * (W / 4) + i % W / 4));
        assert_true((x[i] != 0) == (w[i % 4] >= (uint32_t)(0.999 * 0x1p32)));
        if (x[i] != 0 && x[i] != (float)(1 / (1 - 0.999)))
            fail_msg("scale %.9g, torch's %.9g", (double)x[i], 1 / (1 - 0.999));
        kept += x[i] != 0;
    }
    assert_true(kept > 30 && kept < 110);
    device_close(dev);
}

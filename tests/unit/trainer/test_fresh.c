/*
 * Gradients that the first pass of a step writes instead of adding them to zeros: the same as
 * those that are added, with accumulation, tied heads, adapters and steps without a pass.
 */
#include "tests/unit/golden_model.h"

#include "trainer/comm/comm.h"
#include "trainer/model/lora.h"
#include "trainer/shard/zero.h"

static const struct model_opts train = {.max_tokens = 160, .max_docs = 8, .max_rows = 160,
                                        .max_enc = 320, .train = true};

/* A model whose gradients are added to zeros by one door, and written by another. */
struct two {
    struct model    *model;
    struct resident *added;
    struct zero     *written;
    struct batch     batch;
};

static int fill(void *ctx, size_t i, int64_t start, int64_t count, float *dst,
                struct ckpt_err *err)
{
    struct two *t = ctx;

    (void)err;
    memcpy(dst, resident_weight(t->added, i) + start, (size_t)count * sizeof *dst);
    return 0;
}

/* After so many passes over the batch, the last without supervised rows when that is asked. */
static void same_grads(struct two *t, int passes, bool empty)
{
    struct ckpt_err err = {0};
    int64_t n = model_params(t->model)->grad_numel;
    float *want = resident_grads(t->added), *got = zero_grads(t->written);
    struct batch b = t->batch;
    double sum;

    memset(want, 0, (size_t)n * sizeof *want);
    for (int64_t i = 0; i < n; i++)
        got[i] = NAN;
    zero_begin(t->written);
    for (int i = 0; i < passes; i++) {
        b.n_rows = empty && i == passes - 1 ? 0 : b.n_rows;
        OK(model_loss_grad(t->model, resident_door(t->added), &b, 0.5f, &sum, &err), err);
        OK(model_loss_grad(t->model, zero_weights(t->written), &b, 0.5f, &sum, &err), err);
    }
    zero_reduce(t->written);
    for (int64_t i = 0; i < n; i++)
        if (memcmp(&want[i], &got[i], sizeof *want) != 0 && !(want[i] == 0 && got[i] == 0))
            fail_msg("gradient %lld after %d passes is %.9g, wanted %.9g", (long long)i, passes,
                     (double)got[i], (double)want[i]);
}

static void check(struct two *t, struct device *dev)
{
    struct zero_opts opts = {.train = true};
    struct ckpt_err err = {0};
    struct comm *comm;

    OK(comm_open(&comm, 0, &err), err);
    OK(zero_new(&t->written, model_params(t->model), &opts, dev, comm, &err), err);
    OK(zero_fill(t->written, ZERO_MASTER, fill, t, &err), err);
    same_grads(t, 1, false);
    same_grads(t, 3, false);
    same_grads(t, 1, true);
    same_grads(t, 2, true);
    same_grads(t, 0, false);
    zero_free(t->written);
    comm_close(comm);
}

TEST(written_gradients_are_those_added_to_zeros)
{
    static const char *const models[] = {"bloom-a", "opt-350m", "opt-a", "opt-bare", "gpt2-a", "llama-a",
                                         "qwen3-a", "phi3-a", "mixtral-a", "t5-v10", "t5-v11"};

    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++) {
        struct golden g;
        struct two t;

        golden_open(&g, models[i], &train, 1);
        golden_batch(&g, "right", &t.batch, NULL);
        t.model = g.model;
        t.added = g.weights;
        check(&t, g.dev);
        golden_close(&g);
    }
}

/* Matrices beside changes that are trained whole: a tied embedding, a head, a projection. */
TEST(adapters_write_what_is_trained_whole)
{
    static const struct {
        const char *model, *config;
    } some[] = {
        {"bloom-a", "{\"peft_type\": \"LORA\", \"r\": 4, \"lora_alpha\": 8, "
                    "\"target_modules\": [\"query_key_value\"], "
                    "\"modules_to_save\": [\"word_embeddings\", \"dense_h_to_4h\"]}"},
        {"llama-a", "{\"peft_type\": \"LORA\", \"r\": 4, \"lora_alpha\": 8, \"bias\": \"all\", "
                    "\"target_modules\": [\"q_proj\", \"up_proj\"], "
                    "\"modules_to_save\": [\"lm_head\", \"down_proj\"]}"},
    };

    for (size_t i = 0; i < sizeof some / sizeof some[0]; i++) {
        json_t *config = json_loads(some[i].config, 0, NULL);
        struct model_opts opts = train;
        struct ckpt_err err = {0};
        struct lora *lora;
        struct golden g;
        struct two t;

        golden_open(&g, some[i].model, &train, 1);
        golden_batch(&g, "right", &t.batch, NULL);
        OK(lora_new(&lora, config, &err), err);
        opts.lora = lora;
        OK(model_new(&t.model, g.arch, &opts, g.dev, &err), err);
        OK(resident_new(&t.added, model_params(t.model), true, g.dev, &err), err);
        for (int64_t j = 0; j < model_params(t.model)->numel; j++)
            resident_weights(t.added)[j] = (float)(j * 7919 % 2003 - 1001) * 1e-4f;
        check(&t, g.dev);
        resident_free(t.added);
        model_free(t.model);
        lora_free(lora);
        json_decref(config);
        golden_close(&g);
    }
}

/*
 * Gradients that the first pass of a step writes instead of adding them to zeros: the same as
 * those that are added, with accumulation, tied heads, adapters and steps without a pass.
 */
#include "tests/unit/golden_model.h"

#include "trainer/comm/comm.h"
#include "trainer/shard/zero.h"

static const struct model_opts train = {.max_tokens = 160, .max_docs = 8, .max_rows = 160,
                                        .max_enc = 320, .train = true};

static int fill(void *ctx, size_t i, int64_t start, int64_t count, float *dst,
                struct ckpt_err *err)
{
    struct golden *g = ctx;

    (void)err;
    memcpy(dst, resident_weight(g->weights, i) + start, (size_t)count * sizeof *dst);
    return 0;
}

static void poison(struct zero *z)
{
    for (int64_t i = 0; i < zero_flat(z)->grad_numel; i++)
        zero_grads(z)[i] = NAN;
}

/* After so many passes over the batch, the last without supervised rows when that is asked. */
static void same_grads(struct golden *g, struct zero *z, struct batch b, int passes, bool empty)
{
    struct ckpt_err err = {0};
    int64_t n = model_params(g->model)->grad_numel;
    const float *want = resident_grads(g->weights), *got = zero_grads(z);
    double sum;

    memset(resident_grads(g->weights), 0, (size_t)n * sizeof *want);
    poison(z);
    zero_begin(z);
    for (int i = 0; i < passes; i++) {
        b.n_rows = empty && i == passes - 1 ? 0 : b.n_rows;
        OK(model_loss_grad(g->model, resident_door(g->weights), &b, 0.5f, &sum, &err), err);
        OK(model_loss_grad(g->model, zero_weights(z), &b, 0.5f, &sum, &err), err);
    }
    zero_reduce(z);
    for (int64_t i = 0; i < n; i++)
        if (memcmp(&want[i], &got[i], sizeof *want) != 0 && !(want[i] == 0 && got[i] == 0))
            fail_msg("gradient %lld after %d passes is %.9g, wanted %.9g", (long long)i, passes,
                     (double)got[i], (double)want[i]);
}

static void check_model(const char *name, struct comm *comm)
{
    struct ckpt_err err = {0};
    struct zero_opts opts = {.train = true};
    struct golden g;
    struct zero *z;
    int32_t *place;
    struct batch b;

    golden_open(&g, name, &train, 1);
    OK(zero_new(&z, model_params(g.model), &opts, g.dev, comm, &err), err);
    OK(zero_fill(z, ZERO_MASTER, fill, &g, &err), err);
    golden_batch(&g, "right", &b, &place);
    same_grads(&g, z, b, 1, false);
    same_grads(&g, z, b, 3, false);
    same_grads(&g, z, b, 1, true);
    same_grads(&g, z, b, 2, true);
    same_grads(&g, z, b, 0, false);
    zero_free(z);
    golden_close(&g);
}

static void test_written_gradients_are_those_added_to_zeros(void **state)
{
    static const char *const models[] = {"bloom-a", "opt-350m", "opt-a", "gpt2-a", "llama-a",
                                         "qwen3-a", "phi3-a", "mixtral-a", "t5-v10", "t5-v11"};
    struct ckpt_err err = {0};
    struct comm *comm;

    (void)state;
    OK(comm_open(&comm, &err), err);
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++)
        check_model(models[i], comm);
    comm_close(comm);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_written_gradients_are_those_added_to_zeros),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

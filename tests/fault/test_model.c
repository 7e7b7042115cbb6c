/*
 * A model, its weights, a training pass and a generation, with the n-th allocation failing, for
 * every n there is: a clean error naming the bytes, everything released (asan tells), and a
 * pass that allocates nothing.
 */
#include "tests/unit/model_help.h"
#include "tests/unit/faults.h"

#include "trainer/model/generate/generate.h"
#include "trainer/model/init.h"
#include "trainer/model/resident.h"

static const char config[] = "{\"model_type\":\"bloom\",\"vocab_size\":17,\"hidden_size\":8,"
                             "\"n_head\":2,\"n_layer\":2}";
static const int32_t ids[] = {3, 4, 5, 6}, positions[] = {0, 1, 2, 3}, start[] = {0, 4},
                     rows[] = {0, 1, 2}, targets[] = {4, 5, 6};
static const struct batch batch = {.n_tokens = 4, .n_docs = 1, .n_rows = 3, .ids = ids,
                                   .positions = positions, .doc_start = start, .rows = rows,
                                   .targets = targets};

struct all {
    struct arch     *arch;
    struct device   *dev;
    struct model    *model;
    struct resident *weights;
};

static int open_all(struct all *a, const json_t *json, struct ckpt_err *err)
{
    struct model_opts opts = {.max_tokens = 4, .max_docs = 1, .max_rows = 3, .train = true};

    if (arch_read_json(&a->arch, json, err) || device_open_cpu(&a->dev, 1, err) ||
        model_new(&a->model, a->arch, &opts, a->dev, err))
        return err->code;
    return resident_new(&a->weights, model_params(a->model), true, a->dev, err);
}

static int use(struct all *a, struct ckpt_err *err)
{
    const struct params *p = model_params(a->model);
    struct init init = {.arch = a->arch, .params = p};
    struct generate_opts o = {.max_new_tokens = 3, .repetition_penalty = 1};
    int32_t out[3];
    struct generate_seq seq = {.prompt = ids, .n_prompt = 4, .out = out};
    double loss;

    for (size_t i = 0; i < p->n; i++)
        if (init_fill(&init, i, 0, p->item[i].numel, resident_weight(a->weights, i), err))
            return err->code;
    if (model_loss_grad(a->model, resident_door(a->weights), &batch, 1, &loss, err))
        return err->code;
    return generate_run(a->model, resident_door(a->weights), &o, &seq, 1, err);
}

static int whole(const json_t *json, struct ckpt_err *err)
{
    struct all a = {0};
    int rc = open_all(&a, json, err);

    if (rc == 0)
        rc = use(&a, err);
    resident_free(a.weights);
    model_free(a.model);
    device_close(a.dev);
    arch_free(a.arch);
    return rc;
}

static json_t *parsed(void)
{
    struct ckpt_err err = {0};
    json_t *json = NULL;

    assert_int_equal(ckpt_json_parse(&json, config, sizeof config - 1, CKPT_JSON_STRICT, &err), 0);
    return json;
}

TEST(nothing_fails)
{
    json_t *json = parsed();
    struct ckpt_err err = {0};

    if (whole(json, &err))
        fail_msg("%s", err.text);
    json_decref(json);
}

TEST(model_fails_cleanly_at_every_allocation)
{
    struct faults f = {.kinds = FAULT(ALLOC)};
    json_t *json = parsed();

    while (faults_next(&f)) {
        struct ckpt_err err = {0};
        int rc = whole(json, &err);

        faults_disarm(&f);
        faults_fail(&f, rc, CKPT_ENOMEM, &err, "allocation");
    }
    assert_true(f.rounds > 20);
    json_decref(json);
}

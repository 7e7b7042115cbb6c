/* golden_runs - generation by golden models, held against recorded tokens. */
#ifndef CKPT_TESTS_UNIT_GOLDEN_RUNS_H
#define CKPT_TESTS_UNIT_GOLDEN_RUNS_H

#include "tests/unit/golden_model.h"
#include "trainer/model/generate/generate.h"

static inline const json_t *golden_at(const json_t *j, size_t i)
{
    const json_t *v = json_array_get(j, i);

    assert_non_null(v);
    return v;
}

/* A list of ids; gives how many. */
static inline int64_t golden_tokens(int32_t *out, const json_t *list)
{
    for (size_t i = 0; i < json_array_size(list); i++)
        out[i] = (int32_t)json_integer_value(golden_at(list, i));
    return (int64_t)json_array_size(list);
}

/* Two prompts at once, both continued as it was recorded. */
static inline void golden_continue(struct golden *g, const struct generate_opts *opts,
                                   const json_t *recorded)
{
    const json_t *prompts = json_object_get(recorded, "prompts");
    const json_t *outputs = json_object_get(recorded, "output");
    char *text = json_dumps(recorded, JSON_COMPACT);
    int32_t ids[2][16], out[2][32], wanted[32];
    struct generate_seq seq[2];
    struct ckpt_err err = {0};

    for (size_t i = 0; i < 2; i++)
        seq[i] = (struct generate_seq){.prompt = ids[i], .out = out[i], .stream = i,
                                       .n_prompt = golden_tokens(ids[i], golden_at(prompts, i))};
    OK(generate_run(g->model, resident_door(g->weights), opts, seq, 2, &err), err);
    for (size_t i = 0; i < 2; i++) {
        if (seq[i].n_out != golden_tokens(wanted, golden_at(outputs, i)))
            fail_msg("prompt %zu gives %d tokens: %s", i, (int)seq[i].n_out, text);
        for (int64_t j = 0; j < seq[i].n_out; j++)
            if (out[i][j] != wanted[j])
                fail_msg("prompt %zu, token %d is %d: %s", i, (int)j, (int)out[i][j], text);
    }
    free(text);
}

/* Each recorded case by its own "model", which neighbours share. */
static inline void golden_each(const json_t *cases, const struct model_opts *opts,
                               void (*check)(struct golden *g, const json_t *recorded))
{
    const char *open = NULL;
    struct golden g;

    for (size_t i = 0; i < json_array_size(cases); i++) {
        const char *name = json_string_value(json_object_get(golden_at(cases, i), "model"));

        if (!open || strcmp(open, name) != 0) {
            if (open)
                golden_close(&g);
            golden_open(&g, name, opts, 2);
            open = name;
        }
        check(&g, golden_at(cases, i));
    }
    golden_close(&g);
}

#endif

/*
 * The largest logits of rows: beside a sort of them, with equal values, infinities and NaN; and the
 * tokens chosen from them alone, which must be those chosen from all logits.
 */
#include "tests/unit/model_help.h"

#include <math.h>

#include "tests/unit/top_check.h"
#include "trainer/model/generate/logits.h"

TEST(top_is_what_a_sort_gives)
{
    static const int64_t vocab[] = {1, 2, 7, 300, 5000};
    static const int64_t k[] = {1, 2, 5, 64, 256};
    struct device *dev = cpu_device(2);

    for (int v = 0; v < 5; v++)
        for (int i = 0; i < 5; i++)
            for (int kind = 0; kind < TOP_KINDS; kind++)
                if (k[i] <= vocab[v])
                    top_check(dev, 3, vocab[v], k[i], kind);
    device_close(dev);
}

enum { V = 1000, HISTORY = 40, DRAWS = 200 };

static const int32_t eos[] = {3, 4}, likely[] = {0, 77}, never[] = {10, 500, 700};

static const struct {
    struct generate_opts o;
    int least;                  /* percent of the draws that the largest must tell */
} options[] = {
    {{.repetition_penalty = 1}, 100},
    {{.repetition_penalty = 1.3}, 95},
    {{.repetition_penalty = 0.8}, 0},
    {{.repetition_penalty = 1, .no_repeat_ngram_size = 2}, 100},
    {{.repetition_penalty = 1, .min_new_tokens = 99, .eos = eos, .n_eos = 2,
      .suppress = {never, 3}}, 100},
    {{.repetition_penalty = 1, .forced_eos = {eos, 1}}, 0},
    {{.repetition_penalty = 1, .do_sample = true, .top_k = 20, .top_p = 1}, 95},
    {{.repetition_penalty = 1.1, .do_sample = true, .top_k = 50, .top_p = 0.9}, 90},
    {{.repetition_penalty = 1, .do_sample = true, .top_k = 5, .top_p = 0.95, .min_p = 0.1}, 95},
    {{.repetition_penalty = 1, .do_sample = true, .top_p = 0.7}, 95},
    {{.repetition_penalty = 1, .do_sample = true, .top_p = 0.999}, 0},
    {{.repetition_penalty = 1, .do_sample = true, .top_p = 0.8, .min_p = 0.05}, 90},
    {{.repetition_penalty = 1.2, .do_sample = true, .top_p = 0.8}, 0},
    {{.repetition_penalty = 1, .do_sample = true, .top_p = 1, .min_p = 0.1}, 95},
    {{.repetition_penalty = 1, .do_sample = true, .top_p = 1}, 90},
    /* Eos that comes too early: the device leaves it out of the sum. */
    {{.repetition_penalty = 1, .do_sample = true, .top_p = 0.7, .min_new_tokens = 99, .eos = likely,
      .n_eos = 2}, 90},
    {{.repetition_penalty = 1, .do_sample = true, .top_p = 1, .min_p = 0.1, .min_length = 99,
      .eos = likely, .n_eos = 2}, 90},
};

/* One draw from logits z; how many the largest told. */
static int same_choice(struct device *dev, const struct generate_opts *o, const float *z,
                       const int32_t *history, double draw)
{
    struct generate_place at = {.history = history, .n = HISTORY, .n_fed = HISTORY / 2,
                                .most = HISTORY / 2 + 1};
    struct generate_choice scratch[V];
    float value[OP_TOP_MOST], all[V];
    int32_t id[OP_TOP_MOST], found;
    double sum;
    float left[V];
    struct op_forbid forbid = {.logits = left, .n = 1, .vocab = V, .n_ids = (int64_t)o->n_eos,
                               .rows = {1}};
    struct op_top op = {.value = value, .id = id, .sum = &sum, .logits = z, .n = 1, .vocab = V,
                        .k = generate_top_wanted(o, V),
                        .temperature = generate_top_temperature(o, V)};
    struct generate_top top = {value, id, op.k, 0};

    if (op.k == 0)
        return 0;
    if (op.temperature == 0)
        op.sum = NULL;
    if (op.sum && generate_too_short(o, at.n, at.n_fed)) {
        memcpy(left, z, sizeof left);
        memcpy(forbid.id, o->eos, o->n_eos * sizeof *o->eos);
        dev->ops->head_forbid(dev, &forbid);
        op.logits = left;
        at.no_eos = true;
    }
    dev->ops->head_top(dev, &op);
    top.sum = op.sum ? sum : NAN;
    memcpy(all, z, sizeof all);
    if (!generate_pick_top(&found, &top, V, &at, o, draw))
        return 0;
    at.no_eos = false;                  /* all logits are as they were */
    assert_int_equal(found, generate_pick(all, V, &at, o, draw, scratch));
    return 1;
}

TEST(the_largest_tell_the_same_choice)
{
    struct device *dev = cpu_device(1);
    int32_t history[HISTORY];
    float z[V];

    for (size_t k = 0; k < sizeof options / sizeof *options; k++) {
        struct generate_opts o = options[k].o;
        int told = 0;

        o.temperature = 0.8;
        for (int i = 0; i < DRAWS; i++) {
            rng_normal(z, 0, V, 3.0f, 11, (uint64_t)i);
            for (int j = 0; j < V; j++)         /* the largest are often equal */
                z[j] = i % 3 ? z[j] : floorf(z[j] * 4) / 4;
            for (int j = 0; j < HISTORY; j++)
                history[j] = (int32_t)(rng_uniform(5, (uint64_t)i, (uint64_t)j) * 12) * 7;
            for (int j = 0; j < HISTORY; j++)
                z[history[j]] += 4;             /* what was chosen is likely again */
            told += same_choice(dev, &o, z, history, (i + 0.5) / DRAWS);
        }
        if (told * 100 < options[k].least * DRAWS)
            fail_msg("options %zu: the largest tell %d of %d choices", k, told, DRAWS);
    }
    device_close(dev);
}

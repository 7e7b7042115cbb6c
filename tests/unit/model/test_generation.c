/*
 * generation_config.json: what is done to logits before a token is chosen and what is generated,
 * as transformers does by the same file (tests/golden/generation.json); what is refused.
 */
#include "tests/unit/golden_runs.h"

#include "trainer/model/generate/config.h"
#include "trainer/model/generate/logits.h"

static const struct model_opts eval = {.max_tokens = 200, .max_docs = 3, .max_rows = 1,
                                       .max_enc = 200};

static json_t *part_of(const char *part, size_t least)
{
    json_t *all = json_load_file("tests/golden/generation.json", 0, NULL), *some;

    assert_non_null(all);
    some = json_incref(json_object_get(all, part));
    json_decref(all);
    assert_true(json_array_size(some) >= least);
    return some;
}

/* One row of "processed": what is left of logits, or the probabilities of what may be drawn. */
static void check_row(const json_t *row)
{
    json_t *config = json_deep_copy(json_object_get(row, "options"));
    const json_t *logits = json_object_get(row, "logits"), *was = json_object_get(row, "history");
    const json_t *p = json_object_get(row, "p"), *left = json_object_get(row, "left");
    char *text = json_dumps(row, JSON_COMPACT);
    struct generate_choice c[12];
    struct generate_config g;
    struct generate_place place = {0};
    struct ckpt_err err = {0};
    double total, got[12] = {0};
    int32_t history[8];
    float z[12];

    json_object_set_new(config, "eos_token_id", json_pack("[i,i]", 2, 6));
    json_object_set(config, "do_sample", json_object_get(row, "do_sample"));
    OK(generate_config_of(&g, config, &err), err);
    for (size_t i = 0; i < 12; i++)
        z[i] = (float)json_number_value(golden_at(logits, i));
    place.n = golden_tokens(history, was);
    place.history = history;
    place.n_fed = (int64_t)json_integer_value(json_object_get(row, "n_fed"));
    place.most = g.opts.max_length - place.n_fed;
    place.prompt = history;
    place.n_prompt = place.n_fed;
    generate_process(z, 12, &place, &g.opts, c);
    for (size_t i = 0; left && i < 12; i++) {
        const json_t *want = golden_at(left, i);

        if (json_is_null(want) ? z[i] > -INFINITY
                               : !(fabs((double)z[i] - json_number_value(want)) <= 1e-6))
            fail_msg("logit %zu is %g: %s", i, (double)z[i], text);
    }
    if (p) {
        int64_t n = generate_candidates(c, &total, z, 12, &g.opts);

        for (int64_t i = 0; i < n; i++)
            got[c[i].id] = c[i].p / total;
        for (size_t i = 0; i < 12; i++)
            if (!(fabs(got[i] - json_number_value(golden_at(p, i))) <= 2e-6) ||
                (got[i] > 0) != (json_number_value(golden_at(p, i)) > 0))
                fail_msg("id %zu is drawn by %g: %s", i, got[i], text);
    }
    generate_config_release(&g);
    json_decref(config);
    free(text);
}

TEST(logits_are_processed_as_in_transformers)
{
    json_t *rows = part_of("processed", 130);

    for (size_t i = 0; i < json_array_size(rows); i++)
        check_row(golden_at(rows, i));
    json_decref(rows);
}

/* One of "runs". */
static void check_run(struct golden *g, const json_t *run)
{
    struct generate_config c;
    struct ckpt_err err = {0};

    OK(generate_config_of(&c, json_object_get(run, "config"), &err), err);
    OK(generate_config_built(&c, &c.opts, &err), err);
    if (c.opts.max_new_tokens == 0)
        c.opts.max_new_tokens = c.opts.max_length;
    assert_in_range(c.opts.max_new_tokens, 1, 32);
    golden_continue(g, &c.opts, run);
    generate_config_release(&c);
}

TEST(runs_are_those_of_transformers)
{
    json_t *runs = part_of("runs", 70);

    golden_each(runs, &eval, check_run);
    json_decref(runs);
}

static int read_text(struct generate_config *c, const char *text, struct ckpt_err *err)
{
    json_t *json = json_loads(text, 0, NULL);
    int rc;

    assert_non_null(json);
    rc = generate_config_of(c, json, err);
    json_decref(json);
    return rc;
}

TEST(defaults_are_the_librarys)
{
    struct generate_config c;
    struct ckpt_err err = {0};

    OK(read_text(&c, "{\"top_k\": null}", &err), err);
    assert_true(!c.opts.do_sample && c.opts.top_k == 50 && c.opts.num_beams == 1);
    assert_true(c.opts.temperature == 1 && c.opts.top_p == 1 && c.opts.min_p == 0);
    assert_true(c.opts.repetition_penalty == 1 && c.opts.length_penalty == 1);
    assert_true(c.opts.max_new_tokens == 0 && c.opts.max_length == 0 && c.opts.n_eos == 0);
    generate_config_release(&c);
    OK(read_text(&c, "{\"max_length\": 9, \"max_new_tokens\": 4, \"eos_token_id\": [5, 6],"
                     "\"bos_token_id\": 3, \"early_stopping\": true}", &err), err);
    assert_true(c.opts.max_new_tokens == 4 && c.opts.max_length == 0);
    assert_true(c.opts.n_eos == 2 && c.opts.eos[1] == 6 && c.opts.start.id[0] == 3);
    assert_int_equal(c.opts.early_stopping, GENERATE_FULL);
    generate_config_release(&c);
}

TEST(what_is_not_built_is_refused_by_name)
{
    static const struct {
        const char *text, *key;
        bool        drawn, searched;    /* refused only then */
    } rows[] = {
        {"{\"guidance_scale\": 1.5}", "guidance_scale", false, false},
        {"{\"penalty_alpha\": 0.6}", "penalty_alpha", false, false},
        {"{\"constraints\": [1]}", "constraints", false, false},
        {"{\"top_h\": 0.9}", "top_h", true, false},
        {"{\"num_beam_groups\": 2}", "num_beam_groups", false, true},
    };
    struct generate_config c;
    struct ckpt_err err = {0};

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct generate_opts o;

        OK(read_text(&c, rows[i].text, &err), err);
        o = c.opts;
        if (rows[i].drawn || rows[i].searched)
            OK(generate_config_built(&c, &o, &err), err);
        o.do_sample = rows[i].drawn;
        o.num_beams = rows[i].searched ? 2 : 1;
        assert_int_equal(generate_config_built(&c, &o, &err), CKPT_EUNSUPPORTED);
        assert_non_null(strstr(err.text, rows[i].key));
        ckpt_err_clear(&err);
        generate_config_release(&c);
    }
    OK(read_text(&c, "{\"guidance_scale\": 1, \"typical_p\": 1.0, \"bad_words_ids\": null, "
                     "\"num_return_sequences\": 1, \"cache_implementation\": \"static\", "
                     "\"output_scores\": true, \"do_sample\": true}", &err), err);
    OK(generate_config_built(&c, &c.opts, &err), err);
    generate_config_release(&c);
}

TEST(tokens_forced_and_suppressed_are_refused)
{
    static const struct { const char *text; int code; } rows[] = {
        {"{\"forced_bos_token_id\": 4, \"suppress_tokens\": [3, 4]}", CKPT_EFORMAT},
        {"{\"forced_eos_token_id\": [3, 4], \"suppress_tokens\": [3, 4]}", CKPT_EFORMAT},
        {"{\"forced_eos_token_id\": [3, 5], \"suppress_tokens\": [3, 4]}", 0},
        {"{\"forced_eos_token_id\": 3}", 0},
    };
    struct generate_config c;
    struct ckpt_err err = {0};

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        OK(read_text(&c, rows[i].text, &err), err);
        assert_int_equal(generate_config_built(&c, &c.opts, &err), rows[i].code);
        assert_true(!rows[i].code || strstr(err.text, "_token_id: all of its tokens"));
        ckpt_err_clear(&err);
        generate_config_release(&c);
    }
}

/* z minus frequency times the count, and minus presence, of generated tokens alone. */
TEST(penalties_of_frequency_and_presence_are_openais)
{
    struct generate_opts o = {.repetition_penalty = 1, .frequency_penalty = 0.5,
                              .presence_penalty = 0.25};
    const int32_t history[] = {7, 7, 1, 2, 1, 1};
    struct generate_place at = {.history = history, .n = 6, .n_fed = 2};
    struct generate_choice scratch[8], some[3] = {{.logit = 3, .id = 1}, {.logit = 2, .id = 3},
                                                  {.logit = 1, .id = 7}};
    float z[8] = {1, 1, 1, 1, 1, 1, 1, 1};
    bool changed;

    generate_process(z, 8, &at, &o, scratch);
    assert_true(z[1] == 1 - 1.75f && z[2] == 1 - 0.75f && z[7] == 1 && z[0] == 1);
    assert_true(generate_process_some(some, 3, &at, &o, &changed));
    assert_true(changed && some[0].logit == 3 - 1.75f && some[1].logit == 2 && some[2].logit == 1);
    o.frequency_penalty = -1;
    assert_int_equal(generate_top_wanted(&o, 1000), 0);
}

TEST(what_is_malformed_is_told)
{
    static const char *const rows[][2] = {
        {"[]", "no object"}, {"{\"top_k\": \"x\"}", "top_k"}, {"{\"top_k\": -3}", "top_k"},
        {"{\"early_stopping\": \"soon\"}", "early_stopping"}, {"{\"do_sample\": 2}", "do_sample"},
        {"{\"eos_token_id\": [1, \"x\"]}", "eos_token_id"}, {"{\"max_length\": 1e3}", "max_length"},
        {"{\"suppress_tokens\": 99999999999}", "suppress_tokens"},
        {"{\"bad_words_ids\": [5]}", "bad_words_ids"}, {"{\"bad_words_ids\": 5}", "bad_words_ids"},
        {"{\"bad_words_ids\": [[]]}", "bad_words_ids"},
        {"{\"sequence_bias\": [[[5], \"x\"]]}", "sequence_bias"},
        {"{\"sequence_bias\": {\"a\": 1}}", "sequence_bias"}, {"{\"stop_strings\": [3]}", "stop_strings"},
        {"{\"exponential_decay_length_penalty\": 2}", "exponential_decay_length_penalty"},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct generate_config c;
        struct ckpt_err err = {0};

        assert_int_equal(read_text(&c, rows[i][0], &err), CKPT_EFORMAT);
        assert_non_null(strstr(err.text, rows[i][1]));
        generate_config_release(&c);
    }
}

/* Groups of parameters: HF's two, patterns, LoRA+; a step uses each group's numbers. */
#include "tests/unit/zero_side.h"

#include "trainer/optim/optim.h"

static const struct model_opts train = {.max_tokens = 16, .max_docs = 2, .max_rows = 16,
                                        .train = true};

static const struct param *named(const struct params *p, const char *name)
{
    size_t i = params_find(p, name);

    assert_true(i != SIZE_MAX);
    return &p->item[i];
}

TEST(patterns_make_groups)
{
    static const char *const lr[] = {"word_embeddings=1e-5", "\\.0\\.mlp.*weight$=2e-3"};
    static const char *const decay[] = {"mlp=0.5"};
    const struct optim_groups_opts o = {.learning_rate = 1e-3, .weight_decay = 0.1, .lr_for = lr,
                                        .n_lr_for = 2, .weight_decay_for = decay,
                                        .n_weight_decay_for = 1};
    struct ckpt_arena a = {0};
    struct ckpt_err err = {0};
    struct optim_groups groups;
    struct golden g;
    struct params *p;
    const struct param *q;

    golden_open(&g, "bloom-a", &train, 1);
    p = model_params_to_group(g.model);
    OK(optim_groups(&groups, &a, p, &o, &err), err);
    assert_true(groups.peak[0].lr == 1e-3 && groups.peak[0].weight_decay == 0.1);
    assert_true(groups.peak[1].lr == 1e-3 && groups.peak[1].weight_decay == 0);
    q = named(p, "transformer.word_embeddings.weight");
    assert_true(q->group >= 2 && groups.peak[q->group].lr == 1e-5);
    assert_true(groups.peak[q->group].weight_decay == 0.1);
    q = named(p, "transformer.h.0.mlp.dense_h_to_4h.weight");
    assert_true(groups.peak[q->group].lr == 2e-3 && groups.peak[q->group].weight_decay == 0.5);
    q = named(p, "transformer.h.1.mlp.dense_h_to_4h.weight");
    assert_true(groups.peak[q->group].lr == 1e-3 && groups.peak[q->group].weight_decay == 0.5);
    assert_int_equal(named(p, "transformer.ln_f.weight")->group, 1);
    assert_int_equal(named(p, "transformer.h.0.self_attention.dense.weight")->group, 0);
    ckpt_arena_release(&a);
    golden_close(&g);
}

TEST(muon_has_groups_of_hidden_matrices)
{
    static const char *const lr[] = {"\\.0\\.mlp=2e-3"};
    const struct optim_groups_opts o = {.learning_rate = 2e-2, .weight_decay = 0.1, .lr_for = lr,
                                        .n_lr_for = 1, .muon = true, .adam_lr = 1e-4};
    static const struct { const char *name; double lr, decay; bool muon; } want[] = {
        {"transformer.word_embeddings.weight", 1e-4, 0.1, false},
        {"transformer.h.0.self_attention.dense.weight", 2e-2, 0.1, true},
        {"transformer.h.0.self_attention.dense.bias", 1e-4, 0, false},
        {"transformer.h.0.mlp.dense_h_to_4h.weight", 2e-3, 0.1, true},
        {"transformer.h.0.mlp.dense_h_to_4h.bias", 2e-3, 0, false},
        {"transformer.ln_f.weight", 1e-4, 0, false}};
    struct ckpt_arena a = {0};
    struct ckpt_err err = {0};
    struct optim_groups groups;
    struct golden g;
    struct params *p;

    golden_open(&g, "bloom-a", &train, 1);
    p = model_params_to_group(g.model);
    OK(optim_groups(&groups, &a, p, &o, &err), err);
    for (size_t i = 0; i < sizeof want / sizeof want[0]; i++) {
        const struct optim_group *peak = &groups.peak[named(p, want[i].name)->group];

        assert_true(peak->lr == want[i].lr && peak->weight_decay == want[i].decay);
        assert_int_equal(peak->muon, want[i].muon);
        assert_int_equal(params_is_hidden(named(p, want[i].name)), want[i].muon);
    }
    assert_int_equal(named(p, want[1].name)->group, 0);
    assert_int_equal(named(p, want[5].name)->group, 1);
    ckpt_arena_release(&a);
    golden_close(&g);
}

TEST(numbers_of_muon)
{
    static const struct { const char *args, *wrong; } bad[] = {
        {"ns_coefficients=1:2", "three numbers from -1000 to 1000"},
        {"ns_coefficients=1:2:3:4", "three numbers"}, {"ns_coefficients=1:x:3", "three numbers"},
        {"{\"ns_coefficients\": [1, 2]}", "a number, a word, true or false"},
        {"{\"ns_coefficients\": [1, 2, \"x\"]}", "a number, a word, true or false"},
        {"ns_steps=0", "an integer from 1 to 99"}, {"ns_steps=100", "an integer from 1 to 99"},
        {"adjust_lr_fn=x", "one of original match_rms_adamw spectral_unclamped"},
        {"dampening=0.1", "dampening is no key of muon"}};
    const struct optim_row *muon = optim_find("muon");
    struct optim_keys keys;
    struct ckpt_err err = {0};

    OK(optim_keys(&keys, muon, NULL, &err), err);
    assert_true(keys.muon.nesterov && keys.muon.momentum == 0.95 && keys.muon.ns_steps == 5);
    assert_true(keys.muon.a == 3.4445 && keys.muon.b == -4.775 && keys.muon.c == 2.0315);
    assert_true(isnan(keys.adam_lr) && keys.muon.adjust == OP_MUON_ORIGINAL);
    OK(optim_keys(&keys, muon, "{\"ns_coefficients\": [3, -3.25, 1], \"nesterov\": false}", &err),
       err);
    assert_true(keys.muon.a == 3 && keys.muon.b == -3.25 && keys.muon.c == 1);
    OK(optim_keys(&keys, muon, "momentum=0.8,nesterov=False,ns_coefficients=2:-1.5:0.5,adam_lr=1e-4,"
                  "adjust_lr_fn=match_rms_adamw,eps=1e-8,ns_steps=6", &err), err);
    assert_true(!keys.muon.nesterov && keys.muon.momentum == 0.8 && keys.muon.b == -1.5);
    assert_true(keys.adam_lr == 1e-4 && keys.muon.adjust == OP_MUON_MATCH_RMS_ADAMW);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(optim_keys(&keys, muon, bad[i].args, &err), CKPT_ECONFIG);
        if (!strstr(err.text, bad[i].wrong))
            fail_msg("%s: %s", bad[i].args, err.text);
        ckpt_err_clear(&err);
    }
}

static void refused(struct params *p, const char *pattern, const char *text)
{
    const struct optim_groups_opts o = {.learning_rate = 1e-3, .lr_for = &pattern, .n_lr_for = 1};
    struct ckpt_arena a = {0};
    struct ckpt_err err = {0};
    struct optim_groups groups;

    assert_int_equal(optim_groups(&groups, &a, p, &o, &err), CKPT_ECONFIG);
    if (!strstr(err.text, text))
        fail_msg("%s", err.text);
    ckpt_arena_release(&a);
}

TEST(wrong_patterns_are_named)
{
    struct golden g;

    golden_open(&g, "bloom-a", &train, 1);
    refused(model_params_to_group(g.model), "nosuch=1",
            "`lr_for`: nosuch=1: no trained parameter has such a name");
    refused(model_params_to_group(g.model), "mlp", "`lr_for`: mlp is not PATTERN=X");
    refused(model_params_to_group(g.model), "mlp=x", "`lr_for`: mlp=x: a number from 0 to 1000");
    refused(model_params_to_group(g.model), "mlp=-1", "`lr_for`: mlp=-1: a number from 0 to 1000");
    refused(model_params_to_group(g.model), "m(lp=1", "`lr_for`: m(lp=1");
    golden_close(&g);
}

static int fill(void *ctx, size_t i, int64_t start, int64_t count, float *dst, struct ckpt_err *err)
{
    (void)i;
    (void)start;
    (void)err;
    for (int64_t j = 0; j < count; j++)
        dst[j] = *(const float *)ctx;
    return 0;
}

/* SGD: each weight moves by its group's rate, on the device and where states pass. */
TEST(a_step_uses_each_groups_numbers)
{
    static const char *const lr[] = {"mlp=0.25"};
    static const struct zero_opts places[] = {
        {.train = true, .fewer = 1}, {.train = true, .fewer = 2}, {.train = true, .fewer = 1,
        .paged = true, .offload = true, .chunk = 512}, {.train = true, .fewer = 1, .stage = 3}};
    const struct optim_groups_opts o = {.learning_rate = 0.5, .lr_for = lr, .n_lr_for = 1};

    for (size_t k = 0; k < sizeof places / sizeof places[0]; k++) {
        struct optim_opts opts = {.rule = OP_RULE_SGD};
        struct ckpt_arena a = {0};
        struct ckpt_err err = {0};
        struct optim_groups groups;
        struct schedule schedule;
        struct golden g;
        struct side s;
        float one = 1, two = 2, got;

        golden_open(&g, "bloom-a", &train, 1);
        side_open(&s, &g, cpu_device(2), &train, &places[k]);
        OK(optim_groups(&groups, &a, model_params_to_group(s.model), &o, &err), err);
        OK(schedule_init(&schedule, "constant", 0.5, NAN, NULL, &err), err);
        opts.keys.momentum = places[k].fewer == 1 ? 0.5 : 0;
        opts.groups = &groups;
        opts.schedule = &schedule;
        opts.now = ckpt_arena_alloc(&a, groups.n, sizeof *opts.now);
        OK(zero_fill(s.zero, ZERO_MASTER, fill, &two, &err), err);
        for (int step = 1; step <= 2; step++) {
            zero_begin(s.zero);
            OK(zero_fill(s.zero, ZERO_GRAD, fill, &one, &err), err);
            zero_judge(s.zero, 0, 1);
            optim_step(s.zero, &opts, 0.5, step);
        }
        for (size_t i = 0; i < model_params(s.model)->n; i++) {
            const struct param *q = &model_params(s.model)->item[i];
            float rate = strstr(q->name, "mlp") ? 0.25f : 0.5f;

            OK(zero_read(s.zero, ZERO_MASTER, i, q->numel - 1, 1, &got, &err), err);
            if (got != 2 - rate * (places[k].fewer == 1 ? 2.5f : 2))
                fail_msg("place %zu, %s: %g", k, q->name, (double)got);
        }
        side_close(&s);
        ckpt_arena_release(&a);
        golden_close(&g);
    }
}

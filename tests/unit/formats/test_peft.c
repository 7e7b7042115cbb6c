/* peft: adapters merged as peft's own merge_and_unload merges them, and those that do not fit. */
#include "tests/unit/compare.h"
#include "tests/unit/files.h"

#include "formats/peft/peft.h"

#define LORA "tests/golden/lora/"
#define TMP  "build/test-peft-"

/* base + adapters with their weights, or the code of the refusal. */
static int merge_two(struct ckpt_source **out, const char *base, const char *first, double w1,
                     const char *second, double w2, struct ckpt_err *err)
{
    struct peft_adapter a[2] = {{NULL, first, w1}, {NULL, second, w2}};
    size_t n = second ? 2 : 1;
    struct ckpt_source *b;

    memset(err, 0, sizeof *err);
    *out = NULL;
    if (ckpt_open(&b, base, NULL, err))
        return err->code;
    for (size_t i = 0; i < n; i++)
        if (ckpt_open_as(&a[i].source, "peft", a[i].name, NULL, err)) {
            ckpt_source_close(b);
            ckpt_source_close(a[0].source);
            return err->code;
        }
    return peft_merge(out, b, a, n, err);
}

static int merge(struct ckpt_source **out, const char *base, const char *adapter,
                 struct ckpt_err *err)
{
    return merge_two(out, base, adapter, 1, NULL, 0, err);
}

/* Every tensor of the expected file within tol; all others as in the base. */
static void assert_near(struct ckpt_source *m, const char *name, double tol)
{
    char base[256], expected[256];
    struct ckpt_source *e, *b;
    size_t further = 0;

    snprintf(base, sizeof base, LORA "%s/base", name);
    snprintf(expected, sizeof expected, LORA "%s/merged.safetensors", name);
    e = must_open(expected, NULL);
    b = must_open(base, NULL);
    for (size_t i = 0; i < ckpt_source_count(e); i++)
        further += ckpt_source_find(b, ckpt_source_tensor(e, i)->name) == SIZE_MAX;
    assert_int_equal(ckpt_source_count(m), ckpt_source_count(b) + further);
    for (size_t i = 0; i < ckpt_source_count(m); i++) {
        const struct ckpt_tensor *t = ckpt_source_tensor(m, i), *w;
        size_t k = ckpt_source_find(e, t->name);
        struct ckpt_source *from = k == SIZE_MAX ? b : e;
        float *found = read_whole(m, i), *wanted;

        k = ckpt_source_find(from, t->name);
        assert_true(k != SIZE_MAX);
        w = ckpt_source_tensor(from, k);
        if (t->dtype != CKPT_F32 || !ckpt_shape_equal(&t->shape, &w->shape))
            fail_msg("%s: %s is not shaped as expected", name, t->name);
        wanted = read_whole(from, k);
        for (int64_t j = 0; j < t->numel; j++)
            if (!(fabs((double)found[j] - (double)wanted[j]) <= (from == b ? 0 : tol)))
                fail_msg("%s: %s, element %lld is %.9g, %.9g expected", name, t->name,
                         (long long)j, (double)found[j], (double)wanted[j]);
        free(found);
        free(wanted);
    }
    assert_true(ckpt_source_count(e) > 0);
    ckpt_source_close(e);
    ckpt_source_close(b);
}

static void assert_merged(const char *name, double tol)
{
    char base[256], adapter[256];
    struct ckpt_source *m;
    struct ckpt_err err;

    snprintf(base, sizeof base, LORA "%s/base", name);
    snprintf(adapter, sizeof adapter, LORA "%s/adapter", name);
    if (merge(&m, base, adapter, &err))
        fail_msg("%s: %s", name, err.text);
    assert_near(m, name, tol);
    ckpt_source_close(m);
}

TEST(merged_weights_equal_those_of_peft)
{
    static const char *const names[] = {
        "bloom-qkv", "gpt2-conv1d", "llama-all-linear", "llama-patterns", "llama-embed",
        "llama-dora", "llama-tokens", "t5-qv", "mixtral-attn", "qwen2-lora-bias", "opt-bias-all",
        "gpt2-dora", "llama-dora-embed", "mixtral-gate", "llama-resized-lora", "mixtral-saved",
        "llama-resized-save", "llama-resized-tokens", "net-conv", "net-conv-dora", "net-mha",
    };

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        assert_merged(names[i], 1e-6);
}

TEST(stacks_of_experts_are_merged_as_they_lie_on_disk)
{
    assert_merged("mixtral-experts", 1e-6);     /* w1, w2, w3 of each expert */
    assert_merged("qwen3moe-experts", 1e-6);    /* gate_proj, up_proj, down_proj of each */
    assert_merged("gptoss-experts", 1e-6);      /* [experts, in, out] */
}

TEST(ties_that_the_adapter_keeps_are_kept)
{
    assert_merged("llama-resized-tied", 1e-6);
    assert_merged("llama-tied-tokens", 1e-6);
    assert_merged("llama-tied-save", 1e-6);
    assert_merged("llama-tied-both", 1e-6);
}

#define TWO LORA "two-adapters/"

TEST(weighted_changes_add_up)
{
    struct ckpt_source *s;
    struct ckpt_err err;

    if (merge_two(&s, TWO "base", TWO "adapter", 0.7, TWO "second", -0.3, &err))
        fail_msg("%s", err.text);
    assert_near(s, "two-adapters", 1e-6);
    ckpt_source_close(s);
    assert_int_equal(merge_two(&s, TWO "base", TWO "second", -0.3, TWO "adapter", 0.7, &err), 0);
    assert_near(s, "two-adapters", 1e-6);
    ckpt_source_close(s);
}

TEST(what_was_not_added_is_not_taken_away)
{
    static const struct { const char *name, *says; } row[] = {
        {"llama-dora", "lengths"}, {"llama-all-linear", "values of its own"},
        {"llama-tokens", "values of its own"},
    };
    char base[256], adapter[256];
    struct ckpt_source *s;
    struct ckpt_err err;

    for (size_t i = 0; i < sizeof row / sizeof row[0]; i++) {
        snprintf(base, sizeof base, LORA "%s/base", row[i].name);
        snprintf(adapter, sizeof adapter, LORA "%s/adapter", row[i].name);
        assert_int_equal(merge_two(&s, base, adapter, -1, NULL, 0, &err), CKPT_EUNSUPPORTED);
        if (!strstr(err.text, row[i].says))
            fail_msg("%s: %s", row[i].name, err.text);
    }
}

TEST(an_adapter_lists_its_own_tensors)
{
    struct ckpt_source *s = must_open(LORA "llama-patterns/adapter", NULL);
    const json_t *config = json_object_get(ckpt_source_info(s), "adapter_config");

    assert_string_equal(ckpt_source_format(s), "peft");
    assert_int_equal(ckpt_source_count(s), 12);
    assert_int_equal(json_integer_value(json_object_get(config, "r")), 4);
    ckpt_source_close(s);
}

TEST(an_adapter_of_another_base_is_told_with_both_shapes)
{
    struct ckpt_source *s;
    struct ckpt_err err;

    assert_int_equal(merge(&s, LORA "llama-patterns/base", LORA "bloom-qkv/adapter", &err),
                     CKPT_EMISMATCH);
    assert_string_equal(err.reason, "unexpected");
    assert_null(s);
    assert_int_equal(merge(&s, LORA "t5-qv/base", LORA "bloom-qkv/adapter", &err), CKPT_EMISMATCH);
}

/* -- made here ------------------------------------------------------------------------------- */

/* A tensor whose elements follow from its seed. */
struct made {
    const char *name;
    int64_t     rows, cols;             /* cols 0: one axis */
    float       seed;
};

static float element(const struct made *m, int64_t i)
{
    return (float)((int)(i * 37 + (int64_t)m->seed * 11) % 61 - 30) / 64.0f;
}

/* Element (out, in) of 2 B A, where in is the width of A; the adapter of this file has rank 2. */
static float delta(const struct made *a, const struct made *b, int64_t out, int64_t in)
{
    float d = 0;

    for (int64_t r = 0; r < 2; r++)
        d += element(b, out * 2 + r) * element(a, r * a->cols + in);
    return 2 * d;
}

static void write_safetensors(const char *path, const struct made *made, size_t n,
                              enum ckpt_dtype dtype)
{
    struct ckpt_create_opts opts = {.flags = CKPT_REPLACE};
    struct ckpt_tensors list = {0};
    struct ckpt_sink *sink;
    struct ckpt_err err = {0};

    for (size_t i = 0; i < n; i++) {
        struct ckpt_shape shape = made[i].cols ? ckpt_shape_2d(made[i].rows, made[i].cols)
                                               : ckpt_shape_1d(made[i].rows);

        assert_int_equal(ckpt_tensors_add(&list, NULL, made[i].name, strlen(made[i].name), dtype,
                                          &shape, NULL, 0, false, &err), 0);
    }
    if (ckpt_create(&sink, "safetensors", path, &list, &opts, &err))
        fail_msg("%s", err.text);
    for (size_t i = 0; i < n; i++) {
        int64_t numel = list.item[i].numel;
        float *f = malloc((size_t)numel * sizeof *f + 1);
        void *p = malloc((size_t)numel * 8 + 1);

        for (int64_t k = 0; k < numel; k++)
            f[k] = element(&made[i], k);
        ckpt_convert(p, dtype, f, CKPT_F32, (size_t)numel);
        assert_int_equal(ckpt_sink_write(sink, i, 0, numel, p, &err), 0);
        free(f);
        free(p);
    }
    assert_int_equal(ckpt_sink_commit(sink, &err), 0);
    ckpt_tensors_release(&list);
}

static void make_base(const char *config, const struct made *made, size_t n, enum ckpt_dtype dtype)
{
    scratch_at(TMP "base");
    put_text(TMP "base/config.json", config);
    write_safetensors(TMP "base/model.safetensors", made, n, dtype);
}

static void make_adapter(const char *config, const struct made *made, size_t n)
{
    scratch_at(TMP "adapter");
    put_text(TMP "adapter/adapter_config.json", config);
    write_safetensors(TMP "adapter/adapter_model.safetensors", made, n, CKPT_F32);
}

static int merge_made(struct ckpt_source **out, struct ckpt_err *err)
{
    return merge(out, TMP "base", TMP "adapter", err);
}

static struct ckpt_source *must_merge(void)
{
    struct ckpt_source *s;
    struct ckpt_err err;

    if (merge_made(&s, &err))
        fail_msg("%s", err.text);
    return s;
}

static void *values_of(struct ckpt_source *s, const char *name)
{
    size_t i = ckpt_source_find(s, name);

    if (i == SIZE_MAX)
        fail_msg("%s is absent", name);
    return read_whole(s, i);
}

#define P "base_model.model."
static const struct made embedding = {"model.embed_tokens.weight", 20, 6, 3};
static const struct made tied_base[] = {{"model.embed_tokens.weight", 20, 6, 3},
                                        {"model.layers.0.self_attn.q_proj.weight", 6, 6, 4}};
static const char tied_config[] = "{\n  \"architectures\": [\n    \"LlamaForCausalLM\"\n  ],\n"
                                  "  \"model_type\": \"llama\",\n  \"rms_norm_eps\": 1e-05,\n"
                                  "  \"tie_word_embeddings\": true\n}\n";
static const char lora_config[] = "{\"peft_type\": \"LORA\", \"r\": 2, \"lora_alpha\": 4}";

static void assert_config_says(struct ckpt_source *s, const char *text)
{
    const struct ckpt_extra *e = ckpt_source_extra(s, "config.json");
    struct ckpt_arena a = {0};
    struct ckpt_err err = {0};
    char *found;
    size_t n;

    assert_non_null(e);
    assert_int_equal(ckpt_file_slurp(e->file, &a, 10000, &found, &n, &err), 0);
    if (!strstr(found, text))
        fail_msg("config.json has no %s: %s", text, found);
    ckpt_arena_release(&a);
}

TEST(a_bare_target_parameter_is_that_of_modules_that_have_it)
{
    static const struct made adapter[] = {
        {P "model.layers.0.self_attn.q_proj.lora_A.weight", 2, 6, 5},
        {P "model.layers.0.self_attn.q_proj.lora_B.weight", 6, 2, 6},
    };
    struct ckpt_source *s;
    float *q;

    make_base(tied_config, tied_base, 2, CKPT_F32);
    make_adapter("{\"peft_type\": \"LORA\", \"r\": 2, \"lora_alpha\": 4, "
                 "\"target_parameters\": [\"down_proj\", \"gate_up_proj\", \"gate.weight\"]}",
                 adapter, 2);
    s = must_merge();
    q = values_of(s, "model.layers.0.self_attn.q_proj.weight");
    for (int64_t i = 0; i < 36; i++)
        assert_true(q[i] != element(&tied_base[1], i));
    free(q);
    ckpt_source_close(s);
}

TEST(an_embedding_changed_alone_is_untied)
{
    static const struct made adapter[] = {
        {P "model.embed_tokens.lora_embedding_A", 2, 20, 5},
        {P "model.embed_tokens.lora_embedding_B", 6, 2, 6},
    };
    struct ckpt_source *s;
    float *head, *emb;
    size_t changed = 0;

    make_base(tied_config, tied_base, 2, CKPT_F32);
    make_adapter(lora_config, adapter, 2);
    s = must_merge();
    assert_int_equal(ckpt_source_count(s), 3);
    head = values_of(s, "lm_head.weight");
    emb = values_of(s, "model.embed_tokens.weight");
    for (int64_t i = 0; i < 120; i++) {
        float w = element(&embedding, i);

        assert_true(head[i] == w);
        assert_true(emb[i] == w + delta(&adapter[0], &adapter[1], i % 6, i / 6));
        changed += emb[i] != w;
    }
    assert_true(changed > 60);
    assert_config_says(s, "\"rms_norm_eps\": 1e-05,\n  \"tie_word_embeddings\": false\n}");
    assert_true(json_is_false(json_object_get(json_object_get(ckpt_source_info(s), "config"),
                                              "tie_word_embeddings")));
    free(head);
    free(emb);
    ckpt_source_close(s);
}

TEST(a_head_that_only_the_adapter_has_is_added)
{
    static const struct made adapter[] = {
        {P "lm_head.lora_A.weight", 2, 6, 5}, {P "lm_head.lora_B.weight", 20, 2, 6},
    };
    static const struct made whole[] = {{P "lm_head.weight", 20, 6, 9}};
    struct ckpt_source *s;
    float *head, *emb;

    make_base(tied_config, tied_base, 2, CKPT_F32);
    make_adapter(lora_config, adapter, 2);
    s = must_merge();
    head = values_of(s, "lm_head.weight");
    emb = values_of(s, "model.embed_tokens.weight");
    for (int64_t i = 0; i < 120; i++) {
        float w = element(&embedding, i);

        assert_true(emb[i] == w);
        assert_true(head[i] == w + delta(&adapter[0], &adapter[1], i / 6, i % 6));
    }
    assert_config_says(s, "\"tie_word_embeddings\": false");
    free(head);
    free(emb);
    ckpt_source_close(s);
    make_adapter(lora_config, whole, 1);
    s = must_merge();
    head = values_of(s, "lm_head.weight");
    for (int64_t i = 0; i < 120; i++)
        assert_true(head[i] == element(&whole[0], i));
    free(head);
    ckpt_source_close(s);
}

TEST(what_matches_nothing_is_an_error)
{
#define Q P "model.layers.0.self_attn.q_proj"
    static const struct {
        struct made made[3];
        size_t      n;
        const char *config;
        int         code;
        const char *says;
    } row[] = {
        {{{Q ".lora_A.weight", 2, 6, 1}}, 1, lora_config, CKPT_EFORMAT, "partner .lora_B.weight"},
        {{{Q ".lora_B.weight", 6, 2, 1}}, 1, lora_config, CKPT_EFORMAT, "no pair"},
        {{{Q ".lora_magnitude_vector", 6, 0, 1}}, 1, lora_config, CKPT_EFORMAT, "no pair"},
        {{{Q ".lora_A.weight", 2, 6, 1}, {Q ".lora_B.weight", 6, 3, 1}}, 2, lora_config,
         CKPT_EMISMATCH, "the base has [6, 6], the adapter's B [6, 3] and A [2, 6]"},
        {{{Q ".lora_A.weight", 2, 5, 1}, {Q ".lora_B.weight", 6, 2, 1}}, 2, lora_config,
         CKPT_EMISMATCH, "[2, 5]"},
        {{{Q ".lora_A.weight", 12, 0, 1}, {Q ".lora_B.weight", 6, 2, 1}}, 2, lora_config,
         CKPT_EFORMAT, "ZeRO-3"},
        {{{Q ".lora_A.weight", 0, 6, 1}, {Q ".lora_B.weight", 6, 2, 1}}, 2, lora_config,
         CKPT_EFORMAT, "ZeRO-3"},
        {{{P "model.layers.7.self_attn.q_proj.lora_A.weight", 2, 6, 1},
          {P "model.layers.7.self_attn.q_proj.lora_B.weight", 6, 2, 1}}, 2, lora_config,
         CKPT_EMISMATCH, "model.layers.7.self_attn.q_proj.weight"},
        {{{P "model.norm.weight", 6, 0, 1}}, 1, lora_config, CKPT_EMISMATCH, "model.norm.weight"},
        {{{Q ".weight", 6, 5, 1}}, 1, lora_config, CKPT_EMISMATCH, "[6, 5]"},
        {{{Q ".lora_A.weight", 2, 6, 1}, {Q ".lora_B.weight", 6, 2, 1}}, 2,
         "{\"peft_type\": \"LORA\", \"use_dora\": true}", CKPT_EFORMAT, "lora_magnitude_vector"},
        {{{Q ".lora_A.weight", 2, 6, 1}, {Q ".lora_B.weight", 6, 2, 1}}, 2,
         "{\"peft_type\": \"IA3\"}", CKPT_EUNSUPPORTED, "IA3"},
        {{{Q ".lora_A.weight", 2, 6, 1}, {Q ".lora_B.weight", 6, 2, 1}}, 2,
         "{\"peft_type\": \"LORA\", \"use_qalora\": true}", CKPT_EUNSUPPORTED, "use_qalora"},
        {{{Q ".lora_A.weight", 2, 6, 1}, {Q ".lora_B.weight", 6, 2, 1}, {Q ".lora_B.bias", 6, 0, 1}},
         3, lora_config, CKPT_EMISMATCH, "no model.layers.0.self_attn.q_proj.bias to add it to"},
        {{{P "model.layers.0.mlp.experts.lora_A.weight", 4, 6, 1},
          {P "model.layers.0.mlp.experts.lora_B.weight", 6, 4, 1}}, 2,
         "{\"peft_type\": \"LORA\", \"target_parameters\": [\"mlp.experts.down_proj\"]}",
         CKPT_EMISMATCH, "mlp.experts goes with B [6, 4] and A [4, 6]"},
        {{{Q ".original_module.weight", 6, 6, 1}}, 1, lora_config, CKPT_EMISMATCH, "beside it"},
        {{{Q ".weight", 6, 6, 1}, {Q ".modules_to_save.weight", 6, 6, 2}}, 2, lora_config,
         CKPT_EMISMATCH, "is not what"},
        {{{P "model.embed_tokens.weight", 21, 7, 1}}, 1, lora_config, CKPT_EMISMATCH, "[21, 7]"},
        {{{Q ".lora_A.weight", 2, 6, 1}, {Q ".lora_B.weight", 6, 2, 1}}, 2,
         "{\"peft_type\": \"LORA\", \"alpha_pattern\": {\"(\": 1}}", CKPT_EUNSUPPORTED,
         "alpha_pattern"},
        {{{Q ".lora_A.weight", 2, 6, 1}, {Q ".lora_B.weight", 6, 2, 1}}, 2, "[]", CKPT_EFORMAT,
         "adapter_config.json"},
        {{{P "model.embed_tokens.token_adapter.trainable_tokens_delta", 1, 6, 1}}, 1,
         "{\"peft_type\": \"LORA\", \"trainable_token_indices\": [20]}", CKPT_EMISMATCH, "row 20"},
        {{{P "model.embed_tokens.token_adapter.trainable_tokens_delta", 1, 6, 1}}, 1,
         "{\"peft_type\": \"LORA\", \"trainable_token_indices\": [1, 2]}", CKPT_EMISMATCH,
         "2 of its rows"},
        {{{P "model.embed_tokens.token_adapter.trainable_tokens_delta", 1, 6, 1}}, 1, lora_config,
         CKPT_EFORMAT, "trainable_token_indices"},
    };

    make_base(tied_config, tied_base, 2, CKPT_F32);
    for (size_t i = 0; i < sizeof row / sizeof row[0]; i++) {
        struct ckpt_source *s;
        struct ckpt_err err;
        int rc;

        make_adapter(row[i].config, row[i].made, row[i].n);
        rc = merge_made(&s, &err);
        if (rc != row[i].code || !strstr(err.text, row[i].says) || s)
            fail_msg("row %zu: code %d: %s", i, rc, err.text);
    }
}

/* A base in bf16 is computed in f32 and rounded once. */
TEST(sixteen_bits_are_rounded_once)
{
    static const struct made adapter[] = {{Q ".lora_A.weight", 2, 6, 1},
                                          {Q ".lora_B.weight", 6, 2, 7}};
    struct ckpt_source *s;
    uint16_t *found;

    make_base(tied_config, tied_base, 2, CKPT_BF16);
    make_adapter("{\"peft_type\": \"LORA\", \"r\": 2, \"lora_alpha\": 3}", adapter, 2);
    s = must_merge();
    found = values_of(s, "model.layers.0.self_attn.q_proj.weight");
    for (int64_t i = 0; i < 36; i++) {
        float w = element(&tied_base[1], i);
        uint16_t half;

        ckpt_convert(&half, CKPT_BF16, &w, CKPT_F32, 1);
        ckpt_convert(&w, CKPT_F32, &half, CKPT_BF16, 1);
        w += 0.75f * delta(&adapter[0], &adapter[1], i / 6, i % 6);     /* alpha is 3 */
        ckpt_convert(&half, CKPT_BF16, &w, CKPT_F32, 1);
        assert_int_equal(found[i], half);
    }
    free(found);
    ckpt_source_close(s);
}

/* The base's names may have other leading parts than the model the adapter was trained on. */
TEST(modules_are_found_under_other_wrappers)
{
    static const struct made adapter[] = {
        {P "layers.0.self_attn.q_proj.lora_A.weight", 2, 6, 1},
        {P "layers.0.self_attn.q_proj.lora_B.weight", 6, 2, 7},
    };
    struct ckpt_source *s;

    make_base(tied_config, tied_base, 2, CKPT_F32);
    make_adapter(lora_config, adapter, 2);
    s = must_merge();
    assert_int_equal(ckpt_source_count(s), 2);
    ckpt_source_close(s);
}

/* fan_in_fan_out is saved as the last module had it: shapes decide, and the family. */
TEST(conv1d_is_told_by_shape_and_family)
{
    static const struct made base[] = {{"h.0.attn.c_attn.weight", 6, 18, 1},
                                       {"h.0.attn.c_proj.weight", 6, 6, 2}};
    static const struct made adapter[] = {
        {P "transformer.h.0.attn.c_attn.lora_A.weight", 2, 6, 3},
        {P "transformer.h.0.attn.c_attn.lora_B.weight", 18, 2, 4},
        {P "transformer.h.0.attn.c_proj.lora_A.weight", 2, 6, 5},
        {P "transformer.h.0.attn.c_proj.lora_B.weight", 6, 2, 6},
    };
    struct ckpt_source *s;
    struct ckpt_err err;
    float *found;

    make_base("{\"model_type\": \"gpt2\"}", base, 2, CKPT_F32);
    make_adapter(lora_config, adapter, 4);      /* which says nothing: false */
    s = must_merge();
    found = values_of(s, "h.0.attn.c_proj.weight");
    for (int64_t i = 0; i < 36; i++)
        assert_true(found[i] == element(&base[1], i) +
                                    delta(&adapter[2], &adapter[3], i % 6, i / 6));
    free(found);
    ckpt_source_close(s);
    make_base("{\"model_type\": \"other\"}", base, 2, CKPT_F32);
    assert_int_equal(merge_made(&s, &err), CKPT_EUNSUPPORTED);
    if (!strstr(err.text, "square"))
        fail_msg("%s", err.text);
}

/* Layers 0 1 1 of a base of two; the adapter is on the first and the last. */
static const struct made layers_base[] = {
    {"model.embed_tokens.weight", 20, 6, 3},
    {"model.layers.0.mlp.up_proj.weight", 6, 6, 4},
    {"model.layers.1.mlp.up_proj.weight", 6, 6, 5},
};
#define UP(n) P "model.layers." #n ".mlp.up_proj"
static const struct made layers_adapter[] = {
    {UP(0) ".lora_A.weight", 2, 6, 1}, {UP(0) ".lora_B.weight", 6, 2, 2},
    {UP(2) ".lora_A.weight", 2, 6, 6}, {UP(2) ".lora_B.weight", 6, 2, 7},
};

TEST(layers_used_twice_become_two)
{
    struct ckpt_source *s;

    make_base("{\"model_type\": \"qwen2\", \"num_hidden_layers\": 2, "
              "\"layer_types\": [\"a\", \"b\"]}", layers_base, 3, CKPT_F32);
    make_adapter("{\"peft_type\": \"LORA\", \"r\": 2, \"lora_alpha\": 4, "
                 "\"layer_replication\": [[0, 2], [1, 2]]}", layers_adapter, 4);
    s = must_merge();
    assert_int_equal(ckpt_source_count(s), 4);
    for (size_t k = 0; k < 3; k++) {
        char name[64];
        const struct made *w = &layers_base[k ? 2 : 1];
        const struct made *a = k == 1 ? NULL : &layers_adapter[k];
        float *found;

        snprintf(name, sizeof name, "model.layers.%zu.mlp.up_proj.weight", k);
        assert_true(ckpt_source_find(s, name) != SIZE_MAX);
        found = values_of(s, name);
        for (int64_t i = 0; i < 36; i++)
            assert_true(found[i] == element(w, i) + (a ? delta(a, a + 1, i / 6, i % 6) : 0));
        free(found);
    }
    assert_config_says(s, "\"num_hidden_layers\": 3");
    assert_config_says(s, "[\"a\", \"b\", \"b\"]");
    ckpt_source_close(s);
}

TEST(layers_that_are_not_there_are_not_used)
{
    static const struct { const char *map; int code; const char *says; } row[] = {
        {"[[0, 3]]", CKPT_EMISMATCH, "the base has 2"}, {"[[1, 1]]", CKPT_EFORMAT, "no range"},
        {"[[-1, 1]]", CKPT_EFORMAT, "no range"},        {"[]", CKPT_EFORMAT, "no range"},
        {"[[0, 1, 2]]", CKPT_EFORMAT, "no range"},      {"\"all\"", CKPT_EFORMAT, "no list"},
        {"[[0, 1]]", CKPT_EMISMATCH, "no model.layers.2.mlp.up_proj.weight"},
    };
    char config[256];
    struct ckpt_source *s;
    struct ckpt_err err;

    make_base("{\"num_hidden_layers\": 2}", layers_base, 3, CKPT_F32);
    for (size_t i = 0; i < sizeof row / sizeof row[0]; i++) {
        snprintf(config, sizeof config, "{\"peft_type\": \"LORA\", \"layer_replication\": %s}",
                 row[i].map);
        make_adapter(config, layers_adapter, 4);
        assert_int_equal(merge_made(&s, &err), row[i].code);
        if (!strstr(err.text, row[i].says))
            fail_msg("row %zu: %s", i, err.text);
    }
}

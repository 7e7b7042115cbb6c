/* peft_extract, peft_out: what a model changed comes back, files are byte for byte PEFT's. */
#include "tests/unit/unit.h"

#include "formats/peft/peft.h"
#include "formats/peft/extract.h"
#include "libckpt/view.h"
#include "tests/unit/compare.h"
#include "tests/unit/files.h"

#define LORA "tests/golden/lora/"

static struct ckpt_source *open_part(const char *name, const char *part)
{
    char path[256];

    snprintf(path, sizeof path, LORA "%s/%s", name, part);
    return must_open(path, NULL);
}

static struct ckpt_source *fold(const char *name, struct ckpt_source *adapter)
{
    struct ckpt_source *s;
    struct ckpt_err err = {0};

    if (peft_merge(&s, open_part(name, "base"), &(struct peft_adapter){adapter, name, 1}, 1, &err))
        fail_msg("%s: %s", name, err.text);
    return s;
}

static const json_t *config_of(const struct ckpt_source *s)
{
    return json_object_get(ckpt_source_info(s), "adapter_config");
}

static struct ckpt_source *extract(const char *name, int64_t rank)
{
    struct peft_extract_opts opts = {.rank = rank, .base_name = "base"};
    struct ckpt_source *s;
    struct ckpt_err err = {0};

    if (peft_extract(&s, open_part(name, "base"), fold(name, open_part(name, "adapter")), &opts,
                     &err))
        fail_msg("%s: %s", name, err.text);
    assert_string_equal(ckpt_source_format(s), "peft");
    return s;
}

/* base + adapter, and base + what is extracted from that, are one model. */
TEST(an_adapter_comes_back)
{
    static const struct { const char *name; int64_t rank; double tol; } row[] = {
        {"bloom-qkv", 4, 1e-6}, {"gpt2-conv1d", 8, 1e-6}, {"llama-all-linear", 2, 1e-6},
        {"llama-embed", 2, 1e-6}, {"llama-patterns", 7, 1e-6}, {"llama-dora", 24, 1e-6},
        {"mixtral-experts", 2, 1e-6}, {"qwen2-lora-bias", 2, 1e-6}, {"opt-bias-all", 2, 1e-6},
        {"gptoss-experts", 2, 1e-6}, {"llama-resized-tied", 2, 1e-6}, {"llama-dora", 8, 0.3},
        {"llama-resized-lora", 2, 1e-6}, {"llama-tied-both", 2, 1e-6}, {"net-conv", 2, 1e-6},
    };

    for (size_t i = 0; i < sizeof row / sizeof row[0]; i++) {
        struct ckpt_source *full = fold(row[i].name, open_part(row[i].name, "adapter"));
        struct ckpt_source *again = fold(row[i].name, extract(row[i].name, row[i].rank));

        assert_int_equal(ckpt_source_count(full), ckpt_source_count(again));
        for (size_t k = 0; k < ckpt_source_count(full); k++) {
            const struct ckpt_tensor *t = ckpt_source_tensor(full, k);
            size_t j = ckpt_source_find(again, t->name);
            float *a = read_whole(full, k), *b;

            assert_true(j != SIZE_MAX);
            assert_true(ckpt_shape_equal(&t->shape, &ckpt_source_tensor(again, j)->shape));
            b = read_whole(again, j);
            for (int64_t e = 0; e < t->numel; e++)
                if (!(fabs((double)a[e] - (double)b[e]) <= row[i].tol))
                    fail_msg("%s: %s: %g, %g expected", row[i].name, t->name, (double)b[e],
                             (double)a[e]);
            free(a);
            free(b);
        }
        ckpt_source_close(full);
        ckpt_source_close(again);
    }
}

static bool lists(const json_t *list, const char *name)
{
    for (size_t i = 0; i < json_array_size(list); i++)
        if (strcmp(json_string_value(json_array_get(list, i)), name) == 0)
            return true;
    return false;
}

TEST(settings_are_peft_s)
{
    struct ckpt_source *s = extract("bloom-qkv", 6);
    const json_t *c = config_of(s);

    assert_string_equal(json_string_value(json_object_get(c, "peft_type")), "LORA");
    assert_string_equal(json_string_value(json_object_get(c, "task_type")), "CAUSAL_LM");
    assert_string_equal(json_string_value(json_object_get(c, "bias")), "lora_only");
    assert_int_equal(json_integer_value(json_object_get(c, "r")), 6);
    assert_int_equal(json_integer_value(json_object_get(c, "lora_alpha")), 6);
    assert_int_equal(json_array_size(json_object_get(c, "target_modules")), 1);
    assert_true(lists(json_object_get(c, "target_modules"), "query_key_value"));
    assert_true(json_is_null(json_object_get(c, "modules_to_save")));
    assert_true(ckpt_source_find(s, "base_model.model.transformer.h.1.self_attention."
                                    "query_key_value.base_layer.bias") != SIZE_MAX);
    ckpt_source_close(s);
    s = extract("gpt2-conv1d", 3);              /* biases of norms changed too: whole modules */
    c = config_of(s);
    assert_true(json_is_true(json_object_get(c, "fan_in_fan_out")));
    assert_true(lists(json_object_get(c, "modules_to_save"), "transformer.h.0.ln_1"));
    assert_true(ckpt_source_find(s, "base_model.model.transformer.h.0.ln_1.weight") != SIZE_MAX);
    ckpt_source_close(s);
    s = extract("llama-embed", 2);              /* gate_proj of layer 1 alone */
    c = config_of(s);
    assert_true(lists(json_object_get(c, "target_modules"), "model.layers.1.mlp.gate_proj"));
    assert_true(lists(json_object_get(c, "modules_to_save"), "model.embed_tokens"));
    ckpt_source_close(s);
    s = extract("mixtral-gate", 8);             /* the router has three rows */
    c = json_object_get(config_of(s), "rank_pattern");
    assert_int_equal(json_integer_value(json_object_get(c, "model.layers.0.block_sparse_moe.gate")),
                     3);
    ckpt_source_close(s);
    s = extract("llama-tied-save", 2);
    assert_true(json_is_true(json_object_get(config_of(s), "ensure_weight_tying")));
    ckpt_source_close(s);
}

static void assert_refused(struct ckpt_source *base, struct ckpt_source *full, bool partial,
                           int code, const char *says)
{
    struct peft_extract_opts opts = {.rank = 2, .base_name = "base", .partial = partial};
    struct ckpt_source *s;
    struct ckpt_err err = {0};

    assert_int_equal(peft_extract(&s, base, full, &opts, &err), code);
    assert_null(s);
    if (code && !strstr(err.text, says))
        fail_msg("%s", err.text);
}

TEST(what_does_not_belong_together_is_refused)
{
    struct peft_extract_opts partial = {.rank = 2, .base_name = "base", .partial = true};
    struct ckpt_source *s, *one;
    struct ckpt_err err = {0};

    assert_refused(open_part("llama-embed", "base"), open_part("llama-embed", "base"), false,
                   CKPT_ENOTFOUND, "nothing differs");
    assert_refused(open_part("bloom-qkv", "base"), open_part("llama-embed", "base"), false,
                   CKPT_EMISMATCH, "the base has no such tensor");
    assert_refused(open_part("llama-embed", "base"), open_part("llama-resized-lora", "base"), false,
                   CKPT_EMISMATCH, "the base has [");
    assert_refused(open_part("llama-embed", "base"),
                   without(fold("llama-embed", open_part("llama-embed", "adapter")), "*gate*"),
                   false, CKPT_EMISMATCH, "is in the base and not in the model");
    assert_refused(open_part("llama-embed", "base"),
                   renamed(open_part("llama-embed", "base"), "model.norm.weight", "top"), false,
                   CKPT_EUNSUPPORTED, "top: belongs to no module");
    one = without(fold("llama-embed", open_part("llama-embed", "adapter")), "*embed*");
    assert_int_equal(peft_extract(&s, open_part("llama-embed", "base"), one, &partial, &err), 0);
    assert_int_equal(ckpt_source_count(s), 4);
    ckpt_source_close(s);
}

/* -- writing --------------------------------------------------------------------------------- */

static int write_adapter(const char *path, struct ckpt_source *s, struct ckpt_err *err)
{
    return write_to("peft", path, s, &(struct ckpt_create_opts){.info = ckpt_source_info(s)}, 0,
                    err);
}

TEST(files_are_those_peft_wrote)
{
    static const char *const names[] = {"bloom-qkv", "llama-dora", "llama-patterns",
                                        "qwen3moe-experts", "llama-resized-save"};
    char to[300], a[400], b[400], dir[256];
    struct ckpt_err err = {0};

    snprintf(dir, sizeof dir, "%s", scratch("peft-out"));
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        struct ckpt_source *s = open_part(names[i], "adapter");

        snprintf(to, sizeof to, "%s/%s", dir, names[i]);
        if (write_adapter(to, s, &err))
            fail_msg("%s", err.text);
        ckpt_source_close(s);
        assert_int_equal(entries(to), 2);
        for (size_t k = 0; k < 2; k++) {
            const char *file = k ? "adapter_config.json" : "adapter_model.safetensors";

            snprintf(a, sizeof a, "%s/%s", to, file);
            snprintf(b, sizeof b, LORA "%s/adapter/%s", names[i], file);
            assert_same_file(a, b);
        }
    }
}

TEST(a_model_is_no_adapter)
{
    struct ckpt_source *s = open_part("bloom-qkv", "base");
    char dir[256], to[300];
    struct ckpt_err err = {0};

    snprintf(dir, sizeof dir, "%s", scratch("peft-out"));
    snprintf(to, sizeof to, "%s/x", dir);
    assert_int_equal(write_adapter(to, s, &err), CKPT_EUNSUPPORTED);
    assert_non_null(strstr(err.text, "no adapter"));
    ckpt_source_close(s);
    s = renamed(open_part("bloom-qkv", "adapter"), "base_model.model.", "x.");
    assert_int_equal(write_adapter(to, s, &err), CKPT_EUNSUPPORTED);
    assert_non_null(strstr(err.text, "begin with base_model.model."));
    ckpt_source_close(s);
    assert_int_equal(entries(dir), 0);
}

/*
 * config.json -> description: defaults, older spellings, derived sizes, what is refused by
 * name, what is kept.
 */
#include "tests/unit/model_help.h"

#include "libckpt/log.h"

/* The sentence with which text is refused. */
static const char *refusal(struct ckpt_err *err, const char *text, int code)
{
    struct arch *arch = NULL;
    json_t *json = NULL;

    memset(err, 0, sizeof *err);
    assert_int_equal(ckpt_json_parse(&json, text, strlen(text), CKPT_JSON_STRICT, err), 0);
    if (arch_read_json(&arch, json, err) != code)
        fail_msg("%s: code %d, %s", text, err->code, err->text);
    assert_null(arch);
    json_decref(json);
    return err->text;
}

TEST(config_reads_bloom_with_defaults)
{
    struct arch *a = arch_of("{\"model_type\":\"bloom\"}");
    char text[256];

    assert_int_equal(a->vocab_size, 250880);
    assert_int_equal(a->hidden_size, 64);
    assert_int_equal(a->num_hidden_layers, 2);
    assert_int_equal(a->num_attention_heads, 8);
    assert_int_equal(a->num_key_value_heads, 8);
    assert_int_equal(a->head_dim, 8);
    assert_int_equal(a->intermediate_size, 256);
    assert_true(a->norm_eps == 1e-5 && a->initializer_range == 0.02 && a->tie_word_embeddings);
    assert_true(a->attn_scale > 0.35355 && a->attn_scale < 0.35356);
    assert_false(a->resid_from_norm);
    assert_string_equal(arch_tied_name(a), "lm_head.weight");
    arch_describe(text, sizeof text, a);
    assert_non_null(strstr(text, "bloom: 16.16 M parameters, 2 blocks, hidden 64"));
    arch_free(a);
}

TEST(config_reads_older_spellings_and_kept_keys)
{
    struct arch *a = arch_of(
        "{\"architectures\":[\"BloomForCausalLM\"],\"n_embed\":96,\"num_hidden_layers\":3,"
        "\"num_attention_heads\":6,\"vocab_size\":100,\"layer_norm_epsilon\":1e-6,"
        "\"apply_residual_connection_post_layernorm\":true,\"masked_softmax_fusion\":true,"
        "\"rope_scaling\":null,\"sliding_window\":0,\"somebody_s_key\":[1,{\"x\":2}]}");
    const json_t *kept = json_object_get(arch_config(a), "somebody_s_key");

    assert_int_equal(a->hidden_size, 96);
    assert_int_equal(a->num_hidden_layers, 3);
    assert_int_equal(a->head_dim, 16);
    assert_true(a->resid_from_norm && a->norm_eps == 1e-6);
    assert_int_equal(json_array_size(kept), 2);
    assert_null(json_object_get(arch_config(a), "model_type"));     /* written back as read */
    arch_free(a);
}

static void note(void *ctx, enum ckpt_log_level level, const char *line)
{
    char *all = ctx;

    if (level == CKPT_LOG_NOTE)
        snprintf(all + strlen(all), 512 - strlen(all), "%s;", line);
}

TEST(config_tells_an_unknown_key_once)
{
    char said[512] = "";

    ckpt_log_hook(note, said);
    arch_free(
        arch_of("{\"model_type\":\"bloom\",\"use_cache\":true,\"wibble\":1,\"wobble\":0}"));
    ckpt_log_hook(NULL, NULL);
    assert_non_null(strstr(said, "wibble"));
    assert_null(strstr(said, "use_cache"));
    assert_null(strstr(said, "wobble"));        /* neutral */
}

TEST(config_refuses_by_name)
{
    struct ckpt_err err;

    assert_non_null(
        strstr(refusal(&err, "{\"model_type\":\"mamba\"}", CKPT_EUNSUPPORTED), "mamba"));
    assert_non_null(strstr(err.text, "bloom"));
    assert_string_equal(err.reason, "model-type");
    assert_non_null(strstr(refusal(&err, "{\"architectures\":[\"FooForCausalLM\"]}",
                                   CKPT_EUNSUPPORTED), "FooForCausalLM"));
    refusal(&err, "{}", CKPT_EFORMAT);
    refusal(&err, "[]", CKPT_EFORMAT);
    assert_non_null(strstr(refusal(&err, "{\"model_type\":\"bloom\",\"rope_scaling\":"
                                         "{\"type\":\"linear\"}}", CKPT_EUNSUPPORTED),
                           "rope_scaling"));
    assert_string_equal(err.reason, "config-key");
    refusal(&err, "{\"model_type\":\"bloom\",\"quantization_config\":{\"bits\":4}}",
            CKPT_EUNSUPPORTED);
    assert_non_null(
        strstr(refusal(&err, "{\"model_type\":\"bloom\",\"n_head\":7}", CKPT_EFORMAT),
               "7 attention heads"));
    assert_non_null(strstr(
        refusal(&err, "{\"model_type\":\"bloom\",\"n_layer\":0}", CKPT_EFORMAT), "n_layer"));
    refusal(&err, "{\"model_type\":\"bloom\",\"vocab_size\":99999999999}", CKPT_EFORMAT);
    refusal(&err, "{\"model_type\":\"bloom\",\"hidden_size\":\"64\"}", CKPT_EFORMAT);
    refusal(&err, "{\"model_type\":\"bloom\",\"hidden_dropout\":-0.1}", CKPT_EFORMAT);
    refusal(&err, "{\"model_type\":\"bloom\",\"tie_word_embeddings\":1}", CKPT_EFORMAT);
}

TEST(config_reads_a_directory)
{
    struct ckpt_err err = {0};
    struct ckpt_dir *dir;
    struct arch *a;

    assert_int_equal(ckpt_dir_open(&dir, "tests/golden/models/bloom-b", 0, &err), 0);
    assert_int_equal(arch_read(&a, dir, "config.json", &err), 0);
    assert_int_equal(a->num_attention_heads, 7);
    arch_free(a);
    ckpt_dir_close(dir);
    assert_int_equal(ckpt_dir_open(&dir, "tests/golden", 0, &err), 0);
    assert_int_equal(arch_read(&a, dir, "config.json", &err), CKPT_ENOTFOUND);
    assert_int_equal(arch_read(&a, dir, "models/half_errors.json", &err), CKPT_EFORMAT);
    assert_non_null(strstr(err.text, "tests/golden/models/half_errors.json: "));
    ckpt_dir_close(dir);
}

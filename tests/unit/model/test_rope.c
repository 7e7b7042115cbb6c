/*
 * Rotary positions: frequencies and logits of every kind against transformers, the spellings of
 * older files, refusals.
 */
#include "tests/unit/golden_model.h"

#include "trainer/model/rope.h"

static void check_frequencies(struct golden *g, const struct arch *arch)
{
    double inv[64];
    int64_t n;
    const float *wanted = golden_floats(g, g->expect, "inv_freq", &n);

    assert_int_equal(n, arch->rope.rotary_dim / 2);
    rope_frequencies(inv, arch, 1);
    for (int64_t i = 0; i < n; i++)
        if (!(fabs(inv[i] - (double)wanted[i]) <= 1e-6 * (double)wanted[i]))
            fail_msg("inv_freq[%d] is %.9g, wanted %.9g", (int)i, inv[i], (double)wanted[i]);
    wanted = golden_floats(g, g->expect, "attention_scaling", &n);
    assert_true(fabs(arch->rope.attention_factor - (double)wanted[0]) <= 1e-6);
}

/* The logits of the last four of length tokens. */
static void check_logits(struct golden *g, int length)
{
    struct ckpt_err err = {0};
    int64_t rows, cols, V = g->arch->vocab_size, n;
    const int64_t *ids64 = golden_ints(g, "", "input_ids", &rows, &cols);
    int32_t ids[90], positions[90], start[] = {0, length}, at[4];
    struct batch b = {.n_tokens = length, .n_docs = 1, .ids = ids, .positions = positions,
                      .doc_start = start};
    float *found = ckpt_arena_alloc(&g->arena, (size_t)(4 * V), sizeof *found), *wanted;
    char name[32];

    for (int32_t i = 0; i < length; i++) {
        ids[i] = (int32_t)ids64[i];
        positions[i] = i;
    }
    for (int32_t i = 0; i < 4; i++)
        at[i] = length - 4 + i;
    OK(model_logits(g->model, resident_door(g->weights), &b, at, 4, found, &err), err);
    snprintf(name, sizeof name, "logits_last4.%d", length);
    wanted = golden_floats(g, g->expect, name, &n);
    golden_same_rows(found, wanted, (const int32_t[]){0, 1, 2, 3}, 4, V, name);
}

TEST(rope_agrees_with_transformers)
{
    static const char *const kinds[] = {"linear", "dynamic", "yarn", "yarn-mscale",
                                        "yarn-ratio-differs"};
    static const struct model_opts opts = {.max_tokens = 90, .max_docs = 1, .max_rows = 1};

    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        char dir[128];
        struct ckpt_err err = {0};
        struct golden g;

        golden_open(&g, "llama-a", &opts, 2);
        snprintf(dir, sizeof dir, "tests/golden/models/llama-a/ropes/%s", kinds[i]);
        ckpt_source_close(g.expect);
        g.expect = golden_source("safetensors", dir, "/golden.safetensors");
        /* The same weights under the other description. */
        model_free(g.model);
        arch_free(g.arch);
        g.arch = golden_arch(dir, "config.json");
        OK(model_new(&g.model, g.arch, &opts, g.dev, &err), err);
        check_frequencies(&g, g.arch);
        check_logits(&g, 20);
        check_logits(&g, 90);
        check_logits(&g, 20);           /* dynamic: back from the longer table */
        golden_close(&g);
    }
}

/* Older spellings of one config give the same description. */
TEST(rope_reads_older_files)
{
    static const char *const pairs[][2] = {
        {"llama31/config.json", "llama31/config.v4.json"},
        {"phi3-long/config.json", "phi3-long/config.v4.json"},
        {"phi3-long/config.json", "phi3-long/config.su.json"},
    };

    for (size_t i = 0; i < 3; i++) {
        struct arch *arch[2];
        double inv[2][64];

        for (int k = 0; k < 2; k++)
            arch[k] = golden_arch("tests/golden/models", pairs[i][k]);
        assert_int_equal(arch[0]->rope.kind, arch[1]->rope.kind);
        assert_int_equal(arch[0]->rope.rotary_dim, arch[1]->rope.rotary_dim);
        assert_true(arch[0]->rope.attention_factor == arch[1]->rope.attention_factor);
        for (int64_t length = 8; length <= 64; length += 56) {
            for (int k = 0; k < 2; k++)
                rope_frequencies(inv[k], arch[k], length);
            assert_memory_equal(inv[0], inv[1],
                                (size_t)arch[0]->rope.rotary_dim / 2 * sizeof inv[0][0]);
        }
        arch_free(arch[0]);
        arch_free(arch[1]);
    }
}

static void refused(const char *rope, int code, const char *text)
{
    struct ckpt_err err = {0};
    struct arch *arch;
    json_t *config = json_pack("{s:s,s:i,s:i,s:o}", "model_type", "phi3", "hidden_size", 64,
                               "num_attention_heads", 4, "rope_scaling",
                               json_loads(rope, 0, NULL));

    assert_non_null(config);
    assert_int_equal(arch_read_json(&arch, config, &err), code);
    if (!strstr(err.text, text))
        fail_msg("'%s' does not say '%s'", err.text, text);
    json_decref(config);
}

TEST(rope_refuses_what_makes_no_sense)
{
    refused("{\"type\":\"spiral\"}", CKPT_EUNSUPPORTED, "rope_type spiral");
    refused("{\"type\":\"linear\"}", CKPT_EFORMAT, "factor is 0");
    refused("{\"type\":\"linear\",\"factor\":\"2\"}", CKPT_EFORMAT, "factor");
    refused("{\"type\":\"longrope\",\"short_factor\":[1],\"long_factor\":[1],"
            "\"original_max_position_embeddings\":16}", CKPT_EFORMAT, "wanted 8");
    refused("{\"type\":\"llama3\",\"factor\":8,\"original_max_position_embeddings\":16,"
            "\"low_freq_factor\":4,\"high_freq_factor\":1}", CKPT_EFORMAT, "high_freq_factor");
    refused("{\"rope_type\":\"default\",\"partial_rotary_factor\":0.1}", CKPT_EFORMAT,
            "elements of a head are rotated");
    refused("{\"rope_type\":\"default\",\"rope_theta\":0}", CKPT_EFORMAT, "theta");
}

/* A base that config.json does not say is the family's. */
TEST(rope_has_the_familys_base)
{
    static const struct { const char *family; double theta; } rows[] = {
        {"llama", 1e4}, {"mistral", 1e4}, {"qwen3_moe", 1e4}, {"mixtral", 1e6}};

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct ckpt_err err = {0};
        struct arch *arch;
        json_t *config = json_pack("{s:s,s:i,s:i,s:i,s:i}", "model_type", rows[i].family,
                                   "hidden_size", 64, "num_attention_heads", 4,
                                   "num_key_value_heads", 2, "head_dim", 16);

        assert_int_equal(arch_read_json(&arch, config, &err), 0);
        assert_true(fabs(arch->rope.theta - rows[i].theta) < 1e-3);
        arch_free(arch);
        json_decref(config);
    }
}

/* gguf_of_model, gguf_as_model: llama.cpp's own conversion, and the way back. */
#include "tests/unit/compare.h"
#include "tests/unit/files.h"

#include "formats/gguf/as_model.h"
#include "formats/gguf/header.h"
#include "formats/gguf/of_model.h"
#include "libckpt/base/json.h"
#include "tests/unit/store.h"

#define G   "tests/golden/gguf/"
#define TMP "build/test-gguf-model.gguf"

static const struct ckpt_cast_rule to_f32 = {"*", CKPT_F32}, to_f16 = {"*", CKPT_F16};

static const struct golden {
    const char                  *name, *kind;
    const struct ckpt_cast_rule *rule;
    bool                         packs;
} goldens[] = {
    {"llama", "q8_0", &to_f32, true}, {"mixtral", "f32", NULL, false},
    {"gpt2", "f16", &to_f16, false}, {"bloom", "f32", NULL, false},
};
#define N_GOLDEN (sizeof goldens / sizeof goldens[0])

static struct ckpt_source *must_make(struct ckpt_source *src, const struct ckpt_cast_rule *rule,
                                     bool packs)
{
    struct ckpt_source *out;
    struct ckpt_err err = {0};

    if (gguf_of_model(&out, src, rule, &packs, rule != NULL, &err))
        fail_msg("%s", err.text);
    return out;
}

/* Write a model's directory to TMP. */
static void must_write(const char *path, const struct ckpt_cast_rule *rule, bool packs)
{
    struct ckpt_source *src = must_make(must_open(path, NULL), rule, packs);
    struct ckpt_create_opts opts = {.flags = CKPT_REPLACE, .info = ckpt_source_info(src)};
    struct ckpt_err err;

    if (write_to("gguf", TMP, src, &opts, 0, &err))
        fail_msg("%s: %s", path, err.text);
    ckpt_source_close(src);
}

static struct ckpt_source *must_see(const char *path)
{
    struct ckpt_source *out;
    struct ckpt_err err = {0};

    if (gguf_as_model(&out, must_open(path, NULL), &err))
        fail_msg("%s: %s", path, err.text);
    return out;
}

/* Keys by which the reference describes a model, and one it derives from pairs of texts. */
static bool told_otherwise(const char *key)
{
    static const char *const keys[] = {
        "general.name", "general.size_label", "general.basename", "general.finetune",
        "general.version", "general.organization", "tokenizer.ggml.add_sep_token",
        "tokenizer.ggml.model",     /* "none" is told where there is no tokenizer */
    };

    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        if (strcmp(key, keys[i]) == 0)
            return true;
    return false;
}

static void bytes_of(unsigned char *dst, struct ckpt_file *f, const struct gguf_pair *p)
{
    struct ckpt_err err = {0};

    assert_int_equal(ckpt_file_read_at(f, dst, (size_t)(p->end - p->at), p->at, &err), 0);
}

/* Every key of the reference's file is in ours with the same kind and the same bytes. */
static void assert_same_keys(const char *ours, const char *golden)
{
    static unsigned char a[1 << 17], b[1 << 17];
    struct gguf_header h, w;
    struct ckpt_file *f, *g;
    struct ckpt_err err = {0};

    assert_int_equal(ckpt_file_open(&f, ours, 0, &err), 0);
    assert_int_equal(ckpt_file_open(&g, golden, 0, &err), 0);
    assert_int_equal(gguf_header_read(&h, f, &err), 0);
    assert_int_equal(gguf_header_read(&w, g, &err), 0);
    assert_true(w.n_pair >= 10);
    for (size_t i = 0; i < w.n_pair; i++) {
        const struct gguf_pair *want = &w.pair[i], *have = gguf_pair(&h, want->key);

        if (told_otherwise(want->key))
            continue;
        if (!have || have->kind != want->kind || have->of != want->of || have->n != want->n ||
            have->end - have->at != want->end - want->at)
            fail_msg("%s: key %s", golden, want->key);
        bytes_of(a, f, have);
        bytes_of(b, g, want);
        if (memcmp(a, b, (size_t)(want->end - want->at)) != 0)
            fail_msg("%s: the value of key %s", golden, want->key);
    }
    gguf_header_release(&h);
    gguf_header_release(&w);
    ckpt_file_close(f);
    ckpt_file_close(g);
}

TEST(models_become_what_llama_cpp_makes_of_them)
{
    for (size_t i = 0; i < N_GOLDEN; i++) {
        struct ckpt_source *found, *wanted;
        char path[128], golden[128];

        snprintf(path, sizeof path, G "%s", goldens[i].name);
        snprintf(golden, sizeof golden, G "%s.%s.gguf", goldens[i].name, goldens[i].kind);
        must_write(path, goldens[i].rule, goldens[i].packs);
        found = must_open(TMP, NULL);
        wanted = must_open(golden, NULL);
        assert_same_tensors(found, wanted, golden);
        for (size_t k = 0; k < ckpt_source_count(wanted); k++) {
            const struct ckpt_tensor *t = ckpt_source_tensor(wanted, k);

            assert_string_equal(
                ckpt_tensor_stored(ckpt_source_tensor(found, ckpt_source_find(found, t->name))),
                ckpt_tensor_stored(t));
        }
        ckpt_source_close(found);
        ckpt_source_close(wanted);
        assert_same_keys(TMP, golden);
    }
    remove(TMP);
}

/* The side file of both has the same bytes. */
static void assert_same_extra(const struct ckpt_source *a, const struct ckpt_source *b,
                             const char *name)
{
    const struct ckpt_extra *x = ckpt_source_extra(a, name), *y = ckpt_source_extra(b, name);
    struct ckpt_arena arena = {0};
    struct ckpt_err err = {0};
    char *p, *q;
    size_t n, m;

    if (!x || !y)
        fail_msg("%s is absent", name);
    assert_int_equal(ckpt_file_slurp(x->file, &arena, 1 << 20, &p, &n, &err), 0);
    assert_int_equal(ckpt_file_slurp(y->file, &arena, 1 << 20, &q, &m, &err), 0);
    assert_int_equal(n, m);
    assert_memory_equal(p, q, n);
    ckpt_arena_release(&arena);
}

TEST(there_and_back_is_the_same_model)
{
    static const char *const models[] = {
        G "llama", G "mixtral", G "gpt2", G "bloom", "tests/golden/models/bloom-a",
    };

    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++) {
        struct ckpt_source *wanted = must_open(models[i], NULL), *found;

        must_write(models[i], NULL, false);
        found = must_see(TMP);
        assert_same_tensors(found, wanted, models[i]);
        assert_same_extra(found, wanted, "config.json");
        if (i == 0) {
            assert_same_extra(found, wanted, "tokenizer.json");
            assert_same_extra(found, wanted, "tokenizer_config.json");
        }
        ckpt_source_close(found);
        ckpt_source_close(wanted);
    }
    remove(TMP);
}

static json_t *config_of(const struct ckpt_source *s)
{
    const struct ckpt_extra *e = ckpt_source_extra(s, "config.json");
    struct ckpt_err err = {0};
    json_t *config;

    assert_non_null(e);
    assert_int_equal(ckpt_json_read(&config, e->file, 1 << 20, CKPT_JSON_STRICT, &err), 0);
    return config;
}

/* Of other make: names, layouts and a config.json by its keys alone. */
TEST(files_of_llama_cpp_are_seen_as_models)
{
    static const struct { const char *gguf, *model, *type, *key; int64_t value; } row[] = {
        {G "mixtral.f32.gguf", G "mixtral", "mixtral", "num_local_experts", 3},
        {G "bloom.f32.gguf", G "bloom", "bloom", "n_head", 3},
    };

    for (size_t i = 0; i < 2; i++) {
        struct ckpt_source *found = must_see(row[i].gguf);
        struct ckpt_source *wanted = must_open(row[i].model, NULL);
        json_t *config = config_of(found), *theirs = config_of(wanted), *v;
        const char *key;

        assert_same_tensors(found, wanted, row[i].gguf);
        assert_string_equal(json_string_value(json_object_get(config, "model_type")),
                            row[i].type);
        assert_int_equal(json_integer_value(json_object_get(config, row[i].key)), row[i].value);
        json_object_foreach (config, key, v) {      /* what is said is what it was */
            if (!json_object_get(theirs, key) || strstr(key, "token_id"))
                continue;
            if (!json_equal(v, json_object_get(theirs, key)))
                fail_msg("%s: %s", row[i].gguf, key);
        }
        json_decref(config);
        json_decref(theirs);
        ckpt_source_close(found);
        ckpt_source_close(wanted);
    }
}

TEST(names_without_a_prefix_stay_without)
{
    struct ckpt_source *made = must_make(renamed(must_open(G "gpt2", NULL), "transformer.", ""),
                                         NULL, false);
    bool found = false;
    json_t *pair;
    size_t i;

    assert_true(ckpt_source_find(made, "blk.1.attn_qkv.weight") != SIZE_MAX);
    json_array_foreach (json_object_get(ckpt_source_info(made), "gguf"), i, pair)
        if (strcmp(json_string_value(json_array_get(pair, 0)), "ckpt.prefix") == 0) {
            found = true;
            assert_string_equal(json_string_value(json_array_get(pair, 2)), "");
        }
    assert_true(found);
    ckpt_source_close(made);
}

static int code_without(const char *model, const char *drop, const char *rename_to,
                        struct ckpt_err *err)
{
    struct ckpt_source *src = must_open(model, NULL), *out = NULL;
    int rc = gguf_of_model(&out, rename_to ? renamed(src, drop, rename_to) : without(src, drop),
                           NULL, NULL, 0, err);

    ckpt_source_close(out);
    return rc;
}

TEST(a_model_that_is_not_whole_is_refused)
{
    struct ckpt_err err;

    assert_int_equal(code_without(G "mixtral", "model.layers.1.block_sparse_moe.experts.2.w3.weight",
                                  NULL, &err), CKPT_EFORMAT);
    assert_string_equal(err.text, "tensor blk.1.ffn_up_exps.weight: expert 2 of 3 is not there");
    assert_int_equal(code_without(G "mixtral", "model.layers.1.block_sparse_moe.experts.2.w3",
                                  "model.layers.1.block_sparse_moe.experts.3.w3", &err),
                     CKPT_EFORMAT);
    assert_non_null(strstr(err.text, "config.json has 3 experts"));
    assert_int_equal(code_without(G "bloom", "transformer.ln_f", "transformer.ln_g", &err),
                     CKPT_EUNSUPPORTED);
    assert_non_null(strstr(err.text, "llama.cpp's bloom has no name for it"));
}

/* No config.json: names stay, and so do dtypes. */
TEST(tensors_of_no_model_keep_their_names)
{
    static const struct store_row row[] = {{"some.name", CKPT_BF16, 1, {4}, 0}};
    struct ckpt_source *made = must_make(store_source(row, 1, NULL), NULL, false);

    assert_int_equal(ckpt_source_find(made, "some.name"), 0);
    assert_int_equal(ckpt_source_tensor(made, 0)->dtype, CKPT_BF16);
    ckpt_source_close(made);
}

/*
 * gguf_vocab: the vocabulary of a file that llama.cpp wrote, and of files that have lost the
 * tokenizer.json they were made of, encode every string as before.
 */
#include "tests/unit/unit.h"

#include "formats/formats.h"
#include "formats/tokens/tokenizer.h"
#include "formats/gguf/of_model.h"
#include "formats/gguf/vocab.h"
#include "libckpt/ckpt.h"
#include "libckpt/base/json.h"
#include "tests/unit/files.h"

#define T "tests/golden/tokenizers/"
#define G "tests/golden/gguf/"

static struct tokenizer *open_json(const json_t *json)
{
    char *text = json_dumps(json, 0);
    struct ckpt_file *f;
    struct tokenizer *t;
    struct ckpt_err err = {0};

    assert_int_equal(ckpt_file_memory(&f, text, strlen(text), "tokenizer.json", &err), 0);
    if (tokenizer_open(&t, f, &err))
        fail_msg("%s", err.text);
    ckpt_file_close(f);
    free(text);
    return t;
}

/* Both give the same ids of every line. */
static void assert_encode_alike(const json_t *made, const json_t *wanted)
{
    struct tokenizer *a = open_json(made), *b = open_json(wanted);
    FILE *f = fopen(T "strings.jsonl", "r");
    char line[1 << 14];
    size_t lines = 0;

    assert_non_null(f);
    for (; fgets(line, sizeof line, f); lines++) {
        json_t *s = json_loads(line, JSON_DECODE_ANY, NULL);
        struct encoding x = {0}, y = {0};
        struct ckpt_err err = {0};
        int rc = tokenizer_encode(a, &x, json_string_value(s), json_string_length(s), true, &err);

        assert_int_equal(tokenizer_encode(b, &y, json_string_value(s), json_string_length(s), true,
                                          &err), rc);
        if (x.n != y.n || (x.n && memcmp(x.id, y.id, x.n * sizeof *x.id) != 0))
            fail_msg("%s", line);
        encoding_release(&x);
        encoding_release(&y);
        json_decref(s);
    }
    assert_true(lines > 300);
    fclose(f);
    tokenizer_close(a);
    tokenizer_close(b);
}

static json_t *vocab_of(const char *path, json_t **settings)
{
    struct ckpt_file *f;
    struct ckpt_err err = {0};
    json_t *made;

    assert_int_equal(ckpt_file_open(&f, path, 0, &err), 0);
    if (gguf_vocab(&made, settings, f, &err))
        fail_msg("%s: %s", path, err.text);
    ckpt_file_close(f);
    return made;
}

static const char *string_of(const json_t *o, const char *key)
{
    return json_string_value(json_object_get(o, key));
}

TEST(a_file_of_llama_cpp)
{
    json_t *wanted = golden_json(G "llama/tokenizer.json"), *settings, *made;

    made = vocab_of(G "llama.q8_0.gguf", &settings);
    assert_non_null(made);
    assert_encode_alike(made, wanted);
    assert_true(json_equal(json_object_get(made, "added_tokens"),
                           json_object_get(wanted, "added_tokens")));
    assert_true(json_equal(json_object_get(made, "pre_tokenizer"),
                           json_object_get(wanted, "pre_tokenizer")));
    assert_true(json_equal(json_object_get(json_object_get(made, "model"), "vocab"),
                           json_object_get(json_object_get(wanted, "model"), "vocab")));
    assert_string_equal(string_of(settings, "bos_token"), "<|begin_of_text|>");
    assert_string_equal(string_of(settings, "eos_token"), "<|end_of_text|>");
    json_decref(made);
    json_decref(settings);
    json_decref(wanted);
}

/* A GGUF file of a small model with that tokenizer.json. */
static json_t *there_and_back(const char *tokenizer, const char *special)
{
    const char *d = scratch("vocab");
    char command[1600], model[300], path[300];
    struct ckpt_create_opts opts = {0};
    struct ckpt_source *src, *as_gguf;
    struct ckpt_err err = {0};
    json_t *made, *settings;

    snprintf(model, sizeof model, "%s/model", d);
    snprintf(path, sizeof path, "%s/x.gguf", d);
    snprintf(command, sizeof command, "cp -r " G "gpt2 %s && cp %s/tokenizer.json %s && "
             "echo '%s' > %s/tokenizer_config.json", model, tokenizer, model, special, model);
    assert_int_equal(system(command), 0);
    if (ckpt_open(&src, model, NULL, &err) || gguf_of_model(&as_gguf, src, NULL, NULL, 0, &err))
        fail_msg("%s", err.text);
    opts.info = ckpt_source_info(as_gguf);
    if (write_to("gguf", path, as_gguf, &opts, 0, &err))
        fail_msg("%s", err.text);
    ckpt_source_close(as_gguf);
    made = vocab_of(path, &settings);
    json_decref(settings);
    scratch_remove(d);
    return made;
}

TEST(byte_level_vocabularies)
{
    static const struct { const char *dir, *special; } rows[] = {
        {T "gpt2", "{\"bos_token\": \"<|endoftext|>\"}"}, {T "bloom", "{\"bos_token\": \"<s>\"}"},
        {T "llama3", "{\"bos_token\": \"<|begin_of_text|>\"}"},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        json_t *made = there_and_back(rows[i].dir, rows[i].special), *wanted;
        char path[200];

        snprintf(path, sizeof path, "%s/tokenizer.json", rows[i].dir);
        wanted = golden_json(path);
        if (!made)
            fail_msg("%s", path);
        assert_encode_alike(made, wanted);
        json_decref(made);
        json_decref(wanted);
    }
}

/* Scores tell merges; those of the old file are among them and in their order. */
TEST(a_vocabulary_of_scores)
{
    static const char *const same[] = {"normalizer", "pre_tokenizer", "decoder", "post_processor",
                                       "added_tokens"};
    json_t *made = there_and_back(G "sentencepiece",
                                  "{\"bos_token\": \"<s>\", \"unk_token\": \"<unk>\"}");
    json_t *wanted = golden_json(G "sentencepiece/tokenizer.json"), *old, *new, *pair;
    size_t at = 0, i;

    for (i = 0; i < sizeof same / sizeof same[0]; i++)
        if (!json_equal(json_object_get(made, same[i]), json_object_get(wanted, same[i])))
            fail_msg("%s", same[i]);
    old = json_object_get(json_object_get(wanted, "model"), "merges");
    new = json_object_get(json_object_get(made, "model"), "merges");
    assert_true(json_array_size(new) >= json_array_size(old) && json_array_size(old) > 200);
    json_array_foreach (old, i, pair) {
        char left[100], right[100];

        if (json_is_string(pair)) {
            assert_int_equal(sscanf(json_string_value(pair), "%99s %99s", left, right), 2);
        } else {
            snprintf(left, sizeof left, "%s", json_string_value(json_array_get(pair, 0)));
            snprintf(right, sizeof right, "%s", json_string_value(json_array_get(pair, 1)));
        }
        for (;; at++) {
            const json_t *have = json_array_get(new, at);

            if (!have)
                fail_msg("merge %zu, %s %s, is not in its place", i, left, right);
            if (strcmp(json_string_value(json_array_get(have, 0)), left) == 0 &&
                strcmp(json_string_value(json_array_get(have, 1)), right) == 0)
                break;
        }
    }
    json_decref(wanted);
    json_decref(made);
}

/* What is no vocabulary, or one that does not fit together. */
TEST(damaged_vocabularies)
{
    struct ckpt_err err = {0};
    struct ckpt_file *f;
    json_t *made, *settings;
    size_t n, seen = 0;
    char *p = slurp(G "llama.q8_0.gguf", &n);

    for (size_t at = 0; at < n && at < 20000; at += 3) {
        p[at] ^= (char)0x80;            /* headers that do not hold, texts that are none */
        memset(&err, 0, sizeof err);
        assert_int_equal(ckpt_file_memory(&f, p, n, "x.gguf", &err), 0);
        if (gguf_vocab(&made, &settings, f, &err)) {
            assert_true(err.text[0] != '\0');
            assert_null(made);
            seen++;
        }
        json_decref(made);
        json_decref(settings);
        ckpt_file_close(f);
        p[at] ^= (char)0x80;
    }
    assert_true(seen > 1700);
    free(p);
}

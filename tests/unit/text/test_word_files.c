/*
 * vocab.txt, and vocab.json with merges.txt: the same tokenizers as the tokenizer.json whose
 * vocabularies they hold, line for line; what the configuration beside them changes.
 */
#include "tests/unit/unit.h"

#include "formats/tokens/tokenizer_parts.h"
#include "formats/tokens/word_files.h"
#include "tests/unit/golden_tokens.h"

/* Every string: the same ids, places and text from both. */
static void check_same(const char *files, const char *json)
{
    struct tokenizer *a = open_named(files), *b = open_named(json);
    struct ckpt_arena arena = {0};
    struct ckpt_err err = {0};
    struct texts texts;

    texts_read(&texts, &arena);
    assert_int_equal(texts.n, 412);
    for (size_t i = 0; i < texts.n; i++) {
        const char *s = json_string_value(texts.text[i]);
        size_t n = json_string_length(texts.text[i]), n_a, n_b;
        struct encoding x = {0}, y = {0};
        char *one, *two;

        assert_int_equal(tokenizer_encode(a, &x, s, n, true, &err), 0);
        assert_int_equal(tokenizer_encode(b, &y, s, n, true, &err), 0);
        if (x.n != y.n || (x.n && (memcmp(x.id, y.id, x.n * sizeof *x.id) != 0 ||
                                   memcmp(x.start, y.start, x.n * sizeof *x.start) != 0 ||
                                   memcmp(x.end, y.end, x.n * sizeof *x.end) != 0)))
            fail_msg("%s: string %zu", files, i);
        assert_int_equal(tokenizer_decode(a, &one, &n_a, x.id, x.n, true, &err), 0);
        assert_int_equal(tokenizer_decode(b, &two, &n_b, y.id, y.n, true, &err), 0);
        assert_string_equal(one, two);
        ckpt_free(one);
        ckpt_free(two);
        encoding_release(&x);
        encoding_release(&y);
    }
    texts_release(&texts);
    ckpt_arena_release(&arena);
    tokenizer_close(a);
    tokenizer_close(b);
}

TEST(vocab_txt)
{
    check_same("files/vocab-txt", "bert");
}

TEST(vocab_json_and_merges)
{
    struct tokenizer *t = open_named("files/vocab-merges");

    assert_int_equal(tokenizer_bos(t), tokenizer_id(t, "<|endoftext|>"));
    assert_int_equal(tokenizer_eos(t), tokenizer_id(t, "<|endoftext|>"));
    tokenizer_close(t);
    check_same("files/vocab-merges", "gpt2");
}

/* A tokenizer of these files and this configuration, and the tokens of a text. */
static void expect(json_t *root, const char *config, const char *added, const char *text,
                   const char *want)
{
    json_t *c = json_loads(config, 0, NULL), *a = added ? json_loads(added, 0, NULL) : NULL;
    struct ckpt_err err = {0};
    struct tokenizer *t;

    if (word_files_added(root, a, c, &err) || tokenizer_from_json(&t, root, 1000, &err) ||
        tokenizer_config(t, c, false, &err))
        fail_msg("%s", err.text);
    assert_tokens(t, text, want);
    tokenizer_close(t);
    json_decref(root);
    json_decref(c);
    json_decref(a);
}

#define TXT "[UNK]\n[CLS]\n[SEP]\nab\n##c\nAB\n"

static json_t *txt(const char *config)
{
    json_t *root, *c = json_loads(config, 0, NULL);
    struct ckpt_err err = {0};

    if (word_files_vocab_txt(&root, TXT, strlen(TXT), c, &err))
        fail_msg("%s", err.text);
    json_decref(c);
    return root;
}

static json_t *merges(const char *config)
{
    json_t *vocab = json_loads("{\"<s>\":0,\"</s>\":1,\"a\":2,\"b\":3,\"ab\":4,\"\\u0120\":5,"
                               "\"\\u0120a\":6}", 0, NULL);
    json_t *root, *c = json_loads(config, 0, NULL);
    struct ckpt_err err = {0};
    const char *text = "#version: 0.2\na b\n\xc4\xa0 a\n";

    if (word_files_vocab_merges(&root, vocab, text, strlen(text), c, &err))
        fail_msg("%s", err.text);
    json_decref(vocab);
    json_decref(c);
    return root;
}

TEST(what_the_configuration_says)
{
    static const char cased[] = "{\"do_lower_case\":false}";
    static const char roberta[] = "{\"tokenizer_class\":\"RobertaTokenizer\","
                                  "\"add_prefix_space\":true}";
    static const char opt[] = "{\"tokenizer_class\":\"GPT2Tokenizer\",\"add_bos_token\":true,"
                              "\"bos_token\":\"</s>\"}";
    static const char more[] = "{\"added_tokens_decoder\":{\"7\":{\"content\":\"<x>\","
                               "\"special\":true,\"lstrip\":true}}}";

    expect(txt("{}"), "{}", NULL, "ABC ab", "[CLS] ab ##c ab [SEP]");
    expect(txt(cased), cased, NULL, "AB abc b", "[CLS] AB ab ##c [UNK] [SEP]");
    expect(merges("{}"), "{}", NULL, "ab a", "ab \xc4\xa0" "a");
    expect(merges(roberta), roberta, NULL, "a", "<s> \xc4\xa0" "a </s>");
    expect(merges(opt), opt, NULL, "ab", "</s> ab");
    expect(merges("{}"), more, "{\"<y>\":8}", "ab  <x>a<y>", "ab <x> a <y>");
}

TEST(damage_is_named)
{
    json_t *root, *vocab = json_object();
    struct ckpt_err err = {0};

    assert_int_equal(word_files_vocab_txt(&root, "a\n\xff\n", 4, NULL, &err), CKPT_EFORMAT);
    assert_non_null(strstr(err.text, "line 2"));
    assert_int_equal(word_files_vocab_txt(&root, "", 0, NULL, &err), CKPT_EFORMAT);
    assert_int_equal(word_files_vocab_merges(&root, vocab, "a b\n\xc0 b\n", 8, NULL, &err),
                     CKPT_EFORMAT);
    assert_non_null(strstr(err.text, "merges.txt:2"));
    json_decref(vocab);
}

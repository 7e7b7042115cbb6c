/*
 * tokenizer: ids, offsets and decoded text of the reference library, line for line, for ten
 * tokenizers; what is refused; damaged files.
 *
 * golden.jsonl: see make_tokenizers.py's layout: ids, plain (without specials, when different),
 * off (flat [start, end, ...] in code points), dec and skip (when different from the text), pre
 * (pieces of the pre-tokenizer in code points).
 */
#include "tests/unit/unit.h"

#include "formats/tokens/tokenizer_parts.h"
#include "tests/unit/data_files.h"
#include "tests/unit/golden_tokens.h"

#define DIR TOKENIZERS

/* at[i]: byte offset of code point i; one more for the end. */
static size_t *code_points(const char *s, size_t len)
{
    size_t *at = calloc(len + 2, sizeof *at), n = 0;

    for (size_t i = 0; i < len; i++)
        if (((unsigned char)s[i] & 0xc0) != 0x80)
            at[n++] = i;
    at[n] = len;
    return at;
}

struct line { const char *name, *text; size_t len; const json_t *want; size_t number; };

static void check_ids(const struct line *l, const struct encoding *e, const json_t *ids)
{
    assert_numbers(l->name, l->number, "ids", e->id, e->n, ids);
}

static void check_offsets(const struct line *l, const struct encoding *e, const json_t *off)
{
    size_t *at = code_points(l->text, l->len);

    for (size_t i = 0; i < e->n; i++) {
        size_t start = at[json_integer_value(json_array_get(off, 2 * i))];
        size_t end = at[json_integer_value(json_array_get(off, 2 * i + 1))];

        if (e->start[i] != (int64_t)start || e->end[i] != (int64_t)end)
            fail_msg("%s: line %zu: token %zu lies at [%lld, %lld), [%zu, %zu) wanted", l->name, l->number,
                     i, (long long)e->start[i], (long long)e->end[i], start, end);
    }
    free(at);
}

static void check_decode(const struct tokenizer *t, const struct line *l,
                         const struct encoding *e, bool skip)
{
    const json_t *v = json_object_get(l->want, skip ? "skip" : "dec");
    const char *want = v ? json_string_value(v) : l->text;
    size_t want_len = v ? json_string_length(v) : l->len, len;
    struct ckpt_err err = {0};
    char *text;

    if (tokenizer_decode(t, &text, &len, e->id, e->n, skip, &err))
        fail_msg("%s: line %zu: %s", l->name, l->number, err.text);
    if (len != want_len || memcmp(text, want, len) != 0)
        fail_msg("%s: line %zu: decoded \"%s\", \"%s\" wanted", l->name, l->number, text, want);
    ckpt_free(text);
}

static void check_line(const struct tokenizer *t, const struct line *l)
{
    const json_t *ids = json_object_get(l->want, "ids");
    const json_t *plain = json_object_get(l->want, "plain");
    struct encoding e = {0};
    struct ckpt_err err = {0};

    if (tokenizer_encode(t, &e, l->text, l->len, true, &err))
        fail_msg("%s: line %zu: %s", l->name, l->number, err.text);
    check_ids(l, &e, ids);
    check_offsets(l, &e, json_object_get(l->want, "off"));
    check_decode(t, l, &e, false);
    check_decode(t, l, &e, true);
    e.n = 0;
    if (tokenizer_encode(t, &e, l->text, l->len, false, &err))
        fail_msg("%s: line %zu: %s", l->name, l->number, err.text);
    check_ids(l, &e, plain ? plain : ids);
    encoding_release(&e);
}

/* The splitter alone, so that a failure can be told from one of the merges. */
struct cuts { size_t *at, n; size_t *want; };

static int note_cut(void *ctx, const struct piece *piece, struct ckpt_err *err)
{
    struct cuts *c = ctx;

    (void)err;
    c->at[c->n++] = piece->at;
    c->at[c->n++] = piece->at + piece->n;
    return 0;
}

static void check_pieces(const struct tokenizer *t, const struct line *l)
{
    const json_t *pre = json_object_get(l->want, "pre");
    struct piece whole = {.text = (const unsigned char *)l->text, .n = l->len};
    struct cuts c = {.at = calloc(2 * l->len + 2, sizeof *c.at)};
    size_t *at = code_points(l->text, l->len);
    struct pretok_run *run;
    struct ckpt_err err = {0};

    assert_int_equal(pretok_run_new(&run, t->pretok, &err), 0);
    assert_int_equal(pretok_split(t->pretok, run, &whole, note_cut, &c, &err), 0);
    if (c.n != json_array_size(pre))
        fail_msg("%s: line %zu: %zu pieces, %zu wanted", l->name, l->number, c.n / 2,
                 json_array_size(pre) / 2);
    for (size_t i = 0; i < c.n; i++)
        assert_int_equal(c.at[i], at[json_integer_value(json_array_get(pre, i))]);
    pretok_run_free(run);
    free(c.at);
    free(at);
}

/* Every line of both files; pieces tells whether the golden file has those too. */
static void check_golden(const char *name, bool pieces)
{
    struct ckpt_arena arena = {0};
    struct tokenizer *t = open_named(name);
    const char *strings, *golden;
    char path[256];
    size_t len, n = 0;

    strings = slurp(&arena, DIR "/strings.jsonl", &len);
    snprintf(path, sizeof path, DIR "/%s/golden.jsonl", name);
    golden = slurp(&arena, path, &len);
    for (; *strings && *golden; n++) {
        json_t *text = parse_line(&strings), *want = parse_line(&golden);
        struct line l = {.text = json_string_value(text), .len = json_string_length(text),
                         .want = want, .number = n, .name = name};

        assert_int_equal(json_integer_value(json_object_get(want, "i")), n);
        if (pieces)
            check_pieces(t, &l);
        check_line(t, &l);
        json_decref(text);
        json_decref(want);
    }
    assert_int_equal(n, 412);
    tokenizer_close(t);
    ckpt_arena_release(&arena);
}

TEST(ids_and_texts_equal_the_reference)
{
    static const struct { const char *name; bool pieces; } set[] = {
        {"bloom", true}, {"gpt2", true},
        {"llama3", true},       /* ignore_merges and a template; GPT-2's splitter, offsets trimmed */
        {"roberta", false},
        {"qwen", true},         /* NFC; added tokens that strip, stand alone, or are normalized */
        {"llama2", false},      /* BPE of characters with byte fallback; a mark put in front ... */
        {"mistral", false},     /* ... and the same by Metaspace, of the first piece only */
        {"t5", false},          /* Unigram after a precompiled character map */
        {"bert", false},        /* WordPiece after BertNormalizer */
        {"zoo", false},         /* a suffix at the end of words; NFKC, Lowercase, Strip, Replace,
                                   Punctuation, Digits */
    };

    for (size_t i = 0; i < sizeof set / sizeof *set; i++)
        check_golden(set[i].name, set[i].pieces);
}

/* The tokenizer that the project ships: special ids, and lines of the reference. */
TEST(the_demos_tokenizer)
{
    struct ckpt_arena arena = {0};
    struct ckpt_err err = {0};
    struct tokenizer *t = demo_tokenizer();
    const char *golden;
    size_t len, n;

    assert_int_equal(tokenizer_size(t), 4096);
    assert_int_equal(tokenizer_bos(t), 1);
    assert_int_equal(tokenizer_eos(t), 2);
    assert_int_equal(tokenizer_pad(t), 3);
    golden = slurp(&arena, DIR "/demo.jsonl", &len);
    for (n = 0; *golden; n++) {
        json_t *row = parse_line(&golden), *text = json_object_get(row, "text");
        struct line l = {.text = json_string_value(text), .len = json_string_length(text),
                         .want = row, .number = n, .name = "demo"};
        struct encoding e = {0};

        assert_int_equal(tokenizer_encode(t, &e, l.text, l.len, true, &err), 0);
        check_ids(&l, &e, json_object_get(row, "ids"));
        check_decode(t, &l, &e, false);
        encoding_release(&e);
        json_decref(row);
    }
    assert_true(n >= 50);
    tokenizer_close(t);
    ckpt_arena_release(&arena);
}

/* A tokenizer.json made of a few parts; every %s is a JSON value.  What is expected of it below
 * was printed by tokenizers 0.23.3 for the same parts. */
#define SMALL                                                                                  \
    "{\"version\":\"1.0\",\"added_tokens\":%s,\"normalizer\":%s,\"pre_tokenizer\":%s,"         \
    "\"post_processor\":%s,\"decoder\":{\"type\":\"ByteLevel\"},\"model\":%s}"
#define ADDED                                                                                  \
    "[{\"id\":9,\"content\":\"<s>\",\"special\":true},"                                        \
    "{\"id\":8,\"content\":\"<w>\",\"single_word\":true},"                                     \
    "{\"id\":7,\"content\":\"<l>\",\"lstrip\":true,\"rstrip\":true,\"normalized\":false}]"
#define PRE   "{\"type\":\"ByteLevel\",\"add_prefix_space\":%s,\"use_regex\":true}"
#define MODEL                                                                                  \
    "{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"c\":2,\"ab\":3,\"abc\":4,\"\xc4\xa0\":5,"  \
    "\"\xc4\xa0"                                                                               \
    "a\":6},\"merges\":[\"\xc4\xa0 a\",\"a b\",[\"ab\",\"c\"]]}"

static struct tokenizer *small(const char *added, const char *norm, const char *pre,
                               const char *post, const char *model, struct ckpt_err *err)
{
    char text[4096];
    int n = snprintf(text, sizeof text, SMALL, added, norm, pre, post, model);

    assert_true(n > 0 && (size_t)n < sizeof text);
    return open_bytes("tokenizer.json", text, (size_t)n, err);
}

static void expect(const struct tokenizer *t, const char *text, const char *want)
{
    struct encoding e = {0};
    struct ckpt_err err = {0};
    char found[512] = "";
    size_t n = 0;

    if (tokenizer_encode(t, &e, text, strlen(text), true, &err))
        fail_msg("%s", err.text);
    for (size_t i = 0; i < e.n; i++)
        n += (size_t)snprintf(found + n, sizeof found - n, "%s%d@%lld-%lld", i ? " " : "",
                              e.id[i], (long long)e.start[i], (long long)e.end[i]);
    assert_string_equal(found, want);
    encoding_release(&e);
}

TEST(added_tokens)
{
    struct ckpt_err err;
    struct tokenizer *t =
        small(ADDED, "null", "{\"type\":\"ByteLevel\",\"add_prefix_space\":false}", "null",
              MODEL, &err);

    assert_non_null(t);
    assert_int_equal(tokenizer_size(t), 10);
    expect(t, "ab<s>c", "3@0-2 9@2-5 2@5-6");
    /* A single word: not inside one; the characters of a hit that is turned down are not ids
     * of this vocabulary and fall away. */
    expect(t, "a <w> b", "0@0-1 5@1-2 8@2-5 5@5-6 1@6-7");
    expect(t, "a<w>", "0@0-1");
    expect(t, "a  <l>  b", "0@0-1 7@1-8 1@8-9");
    tokenizer_close(t);
}

TEST(prefix_space_and_template)
{
    struct ckpt_err err;
    struct tokenizer *t = small(
        ADDED, "null", "{\"type\":\"ByteLevel\",\"add_prefix_space\":true}",
        "{\"type\":\"Sequence\",\"processors\":[{\"type\":\"ByteLevel\",\"trim_offsets\":false}"
        ","
        "{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"<s>\"}},"
        "{\"Sequence\":{\"id\":\"A\"}},{\"SpecialToken\":{\"id\":\"<s>\"}}],\"special_tokens\":"
        "{\"<s>\":{\"id\":\"<s>\",\"ids\":[9],\"tokens\":[\"<s>\"]}}}]}",
        MODEL, &err);

    if (!t)
        fail_msg("%s", err.text);
    expect(t, "abc", "9@0-0 6@0-1 1@1-2 2@2-3 9@0-0");
    expect(t, " abc", "9@0-0 6@0-2 1@2-3 2@3-4 9@0-0");
    expect(t, "", "9@0-0 9@0-0");
    /* The space that was put in front takes the place of the first character. */
    expect(t, "bab", "9@0-0 5@0-1 1@0-1 3@1-3 9@0-0");
    /* Bytes without an id fall away, and what follows moves up, as in the reference. */
    expect(t, "\xc3\xa9" "ab", "9@0-0 6@0-2 1@0-2 9@0-0");
    expect(t, "b<s>b", "9@0-0 5@0-1 1@0-1 9@1-4 5@4-5 1@4-5 9@0-0");
    tokenizer_close(t);
}

#define ROBERTA "{\"type\":\"RobertaProcessing\",\"sep\":[\"<s>\",9],\"cls\":[\"<w>\",8]," \
                "\"trim_offsets\":true,\"add_prefix_space\":%s}"

TEST(trimmed_offsets)
{
    struct ckpt_err err;
    char post[256];

    for (int prefix = 0; prefix < 2; prefix++) {
        struct tokenizer *t;

        snprintf(post, sizeof post, ROBERTA, prefix ? "true" : "false");
        t = small(ADDED, "null", prefix ? "{\"type\":\"ByteLevel\",\"add_prefix_space\":true}"
                                        : "{\"type\":\"ByteLevel\",\"add_prefix_space\":false}",
                  post, MODEL, &err);
        if (!t)
            fail_msg("%s", err.text);
        if (prefix) {
            expect(t, "ab ab", "8@0-0 6@0-1 1@1-2 6@3-4 1@4-5 9@0-0");
            expect(t, " ab  ab", "8@0-0 6@0-2 1@2-3 5@4-4 6@5-6 1@6-7 9@0-0");
            expect(t, "b ", "8@0-0 5@0-0 1@0-1 5@2-2 9@0-0");
        } else {
            expect(t, "ab ab", "8@0-0 3@0-2 6@3-4 1@4-5 9@0-0");
            expect(t, " ab  ab", "8@0-0 6@1-2 1@2-3 5@4-4 6@5-6 1@6-7 9@0-0");
            expect(t, "b ", "8@0-0 1@0-1 5@2-2 9@0-0");
        }
        tokenizer_close(t);
    }
}

TEST(refusals_name_what_they_found)
{
    static const struct { const char *added, *norm, *pre, *model, *says; int code;
    } bad[] = {
        {"[]", "{\"type\":\"Nfx\"}", PRE, MODEL, "normalizer: type \"Nfx\"", CKPT_EUNSUPPORTED},
        {"[]", "{\"type\":\"Replace\",\"pattern\":{},\"content\":\"\"}", PRE, MODEL,
         "Replace: a pattern", CKPT_EFORMAT},
        {"[]", "{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"a*bc\"}", PRE, MODEL,
         "base64", CKPT_EFORMAT},
        {"[]", "{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"AAAA\"}", PRE, MODEL,
         "trie", CKPT_EFORMAT},
        {"[]", "null", "{\"type\":\"Metaspace\"}", MODEL, "replacement", CKPT_EFORMAT},
        {"[]", "null",
         "{\"type\":\"Metaspace\",\"replacement\":\"_\",\"prepend_scheme\":\"twice\"}",
         MODEL, "twice", CKPT_EFORMAT},
        {"[]", "null", "{\"type\":\"FixedLength\",\"length\":0}", MODEL, "length",
         CKPT_EFORMAT},
        {"[]", "null", "{\"type\":\"CharDelimiterSplit\",\"delimiter\":\"ab\"}", MODEL,
         "one character", CKPT_EFORMAT},
        {"[]", "null", "{\"type\":\"Wide\"}", MODEL, "type \"Wide\"", CKPT_EUNSUPPORTED},
        {"[]", "null", PRE, "{\"type\":\"Unigram\",\"vocab\":{\"a\":0}}", "vocab",
         CKPT_EFORMAT},
        {"[]", "null", PRE, "{\"type\":\"Unigram\",\"unk_id\":7,\"vocab\":[[\"a\",0]]}",
         "unk_id 7", CKPT_EFORMAT},
        {"[]", "null", PRE, "{\"type\":\"Trigram\",\"vocab\":{\"a\":0}}", "Trigram",
         CKPT_EUNSUPPORTED},
        {"[]", "null", PRE,
         "{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"ab\":2},\"merges\":[\"a b c\"]}",
         "two parts", CKPT_EFORMAT},
        {"[]", "null", PRE,
         "{\"type\":\"BPE\",\"byte_fallback\":true,\"end_of_word_suffix\":\"</w>\","
         "\"vocab\":{\"a\":0},\"merges\":[]}", "byte_fallback", CKPT_EUNSUPPORTED},
        {"[]", "null", PRE, "{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[\"a b\"]}",
         "merges[0]", CKPT_EFORMAT},
        {"[]", "null", PRE,
         "{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1},\"merges\":[\"a b\"]}", "\"ab\"",
         CKPT_EFORMAT},
        {"[]", "null", PRE, "{\"type\":\"BPE\",\"vocab\":{\"a\":999999999},\"merges\":[]}",
         "id", CKPT_EFORMAT},
        {"[]", "null", PRE, "{\"type\":\"BPE\",\"vocab\":{\"a\":-1},\"merges\":[]}", "id",
         CKPT_EFORMAT},
        {"[]", "null", PRE, "{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":0},\"merges\":[]}",
         "stands for", CKPT_EFORMAT},
        {"[]", "null", PRE,
         "{\"type\":\"BPE\",\"dropout\":0.1,\"vocab\":{\"a\":0},\"merges\":[]}", "dropout",
         CKPT_EUNSUPPORTED},
        {"[{\"id\":3,\"content\":\"a\"}]", "null", PRE, MODEL, "id 0", CKPT_EFORMAT},
        {"[{\"id\":1,\"content\":\"z\"}]", "null", PRE, MODEL, "stands for", CKPT_EFORMAT},
        {"[{\"id\":12,\"content\":\"\"}]", "null", PRE, MODEL, "empty", CKPT_EFORMAT},
        {"[]", "null",
         "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"(\"},\"behavior\":\"Isolated\"}", MODEL,
         "pattern", CKPT_EUNSUPPORTED},
        {"[]", "null",
         "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"(*NO_JIT)a\"},"
         "\"behavior\":\"Isolated\"}",
         MODEL, "verb", CKPT_EUNSUPPORTED},
    };
    struct ckpt_err err = {0};

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        const char *pre =
            strcmp(bad[i].pre, PRE) == 0 ? "{\"type\":\"ByteLevel\"}" : bad[i].pre;
        struct tokenizer *t = small(bad[i].added, bad[i].norm, pre, "null", bad[i].model, &err);

        if (t || err.code != bad[i].code || !strstr(err.text, bad[i].says))
            fail_msg("case %zu: code %d, \"%s\"", i, err.code, err.text);
    }
}

/* A pattern that explodes ends in an error, not in a hang. */
TEST(a_pattern_that_explodes_is_stopped)
{
    struct ckpt_err err;
    struct tokenizer *t = small("[]", "null",
        "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":"
        "{\"Regex\":\"(a+)+(b|[c])\"},\"behavior\":\"Isolated\",\"invert\":false},"
        "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":false}]}",
        "null", MODEL, &err);
    struct encoding e = {0};
    char text[65];

    if (!t)
        fail_msg("%s", err.text);
    memset(text, 'a', 64);
    text[64] = '\0';
    assert_int_equal(tokenizer_encode(t, &e, text, 64, true, &err), CKPT_ELIMIT);
    assert_non_null(strstr(err.text, "limit"));
    assert_int_equal(e.n, 0);
    expect(t, "aab", "0@0-1 3@1-3");
    encoding_release(&e);
    tokenizer_close(t);
}

TEST(text_must_be_utf8)
{
    static const char *const bad[] = {"ab\xff", "ab\xc0\x80", "ab\xed\xa0\x80",
                                      "ab\xf4\x90\x80\x80", "ab\xe2\x82"};
    struct tokenizer *t = open_named("bloom");
    struct encoding e = {0};
    struct ckpt_err err = {0};

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(tokenizer_encode(t, &e, bad[i], strlen(bad[i]), true, &err),
                         CKPT_EFORMAT);
        assert_non_null(strstr(err.text, "byte 2"));
    }
    encoding_release(&e);
    tokenizer_close(t);
}

TEST(special_ids_of_the_config)
{
    struct tokenizer *t = open_named("bloom");
    struct ckpt_err err = {0};
    json_t *config;
    char *text;
    size_t len;
    int32_t id = 999999;
    const char *json = "{\"bos_token\":{\"content\":\"<s>\"},\"eos_token\":\"</s>\","
                       "\"pad_token\":null,\"model_max_length\":Infinity}";

    assert_int_equal(tokenizer_eos(t), -1);
    assert_int_equal(
        ckpt_json_parse(&config, json, strlen(json), CKPT_JSON_PYTHON, &err), 0);
    assert_int_equal(tokenizer_config(t, config, false, &err), 0);
    json_decref(config);
    assert_int_equal(tokenizer_bos(t), 1);
    assert_int_equal(tokenizer_eos(t), 2);
    assert_int_equal(tokenizer_pad(t), -1);
    assert_string_equal(tokenizer_token(t, 2), "</s>");
    assert_null(tokenizer_token(t, 1 << 20));
    assert_int_equal(tokenizer_id(t, "no such token"), -1);
    assert_int_equal(tokenizer_decode(t, &text, &len, &id, 1, false, &err), CKPT_EFORMAT);
    tokenizer_close(t);
}

/* Every length that is cut short, and flips spread over the file. */
TEST(damaged_files)
{
    struct ckpt_arena arena = {0};
    struct ckpt_err err = {0};
    struct flipped f = {0};
    size_t len;
    char *text = slurp(&arena, DIR "/bloom/tokenizer.json", &len);

    for (size_t i = 0; i < len; i += 97) {
        assert_null(open_bytes("tokenizer.json", text, i, &err));
        assert_true(err.code < 0 && err.text[0]);
    }
    flip_bits(&f, "tokenizer.json", text, len, 500, false);
    assert_true(f.opened > 0 && f.refused > 0);
    ckpt_arena_release(&arena);
}

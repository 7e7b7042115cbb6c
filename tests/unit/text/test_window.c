/*
 * Pairs of texts, truncation with its windows, padding: what the reference library gave for ten
 * tokenizers (tokenizers/NAME/pairs.json), number for number.
 */
#include "tests/unit/unit.h"

#include "formats/tokens/tokenizer_parts.h"
#include "tests/unit/golden_tokens.h"

static const char *const names[] = {"bert", "bloom", "gpt2", "llama2", "llama3",
                                    "mistral", "qwen", "roberta", "t5", "zoo"};

/* One tokenizer, and where the test stands. */
struct at { struct tokenizer *t; const struct texts *texts; const char *name; size_t number; };

static void check_numbers(const struct at *at, const char *what, const int32_t *found, size_t n,
                          const json_t *want)
{
    assert_numbers(at->name, at->number, what, found, n, want);
}

static void text_of(const struct at *at, const json_t *i, const char **s, size_t *n)
{
    const json_t *text = json_is_integer(i) ? at->texts->text[json_integer_value(i)] : NULL;

    *s = text ? json_string_value(text) : NULL;
    *n = text ? json_string_length(text) : 0;
}

static void check_pair(const struct at *at, const json_t *c)
{
    struct encode_opts o = {.special = true};
    struct encoding e = {0};
    struct ckpt_err err = {0};
    const char *a, *b;
    size_t n_a, n_b;
    int32_t *side;

    text_of(at, json_object_get(c, "a"), &a, &n_a);
    text_of(at, json_object_get(c, "b"), &b, &n_b);
    if (tokenizer_encode_pair(at->t, &e, a, n_a, b, n_b, &o, &err))
        fail_msg("%s: %s", at->name, err.text);
    check_numbers(at, "ids", e.id, e.n, json_object_get(c, "ids"));
    check_numbers(at, "type ids", e.type, e.n, json_object_get(c, "type_ids"));
    side = calloc(e.n, sizeof *side);
    for (size_t i = 0; i < e.n; i++)
        side[i] = e.text[i];
    check_numbers(at, "texts", side, e.n, json_object_get(c, "sequence_ids"));
    for (size_t i = 0; i < e.n; i++)
        side[i] = e.text[i] < 0;
    check_numbers(at, "special", side, e.n, json_object_get(c, "special_tokens_mask"));
    free(side);
    encoding_release(&e);
}

struct windows { const struct at *at; const json_t *want; size_t n; };

static int note_window(void *ctx, const struct encoding *enc, struct ckpt_err *err)
{
    struct windows *w = ctx;

    (void)err;
    check_numbers(w->at, "ids of a window", enc->id, enc->n, json_array_get(w->want, w->n++));
    return 0;
}

static void check_truncation(const struct at *at, const json_t *c)
{
    const json_t *t = json_object_get(c, "truncation");
    const char *strategy = json_string_value(json_object_get(t, "strategy"));
    struct windows w = {.at = at, .want = json_object_get(c, "overflow")};
    struct truncation cut = {
        .max_length = (size_t)json_integer_value(json_object_get(t, "max_length")),
        .stride = (size_t)json_integer_value(json_object_get(t, "stride")),
        .left = strcmp(json_string_value(json_object_get(t, "direction")), "left") == 0,
        .strategy = strcmp(strategy, "longest_first") == 0 ? WINDOW_LONGEST_FIRST
                    : strcmp(strategy, "only_first") == 0 ? WINDOW_ONLY_FIRST
                                                          : WINDOW_ONLY_SECOND};
    struct encode_opts o = {.special = true, .truncation = &cut, .window_ctx = &w,
                            .window = w.want ? note_window : NULL};
    struct encoding e = {0};
    struct ckpt_err err = {0};
    const char *a, *b;
    size_t n_a, n_b;
    int rc;

    text_of(at, json_object_get(c, "a"), &a, &n_a);
    text_of(at, json_object_get(c, "b"), &b, &n_b);
    rc = tokenizer_encode_pair(at->t, &e, a, n_a, b, n_b, &o, &err);
    if (json_object_get(c, "error")) {
        if (rc != CKPT_EUSAGE || !err.text[0] || e.n)
            fail_msg("%s: case %zu: %d, an error wanted", at->name, at->number, rc);
    } else if (rc) {
        fail_msg("%s: case %zu: %s", at->name, at->number, err.text);
    } else {
        check_numbers(at, "ids", e.id, e.n, json_object_get(c, "ids"));
        assert_int_equal(w.n, json_array_size(w.want));
    }
    encoding_release(&e);
}

/* A batch, padded as the case asks, or truncated and padded as the file does. */
static void check_padding(const struct at *at, const json_t *c)
{
    const json_t *batch = json_object_get(c, "batch"), *p = json_object_get(c, "padding");
    const json_t *direction = json_object_get(p, "direction");
    struct padding pad = {
        .id = 1, .length = (size_t)json_integer_value(json_object_get(p, "length")),
        .multiple = (size_t)json_integer_value(json_object_get(p, "pad_to_multiple_of")),
        .left = direction && strcmp(json_string_value(direction), "left") == 0};
    struct encode_opts o = {.special = true, .truncation = p ? NULL : tokenizer_truncation(at->t)};
    const struct padding *use = p ? &pad : tokenizer_padding(at->t);
    struct encoding e[8] = {{0}};
    struct ckpt_err err = {0};
    size_t n = json_array_size(batch), longest = 0, n_text;
    const char *s;

    assert_true(n <= 8);
    for (size_t i = 0; i < n; i++) {
        text_of(at, json_array_get(batch, i), &s, &n_text);
        if (tokenizer_encode_pair(at->t, &e[i], s, n_text, NULL, 0, &o, &err))
            fail_msg("%s: %s", at->name, err.text);
        longest = e[i].n > longest ? e[i].n : longest;
    }
    for (size_t i = 0; i < n; i++) {
        if (use)
            assert_int_equal(encoding_pad(&e[i], use, window_padded_length(use, longest), &err),
                             0);
        check_numbers(at, "ids", e[i].id, e[i].n,
                      json_array_get(json_object_get(c, "ids"), i));
        encoding_release(&e[i]);
    }
}

TEST(pairs_truncation_padding)
{
    struct ckpt_arena arena = {0};
    struct texts texts;
    size_t seen[3] = {0};

    texts_read(&texts, &arena);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct at at = {.t = open_named(names[i]), .texts = &texts, .name = names[i]};
        char path[256];
        json_t *cases, *c;

        snprintf(path, sizeof path, TOKENIZERS "/%s/pairs.json", names[i]);
        cases = golden_json(path);
        json_array_foreach(cases, at.number, c) {
            bool truncation = json_object_get(c, "truncation") != NULL;
            bool batch = json_object_get(c, "batch") != NULL;

            seen[truncation ? 1 : batch ? 2 : 0]++;
            if (truncation)
                check_truncation(&at, c);
            else if (batch)
                check_padding(&at, c);
            else
                check_pair(&at, c);
        }
        json_decref(cases);
        tokenizer_close(at.t);
    }
    assert_int_equal(seen[0], 60);
    assert_int_equal(seen[1], 180);
    assert_true(seen[2] >= 40);
    texts_release(&texts);
    ckpt_arena_release(&arena);
}

/* The tokenizer of that name with the case's two values in its file. */
static struct tokenizer *with_stored(const json_t *c)
{
    struct ckpt_err err = {0};
    struct tokenizer *t;
    char path[256];
    json_t *file;

    snprintf(path, sizeof path, TOKENIZERS "/%s/tokenizer.json",
             json_string_value(json_object_get(c, "name")));
    file = golden_json(path);
    json_object_set(file, "truncation", json_object_get(c, "truncation"));
    json_object_set(file, "padding", json_object_get(c, "padding"));
    if (tokenizer_from_json(&t, file, INT32_MAX, &err))
        fail_msg("%s: %s", path, err.text);
    json_decref(file);
    return t;
}

/* The strings of these numbers, with blanks between. */
static char *joined(const struct texts *texts, const json_t *numbers)
{
    size_t n = 0, size = 1;
    char *s;

    for (size_t i = 0; i < json_array_size(numbers); i++)
        size += 1 + json_string_length(
                        texts->text[json_integer_value(json_array_get(numbers, i))]);
    s = calloc(1, size);
    for (size_t i = 0; i < json_array_size(numbers); i++) {
        const json_t *text = texts->text[json_integer_value(json_array_get(numbers, i))];

        if (i)
            s[n++] = ' ';
        memcpy(s + n, json_string_value(text), json_string_length(text));
        n += json_string_length(text);
    }
    return s;
}

/* What a file asks for is done as the reference does it that reads the same file. */
TEST(what_a_file_asks_for)
{
    struct ckpt_arena arena = {0};
    struct texts texts;
    struct at at = {.texts = &texts};
    size_t n, cut = 0, padded = 0;
    json_t *cases, *c;

    texts_read(&texts, &arena);
    cases = golden_json(TOKENIZERS "/stored.json");
    json_array_foreach(cases, at.number, c) {
        const json_t *batch = json_object_get(c, "batch");
        struct tokenizer *t = with_stored(c);
        struct encode_opts o = {.special = true, .truncation = tokenizer_truncation(t)};
        const struct padding *pad = tokenizer_padding(t);
        struct encoding e[8] = {{0}};
        struct ckpt_err err = {0};
        size_t longest = 0;

        at.name = json_string_value(json_object_get(c, "name"));
        assert_int_equal(o.truncation != NULL, json_is_object(json_object_get(c, "truncation")));
        assert_int_equal(pad != NULL, json_is_object(json_object_get(c, "padding")));
        cut += o.truncation != NULL;
        padded += pad != NULL;
        n = json_array_size(batch);
        assert_true(n > 0 && n <= 8);
        for (size_t i = 0; i < n; i++) {
            char *s = joined(&texts, json_array_get(batch, i));

            if (tokenizer_encode_pair(t, &e[i], s, strlen(s), NULL, 0, &o, &err))
                fail_msg("%s: case %zu: %s", at.name, at.number, err.text);
            longest = e[i].n > longest ? e[i].n : longest;
            free(s);
        }
        for (size_t i = 0; i < n; i++) {
            if (pad)
                assert_int_equal(encoding_pad(&e[i], pad, window_padded_length(pad, longest),
                                              &err), 0);
            check_numbers(&at, "ids", e[i].id, e[i].n,
                          json_array_get(json_object_get(c, "ids"), i));
            check_numbers(&at, "type ids", e[i].type, e[i].n,
                          json_array_get(json_object_get(c, "type_ids"), i));
            encoding_release(&e[i]);
        }
        tokenizer_close(t);
    }
    assert_true(cut >= 18 && padded >= 15);
    json_decref(cases);
    texts_release(&texts);
    ckpt_arena_release(&arena);
}

TEST(what_files_may_not_ask_for)
{
    static const struct { const char *json; bool padding; const char *says; } bad[] = {
        {"{\"max_length\":-1}", false, "max_length is -1"},
        {"{\"direction\":\"Up\"}", false, "Up"},
        {"{\"strategy\":\"OnlyThird\"}", false, "OnlyThird"},
        {"{\"strategy\":\"BatchLongest\",\"pad_id\":-4}", true, "pad_id is -4"},
        {"{\"strategy\":{\"Fixed\":8},\"pad_id\":4294967296}", true, "pad_id 4294967296"},
        {"{\"pad_id\":1}", true, "\"strategy\" is absent"},
        {"{\"strategy\":\"Longest\"}", true, "strategy \"Longest\""},
        {"{\"strategy\":{}}", true, "\"Fixed\" is absent"},
    };

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        json_t *v = json_loads(bad[i].json, 0, NULL);
        struct truncation t = {0};
        struct padding p = {0};
        struct ckpt_err err = {0};
        bool is;
        int rc = bad[i].padding ? window_read_padding(&p, &is, v, &err)
                                : window_read_truncation(&t, &is, v, &err);

        if (rc != CKPT_EFORMAT || !strstr(err.text, bad[i].says))
            fail_msg("case %zu: %d, \"%s\"", i, rc, err.text);
        json_decref(v);
    }
}

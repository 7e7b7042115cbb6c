/*
 * Every normalizer, pre-tokenizer and decoder against what the reference library made of the same
 * strings, and of the same ids: tests/golden/make_components.py says how.
 */
#include "tests/unit/unit.h"

#include "formats/tokens/tokenizer_parts.h"
#include "tests/unit/golden_tokens.h"

static struct golden {
    struct ckpt_arena arena;
    const char       *components;
    struct texts      texts;
    json_t           *t5;           /* its character map */
} golden;

static uint64_t fnv(uint64_t h, const void *data, size_t n)
{
    const unsigned char *b = data;

    for (size_t i = 0; i < n; i++)
        h = (h ^ b[i]) * UINT64_C(0x100000001b3);
    return h;
}

static uint64_t fnv_number(uint64_t h, uint64_t v)
{
    unsigned char b[4] = {(unsigned char)v, (unsigned char)(v >> 8), (unsigned char)(v >> 16),
                          (unsigned char)(v >> 24)};

    return fnv(h, b, 4);
}

#define FNV_BASIS UINT64_C(0xcbf29ce484222325)

static void check_sum(const char *name, size_t i, const char *sums, uint64_t h)
{
    char found[9];

    snprintf(found, sizeof found, "%08x", (unsigned)(h >> 32 ^ (h & 0xffffffff)));
    if (strncmp(found, sums + 8 * i, 8) != 0)
        fail_msg("%s: string %zu: sum %s, %.8s wanted", name, i, found, sums + 8 * i);
}

static void check_texts(const struct golden *g, const struct tokenizer *t, const char *name,
                        const char *sums)
{
    struct encoding e = {0};
    struct ckpt_err err = {0};

    assert_int_equal(strlen(sums), 8 * g->texts.n);
    for (size_t i = 0; i < g->texts.n; i++) {
        const char *s = json_string_value(g->texts.text[i]);
        size_t n = json_string_length(g->texts.text[i]), *chars = characters(s, n);
        uint64_t h = FNV_BASIS;

        e.n = 0;
        if (tokenizer_encode(t, &e, s, n, true, &err))
            fail_msg("%s: string %zu: %s", name, i, err.text);
        for (size_t k = 0; k < e.n; k++)
            h = fnv_number(h, (uint64_t)e.id[k]);
        for (size_t k = 0; k < e.n; k++)
            h = fnv_number(fnv_number(h, chars[e.start[k]]), chars[e.end[k]]);
        check_sum(name, i, sums, h);
        free(chars);
    }
    encoding_release(&e);
}

/* The maker's lists of ids. */
static void check_ids(const struct tokenizer *t, const char *name, const char *sums)
{
    struct ckpt_err err = {0};
    uint32_t state = 1;
    int32_t id[12];

    assert_int_equal(strlen(sums), 8 * 200);
    for (size_t i = 0; i < 200; i++) {
        size_t n = 1 + i % 12, len;
        char *text;

        for (size_t k = 0; k < n; k++) {
            state = state * 1664525u + 1013904223u;
            id[k] = (int32_t)((state >> 8) % (uint32_t)tokenizer_size(t));
        }
        if (tokenizer_decode(t, &text, &len, id, n, true, &err))
            fail_msg("%s: list %zu: %s", name, i, err.text);
        check_sum(name, i, sums, fnv(FNV_BASIS, text, len));
        ckpt_free(text);
    }
}

/* "@t5" anywhere in a normalizer. */
static void put_charsmap(json_t *norm, json_t *map)
{
    json_t *one;
    size_t i;

    if (json_object_get(norm, "precompiled_charsmap"))
        json_object_set(norm, "precompiled_charsmap", map);
    json_array_foreach(json_object_get(norm, "normalizers"), i, one)
        if (json_object_get(one, "precompiled_charsmap"))
            json_object_set(one, "precompiled_charsmap", map);
}

/* Lines whose name begins with prefix; returns how many there were. */
static int check_all(struct golden *g, const char *prefix)
{
    const char *at = g->components;
    int n = 0;

    while (*at) {
        json_t *line = parse_line(&at), *root = json_object_get(line, "json");
        const char *name = json_string_value(json_object_get(line, "name"));
        const char *kind = json_string_value(json_object_get(line, "kind"));
        const char *sums = json_string_value(json_object_get(line, "sums"));
        struct ckpt_err err = {0};
        struct tokenizer *t;

        if (strncmp(name, prefix, strlen(prefix)) == 0) {
            put_charsmap(json_object_get(root, "normalizer"), g->t5);
            if (tokenizer_from_json(&t, root, 1000, &err))
                fail_msg("%s: %s", name, err.text);
            if (strcmp(kind, "text") == 0)
                check_texts(g, t, name, sums);
            else
                check_ids(t, name, sums);
            tokenizer_close(t);
            n++;
        }
        json_decref(line);
    }
    return n;
}

TEST(normalizers)
{
    assert_int_equal(check_all(&golden, "normalizer "), 24);
}

TEST(pre_tokenizers)
{
    assert_int_equal(check_all(&golden, "pre_tokenizer "), 43);
}

TEST(decoders)
{
    assert_int_equal(check_all(&golden, "decoder "), 16);
}

BEFORE_ALL()
{
    json_t *t5 = golden_json(TOKENIZERS "/t5/tokenizer.json");
    size_t n;

    golden.components = slurp(&golden.arena, TOKENIZERS "/components.jsonl", &n);
    texts_read(&golden.texts, &golden.arena);
    golden.t5 = json_incref(json_object_get(
        json_array_get(json_object_get(json_object_get(t5, "normalizer"), "normalizers"), 0),
        "precompiled_charsmap"));
    json_decref(t5);
    assert_non_null(golden.t5);
}

AFTER_ALL()
{
    texts_release(&golden.texts);
    json_decref(golden.t5);
    ckpt_arena_release(&golden.arena);
}

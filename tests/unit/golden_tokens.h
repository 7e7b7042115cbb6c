/*
 * golden_tokens - the strings of tests/golden/tokenizers, for tests of tokenizers.
 */
#ifndef CKPT_TESTS_UNIT_GOLDEN_TOKENS_H
#define CKPT_TESTS_UNIT_GOLDEN_TOKENS_H

#include "tests/unit/golden_files.h"

#include "formats/tokens/tokenizer.h"

#define TOKENIZERS "tests/golden/tokenizers"

static inline char *slurp(struct ckpt_arena *a, const char *path, size_t *len)
{
    struct ckpt_err err = {0};
    struct ckpt_file *f;
    char *s;

    if (ckpt_file_open(&f, path, 0, &err) || ckpt_file_slurp(f, a, 1 << 26, &s, len, &err))
        fail_msg("%s", err.text);
    ckpt_file_close(f);
    return s;
}

/* The next line of *s, as JSON. */
static inline json_t *parse_line(const char **s)
{
    const char *eol = strchr(*s, '\n');
    size_t n = eol ? (size_t)(eol - *s) : strlen(*s);
    json_t *v = json_loadb(*s, n, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);

    assert_non_null(v);
    *s += n + (eol != NULL);
    return v;
}

static inline struct tokenizer *open_named(const char *name)
{
    struct ckpt_err err = {0};
    struct tokenizer *t;
    struct ckpt_dir *dir;
    char path[256];

    snprintf(path, sizeof path, TOKENIZERS "/%s", name);
    if (ckpt_dir_open(&dir, path, 0, &err) || tokenizer_open_dir(&t, dir, &err))
        fail_msg("%s", err.text);
    ckpt_dir_close(dir);
    return t;
}

/* The tokenizer that is a file of these bytes; NULL where they are refused. */
static inline struct tokenizer *open_bytes(const char *name, const void *bytes, size_t n,
                                           struct ckpt_err *err)
{
    struct ckpt_file *f = file_of(bytes, n, name);
    struct tokenizer *t;

    ckpt_err_clear(err);
    tokenizer_open(&t, f, err);
    ckpt_file_close(f);
    return t;
}

static inline struct tokenizer *must_open_bytes(const char *name, const void *bytes, size_t n)
{
    struct ckpt_err err = {0};
    struct tokenizer *t = open_bytes(name, bytes, n, &err);

    if (!t)
        fail_msg("%s", err.text);
    return t;
}

/*
 * Flip `rounds` bits spread over a file, one at a time; every fourth one cuts it there too, with
 * cuts.  An error that names the file or a tokenizer that can be used; the sanitizers say when it
 * is neither.
 */
struct flipped { size_t opened, refused; };

static inline void flip_bits(struct flipped *f, const char *name, char *bytes, size_t n, int rounds,
                             bool cuts)
{
    uint32_t random = 1;

    for (int i = 0; i < rounds; i++) {
        struct encoding e = {0};
        struct ckpt_err err = {0};
        struct tokenizer *t;
        size_t at;

        random = random * 1664525u + 1013904223u;
        at = (random >> 8) % n;
        bytes[at] = (char)(bytes[at] ^ (1 << (random & 7)));
        t = open_bytes(name, bytes, cuts && i % 4 == 0 ? at : n, &err);
        bytes[at] = (char)(bytes[at] ^ (1 << (random & 7)));
        f->opened += t != NULL;
        f->refused += t == NULL;
        if (!t)
            assert_true(err.code < 0 && strstr(err.text, name));
        else if (tokenizer_encode(t, &e, "Hello <s> [INST] it is 12", 25, true, &err))
            assert_true(err.text[0]);
        encoding_release(&e);
        tokenizer_close(t);
    }
}

/* Numbers are those of the golden file's case i; null is -1 there. */
static inline void assert_numbers(const char *name, size_t i, const char *what,
                                  const int32_t *found, size_t n, const json_t *want)
{
    if (n != json_array_size(want))
        fail_msg("%s: case %zu: %zu %s, %zu wanted", name, i, n, what, json_array_size(want));
    for (size_t k = 0; k < n; k++) {
        const json_t *v = json_array_get(want, k);
        int64_t wanted = json_is_null(v) ? -1 : json_integer_value(v);

        if (found[k] != wanted)
            fail_msg("%s: case %zu: %s %zu is %d, %lld wanted", name, i, what, k, found[k],
                     (long long)wanted);
    }
}

/* The tokens of a text, with spaces between. */
static inline void assert_tokens(const struct tokenizer *t, const char *text, const char *want)
{
    struct encoding e = {0};
    struct ckpt_err err = {0};
    char found[512] = "";
    size_t n = 0;

    if (tokenizer_encode(t, &e, text, strlen(text), true, &err))
        fail_msg("%s", err.text);
    for (size_t i = 0; i < e.n; i++)
        n += (size_t)snprintf(found + n, sizeof found - n, "%s%s", i ? " " : "",
                              tokenizer_token(t, e.id[i]));
    assert_string_equal(found, want);
    encoding_release(&e);
}

/* [len + 1] number of the character that each byte belongs to, and of the end. */
static inline size_t *characters(const char *s, size_t len)
{
    size_t *at = calloc(len + 1, sizeof *at), n = 0;

    for (size_t i = 0; i < len; i++)
        at[i] = ((unsigned char)s[i] & 0xc0) != 0x80 ? n++ : n - 1;
    at[len] = n;
    return at;
}

/* All lines of strings.jsonl. */
struct texts { json_t **text; size_t n; };

static inline void texts_read(struct texts *t, struct ckpt_arena *a)
{
    size_t n;
    const char *s = slurp(a, TOKENIZERS "/strings.jsonl", &n);

    t->text = calloc(n, sizeof *t->text);
    for (t->n = 0; *s; t->n++)
        t->text[t->n] = parse_line(&s);
}

static inline void texts_release(struct texts *t)
{
    for (size_t i = 0; i < t->n; i++)
        json_decref(t->text[i]);
    free(t->text);
}

#endif

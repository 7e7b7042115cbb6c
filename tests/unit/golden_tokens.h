/*
 * golden_tokens - the strings of tests/golden/tokenizers, for tests of tokenizers.
 */
#ifndef CKPT_TESTS_UNIT_GOLDEN_TOKENS_H
#define CKPT_TESTS_UNIT_GOLDEN_TOKENS_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/tokens/tokenizer.h"
#include "libckpt/base/json.h"

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

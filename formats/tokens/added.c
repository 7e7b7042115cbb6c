/* added - see added.h. */
#include "formats/tokens/added.h"

#include <stdlib.h>
#include <string.h>

#include "formats/tokens/unicode/unicode.h"
#include "libckpt/base/map.h"
#include "libckpt/mem.h"

/* Tokens by content, and for each first byte the lengths of its tokens, longest first: a lookup
 * costs as many probes as there are lengths, however many tokens there are. */
struct added {
    const struct added_token *token;
    struct ckpt_map          *by_content;       /* index into token */
    size_t                   *length;
    size_t                    begin[257];       /* first length of each first byte */
};

/* A token's first byte and length, while the table is built. */
struct key { unsigned char first; size_t len; };

static int by_first_byte(const void *a, const void *b)
{
    const struct key *x = a, *y = b;

    if (x->first != y->first)
        return x->first < y->first ? -1 : 1;
    return x->len > y->len ? -1 : x->len < y->len;
}

static void list_lengths(struct added *a, struct key *key, size_t n)
{
    size_t n_length = 0, i = 0;

    qsort(key, n, sizeof *key, by_first_byte);
    for (size_t b = 0; b < 256; b++) {
        a->begin[b] = n_length;
        for (; i < n && key[i].first == b; i++)
            if (n_length == a->begin[b] || a->length[n_length - 1] != key[i].len)
                a->length[n_length++] = key[i].len;
    }
    a->begin[256] = n_length;
}

int added_new(struct added **out, const struct added_token *token, size_t n, bool normalized,
              struct ckpt_err *err)
{
    struct added *a = ckpt_alloc(1, sizeof *a);
    struct key *key = ckpt_alloc(n, sizeof *key);
    size_t n_key = 0;
    int rc = 0;

    *out = NULL;
    if (a)
        a->length = ckpt_alloc(n, sizeof *a->length);
    if (!a || !key || !a->length) {
        rc = ckpt_nomem(err, n * sizeof *key);
        goto out;
    }
    a->token = token;
    rc = ckpt_map_new(&a->by_content, n, err);
    for (size_t i = 0; rc == 0 && i < n; i++) {
        if (token[i].normalized != normalized)
            continue;
        rc = ckpt_map_add(a->by_content, token[i].content, token[i].len, i, err);
        key[n_key++] = (struct key){(unsigned char)token[i].content[0], token[i].len};
    }
    if (rc)
        goto out;
    list_lengths(a, key, n_key);
    *out = a;
    a = NULL;
out:
    added_free(a);
    ckpt_free(key);
    return rc;
}

void added_free(struct added *a)
{
    if (!a)
        return;
    ckpt_map_free(a->by_content);
    ckpt_free(a->length);
    ckpt_free(a);
}

static const struct added_token *longest_at(const struct added *a, const unsigned char *s,
                                            size_t n)
{
    for (size_t i = a->begin[s[0]]; i < a->begin[s[0] + 1u]; i++) {
        size_t at = a->length[i] <= n
                        ? ckpt_map_get(a->by_content, (const char *)s, a->length[i])
                        : CKPT_MAP_NONE;

        if (at != CKPT_MAP_NONE)
            return &a->token[at];
    }
    return NULL;
}

/* Start of the character that ends at i > 0. */
static size_t before(const unsigned char *s, size_t i)
{
    do
        i--;
    while (i > 0 && (s[i] & 0xc0) == 0x80);
    return i;
}

static bool stands_alone(const unsigned char *s, size_t n, size_t start, size_t end)
{
    size_t width;

    if (start > 0 && unicode_is_word(utf8_get(s + before(s, start), &width)))
        return false;
    return end == n || !unicode_is_word(utf8_get(s + end, &width));
}

const struct added_token *added_next(const struct added *a, const unsigned char *s, size_t n,
                                     size_t from, size_t *start, size_t *end)
{
    const struct added_token *t;
    size_t i = a->begin[256] ? from : n, width, prev;

    while (i < n) {
        if (a->begin[s[i]] == a->begin[s[i] + 1u] || !(t = longest_at(a, s + i, n - i))) {
            i++;
            continue;
        }
        *start = i;
        *end = i + t->len;
        /* A match that is rejected consumes its text all the same. */
        i = *end;
        if (t->single_word && !stands_alone(s, n, *start, *end))
            continue;
        while (t->lstrip && *start > from &&
               unicode_is_space(utf8_get(s + (prev = before(s, *start)), &width)))
            *start = prev;
        while (t->rstrip && *end < n && unicode_is_space(utf8_get(s + *end, &width)))
            *end += width;
        return t;
    }
    return NULL;
}

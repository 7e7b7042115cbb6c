/* added - see added.h. */
#include "formats/tokens/added.h"

#include <stdlib.h>
#include <string.h>

#include "formats/tokens/unicode.h"
#include "libckpt/mem.h"

/* Tokens sorted by first byte, then longest first: the first that fits is the longest. */
struct added {
    const struct added_token **token;
    size_t                     n;
    size_t                     begin[257];      /* first token of each first byte */
};

static int by_first_byte(const void *a, const void *b)
{
    const struct added_token *x = *(const struct added_token *const *)a;
    const struct added_token *y = *(const struct added_token *const *)b;
    int order = (int)(unsigned char)x->content[0] - (int)(unsigned char)y->content[0];

    if (order != 0)
        return order;
    if (x->len != y->len)
        return x->len > y->len ? -1 : 1;
    return memcmp(x->content, y->content, x->len);
}

int added_new(struct added **out, const struct added_token *token, size_t n, bool normalized,
              struct ckpt_err *err)
{
    struct added *a = ckpt_alloc(1, sizeof *a);

    *out = NULL;
    if (a)
        a->token = ckpt_alloc(n, sizeof *a->token);
    if (!a || !a->token) {
        added_free(a);
        return ckpt_nomem(err, n * sizeof *a->token);
    }
    for (size_t i = 0; i < n; i++)
        if (token[i].normalized == normalized)
            a->token[a->n++] = &token[i];
    qsort(a->token, a->n, sizeof *a->token, by_first_byte);
    for (size_t b = 0, i = 0; b < 256; b++) {
        a->begin[b] = i;
        while (i < a->n && (unsigned char)a->token[i]->content[0] == b)
            i++;
        a->begin[b + 1] = i;
    }
    *out = a;
    return 0;
}

void added_free(struct added *a)
{
    if (!a)
        return;
    ckpt_free(a->token);
    ckpt_free(a);
}

static const struct added_token *longest_at(const struct added *a, const unsigned char *s,
                                            size_t n)
{
    for (size_t i = a->begin[s[0]]; i < a->begin[s[0] + 1u]; i++)
        if (a->token[i]->len <= n && memcmp(s, a->token[i]->content, a->token[i]->len) == 0)
            return a->token[i];
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
    size_t i = from, width, prev;

    while (a->n > 0 && i < n) {
        if (a->begin[s[i]] == a->begin[s[i] + 1u] || !(t = longest_at(a, s + i, n - i))) {
            i++;
            continue;
        }
        *start = i;
        *end = i + t->len;
        /* A hit that is turned down uses up its text all the same. */
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

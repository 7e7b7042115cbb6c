/* text_of - see text_of.h. */
#include "tools/eval/text_of.h"

#include <string.h>

#include "libckpt/base/buf.h"
#include "libckpt/err.h"
#include "libckpt/mem.h"

#define TEXT_BYTES ((size_t)1 << 30)

/* Ids from the first on that all have a token, or have none. */
static size_t run_of(const struct tokenizer *t, const int32_t *id, size_t n, bool *known)
{
    size_t k = 1;

    *known = tokenizer_token(t, id[0]) != NULL;
    while (k < n && (tokenizer_token(t, id[k]) != NULL) == *known)
        k++;
    return k;
}

/* A text here ends at its first NUL, so one that was generated is U+FFFD. */
static void put_part(struct ckpt_buf *all, const char *part, size_t len)
{
    for (size_t n; len > 0; part += n, len -= n) {
        n = strnlen(part, len);
        ckpt_buf_put(all, part, n);
        if (n == len)
            return;
        ckpt_buf_put_str(all, "\xef\xbf\xbd");
        n++;
    }
}

int text_of(const struct tokenizer *t, char **out, const int32_t *id, size_t n,
            struct ckpt_err *err)
{
    struct ckpt_buf all;
    int rc = 0;

    ckpt_buf_init(&all, TEXT_BYTES);
    for (size_t i = 0, k; rc == 0 && i < n; i += k) {
        char *part = NULL;
        size_t len;
        bool known;

        k = run_of(t, id + i, n - i, &known);
        for (size_t j = i; !known && j < i + k; j++)
            ckpt_buf_printf(&all, "<id:%ld>", (long)id[j]);
        if (known)
            rc = tokenizer_decode(t, &part, &len, id + i, k, true, err);
        if (part)
            put_part(&all, part, len);
        ckpt_free(part);
    }
    *out = rc ? NULL : ckpt_strdup(ckpt_buf_str(&all));
    ckpt_buf_release(&all);
    return rc || *out ? rc : ckpt_nomem(err, n);
}

bool text_cut(char *text, const struct text_stops *stops)
{
    char *first = NULL;

    for (size_t i = 0; i < stops->n; i++) {
        char *at = strstr(text, stops->text[i]);

        if (at && (!first || at < first))
            first = at;
    }
    if (first)
        *first = '\0';
    return first != NULL;
}

bool text_ends(const struct tokenizer *t, const int32_t *id, size_t n,
               const struct text_stops *stops)
{
    enum { BESIDE = 16 };               /* tokens without a text, and parts of a character */
    size_t tail = stops->longest + BESIDE;
    struct ckpt_err ignored = {0};
    char *text = NULL;
    bool found;

    if (stops->n == 0)
        return false;
    tail = tail < n ? tail : n;
    found = text_of(t, &text, id + n - tail, tail, &ignored) == 0 && text_cut(text, stops);
    ckpt_free(text);
    text = NULL;
    /* In the whole text the tail may read otherwise: a space in front of it, for example. */
    if (found && tail < n)
        found = text_of(t, &text, id, n, &ignored) == 0 && text_cut(text, stops);
    ckpt_free(text);
    return found;
}

/*
 * squad - exact match and F1 of answers; see score.h.
 *
 * Source: evaluate-v1.1.py and evaluate-v2.0.py of SQuAD.  They differ where a text has no word: in
 * v2 the F1 of two such texts is 1, in v1 0, and v2 leaves out such answers beside others.
 */
#include <string.h>

#include "formats/tokens/unicode/unicode.h"
#include "libckpt/err.h"
#include "tools/eval/score/metric.h"

/* \w of Python. */
static bool is_word(uint32_t cp)
{
    enum unicode_class cls = unicode_class_of(cp);

    return cp == '_' || cls == UNICODE_LETTER || cls == UNICODE_NUMBER;
}

/* Unicode's Case_Ignorable, of what texts have. */
static bool is_within(uint32_t cp)
{
    return unicode_is_nonspacing(cp) || cp == '\'' || cp == '.' || cp == ':' || cp == '^' ||
           cp == '`' || cp == 0xad || cp == 0xb7 || cp == 0x2019;
}

static bool is_article(const unsigned char *s, size_t n)
{
    return (n == 1 && s[0] == 'a') || (n == 2 && memcmp(s, "an", 2) == 0) ||
           (n == 3 && memcmp(s, "the", 3) == 0);
}

/* Whether Python's lower() takes the sigma at `at` for one at the end of a word: a letter is before
 * it and none after it, but for marks and signs that may be within a word. */
static bool is_final(const unsigned char *text, const unsigned char *at)
{
    const unsigned char *s = at;
    size_t width;
    bool letter = false;

    while (s > text && !letter) {
        while (s > text && (*--s & 0xc0) == 0x80)
            ;
        letter = unicode_class_of(utf8_get(s, &width)) == UNICODE_LETTER;
        if (!letter && !is_within(utf8_get(s, &width)))
            return false;
    }
    for (s = at + 2; letter && *s && is_within(utf8_get(s, &width)); s += width)
        ;
    return letter && (!*s || unicode_class_of(utf8_get(s, &width)) != UNICODE_LETTER);
}

/* text in lower case, without ASCII punctuation. */
static void put_plain(struct ckpt_buf *out, const char *text)
{
    const unsigned char *s = (const unsigned char *)text;
    unsigned char bytes[4];
    size_t width;

    for (; *s; s += width) {
        uint32_t cp = unicode_lower(utf8_get(s, &width));

        if (utf8_get(s, &width) == 0x3a3 && is_final((const unsigned char *)text, s))
            cp = 0x3c2;
        if (cp < 0x80 && strchr("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~", (int)cp))
            continue;
        ckpt_buf_put(out, bytes, utf8_put(bytes, cp));
        if (utf8_get(s, &width) == 0x130)
            ckpt_buf_put(out, "\xcc\x87", 2);           /* the dot above that Python keeps */
    }
}

/* The words of an answer: those between white space, a blank taking the place of articles. */
static int answer_words(struct words *w, const char *text, struct words_vocab *v,
                        struct ckpt_err *err)
{
    struct ckpt_buf plain;
    size_t from = 0, width;
    unsigned char *s;
    int rc = 0;

    ckpt_buf_init(&plain, SIZE_MAX);
    put_plain(&plain, text);
    s = (unsigned char *)ckpt_buf_str(&plain);
    if (!s)
        rc = ckpt_nomem(err, plain.len);
    for (size_t at = 0; rc == 0 && at <= plain.len; at += width) {
        width = 1;
        if (at < plain.len && is_word(utf8_get(s + at, &width)))
            continue;
        if (is_article(s + from, at - from))
            memset(s + from, ' ', at - from);
        from = at + width;
    }
    rc = rc ? rc : words_split(w, (char *)s, plain.len, v, err);
    ckpt_buf_release(&plain);
    return rc;
}

/* Exact match and F1 of one reference. */
static int compare(double stat[2], const struct words *a, const struct words *b, bool v2,
                   struct ckpt_err *err)
{
    double same = 0;
    int rc = words_common(&same, a, b, 1, 1, err);

    stat[0] = a->n == b->n && (a->n == 0 || memcmp(a->id, b->id, a->n * sizeof *a->id) == 0);
    if (v2 && (a->n == 0 || b->n == 0))
        stat[1] = a->n == b->n;
    else
        stat[1] = same > 0 ? 2 * (same / (double)a->n) * (same / (double)b->n) /
                                 (same / (double)a->n + same / (double)b->n) : 0;
    return rc;
}

int metric_squad(double *stat, const struct metric *m, const struct score_row *row,
                 struct words_vocab *v, struct ckpt_err *err)
{
    struct words a = {0};
    bool worded = false, v2 = m->variant == 2;
    int rc = answer_words(&a, row->prediction, v, err);

    stat[0] = stat[1] = 0;
    for (size_t i = 0; v2 && !worded && rc == 0 && i < row->n_references; i++) {
        struct words b = {0};

        rc = answer_words(&b, row->reference[i], v, err);
        worded = b.n > 0;
        words_free(&b);
    }
    for (size_t i = 0; rc == 0 && i < row->n_references; i++) {
        struct words b = {0};
        double one[2];

        rc = answer_words(&b, row->reference[i], v, err);
        rc = rc ? rc : compare(one, &a, &b, v2, err);
        for (size_t k = 0; rc == 0 && k < 2 && !(worded && b.n == 0); k++)
            stat[k] = 100 * one[k] > stat[k] ? 100 * one[k] : stat[k];
        words_free(&b);
    }
    words_free(&a);
    return rc;
}

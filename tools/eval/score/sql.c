/*
 * sql - whether two queries of WikiSQL's kind are the same; see score.h.
 *
 * A query is SELECT what FROM table WHERE condition AND condition ...: its conditions may be in any
 * order.  Case, white space, quotes around values and a semicolon at the end do not matter.
 */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "formats/tokens/unicode/unicode.h"
#include "libckpt/err.h"
#include "tools/eval/score/metric.h"

#define MOST_CONDITIONS 64

/* text in lower case, without quotes and the last semicolon, one blank between words. */
static char *plain(struct ckpt_buf *b, const char *text)
{
    size_t width, len;
    const char *s = words_strip(text, &len), *end = s + len;
    bool blank = false;
    unsigned char bytes[4];

    while (end > s && end[-1] == ';')
        end--;
    for (; s < end; s += width) {
        uint32_t cp = utf8_get((const unsigned char *)s, &width);

        if (cp == '\'' || cp == '"' || cp == '`')
            continue;
        if (words_is_space(cp)) {
            blank = b->len > 0;
            continue;
        }
        if (blank)
            ckpt_buf_put_u8(b, ' ');
        blank = false;
        ckpt_buf_put(b, bytes, utf8_put(bytes, unicode_lower(cp)));
    }
    return ckpt_buf_str(b);
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Cut a query at its WHERE and its ANDs; the conditions are sorted.  Returns their number. */
static size_t cut(char *query, char **condition)
{
    char *at = strstr(query, " where ");
    size_t n = 0;

    while (at && n < MOST_CONDITIONS) {
        char *from = at + (n ? strlen(" and ") : strlen(" where "));

        *at = '\0';
        condition[n++] = from;
        at = strstr(from, " and ");
    }
    qsort(condition, n, sizeof *condition, by_text);
    return n;
}

static bool match(char *a, char *b)
{
    char *x[MOST_CONDITIONS], *y[MOST_CONDITIONS];
    size_t n = cut(a, x);

    if (n != cut(b, y) || strcmp(a, b) != 0)
        return false;
    for (size_t i = 0; i < n; i++)
        if (strcmp(x[i], y[i]) != 0)
            return false;
    return true;
}

/* The words between white space are the same. */
static int exact(double *out, const char *a, const char *b, struct words_vocab *v,
                 struct ckpt_err *err)
{
    struct words x = {0}, y = {0};
    int rc = words_split(&x, a, strlen(a), v, err);

    rc = rc ? rc : words_split(&y, b, strlen(b), v, err);
    if (rc == 0 && x.n == y.n && (x.n == 0 || memcmp(x.id, y.id, x.n * sizeof *x.id) == 0))
        *out = 1;
    words_free(&x);
    words_free(&y);
    return rc;
}

int metric_sql(double *stat, const struct metric *m, const struct score_row *row,
               struct words_vocab *v, struct ckpt_err *err)
{
    int rc = 0;

    (void)m;
    stat[0] = stat[1] = 0;
    for (size_t i = 0; rc == 0 && i < row->n_references; i++) {
        struct ckpt_buf x, y;
        char *a, *b;

        ckpt_buf_init(&x, SIZE_MAX);
        ckpt_buf_init(&y, SIZE_MAX);
        a = plain(&x, row->prediction);
        b = plain(&y, row->reference[i]);
        if (a && b)
            stat[0] = stat[0] > 0 || match(a, b);
        rc = a && b ? exact(&stat[1], row->prediction, row->reference[i], v, err)
                    : ckpt_nomem(err, x.len + y.len);
        ckpt_buf_release(&x);
        ckpt_buf_release(&y);
    }
    return rc;
}

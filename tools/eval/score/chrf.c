/*
 * chrf - chrF and chrF++ of a corpus; see score.h.
 *
 * Source: M. Popovic, "chrF" (2015) and "chrF++" (2017); sacreBLEU 2.6 metrics/chrf.py: six
 * characters without white space, for chrF++ two words as well; beta 2; orders that one side lacks
 * do not count.
 */
#include <string.h>

#include "formats/tokens/unicode/unicode.h"
#include "tools/eval/score/metric.h"

#define CHARACTERS 6
#define BETA       2

/* F of the statistics (runs of the prediction, of the reference, in both) of n orders. */
static double f_of(const double *stat, size_t n)
{
    double precision = 0, recall = 0, factor = BETA * BETA;
    size_t orders = 0;

    for (size_t k = 0; k < n; k++) {
        const double *x = stat + 3 * k;

        if (x[0] <= 0 || x[1] <= 0)
            continue;
        precision += x[2] / x[0];
        recall += x[2] / x[1];
        orders++;
    }
    if (orders == 0 || precision + recall <= 0)
        return 0;
    precision /= (double)orders;
    recall /= (double)orders;
    return 100 * (1 + factor) * precision * recall / (factor * precision + recall);
}

static bool is_mark(char c) { return c && strchr("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~", c); }

/* One word: a mark at its end, else one at its beginning, is a word of its own. */
static int add_word(struct words *w, const char *s, size_t n, struct words_vocab *v,
                    struct ckpt_err *err)
{
    size_t cut = n == utf8_width((unsigned char)s[0]) ? 0 : is_mark(s[n - 1]) ? n - 1
                 : is_mark(s[0]) ? 1 : 0;
    int rc = cut ? words_add(w, s, cut, v, err) : 0;

    return rc ? rc : words_add(w, s + cut, n - cut, v, err);
}

static int marked_words(struct words *w, const char *text, struct words_vocab *v,
                        struct ckpt_err *err)
{
    size_t from = 0, width, len = strlen(text);
    int rc = 0;

    for (size_t at = 0; rc == 0 && at <= len; at += width) {
        width = 1;
        if (at < len && !words_is_space(utf8_get((const unsigned char *)text + at, &width)))
            continue;
        if (at > from)
            rc = add_word(w, text + from, at - from, v, err);
        from = at + width;
    }
    return rc;
}

static int compare(double *stat, const struct words *a, const struct words *b, size_t orders,
                   struct ckpt_err *err)
{
    int rc = 0;

    for (size_t k = 1; rc == 0 && k <= orders; k++, stat += 3) {
        stat[1] = (double)words_runs(b, k);
        stat[0] = stat[1] > 0 ? (double)words_runs(a, k) : 0;
        rc = words_common(&stat[2], a, b, 1, k, err);
    }
    return rc;
}

int metric_chrf(double *stat, const struct metric *m, const struct score_row *row,
                struct words_vocab *v, struct ckpt_err *err)
{
    size_t word_orders = (size_t)m->variant, n = CHARACTERS + word_orders;
    struct words chars = {0}, words = {0};
    double best = -1;
    int rc = words_characters(&chars, row->prediction, err);

    rc = rc ? rc : marked_words(&words, row->prediction, v, err);
    for (size_t i = 0; rc == 0 && i < row->n_references; i++) {
        struct words other = {0}, other_words = {0};
        double now[METRIC_STATS];

        rc = words_characters(&other, row->reference[i], err);
        rc = rc ? rc : marked_words(&other_words, row->reference[i], v, err);
        rc = rc ? rc : compare(now, &chars, &other, CHARACTERS, err);
        rc = rc ? rc : compare(now + (size_t)3 * CHARACTERS, &words, &other_words, word_orders,
                               err);
        if (rc == 0 && f_of(now, n) > best) {
            best = f_of(now, n);
            memcpy(stat, now, 3 * n * sizeof *stat);
        }
        words_free(&other);
        words_free(&other_words);
    }
    words_free(&chars);
    words_free(&words);
    return rc;
}

void metric_chrf_finish(double *figure, const struct metric *m, const double *stat,
                        const size_t *pick, size_t n)
{
    double sum[METRIC_STATS];

    metric_sums(sum, m, stat, pick, n);
    figure[0] = f_of(sum, CHARACTERS + (size_t)m->variant);
}

/*
 * bleu - BLEU of a corpus; see score.h.
 *
 * Source: K. Papineni et al., "BLEU" (2002); sacreBLEU 2.6 metrics/bleu.py: up to four words, the
 * closest reference's length, orders without a match smoothed as in mteval-v13a ("exp").
 */
#include <math.h>
#include <string.h>

#include "formats/tokens/unicode/unicode.h"
#include "tools/eval/score/metric.h"

#define ORDERS 4

static size_t closest(size_t length, const struct words *reference, size_t n)
{
    size_t best = reference[0].n, gap = SIZE_MAX;

    for (size_t i = 0; i < n; i++) {
        size_t now = reference[i].n, d = now > length ? now - length : length - now;

        if (d < gap || (d == gap && now < best)) {
            gap = d;
            best = now;
        }
    }
    return best;
}

/* stat: length of the prediction and of a reference; matches [4]; runs of the prediction [4]. */
int metric_bleu(double *stat, const struct metric *m, const struct score_row *row,
                struct words_vocab *v, struct ckpt_err *err)
{
    struct words a = {0}, *b = ckpt_alloc(row->n_references, sizeof *b);
    enum bleu_variant variant = (enum bleu_variant)m->variant;
    int rc = b ? metric_bleu_words(&a, variant, row->prediction, v, err)
               : ckpt_nomem(err, row->n_references * sizeof *b);

    for (size_t i = 0; rc == 0 && i < row->n_references; i++)
        rc = metric_bleu_words(&b[i], variant, row->reference[i], v, err);
    for (size_t k = 0; rc == 0 && k < ORDERS; k++) {
        rc = words_common(&stat[2 + k], &a, b, row->n_references, k + 1, err);
        stat[2 + ORDERS + k] = (double)words_runs(&a, k + 1);
    }
    if (rc == 0) {
        stat[0] = (double)a.n;
        stat[1] = (double)closest(a.n, b, row->n_references);
    }
    for (size_t i = 0; b && i < row->n_references; i++)
        words_free(&b[i]);
    ckpt_free(b);
    words_free(&a);
    return rc;
}

void metric_bleu_finish(double *figure, const struct metric *m, const double *stat,
                        const size_t *pick, size_t n)
{
    double sum[METRIC_STATS], logs = 0, part = 1, brevity = 1;
    bool any = false, whole = true;

    metric_sums(sum, m, stat, pick, n);
    if (sum[0] < sum[1])
        brevity = sum[0] > 0 ? exp(1 - sum[1] / sum[0]) : 0;
    for (size_t k = 0; k < ORDERS; k++) {
        double hits = sum[2 + k], runs = sum[2 + ORDERS + k];

        any |= hits > 0;
        whole &= runs > 0;
        if (hits == 0)
            part *= 2;
        if (runs > 0)
            logs += log(100 * (hits > 0 ? hits : 1 / part) / runs);
    }
    figure[0] = any && whole ? brevity * exp(logs / ORDERS) : 0;
}

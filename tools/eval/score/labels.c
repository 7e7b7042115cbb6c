/*
 * labels - texts as labels: accuracy, F1, Matthews' correlation; see score.h.
 *
 * Source: scikit-learn 1.7 metrics/_classification.py.  Labels are those that occur on either side;
 * the F1 of one that is never right is 0.  MCC of K labels by J. Gorodkin (2004).
 */
#include <math.h>
#include <string.h>

#include "tools/eval/score/metric.h"

/* stat: number of the predicted label, number of the true one, which is the first reference. */
int metric_labels(double *stat, const struct metric *m, const struct score_row *row,
                  struct words_vocab *v, struct ckpt_err *err)
{
    struct words w = {0};
    size_t len;
    const char *text = words_strip(row->prediction, &len);
    int rc = words_add(&w, text, len, v, err);

    (void)m;
    if (rc == 0) {
        text = words_strip(row->reference[0], &len);
        rc = words_add(&w, text, len, v, err);
    }
    for (size_t k = 0; rc == 0 && k < 2; k++)
        stat[k] = w.id[k];
    words_free(&w);
    return rc;
}

/* How often a label is predicted, is true, and is both. */
struct label {
    double predicted, truth, both;
};

static struct label *count(size_t *n_labels, const double *stat, const size_t *pick, size_t n)
{
    struct label *label;
    size_t most = 0;

    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < 2; k++)
            if (stat[2 * pick[i] + k] >= (double)most)
                most = (size_t)stat[2 * pick[i] + k] + 1;
    label = ckpt_alloc(most, sizeof *label);
    for (size_t i = 0; label && i < n; i++) {
        size_t predicted = (size_t)stat[2 * pick[i]], truth = (size_t)stat[2 * pick[i] + 1];

        label[predicted].predicted++;
        label[truth].truth++;
        label[truth].both += predicted == truth;
    }
    *n_labels = most;
    return label;
}

/* figure: accuracy, f1_macro, f1_micro, f1_weighted, mcc. */
void metric_labels_finish(double *figure, const struct metric *m, const double *stat,
                          const size_t *pick, size_t n)
{
    double right = 0, macro = 0, weighted = 0, cross = 0, p2 = 0, t2 = 0, all = (double)n;
    size_t n_labels, seen = 0;
    struct label *label = count(&n_labels, stat, pick, n);

    for (size_t k = 0; k < m->n_figures; k++)
        figure[k] = NAN;                /* out of memory */
    if (!label)
        return;
    for (size_t k = 0; k < n_labels; k++) {
        const struct label *l = &label[k];
        double both = l->predicted + l->truth, f = both > 0 ? 2 * l->both / both : 0;

        seen += both > 0;
        right += l->both;
        macro += f;
        weighted += f * l->truth / all;
        cross += l->predicted * l->truth;
        p2 += l->predicted * l->predicted;
        t2 += l->truth * l->truth;
    }
    ckpt_free(label);
    figure[0] = figure[2] = right / all;
    figure[1] = macro / (double)seen;
    figure[3] = weighted;
    cross = right * all - cross;
    p2 = all * all - p2;
    t2 = all * all - t2;
    figure[4] = p2 > 0 && t2 > 0 ? cross / sqrt(p2 * t2) : 0;
}

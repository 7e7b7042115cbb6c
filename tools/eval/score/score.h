/*
 * score - predictions against references: the figures of the usual metrics, equal to those of their
 * reference packages.
 *
 * A metric gives each row some numbers (its statistics).  Its figures follow from the statistics
 * of any choice of rows, so that figures of resampled rows cost no second look at the texts.
 *
 *   squad, squad_v2     exact_match, f1 in percent, of the best reference; evaluate-v1.1.py,
 *                       evaluate-v2.0.py
 *   rouge, rouge_stem   rouge1, rouge2, rougeL, rougeLsum: means of F; rouge_score 0.1.2; _stem:
 *                       with Porter's stems as NLTK 3.9 has them
 *   bleu, bleu_intl, bleu_char, bleu_zh, bleu_none
 *                       bleu of the corpus, by the tokenizer 13a or the named one; sacreBLEU 2.6
 *   chrf, chrf++        of the corpus; sacreBLEU 2.6
 *   labels              accuracy, f1_macro, f1_micro, f1_weighted, mcc of texts as labels, without
 *                       white space around them; scikit-learn 1.7
 *   sql                 sql_match: the same query but for case, white space, quotes and the order
 *                       of its conditions; sql_exact: the same text but for white space
 *
 * Of numbers that a model gives each row (score_of):
 *
 *   loss                nats, tokens, nats, bytes -> loss and perplexity a token, bits_per_byte
 *                       and byte_perplexity: of the sums over rows; NaN without bytes
 *   choices             right, right by length -> acc, acc_norm: means
 *   bertscore           precision, recall, F1 -> bertscore_p, bertscore_r, bertscore_f1: means
 */
#ifndef CKPT_TOOLS_EVAL_SCORE_SCORE_H
#define CKPT_TOOLS_EVAL_SCORE_SCORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "libckpt/fail.h"

#define SCORE_NAMES "squad squad_v2 rouge rouge_stem bleu bleu_intl bleu_char bleu_zh bleu_none " \
                    "chrf chrf++ labels sql bertscore"
#define SCORE_FIGURES 5         /* most of one metric */

/* One row: valid UTF-8.  At least one reference. */
struct score_row {
    const char        *prediction;
    const char *const *reference;
    size_t             n_references;
};

/* One metric of n rows. */
struct score;

/* CKPT_EUSAGE names the metrics.  row is not kept. */
int score_new(struct score **out, const char *metric, const struct score_row *row, size_t n,
              struct ckpt_err *err);
/* A metric of numbers: stat is [n][statistics of the metric], copied. */
int score_of(struct score **out, const char *metric, const double *stat, size_t n,
             struct ckpt_err *err);
void score_free(struct score *s);
const char *score_metric(const struct score *s);
/* The names of a metric's figures, before there is a row; *n is 0 for what is no metric. */
const char *const *score_figures_of(size_t *n, const char *metric);
/* The first metric with the figure whose name are these n bytes; NULL: no metric has it. */
const char *score_metric_with(const char *figure, size_t n);
/* Whether a smaller value of a figure is the better one. */
bool score_falls(const char *figure);
size_t score_figures(const struct score *s);
const char *score_figure_name(const struct score *s, size_t figure);
/* "nrefs:1|case:mixed|..." where the metric has a signature, else "". */
const char *score_signature(const struct score *s);
/* Give it one. */
void score_sign(struct score *s, const char *signature);
/* The figures of all rows. */
void score_values(double value[SCORE_FIGURES], const struct score *s);

/* From n_samples choices of as many rows with replacement, the same for each seed. */
struct score_interval {
    double low, high;           /* between which 95 % of the figure's values lie */
};

int score_intervals(struct score_interval interval[SCORE_FIGURES], const struct score *s,
                    size_t n_samples, uint64_t seed, struct ckpt_err *err);
/*
 * How often chance alone makes two systems over the same rows differ as much: the two-sided paired
 * bootstrap test of sacreBLEU 2 (Koehn 2004; the correction of Riezler and Maxwell 2005).
 */
int score_paired(double p[SCORE_FIGURES], const struct score *a, const struct score *b,
                 size_t n_samples, uint64_t seed, struct ckpt_err *err);

#endif

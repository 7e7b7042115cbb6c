/* metric - one row a metric, for score.c; see score.h. */
#ifndef CKPT_TOOLS_EVAL_SCORE_METRIC_H
#define CKPT_TOOLS_EVAL_SCORE_METRIC_H

#include "tools/eval/score/score.h"
#include "tools/eval/score/words.h"

#define METRIC_STATS 24         /* most of one row */

struct metric {
    const char *name;
    size_t      n_stats, n_figures;
    const char *figure[SCORE_FIGURES];
    const char *signature;      /* without the number of references; NULL: none */
    int         variant;        /* the metric's own */
    int  (*row)(double *stat, const struct metric *m, const struct score_row *row,
                struct words_vocab *v, struct ckpt_err *err);
    /* Figures of the n rows that pick names; stat[row][n_stats]. */
    void (*finish)(double *figure, const struct metric *m, const double *stat, const size_t *pick,
                   size_t n);
};

/* Means of statistics, and their sums, over rows. */
void metric_means(double *figure, const struct metric *m, const double *stat, const size_t *pick,
                  size_t n);
void metric_sums(double *sum, const struct metric *m, const double *stat, const size_t *pick,
                 size_t n);

void metric_loss_finish(double *figure, const struct metric *m, const double *stat,
                        const size_t *pick, size_t n);

int metric_squad(double *stat, const struct metric *m, const struct score_row *row,
                 struct words_vocab *v, struct ckpt_err *err);
int metric_rouge(double *stat, const struct metric *m, const struct score_row *row,
                 struct words_vocab *v, struct ckpt_err *err);
int metric_bleu(double *stat, const struct metric *m, const struct score_row *row,
                struct words_vocab *v, struct ckpt_err *err);
void metric_bleu_finish(double *figure, const struct metric *m, const double *stat,
                        const size_t *pick, size_t n);
int metric_chrf(double *stat, const struct metric *m, const struct score_row *row,
                struct words_vocab *v, struct ckpt_err *err);
void metric_chrf_finish(double *figure, const struct metric *m, const double *stat,
                        const size_t *pick, size_t n);
int metric_labels(double *stat, const struct metric *m, const struct score_row *row,
                  struct words_vocab *v, struct ckpt_err *err);
void metric_labels_finish(double *figure, const struct metric *m, const double *stat,
                          const size_t *pick, size_t n);
int metric_sql(double *stat, const struct metric *m, const struct score_row *row,
               struct words_vocab *v, struct ckpt_err *err);

enum bleu_variant { BLEU_13A, BLEU_INTL, BLEU_CHAR, BLEU_ZH, BLEU_NONE };

/* Append line, cut into words of sacreBLEU's tokenizer, to w. */
int metric_bleu_words(struct words *w, enum bleu_variant variant, const char *line,
               struct words_vocab *v, struct ckpt_err *err);

#endif

/* score - see score.h. */
#include "tools/eval/score/score.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/err.h"
#include "tools/eval/score/metric.h"

#define SQUAD(variant_) .n_stats = 2, .n_figures = 2, .figure = {"exact_match", "f1"},           \
    .variant = (variant_), .row = metric_squad, .finish = metric_means
#define ROUGE(variant_) .n_stats = 4, .n_figures = 4,                                            \
    .figure = {"rouge1", "rouge2", "rougeL", "rougeLsum"}, .variant = (variant_),                \
    .row = metric_rouge, .finish = metric_means
#define BLEU(variant_, tok) .n_stats = 10, .n_figures = 1, .figure = {"bleu"},                   \
    .signature = "case:mixed|eff:no|tok:" tok "|smooth:exp|version:2.6.0",             \
    .variant = (variant_), .row = metric_bleu, .finish = metric_bleu_finish
#define CHRF(words_, nw, name_) .n_stats = 3 * (6 + (words_)), .n_figures = 1,                   \
    .figure = {name_},                                                                           \
    .signature = "case:mixed|eff:yes|nc:6|nw:" nw "|space:no|version:2.6.0",           \
    .variant = (words_), .row = metric_chrf, .finish = metric_chrf_finish

static const struct metric metrics[] = {
    {.name = "squad", SQUAD(1)},
    {.name = "squad_v2", SQUAD(2)},
    {.name = "rouge", ROUGE(0)},
    {.name = "rouge_stem", ROUGE(1)},
    {.name = "bleu", BLEU(BLEU_13A, "13a")},
    {.name = "bleu_intl", BLEU(BLEU_INTL, "intl")},
    {.name = "bleu_char", BLEU(BLEU_CHAR, "char")},
    {.name = "bleu_zh", BLEU(BLEU_ZH, "zh")},
    {.name = "bleu_none", BLEU(BLEU_NONE, "none")},
    {.name = "chrf", CHRF(0, "0", "chrf")},
    {.name = "chrf++", CHRF(2, "2", "chrf++")},
    {.name = "labels", .n_stats = 2, .n_figures = 5,
     .figure = {"accuracy", "f1_macro", "f1_micro", "f1_weighted", "mcc"}, .row = metric_labels,
     .finish = metric_labels_finish},
    {.name = "sql", .n_stats = 2, .n_figures = 2, .figure = {"sql_match", "sql_exact"},
     .row = metric_sql, .finish = metric_means},
};

/* Of numbers: these have no row of texts. */
static const struct metric numbers[] = {
    {.name = "loss", .n_stats = 4, .n_figures = 4,
     .figure = {"loss", "perplexity", "bits_per_byte", "byte_perplexity"},
     .finish = metric_loss_finish},
    {.name = "choices", .n_stats = 2, .n_figures = 2, .figure = {"acc", "acc_norm"},
     .finish = metric_means},
    {.name = "bertscore", .n_stats = 3, .n_figures = 3,
     .figure = {"bertscore_p", "bertscore_r", "bertscore_f1"}, .finish = metric_means},
};

struct score {
    const struct metric *m;
    size_t               n;
    double              *stat;          /* [n][m->n_stats] */
    size_t              *pick;          /* [n]: 0, 1, ... */
    char                 signature[160];
};

void metric_sums(double *sum, const struct metric *m, const double *stat, const size_t *pick,
                 size_t n)
{
    memset(sum, 0, m->n_stats * sizeof *sum);
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < m->n_stats; k++)
            sum[k] += stat[pick[i] * m->n_stats + k];
}

void metric_means(double *figure, const struct metric *m, const double *stat, const size_t *pick,
                  size_t n)
{
    metric_sums(figure, m, stat, pick, n);
    for (size_t k = 0; k < m->n_stats; k++)
        figure[k] /= (double)n;
}

/* figure: of sums of nats and tokens, of nats and bytes. */
void metric_loss_finish(double *figure, const struct metric *m, const double *stat,
                        const size_t *pick, size_t n)
{
    double sum[METRIC_STATS];

    metric_sums(sum, m, stat, pick, n);
    figure[0] = sum[0] / sum[1];
    figure[1] = exp(figure[0]);
    figure[2] = sum[3] > 0 ? sum[2] / sum[3] / log(2) : NAN;
    figure[3] = sum[3] > 0 ? exp(sum[2] / sum[3]) : NAN;
}

static int read_rows(struct score *s, const struct score_row *row, struct ckpt_err *err)
{
    struct words_vocab v;
    int rc = words_vocab_new(&v, err);

    for (size_t i = 0; rc == 0 && i < s->n; i++) {
        s->pick[i] = i;
        rc = s->m->row(s->stat + i * s->m->n_stats, s->m, &row[i], &v, err);
        if (rc)
            ckpt_err_in(err, "row %zu", i + 1);
    }
    words_vocab_free(&v);
    return rc;
}

/* The most references of a row, as sacreBLEU counts them. */
static void sign(struct score *s, const struct score_row *row)
{
    size_t n = 0;

    for (size_t i = 0; i < s->n; i++)
        n = row[i].n_references > n ? row[i].n_references : n;
    if (s->m->signature)
        snprintf(s->signature, sizeof s->signature, "nrefs:%zu|%s", n, s->m->signature);
}

/* Of n rows, without their statistics; NULL when out of memory. */
static struct score *new_score(const struct metric *m, size_t n)
{
    struct score *s = ckpt_alloc(1, sizeof *s);

    if (!s)
        return NULL;
    *s = (struct score){.m = m, .n = n, .stat = ckpt_alloc(n, m->n_stats * sizeof *s->stat),
                        .pick = ckpt_alloc(n, sizeof *s->pick)};
    if (s->stat && s->pick)
        return s;
    score_free(s);
    return NULL;
}

int score_new(struct score **out, const char *metric, const struct score_row *row, size_t n,
              struct ckpt_err *err)
{
    const struct metric *m = NULL;
    struct score *s;
    int rc;

    *out = NULL;
    for (size_t i = 0; i < sizeof metrics / sizeof metrics[0]; i++)
        if (strcmp(metrics[i].name, metric) == 0)
            m = &metrics[i];
    if (!m) {
        ckpt_fail(err, CKPT_EUSAGE, "%.80s: no such metric", metric);
        return ckpt_err_hint(err, "metrics: " SCORE_NAMES);
    }
    if (n == 0)
        return ckpt_fail(err, CKPT_EFORMAT, "%s: there is no row", m->name);
    s = new_score(m, n);
    if (!s)
        return ckpt_nomem(err, n * sizeof *s->stat);
    rc = read_rows(s, row, err);
    sign(s, row);
    if (rc)
        score_free(s);
    else
        *out = s;
    return rc;
}

int score_of(struct score **out, const char *metric, const double *stat, size_t n,
             struct ckpt_err *err)
{
    const struct metric *m = numbers;

    *out = NULL;
    while (strcmp(m->name, metric) != 0)
        if (++m == numbers + sizeof numbers / sizeof numbers[0])
            return ckpt_fail(err, CKPT_ESTATE, "%s: no metric of numbers", metric);
    if (n == 0)
        return ckpt_fail(err, CKPT_EFORMAT, "%s: there is no row", metric);
    *out = new_score(m, n);
    if (!*out)
        return ckpt_nomem(err, n * m->n_stats * sizeof *stat);
    memcpy((*out)->stat, stat, n * m->n_stats * sizeof *stat);
    for (size_t i = 0; i < n; i++)
        (*out)->pick[i] = i;
    return 0;
}

void score_free(struct score *s)
{
    if (!s)
        return;
    ckpt_free(s->stat);
    ckpt_free(s->pick);
    ckpt_free(s);
}

const char *score_metric(const struct score *s) { return s->m->name; }

/* The i-th of all metrics, NULL after the last. */
static const struct metric *metric_at(size_t i)
{
    const size_t n_texts = sizeof metrics / sizeof metrics[0];

    if (i < n_texts)
        return &metrics[i];
    return i - n_texts < sizeof numbers / sizeof numbers[0] ? &numbers[i - n_texts] : NULL;
}

const char *const *score_figures_of(size_t *n, const char *metric)
{
    const struct metric *m;

    *n = 0;
    for (size_t i = 0; (m = metric_at(i)) != NULL; i++)
        if (strcmp(m->name, metric) == 0) {
            *n = m->n_figures;
            return m->figure;
        }
    return NULL;
}

const char *score_metric_with(const char *figure, size_t n)
{
    const struct metric *m;

    for (size_t i = 0; (m = metric_at(i)) != NULL; i++)
        for (size_t k = 0; k < m->n_figures; k++)
            if (strncmp(m->figure[k], figure, n) == 0 && m->figure[k][n] == '\0')
                return m->name;
    return NULL;
}

bool score_falls(const char *figure)
{
    const struct metric *loss = numbers;

    for (size_t k = 0; k < loss->n_figures; k++)
        if (strcmp(loss->figure[k], figure) == 0)
            return true;
    return false;
}

size_t score_figures(const struct score *s) { return s->m->n_figures; }
const char *score_figure_name(const struct score *s, size_t k) { return s->m->figure[k]; }
const char *score_signature(const struct score *s) { return s->signature; }

void score_sign(struct score *s, const char *signature)
{
    snprintf(s->signature, sizeof s->signature, "%s", signature);
}

void score_values(double value[SCORE_FIGURES], const struct score *s)
{
    s->m->finish(value, s->m, s->stat, s->pick, s->n);
}

/* -- resampling ------------------------------------------------------------------------------- */

/* splitmix64 (Steele et al. 2014). */
static uint64_t draw(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;

    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

/* Choose n rows of n. */
static void choose(size_t *pick, size_t n, uint64_t *state)
{
    for (size_t i = 0; i < n; i++)
        pick[i] = (size_t)(((unsigned __int128)draw(state) * n) >> 64);
}

static int ascending(const void *a, const void *b)
{
    const double *x = a, *y = b;

    return *x < *y ? -1 : *x > *y;
}

/* The value at a share q of sorted ones, between two neighbours linearly: numpy's percentile. */
static double percentile(const double *value, size_t n, double q)
{
    double at = q * (double)(n - 1);
    size_t i = (size_t)at;

    return i + 1 < n ? value[i] + (at - (double)i) * (value[i + 1] - value[i]) : value[n - 1];
}

/* Leave out samples that have no value, such as bytes per token of rows without bytes; how many
 * are left. */
static size_t defined(double *value, size_t n)
{
    size_t left = 0;

    for (size_t i = 0; i < n; i++)
        if (!isnan(value[i]))
            value[left++] = value[i];
    return left;
}

int score_intervals(struct score_interval interval[SCORE_FIGURES], const struct score *s,
                    size_t n_samples, uint64_t seed, struct ckpt_err *err)
{
    size_t *pick = ckpt_alloc(s->n, sizeof *pick), n_figures = s->m->n_figures;
    double *value = ckpt_alloc(n_samples * n_figures, sizeof *value);
    bool whole = pick && value;

    for (size_t i = 0; whole && i < n_samples; i++) {
        double figure[SCORE_FIGURES];

        choose(pick, s->n, &seed);
        s->m->finish(figure, s->m, s->stat, pick, s->n);
        for (size_t k = 0; k < n_figures; k++)
            value[k * n_samples + i] = figure[k];
    }
    for (size_t k = 0; whole && k < n_figures; k++) {
        double *own = value + k * n_samples;
        size_t n = defined(own, n_samples);

        qsort(own, n, sizeof *own, ascending);
        interval[k].low = n ? percentile(own, n, 0.025) : NAN;
        interval[k].high = n ? percentile(own, n, 0.975) : NAN;
    }
    ckpt_free(pick);
    ckpt_free(value);
    return whole ? 0 : ckpt_nomem(err, s->n * sizeof *pick);
}

int score_paired(double p[SCORE_FIGURES], const struct score *a, const struct score *b,
                 size_t n_samples, uint64_t seed, struct ckpt_err *err)
{
    size_t *pick = ckpt_alloc(a->n, sizeof *pick), n_figures = a->m->n_figures;
    double *gap = ckpt_alloc(n_samples * n_figures, sizeof *gap);
    double x[SCORE_FIGURES], y[SCORE_FIGURES];
    bool whole = pick && gap;

    if (a->m != b->m || a->n != b->n) {
        ckpt_free(pick);
        ckpt_free(gap);
        return ckpt_fail(err, CKPT_ESTATE, "two systems with different rows");
    }
    for (size_t i = 0; whole && i < n_samples; i++) {
        choose(pick, a->n, &seed);
        a->m->finish(x, a->m, a->stat, pick, a->n);
        b->m->finish(y, b->m, b->stat, pick, a->n);
        for (size_t k = 0; k < n_figures; k++)
            gap[k * n_samples + i] = fabs(x[k] - y[k]);
    }
    score_values(x, a);
    score_values(y, b);
    for (size_t k = 0; whole && k < n_figures; k++) {
        double *own = gap + k * n_samples, mean = 0;
        size_t n = defined(own, n_samples), as_much = 0;

        for (size_t i = 0; i < n; i++)
            mean += own[i] / (double)n;
        for (size_t i = 0; i < n; i++)
            as_much += own[i] - mean >= fabs(x[k] - y[k]);
        p[k] = (double)(as_much + 1) / (double)(n + 1);
    }
    ckpt_free(pick);
    ckpt_free(gap);
    return whole ? 0 : ckpt_nomem(err, a->n * sizeof *pick);
}

/*
 * rouge - ROUGE-1, -2, -L and -Lsum; see score.h.
 *
 * Source: C.-Y. Lin, "ROUGE" (2004); rouge_score 0.1.2 rouge_scorer.py and tokenize.py, whose
 * choices among equal longest common subsequences are followed.
 */
#include <string.h>

#include "formats/tokens/unicode/unicode.h"
#include "libckpt/err.h"
#include "tools/eval/score/metric.h"
#include "tools/eval/score/stem.h"

#define MOST_CELLS ((size_t)1 << 28)    /* of a table of two texts */
#define LONGEST    4096u                /* bytes of a word that gets a stem */

/* Append the words of text: runs of a-z and 0-9 in lower case. */
static int rouge_words(struct words *w, const char *text, size_t len, bool stems,
                       struct words_vocab *v, struct ckpt_err *err)
{
    char word[LONGEST + 1];
    size_t n = 0, width;
    int rc = 0;

    for (size_t at = 0; rc == 0 && at <= len; at += width) {
        uint32_t was = ' ', cp;

        width = 1;
        if (at < len)
            was = utf8_get((const unsigned char *)text + at, &width);
        cp = unicode_lower(was);
        if ((cp >= 'a' && cp <= 'z') || (cp >= '0' && cp <= '9')) {
            if (n == LONGEST)
                return ckpt_fail(err, CKPT_ELIMIT, "a word of more than %u letters", LONGEST);
            word[n++] = (char)cp;
            if (was != 0x130)           /* its lower case has a dot, at which the word ends */
                continue;
        }
        if (n > 3 && stems)
            n = stem_word(word, n);
        if (n > 0)
            rc = words_add(w, word, n, v, err);
        n = 0;
    }
    return rc;
}

static double f_of(double hits, size_t prediction, size_t reference)
{
    double p = hits / (double)prediction, r = hits / (double)reference;

    return hits > 0 ? 2 * p * r / (p + r) : 0;
}

static int score_runs(double *f, const struct words *a, const struct words *b, size_t k,
                      struct ckpt_err *err)
{
    double hits = 0;
    int rc = words_common(&hits, a, b, 1, k, err);

    *f = rc ? 0 : f_of(hits, words_runs(a, k), words_runs(b, k));
    return rc;
}

/* -- longest common subsequences -------------------------------------------------------------- */

/* t[i][j], (ref->n + 1) x (can->n + 1): the length of that of the first i and j words. */
static int lcs_table(uint32_t **out, const struct words *ref, const struct words *can,
                     struct ckpt_err *err)
{
    size_t cols = can->n + 1;
    uint32_t *t;

    *out = NULL;
    if (cols > MOST_CELLS / (ref->n + 1))
        return ckpt_fail(err, CKPT_ELIMIT, "ROUGE-L of texts of %zu and %zu words: a table of %zu "
                         "cells at most", can->n, ref->n, MOST_CELLS);
    t = ckpt_alloc((ref->n + 1) * cols, sizeof *t);
    if (!t)
        return ckpt_nomem(err, (ref->n + 1) * cols * sizeof *t);
    for (size_t i = 1; i <= ref->n; i++)
        for (size_t j = 1; j < cols; j++) {
            uint32_t up = t[(i - 1) * cols + j], left = t[i * cols + j - 1];

            t[i * cols + j] = ref->id[i - 1] == can->id[j - 1] ? t[(i - 1) * cols + j - 1] + 1
                              : up > left ? up : left;
        }
    *out = t;
    return 0;
}

/* Mark the words of ref that are in the subsequence. */
static int mark(bool *in, const struct words *ref, const struct words *can, struct ckpt_err *err)
{
    size_t i = ref->n, j = can->n, cols = can->n + 1;
    uint32_t *t;
    int rc = lcs_table(&t, ref, can, err);

    while (rc == 0 && i > 0 && j > 0) {
        if (ref->id[i - 1] == can->id[j - 1]) {
            in[--i] = true;
            j--;
        } else if (t[i * cols + j - 1] > t[(i - 1) * cols + j]) {
            j--;
        } else {
            i--;
        }
    }
    ckpt_free(t);
    return rc;
}

static int score_lcs(double *f, const struct words *a, const struct words *b, struct ckpt_err *err)
{
    uint32_t *t;
    int rc = lcs_table(&t, b, a, err);

    *f = rc ? 0 : f_of(t[(b->n + 1) * (a->n + 1) - 1], a->n, b->n);
    ckpt_free(t);
    return rc;
}

/* -- sentences, one a line -------------------------------------------------------------------- */

struct sentences {
    struct words *line;
    size_t        n, cap, n_words;
};

static int split_lines(struct sentences *s, const char *text, bool stems, struct words_vocab *v,
                       struct ckpt_err *err)
{
    int rc = 0;

    while (rc == 0 && *text) {
        size_t len = strcspn(text, "\n");

        if (len > 0 && (rc = ckpt_reserve(&s->line, s->n, &s->cap, sizeof *s->line, err)) == 0) {
            s->line[s->n] = (struct words){0};
            rc = rouge_words(&s->line[s->n], text, len, stems, v, err);
            s->n_words += s->line[s->n++].n;
        }
        text += len + (text[len] == '\n');
    }
    return rc;
}

static void free_lines(struct sentences *s)
{
    for (size_t i = 0; i < s->n; i++)
        words_free(&s->line[i]);
    ckpt_free(s->line);
}

/* How often each word of v is in the sentences. */
static int32_t *count_words(const struct sentences *s, const struct words_vocab *v)
{
    int32_t *count = ckpt_alloc(ckpt_map_count(v->map) + 1, sizeof *count);

    for (size_t i = 0; count && i < s->n; i++)
        for (size_t k = 0; k < s->line[i].n; k++)
            count[s->line[i].id[k]]++;
    return count;
}

/* The words of one sentence that are in a subsequence of any of the others, each counted as often
 * as both sides have it at most. */
static int hits_of(double *hits, const struct words *ref, const struct sentences *can,
                   int32_t *left_ref, int32_t *left_can, struct ckpt_err *err)
{
    bool *in = ckpt_alloc(ref->n + 1, sizeof *in);
    int rc = in ? 0 : ckpt_nomem(err, ref->n);

    for (size_t i = 0; rc == 0 && i < can->n; i++)
        rc = mark(in, ref, &can->line[i], err);
    for (size_t i = 0; rc == 0 && i < ref->n; i++) {
        int32_t id = ref->id[i];

        if (!in[i] || left_ref[id] <= 0 || left_can[id] <= 0)
            continue;
        left_ref[id]--;
        left_can[id]--;
        ++*hits;
    }
    ckpt_free(in);
    return rc;
}

static int score_lines(double *f, const char *prediction, const char *reference, bool stems,
                       struct words_vocab *v, struct ckpt_err *err)
{
    struct sentences can = {0}, ref = {0};
    int32_t *left_can = NULL, *left_ref = NULL;
    double hits = 0;
    int rc = split_lines(&can, prediction, stems, v, err);

    rc = rc ? rc : split_lines(&ref, reference, stems, v, err);
    if (rc == 0) {
        left_can = count_words(&can, v);
        left_ref = count_words(&ref, v);
        if (!left_can || !left_ref)
            rc = ckpt_nomem(err, ckpt_map_count(v->map));
    }
    for (size_t i = 0; rc == 0 && i < ref.n; i++)
        rc = hits_of(&hits, &ref.line[i], &can, left_ref, left_can, err);
    *f = f_of(hits, can.n_words, ref.n_words);
    ckpt_free(left_can);
    ckpt_free(left_ref);
    free_lines(&can);
    free_lines(&ref);
    return rc;
}

int metric_rouge(double *stat, const struct metric *m, const struct score_row *row,
                 struct words_vocab *v, struct ckpt_err *err)
{
    bool stems = m->variant == 1;
    struct words a = {0};
    int rc = rouge_words(&a, row->prediction, strlen(row->prediction), stems, v, err);

    memset(stat, 0, 4 * sizeof *stat);
    for (size_t i = 0; rc == 0 && i < row->n_references; i++) {
        const char *reference = row->reference[i];
        struct words b = {0};
        double f[4] = {0};

        rc = rouge_words(&b, reference, strlen(reference), stems, v, err);
        rc = rc ? rc : score_runs(&f[0], &a, &b, 1, err);
        rc = rc ? rc : score_runs(&f[1], &a, &b, 2, err);
        rc = rc ? rc : score_lcs(&f[2], &a, &b, err);
        rc = rc ? rc : score_lines(&f[3], row->prediction, reference, stems, v, err);
        for (size_t k = 0; rc == 0 && k < 4; k++)
            stat[k] = f[k] > stat[k] ? f[k] : stat[k];
        words_free(&b);
    }
    words_free(&a);
    return rc;
}

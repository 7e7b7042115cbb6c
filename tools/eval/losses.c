/* losses - see losses.h. */
#include "tools/eval/losses.h"

#include <math.h>
#include <string.h>

#include "libckpt/log.h"
#include "libckpt/mem.h"
#include "trainer/clock.h"

struct work {
    struct losses      *l;
    struct eval_opened *e;
    struct sample       sample;
    struct pack         pack;           /* of windows */
    float              *nll;            /* of the supervised rows of a batch */
    double              n_cut;          /* rows of this rank that are longer than a sample may be */
};

static int begin(struct work *w, int64_t max_rows, struct ckpt_err *err)
{
    w->l->n = (size_t)data_source_count(w->e->source);
    w->l->row = ckpt_alloc(w->l->n, sizeof *w->l->row);
    w->nll = ckpt_alloc((size_t)max_rows, sizeof *w->nll);
    w->l->seconds = clock_now();
    return w->l->row && w->nll ? 0 : ckpt_nomem(err, w->l->n * sizeof *w->l->row);
}

/* The rows of all ranks, each of which is one rank's. */
static int gather(struct work *w, int rc, struct ckpt_err *err)
{
    struct split *split = w->e->w->split;

    rc = split_agree(split, rc, err);
    rc = rc ? rc : split_sum(split, &w->n_cut, 1, err);
    return rc ? rc : split_sum(split, (double *)w->l->row,
                               w->l->n * sizeof *w->l->row / sizeof(double), err);
}

/* A loss of less text than the file has is told: once, not of a base and of the model. */
static void tell_cut(const struct work *w)
{
    const struct eval_want *want = w->e->w;

    if (w->n_cut > 0 && !want->beside && split_first(want->split))
        ckpt_log(CKPT_LOG_NOTE, "%.0f of %zu samples are cut to %lld tokens (--max-seq-length)",
                 w->n_cut, w->l->n, (long long)want->rows.max_seq_length);
}

/* After a signal, what is known: the mean over the tokens of the rows that were scored. */
static void tell_part(const struct losses *l, struct ckpt_err *err)
{
    double nats = 0, tokens = 0, rows = 0;

    for (size_t i = 0; l->row && i < l->n; i++) {
        nats += l->row[i].nats;
        tokens += l->row[i].tokens;
        rows += l->row[i].tokens > 0;
    }
    if (tokens > 0 && isfinite(nats))
        ckpt_err_hint(err, "loss so far %.6g: %.0f tokens of %.0f of %zu rows", nats / tokens,
                      tokens, rows, l->n);
}

/* Sum the rows; the first that is not a number is named, with those before it counted. */
static int finish(struct work *w, int rc, struct ckpt_err *err)
{
    struct losses *l = w->l;
    int64_t bad = -1;

    ckpt_free(w->nll);
    pack_release(&w->pack);
    sample_release(&w->sample);
    if (rc == CKPT_ESTOPPED) {
        rc = cli_told_stop(rc, err);
        tell_part(l, err);
    }
    if ((rc = gather(w, rc, err)) != 0)
        return rc;
    l->seconds = clock_now() - l->seconds;
    tell_cut(w);
    for (size_t i = 0; i < l->n; i++) {
        if (!isfinite(l->row[i].nats) && bad < 0)
            bad = (int64_t)i;
        l->sum.nats += l->row[i].nats;
        l->sum.tokens += l->row[i].tokens;
        l->sum.own_nats += l->row[i].own_nats;
        l->sum.bytes += l->row[i].bytes;
    }
    if (l->sum.tokens <= 0) {
        ckpt_fail(err, CKPT_EFORMAT, "evaluation data: no supervised token in %zu samples", l->n);
        return ckpt_err_hint(err, "completions are empty, or cut off after --max-seq-length %lld",
                             (long long)w->e->w->rows.max_seq_length);
    }
    if (bad < 0)
        return 0;
    ckpt_fail_as(err, CKPT_EFORMAT, "not-finite", "the loss is not a number");
    data_source_err_in(w->e->source, bad, err);
    return ckpt_err_hint(err, "`ckpt-inspect --stats` names tensors with NaN or infinite values");
}

/* -- whole rows ------------------------------------------------------------------------------- */

/* Give each document its part of a batch's loss: its own rows, and its share of the router's. */
static int take_batch(struct work *w, const struct batch *b, double sum, struct ckpt_err *err)
{
    double own = 0, router;
    int64_t at = 0;
    int rc;

    for (int64_t i = 0; i < b->n_rows; i++)
        own += (double)w->nll[i];
    router = b->n_rows ? (sum - own) / (double)b->n_rows : 0;
    for (int64_t d = 0; d < b->n_docs; d++) {
        struct row_loss *row = (size_t)b->samples[d] < w->l->n ? &w->l->row[b->samples[d]] : NULL;
        int64_t first = at;

        while (at < b->n_rows && b->rows[at] < b->doc_start[d + 1])
            at++;
        if (!row)
            continue;                   /* the sample's second time */
        if ((rc = data_source_sample(w->e->source, b->samples[d], &w->sample, err)) != 0)
            return rc;
        w->n_cut += w->sample.cut;
        if (at == first)
            continue;                   /* nothing is supervised */
        for (int64_t i = first; i < at; i++)
            row->nats += (double)w->nll[i] + router;
        row->own_nats = row->nats;
        row->tokens = (double)(at - first);
        row->bytes = (double)w->sample.target_bytes;
    }
    return 0;
}

int losses_run(struct losses *l, struct eval_opened *e, struct ckpt_err *err)
{
    struct work w = {.l = l, .e = e};
    int64_t steps = loader_steps_per_epoch(e->loader);
    int rc = begin(&w, loader_max_rows(e->loader), err);

    for (int64_t i = 0; rc == 0 && i < steps; i++) {
        const struct loader_step *s;

        rc = cli_stop ? cli_stopped(err) : loader_next(e->loader, &s, err);
        for (int64_t j = 0; rc == 0 && split_mine(e->w->split, i) && j < s->n_micro; j++) {
            double sum = 0;

            rc = model_loss(e->s.model, zero_weights(e->s.zero), s->micro[j], &sum, w.nll, err);
            rc = rc ? rc : take_batch(&w, s->micro[j], sum, err);
        }
        ckpt_log_progress("evaluation", "batches", (uint64_t)i + 1, (uint64_t)steps);
    }
    return finish(&w, rc, err);
}

/* -- windows ---------------------------------------------------------------------------------- */

/* The loss of tokens [from, end) of the current sample, seen from begin on. */
static int window(struct work *w, struct row_loss *row, int64_t begin, int64_t from, int64_t end,
                  struct ckpt_err *err)
{
    struct sample *s = &w->sample, part = {.n = end - begin};
    int64_t labels = 0;
    double sum = 0;
    int rc = sample_reserve(&part, part.n, err);

    for (int64_t i = begin; rc == 0 && i < end; i++) {
        part.ids[i - begin] = s->ids[i];
        part.labels[i - begin] = i < from ? SAMPLE_NO_LABEL : s->labels[i];
        labels += part.labels[i - begin] != SAMPLE_NO_LABEL;
    }
    pack_clear(&w->pack);
    rc = rc ? rc : pack_add(&w->pack, &part, 0, true, err);
    if (rc == 0 && w->pack.batch.n_rows > 0)
        rc = model_loss(w->e->s.model, zero_weights(w->e->s.zero), &w->pack.batch, &sum, NULL,
                        err);
    if (rc == 0 && w->pack.batch.n_rows > 0) {
        row->nats += sum / (double)w->pack.batch.n_rows * (double)(labels - 1);
        row->own_nats += sum;
        row->tokens += (double)(labels - 1);
    }
    sample_release(&part);
    return rc;
}

static int row_windows(struct work *w, int64_t i, struct ckpt_err *err)
{
    int64_t most = w->e->w->rows.max_seq_length, stride = w->e->w->stride, seen = 0;
    struct row_loss *row = &w->l->row[i];
    int rc = data_source_sample(w->e->source, i, &w->sample, err);

    for (int64_t begin = 0; rc == 0 && seen < w->sample.n; begin += stride) {
        int64_t left = w->sample.n - begin, end = begin + (left < most ? left : most);

        rc = cli_stop ? cli_stopped(err) : window(w, row, begin, seen, end, err);
        seen = end;
    }
    row->bytes = (double)w->sample.target_bytes;
    return rc;
}

int losses_strided(struct losses *l, struct eval_opened *e, struct ckpt_err *err)
{
    struct work w = {.l = l, .e = e};
    int64_t most = e->w->rows.max_seq_length;
    int rc = begin(&w, most, err);

    rc = rc ? rc : pack_init(&w.pack, most, 1, err);
    for (size_t i = 0; rc == 0 && i < l->n; i++) {
        if (split_mine(e->w->split, (int64_t)i))
            rc = row_windows(&w, (int64_t)i, err);
        ckpt_log_progress("evaluation", "rows", (uint64_t)i + 1, (uint64_t)l->n);
    }
    return finish(&w, rc, err);
}

int losses_score(struct score **out, const struct losses *l, struct ckpt_err *err)
{
    return score_of(out, "loss", (const double *)l->row, l->n, err);
}

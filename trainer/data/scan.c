/* scan - a pass over all records of a source, see stream.h: lengths, bad records, statistics. */
#include <string.h>

#include "libckpt/err.h"
#include "libckpt/log.h"
#include "libckpt/mem.h"
#include "libckpt/base/pool.h"
#include "trainer/data/sample_cache.h"

/* One worker's part of a scan. */
struct surveyor {
    struct sample     sample;
    struct data_stats stats;
    int64_t           first_bad;            /* record, -1: none */
};

struct survey {
    const struct data_source *d;
    const struct scan_sink   *sink;         /* or NULL */
    int32_t                  *length;       /* [n] of every record, -1: not usable; or NULL */
    int64_t                   done;         /* records */
    struct surveyor           worker[SCAN_WORKERS];
};

/* Errors in a file can be skipped, failures of the machine cannot. */
static bool is_bad_row(int code)
{
    return code == CKPT_EFORMAT || code == CKPT_ELIMIT || code == CKPT_EUNSUPPORTED;
}

static void note_bad(struct surveyor *w, int64_t i, const struct ckpt_err *err)
{
    size_t n = strlen(err->text);

    w->stats.n_skipped++;
    if (w->first_bad >= 0)
        return;
    n = n < sizeof w->stats.first_bad ? n : sizeof w->stats.first_bad - 1;
    memcpy(w->stats.first_bad, err->text, n);
    w->stats.first_bad[n] = '\0';
    w->first_bad = i;
}

static void note_good(struct surveyor *w)
{
    int64_t targets = sample_targets(&w->sample);

    w->stats.n_samples++;
    w->stats.n_truncated += w->sample.cut;
    w->stats.n_tokens += w->sample.n;
    w->stats.n_targets += targets;
    w->stats.n_no_target += targets == 0;
    if (w->sample.n > w->stats.longest)
        w->stats.longest = w->sample.n;
}

/* Whether the sample is left out or refused, as one that was too long. */
static int check_excess(bool *drop, const struct data_source *d, int64_t i, const struct sample *s,
                        struct ckpt_err *err)
{
    *drop = s->cut && d->o.excess == DATA_EXCESS_DROP;
    if (!s->cut || d->o.excess != DATA_EXCESS_RAISE)
        return 0;
    ckpt_fail(err, CKPT_EFORMAT, "more tokens than `max_seq_length %lld`",
              (long long)d->o.max_seq_length);
    ckpt_err_hint(err, "`excess_length_strategy drop` leaves such records out, truncate cuts them");
    return records_err_in(d->records, i, err);
}

/* A sample from the record, or from the cache if the pass is not to fill that. */
static int get_sample(const struct survey *s, int64_t i, struct sample *sample,
                      struct ckpt_err *err)
{
    if (!s->sink && s->d->cache && sample_cache_get(s->d->cache, i, sample))
        return 0;
    return data_source_make(s->d, i, sample, err);
}

static int survey_block(void *ctx, size_t i_block, size_t i_worker, struct ckpt_err *err)
{
    struct survey *s = ctx;
    struct surveyor *w = &s->worker[i_worker];
    int64_t first = (int64_t)i_block * SCAN_BLOCK, end = first + SCAN_BLOCK;
    bool tolerant = s->sink || s->d->o.bad == DATA_BAD_SKIP;
    int rc;

    if (s->d->o.stop && *s->d->o.stop)
        return ckpt_fail(err, CKPT_ESTOPPED, "stopped while looking through the data");
    end = end < s->d->n ? end : s->d->n;
    for (int64_t i = first; i < end; i++) {
        bool good, drop = false;

        rc = get_sample(s, i, &w->sample, err);
        good = rc == 0;
        if (good && !s->sink && (rc = check_excess(&drop, s->d, i, &w->sample, err)) != 0)
            return rc;
        if (drop) {
            w->stats.n_dropped++;
            good = false;
        } else if (good) {
            note_good(w);
        } else if (tolerant && is_bad_row(rc)) {
            note_bad(w, i, err);
            ckpt_err_clear(err);
        } else {
            return rc;
        }
        if (s->length)
            s->length[i] = good ? (int32_t)sample_length(&w->sample) : -1;
        rc = s->sink ? s->sink->put(s->sink->ctx, i_worker, i, good ? &w->sample : NULL, err) : 0;
        if (rc)
            return rc;
    }
    ckpt_log_progress("tokenising", "records",
                      (uint64_t)__atomic_add_fetch(&s->done, end - first, __ATOMIC_RELAXED),
                      (uint64_t)s->d->n);
    return s->sink ? s->sink->end(s->sink->ctx, i_worker, first, end - first, err) : 0;
}

/* Join the workers' statistics; the first bad record is the one with the lowest number. */
static void add_up(struct survey *s, size_t n_workers, struct data_stats *out)
{
    int64_t first = -1;

    memset(out, 0, sizeof *out);
    for (size_t i = 0; i < n_workers; i++) {
        const struct data_stats *w = &s->worker[i].stats;
        int64_t bad = s->worker[i].first_bad;

        out->n_samples += w->n_samples;
        out->n_skipped += w->n_skipped;
        out->n_dropped += w->n_dropped;
        out->n_truncated += w->n_truncated;
        out->n_tokens += w->n_tokens;
        out->n_targets += w->n_targets;
        out->n_no_target += w->n_no_target;
        out->longest = w->longest > out->longest ? w->longest : out->longest;
        if (bad >= 0 && (first < 0 || bad < first)) {
            first = bad;
            memcpy(out->first_bad, w->first_bad, sizeof out->first_bad);
        }
    }
}

/* From now on samples are the records only that are usable and not too long. */
static int drop_others(struct data_source *d, int32_t *length, struct ckpt_err *err)
{
    int64_t n = 0;

    if (d->stats.n_skipped == 0 && d->stats.n_dropped == 0)
        return 0;
    if (d->stats.n_samples == 0 && d->stats.n_skipped == 0)
        return ckpt_fail(err, CKPT_EFORMAT, "all %lld records have more tokens than "
                         "`max_seq_length %lld`, and are dropped", (long long)d->n,
                         (long long)d->o.max_seq_length);
    if (d->stats.n_samples == 0)
        return ckpt_fail(err, CKPT_EFORMAT, "none of %lld records can be used; the first: %s",
                         (long long)d->n, d->stats.first_bad);
    d->usable = ckpt_alloc((size_t)d->stats.n_samples, sizeof *d->usable);
    if (!d->usable)
        return ckpt_nomem(err, (size_t)d->stats.n_samples * sizeof *d->usable);
    for (int64_t i = 0; i < d->n; i++)
        if (length[i] >= 0) {
            length[n] = length[i];
            d->usable[n++] = i;
        }
    d->n = n;
    return 0;
}

int data_source_survey(const struct data_source *d, int32_t *length, struct data_stats *stats,
                       const struct scan_sink *sink, struct ckpt_err *err)
{
    size_t n_workers = d->o.workers ? d->o.workers : ckpt_pool_default(SCAN_WORKERS);
    size_t n_block = ((size_t)d->n + SCAN_BLOCK - 1) / SCAN_BLOCK;
    struct survey *s = ckpt_alloc(1, sizeof *s);
    int rc;

    if (!s)
        return ckpt_nomem(err, sizeof *s);
    n_workers = n_workers > SCAN_WORKERS ? SCAN_WORKERS : n_workers;
    s->d = d;
    s->length = length;
    s->sink = sink;
    for (size_t i = 0; i < SCAN_WORKERS; i++)
        s->worker[i].first_bad = -1;
    rc = ckpt_pool_run(n_workers, n_block, survey_block, s, err);
    add_up(s, n_workers, stats);
    for (size_t i = 0; i < SCAN_WORKERS; i++)
        sample_release(&s->worker[i].sample);
    ckpt_free(s);
    return rc;
}

/* Fail with the error of the first record without a sample. */
static int fail_first(const struct data_source *d, const int32_t *length, struct ckpt_err *err)
{
    struct sample s = {0};
    int64_t i = 0;
    int rc = 0;

    while (i < d->n && length[i] >= 0)
        i++;
    if (i < d->n)
        rc = data_source_make(d, i, &s, err);
    sample_release(&s);
    return rc;
}

int64_t data_source_dropped(const struct data_source *d) { return d->stats.n_dropped; }

int data_source_scan(struct data_source *d, struct data_stats *stats, struct ckpt_err *err)
{
    int32_t *length = NULL;
    int rc = 0;

    if (!d->length) {
        length = ckpt_alloc((size_t)d->n, sizeof *length);
        if (!length)
            return ckpt_nomem(err, (size_t)d->n * sizeof *length);
        rc = d->cache && d->o.excess == DATA_EXCESS_TRUNCATE
                 ? sample_cache_survey(d->cache, length, &d->stats, err)
                 : data_source_survey(d, length, &d->stats, NULL, err);
        if (rc == 0 && d->o.bad == DATA_BAD_STOP && d->stats.n_skipped > 0)
            rc = fail_first(d, length, err);
        if (rc == 0)
            rc = drop_others(d, length, err);
        if (rc == 0) {
            d->length = length;
            length = NULL;
        }
    }
    ckpt_free(length);
    if (rc == 0 && stats)
        *stats = d->stats;
    return rc;
}

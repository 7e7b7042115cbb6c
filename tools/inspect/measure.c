/*
 * measure - statistics, histograms and digests of tensors, in pieces of bounded size; see
 * inspect.h.
 *
 * A large tensor is cut into units that workers take one by one, so that the workers do not wait
 * for one large embedding.  Units have a fixed size and are joined in order: the numbers do not
 * depend on the number of workers.  A digest needs a tensor's bytes in order: with digests the
 * unit is the tensor.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "libckpt/base/pool.h"
#include "libckpt/io/guard.h"
#include "tools/inspect/inspect.h"
#include "tools/inspect/mapped.h"

#define PIECE_BYTES  ((size_t)256 << 10)    /* still in cache at the second use */
#define UNIT_BYTES   ((uint64_t)32 << 20)
#define SAMPLES      65536                  /* values that a histogram samples */
#define SAMPLE_RUN   1024                   /* consecutive values read at a time */

struct unit {
    size_t       k;                         /* index in the list of tensors */
    int64_t      from, to;
    struct stats s;
};

struct job {
    struct tensor_measure *m;
    struct ckpt_source    *src;
    const size_t          *index;
    struct unit           *unit;
    unsigned               what;
    uint64_t              *done, total;     /* bytes */
};

static size_t tensor_of(const struct job *j, size_t k) { return j->index ? j->index[k] : k; }

/* Feed bytes to digest and statistics, in pieces that are still in the cache for the second. */
static int measure_bytes(struct unit *u, struct ckpt_sha256 *sha, const struct job *j,
                         const unsigned char *raw, size_t n, struct ckpt_err *err)
{
    enum ckpt_dtype dtype = ckpt_source_tensor(j->src, tensor_of(j, u->k))->dtype;
    size_t width = ckpt_dtype_size(dtype), step = PIECE_BYTES / width;
    bool numbers = (j->what & INSPECT_STATS) && ckpt_convert_can(CKPT_F64, dtype);
    int rc = 0;

    for (size_t at = 0, k; rc == 0 && at < n; at += k) {
        k = n - at < step ? n - at : step;
        if (sha)
            rc = ckpt_sha256_add(sha, raw + at * width, k * width, err);
        if (rc == 0 && numbers)
            stats_add(&u->s, raw + at * width, dtype, k);
    }
    return rc;
}

/* Measure the unit through a mapping of its file; false when it must be read. */
static bool measure_mapped(struct unit *u, struct ckpt_sha256 *sha, const struct job *j,
                           int64_t at, int64_t n, int *rc, struct ckpt_err *err)
{
    size_t i = tensor_of(j, u->k);
    const struct ckpt_tensor *t = ckpt_source_tensor(j->src, i);
    size_t bytes = (size_t)n * ckpt_dtype_size(t->dtype);
    struct ckpt_err own = {0};
    struct ckpt_extent x;
    const void *raw;
    bool aligned;

    if (!j->what || bytes < PIECE_BYTES || !ckpt_source_locate(j->src, i, at, n, &x))
        return false;
    *rc = ckpt_guard_prove(x.file, x.offset, bytes, err);
    if (*rc == 0) {
        if (!mapped_begin(&raw, &x, bytes))
            return false;
        aligned = (uintptr_t)raw % 4 == 0;      /* required by the vectorised sums */
        *rc = aligned ? measure_bytes(u, sha, j, raw, (size_t)n, err) : 0;
        if (mapped_end(&own) && *rc == 0 && aligned) {
            *err = own;
            *rc = own.code;
        }
        if (!aligned)
            return false;
    }
    if (*rc)
        ckpt_err_in(err, "tensor %s", t->name);
    return true;
}

static void tell_progress(const struct job *j, uint64_t bytes)
{
    ckpt_log_progress("reading tensors", NULL,
                      __atomic_add_fetch(j->done, bytes, __ATOMIC_RELAXED), j->total);
}

static int measure_range(struct unit *u, struct ckpt_sha256 *sha, const struct job *j,
                         struct ckpt_err *err)
{
    size_t i = tensor_of(j, u->k), width = ckpt_dtype_size(ckpt_source_tensor(j->src, i)->dtype);
    void *raw = NULL;
    int rc = 0;

    for (int64_t at = u->from, n; rc == 0 && at < u->to; at += n) {
        n = (int64_t)(MAPPED_BYTES / width);
        n = u->to - at < n ? u->to - at : n;
        if (!raw && measure_mapped(u, sha, j, at, n, &rc, err)) {
            tell_progress(j, (uint64_t)n * width);
            continue;
        }
        n = (int64_t)(PIECE_BYTES / width);
        n = u->to - at < n ? u->to - at : n;
        if (!raw)
            raw = ckpt_alloc_buffer(PIECE_BYTES);
        rc = raw ? ckpt_source_read(j->src, i, at, n, raw, err) : ckpt_nomem(err, PIECE_BYTES);
        if (rc == 0)
            rc = measure_bytes(u, sha, j, raw, (size_t)n, err);
        tell_progress(j, (uint64_t)n * width);
    }
    ckpt_free(raw);
    return rc;
}

static int measure_unit(void *ctx, size_t k, size_t worker, struct ckpt_err *err)
{
    struct job *j = ctx;
    unsigned char digest[CKPT_SHA256_BYTES];
    struct ckpt_sha256 *sha = NULL;
    int rc = 0;

    (void)worker;
    if (j->what & INSPECT_DIGEST)
        rc = ckpt_sha256_new(&sha, err);
    if (rc == 0)
        rc = measure_range(&j->unit[k], sha, j, err);
    if (rc == 0 && sha)
        rc = ckpt_sha256_end(sha, digest, err);
    if (rc == 0 && sha)
        ckpt_digest_hex(j->m[j->unit[k].k].sha256, digest, sizeof digest);
    ckpt_sha256_free(sha);
    return rc;
}

/* The bin of v in m's range; values beyond it count in the outermost. */
static size_t bin_of(const struct tensor_measure *m, double v)
{
    double part = (v - m->hist_low) / (m->hist_high - m->hist_low) * MEASURE_BINS;

    return !(part > 0) ? 0 : part >= MEASURE_BINS ? MEASURE_BINS - 1 : (size_t)part;
}

/* Sample runs of consecutive values, evenly spaced; a small tensor completely. */
static int histogram(void *ctx, size_t k, size_t worker, struct ckpt_err *err)
{
    struct job *j = ctx;
    struct tensor_measure *m = &j->m[k];
    size_t i = tensor_of(j, k);
    const struct ckpt_tensor *t = ckpt_source_tensor(j->src, i);
    int64_t run = SAMPLE_RUN, n_run = (t->numel + run - 1) / run;
    int64_t taken = n_run < SAMPLES / run ? n_run : SAMPLES / run;
    unsigned char raw[SAMPLE_RUN * 16];
    double v[SAMPLE_RUN];
    int rc;

    (void)worker;
    if (!m->s.n || !(m->hist_high > m->hist_low))
        return 0;
    for (int64_t r = 0; r < taken; r++) {
        int64_t at = r * n_run / taken * run, n = t->numel - at < run ? t->numel - at : run;

        if ((rc = ckpt_source_read(j->src, i, at, n, raw, err)) != 0)
            return rc;
        ckpt_convert(v, CKPT_F64, raw, t->dtype, (size_t)n);
        for (int64_t x = 0; x < n; x++)
            m->hist[bin_of(m, v[x])] += isfinite(v[x]) != 0;
    }
    return 0;
}

/* Four standard deviations on each side of the mean, limited to the range of values. */
static void set_range(struct tensor_measure *m)
{
    double four = 4 * stats_std(&m->s);

    m->hist_low = fmax(m->s.min, m->s.mean - four);
    m->hist_high = fmin(m->s.max, m->s.mean + four);
    if (!isfinite(m->hist_high - m->hist_low))
        m->hist_low = m->hist_high = 0;
}

/* Cut n tensors into units; with a NULL list only count them. */
static size_t cut(const struct job *j, size_t n, struct unit *list)
{
    size_t n_unit = 0;

    for (size_t k = 0; k < n; k++) {
        const struct ckpt_tensor *t = ckpt_source_tensor(j->src, tensor_of(j, k));
        size_t width = ckpt_dtype_size(t->dtype);
        int64_t step = width && !(j->what & INSPECT_DIGEST) ? (int64_t)(UNIT_BYTES / width)
                                                             : t->numel;
        int64_t at = 0;

        do {
            int64_t to = t->numel - at < step ? t->numel : at + step;

            if (!width || t->unread)
                break;                      /* no statistics of sub-byte dtypes */
            if (list)
                list[n_unit] = (struct unit){.k = k, .from = at, .to = to};
            n_unit++;
            at = to;
        } while (at < t->numel);
    }
    return n_unit;
}

int inspect_measure(struct tensor_measure *m, struct ckpt_source *src, const size_t *index,
                    size_t n, unsigned what, int jobs, struct ckpt_err *err)
{
    uint64_t done = 0;
    struct job j = {.m = m, .src = src, .index = index, .what = what, .done = &done};
    size_t workers = jobs ? (size_t)jobs : ckpt_pool_default(16), n_unit = cut(&j, n, NULL);
    int rc = 0;

    j.unit = ckpt_alloc(n_unit, sizeof *j.unit);
    if (!j.unit)
        return ckpt_nomem(err, n_unit * sizeof *j.unit);
    for (size_t k = 0; m && k < n; k++) {
        const struct ckpt_tensor *t = ckpt_source_tensor(src, tensor_of(&j, k));

        m[k] = (struct tensor_measure){.numbers = (what & INSPECT_STATS) &&
                                                  ckpt_dtype_size(t->dtype) && !t->unread &&
                                                  ckpt_convert_can(CKPT_F64, t->dtype)};
    }
    cut(&j, n, j.unit);
    for (size_t u = 0; u < n_unit; u++)
        j.total += (uint64_t)(j.unit[u].to - j.unit[u].from) *
                   ckpt_dtype_size(ckpt_source_tensor(src, tensor_of(&j, j.unit[u].k))->dtype);
    if (n_unit)
        rc = ckpt_pool_run(workers, n_unit, measure_unit, &j, err);
    for (size_t u = 0; rc == 0 && m && u < n_unit; u++)
        stats_join(&m[j.unit[u].k].s, &j.unit[u].s);
    for (size_t k = 0; rc == 0 && m && k < n; k++)
        set_range(&m[k]);
    if (rc == 0 && m && n && (what & INSPECT_STATS))
        rc = ckpt_pool_run(workers, n, histogram, &j, err);
    ckpt_free(j.unit);
    return rc;
}

char *inspect_measure_spark(char dst[MEASURE_BINS * 3 + 1], const struct tensor_measure *m)
{
    static const char *const block[] = {" ", "\u2581", "\u2582", "\u2583", "\u2584", "\u2585",
                                        "\u2586", "\u2587", "\u2588"};
    uint32_t most = 1;
    size_t at = 0;

    for (size_t k = 0; k < MEASURE_BINS; k++)
        most = m->hist[k] > most ? m->hist[k] : most;
    for (size_t k = 0; k < MEASURE_BINS; k++) {
        const char *b = block[((uint64_t)m->hist[k] * 8 + most - 1) / most];

        memcpy(dst + at, b, strlen(b));
        at += strlen(b);
    }
    dst[at] = '\0';
    return dst;
}

char *inspect_measure_histogram(char dst[512], const struct tensor_measure *m)
{
    size_t n = (size_t)snprintf(dst, 512, "{\"low\": %.9g, \"high\": %.9g, \"counts\": [",
                                m->hist_low, m->hist_high);

    for (size_t k = 0; k < MEASURE_BINS; k++)
        n += (size_t)snprintf(dst + n, 512 - n, "%s%u", k ? ", " : "", m->hist[k]);
    snprintf(dst + n, 512 - n, "]}");
    return dst;
}

/*
 * measure - statistics and digests of tensors, in pieces of bounded size; see inspect.h.
 *
 * Each piece is read once for whatever is wanted of it.  Means and deviations are taken block
 * by block in two passes and joined by the rule of Chan, Golub and LeVeque (1979), which loses
 * no digits to large means and lets the loops be vector code.
 */
#include <math.h>
#include <string.h>

#include "libckpt/pool.h"
#include "tools/inspect/inspect.h"

#define PIECE_BYTES ((size_t)1 << 20)
#define BLOCK       4096

/* Statistics of one tensor, in work. */
struct running {
    struct tensor_measure *m;
    double                 m2;          /* sum of squared differences from the mean */
};

/* The finite values of a block moved to its front; how many they are. */
static size_t keep_finite(struct tensor_measure *m, double *v, size_t n)
{
    size_t k = 0;

    for (size_t i = 0; i < n; i++) {
        m->n_nan += isnan(v[i]) != 0;
        m->n_inf += isinf(v[i]) != 0;
        v[k] = v[i];
        k += isfinite(v[i]) != 0;
    }
    return k;
}

static void add_block(struct running *r, double *v, size_t n)
{
    struct tensor_measure *m = r->m;
    double sum = 0, m2 = 0, low = INFINITY, high = -INFINITY, mean, apart, all;

    n = keep_finite(m, v, n);
    if (n == 0)
        return;
    for (size_t i = 0; i < n; i++) {
        sum += v[i];
        low = v[i] < low ? v[i] : low;
        high = v[i] > high ? v[i] : high;
    }
    low += 0.0;                         /* no -0 */
    mean = sum / (double)n;
    for (size_t i = 0; i < n; i++)
        m2 += (v[i] - mean) * (v[i] - mean);
    all = (double)m->n + (double)n;
    apart = mean - m->mean;
    r->m2 += m2 + apart * apart * ((double)m->n * (double)n / all);
    m->mean += apart * ((double)n / all);
    m->min = m->n == 0 || low < m->min ? low : m->min;
    m->max = m->n == 0 || high > m->max ? high : m->max;
    m->n += (int64_t)n;
}

static int measure_pieces(struct running *r, struct ckpt_sha256 *sha, struct ckpt_source *src,
                          size_t i, void *raw, size_t raw_bytes, struct ckpt_err *err)
{
    const struct ckpt_tensor *t = ckpt_source_tensor(src, i);
    size_t width = ckpt_dtype_size(t->dtype);
    int64_t step = (int64_t)(raw_bytes / width);
    double wide[BLOCK];
    int rc = 0;

    for (int64_t at = 0; rc == 0 && at < t->numel; at += step) {
        size_t n = (size_t)(t->numel - at < step ? t->numel - at : step);

        rc = ckpt_source_read(src, i, at, (int64_t)n, raw, err);
        if (rc == 0 && sha)
            rc = ckpt_sha256_add(sha, raw, n * width, err);
        for (size_t k = 0; rc == 0 && r->m->numbers && k < n; k += BLOCK) {
            size_t block = n - k < BLOCK ? n - k : BLOCK;

            ckpt_convert(wide, CKPT_F64, (unsigned char *)raw + k * width, t->dtype, block);
            add_block(r, wide, block);
        }
    }
    return rc;
}

int tensor_measure(struct tensor_measure *m, struct ckpt_source *src, size_t i, unsigned what,
                   struct ckpt_err *err)
{
    const struct ckpt_tensor *t = ckpt_source_tensor(src, i);
    size_t all = (size_t)ckpt_tensor_bytes(t), bytes = all < PIECE_BYTES ? all : PIECE_BYTES;
    unsigned char digest[CKPT_SHA256_BYTES];
    struct running r = {.m = m};
    struct ckpt_sha256 *sha = NULL;
    void *raw;
    int rc = 0;

    memset(m, 0, sizeof *m);
    if (ckpt_dtype_size(t->dtype) == 0)
        return 0;
    m->numbers = (what & MEASURE_STATS) && ckpt_convert_can(CKPT_F64, t->dtype);
    raw = ckpt_alloc_buffer(bytes ? bytes : 1);
    if (!raw)
        rc = ckpt_nomem(err, bytes);
    if (rc == 0 && (what & MEASURE_DIGEST))
        rc = ckpt_sha256_new(&sha, err);
    if (rc == 0)
        rc = measure_pieces(&r, sha, src, i, raw, bytes, err);
    if (rc == 0 && sha)
        rc = ckpt_sha256_end(sha, digest, err);
    if (rc == 0 && sha)
        ckpt_hex(m->sha256, digest, sizeof digest);
    if (m->n > 1)
        m->std = sqrt(r.m2 / (double)(m->n - 1));
    ckpt_sha256_free(sha);
    ckpt_free(raw);
    return rc;
}

struct job {
    struct tensor_measure *m;
    struct ckpt_source    *src;
    const size_t          *index;
    unsigned               what;
};

static int measure_one(void *ctx, size_t k, size_t worker, struct ckpt_err *err)
{
    struct job *j = ctx;
    struct tensor_measure own;

    (void)worker;
    return tensor_measure(j->m ? &j->m[k] : &own, j->src, j->index ? j->index[k] : k, j->what,
                          err);
}

int tensors_measure(struct tensor_measure *m, struct ckpt_source *src, const size_t *index,
                    size_t n, unsigned what, int jobs, struct ckpt_err *err)
{
    struct job j = {.m = m, .src = src, .index = index, .what = what};
    size_t workers = jobs ? (size_t)jobs : ckpt_pool_default(8);

    return n == 0 ? 0 : ckpt_pool_run(workers, n, measure_one, &j, err);
}

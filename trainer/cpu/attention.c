/*
 * attention - causal attention over packed documents, forward and backward.
 *
 * A task is one document and one key head; it walks over blocks of BLOCK query rows.  A block's
 * scores against all keys it may see form one tile [BLOCK, keys] in the thread's part of the
 * workspace: two matrix products and one pass of softmax forward; backward rebuilds the
 * probabilities from the kept log-sum-exp and adds to the task's own dk, dv, so nothing is
 * shared between threads and sums have a fixed order.  Memory grows with the longest document,
 * not with its square.
 */
#include "trainer/cpu/cpu.h"

#include <cblas.h>
#include <math.h>
#include <string.h>

#include "trainer/cpu/vmath.h"

#define BLOCK 64

/* The block of queries [i0, i1) of a document and the keys [k0, i1) they see; rows of the batch
 * are counted from `first`. */
struct tile {
    int64_t first, i0, i1, k0;
};

static int64_t tile_floats(int64_t max_doc) { return BLOCK * ((max_doc + 15) & ~(int64_t)15); }

uint64_t cpu_attention_work(const struct device *dev, const struct op_limits *l)
{
    int64_t keys = l->max_doc > l->max_keys ? l->max_doc : l->max_keys;

    return (uint64_t)(dev->threads * (l->train ? 2 : 1) * tile_floats(keys)) * sizeof(float);
}

/* First key that query i may see. */
static int64_t first_key(int64_t i, int64_t window)
{
    return window > 0 && i >= window ? i - window + 1 : 0;
}

/*
 * Scores s[0, n) of one query (keys j0 ...; the query's own index is i) become exp(s - max),
 * with the position term; gives their sum.
 */
CPU_HOT static float soften(float *s, int64_t n, int64_t j0, int64_t i, float slope, float *max)
{
    float at = (float)(j0 - i), m = -INFINITY, sum = 0;

#pragma omp simd reduction(max : m)
    for (int64_t j = 0; j < n; j++) {
        float v = s[j] + slope * (at + (float)(int32_t)j);

        s[j] = v;
        m = v > m ? v : m;
    }
#pragma omp simd reduction(+ : sum)
    for (int64_t j = 0; j < n; j++) {
        float e = cpu_exp(s[j] - m);

        s[j] = e;
        sum += e;
    }
    *max = m;
    return sum;
}

/* s becomes P = exp(s - lse), dp becomes P (dp - delta). */
CPU_HOT static void soften_back(float *restrict s, float *restrict dp, int64_t n, int64_t j0,
                                int64_t i, float slope, float lse, float delta)
{
    float at = (float)(j0 - i);

#pragma omp simd
    for (int64_t j = 0; j < n; j++) {
        float p = cpu_exp(s[j] + slope * (at + (float)(int32_t)j) - lse);

        s[j] = p;
        dp[j] = p * (dp[j] - delta);
    }
}

CPU_HOT static float dot(const float *restrict a, const float *restrict b, int64_t n)
{
    float sum = 0;

#pragma omp simd reduction(+ : sum)
    for (int64_t j = 0; j < n; j++)
        sum += a[j] * b[j];
    return sum;
}

CPU_HOT static void scale_row(float *x, int64_t n, float by)
{
#pragma omp simd
    for (int64_t j = 0; j < n; j++)
        x[j] *= by;
}

/* c[m, n] = alpha a[m, k] b[n, k]^T */
static void times_t(float *c, int64_t ldc, const float *a, int64_t lda, const float *b,
                    int64_t ldb, int64_t m, int64_t n, int64_t k, float alpha)
{
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, (int)m, (int)n, (int)k, alpha, a,
                (int)lda, b, (int)ldb, 0.0f, c, (int)ldc);
}

/* c[m, n] = alpha a[m, k] b[k, n] */
static void times(float *c, int64_t ldc, const float *a, int64_t lda, const float *b,
                  int64_t ldb, int64_t m, int64_t n, int64_t k, float alpha)
{
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, (int)m, (int)n, (int)k, alpha, a,
                (int)lda, b, (int)ldb, 0.0f, c, (int)ldc);
}

/* c[m, n] += alpha a[k, m]^T b[k, n] */
static void t_times(float *c, int64_t ldc, const float *a, int64_t lda, const float *b,
                    int64_t ldb, int64_t m, int64_t n, int64_t k, float alpha)
{
    cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, (int)m, (int)n, (int)k, alpha, a,
                (int)lda, b, (int)ldb, 1.0f, c, (int)ldc);
}

/* Scores of a tile: softmax of what each row sees, zero elsewhere. */
static void tile_soften(float *s, const struct tile *t, int64_t window, float slope, float *sum,
                        float *lse)
{
    int64_t n = t->i1 - t->k0;

    for (int64_t i = t->i0; i < t->i1; i++) {
        float *row = s + (i - t->i0) * n, max;
        int64_t j0 = first_key(i, window);

        j0 = j0 > t->k0 ? j0 - t->k0 : 0;
        memset(row, 0, (size_t)j0 * sizeof *row);
        sum[i - t->i0] = soften(row + j0, i + 1 - t->k0 - j0, t->k0 + j0, i, slope, &max);
        memset(row + (i + 1 - t->k0), 0, (size_t)(t->i1 - i - 1) * sizeof *row);
        if (lse)
            lse[t->first + i] = max + logf(sum[i - t->i0]);
    }
}

/* One block of queries of head h. */
static void block_fwd(const struct op_attention *a, const struct tile *t, int64_t h, float *s)
{
    int64_t d = a->dim, ld = a->in.row_stride, rows = t->i1 - t->i0, n = t->i1 - t->k0;
    int64_t kv = h * a->n_kv / a->n_head * a->in.kv_head, out_ld = a->n_head * d;
    const float *q = (const float *)a->in.q + (t->first + t->i0) * ld + h * a->in.q_head;
    const float *k = (const float *)a->in.k + (t->first + t->k0) * ld + kv;
    const float *v = (const float *)a->in.v + (t->first + t->k0) * ld + kv;
    float *out = (float *)a->out + (t->first + t->i0) * out_ld + h * d, sum[BLOCK];

    times_t(s, n, q, ld, k, ld, rows, n, d, a->scale);
    tile_soften(s, t, a->window, a->slopes ? a->slopes[h] : 0.0f, sum,
                a->lse ? a->lse + h * a->n : NULL);
    times(out, out_ld, s, n, v, ld, rows, d, n, 1.0f);
    for (int64_t i = 0; i < rows; i++)
        scale_row(out + i * out_ld, d, 1.0f / sum[i]);
}

void cpu_attention_fwd(struct device *dev, const struct op_attention *a)
{
    int64_t tile = tile_floats(a->max_doc);
    int threads = cpu_threads(dev, a->n * a->max_doc * a->n_head * a->dim);
    float *work = dev->work;

    if (dev->err.code ||
        cpu_work_short(dev, "attention_fwd", (uint64_t)(dev->threads * tile) * sizeof(float)))
        return;
#pragma omp parallel for collapse(2) schedule(dynamic, 1) num_threads(threads)
    for (int64_t doc = 0; doc < a->n_docs; doc++)
        for (int64_t h = 0; h < a->n_head; h++) {
            int64_t first = a->doc_start[doc], len = a->doc_start[doc + 1] - first;
            float *s = work + omp_get_thread_num() * tile;

            for (int64_t i = 0; i < len; i += BLOCK) {
                struct tile t = {first, i, i + BLOCK < len ? i + BLOCK : len,
                                 first_key(i, a->window)};

                block_fwd(a, &t, h, s);
            }
        }
}

/* P and dS of a tile in place of scores and dP. */
static void tile_back(const struct op_attention *a, const struct tile *t, int64_t h, float *s,
                      float *dp)
{
    int64_t n = t->i1 - t->k0, d = a->dim, out_ld = a->n_head * d;
    const float *out = (const float *)a->out + h * d, *dout = (const float *)a->dout + h * d;
    float slope = a->slopes ? a->slopes[h] : 0.0f;

    for (int64_t i = t->i0; i < t->i1; i++) {
        float *row = s + (i - t->i0) * n, *drow = dp + (i - t->i0) * n;
        int64_t r = t->first + i, j0 = first_key(i, a->window), end = i + 1 - t->k0;
        float delta = dot(out + r * out_ld, dout + r * out_ld, d);

        j0 = j0 > t->k0 ? j0 - t->k0 : 0;
        soften_back(row + j0, drow + j0, end - j0, t->k0 + j0, i, slope, a->lse[h * a->n + r],
                    delta);
        memset(row, 0, (size_t)j0 * sizeof *row);
        memset(drow, 0, (size_t)j0 * sizeof *row);
        memset(row + end, 0, (size_t)(n - end) * sizeof *row);
        memset(drow + end, 0, (size_t)(n - end) * sizeof *row);
    }
}

static void block_bwd(const struct op_attention *a, const struct tile *t, int64_t h, float *s,
                      float *dp)
{
    int64_t d = a->dim, ld = a->in.row_stride, rows = t->i1 - t->i0, n = t->i1 - t->k0;
    int64_t g = h * a->n_kv / a->n_head, out_ld = a->n_head * d;
    int64_t q_at = (t->first + t->i0) * ld + h * a->in.q_head;
    int64_t k_at = (t->first + t->k0) * ld + g * a->in.kv_head;
    int64_t dq_at = (t->first + t->i0) * ld + h * a->grad.q_head;
    int64_t dk_at = (t->first + t->k0) * ld + g * a->grad.kv_head;
    const float *q = (const float *)a->in.q + q_at, *k = (const float *)a->in.k + k_at;
    const float *v = (const float *)a->in.v + k_at;
    const float *dout = (const float *)a->dout + (t->first + t->i0) * out_ld + h * d;

    times_t(s, n, q, ld, k, ld, rows, n, d, a->scale);
    times_t(dp, n, dout, out_ld, v, ld, rows, n, d, 1.0f);
    tile_back(a, t, h, s, dp);
    times((float *)a->grad.q + dq_at, ld, dp, n, k, ld, rows, d, n, a->scale);
    t_times((float *)a->grad.k + dk_at, ld, dp, n, q, ld, n, d, rows, a->scale);
    t_times((float *)a->grad.v + dk_at, ld, s, n, dout, out_ld, n, d, rows, 1.0f);
}

/* A document's gradient rows of one key head, before they are added to. */
static void zero_rows(void *grad, int64_t first, int64_t len, int64_t ld, int64_t at, int64_t d)
{
    for (int64_t i = 0; i < len; i++)
        memset((float *)grad + (first + i) * ld + at, 0, (size_t)d * sizeof(float));
}

void cpu_attention_bwd(struct device *dev, const struct op_attention *a)
{
    int64_t tile = tile_floats(a->max_doc), share = a->n_head / a->n_kv;
    int threads = cpu_threads(dev, a->n * a->max_doc * a->n_head * a->dim);
    float *work = dev->work;

    if (dev->err.code || cpu_work_short(dev, "attention_bwd",
                                        (uint64_t)(dev->threads * 2 * tile) * sizeof(float)))
        return;
#pragma omp parallel for collapse(2) schedule(dynamic, 1) num_threads(threads)
    for (int64_t doc = 0; doc < a->n_docs; doc++)
        for (int64_t g = 0; g < a->n_kv; g++) {
            int64_t first = a->doc_start[doc], len = a->doc_start[doc + 1] - first;
            int64_t ld = a->grad.row_stride, at = g * a->grad.kv_head;
            float *s = work + omp_get_thread_num() * 2 * tile;

            zero_rows(a->grad.k, first, len, ld, at, a->dim);
            zero_rows(a->grad.v, first, len, ld, at, a->dim);
            for (int64_t h = g * share; h < (g + 1) * share; h++)
                for (int64_t i = 0; i < len; i += BLOCK) {
                    struct tile t = {first, i, i + BLOCK < len ? i + BLOCK : len,
                                     first_key(i, a->window)};

                    block_bwd(a, &t, h, s, s + tile);
                }
        }
}

/* New keys and values of one head of a segment go behind those in the cache. */
static void append(const struct op_cached *a, int64_t seg, int64_t g)
{
    int64_t begin = a->seg_start[seg], end = a->seg_start[seg + 1], d = a->dim;
    int64_t at = ((a->seg_seq[seg] * a->n_kv + g) * a->capacity + a->seg_past[seg]) * d;

    for (int64_t i = begin; i < end; i++, at += d) {
        int64_t from = i * a->in.row_stride + g * a->in.kv_head;

        memcpy((float *)a->k_cache + at, (float *)a->in.k + from, (size_t)d * sizeof(float));
        memcpy((float *)a->v_cache + at, (float *)a->in.v + from, (size_t)d * sizeof(float));
    }
}

/* One new row: a matrix product of one row is two walks over the cache. */
static void row_cached(const struct op_cached *a, const float *q, const float *k,
                       const float *v, float *out, float *s, int64_t n, int64_t j0, int64_t i,
                       float slope)
{
    float max, sum;

    cblas_sgemv(CblasRowMajor, CblasNoTrans, (int)n, (int)a->dim, a->scale, k, (int)a->dim, q,
                1, 0.0f, s, 1);
    sum = soften(s, n, j0, i, slope, &max);
    cblas_sgemv(CblasRowMajor, CblasTrans, (int)n, (int)a->dim, 1.0f / sum, v, (int)a->dim, s,
                1, 0.0f, out, 1);
}

/* Queries [i0, i1) of a segment's sequence against the cache, head h. */
static void block_cached(const struct op_cached *a, int64_t seg, int64_t h, int64_t i0,
                         int64_t i1, float *s)
{
    int64_t d = a->dim, ld = a->in.row_stride, past = a->seg_past[seg], out_ld = a->n_head * d;
    int64_t k0 = first_key(i0, a->window), n = i1 - k0, row = a->seg_start[seg] + i0 - past;
    int64_t at = ((a->seg_seq[seg] * a->n_kv + h * a->n_kv / a->n_head) * a->capacity + k0) * d;
    const float *q = (const float *)a->in.q + row * ld + h * a->in.q_head;
    const float *k = (const float *)a->k_cache + at, *v = (const float *)a->v_cache + at;
    float *out = (float *)a->out + row * out_ld + h * d, sum[BLOCK];
    float slope = a->slopes ? a->slopes[h] : 0.0f;
    struct tile t = {0, i0, i1, k0};

    if (i1 - i0 == 1) {
        row_cached(a, q, k, v, out, s, n, k0, i0, slope);
        return;
    }
    times_t(s, n, q, ld, k, d, i1 - i0, n, d, a->scale);
    tile_soften(s, &t, a->window, slope, sum, NULL);
    times(out, out_ld, s, n, v, d, i1 - i0, d, n, 1.0f);
    for (int64_t i = 0; i < i1 - i0; i++)
        scale_row(out + i * out_ld, d, 1.0f / sum[i]);
}

void cpu_attention_cached(struct device *dev, const struct op_cached *a)
{
    int64_t tile = tile_floats(a->max_keys), share = a->n_head / a->n_kv;
    int threads = cpu_threads(dev, a->n * a->max_keys * a->n_head * a->dim);
    float *work = dev->work;

    if (dev->err.code || cpu_work_short(dev, "attention_cached",
                                        (uint64_t)(dev->threads * tile) * sizeof(float)))
        return;
#pragma omp parallel for collapse(2) schedule(dynamic, 1) num_threads(threads)
    for (int64_t seg = 0; seg < a->n_seg; seg++)
        for (int64_t g = 0; g < a->n_kv; g++) {
            int64_t past = a->seg_past[seg];
            int64_t end = past + a->seg_start[seg + 1] - a->seg_start[seg];
            float *s = work + omp_get_thread_num() * tile;

            append(a, seg, g);
            for (int64_t h = g * share; h < (g + 1) * share; h++)
                for (int64_t i = past; i < end; i += BLOCK)
                    block_cached(a, seg, h, i, i + BLOCK < end ? i + BLOCK : end, s);
        }
}

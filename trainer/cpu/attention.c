/*
 * attention - attention over packed documents, forward and backward.
 *
 * A task is one document and one head (a key head to go back); it walks over blocks of BLOCK query
 * rows.  A block's scores against all keys it may see form one tile [BLOCK, keys] in the thread's
 * part of the workspace: two matrix products and one pass of softmax forward; backward rebuilds
 * the probabilities from the kept log-sum-exp and adds to the task's own dk, dv, so nothing is
 * shared between threads and sums have a fixed order.  Memory grows with the longest document,
 * not with its square.
 *
 * Where threads outnumber such tasks a task is parted: its blocks are dealt out in turn, and to go
 * back all parts but the first have a dk, dv of their own in the workspace (slabs), which are then
 * added in the order of parts.
 *
 * A term by distance is unfolded for a task and head into a line with one number a distance, so
 * that a row's terms lie one after another.  Where its table has a gradient a task is a key head
 * and takes all documents in turn: the head's column of the table is then its own.
 */
#include "trainer/cpu/cpu.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "trainer/cpu/attention_rows.h"
#include "trainer/cpu/drop.h"
#include "trainer/cpu/gemm.h"
#include "trainer/cpu/row_product.h"
#include "trainer/cpu/typed.h"

#define BLOCK        64
#define SLABS_FLOATS ((int64_t)1 << 24) /* at most, of all */

/* The block of queries [i0, i1) of a document and the keys [k0, k1) they see; the document's
 * queries are the batch's rows from `first` on, its keys those from `key_first` on.  Of the keys
 * those of [real0, real1) are not padding. */
struct tile {
    int64_t first, key_first, i0, i1, k0, k1, real0, real1;
};

/* A thread's part of the workspace. */
struct bufs {
    float *s, *dp;                      /* [BLOCK, keys] each */
    float *line, *dline;                /* terms of distances; at distance 0 */
    float *dk, *dv;                     /* of the task's part: the document's first key */
    int64_t d_ld;                       /* from row to row of them */
};

static int64_t tile_floats(int64_t max_doc) { return BLOCK * ((max_doc + 15) & ~(int64_t)15); }

/* One tile and one line, or two of each to go back. */
static int64_t bufs_floats(int64_t max_doc, bool back)
{
    return (back ? 2 : 1) * (tile_floats(max_doc) + 2 * max_doc);
}

static int64_t slab_floats(int64_t max_doc, int64_t d) { return 2 * max_doc * d; }

/* Floats of all slabs: some for each thread, and no more than they are worth. */
static int64_t slabs_floats(const struct device *dev, int64_t max_doc, int64_t d)
{
    int64_t wanted = 2 * BLOCK * dev->threads / d * slab_floats(max_doc, d);

    return dev->threads == 1 ? 0 : wanted < SLABS_FLOATS ? wanted : SLABS_FLOATS;
}

static int64_t n_slabs(const struct device *dev, int64_t max_doc, int64_t d)
{
    return max_doc > 0 ? slabs_floats(dev, max_doc, d) / slab_floats(max_doc, d) : 0;
}

static uint64_t back_bytes(const struct device *dev, int64_t max_doc, int64_t d)
{
    return (uint64_t)(dev->threads * bufs_floats(max_doc, true) +
                      (d > 0 ? slabs_floats(dev, max_doc, d) : 0)) * sizeof(float);
}

static uint64_t fwd_bytes(const struct device *dev, int64_t keys)
{
    return (uint64_t)(dev->threads * bufs_floats(keys, false)) * sizeof(float);
}

uint64_t cpu_attention_work(const struct device *dev, const struct op_limits *l)
{
    int64_t keys = l->max_doc > l->max_keys ? l->max_doc : l->max_keys;

    return l->train ? back_bytes(dev, keys, l->head_dim) : fwd_bytes(dev, keys);
}

/* Parts of a task, so that there are `each` tasks a thread. */
static int64_t n_parts(int64_t tasks, int64_t blocks, int threads, int64_t each)
{
    int64_t parts = tasks > 0 ? (each * threads + tasks - 1) / tasks : 1;

    return threads == 1 ? 1 : parts < blocks ? parts : blocks;
}

static int64_t blocks_of(int64_t rows) { return (rows + BLOCK - 1) / BLOCK; }

/* The calling thread's. */
static struct bufs bufs_of(const struct device *dev, int64_t max_doc, bool back)
{
    float *at = (float *)dev->work + omp_get_thread_num() * bufs_floats(max_doc, back);
    float *lines = at + (back ? 2 : 1) * tile_floats(max_doc);

    return (struct bufs){.s = at, .dp = at + tile_floats(max_doc), .line = lines + max_doc,
                         .dline = lines + 3 * max_doc};
}

static int32_t bucket_of(const struct op_rel_bias *d, int64_t distance)
{
    int64_t at = distance < -d->reach ? -d->reach : distance > d->reach ? d->reach : distance;

    return d->bucket[d->reach + at];
}

/* The same with its table in f32. */
static struct op_rel_bias widened(struct device *dev, const struct op_rel_bias *d, int64_t n_head)
{
    struct op_rel_bias wide = *d;

    wide.table = typed_vector(dev, 0, d->table, d->n_bucket * n_head);
    return wide;
}

/* Terms of head h for distances [from, to]; NULL where there are none. */
static float *unfold(float *line, const struct op_rel_bias *d, int64_t n_head, int64_t h,
                     int64_t from, int64_t to)
{
    if (!d->table)
        return NULL;
    assert(line);
    for (int64_t k = from; k <= to; k++)
        line[k] = ((const float *)d->table)[bucket_of(d, k) * n_head + h];
    return line;
}

/* The other way: gradients of terms to those of the table. */
static void fold(const float *dline, const struct op_rel_bias *d, int64_t n_head, int64_t h,
                 int64_t from, int64_t to)
{
    for (int64_t k = from; k <= to; k++)
        ((float *)d->dtable)[bucket_of(d, k) * n_head + h] += dline[k];
}

/* First key that query i may see. */
static int64_t first_key(int64_t i, int64_t window)
{
    return window > 0 && i >= window ? i - window + 1 : 0;
}

/* The keys [*begin, *end) of a tile, counted from its first, that query i sees.  False: they are
 * padding alone, and all keys count alike. */
static bool seen(int64_t *begin, int64_t *end, const struct tile *t, int64_t i, int64_t window,
                 bool whole)
{
    int64_t first = whole ? t->k0 : first_key(i, window), last = whole ? t->k1 : i + 1;

    if (t->real1 > t->real0 && i < t->real0) {
        *begin = 0;
        *end = t->k1 - t->k0;
        return false;
    }
    if (t->real1 > t->real0) {
        first = first > t->real0 ? first : t->real0;
        last = last < t->real1 ? last : t->real1;
    }
    *begin = first > t->k0 ? first - t->k0 : 0;
    *end = last - t->k0;
    return true;
}

/* The scores of such a row. */
static void level(float *row, int64_t n) { memset(row, 0, (size_t)n * sizeof *row); }

/* Scores of a tile: softmax of what each row sees, zero elsewhere. */
static void tile_soften(float *s, const struct tile *t, int64_t window, bool whole, float slope,
                        const float *line, float *sum, float *lse)
{
    int64_t n = t->k1 - t->k0;

    for (int64_t i = t->i0; i < t->i1; i++) {
        float *row = s + (i - t->i0) * n, max;
        int64_t j0, end;

        bool real = seen(&j0, &end, t, i, window, whole);

        memset(row, 0, (size_t)j0 * sizeof *row);
        if (!real)
            level(row, end);
        else if (line)
            row_add(row + j0, line + (t->k0 + j0 - i), end - j0);
        sum[i - t->i0] = row_soften(row + j0, end - j0, t->k0 + j0, i, real ? slope : 0, &max);
        memset(row + end, 0, (size_t)(n - end) * sizeof *row);
        if (lse)
            lse[t->first + i] = max + logf(sum[i - t->i0]);
    }
}

static int64_t kv_stride(const struct op_heads *heads)
{
    return heads->kv_stride ? heads->kv_stride : heads->row_stride;
}

/* P of a tile, or its gradient, dropped out: s has a row of n for each query.  Padding that is not
 * seen does not count. */
static void tile_drop(const struct op_attention *a, float *s, const struct tile *t, int64_t h)
{
    int64_t n = t->k1 - t->k0;

    for (int64_t i = t->i0; a->drop.p > 0 && i < t->i1; i++) {
        int64_t skip = i < t->real0 ? 0 : t->real0, from = skip > t->k0 ? skip - t->k0 : 0;

        cpu_drop_span(s + (i - t->i0) * n + from, &a->drop, t->first + i - skip, h,
                      t->k0 + from - skip, n - from);
    }
}

/* One block of queries of head h. */
static void block_fwd(const struct op_attention *a, const struct tile *t, int64_t h, float *s,
                      const float *line)
{
    int64_t d = a->dim, ld = a->in.row_stride, kv_ld = kv_stride(&a->in);
    int64_t rows = t->i1 - t->i0, n = t->k1 - t->k0;
    int64_t kv = h * a->n_kv / a->n_head * a->in.kv_head, out_ld = a->n_head * d;
    const float *q = (const float *)a->in.q + (t->first + t->i0) * ld + h * a->in.q_head;
    const float *k = (const float *)a->in.k + (t->key_first + t->k0) * kv_ld + kv;
    const float *v = (const float *)a->in.v + (t->key_first + t->k0) * kv_ld + kv;
    float *out = (float *)a->out + (t->first + t->i0) * out_ld + h * d, sum[BLOCK];

    gemm_nt(rows, n, d, a->scale, q, ld, k, kv_ld, 0.0f, s, n);
    tile_soften(s, t, a->window, a->whole, a->slopes ? a->slopes[h] : 0.0f, line, sum,
                a->lse ? a->lse + h * a->n : NULL);
    tile_drop(a, s, t, h);
    gemm_nn(rows, d, n, 1.0f, s, n, v, kv_ld, 0.0f, out, out_ld);
    for (int64_t i = 0; i < rows; i++)
        row_scale(out + i * out_ld, d, 1.0f / sum[i]);
}

/* A document's rows and keys. */
struct doc {
    int64_t first, len, key_first, keys, real0, real1;
};

static struct doc doc_of(const struct op_attention *a, int64_t i)
{
    struct doc d = {.first = a->doc_start[i], .len = a->doc_start[i + 1] - a->doc_start[i]};

    d.key_first = a->key_start ? a->key_start[i] : d.first;
    d.keys = a->key_start ? a->key_end[i] - d.key_first : d.len;
    d.real0 = a->real_start ? a->real_start[i] - d.first : 0;
    d.real1 = a->real_start ? a->real_end[i] - d.first : 0;
    return d;
}

static struct tile tile_of(const struct op_attention *a, const struct doc *d, int64_t i)
{
    int64_t end = i + BLOCK < d->len ? i + BLOCK : d->len;
    bool all = a->whole || (d->real1 > d->real0 && i < d->real0);

    return (struct tile){.first = d->first, .key_first = d->key_first, .i0 = i, .i1 = end,
                         .k0 = a->whole ? 0 : first_key(i, a->window),
                         .k1 = all ? d->keys : end, .real0 = d->real0, .real1 = d->real1};
}

/* Every parts-th block of a document and head, from the last, which sees most, less part. */
static void part_fwd(const struct device *dev, const struct op_attention *a,
                     const struct op_rel_bias *distance, int64_t task, int64_t part, int64_t parts)
{
    struct bufs bufs = bufs_of(dev, a->max_doc, false);
    struct doc doc = doc_of(a, task / a->n_head);
    int64_t h = task % a->n_head, b = blocks_of(doc.len) - 1 - part;
    const float *line = b < 0 ? NULL : unfold(bufs.line, distance, a->n_head, h, 1 - doc.len,
                                              doc.keys - 1);

    for (; b >= 0 && !device_stopped(dev); b -= parts) {
        struct tile t = tile_of(a, &doc, b * BLOCK);

        block_fwd(a, &t, h, bufs.s, line);
    }
}

void cpu_attention_fwd(struct device *dev, const struct op_attention *a)
{
    struct op_rel_bias rel_bias;
    int threads = cpu_threads(dev, a->n * a->max_doc * a->n_head * a->dim);
    int64_t tasks = a->n_docs * a->n_head;
    int64_t parts = n_parts(tasks, blocks_of(a->max_doc), threads, 4);

    if (cpu_ended(dev) || cpu_work_short(dev, "attention_fwd", fwd_bytes(dev, a->max_doc)))
        return;
    rel_bias = widened(dev, &a->rel_bias, a->n_head);
#pragma omp parallel num_threads(threads)
    {
        unsigned was = cpu_flush();

#pragma omp for schedule(dynamic, 1)
        for (int64_t i = 0; i < tasks * parts; i++)
            part_fwd(dev, a, &rel_bias, i % tasks, i / tasks, parts);
        cpu_flush_end(was);
    }
}

/* P and dS of a tile in place of scores and dP; dS is also added up by distance. */
static void tile_back(const struct op_attention *a, const struct tile *t, int64_t h,
                      const struct bufs *bufs, const float *line)
{
    int64_t n = t->k1 - t->k0, d = a->dim, out_ld = a->n_head * d;
    const float *out = (const float *)a->out + h * d, *dout = (const float *)a->dout + h * d;
    float slope = a->slopes ? a->slopes[h] : 0.0f;

    for (int64_t i = t->i0; i < t->i1; i++) {
        float *row = bufs->s + (i - t->i0) * n, *drow = bufs->dp + (i - t->i0) * n;
        int64_t r = t->first + i, j0, end;
        float delta = row_dot(out + r * out_ld, dout + r * out_ld, d);
        bool real = seen(&j0, &end, t, i, a->window, a->whole);

        if (!real)
            level(row, end);
        else if (line)
            row_add(row + j0, line + (t->k0 + j0 - i), end - j0);
        row_soften_back(row + j0, drow + j0, end - j0, t->k0 + j0, i, real ? slope : 0,
                        a->lse[h * a->n + r], delta);
        if (a->rel_bias.dtable)
            row_add(bufs->dline + (t->k0 + j0 - i), drow + j0, end - j0);
        memset(row, 0, (size_t)j0 * sizeof *row);
        memset(drow, 0, (size_t)j0 * sizeof *row);
        memset(row + end, 0, (size_t)(n - end) * sizeof *row);
        memset(drow + end, 0, (size_t)(n - end) * sizeof *row);
    }
}

static void block_bwd(const struct op_attention *a, const struct tile *t, int64_t h,
                      const struct bufs *bufs, const float *line)
{
    int64_t d = a->dim, ld = a->in.row_stride, kv_ld = kv_stride(&a->in);
    int64_t rows = t->i1 - t->i0, n = t->k1 - t->k0, out_ld = a->n_head * d;
    int64_t g = h * a->n_kv / a->n_head, q_row = t->first + t->i0, k_row = t->key_first + t->k0;
    int64_t dk_at = t->k0 * bufs->d_ld;
    const float *q = (const float *)a->in.q + q_row * ld + h * a->in.q_head;
    const float *k = (const float *)a->in.k + k_row * kv_ld + g * a->in.kv_head;
    const float *v = (const float *)a->in.v + k_row * kv_ld + g * a->in.kv_head;
    const float *dout = (const float *)a->dout + q_row * out_ld + h * d;
    float *dq = (float *)a->grad.q + q_row * ld + h * a->grad.q_head;

    gemm_nt(rows, n, d, a->scale, q, ld, k, kv_ld, 0.0f, bufs->s, n);
    gemm_nt(rows, n, d, 1.0f, dout, out_ld, v, kv_ld, 0.0f, bufs->dp, n);
    tile_drop(a, bufs->dp, t, h);
    tile_back(a, t, h, bufs, line);
    tile_drop(a, bufs->s, t, h);
    gemm_nn(rows, d, n, a->scale, bufs->dp, n, k, kv_ld, 0.0f, dq, ld);
    gemm_tn(n, d, rows, a->scale, bufs->dp, n, q, ld, 1.0f, bufs->dk + dk_at, bufs->d_ld);
    gemm_tn(n, d, rows, 1.0f, bufs->s, n, dout, out_ld, 1.0f, bufs->dv + dk_at, bufs->d_ld);
}

/* Where the part of a document and key head adds its dk, dv: zeros. */
static void open_part(const struct device *dev, const struct op_attention *a, struct bufs *bufs,
                      const struct doc *doc, int64_t g, int64_t slab)
{
    int64_t d = a->dim, ld = kv_stride(&a->grad), at = doc->key_first * ld + g * a->grad.kv_head;
    float *slabs = (float *)dev->work + dev->threads * bufs_floats(a->max_doc, true);

    bufs->d_ld = slab < 0 ? ld : d;
    bufs->dk = slab < 0 ? (float *)a->grad.k + at : slabs + slab * slab_floats(a->max_doc, d);
    bufs->dv = slab < 0 ? (float *)a->grad.v + at : bufs->dk + a->max_doc * d;
    for (int64_t i = 0; i < doc->keys; i++) {
        memset(bufs->dk + i * bufs->d_ld, 0, (size_t)d * sizeof(float));
        memset(bufs->dv + i * bufs->d_ld, 0, (size_t)d * sizeof(float));
    }
}

/* Blocks of a document's queries, of the heads that share key head g. */
static void part_bwd(const struct op_attention *a, const struct doc *doc, int64_t g,
                     const struct bufs *bufs, int64_t part, int64_t parts)
{
    int64_t share = a->n_head / a->n_kv, from = 1 - doc->len, to = doc->keys - 1;

    for (int64_t h = g * share; h < (g + 1) * share && doc->len > 0; h++) {
        const float *line = unfold(bufs->line, &a->rel_bias, a->n_head, h, from, to);

        if (a->rel_bias.dtable)
            memset(bufs->dline + from, 0, (size_t)(to - from + 1) * sizeof(float));
        for (int64_t b = blocks_of(doc->len) - 1 - part; b >= 0; b -= parts) {
            struct tile t = tile_of(a, doc, b * BLOCK);

            block_bwd(a, &t, h, bufs, line);
        }
        if (a->rel_bias.dtable)
            fold(bufs->dline, &a->rel_bias, a->n_head, h, from, to);
    }
}

/* dk, dv of a document and key head: what the other parts have is added to the first's. */
static void join_parts(const struct device *dev, const struct op_attention *a, int64_t task,
                       int64_t tasks, int64_t parts)
{
    int64_t d = a->dim, ld = kv_stride(&a->grad);
    struct doc doc = doc_of(a, task / a->n_kv);
    int64_t at = doc.key_first * ld + task % a->n_kv * a->grad.kv_head;
    const float *slabs = (const float *)dev->work + dev->threads * bufs_floats(a->max_doc, true);

    for (int64_t part = 1; part < parts; part++) {
        const float *dk = slabs + ((part - 1) * tasks + task) * slab_floats(a->max_doc, d);

        for (int64_t i = 0; i < doc.keys; i++) {
            row_add((float *)a->grad.k + at + i * ld, dk + i * d, d);
            row_add((float *)a->grad.v + at + i * ld, dk + (a->max_doc + i) * d, d);
        }
    }
}

/* Where a table of distances has a gradient: a key head takes all documents. */
static void head_bwd(const struct device *dev, const struct op_attention *a, int64_t g)
{
    struct bufs bufs = bufs_of(dev, a->max_doc, true);

    for (int64_t i = 0; i < a->n_docs; i++) {
        struct doc doc = doc_of(a, i);

        open_part(dev, a, &bufs, &doc, g, -1);
        part_bwd(a, &doc, g, &bufs, 0, 1);
    }
}

/* By all threads of a team. */
static void docs_bwd(const struct device *dev, const struct op_attention *a)
{
    int64_t tasks = a->n_docs * a->n_kv;
    int64_t slabs = tasks > 0 ? n_slabs(dev, a->max_doc, a->dim) / tasks : 0;
    int64_t parts = n_parts(tasks, blocks_of(a->max_doc), omp_get_num_threads(), 2);

    parts = parts > slabs + 1 ? slabs + 1 : parts;
#pragma omp for schedule(dynamic, 1)
    for (int64_t i = 0; i < tasks * parts; i++) {
        struct bufs bufs = bufs_of(dev, a->max_doc, true);
        struct doc doc = doc_of(a, i % tasks / a->n_kv);

        open_part(dev, a, &bufs, &doc, i % tasks % a->n_kv, i - tasks);
        part_bwd(a, &doc, i % tasks % a->n_kv, &bufs, i / tasks, parts);
    }
    if (parts > 1) {
#pragma omp for schedule(dynamic, 1)
        for (int64_t i = 0; i < tasks; i++)
            join_parts(dev, a, i, tasks, parts);
    }
}

void cpu_attention_bwd(struct device *dev, const struct op_attention *a)
{
    struct op_attention wide = *a;

    if (dev->err.code ||
        cpu_work_short(dev, "attention_bwd", back_bytes(dev, a->max_doc, a->dim)))
        return;
    wide.rel_bias = widened(dev, &a->rel_bias, a->n_head);
#pragma omp parallel num_threads(cpu_threads(dev, a->n * a->max_doc * a->n_head * a->dim))
    {
        unsigned was = cpu_flush();

        if (a->rel_bias.dtable) {
#pragma omp for schedule(dynamic, 1)
            for (int64_t g = 0; g < (a->n_docs > 0 ? a->n_kv : 0); g++)
                head_bwd(dev, &wide, g);
        } else {
            docs_bwd(dev, &wide);
        }
        cpu_flush_end(was);
    }
}

/* New keys and values of one head of a segment go after those in the cache. */
static void append(const struct op_cached *a, int64_t seg, int64_t g)
{
    int64_t begin = a->seg_start[seg], end = a->seg_start[seg + 1], d = a->dim;
    int64_t at = (g * a->capacity + a->seg_first[seg] + a->seg_past[seg]) * d;

    for (int64_t i = begin; i < end; i++, at += d) {
        int64_t from = i * a->in.row_stride + g * a->in.kv_head;

        memcpy((float *)a->k_cache + at, (float *)a->in.k + from, (size_t)d * sizeof(float));
        memcpy((float *)a->v_cache + at, (float *)a->in.v + from, (size_t)d * sizeof(float));
    }
}

/* One new row: a matrix product of one row is two walks over the cache. */
static void row_cached(const struct op_cached *a, const float *q, const float *k,
                       const float *v, float *out, float *s, int64_t n, int64_t j0, int64_t i,
                       float slope, const float *line)
{
    float max, sum;

    row_product_nt(1, n, a->dim, q, a->dim, k, a->dim, false, s, n);
    row_scale(s, n, a->scale);
    if (line)
        row_add(s, line + (j0 - i), n);
    sum = row_soften(s, n, j0, i, slope, &max);
    row_product_sum(a->dim, n, s, v, a->dim, 1.0f / sum, out);
}

/* Queries [i0, i1) of a segment's sequence against the cache, head h. */
static void block_cached(const struct op_cached *a, int64_t seg, int64_t h, int64_t i0,
                         int64_t i1, float *s, const float *line)
{
    int64_t d = a->dim, ld = a->in.row_stride, past = a->seg_past[seg], out_ld = a->n_head * d;
    int64_t k0 = first_key(i0, a->window), n = i1 - k0, row = a->seg_start[seg] + i0 - past;
    int64_t at = (h * a->n_kv / a->n_head * a->capacity + a->seg_first[seg] + k0) * d;
    const float *q = (const float *)a->in.q + row * ld + h * a->in.q_head;
    const float *k = (const float *)a->k_cache + at, *v = (const float *)a->v_cache + at;
    float *out = (float *)a->out + row * out_ld + h * d, sum[BLOCK] = {0};
    float slope = a->slopes ? a->slopes[h] : 0.0f;
    struct tile t = {.i0 = i0, .i1 = i1, .k0 = k0, .k1 = i1};

    if (i1 - i0 == 1) {
        row_cached(a, q, k, v, out, s, n, k0, i0, slope, line);
        return;
    }
    gemm_nt(i1 - i0, n, d, a->scale, q, ld, k, d, 0.0f, s, n);
    tile_soften(s, &t, a->window, false, slope, line, sum, NULL);
    gemm_nn(i1 - i0, d, n, 1.0f, s, n, v, d, 0.0f, out, out_ld);
    for (int64_t i = 0; i < i1 - i0; i++)
        row_scale(out + i * out_ld, d, 1.0f / sum[i]);
}

static void task_cached(const struct device *dev, const struct op_cached *a,
                        const struct op_rel_bias *distance, int64_t seg, int64_t g)
{
    int64_t share = a->n_head / a->n_kv, past = a->seg_past[seg];
    int64_t end = past + a->seg_start[seg + 1] - a->seg_start[seg];
    struct bufs bufs = bufs_of(dev, a->max_keys, false);

    append(a, seg, g);
    for (int64_t h = g * share; h < (g + 1) * share; h++) {
        const float *line = unfold(bufs.line, distance, a->n_head, h, 1 - end, 0);

        for (int64_t i = past; i < end && !device_stopped(dev); i += BLOCK)
            block_cached(a, seg, h, i, i + BLOCK < end ? i + BLOCK : end, bufs.s, line);
    }
}

void cpu_attention_cached(struct device *dev, const struct op_cached *a)
{
    struct op_rel_bias rel_bias;

    if (cpu_ended(dev) || cpu_work_short(dev, "attention_cached", fwd_bytes(dev, a->max_keys)))
        return;
    if (a->rope)
        cpu_rope_fwd(dev, a->rope);
    rel_bias = widened(dev, &a->rel_bias, a->n_head);
#pragma omp parallel num_threads(cpu_threads(dev, a->n * a->max_keys * a->n_head * a->dim))
    {
        unsigned was = cpu_flush();

#pragma omp for schedule(dynamic, 1)
        for (int64_t i = 0; i < a->n_seg * a->n_kv; i++)
            task_cached(dev, a, &rel_bias, i / a->n_kv, i % a->n_kv);
        cpu_flush_end(was);
    }
}

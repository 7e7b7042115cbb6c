/*
 * Attention beyond one causal stack, against formulas in f64 and central differences of them: rows
 * that see all of their document, keys of other rows, terms by distance and their table.
 */
#include "tests/agree/gradients.h"

struct pairs {
    const int32_t *start, *key_start, *key_end;     /* keys NULL: the documents' own */
    int64_t        docs, n, n_key, H, K, d;
    bool           whole, distance;
    struct array   q, kv, weight, table;
    double        *out;
};

enum { REACH = 3, BUCKETS = 5 };

static const int32_t bucket[2 * REACH + 1] = {4, 0, 1, 2, 2, 3, 1};

static double term(const struct pairs *c, int64_t away, int64_t h)
{
    int64_t at = away < -REACH ? -REACH : away > REACH ? REACH : away;

    return c->distance ? c->table.d[bucket[REACH + at] * c->H + h] : 0;
}

static double pairs_formula(void *ctx)
{
    struct pairs *c = ctx;
    double loss = 0, s[256];

    for (int64_t doc = 0; doc < c->docs; doc++)
        for (int64_t i = c->start[doc]; i < c->start[doc + 1]; i++)
            for (int64_t h = 0; h < c->H; h++) {
                int64_t g = h * c->K / c->H, place = i - c->start[doc];
                int64_t first = c->key_start ? c->key_start[doc] : c->start[doc];
                int64_t end = c->key_start ? c->key_end[doc] : c->start[doc + 1];
                int64_t keys = c->whole ? end - first : place + 1;
                double sum = 0;

                for (int64_t j = 0; j < keys; j++) {
                    double z = term(c, j - place, h);

                    for (int64_t e = 0; e < c->d; e++)
                        z += 0.37 * c->q.d[(i * c->H + h) * c->d + e] *
                             c->kv.d[((first + j) * 2 * c->K + g) * c->d + e];
                    sum += s[j] = exp(z);
                }
                for (int64_t e = 0; e < c->d; e++) {
                    double o = 0;

                    for (int64_t j = 0; j < keys; j++)
                        o += s[j] / sum * c->kv.d[((first + j) * 2 * c->K + c->K + g) * c->d + e];
                    if (c->out)
                        c->out[(i * c->H + h) * c->d + e] = o;
                    loss += c->weight.d[(i * c->H + h) * c->d + e] * o;
                }
            }
    return loss;
}

static struct op_heads heads(const struct pairs *c, float *q, float *kv)
{
    return (struct op_heads){.q = q, .k = kv, .v = kv + c->K * c->d, .row_stride = c->H * c->d,
                             .kv_stride = 2 * c->K * c->d, .q_head = c->d, .kv_head = c->d};
}

static void pairs_case(struct pairs c, int threads)
{
    struct device *dev = device(threads);
    struct array out, lse, dq, dkv, dtable;
    struct op_attention op;

    c.n = c.start[c.docs];
    c.n_key = c.key_start ? c.key_end[c.docs - 1] : c.n;
    c.q = array_random(c.n * c.H * c.d);
    c.kv = array_random(c.n_key * 2 * c.K * c.d);
    c.weight = array_random(c.n * c.H * c.d);
    c.table = array_random(BUCKETS * c.H);
    out = array_new(c.n * c.H * c.d);
    lse = array_new(c.H * c.n);
    dq = array_random(c.q.n);           /* overwritten */
    dkv = array_random(c.kv.n);         /* overwritten */
    dtable = array_random(c.table.n);   /* added to */
    c.out = out.d;
    pairs_formula(&c);
    c.out = NULL;
    op = (struct op_attention){
        .out = out.f, .lse = lse.f, .in = heads(&c, c.q.f, c.kv.f),
        .grad = heads(&c, dq.f, dkv.f), .dout = c.weight.f, .doc_start = c.start,
        .key_start = c.key_start, .key_end = c.key_end, .n = c.n, .n_docs = c.docs,
        .max_doc = c.n > c.n_key ? c.n : c.n_key, .n_head = c.H, .n_kv = c.K, .dim = c.d,
        .scale = 0.37f, .whole = c.whole,
    };
    if (c.distance)
        op.rel_bias = (struct op_rel_bias){.table = c.table.f, .dtable = dtable.f,
                                           .bucket = bucket, .reach = REACH,
                                           .n_bucket = BUCKETS};
    dev->ops->attention_fwd(dev, &op);
    agree(out.f, out.d, out.n, "attention");
    dev->ops->attention_bwd(dev, &op);
    check_gradient(dq.f, NULL, &c.q, pairs_formula, &c, "attention dq");
    check_gradient(dkv.f, NULL, &c.kv, pairs_formula, &c, "attention dkv");
    if (c.distance)
        check_gradient(dtable.f, dtable.d, &c.table, pairs_formula, &c, "attention dtable");
    array_free(&out);
    array_free(&lse);
    array_free(&dq);
    array_free(&dkv);
    array_free(&dtable);
    array_free(&c.q);
    array_free(&c.kv);
    array_free(&c.weight);
    array_free(&c.table);
    device_done(dev);
}

static const int32_t some[] = {0, 5, 6, 13}, block[] = {0, 64, 67}, empty[] = {0, 3, 3, 8};

TEST(attention_agrees_when_rows_see_all)
{
    for (int threads = 1; threads <= 3; threads += 2) {
        pairs_case((struct pairs){.start = some, .docs = 3, .H = 3, .K = 3, .d = 5, .whole = true},
                   threads);
        pairs_case((struct pairs){.start = empty, .docs = 3, .H = 4, .K = 2, .d = 3,
                                  .whole = true}, threads);
        pairs_case((struct pairs){.start = block, .docs = 2, .H = 1, .K = 1, .d = 2,
                                  .whole = true}, threads);
    }
}

TEST(attention_agrees_with_terms_by_distance)
{
    for (int threads = 1; threads <= 3; threads += 2)
        for (int whole = 0; whole < 2; whole++) {
            pairs_case((struct pairs){.start = some, .docs = 3, .H = 3, .K = 3, .d = 4,
                                      .whole = whole, .distance = true}, threads);
            pairs_case((struct pairs){.start = empty, .docs = 3, .H = 4, .K = 2, .d = 2,
                                      .whole = whole, .distance = true}, threads);
            pairs_case((struct pairs){.start = block, .docs = 2, .H = 1, .K = 1, .d = 1,
                                      .whole = whole, .distance = true}, threads);
        }
}

TEST(attention_agrees_over_keys_of_other_rows)
{
    static const int32_t from[] = {0, 4, 5}, to[] = {4, 5, 14}, far[] = {0, 70}, end[] = {70, 71};

    for (int threads = 1; threads <= 3; threads += 2) {
        pairs_case((struct pairs){.start = some, .key_start = from, .key_end = to, .docs = 3,
                                  .H = 3, .K = 3, .d = 4, .whole = true}, threads);
        pairs_case((struct pairs){.start = empty, .key_start = from, .key_end = to, .docs = 3,
                                  .H = 2, .K = 1, .d = 3, .whole = true}, threads);
        pairs_case((struct pairs){.start = block, .key_start = far, .key_end = end, .docs = 2,
                                  .H = 1, .K = 1, .d = 1, .whole = true}, threads);
    }
}

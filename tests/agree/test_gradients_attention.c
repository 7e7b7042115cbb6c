/*
 * Attention against its formula in f64, as test_gradients.c: over documents, causal and not, with
 * windows, ALiBi and terms by distance, over keys of other rows.
 */
#include "tests/agree/gradients.h"

enum layout {
    FUSED,                              /* blocks of q, k, v in each row */
    INTERLEAVED,                        /* [H, 3, d] in each row */
    SEPARATE                            /* rows of q, and rows of k and v */
};

struct attention_case {
    struct formula of;
    const int32_t *start, *key_start, *key_end;     /* keys NULL: the documents' own */
    int64_t        docs, n, n_key, H, K, d, window;
    enum layout    layout;
    bool           alibi, whole, distance;
    struct array   q, kv, slopes, table, lse;       /* kv: only with SEPARATE */
};

enum { REACH = 3, BUCKETS = 5 };

static const int32_t bucket[2 * REACH + 1] = {4, 0, 1, 2, 2, 3, 1};

/* Strides, and pointers into q and kv. */
static struct op_heads heads(const struct attention_case *c, float *q, float *kv)
{
    int64_t d = c->d, ld = (c->H + 2 * c->K) * d;

    switch (c->layout) {
    case INTERLEAVED:
        return (struct op_heads){.q = q, .k = q + d, .v = q + 2 * d, .row_stride = ld,
                                 .q_head = 3 * d, .kv_head = 3 * d};
    case SEPARATE:
        return (struct op_heads){.q = q, .k = kv, .v = kv + c->K * d, .row_stride = c->H * d,
                                 .kv_stride = 2 * c->K * d, .q_head = d, .kv_head = d};
    default:
        return (struct op_heads){.q = q, .k = q + c->H * d, .v = q + (c->H + c->K) * d,
                                 .row_stride = ld, .q_head = d, .kv_head = d};
    }
}

/* Of an address in the f side of a, the d side's. */
static const double *d_side(const struct array *a, const void *f)
{
    return a->d + ((const float *)f - a->f);
}

/* The score's term for key row j and query row i. */
static double term(const struct attention_case *c, int64_t away, int64_t h)
{
    int64_t at = away < -REACH ? -REACH : away > REACH ? REACH : away;

    return (c->alibi ? c->slopes.d[h] * (double)away : 0) +
           (c->distance ? c->table.d[bucket[REACH + at] * c->H + h] : 0);
}

/* Row `place` of a document whose keys are k and v, head h. */
static void row(struct attention_case *c, double *out, double *lse, const double *q,
                const double *k, const double *v, int64_t kv_stride, int64_t place,
                int64_t n_keys, int64_t h)
{
    int64_t from = c->window && place - c->window + 1 > 0 ? place - c->window + 1 : 0;
    int64_t end = c->whole ? n_keys : place + 1;
    double s[256], sum = 0;

    for (int64_t j = from; j < end; j++) {
        double z = term(c, j - place, h);

        for (int64_t e = 0; e < c->d; e++)
            z += 0.37 * q[e] * k[j * kv_stride + e];
        sum += s[j] = exp(z);
    }
    for (int64_t e = 0; e < c->d; e++) {
        out[e] = 0;
        for (int64_t j = from; j < end; j++)
            out[e] += s[j] / sum * v[j * kv_stride + e];
    }
    *lse = log(sum);
}

static void attention_fill(struct formula *of)
{
    struct attention_case *c = (struct attention_case *)of;
    const struct array *kv = c->layout == SEPARATE ? &c->kv : &c->q;
    struct op_heads at = heads(c, c->q.f, c->kv.f);
    const double *q = d_side(&c->q, at.q), *k = d_side(kv, at.k), *v = d_side(kv, at.v);
    int64_t kv_stride = at.kv_stride ? at.kv_stride : at.row_stride;

    for (int64_t doc = 0; doc < c->docs; doc++) {
        int64_t first = c->key_start ? c->key_start[doc] : c->start[doc];
        int64_t end = c->key_start ? c->key_end[doc] : c->start[doc + 1];

        for (int64_t i = c->start[doc]; i < c->start[doc + 1]; i++)
            for (int64_t h = 0; h < c->H; h++) {
                int64_t key = first * kv_stride + h * c->K / c->H * at.kv_head;

                row(c, of->out.d + (i * c->H + h) * c->d, &c->lse.d[h * c->n + i],
                    q + i * at.row_stride + h * at.q_head, k + key, v + key, kv_stride,
                    i - c->start[doc], end - first, h);
            }
    }
}

static void attention_case(struct attention_case c, int threads)
{
    struct device *dev = device(threads);
    bool separate = c.layout == SEPARATE;
    struct array dq, dkv, dtable;
    struct op_attention op;

    c.n = c.start[c.docs];
    c.n_key = c.key_start ? c.key_end[c.docs - 1] : c.n;
    formula_init(&c.of, attention_fill, c.n * c.H * c.d);
    c.q = array_random(c.n * (c.H + (separate ? 0 : 2 * c.K)) * c.d);
    c.kv = array_random(separate ? c.n_key * 2 * c.K * c.d : 0);
    c.slopes = array_random(c.H);
    c.table = array_random(BUCKETS * c.H);
    c.lse = array_new(c.H * c.n);
    dq = array_random(c.q.n);
    dkv = array_random(c.kv.n);
    dtable = array_random(c.table.n);
    op = (struct op_attention){
        .out = c.of.out.f, .lse = c.lse.f, .in = heads(&c, c.q.f, c.kv.f),
        .grad = heads(&c, dq.f, dkv.f), .dout = c.of.weight.f, .doc_start = c.start,
        .key_start = c.key_start, .key_end = c.key_end, .slopes = c.alibi ? c.slopes.f : NULL,
        .n = c.n, .n_docs = c.docs, .max_doc = c.n > c.n_key ? c.n : c.n_key, .n_head = c.H,
        .n_kv = c.K, .dim = c.d, .window = c.window, .scale = 0.37f, .whole = c.whole,
    };
    if (c.distance)
        op.rel_bias = (struct op_rel_bias){.table = c.table.f, .dtable = dtable.f,
                                           .bucket = bucket, .reach = REACH,
                                           .n_bucket = BUCKETS};
    dev->ops->attention_fwd(dev, &op);
    check_out(&c.of, "attention");
    agree(&c.lse, "attention lse");
    dev->ops->attention_bwd(dev, &op);
    check_written(&c.of, &dq, &c.q, separate ? "attention dq" : "attention dqkv");
    check_written(&c.of, &dkv, &c.kv, "attention dkv");
    if (c.distance)
        check_added(&c.of, &dtable, &c.table, "attention dtable");
    device_done(dev);
}

static void attention_cases(const struct attention_case *cases, size_t n)
{
    for (int threads = 1; threads <= 3; threads += 2)
        for (size_t i = 0; i < n; i++)
            attention_case(cases[i], threads);
}

#define EACH(cases) attention_cases(cases, sizeof cases / sizeof cases[0])

static const int32_t one[] = {0, 1}, some[] = {0, 5, 6, 13}, block[] = {0, 64, 67},
                     empty[] = {0, 3, 3, 8};

TEST(attention_agrees_over_documents)
{
    static const struct attention_case cases[] = {
        {.start = one, .docs = 1, .H = 1, .K = 1, .d = 1, .layout = INTERLEAVED, .alibi = true},
        {.start = some, .docs = 3, .H = 3, .K = 3, .d = 5, .layout = INTERLEAVED, .alibi = true},
        {.start = empty, .docs = 3, .H = 2, .K = 2, .d = 4},
        {.start = block, .docs = 2, .H = 1, .K = 1, .d = 2, .layout = INTERLEAVED, .alibi = true},
        {.start = some, .docs = 3, .H = 4, .K = 2, .d = 3},
        {.start = some, .docs = 3, .H = 6, .K = 1, .d = 2, .window = 3, .alibi = true},
        {.start = block, .docs = 2, .H = 1, .K = 1, .d = 1, .window = 7},
    };

    EACH(cases);
}

TEST(attention_agrees_when_rows_see_all)
{
    static const struct attention_case cases[] = {
        {.start = some, .docs = 3, .H = 3, .K = 3, .d = 5, .layout = SEPARATE, .whole = true},
        {.start = empty, .docs = 3, .H = 4, .K = 2, .d = 3, .layout = SEPARATE, .whole = true},
        {.start = block, .docs = 2, .H = 1, .K = 1, .d = 2, .layout = SEPARATE, .whole = true},
    };

    EACH(cases);
}

TEST(attention_agrees_with_terms_by_distance)
{
    struct attention_case cases[] = {
        {.start = some, .docs = 3, .H = 3, .K = 3, .d = 4, .layout = SEPARATE, .distance = true},
        {.start = empty, .docs = 3, .H = 4, .K = 2, .d = 2, .layout = SEPARATE, .distance = true},
        {.start = block, .docs = 2, .H = 1, .K = 1, .d = 1, .layout = SEPARATE, .distance = true},
    };

    EACH(cases);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        cases[i].whole = true;
    EACH(cases);
}

TEST(attention_agrees_over_keys_of_other_rows)
{
    static const int32_t from[] = {0, 4, 5}, to[] = {4, 5, 14}, far[] = {0, 70}, end[] = {70, 71};
    static const struct attention_case cases[] = {
        {.start = some, .key_start = from, .key_end = to, .docs = 3, .H = 3, .K = 3, .d = 4,
         .layout = SEPARATE, .whole = true},
        {.start = empty, .key_start = from, .key_end = to, .docs = 3, .H = 2, .K = 1, .d = 3,
         .layout = SEPARATE, .whole = true},
        {.start = block, .key_start = far, .key_end = end, .docs = 2, .H = 1, .K = 1, .d = 1,
         .layout = SEPARATE, .whole = true},
    };

    EACH(cases);
}

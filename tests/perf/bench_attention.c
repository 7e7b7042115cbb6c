/*
 * bench_attention [NAME] - the speed of attention on a GPU at the shapes of real models:
 * TFLOP/s of useful work (causal work counted once, 4 d a pair of query and key forward, 10 d
 * backward, recomputing not counted), and for generation bytes of the cache a second.  Random
 * bf16.
 */
#include "tests/perf/gpu_bench.h"

#include <math.h>

enum { CALLS = 50 };

struct row {
    const char *name;
    int64_t     docs, len, n_head, n_kv, dim;
    int64_t     reach, window;      /* T5's 32 buckets distinguish distances up to 91 or 113 */
    int64_t     keys;               /* of another sequence, each seen by all queries */
    bool        bloom, slopes, whole;
    float       drop;
    int64_t     cached;             /* generation: keys in the cache of each sequence */
};

static const struct row rows[] = {
    {.name = "bloomz-560m", .docs = 16, .len = 512, .n_head = 16, .n_kv = 16, .dim = 64,
     .bloom = true, .slopes = true},
    {.name = "bloomz-1b1", .docs = 16, .len = 512, .n_head = 16, .n_kv = 16, .dim = 96,
     .bloom = true, .slopes = true},
    {.name = "opt-1.3b", .docs = 8, .len = 2048, .n_head = 32, .n_kv = 32, .dim = 64},
    {.name = "qwen3-8b", .docs = 4, .len = 2048, .n_head = 32, .n_kv = 8, .dim = 128},
    {.name = "128 heads 2048", .docs = 4, .len = 2048, .n_head = 32, .n_kv = 32, .dim = 128},
    {.name = "t5-3b encoder", .docs = 16, .len = 512, .n_head = 32, .n_kv = 32, .dim = 128,
     .whole = true, .reach = 91},
    {.name = "t5-3b 8 documents", .docs = 8, .len = 512, .n_head = 32, .n_kv = 32, .dim = 128,
     .whole = true, .reach = 91},
    {.name = "t5-3b decoder", .docs = 16, .len = 128, .n_head = 32, .n_kv = 32, .dim = 128,
     .reach = 113},
    {.name = "t5-3b across", .docs = 16, .len = 128, .keys = 512, .n_head = 32, .n_kv = 32,
     .dim = 128, .whole = true},
    {.name = "window 512 of 2048", .docs = 8, .len = 2048, .n_head = 32, .n_kv = 8, .dim = 128,
     .window = 512},
    {.name = "dropout", .docs = 8, .len = 2048, .n_head = 32, .n_kv = 32, .dim = 64,
     .drop = 0.1f},
    {.name = "gemma 256", .docs = 4, .len = 2048, .n_head = 8, .n_kv = 4, .dim = 256},
    {.name = "decode 1 x 2048", .docs = 1, .n_head = 32, .n_kv = 8, .dim = 128, .cached = 2048},
    {.name = "decode 64 x 2048", .docs = 64, .n_head = 32, .n_kv = 8, .dim = 128,
     .cached = 2048},
    {.name = "decode 16 x 4096 64", .docs = 16, .n_head = 16, .n_kv = 16, .dim = 64,
     .cached = 4096},
};

/* i * step (% of, unless 0) for i < n. */
static int32_t *ints(struct bench *b, int64_t n, int64_t step, int64_t of)
{
    int32_t *host = malloc((size_t)n * sizeof *host), *p;

    for (int64_t i = 0; i < n; i++)
        host[i] = (int32_t)(of ? i * step % of : i * step);
    p = bench_array(b, (size_t)n * sizeof *host, host);
    free(host);
    return p;
}

static struct op_heads heads(const struct row *r, void *at)
{
    int64_t d = r->dim, H = r->n_head, K = r->n_kv;
    uint16_t *base = at;

    return (struct op_heads){
        .q = base, .k = base + (r->bloom ? d : H * d),
        .v = base + (r->bloom ? 2 * d : (H + K) * d),
        .row_stride = (H + 2 * K) * d, .q_head = r->bloom ? 3 * d : d,
        .kv_head = r->bloom ? 3 * d : d,
    };
}

BENCH_CALL(attention_fwd, op_attention, attention_fwd)
BENCH_CALL(attention_bwd, op_attention, attention_bwd)
BENCH_CALL(attention_cached, op_cached, attention_cached)

static double timed(const struct bench *b, bench_call *f, const struct op_attention *a)
{
    bench_seconds(b, f, a, 0, 1, 5);    /* warms up */
    return bench_seconds(b, f, a, 0, 1, CALLS);
}

/* A workspace for these sizes. */
static void work(struct bench *b, const struct row *r, int64_t n, int64_t keys)
{
    bench_workspace(b, &(struct op_limits){
        .n = n, .n_rows = n, .max_doc = r->len + r->keys, .max_keys = keys,
        .dim = r->n_head * r->dim, .n_head = r->n_head, .n_kv = r->n_kv, .head_dim = r->dim,
        .ff = 64, .vocab = 64, .train = keys == 0});
}

static void packed(struct bench *b, const struct row *r)
{
    int64_t n = r->docs * r->len, wide = (r->n_head + 2 * r->n_kv) * r->dim;
    double pairs = (double)(r->docs * r->n_head) * (double)r->len * (double)r->len, fwd, bwd;
    int64_t longest = r->keys > r->len ? r->keys : r->len;
    float slopes[64];
    void *qkv = bench_values(b, r->docs * longest * wide);
    void *dqkv = bench_values(b, r->docs * longest * wide);
    struct op_attention a = {
        .out = bench_values(b, n * r->n_head * r->dim),
        .dout = bench_values(b, n * r->n_head * r->dim),
        .lse = bench_array(b, (size_t)(n * r->n_head) * sizeof(float), NULL),
        .in = heads(r, qkv), .grad = heads(r, dqkv), .n = n, .n_docs = r->docs,
        .doc_start = ints(b, r->docs + 1, r->len, 0), .max_doc = longest, .n_head = r->n_head,
        .n_kv = r->n_kv, .dim = r->dim, .window = r->window, .whole = r->whole,
        .scale = 1.0f / sqrtf((float)r->dim), .drop = {r->drop, 3, 4, NULL},
    };

    a.drop.rows = (const uint64_t *)(const void *)ints(b, 2 * n, 1, r->len);
    for (int64_t h = 0; h < r->n_head; h++)
        slopes[h] = powf(0.7f, (float)(h + 1));
    if (r->slopes)
        a.slopes = bench_array(b, sizeof slopes, slopes);
    if (r->reach)
        a.rel_bias = (struct op_rel_bias){
            .table = bench_values(b, 32 * r->n_head), .reach = r->reach, .n_bucket = 32,
            .dtable = bench_array(b, (size_t)(32 * r->n_head) * sizeof(float), NULL),
            .bucket = ints(b, 2 * r->reach + 1, 1, 32),
        };
    if (r->keys) {
        a.key_start = ints(b, r->docs + 1, r->keys, 0);
        a.key_end = a.key_start + 1;
        pairs = pairs / (double)r->len * (double)r->keys;
    }
    if (r->window)
        pairs = (double)(r->docs * r->n_head) * (double)r->window *
                ((double)r->len - (double)r->window / 2);
    else if (!r->whole)
        pairs /= 2;
    work(b, r, n, 0);
    fwd = timed(b, attention_fwd, &a);
    bwd = timed(b, attention_bwd, &a);
    printf("%-22s fwd %8.1f us %6.1f TFLOP/s   bwd %8.1f us %6.1f TFLOP/s\n", r->name, 1e6 * fwd,
           4e-12 * pairs * (double)r->dim / fwd, 1e6 * bwd,
           1e-11 * pairs * (double)r->dim / bwd);
}

static void generated(struct bench *b, const struct row *r)
{
    int64_t n = r->docs, wide = (r->n_head + 2 * r->n_kv) * r->dim;
    int64_t cache = n * r->n_kv * (r->cached + 1) * r->dim, sets = 1;
    struct op_cached a[16];
    int32_t past[64];
    double t;

    while (sets < 16 && sets * cache * 4 < 256 << 20)
        sets++;
    for (int64_t s = 0; s < n; s++)
        past[s] = (int32_t)r->cached;
    for (int64_t i = 0; i < sets; i++)
        a[i] = (struct op_cached){
            .out = bench_values(b, n * r->n_head * r->dim), .k_cache = bench_values(b, cache),
            .v_cache = bench_values(b, cache), .in = heads(r, bench_values(b, n * wide)),
            .seg_start = ints(b, n + 1, 1, 0), .seg_first = ints(b, n, r->cached + 1, 0),
            .seg_past = bench_array(b, (size_t)n * sizeof *past, past), .n = n, .n_seg = n,
            .capacity = n * (r->cached + 1), .max_keys = r->cached + 1, .n_head = r->n_head,
            .n_kv = r->n_kv, .dim = r->dim, .scale = 1.0f / sqrtf((float)r->dim),
        };
    work(b, r, n, r->cached + 1);
    bench_seconds(b, attention_cached, a, sizeof *a, sets, (int)sets);  /* warms up */
    t = bench_seconds(b, attention_cached, a, sizeof *a, sets, 20 * CALLS);
    printf("%-22s %8.1f us %6.2f TB/s\n", r->name, 1e6 * t, 4e-12 * (double)cache / t);
}

static void row(struct bench *b, const void *of)
{
    const struct row *r = of;

    if (!bench_wanted(b, r->name))
        return;
    if (r->cached)
        generated(b, r);
    else
        packed(b, r);
}

int main(int argc, char **argv)
{
    struct device_opts opts = {.name = "cuda", .weights = CKPT_BF16};
    struct bench b;

    setvbuf(stdout, NULL, _IOLBF, 0);   /* rows so far, should the time run out */
    bench_open(&b, &opts, argc > 1 ? argv[1] : NULL);
    bench_samples(&b, 1.0f);
    BENCH_ROWS(&b, row, rows);
    device_close(b.dev);
    return 0;
}

/*
 * bench_attention [NAME] - how fast attention is on a GPU at the shapes of real models: TFLOP/s
 * of useful work (causal work counted once, 4 d a pair of query and key forward, 10 d backward,
 * whatever is made again), and for generation bytes of the cache a second.  Random bf16.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "libckpt/convert.h"
#include "libckpt/dtype.h"
#include "trainer/ops/ops.h"
#include "trainer/rng.h"

enum { CALLS = 50 };

struct row {
    const char *name;
    int64_t     docs, len, n_head, n_kv, dim;
    int64_t     reach, window;      /* T5's 32 buckets tell 91 or 113 distances apart */
    int64_t     keys;               /* of another sequence, all of which are seen */
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

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void fine(struct device *dev)
{
    struct ckpt_err err = {0};

    if (device_sync(dev, &err)) {
        fprintf(stderr, "%s\n", err.text);
        exit(1);
    }
}

/* n normal values on the GPU. */
static void *normal(struct device *dev, int64_t n)
{
    enum { PART = 1 << 20 };
    static uint16_t h[PART];            /* made once: 0.1 s each time otherwise */
    unsigned char *p = dev->ops->alloc(dev, (size_t)n * sizeof *h);

    if (!h[0]) {
        float *f = malloc(PART * sizeof *f);

        rng_normal(f, 0, PART, 1.0f, 5, 1);
        ckpt_convert(h, CKPT_BF16, f, CKPT_F32, PART);
        free(f);
    }
    for (int64_t i = 0; p && i < n; i += PART)
        dev->ops->to_device(dev, p + (size_t)i * sizeof *h, h,
                            (size_t)(n - i < PART ? n - i : PART) * sizeof *h);
    fine(dev);
    return p;
}

static int32_t *ints(struct device *dev, int64_t n, int64_t step, int64_t of)
{
    int32_t *host = malloc((size_t)n * sizeof *host), *p;

    for (int64_t i = 0; i < n; i++)
        host[i] = (int32_t)(of ? i * step % of : i * step);
    p = dev->ops->alloc(dev, (size_t)n * sizeof *host);
    dev->ops->to_device(dev, p, host, (size_t)n * sizeof *host);
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

static double timed(struct device *dev, void (*f)(struct device *, const struct op_attention *),
                    const struct op_attention *a)
{
    double t;

    for (int i = 0; i < 5; i++)
        f(dev, a);
    fine(dev);
    t = now();
    for (int i = 0; i < CALLS; i++)
        f(dev, a);
    fine(dev);
    return (now() - t) / CALLS;
}

/* Workspace for these sizes. */
static void work(struct device *dev, const struct row *r, int64_t n, int64_t keys)
{
    struct op_limits l = {.n = n, .n_rows = n, .max_doc = r->len + r->keys,
                          .max_keys = keys,
                          .dim = r->n_head * r->dim, .n_head = r->n_head, .n_kv = r->n_kv,
                          .head_dim = r->dim, .ff = 64, .vocab = 64, .train = keys == 0};

    dev->ops->free(dev, dev->work);
    dev->work_bytes = dev->ops->workspace(dev, &l);
    dev->work = dev->ops->alloc(dev, dev->work_bytes);
}

static void packed(struct device *dev, const struct row *r)
{
    int64_t n = r->docs * r->len, wide = (r->n_head + 2 * r->n_kv) * r->dim;
    double pairs = (double)(r->docs * r->n_head) * (double)r->len * (double)r->len, fwd, bwd;
    int64_t longest = r->keys > r->len ? r->keys : r->len;
    float slopes[64];
    void *qkv = normal(dev, r->docs * longest * wide), *dqkv = normal(dev, r->docs * longest * wide);
    struct op_attention a = {
        .out = normal(dev, n * r->n_head * r->dim), .dout = normal(dev, n * r->n_head * r->dim),
        .lse = dev->ops->alloc(dev, (size_t)(n * r->n_head) * sizeof(float)),
        .in = heads(r, qkv), .grad = heads(r, dqkv), .n = n, .n_docs = r->docs,
        .doc_start = ints(dev, r->docs + 1, r->len, 0), .max_doc = longest, .n_head = r->n_head,
        .n_kv = r->n_kv, .dim = r->dim, .window = r->window, .whole = r->whole,
        .scale = 1.0f / sqrtf((float)r->dim), .drop = {r->drop, 3, 4},
    };

    for (int64_t h = 0; h < r->n_head; h++)
        slopes[h] = powf(0.7f, (float)(h + 1));
    if (r->slopes) {
        a.slopes = dev->ops->alloc(dev, sizeof slopes);
        dev->ops->to_device(dev, (void *)a.slopes, slopes, sizeof slopes);
    }
    if (r->reach)
        a.rel_bias = (struct op_rel_bias){
            .table = normal(dev, 32 * r->n_head), .reach = r->reach, .n_bucket = 32,
            .dtable = dev->ops->alloc(dev, (size_t)(32 * r->n_head) * sizeof(float)),
            .bucket = ints(dev, 2 * r->reach + 1, 1, 32),
        };
    if (r->keys) {
        a.key_start = ints(dev, r->docs + 1, r->keys, 0);
        a.key_end = a.key_start + 1;
        pairs = pairs / (double)r->len * (double)r->keys;
    }
    if (r->window)
        pairs = (double)(r->docs * r->n_head) * (double)r->window *
                ((double)r->len - (double)r->window / 2);
    else if (!r->whole)
        pairs /= 2;
    work(dev, r, n, 0);
    fwd = timed(dev, dev->ops->attention_fwd, &a);
    bwd = timed(dev, dev->ops->attention_bwd, &a);
    printf("%-22s fwd %8.1f us %6.1f TFLOP/s   bwd %8.1f us %6.1f TFLOP/s\n", r->name, 1e6 * fwd,
           4e-12 * pairs * (double)r->dim / fwd, 1e6 * bwd,
           1e-11 * pairs * (double)r->dim / bwd);
}

static void generated(struct device *dev, const struct row *r)
{
    int64_t n = r->docs, wide = (r->n_head + 2 * r->n_kv) * r->dim;
    int64_t cache = n * r->n_kv * (r->cached + 1) * r->dim, sets = 1;
    double t;
    struct op_cached a[16];

    while (sets < 16 && sets * cache * 4 < 256 << 20)
        sets++;
    for (int64_t i = 0; i < sets; i++)
        a[i] = (struct op_cached){
            .out = normal(dev, n * r->n_head * r->dim), .k_cache = normal(dev, cache),
            .v_cache = normal(dev, cache), .in = heads(r, normal(dev, n * wide)),
            .seg_start = ints(dev, n + 1, 1, 0), .seg_seq = ints(dev, n, 1, 0),
            .seg_past = ints(dev, n, 0, 0), .n = n, .n_seg = n, .capacity = r->cached + 1,
            .max_keys = r->cached + 1, .n_head = r->n_head, .n_kv = r->n_kv, .dim = r->dim,
            .scale = 1.0f / sqrtf((float)r->dim),
        };
    for (int64_t i = 0; i < sets; i++) {
        int32_t past[64];

        for (int64_t s = 0; s < n; s++)
            past[s] = (int32_t)r->cached;
        dev->ops->to_device(dev, (void *)a[i].seg_past, past, (size_t)n * sizeof *past);
    }
    work(dev, r, n, r->cached + 1);
    for (int64_t i = 0; i < sets; i++)
        dev->ops->attention_cached(dev, &a[i]);
    fine(dev);
    t = now();
    for (int i = 0; i < 20 * CALLS; i++)
        dev->ops->attention_cached(dev, &a[i % sets]);
    fine(dev);
    t = (now() - t) / (20 * CALLS);
    printf("%-22s %8.1f us %6.2f TB/s\n", r->name, 1e6 * t, 4e-12 * (double)cache / t);
}

int main(int argc, char **argv)
{
    struct device_opts opts = {.name = "cuda", .weights = CKPT_BF16};
    struct ckpt_err err = {0};

    setvbuf(stdout, NULL, _IOLBF, 0);   /* rows so far, should the time run out */
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct device *dev;

        if (argc > 1 && !strstr(rows[i].name, argv[1]))
            continue;
        if (device_open(&dev, &opts, &err)) {
            fprintf(stderr, "%s\n", err.text);
            return 1;
        }
        if (rows[i].cached)
            generated(dev, &rows[i]);
        else
            packed(dev, &rows[i]);
        device_close(dev);
    }
    return 0;
}

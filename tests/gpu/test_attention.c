/*
 * Attention over packed documents, GPU against CPU: every flag, forward and backward.
 *
 * Bounds.  16 bits: P, dS and results are rounded once each: two roundings of gpu_bound.  f32,
 * and the table's gradient in every type, which sums unrounded dS: an exponent of up to 20 in
 * base 2 has an error of 2e-6, products on tensor cores somewhat more.
 */
#include "tests/gpu/attention_pair.h"

enum layout { BLOCKS, BLOOM, CROSS };

enum { DOCS = 12 };

struct shape {
    const char *name;
    int64_t     n_head, n_kv, dim;
    enum layout layout;
    int64_t     docs[DOCS], keys[DOCS];     /* lengths; END ends; keys: CROSS */
    int64_t     before[DOCS], after[DOCS];  /* padding, of docs */
    int64_t     window, reach, n_bucket;
    bool        whole, slopes, shared_keys; /* shared: all documents have the first's keys */
    float       drop;
    bool        some;                       /* not left out under a sanitizer, though long */
    bool        padded;
};

static const struct shape shapes[] = {
    {"one row", 1, 1, 16, BLOCKS, .docs = {1, END}},
    {"causal 64", 2, 2, 64, BLOCKS, .docs = {5, 1, 64, 130, END}},
    {"bloom 64", 4, 4, 64, BLOOM, .docs = {200, 77, END}, .slopes = true},
    {"bloom 96", 2, 2, 96, BLOOM, .docs = {129, 300, 1, END}, .slopes = true},
    {"bloom 128", 2, 2, 128, BLOOM, .docs = {129, 63, END}, .slopes = true},
    {"grouped 128", 8, 2, 128, BLOCKS, .docs = {257, 3, 128, END}},
    {"one key head", 5, 1, 64, BLOCKS, .docs = {70, 190, END}},
    {"one wide", 3, 3, 1, BLOCKS, .docs = {40, 9, END}},
    {"odd 33", 2, 2, 33, BLOCKS, .docs = {40, 90, END}},
    {"odd 33 bloom", 2, 2, 33, BLOOM, .docs = {140, 9, END}, .slopes = true},
    {"even 20", 3, 1, 20, BLOCKS, .docs = {66, 35, END}},
    {"72", 2, 2, 72, BLOCKS, .docs = {150, 64, END}},
    {"80", 2, 2, 80, BLOOM, .docs = {150, 64, END}, .slopes = true},
    {"96", 2, 1, 96, BLOCKS, .docs = {256, 31, END}},
    {"104", 2, 2, 104, BLOCKS, .docs = {100, 31, END}},
    {"200", 2, 2, 200, BLOCKS, .docs = {100, 31, END}},
    {"256", 4, 2, 256, BLOCKS, .docs = {130, 200, END}},
    {"256 slopes", 2, 2, 256, BLOOM, .docs = {70, 140, END}, .slopes = true},
    {"window 17", 2, 2, 64, BLOCKS, .docs = {300, 16, 18, END}, .window = 17},
    {"window 64", 2, 1, 128, BLOCKS, .docs = {350, 64, END}, .window = 64},
    {"window 1", 2, 2, 32, BLOCKS, .docs = {70, END}, .window = 1},
    {"window slopes", 2, 2, 96, BLOOM, .docs = {333, END}, .window = 100, .slopes = true},
    {"window wide", 2, 2, 256, BLOCKS, .docs = {170, END}, .window = 40},
    {"whole", 2, 2, 64, BLOCKS, .docs = {100, 31, 129, END}, .whole = true},
    {"whole 128", 2, 2, 128, BLOCKS, .docs = {100, 31, 129, END}, .whole = true},
    {"whole slopes", 2, 2, 64, BLOCKS, .docs = {100, 31, END}, .whole = true, .slopes = true},
    {"encoder", 4, 4, 64, BLOCKS, .docs = {150, 300, END}, .whole = true, .reach = 32,
     .n_bucket = 32},
    {"encoder 128", 2, 2, 128, BLOCKS, .docs = {150, 30, END}, .whole = true, .reach = 128,
     .n_bucket = 32},
    {"encoder far", 2, 2, 64, BLOCKS, .docs = {40, 3, END}, .whole = true, .reach = 1000,
     .n_bucket = 7},
    {"encoder near", 2, 2, 96, BLOCKS, .docs = {140, 3, END}, .whole = true, .reach = 1,
     .n_bucket = 3},
    {"decoder", 2, 2, 64, BLOCKS, .docs = {150, 64, END}, .reach = 20, .n_bucket = 32},
    {"decoder 256", 2, 1, 256, BLOCKS, .docs = {150, 64, END}, .reach = 20, .n_bucket = 32},
    {"cross", 2, 2, 64, CROSS, .docs = {7, 40, 1, END}, .keys = {65, 130, 3, END},
     .whole = true},
    {"cross 128", 4, 2, 128, CROSS, .docs = {140, 0, 10, END}, .keys = {1, 30, 200, END},
     .whole = true},
    {"shared keys", 2, 2, 64, CROSS, .docs = {3, 3, 1, END}, .keys = {90, END}, .whole = true,
     .shared_keys = true},
    {"dropped", 2, 2, 64, BLOCKS, .docs = {150, 33, END}, .drop = 0.1f},
    {"dropped 128", 4, 4, 128, BLOOM, .docs = {133, 34, END}, .drop = 0.3f, .slopes = true},
    {"dropped grouped", 4, 2, 128, BLOCKS, .docs = {133, 200, END}, .drop = 0.1f},
    {"dropped long", 2, 2, 64, BLOCKS, .docs = {1100, 270, END}, .drop = 0.1f, .window = 400},
    {"dropped across", 2, 1, 128, CROSS, .docs = {129, 600, END}, .keys = {700, 300, END},
     .whole = true, .drop = 0.1f},
    {"dropped whole", 2, 2, 64, BLOCKS, .docs = {700, 130, END}, .whole = true, .drop = 0.1f},
    {"dropped 256", 2, 2, 256, BLOCKS, .docs = {133, 34, END}, .drop = 0.2f},
    {"dropped encoder", 2, 2, 64, BLOCKS, .docs = {133, 34, END}, .drop = 0.2f, .whole = true,
     .reach = 16, .n_bucket = 8},
    {"dropped cross", 2, 2, 64, CROSS, .docs = {13, 34, END}, .keys = {70, 41, END},
     .drop = 0.2f,
     .whole = true},
    {"all dropped", 2, 2, 64, BLOCKS, .docs = {70, END}, .drop = 1.0f},
    {"empty documents", 2, 2, 64, BLOCKS, .docs = {0, 5, 0, 0, 70, 0, END}},
    {"no rows", 2, 2, 64, BLOCKS, .docs = {0, END}},
    {"one of 260", 1, 1, 128, BLOCKS, .docs = {260, END}, .some = true},
    {"long 64", 2, 2, 64, BLOCKS, .docs = {1100, 30, END}, .some = true},
    {"longest 64", 1, 1, 64, BLOCKS, .docs = {2100, END}},
    {"longest 64 slopes", 1, 1, 64, BLOOM, .docs = {2060, END}, .slopes = true, .window = 700},
    {"long 80", 2, 2, 80, BLOOM, .docs = {1031, 70, END}, .slopes = true},
    {"long 96", 2, 2, 96, BLOOM, .docs = {65, 1200, END}, .slopes = true},
    {"long 128", 4, 2, 128, BLOCKS, .docs = {1300, 129, END}},
    {"long 128 alike", 4, 1, 128, BLOCKS, .docs = {330, 330, 330, END}},
    {"long 128 alone", 2, 2, 128, BLOCKS, .docs = {270, 1300, 1, END}},
    {"long bloom 128", 2, 2, 128, BLOOM, .docs = {1030, 500, END}, .slopes = true},
    {"long whole 128", 3, 3, 128, BLOCKS, .docs = {400, 1100, END}, .whole = true},
    {"long encoder 128", 2, 2, 128, BLOCKS, .docs = {600, 300, END}, .whole = true, .reach = 128,
     .n_bucket = 32, .some = true},
    {"long window", 2, 1, 128, BLOCKS, .docs = {1290, 193, END}, .window = 200},
    {"long whole", 2, 2, 64, BLOCKS, .docs = {1090, 7, END}, .whole = true},
    {"long 33", 2, 2, 33, BLOCKS, .docs = {1090, 7, END}},
    {"encoder long", 1, 1, 64, BLOCKS, .docs = {1100, 500, END}, .whole = true, .reach = 128,
     .n_bucket = 32},
    {"decoder long", 1, 1, 128, BLOCKS, .docs = {1100, 500, END}, .reach = 20, .n_bucket = 32},
    {"cross long", 2, 1, 128, CROSS, .docs = {129, 600, END}, .keys = {700, 300, END},
     .whole = true},
    {"padded after", 2, 2, 64, BLOCKS, .docs = {130, 64, 5, END}, .after = {61, 0, 4},
     .padded = true},
    {"padded before", 4, 4, 64, BLOOM, .docs = {200, 77, 64, END}, .before = {150, 0, 63},
     .slopes = true, .padded = true},
    {"padded 128", 8, 2, 128, BLOCKS, .docs = {257, 3, 128, END}, .before = {130, 1, 0},
     .after = {60, 1, 100}, .padded = true},
    {"padded 33", 2, 2, 33, BLOOM, .docs = {140, 9, END}, .before = {70, 8}, .slopes = true,
     .padded = true},
    {"padded 80", 2, 2, 80, BLOOM, .docs = {150, 164, END}, .before = {64, 65}, .after = {1, 64},
     .slopes = true, .padded = true},
    {"padded 256", 4, 2, 256, BLOCKS, .docs = {130, 100, END}, .before = {0, 60},
     .after = {70, 1}, .padded = true},
    {"padded nowhere", 2, 2, 64, BLOCKS, .docs = {100, 70, END}, .padded = true},
    {"padded long", 2, 2, 64, BLOCKS, .docs = {2190, END}, .before = {700}, .after = {300},
     .padded = true},
    {"padded long 96", 2, 2, 96, BLOOM, .docs = {600, 1200, END}, .before = {90, 1100},
     .after = {400, 0}, .slopes = true, .padded = true},
    {"padded long 128", 4, 2, 128, BLOCKS, .docs = {1300, 700, END}, .before = {0, 300},
     .after = {1000, 10}, .padded = true},
    {"padded slopes 128", 2, 2, 128, BLOOM, .docs = {1030, 500, END}, .before = {200, 0},
     .after = {0, 400}, .slopes = true, .padded = true},
    {"padded dropped", 2, 2, 64, BLOCKS, .docs = {350, 133, END}, .before = {129, 0},
     .after = {0, 70}, .drop = 0.1f, .padded = true},
    {"padded dropped 128", 4, 4, 128, BLOOM, .docs = {733, 34, END}, .before = {150, 7},
     .after = {500, 20}, .drop = 0.3f, .slopes = true, .padded = true},
    {"padded dropped 256", 2, 2, 256, BLOCKS, .docs = {133, 34, END}, .before = {70, 3},
     .drop = 0.2f, .padded = true},
    {"short ones", 2, 2, 64, BLOCKS, .docs = {1, 2, 3, 4, 5, 6, 7, 1, 1, 2, 40, END},
     .slopes = true},
};

/* Both sides of one operation. */
struct sides {
    struct both qkv, kv, dqkv, dkv, out, dout, lse, dtable;
    struct both doc_start, key_start, key_end, drop_rows, real_start, real_end;
    struct bias_pair bias;
    int64_t n, n_keys, n_docs, max_doc;
};

static int32_t starts(int32_t to[DOCS + 1], const int64_t *len, int64_t n, int64_t *max)
{
    to[0] = 0;
    for (int64_t i = 0; i < n; i++) {
        to[i + 1] = to[i] + (int32_t)len[i];
        *max = len[i] > *max ? len[i] : *max;
    }
    return to[n];
}

/* Each document's rows of a sample of its own. */
static struct both drop_rows(struct gpu *g, const int32_t *start, int64_t n_docs)
{
    int32_t *host = malloc((size_t)(2 * start[n_docs] + 1) * sizeof *host);
    struct both b;

    for (int64_t d = 0; d < n_docs; d++)
        for (int32_t i = start[d]; i < start[d + 1]; i++) {
            host[2 * i] = i - start[d];
            host[2 * i + 1] = 1000000007 * (int32_t)(d % 2) + 3 - (int32_t)d;
        }
    b = gpu_ints(g, host, 2 * start[n_docs]);
    free(host);
    return b;
}

static void documents(struct gpu *g, struct sides *s, const struct shape *sh)
{
    int32_t at[DOCS + 1], first[DOCS], end[DOCS];

    while (sh->docs[s->n_docs] != END)
        s->n_docs++;
    s->n = starts(at, sh->docs, s->n_docs, &s->max_doc);
    s->doc_start = gpu_ints(g, at, s->n_docs + 1);
    s->drop_rows = drop_rows(g, at, s->n_docs);
    for (int64_t i = 0; i < s->n_docs; i++) {
        first[i] = at[i] + (int32_t)sh->before[i];
        end[i] = at[i + 1] - (int32_t)sh->after[i];
    }
    if (sh->padded) {
        s->real_start = gpu_ints(g, first, s->n_docs);
        s->real_end = gpu_ints(g, end, s->n_docs);
    }
    if (sh->layout != CROSS)
        return;
    s->n_keys = starts(at, sh->keys, sh->shared_keys ? 1 : s->n_docs, &s->max_doc);
    for (int64_t i = 0; i < s->n_docs; i++) {
        first[i] = sh->shared_keys ? 0 : at[i];
        end[i] = sh->shared_keys ? at[1] : at[i + 1];
    }
    s->key_start = gpu_ints(g, first, s->n_docs);
    s->key_end = gpu_ints(g, end, s->n_docs);
}

static int64_t row_of(const struct shape *sh)
{
    return sh->layout == CROSS ? sh->n_head * sh->dim : (sh->n_head + 2 * sh->n_kv) * sh->dim;
}

static void arrays(struct gpu *g, struct sides *s, const struct shape *sh)
{
    int64_t kv = 2 * sh->n_kv * sh->dim, out = s->n * sh->n_head * sh->dim;

    s->qkv = gpu_random(g, g->type, s->n * row_of(sh), 1.0f);
    s->dqkv = gpu_blank(g, g->type, s->n * row_of(sh));
    s->kv = gpu_random(g, g->type, s->n_keys * kv, 1.0f);
    s->dkv = gpu_blank(g, g->type, s->n_keys * kv);
    s->out = gpu_blank(g, g->type, out);
    s->dout = gpu_random(g, g->type, out, 1.0f);
    s->lse = gpu_blank(g, CKPT_F32, s->n * sh->n_head);
    s->bias = attention_bias(g, sh->n_head, sh->slopes, sh->reach, sh->n_bucket);
    if (sh->n_bucket)
        s->dtable = gpu_random(g, CKPT_F32, sh->n_bucket * sh->n_head, 1.0f);
}

/* Where queries, keys and values lie in the arrays of one side. */
static struct op_heads heads(const struct shape *sh, void *qkv, void *kv, size_t size)
{
    int64_t d = sh->dim, k = sh->n_head * d, v = k + sh->n_kv * d;
    unsigned char *base = qkv;
    struct op_heads at = {.q = base, .row_stride = row_of(sh), .q_head = d, .kv_head = d};

    if (sh->layout == BLOOM) {
        k = d;
        v = 2 * d;
        at.q_head = at.kv_head = 3 * d;
    }
    if (sh->layout == CROSS) {
        base = kv;
        k = 0;
        v = sh->n_kv * d;
        at.kv_stride = 2 * sh->n_kv * d;
    }
    at.k = base + (size_t)k * size;
    at.v = base + (size_t)v * size;
    return at;
}

static struct op_attention operation(const struct gpu *g, const struct sides *s,
                                     const struct shape *sh, bool on_gpu)
{
    size_t size = on_gpu ? ckpt_dtype_size(g->type) : sizeof(float);

    return (struct op_attention){
        .out = SIDE(s->out), .lse = SIDE(s->lse),
        .in = heads(sh, SIDE(s->qkv), SIDE(s->kv), size),
        .grad = heads(sh, SIDE(s->dqkv), SIDE(s->dkv), size), .dout = SIDE(s->dout),
        .doc_start = SIDE(s->doc_start), .key_start = SIDE(s->key_start),
        .key_end = SIDE(s->key_end), .real_start = SIDE(s->real_start),
        .real_end = SIDE(s->real_end), .slopes = SIDE(s->bias.slopes),
        .rel_bias = {SIDE(s->bias.table), SIDE(s->dtable), SIDE(s->bias.bucket), sh->reach,
                     sh->n_bucket},
        .n = s->n, .n_docs = s->n_docs, .max_doc = s->max_doc, .n_head = sh->n_head,
        .n_kv = sh->n_kv, .dim = sh->dim, .window = sh->window,
        .scale = 1.0f / sqrtf((float)sh->dim), .whole = sh->whole,
        .drop = {sh->drop, 0x1234567890abcdefu, 77, SIDE(s->drop_rows)},
    };
}

/* Give the CPU the GPU's out before the backward: D = dout . out is common to a row, so that
 * its rounding would be in all of the row's dS alike. */
static void same_out(struct gpu *g, struct sides *s)
{
    float *out = gpu_fetch(g, &s->out);

    memcpy(s->out.cpu, out, (size_t)s->out.n * sizeof *out);
    free(out);
}

static void attention_once(struct gpu *g, const void *of, bool cpu, struct gpu_results *r)
{
    const struct shape *sh = of;
    double bound = attention_bound(g), sums = g->type == CKPT_F32 ? 3e-5 : 5e-4;
    struct op_attention on_cpu, on_gpu;
    struct sides s = {0};

    documents(g, &s, sh);
    arrays(g, &s, sh);
    on_cpu = operation(g, &s, sh, false);
    on_gpu = operation(g, &s, sh, true);
    if (cpu)
        g->cpu->ops->attention_fwd(g->cpu, &on_cpu);
    g->gpu->ops->attention_fwd(g->gpu, &on_gpu);
    gpu_result(r, &s.out, bound, "%s: out", sh->name);
    gpu_result(r, &s.lse, 1e-5, "%s: lse", sh->name);
    if (sh->shared_keys)
        return;
    if (cpu) {
        gpu_close_to(g, r->at[0].name, &s.out, bound);
        same_out(g, &s);
        g->cpu->ops->attention_bwd(g->cpu, &on_cpu);
    }
    g->gpu->ops->attention_bwd(g->gpu, &on_gpu);
    if (!cpu && s.dtable.n) {           /* a frozen table: the other gradients are the same */
        on_gpu.rel_bias.dtable = NULL;
        g->gpu->ops->attention_bwd(g->gpu, &on_gpu);
    }
    /* Two parts of a key's gradients, each rounded, are added. */
    gpu_result(r, &s.dqkv, (sh->padded ? 3 : 2) * bound, "%s: dqkv", sh->name);
    gpu_result(r, &s.dkv, 2 * bound, "%s: dkv", sh->name);
    if (s.dtable.n)
        gpu_result(r, &s.dtable, sums, "%s: dtable", sh->name);
}

static int64_t rows_of(const struct shape *sh)
{
    int64_t n = 0;

    for (int i = 0; sh->docs[i] != END; i++)
        n += sh->docs[i];
    return n;
}

/* Under a sanitizer documents are short; in 16 bits, which have other kernels for long ones,
 * `some` long ones are tried too. */
static bool left_out(const struct shape *sh, enum ckpt_dtype type)
{
    int64_t rows = rows_of(sh), work = rows * rows * sh->n_head * sh->dim;

    if (gpu_small() && rows > 190 && (type == CKPT_F32 || !sh->some))
        return true;
    return gpu_small() == 2 && work > (type == CKPT_F32 ? 500000 : sh->some ? 10000000 : 2500000);
}

static void all_shapes(enum ckpt_dtype type)
{
    struct op_limits l = {.n = 2304, .n_rows = 1, .max_doc = 2200, .dim = 1024, .n_head = 8,
                          .n_kv = 8, .head_dim = 256, .ff = 1024, .vocab = 64, .padding = true,
                          .train = true};
    struct gpu g;

    gpu_open(&g, type, &l);
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        if (!left_out(&shapes[i], type))
            gpu_check(&g, attention_once, &shapes[i]);
    gpu_close(&g);
}

TEST(f32) { all_shapes(CKPT_F32); }

TEST(bf16) { all_shapes(CKPT_BF16); }

TEST(f16)
{
    if (gpu_n_types() < 3)
        skip();
    all_shapes(CKPT_F16);
}

/* More documents than a warp looks at in one step, and than its square. */
TEST(many_documents)
{
    enum { MANY = 1500 };
    static const struct shape sh = {"many", 2, 2, 32, BLOCKS, .slopes = true};
    struct op_limits l = {.n = 8 * MANY, .n_rows = 1, .max_doc = 16, .dim = 64, .n_head = 2,
                          .n_kv = 2, .head_dim = 32, .ff = 64, .vocab = 64, .train = true};
    int32_t at[MANY + 1] = {0};
    struct sides s = {.max_doc = 13, .n_docs = MANY};
    struct op_attention cpu, gpu;
    struct gpu g;

    if (gpu_small() == 2)
        skip();
    gpu_open(&g, CKPT_BF16, &l);
    for (int i = 0; i < MANY; i++)
        at[i + 1] = at[i] + i * 5 % (gpu_small() ? 4 : 14);
    s.n = at[MANY];
    s.doc_start = gpu_ints(&g, at, MANY + 1);
    arrays(&g, &s, &sh);
    cpu = operation(&g, &s, &sh, false);
    gpu = operation(&g, &s, &sh, true);
    g.cpu->ops->attention_fwd(g.cpu, &cpu);
    g.gpu->ops->attention_fwd(g.gpu, &gpu);
    g.cpu->ops->attention_bwd(g.cpu, &cpu);
    g.gpu->ops->attention_bwd(g.gpu, &gpu);
    gpu_close_to(&g, "many: out", &s.out, gpu_bound(g.type));
    gpu_close_to(&g, "many: dqkv", &s.dqkv, 2 * gpu_bound(g.type));
    gpu_close(&g);
}

/* A document whose distances do not fit into shared memory, nearly all beyond the table's
 * reach. */
TEST(long_table)
{
    static const struct shape sh = {"9000 rows", 1, 1, 16, BLOCKS, .docs = {9000, 64, END},
                                    .whole = true, .reach = 128, .n_bucket = 32};
    struct op_limits l = {.n = 9064, .n_rows = 1, .max_doc = 9000, .dim = 16, .n_head = 1,
                          .n_kv = 1, .head_dim = 16, .ff = 64, .vocab = 64, .train = true};
    struct gpu g;

    if (gpu_small())
        skip();
    gpu_open(&g, CKPT_BF16, &l);
    gpu_check(&g, attention_once, &sh);
    gpu_close(&g);
}

/* Make rows [from, to) of the GPU's array, of `wide` elements each, infinities. */
static void infinities(struct gpu *g, const struct both *b, int64_t from, int64_t to, int64_t wide)
{
    size_t size = ckpt_dtype_size(b->type), n = (size_t)((to - from) * wide);
    const uint32_t inf = b->type == CKPT_F32 ? 0x7f800000u : b->type == CKPT_BF16 ? 0x7f80 : 0x7c00;
    unsigned char *host = malloc(n * size + 1);

    for (size_t i = 0; i < n; i++)
        memcpy(host + i * size, &inf, size);            /* little-endian, as the GPU is */
    g->gpu->ops->to_device(g->gpu, (unsigned char *)b->gpu + (size_t)(from * wide) * size, host,
                           n * size);
    gpu_fine(g);
    free(host);
}

/* The bits of rows outside of [from, to) are those of `was`, which is freed. */
static void same_outside(struct gpu *g, const char *name, const struct both *b, void *was,
                         int64_t from, int64_t to, int64_t wide)
{
    size_t row = (size_t)wide * ckpt_dtype_size(b->type), all = (size_t)(b->n / wide);
    unsigned char *now = gpu_bytes(g, b), *old = was;

    for (size_t r = 0; r < all; r++)
        if ((r < (size_t)from || r >= (size_t)to) && memcmp(now + r * row, old + r * row, row))
            fail_msg("%s: row %zu sees another document's infinities", name, r);
    free(now);
    free(was);
}

/* Infinities in a document change no result of its neighbours, not even where a tile crosses
 * their border. */
static void beside_infinities(struct gpu *g, const struct shape *sh)
{
    struct sides s = {0};
    int64_t from = sh->docs[0], to = from + sh->docs[1], wide = row_of(sh);
    int64_t key_from = sh->keys[0], key_to = key_from + sh->keys[1], kv = 2 * sh->n_kv * sh->dim;
    struct op_attention op;
    void *out, *dqkv, *dkv = NULL;

    documents(g, &s, sh);
    arrays(g, &s, sh);
    op = operation(g, &s, sh, true);
    g->gpu->ops->attention_fwd(g->gpu, &op);
    g->gpu->ops->attention_bwd(g->gpu, &op);
    out = gpu_bytes(g, &s.out);
    dqkv = gpu_bytes(g, &s.dqkv);
    infinities(g, &s.qkv, from, to, wide);
    infinities(g, &s.dout, from, to, sh->n_head * sh->dim);
    if (sh->layout == CROSS) {
        dkv = gpu_bytes(g, &s.dkv);
        infinities(g, &s.kv, key_from, key_to, kv);
    }
    g->gpu->ops->attention_fwd(g->gpu, &op);
    g->gpu->ops->attention_bwd(g->gpu, &op);
    same_outside(g, sh->name, &s.out, out, from, to, sh->n_head * sh->dim);
    same_outside(g, sh->name, &s.dqkv, dqkv, from, to, wide);
    if (dkv)
        same_outside(g, sh->name, &s.dkv, dkv, key_from, key_to, kv);
    gpu_fine(g);
    gpu_release(g);
}

static void all_beside(struct gpu *g)
{
    static const struct shape beside[] = {
        {"beside 64", 2, 2, 64, BLOCKS, .docs = {70, 61, 90, END}},
        {"beside bloom 96", 2, 2, 96, BLOOM, .docs = {129, 30, 65, END}, .slopes = true},
        {"beside 80", 2, 2, 80, BLOCKS, .docs = {150, 2, 20, END}},
        {"beside grouped 128", 4, 2, 128, BLOCKS, .docs = {70, 61, 90, END}},
        {"beside odd 33", 2, 2, 33, BLOCKS, .docs = {70, 61, 90, END}},
        {"beside window", 2, 2, 64, BLOCKS, .docs = {270, 61, 90, END}, .window = 40},
        {"beside whole 128", 2, 2, 128, BLOCKS, .docs = {100, 1, 40, END}, .whole = true},
        {"beside encoder", 2, 2, 64, BLOCKS, .docs = {100, 7, 40, END}, .whole = true,
         .reach = 32, .n_bucket = 32},
        {"beside cross", 2, 2, 64, CROSS, .docs = {7, 40, 9, END}, .keys = {65, 60, 30, END},
         .whole = true},
        {"beside 256", 2, 1, 256, BLOCKS, .docs = {70, 61, 90, END}},
        {"beside long 64", 2, 2, 64, BLOCKS, .docs = {1100, 61, 90, END}},
        {"beside long 128", 2, 2, 128, BLOCKS, .docs = {1100, 61, 90, END}},
        {"beside dropped", 2, 2, 64, BLOCKS, .docs = {70, 61, 90, END}, .drop = 0.1f},
    };

    for (size_t i = 0; i < sizeof beside / sizeof beside[0]; i++)
        if (!gpu_small() || rows_of(&beside[i]) <= 300)
            beside_infinities(g, &beside[i]);
}

TEST(infinite_neighbours)
{
    struct op_limits l = {.n = 2048, .n_rows = 1, .max_doc = 1500, .dim = 1024, .n_head = 8,
                          .n_kv = 8, .head_dim = 256, .ff = 1024, .vocab = 64, .train = true};

    if (gpu_small() == 2)               /* the kernels are those of the shapes above */
        skip();
    gpu_over_types(0, &l, all_beside);
}

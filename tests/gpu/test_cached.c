/*
 * Attention against a cache, GPU against CPU: prompts, single rows, both mixed, all flags.
 *
 * Bounds: as in test_attention.c; new keys and values are copies, so exact.
 */
#include "tests/gpu/attention_pair.h"

enum { SEGS = 5, N_SEQ = 6 };

struct shape {
    const char *name;
    int64_t     n_head, n_kv, dim;
    int64_t     past[SEGS], fresh[SEGS];        /* of each segment; fresh END ends */
    int64_t     window, reach, n_bucket, capacity;
    bool        slopes;
};

static const struct shape shapes[] = {
    {"first row", 2, 2, 64, {0}, {1, END}, .capacity = 8},
    {"one row", 4, 4, 64, {1000}, {1, END}, .capacity = 1001},
    {"one row 128", 8, 2, 128, {777}, {1, END}, .capacity = 1024},
    {"long row", 2, 1, 128, {9000}, {1, END}, .capacity = 9100},
    {"one key head", 9, 1, 64, {300}, {1, END}, .capacity = 512},
    {"share 71", 71, 1, 64, {300}, {1, END}, .capacity = 512},
    {"96", 2, 2, 96, {300, 2}, {1, 1, END}, .capacity = 512, .slopes = true},
    {"80", 2, 2, 80, {65, 2}, {1, 1, END}, .capacity = 70},
    {"33", 2, 2, 33, {65, 2}, {1, 2, END}, .capacity = 70},
    {"20", 2, 1, 20, {65, 2}, {1, 2, END}, .capacity = 70},
    {"256", 4, 2, 256, {650, 2}, {1, 1, END}, .capacity = 700},
    {"many rows", 4, 2, 64, {5, 100, 0, 63, 64}, {1, 1, 1, 1, 1}, .capacity = 128},
    {"slopes", 4, 4, 64, {500, 20}, {2, 1, END}, .capacity = 512, .slopes = true},
    {"window", 4, 4, 64, {500, 20}, {2, 1, END}, .capacity = 512, .window = 33},
    {"window, rows alone", 4, 2, 64, {500, 20}, {1, 1, END}, .capacity = 512, .window = 33},
    {"rows of 4 parts", 32, 8, 128, {230}, {1, END}, .capacity = 256},
    {"rows of 8 parts", 20, 1, 96, {460, 300}, {1, 1, END}, .capacity = 512, .slopes = true},
    {"parts of many tiles", 12, 2, 128, {1900}, {1, END}, .capacity = 2000},
    {"rows alone", 8, 2, 128, {0, 64, 255, 256, 1}, {1, 1, 1, 1, 1}, .capacity = 300},
    {"rows alone 36", 6, 6, 36, {0, 64, 255, 256, 1}, {1, 1, 1, 1, 1}, .capacity = 300},
    {"buckets", 4, 4, 64, {500, 20}, {1, 1, END}, .capacity = 512, .reach = 128,
     .n_bucket = 32},
    {"prompt", 4, 4, 64, {0}, {300, END}, .capacity = 512},
    {"prompt 128", 8, 2, 128, {0, 0}, {100, 30, END}, .capacity = 128},
    {"prompt after rows", 4, 2, 64, {100, 7}, {100, 1, END}, .capacity = 256, .slopes = true},
    {"prompt window", 4, 2, 96, {100}, {150, END}, .capacity = 256, .window = 70},
    {"prompt buckets", 4, 4, 64, {13, 0}, {20, 64, END}, .capacity = 256, .reach = 16,
     .n_bucket = 32},
    {"prompt 33", 2, 2, 33, {9}, {75, END}, .capacity = 90},
    {"prompt 256", 2, 1, 256, {9}, {75, END}, .capacity = 90},
};

struct sides {
    struct both qkv, k, v, out, start, first, past;
    struct bias_pair bias;
    int64_t n, n_seg, max_keys;
};

static void arrays(struct gpu *g, struct sides *s, const struct shape *sh)
{
    int64_t cache = N_SEQ * sh->n_kv * sh->capacity * sh->dim;
    int32_t start[SEGS + 1] = {0}, first[SEGS], past[SEGS];

    for (; s->n_seg < SEGS && sh->fresh[s->n_seg] != END; s->n_seg++) {
        int64_t i = s->n_seg, keys = sh->past[i] + sh->fresh[i];

        start[i + 1] = start[i] + (int32_t)sh->fresh[i];
        /* no two alike, not in order */
        first[i] = (int32_t)((i == 3 ? 0 : i == 4 ? 2 : (2 * i + 1) % N_SEQ) * sh->capacity);
        past[i] = (int32_t)sh->past[i];
        s->max_keys = keys > s->max_keys ? keys : s->max_keys;
    }
    s->n = start[s->n_seg];
    s->start = gpu_ints(g, start, s->n_seg + 1);
    s->first = gpu_ints(g, first, s->n_seg);
    s->past = gpu_ints(g, past, s->n_seg);
    s->qkv = gpu_random(g, g->type, s->n * (sh->n_head + 2 * sh->n_kv) * sh->dim, 1.0f);
    s->k = gpu_random(g, g->type, cache, 1.0f);
    s->v = gpu_random(g, g->type, cache, 1.0f);
    s->out = gpu_blank(g, g->type, s->n * sh->n_head * sh->dim);
    s->bias = attention_bias(g, sh->n_head, sh->slopes, sh->reach, sh->n_bucket);
}

static struct op_cached operation(const struct gpu *g, const struct sides *s,
                                  const struct shape *sh, bool on_gpu)
{
    size_t size = on_gpu ? ckpt_dtype_size(g->type) : sizeof(float);
    int64_t d = sh->dim, H = sh->n_head, K = sh->n_kv;
    unsigned char *base = SIDE(s->qkv);

    return (struct op_cached){
        .out = SIDE(s->out), .k_cache = SIDE(s->k), .v_cache = SIDE(s->v),
        .in = {.q = base, .k = base + (size_t)(H * d) * size,
               .v = base + (size_t)((H + K) * d) * size, .row_stride = (H + 2 * K) * d,
               .q_head = d, .kv_head = d},
        .seg_start = SIDE(s->start), .seg_first = SIDE(s->first), .seg_past = SIDE(s->past),
        .slopes = SIDE(s->bias.slopes),
        .rel_bias = {.table = SIDE(s->bias.table), .bucket = SIDE(s->bias.bucket),
                     .reach = sh->reach, .n_bucket = sh->n_bucket},
        .n = s->n, .n_seg = s->n_seg, .capacity = N_SEQ * sh->capacity, .max_keys = s->max_keys,
        .n_head = H, .n_kv = K, .dim = d, .window = sh->window,
        .scale = 1.0f / sqrtf((float)d),
    };
}

/* The arrays of a rotation before attention. */
struct rotary {
    struct both qkv, table, positions, q_norm, k_norm, stats;
};

enum { POSITIONS = 64 };

static struct rotary rotary_arrays(struct gpu *g, int64_t n, const struct shape *sh)
{
    struct rotary t = {.qkv = gpu_random(g, g->type, n * (sh->n_head + 2 * sh->n_kv) * sh->dim,
                                         1.0f)};
    int32_t at[512];

    t.table = gpu_random(g, CKPT_F32, POSITIONS * sh->dim, 0.7f);
    for (int64_t i = 0; i < n; i++)
        at[i] = (int32_t)(i * 7 % POSITIONS);
    t.positions = gpu_ints(g, at, n);
    t.q_norm = gpu_random(g, g->type, sh->dim, 1.0f);
    t.k_norm = gpu_random(g, g->type, sh->dim, 1.0f);
    t.stats = gpu_blank(g, CKPT_F32, n * (sh->n_head + sh->n_kv));
    return t;
}

/* Rotate the rows that attention reads, in place or with norms by heads from others. */
static struct op_rope rotation(const struct op_cached *op, const struct rotary *t, bool norms,
                               bool on_gpu, size_t size)
{
    struct op_rope rope = {.in = op->in, .out = op->in, .table = SIDE(t->table),
                           .positions = SIDE(t->positions), .n = op->n, .n_head = op->n_head,
                           .n_kv = op->n_kv, .dim = op->dim, .rotary_dim = op->dim, .eps = 1e-6f};
    unsigned char *base = SIDE(t->qkv);

    if (norms) {
        rope.in.q = base;
        rope.in.k = base + (size_t)(op->n_head * op->dim) * size;
        rope.in.v = base + (size_t)((op->n_head + op->n_kv) * op->dim) * size;
        rope.q_norm = SIDE(t->q_norm);
        rope.k_norm = SIDE(t->k_norm);
        rope.stats = SIDE(t->stats);
    }
    return rope;
}

struct cached_case {
    const struct shape *shape;
    bool rope, norms;
};

static void cached_once(struct gpu *g, const void *of, bool cpu, struct gpu_results *r)
{
    const struct cached_case *c = of;
    const char *name = c->shape->name;
    double bound = attention_bound(g);
    struct rotary t = {0};
    struct sides s = {0};

    arrays(g, &s, c->shape);
    if (c->rope)
        t = rotary_arrays(g, s.n, c->shape);
    for (int on_gpu = !cpu; on_gpu < 2; on_gpu++) {
        struct device *dev = on_gpu ? g->gpu : g->cpu;
        struct op_cached op = operation(g, &s, c->shape, on_gpu);
        struct op_rope rope = rotation(&op, &t, c->norms, on_gpu,
                                       on_gpu ? ckpt_dtype_size(g->type) : sizeof(float));

        op.rope = c->rope ? &rope : NULL;
        dev->ops->attention_cached(dev, &op);
    }
    /* Rotated queries and keys are rounded: scores differ by a last place of each.  Others, and
     * values, are copied as they are. */
    gpu_result(r, &s.out, c->rope && g->type != CKPT_F32 ? 4 * bound : bound, "%s: out", name);
    gpu_result(r, &s.k, c->rope ? bound : 0, "%s: keys", name);
    gpu_result(r, &s.v, 0, "%s: values", name);
}

/* By the products of queries and keys. */
static bool left_out(const struct shape *sh)
{
    int64_t work = 0;

    for (int i = 0; i < SEGS && sh->fresh[i] != END; i++)
        work += sh->fresh[i] * (sh->past[i] + sh->fresh[i]) * sh->n_head * sh->dim;
    return gpu_left_out(work / 8);
}

static void all_shapes(enum ckpt_dtype type)
{
    struct op_limits l = {.n = 512, .n_rows = 1, .max_doc = 512, .max_keys = 9100, .dim = 4544,
                          .n_head = 71, .n_kv = 1, .head_dim = 256, .ff = 1024, .vocab = 64};
    struct gpu g;

    gpu_open(&g, type, &l);
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        struct cached_case c = {.shape = &shapes[i]};

        if (left_out(c.shape))
            continue;
        gpu_check(&g, cached_once, &c);
        c.rope = c.shape->dim % 2 == 0;
        if (c.rope)
            gpu_check(&g, cached_once, &c);
        c.norms = true;
        if (c.rope)
            gpu_check(&g, cached_once, &c);
    }
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

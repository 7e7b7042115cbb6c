/*
 * Attention against a cache, GPU against CPU: prompts, single rows, both mixed, all flags.
 *
 * Bounds: as in test_attention.c; new keys and values are copies, so exact.
 */
#include "tests/gpu/gpu.h"

enum { SEGS = 5, N_SEQ = 6 };

struct shape {
    const char *name;
    int64_t     n_head, n_kv, dim;
    int64_t     past[SEGS], fresh[SEGS];        /* of each segment; fresh -1 ends */
    int64_t     window, reach, n_bucket, capacity;
    bool        slopes;
};

#define END -1

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
    {"prompt behind", 4, 2, 64, {100, 7}, {100, 1, END}, .capacity = 256, .slopes = true},
    {"prompt window", 4, 2, 96, {100}, {150, END}, .capacity = 256, .window = 70},
    {"prompt buckets", 4, 4, 64, {13, 0}, {20, 64, END}, .capacity = 256, .reach = 16,
     .n_bucket = 32},
    {"prompt 33", 2, 2, 33, {9}, {75, END}, .capacity = 90},
    {"prompt 256", 2, 1, 256, {9}, {75, END}, .capacity = 90},
};

struct sides {
    struct both qkv, k, v, out, table, slopes, start, seq, past, bucket;
    int64_t n, n_seg, max_keys;
};

static void arrays(struct gpu *g, struct sides *s, const struct shape *sh)
{
    int64_t cache = N_SEQ * sh->n_kv * sh->capacity * sh->dim;
    int32_t start[SEGS + 1] = {0}, seq[SEGS], past[SEGS], bucket[512];
    float slopes[128];

    for (; s->n_seg < SEGS && sh->fresh[s->n_seg] != END; s->n_seg++) {
        int64_t i = s->n_seg, keys = sh->past[i] + sh->fresh[i];

        start[i + 1] = start[i] + (int32_t)sh->fresh[i];
        seq[i] = (int32_t)((2 * i + 1) % N_SEQ);
        seq[i] = i == 3 ? 0 : i == 4 ? 2 : seq[i];      /* no two alike, not in order */
        past[i] = (int32_t)sh->past[i];
        s->max_keys = keys > s->max_keys ? keys : s->max_keys;
    }
    s->n = start[s->n_seg];
    s->start = gpu_ints(g, start, s->n_seg + 1);
    s->seq = gpu_ints(g, seq, s->n_seg);
    s->past = gpu_ints(g, past, s->n_seg);
    s->qkv = gpu_random(g, g->type, s->n * (sh->n_head + 2 * sh->n_kv) * sh->dim, 1.0f);
    s->k = gpu_random(g, g->type, cache, 1.0f);
    s->v = gpu_random(g, g->type, cache, 1.0f);
    s->out = gpu_blank(g, g->type, s->n * sh->n_head * sh->dim);
    for (int64_t h = 0; h < sh->n_head; h++)
        slopes[h] = powf(0.5f, (float)(h + 1));
    if (sh->slopes)
        s->slopes = gpu_values(g, CKPT_F32, slopes, sh->n_head);
    for (int64_t i = 0; i <= 2 * sh->reach; i++)
        bucket[i] = (int32_t)(i * sh->n_bucket / (2 * sh->reach + 1));
    if (sh->n_bucket) {
        s->bucket = gpu_ints(g, bucket, 2 * sh->reach + 1);
        s->table = gpu_random(g, g->type, sh->n_bucket * sh->n_head, 1.0f);
    }
}

#define SIDE(b) (on_gpu ? (b).gpu : (b).cpu)

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
        .seg_start = SIDE(s->start), .seg_seq = SIDE(s->seq), .seg_past = SIDE(s->past),
        .slopes = SIDE(s->slopes),
        .rel_bias = {.table = SIDE(s->table), .bucket = SIDE(s->bucket), .reach = sh->reach,
                     .n_bucket = sh->n_bucket},
        .n = s->n, .n_seg = s->n_seg, .capacity = sh->capacity, .max_keys = s->max_keys,
        .n_head = H, .n_kv = K, .dim = d, .window = sh->window,
        .scale = 1.0f / sqrtf((float)d),
    };
}

static void one(struct gpu *g, const struct shape *sh)
{
    double bound = g->type == CKPT_F32 ? 1e-5 : gpu_bound(g->type);
    struct sides s = {0};
    struct op_cached cpu, gpu;
    void *was, *now;

    arrays(g, &s, sh);
    cpu = operation(g, &s, sh, false);
    gpu = operation(g, &s, sh, true);
    g->cpu->ops->attention_cached(g->cpu, &cpu);
    g->gpu->ops->attention_cached(g->gpu, &gpu);
    gpu_close_to(g, sh->name, &s.out, bound);
    gpu_close_to(g, sh->name, &s.k, 0);         /* new keys and values are copied as they are */
    gpu_close_to(g, sh->name, &s.v, 0);
    if (!gpu_small()) {
        was = gpu_bytes(g, &s.out);
        g->gpu->ops->attention_cached(g->gpu, &gpu);
        now = gpu_bytes(g, &s.out);
        if (memcmp(was, now, (size_t)s.out.n * ckpt_dtype_size(g->type)))
            fail_msg("%s: a second run differs", sh->name);
        free(was);
        free(now);
    }
    gpu_release(g);
}

/* By the products of queries and keys. */
static bool left_out(const struct shape *sh)
{
    int64_t work = 0;

    for (int i = 0; i < SEGS && sh->fresh[i] != END; i++)
        work += sh->fresh[i] * (sh->past[i] + sh->fresh[i]) * sh->n_head * sh->dim;
    return gpu_left_out(work / 8);
}

/* The same of rows that are rotated first, with norms by heads or in place. */
static void one_turned(struct gpu *g, const struct shape *sh, bool norms)
{
    enum { POSITIONS = 64 };
    size_t size = ckpt_dtype_size(g->type);
    struct both raw, table, positions, q_norm, k_norm;
    struct op_cached op[2];
    struct op_rope rope[2];
    struct sides s = {0};
    int32_t at[512];
    void *was, *now;

    arrays(g, &s, sh);
    raw = gpu_random(g, g->type, s.n * (sh->n_head + 2 * sh->n_kv) * sh->dim, 1.0f);
    table = gpu_random(g, CKPT_F32, POSITIONS * sh->dim, 0.7f);
    for (int64_t i = 0; i < s.n; i++)
        at[i] = (int32_t)(i * 7 % POSITIONS);
    positions = gpu_ints(g, at, s.n);
    q_norm = gpu_random(g, g->type, sh->dim, 1.0f);
    k_norm = gpu_random(g, g->type, sh->dim, 1.0f);
    for (int on_gpu = 0; on_gpu < 2; on_gpu++) {
        size_t each = on_gpu ? size : sizeof(float);
        unsigned char *base = SIDE(raw);

        op[on_gpu] = operation(g, &s, sh, on_gpu);
        rope[on_gpu] = (struct op_rope){
            .in = op[on_gpu].in, .out = op[on_gpu].in, .table = SIDE(table),
            .positions = SIDE(positions), .n = s.n, .n_head = sh->n_head, .n_kv = sh->n_kv,
            .dim = sh->dim, .rotary_dim = sh->dim, .eps = 1e-6f};
        if (norms) {
            rope[on_gpu].in.q = base;
            rope[on_gpu].in.k = base + (size_t)(sh->n_head * sh->dim) * each;
            rope[on_gpu].in.v = base + (size_t)((sh->n_head + sh->n_kv) * sh->dim) * each;
            rope[on_gpu].q_norm = SIDE(q_norm);
            rope[on_gpu].k_norm = SIDE(k_norm);
            rope[on_gpu].stats = (on_gpu ? g->gpu : g->cpu)->ops->alloc(
                on_gpu ? g->gpu : g->cpu, (size_t)(s.n * (sh->n_head + sh->n_kv)) * sizeof(float));
        }
        op[on_gpu].rope = &rope[on_gpu];
        (on_gpu ? g->gpu : g->cpu)->ops->attention_cached(on_gpu ? g->gpu : g->cpu, &op[on_gpu]);
    }
    /* Turned queries and keys are rounded here: scores differ by a last place of each. */
    gpu_close_to(g, sh->name, &s.out, g->type == CKPT_F32 ? 1e-5 : 4 * gpu_bound(g->type));
    gpu_close_to(g, sh->name, &s.k, g->type == CKPT_F32 ? 1e-5 : gpu_bound(g->type));
    gpu_close_to(g, sh->name, &s.v, 0);
    if (norms && !gpu_small()) {
        was = gpu_bytes(g, &s.out);
        g->gpu->ops->attention_cached(g->gpu, &op[1]);
        now = gpu_bytes(g, &s.out);
        if (memcmp(was, now, (size_t)s.out.n * size))
            fail_msg("%s: a second run differs", sh->name);
        free(was);
        free(now);
    }
    g->cpu->ops->free(g->cpu, rope[0].stats);
    g->gpu->ops->free(g->gpu, rope[1].stats);
    gpu_release(g);
}

static void all_shapes(enum ckpt_dtype type)
{
    struct op_limits l = {.n = 512, .n_rows = 1, .max_doc = 512, .max_keys = 9100, .dim = 4544,
                          .n_head = 71, .n_kv = 1, .head_dim = 256, .ff = 1024, .vocab = 64};
    struct gpu g;

    gpu_open(&g, type, &l);
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        if (!left_out(&shapes[i]))
            one(&g, &shapes[i]);
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        if (shapes[i].dim % 2 == 0 && !left_out(&shapes[i])) {
            one_turned(&g, &shapes[i], false);
            one_turned(&g, &shapes[i], true);
        }
    gpu_close(&g);
}

TEST(f32)
{
    all_shapes(CKPT_F32);
}

TEST(bf16)
{
    all_shapes(CKPT_BF16);
}

TEST(f16)
{
    if (gpu_n_types() < 3)
        skip();
    all_shapes(CKPT_F16);
}

/* The embedding on a GPU against the CPU: every field, ids that are rare, frequent and all
 * alike.  Dropout and jitter. */
#include "tests/gpu/gpu.h"

enum { V = 501, P = 300, TYPES = 3, RANK = 5, TOKENS = 40, NO_GRAD = 7 };

enum { POS = 1, TYPE = 2, LAYER = 4, RMS = 8, LORA = 16, OWN = 32, DROP = 64, GATHER = 128,
       FROZEN = 256, ODD_TABLE = 512, TYPE_ZERO = 1024 };

/* How ids are spread: evenly; most of them a few; all the same. */
enum spread { EVEN, FEW, ONE };

struct embed_case {
    int64_t n, dim;
    enum spread how;
    unsigned opts;
};

struct data {
    struct both out, stats, dout, table, dtable, pos, dpos, token_type, w, b, dw, db, la, lb, dla,
        dlb, tokens, dtokens, ids, positions, token_type_ids, token_ids,
        drop_rows;
};

static struct both draw_ids(struct gpu *g, int64_t n, int64_t limit, enum spread how)
{
    float *at = malloc((size_t)n * sizeof *at + 1);
    int32_t *id = malloc((size_t)n * sizeof *id + 1);
    struct both b;

    gpu_normal(g, at, n, 1);
    for (int64_t i = 0; i < n; i++) {
        int64_t x = (int64_t)(fabsf(at[i]) * 1e6f);

        id[i] = (int32_t)(how == ONE ? limit - 1 : how == FEW && x % 4 ? x % 9 : x % limit);
    }
    b = gpu_ints(g, id, n);
    free(at);
    free(id);
    return b;
}

static void draw(struct data *d, struct gpu *g, const struct embed_case *c)
{
    int64_t n = c->n, dim = c->dim;
    int32_t own[TOKENS];

    *d = (struct data){.out = gpu_blank(g, g->type, n * dim), .stats = gpu_blank(g, CKPT_F32, 2 * n)};
    d->dout = gpu_random(g, g->type, n * dim, 1);
    d->table = gpu_random(g, g->type, V * dim + 1, 1);
    d->dtable = gpu_random(g, c->opts & GATHER ? g->type : CKPT_F32, V * dim + 1, 1);
    d->pos = gpu_random(g, g->type, P * dim, 1);
    d->dpos = gpu_random(g, CKPT_F32, P * dim, 1);
    d->token_type = gpu_random(g, g->type, TYPES * dim, 1);
    d->w = gpu_random(g, g->type, dim, 1);
    d->b = gpu_random(g, g->type, dim, 1);
    d->dw = gpu_random(g, CKPT_F32, dim, 1);
    d->db = gpu_random(g, CKPT_F32, dim, 1);
    d->la = gpu_random(g, g->type, RANK * V, 1);
    d->lb = gpu_random(g, g->type, dim * RANK, 1);
    d->dla = gpu_random(g, CKPT_F32, RANK * V, 1);
    d->dlb = gpu_random(g, CKPT_F32, dim * RANK, 1);
    d->tokens = gpu_random(g, g->type, TOKENS * dim, 1);
    d->dtokens = gpu_random(g, CKPT_F32, TOKENS * dim, 1);
    d->ids = draw_ids(g, n, V, c->how);
    d->positions = draw_ids(g, n, P, c->how);
    d->token_type_ids = draw_ids(g, n, TYPES, EVEN);
    for (int i = 0; i < TOKENS; i++)
        own[i] = (V - 1) - i * 9 % V;
    own[3] = NO_GRAD;
    d->token_ids = gpu_ints(g, own, TOKENS);
    d->drop_rows = gpu_drop_rows(g, n);
}

#define AT(v) (s ? (v).gpu : (v).cpu)
static void run(struct gpu *g, const struct embed_case *c, const struct data *d, int s)
{
    unsigned opts = c->opts;
    struct device *dev = s ? g->gpu : g->cpu;
    size_t odd = opts & ODD_TABLE ? 1 : 0, wide = s ? ckpt_dtype_size(g->type) : sizeof(float);
    bool frozen = opts & FROZEN;
    struct op_norm norm = {opts & RMS ? OP_NORM_RMS : OP_NORM_LAYER, 1e-5f, AT(d->w),
                           opts & RMS ? NULL : AT(d->b), frozen ? NULL : AT(d->dw),
                           opts & RMS || frozen ? NULL : AT(d->db)};
    struct op_embed op = {
        .out = AT(d->out), .stats = AT(d->stats), .dout = AT(d->dout),
        .dtable = frozen ? NULL : (float *)AT(d->dtable) + odd,
        .table = (char *)AT(d->table) + odd * wide, .ids = AT(d->ids),
        .positions = AT(d->positions), .norm = opts & (LAYER | RMS) ? &norm : NULL,
        .n = c->n, .dim = c->dim, .vocab = V, .no_grad = NO_GRAD, .gather = opts & GATHER,
    };

    if (opts & POS) {
        op.pos = AT(d->pos);
        op.dpos = frozen ? NULL : AT(d->dpos);
    }
    if (opts & TYPE) {
        op.token_type = AT(d->token_type);
        op.token_type_ids = opts & TYPE_ZERO ? NULL : AT(d->token_type_ids);
    }
    if (opts & LORA)
        op.lora = (struct op_lora){.a = AT(d->la), .b = AT(d->lb), .da = AT(d->dla),
                                   .db = AT(d->dlb), .rank = RANK, .scale = 0.5f};
    if (opts & OWN) {
        op.tokens = AT(d->tokens);
        op.dtokens = AT(d->dtokens);
        op.token_ids = AT(d->token_ids);
        op.n_tokens = TOKENS;
    }
    if (opts & DROP)
        op.drop = (struct op_drop){0.1f, 4242, 9, AT(d->drop_rows)};
    dev->ops->embed_fwd(dev, &op);
    if (!(opts & TYPE) && !(opts & POS && op.norm))     /* those are forward only */
        dev->ops->embed_bwd(dev, &op);
}
#undef AT

static void embed_once(struct gpu *g, const void *of, bool cpu, struct gpu_results *r)
{
    const struct embed_case *c = of;
    /* a norm, a mask or a gather rounds the terms of sums */
    bool rounds = c->opts & (LAYER | RMS | DROP | GATHER);
    double bound = gpu_bound(g->type), sums = rounds ? fmax(GPU_SUM_BOUND, bound) : GPU_SUM_BOUND;
    struct data d;

    draw(&d, g, c);
    for (int s = !cpu; s < 2; s++)
        run(g, c, &d, s);
    gpu_result(r, &d.out, bound, "out");
    if (c->opts & (LAYER | RMS))
        gpu_result(r, &d.stats, GPU_SUM_BOUND, "stats");
    gpu_result(r, &d.dtable, sums, "dtable");
    gpu_result(r, &d.dpos, sums, "dpos");
    gpu_result(r, &d.dw, sums, "dw");
    gpu_result(r, &d.db, sums, "db");
    gpu_result(r, &d.dla, sums, "dA");
    gpu_result(r, &d.dlb, sums, "dB");
    gpu_result(r, &d.dtokens, sums, "dtokens");
}

static void check(struct gpu *g, int64_t n, int64_t dim, enum spread how, unsigned opts)
{
    if (!gpu_left_out(n * dim))
        gpu_check(g, embed_once, &(struct embed_case){n, dim, how, opts});
}

static const struct op_limits limits = {.n = 2500, .dim = 4096, .embed = 4096, .vocab = V,
                                        .lora_rank = RANK, .train = true};

static void shapes(struct gpu *g)
{
    static const int64_t shape[][2] = {{1, 1},    {1, 64},   {31, 7},   {32, 64},   {33, 100},
                                       {64, 8},   {65, 768}, {300, 72}, {2500, 64}, {200, 2048},
                                       {70, 4096}};

    for (size_t i = 0; i < sizeof shape / sizeof shape[0]; i++)
        for (int how = EVEN; how <= ONE; how++) {
            if (shape[i][1] > 1000 && how != FEW)
                continue;               /* drawing the values would take most of the time */
            check(g, shape[i][0], shape[i][1], (enum spread)how, 0);
            check(g, shape[i][0], shape[i][1], (enum spread)how, LAYER | DROP);
        }
}

static void fields(struct gpu *g)
{
    static const unsigned opts[] = {
        POS, POS | DROP, POS | FROZEN, TYPE, TYPE | TYPE_ZERO | POS, TYPE | POS | LAYER, LAYER,
        RMS, RMS | FROZEN, LORA, LORA | LAYER, LORA | RMS | DROP, OWN, OWN | LAYER,
        OWN | LORA | POS, OWN | LORA | LAYER | DROP, ODD_TABLE, ODD_TABLE | LAYER, DROP, FROZEN,
        FROZEN | LORA | OWN,
    };

    for (size_t i = 0; i < sizeof opts / sizeof opts[0]; i++) {
        check(g, 150, 96, FEW, opts[i]);
        if (gpu_small() < 2)
            check(g, 150, 50, EVEN, opts[i]);
    }
    check(g, 2500, 96, FEW, OWN | LORA | LAYER | DROP);         /* more than a slab */
    check(g, 0, 96, EVEN, LORA | LAYER);
}

/* The table is an activation, and so is its gradient. */
static void gathers(struct gpu *g)
{
    check(g, 60, 768, EVEN, GATHER);
    check(g, 60, 33, FEW, GATHER);
}

TEST(shapes) { gpu_over_types(0, &limits, shapes); }

TEST(fields) { gpu_over_types(0, &limits, fields); }

TEST(gathers) { gpu_over_types(0, &limits, gathers); }

/* Masks are the same words on both sides, so that each value is off by one rounding at most. */
static void masks(struct gpu *g)
{
    static const int64_t shape[][2] = {{1, 1}, {3, 7}, {5, 64}, {33, 1022}, {700, 1024}, {0, 8}};
    static const float ps[] = {0, 0.1f, 0.5f, 1};
    struct device *dev[2] = {g->cpu, g->gpu};

    for (size_t k = 0; k < sizeof shape / sizeof shape[0]; k++)
        for (int i = 0; i < 8; i++) {
            int64_t n = shape[k][0], width = shape[k][1];
            struct op_drop d = {ps[i % 4], 1234567890123456789u, 77, NULL};
            struct both x, rows;

            if (gpu_left_out(n * width))
                continue;
            x = gpu_random(g, g->type, n * width, 2);
            rows = gpu_drop_rows(g, n);
            for (int s = 0; s < 2; s++) {
                d.rows = s ? rows.gpu : rows.cpu;
                (i < 4 ? dev[s]->ops->drop : dev[s]->ops->jitter)(dev[s], s ? x.gpu : x.cpu, n,
                                                                  width, &d);
            }
            gpu_close_to(g, i < 4 ? "drop" : "jitter", &x, gpu_bound(g->type));
            gpu_release(g);
        }
}

TEST(masks) { gpu_over_types(0, NULL, masks); }

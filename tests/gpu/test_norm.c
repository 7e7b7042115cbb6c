/* Norms on a GPU against the CPU: both kinds, every field, widths from 1 to wider than a
 * team. */
#include "tests/gpu/gpu.h"

enum { ROWS = 1, ADD_OUT = 2, ADD_DX = 4, FROZEN = 8, SKEW = 16, DX_IS_DOUT = 32, DX_IS_ADD = 64,
       NO_BIAS = 128, DX_IS_OUT_ADD = 256, SUMMED = 512, FRESH = 1024 };

struct norm_case {
    enum op_norm_kind kind;
    int64_t n, n_x, dim;
    unsigned opts;
};

/* Weights that begin `skew` elements after an aligned address. */
static void *at(const struct both *b, int s, int64_t skew)
{
    if (s)
        return (char *)b->gpu + (size_t)skew * ckpt_dtype_size(b->type);
    return (float *)b->cpu + skew;
}

static void norm_once(struct gpu *g, const void *of, bool cpu, struct gpu_results *r)
{
    const struct norm_case *c = of;
    int64_t n = c->n, n_x = c->n_x, dim = c->dim, skew = c->opts & SKEW ? 1 : 0;
    bool bias = c->kind == OP_NORM_LAYER && !(c->opts & NO_BIAS), fresh = c->opts & FRESH;
    double bound = gpu_bound(g->type);
    int32_t *index = malloc((size_t)n * sizeof *index + 1);
    struct both rows, x = gpu_random(g, g->type, n_x * dim, 1);
    struct both w = gpu_random(g, g->type, dim + 1, 1), b = gpu_random(g, g->type, dim + 1, 1);
    struct both out = gpu_blank(g, g->type, n * dim), stats = gpu_blank(g, CKPT_F32, 2 * n);
    struct both dout = gpu_random(g, g->type, n * dim, 1);
    struct both dout_add = gpu_random(g, g->type, n * dim, 1);
    struct both dx_add = gpu_random(g, g->type, n_x * dim, 1);
    struct both dx = gpu_blank(g, g->type, n_x * dim);
    struct both dw = gpu_random(g, CKPT_F32, dim, 1), db = gpu_random(g, CKPT_F32, dim, 1);
    struct both dx_sum = fresh ? gpu_blank(g, CKPT_F32, dim) : gpu_random(g, CKPT_F32, dim, 1);
    struct both add_sum = fresh ? gpu_blank(g, CKPT_F32, dim) : gpu_random(g, CKPT_F32, dim, 1);

    if (c->opts & DX_IS_DOUT)
        dx = dout;
    if (c->opts & DX_IS_ADD)
        dx = dx_add;
    if (c->opts & DX_IS_OUT_ADD)
        dx = dout_add;
    for (int64_t i = 0; i < n; i++)         /* rising, the last one is the last row */
        index[i] = (int32_t)((i + 1) * n_x / n - 1);
    rows = gpu_ints(g, index, n);
    free(index);
    for (int s = !cpu; s < 2; s++) {
        struct device *dev = s ? g->gpu : g->cpu;
#define AT(v) (s ? (v).gpu : (v).cpu)
        struct op_rownorm op = {
            .out = AT(out), .stats = AT(stats), .dx = AT(dx), .x = AT(x), .dout = AT(dout),
            .dout_add = c->opts & ADD_OUT ? AT(dout_add) : NULL,
            .dx_add = c->opts & ADD_DX ? AT(dx_add) : NULL,
            .rows = c->opts & ROWS ? AT(rows) : NULL, .n = n, .n_x = n_x, .dim = dim,
            .dx_sum = c->opts & SUMMED ? AT(dx_sum) : NULL, .fresh = fresh,
            .add_sum = c->opts & SUMMED && c->opts & ADD_DX ? AT(add_sum) : NULL,
            .norm = {c->kind, 1e-5f, at(&w, s, skew), bias ? at(&b, s, skew) : NULL,
                     c->opts & FROZEN ? NULL : AT(dw), c->opts & FROZEN || !bias ? NULL : AT(db)},
        };

        dev->ops->norm_fwd(dev, &op);
        dev->ops->norm_bwd(dev, &op);
#undef AT
    }
    gpu_result(r, &out, bound, "out");
    gpu_result(r, &stats, GPU_SUM_BOUND, "stats");
    gpu_result(r, &dx, bound, "dx");
    gpu_result(r, &dw, GPU_SUM_BOUND, "dw");
    gpu_result(r, &db, GPU_SUM_BOUND, "db");
    gpu_result(r, &dx_sum, fmax(bound, GPU_SUM_BOUND), "dx_sum");   /* of rounded values */
    gpu_result(r, &add_sum, GPU_SUM_BOUND, "add_sum");
}

/* A case with each kind of norm. */
static void check(struct gpu *g, int64_t n, int64_t n_x, int64_t dim, unsigned opts)
{
    const struct norm_case layer = {OP_NORM_LAYER, n, n_x, dim, opts},
                           rms = {OP_NORM_RMS, n, n_x, dim, opts};

    if (gpu_left_out(n * dim))
        return;
    gpu_check(g, norm_once, &layer);
    gpu_check(g, norm_once, &rms);
}

static const struct op_limits limits = {.n = 4096, .dim = 16400, .vocab = 64, .train = true};

/* Every team, rows narrower than it holds, rows that are no packs, more rows than blocks. */
static void shapes(struct gpu *g)
{
    static const int64_t shape[][2] = {{1, 3},     {3, 5},      {2500, 64}, {37, 100},  {1, 768},
                                       {1500, 768}, {9, 1001},  {700, 1536}, {600, 2048}, {5, 3000},
                                       {300, 4096}, {140, 8192}, {3, 12288}, {2, 16400}};
    static const unsigned opts[] = {0, SUMMED | ADD_DX | DX_IS_ADD,
                                    SUMMED | ADD_DX | DX_IS_ADD | FRESH};

    for (size_t i = 0; i < sizeof shape / sizeof shape[0]; i++)
        for (size_t k = 0; k < sizeof opts / sizeof opts[0]; k++)
            check(g, shape[i][0], shape[i][0], shape[i][1], opts[k]);
}

static void fields(struct gpu *g)
{
    static const unsigned opts[] = {ADD_OUT, ADD_DX, ADD_OUT | ADD_DX, FROZEN, FROZEN | ADD_DX,
                                    SKEW | ADD_DX | ADD_OUT, DX_IS_DOUT, ADD_DX | DX_IS_ADD,
                                    NO_BIAS, ADD_OUT | DX_IS_OUT_ADD, SKEW | FROZEN,
                                    SUMMED, SUMMED | FROZEN | ADD_DX, SUMMED | SKEW | ADD_DX};
    int64_t rows = gpu_small() ? 25 : 200;

    for (size_t i = 0; i < sizeof opts / sizeof opts[0]; i++) {
        check(g, rows, rows, 1024, opts[i]);
        check(g, 200, 200, 70, opts[i]);
    }
}

/* Only some rows are normalised: the gradients of the others are 0. */
static void rows(struct gpu *g)
{
    check(g, 100, 333, 768, ROWS);
    check(g, 100, 100, 768, ROWS);
    check(g, 1, 50, 33, ROWS | ADD_OUT);
    check(g, 0, 0, 64, 0);
    check(g, 0, 40, 64, ROWS);
}

TEST(shapes) { gpu_over_types(0, &limits, shapes); }

TEST(fields) { gpu_over_types(0, &limits, fields); }

TEST(rows) { gpu_over_types(0, &limits, rows); }

/* Norms on a GPU against the CPU: both kinds, every field, widths from 1 to wider than a team. */
#include "tests/gpu/gpu.h"

/* What is f32 on both sides starts from the same rounded values: sums of up to some thousand
 * products whose order differs. */
#define SUM_BOUND 2e-5

enum { ROWS = 1, ADD_OUT = 2, ADD_DX = 4, FROZEN = 8, SKEW = 16, DX_IS_DOUT = 32, DX_IS_ADD = 64,
       NO_BIAS = 128, DX_IS_OUT_ADD = 256, SUMMED = 512, FRESH = 1024 };

struct run {
    struct gpu *g;
    enum op_norm_kind kind;
    int64_t n, n_x, dim;
    unsigned opts;
    void   *bytes[5];               /* dx, dw, db, dx_sum, add_sum of the GPU */
    size_t  size[5];
};

/* Weights that begin `skew` elements behind an aligned place. */
static void *at(const struct both *b, int s, int64_t skew)
{
    if (s)
        return (char *)b->gpu + (size_t)skew * ckpt_dtype_size(b->type);
    return (float *)b->cpu + skew;
}

static void keep(struct run *r, int i, const struct both *b)
{
    r->bytes[i] = gpu_bytes(r->g, b);
    r->size[i] = (size_t)b->n * ckpt_dtype_size(b->type);
}

static void one(struct run *r)
{
    struct gpu *g = r->g;
    int64_t n = r->n, n_x = r->n_x, dim = r->dim, skew = r->opts & SKEW ? 1 : 0;
    bool bias = r->kind == OP_NORM_LAYER && !(r->opts & NO_BIAS);
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
    bool fresh = r->opts & FRESH;
    struct both left = fresh ? gpu_blank(g, CKPT_F32, dim) : gpu_random(g, CKPT_F32, dim, 1);
    struct both came = fresh ? gpu_blank(g, CKPT_F32, dim) : gpu_random(g, CKPT_F32, dim, 1);

    if (r->opts & DX_IS_DOUT)
        dx = dout;
    if (r->opts & DX_IS_ADD)
        dx = dx_add;
    if (r->opts & DX_IS_OUT_ADD)
        dx = dout_add;
    for (int64_t i = 0; i < n; i++)         /* rising, the last one is the last row */
        index[i] = (int32_t)((i + 1) * n_x / n - 1);
    rows = gpu_ints(g, index, n);
    for (int s = 0; s < 2; s++) {
        struct device *dev = s ? g->gpu : g->cpu;
#define AT(v) (s ? (v).gpu : (v).cpu)
        struct op_rownorm op = {
            .out = AT(out), .stats = AT(stats), .dx = AT(dx), .x = AT(x), .dout = AT(dout),
            .dout_add = r->opts & ADD_OUT ? AT(dout_add) : NULL,
            .dx_add = r->opts & ADD_DX ? AT(dx_add) : NULL,
            .rows = r->opts & ROWS ? AT(rows) : NULL, .n = n, .n_x = n_x, .dim = dim,
            .dx_sum = r->opts & SUMMED ? AT(left) : NULL, .fresh = fresh,
            .add_sum = r->opts & SUMMED && r->opts & ADD_DX ? AT(came) : NULL,
            .norm = {r->kind, 1e-5f, at(&w, s, skew), bias ? at(&b, s, skew) : NULL,
                     r->opts & FROZEN ? NULL : AT(dw), r->opts & FROZEN || !bias ? NULL : AT(db)},
        };

        dev->ops->norm_fwd(dev, &op);
        dev->ops->norm_bwd(dev, &op);
#undef AT
    }
    gpu_close_to(g, "out", &out, bound);
    gpu_close_to(g, "stats", &stats, SUM_BOUND);
    gpu_close_to(g, "dx", &dx, bound);
    gpu_close_to(g, "dw", &dw, SUM_BOUND);
    gpu_close_to(g, "db", &db, SUM_BOUND);
    keep(r, 0, &dx);
    keep(r, 1, &dw);
    keep(r, 2, &db);
    gpu_close_to(g, "dx_sum", &left, fmax(bound, SUM_BOUND));   /* of what was rounded */
    gpu_close_to(g, "add_sum", &came, SUM_BOUND);
    keep(r, 3, &left);
    keep(r, 4, &came);
    free(index);
    gpu_release(g);
}

/* A case twice: close to the CPU, and the same bits again. */
static void check(struct gpu *g, enum op_norm_kind kind, int64_t n, int64_t n_x, int64_t dim,
                  unsigned opts)
{
    uint64_t draws = g->draws;
    struct run a = {.g = g, .kind = kind, .n = n, .n_x = n_x, .dim = dim, .opts = opts}, b = a;

    if (gpu_left_out(n * dim))
        return;
    one(&a);
    if (!gpu_small()) {
        g->draws = draws;
        one(&b);
    }
    for (int i = 0; i < 5; i++) {
        if (b.bytes[i])
            assert_memory_equal(a.bytes[i], b.bytes[i], a.size[i]);
        free(a.bytes[i]);
        free(b.bytes[i]);
    }
}

static void over_types(void (*test)(struct gpu *g))
{
    struct op_limits limits = {.n = 4096, .dim = 16400, .vocab = 64, .train = true};

    for (int t = 0; t < gpu_n_types(); t++) {
        struct gpu g;

        gpu_open(&g, gpu_types[t], &limits);
        test(&g);
        gpu_close(&g);
    }
}

/* Every team, narrower rows than it holds, rows that are no packs, more rows than blocks. */
static void shapes(struct gpu *g)
{
    static const int64_t shape[][2] = {{1, 3},     {3, 5},      {2500, 64}, {37, 100},  {1, 768},
                                       {1500, 768}, {9, 1001},  {700, 1536}, {600, 2048}, {5, 3000},
                                       {300, 4096}, {140, 8192}, {3, 12288}, {2, 16400}};

    for (size_t i = 0; i < sizeof shape / sizeof shape[0]; i++)
        for (int kind = 0; kind < 2; kind++)
            for (unsigned opts = 0; opts < 3; opts++)
                check(g, kind ? OP_NORM_RMS : OP_NORM_LAYER, shape[i][0], shape[i][0],
                      shape[i][1], !opts ? 0 : SUMMED | ADD_DX | DX_IS_ADD | (opts > 1 ? FRESH : 0));
}

static void fields(struct gpu *g)
{
    static const unsigned opts[] = {ADD_OUT, ADD_DX, ADD_OUT | ADD_DX, FROZEN, FROZEN | ADD_DX,
                                    SKEW | ADD_DX | ADD_OUT, DX_IS_DOUT, ADD_DX | DX_IS_ADD,
                                    NO_BIAS, ADD_OUT | DX_IS_OUT_ADD, SKEW | FROZEN,
                                    SUMMED, SUMMED | FROZEN | ADD_DX, SUMMED | SKEW | ADD_DX};

    int64_t rows = gpu_small() ? 25 : 200;

    for (size_t i = 0; i < sizeof opts / sizeof opts[0]; i++)
        for (int kind = 0; kind < 2; kind++) {
            check(g, kind ? OP_NORM_RMS : OP_NORM_LAYER, rows, rows, 1024, opts[i]);
            check(g, kind ? OP_NORM_RMS : OP_NORM_LAYER, 200, 200, 70, opts[i]);
        }
}

/* Only some rows are normalised: the gradients of the others are 0. */
static void rows(struct gpu *g)
{
    for (int kind = 0; kind < 2; kind++) {
        enum op_norm_kind k = kind ? OP_NORM_RMS : OP_NORM_LAYER;

        check(g, k, 100, 333, 768, ROWS);
        check(g, k, 100, 100, 768, ROWS);
        check(g, k, 1, 50, 33, ROWS | ADD_OUT);
        check(g, k, 0, 0, 64, 0);
        check(g, k, 0, 40, 64, ROWS);
    }
}

TEST(shapes)
{
    over_types(shapes);
}

TEST(fields)
{
    over_types(fields);
}

TEST(rows)
{
    over_types(rows);
}

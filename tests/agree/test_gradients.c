/*
 * Every operation of the row, forward and backward, against its formula in f64.
 *
 * The formula of ops.h is written here once more, plainly and in f64.  The f32 operation's
 * output must agree with it, and the f32 backward with central differences of loss = sum of a
 * fixed random weight times each output, taken on the f64 formula: with a step of 1e-5 their
 * own error is below 1e-8, so tolerances are f32's own: TOL times the array's largest entry
 * (sums of up to some hundred terms of order one, 6e-8 each).
 */
#include "tests/agree/gradients.h"

/* -- norms and lookups ---------------------------------------------------------------- */

struct norm_case {
    struct formula of;
    int64_t        n, n_x, dim;         /* of a lookup: n_x ids, x the table, rows the ids */
    const int32_t *rows;
    bool           rms, bare;           /* bare: the rows as they are */
    struct array   x, w, b, dx, dw, db;
    float         *stats;
};

static void norm_fill(struct formula *of)
{
    struct norm_case *c = (struct norm_case *)of;

    for (int64_t i = 0; i < c->n; i++) {
        const double *x = c->x.d + (c->rows ? c->rows[i] : i) * c->dim;
        double mean = 0, var = 0, *y = of->out.d + i * c->dim;

        for (int64_t j = 0; !c->rms && j < c->dim; j++)
            mean += x[j] / (double)c->dim;
        for (int64_t j = 0; j < c->dim; j++)
            var += (x[j] - mean) * (x[j] - mean) / (double)c->dim;
        for (int64_t j = 0; j < c->dim; j++) {
            double normed = (x[j] - mean) / sqrt(var + 1e-5) * c->w.d[j];

            y[j] = c->bare ? x[j] : normed + (c->rms ? 0 : c->b.d[j]);
        }
    }
}

static void norm_arrays(struct norm_case *c)
{
    formula_init(&c->of, norm_fill, c->n * c->dim);
    c->x = array_random(c->n_x * c->dim);
    c->dx = array_random(c->n_x * c->dim);
    c->w = array_random(c->dim);
    c->b = array_random(c->dim);
    c->dw = array_random(c->dim);
    c->db = array_random(c->dim);
    c->stats = zeros(2 * c->n, sizeof *c->stats);
}

static struct op_norm op_norm(const struct norm_case *c)
{
    return (struct op_norm){.kind = c->rms ? OP_NORM_RMS : OP_NORM_LAYER, .eps = 1e-5f,
                            .w = c->w.f, .b = c->rms ? NULL : c->b.f, .dw = c->dw.f,
                            .db = c->rms ? NULL : c->db.f};
}

static void norm_case(struct norm_case c, int threads)
{
    struct device *dev = device(threads);
    struct op_rownorm op;

    norm_arrays(&c);
    op = (struct op_rownorm){.out = c.of.out.f, .stats = c.stats, .dx = c.dx.f, .x = c.x.f,
                             .dout = c.of.weight.f, .rows = c.rows, .norm = op_norm(&c),
                             .n = c.n, .n_x = c.n_x, .dim = c.dim};
    if (!c.rows)                        /* in place of what is added, as the passes do */
        op.dx_add = c.dx.f;
    dev->ops->norm_fwd(dev, &op);
    check_out(&c.of, "norm");
    dev->ops->norm_bwd(dev, &op);
    check_gradient(&c.of, &c.dx, c.rows ? NULL : c.dx.d, &c.x, "norm dx");
    check_added(&c.of, &c.dw, &c.w, "norm dw");
    if (!c.rms)
        check_added(&c.of, &c.db, &c.b, "norm db");
    if (!c.rows) {                      /* a gradient given in two halves through dout_add */
        struct array half = array_random(c.n * c.dim);

        for (int64_t i = 0; i < half.n; i++)
            c.of.weight.d[i] += half.d[i];
        op.dx_add = NULL;
        op.dout_add = op.dx = half.f;
        op.norm.dw = op.norm.db = NULL;
        dev->ops->norm_bwd(dev, &op);
        check_written(&c.of, &half, &c.x, "norm dx of two halves");
    }
    device_done(dev);
}

TEST(norm_agrees_on_awkward_shapes)
{
    static const int32_t some[] = {1, 2, 6}, none[1];
    static const struct norm_case cases[] = {   /* with fewer columns dx is 0 but for rounding */
        {.n = 1, .n_x = 1, .dim = 3},
        {.n = 5, .n_x = 5, .dim = 7},
        {.n = 3, .n_x = 3, .dim = 37},
        {.n = 3, .n_x = 7, .dim = 17, .rows = some},
        {.n = 0, .n_x = 4, .dim = 5, .rows = none},
    };

    for (int k = 0; k < 6; k++)
        for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
            struct norm_case c = cases[i];

            c.rms = k % 2;
            norm_case(c, 1 + k / 2);
        }
}

static void embed_case(struct norm_case c, int threads)
{
    struct device *dev = device(threads);
    struct op_norm norm;
    struct op_embed op;

    norm_arrays(&c);
    norm = op_norm(&c);
    op = (struct op_embed){.out = c.of.out.f, .stats = c.stats, .dout = c.of.weight.f,
                           .dtable = c.dx.f, .table = c.x.f, .ids = c.rows,
                           .norm = c.bare ? NULL : &norm, .n = c.n, .dim = c.dim,
                           .vocab = c.n_x, .no_grad = -1};
    dev->ops->embed_fwd(dev, &op);
    check_out(&c.of, "embed");
    dev->ops->embed_bwd(dev, &op);
    check_added(&c.of, &c.dx, &c.x, "embed dtable");
    if (!c.bare) {
        check_added(&c.of, &c.dw, &c.w, "embed dw");
        check_added(&c.of, &c.db, &c.b, "embed db");
    }
    device_done(dev);
}

TEST(embed_agrees_when_ids_repeat)
{
    static const int32_t ids[] = {4, 0, 4, 4, 2, 10, 0};

    for (int threads = 1; threads <= 3; threads++) {
        embed_case((struct norm_case){.n = 7, .n_x = 11, .dim = 19, .rows = ids}, threads);
        embed_case((struct norm_case){.n = 7, .n_x = 11, .dim = 33, .rows = ids, .bare = true},
                   threads);
        embed_case((struct norm_case){.n = 1, .n_x = 5, .dim = 3, .rows = ids}, threads);
    }
}

/* -- lookups of tokens and positions -------------------------------------------------- */

struct place_case {
    struct formula of;
    struct array   table, pos;
    int32_t        frozen;              /* this id's row is held out of the loss; -1: none */
};

enum { E_N = 6, E_D = 19, E_V = 5, E_P = 4 };

static const int32_t ids[E_N] = {4, 1, 4, 0, 1, 2}, positions[E_N] = {0, 1, 2, 3, 0, 1};

static void place_fill(struct formula *of)
{
    const struct place_case *c = (const struct place_case *)of;

    for (int64_t i = 0; i < E_N; i++)
        for (int64_t j = 0; j < E_D; j++) {
            double e = ids[i] == c->frozen ? 0 : c->table.d[ids[i] * E_D + j];

            of->out.d[i * E_D + j] = e + c->pos.d[positions[i] * E_D + j];
        }
}

TEST(embed_agrees_with_positions_and_a_padding_id)
{
    for (int threads = 1; threads <= 3; threads++) {
        struct device *dev = device(threads);
        struct place_case c = {.table = array_random(E_V * E_D), .pos = array_random(E_P * E_D),
                               .frozen = -1};
        struct array dtable = array_random(E_V * E_D), dpos = array_random(E_P * E_D);
        struct op_embed op;

        formula_init(&c.of, place_fill, E_N * E_D);
        op = (struct op_embed){.out = c.of.out.f, .dout = c.of.weight.f, .table = c.table.f,
                               .dtable = dtable.f, .pos = c.pos.f, .dpos = dpos.f, .ids = ids,
                               .positions = positions, .n = E_N, .dim = E_D, .vocab = E_V,
                               .no_grad = 1};
        dev->ops->embed_fwd(dev, &op);
        check_out(&c.of, "embed with positions");
        dev->ops->embed_bwd(dev, &op);
        c.frozen = 1;
        check_added(&c.of, &dtable, &c.table, "embed dtable");
        check_added(&c.of, &dpos, &c.pos, "embed dpos");
        device_done(dev);
    }
}

/* -- projections ---------------------------------------------------------------------- */

struct linear_case {
    struct formula of;
    int64_t      n, n_in, n_out;
    struct array x, w, b, res;          /* x: x_pre when x_act */
    struct array pre, in;               /* act's and the product's inputs */
    bool         bias, residual, in_out;
    enum op_act  act, x_act;
};

/* Where W's element for output o and input k lies. */
static int64_t w_at(const struct linear_case *c, int64_t o, int64_t k)
{
    return c->in_out ? k * c->n_out + o : o * c->n_in + k;
}

static void linear_fill(struct formula *of)
{
    struct linear_case *c = (struct linear_case *)of;

    for (int64_t i = 0; i < c->n * c->n_in; i++)
        c->in.d[i] = act_formula(c->x_act, c->x.d[i]);
    for (int64_t i = 0; i < c->n; i++)
        for (int64_t o = 0; o < c->n_out; o++) {
            int64_t at = i * c->n_out + o;
            double p = c->bias ? c->b.d[o] : 0;

            for (int64_t k = 0; k < c->n_in; k++)
                p += c->in.d[i * c->n_in + k] * c->w.d[w_at(c, o, k)];
            c->pre.d[at] = p;
            of->out.d[at] = act_formula(c->act, p) + (c->residual ? c->res.d[at] : 0);
        }
}

static void linear_bwd_case(struct device *dev, struct linear_case *c, struct op_linear *op)
{
    struct array dx = array_random(c->x.n), dw = array_random(c->w.n);
    struct array db = array_random(c->n_out);

    op->dout = c->of.weight.f;
    op->dx = dx.f;
    op->proj.dw = dw.f;
    op->proj.db = c->bias ? db.f : NULL;
    op->x_act = c->x_act;
    op->x_pre = c->x.f;
    if (c->x_act != OP_ACT_NONE)        /* is recomputed */
        memset(c->in.f, 0x7f, (size_t)c->in.n * sizeof(float));
    dev->ops->linear_bwd(dev, op);
    agree(&c->in, "linear x recomputed");
    check_written(&c->of, &dx, &c->x, "linear dx");
    check_added(&c->of, &dw, &c->w, "linear dw");
    if (c->bias)
        check_added(&c->of, &db, &c->b, "linear db");
}

static void linear_case(struct linear_case c, int threads)
{
    struct device *dev = device(threads);
    struct op_linear op;

    formula_init(&c.of, linear_fill, c.n * c.n_out);
    c.x = array_random(c.n * c.n_in);
    c.w = array_random(c.n_in * c.n_out);
    c.b = array_random(c.n_out);
    c.res = array_random(c.n * c.n_out);
    c.pre = array_new(c.n * c.n_out);
    c.in = array_new(c.n * c.n_in);
    linear_fill(&c.of);
    for (int64_t i = 0; i < c.in.n; i++)
        c.in.f[i] = (float)c.in.d[i];
    op = (struct op_linear){
        .out = c.of.out.f, .pre = c.act != OP_ACT_NONE ? c.pre.f : NULL, .x = c.in.f,
        .proj.w = c.w.f, .proj.b = c.bias ? c.b.f : NULL, .residual = c.residual ? c.res.f : NULL,
        .act = c.act, .n = c.n, .n_in = c.n_in, .n_out = c.n_out,
        .flags = c.in_out ? OP_LINEAR_IN_OUT : 0,
    };
    dev->ops->linear_fwd(dev, &op);
    check_out(&c.of, "linear");
    if (op.pre)
        agree(&c.pre, "linear pre");
    if (c.residual) {                   /* out may be the residual */
        memcpy(c.of.out.f, c.res.f, (size_t)c.res.n * sizeof(float));
        op.residual = c.of.out.f;
        dev->ops->linear_fwd(dev, &op);
        agree(&c.of.out, "linear in place");
    }
    if (c.act == OP_ACT_NONE)
        linear_bwd_case(dev, &c, &op);
    device_done(dev);
}

TEST(linear_agrees_on_awkward_shapes)
{
    static const int64_t shapes[][3] = {
        {1, 1, 1}, {1, 5, 17}, {2, 3, 40}, {7, 13, 3}, {67, 5, 7}};

    for (int threads = 1; threads <= 3; threads++)
        for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
            for (int kind = 0; kind < 3 + 2 * OP_ACT_SILU; kind++)
                linear_case((struct linear_case){
                    .n = shapes[i][0], .n_in = shapes[i][1], .n_out = shapes[i][2],
                    .bias = kind != 1, .residual = kind == 2 || kind == 1,
                    .in_out = (kind + threads) % 2,
                    .act = kind > 2 && kind % 2 ? (enum op_act)((kind - 1) / 2) : OP_ACT_NONE,
                    .x_act = kind > 2 && kind % 2 == 0 ? (enum op_act)((kind - 2) / 2)
                                                       : OP_ACT_NONE}, threads);
}

/* -- projections side by side --------------------------------------------------------- */

/* Two products of one x, their outputs next to each other in rows of 9. */
struct pair_case {
    struct formula of;
    struct array   x, w[2], b;
};

enum { P_N = 5, P_IN = 4, P_ONE = 6, P_TWO = 3, P_LD = P_ONE + P_TWO };

static void pair_fill(struct formula *of)
{
    const struct pair_case *c = (const struct pair_case *)of;

    for (int64_t i = 0; i < P_N; i++)
        for (int64_t o = 0; o < P_LD; o++) {
            const double *w = o < P_ONE ? c->w[0].d + o * P_IN : c->w[1].d + (o - P_ONE) * P_IN;
            double *y = &of->out.d[i * P_LD + o];

            *y = o < P_ONE ? c->b.d[o] : 0;
            for (int64_t k = 0; k < P_IN; k++)
                *y += c->x.d[i * P_IN + k] * w[k];
        }
}

TEST(linears_agree_side_by_side)
{
    for (int threads = 1; threads <= 3; threads++) {
        struct device *dev = device(threads);
        struct pair_case c = {.x = array_random(P_N * P_IN), .b = array_random(P_ONE),
                              .w = {array_random(P_ONE * P_IN), array_random(P_TWO * P_IN)}};
        struct array dx = array_random(P_N * P_IN), dw = array_random(P_TWO * P_IN);
        struct array db = array_random(P_ONE);
        struct op_linear op[2];

        formula_init(&c.of, pair_fill, P_N * P_LD);
        op[0] = (struct op_linear){
            .out = c.of.out.f, .x = c.x.f, .proj = {.w = c.w[0].f, .b = c.b.f, .db = db.f},
            .dout = c.of.weight.f, .dx = dx.f, .n = P_N, .n_in = P_IN, .n_out = P_ONE,
            .out_ld = P_LD};
        op[1] = op[0];
        op[1].out = c.of.out.f + P_ONE;
        op[1].dout = c.of.weight.f + P_ONE;
        op[1].proj = (struct op_projection){.w = c.w[1].f, .dw = dw.f};
        op[1].n_out = P_TWO;
        op[1].flags = OP_LINEAR_DX_ADD;
        for (int i = 0; i < 2; i++)
            dev->ops->linear_fwd(dev, &op[i]);
        check_out(&c.of, "pair");
        for (int i = 0; i < 2; i++)
            dev->ops->linear_bwd(dev, &op[i]);
        check_written(&c.of, &dx, &c.x, "pair dx");
        check_added(&c.of, &dw, &c.w[1], "pair dw");
        check_added(&c.of, &db, &c.b, "pair db");
        device_done(dev);
    }
}

/* -- head and loss -------------------------------------------------------------------- */

struct head_case {
    struct formula of;                  /* out: nll */
    int64_t        n, dim, vocab;
    double         mul, smoothing, z_loss;
    int32_t       *targets;
    struct array   x, w;
};

static void head_fill(struct formula *of)
{
    const struct head_case *c = (const struct head_case *)of;

    for (int64_t i = 0; i < c->n; i++) {
        double sum = 0, wanted = 0, all = 0;

        for (int64_t v = 0; v < c->vocab; v++) {
            double z = 0;

            for (int64_t j = 0; j < c->dim; j++)
                z += c->mul * c->x.d[i * c->dim + j] * c->w.d[v * c->dim + j];
            sum += exp(z);
            wanted = v == c->targets[i] ? z : wanted;
            all += z;
        }
        of->out.d[i] = log(sum) - (1 - c->smoothing) * wanted - c->smoothing * all / (double)c->vocab +
                       c->z_loss * log(sum) * log(sum);
    }
}

static void head_case(int64_t n, int64_t dim, int64_t vocab, double mul, double smoothing,
                      double z_loss, int threads)
{
    struct device *dev = device(threads);
    struct head_case c = {.n = n, .dim = dim, .vocab = vocab, .mul = mul, .smoothing = smoothing,
                          .z_loss = z_loss,
                          .targets = zeros(n, sizeof *c.targets),
                          .x = array_random(n * dim), .w = array_random(vocab * dim)};
    struct array dx = array_random(n * dim), dw = array_random(vocab * dim);
    struct op_head op;

    formula_init(&c.of, head_fill, n);
    op = (struct op_head){.nll = c.of.out.f, .x = c.x.f, .w = c.w.f, .targets = c.targets, .n = n,
                          .dim = dim, .vocab = vocab, .mul = (float)mul, .scale = 0.25f,
                          .smoothing = (float)smoothing, .z_loss = (float)z_loss};
    for (int64_t i = 0; i < n; i++) {
        c.targets[i] = (int32_t)((i * 7 + 3) % vocab);
        c.of.weight.d[i] = 0.25;
    }
    dev->ops->head_loss(dev, &op);
    check_out(&c.of, "head nll");
    memset(c.of.out.f, 0, (size_t)n * sizeof(float));
    op.dx = dx.f;
    op.dw = dw.f;
    dev->ops->head_loss(dev, &op);
    agree(&c.of.out, "head nll with gradients");
    check_written(&c.of, &dx, &c.x, "head dx");
    check_added(&c.of, &dw, &c.w, "head dw");
    device_done(dev);
}

TEST(head_agrees_on_awkward_shapes)
{
    for (int threads = 1; threads <= 3; threads++) {
        head_case(1, 1, 1, 1, 0, 0, threads);
        head_case(5, 7, 13, 1, 0, 0, threads);
        head_case(3, 4, 37, 0.5, 0, 0, threads);
        head_case(37, 2, 3, 1, 0, 0, threads);
        head_case(5, 7, 13, 1, 0.125, 0, threads);
        head_case(3, 4, 37, 0.5, 0.75, 0, threads);
        head_case(5, 7, 13, 1, 0, 0.0625, threads);
        head_case(37, 2, 3, 2, 0.25, 0.5, threads);
    }
}

/* More rows than a chunk holds: every row's loss and the sums over chunks. */
TEST(head_agrees_over_chunks)
{
    struct device *dev = device(2);
    enum { N = 1500, D = 8, V = 1100 };
    struct array x = array_random(N * D), w = array_random(V * D), dw = array_new(V * D);
    struct array nll = array_new(N), dx = array_new(N * D);
    double *z = zeros(V, sizeof *z);
    int32_t *targets = zeros(N, sizeof *targets);

    for (int i = 0; i < N; i++) {
        double sum = 0;

        targets[i] = i % V;
        for (int v = 0; v < V; v++) {
            z[v] = 0;
            for (int j = 0; j < D; j++)
                z[v] += x.d[i * D + j] * w.d[v * D + j];
            sum += exp(z[v]);
        }
        nll.d[i] = log(sum) - z[targets[i]];
        for (int v = 0; v < V; v++) {
            double dz = exp(z[v]) / sum - (v == targets[i]);

            for (int j = 0; j < D; j++) {
                dx.d[i * D + j] += dz * w.d[v * D + j];
                dw.d[v * D + j] += dz * x.d[i * D + j];
            }
        }
    }
    dev->ops->head_loss(dev, &(struct op_head){
        .nll = nll.f, .dx = dx.f, .dw = dw.f, .x = x.f, .w = w.f, .targets = targets, .n = N,
        .dim = D, .vocab = V, .mul = 1, .scale = 1});
    agree(&nll, "nll");
    agree(&dx, "dx");
    agree(&dw, "dw");
    device_done(dev);
}

/* Too small a workspace marks the device; nothing is written. */
TEST(ops_refuse_when_the_workspace_is_short)
{
    struct ckpt_err err = {0};
    struct device *dev;
    float x[4] = {1, 2, 3, 4}, nll[1] = {7};
    const int32_t target[1] = {0};

    assert_int_equal(device_open_cpu(&dev, 1, &err), 0);
    dev->ops->head_loss(dev, &(struct op_head){.nll = nll, .x = x, .w = x, .targets = target,
                                               .n = 1, .dim = 2, .vocab = 2, .mul = 1});
    assert_int_equal(device_sync(dev, &err), CKPT_ESTATE);
    assert_non_null(strstr(err.text, "head_loss"));
    assert_true(nll[0] == 7);
    device_close(dev);
}

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

/* -- norms ---------------------------------------------------------------------------- */

struct norm_case {
    int64_t        n, n_x, dim;
    const int32_t *rows;
    bool           rms;
    struct array x, w, b, weight, add; /* weight: of the loss, by output; add: of x itself */
    double        *out;
};

static double norm_formula(void *ctx)
{
    struct norm_case *c = ctx;
    double loss = 0;

    for (int64_t i = 0; i < c->n; i++) {
        const double *x = c->x.d + (c->rows ? c->rows[i] : i) * c->dim;
        double mean = 0, var = 0;

        for (int64_t j = 0; !c->rms && j < c->dim; j++)
            mean += x[j] / (double)c->dim;
        for (int64_t j = 0; j < c->dim; j++)
            var += (x[j] - mean) * (x[j] - mean) / (double)c->dim;
        for (int64_t j = 0; j < c->dim; j++) {
            double y = (x[j] - mean) / sqrt(var + 1e-5) * c->w.d[j] + (c->rms ? 0 : c->b.d[j]);

            if (c->out)
                c->out[i * c->dim + j] = y;
            loss += c->weight.d[i * c->dim + j] * y;
        }
    }
    for (int64_t i = 0; i < c->add.n; i++)  /* the path around the norm */
        loss += c->add.d[i] * c->x.d[i];
    return loss;
}

static void norm_case(int64_t n, int64_t n_x, int64_t dim, const int32_t *rows, bool rms,
                      int threads)
{
    struct device *dev = device(threads);
    struct norm_case c = {.n = n,
                          .n_x = n_x,
                          .dim = dim,
                          .rows = rows,
                          .rms = rms,
                          .x = array_random(n_x * dim),
                          .w = array_random(dim),
                          .b = array_random(dim),
                          .weight = array_random(n * dim),
                          .add = array_random(rows ? 0 : n_x * dim)};
    struct array out = array_new(n * dim), dw = array_random(dim), db = array_random(dim);
    float *stats = calloc((size_t)(2 * n + 1), sizeof *stats), *half = c.weight.f;
    float *dx = calloc((size_t)(n_x * dim + 1), sizeof *dx);
    struct op_rownorm op = {
        .out = out.f, .stats = stats, .dx = dx, .x = c.x.f, .dout = half, .rows = rows,
        .norm = {.kind = rms ? OP_NORM_RMS : OP_NORM_LAYER, .eps = 1e-5f, .w = c.w.f,
                 .b = rms ? NULL : c.b.f, .dw = dw.f, .db = rms ? NULL : db.f},
        .n = n, .n_x = n_x, .dim = dim,
    };

    c.out = out.d;
    norm_formula(&c);
    c.out = NULL;
    dev->ops->norm_fwd(dev, &op);
    agree(out.f, out.d, n * dim, "norm");
    if (!rows) {                        /* in place of what is added, as the passes do */
        memcpy(dx, c.add.f, (size_t)(n_x * dim) * sizeof *dx);
        op.dx_add = dx;
    }
    dev->ops->norm_bwd(dev, &op);
    check_gradient(dx, NULL, &c.x, norm_formula, &c, "norm dx");
    check_gradient(dw.f, dw.d, &c.w, norm_formula, &c, "norm dw");
    if (!rms)
        check_gradient(db.f, db.d, &c.b, norm_formula, &c, "norm db");

    /* The same gradient given in two halves through dout_add. */
    if (!rows) {
        for (int64_t i = 0; i < n_x * dim; i++)
            c.weight.d[i] += c.add.d[i];
        c.add.n = 0;
        memcpy(dx, c.add.f, (size_t)(n_x * dim) * sizeof *dx);
        op.dx_add = NULL;
        op.dout_add = dx;
        op.norm.dw = op.norm.db = NULL;
        dev->ops->norm_bwd(dev, &op);
        check_gradient(dx, NULL, &c.x, norm_formula, &c, "norm dx of two halves");
    }
    free(stats);
    free(dx);
    array_free(&out);
    array_free(&dw);
    array_free(&db);
    array_free(&c.x);
    array_free(&c.w);
    array_free(&c.b);
    array_free(&c.weight);
    array_free(&c.add);
    device_done(dev);
}

TEST(norm_agrees_on_awkward_shapes)
{
    static const int32_t some[] = {1, 2, 6}, none[1];

    for (int k = 0; k < 6; k++) {
        int threads = 1 + k / 2;
        bool rms = k % 2;

        /* With fewer than three columns dx is zero but for rounding. */
        norm_case(1, 1, 3, NULL, rms, threads);
        norm_case(5, 5, 7, NULL, rms, threads);
        norm_case(3, 3, 37, NULL, rms, threads);
        norm_case(3, 7, 17, some, rms, threads);
        norm_case(0, 4, 5, none, rms, threads);
    }
}

/* -- embedding ------------------------------------------------------------------------ */

struct embed_case {
    struct norm_case norm;              /* x is the table, rows the ids */
    bool             bare;
};

static double embed_formula(void *ctx)
{
    struct embed_case *c = ctx;
    double loss = 0;

    if (!c->bare)
        return norm_formula(&c->norm);
    for (int64_t i = 0; i < c->norm.n; i++)
        for (int64_t j = 0; j < c->norm.dim; j++) {
            double y = c->norm.x.d[c->norm.rows[i] * c->norm.dim + j];

            if (c->norm.out)
                c->norm.out[i * c->norm.dim + j] = y;
            loss += c->norm.weight.d[i * c->norm.dim + j] * y;
        }
    return loss;
}

static void embed_case(int64_t n, int64_t vocab, int64_t dim, const int32_t *ids, bool bare,
                       int threads)
{
    struct device *dev = device(threads);
    struct embed_case c = {.bare = bare, .norm = {
        .n = n, .n_x = vocab, .dim = dim, .rows = ids, .x = array_random(vocab * dim),
        .w = array_random(dim), .b = array_random(dim), .weight = array_random(n * dim)}};
    struct array out = array_new(n * dim), table = array_random(vocab * dim);
    struct array dw = array_random(dim), db = array_random(dim);
    float *stats = calloc((size_t)(2 * n + 1), sizeof *stats);
    struct op_norm norm = {.kind = OP_NORM_LAYER,
                           .eps = 1e-5f,
                           .w = c.norm.w.f,
                           .b = c.norm.b.f,
                           .dw = dw.f,
                           .db = db.f};
    struct op_embed op = {
        .out = out.f, .stats = stats, .dout = c.norm.weight.f, .dtable = table.f,
        .table = c.norm.x.f, .ids = ids, .norm = bare ? NULL : &norm, .n = n, .dim = dim,
        .vocab = vocab, .no_grad = -1,
    };

    c.norm.out = out.d;
    embed_formula(&c);
    c.norm.out = NULL;
    dev->ops->embed_fwd(dev, &op);
    agree(out.f, out.d, n * dim, "embed");
    dev->ops->embed_bwd(dev, &op);
    check_gradient(table.f, table.d, &c.norm.x, embed_formula, &c, "embed dtable");
    if (!bare) {
        check_gradient(dw.f, dw.d, &c.norm.w, embed_formula, &c, "embed dw");
        check_gradient(db.f, db.d, &c.norm.b, embed_formula, &c, "embed db");
    }
    free(stats);
    array_free(&out);
    array_free(&table);
    array_free(&dw);
    array_free(&db);
    array_free(&c.norm.x);
    array_free(&c.norm.w);
    array_free(&c.norm.b);
    array_free(&c.norm.weight);
    device_done(dev);
}

TEST(embed_agrees_when_ids_repeat)
{
    static const int32_t ids[] = {4, 0, 4, 4, 2, 10, 0};

    for (int threads = 1; threads <= 3; threads++) {
        embed_case(7, 11, 19, ids, false, threads);
        embed_case(7, 11, 33, ids, true, threads);
        embed_case(1, 5, 3, ids, false, threads);
    }
}

/* -- projections ---------------------------------------------------------------------- */

struct linear_case {
    int64_t      n, n_in, n_out;
    struct array x, w, b, weight, res;  /* x: x_pre when x_act */
    bool         bias, residual, in_out;
    enum op_act  act, x_act;
    double      *out, *pre, *in;
};

/* Where W's element for output o and input k lies. */
static int64_t w_at(const struct linear_case *c, int64_t o, int64_t k)
{
    return c->in_out ? k * c->n_out + o : o * c->n_in + k;
}

static double linear_formula(void *ctx)
{
    struct linear_case *c = ctx;
    double loss = 0;

    for (int64_t i = 0; i < c->n; i++)
        for (int64_t o = 0; o < c->n_out; o++) {
            double p = c->bias ? c->b.d[o] : 0, y;

            for (int64_t k = 0; k < c->n_in; k++) {
                double x = c->x.d[i * c->n_in + k];

                x = act_formula(c->x_act, x);
                if (c->in)
                    c->in[i * c->n_in + k] = x;
                p += x * c->w.d[w_at(c, o, k)];
            }
            y = act_formula(c->act, p) +
                (c->residual ? c->res.d[i * c->n_out + o] : 0);
            if (c->out) {
                c->out[i * c->n_out + o] = y;
                c->pre[i * c->n_out + o] = p;
            }
            loss += c->weight.d[i * c->n_out + o] * y;
        }
    return loss;
}

static void linear_case(struct linear_case c, int threads)
{
    struct device *dev = device(threads);
    struct array out = array_new(c.n * c.n_out), pre = array_new(c.n * c.n_out);
    struct array in = array_new(c.n * c.n_in), dx = array_random(c.n * c.n_in);
    struct array dw = array_random(c.n_in * c.n_out), db = array_random(c.n_out);
    struct op_linear op;

    c.x = array_random(c.n * c.n_in);
    c.w = array_random(c.n_in * c.n_out);
    c.b = array_random(c.n_out);
    c.res = array_random(c.n * c.n_out);
    c.weight = array_random(c.n * c.n_out);
    c.out = out.d;
    c.pre = pre.d;
    c.in = in.d;
    linear_formula(&c);
    c.out = c.in = NULL;
    for (int64_t i = 0; i < c.n * c.n_in; i++)
        in.f[i] = (float)in.d[i];
    op = (struct op_linear){
        .out = out.f, .pre = c.act != OP_ACT_NONE ? pre.f : NULL, .x = in.f, .proj.w = c.w.f,
        .proj.b = c.bias ? c.b.f : NULL, .residual = c.residual ? c.res.f : NULL, .act = c.act,
        .n = c.n, .n_in = c.n_in, .n_out = c.n_out, .flags = c.in_out ? OP_LINEAR_IN_OUT : 0,
    };
    dev->ops->linear_fwd(dev, &op);
    agree(out.f, out.d, c.n * c.n_out, "linear");
    if (op.pre)
        agree(pre.f, pre.d, c.n * c.n_out, "linear pre");
    if (c.residual) {                   /* out may be the residual */
        memcpy(out.f, c.res.f, (size_t)out.n * sizeof(float));
        op.residual = out.f;
        dev->ops->linear_fwd(dev, &op);
        agree(out.f, out.d, c.n * c.n_out, "linear in place");
    }
    if (c.act == OP_ACT_NONE) {
        op.dout = c.weight.f;
        op.dx = dx.f;
        op.proj.dw = dw.f;
        op.proj.db = c.bias ? db.f : NULL;
        op.x_act = c.x_act;
        op.x_pre = c.x.f;
        if (c.x_act != OP_ACT_NONE)     /* is written again */
            memset(in.f, 0x7f, (size_t)in.n * sizeof(float));
        dev->ops->linear_bwd(dev, &op);
        check_gradient(dx.f, NULL, &c.x, linear_formula, &c, "linear dx");
        check_gradient(dw.f, dw.d, &c.w, linear_formula, &c, "linear dw");
        if (c.bias)
            check_gradient(db.f, db.d, &c.b, linear_formula, &c, "linear db");
        agree(in.f, in.d, in.n, "linear x again");
    }
    array_free(&out);
    array_free(&pre);
    array_free(&in);
    array_free(&dx);
    array_free(&dw);
    array_free(&db);
    array_free(&c.x);
    array_free(&c.w);
    array_free(&c.b);
    array_free(&c.res);
    array_free(&c.weight);
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

/* -- attention ------------------------------------------------------------------------ */

struct attention_case {
    int64_t      n, docs, H, K, d, window;
    const int32_t *start;
    bool         interleaved, alibi;
    struct array qkv, weight, slopes;
    double      *out, *lse;
};

/* Offset of (row, head) of q, k (part 1) or v (part 2). */
static int64_t place(const struct attention_case *c, int64_t row, int part, int64_t head)
{
    int64_t ld = (c->H + 2 * c->K) * c->d;

    if (c->interleaved)
        return row * ld + head * 3 * c->d + part * c->d;
    return row * ld + (part == 0 ? head : c->H + (part == 2 ? c->K : 0) + head) * c->d;
}

static double attention_formula(void *ctx)
{
    struct attention_case *c = ctx;
    double loss = 0, s[256];

    for (int64_t doc = 0; doc < c->docs; doc++)
        for (int64_t i = c->start[doc]; i < c->start[doc + 1]; i++)
            for (int64_t h = 0; h < c->H; h++) {
                int64_t g = h * c->K / c->H, from = c->start[doc];
                const double *q = c->qkv.d + place(c, i, 0, h);
                double sum = 0, o = 0;

                if (c->window && i - c->window + 1 > from)
                    from = i - c->window + 1;
                for (int64_t j = from; j <= i; j++) {
                    const double *k = c->qkv.d + place(c, j, 1, g);
                    double z = c->alibi ? c->slopes.d[h] * (double)(j - i) : 0;

                    for (int64_t e = 0; e < c->d; e++)
                        z += 0.37 * q[e] * k[e];
                    s[j - from] = exp(z);
                    sum += s[j - from];
                }
                for (int64_t e = 0; e < c->d; e++) {
                    o = 0;
                    for (int64_t j = from; j <= i; j++)
                        o += s[j - from] / sum * c->qkv.d[place(c, j, 2, g) + e];
                    if (c->out)
                        c->out[(i * c->H + h) * c->d + e] = o;
                    loss += c->weight.d[(i * c->H + h) * c->d + e] * o;
                }
                if (c->lse)
                    c->lse[h * c->n + i] = log(sum);
            }
    return loss;
}

static struct op_heads heads(const struct attention_case *c, float *base)
{
    return (struct op_heads){
        .q = base + place(c, 0, 0, 0),
        .k = base + place(c, 0, 1, 0),
        .v = base + place(c, 0, 2, 0),
        .row_stride = (c->H + 2 * c->K) * c->d,
        .q_head = place(c, 0, 0, 1) - place(c, 0, 0, 0),
        .kv_head = place(c, 0, 1, 1) - place(c, 0, 1, 0),
    };
}

static void attention_case(struct attention_case c, int threads)
{
    struct device *dev = device(threads);
    struct array out, lse, grad;
    struct op_attention op;

    c.n = c.start[c.docs];
    c.qkv = array_random(c.n * (c.H + 2 * c.K) * c.d);
    c.weight = array_random(c.n * c.H * c.d);
    c.slopes = array_random(c.H);
    out = array_new(c.n * c.H * c.d);
    lse = array_new(c.H * c.n);
    grad = array_random(c.qkv.n);       /* overwritten */
    c.out = out.d;
    c.lse = lse.d;
    attention_formula(&c);
    c.out = c.lse = NULL;
    op = (struct op_attention){
        .out = out.f, .lse = lse.f, .in = heads(&c, c.qkv.f), .grad = heads(&c, grad.f),
        .dout = c.weight.f, .doc_start = c.start, .slopes = c.alibi ? c.slopes.f : NULL,
        .n = c.n, .n_docs = c.docs, .max_doc = c.n, .n_head = c.H, .n_kv = c.K, .dim = c.d,
        .window = c.window, .scale = 0.37f,
    };
    dev->ops->attention_fwd(dev, &op);
    agree(out.f, out.d, out.n, "attention");
    agree(lse.f, lse.d, lse.n, "attention lse");
    dev->ops->attention_bwd(dev, &op);
    check_gradient(grad.f, NULL, &c.qkv, attention_formula, &c, "attention dqkv");
    array_free(&out);
    array_free(&lse);
    array_free(&grad);
    array_free(&c.qkv);
    array_free(&c.weight);
    array_free(&c.slopes);
    device_done(dev);
}

TEST(attention_agrees_over_documents)
{
    static const int32_t one[] = {0, 1}, some[] = {0, 5, 6, 13}, block[] = {0, 64, 67},
                         empty[] = {0, 3, 3, 8};

    for (int threads = 1; threads <= 3; threads += 2) {
        attention_case((struct attention_case){.start = one, .docs = 1, .H = 1, .K = 1, .d = 1,
                                               .interleaved = true, .alibi = true}, threads);
        attention_case((struct attention_case){.start = some, .docs = 3, .H = 3, .K = 3, .d = 5,
                                               .interleaved = true, .alibi = true}, threads);
        attention_case(
            (struct attention_case){.start = empty, .docs = 3, .H = 2, .K = 2, .d = 4},
            threads);
        attention_case((struct attention_case){.start = block,
                                               .docs = 2,
                                               .H = 1,
                                               .K = 1,
                                               .d = 2,
                                               .interleaved = true,
                                               .alibi = true},
                       threads);
        attention_case(
            (struct attention_case){.start = some, .docs = 3, .H = 4, .K = 2, .d = 3}, threads);
        attention_case((struct attention_case){.start = some, .docs = 3, .H = 6, .K = 1, .d = 2,
                                               .window = 3, .alibi = true}, threads);
        attention_case(
            (struct attention_case){
                .start = block, .docs = 2, .H = 1, .K = 1, .d = 1, .window = 7},
            threads);
    }
}

/* -- head and loss -------------------------------------------------------------------- */

struct head_case {
    int64_t        n, dim, vocab;
    double         mul, scale;
    const int32_t *targets;
    struct array   x, w;
    double        *nll;
};

static double head_formula(void *ctx)
{
    struct head_case *c = ctx;
    double loss = 0;

    for (int64_t i = 0; i < c->n; i++) {
        double sum = 0, wanted = 0, nll;

        for (int64_t v = 0; v < c->vocab; v++) {
            double z = 0;

            for (int64_t j = 0; j < c->dim; j++)
                z += c->mul * c->x.d[i * c->dim + j] * c->w.d[v * c->dim + j];
            sum += exp(z);
            wanted = v == c->targets[i] ? z : wanted;
        }
        nll = log(sum) - wanted;
        if (c->nll)
            c->nll[i] = nll;
        loss += c->scale * nll;
    }
    return loss;
}

static void head_case(int64_t n, int64_t dim, int64_t vocab, double mul, int threads)
{
    struct device *dev = device(threads);
    struct head_case c = {.n = n, .dim = dim, .vocab = vocab, .mul = mul, .scale = 0.25,
                          .x = array_random(n * dim), .w = array_random(vocab * dim)};
    struct array nll = array_new(n), dx = array_random(n * dim), dw = array_random(vocab * dim);
    int32_t *targets = calloc((size_t)n + 1, sizeof *targets);
    struct op_head op = {.nll = nll.f, .x = c.x.f, .w = c.w.f, .targets = targets, .n = n,
                         .dim = dim, .vocab = vocab, .mul = (float)mul, .scale = 0.25f};

    for (int64_t i = 0; i < n; i++)
        targets[i] = (int32_t)((i * 7 + 3) % vocab);
    c.targets = targets;
    c.nll = nll.d;
    head_formula(&c);
    c.nll = NULL;
    dev->ops->head_loss(dev, &op);
    agree(nll.f, nll.d, n, "head nll");
    memset(nll.f, 0, (size_t)n * sizeof(float));
    op.dx = dx.f;
    op.dw = dw.f;
    dev->ops->head_loss(dev, &op);
    agree(nll.f, nll.d, n, "head nll with gradients");
    check_gradient(dx.f, NULL, &c.x, head_formula, &c, "head dx");
    check_gradient(dw.f, dw.d, &c.w, head_formula, &c, "head dw");
    free(targets);
    array_free(&nll);
    array_free(&dx);
    array_free(&dw);
    array_free(&c.x);
    array_free(&c.w);
    device_done(dev);
}

TEST(head_agrees_on_awkward_shapes)
{
    for (int threads = 1; threads <= 3; threads++) {
        head_case(1, 1, 1, 1, threads);
        head_case(5, 7, 13, 1, threads);
        head_case(3, 4, 37, 0.5, threads);
        head_case(37, 2, 3, 1, threads);
    }
}

/* More rows than a chunk holds: every row's loss and the sums over chunks. */
TEST(head_agrees_over_chunks)
{
    struct device *dev = device(2);
    enum { N = 1500, D = 8, V = 1100 };
    struct array x = array_random(N * D), w = array_random(V * D), dw = array_new(V * D);
    struct array nll = array_new(N), dx = array_new(N * D);
    double *z = calloc(V, sizeof *z);
    int32_t *targets = calloc(N, sizeof *targets);

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
    agree(nll.f, nll.d, N, "nll");
    agree(dx.f, dx.d, N * D, "dx");
    agree(dw.f, dw.d, V * D, "dw");
    free(z);
    free(targets);
    array_free(&x);
    array_free(&w);
    array_free(&dw);
    array_free(&nll);
    array_free(&dx);
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

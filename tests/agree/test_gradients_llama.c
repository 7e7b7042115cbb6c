/*
 * Operations of gated and rotary models against their formulas in f64, as test_gradients.c:
 * turned and normalised heads, gates, projections side by side, positions in a table.
 */
#include "tests/agree/gradients.h"

/* -- heads turned by position ---------------------------------------------------------- */

struct rope_case {
    int64_t      n, H, K, d, turned;
    bool         norms, turns;
    const int32_t *positions;
    struct array x, table, wq, wk, weight;
    double      *out;
};

/* One head: normalised with w, then turned. */
static void rope_head(const struct rope_case *c, double *y, const double *x, const double *w,
                      int32_t position)
{
    int64_t half = c->turned / 2;
    const double *cosine = c->table.d + position * c->turned, *sine = cosine + half;
    double sq = 0, z[64];

    for (int64_t j = 0; j < c->d; j++)
        sq += x[j] * x[j] / (double)c->d;
    for (int64_t j = 0; j < c->d; j++)
        z[j] = c->norms ? x[j] / sqrt(sq + 1e-6) * w[j] : x[j];
    memcpy(y, z, (size_t)c->d * sizeof *y);
    for (int64_t j = 0; c->turns && j < half; j++) {
        y[j] = z[j] * cosine[j] - z[j + half] * sine[j];
        y[j + half] = z[j + half] * cosine[j] + z[j] * sine[j];
    }
}

static double rope_formula(void *ctx)
{
    struct rope_case *c = ctx;
    int64_t heads = c->H + 2 * c->K, ld = heads * c->d;
    double loss = 0, y[64];

    for (int64_t i = 0; i < c->n; i++)
        for (int64_t h = 0; h < heads; h++) {
            const double *x = c->x.d + i * ld + h * c->d;

            if (h < c->H + c->K)
                rope_head(c, y, x, h < c->H ? c->wq.d : c->wk.d, c->positions[i]);
            else
                memcpy(y, x, (size_t)c->d * sizeof *y);
            for (int64_t j = 0; j < c->d; j++) {
                loss += y[j] * c->weight.d[i * ld + h * c->d + j];
                if (c->out)
                    c->out[i * ld + h * c->d + j] = y[j];
            }
        }
    return loss;
}

static struct op_heads heads_in(const struct rope_case *c, float *p)
{
    return (struct op_heads){.q = p, .k = p + c->H * c->d, .v = p + (c->H + c->K) * c->d,
                             .row_stride = (c->H + 2 * c->K) * c->d, .q_head = c->d,
                             .kv_head = c->d};
}

static void rope_case(struct rope_case c, int threads)
{
    struct device *dev = device(threads);
    int64_t ld = (c.H + 2 * c.K) * c.d;
    struct array out = array_new(c.n * ld), dq = array_random(c.d), dk = array_random(c.d);
    float *stats = calloc((size_t)(c.n * (c.H + c.K) + 1), sizeof *stats);
    struct op_rope op;

    c.x = array_random(c.n * ld);
    c.table = array_random(9 * c.turned);
    c.wq = array_random(c.d);
    c.wk = array_random(c.d);
    c.weight = array_random(c.n * ld);
    c.out = out.d;
    rope_formula(&c);
    c.out = NULL;
    if (!c.norms)
        memcpy(out.f, c.x.f, (size_t)out.n * sizeof *out.f);
    op = (struct op_rope){
        .in = heads_in(&c, c.norms ? c.x.f : out.f), .out = heads_in(&c, out.f),
        .grad = heads_in(&c, c.weight.f), .stats = c.norms ? stats : NULL,
        .table = c.turns ? c.table.f : NULL, .positions = c.positions,
        .q_norm = c.norms ? c.wq.f : NULL, .k_norm = c.norms ? c.wk.f : NULL,
        .dq_norm = c.norms ? dq.f : NULL, .dk_norm = c.norms ? dk.f : NULL,
        .n = c.n, .n_head = c.H, .n_kv = c.K, .dim = c.d, .rotary_dim = c.turned, .eps = 1e-6f,
    };
    dev->ops->rope_fwd(dev, &op);
    agree(out.f, out.d, out.n, "rope");
    dev->ops->rope_bwd(dev, &op);       /* the loss' weights become the gradient of x */
    check_gradient(c.weight.f, NULL, &c.x, rope_formula, &c, "rope dx");
    if (c.norms) {
        check_gradient(dq.f, dq.d, &c.wq, rope_formula, &c, "rope dwq");
        check_gradient(dk.f, dk.d, &c.wk, rope_formula, &c, "rope dwk");
    }
    free(stats);
    array_free(&out);
    array_free(&dq);
    array_free(&dk);
    array_free(&c.x);
    array_free(&c.table);
    array_free(&c.wq);
    array_free(&c.wk);
    array_free(&c.weight);
    device_done(dev);
}

TEST(rope_agrees_with_and_without_norms)
{
    static const int32_t positions[] = {0, 8, 3, 3, 1};

    for (int threads = 1; threads <= 3; threads++)
        for (int kind = 0; kind < 3; kind++) {
            struct rope_case c = {.norms = kind > 0, .turns = kind < 2, .positions = positions};

            c.n = 5, c.H = 4, c.K = 2, c.d = 6, c.turned = 6;
            rope_case(c, threads);
            c.n = 3, c.H = 1, c.K = 1, c.d = 17, c.turned = 10;     /* the rest passes */
            rope_case(c, threads);
            c.n = 0, c.H = 2, c.K = 1, c.d = 4, c.turned = 4;
            rope_case(c, threads);
        }
}

/* -- gates ------------------------------------------------------------------------------ */

struct gate_case {
    int64_t      n, ff;
    enum op_act  act;
    struct array u, weight;
    double      *out;
};

static double gate_formula(void *ctx)
{
    struct gate_case *c = ctx;
    double loss = 0;

    for (int64_t i = 0; i < c->n; i++)
        for (int64_t j = 0; j < c->ff; j++) {
            double y = act_formula(c->act, c->u.d[2 * i * c->ff + j]) *
                       c->u.d[(2 * i + 1) * c->ff + j];

            loss += y * c->weight.d[i * c->ff + j];
            if (c->out)
                c->out[i * c->ff + j] = y;
        }
    return loss;
}

static void gate_case(int64_t n, int64_t ff, enum op_act act, int threads)
{
    struct device *dev = device(threads);
    struct gate_case c = {.n = n, .ff = ff, .act = act, .u = array_random(2 * n * ff),
                          .weight = array_random(n * ff)};
    struct array out = array_new(n * ff), du = array_random(2 * n * ff);
    struct op_gate op = {.out = out.f, .du = du.f, .u = c.u.f, .dout = c.weight.f, .act = act,
                         .n = n, .ff = ff};

    c.out = out.d;
    gate_formula(&c);
    c.out = NULL;
    dev->ops->gate_fwd(dev, &op);
    agree(out.f, out.d, out.n, "gate");
    dev->ops->gate_bwd(dev, &op);
    check_gradient(du.f, NULL, &c.u, gate_formula, &c, "gate du");
    array_free(&out);
    array_free(&du);
    array_free(&c.u);
    array_free(&c.weight);
    device_done(dev);
}

TEST(gate_agrees_for_every_activation)
{
    for (int threads = 1; threads <= 3; threads++)
        for (int act = OP_ACT_GELU_TANH; act <= OP_ACT_SILU; act++) {
            gate_case(3, 37, (enum op_act)act, threads);
            gate_case(1, 1, (enum op_act)act, threads);
            gate_case(0, 5, (enum op_act)act, threads);
        }
}

/* -- experts ----------------------------------------------------------------------------- */

struct experts_case {
    int64_t      n, dim, ff, E, k;
    bool         renorm;
    struct array x, res, router, w, weight;     /* w: [E][gate, up [F, D], down [D, F]] */
    double      *out;
};

/* The k largest of p[E] get their weight, the others 0. */
static void route(const struct experts_case *c, double *w, const double *p)
{
    double sum = 0;

    for (int64_t e = 0; e < c->E; e++)
        w[e] = 0;
    for (int64_t j = 0; j < c->k; j++) {
        int64_t best = -1;

        for (int64_t e = 0; e < c->E; e++)
            if (w[e] == 0 && (best < 0 || p[e] > p[best]))
                best = e;
        w[best] = p[best];
        sum += p[best];
    }
    for (int64_t e = 0; c->renorm && e < c->E; e++)
        w[e] /= sum;
}

static double experts_formula(void *ctx)
{
    struct experts_case *c = ctx;
    int64_t D = c->dim, F = c->ff;
    double loss = 0;

    for (int64_t i = 0; i < c->n; i++) {
        const double *x = c->x.d + i * D;
        double p[16], w[16], y[16], total = 0;

        for (int64_t e = 0; e < c->E; e++) {
            p[e] = 0;
            for (int64_t j = 0; j < D; j++)
                p[e] += x[j] * c->router.d[e * D + j];
            total += p[e] = exp(p[e]);
        }
        for (int64_t e = 0; e < c->E; e++)
            p[e] /= total;
        route(c, w, p);
        memcpy(y, c->res.d + i * D, (size_t)D * sizeof *y);
        for (int64_t e = 0; e < c->E; e++)
            for (int64_t f = 0; w[e] > 0 && f < F; f++) {
                const double *m = c->w.d + e * 3 * D * F;
                double gate = 0, up = 0;

                for (int64_t j = 0; j < D; j++) {
                    gate += x[j] * m[f * D + j];
                    up += x[j] * m[(F + f) * D + j];
                }
                for (int64_t j = 0; j < D; j++)
                    y[j] += w[e] * act_formula(OP_ACT_SILU, gate) * up * m[2 * D * F + j * F + f];
            }
        for (int64_t j = 0; j < D; j++) {
            loss += y[j] * c->weight.d[i * D + j];
            if (c->out)
                c->out[i * D + j] = y[j];
        }
    }
    return loss;
}

static void experts_case(struct experts_case c, int threads)
{
    struct device *dev = device(threads);
    int64_t D = c.dim, F = c.ff;
    struct array out = array_new(c.n * D), dx = array_random(c.n * D);
    struct array drouter = array_random(c.E * D), dw = array_random(c.E * 3 * D * F);
    float *u = calloc((size_t)(2 * c.n * c.k * F + 1), sizeof *u);
    float *probs = calloc((size_t)(c.n * c.E + 1), sizeof *probs);
    int32_t *picked = calloc((size_t)(c.n * c.k + 1), sizeof *picked);
    struct op_experts op;

    c.x = array_random(c.n * D);
    c.res = array_random(c.n * D);
    c.router = array_random(c.E * D);
    c.w = array_random(c.E * 3 * D * F);
    c.weight = array_random(c.n * D);
    c.out = out.d;
    experts_formula(&c);
    c.out = NULL;
    op = (struct op_experts){
        .out = out.f, .dx = dx.f, .u = u, .probs = probs, .top_k_index = picked, .x = c.x.f,
        .residual = c.res.f, .dout = c.weight.f, .router = c.router.f, .gate = c.w.f,
        .up = c.w.f + D * F, .down = c.w.f + 2 * D * F, .drouter = drouter.f, .dgate = dw.f,
        .dup = dw.f + D * F, .ddown = dw.f + 2 * D * F, .n = c.n, .dim = D, .ff = F,
        .n_expert = c.E, .top_k = c.k, .stride = 3 * D * F, .act = OP_ACT_SILU,
        .renorm = c.renorm,
    };
    dev->ops->experts_fwd(dev, &op);
    agree(out.f, out.d, out.n, "experts");
    dev->ops->experts_bwd(dev, &op);
    check_gradient(dx.f, NULL, &c.x, experts_formula, &c, "experts dx");
    check_gradient(drouter.f, drouter.d, &c.router, experts_formula, &c, "experts drouter");
    check_gradient(dw.f, dw.d, &c.w, experts_formula, &c, "experts dw");
    free(u);
    free(probs);
    free(picked);
    array_free(&out);
    array_free(&dx);
    array_free(&drouter);
    array_free(&dw);
    array_free(&c.x);
    array_free(&c.res);
    array_free(&c.router);
    array_free(&c.w);
    array_free(&c.weight);
    device_done(dev);
}

TEST(experts_agree_however_many_are_picked)
{
    for (int threads = 1; threads <= 3; threads++)
        for (int renorm = 0; renorm < 2; renorm++) {
            experts_case((struct experts_case){.n = 7, .dim = 5, .ff = 3, .E = 4, .k = 2,
                                               .renorm = renorm}, threads);
            experts_case((struct experts_case){.n = 3, .dim = 4, .ff = 6, .E = 6, .k = 3,
                                               .renorm = renorm}, threads);
            experts_case((struct experts_case){.n = 2, .dim = 3, .ff = 2, .E = 3, .k = 3,
                                               .renorm = renorm}, threads);
        }
}

/* -- projections side by side ----------------------------------------------------------- */

/* Two products of one x, their outputs next to each other in rows of 9. */
struct pair_case {
    struct array x, w[2], b, weight;
    double      *out;
};

enum { P_N = 5, P_IN = 4, P_ONE = 6, P_TWO = 3, P_LD = P_ONE + P_TWO };

static double pair_formula(void *ctx)
{
    struct pair_case *c = ctx;
    double loss = 0;

    for (int64_t i = 0; i < P_N; i++)
        for (int64_t o = 0; o < P_LD; o++) {
            const double *w = o < P_ONE ? c->w[0].d + o * P_IN : c->w[1].d + (o - P_ONE) * P_IN;
            double y = o < P_ONE ? c->b.d[o] : 0;

            for (int64_t k = 0; k < P_IN; k++)
                y += c->x.d[i * P_IN + k] * w[k];
            loss += y * c->weight.d[i * P_LD + o];
            if (c->out)
                c->out[i * P_LD + o] = y;
        }
    return loss;
}

TEST(linears_agree_side_by_side)
{
    for (int threads = 1; threads <= 3; threads++) {
        struct device *dev = device(threads);
        struct pair_case c = {.x = array_random(P_N * P_IN), .b = array_random(P_ONE),
                              .w = {array_random(P_ONE * P_IN), array_random(P_TWO * P_IN)},
                              .weight = array_random(P_N * P_LD)};
        struct array out = array_new(P_N * P_LD), dx = array_random(P_N * P_IN);
        struct array dw = array_random(P_TWO * P_IN), db = array_random(P_ONE);
        struct op_linear op[2] = {{.out = out.f,
                                   .x = c.x.f,
                                   .proj.w = c.w[0].f,
                                   .proj.b = c.b.f,
                                   .dout = c.weight.f,
                                   .dx = dx.f,
                                   .proj.db = db.f,
                                   .n = P_N,
                                   .n_in = P_IN,
                                   .n_out = P_ONE,
                                   .out_ld = P_LD},
                                  {.out = out.f + P_ONE,
                                   .x = c.x.f,
                                   .proj.w = c.w[1].f,
                                   .dout = c.weight.f + P_ONE,
                                   .dx = dx.f,
                                   .proj.dw = dw.f,
                                   .n = P_N,
                                   .n_in = P_IN,
                                   .n_out = P_TWO,
                                   .out_ld = P_LD,
                                   .flags = OP_LINEAR_DX_ADD}};

        c.out = out.d;
        pair_formula(&c);
        c.out = NULL;
        for (int i = 0; i < 2; i++)
            dev->ops->linear_fwd(dev, &op[i]);
        agree(out.f, out.d, out.n, "pair");
        for (int i = 0; i < 2; i++)
            dev->ops->linear_bwd(dev, &op[i]);
        check_gradient(dx.f, NULL, &c.x, pair_formula, &c, "pair dx");
        check_gradient(dw.f, dw.d, &c.w[1], pair_formula, &c, "pair dw");
        check_gradient(db.f, db.d, &c.b, pair_formula, &c, "pair db");
        array_free(&c.x);
        array_free(&c.b);
        array_free(&c.w[0]);
        array_free(&c.w[1]);
        array_free(&c.weight);
        array_free(&out);
        array_free(&dx);
        array_free(&dw);
        array_free(&db);
        device_done(dev);
    }
}

/* -- positions in a table --------------------------------------------------------------- */

struct place_case {
    struct array table, pos, weight;
    const int32_t *ids, *positions;
    int32_t      frozen;                /* this id's row is held out of the loss */
    double      *out;
};

enum { E_N = 6, E_D = 19, E_V = 5, E_P = 4 };

static double place_formula(void *ctx)
{
    struct place_case *c = ctx;
    double loss = 0;

    for (int64_t i = 0; i < E_N; i++)
        for (int64_t j = 0; j < E_D; j++) {
            double e = c->ids[i] == c->frozen && !c->out ? 0 : c->table.d[c->ids[i] * E_D + j];
            double y = e + c->pos.d[c->positions[i] * E_D + j];

            loss += y * c->weight.d[i * E_D + j];
            if (c->out)
                c->out[i * E_D + j] = y;
        }
    return loss;
}

TEST(embed_agrees_with_positions_and_a_padding_id)
{
    static const int32_t ids[] = {4, 1, 4, 0, 1, 2}, positions[] = {0, 1, 2, 3, 0, 1};

    for (int threads = 1; threads <= 3; threads++) {
        struct device *dev = device(threads);
        struct place_case c = {.table = array_random(E_V * E_D), .pos = array_random(E_P * E_D),
                               .weight = array_random(E_N * E_D), .ids = ids,
                               .positions = positions, .frozen = 1};
        struct array out = array_new(E_N * E_D), dtable = array_random(E_V * E_D);
        struct array dpos = array_random(E_P * E_D);
        struct op_embed op = {.out = out.f, .dout = c.weight.f, .table = c.table.f,
                              .dtable = dtable.f, .pos = c.pos.f, .dpos = dpos.f, .ids = ids,
                              .positions = positions, .n = E_N, .dim = E_D, .vocab = E_V,
                              .no_grad = 1};

        c.out = out.d;
        place_formula(&c);
        c.out = NULL;
        dev->ops->embed_fwd(dev, &op);
        agree(out.f, out.d, out.n, "embed with positions");
        dev->ops->embed_bwd(dev, &op);
        check_gradient(dtable.f, dtable.d, &c.table, place_formula, &c, "embed dtable");
        check_gradient(dpos.f, dpos.d, &c.pos, place_formula, &c, "embed dpos");
        array_free(&out);
        array_free(&dtable);
        array_free(&dpos);
        array_free(&c.table);
        array_free(&c.pos);
        array_free(&c.weight);
        device_done(dev);
    }
}

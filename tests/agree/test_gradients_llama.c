/*
 * Operations of gated and rotary models against their formulas in f64, as test_gradients.c:
 * heads with rope and norms, gates, experts.
 */
#include "tests/agree/gradients.h"

/* -- heads rotated by position ---------------------------------------------------------- */

struct rope_case {
    struct formula of;
    int64_t      n, H, K, d, rotary_dim;
    bool         norms, rotates;
    struct array x, table, wq, wk;
};

static const int32_t positions[] = {0, 8, 3, 3, 1};

/* One head: normalised with w, then rotated. */
static void rope_head(const struct rope_case *c, double *y, const double *x, const double *w,
                      int32_t position)
{
    int64_t half = c->rotary_dim / 2;
    const double *cosine = c->table.d + position * c->rotary_dim, *sine = cosine + half;
    double sq = 0, z[64];

    for (int64_t j = 0; j < c->d; j++)
        sq += x[j] * x[j] / (double)c->d;
    for (int64_t j = 0; j < c->d; j++)
        y[j] = z[j] = c->norms ? x[j] / sqrt(sq + 1e-6) * w[j] : x[j];
    for (int64_t j = 0; c->rotates && j < half; j++) {
        y[j] = z[j] * cosine[j] - z[j + half] * sine[j];
        y[j + half] = z[j + half] * cosine[j] + z[j] * sine[j];
    }
}

static void rope_fill(struct formula *of)
{
    const struct rope_case *c = (const struct rope_case *)of;
    int64_t heads = c->H + 2 * c->K;

    for (int64_t i = 0; i < c->n; i++)
        for (int64_t h = 0; h < heads; h++) {
            int64_t at = (i * heads + h) * c->d;
            const double *w = h < c->H ? c->wq.d : c->wk.d;

            if (h < c->H + c->K)
                rope_head(c, of->out.d + at, c->x.d + at, w, positions[i]);
            else
                memcpy(of->out.d + at, c->x.d + at, (size_t)c->d * sizeof(double));
        }
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
    struct array *out = &c.of.out, dq = array_random(c.d), dk = array_random(c.d);
    struct op_rope op;

    formula_init(&c.of, rope_fill, c.n * ld);
    c.x = array_random(c.n * ld);
    c.table = array_random(9 * c.rotary_dim);
    c.wq = array_random(c.d);
    c.wk = array_random(c.d);
    op = (struct op_rope){
        .in = heads_in(&c, out->f), .out = heads_in(&c, out->f),
        .grad = heads_in(&c, c.of.weight.f), .table = c.rotates ? c.table.f : NULL,
        .positions = positions, .n = c.n, .n_head = c.H, .n_kv = c.K, .dim = c.d,
        .rotary_dim = c.rotary_dim, .eps = 1e-6f,
    };
    if (c.norms) {
        op.in = heads_in(&c, c.x.f);
        op.stats = zeros(c.n * (c.H + c.K), sizeof *op.stats);
        op.q_norm = c.wq.f;
        op.k_norm = c.wk.f;
        op.dq_norm = dq.f;
        op.dk_norm = dk.f;
    } else {
        memcpy(out->f, c.x.f, (size_t)out->n * sizeof *out->f);
    }
    dev->ops->rope_fwd(dev, &op);
    check_out(&c.of, "rope");
    dev->ops->rope_bwd(dev, &op);       /* the loss' weights become the gradient of x */
    check_written(&c.of, &c.of.weight, &c.x, "rope dx");
    if (c.norms) {
        check_added(&c.of, &dq, &c.wq, "rope dwq");
        check_added(&c.of, &dk, &c.wk, "rope dwk");
    }
    device_done(dev);
}

TEST(rope_agrees_with_and_without_norms)
{
    static const struct rope_case cases[] = {
        {.n = 5, .H = 4, .K = 2, .d = 6, .rotary_dim = 6},
        {.n = 3, .H = 1, .K = 1, .d = 17, .rotary_dim = 10},    /* the rest passes */
        {.n = 0, .H = 2, .K = 1, .d = 4, .rotary_dim = 4},
    };

    for (int threads = 1; threads <= 3; threads++)
        for (int kind = 0; kind < 3; kind++)
            for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
                struct rope_case c = cases[i];

                c.norms = kind > 0;
                c.rotates = kind < 2;
                rope_case(c, threads);
            }
}

/* -- gates ------------------------------------------------------------------------------ */

struct gate_case {
    struct formula of;
    int64_t        n, ff;
    enum op_act    act;
    struct array   u;
};

static void gate_fill(struct formula *of)
{
    const struct gate_case *c = (const struct gate_case *)of;

    for (int64_t i = 0; i < c->n; i++)
        for (int64_t j = 0; j < c->ff; j++)
            of->out.d[i * c->ff + j] = act_formula(c->act, c->u.d[2 * i * c->ff + j]) *
                                       c->u.d[(2 * i + 1) * c->ff + j];
}

static void gate_case(int64_t n, int64_t ff, enum op_act act, int threads)
{
    struct device *dev = device(threads);
    struct gate_case c = {.n = n, .ff = ff, .act = act, .u = array_random(2 * n * ff)};
    struct array du = array_random(2 * n * ff);
    struct op_gate op;

    formula_init(&c.of, gate_fill, n * ff);
    op = (struct op_gate){.out = c.of.out.f, .du = du.f, .u = c.u.f, .dout = c.of.weight.f,
                          .act = act, .n = n, .ff = ff};
    dev->ops->gate_fwd(dev, &op);
    check_out(&c.of, "gate");
    dev->ops->gate_bwd(dev, &op);
    check_written(&c.of, &du, &c.u, "gate du");
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
    struct formula of;
    int64_t        n, dim, ff, E, k;
    bool           renorm;
    struct array   x, res, router, w;   /* w: [E][gate, up [F, D], down [D, F]] */
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

static void experts_fill(struct formula *of)
{
    const struct experts_case *c = (const struct experts_case *)of;
    int64_t D = c->dim, F = c->ff;

    for (int64_t i = 0; i < c->n; i++) {
        const double *x = c->x.d + i * D;
        double p[16], w[16], *y = of->out.d + i * D, total = 0;

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
    }
}

static void experts_case(struct experts_case c, int threads)
{
    struct device *dev = device(threads);
    int64_t D = c.dim, F = c.ff;
    struct array dx = array_random(c.n * D), drouter = array_random(c.E * D);
    struct array dw = array_random(c.E * 3 * D * F);
    struct op_experts op;

    formula_init(&c.of, experts_fill, c.n * D);
    c.x = array_random(c.n * D);
    c.res = array_random(c.n * D);
    c.router = array_random(c.E * D);
    c.w = array_random(c.E * 3 * D * F);
    op = (struct op_experts){
        .out = c.of.out.f, .dx = dx.f, .u = zeros(2 * c.n * c.k * F, sizeof(float)),
        .probs = zeros(c.n * c.E, sizeof(float)),
        .top_k_index = zeros(c.n * c.k, sizeof(int32_t)), .x = c.x.f, .residual = c.res.f,
        .dout = c.of.weight.f, .router = c.router.f, .gate = c.w.f, .up = c.w.f + D * F,
        .down = c.w.f + 2 * D * F, .drouter = drouter.f, .dgate = dw.f, .dup = dw.f + D * F,
        .ddown = dw.f + 2 * D * F, .n = c.n, .dim = D, .ff = F, .n_expert = c.E, .top_k = c.k,
        .stride = 3 * D * F, .act = OP_ACT_SILU, .renorm = c.renorm,
    };
    dev->ops->experts_fwd(dev, &op);
    check_out(&c.of, "experts");
    dev->ops->experts_bwd(dev, &op);
    check_written(&c.of, &dx, &c.x, "experts dx");
    check_added(&c.of, &drouter, &c.router, "experts drouter");
    check_added(&c.of, &dw, &c.w, "experts dw");
    device_done(dev);
}

TEST(experts_agree_for_every_top_k)
{
    static const struct experts_case cases[] = {
        {.n = 7, .dim = 5, .ff = 3, .E = 4, .k = 2},
        {.n = 3, .dim = 4, .ff = 6, .E = 6, .k = 3},
        {.n = 2, .dim = 3, .ff = 2, .E = 3, .k = 3},
    };

    for (int threads = 1; threads <= 3; threads++)
        for (int renorm = 0; renorm < 2; renorm++)
            for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
                struct experts_case c = cases[i];

                c.renorm = renorm;
                experts_case(c, threads);
            }
}

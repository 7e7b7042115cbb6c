/*
 * experts - routed feed-forwards.
 *
 * Rows are sorted by expert, so that each expert's products run over its own rows at once; the
 * experts' outputs are then summed row by row, in rising order of experts.  Where the gate's
 * matrix is followed by up's, they are one product.
 */
#include "trainer/cuda/moe/experts.h"

enum { TRIAL_BYTES = 64 << 20 };

/* The workspace of one call. */
struct space {
    struct moe_route   r;
    unsigned char *x, *y;           /* [n k, D] rows of x; outputs, or gradients of x */
    unsigned char *g, *dg;          /* [n k, F] */
    unsigned char *du;              /* bwd: [n k, 2F] */
    unsigned char *dlogits;         /* bwd: [n, E] */
    const int32_t *first;           /* [E + 1] on the host, if needed there */
    bool           here;
    uint64_t       busy;
};

static uint64_t lay_out(struct space *s, const struct device *dev, unsigned char *base, int64_t n,
                        int64_t k, int64_t E, int64_t D, int64_t F, bool back)
{
    uint64_t wide = (uint64_t)(n * k * D) * cuda_size(dev);
    uint64_t hidden = (uint64_t)(n * k * F) * cuda_size(dev);
    uint64_t at = moe_route_layout(&s->r, base, n, k, E);

    cuda_take(&s->x, base, &at, wide);
    cuda_take(&s->y, base, &at, wide);
    cuda_take(&s->g, base, &at, hidden);
    cuda_take(&s->dg, base, &at, back ? hidden : 0);
    cuda_take(&s->du, base, &at, back ? 2 * hidden : 0);
    cuda_take(&s->dlogits, base, &at, back ? (uint64_t)(n * E) * cuda_size(dev) : 0);
    return at;
}

uint64_t cuda_experts_work(const struct device *dev, const struct op_limits *l)
{
    struct space none;

    if (!l->n_expert)
        return 0;
    return MATMUL_WORK + (l->train ? (uint64_t)TRIAL_BYTES : 0) +
           lay_out(&none, dev, NULL, l->n, l->top_k, l->n_expert, l->dim, l->expert_ff, l->train);
}

static bool refuse(struct device *dev, const char *op, const char *what, int64_t found,
                   int64_t most)
{
    return cuda_fail(dev, CKPT_ECONFIG, "GPU %d, %s: %lld %s, at most %lld", cuda_of(dev)->index,
                     op, (long long)found, what, (long long)most);
}

static bool open_space(struct space *s, struct device *dev, const struct op_experts *a, bool back,
                       const char *op)
{
    uint64_t bytes = lay_out(s, dev, NULL, a->n, a->top_k, a->n_expert, a->dim, a->ff, back);
    unsigned char *base;

    if (a->n_expert > ROUTE_MOST)
        return refuse(dev, op, "experts", a->n_expert, ROUTE_MOST);
    if (a->n * a->top_k > INT32_MAX)
        return refuse(dev, op, "chosen experts of all rows", a->n * a->top_k, INT32_MAX);
    base = (unsigned char *)matmul_work(dev, op, bytes);
    if (!base)
        return false;
    lay_out(s, dev, base, a->n, a->top_k, a->n_expert, a->dim, a->ff, back);
    s->busy = bytes;
    return true;
}

/* Sort slots by expert, and copy the experts' counts to the host if needed. */
static void order(struct device *dev, const struct op_experts *a, struct space *s, bool outer)
{
    size_t bytes = (size_t)(a->n_expert + 1) * sizeof(int32_t);

    moe_route_sort(dev, a, &s->r);
    s->first = NULL;
    s->here = moe_grouped_supported(dev, a);
    if (s->here)
        moe_grouped_start(dev, &s->r, a->n_expert);
    if (s->here && !outer)
        return;
    dev->ops->to_host(dev, cuda_of(dev)->host, s->r.first, bytes);
    s->first = (const int32_t *)(const void *)cuda_of(dev)->host;
}

static const void *at(const void *p, size_t size, int64_t elements)
{
    return (const unsigned char *)p + elements * (int64_t)size;
}

/* Products by expert: one product of cuBLASLt for each that has rows, or a kernel of our own for
 * all of them. */
static void grouped(struct device *dev, const struct moe_grouped *g)
{
    struct matmul_args p = matmul_of(dev, g->op, g->m, g->n, g->k, g->busy);
    size_t size = cuda_size(dev);

    if (g->here && !g->outer) {
        moe_grouped_rows(dev, g);
        return;
    }
    p.out = g->outer ? CKPT_F32 : dev->act;
    p.lda = g->lda;
    p.ldb = g->ldb;
    p.ldd = g->ldd;
    p.a_t = g->outer;
    p.b_t = g->b_t;
    p.beta = g->outer ? 1.0f : g->beta;
    p.quick = true;
    for (int64_t e = 0; e < g->E; e++) {
        int64_t first = g->first[e], rows = g->first[e + 1] - first;

        if (g->outer)
            p.k = rows;
        else
            p.m = rows;
        p.a = at(g->a, size, first * g->lda);
        p.b = at(g->b, size, g->outer ? first * g->ldb : e * g->stride);
        p.d = (void *)(uintptr_t)(g->outer ? at(g->d, sizeof(float), e * g->stride)
                                           : at(g->d, size, first * g->ldd));
        if (rows > 0)
            matmul(dev, &p);
    }
}

/* Products over rows: d = a op(b_e), accumulated with beta. */
static struct moe_grouped rows_of(const struct op_experts *a, const struct space *s,
                                  const char *op)
{
    struct moe_grouped g = {};

    g.op = op;
    g.E = a->n_expert;
    g.stride = a->stride;
    g.first = s->first;
    g.route = &s->r;
    g.slots = a->n * a->top_k;
    g.here = s->here;
    g.busy = s->busy;
    return g;
}

static bool joint(const struct device *dev, const struct op_experts *a)
{
    return a->up == at(a->gate, cuda_size(dev), a->ff * a->dim);
}

/* u = x [Wgate; Wup]^T; g = act(u_gate) * u_up */
static void widen(struct device *dev, const struct op_experts *a, const struct space *s)
{
    struct moe_grouped g = rows_of(a, s, "experts_fwd");
    bool both = joint(dev, a), gated = s->here && both && a->act == OP_ACT_SILU;
    struct op_gate gate = {};

    g.a = s->x;
    g.lda = g.ldb = g.k = a->dim;
    g.b = a->gate;
    g.b_t = true;
    g.d = a->u;
    g.ldd = 2 * a->ff;
    g.n = both ? 2 * a->ff : a->ff;
    g.gated = gated ? s->g : NULL;
    grouped(dev, &g);
    if (gated)
        return;
    if (!both) {
        g.b = a->up;
        g.d = (void *)(uintptr_t)at(a->u, cuda_size(dev), a->ff);
        grouped(dev, &g);
    }
    gate.out = s->g;
    gate.u = a->u;
    gate.act = a->act;
    gate.n = a->n * a->top_k;
    gate.ff = a->ff;
    cuda_gate_fwd(dev, &gate);
}

void cuda_experts_fwd(struct device *dev, const struct op_experts *a)
{
    struct matmul_args p;
    struct moe_grouped g;
    struct space s;

    if (dev->err.code || a->n == 0 || !open_space(&s, dev, a, false, "experts_fwd"))
        return;
    p = matmul_of(dev, "experts_fwd", a->n, a->n_expert, a->dim, s.busy);
    p.ldd = a->n_expert;
    p.lda = p.ldb = a->dim;
    p.a = a->x;
    p.b = a->router;
    p.b_t = true;
    p.d = a->probs;
    p.out = CKPT_F32;
    matmul(dev, &p);
    moe_route_topk(dev, a);
    order(dev, a, &s, false);
    if (a->used)
        moe_route_count_used(dev, a, &s.r);
    moe_route_gather(dev, &s.r, s.x, a->x, a->n * a->top_k, a->dim);
    if (dev->err.code)
        return;
    widen(dev, a, &s);
    g = rows_of(a, &s, "experts_fwd");
    g.a = s.g;
    g.lda = g.ldb = g.k = a->ff;
    g.b = a->down;
    g.b_t = true;
    g.d = s.y;
    g.n = g.ldd = a->dim;
    grouped(dev, &g);
    moe_route_combine(dev, a, &s.r, a->out, a->residual, s.y, true);
}

/* The gradients of an expert's matrices: y is dout by slot, g the weighted input of down. */
static void matrices_back(struct device *dev, const struct op_experts *a, const struct space *s)
{
    struct moe_grouped g = rows_of(a, s, "experts_bwd");
    float *dgate = (float *)a->dgate, *dup = (float *)a->dup;
    bool both = dgate && dup == dgate + a->ff * a->dim && joint(dev, a);

    g.outer = true;
    if (a->ddown) {
        g.a = s->y;
        g.lda = g.m = a->dim;
        g.b = s->g;
        g.ldb = g.n = g.ldd = a->ff;
        g.d = a->ddown;
        grouped(dev, &g);
    }
    g.a = s->du;
    g.lda = 2 * a->ff;
    g.m = both ? 2 * a->ff : a->ff;
    g.b = s->x;
    g.ldb = g.n = g.ldd = a->dim;
    if (dgate) {
        g.d = dgate;
        grouped(dev, &g);
    }
    if (dup && !both) {
        g.a = at(s->du, cuda_size(dev), a->ff);
        g.d = dup;
        grouped(dev, &g);
    }
}

/* y = du [Wgate; Wup]: the gradient of x by slot. */
static void narrow_back(struct device *dev, const struct op_experts *a, const struct space *s)
{
    struct moe_grouped g = rows_of(a, s, "experts_bwd");
    bool both = joint(dev, a);

    g.a = s->du;
    g.lda = 2 * a->ff;
    g.k = both ? 2 * a->ff : a->ff;
    g.b = a->gate;
    g.d = s->y;
    g.n = g.ldb = g.ldd = a->dim;
    grouped(dev, &g);
    if (both)
        return;
    g.a = at(s->du, cuda_size(dev), a->ff);
    g.b = a->up;
    g.beta = 1.0f;
    grouped(dev, &g);
}

/* dx from the router alone; its matrix' gradient. */
static void router_back(struct device *dev, const struct op_experts *a, const struct space *s)
{
    struct matmul_args p = matmul_of(dev, "experts_bwd", a->n, a->dim, a->n_expert, s->busy);

    moe_route_bwd(dev, a, &s->r, s->dlogits);
    p.ldb = p.ldd = a->dim;
    p.lda = a->n_expert;
    p.a = s->dlogits;
    p.b = a->router;
    p.d = a->dx;
    matmul(dev, &p);
    if (!a->drouter)
        return;
    p.m = a->n_expert;
    p.k = a->n;
    p.a_t = true;
    p.b = a->x;
    p.d = a->drouter;
    p.out = CKPT_F32;
    p.beta = 1.0f;
    matmul(dev, &p);
}

void cuda_experts_bwd(struct device *dev, const struct op_experts *a)
{
    struct moe_grouped g;
    struct space s;

    if (dev->err.code || a->n == 0 || !open_space(&s, dev, a, true, "experts_bwd"))
        return;
    order(dev, a, &s, a->dgate || a->dup || a->ddown);
    if (a->dgate || a->dup)
        moe_route_gather(dev, &s.r, s.x, a->x, a->n * a->top_k, a->dim);
    moe_route_gather(dev, &s.r, s.y, a->dout, a->n * a->top_k, a->dim);
    if (dev->err.code)
        return;
    g = rows_of(a, &s, "experts_bwd");
    g.a = s.y;
    g.lda = g.k = a->dim;
    g.b = a->down;
    g.d = s.dg;
    g.n = g.ldb = g.ldd = a->ff;
    grouped(dev, &g);
    moe_route_gate_bwd(dev, a, &s.r, a->ddown ? s.g : NULL, s.du, s.dg);
    matrices_back(dev, a, &s);
    narrow_back(dev, a, &s);
    router_back(dev, a, &s);
    moe_route_combine(dev, a, &s.r, a->dx, a->dx, s.y, false);
}

/* mlp - see mlp.h. */
#include "trainer/model/mlp.h"

#include "trainer/model/pass.h"

static enum op_act act_of(const struct arch *a)
{
    static const enum op_act act[] = {
        [ARCH_RELU] = OP_ACT_RELU, [ARCH_GELU_ERF] = OP_ACT_GELU_ERF,
        [ARCH_GELU_TANH] = OP_ACT_GELU_TANH, [ARCH_SILU] = OP_ACT_SILU,
    };

    return act[a->act];
}

/* The norm whose output is the products' input. */
static struct op_rownorm norm_in(const struct pass *p, const struct layer *l,
                                 const struct block_bufs *b)
{
    bool post = p->m->arch->place == ARCH_POST_NORM;

    return layer_op_rownorm(p, l, post ? ROLE_NORM1_W : ROLE_NORM2_W,
                            post ? ROLE_NORM1_B : ROLE_NORM2_B, b->at[BUF_Y2], b->at[BUF_STATS2],
                            b->at[BUF_H1]);
}

/* Post-norm: the norm after the sum s. */
static struct op_rownorm norm_out(const struct pass *p, const struct layer *l,
                                  const struct block_bufs *b)
{
    return layer_op_rownorm(p, l, ROLE_NORM2_W, ROLE_NORM2_B, NULL, b->at[BUF_STATS1],
                            b->at[BUF_Y1]);
}

/* A product of y2 and the matrix of that role. */
static struct op_linear from_y2(const struct pass *p, const struct layer *l,
                                const struct block_bufs *b, enum role w, enum role bias,
                                int64_t n_out)
{
    struct op_linear op = layer_op_linear(p, l, w, bias, p->m->arch->hidden_size, n_out);

    op.x = b->at[BUF_Y2];
    return op;
}

static struct op_linear up_linear(const struct pass *p, const struct layer *l,
                                  const struct block_bufs *b)
{
    return from_y2(p, l, b, ROLE_UP_W, ROLE_UP_B, p->m->arch->intermediate_size);
}

/* The two halves of a gated u: one product, or two with adjacent outputs.  Returns how many. */
static int gate_linears(struct op_linear op[2], const struct pass *p, const struct layer *l,
                        const struct block_bufs *b)
{
    int64_t ff = p->m->arch->intermediate_size;

    if (layer_weight(l, ROLE_GATE_UP_W)) {
        op[0] = from_y2(p, l, b, ROLE_GATE_UP_W, ROLE_COUNT, 2 * ff);
        return 1;
    }
    op[0] = from_y2(p, l, b, ROLE_GATE_W, ROLE_GATE_B, ff);
    op[1] = up_linear(p, l, b);
    op[0].out_ld = op[1].out_ld = 2 * ff;
    op[1].flags |= OP_LINEAR_SAME_X;
    return 2;
}

static void *half_of(const struct pass *p, void *buf, int i)
{
    return (unsigned char *)buf +
           (size_t)(i * p->m->arch->intermediate_size) * ckpt_dtype_size(p->dev->act);
}

static struct op_gate gate(const struct pass *p, const struct layer *l,
                           const struct block_bufs *b)
{
    return (struct op_gate){
        .out = b->at[BUF_G], .u = b->at[BUF_U], .dout = b->at[BUF_DG], .du = b->at[BUF_DU],
        .act = act_of(p->m->arch), .n = p->n, .ff = p->m->arch->intermediate_size,
        .drop = pass_drop(p, l, DROP_ACT, p->m->arch->ff_dropout),
    };
}

/* Backward needs only max(0, p), with or without dropout, and not p: store it in place of p. */
static bool keeps_out(const struct pass *p)
{
    const struct arch *a = p->m->arch;

    return a->mlp != ARCH_MLP_GATED && a->act == ARCH_RELU;
}

static struct op_linear down_linear(const struct pass *p, const struct layer *l,
                                    const struct block_bufs *b)
{
    const struct arch *a = p->m->arch;
    struct op_linear op = layer_op_linear(p, l, ROLE_DOWN_W, ROLE_DOWN_B, a->intermediate_size,
                                          a->hidden_size);

    op.x = b->at[keeps_out(p) && p->keep ? BUF_U : BUF_G];
    op.drop = pass_drop(p, l, DROP_MLP, a->hidden_dropout);
    return op;
}

/* u, after the norm that computes y2; with g also the input of the down projection. */
static void up_fwd(const struct pass *p, const struct layer *l, const struct block_bufs *b,
                   const struct op_rownorm *norm, bool g)
{
    if (p->m->arch->mlp == ARCH_MLP_GATED) {
        struct op_linear op[2];
        struct op_gate gated = gate(p, l, b);
        int n = gate_linears(op, p, l, b);

        for (int i = 0; i < n; i++)
            op[i].out = half_of(p, b->at[BUF_U], i);
        n = layer_join(op, n, p->dev);
        layer_norm_multiply(p, norm, op, n, g ? &gated : NULL);
    } else {
        struct op_linear up = up_linear(p, l, b);
        bool kept = keeps_out(p);

        up.out = b->at[g && !(kept && p->keep) ? BUF_G : BUF_U];
        up.pre = g && p->keep && !kept ? b->at[BUF_U] : NULL;
        up.act = g || kept ? act_of(p->m->arch) : OP_ACT_NONE;
        if (g || kept)
            up.drop = pass_drop(p, l, DROP_ACT, p->m->arch->ff_dropout);
        layer_norm_multiply(p, norm, &up, 1, NULL);
    }
}

/* The output of the half: to next, or post-norm to s. */
static void down_fwd(const struct pass *p, const struct layer *l, const struct block_bufs *b,
                     void *to)
{
    const struct arch *a = p->m->arch;
    struct op_linear down = down_linear(p, l, b);

    down.out = to;
    down.residual = b->at[a->resid_from_norm || a->place == ARCH_POST_NORM ? BUF_Y2 : BUF_H1];
    p->dev->ops->linear_fwd(p->dev, &down);
}

static bool routed(const struct pass *p, const struct layer *l)
{
    return arch_routed(p->m->arch, l->index - 1);
}

static struct op_experts experts(const struct pass *p, const struct layer *l,
                                 const struct block_bufs *b)
{
    const struct arch *a = p->m->arch;

    return (struct op_experts){
        .u = b->at[BUF_U], .probs = b->at[BUF_PROBS], .top_k_index = b->at[BUF_TOP_K],
        .x = b->at[BUF_Y2], .residual = b->at[BUF_H1],
        .router = layer_weight(l, ROLE_ROUTER_W), .gate = layer_weight(l, ROLE_EXPERT_GATE),
        .up = layer_weight(l, ROLE_EXPERT_UP), .down = layer_weight(l, ROLE_EXPERT_DOWN),
        .drouter = layer_grad(l, ROLE_ROUTER_W), .dgate = layer_grad(l, ROLE_EXPERT_GATE),
        .dup = layer_grad(l, ROLE_EXPERT_UP), .ddown = layer_grad(l, ROLE_EXPERT_DOWN),
        .n = p->n, .dim = a->hidden_size, .ff = a->moe_intermediate_size,
        .n_expert = a->num_experts, .top_k = a->num_experts_per_tok,
        .stride = 3 * params_room(&p->m->params, a->hidden_size * a->moe_intermediate_size),
        .act = act_of(a),
        .renorm = a->norm_topk_prob, .dused = p->m->routing.dused,
    };
}

/* Jitter, in training, of the input of router and experts, and of its gradient. */
static void jitter(const struct pass *p, const struct layer *l, void *x)
{
    struct op_drop by = pass_drop(p, l, DROP_ROUTER, p->m->arch->router_jitter);

    if (by.p > 0)
        p->dev->ops->jitter(p->dev, x, p->n, p->m->arch->hidden_size, &by);
}

/*
 * Source: transformers 5.17, models/mixtral/modeling_mixtral.py, load_balancing_loss_func: E *
 * sum over experts of (share of top_k choices) * (mean probability), over the rows of all blocks.
 */
void mlp_balance(const struct pass *p, float scale)
{
    struct model *m = p->m;
    const struct arch *a = m->arch;
    int64_t E = a->num_experts, rows = 0;
    double sum = 0, by;

    m->routing.balance = 0;
    if (!m->routing.used)
        return;
    p->dev->ops->to_host(p->dev, m->routing.used_host, m->routing.used,
                         (size_t)(2 * E) * sizeof *m->routing.used);
    for (int64_t l = 0; l < a->num_hidden_layers; l++)
        rows += arch_routed(a, l) ? p->n : 0;
    if (rows == 0 || p->dev->err.code)
        return;
    by = a->router_aux * (double)E / (double)rows / (double)rows;
    for (int64_t e = 0; e < E; e++)
        sum += (double)m->routing.used_host[e] * (double)m->routing.used_host[E + e];
    m->routing.balance = by * sum;
    for (int64_t e = 0; e < E; e++)     /* a term of the mean, once per row of n_rows */
        m->routing.used_host[e] = (float)(by * (double)m->routing.used_host[e] * (double)scale *
                                  (double)p->n_rows);
    p->dev->ops->to_device(p->dev, m->routing.dused, m->routing.used_host,
                           (size_t)E * sizeof *m->routing.dused);
}

void mlp_fwd(const struct pass *p, const struct layer *l, const struct block_bufs *b, void *next)
{
    bool post = p->m->arch->place == ARCH_POST_NORM;
    struct op_rownorm norm = norm_in(p, l, b), last = norm_out(p, l, b);
    struct op_experts route = experts(p, l, b);

    if (routed(p, l)) {
        p->dev->ops->norm_fwd(p->dev, &norm);
        jitter(p, l, b->at[BUF_Y2]);
        route.out = next;
        route.used = p->cache ? NULL : p->m->routing.used;
        p->dev->ops->experts_fwd(p->dev, &route);
        return;
    }
    up_fwd(p, l, b, &norm, true);
    down_fwd(p, l, b, post ? b->at[BUF_Y1] : next);
    last.out = next;
    if (post)
        p->dev->ops->norm_fwd(p->dev, &last);
}

void mlp_recompute(const struct pass *p, const struct layer *l, const struct block_bufs *b)
{
    bool post = p->m->arch->place == ARCH_POST_NORM;
    struct op_rownorm norm = norm_in(p, l, b), last = norm_out(p, l, b);

    struct op_experts route = experts(p, l, b);

    if (routed(p, l)) {
        p->dev->ops->norm_fwd(p->dev, &norm);
        jitter(p, l, b->at[BUF_Y2]);
        route.out = b->at[BUF_DY2];     /* needed for the values it stores */
        p->dev->ops->experts_fwd(p->dev, &route);
        return;
    }
    up_fwd(p, l, b, &norm, post);
    if (!post)
        return;
    down_fwd(p, l, b, b->at[BUF_Y1]);
    last.out = b->at[BUF_DY2];          /* needed for its statistics */
    p->dev->ops->norm_fwd(p->dev, &last);
}

bool mlp_norm_sums_biases(const struct pass *p, const struct layer *l)
{
    const struct arch *a = p->m->arch;

    return a->place == ARCH_PRE_NORM && !a->resid_from_norm && !routed(p, l) &&
           !arch_has_cross(a, l->index - 1) &&
           pass_drop(p, l, DROP_MLP, a->hidden_dropout).p <= 0;
}

/* The gradient of u in du, from dh; gradients of the down projection. */
static void down_bwd(const struct pass *p, const struct layer *l, const struct block_bufs *b,
                     const void *dh)
{
    const struct ops *ops = p->dev->ops;
    struct op_linear down = down_linear(p, l, b);
    struct op_gate gated = gate(p, l, b);

    down.dout = dh;
    if (mlp_norm_sums_biases(p, l))
        down.proj.db = NULL;
    if (p->m->arch->mlp == ARCH_MLP_GATED) {
        struct op_linear back = down;           /* gradient of g alone: g itself is recomputed
                                                   from u together with du */
        struct op_lora *lora = &back.proj.lora;

        gated.recompute = back.proj.dw || back.proj.db || lora->da || lora->db || lora->dmagnitude;
        back.dx = b->at[BUF_DG];
        back.proj.dw = back.proj.db = lora->da = lora->db = lora->dmagnitude = NULL;
        ops->linear_bwd(p->dev, &back);
        ops->gate_bwd(p->dev, &gated);
        if (!gated.recompute)
            return;
    } else {
        down.dx = b->at[BUF_DU];
        down.x_act = act_of(p->m->arch);
        down.x_pre = b->at[BUF_U];
        if (keeps_out(p))
            down.x = b->at[BUF_U];
        down.x_drop = pass_drop(p, l, DROP_ACT, p->m->arch->ff_dropout);
        down.flags |= p->m->opts.recompute == RECOMPUTE_NONE ? OP_LINEAR_X_KEPT : 0u;
    }
    ops->linear_bwd(p->dev, &down);
}

/* dy2, from du; gradients of the up projection. */
static void up_bwd(const struct pass *p, const struct layer *l, const struct block_bufs *b)
{
    struct op_linear op[2] = {up_linear(p, l, b)};
    int n = p->m->arch->mlp == ARCH_MLP_GATED ? gate_linears(op, p, l, b) : 1;

    for (int i = 0; i < n; i++) {
        op[i].dout = half_of(p, b->at[BUF_DU], i);
        op[i].dx = b->at[BUF_DY2];
        op[i].flags |= i > 0 ? OP_LINEAR_DX_ADD : 0u;
    }
    n = layer_join(op, n, p->dev);
    layer_multiply(p, op, n, true);
}

void mlp_bwd(const struct pass *p, const struct layer *l, const struct block_bufs *b, void *dh)
{
    const struct arch *a = p->m->arch;
    bool post = a->place == ARCH_POST_NORM;
    struct op_rownorm norm = norm_in(p, l, b), last = norm_out(p, l, b);

    if (post) {
        last.dout = last.dx = dh;
        p->dev->ops->norm_bwd(p->dev, &last);
    }
    if (routed(p, l)) {
        struct op_experts route = experts(p, l, b);

        route.dout = dh;
        route.dx = b->at[BUF_DY2];
        if (pass_recomputes_norms(p)) {
            p->dev->ops->norm_fwd(p->dev, &norm);
            jitter(p, l, b->at[BUF_Y2]);
        }
        p->dev->ops->experts_bwd(p->dev, &route);
        jitter(p, l, b->at[BUF_DY2]);
    } else {
        down_bwd(p, l, b, dh);
        if (pass_recomputes_norms(p))
            p->dev->ops->norm_fwd(p->dev, &norm);
        up_bwd(p, l, b);
    }
    norm.dout = b->at[BUF_DY2];
    norm.dx = dh;
    *(a->resid_from_norm || post ? &norm.dout_add : &norm.dx_add) = dh;
    if (mlp_norm_sums_biases(p, l)) {
        norm.add_sum = layer_grad(l, ROLE_DOWN_B);
        norm.dx_sum = layer_grad(l, ROLE_OUT_B);
        norm.fresh = l->overwrite;
    }
    p->dev->ops->norm_bwd(p->dev, &norm);
}

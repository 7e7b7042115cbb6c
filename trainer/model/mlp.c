/* mlp - a block's second half: norm, feed-forward (plain, gated or routed), residual. */
#include "trainer/model/pass.h"

static enum op_act act_of(const struct arch *a)
{
    static const enum op_act act[] = {
        [ARCH_RELU] = OP_ACT_RELU, [ARCH_GELU_ERF] = OP_ACT_GELU_ERF,
        [ARCH_GELU_TANH] = OP_ACT_GELU_TANH, [ARCH_SILU] = OP_ACT_SILU,
    };

    return act[a->act];
}

/* The norm whose output the products read. */
static struct op_rownorm norm_in(const struct pass *p, const struct layer *u,
                                 const struct block_bufs *b)
{
    bool post = p->m->arch->place == ARCH_POST_NORM;

    return (struct op_rownorm){
        .out = b->at[BUF_Y2], .stats = b->at[BUF_STATS2], .x = b->at[BUF_H1],
        .norm = post ? layer_norm(u, ROLE_NORM1_W, ROLE_NORM1_B)
                     : layer_norm(u, ROLE_NORM2_W, ROLE_NORM2_B),
        .n = p->n, .n_x = p->n, .dim = p->m->arch->hidden_size,
    };
}

/* Post-norm: the norm behind the sum s. */
static struct op_rownorm norm_out(const struct pass *p, const struct layer *u,
                                  const struct block_bufs *b)
{
    return (struct op_rownorm){
        .stats = b->at[BUF_STATS1], .x = b->at[BUF_Y1],
        .norm = layer_norm(u, ROLE_NORM2_W, ROLE_NORM2_B), .n = p->n, .n_x = p->n,
        .dim = p->m->arch->hidden_size,
    };
}

/* A product of y2 and the matrix of that role. */
static struct op_linear from_y2(const struct pass *p, const struct layer *u,
                                const struct block_bufs *b, enum role w, enum role bias,
                                int64_t n_out)
{
    return (struct op_linear){
        .x = b->at[BUF_Y2], .w = layer_weight(u, w), .b = layer_weight(u, bias),
        .dw = layer_grad(u, w), .db = layer_grad(u, bias), .fresh = u->fresh, .n = p->n,
        .n_in = p->m->arch->hidden_size, .n_out = n_out,
        .in_out = p->m->arch->weight_order == ARCH_IN_OUT, .lora = layer_lora(p, u, w),
    };
}

static struct op_linear up_linear(const struct pass *p, const struct layer *u,
                                  const struct block_bufs *b)
{
    return from_y2(p, u, b, ROLE_UP_W, ROLE_UP_B, p->m->arch->intermediate_size);
}

/* The two halves of a gated u: one product, or two side by side.  Gives how many. */
static int gate_linears(struct op_linear op[2], const struct pass *p, const struct layer *u,
                        const struct block_bufs *b)
{
    int64_t ff = p->m->arch->intermediate_size;

    if (layer_weight(u, ROLE_GATE_UP_W)) {
        op[0] = from_y2(p, u, b, ROLE_GATE_UP_W, ROLE_COUNT, 2 * ff);
        return 1;
    }
    op[0] = from_y2(p, u, b, ROLE_GATE_W, ROLE_GATE_B, ff);
    op[1] = up_linear(p, u, b);
    op[0].out_ld = op[1].out_ld = 2 * ff;
    op[1].x_again = true;
    return 2;
}

static void *half_of(const struct pass *p, void *buf, int i)
{
    return (unsigned char *)buf +
           (size_t)(i * p->m->arch->intermediate_size) * ckpt_dtype_size(p->dev->act);
}

static struct op_gate gate(const struct pass *p, const struct layer *u,
                           const struct block_bufs *b)
{
    return (struct op_gate){
        .out = b->at[BUF_G], .u = b->at[BUF_U], .dout = b->at[BUF_DG], .du = b->at[BUF_DU],
        .act = act_of(p->m->arch), .n = p->n, .ff = p->m->arch->intermediate_size,
        .drop = pass_drop(p, u, DROP_ACT, p->m->arch->ff_dropout),
    };
}

/* max(0, p), dropped out or not, tells of p all that backward asks: it is kept in place of p. */
static bool keeps_out(const struct pass *p)
{
    const struct arch *a = p->m->arch;

    return a->mlp != ARCH_MLP_GATED && a->act == ARCH_RELU;
}

static struct op_linear down_linear(const struct pass *p, const struct layer *u,
                                    const struct block_bufs *b)
{
    return (struct op_linear){
        .x = b->at[keeps_out(p) && p->keep ? BUF_U : BUF_G],
        .w = layer_weight(u, ROLE_DOWN_W), .b = layer_weight(u, ROLE_DOWN_B),
        .dw = layer_grad(u, ROLE_DOWN_W), .db = layer_grad(u, ROLE_DOWN_B), .fresh = u->fresh,
        .n = p->n, .n_in = p->m->arch->intermediate_size, .n_out = p->m->arch->hidden_size,
        .in_out = p->m->arch->weight_order == ARCH_IN_OUT, .lora = layer_lora(p, u, ROLE_DOWN_W),
        .drop = pass_drop(p, u, DROP_MLP, p->m->arch->hidden_dropout),
    };
}

/* u behind the norm that makes y2; with g also what the products down read. */
static void up_fwd(const struct pass *p, const struct layer *u, const struct block_bufs *b,
                   const struct op_rownorm *norm, bool g)
{
    if (p->m->arch->mlp == ARCH_MLP_GATED) {
        struct op_linear op[2];
        struct op_gate gated = gate(p, u, b);
        int n = gate_linears(op, p, u, b);

        for (int i = 0; i < n; i++)
            op[i].out = half_of(p, b->at[BUF_U], i);
        n = join_linears(op, n, p->dev);
        normed_linears(p, norm, op, n, g ? &gated : NULL);
    } else {
        struct op_linear up = up_linear(p, u, b);
        bool kept = keeps_out(p);

        up.out = b->at[g && !(kept && p->keep) ? BUF_G : BUF_U];
        up.pre = g && p->keep && !kept ? b->at[BUF_U] : NULL;
        up.act = g || kept ? act_of(p->m->arch) : OP_ACT_NONE;
        if (g || kept)
            up.drop = pass_drop(p, u, DROP_ACT, p->m->arch->ff_dropout);
        normed_linears(p, norm, &up, 1, NULL);
    }
}

/* The sum that leaves the half: to next, or post-norm to s. */
static void down_fwd(const struct pass *p, const struct layer *u, const struct block_bufs *b,
                     void *to)
{
    const struct arch *a = p->m->arch;
    struct op_linear down = down_linear(p, u, b);

    down.out = to;
    down.residual = b->at[a->resid_from_norm || a->place == ARCH_POST_NORM ? BUF_Y2 : BUF_H1];
    p->dev->ops->linear_fwd(p->dev, &down);
}

static bool routed(const struct pass *p, const struct layer *u)
{
    return arch_routed(p->m->arch, u->index - 1);
}

static struct op_experts experts(const struct pass *p, const struct layer *u,
                                 const struct block_bufs *b)
{
    const struct arch *a = p->m->arch;

    return (struct op_experts){
        .u = b->at[BUF_U], .probs = b->at[BUF_PROBS], .top_k_index = b->at[BUF_PICKED],
        .x = b->at[BUF_Y2], .residual = b->at[BUF_H1],
        .router = layer_weight(u, ROLE_ROUTER_W), .gate = layer_weight(u, ROLE_EXPERT_GATE),
        .up = layer_weight(u, ROLE_EXPERT_UP), .down = layer_weight(u, ROLE_EXPERT_DOWN),
        .drouter = layer_grad(u, ROLE_ROUTER_W), .dgate = layer_grad(u, ROLE_EXPERT_GATE),
        .dup = layer_grad(u, ROLE_EXPERT_UP), .ddown = layer_grad(u, ROLE_EXPERT_DOWN),
        .n = p->n, .dim = a->hidden_size, .ff = a->moe_intermediate_size,
        .n_expert = a->num_experts, .top_k = a->num_experts_per_tok,
        .stride = 3 * a->hidden_size * a->moe_intermediate_size, .act = act_of(a),
        .renorm = a->norm_topk_prob, .dused = p->m->dused,
    };
}

/* In training what the router and the experts read is shaken, and so is its gradient. */
static void shake(const struct pass *p, const struct layer *u, void *x)
{
    struct op_drop by = pass_drop(p, u, DROP_ROUTER, p->m->arch->router_jitter);

    if (by.p > 0)
        p->dev->ops->jitter(p->dev, x, p->n, p->m->arch->hidden_size, &by);
}

/*
 * Source: transformers 5.17, models/mixtral/modeling_mixtral.py, load_balancing_loss_func:
 * E * sum over experts of (share of the picks) * (mean probability), over the rows of all blocks.
 */
void route_balance(const struct pass *p, float scale)
{
    struct model *m = (struct model *)(uintptr_t)p->m;
    const struct arch *a = m->arch;
    int64_t E = a->num_experts, rows = 0;
    double sum = 0, by;

    m->balance = 0;
    if (!m->used)
        return;
    p->dev->ops->to_host(p->dev, m->used_host, m->used, (size_t)(2 * E) * sizeof *m->used);
    for (int64_t l = 0; l < a->num_hidden_layers; l++)
        rows += arch_routed(a, l) ? p->n : 0;
    if (rows == 0 || p->dev->err.code)
        return;
    by = a->router_aux * (double)E / (double)rows / (double)rows;
    for (int64_t e = 0; e < E; e++)
        sum += (double)m->used_host[e] * (double)m->used_host[E + e];
    m->balance = by * sum;
    for (int64_t e = 0; e < E; e++)     /* the sum over n_rows of what a mean gets */
        m->used_host[e] = (float)(by * (double)m->used_host[e] * (double)scale *
                                  (double)p->n_rows);
    p->dev->ops->to_device(p->dev, m->dused, m->used_host, (size_t)E * sizeof *m->dused);
}

void mlp_fwd(const struct pass *p, const struct layer *u, const struct block_bufs *b, void *next)
{
    bool post = p->m->arch->place == ARCH_POST_NORM;
    struct op_rownorm norm = norm_in(p, u, b), last = norm_out(p, u, b);
    struct op_experts route = experts(p, u, b);

    if (routed(p, u)) {
        p->dev->ops->norm_fwd(p->dev, &norm);
        shake(p, u, b->at[BUF_Y2]);
        route.out = next;
        route.used = p->cache ? NULL : p->m->used;
        p->dev->ops->experts_fwd(p->dev, &route);
        return;
    }
    up_fwd(p, u, b, &norm, true);
    down_fwd(p, u, b, post ? b->at[BUF_Y1] : next);
    last.out = next;
    if (post)
        p->dev->ops->norm_fwd(p->dev, &last);
}

void mlp_again(const struct pass *p, const struct layer *u, const struct block_bufs *b)
{
    bool post = p->m->arch->place == ARCH_POST_NORM;
    struct op_rownorm norm = norm_in(p, u, b), last = norm_out(p, u, b);

    struct op_experts route = experts(p, u, b);

    if (routed(p, u)) {
        p->dev->ops->norm_fwd(p->dev, &norm);
        shake(p, u, b->at[BUF_Y2]);
        route.out = b->at[BUF_DY2];     /* for what it keeps */
        p->dev->ops->experts_fwd(p->dev, &route);
        return;
    }
    up_fwd(p, u, b, &norm, post);
    if (!post)
        return;
    down_fwd(p, u, b, b->at[BUF_Y1]);
    last.out = b->at[BUF_DY2];          /* for its statistics */
    p->dev->ops->norm_fwd(p->dev, &last);
}

bool biases_by_norm(const struct pass *p, const struct layer *u)
{
    const struct arch *a = p->m->arch;

    return a->place == ARCH_PRE_NORM && !a->resid_from_norm && !routed(p, u) &&
           !arch_has_cross(a, u->index - 1) &&
           pass_drop(p, u, DROP_MLP, a->hidden_dropout).p <= 0;
}

/* The gradient of u in du, from dh; the weights' of down. */
static void down_bwd(const struct pass *p, const struct layer *u, const struct block_bufs *b,
                     const void *dh)
{
    const struct ops *ops = p->dev->ops;
    struct op_linear down = down_linear(p, u, b);
    struct op_gate gated = gate(p, u, b);

    down.dout = dh;
    if (biases_by_norm(p, u))
        down.db = NULL;
    if (p->m->arch->mlp == ARCH_MLP_GATED) {
        struct op_linear back = down;           /* to dg alone: g is made again from u with du */

        back.dx = b->at[BUF_DG];
        back.dw = back.db = back.lora.da = back.lora.db = back.lora.dmagnitude = NULL;
        ops->linear_bwd(p->dev, &back);
        gated.recompute =
            down.dw || down.db || down.lora.da || down.lora.db || down.lora.dmagnitude;
        ops->gate_bwd(p->dev, &gated);
        if (!gated.recompute)
            return;
    } else {
        down.dx = b->at[BUF_DU];
        down.x_act = act_of(p->m->arch);
        down.x_pre = b->at[BUF_U];
        if (keeps_out(p))
            down.x = b->at[BUF_U];
        down.x_drop = pass_drop(p, u, DROP_ACT, p->m->arch->ff_dropout);
        down.x_made = p->m->opts.recompute == RECOMPUTE_NONE;
    }
    ops->linear_bwd(p->dev, &down);
}

/* dy2, from du; the weights' of up. */
static void up_bwd(const struct pass *p, const struct layer *u, const struct block_bufs *b)
{
    struct op_linear op[2] = {up_linear(p, u, b)};
    int n = p->m->arch->mlp == ARCH_MLP_GATED ? gate_linears(op, p, u, b) : 1;

    for (int i = 0; i < n; i++) {
        op[i].dout = half_of(p, b->at[BUF_DU], i);
        op[i].dx = b->at[BUF_DY2];
        op[i].dx_add = i > 0;
    }
    n = join_linears(op, n, p->dev);
    run_linears(p, op, n, true);
}

void mlp_bwd(const struct pass *p, const struct layer *u, const struct block_bufs *b, void *dh)
{
    const struct arch *a = p->m->arch;
    bool post = a->place == ARCH_POST_NORM;
    struct op_rownorm norm = norm_in(p, u, b), last = norm_out(p, u, b);

    if (post) {
        last.dout = last.dx = dh;
        p->dev->ops->norm_bwd(p->dev, &last);
    }
    if (routed(p, u)) {
        struct op_experts route = experts(p, u, b);

        route.dout = dh;
        route.dx = b->at[BUF_DY2];
        if (norms_again(p)) {
            p->dev->ops->norm_fwd(p->dev, &norm);
            shake(p, u, b->at[BUF_Y2]);
        }
        p->dev->ops->experts_bwd(p->dev, &route);
        shake(p, u, b->at[BUF_DY2]);
    } else {
        down_bwd(p, u, b, dh);
        if (norms_again(p))
            p->dev->ops->norm_fwd(p->dev, &norm);
        up_bwd(p, u, b);
    }
    norm.dout = b->at[BUF_DY2];
    norm.dx = dh;
    *(a->resid_from_norm || post ? &norm.dout_add : &norm.dx_add) = dh;
    if (biases_by_norm(p, u)) {
        norm.add_sum = layer_grad(u, ROLE_DOWN_B);
        norm.dx_sum = layer_grad(u, ROLE_OUT_B);
        norm.fresh = u->fresh;
    }
    p->dev->ops->norm_bwd(p->dev, &norm);
}

/*
 * attention - a block's first half: norm, projections, attention, output projection, residual.
 *
 * Layouts of the fused matrix: HEAD_INTERLEAVED is [H][q, k, v][d] (BLOOM), BLOCKS is all of q,
 * then k, then v (GPT-2, Phi-3); both are strides to the operation.
 */
#include <math.h>

#include "trainer/model/pass.h"

void alibi_slopes(float *slopes, int64_t n_head)
{
    int64_t c = 1;
    float base, extra;

    while (2 * c <= n_head)
        c *= 2;
    /* Base in f64, rounded, then an f32 power: 0.49999997 for H = 16, as the reference does. */
    base = (float)pow(2.0, -pow(2.0, -(log2((double)c) - 3.0)));
    extra = (float)pow(2.0, -pow(2.0, -(log2((double)(2 * c)) - 3.0)));
    for (int64_t j = 0; j < n_head; j++)
        slopes[j] = j < c ? powf(base, (float)(j + 1)) : powf(extra, (float)(2 * (j - c) + 1));
}

static struct op_heads heads(const struct device *dev, const struct arch *a, void *qkv)
{
    int64_t d = a->head_dim, H = a->num_attention_heads, K = a->num_key_value_heads;
    bool mixed = a->qkv == ARCH_QKV_HEAD_INTERLEAVED;
    size_t size = ckpt_dtype_size(dev->act);
    unsigned char *base = qkv;

    return (struct op_heads){
        .q = base,
        .k = base + (size_t)(mixed ? d : H * d) * size,
        .v = base + (size_t)(mixed ? 2 * d : (H + K) * d) * size,
        .row_stride = (H + 2 * K) * d,
        .q_head = mixed ? 3 * d : d,
        .kv_head = mixed ? 3 * d : d,
    };
}

/* The stack's table of distances. */
static struct op_rel_bias rel_bias(const struct pass *p, const struct layer *u)
{
    const struct arch *a = p->m->arch;
    bool encodes = arch_is_encoder(a, u->index - 1);

    if (a->pos != ARCH_POS_BUCKETS)
        return (struct op_rel_bias){.table = NULL};
    return (struct op_rel_bias){
        .table = layer_weight(&p->shared, ROLE_REL_BIAS),
        .dtable = layer_grad(&p->shared, ROLE_REL_BIAS),
        .bucket = p->m->bucket[encodes], .reach = p->m->reach[encodes], .n_bucket = a->num_buckets,
    };
}

static struct op_attention packed(const struct pass *p, const struct layer *u,
                                  const struct block_bufs *b)
{
    const struct arch *a = p->m->arch;

    return (struct op_attention){
        .out = b->at[BUF_CTX], .lse = p->keep ? b->at[BUF_LSE] : NULL,
        .in = heads(p->dev, a, b->at[BUF_QKV]), .doc_start = p->doc_start,
        .slopes = p->m->slopes, .n = p->n, .n_docs = p->n_docs, .max_doc = p->max_doc,
        .n_head = a->num_attention_heads, .n_kv = a->num_key_value_heads, .dim = a->head_dim,
        .window = arch_window(a, u->index - 1), .scale = (float)arch_scale(a, u->index - 1),
        .rel_bias = rel_bias(p, u), .whole = arch_is_encoder(a, u->index - 1),
        .drop = pass_drop(p, u, DROP_ATTENTION, a->attention_dropout),
    };
}

/* Where the projections go: rope makes qkv of it. */
static void *raw_heads(const struct pass *p, const struct block_bufs *b)
{
    return b->at[p->m->arch->qk_norm == ARCH_QK_NORM_NONE ? BUF_QKV : BUF_RAW];
}

static bool has_rope(const struct arch *a)
{
    return a->pos == ARCH_POS_ROPE || a->qk_norm != ARCH_QK_NORM_NONE;
}

static struct op_rope rope(const struct pass *p, const struct layer *u,
                           const struct block_bufs *b)
{
    const struct arch *a = p->m->arch;

    return (struct op_rope){
        .in = heads(p->dev, a, raw_heads(p, b)), .out = heads(p->dev, a, b->at[BUF_QKV]),
        .stats = a->qk_norm == ARCH_QK_NORM_NONE ? NULL : b->at[BUF_QK_STATS],
        .table = p->m->turns, .positions = p->m->positions,
        .q_norm = layer_weight(u, ROLE_Q_NORM), .k_norm = layer_weight(u, ROLE_K_NORM),
        .dq_norm = layer_grad(u, ROLE_Q_NORM), .dk_norm = layer_grad(u, ROLE_K_NORM),
        .n = p->n, .n_head = a->num_attention_heads, .n_kv = a->num_key_value_heads,
        .dim = a->head_dim, .rotary_dim = a->rope.rotary_dim, .eps = (float)a->norm_eps,
    };
}

/* What the projections read. */
static void *attention_in(const struct pass *p, const struct block_bufs *b)
{
    return b->at[p->m->arch->place == ARCH_POST_NORM ? BUF_H : BUF_Y1];
}

/*
 * The products that make queries, keys and values: one, or three side by side in the layout of
 * one.  buf: where they go, or the gradients they come from.  Gives how many are left.
 */
static int projections(struct op_linear op[3], const struct pass *p, const struct layer *u,
                       const struct block_bufs *b, void *buf, bool back)
{
    static const enum role w[] = {ROLE_Q_W, ROLE_K_W, ROLE_V_W};
    static const enum role bias[] = {ROLE_Q_B, ROLE_K_B, ROLE_V_B};
    const struct arch *a = p->m->arch;
    int64_t kv = a->num_key_value_heads * a->head_dim, at = 0;
    int n = a->qkv == ARCH_QKV_SEPARATE ? 3 : 1;

    for (int i = 0; i < n; i++) {
        enum role role = n == 1 ? ROLE_QKV_W : w[i], role_b = n == 1 ? ROLE_QKV_B : bias[i];
        int64_t width = n == 1 ? qkv_width(a) : i ? kv : a->num_attention_heads * a->head_dim;
        void *part = (unsigned char *)buf + (size_t)at * ckpt_dtype_size(p->dev->act);

        op[i] = (struct op_linear){
            .x = attention_in(p, b), .w = layer_weight(u, role), .b = layer_weight(u, role_b),
            .n = p->n, .n_in = a->hidden_size, .n_out = width, .out_ld = qkv_width(a),
            .lora = layer_lora(p, u, role), .in_out = a->weight_order == ARCH_IN_OUT,
            .x_again = i > 0,
        };
        if (back) {
            op[i].dout = part;
            op[i].dw = layer_grad(u, role);
            op[i].db = layer_grad(u, role_b);
            op[i].fresh = u->fresh;
            op[i].dx_add = i > 0;
        } else {
            op[i].out = part;
        }
        at += width;
    }
    return join_linears(op, n, p->dev);
}

static struct op_linear out_linear(const struct pass *p, const struct layer *u,
                                   const struct block_bufs *b)
{
    const struct arch *a = p->m->arch;

    return (struct op_linear){
        .out = b->at[arch_has_cross(a, u->index - 1) ? BUF_HX : BUF_H1],
        .x = b->at[BUF_CTX], .w = layer_weight(u, ROLE_OUT_W),
        .b = layer_weight(u, ROLE_OUT_B),
        .residual = b->at[a->resid_from_norm ? BUF_Y1 : BUF_H], .n = p->n,
        .n_in = a->num_attention_heads * a->head_dim, .n_out = a->hidden_size,
        .in_out = a->weight_order == ARCH_IN_OUT, .lora = layer_lora(p, u, ROLE_OUT_W),
        .drop = pass_drop(p, u, DROP_OUT, a->hidden_dropout),
    };
}

static struct op_rownorm norm1(const struct pass *p, const struct layer *u,
                               const struct block_bufs *b)
{
    return (struct op_rownorm){
        .out = b->at[BUF_Y1], .stats = b->at[BUF_STATS1], .x = b->at[BUF_H],
        .norm = layer_norm(u, ROLE_NORM1_W, ROLE_NORM1_B), .n = p->n, .n_x = p->n,
        .dim = p->m->arch->hidden_size,
    };
}

void attention_fwd(const struct pass *p, const struct layer *u, const struct block_bufs *b)
{
    const struct ops *ops = p->dev->ops;
    struct op_rownorm norm = norm1(p, u, b);
    struct op_linear qkv[3], out = out_linear(p, u, b);
    int n = projections(qkv, p, u, b, raw_heads(p, b), false);
    struct op_attention attention = packed(p, u, b);
    struct op_rope turn = rope(p, u, b);

    if (p->m->arch->place == ARCH_PRE_NORM)
        normed_linears(p, &norm, qkv, n, NULL);
    else
        run_linears(p, qkv, n, false);
    if (has_rope(p->m->arch) && !p->cache)
        ops->rope_fwd(p->dev, &turn);
    if (p->cache) {
        struct op_cached cached = p->cache->op;

        cached.rope = has_rope(p->m->arch) ? &turn : NULL;
        cached.out = attention.out;
        cached.in = attention.in;
        cached.window = attention.window;
        cached.scale = attention.scale;
        cached.rel_bias = attention.rel_bias;
        ops->attention_cached(p->dev, &cached);
    } else {
        ops->attention_fwd(p->dev, &attention);
    }
    ops->linear_fwd(p->dev, &out);
}

void attention_bwd(const struct pass *p, const struct layer *u, const struct block_bufs *b,
                   void *dh)
{
    const struct arch *arch = p->m->arch;
    const struct ops *ops = p->dev->ops;
    struct op_rownorm norm = norm1(p, u, b);
    struct op_linear qkv[3], out = out_linear(p, u, b);
    int n = projections(qkv, p, u, b, b->at[BUF_DQKV], true);
    struct op_attention attention = packed(p, u, b);
    struct op_rope turn = rope(p, u, b);

    out.dout = dh;
    out.dx = b->at[BUF_DCTX];
    out.dw = layer_grad(u, ROLE_OUT_W);
    out.db = biases_by_norm(p, u) ? NULL : layer_grad(u, ROLE_OUT_B);
    out.fresh = u->fresh;
    ops->linear_bwd(p->dev, &out);

    attention.dout = b->at[BUF_DCTX];
    attention.grad = heads(p->dev, arch, b->at[BUF_DQKV]);
    ops->attention_bwd(p->dev, &attention);
    turn.grad = attention.grad;
    if (has_rope(arch))
        ops->rope_bwd(p->dev, &turn);
    if (norms_again(p) && arch->place == ARCH_PRE_NORM)
        ops->norm_fwd(p->dev, &norm);

    for (int i = 0; i < n; i++) {
        bool post = arch->place == ARCH_POST_NORM;

        qkv[i].dx = post ? dh : b->at[BUF_DY1];
        qkv[i].dx_add |= post;          /* the residual's gradient is there */
    }
    run_linears(p, qkv, n, true);
    if (arch->place == ARCH_POST_NORM)
        return;
    norm.dout = b->at[BUF_DY1];
    norm.dx = dh;
    *(arch->resid_from_norm ? &norm.dout_add : &norm.dx_add) = dh;
    ops->norm_bwd(p->dev, &norm);
}

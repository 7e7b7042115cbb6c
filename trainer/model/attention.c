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

static struct op_attention packed(const struct pass *p, const struct block_bufs *b)
{
    const struct arch *a = p->m->arch;

    return (struct op_attention){
        .out = b->at[BUF_CTX], .lse = p->keep ? b->at[BUF_LSE] : NULL,
        .in = heads(p->dev, a, b->at[BUF_QKV]), .doc_start = p->m->doc_start,
        .slopes = p->m->slopes, .n = p->n, .n_docs = p->n_docs, .max_doc = p->max_doc,
        .n_head = a->num_attention_heads, .n_kv = a->num_key_value_heads, .dim = a->head_dim,
        .window = a->sliding_window, .scale = (float)a->attn_scale,
    };
}

static struct op_linear qkv_linear(const struct pass *p, const struct unit *u,
                                   const struct block_bufs *b)
{
    const struct arch *a = p->m->arch;

    return (struct op_linear){
        .out = b->at[BUF_QKV], .x = b->at[BUF_Y1], .w = unit_weight(u, ROLE_QKV_W),
        .b = unit_weight(u, ROLE_QKV_B), .n = p->n, .n_in = a->hidden_size,
        .n_out = (a->num_attention_heads + 2 * a->num_key_value_heads) * a->head_dim,
    };
}

static struct op_linear out_linear(const struct pass *p, const struct unit *u,
                                   const struct block_bufs *b)
{
    const struct arch *a = p->m->arch;

    return (struct op_linear){
        .out = b->at[BUF_H1], .x = b->at[BUF_CTX], .w = unit_weight(u, ROLE_OUT_W),
        .b = unit_weight(u, ROLE_OUT_B),
        .residual = b->at[a->resid_from_norm ? BUF_Y1 : BUF_H], .n = p->n,
        .n_in = a->num_attention_heads * a->head_dim, .n_out = a->hidden_size,
    };
}

static struct op_rownorm norm1(const struct pass *p, const struct unit *u,
                               const struct block_bufs *b)
{
    return (struct op_rownorm){
        .out = b->at[BUF_Y1], .stats = b->at[BUF_STATS1], .x = b->at[BUF_H],
        .norm = unit_norm(u, ROLE_NORM1_W, ROLE_NORM1_B), .n = p->n, .n_x = p->n,
        .dim = p->m->arch->hidden_size,
    };
}

void attention_fwd(const struct pass *p, const struct unit *u, const struct block_bufs *b)
{
    const struct ops *ops = p->dev->ops;
    struct op_rownorm norm = norm1(p, u, b);
    struct op_linear qkv = qkv_linear(p, u, b), out = out_linear(p, u, b);
    struct op_attention attention = packed(p, b);

    ops->norm_fwd(p->dev, &norm);
    ops->linear_fwd(p->dev, &qkv);
    if (p->cache) {
        struct op_cached cached = p->cache->op;

        cached.out = attention.out;
        cached.in = attention.in;
        ops->attention_cached(p->dev, &cached);
    } else {
        ops->attention_fwd(p->dev, &attention);
    }
    ops->linear_fwd(p->dev, &out);
}

void attention_bwd(const struct pass *p, const struct unit *u, const struct block_bufs *b,
                   void *dh)
{
    const struct arch *arch = p->m->arch;
    const struct ops *ops = p->dev->ops;
    struct op_rownorm norm = norm1(p, u, b);
    struct op_linear qkv = qkv_linear(p, u, b), out = out_linear(p, u, b);
    struct op_attention attention = packed(p, b);

    out.dout = dh;
    out.dx = b->at[BUF_DCTX];
    out.dw = unit_grad(u, ROLE_OUT_W);
    out.db = unit_grad(u, ROLE_OUT_B);
    ops->linear_bwd(p->dev, &out);

    attention.dout = b->at[BUF_DCTX];
    attention.grad = heads(p->dev, arch, b->at[BUF_DQKV]);
    ops->attention_bwd(p->dev, &attention);

    qkv.dout = b->at[BUF_DQKV];
    qkv.dx = b->at[BUF_DY1];
    qkv.dw = unit_grad(u, ROLE_QKV_W);
    qkv.db = unit_grad(u, ROLE_QKV_B);
    ops->linear_bwd(p->dev, &qkv);

    norm.dout = b->at[BUF_DY1];
    norm.dx = dh;
    *(arch->resid_from_norm ? &norm.dout_add : &norm.dx_add) = dh;
    ops->norm_bwd(p->dev, &norm);
}

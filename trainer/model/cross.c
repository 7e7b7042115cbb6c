/* cross - see cross.h. */
#include "trainer/model/cross.h"

#include "trainer/model/pass.h"

/* Elements of a row of queries; keys and values have as many each. */
static int64_t width(const struct arch *a) { return a->num_attention_heads * a->head_dim; }

static struct op_heads heads(const struct arch *a, const struct device *dev, void *q, void *kv)
{
    int64_t w = width(a);

    return (struct op_heads){
        .q = q, .k = kv, .v = (unsigned char *)kv + (size_t)w * ckpt_dtype_size(dev->act),
        .row_stride = w, .kv_stride = 2 * w, .q_head = a->head_dim, .kv_head = a->head_dim,
    };
}

static struct op_attention attention(const struct pass *p, const struct layer *l,
                                     const struct block_bufs *b)
{
    const struct arch *a = p->m->arch;
    const struct cache_view *c = p->cache;
    void *kv = c ? c->cross : b->at[BUF_KVX];

    return (struct op_attention){
        .out = b->at[BUF_CTXX], .lse = p->keep ? b->at[BUF_LSEX] : NULL,
        .in = heads(a, p->dev, b->at[BUF_QX], kv), .doc_start = c ? c->op.seg_start : p->doc_start,
        .key_start = c ? c->key_start : p->m->encoder.start,
        .key_end = c ? c->key_end : p->m->encoder.start + 1, .n = p->n,
        .n_docs = c ? c->op.n_seg : p->n_docs,
        .max_doc = p->max_doc > p->max_enc ? p->max_doc : p->max_enc,
        .n_head = a->num_attention_heads, .n_kv = a->num_attention_heads, .dim = a->head_dim,
        .scale = (float)a->attn_scale, .whole = true,
        .drop = pass_drop(p, l, DROP_CROSS_ATTENTION, a->attention_dropout),
    };
}

static struct op_linear query(const struct pass *p, const struct layer *l,
                              const struct block_bufs *b)
{
    struct op_linear op = layer_op_linear(p, l, ROLE_CROSS_Q_W, ROLE_COUNT,
                                          p->m->arch->hidden_size, width(p->m->arch));

    op.out = b->at[BUF_QX];
    op.x = b->at[BUF_YX];
    return op;
}

/* The projection for keys or values, with its half of kv as output. */
static struct op_linear half(const struct pass *p, const struct layer *l, enum role role,
                             int64_t n)
{
    struct op_linear op = layer_op_linear(p, l, role, ROLE_COUNT, p->m->arch->hidden_size,
                                          width(p->m->arch));

    op.n = n;
    op.proj.lora.drop.rows = p->m->encoder.drop_rows;
    op.x = p->m->encoder.out;
    op.out_ld = 2 * width(p->m->arch);
    return op;
}

static struct op_linear out_linear(const struct pass *p, const struct layer *l,
                                   const struct block_bufs *b)
{
    struct op_linear op = layer_op_linear(p, l, ROLE_CROSS_OUT_W, ROLE_COUNT, width(p->m->arch),
                                          p->m->arch->hidden_size);

    op.out = b->at[BUF_H1];
    op.x = b->at[BUF_CTXX];
    op.residual = b->at[BUF_HX];
    op.drop = pass_drop(p, l, DROP_CROSS, p->m->arch->hidden_dropout);
    return op;
}

static struct op_rownorm norm_in(const struct pass *p, const struct layer *l,
                                 const struct block_bufs *b)
{
    return layer_op_rownorm(p, l, ROLE_CROSS_NORM_W, ROLE_COUNT, b->at[BUF_YX],
                            b->at[BUF_STATSX], b->at[BUF_HX]);
}

void cross_keys(const struct pass *p, const struct layer *l, void *kv, int64_t n)
{
    struct op_heads to = heads(p->m->arch, p->dev, NULL, kv);
    struct op_linear op[2] = {half(p, l, ROLE_CROSS_K_W, n), half(p, l, ROLE_CROSS_V_W, n)};
    int left;

    op[0].out = to.k;
    op[1].out = to.v;
    left = layer_join(op, 2, p->dev);
    layer_multiply(p, op, left, false);
}

void cross_fwd(const struct pass *p, const struct layer *l, const struct block_bufs *b)
{
    const struct ops *ops = p->dev->ops;
    struct op_rownorm norm = norm_in(p, l, b);
    struct op_linear q = query(p, l, b), out = out_linear(p, l, b);
    struct op_attention attend = attention(p, l, b);

    layer_norm_multiply(p, &norm, &q, 1, NULL);
    if (!p->cache)
        cross_keys(p, l, b->at[BUF_KVX], p->n_enc);
    ops->attention_fwd(p->dev, &attend);
    ops->linear_fwd(p->dev, &out);
}

/* The gradients of the encoder's rows are summed over the blocks, last block first. */
static void keys_bwd(const struct pass *p, const struct layer *l, const struct op_heads *grad)
{
    bool first = l->index == (int)p->m->arch->num_hidden_layers;
    static const enum role role[] = {ROLE_CROSS_K_W, ROLE_CROSS_V_W};
    struct op_linear op[2];
    int left;

    for (int i = 0; i < 2; i++) {
        op[i] = half(p, l, role[i], p->n_enc);
        op[i].dout = i ? grad->v : grad->k;
        op[i].dx = p->m->encoder.dout;
        op[i].flags |= i > 0 || !first ? OP_LINEAR_DX_ADD : 0u;
    }
    left = layer_join(op, 2, p->dev);
    layer_multiply(p, op, left, true);
}

void cross_bwd(const struct pass *p, const struct layer *l, const struct block_bufs *b, void *dh)
{
    const struct ops *ops = p->dev->ops;
    struct op_rownorm norm = norm_in(p, l, b);
    struct op_linear q = query(p, l, b), out = out_linear(p, l, b);
    struct op_attention attend = attention(p, l, b);

    out.dout = dh;
    out.dx = b->at[BUF_DCTXX];
    ops->linear_bwd(p->dev, &out);

    attend.dout = b->at[BUF_DCTXX];
    attend.grad = heads(p->m->arch, p->dev, b->at[BUF_DQX], b->at[BUF_DKVX]);
    ops->attention_bwd(p->dev, &attend);
    if (pass_recomputes_norms(p))
        ops->norm_fwd(p->dev, &norm);

    q.dout = b->at[BUF_DQX];
    q.dx = b->at[BUF_DYX];
    ops->linear_bwd(p->dev, &q);
    keys_bwd(p, l, &attend.grad);

    norm.dout = b->at[BUF_DYX];
    norm.dx = dh;
    norm.dx_add = dh;
    ops->norm_bwd(p->dev, &norm);
}

/*
 * attention - see attention.h.
 *
 * Layouts of the fused matrix: HEAD_INTERLEAVED is [H][q, k, v][d] (BLOOM), BLOCKS is all of q,
 * then k, then v (GPT-2, Phi-3); both are strides to the operation.
 */
#include "trainer/model/attention.h"

#include <math.h>

#include "trainer/model/pass.h"

void attention_alibi_slopes(float *slopes, int64_t n_head)
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

int64_t attention_qkv_width(const struct arch *a)
{
    return (a->num_attention_heads + 2 * a->num_key_value_heads) * a->head_dim;
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

/* Relative attention bias of the stack. */
static struct op_rel_bias rel_bias(const struct pass *p, const struct layer *l)
{
    const struct arch *a = p->m->arch;
    bool encodes = arch_is_encoder(a, l->index - 1);

    if (a->pos != ARCH_POS_BUCKETS)
        return (struct op_rel_bias){.table = NULL};
    return (struct op_rel_bias){
        .table = layer_weight(&p->shared, ROLE_REL_BIAS),
        .dtable = layer_grad(&p->shared, ROLE_REL_BIAS),
        .bucket = p->m->positions.bucket[encodes],
        .reach = p->m->positions.reach[encodes],
        .n_bucket = a->num_buckets,
    };
}

static struct op_attention packed(const struct pass *p, const struct layer *l,
                                  const struct block_bufs *b)
{
    const struct arch *a = p->m->arch;

    return (struct op_attention){
        .out = b->at[BUF_CTX], .lse = p->keep ? b->at[BUF_LSE] : NULL,
        .in = heads(p->dev, a, b->at[BUF_QKV]), .doc_start = p->doc_start,
        .real_start = p->real_start, .real_end = p->real_end,
        .slopes = p->m->positions.slopes, .n = p->n, .n_docs = p->n_docs, .max_doc = p->max_doc,
        .n_head = a->num_attention_heads, .n_kv = a->num_key_value_heads, .dim = a->head_dim,
        .window = arch_window(a, l->index - 1), .scale = (float)arch_scale(a, l->index - 1),
        .rel_bias = rel_bias(p, l), .whole = arch_is_encoder(a, l->index - 1),
        .drop = pass_drop(p, l, DROP_ATTENTION, a->attention_dropout),
    };
}

/* Output of the projections, from which rope computes qkv. */
static void *raw_heads(const struct pass *p, const struct block_bufs *b)
{
    return b->at[p->m->arch->qk_norm == ARCH_QK_NORM_NONE ? BUF_QKV : BUF_RAW];
}

static bool has_rope(const struct arch *a)
{
    return a->pos == ARCH_POS_ROPE || a->qk_norm != ARCH_QK_NORM_NONE;
}

static struct op_rope rope(const struct pass *p, const struct layer *l,
                           const struct block_bufs *b)
{
    const struct arch *a = p->m->arch;

    return (struct op_rope){
        .in = heads(p->dev, a, raw_heads(p, b)), .out = heads(p->dev, a, b->at[BUF_QKV]),
        .stats = a->qk_norm == ARCH_QK_NORM_NONE ? NULL : b->at[BUF_QK_STATS],
        .table = p->m->positions.rope, .positions = p->m->batch.positions,
        .q_norm = layer_weight(l, ROLE_Q_NORM), .k_norm = layer_weight(l, ROLE_K_NORM),
        .dq_norm = layer_grad(l, ROLE_Q_NORM), .dk_norm = layer_grad(l, ROLE_K_NORM),
        .n = p->n, .n_head = a->num_attention_heads, .n_kv = a->num_key_value_heads,
        .dim = a->head_dim, .rotary_dim = a->rope.rotary_dim, .eps = (float)a->norm_eps,
    };
}

/* Input of the projections. */
static void *attention_in(const struct pass *p, const struct block_bufs *b)
{
    return b->at[p->m->arch->place == ARCH_POST_NORM ? BUF_H : BUF_Y1];
}

/*
 * The products for queries, keys and values: one, or three whose outputs are laid out as one.
 * buf: their outputs, or the gradients.  Returns how many are left.
 */
static int projections(struct op_linear op[3], const struct pass *p, const struct layer *l,
                       const struct block_bufs *b, void *buf, bool back)
{
    static const enum role w[] = {ROLE_Q_W, ROLE_K_W, ROLE_V_W};
    static const enum role bias[] = {ROLE_Q_B, ROLE_K_B, ROLE_V_B};
    const struct arch *a = p->m->arch;
    int64_t kv = a->num_key_value_heads * a->head_dim, at = 0;
    int n = a->qkv == ARCH_QKV_SEPARATE ? 3 : 1;

    for (int i = 0; i < n; i++) {
        enum role role = n == 1 ? ROLE_QKV_W : w[i], role_b = n == 1 ? ROLE_QKV_B : bias[i];
        int64_t width = n == 1 ? attention_qkv_width(a)
                        : i    ? kv
                               : a->num_attention_heads * a->head_dim;
        void *part = (unsigned char *)buf + (size_t)at * ckpt_dtype_size(p->dev->act);

        op[i] = layer_op_linear(p, l, role, role_b, a->hidden_size, width);
        op[i].x = attention_in(p, b);
        op[i].out_ld = attention_qkv_width(a);
        op[i].flags |= i > 0 ? OP_LINEAR_SAME_X | OP_LINEAR_DX_ADD : 0u;
        if (back)
            op[i].dout = part;
        else
            op[i].out = part;
        at += width;
    }
    return layer_join(op, n, p->dev);
}

static struct op_linear out_linear(const struct pass *p, const struct layer *l,
                                   const struct block_bufs *b)
{
    const struct arch *a = p->m->arch;

    struct op_linear op = layer_op_linear(p, l, ROLE_OUT_W, ROLE_OUT_B,
                                          a->num_attention_heads * a->head_dim, a->hidden_size);

    op.out = b->at[arch_has_cross(a, l->index - 1) ? BUF_HX : BUF_H1];
    op.x = b->at[BUF_CTX];
    op.residual = b->at[a->resid_from_norm ? BUF_Y1 : BUF_H];
    op.drop = pass_drop(p, l, DROP_OUT, a->hidden_dropout);
    return op;
}

static struct op_rownorm norm1(const struct pass *p, const struct layer *l,
                               const struct block_bufs *b)
{
    return layer_op_rownorm(p, l, ROLE_NORM1_W, ROLE_NORM1_B, b->at[BUF_Y1], b->at[BUF_STATS1],
                            b->at[BUF_H]);
}

/* The heads from a row on. */
static struct op_heads heads_from(const struct op_heads *h, int64_t row, size_t size)
{
    struct op_heads from = *h;
    size_t q = (size_t)(row * h->row_stride) * size;
    size_t kv = (size_t)(row * (h->kv_stride ? h->kv_stride : h->row_stride)) * size;

    from.q = (unsigned char *)h->q + q;
    from.k = (unsigned char *)h->k + kv;
    from.v = (unsigned char *)h->v + kv;
    return from;
}

/*
 * Attention of new rows against the cache.  Where sequences that go on are fed beside prompts,
 * each kind is an operation of its own: what is fast for one row of a sequence is slow for many.
 */
static void attend_cache(const struct pass *p, const struct op_cached *whole)
{
    const struct cache_view *view = p->cache;
    size_t size = ckpt_dtype_size(p->dev->act);
    int64_t n = view->rows;
    struct op_cached one = *whole, rest = *whole;
    struct op_rope rotate_one, rotate_rest;

    if (n == 0) {
        p->dev->ops->attention_cached(p->dev, whole);
        return;
    }
    one.n = one.n_seg = n;
    one.max_keys = view->rows_max_keys;
    rest.n -= n;
    rest.n_seg -= n;
    rest.seg_start = view->start;
    rest.seg_first += n;
    rest.seg_past += n;
    rest.out = (unsigned char *)rest.out + (size_t)(n * rest.n_head * rest.dim) * size;
    rest.in = heads_from(&rest.in, n, size);
    if (whole->rope) {
        rotate_one = rotate_rest = *whole->rope;
        rotate_one.n = n;
        rotate_rest.n -= n;
        rotate_rest.in = heads_from(&rotate_rest.in, n, size);
        rotate_rest.out = heads_from(&rotate_rest.out, n, size);
        rotate_rest.positions += n;
        if (rotate_rest.stats)
            rotate_rest.stats += n * (rotate_rest.n_head + rotate_rest.n_kv);
        one.rope = &rotate_one;
        rest.rope = &rotate_rest;
    }
    p->dev->ops->attention_cached(p->dev, &one);
    p->dev->ops->attention_cached(p->dev, &rest);
}

void attention_fwd(const struct pass *p, const struct layer *l, const struct block_bufs *b)
{
    const struct ops *ops = p->dev->ops;
    struct op_rownorm norm = norm1(p, l, b);
    struct op_linear qkv[3], out = out_linear(p, l, b);
    int n = projections(qkv, p, l, b, raw_heads(p, b), false);
    struct op_attention attention = packed(p, l, b);
    struct op_rope rotate = rope(p, l, b);

    if (p->m->arch->place == ARCH_PRE_NORM)
        layer_norm_multiply(p, &norm, qkv, n, NULL);
    else
        layer_multiply(p, qkv, n, false);
    if (has_rope(p->m->arch) && !p->cache)
        ops->rope_fwd(p->dev, &rotate);
    if (p->cache) {
        struct op_cached cached = p->cache->op;

        cached.rope = has_rope(p->m->arch) ? &rotate : NULL;
        cached.out = attention.out;
        cached.in = attention.in;
        cached.window = attention.window;
        cached.scale = attention.scale;
        cached.rel_bias = attention.rel_bias;
        attend_cache(p, &cached);
    } else {
        ops->attention_fwd(p->dev, &attention);
    }
    ops->linear_fwd(p->dev, &out);
}

void attention_bwd(const struct pass *p, const struct layer *l, const struct block_bufs *b,
                   void *dh)
{
    const struct arch *arch = p->m->arch;
    const struct ops *ops = p->dev->ops;
    struct op_rownorm norm = norm1(p, l, b);
    struct op_linear qkv[3], out = out_linear(p, l, b);
    int n = projections(qkv, p, l, b, b->at[BUF_DQKV], true);
    struct op_attention attention = packed(p, l, b);
    struct op_rope rotate = rope(p, l, b);

    out.dout = dh;
    out.dx = b->at[BUF_DCTX];
    if (mlp_norm_sums_biases(p, l))
        out.proj.db = NULL;
    ops->linear_bwd(p->dev, &out);

    attention.dout = b->at[BUF_DCTX];
    attention.grad = heads(p->dev, arch, b->at[BUF_DQKV]);
    ops->attention_bwd(p->dev, &attention);
    rotate.grad = attention.grad;
    if (has_rope(arch))
        ops->rope_bwd(p->dev, &rotate);
    if (pass_recomputes_norms(p) && arch->place == ARCH_PRE_NORM)
        ops->norm_fwd(p->dev, &norm);

    for (int i = 0; i < n; i++) {
        bool post = arch->place == ARCH_POST_NORM;

        qkv[i].dx = post ? dh : b->at[BUF_DY1];
        qkv[i].flags |= post ? OP_LINEAR_DX_ADD : 0u;   /* add to the residual's gradient, which
                                                           is there already */
    }
    layer_multiply(p, qkv, n, true);
    if (arch->place == ARCH_POST_NORM)
        return;
    norm.dout = b->at[BUF_DY1];
    norm.dx = dh;
    *(arch->resid_from_norm ? &norm.dout_add : &norm.dx_add) = dh;
    ops->norm_bwd(p->dev, &norm);
}

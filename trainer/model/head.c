/* head - see head.h. */
#include "trainer/model/head.h"

#include "trainer/model/pass.h"

static struct op_rownorm final_norm(const struct pass *p, const struct layer *l, const void *h,
                                    int64_t n)
{
    const struct model *m = p->m;

    struct op_rownorm op = layer_op_rownorm(p, l, ROLE_FINAL_NORM_W, ROLE_FINAL_NORM_B, m->head.y,
                                            m->head.stats, h);

    op.dout = m->head.dy;
    op.dx = m->dh;
    op.rows = m->batch.rows;
    op.n = n;
    return op;
}

/* Without a final norm the rows are only gathered; backward scatters their gradients. */
static struct op_embed gather_rows(const struct pass *p, const void *h, int64_t n)
{
    const struct model *m = p->m;

    return (struct op_embed){
        .out = m->head.y, .dout = m->head.dy, .table = h, .dtable = m->dh, .ids = m->batch.rows,
        .n = n, .dim = m->arch->hidden_size, .vocab = p->n, .no_grad = -1, .gather = true,
    };
}

static struct op_linear project_out(const struct pass *p, const struct layer *l, int64_t n)
{
    const struct model *m = p->m;
    struct op_linear op = layer_op_linear(p, l, ROLE_PROJ_OUT, ROLE_COUNT, m->arch->hidden_size,
                                          m->arch->word_embed_proj_dim);

    op.n = n;
    op.proj.lora.drop.rows = m->batch.drop_loss;
    op.out = m->head.z;
    op.x = m->head.y;
    op.dout = m->head.dz;
    op.dx = m->head.dy;
    return op;
}

/* Apply dropout to the final norm's output at n rows, or to its gradient. */
static void drop_final(const struct pass *p, const struct layer *after, void *x, int64_t n)
{
    struct op_drop drop = pass_drop(p, after, DROP_FINAL, p->m->arch->final_dropout);

    drop.rows = p->m->batch.drop_loss;
    if (drop.p > 0)
        p->dev->ops->drop(p->dev, x, n, p->m->arch->hidden_size, &drop);
}

/* The input of the head's matrix, from the n rows of h in m->batch.rows. */
static void *head_in(const struct pass *p, const struct layer *after, const void *h, int64_t n)
{
    const struct model *m = p->m;

    if (m->arch->final_norm) {
        struct op_rownorm norm = final_norm(p, after, h, n);

        p->dev->ops->norm_fwd(p->dev, &norm);
        drop_final(p, after, m->head.y, n);
    } else {
        struct op_embed gather = gather_rows(p, h, n);

        p->dev->ops->embed_fwd(p->dev, &gather);
    }
    if (m->head.z) {
        struct op_linear out = project_out(p, after, n);

        p->dev->ops->linear_fwd(p->dev, &out);
    }
    return m->head.z ? m->head.z : m->head.y;
}

/* From the gradient of that input to dh. */
static void head_in_bwd(const struct pass *p, const struct layer *after, int64_t n)
{
    const struct model *m = p->m;

    if (m->head.z) {
        struct op_linear out = project_out(p, after, n);

        p->dev->ops->linear_bwd(p->dev, &out);
    }
    if (m->arch->final_norm) {
        struct op_rownorm norm = final_norm(p, after, m->h_last, n);

        drop_final(p, after, m->head.dy, n);
        p->dev->ops->norm_bwd(p->dev, &norm);
    } else {
        struct op_embed gather = gather_rows(p, m->h_last, n);

        p->dev->ops->zero(p->dev, m->dh, (size_t)(p->n * m->arch->hidden_size) *
                                             ckpt_dtype_size(p->dev->act));
        p->dev->ops->embed_bwd(p->dev, &gather);
    }
}

int head_layer(const struct model *m)
{
    return m->arch->tie_word_embeddings ? 0 : m->params.n_layers - 1;
}

static enum role head_role(const struct model *m)
{
    return m->arch->tie_word_embeddings ? ROLE_TOKENS : ROLE_HEAD_W;
}

/*
 * Copy the separately trained rows to their places in the full matrix, or back.  Their ids are
 * mostly the last ones of a vocabulary: consecutive ids are copied at once.
 */
static void copy_rows(const struct pass *p, void *to, const void *from, bool to_whole,
                      enum ckpt_dtype type)
{
    const struct trained_rows *r = &p->m->trained_rows;
    size_t row = (size_t)p->m->arch->word_embed_proj_dim * ckpt_dtype_size(type);

    for (int64_t k = 0, n; k < r->n; k += n) {
        size_t whole = (size_t)r->ids_host[k] * row, own = (size_t)k * row;

        for (n = 1; k + n < r->n && r->ids_host[k + n] == r->ids_host[k] + n; n++)
            ;
        p->dev->ops->copy(p->dev, (unsigned char *)to + (to_whole ? whole : own),
                          (const unsigned char *)from + (to_whole ? own : whole),
                          (size_t)n * row);
    }
}

const void *head_matrix(const struct pass *p, const struct layer *head)
{
    const struct model *m = p->m;
    const void *table = layer_weight(head, head_role(m));
    struct op_embed own = {0};

    if (!m->head.w || m->head.made)
        return m->head.w ? m->head.w : table;
    layer_trained_rows(&own, head);
    p->dev->ops->copy(p->dev, m->head.w, table,
                      (size_t)(m->arch->vocab_size * m->arch->word_embed_proj_dim) *
                          ckpt_dtype_size(p->dev->weight));
    copy_rows(p, m->head.w, own.tokens, true, p->dev->weight);
    return m->head.w;
}

/* The loss of the rows whose input of the head is x, and its gradients. */
static void loss(const struct pass *p, const struct layer *head, const void *x, float scale,
                 bool back)
{
    const struct model *m = p->m;
    const struct arch *a = m->arch;
    enum ckpt_dtype type = p->dev->grad;
    bool rows = back && m->head.dw;
    struct op_embed own = {0};
    struct op_head op = {.nll = m->head.nll,
                         .dx = !back       ? NULL
                               : m->head.z ? m->head.dz
                                           : m->head.dy,
                         .dw = layer_grad(head, head_role(m)),
                         .x = x,
                         .w = head_matrix(p, head),
                         .targets = m->batch.targets,
                         .n = p->n_rows,
                         .dim = a->word_embed_proj_dim,
                         .vocab = a->vocab_size,
                         .mul = (float)a->head_mul,
                         .scale = scale,
                         .smoothing = (float)m->opts.label_smoothing,
                         .z_loss = back ? (float)m->opts.z_loss : 0,
                         .fresh = head->overwrite};

    if (rows) {                         /* added to the gradients from other passes */
        layer_trained_rows(&own, head);
        p->dev->ops->zero(p->dev, m->head.dw, (size_t)(a->vocab_size * a->word_embed_proj_dim) *
                                                  ckpt_dtype_size(type));
        copy_rows(p, m->head.dw, own.dtokens, true, type);
        op.dw = m->head.dw;
        op.fresh = false;
    }
    p->dev->ops->head_loss(p->dev, &op);
    if (rows)
        copy_rows(p, own.dtokens, m->head.dw, false, type);
}

void head_loss(const struct pass *p, float scale, bool back)
{
    const struct model *m = p->m;
    int last = m->params.n_layers - 1;
    struct layer after = layer_acquire(p, last), head = layer_acquire(p, head_layer(m));
    void *x;

    if (back) {
        layer_acquire_grads(p, &after);
        layer_acquire_grads(p, &head);
    }
    x = head_in(p, &after, m->h_last, p->n_rows);
    loss(p, &head, x, scale, back);
    if (back)
        head_in_bwd(p, &after, p->n_rows);
    layer_release(p, &head);
    layer_release(p, &after);
    if (back)
        p->w->grad_done(p->w->ctx, last);
}

void head_rows(const struct pass *p, const struct layer *after, const void *matrix, const void *h,
               int64_t n, float *logits)
{
    const struct model *m = p->m;
    void *x = head_in(p, after, h, n);

    p->dev->ops->head_logits(p->dev, logits, x, matrix, n,
                             m->arch->word_embed_proj_dim, m->arch->vocab_size,
                             (float)m->arch->head_mul);
}

/*
 * head - what follows the last block: the final norm at the rows that carry a loss, the output's
 * matrix, and back.
 *
 * The matrix is the embedding's table where they are tied.  Rows of that table which are trained by
 * themselves stand in the matrix too: it is then a copy of the table with these rows in their
 * places, and what it is given as gradients of those rows adds up with what
 * the lookups give them.  Source: peft 0.21 tuners/trainable_tokens/layer.py, a tied adapter.
 */
#include "trainer/model/pass.h"

static struct op_rownorm final_norm(const struct pass *p, const struct layer *u, const void *h,
                                    int64_t n)
{
    const struct model *m = p->m;

    return (struct op_rownorm){
        .out = m->y_rows, .stats = m->final_stats, .x = h, .dout = m->dy_rows, .dx = m->dh,
        .rows = m->rows, .norm = layer_norm(u, ROLE_FINAL_NORM_W, ROLE_FINAL_NORM_B), .n = n,
        .n_x = p->n, .dim = m->arch->hidden_size,
    };
}

/* Without a final norm the rows are only picked; back, their gradients are put there. */
static struct op_embed pick_rows(const struct pass *p, const void *h, int64_t n)
{
    const struct model *m = p->m;

    return (struct op_embed){
        .out = m->y_rows, .dout = m->dy_rows, .table = h, .dtable = m->dh, .ids = m->rows,
        .n = n, .dim = m->arch->hidden_size, .vocab = p->n, .no_grad = -1, .gather = true,
    };
}

static struct op_linear project_out(const struct pass *p, const struct layer *u, int64_t n)
{
    const struct model *m = p->m;

    return (struct op_linear){
        .out = m->z_rows, .x = m->y_rows, .dout = m->dz_rows, .dx = m->dy_rows,
        .w = layer_weight(u, ROLE_PROJ_OUT), .dw = layer_grad(u, ROLE_PROJ_OUT), .fresh = u->fresh,
        .lora = layer_lora(p, u, ROLE_PROJ_OUT), .n = n,
        .n_in = m->arch->hidden_size, .n_out = m->arch->word_embed_proj_dim,
    };
}

/* The final norm's output at n rows, or its gradient, dropped out. */
static void drop_final(const struct pass *p, const struct layer *after, void *x, int64_t n)
{
    struct op_drop drop = pass_drop(p, after, DROP_FINAL, p->m->arch->final_dropout);

    if (drop.p > 0)
        p->dev->ops->drop(p->dev, x, n, p->m->arch->hidden_size, &drop);
}

/* What the head's matrix multiplies, from n rows of h that m->rows names. */
static void *head_in(const struct pass *p, const struct layer *after, const void *h, int64_t n)
{
    const struct model *m = p->m;

    if (m->arch->final_norm) {
        struct op_rownorm norm = final_norm(p, after, h, n);

        p->dev->ops->norm_fwd(p->dev, &norm);
        drop_final(p, after, m->y_rows, n);
    } else {
        struct op_embed pick = pick_rows(p, h, n);

        p->dev->ops->embed_fwd(p->dev, &pick);
    }
    if (m->z_rows) {
        struct op_linear out = project_out(p, after, n);

        p->dev->ops->linear_fwd(p->dev, &out);
    }
    return m->z_rows ? m->z_rows : m->y_rows;
}

/* From the gradient of what the head multiplies to dh. */
static void head_in_bwd(const struct pass *p, const struct layer *after, int64_t n)
{
    const struct model *m = p->m;

    if (m->z_rows) {
        struct op_linear out = project_out(p, after, n);

        p->dev->ops->linear_bwd(p->dev, &out);
    }
    if (m->arch->final_norm) {
        struct op_rownorm norm = final_norm(p, after, m->h_last, n);

        drop_final(p, after, m->dy_rows, n);
        p->dev->ops->norm_bwd(p->dev, &norm);
    } else {
        struct op_embed pick = pick_rows(p, m->h_last, n);

        p->dev->ops->zero(p->dev, m->dh, (size_t)(p->n * m->arch->hidden_size) *
                                             ckpt_dtype_size(p->dev->act));
        p->dev->ops->embed_bwd(p->dev, &pick);
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
 * Rows that are trained by themselves to their places in a matrix, or back from there.  Ids are
 * mostly a vocabulary's last ones: those that follow each other go at once.
 */
static void move_rows(const struct pass *p, void *matrix, void *rows, enum ckpt_dtype type,
                      bool back)
{
    const struct model *m = p->m;
    size_t row = (size_t)m->arch->word_embed_proj_dim * ckpt_dtype_size(type);
    const int32_t *id = m->token_ids_host;

    for (int64_t k = 0, n; k < m->n_tokens; k += n) {
        unsigned char *there = (unsigned char *)matrix + (size_t)id[k] * row;
        unsigned char *own = (unsigned char *)rows + (size_t)k * row;

        for (n = 1; k + n < m->n_tokens && id[k + n] == id[k] + n; n++)
            ;
        p->dev->ops->copy(p->dev, back ? own : there, back ? there : own, (size_t)n * row);
    }
}

const void *head_matrix(const struct pass *p, const struct layer *head)
{
    const struct model *m = p->m;
    const void *table = layer_weight(head, head_role(m));
    struct op_embed own = {0};

    if (!m->head_w || m->head_made)
        return m->head_w ? m->head_w : table;
    layer_tokens(&own, head);
    p->dev->ops->copy(p->dev, m->head_w, table,
                      (size_t)(m->arch->vocab_size * m->arch->word_embed_proj_dim) *
                          ckpt_dtype_size(p->dev->weight));
    move_rows(p, m->head_w, (void *)(uintptr_t)own.tokens, p->dev->weight, false);
    return m->head_w;
}

/* The loss of the rows whose head's input is x, and its gradients. */
static void loss(const struct pass *p, const struct layer *head, const void *x, float scale,
                 bool back)
{
    const struct model *m = p->m;
    const struct arch *a = m->arch;
    enum ckpt_dtype type = p->dev->grad;
    bool rows = back && m->head_dw;
    struct op_embed own = {0};
    struct op_head op = {
        .nll = m->nll, .dx = !back ? NULL : m->z_rows ? m->dz_rows : m->dy_rows,
        .dw = layer_grad(head, head_role(m)), .x = x, .w = head_matrix(p, head),
        .targets = m->targets, .n = p->n_rows, .dim = a->word_embed_proj_dim,
        .vocab = a->vocab_size, .mul = (float)a->head_mul, .scale = scale, .fresh = head->fresh};

    if (rows) {                         /* what other passes gave them is added to */
        layer_tokens(&own, head);
        p->dev->ops->zero(p->dev, m->head_dw, (size_t)(a->vocab_size * a->word_embed_proj_dim) *
                                                  ckpt_dtype_size(type));
        move_rows(p, m->head_dw, own.dtokens, type, false);
        op.dw = m->head_dw;
        op.fresh = false;
    }
    p->dev->ops->head_loss(p->dev, &op);
    if (rows)
        move_rows(p, m->head_dw, own.dtokens, type, true);
}

void head_loss(const struct pass *p, float scale, bool back)
{
    const struct model *m = p->m;
    int last = m->params.n_layers - 1;
    struct layer after = layer_acquire(p, last), head = layer_acquire(p, head_layer(m));
    void *x;

    if (back) {
        layer_back(p, &after);
        layer_back(p, &head);
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

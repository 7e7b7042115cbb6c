/* embed - see embed.h. */
#include "trainer/model/embed.h"

#include "trainer/model/pass.h"

/* The lookups: tokens, with positions where these are added at once. */
static struct op_embed lookup(const struct pass *p, const struct layer *l, void *out,
                              const struct op_norm *norm)
{
    const struct arch *a = p->m->arch;
    bool places = a->pos == ARCH_POS_LEARNED && !p->m->embed.e;

    struct op_embed op = {
        .out = out, .stats = p->m->embed.stats, .dout = out, .dtable = layer_grad(l, ROLE_TOKENS),
        .table = layer_weight(l, ROLE_TOKENS), .ids = p->ids,
        .token_type = layer_weight(l, ROLE_TOKEN_TYPE), .token_type_ids = p->token_type_ids,
        .pos = places ? layer_weight(l, ROLE_POS) : NULL,
        .dpos = places ? layer_grad(l, ROLE_POS) : NULL, .positions = p->m->batch.positions,
        .norm = a->emb_norm ? norm : NULL, .n = p->n, .dim = a->word_embed_proj_dim,
        .vocab = a->vocab_size, .no_grad = a->pad_token_id,
        .lora = layer_op_lora(p, l, ROLE_TOKENS), .noise = p->noise,
    };

    if (!p->m->embed.e)
        op.drop = pass_drop(p, l, p->ids == p->m->batch.ids ? DROP_EMBED : DROP_EMBED_ENCODER,
                            a->embed_dropout);
    layer_trained_rows(&op, l);
    return op;
}

/* The lookup of positions alone, where the tokens' rows are projected first. */
static struct op_embed place_rows(const struct pass *p, const struct layer *l, void *h)
{
    const struct arch *a = p->m->arch;

    return (struct op_embed){
        .out = h, .dout = h, .table = layer_weight(l, ROLE_POS), .dtable = layer_grad(l, ROLE_POS),
        .ids = p->m->batch.positions, .n = p->n, .dim = a->hidden_size,
        .vocab = a->max_position_embeddings + a->pos_offset, .no_grad = -1,
    };
}

static struct op_linear project_in(const struct pass *p, const struct layer *l)
{
    const struct arch *a = p->m->arch;
    struct op_linear op = layer_op_linear(p, l, ROLE_PROJ_IN, ROLE_COUNT, a->word_embed_proj_dim,
                                          a->hidden_size);

    op.x = p->m->embed.e;
    return op;
}

void embed_pass(const struct pass *p, const struct layer *l, void *h, bool back)
{
    const struct ops *ops = p->dev->ops;
    const struct model *m = p->m;
    struct op_norm norm = layer_op_norm(l, ROLE_EMB_NORM_W, ROLE_EMB_NORM_B);
    struct op_embed op = lookup(p, l, m->embed.e ? m->embed.e : h, &norm), places;
    struct op_linear in = project_in(p, l);

    if (!m->embed.e) {
        if (back)
            ops->embed_bwd(p->dev, &op);
        else
            ops->embed_fwd(p->dev, &op);
        return;
    }
    ops->embed_fwd(p->dev, &op);        /* backward: recomputed */
    places = place_rows(p, l, h);
    if (back) {
        ops->embed_bwd(p->dev, &places);
        in.dout = h;
        in.dx = op.dout = m->embed.de;
        ops->linear_bwd(p->dev, &in);
        ops->embed_bwd(p->dev, &op);
    } else {
        ops->embed_fwd(p->dev, &places);
        in.out = h;
        in.residual = h;
        ops->linear_fwd(p->dev, &in);
    }
}

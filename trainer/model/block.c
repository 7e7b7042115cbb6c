/* block - one layer: its weights' brackets around its halves, and how large its buffers are. */
#include "trainer/model/lora.h"
#include "trainer/model/pass.h"

struct layer layer_acquire(const struct pass *p, int index)
{
    return (struct layer){.m = p->m, .index = index,
                         .weights = p->w->acquire(p->w->ctx, index)};
}

void layer_release(const struct pass *p, const struct layer *u)
{
    p->w->release(p->w->ctx, u->index);
}

void layer_back(const struct pass *p, struct layer *u)
{
    u->grads = p->w->grad(p->w->ctx, u->index);
    u->fresh = p->w->fresh && p->w->fresh(p->w->ctx, u->index);
}

/* Elements before the role in its layer; -1: no such parameter.  ROLE_COUNT is none. */
static int64_t role_at(const struct layer *u, const int64_t *offset, enum role role)
{
    return role == ROLE_COUNT ? -1 : offset[u->index * (int)ROLE_COUNT + (int)role];
}

static const void *weight_at(const struct layer *u, int64_t at)
{
    return at < 0 ? NULL : (const unsigned char *)u->weights +
                               (size_t)at * ckpt_dtype_size(u->m->dev->weight);
}

static void *grad_at(const struct layer *u, int64_t at)
{
    return at < 0 || !u->grads ? NULL : (unsigned char *)u->grads +
                                            (size_t)at * ckpt_dtype_size(u->m->dev->grad);
}

const void *layer_weight(const struct layer *u, enum role role)
{
    return weight_at(u, role_at(u, u->m->offset, role));
}

void *layer_grad(const struct layer *u, enum role role)
{
    return grad_at(u, role_at(u, u->m->grad_offset, role));
}

struct op_drop pass_drop(const struct pass *p, const struct layer *u, int place,
                         double probability)
{
    if (!p->drop || probability <= 0)
        return (struct op_drop){0};
    return (struct op_drop){.p = probability, .seed = p->m->drop_key,
                            .stream = (uint64_t)u->index << 16 | (uint64_t)place};
}

/* What a change leaves for the way back lies in its block's BUF_LOW. */
static void *low_at(const struct pass *p, const struct layer *u, const struct change_at *c)
{
    const struct model *m = u->m;
    bool block = u->index > 0 && u->index < m->params.n_layers - 1;

    if (!m->low_rows || !p->keep || !block)
        return NULL;
    return (unsigned char *)m->fwd[u->index - 1].at[BUF_LOW] +
           (size_t)(c->low * m->low_rows) * ckpt_dtype_size(p->dev->act);
}

struct op_lora layer_lora(const struct pass *p, const struct layer *u, enum role role)
{
    const struct change_at *c;

    if (!u->m->change || role == ROLE_COUNT)
        return (struct op_lora){0};
    c = &u->m->change[u->index * (int)ROLE_COUNT + (int)role];
    if (!c->rank)
        return (struct op_lora){0};
    return (struct op_lora){
        .a = weight_at(u, c->a), .b = weight_at(u, c->b), .da = grad_at(u, c->da),
        .db = grad_at(u, c->db), .t = low_at(p, u, c), .magnitude = weight_at(u, c->magnitude),
        .dmagnitude = grad_at(u, c->dmagnitude), .rank = c->rank, .scale = c->scale,
        .drop = role == ROLE_TOKENS ? (struct op_drop){0}
                                    : pass_drop(p, u, DROP_LORA + (int)role,
                                                lora_dropout(u->m->opts.lora)),
    };
}

/* The rows of the embedding that are trained by themselves. */
void layer_tokens(struct op_embed *op, const struct layer *u)
{
    op->tokens = u->m->n_tokens ? weight_at(u, u->m->tokens) : NULL;
    op->dtokens = u->m->n_tokens ? grad_at(u, u->m->dtokens) : NULL;
    op->token_ids = u->m->token_ids;
    op->n_tokens = u->m->n_tokens;
}

struct op_norm layer_norm(const struct layer *u, enum role w, enum role b)
{
    const void *gain = layer_weight(u, w);

    return (struct op_norm){
        .kind = u->m->arch->norm == ARCH_LAYER_NORM ? OP_NORM_LAYER : OP_NORM_RMS,
        .eps = (float)u->m->arch->norm_eps, .w = gain ? gain : u->m->ones,
        .b = layer_weight(u, b), .dw = layer_grad(u, w), .db = layer_grad(u, b),
    };
}

/* Whether b's array lies behind n elements of a's; none at both is fine too. */
static bool behind(const void *a, const void *b, int64_t n, enum ckpt_dtype type)
{
    return a ? b == (const unsigned char *)a + (size_t)n * ckpt_dtype_size(type) : !b;
}

static bool joins(const struct op_linear *a, const struct op_linear *b, const struct device *dev)
{
    int64_t matrix = a->n_in * a->n_out;

    return a->x == b->x && a->n_in == b->n_in && a->n == b->n && !a->in_out && !a->b && !b->b &&
           !a->lora.rank && !b->lora.rank && behind(a->w, b->w, matrix, dev->weight) &&
           behind(a->dw, b->dw, matrix, dev->grad) &&
           behind(a->out, b->out, a->n_out, dev->act) &&
           behind(a->dout, b->dout, a->n_out, dev->act);
}

int join_linears(struct op_linear *op, int n, const struct device *dev)
{
    int left = 1;

    for (int i = 1; i < n; i++)
        if (joins(&op[left - 1], &op[i], dev))
            op[left - 1].n_out += op[i].n_out;
        else
            op[left++] = op[i];
    return left;
}

void run_linears(const struct pass *p, const struct op_linear *op, int n, bool back)
{
    const struct ops *ops = p->dev->ops;
    bool at_once = n > 1 && op->lora.rank && ops->linears_fwd;

    if (at_once)
        (back ? ops->linears_bwd : ops->linears_fwd)(p->dev, op, n);
    for (int i = 0; !at_once && i < n; i++)
        (back ? ops->linear_bwd : ops->linear_fwd)(p->dev, &op[i]);
}

void normed_linears(const struct pass *p, const struct op_rownorm *norm,
                    const struct op_linear *op, int n, const struct op_gate *gate)
{
    const struct ops *ops = p->dev->ops;
    const struct arch *a = p->m->arch;
    bool once = n == 1 && !p->keep, apart = a->resid_from_norm || a->place == ARCH_POST_NORM;

    if (once && ops->normed_fwd && !apart) {
        ops->normed_fwd(p->dev, norm, op, gate);
        return;
    }
    ops->norm_fwd(p->dev, norm);
    if (once && gate && ops->gated_fwd) {
        ops->gated_fwd(p->dev, op, gate);
        return;
    }
    run_linears(p, op, n, false);
    if (gate)
        ops->gate_fwd(p->dev, gate);
}

int64_t qkv_width(const struct arch *a)
{
    return (a->num_attention_heads + 2 * a->num_key_value_heads) * a->head_dim;
}

bool block_crosses(enum block_buf buf)
{
    return (buf >= BUF_HX && buf <= BUF_LSEX) || (buf >= BUF_DYX && buf <= BUF_DCTXX);
}

bool block_unused(const struct arch *a, enum block_buf buf)
{
    if (block_crosses(buf))
        return a->stack != ARCH_ENCODER_DECODER;
    if (buf == BUF_RAW || buf == BUF_QK_STATS)
        return a->qk_norm == ARCH_QK_NORM_NONE;
    if (buf == BUF_PROBS || buf == BUF_PICKED)
        return a->num_experts == 0;
    if (buf == BUF_DG)
        return a->mlp != ARCH_MLP_GATED;
    return buf == BUF_DY1 && a->place == ARCH_POST_NORM;
}

uint64_t block_bytes(const struct arch *a, const struct device *dev, enum block_buf buf,
                     int64_t n, int64_t n_enc)
{
    int64_t d = a->head_dim, H = a->num_attention_heads, K = a->num_key_value_heads, width;
    uint64_t act = ckpt_dtype_size(dev->act);

    if (block_unused(a, buf))
        return 0;
    switch (buf) {
    case BUF_STATS1:
    case BUF_STATS2:
    case BUF_STATSX:
        return (uint64_t)n * 2 * sizeof(float);
    case BUF_LSE:
    case BUF_LSEX:
        return (uint64_t)(n * H) * sizeof(float);
    case BUF_QK_STATS:
        return (uint64_t)(n * (H + K)) * sizeof(float);
    case BUF_RAW:
    case BUF_QKV:
    case BUF_DQKV:
        width = qkv_width(a);
        break;
    case BUF_CTX:
    case BUF_DCTX:
    case BUF_QX:
    case BUF_DQX:
    case BUF_CTXX:
    case BUF_DCTXX:
        width = H * d;
        break;
    case BUF_KVX:
    case BUF_DKVX:
        return (uint64_t)(n_enc * 2 * H * d) * act;
    case BUF_PROBS:
        return (uint64_t)(n * a->num_experts) * sizeof(float);
    case BUF_LOW:                       /* of a model, not of its description */
        return 0;
    case BUF_PICKED:
        return (uint64_t)(n * a->num_experts_per_tok) * sizeof(int32_t);
    case BUF_U:
        width = a->intermediate_size * (a->mlp == ARCH_MLP_GATED ? 2 : 1);
        if (a->num_experts_per_tok * 2 * a->moe_intermediate_size > width)
            width = a->num_experts_per_tok * 2 * a->moe_intermediate_size;
        break;
    case BUF_DU:
        width = a->intermediate_size * (a->mlp == ARCH_MLP_GATED ? 2 : 1);
        break;
    case BUF_G:
    case BUF_DG:
        width = a->intermediate_size;
        break;
    default:
        width = a->hidden_size;
        break;
    }
    return (uint64_t)(n * width) * act;
}

void stack_begin(struct pass *p, int layer, bool back)
{
    if (p->m->arch->pos != ARCH_POS_BUCKETS)
        return;
    p->shared = layer_acquire(p, layer + 1);
    if (back)
        layer_back(p, &p->shared);
}

void stack_end(struct pass *p)
{
    if (p->m->arch->pos == ARCH_POS_BUCKETS)
        layer_release(p, &p->shared);
}

void block_step(const struct pass *p, int layer, const struct block_bufs *b, void *next)
{
    struct layer u = layer_acquire(p, layer + 1);

    attention_fwd(p, &u, b);
    if (arch_has_cross(p->m->arch, layer))
        cross_fwd(p, &u, b);
    mlp_fwd(p, &u, b, next);
    layer_release(p, &u);
}

void block_fwd(const struct pass *p, int layer, void *next)
{
    block_step(p, layer, &p->m->fwd[layer], next);
}

void block_bwd(const struct pass *p, int layer, void *dh)
{
    const struct block_bufs *b = &p->m->bwd[layer];
    bool crosses = arch_has_cross(p->m->arch, layer);
    struct layer u = layer_acquire(p, layer + 1);

    layer_back(p, &u);
    if (p->m->opts.recompute == RECOMPUTE_FULL) {
        attention_fwd(p, &u, b);
        if (crosses)
            cross_fwd(p, &u, b);
        mlp_again(p, &u, b);
    }
    mlp_bwd(p, &u, b, dh);
    if (crosses)
        cross_bwd(p, &u, b, dh);
    attention_bwd(p, &u, b, dh);
    layer_release(p, &u);
    p->w->grad_done(p->w->ctx, layer + 1);
}

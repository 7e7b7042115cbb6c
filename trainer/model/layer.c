/* layer - see layer.h. */
#include "trainer/model/layer.h"

#include "trainer/model/lora.h"
#include "trainer/model/pass.h"

struct layer layer_acquire(const struct pass *p, int index)
{
    return (struct layer){.m = p->m, .index = index,
                          .weights = p->w->acquire(p->w->ctx, index)};
}

void layer_release(const struct pass *p, const struct layer *l)
{
    p->w->release(p->w->ctx, l->index);
}

void layer_acquire_grads(const struct pass *p, struct layer *l)
{
    l->grads = p->w->grad(p->w->ctx, l->index);
    l->overwrite = p->w->fresh && p->w->fresh(p->w->ctx, l->index);
}

static const struct role_place no_place = {.weight = -1, .grad = -1};

/* role may be ROLE_COUNT: none. */
static const struct role_place *place_of(const struct layer *l, enum role role)
{
    return role == ROLE_COUNT ? &no_place
                              : &l->m->place[l->index * (int)ROLE_COUNT + (int)role];
}

static const void *weight_at(const struct layer *l, int64_t at)
{
    return at < 0 ? NULL : (const unsigned char *)l->weights +
                               (size_t)at * ckpt_dtype_size(l->m->dev->weight);
}

static void *grad_at(const struct layer *l, int64_t at)
{
    return at < 0 || !l->grads ? NULL : (unsigned char *)l->grads +
                                            (size_t)at * ckpt_dtype_size(l->m->dev->grad);
}

const void *layer_weight(const struct layer *l, enum role role)
{
    return weight_at(l, place_of(l, role)->weight);
}

void *layer_grad(const struct layer *l, enum role role)
{
    return grad_at(l, place_of(l, role)->grad);
}

/* Where LoRA's forward stores A x for the backward: in its block's BUF_LOW. */
static void *low_at(const struct pass *p, const struct layer *l, int64_t column)
{
    const struct model *m = l->m;
    bool block = l->index > 0 && l->index < m->params.n_layers - 1;

    if (!m->low_rows || !p->keep || !block)
        return NULL;
    return (unsigned char *)m->fwd[l->index - 1].at[BUF_LOW] +
           (size_t)(column * m->low_rows) * ckpt_dtype_size(p->dev->act);
}

struct op_lora layer_op_lora(const struct pass *p, const struct layer *l, enum role role)
{
    const struct role_place *c = place_of(l, role);

    if (!c->lora.rank)
        return (struct op_lora){0};
    return (struct op_lora){
        .a = weight_at(l, c->lora.a), .b = weight_at(l, c->lora.b), .da = grad_at(l, c->lora.da),
        .db = grad_at(l, c->lora.db), .t = low_at(p, l, c->lora.low),
        .magnitude = weight_at(l, c->lora.magnitude),
        .dmagnitude = grad_at(l, c->lora.dmagnitude), .rank = c->lora.rank, .scale = c->lora.scale,
        .drop = role == ROLE_TOKENS ? (struct op_drop){0}
                                    : pass_drop(p, l, DROP_LORA + (int)role,
                                                lora_dropout(l->m->opts.lora)),
    };
}

void layer_trained_rows(struct op_embed *op, const struct layer *l)
{
    const struct trained_rows *r = &l->m->trained_rows;

    op->tokens = r->n ? weight_at(l, r->at) : NULL;
    op->dtokens = r->n ? grad_at(l, r->grad_at) : NULL;
    op->token_ids = r->ids;
    op->n_tokens = r->n;
}

struct op_norm layer_op_norm(const struct layer *l, enum role w, enum role b)
{
    const void *gain = layer_weight(l, w);

    return (struct op_norm){
        .kind = l->m->arch->norm == ARCH_LAYER_NORM ? OP_NORM_LAYER : OP_NORM_RMS,
        .eps = (float)l->m->arch->norm_eps, .w = gain ? gain : l->m->ones,
        .b = layer_weight(l, b), .dw = layer_grad(l, w), .db = layer_grad(l, b),
    };
}

struct op_rownorm layer_op_rownorm(const struct pass *p, const struct layer *l, enum role w,
                                   enum role b, void *out, float *stats, const void *x)
{
    return (struct op_rownorm){.out = out, .stats = stats, .x = x, .norm = layer_op_norm(l, w, b),
                               .n = p->n, .n_x = p->n, .dim = p->m->arch->hidden_size};
}

struct op_linear layer_op_linear(const struct pass *p, const struct layer *l, enum role w,
                                 enum role b, int64_t n_in, int64_t n_out)
{
    return (struct op_linear){
        .proj = {.w = layer_weight(l, w), .b = layer_weight(l, b), .dw = layer_grad(l, w),
                 .db = layer_grad(l, b), .lora = layer_op_lora(p, l, w)},
        .flags = (p->m->arch->weight_order == ARCH_IN_OUT ? OP_LINEAR_IN_OUT : 0u) |
                 (l->overwrite ? OP_LINEAR_OVERWRITE : 0u),
        .n = p->n, .n_in = n_in, .n_out = n_out,
    };
}

/* Whether b's array follows n elements of a's; true also if both are absent. */
static bool next_to(const void *a, const void *b, int64_t n, enum ckpt_dtype type)
{
    return a ? b == (const unsigned char *)a + (size_t)n * ckpt_dtype_size(type) : !b;
}

/* Gradients matter in backward only. */
static bool joins(const struct op_linear *a, const struct op_linear *b, const struct device *dev)
{
    int64_t matrix = a->n_in * a->n_out;

    return a->x == b->x && a->n_in == b->n_in && a->n == b->n && !op_linear_in_out(a) &&
           !a->proj.b && !b->proj.b && !a->proj.lora.rank && !b->proj.lora.rank &&
           next_to(a->proj.w, b->proj.w, matrix, dev->weight) &&
           (!a->dout || next_to(a->proj.dw, b->proj.dw, matrix, dev->grad)) &&
           next_to(a->out, b->out, a->n_out, dev->act) &&
           next_to(a->dout, b->dout, a->n_out, dev->act);
}

int layer_join(struct op_linear *op, int n, const struct device *dev)
{
    int left = 1;

    for (int i = 1; i < n; i++)
        if (joins(&op[left - 1], &op[i], dev))
            op[left - 1].n_out += op[i].n_out;
        else
            op[left++] = op[i];
    return left;
}

void layer_multiply(const struct pass *p, const struct op_linear *op, int n, bool back)
{
    const struct ops *ops = p->dev->ops;
    bool at_once = n > 1 && op->proj.lora.rank && p->m->fuses;

    if (at_once)
        (back ? ops->linears_bwd : ops->linears_fwd)(p->dev, op, n);
    for (int i = 0; !at_once && i < n; i++)
        (back ? ops->linear_bwd : ops->linear_fwd)(p->dev, &op[i]);
}

void layer_norm_multiply(const struct pass *p, const struct op_rownorm *norm,
                         const struct op_linear *op, int n, const struct op_gate *gate)
{
    const struct ops *ops = p->dev->ops;
    const struct arch *a = p->m->arch;
    bool fuses = n == 1 && !p->keep && p->m->fuses;

    if (fuses && !a->resid_from_norm && a->place != ARCH_POST_NORM) {
        ops->normed_fwd(p->dev, norm, op, gate);
        return;
    }
    ops->norm_fwd(p->dev, norm);
    if (fuses && gate) {
        ops->gated_fwd(p->dev, op, gate);
        return;
    }
    layer_multiply(p, op, n, false);
    if (gate)
        ops->gate_fwd(p->dev, gate);
}

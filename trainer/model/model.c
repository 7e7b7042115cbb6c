/*
 * model - see model.h: the order of a pass.
 *
 * model/plan.c plans the memory; here a pass is a straight list of calls.
 */
#include <assert.h>
#include <string.h>

#include "libckpt/mem.h"
#include "formats/families/family.h"
#include "trainer/model/plan.h"
#include "trainer/model/pass.h"
#include "trainer/rng.h"

static int check_opts(const struct model_opts *o, struct ckpt_err *err)
{
    const int64_t most = (int64_t)1 << 30;

    if (o->max_tokens < 1 || o->max_tokens > most || o->max_docs < 1 || o->max_docs > most ||
        o->max_rows < 1 || o->max_rows > most)
        return ckpt_fail(
            err, CKPT_ELIMIT,
            "a batch of %lld tokens, %lld documents, %lld rows: wanted 1 to 2^30 each",
            (long long)o->max_tokens, (long long)o->max_docs, (long long)o->max_rows);
    return 0;
}

/* Place one parameter of an adapter. */
static void place_adapter(struct model *m, const struct param *p)
{
    struct role_place *c = &m->place[p->layer * (int)ROLE_COUNT + p->role];

    switch (p->kind) {
    case PARAM_LORA_A:
        c->lora.rank = p->shape.dim[0];
        c->lora.scale = p->scale;
        c->lora.a = p->offset;
        c->lora.da = p->grad_offset;
        c->lora.magnitude = c->lora.dmagnitude = -1;
        break;
    case PARAM_LORA_B:
        c->lora.b = p->offset;
        c->lora.db = p->grad_offset;
        break;
    case PARAM_MAGNITUDE:
        c->lora.magnitude = p->offset;
        c->lora.dmagnitude = p->grad_offset;
        break;
    default:
        m->trained_rows.n = p->shape.dim[0];
        m->trained_rows.at = p->offset;
        m->trained_rows.grad_at = p->grad_offset;
        break;
    }
}

static int place_roles(struct model *m, struct ckpt_err *err)
{
    size_t n = (size_t)m->params.n_layers * ROLE_COUNT;

    m->place = ckpt_arena_alloc(&m->host_arena, n, sizeof *m->place);
    if (!m->place)
        return ckpt_nomem(err, n * sizeof *m->place);
    for (size_t i = 0; i < n; i++)
        m->place[i].weight = m->place[i].grad = -1;
    for (size_t i = 0; i < m->params.n; i++) {
        const struct param *p = &m->params.item[i];
        struct role_place *place = &m->place[p->layer * (int)ROLE_COUNT + p->role];

        if (p->kind != PARAM_BASE) {
            place_adapter(m, p);
        } else if (p->expert == 0) {
            place->weight = p->offset;
            place->grad = p->grad_offset;
        }
    }
    return 0;
}

int model_new(struct model **out, const struct arch *arch, const struct model_opts *opts,
              struct device *dev, struct ckpt_err *err)
{
    struct model *m;
    int rc;

    *out = NULL;
    rc = check_opts(opts, err);
    if (rc)
        return rc;
    m = ckpt_alloc(1, sizeof *m);
    if (!m)
        return ckpt_nomem(err, sizeof *m);
    m->arch = arch;
    m->dev = dev;
    m->opts = *opts;
    m->fuses = dev->ops->can & OP_CAN_FUSE;
    rc = params_build(&m->params, arch, opts->lora, err);
    if (rc == 0 && opts->ranks > 1)
        params_divide(&m->params, opts->ranks);
    rc = rc ? rc : place_roles(m, err);
    rc = rc ? rc : model_plan(m, err);
    if (rc)
        model_free(m);
    else
        *out = m;
    return rc;
}

void model_free(struct model *m)
{
    if (!m)
        return;
    if (m->arena)
        m->dev->ops->free(m->dev, m->arena);
    plan_release(&m->plan);
    ckpt_arena_release(&m->host_arena);
    params_release(&m->params);
    ckpt_free(m);
}

const struct params *model_params(const struct model *m) { return &m->params; }

struct params *model_params_to_group(struct model *m) { return &m->params; }

uint64_t model_planned_bytes(const struct model *m)
{
    return m->plan.bytes + (uint64_t)m->opts.max_rows * sizeof *m->head.nll_host +
           (uint64_t)(m->positions.rope_rows * m->arch->rope.rotary_dim) *
               sizeof *m->positions.rope_host;
}

uint64_t model_arena_bytes(const struct model *m) { return m->plan.bytes; }

uint64_t model_work_bytes(const struct model *m) { return m->work_bytes; }

void model_drop_key(struct model *m, uint64_t seed, uint64_t step)
{
    uint32_t w[4];

    rng_words(w, seed, rng_stream("dropout"), step);
    m->drop_key = (uint64_t)w[0] << 32 | w[1];
}

void model_noise_key(struct model *m, uint64_t seed, uint64_t step)
{
    uint32_t w[4];

    rng_words(w, seed, rng_stream("neftune"), step);
    m->noise_key = (uint64_t)w[0] << 32 | w[1];
}

static int decoder_first(const struct model *m)
{
    return (int)arch_stack_first(m->arch, m->arch->num_hidden_layers - 1);
}

/* Embedding and blocks: h_last. */
static void forward(const struct pass *p)
{
    const struct model *m = p->m;
    int layers = (int)m->arch->num_hidden_layers, first = decoder_first(m);
    struct pass d = *p;
    struct layer l;

    if (m->arch->stack == ARCH_ENCODER_DECODER)
        encoder_fwd(p);
    l = layer_acquire(p, 0);
    embed_pass(p, &l, m->fwd[first].at[BUF_H], false);
    layer_release(p, &l);
    if (m->routing.used)
        p->dev->ops->zero(p->dev, m->routing.used,
                          (size_t)(2 * m->arch->num_experts) * sizeof *m->routing.used);
    block_stack_begin(&d, first, false);
    for (int i = first; i < layers; i++)
        block_fwd(&d, i, i + 1 < layers ? m->fwd[i + 1].at[BUF_H] : m->h_last);
    block_stack_end(&d);
}

static void backward(struct pass *p)
{
    const struct model *m = p->m;
    struct layer l;

    p->keep = true;
    block_stack_begin(p, decoder_first(m), true);
    for (int i = (int)m->arch->num_hidden_layers - 1; i >= decoder_first(m); i--)
        block_bwd(p, i, m->dh);
    block_stack_end(p);
    l = layer_acquire(p, 0);
    layer_acquire_grads(p, &l);
    if (m->params.layer_grad[0] > 0)     /* something before the blocks is trained */
        embed_pass(p, &l, m->dh, true);
    layer_release(p, &l);
    if (m->arch->stack == ARCH_ENCODER_DECODER)
        encoder_bwd(p);
    p->w->grad_done(p->w->ctx, 0);
}

/*
 * Copy each row's loss to the host; the sum is in f64, in the order of rows.  What other streams
 * still do for the pass (gradients on their way to owners or to the host) is not waited for.
 */
static int collect(const struct pass *p, double *loss_sum, float *nll, struct ckpt_err *err)
{
    const struct model *m = p->m;
    size_t bytes = (size_t)p->n_rows * sizeof *m->head.nll_host;
    int rc;

    if (bytes)
        p->dev->ops->to_host(p->dev, m->head.nll_host, m->head.nll, bytes);
    rc = device_error(p->dev, err);
    if (rc)
        return rc;
    *loss_sum = 0;
    for (int64_t i = 0; i < p->n_rows; i++)
        *loss_sum += (double)m->head.nll_host[i];
    *loss_sum += m->routing.balance * (double)p->n_rows;
    if (nll && bytes)
        memcpy(nll, m->head.nll_host, bytes);
    return 0;
}

/* An encoder alone has no head. */
static int needs_head(const struct model *m, struct ckpt_err *err)
{
    if (m->arch->stack != ARCH_ENCODER)
        return 0;
    return ckpt_fail(err, CKPT_EUNSUPPORTED, "%s is an encoder without a head: it has hidden "
                     "states and no logits", m->arch->family->model_type);
}

int model_loss(struct model *m, const struct model_weights *w, const struct batch *b,
               double *loss_sum, float *nll, struct ckpt_err *err)
{
    uint64_t n_alloc = m->dev->n_alloc;
    struct pass p;
    int rc;

    if ((rc = needs_head(m, err)) != 0 || (rc = pass_begin(&p, m, w, b, false, err)) != 0)
        return rc;
    pass_varies(&p, true);
    forward(&p);
    mlp_balance(&p, 1.0f);
    head_loss(&p, 1.0f, false);
    pass_varies(&p, false);
    assert(m->dev->n_alloc == n_alloc);
    (void)n_alloc;
    return collect(&p, loss_sum, nll, err);
}

int model_loss_grad(struct model *m, const struct model_weights *w, const struct batch *b,
                    float scale, double *loss_sum, struct ckpt_err *err)
{
    uint64_t n_alloc = m->dev->n_alloc;
    struct pass p;
    int rc;

    if (!m->opts.train)
        return ckpt_fail(err, CKPT_ESTATE, "the model was planned without a backward pass");
    rc = pass_begin(&p, m, w, b, m->opts.recompute != RECOMPUTE_FULL, err);
    if (rc)
        return rc;
    pass_drop_begin(&p, b);
    pass_noise(&p, b);
    forward(&p);
    mlp_balance(&p, scale);
    head_loss(&p, scale, true);
    backward(&p);
    assert(m->dev->n_alloc == n_alloc);
    (void)n_alloc;
    return collect(&p, loss_sum, NULL, err);
}

int model_logits(struct model *m, const struct model_weights *w, const struct batch *b,
                 const int32_t *rows, int64_t n, float *logits, struct ckpt_err *err)
{
    struct batch without = *b;
    int64_t V = m->arch->vocab_size;
    struct layer after, head;
    const void *matrix;
    struct pass p;
    int rc;

    without.n_rows = 0;
    if ((rc = needs_head(m, err)) != 0 || (rc = pass_begin(&p, m, w, &without, false, err)) != 0)
        return rc;
    for (int64_t i = 0; i < n; i++)
        if (rows[i] < 0 || rows[i] >= b->n_tokens)
            return batch_refuse(err, "a row whose logits are asked", rows[i], b->n_tokens - 1);
    pass_varies(&p, true);
    forward(&p);
    after = layer_acquire(&p, m->params.n_layers - 1);
    head = layer_acquire(&p, head_layer(m));
    matrix = head_matrix(&p, &head);
    for (int64_t i = 0, some; i < n; i += some) {
        some = n - i < m->head.logit_rows ? n - i : m->head.logit_rows;
        pass_upload(&p, m->batch.rows, rows + i, some);
        head_rows(&p, &after, matrix, m->h_last, some, m->head.logits);
        m->dev->ops->to_host(m->dev, logits + i * V, m->head.logits,
                             (size_t)(some * V) * sizeof *logits);
    }
    layer_release(&p, &head);
    layer_release(&p, &after);
    pass_varies(&p, false);
    return device_sync(m->dev, err);
}

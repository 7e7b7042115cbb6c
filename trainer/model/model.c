/*
 * model - see model.h: embedding, blocks, head (head.c); the order of a pass.
 *
 * What lies where is planned in model/plan.c; here a pass is a straight list of calls.
 */
#include <assert.h>
#include <string.h>

#include "libckpt/mem.h"
#include "formats/families/family.h"
#include "trainer/model/plan.h"
#include "trainer/model/pass.h"
#include "trainer/model/rope.h"
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

/* One parameter of an adapter. */
static void index_change(struct model *m, const struct param *p)
{
    struct change_at *c = &m->change[p->layer * (int)ROLE_COUNT + p->role];

    switch (p->kind) {
    case PARAM_LORA_A:
        c->rank = p->shape.dim[0];
        c->scale = p->scale;
        c->a = p->offset;
        c->da = p->grad_offset;
        c->magnitude = c->dmagnitude = -1;
        break;
    case PARAM_LORA_B:
        c->b = p->offset;
        c->db = p->grad_offset;
        break;
    case PARAM_MAGNITUDE:
        c->magnitude = p->offset;
        c->dmagnitude = p->grad_offset;
        break;
    default:
        m->n_tokens = p->shape.dim[0];
        m->tokens = p->offset;
        m->dtokens = p->grad_offset;
        break;
    }
}

/* Where each role lies in its layer. */
static int index_roles(struct model *m, struct ckpt_err *err)
{
    size_t n = (size_t)m->params.n_layers * ROLE_COUNT;

    m->offset = ckpt_alloc(n, sizeof *m->offset);
    m->grad_offset = ckpt_alloc(n, sizeof *m->grad_offset);
    m->change = m->params.adapted ? ckpt_alloc(n, sizeof *m->change) : NULL;
    if (!m->offset || !m->grad_offset || (m->params.adapted && !m->change))
        return ckpt_nomem(err, n * sizeof *m->change);
    for (size_t i = 0; i < n; i++)
        m->offset[i] = m->grad_offset[i] = -1;
    for (size_t i = 0; i < m->params.n; i++) {
        const struct param *p = &m->params.item[i];

        if (p->kind != PARAM_BASE) {
            index_change(m, p);
        } else if (p->expert == 0) {
            m->offset[p->layer * (int)ROLE_COUNT + p->role] = p->offset;
            m->grad_offset[p->layer * (int)ROLE_COUNT + p->role] = p->grad_offset;
        }
    }
    return 0;
}

int model_new(struct model **out, const struct arch *arch, const struct model_opts *opts,
              struct device *dev, struct ckpt_err *err)
{
    struct model *m;

    *out = NULL;
    if (check_opts(opts, err))
        return err->code;
    if (opts->train && arch->router_jitter > 0 && !dev->ops->jitter)
        return ckpt_fail(err, CKPT_EUNSUPPORTED, "router_jitter_noise is %g, which the device %s "
                         "has not", arch->router_jitter, dev->ops->name);
    m = ckpt_alloc(1, sizeof *m);
    if (!m)
        return ckpt_nomem(err, sizeof *m);
    m->arch = arch;
    m->dev = dev;
    m->opts = *opts;
    if (params_build(&m->params, arch, opts->lora, err) || index_roles(m, err) ||
        model_plan(m, err)) {
        model_free(m);
        return err->code;
    }
    *out = m;
    return 0;
}

void model_free(struct model *m)
{
    if (!m)
        return;
    ckpt_free(m->bwd);
    ckpt_free(m->fwd);
    if (m->arena)
        m->dev->ops->free(m->dev, m->arena);
    ckpt_free(m->turns_host);
    ckpt_free(m->positions_host);
    ckpt_free(m->nll_host);
    ckpt_free(m->used_host);
    ckpt_free(m->token_ids_host);
    ckpt_free(m->change);
    ckpt_free(m->grad_offset);
    ckpt_free(m->offset);
    plan_release(&m->plan);
    params_release(&m->params);
    ckpt_free(m);
}

const struct params *model_params(const struct model *m) { return &m->params; }

uint64_t model_planned_bytes(const struct model *m)
{
    return m->plan.bytes + (uint64_t)m->opts.max_rows * sizeof *m->nll_host +
           (uint64_t)(m->turn_rows * m->arch->rope.rotary_dim) * sizeof *m->turns_host;
}

uint64_t model_arena_bytes(const struct model *m) { return m->plan.bytes; }

uint64_t model_work_bytes(const struct model *m) { return m->work_bytes; }

void model_drop_key(struct model *m, uint64_t seed, int rank, uint64_t number)
{
    uint32_t w[4];

    rng_words(w, seed, rng_stream("dropout") + (uint64_t)rank, number);
    m->drop_key = (uint64_t)w[0] << 32 | w[1];
}

static void upload(const struct pass *p, int32_t *dst, const int32_t *src, int64_t n)
{
    if (n > 0)
        p->dev->ops->to_device(p->dev, dst, src, (size_t)n * sizeof *src);
}

/* The table of positions starts pos_offset rows before the first; a padding id's is the last of
 * those, where ids decide. */
static void upload_positions(const struct pass *p, const struct batch *b)
{
    struct model *m = (struct model *)(uintptr_t)p->m;
    int32_t offset = (int32_t)m->arch->pos_offset, seen = 0;

    for (int64_t i = 0; i < b->n_tokens; i++) {
        bool padding = m->arch->pos_from_ids && b->ids[i] == m->arch->pad_token_id;

        seen = b->positions[i] == 0 ? 0 : seen;
        m->positions_host[i] = padding                 ? offset - 1
                               : m->arch->pos_from_ids ? seen + offset
                                                       : b->positions[i] + offset;
        seen += !padding;
    }
    upload(p, m->positions, m->positions_host, b->n_tokens);
}

void turn_table(struct model *m, int64_t length)
{
    int64_t regime = m->turns ? rope_regime(m->arch, length) : m->turn_regime;

    if (regime == m->turn_regime)
        return;
    m->turn_regime = regime;
    rope_table(m->turns_host, m->turn_rows, m->arch, length);
    m->dev->ops->to_device(m->dev, m->turns, m->turns_host,
                           (size_t)(m->turn_rows * m->arch->rope.rotary_dim) * sizeof *m->turns);
}

int pass_begin(struct pass *p, struct model *m, const struct model_weights *w,
               const struct batch *b, bool keep, struct ckpt_err *err)
{
    *p = (struct pass){.m = m, .w = w, .dev = m->dev, .n = b->n_tokens, .n_docs = b->n_docs,
                       .n_rows = b->n_rows, .keep = keep, .ids = m->ids,
                       .doc_start = m->doc_start,
                       .token_type_ids = b->token_type_ids ? m->token_type_ids : NULL};
    if (batch_check(m, b, &p->max_doc, &p->max_enc, err))
        return err->code;
    if (m->arch->stack == ARCH_ENCODER_DECODER) {
        p->n_enc = b->n_enc;
        upload(p, m->enc_ids, b->enc_ids, b->n_enc);
        upload(p, m->enc_start, b->enc_start, b->n_docs + 1);
    }
    if (b->token_type_ids)
        upload(p, m->token_type_ids, b->token_type_ids, b->n_tokens);
    m->dev->work = m->work;
    m->dev->work_bytes = m->work_bytes;
    turn_table(m, p->max_doc);
    upload(p, m->ids, b->ids, b->n_tokens);
    upload_positions(p, b);
    upload(p, m->doc_start, b->doc_start, b->n_docs + 1);
    upload(p, m->rows, b->rows, b->n_rows);
    upload(p, m->targets, b->targets, b->n_rows);
    return 0;
}

/* The lookups: of tokens to out, with positions where they are added at once. */
static struct op_embed lookup(const struct pass *p, const struct layer *u, void *out,
                              const struct op_norm *norm)
{
    const struct arch *a = p->m->arch;
    bool places = a->pos == ARCH_POS_LEARNED && !p->m->emb;

    struct op_embed op = {
        .out = out, .stats = p->m->emb_stats, .dout = out, .dtable = layer_grad(u, ROLE_TOKENS),
        .table = layer_weight(u, ROLE_TOKENS), .ids = p->ids,
        .token_type = layer_weight(u, ROLE_TOKEN_TYPE), .token_type_ids = p->token_type_ids,
        .pos = places ? layer_weight(u, ROLE_POS) : NULL,
        .dpos = places ? layer_grad(u, ROLE_POS) : NULL, .positions = p->m->positions,
        .norm = a->emb_norm ? norm : NULL, .n = p->n, .dim = a->word_embed_proj_dim,
        .vocab = a->vocab_size, .no_grad = a->pad_token_id,
        .lora = layer_lora(p, u, ROLE_TOKENS),
    };

    if (!p->m->emb)
        op.drop = pass_drop(p, u, p->ids == p->m->ids ? DROP_EMBED : DROP_EMBED_ENCODER,
                            a->embed_dropout);
    layer_tokens(&op, u);
    return op;
}

/* Positions by themselves, where the tokens' rows are projected first. */
static struct op_embed place_rows(const struct pass *p, const struct layer *u, void *h)
{
    const struct arch *a = p->m->arch;

    return (struct op_embed){
        .out = h, .dout = h, .table = layer_weight(u, ROLE_POS), .dtable = layer_grad(u, ROLE_POS),
        .ids = p->m->positions, .n = p->n, .dim = a->hidden_size,
        .vocab = a->max_position_embeddings + a->pos_offset, .no_grad = -1,
    };
}

static struct op_linear project_in(const struct pass *p, const struct layer *u)
{
    const struct arch *a = p->m->arch;

    return (struct op_linear){
        .x = p->m->emb, .w = layer_weight(u, ROLE_PROJ_IN), .dw = layer_grad(u, ROLE_PROJ_IN),
        .fresh = u->fresh,
        .lora = layer_lora(p, u, ROLE_PROJ_IN), .n = p->n, .n_in = a->word_embed_proj_dim,
        .n_out = a->hidden_size,
    };
}

void embed_pass(const struct pass *p, const struct layer *u, void *h, bool back)
{
    const struct ops *ops = p->dev->ops;
    const struct model *m = p->m;
    struct op_norm norm = layer_norm(u, ROLE_EMB_NORM_W, ROLE_EMB_NORM_B);
    struct op_embed op = lookup(p, u, m->emb ? m->emb : h, &norm), places;
    struct op_linear in = project_in(p, u);

    if (!m->emb) {
        if (back)
            ops->embed_bwd(p->dev, &op);
        else
            ops->embed_fwd(p->dev, &op);
        return;
    }
    ops->embed_fwd(p->dev, &op);        /* backward: again */
    places = place_rows(p, u, h);
    if (back) {
        ops->embed_bwd(p->dev, &places);
        in.dout = h;
        in.dx = op.dout = m->demb;
        ops->linear_bwd(p->dev, &in);
        ops->embed_bwd(p->dev, &op);
    } else {
        ops->embed_fwd(p->dev, &places);
        in.out = h;
        in.residual = h;
        ops->linear_fwd(p->dev, &in);
    }
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
    struct layer u;

    if (m->arch->stack == ARCH_ENCODER_DECODER)
        encoder_fwd(p);
    u = layer_acquire(p, 0);
    embed_pass(p, &u, m->fwd[first].at[BUF_H], false);
    layer_release(p, &u);
    if (m->used)
        p->dev->ops->zero(p->dev, m->used, (size_t)(2 * m->arch->num_experts) * sizeof *m->used);
    stack_begin(&d, first, false);
    for (int l = first; l < layers; l++)
        block_fwd(&d, l, l + 1 < layers ? m->fwd[l + 1].at[BUF_H] : m->h_last);
    stack_end(&d);
}

static void backward(struct pass *p)
{
    const struct model *m = p->m;
    struct layer u;

    p->keep = true;
    stack_begin(p, decoder_first(m), true);
    for (int l = (int)m->arch->num_hidden_layers - 1; l >= decoder_first(m); l--)
        block_bwd(p, l, m->dh);
    stack_end(p);
    u = layer_acquire(p, 0);
    layer_back(p, &u);
    if (m->params.layer_grad[0] > 0)     /* something before the blocks is trained */
        embed_pass(p, &u, m->dh, true);
    layer_release(p, &u);
    if (m->arch->stack == ARCH_ENCODER_DECODER)
        encoder_bwd(p);
    p->w->grad_done(p->w->ctx, 0);
}

/* Each row's loss comes to the host; the sum is made in f64, in the order of rows. */
static int collect(const struct pass *p, double *loss_sum, float *nll, struct ckpt_err *err)
{
    const struct model *m = p->m;
    size_t bytes = (size_t)p->n_rows * sizeof *m->nll_host;

    if (bytes)
        p->dev->ops->to_host(p->dev, m->nll_host, m->nll, bytes);
    if (device_sync(p->dev, err))
        return err->code;
    *loss_sum = 0;
    for (int64_t i = 0; i < p->n_rows; i++)
        *loss_sum += (double)m->nll_host[i];
    *loss_sum += m->balance * (double)p->n_rows;
    if (nll && bytes)
        memcpy(nll, m->nll_host, bytes);
    return 0;
}

/* An encoder alone ends without one. */
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

    if (needs_head(m, err) || pass_begin(&p, m, w, b, false, err))
        return err->code;
    forward(&p);
    route_balance(&p, 1.0f);
    head_loss(&p, 1.0f, false);
    assert(m->dev->n_alloc == n_alloc);
    (void)n_alloc;
    return collect(&p, loss_sum, nll, err);
}

int model_loss_grad(struct model *m, const struct model_weights *w, const struct batch *b,
                    float scale, double *loss_sum, struct ckpt_err *err)
{
    uint64_t n_alloc = m->dev->n_alloc;
    struct pass p;

    if (!m->opts.train)
        return ckpt_fail(err, CKPT_ESTATE, "the model was planned without a backward pass");
    if (pass_begin(&p, m, w, b, m->opts.recompute != RECOMPUTE_FULL, err))
        return err->code;
    p.drop = true;
    forward(&p);
    route_balance(&p, scale);
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

    without.n_rows = 0;
    if (needs_head(m, err) || pass_begin(&p, m, w, &without, false, err))
        return err->code;
    for (int64_t i = 0; i < n; i++)
        if (rows[i] < 0 || rows[i] >= b->n_tokens)
            return batch_bad(err, "a row whose logits are asked", rows[i], b->n_tokens - 1);
    forward(&p);
    after = layer_acquire(&p, m->params.n_layers - 1);
    head = layer_acquire(&p, head_layer(m));
    matrix = head_matrix(&p, &head);
    for (int64_t i = 0, some; i < n; i += some) {
        some = n - i < m->logit_rows ? n - i : m->logit_rows;
        upload(&p, m->rows, rows + i, some);
        head_rows(&p, &after, matrix, m->h_last, some, m->logits);
        m->dev->ops->to_host(m->dev, logits + i * V, m->logits,
                             (size_t)(some * V) * sizeof *logits);
    }
    layer_release(&p, &head);
    layer_release(&p, &after);
    return device_sync(m->dev, err);
}

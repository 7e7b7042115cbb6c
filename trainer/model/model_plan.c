/*
 * model_plan - see model_plan.h.
 *
 * Phases: 0 embedding; FWD_PHASES per block forward; HEAD_PHASES; BWD_PHASES per block
 * backward, last block first (six of them rebuild the forward when blocks are recomputed); the
 * embedding's backward.  The table below says in which phase of its block each buffer is
 * written and last read, so that everything that is not needed at the same time may lie in the
 * same place.
 */
#include "trainer/model/model_plan.h"

#include "libckpt/mem.h"
#include "libckpt/tensor.h"
#include "trainer/model/lora.h"

enum { FWD_PHASES = 7, HEAD_PHASES = 3, BWD_PHASES = 13 };
/* Logits that leave the device are staged by so many bytes at most (one row at least). */
#define LOGIT_BYTES ((int64_t)16 << 20)
#define LOGIT_ROWS  64

/* Forward phases: 0 norm, 1 qkv, 2 attention, 3 out, 4 norm, 5 up, 6 down.
 * Backward: 0-5 the same again, then 6 down, 7 up, 8 norm, 9 out, 10 attention, 11 qkv,
 * 12 norm. */
static const struct life {
    const char *name;
    int         first, last;        /* forward phases, when nothing is kept; -1: unused */
    int         back;               /* backward phase of the last use; -1: none */
    int         back_first;         /* backward phase of birth, when it is made anew there */
} life[BUF_COUNT] = {
    [BUF_H] = {"h", -1, 3, 12, -1},
    [BUF_Y1] = {"y1", 0, 3, 11, -1},
    [BUF_STATS1] = {"stats1", 0, 0, 12, -1},
    [BUF_RAW] = {"raw", 1, 1, 11, -1},
    [BUF_QKV] = {"qkv", 1, 2, 10, -1},
    [BUF_QK_STATS] = {"qk_stats", 1, 1, 11, -1},
    [BUF_CTX] = {"ctx", 2, 3, 10, -1},
    [BUF_LSE] = {"lse", 2, -1, 10, -1},
    [BUF_H1] = {"h1", 3, 6, 8, -1},
    [BUF_Y2] = {"y2", 4, 6, 7, -1},
    [BUF_STATS2] = {"stats2", 4, 4, 8, -1},
    [BUF_PROBS] = {"probs", 5, 6, 7, -1},
    [BUF_PICKED] = {"picked", 5, 6, 7, -1},
    [BUF_U] = {"u", 5, -1, 6, -1},
    [BUF_G] = {"g", 5, 6, 6, 6},
    [BUF_DG] = {"dg", -1, -1, 6, 6},
    [BUF_DU] = {"du", -1, -1, 7, 6},
    [BUF_DY2] = {"dy2", -1, -1, 8, 7},
    [BUF_DCTX] = {"dctx", -1, -1, 10, 9},
    [BUF_DQKV] = {"dqkv", -1, -1, 11, 10},
    [BUF_DY1] = {"dy1", -1, -1, 12, 11},
};

/* The row of a buffer, as this description uses it. */
static struct life life_of(const struct arch *a, int buf)
{
    bool post = a->place == ARCH_POST_NORM;
    struct life l = life[buf];

    if (buf == BUF_U && a->mlp == ARCH_MLP_GATED)
        l.last = 5;                     /* the gate reads it */
    if (buf == BUF_U && a->num_experts) {
        l.last = 6;
        l.back = 7;                     /* routed: one operation, from y2 to its gradient */
    }
    if (post && (buf == BUF_Y1 || buf == BUF_STATS1)) {
        l.first = l.last = l.back = 6;  /* s and its norm */
    }
    if (post && buf == BUF_G)
        l.back_first = 5;               /* s is rebuilt from it */
    if ((post || a->num_experts) && buf == BUF_DY2)
        l.back_first = 6;               /* takes outputs nobody reads, of what is made again */
    return l;
}

#define NONE SIZE_MAX

/* Indices of a block's buffers in the plan. */
struct items {
    size_t at[BUF_COUNT];
};

struct draft {
    struct model *m;
    struct items *fwd, *bwd;        /* [L] */
    int           layers, head, end;
};

static int fwd_phase(int layer) { return 1 + layer * FWD_PHASES; }

static int bwd_phase(const struct draft *d, int layer)
{
    return d->head + HEAD_PHASES + (d->layers - 1 - layer) * BWD_PHASES;
}

static size_t add(struct draft *d, enum block_buf b, int first, int last)
{
    struct model *m = d->m;

    return plan_add(&m->plan, life[b].name,
                    block_bytes(m->arch, m->dev, b, m->opts.max_tokens), first, last);
}

/* Buffers of one block: kept from forward to backward, or made twice. */
static void draft_block(struct draft *d, int layer)
{
    const struct model_opts *o = &d->m->opts;
    int f = fwd_phase(layer), b = o->train ? bwd_phase(d, layer) : 0;
    bool keep = o->train && !o->recompute;

    for (int i = 0; i < BUF_COUNT; i++) {
        struct life one = life_of(d->m->arch, i), *l = &one;
        bool in_fwd = l->first >= 0 && (keep || l->last >= 0);
        size_t *fwd = &d->fwd[layer].at[i], *bwd = &d->bwd[layer].at[i];

        *fwd = *bwd = NONE;
        if (i == BUF_H) {           /* written by what comes before the block */
            *fwd = *bwd =
                add(d, BUF_H, layer ? f - 1 : 0, o->train ? b + l->back : f + l->last);
            continue;
        }
        if (in_fwd && keep && l->back >= 0 && l->back_first < 0) {
            *fwd = *bwd = add(d, (enum block_buf)i, f + l->first, b + l->back);
            continue;
        }
        if (in_fwd)
            *fwd = add(d, (enum block_buf)i, f + l->first, f + l->last);
        if (o->train && l->back_first >= 0)
            *bwd = add(d, (enum block_buf)i, b + l->back_first,
                       b + (l->back > l->back_first ? l->back : l->back_first));
        else if (o->train && l->back >= 0)
            *bwd = add(d, (enum block_buf)i, b + l->first, b + l->back);
    }
}

struct op_limits model_limits(const struct model *m, int64_t n)
{
    const struct arch *a = m->arch;
    const struct lora *l = m->opts.lora;

    return (struct op_limits){
        .n = n, .dim = a->hidden_size, .n_head = a->num_attention_heads,
        .n_kv = a->num_key_value_heads, .head_dim = a->head_dim, .ff = a->intermediate_size,
        .vocab = a->vocab_size, .embed = a->word_embed_proj_dim, .n_expert = a->num_experts,
        .top_k = a->num_experts_per_tok, .expert_ff = a->moe_intermediate_size,
        .lora_rank = l ? lora_max_rank(l) : 0, .lora_magnitude = l && lora_has_magnitude(l),
        .lora_drop = l && m->opts.train && lora_dropout(l) > 0,
        .drop = m->opts.train && a->hidden_dropout > 0,
    };
}

/* Where a planned buffer's address goes. */
struct place {
    void **to;
    size_t item;
};

enum { N_PLACES = 24 };

/* Buffers outside of blocks; gives how many. */
static size_t draft_rest(struct draft *d, struct place *at)
{
    struct model *m = d->m;
    const struct arch *a = m->arch;
    const struct model_opts *o = &m->opts;
    uint64_t act = ckpt_dtype_size(m->dev->act), D = (uint64_t)a->hidden_size;
    uint64_t N = (uint64_t)o->max_tokens, R = (uint64_t)o->max_rows, i4 = sizeof(int32_t);
    int h = d->head, e = d->end;
    uint64_t some, w = (uint64_t)a->word_embed_proj_dim;
    size_t n = 0;

    m->logit_rows = LOGIT_BYTES / ((int64_t)sizeof(float) * a->vocab_size);
    m->logit_rows = m->logit_rows < 1            ? 1
                    : m->logit_rows > LOGIT_ROWS ? LOGIT_ROWS
                                                 : m->logit_rows;
    some = (uint64_t)m->logit_rows > R ? (uint64_t)m->logit_rows : R;
#define ADD(field, bytes, first, last)                                                         \
    at[n++] = (struct place){(void **)&m->field, plan_add(&m->plan, #field, bytes, first, last)}
    ADD(ids, N * i4, 0, e);
    ADD(positions, N * i4, 0, e);
    ADD(doc_start, ((uint64_t)o->max_docs + 1) * i4, 0, e);
    ADD(rows, some * i4, 0, e);
    ADD(targets, R * i4, 0, e);
    ADD(work, m->work_bytes, 0, e);
    ADD(h_last, N * D * act, fwd_phase(d->layers) - 1, h + 2);
    ADD(emb_stats, N * 2 * sizeof(float), 0, e);
    ADD(final_stats, some * 2 * sizeof(float), h, h + 2);
    ADD(y_rows, some * D * act, h, h + 1);
    ADD(nll, R * sizeof(float), h + 1, e);
    ADD(logits, (uint64_t)(m->logit_rows * a->vocab_size) * sizeof(float), h + 1, h + 1);
    if (m->n_tokens)
        ADD(token_ids, (uint64_t)m->n_tokens * i4, 0, e);
    if (a->pos == ARCH_POS_ALIBI)
        ADD(slopes, (uint64_t)a->num_attention_heads * sizeof(float), 0, e);
    if (a->pos == ARCH_POS_ROPE)
        ADD(turns, N * (uint64_t)a->rope.turned * sizeof(float), 0, e);
    if (w != D) {
        ADD(emb, N * w * act, 0, e);
        ADD(z_rows, some * w * act, h, h + 2);
    }
    if (w != D && o->train) {
        ADD(demb, N * w * act, e, e);
        ADD(dz_rows, R * w * act, h + 1, h + 2);
    }
    if (o->train) {
        ADD(dy_rows, R * D * act, h + 1, h + 2);
        ADD(dh, N * D * act, h + 2, e);
    }
#undef ADD
    return n;
}

static void hand_out(struct draft *d, const struct place *at, size_t n)
{
    struct model *m = d->m;

    for (size_t i = 0; i < n; i++)
        *at[i].to = plan_at(&m->plan, m->arena, at[i].item);
    for (int l = 0; l < d->layers; l++)
        for (int i = 0; i < BUF_COUNT; i++) {
            if (d->fwd[l].at[i] != NONE)
                m->fwd[l].at[i] = plan_at(&m->plan, m->arena, d->fwd[l].at[i]);
            if (d->bwd[l].at[i] != NONE)
                m->bwd[l].at[i] = plan_at(&m->plan, m->arena, d->bwd[l].at[i]);
        }
}

static int upload_slopes(struct model *m, struct ckpt_err *err)
{
    size_t n = (size_t)m->arch->num_attention_heads;
    float *host;

    if (m->arch->pos != ARCH_POS_ALIBI)
        return 0;
    host = ckpt_alloc(n, sizeof *host);
    if (!host)
        return ckpt_nomem(err, n * sizeof *host);
    alibi_slopes(host, (int64_t)n);
    m->dev->ops->to_device(m->dev, m->slopes, host, n * sizeof *host);
    ckpt_free(host);
    return device_sync(m->dev, err);
}

/* The ids whose rows of the embedding are trained by themselves, in their rows' order. */
static int upload_tokens(struct model *m, struct ckpt_err *err)
{
    const json_t *list = params_token_list(&m->params, m->opts.lora);
    size_t n = json_array_size(list);
    int32_t *host;

    if (m->n_tokens == 0)
        return 0;
    host = ckpt_alloc(n, sizeof *host);
    if (!host)
        return ckpt_nomem(err, n * sizeof *host);
    for (size_t i = 0; i < n; i++)
        host[i] = (int32_t)json_integer_value(json_array_get(list, i));
    m->dev->ops->to_device(m->dev, m->token_ids, host, n * sizeof *host);
    ckpt_free(host);
    return device_sync(m->dev, err);
}

static int allocate(struct draft *d, struct ckpt_err *err)
{
    struct model *m = d->m;
    struct op_limits lim = model_limits(m, m->opts.max_tokens);
    struct place at[N_PLACES];
    size_t n;

    lim.n_rows = m->opts.max_rows;
    lim.max_doc = m->opts.max_tokens;
    lim.train = m->opts.train;
    m->work_bytes = m->dev->ops->workspace(m->dev, &lim);
    for (int l = 0; l < d->layers; l++)
        draft_block(d, l);
    n = draft_rest(d, at);
    if (plan_pack(&m->plan, err))
        return err->code;
    m->arena = m->dev->ops->alloc(m->dev, m->plan.bytes);
    if (!m->arena)
        return ckpt_nomem(err, m->plan.bytes);
    hand_out(d, at, n);
    if (m->turns) {
        m->turn_rows = m->opts.max_tokens;
        m->turn_regime = -1;
        m->turns_host = ckpt_alloc((size_t)(m->turn_rows * m->arch->rope.turned),
                                   sizeof *m->turns_host);
        if (!m->turns_host)
            return ckpt_nomem(err, (size_t)m->turn_rows);
        turn_table(m, 0);
    }
    return upload_tokens(m, err) ? err->code : upload_slopes(m, err);
}

int model_plan(struct model *m, struct ckpt_err *err)
{
    struct draft d = {.m = m, .layers = (int)m->arch->num_hidden_layers};
    size_t layers = (size_t)d.layers;
    int rc;

    d.head = fwd_phase(d.layers);
    d.end = m->opts.train ? bwd_phase(&d, -1) : d.head + HEAD_PHASES;
    d.fwd = ckpt_alloc(layers, sizeof *d.fwd);
    d.bwd = ckpt_alloc(layers, sizeof *d.bwd);
    m->fwd = ckpt_alloc(layers, sizeof *m->fwd);
    m->bwd = ckpt_alloc(layers, sizeof *m->bwd);
    m->positions_host = ckpt_alloc((size_t)m->opts.max_tokens, sizeof *m->positions_host);
    m->nll_host = ckpt_alloc((size_t)m->opts.max_rows, sizeof *m->nll_host);
    rc = d.fwd && d.bwd && m->fwd && m->bwd && m->nll_host && m->positions_host
             ? allocate(&d, err)
             : ckpt_nomem(err, layers * sizeof *d.fwd);
    ckpt_free(d.fwd);
    ckpt_free(d.bwd);
    return rc;
}

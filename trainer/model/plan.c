/*
 * model/plan - see model/plan.h.
 *
 * Phases: 0 embedding; FWD_PHASES per block forward; HEAD_PHASES; BWD_PHASES per block backward,
 * last block first (ten of them repeat the forward ones, when blocks are fully recomputed); the
 * embedding's backward.  The table below says in which phase of its block each buffer is written
 * and last read, so that buffers that are never needed at the same time can share memory.
 */
#include "trainer/model/plan.h"

#include "libckpt/convert.h"
#include "libckpt/mem.h"
#include "libckpt/tensor.h"
#include "trainer/model/host.h"
#include "trainer/model/lora.h"

enum { FWD_PHASES = 11, HEAD_PHASES = 3, BWD_PHASES = 21 };
/* Logits copied to the host are staged in at most this many bytes (at least one row). */
#define LOGIT_BYTES ((int64_t)16 << 20)
#define LOGIT_ROWS  64

/* Forward phases: 0 norm, 1 qkv, 2 attention, 3 out, [cross: 4 norm, 5 projections, 6 attention,
 * 7 out,] 8 norm, 9 up, 10 down.  Backward: 0-9 the same, recomputed, then 10 down, 11 up, 12 norm,
 * [13 out, 14 attention, 15 projections, 16 norm,] 17 out, 18 attention, 19 qkv, 20 norm. */
static const struct life {
    const char *name;
    int         first, last;        /* forward phases, if it is not stored; -1: unused */
    int         back;               /* backward phase of the last use; -1: none */
    int         back_first;         /* backward phase in which it is recomputed */
} life[BUF_COUNT] = {
    [BUF_H] = {"h", -1, 3, 20, -1},
    [BUF_Y1] = {"y1", 0, 3, 19, -1},
    [BUF_STATS1] = {"stats1", 0, 0, 20, -1},
    [BUF_RAW] = {"raw", 1, 1, 19, -1},
    [BUF_QKV] = {"qkv", 1, 2, 18, -1},
    [BUF_QK_STATS] = {"qk_stats", 1, 1, 19, -1},
    [BUF_CTX] = {"ctx", 2, 3, 18, -1},
    [BUF_LSE] = {"lse", 2, -1, 18, -1},
    [BUF_HX] = {"hx", 3, 7, 16, -1},
    [BUF_YX] = {"yx", 4, 5, 15, -1},
    [BUF_STATSX] = {"statsx", 4, 4, 16, -1},
    [BUF_QX] = {"qx", 5, 6, 14, -1},
    [BUF_KVX] = {"kvx", 5, 6, 14, -1},
    [BUF_CTXX] = {"ctxx", 6, 7, 14, -1},
    [BUF_LSEX] = {"lsex", 6, -1, 14, -1},
    [BUF_H1] = {"h1", 3, 10, 12, -1},
    [BUF_Y2] = {"y2", 8, 10, 11, -1},
    [BUF_STATS2] = {"stats2", 8, 8, 12, -1},
    [BUF_PROBS] = {"probs", 9, 10, 11, -1},
    [BUF_TOP_K] = {"top_k", 9, 10, 11, -1},
    [BUF_U] = {"u", 9, -1, 10, -1},
    [BUF_G] = {"g", 9, 10, 10, 10},
    [BUF_LOW] = {"low", 1, -1, 19, -1},
    [BUF_DG] = {"dg", -1, -1, 10, 10},
    [BUF_DU] = {"du", -1, -1, 11, 10},
    [BUF_DY2] = {"dy2", -1, -1, 12, 11},
    [BUF_DCTXX] = {"dctxx", -1, -1, 14, 13},
    [BUF_DQX] = {"dqx", -1, -1, 15, 14},
    [BUF_DKVX] = {"dkvx", -1, -1, 15, 14},
    [BUF_DYX] = {"dyx", -1, -1, 16, 15},
    [BUF_DCTX] = {"dctx", -1, -1, 18, 17},
    [BUF_DQKV] = {"dqkv", -1, -1, 19, 18},
    [BUF_DY1] = {"dy1", -1, -1, 20, 19},
};

/* Life of a buffer, adjusted to this description. */
static struct life life_of(const struct arch *a, enum recompute level, int buf)
{
    bool norms = level == RECOMPUTE_NORMS;
    bool post = a->place == ARCH_POST_NORM;
    struct life l = life[buf];

    if (buf == BUF_U && a->mlp == ARCH_MLP_GATED)
        l.last = 9;                     /* read by the gate */
    if (buf == BUF_U && a->num_experts) {
        l.last = 10;
        l.back = 11;                    /* routed: one operation, from y2 to its gradient */
    }
    if (post && (buf == BUF_Y1 || buf == BUF_STATS1))
        l.first = l.last = l.back = 10; /* s and its norm */
    if (post && buf == BUF_G)
        l.back_first = 9;               /* s is recomputed from it */
    if ((post || a->num_experts) && buf == BUF_DY2)
        l.back_first = 10;              /* written, although unused, when recomputing */
    if (buf == BUF_G && a->mlp != ARCH_MLP_GATED && level == RECOMPUTE_NONE)
        l.back_first = -1;
    if (norms && buf == BUF_Y2)
        l.back_first = a->num_experts ? 10 : 11;
    if (norms && (buf == BUF_YX || (buf == BUF_Y1 && !post)))
        l.back_first = l.back;
    return l;
}

struct draft {
    struct model *m;
    int           layers, head, end;
};

static int fwd_phase(int layer) { return 1 + layer * FWD_PHASES; }

static int bwd_phase(const struct draft *d, int layer)
{
    return d->head + HEAD_PHASES + (d->layers - 1 - layer) * BWD_PHASES;
}

/* Columns of a block's BUF_LOW, and the position of each LoRA's in it. */
static int64_t low_columns(struct model *m, int layer)
{
    int64_t n = 0;

    for (int r = 0; m->low_rows && r < (int)ROLE_COUNT; r++) {
        struct role_place *c = &m->place[(layer + 1) * (int)ROLE_COUNT + r];

        c->lora.low = n;
        n += (c->lora.rank + 7) / 8 * 8;
    }
    return n;
}

/* Plan a block's buffer, whose address goes to that place and (if not NULL) to another. */
static void add(struct draft *d, int layer, int b, int first, int last, void **to, void **also)
{
    struct model *m = d->m;
    bool encoder = m->arch->stack == ARCH_ENCODER_DECODER && !arch_has_cross(m->arch, layer);
    int64_t rows = encoder ? m->opts.max_enc : m->opts.max_tokens;
    uint64_t bytes = block_bytes(m->arch, m->dev, (enum block_buf)b, rows, m->opts.max_enc);

    if (encoder && block_crosses((enum block_buf)b))
        bytes = 0;
    if (b == BUF_LOW)
        bytes = (uint64_t)(m->low_rows * low_columns(m, layer)) * ckpt_dtype_size(m->dev->act);
    plan_share(&m->plan, plan_add(&m->plan, to, life[b].name, bytes, first, last), also);
}

/* Buffers of one block: stored from forward to backward, or planned for each. */
static void draft_block(struct draft *d, int layer)
{
    const struct model_opts *o = &d->m->opts;
    int f = fwd_phase(layer), b = o->train ? bwd_phase(d, layer) : 0;
    bool keep = o->train && o->recompute != RECOMPUTE_FULL;

    for (int i = 0; i < BUF_COUNT; i++) {
        struct life one = life_of(d->m->arch, o->recompute, i), *l = &one;
        bool in_fwd = l->first >= 0 && (keep || l->last >= 0);
        void **fwd = &d->m->fwd[layer].at[i], **bwd = &d->m->bwd[layer].at[i];

        if (i == BUF_H) {           /* written before the block */
            add(d, layer, i, layer ? f - 1 : 0, o->train ? b + l->back : f + l->last, fwd, bwd);
            continue;
        }
        if (in_fwd && keep && l->back >= 0 && l->back_first < 0) {
            add(d, layer, i, f + l->first, b + l->back, fwd, bwd);
            continue;
        }
        if (in_fwd)
            add(d, layer, i, f + l->first, f + l->last, fwd, NULL);
        if (o->train && l->back_first >= 0)
            add(d, layer, i, b + l->back_first,
                b + (l->back > l->back_first ? l->back : l->back_first), bwd, NULL);
        else if (o->train && l->back >= 0)
            add(d, layer, i, b + l->first, b + l->back, bwd, NULL);
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
        .noise = m->opts.neftune_alpha > 0, .padding = m->opts.padding,
    };
}

/* Whether training changes anything at random. */
static bool drops(const struct model *m)
{
    const struct arch *a = m->arch;
    const double p[] = {a->hidden_dropout, a->attention_dropout, a->embed_dropout, a->ff_dropout,
                        a->final_dropout, a->router_jitter,
                        m->opts.lora ? lora_dropout(m->opts.lora) : 0};
    bool any = false;

    for (size_t i = 0; i < sizeof p / sizeof *p; i++)
        any = any || p[i] > 0;
    return any && m->opts.train;
}

#define ADD(field, bytes, first, last)                                                         \
    plan_add(&m->plan, (void **)&m->field, #field, bytes, first, last)

/* Buffers between the two stacks, and the encoder's part of a batch. */
static void draft_encoder(struct draft *d)
{
    struct model *m = d->m;
    const struct arch *a = m->arch;
    uint64_t wide = (uint64_t)(m->opts.max_enc * a->hidden_size) * ckpt_dtype_size(m->dev->act);
    int layers = (int)a->num_encoder_layers, made = fwd_phase(layers) - 1, e = d->end;
    bool train = m->opts.train;
    int back = train ? bwd_phase(d, layers) + BWD_PHASES : 0;

    ADD(encoder.ids, (uint64_t)m->opts.max_enc * sizeof(int32_t), 0, e);
    if (m->opts.neftune_alpha > 0)
        ADD(encoder.noise, (uint64_t)m->opts.max_enc * sizeof *m->encoder.noise, 0, e);
    ADD(encoder.start, ((uint64_t)m->opts.max_docs + 1) * sizeof(int32_t), 0, e);
    if (drops(m))
        ADD(encoder.drop_rows, (uint64_t)m->opts.max_enc * sizeof(uint64_t), 0, e);
    ADD(encoder.last, wide, made, train ? back : made);
    ADD(encoder.stats, (uint64_t)m->opts.max_enc * 2 * sizeof(float), made, train ? back : made);
    ADD(encoder.out, wide, made, train ? back : d->head);
    if (train)
        ADD(encoder.dout, wide, d->head + HEAD_PHASES, e);
}

/* Buffers outside of blocks. */
static void draft_rest(struct draft *d)
{
    struct model *m = d->m;
    const struct arch *a = m->arch;
    const struct model_opts *o = &m->opts;
    uint64_t act = ckpt_dtype_size(m->dev->act), D = (uint64_t)a->hidden_size;
    uint64_t N = (uint64_t)o->max_tokens, R = (uint64_t)o->max_rows, i4 = sizeof(int32_t);
    int h = d->head, e = d->end;
    uint64_t some, w = (uint64_t)a->word_embed_proj_dim;

    m->head.logit_rows = LOGIT_BYTES / ((int64_t)sizeof(float) * a->vocab_size);
    m->head.logit_rows = m->head.logit_rows < 1            ? 1
                    : m->head.logit_rows > LOGIT_ROWS ? LOGIT_ROWS
                                                 : m->head.logit_rows;
    some = (uint64_t)m->head.logit_rows > R ? (uint64_t)m->head.logit_rows : R;
    ADD(batch.ids, N * i4, 0, e);
    ADD(batch.positions, N * i4, 0, e);
    if (o->neftune_alpha > 0)
        ADD(batch.noise, N * sizeof *m->batch.noise, 0, e);
    ADD(batch.doc_start, ((uint64_t)o->max_docs + 1) * i4, 0, e);
    if (o->padding) {
        ADD(batch.real_start, (uint64_t)o->max_docs * i4, 0, e);
        ADD(batch.real_end, (uint64_t)o->max_docs * i4, 0, e);
    }
    ADD(batch.rows, some * i4, 0, e);
    ADD(batch.targets, R * i4, 0, e);
    if (drops(m)) {
        ADD(batch.drop_rows, N * sizeof(uint64_t), 0, e);
        ADD(batch.drop_loss, R * sizeof(uint64_t), 0, e);
    }
    ADD(work, m->work_bytes, 0, e);
    ADD(h_last, N * D * act, fwd_phase(d->layers) - 1, h + 2);
    ADD(embed.stats, N * 2 * sizeof(float), 0, e);
    ADD(head.stats, some * 2 * sizeof(float), h, h + 2);
    ADD(head.y, some * D * act, h, h + 1);
    ADD(head.nll, R * sizeof(float), h + 1, e);
    ADD(head.logits, (uint64_t)(m->head.logit_rows * a->vocab_size) * sizeof(float), h + 1, h + 1);
    if (m->trained_rows.n)
        ADD(trained_rows.ids, (uint64_t)m->trained_rows.n * i4, 0, e);
    if (m->trained_rows.n && a->tie_word_embeddings)
        ADD(head.w, (uint64_t)a->vocab_size * w * ckpt_dtype_size(m->dev->weight), h, h + 1);
    if (m->trained_rows.n && a->tie_word_embeddings && o->train)
        ADD(head.dw, (uint64_t)a->vocab_size * w * ckpt_dtype_size(m->dev->grad), h + 1, h + 1);
    if (a->norm_bare)
        ADD(ones, D * ckpt_dtype_size(m->dev->weight), 0, e);
    if (a->pos == ARCH_POS_ALIBI)
        ADD(positions.slopes, (uint64_t)a->num_attention_heads * sizeof(float), 0, e);
    if (a->pos == ARCH_POS_ROPE)
        ADD(positions.rope, N * (uint64_t)a->rope.rotary_dim * sizeof(float), 0, e);
    if (w != D) {
        ADD(embed.e, N * w * act, 0, e);
        ADD(head.z, some * w * act, h, h + 2);
    }
    if (w != D && o->train) {
        ADD(embed.de, N * w * act, e, e);
        ADD(head.dz, R * w * act, h + 1, h + 2);
    }
    if (o->train) {
        ADD(head.dy, R * D * act, h + 1, h + 2);
        ADD(dh, N * D * act, h + 2, e);
    }
    if (a->router_aux > 0) {
        ADD(routing.used, (uint64_t)(2 * a->num_experts) * sizeof(float), 0, e);
        ADD(routing.dused, (uint64_t)a->num_experts * sizeof(float), 0, e);
    }
    if (a->type_vocab_size > 0)
        ADD(batch.token_type_ids, N * i4, 0, e);
    if (a->pos == ARCH_POS_BUCKETS)
        for (int k = 0; k < 2; k++)
            ADD(positions.bucket[k], (2 * (uint64_t)a->max_distance + 1) * i4, 0, e);
    if (a->stack == ARCH_ENCODER_DECODER)
        draft_encoder(d);
}
#undef ADD

/* Copy a constant of the model from host_arena to the device. */
static int upload(struct model *m, void *to, const void *host, size_t bytes, struct ckpt_err *err)
{
    m->dev->ops->to_device(m->dev, to, host, bytes);
    return device_sync(m->dev, err);
}

static int upload_slopes(struct model *m, struct ckpt_err *err)
{
    size_t n = (size_t)m->arch->num_attention_heads;
    float *host = ckpt_arena_alloc(&m->host_arena, n, sizeof *host);

    if (m->arch->pos != ARCH_POS_ALIBI)
        return 0;
    if (!host)
        return ckpt_nomem(err, n * sizeof *host);
    attention_alibi_slopes(host, (int64_t)n);
    return upload(m, m->positions.slopes, host, n * sizeof *host, err);
}

static int upload_ones(struct model *m, struct ckpt_err *err)
{
    size_t n = (size_t)m->arch->hidden_size, size = ckpt_dtype_size(m->dev->weight);
    unsigned char *host = ckpt_arena_alloc(&m->host_arena, n, size);
    const float one = 1;

    if (!m->ones)
        return 0;
    if (!host)
        return ckpt_nomem(err, n * size);
    for (size_t i = 0; i < n; i++)
        ckpt_convert(host + i * size, m->dev->weight, &one, CKPT_F32, 1);
    return upload(m, m->ones, host, n * size, err);
}

/* Upload the ids of the separately trained rows of the embedding, in the rows' order. */
static int upload_tokens(struct model *m, struct ckpt_err *err)
{
    const json_t *list = params_token_list(&m->params, m->opts.lora);
    size_t n = m->trained_rows.n ? json_array_size(list) : 0;
    int32_t *ids = ckpt_arena_alloc(&m->host_arena, n, sizeof *ids);

    if (!ids)
        return ckpt_nomem(err, n * sizeof *ids);
    for (size_t i = 0; i < n; i++)
        ids[i] = (int32_t)json_integer_value(json_array_get(list, i));
    m->trained_rows.ids_host = ids;
    return n ? upload(m, m->trained_rows.ids, ids, n * sizeof *ids, err) : 0;
}

static int allocate(struct draft *d, struct ckpt_err *err)
{
    struct model *m = d->m;
    int64_t rows = m->opts.max_tokens > m->opts.max_enc ? m->opts.max_tokens : m->opts.max_enc;
    struct op_limits lim = model_limits(m, rows);
    int rc;

    lim.n_rows = m->opts.max_rows;
    lim.max_doc = rows;
    lim.train = m->opts.train;
    m->work_bytes = m->dev->ops->workspace(m->dev, &lim);
    if (m->params.adapted && m->dev->discrete && m->opts.train &&
        m->opts.recompute != RECOMPUTE_FULL)
        m->low_rows = rows;
    for (int l = 0; l < d->layers; l++)
        draft_block(d, l);
    draft_rest(d);
    if ((rc = plan_pack(&m->plan, err)) != 0 || m->opts.dry)
        return rc;
    m->arena = device_alloc(m->dev, m->plan.bytes, err);
    if (!m->arena)
        return ckpt_err_code(err);
    plan_hand_out(&m->plan, m->arena);
    if (m->positions.rope) {
        int64_t most = m->opts.max_tokens;
        const struct host_array table =
            HOST_ARRAY(m->positions.rope_host, most * m->arch->rope.rotary_dim);

        if ((rc = host_arrays(&m->host_arena, &table, 1, err)) != 0)
            return rc;
        m->positions.rope_rows = most;
        m->positions.rope_regime = -1;
        pass_rope_table(m, 0);
    }
    rc = upload_tokens(m, err);
    rc = rc ? rc : encoder_upload_buckets(m, err);
    rc = rc ? rc : upload_ones(m, err);
    return rc ? rc : upload_slopes(m, err);
}

int model_plan(struct model *m, struct ckpt_err *err)
{
    struct draft d = {.m = m, .layers = (int)m->arch->num_hidden_layers};
    bool noise = m->opts.neftune_alpha > 0;
    int64_t rows = m->opts.max_tokens > m->opts.max_enc ? m->opts.max_tokens : m->opts.max_enc;
    const struct host_array arrays[] = {
        HOST_ARRAY(m->fwd, d.layers), HOST_ARRAY(m->bwd, d.layers),
        HOST_ARRAY(m->batch.positions_host, m->opts.max_tokens),
        HOST_ARRAY(m->batch.drop_host, drops(m) ? rows : 0),
        HOST_ARRAY(m->routing.used_host, 2 * m->arch->num_experts),
        HOST_ARRAY(m->head.nll_host, m->opts.max_rows),
        HOST_ARRAY(m->batch.noise_host, noise ? m->opts.max_tokens : 0),
        HOST_ARRAY(m->encoder.noise_host, noise ? m->opts.max_enc : 0),
    };
    int rc = host_arrays(&m->host_arena, arrays, sizeof arrays / sizeof arrays[0], err);

    d.head = fwd_phase(d.layers);
    d.end = m->opts.train ? bwd_phase(&d, -1) : d.head + HEAD_PHASES;
    return rc ? rc : allocate(&d, err);
}

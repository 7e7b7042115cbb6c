/*
 * decode - generation with a cache of keys and values; see model.h.
 *
 * New rows of all sequences pass through the blocks together, a chunk of rows at a time, so that a
 * long prompt needs no more memory than a short one; attention is causal, so chunks are exact.
 * Cache of a layer: [K][rows][d], keys and values separate; a sequence has consecutive rows.
 */
#include <assert.h>
#include <string.h>

#include "libckpt/mem.h"
#include "trainer/model/generate/decode.h"
#include "trainer/model/host.h"
#include "formats/families/family.h"
#include "trainer/model/plan.h"

/* Rows; multiples of the attention's block.  A GPU's products of few rows are bound by the weights
 * that they read. */
#define CHUNK     512
#define CHUNK_GPU 2048
#define LOGIT_BYTES ((int64_t)256 << 20)
#define LOGIT_ROWS  4096

/* Number of sequences whose logits are held at once. */
static int64_t logit_rows(const struct decode *d)
{
    int64_t most = LOGIT_BYTES / ((int64_t)sizeof(float) * d->m->arch->vocab_size);

    most = most < LOGIT_ROWS ? most : LOGIT_ROWS;
    most = most < d->n_seq ? most : d->n_seq;
    return most < 1 ? 1 : most;
}

/* Bytes of head_top's output for n rows: sums, values, ids. */
static uint64_t top_bytes(int64_t n, int64_t k)
{
    return (uint64_t)n * sizeof(double) + (uint64_t)(n * k) * (sizeof(float) + sizeof(int32_t));
}

/* All memory lives as long as the session: a step is short and its buffers are small. */
static int allocate(struct decode *d, struct ckpt_err *err)
{
    const struct arch *a = d->m->arch;
    struct model *view = &d->view;
    struct device *dev = d->m->dev;
    struct op_limits lim = model_limits(d->m, d->chunk);
    uint64_t act = ckpt_dtype_size(dev->act);
    uint64_t rows = (uint64_t)(d->chunk > view->head.logit_rows ? d->chunk : view->head.logit_rows);
    uint64_t layers = (uint64_t)(a->num_hidden_layers - d->first);
    int rc;

    d->layer_bytes = (uint64_t)(a->num_key_value_heads * a->head_dim) * (uint64_t)d->rows * act;
    lim.max_keys = d->max_len;
    lim.top_rows = view->head.logit_rows;
    view->work_bytes = dev->ops->workspace(dev, &lim);
#define ADD(place, bytes) plan_add(&d->plan, (void **)&(place), #place, bytes, 0, 0)
    for (int i = 0; i < BUF_COUNT; i++)
        if (i <= BUF_G && i != BUF_LSE && i != BUF_LSEX && i != BUF_KVX &&
            (i != BUF_U || a->mlp == ARCH_MLP_GATED))
            ADD(d->bufs.at[i], block_bytes(a, dev, (enum block_buf)i, d->chunk, 0));
    ADD(d->next, block_bytes(a, dev, BUF_H, d->chunk, 0));
    ADD(d->k, d->layer_bytes * layers);
    ADD(d->v, d->layer_bytes * layers);
    if (a->stack == ARCH_ENCODER_DECODER) {
        d->cross_bytes = block_bytes(a, dev, BUF_KVX, 0, d->enc_rows);
        ADD(d->cross, d->cross_bytes * layers);
    }
    ADD(d->feed, (uint64_t)decode_feed_size(d) * sizeof *d->feed);
    ADD(d->top, top_bytes(view->head.logit_rows, OP_TOP_MOST));
    ADD(view->embed.stats, rows * 2 * sizeof(float));
    ADD(view->head.stats, rows * 2 * sizeof(float));
    ADD(view->head.y, rows * (uint64_t)a->hidden_size * act);
    ADD(view->head.logits, (uint64_t)(view->head.logit_rows * a->vocab_size) * sizeof(float));
    ADD(view->work, view->work_bytes);
    if (view->head.w)
        ADD(view->head.w, (uint64_t)(a->vocab_size * a->word_embed_proj_dim) *
                              ckpt_dtype_size(dev->weight));
    if (view->positions.rope)
        ADD(view->positions.rope, (uint64_t)(d->max_len * a->rope.rotary_dim) * sizeof(float));
    if (view->embed.e) {
        ADD(view->embed.e, rows * (uint64_t)a->word_embed_proj_dim * act);
        ADD(view->head.z, rows * (uint64_t)a->word_embed_proj_dim * act);
    }
#undef ADD
    if ((rc = plan_pack(&d->plan, err)) != 0)
        return rc;
    d->arena = device_alloc(dev, d->plan.bytes, err);
    if (!d->arena)
        return ckpt_err_code(err);
    plan_hand_out(&d->plan, d->arena);
    return 0;
}

/* Longrope changes all angles at one length: cached keys are then recomputed. */
static bool replays(const struct arch *a)
{
    return a->pos == ARCH_POS_ROPE && a->rope.kind == ARCH_ROPE_LONG;
}

/* Check the size of a session for such a model. */
static int check_size(const struct arch *a, const struct decode_size *s, struct ckpt_err *err)
{
    int64_t max_docs = s->docs, max_len = s->len;

    if (a->stack == ARCH_ENCODER)
        return ckpt_fail(err, CKPT_EUNSUPPORTED, "%s is an encoder: it generates nothing",
                         a->family->model_type);
    if (max_docs < 1 || max_docs > 1 << 20 || max_len < 1 || max_len > 1 << 28)
        return ckpt_fail(err, CKPT_ELIMIT,
                         "%lld sequences of %lld tokens: wanted 1 to %d of 1 to %d",
                         (long long)max_docs, (long long)max_len, 1 << 20, 1 << 28);
    if (a->stack == ARCH_ENCODER_DECODER && (s->enc_rows < 1 || s->enc_rows > INT32_MAX))
        return ckpt_fail(err, CKPT_ELIMIT, "%lld sequences of %lld tokens: the rows of an encoder "
                         "are counted in 31 bits", (long long)max_docs, (long long)max_len);
    if (s->rows < 1 || s->rows > INT32_MAX / a->num_key_value_heads)
        return ckpt_fail(err, CKPT_ELIMIT, "a cache of %lld rows for %lld heads: counted in 31 "
                         "bits", (long long)s->rows, (long long)a->num_key_value_heads);
    return 0;
}

static int allocate_host(struct decode *d, struct ckpt_err *err)
{
    const struct model *m = d->m;
    int64_t n = d->n_seq, again = replays(m->arch) ? n * d->max_len : 0;
    const struct host_array arrays[] = {
        HOST_ARRAY(d->len, n), HOST_ARRAY(d->done, n), HOST_ARRAY(d->host.start, n + 1),
        HOST_ARRAY(d->host.seq, n), HOST_ARRAY(d->host.past, n), HOST_ARRAY(d->enc_len, n),
        HOST_ARRAY(d->at, n), HOST_ARRAY(d->room, n), HOST_ARRAY(d->host.first, n),
        HOST_ARRAY(d->space.piece, n), HOST_ARRAY(d->enc_space.piece, n),
        HOST_ARRAY(d->enc_first, n), HOST_ARRAY(d->none, n + 1),
        HOST_ARRAY(d->feed_host, decode_feed_size(d)), HOST_ARRAY(d->ids, d->chunk),
        HOST_ARRAY(d->positions, d->chunk),
        HOST_ARRAY(d->top_host, (int64_t)top_bytes(d->view.head.logit_rows, OP_TOP_MOST)),
        HOST_ARRAY(d->view.positions.rope_host,
                   m->positions.rope ? d->max_len * m->arch->rope.rotary_dim : 0),
        HOST_ARRAY(d->past, again), HOST_ARRAY(d->replay, again), HOST_ARRAY(d->n_past, n),
    };
    size_t last = again ? 0 : 3;

    return host_arrays(&d->host_arena, arrays, sizeof arrays / sizeof arrays[0] - last, err);
}

int decode_new(struct decode **out, struct model *m, int64_t max_docs, int64_t max_len,
               struct ckpt_err *err)
{
    bool fits = max_docs > 0 && max_len > 0 && max_docs <= INT64_MAX / max_len;
    int64_t rows = fits ? max_docs * max_len : 0;
    const struct decode_size size = {.docs = max_docs, .len = max_len, .rows = rows,
                                     .enc_rows = rows};
    int rc = decode_open(out, m, &size, err);

    for (int64_t i = 0; rc == 0 && i < max_docs; i++)
        if (!decode_place(*out, i, max_len, 0))
            return ckpt_fail(err, CKPT_ESTATE, "sequence %lld has no place", (long long)i);
    return rc;
}

int decode_open(struct decode **out, struct model *m, const struct decode_size *size,
                struct ckpt_err *err)
{
    struct decode *d;
    int rc = check_size(m->arch, size, err);

    *out = NULL;
    if (rc)
        return rc;
    d = ckpt_alloc(1, sizeof *d);
    if (!d)
        return ckpt_nomem(err, sizeof *d);
    d->m = m;
    d->view = *m;
    d->first = (int)arch_stack_first(m->arch, m->arch->num_hidden_layers - 1);
    d->plain = !(m->dev->ops->can & OP_CAN_GRAPH);
    d->n_seq = size->docs;
    d->max_len = size->len;
    d->rows = d->space.size = size->rows;
    d->enc_rows = d->enc_space.size = size->enc_rows;
    d->chunk = m->dev->discrete ? CHUNK_GPU : CHUNK;
    d->chunk = d->rows < d->chunk ? d->rows : d->chunk;
    d->split = m->dev->discrete;
    d->view.head.logit_rows = logit_rows(d);
    d->view.positions.rope_rows = size->len;
    d->view.positions.rope_regime = -1;
    rc = allocate_host(d, err);
    if (rc == 0)
        rc = allocate(d, err);
    if (rc)
        decode_free(d);
    else
        *out = d;
    return rc;
}

void decode_free(struct decode *d)
{
    if (!d)
        return;
    for (int i = 0; i < DECODE_GRAPHS; i++)
        if (d->graphs[i].graph)
            d->m->dev->ops->graph_free(d->m->dev, d->graphs[i].graph);
    d->m->dev->ops->free(d->m->dev, d->arena);
    d->m->dev->ops->free(d->m->dev, d->spare);
    plan_release(&d->plan);
    ckpt_arena_release(&d->host_arena);
    ckpt_free(d);
}

void decode_reset(struct decode *d)
{
    d->view.head.made = false;
    memset(d->len, 0, (size_t)d->n_seq * sizeof *d->len);
    if (d->n_past)
        memset(d->n_past, 0, (size_t)d->n_seq * sizeof *d->n_past);
}

/* Check that the tokens fit, are in the vocabulary and have positions. */
static int check_feed(const struct decode *d, const int32_t *ids, const int32_t *n_new,
                      int64_t n_docs, struct ckpt_err *err)
{
    const struct arch *a = d->m->arch;
    int64_t at = 0, V = a->vocab_size, places = a->max_position_embeddings;

    if (n_docs < 0 || n_docs > d->n_seq)
        return ckpt_fail(err, CKPT_ELIMIT, "%lld sequences are fed, the session holds %lld",
                         (long long)n_docs, (long long)d->n_seq);
    for (int64_t i = 0; i < n_docs; i++) {
        if (n_new[i] < 0 || n_new[i] > d->room[i] - d->len[i])
            return ckpt_fail(err, CKPT_ELIMIT,
                             "sequence %lld: %d tokens after %d, the session holds %d",
                             (long long)i, n_new[i], d->len[i], d->room[i]);
        if (a->pos == ARCH_POS_LEARNED && n_new[i] > places - d->len[i])
            return ckpt_fail(err, CKPT_ELIMIT, "sequence %lld: %d tokens, the model has %lld "
                             "positions", (long long)i, d->len[i] + n_new[i], (long long)places);
        for (int64_t end = at + n_new[i]; at < end; at++)
            if (ids[at] < 0 || ids[at] >= V)
                return ckpt_fail(err, CKPT_ELIMIT,
                                 "sequence %lld: token id %d, wanted 0 to %lld", (long long)i,
                                 ids[at], (long long)V - 1);
    }
    return 0;
}

/*
 * How many of `left` tokens after `past` go into a chunk that has space for `fits`.  A prompt is
 * cut only where the CPU's attention cuts it (64 rows), so that its rows are computed alike
 * whatever else is in the chunk.
 */
static int64_t piece(int64_t past, int64_t left, int64_t fits)
{
    enum { BLOCK = 64 };
    int64_t end = (past + fits) / BLOCK * BLOCK;

    if (left <= fits)
        return left;
    return end > past ? end - past : 0;
}

/*
 * Fill the next chunk from the sequences in order; *at is where the tokens of sequence *seq
 * continue in ids.  Both continue from call to call.
 */
static void next_chunk(struct decode *d, const int32_t *ids, const int32_t *n_new,
                       int64_t n_docs, int64_t *seq, int64_t *at)
{
    struct chunk_rows *s = &d->host;

    s->n = s->rows = s->max_keys = s->single = s->single_keys = 0;
    while (*seq < n_docs && s->rows < d->chunk) {
        int64_t left = n_new[*seq] - d->done[*seq], past = d->len[*seq];
        int64_t take = piece(past, left, d->chunk - s->rows);

        if (left > 0 && take == 0 && s->rows > 0)
            break;
        if (left > 0 && take == 0)      /* a chunk smaller than a block */
            take = d->chunk;
        if (take > 0) {
            s->start[s->n] = (int32_t)s->rows;
            s->seq[s->n] = (int32_t)*seq;
            s->first[s->n] = d->at[*seq];
            s->past[s->n++] = (int32_t)past;
            memcpy(d->ids + s->rows, ids + *at, (size_t)take * sizeof *ids);
            for (int64_t i = 0; i < take; i++)
                d->positions[s->rows + i] = (int32_t)(past + i + d->m->arch->pos_offset);
            s->rows += take;
            s->max_keys = past + take > s->max_keys ? past + take : s->max_keys;
            if (s->rows == s->n) {
                s->single = s->n;
                s->single_keys = s->max_keys;
            }
            d->done[*seq] += (int32_t)take;
            d->len[*seq] += (int32_t)take;
            *at += take;
        }
        if (take == left)
            ++*seq;
    }
    s->start[s->n] = (int32_t)s->rows;
}

/*
 * Record the tokens fed.  Where rope's table has changed after keys were cached, all sequences
 * start again: ids and n_new then name all their tokens.
 */
static void note_past(struct decode *d, const int32_t **ids, const int32_t **n_new,
                      int64_t n_docs, bool changed)
{
    int64_t at = 0, all = 0;
    bool cached = false;

    for (int64_t i = 0; i < n_docs; i++) {
        cached |= d->len[i] > 0;
        memcpy(d->past + i * d->max_len + d->n_past[i], *ids + at,
               (size_t)(*n_new)[i] * sizeof **ids);
        d->n_past[i] += (*n_new)[i];
        at += (*n_new)[i];
    }
    if (!changed || !cached)
        return;
    for (int64_t i = 0; i < n_docs; i++) {
        memcpy(d->replay + all, d->past + i * d->max_len, (size_t)d->n_past[i] * sizeof *d->past);
        all += d->n_past[i];
        d->len[i] = 0;
    }
    *ids = d->replay;
    *n_new = d->n_past;
}

/* Run all chunks; logits as in decode_chunk_logits. */
static int run_chunks(struct decode *d, const struct model_weights *w, const int32_t *ids,
                      const int32_t *n_new, int64_t n_docs, float *logits, struct ckpt_err *err)
{
    struct device *dev = d->m->dev;
    uint64_t n_alloc = dev->n_alloc;
    struct pass p = {.m = &d->view, .w = w, .dev = dev};
    int64_t seq = 0, at = 0, longest = 0, regime;
    int rc = check_feed(d, ids, n_new, n_docs, err);

    if (rc)
        return rc;
    dev->work = d->view.work;
    dev->work_bytes = d->view.work_bytes;
    memset(d->done, 0, (size_t)d->n_seq * sizeof *d->done);
    for (int64_t i = 0; i < n_docs; i++)
        longest = d->len[i] + n_new[i] > longest ? d->len[i] + n_new[i] : longest;
    regime = d->view.positions.rope_regime;
    pass_rope_table(&d->view, longest);
    if (d->past)
        note_past(d, &ids, &n_new, n_docs, regime != d->view.positions.rope_regime);
    for (;;) {
        next_chunk(d, ids, n_new, n_docs, &seq, &at);
        if (d->host.rows == 0 || device_stopped(dev))
            break;
        /* All but a token for each sequence of a full batch; one place may be a prefix's. */
        dev->varies = d->host.rows != d->host.n || d->host.n + 1 < d->n_seq;
        decode_chunk_logits(d, &p, n_new, decode_chunk(d, &p, n_new), logits);
    }
    assert(dev->n_alloc == n_alloc);
    (void)n_alloc;
    return 0;
}

/* All chunks, each row by itself. */
static int run(struct decode *d, const struct model_weights *w, const int32_t *ids,
               const int32_t *n_new, int64_t n_docs, float *logits, struct ckpt_err *err)
{
    bool was = d->m->dev->by_row;
    int rc;

    d->m->dev->by_row = true;
    rc = run_chunks(d, w, ids, n_new, n_docs, logits, err);
    d->m->dev->by_row = was;
    d->m->dev->varies = false;
    return rc;
}

int decode_step(struct decode *d, const struct model_weights *w, const int32_t *ids,
                const int32_t *n_new, int64_t n_docs, float *logits, struct ckpt_err *err)
{
    int rc = run(d, w, ids, n_new, n_docs, logits, err);

    return rc ? rc : device_sync(d->m->dev, err);
}

int64_t decode_top_docs(const struct decode *d) { return d->view.head.logit_rows; }

int decode_top(struct decode *d, const struct model_weights *w, const int32_t *ids,
               const int32_t *n_new, int64_t n_docs, struct decode_top *top, struct ckpt_err *err)
{
    struct device *dev = d->m->dev;
    double *sum = d->top;
    float *value = (float *)(void *)(sum + n_docs);
    unsigned char *host = d->top_host;
    struct op_top op = {.value = value, .id = (int32_t *)(void *)(value + n_docs * top->k),
                        .sum = top->temperature > 0 ? sum : NULL, .logits = d->view.head.logits,
                        .n = n_docs, .vocab = d->m->arch->vocab_size, .k = top->k,
                        .temperature = top->temperature};
    int rc;

    if (n_docs > d->view.head.logit_rows || top->k < 1 || top->k > OP_TOP_MOST || top->k > op.vocab)
        return ckpt_fail(err, CKPT_ELIMIT, "the %lld likeliest of %lld sequences: wanted 1 to %d "
                         "of at most %lld", (long long)top->k, (long long)n_docs, OP_TOP_MOST,
                         (long long)d->view.head.logit_rows);
    rc = run(d, w, ids, n_new, n_docs, NULL, err);
    if (rc)
        return rc;
    if (top->forbid) {
        top->forbid->logits = d->view.head.logits;
        top->forbid->n = n_docs;
        top->forbid->vocab = op.vocab;
        dev->ops->head_forbid(dev, top->forbid);
    }
    dev->ops->head_top(dev, &op);
    dev->ops->to_host(dev, host, d->top, top_bytes(n_docs, top->k));
    top->sum = (const double *)(const void *)host;
    top->value = (const float *)(const void *)(top->sum + n_docs);
    top->id = (const int32_t *)(const void *)(top->value + n_docs * top->k);
    return device_sync(dev, err);
}

int decode_row(struct decode *d, int64_t seq, float *logits, struct ckpt_err *err)
{
    int64_t V = d->m->arch->vocab_size;

    d->m->dev->ops->to_host(d->m->dev, logits, d->view.head.logits + seq * V,
                            (size_t)V * sizeof *logits);
    return device_sync(d->m->dev, err);
}

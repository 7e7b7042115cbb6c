/*
 * decode - generation with a cache of keys and values; see model.h.
 *
 * New rows of all sequences pass through the blocks together, CHUNK rows at a time, so that a
 * long prompt needs no more memory than a short one; attention is causal, so chunks are exact.
 * Cache of a layer: [n_seq][K][max_len][d], keys and values apart.
 */
#include <assert.h>
#include <string.h>

#include "libckpt/mem.h"
#include "trainer/model/families.h"
#include "trainer/model/pass.h"

#define CHUNK 512                   /* rows; a multiple of the attention's block */

/* Which part of a chunk belongs to which sequence. */
struct segments {
    int32_t *start;                 /* [n + 1] first row */
    int32_t *seq, *past;            /* [n] */
    int64_t  n, rows, max_keys;
};

struct decode {
    struct model      *m;
    struct model       view;        /* the model with this session's buffers in its place */
    int64_t            n_seq, max_len, chunk;
    int                first;       /* the decoder's first block */
    int32_t           *len;         /* [n_seq] tokens in the cache; host */
    struct segments    host;        /* of the chunk in work */
    int32_t           *seg_start, *seg_seq, *seg_past;      /* on the device */
    int32_t           *done;        /* [n_seq] tokens of this call already fed; host */
    int32_t           *ids, *positions;     /* [chunk] host */
    int32_t           *past, *n_past;       /* [n_seq][max_len], [n_seq]: all tokens fed; NULL
                                               where a prefix is never computed again */
    int32_t           *again;               /* [n_seq * max_len] a prefix being fed again */
    void              *k, *v;       /* all layers */
    uint64_t           layer_bytes;
    void              *cross;       /* keys and values of the encoder's rows: a layer
                                       [rows][2 H d] */
    uint64_t           cross_bytes; /* of a layer */
    int32_t           *enc_len;     /* [n_seq] host */
    int64_t           *enc_first;   /* [n_seq] each sequence's first row in cross; host */
    int32_t           *key_start, *key_end;     /* of the chunk's segments; on the device */
    int32_t           *key_host;    /* [2 * n_seq] */
    void              *spare;       /* a layer of the cache, for decode_reorder */
    struct block_bufs  bufs;
    void              *next;        /* the other half of the residual stream's two buffers */
    struct plan        plan;
    void              *arena;
};

enum { N_PLACES = BUF_COUNT + 32 };

/* Everything lives as long as the session: a step is short and its buffers are small. */
static int allocate(struct decode *d, struct ckpt_err *err)
{
    const struct arch *a = d->m->arch;
    struct model *view = &d->view;
    struct device *dev = d->m->dev;
    struct op_limits lim = model_limits(d->m, d->chunk);
    uint64_t act = ckpt_dtype_size(dev->act), seg = (uint64_t)d->n_seq * sizeof(int32_t);
    uint64_t rows = (uint64_t)(d->chunk > view->logit_rows ? d->chunk : view->logit_rows);
    struct {
        void **to;
        size_t item;
    } at[N_PLACES];
    uint64_t layers = (uint64_t)(a->num_hidden_layers - d->first);
    size_t n = 0;

    d->layer_bytes = (uint64_t)d->n_seq * (uint64_t)(a->num_key_value_heads * a->head_dim) *
                     (uint64_t)d->max_len * act;
    lim.max_keys = d->max_len;
    view->work_bytes = dev->ops->workspace(dev, &lim);
#define ADD(place, bytes)                                                                      \
    (at[n].to = (void **)&(place), at[n].item = plan_add(&d->plan, #place, bytes, 0, 0), n++)
    for (int i = 0; i < BUF_COUNT; i++)
        if (i <= BUF_G && i != BUF_LSE && i != BUF_LSEX && i != BUF_KVX &&
            (i != BUF_U || a->mlp == ARCH_MLP_GATED))
            ADD(d->bufs.at[i], block_bytes(a, dev, (enum block_buf)i, d->chunk, 0));
    ADD(d->next, block_bytes(a, dev, BUF_H, d->chunk, 0));
    ADD(d->k, d->layer_bytes * layers);
    ADD(d->v, d->layer_bytes * layers);
    if (a->stack == ARCH_ENCODER_DECODER) {
        d->cross_bytes = block_bytes(a, dev, BUF_KVX, 0, d->n_seq * d->max_len);
        ADD(d->cross, d->cross_bytes * layers);
        ADD(d->key_start, seg);
        ADD(d->key_end, seg);
    }
    ADD(d->seg_start, seg + sizeof(int32_t));
    ADD(d->seg_seq, seg);
    ADD(d->seg_past, seg);
    ADD(view->ids, rows * sizeof(int32_t));
    ADD(view->positions, rows * sizeof(int32_t));
    ADD(view->rows, rows * sizeof(int32_t));
    ADD(view->emb_stats, rows * 2 * sizeof(float));
    ADD(view->final_stats, rows * 2 * sizeof(float));
    ADD(view->y_rows, rows * (uint64_t)a->hidden_size * act);
    ADD(view->logits, (uint64_t)(view->logit_rows * a->vocab_size) * sizeof(float));
    ADD(view->work, view->work_bytes);
    if (view->turns)
        ADD(view->turns, (uint64_t)(d->max_len * a->rope.turned) * sizeof(float));
    if (view->emb) {
        ADD(view->emb, rows * (uint64_t)a->word_embed_proj_dim * act);
        ADD(view->z_rows, rows * (uint64_t)a->word_embed_proj_dim * act);
    }
#undef ADD
    if (plan_pack(&d->plan, err))
        return err->code;
    d->arena = device_alloc(dev, d->plan.bytes, err);
    if (!d->arena)
        return err->code;
    for (size_t i = 0; i < n; i++)
        *at[i].to = plan_at(&d->plan, d->arena, at[i].item);
    return 0;
}

/* Longrope's angles all change at one length: what is cached is then computed again. */
static bool replays(const struct arch *a)
{
    return a->pos == ARCH_POS_ROPE && a->rope.kind == ARCH_ROPE_LONG;
}

int decode_new(struct decode **out, struct model *m, int64_t max_docs, int64_t max_len,
               struct ckpt_err *err)
{
    struct decode *d;
    size_t n = (size_t)max_docs;

    *out = NULL;
    if (m->arch->stack == ARCH_ENCODER)
        return ckpt_fail(err, CKPT_EUNSUPPORTED, "%s is an encoder: it generates nothing",
                         m->arch->family->model_type);
    if (max_docs < 1 || max_docs > 1 << 20 || max_len < 1 || max_len > 1 << 28)
        return ckpt_fail(err, CKPT_ELIMIT,
                         "%lld sequences of %lld tokens: wanted 1 to %d of 1 to %d",
                         (long long)max_docs, (long long)max_len, 1 << 20, 1 << 28);
    if (m->arch->stack == ARCH_ENCODER_DECODER && max_docs * max_len > INT32_MAX)
        return ckpt_fail(err, CKPT_ELIMIT, "%lld sequences of %lld tokens: the rows of an encoder "
                         "are counted in 31 bits", (long long)max_docs, (long long)max_len);
    d = ckpt_alloc(1, sizeof *d);
    if (!d)
        return ckpt_nomem(err, sizeof *d);
    d->m = m;
    d->view = *m;
    d->first = (int)arch_stack_first(m->arch, m->arch->num_hidden_layers - 1);
    d->n_seq = max_docs;
    d->max_len = max_len;
    d->chunk = max_docs * max_len < CHUNK ? max_docs * max_len : CHUNK;
    d->len = ckpt_alloc(n, sizeof *d->len);
    d->done = ckpt_alloc(n, sizeof *d->done);
    d->host.start = ckpt_alloc(n + 1, sizeof *d->host.start);
    d->host.seq = ckpt_alloc(n, sizeof *d->host.seq);
    d->host.past = ckpt_alloc(n, sizeof *d->host.past);
    d->enc_len = ckpt_alloc(n, sizeof *d->enc_len);
    d->enc_first = ckpt_alloc(n, sizeof *d->enc_first);
    d->key_host = ckpt_alloc(2 * n + 1, sizeof *d->key_host);
    d->ids = ckpt_alloc((size_t)d->chunk, sizeof *d->ids);
    d->positions = ckpt_alloc((size_t)d->chunk, sizeof *d->positions);
    d->view.turns_host = ckpt_alloc(m->turns ? (size_t)(max_len * m->arch->rope.turned) : 0,
                                    sizeof *d->view.turns_host);
    if (replays(m->arch)) {
        d->past = ckpt_alloc(n * (size_t)max_len, sizeof *d->past);
        d->again = ckpt_alloc(n * (size_t)max_len, sizeof *d->again);
        d->n_past = ckpt_alloc(n, sizeof *d->n_past);
    }
    d->view.turn_rows = max_len;
    d->view.turn_regime = -1;
    if ((replays(m->arch) && (!d->past || !d->again || !d->n_past)) || !d->positions ||
        !d->enc_len || !d->enc_first || !d->key_host ||
        !d->view.turns_host || !d->len || !d->done || !d->host.start || !d->host.seq ||
        !d->host.past || !d->ids) {
        ckpt_nomem(err, n * sizeof *d->len);
        goto fail;
    }
    if (allocate(d, err))
        goto fail;
    *out = d;
    return 0;
fail:
    decode_free(d);
    return err->code;
}

void decode_free(struct decode *d)
{
    if (!d)
        return;
    d->m->dev->ops->free(d->m->dev, d->arena);
    d->m->dev->ops->free(d->m->dev, d->spare);
    ckpt_free(d->enc_len);
    ckpt_free(d->enc_first);
    ckpt_free(d->key_host);
    plan_release(&d->plan);
    ckpt_free(d->len);
    ckpt_free(d->done);
    ckpt_free(d->host.start);
    ckpt_free(d->host.seq);
    ckpt_free(d->host.past);
    ckpt_free(d->ids);
    ckpt_free(d->positions);
    ckpt_free(d->past);
    ckpt_free(d->n_past);
    ckpt_free(d->again);
    ckpt_free(d->view.turns_host);
    ckpt_free(d);
}

void decode_reset(struct decode *d)
{
    memset(d->len, 0, (size_t)d->n_seq * sizeof *d->len);
    if (d->n_past)
        memset(d->n_past, 0, (size_t)d->n_seq * sizeof *d->n_past);
}

/* The batch of documents [from, to) for the encoder; what it points to is the caller's. */
static int encode_some(struct decode *d, const struct model_weights *w, const int32_t *ids,
                       const int32_t *start, int64_t from, int64_t to, struct ckpt_err *err)
{
    struct device *dev = d->m->dev;
    struct batch b = {.n_docs = to - from, .n_enc = start[to - from], .enc_ids = ids,
                      .enc_start = start, .doc_start = d->key_host};
    struct pass p;

    memset(d->key_host, 0, (size_t)(to - from + 1) * sizeof *d->key_host);  /* no decoder's rows */
    if (pass_begin(&p, d->m, w, &b, false, err))
        return err->code;
    encoder_fwd(&p);
    for (int l = d->first; l < (int)d->m->arch->num_hidden_layers; l++) {
        struct unit u = unit_acquire(&p, l + 1);
        uint64_t row = d->cross_bytes / (uint64_t)(d->n_seq * d->max_len);

        cross_keys(&p, &u, (unsigned char *)d->cross + (uint64_t)(l - d->first) * d->cross_bytes +
                               (uint64_t)d->enc_first[from] * row, b.n_enc);
        unit_release(&p, &u);
    }
    return device_sync(dev, err);
}

int decode_encode(struct decode *d, const struct model_weights *w, const int32_t *ids,
                  const int32_t *n_ids, int64_t n_docs, int64_t each, struct ckpt_err *err)
{
    const struct model_opts *o = &d->m->opts;
    int32_t *start = ckpt_alloc((size_t)n_docs + 1, sizeof *start);
    int64_t at = 0;
    int rc = start ? 0 : ckpt_nomem(err, (size_t)n_docs * sizeof *start);

    decode_reset(d);
    if (rc == 0 && (n_docs * each > d->n_seq || d->m->arch->stack != ARCH_ENCODER_DECODER))
        rc = ckpt_fail(err, CKPT_ELIMIT, "%lld documents for an encoder, %lld sequences of each: "
                       "the session holds %lld sequences", (long long)n_docs, (long long)each,
                       (long long)d->n_seq);
    for (int64_t i = 0, to; rc == 0 && i < n_docs; i = to) {
        int64_t rows = 0;

        for (to = i; to < n_docs && to - i < o->max_docs; to++) {
            if (n_ids[to] < 1 || n_ids[to] > d->max_len || n_ids[to] > o->max_enc)
                break;
            if (rows + n_ids[to] > o->max_enc)
                break;
            start[to - i] = (int32_t)rows;
            d->enc_first[to] = at + rows;
            d->enc_len[to] = n_ids[to];
            rows += n_ids[to];
        }
        if (to == i) {
            rc = ckpt_fail(err, CKPT_ELIMIT, "document %lld for the encoder has %d tokens, wanted "
                           "1 to %lld", (long long)i, n_ids[i],
                           (long long)(d->max_len < o->max_enc ? d->max_len : o->max_enc));
            break;
        }
        start[to - i] = (int32_t)rows;
        rc = encode_some(d, w, ids + at, start, i, to, err);
        at += rows;
    }
    for (int64_t i = n_docs * each; rc == 0 && i-- > 0;) {      /* downwards: in place */
        d->enc_first[i] = d->enc_first[i / each];
        d->enc_len[i] = d->enc_len[i / each];
    }
    ckpt_free(start);
    return rc;
}

/* Move the cached keys or values of sequences to their new places. */
static void move_cache(struct decode *d, unsigned char *layer, const int32_t *from)
{
    const struct arch *a = d->m->arch;
    const struct ops *ops = d->m->dev->ops;
    uint64_t row = (uint64_t)a->head_dim * ckpt_dtype_size(d->m->dev->act);
    uint64_t head = row * (uint64_t)d->max_len;

    for (int back = 0; back < 2; back++)        /* all out before any comes in */
        for (int64_t i = 0; i < d->n_seq * a->num_key_value_heads; i++) {
            int64_t seq = i / a->num_key_value_heads, g = i % a->num_key_value_heads;
            uint64_t to = (uint64_t)i * head, bytes = (uint64_t)d->len[from[seq]] * row;
            uint64_t at = (uint64_t)(from[seq] * a->num_key_value_heads + g) * head;

            if (from[seq] != (int32_t)seq)
                ops->copy(d->m->dev, (back ? layer : (unsigned char *)d->spare) + to,
                          back ? (unsigned char *)d->spare + to : layer + at, bytes);
        }
}

/* The tokens fed so far, where a prefix may be computed again. */
static int move_past(struct decode *d, const int32_t *from, struct ckpt_err *err)
{
    size_t row = (size_t)d->max_len, n = (size_t)d->n_seq;

    memcpy(d->again, d->past, n * row * sizeof *d->past);
    memcpy(d->done, d->n_past, n * sizeof *d->n_past);
    for (size_t i = 0; i < n; i++) {
        memcpy(d->past + i * row, d->again + (size_t)from[i] * row, row * sizeof *d->past);
        d->n_past[i] = d->done[from[i]];
    }
    return device_sync(d->m->dev, err);
}

int decode_reorder(struct decode *d, const int32_t *from, struct ckpt_err *err)
{
    int64_t layers = d->m->arch->num_hidden_layers - d->first;
    int32_t *len = d->done;                     /* of no use between calls */

    for (int64_t i = 0; i < d->n_seq; i++)
        if (from[i] < 0 || from[i] >= d->n_seq)
            return ckpt_fail(err, CKPT_ELIMIT, "sequence %lld becomes %d of %lld", (long long)i,
                             from[i], (long long)d->n_seq);
    if (!d->spare && !(d->spare = d->m->dev->ops->alloc(d->m->dev, d->layer_bytes)))
        return ckpt_nomem(err, d->layer_bytes);
    for (int64_t l = 0; l < layers; l++) {
        move_cache(d, (unsigned char *)d->k + (uint64_t)l * d->layer_bytes, from);
        move_cache(d, (unsigned char *)d->v + (uint64_t)l * d->layer_bytes, from);
    }
    memcpy(len, d->len, (size_t)d->n_seq * sizeof *len);
    for (int64_t i = 0; i < d->n_seq; i++)
        d->len[i] = len[from[i]];
    return d->past ? move_past(d, from, err) : device_sync(d->m->dev, err);
}

/* What is fed fits, is in the vocabulary and has positions. */
static int check_feed(const struct decode *d, const int32_t *ids, const int32_t *n_new,
                      int64_t n_docs, struct ckpt_err *err)
{
    const struct arch *a = d->m->arch;
    int64_t at = 0, V = a->vocab_size, places = a->max_position_embeddings;

    if (n_docs < 0 || n_docs > d->n_seq)
        return ckpt_fail(err, CKPT_ELIMIT, "%lld sequences are fed, the session holds %lld",
                         (long long)n_docs, (long long)d->n_seq);
    for (int64_t i = 0; i < n_docs; i++) {
        if (n_new[i] < 0 || n_new[i] > d->max_len - d->len[i])
            return ckpt_fail(err, CKPT_ELIMIT,
                             "sequence %lld: %d tokens after %d, the session holds %lld",
                             (long long)i, n_new[i], d->len[i], (long long)d->max_len);
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
 * Fill the next chunk from the sequences in order; first[i] is where sequence i's tokens start
 * in ids.  *seq goes on from call to call.
 */
static void next_chunk(struct decode *d, const int32_t *ids, const int32_t *n_new,
                       int64_t n_docs, int64_t *seq, int64_t *at)
{
    struct segments *s = &d->host;

    s->n = s->rows = s->max_keys = 0;
    while (*seq < n_docs && s->rows < d->chunk) {
        int64_t left = n_new[*seq] - d->done[*seq], room = d->chunk - s->rows;
        int64_t take = left < room ? left : room, past = d->len[*seq];

        if (take > 0) {
            s->start[s->n] = (int32_t)s->rows;
            s->seq[s->n] = (int32_t)*seq;
            s->past[s->n++] = (int32_t)past;
            memcpy(d->ids + s->rows, ids + *at, (size_t)take * sizeof *ids);
            for (int64_t i = 0; i < take; i++)
                d->positions[s->rows + i] = (int32_t)(past + i + d->m->arch->pos_offset);
            s->rows += take;
            s->max_keys = past + take > s->max_keys ? past + take : s->max_keys;
            d->done[*seq] += (int32_t)take;
            d->len[*seq] += (int32_t)take;
            *at += take;
        }
        if (take == left)
            ++*seq;
    }
    s->start[s->n] = (int32_t)s->rows;
}

/* Which of the encoder's rows each segment sees. */
static void upload_keys(struct decode *d, struct pass *p)
{
    const struct segments *s = &d->host;
    size_t n = (size_t)s->n * sizeof(int32_t);

    p->max_enc = 0;
    for (int64_t g = 0; g < s->n; g++) {
        int32_t seq = s->seq[g];

        d->key_host[g] = (int32_t)d->enc_first[seq];
        d->key_host[d->n_seq + g] = (int32_t)d->enc_first[seq] + d->enc_len[seq];
        p->max_enc = d->enc_len[seq] > p->max_enc ? d->enc_len[seq] : p->max_enc;
    }
    p->dev->ops->to_device(p->dev, d->key_start, d->key_host, n);
    p->dev->ops->to_device(p->dev, d->key_end, d->key_host + d->n_seq, n);
}

/* The chunk through all blocks; gives where its residual stream ends. */
static void *run_chunk(struct decode *d, struct pass *p)
{
    const struct ops *ops = p->dev->ops;
    const struct segments *s = &d->host;
    size_t n = (size_t)s->n * sizeof(int32_t);
    bool crosses = d->m->arch->stack == ARCH_ENCODER_DECODER;
    struct block_bufs b = d->bufs;
    void *next = d->next, *h;
    struct unit u;

    p->n = s->rows;
    ops->to_device(p->dev, d->view.ids, d->ids, (size_t)s->rows * sizeof *d->ids);
    ops->to_device(p->dev, d->view.positions, d->positions,
                   (size_t)s->rows * sizeof *d->positions);
    ops->to_device(p->dev, d->seg_start, s->start, n + sizeof(int32_t));
    ops->to_device(p->dev, d->seg_seq, s->seq, n);
    ops->to_device(p->dev, d->seg_past, s->past, n);
    if (crosses)
        upload_keys(d, p);
    u = unit_acquire(p, 0);
    embed_pass(p, &u, b.at[BUF_H], false);
    unit_release(p, &u);
    stack_begin(p, d->first, false);
    for (int l = d->first; l < (int)d->m->arch->num_hidden_layers; l++) {
        uint64_t at = (uint64_t)(l - d->first);
        struct cache_view cache = {
            .cross = crosses ? (unsigned char *)d->cross + at * d->cross_bytes : NULL,
            .key_start = d->key_start, .key_end = d->key_end, .op = {
            .k_cache = (unsigned char *)d->k + at * d->layer_bytes,
            .v_cache = (unsigned char *)d->v + at * d->layer_bytes,
            .seg_start = d->seg_start, .seg_seq = d->seg_seq, .seg_past = d->seg_past,
            .slopes = d->view.slopes, .n = s->rows, .n_seg = s->n, .capacity = d->max_len,
            .max_keys = s->max_keys, .n_head = d->m->arch->num_attention_heads,
            .n_kv = d->m->arch->num_key_value_heads, .dim = d->m->arch->head_dim}};

        p->cache = &cache;
        block_step(p, l, &b, next);
        h = b.at[BUF_H];
        b.at[BUF_H] = next;
        next = h;
    }
    stack_end(p);
    p->cache = NULL;
    return b.at[BUF_H];
}

/* Logits of the sequences whose last new token is in the chunk. */
static void chunk_logits(struct decode *d, const struct pass *p, const int32_t *n_new,
                         const void *h, float *logits)
{
    const struct segments *s = &d->host;
    struct unit after = unit_acquire(p, d->m->params.n_unit - 1);
    struct unit head = unit_acquire(p, head_unit(d->m));
    int64_t V = d->m->arch->vocab_size;

    for (int64_t g = 0; g < s->n;) {
        int64_t first = g, n = 0;

        /* Finished sequences that follow each other share one product. */
        while (g < s->n && n < d->view.logit_rows && d->done[s->seq[g]] == n_new[s->seq[g]] &&
               s->seq[g] == s->seq[first] + n) {
            d->ids[n++] = s->start[g + 1] - 1;
            g++;
        }
        if (n == 0) {
            g++;
            continue;
        }
        p->dev->ops->to_device(p->dev, d->view.rows, d->ids, (size_t)n * sizeof *d->ids);
        head_rows(p, &after, &head, h, n, logits + s->seq[first] * V);
    }
    unit_release(p, &head);
    unit_release(p, &after);
}

/*
 * Note what is fed.  Where the table of turns has become another one under cached keys, all
 * sequences start again: ids and n_new then name the whole of each.
 */
static void note_past(struct decode *d, const int32_t **ids, const int32_t **n_new,
                      int64_t n_docs, bool turned)
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
    if (!turned || !cached)
        return;
    for (int64_t i = 0; i < n_docs; i++) {
        memcpy(d->again + all, d->past + i * d->max_len, (size_t)d->n_past[i] * sizeof *d->past);
        all += d->n_past[i];
        d->len[i] = 0;
    }
    *ids = d->again;
    *n_new = d->n_past;
}

int decode_step(struct decode *d, const struct model_weights *w, const int32_t *ids,
                const int32_t *n_new, int64_t n_docs, float *logits, struct ckpt_err *err)
{
    struct device *dev = d->m->dev;
    uint64_t n_alloc = dev->n_alloc;
    struct pass p = {.m = &d->view, .w = w, .dev = dev, .ids = d->view.ids};
    int64_t seq = 0, at = 0, longest = 0, regime;

    if (check_feed(d, ids, n_new, n_docs, err))
        return err->code;
    dev->work = d->view.work;
    dev->work_bytes = d->view.work_bytes;
    memset(d->done, 0, (size_t)d->n_seq * sizeof *d->done);
    for (int64_t i = 0; i < n_docs; i++)
        longest = d->len[i] + n_new[i] > longest ? d->len[i] + n_new[i] : longest;
    regime = d->view.turn_regime;
    turn_table(&d->view, longest);
    if (d->past)
        note_past(d, &ids, &n_new, n_docs, regime != d->view.turn_regime);
    for (;;) {
        void *h;

        next_chunk(d, ids, n_new, n_docs, &seq, &at);
        if (d->host.rows == 0)
            break;
        h = run_chunk(d, &p);
        chunk_logits(d, &p, n_new, h, logits);
    }
    assert(dev->n_alloc == n_alloc);
    (void)n_alloc;
    return device_sync(dev, err);
}

/*
 * decode_run - a chunk of a generation session's new rows through the model; see decode.h.
 *
 * All indices for the operations of a chunk go to the device in one copy.  If a step feeds one
 * token to each of as many sequences as an earlier step did, the device captures it as a graph
 * (ops.h) and launches that again: ids, positions and lengths, which differ, are read from the
 * copy, and the number of keys, by which attention is cut into parts, is rounded up.
 */
#include "trainer/model/generate/decode.h"

#define UNIT 64                     /* elements: each array of the copy starts at 256 bytes */

static int64_t padded(int64_t n) { return (n + UNIT - 1) / UNIT * UNIT; }

int64_t decode_feed_size(const struct decode *d)
{
    int64_t most = d->n_seq < d->chunk ? d->n_seq : d->chunk;

    return 2 * padded(d->chunk) + 7 * padded(most + 1);
}

/* Put the next array, [n] from src, into the copy; *at advances.  Returns its address on the
 * device. */
static int32_t *put(struct decode *d, const int32_t *src, int64_t n, int64_t *at)
{
    int32_t *there = d->feed + *at;

    for (int64_t i = 0; i < n; i++)
        d->feed_host[*at + i] = src[i];
    *at += padded(n);
    return there;
}

/* Find which of the encoder's rows each segment sees. */
static void put_keys(struct decode *d, struct pass *p, int64_t *at)
{
    const struct chunk_rows *s = &d->host;
    int64_t start = *at, end = start + padded(s->n);

    p->max_enc = 0;
    for (int64_t g = 0; g < s->n; g++) {
        int32_t seq = s->seq[g];

        d->feed_host[start + g] = (int32_t)d->enc_first[seq];
        d->feed_host[end + g] = (int32_t)d->enc_first[seq] + d->enc_len[seq];
        p->max_enc = d->enc_len[seq] > p->max_enc ? d->enc_len[seq] : p->max_enc;
    }
    d->key_start = d->feed + start;
    d->key_end = d->feed + end;
    *at = end + padded(s->n);
}

/* Whether the chunk has sequences of one row each, followed by prompts. */
static bool splits(const struct decode *d)
{
    return d->split && d->host.single > 0 && d->host.single < d->host.n;
}

/* Where the rows of the segments after the single ones begin, from the first of these on. */
static void put_rest(struct decode *d, int64_t *at)
{
    const struct chunk_rows *s = &d->host;
    int64_t n = s->n - s->single + 1;

    for (int64_t g = 0; g < n; g++)
        d->feed_host[*at + g] = s->start[s->single + g] - s->start[s->single];
    d->rest_start = d->feed + *at;
    *at += padded(n);
}

/* Copy all indices of the chunk's operations. */
static void feed(struct decode *d, struct pass *p, const int32_t *n_new)
{
    const struct chunk_rows *s = &d->host;
    int64_t at = 0, first, n = 0;

    p->n = s->rows;
    p->ids = d->view.batch.ids = put(d, d->ids, s->rows, &at);
    d->view.batch.positions = put(d, d->positions, s->rows, &at);
    d->seg_start = put(d, s->start, s->n + 1, &at);
    d->seg_first = put(d, s->first, s->n, &at);
    d->seg_past = put(d, s->past, s->n, &at);
    if (d->cross)
        put_keys(d, p, &at);
    if (splits(d))
        put_rest(d, &at);
    first = at;
    for (int64_t g = 0; g < s->n; g++)         /* the last rows of segments whose tokens end here */
        if (d->done[s->seq[g]] == n_new[s->seq[g]])
            d->feed_host[first + n++] = s->start[g + 1] - 1;
    d->last_rows = d->feed + first;
    p->dev->ops->to_device(p->dev, d->feed, d->feed_host, (size_t)(first + n) * sizeof *d->feed);
}

/* The cache as block l sees it. */
static struct cache_view cache_of(const struct decode *d, int l, int64_t max_keys)
{
    const struct arch *a = d->m->arch;
    uint64_t at = (uint64_t)(l - d->first);

    return (struct cache_view){
        .cross = d->cross ? (unsigned char *)d->cross + at * d->cross_bytes : NULL,
        .key_start = d->key_start, .key_end = d->key_end,
        .rows = splits(d) ? d->host.single : 0, .rows_max_keys = d->host.single_keys,
        .start = d->rest_start,
        .op = {.k_cache = (unsigned char *)d->k + at * d->layer_bytes,
               .v_cache = (unsigned char *)d->v + at * d->layer_bytes,
               .seg_start = d->seg_start, .seg_first = d->seg_first, .seg_past = d->seg_past,
               .slopes = d->view.positions.slopes, .n = d->host.rows, .n_seg = d->host.n,
               .capacity = d->rows, .max_keys = max_keys, .n_head = a->num_attention_heads,
               .n_kv = a->num_key_value_heads, .dim = a->head_dim}};
}

/* Queue the chunk's operations; returns where its residual stream ends. */
static void *queue(struct decode *d, struct pass *p, int64_t max_keys)
{
    struct block_bufs b = d->bufs;
    void *next = d->next, *h;
    struct layer l;

    l = layer_acquire(p, 0);
    embed_pass(p, &l, b.at[BUF_H], false);
    layer_release(p, &l);
    block_stack_begin(p, d->first, false);
    for (int i = d->first; i < (int)d->m->arch->num_hidden_layers; i++) {
        struct cache_view cache = cache_of(d, i, max_keys);

        p->cache = &cache;
        block_step(p, i, &b, next);
        h = b.at[BUF_H];
        b.at[BUF_H] = next;
        next = h;
    }
    block_stack_end(p);
    p->cache = NULL;
    return b.at[BUF_H];
}

/* Round up so that few consecutive steps differ: two sizes from a power of two to the next. */
static int64_t rounded(int64_t keys, int64_t most)
{
    int64_t n = 256;

    while (n < keys)
        n = n % 3 ? n / 2 * 3 : n / 3 * 4;
    return n < most ? n : most;
}

static bool same_shape(const struct shape *a, const struct shape *b)
{
    return a->w == b->w && a->rows == b->rows && a->max_keys == b->max_keys &&
           a->max_enc == b->max_enc;
}

/* The place of a shape, or the one that was used longest ago, for that shape from now on: *met says
 * which. */
static struct step_graph *graph_of(struct decode *d, const struct shape *shape, bool *met)
{
    struct step_graph *oldest = &d->graphs[0];

    d->steps++;
    *met = true;
    for (int i = 0; i < DECODE_GRAPHS; i++) {
        struct step_graph *at = &d->graphs[i];

        if (same_shape(&at->shape, shape)) {
            at->used = d->steps;
            return at;
        }
        oldest = at->used < oldest->used ? at : oldest;
    }
    *met = false;
    if (oldest->graph)
        d->m->dev->ops->graph_free(d->m->dev, oldest->graph);
    *oldest = (struct step_graph){.shape = *shape, .used = d->steps};
    return oldest;
}

/* Launch the step as a graph, captured now if a step had the same shape before; false: run it. */
static bool launch_graph(struct decode *d, struct pass *p, const struct shape *shape)
{
    const struct ops *ops = p->dev->ops;
    bool met;
    struct step_graph *at = graph_of(d, shape, &met);

    if (!met)
        return false;
    if (!at->graph && !d->plain) {
        d->plain = !ops->graph_begin(p->dev);
        if (!d->plain) {
            d->recorded_h = queue(d, p, shape->max_keys);
            at->graph = ops->graph_end(p->dev);
            d->plain = !at->graph;
        }
    }
    if (at->graph)
        ops->graph_launch(p->dev, at->graph);
    return at->graph != NULL;
}

void *decode_chunk(struct decode *d, struct pass *p, const int32_t *n_new)
{
    const struct chunk_rows *s = &d->host;
    struct shape shape = {.w = p->w, .rows = s->rows, .max_keys = s->max_keys};

    feed(d, p, n_new);
    if (p->dev->discrete)
        shape.max_keys = rounded(s->max_keys, d->max_len);
    shape.max_enc = p->max_enc;
    if (s->rows == s->n && p->w->fixed && !p->dev->profile && launch_graph(d, p, &shape))
        return d->recorded_h;
    return queue(d, p, shape.max_keys);
}

void decode_chunk_logits(struct decode *d, const struct pass *p, const int32_t *n_new,
                         const void *h, float *logits)
{
    const struct chunk_rows *s = &d->host;
    struct layer after = layer_acquire(p, d->m->params.n_layers - 1);
    struct layer head = layer_acquire(p, head_layer(d->m));
    const void *matrix = head_matrix(p, &head);
    int64_t V = d->m->arch->vocab_size;

    d->view.head.made = true;
    d->view.batch.rows = d->last_rows;
    for (int64_t g = 0; g < s->n;) {
        int64_t first = g, n = 0, seq = s->seq[g];
        float *to = d->view.head.logits + (logits ? 0 : seq * V);

        /* Consecutive finished sequences share one product. */
        while (g < s->n && n < d->view.head.logit_rows && d->done[s->seq[g]] == n_new[s->seq[g]] &&
               s->seq[g] == s->seq[first] + n) {
            n++;
            g++;
        }
        if (n == 0) {
            g++;
            continue;
        }
        head_rows(p, &after, matrix, h, n, to);
        if (logits)
            p->dev->ops->to_host(p->dev, logits + seq * V, to, (size_t)(n * V) * sizeof *logits);
        d->view.batch.rows += n;
    }
    layer_release(p, &head);
    layer_release(p, &after);
}

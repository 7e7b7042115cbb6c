/*
 * decode_move - fill a generation session's sequences from an encoder, and copy sequences to
 * others; see model.h.
 */
#include <string.h>

#include "libckpt/mem.h"
#include "trainer/model/cross.h"
#include "trainer/model/generate/decode.h"

/* Run the encoder on n documents, whose rows are start[n + 1] of ids, and put their keys and
 * values into the session's rows from `row` on. */
static int encode_some(struct decode *d, const struct model_weights *w, const int32_t *ids,
                       const int32_t *start, int64_t n, int64_t row, struct ckpt_err *err)
{
    struct device *dev = d->m->dev;
    struct batch b = {.n_docs = n, .n_enc = start[n], .enc_ids = ids, .enc_start = start,
                      .doc_start = d->none};
    uint64_t row_bytes = d->cross_bytes / (uint64_t)d->enc_rows;
    bool was = dev->by_row;
    struct pass p;
    int rc = pass_begin(&p, d->m, w, &b, false, err);

    if (rc)
        return rc;
    dev->by_row = dev->varies = true;
    encoder_fwd(&p);
    for (int i = d->first; i < (int)d->m->arch->num_hidden_layers; i++) {
        struct layer l = layer_acquire(&p, i + 1);

        cross_keys(&p, &l, (unsigned char *)d->cross + (uint64_t)(i - d->first) * d->cross_bytes +
                               (uint64_t)row * row_bytes, b.n_enc);
        layer_release(&p, &l);
    }
    dev->by_row = was;
    dev->varies = false;
    return device_sync(dev, err);
}

/* Documents whose rows follow each other share a pass. */
int decode_encode_at(struct decode *d, const struct model_weights *w, const int64_t *seq,
                     const int32_t *ids, const int32_t *n_ids, int64_t n, struct ckpt_err *err)
{
    const struct model_opts *o = &d->m->opts;
    int32_t *start = ckpt_alloc((size_t)n + 1, sizeof *start);
    int rc = start ? 0 : ckpt_nomem(err, (size_t)n * sizeof *start);

    for (int64_t i = 0, to; rc == 0 && i < n; i = to) {
        int64_t rows = 0, first = d->enc_first[seq[i]];

        for (to = i; to < n && to - i < o->max_docs; to++) {
            if (n_ids[to] < 1 || n_ids[to] > o->max_enc || rows + n_ids[to] > o->max_enc ||
                d->enc_first[seq[to]] != first + rows)
                break;
            start[to - i] = (int32_t)rows;
            rows += n_ids[to];
        }
        if (to == i) {
            rc = ckpt_fail(err, CKPT_ELIMIT, "document %lld for the encoder has %d tokens, wanted "
                           "1 to %lld", (long long)i, n_ids[i], (long long)o->max_enc);
            break;
        }
        start[to - i] = (int32_t)rows;
        rc = encode_some(d, w, ids, start, to - i, first, err);
        ids += rows;
    }
    ckpt_free(start);
    return rc;
}

int decode_encode(struct decode *d, const struct model_weights *w, const int32_t *ids,
                  const int32_t *n_ids, int64_t n_docs, int64_t each, struct ckpt_err *err)
{
    int64_t *seq = ckpt_alloc((size_t)n_docs + 1, sizeof *seq), at = 0;
    int rc = seq ? 0 : ckpt_nomem(err, (size_t)n_docs * sizeof *seq);

    decode_reset(d);
    if (rc == 0 && (n_docs * each > d->n_seq || d->m->arch->stack != ARCH_ENCODER_DECODER))
        rc = ckpt_fail(err, CKPT_ELIMIT, "%lld documents for an encoder, %lld sequences of each: "
                       "the session holds %lld sequences", (long long)n_docs, (long long)each,
                       (long long)d->n_seq);
    for (int64_t i = 0; rc == 0 && i < n_docs; i++) {
        if (n_ids[i] > d->max_len)
            rc = ckpt_fail(err, CKPT_ELIMIT, "document %lld for the encoder has %d tokens, wanted "
                           "1 to %lld", (long long)i, n_ids[i], (long long)d->max_len);
        seq[i] = i;
        d->enc_first[i] = at;
        d->enc_len[i] = n_ids[i];
        at += n_ids[i] > 0 ? n_ids[i] : 0;
    }
    if (rc == 0)
        rc = decode_encode_at(d, w, seq, ids, n_ids, n_docs, err);
    for (int64_t i = n_docs * each; rc == 0 && i-- > 0;) {     /* downwards, since it is in place */
        d->enc_first[i] = d->enc_first[i / each];
        d->enc_len[i] = d->enc_len[i / each];
    }
    ckpt_free(seq);
    return rc;
}

/* Move the cached keys or values of sequences to their new places. */
static void move_cache(struct decode *d, unsigned char *layer, const int32_t *from)
{
    const struct arch *a = d->m->arch;
    const struct ops *ops = d->m->dev->ops;
    uint64_t row = (uint64_t)a->head_dim * ckpt_dtype_size(d->m->dev->act);

    for (int back = 0; back < 2; back++)        /* copy all out before any is copied in */
        for (int64_t i = 0; i < d->n_seq * a->num_key_value_heads; i++) {
            int64_t seq = i / a->num_key_value_heads, g = i % a->num_key_value_heads;
            uint64_t to = (uint64_t)(g * d->rows + d->at[seq]) * row;
            uint64_t at = (uint64_t)(g * d->rows + d->at[from[seq]]) * row;
            uint64_t bytes = (uint64_t)d->len[from[seq]] * row;

            if (from[seq] != (int32_t)seq)
                ops->copy(d->m->dev, (back ? layer : (unsigned char *)d->spare) + to,
                          back ? (unsigned char *)d->spare + to : layer + at, bytes);
        }
}

/* Move the tokens fed so far, where a prefix may be recomputed. */
static int move_past(struct decode *d, const int32_t *from, struct ckpt_err *err)
{
    size_t row = (size_t)d->max_len, n = (size_t)d->n_seq;

    memcpy(d->replay, d->past, n * row * sizeof *d->past);
    memcpy(d->done, d->n_past, n * sizeof *d->n_past);
    for (size_t i = 0; i < n; i++) {
        memcpy(d->past + i * row, d->replay + (size_t)from[i] * row, row * sizeof *d->past);
        d->n_past[i] = d->done[from[i]];
    }
    return device_sync(d->m->dev, err);
}

int decode_reorder(struct decode *d, const int32_t *from, struct ckpt_err *err)
{
    int64_t layers = d->m->arch->num_hidden_layers - d->first;
    int32_t *len = d->done;                     /* unused between calls */

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

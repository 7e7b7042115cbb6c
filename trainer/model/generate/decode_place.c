/*
 * decode_place - sequences of a generation session that come and go: their rows of the cache; see
 * model.h.
 */
#include "trainer/model/generate/decode.h"

bool decode_place(struct decode *d, int64_t seq, int64_t rows, int64_t enc_rows)
{
    int64_t at = space_take(&d->space, rows), enc_at = -1;

    if (at >= 0)
        enc_at = space_take(&d->enc_space, enc_rows);
    if (at < 0 || enc_at < 0) {
        if (at >= 0)
            space_drop(&d->space, at);
        return false;
    }
    d->at[seq] = (int32_t)at;
    d->room[seq] = (int32_t)rows;
    d->enc_first[seq] = enc_at;
    d->enc_len[seq] = (int32_t)enc_rows;
    d->len[seq] = 0;
    if (d->n_past)
        d->n_past[seq] = 0;
    return true;
}

void decode_drop(struct decode *d, int64_t seq)
{
    if (d->room[seq] > 0)
        space_drop(&d->space, d->at[seq]);
    if (d->enc_len[seq] > 0)
        space_drop(&d->enc_space, d->enc_first[seq]);
    d->len[seq] = d->room[seq] = d->enc_len[seq] = 0;
}

static void swap32(int32_t *x, int64_t a, int64_t b)
{
    int32_t held = x[a];

    x[a] = x[b];
    x[b] = held;
}

void decode_swap(struct decode *d, int64_t a, int64_t b)
{
    int64_t held = d->enc_first[a];

    swap32(d->at, a, b);
    swap32(d->room, a, b);
    swap32(d->len, a, b);
    swap32(d->enc_len, a, b);
    d->enc_first[a] = d->enc_first[b];
    d->enc_first[b] = held;
}

int decode_share(struct decode *d, int64_t seq, int64_t from, int64_t n, struct ckpt_err *err)
{
    const struct arch *a = d->m->arch;
    struct device *dev = d->m->dev;
    uint64_t row = (uint64_t)a->head_dim * ckpt_dtype_size(dev->act);
    int64_t layers = a->num_hidden_layers - d->first;

    if (n > d->len[from] || n > d->room[seq] || d->len[seq] > 0)
        return ckpt_fail(err, CKPT_ELIMIT, "%lld shared tokens: sequence %lld has %d, and sequence "
                         "%lld space for %d", (long long)n, (long long)from, d->len[from],
                         (long long)seq, d->room[seq]);
    for (int64_t i = 0; i < 2 * layers * a->num_key_value_heads; i++) {
        int64_t layer = i / 2 / a->num_key_value_heads, g = i / 2 % a->num_key_value_heads;
        unsigned char *cache = (unsigned char *)(i % 2 ? d->v : d->k) +
                               (uint64_t)layer * d->layer_bytes +
                               (uint64_t)(g * d->rows) * row;

        dev->ops->copy(dev, cache + (uint64_t)d->at[seq] * row,
                       cache + (uint64_t)d->at[from] * row, (uint64_t)n * row);
    }
    d->len[seq] = (int32_t)n;
    return 0;
}

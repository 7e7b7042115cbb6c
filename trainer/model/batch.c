/* batch - check that a batch fits the model's plan, and that its ids and rows exist. */
#include "trainer/model/pass.h"

int batch_refuse(struct ckpt_err *err, const char *what, int64_t found, int64_t limit)
{
    return ckpt_fail(err, CKPT_ELIMIT, "batch: %s is %lld, wanted 0 to %lld", what,
                     (long long)found, (long long)limit);
}

/* Check the encoder's part; gives the rows of its longest document. */
static int check_encoder(const struct model *m, const struct batch *b, int64_t *longest,
                         struct ckpt_err *err)
{
    int64_t V = m->arch->vocab_size;

    *longest = 0;
    if (m->arch->stack != ARCH_ENCODER_DECODER)
        return 0;
    if (b->n_enc < 0 || b->n_enc > m->opts.max_enc)
        return batch_refuse(err, "the encoder's number of tokens", b->n_enc, m->opts.max_enc);
    for (int64_t i = 0; i < b->n_enc; i++)
        if (b->enc_ids[i] < 0 || b->enc_ids[i] >= V)
            return batch_refuse(err, "a token id of the encoder", b->enc_ids[i], V - 1);
    for (int64_t i = 0; i < b->n_docs; i++) {
        int64_t len = (int64_t)b->enc_start[i + 1] - b->enc_start[i];

        if (len < 1 || b->enc_start[0] != 0 || b->enc_start[i + 1] > b->n_enc)
            return batch_refuse(err, "the end of an encoder's document", b->enc_start[i + 1],
                             b->n_enc);
        *longest = len > *longest ? len : *longest;
    }
    if ((b->n_docs ? b->enc_start[b->n_docs] : 0) != b->n_enc)
        return batch_refuse(err, "the end of the encoder's last document",
                   b->n_docs ? b->enc_start[b->n_docs] : 0, b->n_enc);
    return 0;
}

int batch_check(const struct model *m, const struct batch *b, int64_t *max_doc, int64_t *max_enc,
                struct ckpt_err *err)
{
    int64_t V = m->arch->vocab_size, places = m->opts.max_tokens;

    if (m->arch->pos == ARCH_POS_LEARNED && m->arch->max_position_embeddings < places)
        places = m->arch->max_position_embeddings;
    *max_doc = 0;
    if (b->n_tokens < 0 || b->n_tokens > m->opts.max_tokens)
        return batch_refuse(err, "the number of tokens", b->n_tokens, m->opts.max_tokens);
    if (b->n_docs < 0 || b->n_docs > m->opts.max_docs)
        return batch_refuse(err, "the number of documents", b->n_docs, m->opts.max_docs);
    if (b->n_rows < 0 || b->n_rows > m->opts.max_rows)
        return batch_refuse(err, "the number of supervised rows", b->n_rows, m->opts.max_rows);
    for (int64_t i = 0; i < b->n_tokens; i++)
        if (b->ids[i] < 0 || b->ids[i] >= V)
            return batch_refuse(err, "a token id", b->ids[i], V - 1);
    for (int64_t i = 0; i < b->n_tokens; i++)
        if (b->positions[i] < 0 || b->positions[i] >= places)
            return batch_refuse(err, "a position", b->positions[i], places - 1);
    for (int64_t i = 0; b->token_type_ids && i < b->n_tokens; i++)
        if (b->token_type_ids[i] < 0 || b->token_type_ids[i] >= m->arch->type_vocab_size)
            return batch_refuse(err, "a token type", b->token_type_ids[i],
                             m->arch->type_vocab_size - 1);
    for (int64_t i = 0; i < b->n_docs; i++) {
        int64_t len = (int64_t)b->doc_start[i + 1] - b->doc_start[i];

        if (len < 0 || b->doc_start[0] != 0 || b->doc_start[i + 1] > b->n_tokens)
            return batch_refuse(err, "a document's first row", b->doc_start[i + 1], b->n_tokens);
        *max_doc = len > *max_doc ? len : *max_doc;
        if (b->real_start && (!m->opts.padding || b->real_start[i] < b->doc_start[i] ||
                              b->real_start[i] >= b->real_end[i] ||
                              b->real_end[i] > b->doc_start[i + 1]))
            return batch_refuse(err, "a document's first row that is no padding", b->real_start[i],
                                b->doc_start[i + 1] - 1);
    }
    if ((b->n_docs ? b->doc_start[b->n_docs] : 0) != b->n_tokens)
        return batch_refuse(err, "the end of the last document",
                         b->n_docs ? b->doc_start[b->n_docs] : 0, b->n_tokens);
    for (int64_t i = 0; i < b->n_rows; i++) {
        if (b->targets[i] < 0 || b->targets[i] >= V)
            return batch_refuse(err, "a target id", b->targets[i], V - 1);
        if (b->rows[i] < (i ? b->rows[i - 1] + 1 : 0) || b->rows[i] >= b->n_tokens)
            return batch_refuse(err, "a supervised row", b->rows[i], b->n_tokens - 1);
    }
    return check_encoder(m, b, max_enc, err);
}

/* pass - see pass.h. */
#include "trainer/model/pass.h"

#include <math.h>

#include "trainer/model/rope.h"

void pass_upload(const struct pass *p, int32_t *dst, const int32_t *src, int64_t n)
{
    if (n > 0)
        p->dev->ops->to_device(p->dev, dst, src, (size_t)n * sizeof *src);
}

/* The table of positions has pos_offset rows before the first; where positions come from ids,
 * padding uses the last of those. */
static void upload_positions(const struct pass *p, const struct batch *b)
{
    struct model *m = p->m;
    int32_t offset = (int32_t)m->arch->pos_offset, seen = 0;

    for (int64_t i = 0; i < b->n_tokens; i++) {
        bool padding = m->arch->pos_from_ids && b->ids[i] == m->arch->pad_token_id;

        seen = b->positions[i] == 0 ? 0 : seen;
        m->batch.positions_host[i] = padding                 ? offset - 1
                               : m->arch->pos_from_ids ? seen + offset
                                                       : b->positions[i] + offset;
        seen += !padding;
    }
    pass_upload(p, m->batch.positions, m->batch.positions_host, b->n_tokens);
}

void pass_rope_table(struct model *m, int64_t length)
{
    int64_t regime = m->positions.rope ? rope_regime(m->arch, length) : m->positions.rope_regime;

    if (regime == m->positions.rope_regime)
        return;
    m->positions.rope_regime = regime;
    rope_table(m->positions.rope_host, m->positions.rope_rows, m->arch, length);
    m->dev->ops->to_device(m->dev, m->positions.rope, m->positions.rope_host,
                           (size_t)(m->positions.rope_rows * m->arch->rope.rotary_dim) *
                               sizeof *m->positions.rope);
}

int pass_begin(struct pass *p, struct model *m, const struct model_weights *w,
               const struct batch *b, bool keep, struct ckpt_err *err)
{
    int rc;

    *p = (struct pass){.m = m, .w = w, .dev = m->dev, .n = b->n_tokens, .n_docs = b->n_docs,
                       .n_rows = b->n_rows, .keep = keep, .ids = m->batch.ids,
                       .doc_start = m->batch.doc_start,
                       .token_type_ids = b->token_type_ids ? m->batch.token_type_ids : NULL};
    rc = batch_check(m, b, &p->max_doc, &p->max_enc, err);
    if (rc)
        return rc;
    if (m->arch->stack == ARCH_ENCODER_DECODER) {
        p->n_enc = b->n_enc;
        pass_upload(p, m->encoder.ids, b->enc_ids, b->n_enc);
        pass_upload(p, m->encoder.start, b->enc_start, b->n_docs + 1);
    }
    if (b->token_type_ids)
        pass_upload(p, m->batch.token_type_ids, b->token_type_ids, b->n_tokens);
    m->dev->work = m->work;
    m->dev->work_bytes = m->work_bytes;
    pass_rope_table(m, p->max_doc);
    pass_upload(p, m->batch.ids, b->ids, b->n_tokens);
    upload_positions(p, b);
    pass_upload(p, m->batch.doc_start, b->doc_start, b->n_docs + 1);
    if (b->real_start) {
        p->real_start = m->batch.real_start;
        p->real_end = m->batch.real_end;
        pass_upload(p, m->batch.real_start, b->real_start, b->n_docs);
        pass_upload(p, m->batch.real_end, b->real_end, b->n_docs);
    }
    pass_upload(p, m->batch.rows, b->rows, b->n_rows);
    pass_upload(p, m->batch.targets, b->targets, b->n_rows);
    return 0;
}

/* FNV-1a, 64 bits, over a document's ids. */
static uint64_t ids_hash(uint64_t hash, const int32_t *ids, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        hash = (hash ^ (uint32_t)ids[i]) * UINT64_C(0x100000001b3);
    return hash;
}

/* The rows of one document from `first` on. */
static void noise_doc(struct op_noise_row *row, const struct model *m, uint64_t hash, int64_t first,
                      int64_t end)
{
    double elements = (double)(end - first) * (double)m->arch->word_embed_proj_dim;

    for (int64_t i = first; i < end; i++)
        row[i] = (struct op_noise_row){.key = m->noise_key ^ hash, .index = (uint32_t)(i - first),
                                       .size = (float)(m->opts.neftune_alpha / sqrt(elements))};
}

/* A decoder's document is told from others with the same answer by what its encoder reads. */
void pass_noise(struct pass *p, const struct batch *b)
{
    const uint64_t start = UINT64_C(0xcbf29ce484222325);
    struct model *m = p->m;
    bool both = m->arch->stack == ARCH_ENCODER_DECODER;

    if (!(m->opts.neftune_alpha > 0))
        return;
    for (int64_t d = 0; d < b->n_docs; d++) {
        int64_t first = b->doc_start[d], end = b->doc_start[d + 1];
        uint64_t hash = start;

        if (both) {
            hash = ids_hash(hash, b->enc_ids + b->enc_start[d],
                            b->enc_start[d + 1] - b->enc_start[d]);
            noise_doc(m->encoder.noise_host, m, hash, b->enc_start[d], b->enc_start[d + 1]);
        }
        noise_doc(m->batch.noise_host, m, ids_hash(hash, b->ids + first, end - first), first, end);
    }
    if (p->n > 0)
        p->dev->ops->to_device(p->dev, m->batch.noise, m->batch.noise_host,
                               (size_t)p->n * sizeof *m->batch.noise);
    if (both && p->n_enc > 0)
        p->dev->ops->to_device(p->dev, m->encoder.noise, m->encoder.noise_host,
                               (size_t)p->n_enc * sizeof *m->encoder.noise);
    p->noise = m->batch.noise;
}

static void number_rows(uint64_t *to, const struct batch *b, const int32_t *start)
{
    for (int64_t d = 0; d < b->n_docs; d++)
        for (int32_t i = start[d]; i < start[d + 1]; i++)
            to[i] = op_drop_row(b->samples ? b->samples[d] : d, i - start[d]);
}

static void upload_drop_rows(const struct pass *p, uint64_t *dst, int64_t n)
{
    if (n > 0)
        p->dev->ops->to_device(p->dev, dst, p->m->batch.drop_host, (size_t)n * sizeof *dst);
}

void pass_drop_begin(struct pass *p, const struct batch *b)
{
    struct model *m = p->m;
    uint64_t *host = m->batch.drop_host;

    p->drop_rows = m->batch.drop_rows;
    if (!p->drop_rows)
        return;
    number_rows(host, b, b->doc_start);
    upload_drop_rows(p, m->batch.drop_rows, b->n_tokens);
    for (int64_t i = 0; i < b->n_rows; i++)         /* in place, since rows[i] >= i */
        host[i] = host[b->rows[i]];
    upload_drop_rows(p, m->batch.drop_loss, b->n_rows);
    if (p->n_enc) {
        number_rows(host, b, b->enc_start);
        upload_drop_rows(p, m->encoder.drop_rows, b->n_enc);
    }
}

#define PLACES 64               /* of a layer; leaves twice as many layers as a family may have */

struct op_drop pass_drop(const struct pass *p, const struct layer *l, int place,
                         double probability)
{
    _Static_assert((int)DROP_LORA + (int)ROLE_COUNT <= PLACES, "places have numbers of their own");
    if (!p->drop_rows || probability <= 0)
        return (struct op_drop){0};
    return (struct op_drop){.p = probability, .seed = p->m->drop_key, .rows = p->drop_rows,
                            .stream = (uint32_t)(l->index * PLACES + place)};
}

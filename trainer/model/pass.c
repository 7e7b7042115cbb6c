/* pass - see pass.h. */
#include "trainer/model/pass.h"

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
    pass_upload(p, m->batch.rows, b->rows, b->n_rows);
    pass_upload(p, m->batch.targets, b->targets, b->n_rows);
    return 0;
}

struct op_drop pass_drop(const struct pass *p, const struct layer *l, int place,
                         double probability)
{
    if (!p->drop || probability <= 0)
        return (struct op_drop){0};
    return (struct op_drop){.p = probability, .seed = p->m->drop_key,
                            .stream = (uint64_t)l->index << 16 | (uint64_t)place};
}

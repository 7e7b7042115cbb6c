/*
 * encoder - the encoder beside a decoder: its forward pass before the decoder's, its backward
 * pass after it, and the buckets of relative positions.
 *
 * Source: transformers 5.17, models/t5/modeling_t5.py, _relative_position_bucket.
 */
#include <math.h>

#include "libckpt/mem.h"
#include "trainer/model/pass.h"

/* The encoder's half of the pass. */
static struct pass encoder_pass(const struct pass *p)
{
    struct pass e = *p;

    e.n = p->n_enc;
    e.max_doc = p->max_enc;
    e.ids = p->m->encoder.ids;
    e.doc_start = p->m->encoder.start;
    e.drop_rows = p->drop_rows ? p->m->encoder.drop_rows : NULL;
    e.token_type_ids = NULL;
    e.noise = p->noise ? p->m->encoder.noise : NULL;
    e.cache = NULL;
    return e;
}

static struct op_rownorm last_norm(const struct pass *e, const struct layer *l)
{
    const struct model *m = e->m;

    struct op_rownorm op = layer_op_rownorm(e, l, ROLE_ENCODER_NORM_W, ROLE_COUNT,
                                            m->encoder.out, m->encoder.stats, m->encoder.last);

    op.dout = op.dx = m->encoder.dout;
    return op;
}

/* Apply dropout to the encoder's output, or to its gradient. */
static void drop_last(const struct pass *e, const struct layer *l, void *x)
{
    struct op_drop drop = pass_drop(e, l, DROP_FINAL, e->m->arch->final_dropout);

    if (drop.p > 0)
        e->dev->ops->drop(e->dev, x, e->n, e->m->arch->hidden_size, &drop);
}

void encoder_fwd(const struct pass *p)
{
    const struct model *m = p->m;
    int layers = (int)m->arch->num_encoder_layers;
    struct pass e = encoder_pass(p);
    struct layer l = layer_acquire(&e, 0);
    struct op_rownorm norm;

    embed_pass(&e, &l, m->fwd[0].at[BUF_H], false);
    layer_release(&e, &l);
    block_stack_begin(&e, 0, false);
    for (int i = 0; i < layers; i++)
        block_fwd(&e, i, i + 1 < layers ? m->fwd[i + 1].at[BUF_H] : m->encoder.last);
    block_stack_end(&e);
    l = layer_acquire(&e, layers);
    norm = last_norm(&e, &l);
    e.dev->ops->norm_fwd(e.dev, &norm);
    drop_last(&e, &l, m->encoder.out);
    layer_release(&e, &l);
}

void encoder_bwd(const struct pass *p)
{
    const struct model *m = p->m;
    int layers = (int)m->arch->num_encoder_layers;
    struct pass e = encoder_pass(p);
    struct op_rownorm norm;
    struct layer l;

    block_stack_begin(&e, 0, true);
    l = layer_acquire(&e, layers);
    layer_acquire_grads(&e, &l);
    norm = last_norm(&e, &l);
    drop_last(&e, &l, m->encoder.dout);
    e.dev->ops->norm_bwd(e.dev, &norm);
    layer_release(&e, &l);
    for (int i = layers - 1; i >= 0; i--)
        block_bwd(&e, i, m->encoder.dout);
    block_stack_end(&e);
    l = layer_acquire(&e, 0);
    layer_acquire_grads(&e, &l);
    embed_pass(&e, &l, m->encoder.dout, true);
    layer_release(&e, &l);
}

/*
 * The bucket of keys `distance` after the query (before it: negative): each near distance has its
 * own, larger ones share buckets by their logarithm.  A decoder sees no keys after the query; an
 * encoder uses half of the buckets for either side.
 */
static int32_t bucket_of(int64_t distance, bool encoder, int64_t buckets, int64_t max_distance)
{
    int64_t n = encoder ? buckets / 2 : buckets, near = n / 2, away, far;
    int64_t from = encoder && distance > 0 ? n : 0;

    away = distance < 0 ? -distance : encoder ? distance : 0;
    if (away < near)
        return (int32_t)(from + away);
    /* In f32 as the reference, since rounding of the logarithm decides at the borders. */
    far = near + (int64_t)(logf((float)away / (float)near) /
                           (float)log((double)max_distance / (double)near) * (float)(n - near));
    return (int32_t)(from + (far < n - 1 ? far : n - 1));
}

/* The distance from which on buckets [2 reach + 1] do not change on either side. */
static int64_t told_apart(const int32_t *bucket, int64_t reach)
{
    const int32_t *mid = bucket + reach;

    while (reach > 1 && mid[reach - 1] == mid[reach] && mid[1 - reach] == mid[-reach])
        reach--;
    return reach;
}

int encoder_upload_buckets(struct model *m, struct ckpt_err *err)
{
    const struct arch *a = m->arch;
    size_t n = 2 * (size_t)a->max_distance + 1;
    int32_t *host;

    if (a->pos != ARCH_POS_BUCKETS)
        return 0;
    host = ckpt_arena_alloc(&m->host_arena, n, sizeof *host);
    if (!host)
        return ckpt_nomem(err, n * sizeof *host);
    for (int encoder = 0; encoder < 2; encoder++) {
        for (size_t i = 0; i < n; i++)
            host[i] = bucket_of((int64_t)i - a->max_distance, encoder, a->num_buckets,
                                a->max_distance);
        m->positions.reach[encoder] = told_apart(host, a->max_distance);
        m->dev->ops->to_device(m->dev, m->positions.bucket[encoder], host + a->max_distance -
                               m->positions.reach[encoder],
                               (2 * (size_t)m->positions.reach[encoder] + 1) * sizeof *host);
    }
    return device_sync(m->dev, err);
}

int model_hidden(struct model *m, const struct model_weights *w, const struct batch *b,
                 int64_t n_blocks, float *hidden, struct ckpt_err *err)
{
    int64_t layers = m->arch->num_hidden_layers;
    struct batch without = *b;
    struct pass p;
    struct layer l;
    int rc;

    if (m->arch->stack != ARCH_ENCODER || n_blocks < 0 || n_blocks > layers)
        return ckpt_fail(err, CKPT_EUNSUPPORTED, "hidden states after block %lld: an encoder "
                         "alone has them, after 0 to %lld", (long long)n_blocks,
                         (long long)layers);
    without.n_rows = 0;
    rc = pass_begin(&p, m, w, &without, false, err);
    if (rc)
        return rc;
    pass_varies(&p, true);
    l = layer_acquire(&p, 0);
    embed_pass(&p, &l, m->fwd[0].at[BUF_H], false);
    layer_release(&p, &l);
    for (int i = 0; i < (int)n_blocks; i++)
        block_fwd(&p, i, i + 1 < layers ? m->fwd[i + 1].at[BUF_H] : m->h_last);
    pass_varies(&p, false);
    m->dev->ops->to_host(m->dev, hidden, n_blocks < layers ? m->fwd[n_blocks].at[BUF_H] : m->h_last,
                         (size_t)(b->n_tokens * m->arch->hidden_size) * sizeof *hidden);
    return device_sync(m->dev, err);
}

/* init - see init.h. */
#include "trainer/model/init.h"

#include <math.h>

#include "formats/families/arch.h"
#include "formats/families/role.h"
#include "trainer/rng.h"

/* By fan-in: T5's _init_weights, with a factor instead of the range. */
static double by_fan(const struct arch *a, enum role role)
{
    double d = (double)a->hidden_size, heads = (double)a->num_attention_heads;

    switch (role) {
    case ROLE_TOKENS:
    case ROLE_HEAD_W:
        return 1;
    case ROLE_Q_W:
    case ROLE_CROSS_Q_W:
        return 1 / sqrt(d * (double)a->head_dim);
    case ROLE_OUT_W:
    case ROLE_CROSS_OUT_W:
        return 1 / sqrt(heads * (double)a->head_dim);
    case ROLE_DOWN_W:
        return 1 / sqrt((double)a->intermediate_size);
    default:
        return 1 / sqrt(d);
    }
}

static double deviation(const struct arch *a, enum role role)
{
    bool last = role == ROLE_OUT_W || role == ROLE_DOWN_W;

    if (a->init_by_fan)
        return a->initializer_range * by_fan(a, role);
    return last && a->init_by_depth
               ? a->initializer_range / sqrt(2.0 * (double)a->num_hidden_layers)
               : a->initializer_range;
}

/* The row of the id without gradient is zero, as torch.nn.Embedding's padding_idx. */
static void clear_pad(const struct arch *a, int64_t start, int64_t count, float *dst)
{
    int64_t from = a->pad_token_id * a->word_embed_proj_dim;

    for (int64_t i = 0; a->pad_token_id >= 0 && i < a->word_embed_proj_dim; i++)
        if (from + i >= start && from + i < start + count)
            dst[from + i - start] = 0;
}

int init_fill(void *ctx, size_t i, int64_t start, int64_t count, float *dst,
              struct ckpt_err *err)
{
    const struct init *init = ctx;
    const struct param *p;
    enum role_init kind;

    if (i >= init->params->n)
        return ckpt_fail(err, CKPT_ESTATE, "parameter %zu of %zu", i, init->params->n);
    p = &init->params->item[i];
    if (start < 0 || count < 0 || start > p->numel || count > p->numel - start)
        return ckpt_fail(err, CKPT_ESTATE, "elements %lld + %lld of %lld", (long long)start,
                         (long long)count, (long long)p->numel);
    kind = role_init((enum role)p->role);
    if (kind == ROLE_NORMAL) {
        rng_normal_by(init->threads > 0 ? init->threads : 1, dst, start, count,
                      (float)deviation(init->arch, (enum role)p->role), init->seed,
                      rng_stream(p->name));
        if (p->role == ROLE_TOKENS)
            clear_pad(init->arch, start, count, dst);
    } else
        for (int64_t k = 0; k < count; k++)
            dst[k] = kind == ROLE_ZEROS              ? 0.0f
                     : init->arch->init_by_fan ? (float)init->arch->initializer_range
                                               : 1.0f;
    return 0;
}

/* init - see init.h. */
#include "trainer/model/init.h"

#include <math.h>

#include "trainer/model/arch.h"
#include "trainer/model/names.h"
#include "trainer/rng.h"

static double deviation(const struct arch *a, enum role role)
{
    bool last = role == ROLE_OUT_W || role == ROLE_DOWN_W;

    return last && a->init_by_depth
               ? a->initializer_range / sqrt(2.0 * (double)a->num_hidden_layers)
               : a->initializer_range;
}

/* The row of the id that gives no gradient is zero, as torch.nn.Embedding's padding_idx. */
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
        rng_normal(dst, start, count, (float)deviation(init->arch, (enum role)p->role),
                   init->seed, rng_stream(p->name));
        if (p->role == ROLE_TOKENS)
            clear_pad(init->arch, start, count, dst);
    } else
        for (int64_t k = 0; k < count; k++)
            dst[k] = kind == ROLE_ONES ? 1.0f : 0.0f;
    return 0;
}

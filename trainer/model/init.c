/* init - see init.h. */
#include "trainer/model/init.h"

#include "trainer/model/arch.h"
#include "trainer/model/names.h"
#include "trainer/rng.h"

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
    if (kind == ROLE_NORMAL)
        rng_normal(dst, start, count, (float)init->arch->initializer_range, init->seed,
                   rng_stream(p->name));
    else
        for (int64_t k = 0; k < count; k++)
            dst[k] = kind == ROLE_ONES ? 1.0f : 0.0f;
    return 0;
}

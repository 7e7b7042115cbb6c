/* optim - see optim.h. */
#include "trainer/optim.h"

#include <math.h>

void optim_step(struct zero *z, const struct optim_opts *opts, double lr, int64_t step,
                double grad_norm)
{
    struct adamw a = {
        .lr = (float)lr, .beta1 = (float)opts->beta1, .beta2 = (float)opts->beta2,
        .eps = (float)opts->eps, .grad_scale = 1.0f, .step = step,
    };

    if (opts->max_grad_norm > 0)
        a.grad_scale = (float)fmin(opts->max_grad_norm / (grad_norm + 1e-6), 1.0);
    zero_step(z, &a, (float)opts->weight_decay);
}

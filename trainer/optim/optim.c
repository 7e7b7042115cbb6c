/* optim - see optim.h. */
#include "trainer/optim/optim.h"

void optim_step(struct zero *z, const struct optim_opts *opts, double lr, int64_t step)
{
    struct adamw a = {
        .lr = lr, .beta1 = opts->beta1, .beta2 = opts->beta2, .eps = opts->eps,
        .verdict = zero_verdict(z), .step = step, .seed = opts->seed,
    };

    zero_step(z, &a, opts->weight_decay);
}

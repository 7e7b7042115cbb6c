/* optim - see optim.h. */
#include "trainer/optim.h"

void optim_step(struct zero *z, const struct optim_opts *opts, double lr, int64_t step)
{
    struct adamw a = {
        .lr = (float)lr, .beta1 = (float)opts->beta1, .beta2 = (float)opts->beta2,
        .eps = (float)opts->eps, .verdict = zero_verdict(z), .step = step,
        .seed = opts->seed,
    };

    zero_step(z, &a, (float)opts->weight_decay);
}

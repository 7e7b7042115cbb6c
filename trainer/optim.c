/* optim - see optim.h. */
#include "trainer/optim.h"

#include <math.h>

enum { RUNS = 256 };        /* that are given to the device at once */

/* One past the last parameter of the run that begins at i: same decay, neighbours in memory. */
static size_t run_end(const struct params *p, size_t i)
{
    size_t end = i + 1;

    while (end < p->n && p->item[end].trainable == p->item[i].trainable &&
           p->item[end].decay == p->item[i].decay)
        end++;
    return end;
}

void optim_step(struct zero *z, struct device *dev, const struct optim_opts *opts, double lr,
                int64_t step, double grad_norm)
{
    const struct flat *f = zero_flat(z);
    const struct zero_state *s = zero_state(z);
    struct adamw_run run[RUNS];
    struct adamw a = {
        .lr = (float)lr, .beta1 = (float)opts->beta1, .beta2 = (float)opts->beta2,
        .eps = (float)opts->eps, .grad_scale = 1.0f, .step = step,
    };
    int64_t n = 0;

    if (opts->max_grad_norm > 0)
        a.grad_scale = (float)fmin(opts->max_grad_norm / (grad_norm + 1e-6), 1.0);
    for (size_t i = 0, end; i < f->params->n; i = end) {
        int64_t at = zero_piece(z, i).at, grad_at = f->grad_base[i];

        end = run_end(f->params, i);
        if (f->params->item[i].trainable)
            run[n++] = (struct adamw_run){
                .param = s->master + at, .exp_avg = s->exp_avg + grad_at,
                .exp_avg_sq = s->exp_avg_sq + grad_at, .grad = s->grad + grad_at,
                .rounded = zero_rounded(z, i), .n = f->grad_base[end] - grad_at,
                .weight_decay = f->params->item[i].decay ? (float)opts->weight_decay : 0.0f,
            };
        if (n == RUNS || end == f->params->n) {
            dev->ops->adamw(dev, run, n, &a);
            n = 0;
        }
    }
    zero_stepped(z);
}

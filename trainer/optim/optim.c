/* optim - see optim.h. */
#include "trainer/optim/optim.h"

void optim_step(struct zero *z, const struct optim_opts *opts, double lr, int64_t step)
{
    struct adamw a = {
        .rule = opts->rule == OP_RULE_MUON ? OP_RULE_ADAMW : opts->rule, .lr = lr,
        .beta1 = opts->beta1, .beta2 = opts->beta2, .eps = opts->eps,
        .momentum = opts->keys.momentum, .dampening = opts->keys.dampening,
        .nesterov = opts->keys.nesterov, .adafactor = &opts->keys.adafactor,
        .muon = &opts->keys.muon,
        .verdict = zero_verdict(z), .step = step, .seed = opts->seed,
    };

    if (!opts->groups) {
        zero_step(z, &a, opts->weight_decay);
        return;
    }
    for (size_t g = 0; g < opts->groups->n; g++)
        opts->now[g] = (struct optim_group){
            .lr = schedule_lr(opts->schedule, opts->groups->peak[g].lr, step - 1 + opts->lag),
            .weight_decay = opts->groups->peak[g].weight_decay,
            .muon = opts->groups->peak[g].muon};
    schedule_betas(opts->schedule, step - 1 + opts->lag, &a.beta1, &a.beta2);
    zero_step_groups(z, &a, opts->now);
}

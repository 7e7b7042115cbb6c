/* run/optimizer - see run/optimizer.h. */
#include "trainer/run/optimizer.h"

#include <string.h>

#include "libckpt/log.h"

/* What a rank saves that has no true weights. */
static void tell_narrow(const struct session *s)
{
    const struct params *p = model_params(s->model);
    int64_t numel = 0;

    for (size_t i = 0; i < p->n; i++)
        numel += p->item[i].trainable ? p->item[i].numel : 0;
    if (s->zero_opts.stage > 0)
        numel /= s->shard->world_size;
    ckpt_log(CKPT_LOG_NOTE, "weights in bfloat16 alone, rounded stochastically: %.1f MiB less than "
             "with float32 masters", (double)numel * sizeof(float) / (1 << 20));
}

/* Adafactor steps a matrix of all experts of a layer as one tensor. */
static int check_stacked(const struct params *p, struct ckpt_err *err)
{
    const struct param *last[2] = {0};  /* gate or up, and down */

    for (size_t i = 0; i < p->n; i++) {
        const struct param *q = &p->item[i];
        struct params_stacked in;

        if (!params_stacked(&in, p, i))
            continue;
        if (last[in.down] && last[in.down]->layer == q->layer &&
            last[in.down]->group != q->group)
            return ckpt_fail(err, CKPT_ECONFIG, "`optim adafactor`: %s and %s are of one tensor, "
                             "with one learning rate and weight decay", last[in.down]->name,
                             q->name);
        last[in.down] = q;
    }
    return 0;
}

int run_optimizer_open(struct run_optimizer *o, const struct settings *s, struct session *session,
                       struct ckpt_err *err)
{
    struct optim_groups_opts opts = {
        .learning_rate = s->learning_rate, .weight_decay = s->weight_decay,
        .lr_for = s->lr_for, .n_lr_for = s->n_lr_for,
        .weight_decay_for = s->weight_decay_for, .n_weight_decay_for = s->n_weight_decay_for,
        .loraplus_lr_ratio = s->loraplus_lr_ratio,
        .loraplus_lr_embedding = s->loraplus_lr_embedding,
        .muon = optim_find(s->optim)->rule == OP_RULE_MUON};
    int rc = optim_keys(&o->keys, optim_find(s->optim), s->optim_args, err);

    opts.adam_lr = o->keys.adam_lr;
    if (rc == 0)
        rc = optim_groups(&o->groups, &o->arena, model_params_to_group(session->model), &opts, err);
    if (rc == 0 && !(o->now = ckpt_arena_alloc(&o->arena, o->groups.n, sizeof *o->now)))
        rc = ckpt_nomem(err, o->groups.n * sizeof *o->now);
    if (rc == 0 && optim_find(s->optim)->rule == OP_RULE_ADAFACTOR)
        rc = check_stacked(model_params(session->model), err);
    for (size_t g = 2; rc == 0 && session->comm->rank == 0 && g < o->groups.n; g++)
        ckpt_log(CKPT_LOG_NOTE, "parameter group %zu: learning rate %g, weight decay %g", g,
                 o->groups.peak[g].lr, o->groups.peak[g].weight_decay);
    if (rc == 0 && !s->master_weights && session->comm->rank == 0)
        tell_narrow(session);
    return rc;
}

struct zero_opts run_optimizer_zero(const struct settings *s)
{
    return (struct zero_opts){
        .stage = settings_stage(s), .moments = settings_moments(s), .fewer = settings_fewer(s),
        .reduce = settings_reduce(s), .paged = settings_paged(s),
        .narrow = !s->master_weights, .factored = optim_find(s->optim)->rule == OP_RULE_ADAFACTOR,
        .muon = optim_find(s->optim)->rule == OP_RULE_MUON,
        .offload = strcmp(s->offload_optimizer, "cpu") == 0,
        .offload_param = strcmp(s->offload_param, "cpu") == 0};
}

void run_optimizer_close(struct run_optimizer *o) { ckpt_arena_release(&o->arena); }

struct optim_opts run_optimizer_opts(const struct run_optimizer *o, const struct settings *s,
                                     const struct schedule *schedule)
{
    return (struct optim_opts){
        .rule = optim_find(s->optim)->rule, .keys = o->keys, .beta1 = s->adam_beta1,
        .beta2 = s->adam_beta2, .eps = s->adam_epsilon, .weight_decay = s->weight_decay,
        .max_grad_norm = s->max_grad_norm, .seed = s->seed, .schedule = schedule,
        .groups = &o->groups, .now = o->now};
}

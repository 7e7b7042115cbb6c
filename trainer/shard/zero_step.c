/* zero_step - what surrounds the passes of a step; see zero.h and zero_own.h. */
#include <string.h>

#include "trainer/shard/zero_own.h"

static void forget(struct slots *of)
{
    for (int i = 0; i < of->n; i++) {
        of->slot[i].layer = -1;
        of->slot[i].users = 0;
    }
}

void zero_forget(struct zero *z)
{
    forget(&z->weight);
    forget(&z->grad);
}

static void step(struct zero *z, struct optim_state_step s)
{
    s.master = z->master;
    s.grad = z->grads;
    s.rounded = z->rounded;
    s.done = z->sharded && !z->streamed ? zero_ranks_stepped : NULL;
    s.ctx = z;
    zero_copied(z);
    if (z->muon)
        zero_muon_step(z, &s);
    if (z->factored)
        zero_factored_step(z, &s);
    else
        optim_state_step(z->optim, &s);
    z->dev->stepped++;
    if (z->streamed)
        zero_stream_stepped(z);
}

void zero_step(struct zero *z, const struct adamw *a, double weight_decay)
{
    step(z, (struct optim_state_step){.adamw = a, .weight_decay = weight_decay});
}

void zero_step_groups(struct zero *z, const struct adamw *a, const struct optim_group *group)
{
    step(z, (struct optim_state_step){.adamw = a, .group = group});
}

void zero_begin(struct zero *z)
{
    int n = z->flat.params->n_layers;

    z->last = false;
    memset(z->reached, 0, (size_t)n * sizeof *z->reached);
    memset(z->replicated, 0, (size_t)n * sizeof *z->replicated);
    forget(&z->grad);
    if (z->streamed)
        zero_stream_begin(z);
    if (z->streamed && !z->sharded)
        return;
    for (int u = 0; u < n; u++) {
        z->fresh[u] = true;
        if (!z->sharded)
            flat_clear(&z->flat, z->dev, z->grads + flat_grad_base(&z->flat, u), u, false);
    }
}

void zero_last(struct zero *z) { z->last = true; }

void zero_reduce(struct zero *z)
{
    struct comm *comm;

    if (z->sharded) {
        zero_ranks_reduce(z);
        return;
    }
    if (z->streamed) {
        zero_stream_reduce(z);
        return;
    }
    comm = comm_on_device(z->replicas);
    for (int u = 0; u < z->flat.params->n_layers; u++) {
        if (z->fresh[u])                /* there was no pass */
            flat_clear(&z->flat, z->dev, z->grads + flat_grad_base(&z->flat, u), u, true);
        z->fresh[u] = false;
        if (comm_groups(comm) && !z->replicated[u])
            zero_ranks_sum(z, u);
    }
    if (comm_groups(comm))
        zero_follow(z, OP_STREAM_MAIN, OP_STREAM_COMM);
    else
        comm_all_reduce(comm, z->grads, z->flat.grad_numel, CKPT_F32, COMM_SUM);
}

void zero_judge(struct zero *z, double max_norm, double scale)
{
    if (z->streamed && (!z->sharded || z->own.at[0])) {
        zero_stream_judge(z, max_norm, scale);
        return;
    }
    z->dev->ops->sum_squares(z->dev, z->squares, z->grads, z->flat.grad_numel);
    if (z->sharded)                     /* else every rank has the sums of all */
        zero_ranks_add(z, z->squares);
    z->dev->ops->judge(z->dev, z->verdict, z->squares, max_norm, scale);
}

const struct op_verdict *zero_verdict(const struct zero *z) { return z->verdict; }

struct op_verdict zero_verdict_host(struct zero *z)
{
    struct op_verdict v = {0};

    z->dev->ops->to_host(z->dev, &v, z->verdict, sizeof v);
    return v;
}

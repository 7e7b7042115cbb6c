/*
 * optim/groups - which parameters are stepped with which learning rate and weight decay.
 *
 * Group 0 are those that decay, group 1 those that do not (biases and norms), as HF Trainer has
 * them; each further pair of numbers that a pattern or LoRA+ gives is a group after those.  LoRA+:
 * factors B learn faster, and those of embeddings at a rate of their own.  With Muon group 0 are
 * the hidden matrices; what AdamW steps beside them and decays is a further group.
 * Source: Hayou et al. 2024; peft 0.21 optimizers/loraplus.py.
 */
#ifndef CKPT_TRAINER_OPTIM_GROUPS_H
#define CKPT_TRAINER_OPTIM_GROUPS_H

#include "libckpt/mem.h"
#include "trainer/model/params.h"
#include "trainer/shard/optim_state.h"

struct optim_groups_opts {
    double learning_rate, weight_decay;
    /* PATTERN=X: the first that is found in a parameter's name counts. */
    const char *const *lr_for, *const *weight_decay_for;
    size_t n_lr_for, n_weight_decay_for;
    double loraplus_lr_ratio;           /* 0: none */
    double loraplus_lr_embedding;
    bool   muon;                        /* hidden matrices are groups of their own; */
    double adam_lr;                     /* what is in others learns so; NaN: learning_rate */
};

struct optim_groups {
    struct optim_group *peak;           /* [n] */
    size_t              n;
};

/* Make the groups, in the arena, and put parameters into them (param.group).  CKPT_ECONFIG names
 * a pattern that is wrong or that no trained parameter has. */
int optim_groups(struct optim_groups *out, struct ckpt_arena *a, struct params *p,
                 const struct optim_groups_opts *o, struct ckpt_err *err);

#endif

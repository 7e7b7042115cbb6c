/*
 * optim/order - the order and grouping of torch's optimizer states.
 *
 * optimizer.pt has no names: its states are numbered in the order in which HF Trainer passes the
 * parameters, group by group (param.group), each by named_parameters() of transformers'
 * modules.  That order is the one of names.h, except where transformers creates a module early;
 * and transformers 5 has one tensor for the same matrix of all experts of a layer: gate and up
 * [E, 2F, D], down [E, D, F].  Source: transformers 5.17, trainer.py (get_decay_parameter_names),
 * models/<family>/modeling_*.py.
 */
#ifndef CKPT_TRAINER_OPTIM_ORDER_H
#define CKPT_TRAINER_OPTIM_ORDER_H

#include "libckpt/source.h"
#include "formats/families/arch.h"
#include "trainer/model/params.h"

/* The place of a parameter in a state's tensors. */
struct optim_part {
    size_t  param;
    int64_t at;                     /* offset of its first element there */
};

struct optim_slot {
    struct ckpt_shape        shape;
    int                      group;
    const struct optim_part *part;
    size_t                   n_part;
};

struct optim_order {
    struct optim_slot *slot;        /* group 0's first */
    size_t             n;
};

/* Allocated in the arena.  fused: experts in one tensor, as transformers 5 has them, else one by
 * one as in 4. */
int optim_order(struct optim_order *out, struct ckpt_arena *a, const struct params *p,
                const struct arch *arch, bool fused, struct ckpt_err *err);
/* The same for an optimizer that was given model.parameters(): all in one group. */
int optim_order_whole(struct optim_order *out, struct ckpt_arena *a, const struct params *p,
                      const struct arch *arch, bool fused, struct ckpt_err *err);
/*
 * Which tensor of an optimizer.pt holds each parameter's moment of the name moment[i] (NULL: it has
 * none), and from which element on; SIZE_MAX: none, or not trained.  Both orders of experts are
 * tried, and where the Trainer's two groups do not fit, one group of all parameters: shapes tell
 * matrices from vectors.
 */
int optim_match(size_t *index, int64_t *at, const struct params *p, const struct arch *arch,
                const struct ckpt_source *src, const char *const *moment, struct ckpt_err *err);

#endif

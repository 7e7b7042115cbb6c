/*
 * deepspeed/stage0 - the optimizer of a run without ZeRO, whose states have numbers instead of
 * names.
 *
 * FP16_UnfusedOptimizer keeps an f32 master beside the moments of every number: the number
 * belongs to the parameter of the same shape whose 16-bit value equals the rounded master.
 * FP16_Optimizer (with FusedAdam) has one flat tensor per group: its parameters are identified by
 * their values, one after another.  With experts every member of an expert-parallel group has its
 * own optimizer, whose groups marked "moe" hold that member's experts.  Without masters (an f32
 * run) a number gets the next parameter of its shape, if that is unambiguous: as many numbers as
 * parameters have the shape, all in one group.  Otherwise the state is refused, never guessed.
 */
#ifndef CKPT_FORMATS_DEEPSPEED_STAGE0_H
#define CKPT_FORMATS_DEEPSPEED_STAGE0_H

#include "formats/deepspeed/parts.h"
#include "libckpt/tensor.h"

/* One state of the optimizer with its parameter's name, in the optimizer's order. */
struct ds_numbered {
    const char        *name;
    struct ckpt_shape  shape;
    enum ckpt_dtype    dtype;           /* of the optimizer's own weight: master, or module's */
    size_t             group;
    const struct value *state;          /* dictionary of its moments, or NULL */
};

/* All states, in arena memory.  CKPT_EUNSUPPORTED when names are ambiguous. */
int ds_stage0_names(struct ds_numbered **out, size_t *n, struct ckpt_arena *arena,
                    const struct ds_files *f, struct ckpt_err *err);
/*
 * List the f32 masters (kind WEIGHT), before `module` is listed.  If their names are ambiguous,
 * warn and list nothing: `module` has the 16-bit weights with names.
 */
int ds_master_list(struct ckpt_tensors *list, const struct ds_files *f, struct ckpt_err *err);
/* List the moment `state` of every parameter.  CKPT_EUNSUPPORTED when names are ambiguous. */
int ds_moment_list(struct ckpt_tensors *list, const struct ds_files *f, const char *state,
                   struct ckpt_err *err);

#endif

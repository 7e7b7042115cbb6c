/*
 * deepspeed/stage0 - the optimizer of a run without ZeRO, whose state has numbers and no names.
 *
 * FP16_UnfusedOptimizer keeps an f32 master beside the moments of every number: it belongs to
 * the parameter of its shape whose 16-bit value is the master's, rounded.  FP16_Optimizer (with
 * FusedAdam) has one flat tensor a group: its parameters are found by their values, one after
 * another.  With experts every number of an expert-parallel group has an optimizer of its own,
 * whose groups marked "moe" have that number's experts.  Without masters (an
 * f32 run) a number gets the next parameter of its shape, where that is the only way to read it:
 * as many numbers as parameters have the shape, all of one group.  Otherwise the state is
 * refused, never guessed.
 */
#ifndef CKPT_FORMATS_DEEPSPEED_STAGE0_H
#define CKPT_FORMATS_DEEPSPEED_STAGE0_H

#include "formats/deepspeed/parts.h"
#include "libckpt/tensor.h"

/* A number of the optimizer with its name, in the optimizer's order. */
struct ds_numbered {
    const char        *name;
    struct ckpt_shape  shape;
    enum ckpt_dtype    dtype;           /* of the optimizer's own weight: master, or module's */
    size_t             group;
    const struct value *state;          /* dictionary of its moments, or NULL */
};

/* All of them, in arena memory.  CKPT_EUNSUPPORTED when names are in doubt. */
int ds_stage0_names(struct ds_numbered **out, size_t *n, struct ckpt_arena *arena,
                    const struct ds_files *f, struct ckpt_err *err);
/*
 * List the f32 masters (kind WEIGHT), before `module` is listed.  Where their names are in doubt
 * a warning says so and nothing is listed: `module` has the 16-bit weights with names.
 */
int ds_master_list(struct ckpt_tensors *list, const struct ds_files *f, struct ckpt_err *err);
/* List the moment `state` of every parameter.  CKPT_EUNSUPPORTED when names are in doubt. */
int ds_moment_list(struct ckpt_tensors *list, const struct ds_files *f, const char *state,
                   struct ckpt_err *err);

#endif

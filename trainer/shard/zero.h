/*
 * zero - who owns, gathers and reduces what, and when: ZeRO stages 0 and 3.
 *
 * Stage 0: every rank holds all weights; gradients are summed over ranks once a step.
 * Stage 3: every rank holds its part of weights, gradients and moments (flat.h); a unit's
 * weights are gathered when the pass asks for them and given up when it is done, its gradients
 * are reduced to their owners as soon as the pass has finished them.  Beyond the parts a rank
 * holds unit 0 and two more units, whatever the depth of the model.
 *
 * Where the device's weights have 16 bits a pass sees the true weights rounded: a copy of that
 * type lies beside the part, is what is gathered, and is made again when the weights change.
 * A frozen weight then has that copy alone, where one rank holds all.
 */
#ifndef CKPT_ZERO_H
#define CKPT_ZERO_H

#include "trainer/comm/comm.h"
#include "trainer/model/model.h"
#include "trainer/ops/ops.h"
#include "trainer/shard/flat.h"

struct zero;

/* Arrays of this rank, f32, on the device. */
struct zero_state {
    float *master;          /* the true weights, see zero_piece; NULL when nothing is trained and
                               the device's weights are narrower */
    float *grad;            /* [flat->grad_numel] of the step in work */
    float *exp_avg;         /* likewise: AdamW's moments */
    float *exp_avg_sq;
};

/*
 * What this rank has of parameter i in state.master ([flat->numel], by flat_piece, or where frozen
 * weights are rounded only those of trained parameters, by flat_grad_piece; count 0 then for the
 * others).
 */
struct flat_piece zero_piece(const struct zero *z, size_t i);
/* Where master has trained parameters only. */
bool zero_lean(const struct zero *z);
/* Of trained parameter i the rounded copy of its part; NULL: passes see the master itself. */
void *zero_rounded(const struct zero *z, size_t i);

struct zero_opts {
    int  stage;             /* 0 or 3 */
    bool train;             /* else weights only, no gradients or moments */
    enum op_moments moments;/* of what may have them so, see moments.h */
    bool paged;             /* moments may lie on the host */
};

/* dev, comm and params outlive it. */
int zero_new(struct zero **out, const struct params *params, const struct zero_opts *opts,
             struct device *dev, struct comm *comm, struct ckpt_err *err);
void zero_free(struct zero *z);
const struct flat *zero_flat(const struct zero *z);
const struct zero_state *zero_state(const struct zero *z);
/* The door through which a pass sees weights, of the device's type. */
const struct model_weights *zero_weights(struct zero *z);
/*
 * A unit's true weights on the host, f32 [unit_numel], until the next call of this or of
 * zero_gather_grad, or the next pass.  Collective at stage 3.  NULL: no memory for it, err filled.
 * zero_read gives the same in pieces, where one rank has all.
 */
const float *zero_master(struct zero *z, int unit, struct ckpt_err *err);
/* Bytes a rank holds for states and for gathered units. */
uint64_t zero_bytes(const struct params *params, const struct zero_opts *opts, int world_size,
                    enum ckpt_dtype weight);

/* Gradients to zero, but for those that the first pass writes: begin a step. */
void zero_begin(struct zero *z);
/* All backward passes of the step are done: every owner's gradients are complete after it. */
void zero_reduce(struct zero *z);
/* A unit's gradients [unit_grad] on the host after that, on every rank; likewise. */
const float *zero_gather_grad(struct zero *z, int unit, struct ckpt_err *err);
/* Square of the norm of the whole gradient, the same on every rank. */
double zero_grad_sum_squares(struct zero *z);
/* The weights were changed in place: what was gathered is stale, what is rounded is made again. */
void zero_changed(struct zero *z);
/* They were changed by an optimizer that wrote the rounded copies too. */
void zero_stepped(struct zero *z);

/* -- between arrays and the host -------------------------------------------------------------- */

/* What a rank has of each parameter; gradients and moments of trained ones alone. */
enum zero_array { ZERO_MASTER, ZERO_GRAD, ZERO_EXP_AVG, ZERO_EXP_AVG_SQ };

/* Whether other ranks hold parts of what this one has a part of. */
bool zero_sharded(const struct zero *z);
/*
 * Elements [at, at + n) of this rank's part of parameter i, padding included, as f32.  Of a weight
 * without a true one what is rounded.  Moves them through a few MiB of pinned memory, at the speed
 * of the link where n is large.
 */
int zero_read(struct zero *z, enum zero_array of, size_t i, int64_t at, int64_t n, float *to,
              struct ckpt_err *err);
/* The way back; what passes see of weights follows with zero_changed. */
int zero_write(struct zero *z, enum zero_array of, size_t i, int64_t at, int64_t n,
               const float *from, struct ckpt_err *err);
/*
 * Fill one of this rank's arrays: fn gives elements [start, start + count) of parameter i, or
 * ZERO_LEAVES when they stay what they are.  Stops at the first failure.
 */
enum { ZERO_LEAVES = 1 };
typedef int zero_fill_fn(void *ctx, size_t i, int64_t start, int64_t count, float *dst,
                         struct ckpt_err *err);
int zero_fill(struct zero *z, enum zero_array of, zero_fill_fn *fn, void *ctx,
              struct ckpt_err *err);

#endif

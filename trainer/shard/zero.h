/*
 * zero - who owns, gathers and reduces what, and when: ZeRO stages 0 to 3.
 *
 * Stage 0: every rank holds all weights; gradients are summed over ranks once a step.
 * Stages 1 to 3: every rank owns its part of each parameter, with its true weight, its gradient
 * and its moments (flat.h), and steps that part alone.  What a pass sees beside the parts:
 *   1  all weights, gathered once after a step, and all gradients, reduced to their owners once a
 *      step: as the last pass finishes each layer
 *   2  all weights; gradients of the layers in work, reduced in every pass
 *   3  weights of the layers in work, gathered in every pass, a layer ahead; gradients as 2.  With
 *      memory to spare weights or gradients are kept as in 1: the same sums, moved less often
 * Collectives run on a stream of their own, beside the operations.
 *
 * Hybrid sharding: the parts are those of one group of ranks, and the ranks that hold the same part
 * in other groups are its replicas.  A part's gradient is summed over the replicas once a step,
 * after the group's reduction; nothing is gathered from another group.
 *
 * Where the device's weights have 16 bits a pass sees the true weights rounded: a copy of that
 * type lies beside the part, is what is gathered, and is rounded again when the weights change.
 * A frozen weight has that copy alone.
 * Source: Rajbhandari et al. 2020 (ZeRO); torch FSDP2's reshard_after_forward, FSDP's HYBRID_SHARD.
 */
#ifndef CKPT_TRAINER_SHARD_ZERO_H
#define CKPT_TRAINER_SHARD_ZERO_H

#include "trainer/comm/comm.h"
#include "trainer/model/model.h"
#include "trainer/ops/ops.h"
#include "trainer/shard/flat.h"
#include "trainer/shard/optim_state.h"

struct zero;

struct zero_opts {
    int      stage;                     /* 0 to 3 */
    struct comm *replicas;              /* ranks with the same part as this one, of all groups;
                                           NULL: there is one group.  Outlives zero */
    enum ckpt_dtype reduce;             /* of gradients that ranks exchange: F32 (or none), or what
                                           the device's collectives can sum: BF16, F16 */
    bool     few;                       /* on a GPU: layers pass through a slot less, and wait */
    bool     keep_weights, keep_grads;  /* stage 3: as stage 1 does; set by 1 and 2 themselves */
    bool     train;                     /* else weights only: no gradients or moments */
    enum op_moments moments;            /* of what may have them so (optim_state.h) */
    int      fewer;                     /* moments that the rule lacks of AdamW's two */
    bool     narrow;                    /* no true weights: what is trained is of the device's
                                           type, BF16, and rounded stochastically */
    bool     factored;                  /* Adafactor's numbers of rows and columns beside the
                                           moments; nothing lies on the host then */
    bool     muon;                      /* hidden matrices have a momentum alone, and are stepped by
                                           Muon; nothing lies on the host then */
    bool     paged;                     /* true weights and moments beyond optim_on_device bytes
                                           lie on the host (optim_state.h) */
    bool     offload;                   /* all of them do */
    bool     offload_param;             /* and what passes see and add to, but for a few layers
                                           (zero_stream.c); weights of 16 bits; of several ranks
                                           at stages 1 to 3, which then are alike */
    uint64_t optim_on_device;
    int64_t  chunk;                     /* elements of them that pass at once; 0: many */
};

/* Bytes of a rank. */
struct zero_size {
    uint64_t weights, grads;            /* what passes see and add to */
    uint64_t weights_host, grads_host;  /* where those lie on the host, the former are slots */
    uint64_t optim, optim_host;       /* the true weights beside those, and moments */
    uint64_t ring;                      /* slots through which states pass */
    uint64_t gathered;                  /* slots for layers of other ranks */
};

/* dev, params and comm, the ranks that share the weights, outlive it, opts not. */
int zero_new(struct zero **out, const struct params *params, const struct zero_opts *opts,
             struct device *dev, struct comm *comm, struct ckpt_err *err);
void zero_free(struct zero *z);
const struct flat *zero_flat(const struct zero *z);
/* Threads of this rank, for work on the host. */
int zero_threads(const struct zero *z);
/* What zero_new would take of such a device. */
int zero_size(struct zero_size *out, const struct params *params, const struct zero_opts *opts,
              int world_size, const struct device *dev, struct ckpt_err *err);
/* The door through which a pass sees weights, of the device's type. */
const struct model_weights *zero_weights(struct zero *z);
/*
 * A layer's true weights on the host, f32 [layer_numel], until the next call of this or of one of
 * the next two, or the next pass.  Collective above stage 0.  NULL: no memory for it, err
 * filled.
 * zero_read gives the same in pieces, where one rank has all.
 */
const float *zero_master(struct zero *z, int layer, struct ckpt_err *err);
/* Those of what is trained alone, laid out as its gradients [layer_grad]: of a model with an
 * adapter a hundredth of the layer.  Likewise. */
const float *zero_master_trained(struct zero *z, int layer, struct ckpt_err *err);
/* Gradients to zero, but for those that the first pass writes: begin a step. */
void zero_begin(struct zero *z);
/* The pass that follows is the step's last: what it finishes may go to the owners at once. */
void zero_last(struct zero *z);
/* All backward passes of the step are done: every owner's gradients are complete after it. */
void zero_reduce(struct zero *z);
/* A layer's gradients [layer_grad] on the host after that, on every rank; likewise. */
const float *zero_gather_grad(struct zero *z, int layer, struct ckpt_err *err);
/*
 * The verdict on the step's gradient, that of a loss multiplied by scale (verdict.h), the same on
 * every rank.  It is made on the device; the host waits for it where weights are on the host.
 */
void zero_judge(struct zero *z, double max_norm, double scale);
const struct op_verdict *zero_verdict(const struct zero *z);    /* on the device */
struct op_verdict zero_verdict_host(struct zero *z);            /* waits */
/* The weights were changed in place: gathered ones are stale, rounded ones are rounded again. */
void zero_changed(struct zero *z);
/* One step of everything trained, true weights and rounded ones; weight_decay is that of
 * parameters that decay. */
void zero_step(struct zero *z, const struct adamw *a, double weight_decay);
/* The same with numbers of each group. */
void zero_step_groups(struct zero *z, const struct adamw *a, const struct optim_group *group);

/* This rank's gradients on the device [grad_numel of flat], after a step's passes. */
float *zero_grads(const struct zero *z);

/* -- between arrays and the host -------------------------------------------------------------- */

/* What a rank has of each parameter; gradients and moments of trained ones alone. */
enum zero_array { ZERO_MASTER, ZERO_GRAD, ZERO_EXP_AVG, ZERO_EXP_AVG_SQ };

/* Whether other ranks hold parts of what this one has a part of. */
bool zero_sharded(const struct zero *z);
/*
 * Elements [at, at + n) of this rank's part of parameter i, padding included, as f32.  Of a weight
 * without a true one what is rounded; of coded moments at is a multiple of 256.  Moves them
 * through a few MiB of pinned memory, at the speed of the link where n is large.
 */
int zero_read(struct zero *z, enum zero_array of, size_t i, int64_t at, int64_t n, float *to,
              struct ckpt_err *err);
/* The way back; what passes see of weights follows with zero_changed. */
int zero_write(struct zero *z, enum zero_array of, size_t i, int64_t at, int64_t n,
               const float *from, struct ckpt_err *err);
/* Coded moments from the block on in which the padding of this rank's part begins: zeros, as a step
 * leaves padding.  Code 0, which memory begins with, is the negative of the block's largest. */
int zero_pad(struct zero *z, enum zero_array of, size_t i, struct ckpt_err *err);
/*
 * The same of an array of states as it is stored: true weights f32, moments of their type, scales
 * f32, one for 256 elements, where at is a multiple of that.
 */
int zero_read_stored(struct zero *z, enum optim_state_array of, size_t i, int64_t at, int64_t n,
                     void *to, struct ckpt_err *err);
int zero_write_stored(struct zero *z, enum optim_state_array of, size_t i, int64_t at, int64_t n,
                      const void *from, struct ckpt_err *err);
/* Adafactor's numbers of the tensor that parameter i is, or is in (params_stacked), on the host;
 * all of them, on every rank.  Where the device's memory is not the host's they are what
 * zero_factors_read has brought there, and those that were changed count once zero_factors_write
 * has brought them back. */
struct zero_factors {
    float  *row, *col;                  /* [n_row], [n_col]; of a vector row is exp_avg_sq and there
                                           is no col.  NULL: not there */
    float  *rms;
    int64_t n_row, n_col;
};
struct zero_factors zero_factors(const struct zero *z, size_t i);
void zero_factors_read(struct zero *z);
void zero_factors_write(struct zero *z);
/* Bytes of them, and with sums of a step's work. */
uint64_t zero_factored_bytes(const struct params *p, bool sums);
/* Bytes of what a step of Muon works with. */
uint64_t zero_muon_bytes(const struct params *p, int world_size);
/* Moments that parameter i lacks of AdamW's two. */
int zero_fewer(const struct zero_opts *opts, const struct params *p, size_t i);
/* How parameter i's moments are stored. */
enum op_moments zero_moments(const struct zero *z, size_t i);
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

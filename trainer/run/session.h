/*
 * session - a model, a device and peers, opened together and closed together.
 */
#ifndef CKPT_TRAINER_RUN_SESSION_H
#define CKPT_TRAINER_RUN_SESSION_H

#include <jansson.h>

#include "formats/tokens/tokenizer.h"
#include "trainer/comm/comm.h"
#include "trainer/comm/simulate.h"
#include "trainer/data/sample.h"
#include "trainer/plan/fit.h"
#include "trainer/model/model.h"
#include "trainer/ops/ops.h"
#include "trainer/shard/zero.h"

struct arch;

struct session {
    struct comm      *comm;             /* all ranks */
    struct comm      *shard;            /* those among which this one shards: all, or its group */
    struct comm      *replicas;         /* those with the same shard; NULL: there is one group */
    struct device    *dev;
    struct ckpt_dir  *model_dir;        /* where config.json lies */
    struct ckpt_dir  *tokenizer_dir;    /* may be the same place; NULL when there is none */
    struct arch      *arch;
    struct lora      *lora;             /* the adapter that is trained or used; NULL: none */
    const char       *folded;           /* directory of an adapter that becomes part of the weights
                                           as they are read; borrowed; NULL: none */
    bool              head_lent;        /* an untied head that the base has only as embedding */
    bool              untagged;         /* its weights have no DeepSpeed tag, which has been said */
    struct tokenizer *tokenizer;        /* NULL when tokenizer_dir is */
    struct model     *model;            /* once session_plan has been called */
    struct zero      *zero;             /* likewise */
    struct zero_opts  zero_opts;        /* what it was made with */
    struct fit        fit;              /* what is taken of the device's memory */
    uint64_t          paper_limit;      /* a dry plan is for a GPU of so much memory that is not
                                           there; 0: for the device that is open */
    struct simulate_net simulate;       /* the ranks are planned, and their collectives simulated */
    const char       *reshard;          /* gathered weights of stage 3 are given up after use: true,
                                           false; auto or NULL: as memory allows */
    int64_t           batch;            /* samples that are worked on at once, and the setting */
    const char       *batch_option;     /* that says so, for a plan that is refused */
};

/*
 * The ranks alone, for what they must agree on before anything is opened.  ranks 0: as the process
 * was started; 1: alone, whatever a launcher says; more: a plan for so many.
 */
int session_join(struct session *s, int ranks, int64_t timeout_s, struct ckpt_err *err);
/*
 * Hybrid sharding: groups of `size` ranks, each of which shards among itself; 0: one group;
 * negative: as many as a node has, of planned ranks `node`.  A group of all ranks is none.  After
 * session_join; CKPT_ECONFIG on all ranks where groups do not fill the world.  Collective.
 */
int session_split(struct session *s, int size, int node, struct ckpt_err *err);
/* The device of one of several ranks: a GPU each, that of the rank's number on its host, or all on
 * CPUs, with one thread unless the options say how many.  name has space for what opts->name
 * becomes. */
int session_device(struct device_opts *opts, char name[32], const struct comm *c,
                   struct ckpt_err *err);
/*
 * Ranks (as session_join finds them, unless s has joined; else it is zeroed), device and
 * description.  model_dir is a directory with config.json, also in an archive or on standard input
 * ("-"), or config.json itself, whatever its name on this machine; tokenizer_dir NULL: beside it,
 * if there.  Ranks on one host share its CPUs, so that threads 0 means one each there.
 */
int session_open(struct session *s, const char *model_dir, const char *tokenizer_dir,
                 const struct device_opts *device, int ranks, struct ckpt_err *err);
/*
 * A vocabulary that the model has no rows for is another model's: CKPT_EMISMATCH.  Tokens that were
 * added beyond them are common and may never be met: a warning; data that needs one is refused when
 * it is read.  session_open does this, unless an adapter is folded in, which may have more.
 */
int session_check_vocabulary(const struct session *s, struct ckpt_err *err);
/* Look whether a checkpoint has a head of its own where the description ties it to the embedding;
 * then it is untied, with a warning.  Before session_plan. */
int session_untie(struct session *s, const char *path, const char *tag, struct ckpt_err *err);
/*
 * Put an adapter beside the model, as its adapter_config.json says: only what it brings is trained
 * from then on.  A tied head or embedding that is trained in full is untied, as PEFT's copies are.
 * Before session_plan.  Not collective, the same on every rank.
 */
int session_adapt(struct session *s, const json_t *config, struct ckpt_err *err);
/* Back to before session_plan, which may be called again. */
void session_unplan(struct session *s);
/*
 * Plan all memory, check that it fits, and allocate it, with gradients and moments where
 * opts->train says so; with opts->dry nothing is allocated and there is no zero.
 */
int session_plan(struct session *s, const struct model_opts *opts, const struct zero_opts *zero,
                 struct ckpt_err *err);
/* Weights from a checkpoint (any format, dtype); every parameter must be there, nothing else. */
int session_load(struct session *s, const char *path, const char *tag, struct ckpt_err *err);
/* Fresh weights, the same whatever the number of ranks. */
int session_init_weights(struct session *s, uint64_t seed, struct ckpt_err *err);
/* What the model wants of samples, where it has an encoder beside its decoder. */
struct sample_pair session_pair(const struct session *s);
/* Tell the log what will run where: parameters, ranks, stage, memory of one rank. */
void session_describe(const struct session *s, int64_t max_steps);
/*
 * Close.  rc and err are the run's outcome: when it failed on this rank alone (comm_alone), the
 * peers are ended too, and perhaps this process with them: the failure has been reported before.
 */
void session_close(struct session *s, int rc, const struct ckpt_err *err);

#endif

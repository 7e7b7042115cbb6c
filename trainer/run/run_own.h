/*
 * run_own - what run's files share: a run in one struct, and the steps before its first one.
 */
#ifndef CKPT_TRAINER_RUN_RUN_OWN_H
#define CKPT_TRAINER_RUN_RUN_OWN_H

#include "formats/hf/side_files.h"
#include "trainer/run/course.h"
#include "trainer/run/data.h"
#include "trainer/run/dir.h"
#include "trainer/run/optimizer.h"
#include "trainer/run/output.h"
#include "trainer/tell/profile.h"
#include "trainer/run/run.h"
#include "trainer/run/save.h"
#include "trainer/run/start.h"
#include "trainer/tell/memory_log.h"
#include "trainer/tell/metrics.h"

struct run_job {
    struct settings        own;         /* with the micro-batch that is found */
    const struct settings *s;
    struct run_io         *io;
    struct session         session;
    struct run_data        data;
    struct schedule        schedule;
    struct run_optimizer   optimizer;
    struct course          course;
    struct run_state       state;
    struct scaler          scaler;
    struct checkpoint      checkpoint;
    struct side_files      side;        /* rank 0's, opened before they can have gone away */
    struct ckpt_arena      arena;       /* of their names */
    struct metrics        *metrics;
    struct memory_log     *memory;      /* NULL: not asked for */
    char                   trial[4096]; /* the output of `output_layout ray` */
    struct run_dir         dir;         /* of the rank that leads its folder */
    struct folders         folders;
    struct run_start       start;
    char                   saved[4096]; /* newest checkpoint of this run */
    char                   state_dict[4096];    /* and the file beside it; "": none */
    int64_t                saved_step;
    struct saver          *saver;       /* writes beside the steps; NULL: saves are at once */
    uint64_t               spare;       /* bytes of the host that the plan leaves to a rank */
    int64_t                first_step;  /* done before this run */
    double                 loss_sum;    /* over the n_updates steps of this run that changed
                                           weights */
    int64_t                n_updates, n_samples;
    int64_t                n_lost;      /* evaluations whose loss was not finite */
    int64_t                n_empty;     /* steps without a supervised token */
    bool                   learned;     /* some step had one */
    double                 token_flos;  /* of training on a token */
    double                 started;     /* the process; what max_wall_time counts from */
    double                 began;       /* the first step of this process, after loading */
    struct profile_run     profile;
};

/* Everything before the first step but what writes: where the run begins, its data, plan, course,
 * weights.  Collective. */
int run_prepare(struct run_job *r, struct ckpt_err *err);
/* The output as what becomes of it needs it. */
struct run_output run_output_of(struct run_job *r);
/* A fresh model as a directory, to start from or to compare with.  Collective. */
int run_init_only(struct run_job *r, struct ckpt_err *err);
/* Report a finished checkpoint or model to the caller.  Rank 0. */
int run_tell_artifact(const struct run_job *r, const char *path, struct ckpt_err *err);

#endif

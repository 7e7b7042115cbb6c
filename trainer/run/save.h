/*
 * run/save - a run's checkpoints: written at once, or beside the steps.
 *
 * Beside: what a checkpoint holds is copied to the host's memory (zero_copy.h), with the state of
 * the run, and a thread of each rank saves from that what a save at once would, with a communicator
 * of its own.  The run learns of the end at a step's end, when all ranks' threads are done, and
 * then announces the checkpoint and removes older ones.  There is one such save at a time.
 */
#ifndef CKPT_TRAINER_RUN_SAVE_H
#define CKPT_TRAINER_RUN_SAVE_H

#include <stdbool.h>

#include "libckpt/fail.h"

struct run_job;
struct saver;

/* Make r->saver, if the run saves before its end, the settings want it and it fits; the output is
 * taken.  Collective. */
int save_open(struct run_job *r, struct ckpt_err *err);
/*
 * Save the state once an earlier save has ended, beside steps if some follow and a saver is there.
 * 0 too when it failed and the run is to go on: r->saved_step tells.  Collective.
 */
int save_begin(struct run_job *r, bool steps_follow, struct ckpt_err *err);
/* Whether save_open would make one, by settings and memory: *bytes of its copy, of each rank, or 0;
 * *why says so, or why not. */
int save_plan(const struct run_job *r, uint64_t *bytes, const char **why, struct ckpt_err *err);
/* After each step: what was copied beside it may be written.  Collective with other ranks'. */
int save_go(struct run_job *r, struct ckpt_err *err);
/* Whether this rank's thread is at work. */
bool save_busy(const struct run_job *r);
/* Wait for a save that is under way, and announce it.  Collective. */
int save_wait(struct run_job *r, struct ckpt_err *err);
/* Remove checkpoints beyond the settings' limit, unless rc is an error.  Returns rc of all ranks.
 * Collective. */
int save_prune(struct run_job *r, int rc, struct ckpt_err *err);
/* The end, also of a run that failed: what is under way is completed, as far as it can be. */
void save_close(struct run_job *r);

#endif

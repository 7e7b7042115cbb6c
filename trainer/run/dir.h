/*
 * run/dir - what an output folder is: who writes it, which checkpoints lie in it, which of these
 * is the newest complete one, which may be replaced, and which go.
 *
 * Rank 0's, and of several folders the rank's that leads one: the others have a zeroed one and
 * learn rank 0's results.  A checkpoint is a folder as checkpoint/naming.h has it.
 */
#ifndef CKPT_TRAINER_RUN_DIR_H
#define CKPT_TRAINER_RUN_DIR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "libckpt/fail.h"
#include "libckpt/io/lock.h"

struct run_dir {
    const char       *path;
    struct ckpt_lock *lock;     /* NULL: not held */
    int64_t          *damaged;  /* [n_damaged] proved so, passed over: they may be replaced */
    size_t            n_damaged;
};

/* Above every number. */
#define RUN_DIR_ANY INT64_MAX

/* The checkpoint of step `number` in a folder; returns path. */
char *run_dir_path(char path[4096], const char *folder, int64_t number);
/* The folder is there and holds a checkpoint, complete or not. */
bool run_dir_is_run(const char *path);
/*
 * The newest complete checkpoint of folder below number `below`: its path and number.  Damaged
 * newer ones are a warning each, and remembered in d when the folder is d's.  Sizes are checked,
 * and what is read first; the rest is for the load to prove.  Where none has a manifest, all are
 * another program's, and the newest with a trainer_state.json is it.  CKPT_ENOTFOUND, reason
 * "none": there is no checkpoint at all; CKPT_EFORMAT: there are some, but none is complete.
 */
int run_dir_newest(char path[4096], int64_t *number, struct run_dir *d, const char *folder,
                   int64_t below, struct ckpt_err *err);
/* A checkpoint was found to be damaged while it was loaded. */
int run_dir_pass_over(struct run_dir *d, const char *folder, int64_t number,
                      const struct ckpt_err *why, struct ckpt_err *err);
/* Lock the folder if it is there. */
int run_dir_lock(struct run_dir *d, struct ckpt_err *err);
/* The lock's refusal for a run that writes nothing. */
int run_dir_lock_ready(const struct run_dir *d, struct ckpt_err *err);
/* Make the folder with its parents, and lock it unless it is held already. */
int run_dir_make(struct run_dir *d, struct ckpt_err *err);
/* Make the folders above path. */
int run_dir_make_above(const char *path, struct ckpt_err *err);
/* Whether path is a folder directly in the other. */
bool run_dir_holds(const char *folder, const char *path);
/*
 * CKPT_ECREATE when the folder holds a checkpoint newer than step (-1: any), but for those known
 * to be damaged: a run that goes on from step would come to its name, or mistake it for its own.
 */
int run_dir_check_free(const struct run_dir *d, int64_t step, struct ckpt_err *err);
/* Pass over what is newer than step: parts of saves that did not end in rank 0's folder. */
int run_dir_pass_newer(struct run_dir *d, int64_t step, struct ckpt_err *err);
/* Remove those instead.  CKPT_ECREATE when somebody reads one. */
int run_dir_clear(struct run_dir *d, int64_t step, struct ckpt_err *err);
/* Whether a save as checkpoint-<number> may replace what has the name: damaged, and passed over. */
bool run_dir_may_replace(const struct run_dir *d, int64_t number);
/*
 * Remove the oldest complete checkpoints until `keep` are left.  The newest always stays, and so
 * does the best (a path whose last part is its name; may be empty), which counts as one of them.
 * One that somebody reads stays until a later call; last: name those in a note.  Failures are
 * warnings: a run does not end because of them.
 */
void run_dir_prune(struct run_dir *d, int64_t keep, const char *best, bool last);
void run_dir_close(struct run_dir *d);

#endif

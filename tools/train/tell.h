/*
 * train/tell - what ckpt-train does with what the run tells: the progress bar, commands of the
 * user's, publishing.  Rank 0's.
 */
#ifndef CKPT_TOOLS_TRAIN_TELL_H
#define CKPT_TOOLS_TRAIN_TELL_H

#include "tools/train/hooks.h"
#include "tools/train/push.h"
#include "trainer/plan/estimate.h"

/* All of them: paths and commands of a host, and how a process prints. */
#define TRAIN_TELL_OPTIONS "on-save on-log on-eval on-end push-to disable-tqdm log-level"

struct train_tell {
    const char   *command[HOOK_KINDS];
    const char   *push_to, *log_level;
    bool          disable_tqdm;
    struct hooks *hooks;
    struct push  *push;
};

/* The defaults are set here, and the values lie there after parsing. */
struct opt_section train_tell_rows(struct train_tell *t);
/* After parsing, before anything is printed: how much is, and by which rank. */
void train_tell_levels(const struct train_tell *t, struct cli *cli);
/* What a dry run found, with --json: one document on stdout. */
int train_tell_plan(const struct estimate *e, bool json, struct ckpt_err *err);
/* In the process that is rank 0: start what runs beside it.  dry: but the user's commands. */
int train_tell_begin(struct train_tell *t, const char *output_dir, bool dry, struct ckpt_err *err);
/* A run_event_fn's work. */
void train_tell_event(struct train_tell *t, const struct run_event *e);
/* The run is over, with this status: wait for what runs beside it.  Returns the status to exit
 * with: that of ckpt-push where the run's own is 0. */
int train_tell_end(struct train_tell *t, int status);

#endif

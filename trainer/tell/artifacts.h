/*
 * artifacts - the checkpoints and the final model of a run as artifacts of its W&B run.
 *
 * WANDB_LOG_MODEL, as HF Trainer reads it: "end", the final model; "checkpoint", also the
 * checkpoints that are there at the end; "false" or nothing, none.  The files are read once for
 * their MD5, and sent by `wandb sync` from where they lie.
 */
#ifndef CKPT_TRAINER_TELL_ARTIFACTS_H
#define CKPT_TRAINER_TELL_ARTIFACTS_H

#include "formats/logs/wandb_out.h"

/* Of the run in output_dir; name is that of the run, or its id. */
int artifacts_put(struct wandb_out *o, const char *output_dir, const char *name,
                  struct ckpt_err *err);

#endif

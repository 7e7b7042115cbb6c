/*
 * checkpoint/shards - the optimizer's states in files: each rank's part in DeepSpeed's
 * global_step<N>/, or all of them in optimizer.pt.
 *
 * Stage 3 divides each parameter by ranks, as memory does, so every rank writes what it has.
 * Stages 1 and 2 divide all parameters laid one after another: the ranks exchange parts
 * (regroup.h), and the model lies whole in a file of its own.
 */
#ifndef CKPT_TRAINER_CHECKPOINT_SHARDS_H
#define CKPT_TRAINER_CHECKPOINT_SHARDS_H

#include "formats/hf/trainer_files.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/checkpoint/weights.h"

struct shards;

/* Steps of the schedule: those that were not skipped. */
int64_t shards_done_steps(const struct checkpoint *c);
/* Of these, the steps of the optimizer: it may have begun later (run/state.h). */
int64_t shards_optim_steps(const struct checkpoint *c);
/* The optimizer's groups, as they are after this step; in the arena. */
int shards_groups(struct adamw_group **out, struct ckpt_arena *a, const struct checkpoint *c,
                  struct ckpt_err *err);
/*
 * Begin this rank's files: in stage 3 they are complete then.  model: at stages 1 and 2 this rank
 * writes the model's file too.  Not collective.  s, c and dir are borrowed until the close.
 */
int shards_begin(struct shards **out, struct session *s, const struct checkpoint *c,
                 struct ckpt_outdir *dir, const char *tag, bool model, struct ckpt_err *err);
/* What the files still lack of the optimizer.  Collective, also for a rank whose files fail. */
int shards_exchange(struct shards *h, struct ckpt_err *err);
/* Who takes the gathered weights for the model's file; NULL: nobody here. */
const struct weights_taker *shards_taker(const struct shards *h);
/* Complete this rank's files.  Not collective. */
int shards_commit(struct shards *h, struct ckpt_err *err);
/* Abort what was not committed, and release; NULL accepted. */
void shards_close(struct shards *h);

/* Write optimizer.pt from a rank that holds everything: torch's layout, or bitsandbytes' in 8
 * bits. */
int shards_save_whole(struct session *s, const struct checkpoint *c, struct ckpt_outdir *dir,
                      struct ckpt_err *err);

#endif

/*
 * resume - which checkpoint to go on from, which to remove, and reading one back.
 */
#ifndef CKPT_RESUME_H
#define CKPT_RESUME_H

#include "trainer/checkpoint.h"

/*
 * Remove all but the newest `keep` verified checkpoints of output_dir, never `best` (may be
 * empty).  Rank 0.
 */
int resume_prune(const char *output_dir, int64_t keep, const char *best,
                     struct ckpt_err *err);
/*
 * The newest checkpoint of output_dir whose manifest holds; why others were passed over goes to
 * the log.  CKPT_ENOTFOUND when there is none.
 */
int resume_latest(char path[4096], const char *output_dir, struct ckpt_err *err);
/*
 * Weights, moments and counters from a checkpoint of any world size and stage, ours, DeepSpeed's
 * or HF Trainer's; of an adapter only what is trained, the base is there.  Collective.
 * CKPT_EMISMATCH when our own manifest tells of other data or another seed than c has.
 */
int resume_load(struct session *s, const char *path, const struct checkpoint *c,
                    struct run_state *state, struct ckpt_err *err);

#endif

/*
 * ray_run - the index of a run of Ray Train 2, checkpoint_manager_snapshot.json:
 *   {"checkpoint_results": [{"checkpoint_dir_name": NAME, "metrics": {...}} ...],
 *    "latest_checkpoint_result": one of such, or null ...}
 * The results are those that are kept, sorted by the score that the run gives them
 * (CheckpointConfig.checkpoint_score_attribute), the best last; without one by time.
 *
 * Source: ray 2.60, train/v2/_internal/execution/checkpoint/checkpoint_manager.py.
 */
#ifndef CKPT_FORMATS_RAY_RUN_H
#define CKPT_FORMATS_RAY_RUN_H

#include "libckpt/io/file_at.h"
#include "libckpt/mem.h"

#define RAY_RUN_INDEX "checkpoint_manager_snapshot.json"

/*
 * The folder's name, in the arena, of the latest or of the best checkpoint that an index names;
 * path: the run's, for messages.  CKPT_EFORMAT where there is none, CKPT_EREFUSED where it is no
 * clean name.
 */
int ray_run_find(const char **name, struct ckpt_file *index, bool best, const char *path,
                 struct ckpt_arena *arena, struct ckpt_err *err);

#endif

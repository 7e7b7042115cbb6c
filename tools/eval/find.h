/*
 * eval/find - what lies in the folders of a training system: the checkpoint to test, and the data.
 *
 *   results/{model id}/checkpoint-<n>/          a model's id may have an owner: two folders
 *   results/{experiment}/{trial}/checkpoint_<n>/, or as checkpoint_manager_snapshot.json names it
 *   datasets/{name}/{config}/{parts}/test.jsonl
 */
#ifndef CKPT_TOOLS_EVAL_FIND_H
#define CKPT_TOOLS_EVAL_FIND_H

#include <stdbool.h>

#include "libckpt/fail.h"

/* Of the runs in a folder, or the folder itself, the one that was saved to last: path is its newest
 * or its best checkpoint.  CKPT_ENOTFOUND. */
int find_checkpoint(char path[4096], const char *results, bool best, struct ckpt_err *err);
/* The newest test.jsonl in a folder.  CKPT_ENOTFOUND. */
int find_test(char path[4096], const char *datasets, struct ckpt_err *err);

#endif

/*
 * deepspeed/files - open the files of a DeepSpeed tag and check them against each other.
 *
 *   latest                                          text: the tag
 *   latest_universal                                text: that of a universal checkpoint
 *   <tag>/mp_rank_00_model_states.pt                stages 0 to 2: one for all ranks
 *   <tag>/zero_pp_rank_R_mp_rank_00_model_states.pt stage 3: one per rank
 *   <tag>/[bf16_]zero_pp_rank_R_mp_rank_00_optim_states.pt   stages 1 to 3: one per rank
 *   <tag>/zero/                                     universal checkpoints: see universal.h
 *
 *   <tag>/mp_rank_SS_..., <tag>/...mp_rank_SS_...   the same of pipeline stage SS
 *   <tag>/layer_...                                 see deepspeed/pipe.h, deepspeed/experts.h
 *
 * Only the pickles are read.  Tensor parallelism is refused by name.  Source: DeepSpeed 0.19.8
 * runtime/engine.py, and 0.14.5.
 */
#ifndef CKPT_FORMATS_DEEPSPEED_FILES_H
#define CKPT_FORMATS_DEEPSPEED_FILES_H

#include "formats/deepspeed/parts.h"

/*
 * The tag to read: wanted, or the one in `latest`, or else in `latest_universal` (one clean name,
 * at most 256 bytes including a line end).
 */
int ds_find_tag(char tag[DS_MAX_TAG], struct ckpt_dir *dir, const char *wanted,
                struct ckpt_err *err);
/*
 * Open all files of a tag; dir holds the tag's folder, or is it when tag is "".  *out has one set
 * for each of *n pipeline stages, 1 without a pipeline.  Checked: the files of exactly all ranks
 * are there; all have the same stage, world, step, version and parameters.  CKPT_EFORMAT
 * "missing" names the file that is absent.
 */
int ds_files_open(struct ds_files **out, size_t *n, struct ckpt_dir *dir, const char *tag,
                  struct ckpt_err *err);
void ds_files_close(struct ds_files *f, size_t n);

#endif

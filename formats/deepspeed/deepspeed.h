/*
 * deepspeed - a DeepSpeed run directory as a source of tensors; see deepspeed/layout.h for the
 * arithmetic.
 *
 * Listed: fp32 master weights under the parameter's name (kind WEIGHT; of stage 0 where
 * deepspeed/stage0.h finds their names), frozen weights and buffers in their stored dtype,
 * aliases (tied names), and with opts->optimizer the moments as "<parameter>|exp_avg" and
 * "<parameter>|exp_avg_sq".
 * Abbreviations: ds (deepspeed), ds3 (ZeRO stage 3), ds12 (ZeRO stages 1 and 2).
 */
#ifndef CKPT_FORMATS_DEEPSPEED_DEEPSPEED_H
#define CKPT_FORMATS_DEEPSPEED_DEEPSPEED_H

#include "formats/deepspeed/parts.h"
#include "libckpt/format.h"

extern const struct ckpt_format ckpt_format_deepspeed;
/* Universal checkpoints: the row above reads them, this row writes them. */
extern const struct ckpt_format ckpt_format_universal;

/* The files of a source opened by this format, valid as long as it is open; else NULL. */
const struct ds_files *ds_source_files(const struct ckpt_source *src);
/* The directory that holds the tag's folder; NULL when that folder itself was opened. */
struct ckpt_dir *ds_source_dir(const struct ckpt_source *src);

#endif

/*
 * deepspeed - a DeepSpeed run directory seen as whole tensors; see deepspeed_layout.h for the
 * arithmetic.  Also opens a single rank's part for resuming at the same world size.
 *
 * Listed: fp32 master weights under the parameter's name (kind WEIGHT), frozen weights and
 * buffers in their stored dtype, aliases (tied names), and with opts->optimizer the moments as
 * "<parameter>|exp_avg" and "<parameter>|exp_avg_sq".
 */
#ifndef CKPT_DEEPSPEED_H
#define CKPT_DEEPSPEED_H

#include "libckpt/format.h"

extern const struct ckpt_format ckpt_format_deepspeed;

#endif

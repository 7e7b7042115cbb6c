/*
 * deepspeed - a DeepSpeed run directory seen as whole tensors; see deepspeed_layout.h for the
 * arithmetic.
 *
 * Listed: fp32 master weights under the parameter's name (kind WEIGHT; of stage 0 where
 * deepspeed_stage0 can tell them apart), frozen weights and buffers in their stored dtype,
 * aliases (tied names), and with opts->optimizer the moments as "<parameter>|exp_avg" and
 * "<parameter>|exp_avg_sq".
 */
#ifndef CKPT_DEEPSPEED_H
#define CKPT_DEEPSPEED_H

#include "libckpt/format.h"

extern const struct ckpt_format ckpt_format_deepspeed;

#endif

/*
 * write/values - Python objects that DeepSpeed files have, ready to be pickled.
 */
#ifndef CKPT_FORMATS_DEEPSPEED_WRITE_VALUES_H
#define CKPT_FORMATS_DEEPSPEED_WRITE_VALUES_H

#include "formats/container/value.h"

#define DS_VERSION "0.19.8"     /* version whose layout is written */

/* ZeroStageEnum(stage) */
struct value *ds_value_stage(struct ckpt_arena *a, int64_t stage);
/*
 * LossScaler(scale), or with dynamic a DynamicLossScaler with the counters of `now` and the
 * settings of the configuration's fp16 (DeepSpeed's defaults for absent ones).  scale NULL: 1,
 * for a dtype that needs no scaling.
 */
struct value *ds_value_scaler(struct ckpt_arena *a, bool dynamic, struct value *scale,
                              const struct value *now, const struct value *fp16);
/* fragment_address(numel, start) */
struct value *ds_value_address(struct ckpt_arena *a, int64_t numel, int64_t start);

#endif

/*
 * write/engine - the entries of a rank's files that are the same in all stages: what DeepSpeed's
 * engine puts beside the model, and the loss scaling beside the optimizer.
 */
#ifndef CKPT_FORMATS_DEEPSPEED_WRITE_ENGINE_H
#define CKPT_FORMATS_DEEPSPEED_WRITE_ENGINE_H

#include "formats/deepspeed/write/out.h"

/* Alias -> kept name. */
struct value *ds_value_shared(struct ckpt_arena *a, const struct ds_rank_state *s);
/* The last entries of a model file: counters, configuration, the client's own.  CKPT_ESTATE when a
 * client's key would shadow one of DeepSpeed's. */
int ds_put_engine(struct ckpt_arena *a, struct value *d, const struct ds_rank_state *s,
                  struct ckpt_err *err);
/* The first entries of an optim file's state.  Not 0 when memory is refused. */
int ds_put_scaler(struct ckpt_arena *a, struct value *d, int stage,
                  const struct ds_scaling *scaling);

#endif

/*
 * bnb_config - config.json of a model that is no longer quantised.
 */
#ifndef CKPT_BNB_CONFIG_H
#define CKPT_BNB_CONFIG_H

#include "libckpt/source.h"

/*
 * Replace *src by a view of it whose config.json has no quantization_config of bitsandbytes; the
 * same source when it had none.  On failure *src is closed and NULL.
 */
int bnb_config(struct ckpt_source **src, struct ckpt_err *err);

#endif

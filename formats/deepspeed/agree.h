/*
 * deepspeed/agree - check that the files of a tag belong to one save.
 */
#ifndef CKPT_FORMATS_DEEPSPEED_AGREE_H
#define CKPT_FORMATS_DEEPSPEED_AGREE_H

#include "formats/deepspeed/parts.h"

/*
 * Set stage, bf16 and step, and check that all files have the same stage, number of partitions,
 * step, version, parameters, configuration, schedule, options and loss scale.  CKPT_EFORMAT
 * "mismatch" names the rank and both values.
 */
int ds_agree(struct ds_files *f, struct ckpt_err *err);
/* The same for two stages of a pipeline, each of which has been checked. */
int ds_agree_stages(const struct ds_files *first, const struct ds_files *other,
                    struct ckpt_err *err);

#endif

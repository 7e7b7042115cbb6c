/* wandb_record - add one record of a W&B run to its log; see wandb.h. */
#ifndef CKPT_FORMATS_LOGS_WANDB_RECORD_H
#define CKPT_FORMATS_LOGS_WANDB_RECORD_H

#include "formats/logs/run_log.h"

int wandb_record_begin(struct run_log *log, struct ckpt_err *err);
int wandb_record(struct run_log *log, const unsigned char *bytes, size_t len,
                 struct ckpt_err *err);

#endif

/* wandb_out_own - what a W&B run is, for wandb_out.c and wandb_artifact.c. */
#ifndef CKPT_FORMATS_LOGS_WANDB_OUT_OWN_H
#define CKPT_FORMATS_LOGS_WANDB_OUT_OWN_H

#include <time.h>

#include "formats/logs/wandb_out.h"
#include "libckpt/base/buf.h"

#define MAX_RECORD ((size_t)64 << 20)

struct wandb_out {
    struct log_file file;
    struct ckpt_buf record, chunks;
    struct ckpt_buf next;               /* items of the history's next row */
    json_t         *summary;
    char            dir[4000], id[65], project[129];
    struct timespec start;
    uint64_t        num;                /* records */
    int64_t         step;               /* rows of the history */
};

/* Begin a record, and write it. */
struct ckpt_buf *wandb_out_begin(struct wandb_out *o);
int wandb_out_record(struct wandb_out *o, struct ckpt_err *err);

#endif

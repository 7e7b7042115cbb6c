/*
 * wandb_files - the files beside the records of a W&B run, in DIR/files: config.yaml,
 * wandb-metadata.json and wandb-summary.json.
 *
 * Source: what wandb 0.31 writes with WANDB_MODE=offline.
 */
#ifndef CKPT_FORMATS_LOGS_WANDB_FILES_H
#define CKPT_FORMATS_LOGS_WANDB_FILES_H

#include <sys/utsname.h>
#include <time.h>

#include "formats/logs/wandb_out.h"

int wandb_files_config(const char *dir, const json_t *config, struct ckpt_err *err);
int wandb_files_metadata(const char *dir, const struct wandb_out_run *run,
                         const struct utsname *host, time_t start, struct ckpt_err *err);
int wandb_files_summary(const char *dir, const json_t *summary, struct ckpt_err *err);

#endif

/*
 * wandb_out - write a W&B run that `wandb sync` takes, and send nothing: the folder
 *
 *   wandb/offline-run-YYYYMMDD_hhmmss-ID/run-ID.wandb       records; wandb.h has their layout
 *   wandb/offline-run-YYYYMMDD_hhmmss-ID/files/             config.yaml, wandb-metadata.json,
 *                                                           wandb-summary.json
 *   wandb/latest-run                                        a link to the folder
 *
 * Source: what wandb 0.31 writes with WANDB_MODE=offline.
 */
#ifndef CKPT_FORMATS_LOGS_WANDB_OUT_H
#define CKPT_FORMATS_LOGS_WANDB_OUT_H

#include <jansson.h>

#include "formats/logs/histogram.h"
#include "formats/logs/log_file.h"

struct wandb_out;

/* NULL or "": none, but of id and project. */
struct wandb_out_run {
    const char   *dir;              /* in which wandb/ lies; made with those above it */
    const char   *id, *project, *entity, *name, *group, *job_type, *notes;
    const char   *tags;             /* separated by commas */
    const char   *program;          /* its name */
    const char   *gpu;              /* what it runs on; NULL: no GPU */
    unsigned      n_gpu, n_cpu;
    uint64_t      memory;           /* of the host, bytes */
    const json_t *config;           /* an object; borrowed */
    const char   *step_metric;      /* by which all others are drawn */
};

/* CKPT_ECREATE; CKPT_EFORMAT: the id or project is not one. */
int wandb_out_open(struct wandb_out **out, const struct wandb_out_run *run, struct ckpt_err *err);
/* The folder, and the run's id. */
const char *wandb_out_dir(const struct wandb_out *o);
const char *wandb_out_id(const struct wandb_out *o);
/* A row of the history; its numbers become the summary too. */
int wandb_out_history(struct wandb_out *o, const struct log_number *v, size_t n,
                      struct ckpt_err *err);
/* A histogram of 64 buckets in the row that comes next. */
int wandb_out_histogram(struct wandb_out *o, const char *tag, const struct histogram *h,
                        struct ckpt_err *err);
/* Numbers of the summary alone. */
int wandb_out_summary(struct wandb_out *o, const struct log_number *v, size_t n,
                      struct ckpt_err *err);
/* Numbers of the machine, by W&B's names: "cpu", "proc.memory.rssMB", "gpu.0.gpu". */
int wandb_out_stats(struct wandb_out *o, const struct log_number *v, size_t n,
                    struct ckpt_err *err);
/* A line of what the program printed. */
int wandb_out_line(struct wandb_out *o, const char *line, struct ckpt_err *err);
/* A file of an artifact, as it lies on this host when the run is sent. */
struct wandb_out_file {
    const char *path;               /* in the artifact */
    const char *local;              /* an absolute path */
    uint64_t    size;
    const char *digest;             /* its MD5 in base64 */
};

struct wandb_out_artifact {
    const char   *name, *type;
    const char   *metadata;         /* a JSON object; or NULL */
    const char   *alias;
    const struct wandb_out_file *file;  /* [n], sorted by path */
    size_t        n;
};

/* Version and manifest of an artifact; `wandb sync` sends its files. */
int wandb_out_artifact(struct wandb_out *o, const struct wandb_out_artifact *a,
                       struct ckpt_err *err);
/* The end of the run, and the files beside the records.  Takes o. */
int wandb_out_end(struct wandb_out *o, int status, struct ckpt_err *err);
/* Without an end: a run that crashed, to W&B.  NULL accepted. */
void wandb_out_close(struct wandb_out *o);

#endif

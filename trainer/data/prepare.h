/*
 * prepare - split a data set into training, validation and test once, and store the parts.
 *
 *   DIR/NAME/CONFIG/train=0.8-val=0.1-test=0.1/{training,validation,test}.jsonl, .data_ready
 *
 * The cuts are those of datasets' train_test_split: first by train_ratio, then what is left by
 * val_test_ratio, both with the seed.  The folder appears complete or not at all; .data_ready is
 * JSON that names the input, and a folder made from another input is refused.
 */
#ifndef CKPT_TRAINER_DATA_PREPARE_H
#define CKPT_TRAINER_DATA_PREPARE_H

#include "formats/records/record.h"

struct prepare_opts {
    const char *dir;            /* "datasets" */
    const char *name, *config;  /* one component each */
    double      train_ratio;    /* fraction of all records, in (0, 1) */
    double      val_test_ratio; /* fraction of the rest for validation, in [0, 1] */
    uint64_t    seed;
};

/* The folder's path into path[size]. */
int prepare_path(char *path, size_t size, const struct prepare_opts *o, struct ckpt_err *err);
/* Whether path is ready and was made from n records with this seed.  CKPT_ECONFIG when it was
 * made from something else. */
int prepare_ready(bool *ready, const char *path, const struct prepare_opts *o, int64_t n,
                  struct ckpt_err *err);
int prepare_make(const char *path, const struct prepare_opts *o, struct records *all,
                 struct ckpt_err *err);

#endif

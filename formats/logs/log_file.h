/*
 * log_file - a log that a run appends records to: each is in the file whole or not at all.
 *
 * A record is one write, so that a run that is killed loses at most the record in work.  A write
 * that fails, on a full disk, is taken back to the record's beginning: what is read later is
 * whole, and a record that comes when there is space again is appended where the last whole one
 * ended.
 */
#ifndef CKPT_FORMATS_LOGS_LOG_FILE_H
#define CKPT_FORMATS_LOGS_LOG_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "libckpt/fail.h"

struct log_file {
    int      fd;                /* -1: not open */
    uint64_t size;              /* whole records */
    char     path[4200];
};

/* A number of a record. */
struct log_number {
    const char *tag;
    double      value;
};

/* fresh: the file must not be there yet; else it is appended to.  CKPT_ECREATE. */
int log_file_open(struct log_file *f, const char *path, bool fresh, struct ckpt_err *err);
/* Refuse what opening one to append to would refuse as things are now, and create nothing. */
int log_file_ready(const char *path, struct ckpt_err *err);
/* CKPT_EIO, with the file as it was before. */
int log_file_put(struct log_file *f, const void *bytes, size_t n, struct ckpt_err *err);
/* A small file beside the log, as it is now: aside and renamed, so that it is never half. */
int log_file_replace(const char *path, const void *bytes, size_t n, struct ckpt_err *err);
/* A zeroed one that was never opened is fine if fd is -1. */
void log_file_close(struct log_file *f);

#endif

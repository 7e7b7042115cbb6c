/*
 * run_log - the log of a training run: series of numbers by tag, and facts about the run.
 *
 * TensorBoard event files, W&B offline runs and nvidia-smi's CSV are read into the same shape.
 * All are appended to during a run, so an incomplete last record is not damage: it is dropped and
 * its bytes are counted.  The checksums of all records before it must match.  Memory is a few
 * times the size of the numbers, which the file's size bounds.
 */
#ifndef CKPT_FORMATS_LOGS_RUN_LOG_H
#define CKPT_FORMATS_LOGS_RUN_LOG_H

#include <jansson.h>

#include "libckpt/base/buf.h"
#include "libckpt/file.h"
#include "libckpt/base/map.h"

#define LOG_MAX_RECORD ((uint64_t)256 << 20)    /* largest record, in bytes: an event with its
                                                   images */
#define LOG_MAX_TAG    4096                     /* bytes */
#define LOG_MAX_TEXT   ((size_t)64 << 10)       /* longest text that is stored, in bytes */

struct log_point {
    int64_t step;
    double  time;               /* seconds since 1970 */
    double  value;              /* may be NaN or infinite */
};

/* All values of one kind under one tag, in file order. */
struct log_series {
    const char       *tag;
    const char       *kind;     /* "scalar"; or "text", "histogram", "image", ... */
    uint64_t          count;    /* values */
    int64_t           first_step, last_step;
    struct log_point *point;    /* [count] for a scalar; else NULL */
    size_t            cap;
    char             *text;     /* the last one, at most LOG_MAX_TEXT bytes; else NULL */
};

struct run_log {
    const char        *format;  /* "tensorboard", "wandb", "nvidia-smi" */
    struct ckpt_arena  arena;   /* tags */
    struct log_series *series;  /* by first appearance */
    size_t             n, cap;
    struct ckpt_map   *by_key;
    json_t            *info;    /* object of facts, with the format's own keys */
    uint64_t           records, torn_bytes;
};

/* Whether the first bytes of a file are those of a log that can be read here. */
bool run_log_is(const unsigned char *head, size_t len);
/* The file stays yours.  CKPT_EUNSUPPORTED when it is not a log. */
int run_log_read(struct run_log **out, struct ckpt_file *file, struct ckpt_err *err);
/* Add a later event file of the same run.  After a failure the log can still be freed. */
int run_log_add(struct run_log *log, struct ckpt_file *file, struct ckpt_err *err);
void run_log_free(struct run_log *log);

/* For the readers: add a number. */
int run_log_scalar(struct run_log *log, const void *tag, size_t len, const struct log_point *p,
                   struct ckpt_err *err);
/* Add a value that is not a number; text may be NULL. */
int run_log_other(struct run_log *log, const void *tag, size_t len, const char *kind,
                  int64_t step, const void *text, size_t text_len, struct ckpt_err *err);
/* The series of that kind and tag, or NULL. */
const struct log_series *run_log_find(const struct run_log *log, const void *tag, size_t len,
                                      const char *kind);
/* Drop scalars at this step and later: the run that logged them resumed from before. */
void run_log_purge(struct run_log *log, int64_t step);
/* info[key] = value; takes the reference. */
int run_log_fact(struct run_log *log, const char *key, json_t *value, struct ckpt_err *err);
/* The same for a text; nothing where it is NULL or not UTF-8. */
int run_log_text_fact(struct run_log *log, const char *key, const void *text, size_t n,
                      struct ckpt_err *err);

/* A window on a file that is read sequentially. */
struct run_log_window {
    struct ckpt_file *file;
    unsigned char    *data;
    size_t            len, cap;
    uint64_t          start;    /* of data in the file */
};

/* n bytes at offset, which lie inside the file; valid until the next call. */
int run_log_window_at(const unsigned char **out, struct run_log_window *w, uint64_t offset,
                      size_t n, struct ckpt_err *err);
/* Whether only zeros follow offset: after a crash, a tail that was never written. */
int run_log_window_zeros(struct run_log_window *w, uint64_t offset, bool *zeros,
                         struct ckpt_err *err);
void run_log_window_release(struct run_log_window *w);

#endif

/*
 * run_log - what a training run logged: series of numbers by tag, and facts about the run.
 *
 * TensorBoard event files, W&B offline runs and nvidia-smi's CSV are read into the same shape.
 * All are appended to while a run goes on, so a torn last record is no damage: it is left out
 * and its bytes are counted.  The checksums of all records before it must match.  Memory is a few
 * times the size of the numbers, which the file's size bounds.
 */
#ifndef CKPT_FORMATS_LOGS_RUN_LOG_H
#define CKPT_FORMATS_LOGS_RUN_LOG_H

#include <jansson.h>

#include "libckpt/base/buf.h"
#include "libckpt/file.h"
#include "libckpt/base/map.h"

#define LOG_MAX_RECORD ((uint64_t)256 << 20)    /* bytes: an event with its pictures */
#define LOG_MAX_TAG    4096                     /* bytes */
#define LOG_MAX_TEXT   ((size_t)64 << 10)       /* bytes that are kept of a text */

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
    struct log_point *point;    /* [count] of a scalar; else NULL */
    size_t            cap;
    char             *text;     /* the last one, at most LOG_MAX_TEXT bytes; else NULL */
};

struct run_log {
    const char        *format;  /* "tensorboard", "wandb", "nvidia-smi" */
    struct ckpt_arena  arena;   /* tags */
    struct log_series *series;  /* by first appearance */
    size_t             n, cap;
    struct ckpt_map   *by_key;
    json_t            *info;    /* an object: facts in the format's own words */
    uint64_t           records, torn_bytes;
};

/* Whether a file is one of those read here, by its first bytes. */
bool run_log_is(const unsigned char *head, size_t len);
/* The file stays yours. CKPT_EUNSUPPORTED when it is none. */
int run_log_read(struct run_log **out, struct ckpt_file *file, struct ckpt_err *err);
/* Add a later event file of the same run.  After a failure the log can still be freed. */
int run_log_add(struct run_log *log, struct ckpt_file *file, struct ckpt_err *err);
void run_log_free(struct run_log *log);

/* For the readers: one more number. */
int run_log_scalar(struct run_log *log, const void *tag, size_t len, const struct log_point *p,
                   struct ckpt_err *err);
/* One more value that is no number; text may be NULL. */
int run_log_other(struct run_log *log, const void *tag, size_t len, const char *kind,
                  int64_t step, const void *text, size_t text_len, struct ckpt_err *err);
/* The values of that kind under a tag, or NULL. */
const struct log_series *run_log_find(const struct run_log *log, const void *tag, size_t len,
                                      const char *kind);
/* Forget scalars at this step and later: the run that logged them did not save those steps. */
void run_log_purge(struct run_log *log, int64_t step);
/* info[key] = value, a new reference that is taken. */
int run_log_fact(struct run_log *log, const char *key, json_t *value, struct ckpt_err *err);
/* The same of a text; nothing where it is NULL or not UTF-8. */
int run_log_text_fact(struct run_log *log, const char *key, const void *text, size_t n,
                      struct ckpt_err *err);

/* A window on a file that is read from front to back. */
struct run_log_window {
    struct ckpt_file *file;
    unsigned char    *data;
    size_t            len, cap;
    uint64_t          start;    /* of data in the file */
};

/* n bytes at offset, which lie inside the file; valid until the next call. */
int run_log_window_at(const unsigned char **out, struct run_log_window *w, uint64_t offset,
                      size_t n, struct ckpt_err *err);
/* Whether only zeros follow from offset on, as a crash leaves an unwritten tail. */
int run_log_window_zeros(struct run_log_window *w, uint64_t offset, bool *zeros,
                         struct ckpt_err *err);
void run_log_window_release(struct run_log_window *w);

#endif

/*
 * dir_sink - the common part of all sinks that write a directory.
 *
 * The directory is built aside and appears whole (libckpt/commit.h).  A format's own struct
 * begins with a struct dir_sink, and a table has a function for each step:
 *
 *   plan        check the list of tensors and lay out the files; nothing is on disk yet
 *   begin       create the files in dir
 *   put_extra   one side file after another
 *   write       ranges of tensors, from any thread
 *   finish      end the files; then the record of provenance is written
 *   put_index   the file that makes the directory a checkpoint
 *   release     always, last: abort files that are still open, free memory
 */
#ifndef CKPT_FORMATS_DIR_SINK_H
#define CKPT_FORMATS_DIR_SINK_H

#include "libckpt/format.h"

struct dir_sink {
    const struct dir_sink_ops *ops;
    const struct ckpt_tensors *list;    /* kept until the sink ends */
    struct ckpt_outdir        *dir;     /* from begin on */
    const char                *record;  /* opts->record */
};

/* self is the format's struct; NULL: nothing to do, unless said otherwise. */
struct dir_sink_ops {
    const char *title;                  /* for errors: "a model directory" */
    size_t      size;                   /* bytes of the format's struct */
    int (*plan)(void *self, const struct ckpt_create_opts *opts, struct ckpt_err *err);
    int (*begin)(void *self, const struct ckpt_create_opts *opts, struct ckpt_err *err);
    /* NULL: the file is copied unchanged, see dir_sink_copy. */
    int (*put_extra)(void *self, const struct ckpt_extra *extra, struct ckpt_err *err);
    /* As in struct ckpt_sink_ops.  write NULL: bytes are written unchanged to the place that
     * locate gives. */
    int (*write)(void *self, size_t i, int64_t start, int64_t count, const void *src,
                 struct ckpt_err *err);
    bool (*locate)(void *self, size_t i, int64_t start, int64_t count,
                   struct ckpt_sink_extent *out);
    int (*finish)(void *self, struct ckpt_err *err);
    int (*put_index)(void *self, struct ckpt_err *err);
    void (*release)(void *self);        /* releases everything but dir and self */
};

/* A row's create (libckpt/format.h).  CKPT_EUNSUPPORTED when a stream is requested. */
int dir_sink_create(struct ckpt_sink **out, const struct dir_sink_ops *ops, const char *path,
                    const struct ckpt_tensors *tensors, const struct ckpt_create_opts *opts,
                    struct ckpt_err *err);
/* Copy a side file into the directory. */
int dir_sink_copy(void *self, const struct ckpt_extra *extra, struct ckpt_err *err);
/* Write value, indented and with sorted keys, and `end` after it ("" or "\n"). */
int dir_sink_put_json(struct ckpt_outdir *dir, const char *name, const json_t *value,
                      const char *end, struct ckpt_err *err);

#endif

/*
 * formats - the table of formats: recognising a path, opening it, creating an output.
 */
#ifndef CKPT_FORMATS_FORMATS_H
#define CKPT_FORMATS_FORMATS_H

#include "libckpt/format.h"

/* All rows, ended by NULL. */
const struct ckpt_format *const *ckpt_formats(void);
/* By name, or NULL. */
const struct ckpt_format *ckpt_format_named(const char *name);

/*
 * Recognise path and open it: a file, a directory, either in a tar or zip file or compressed, or
 * with "-" what comes from standard input.  opts may be NULL.  The folder of a training run
 * stands for the newest checkpoint in it (formats/run_dir.h); the fact "checkpoint" then is its
 * path.  CKPT_ENOTFOUND when absent; CKPT_EUNSUPPORTED when no format bids (with a word of its
 * own for Git LFS pointers, HTML pages, empty files, partial downloads); CKPT_EFORMAT when two
 * bid alike.
 */
int ckpt_open(struct ckpt_source **out, const char *path, const struct ckpt_open_opts *opts,
              struct ckpt_err *err);
/* The same with the format given: nothing is guessed. */
int ckpt_open_as(struct ckpt_source **out, const char *format, const char *path,
                 const struct ckpt_open_opts *opts, struct ckpt_err *err);
/*
 * What a path is before any format looks at it: the directory that it is, packs, or makes with
 * opts->part, or the file; the other one is NULL.
 */
int formats_unpack(struct ckpt_dir **dir, struct ckpt_file **file, const char *path,
                   const struct ckpt_open_opts *opts, struct ckpt_err *err);
/* The directory that ckpt_open reads, once it has found its way to it; NULL when it is a file. */
int formats_open_dir(struct ckpt_dir **dir, const char *path, const struct ckpt_open_opts *opts,
                     struct ckpt_err *err);
/* Which format a path is, without opening it. */
int ckpt_recognise(const struct ckpt_format **out, const char *path, bool follow,
                   struct ckpt_err *err);
/* Create an output of the named format.  keeps tensors until the sink ends. */
int ckpt_create(struct ckpt_sink **out, const char *format, const char *path,
                const struct ckpt_tensors *tensors, const struct ckpt_create_opts *opts,
                struct ckpt_err *err);

#endif

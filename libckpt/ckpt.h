/*
 * ckpt - read, view and write model checkpoints.  Include this header alone and link with
 * `pkg-config --libs ckpt`.  Every call is in libckpt(3); three programs to start from lie in
 * share/doc/ckpt.  The steps, in the order a program takes them:
 *
 *   open   a path of any format becomes a source: a list of tensors      ckpt_open
 *   look   names, dtypes, shapes; facts; the files beside the weights    ckpt_source_tensor ...
 *   read   a range of elements of one tensor, in any order               ckpt_source_read
 *   view   the source in other dtypes, under other names, in part        ckpt_view_cast ...
 *   copy   all tensors into a sink, with bounded memory                  ckpt_create, ckpt_copy
 *   write  or range by range, from memory                                ckpt_sink_write
 *   close  the output appears, whole, or nothing does                    ckpt_sink_commit, ...
 *
 * Calls that can fail return 0 or a negative code and fill the last argument, err (err.h,
 * codes in fail.h).
 *
 * Abbreviations: err (fail), dir (file), tensors (tensor), out and outdir (commit), sha256 and
 * xxh128 (digest), and of mem the words of C: alloc, grow, reserve, free, strdup, nomem, arena,
 * add, mul.
 */
#ifndef CKPT_LIBCKPT_CKPT_H
#define CKPT_LIBCKPT_CKPT_H

#include "libckpt/api.h"
#include "libckpt/err.h"
#include "libckpt/log.h"
#include "libckpt/mem.h"
#include "libckpt/file.h"

#define CKPT_VERSION "0.1.0"

CKPT_BEGIN_C

/* The version of the library that runs; CKPT_VERSION is that of the headers. */
const char *ckpt_version(void);

CKPT_END_C

/* Open. */
#include "libckpt/format.h"

CKPT_BEGIN_C

/*
 * Recognise path and open it: a file, a directory, either in a tar or zip file or compressed, or
 * with "-" standard input.  opts may be NULL.  The directory of a training run stands for the
 * newest checkpoint in it, whose path the fact "checkpoint" then tells.  CKPT_ENOTFOUND when
 * absent; CKPT_EUNSUPPORTED when no format bids (with a sentence of its own for Git LFS pointers,
 * HTML pages, empty files, partial downloads); CKPT_EFORMAT when two bid alike.
 */
int ckpt_open(struct ckpt_source **out, const char *path, const struct ckpt_open_opts *opts,
              struct ckpt_err *err);
/* The same with the format given: nothing is guessed. */
int ckpt_open_as(struct ckpt_source **out, const char *format, const char *path,
                 const struct ckpt_open_opts *opts, struct ckpt_err *err);
/* The format of a path, without opening it; follow: symbolic links are followed. */
int ckpt_recognise(const struct ckpt_format **out, const char *path, bool follow,
                   struct ckpt_err *err);
/* All formats, ended by NULL. */
const struct ckpt_format *const *ckpt_formats(void);
/* By name, or NULL. */
const struct ckpt_format *ckpt_format_named(const char *name);

CKPT_END_C

/* Look. */
#include "libckpt/dtype.h"
#include "libckpt/shape.h"
#include "libckpt/fragment.h"
#include "libckpt/tensor.h"
#include "libckpt/source.h"

/* Read. */
#include "libckpt/convert.h"
#include "libckpt/digest.h"

/* View. */
#include "libckpt/view.h"

/* Copy, write, close. */
#include "libckpt/commit.h"
#include "libckpt/copy.h"
#include "libckpt/sink.h"
#include "libckpt/split.h"

CKPT_BEGIN_C

/*
 * Create an output of the named format at path.  opts may be NULL; keeps tensors until the sink
 * ends.  CKPT_EUNSUPPORTED for a format that is read only.  With CKPT_DRY_RUN *out is NULL.
 */
int ckpt_create(struct ckpt_sink **out, const char *format, const char *path,
                const struct ckpt_tensors *tensors, const struct ckpt_create_opts *opts,
                struct ckpt_err *err);

CKPT_END_C

#endif

/*
 * formats - the table of formats: recognising a path, opening it, creating an output.
 *
 * Programs call ckpt_open, ckpt_open_as, ckpt_recognise, ckpt_formats, ckpt_format_named and
 * ckpt_create, which libckpt/ckpt.h declares; the functions here are for trainer/ and tools/
 * only.
 */
#ifndef CKPT_FORMATS_FORMATS_H
#define CKPT_FORMATS_FORMATS_H

#include "libckpt/ckpt.h"

/*
 * Resolve a path before any format looks at it: to the directory that it is, contains as an
 * archive, or forms with opts->part; or to the file.  The other of both is NULL.
 */
int formats_unpack(struct ckpt_dir **dir, struct ckpt_file **file, const char *path,
                   const struct ckpt_open_opts *opts, struct ckpt_err *err);
/* The directory that ckpt_open would read, after following archives and run folders; NULL when
 * it is a file. */
int formats_open_dir(struct ckpt_dir **dir, const char *path, const struct ckpt_open_opts *opts,
                     struct ckpt_err *err);

#endif

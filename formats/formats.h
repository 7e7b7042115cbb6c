/*
 * formats - the table of formats: recognising a path, opening it, creating an output.
 *
 * Programs call ckpt_open, ckpt_open_as, ckpt_recognise, ckpt_formats, ckpt_format_named and
 * ckpt_create, which libckpt/ckpt.h declares; what follows is for the floors above only.
 */
#ifndef CKPT_FORMATS_FORMATS_H
#define CKPT_FORMATS_FORMATS_H

#include "libckpt/ckpt.h"

/*
 * What a path is before any format looks at it: the directory that it is, packs, or makes with
 * opts->part, or the file; the other one is NULL.
 */
int formats_unpack(struct ckpt_dir **dir, struct ckpt_file **file, const char *path,
                   const struct ckpt_open_opts *opts, struct ckpt_err *err);
/* The directory that ckpt_open reads, once it has found its way to it; NULL when it is a file. */
int formats_open_dir(struct ckpt_dir **dir, const char *path, const struct ckpt_open_opts *opts,
                     struct ckpt_err *err);

#endif

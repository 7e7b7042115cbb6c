/*
 * file_at - what file.c, dir.c and guard.c share: a descriptor becomes a file, an errno a sentence.
 */
#ifndef CKPT_FILE_AT_H
#define CKPT_FILE_AT_H

#include "libckpt/file.h"

/* Takes fd, on failure too; refuses what is no regular file. */
int file_take_fd(struct ckpt_file **out, int fd, const char *name, unsigned flags,
                 struct ckpt_err *err);
/* ckpt_file_read_at without a look at what guards the file. */
int file_read(const struct ckpt_file *file, void *dst, size_t n, uint64_t offset,
              struct ckpt_err *err);
/* The error of an open that failed with errnum. */
int file_open_failed(struct ckpt_err *err, const char *name, int errnum);

#endif

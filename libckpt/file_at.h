/*
 * file_at - what file.c and dir.c share: a descriptor becomes a file, an errno a sentence.
 */
#ifndef CKPT_FILE_AT_H
#define CKPT_FILE_AT_H

#include "libckpt/file.h"

/* Takes fd, on failure too; refuses what is no regular file. */
int file_take_fd(struct ckpt_file **out, int fd, const char *name, struct ckpt_err *err);
/* The error of an open that failed with errnum. */
int file_open_failed(struct ckpt_err *err, const char *name, int errnum);

#endif

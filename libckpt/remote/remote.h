/*
 * remote - choose the protocol of an address: hf://, https://, s3://, oci://, git+https://.
 *
 * The result of looking at an address, or the error, is remembered for the life of the process:
 * the tools open a path more than once.
 */
#ifndef CKPT_LIBCKPT_REMOTE_REMOTE_H
#define CKPT_LIBCKPT_REMOTE_REMOTE_H

#include "libckpt/file.h"

/* True for SCHEME://..., whatever the scheme. */
bool ckpt_remote_is_address(const char *path);
/* 0 nothing, or unknown; 1 a file; 2 a directory. */
int ckpt_remote_kind(const char *address);
int ckpt_remote_file(struct ckpt_file **out, const char *address, unsigned flags,
                     struct ckpt_err *err);
int ckpt_remote_dir(struct ckpt_dir **out, const char *address, unsigned flags,
                    struct ckpt_err *err);

/* From now on all remote reads end with CKPT_ESTOPPED once *stop is true; keeps stop. */
void ckpt_remote_stop_on(const volatile int *stop);

#endif

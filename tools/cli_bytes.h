/*
 * cli_bytes - whether stdin is a list of paths or a checkpoint itself, by its first bytes: the
 * magic of tar, zip, compressed files and single-file formats cannot begin a path.
 */
#ifndef CKPT_TOOLS_CLI_BYTES_H
#define CKPT_TOOLS_CLI_BYTES_H

#include <stdbool.h>
#include <stddef.h>

#include "libckpt/fail.h"

#define CLI_HEAD 512

/*
 * Wait for stdin's first bytes and classify them.  n of them were consumed and are in head; 0
 * where stdin can be read from its start again.  end is the byte that ends a line.
 */
int cli_look(unsigned char head[CLI_HEAD], size_t *n, int end, bool *bytes, struct ckpt_err *err);
/* Make stdin seekable, so that it can be read at any offset and more than once. */
int cli_settle(const unsigned char *head, size_t n, struct ckpt_err *err);

#endif

/*
 * cli_bytes - is stdin a list of paths, or a checkpoint itself?  Told by its first bytes: those of
 * tar, zip, what compresses, and the formats of one file are no line that names a path.
 */
#ifndef CKPT_TOOLS_CLI_BYTES_H
#define CKPT_TOOLS_CLI_BYTES_H

#include <stdbool.h>
#include <stddef.h>

#include "libckpt/fail.h"

#define CLI_HEAD 512

/*
 * Wait for stdin's first bytes and tell what they are.  n of them were taken and lie in head;
 * none where stdin can be read from its start again.  end is what ends a line.
 */
int cli_look(unsigned char head[CLI_HEAD], size_t *n, int end, bool *bytes, struct ckpt_err *err);
/* Make stdin a file that can be read at any offset, as often as wanted. */
int cli_settle(const unsigned char *head, size_t n, struct ckpt_err *err);

#endif

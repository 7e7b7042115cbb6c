/*
 * ask - run a program that answers at once: text to its input, its output as text.
 *
 * For programs that hold credentials (git credential, ssh host git-lfs-authenticate): what it
 * prints is not logged.
 */
#ifndef CKPT_LIBCKPT_BASE_ASK_H
#define CKPT_LIBCKPT_BASE_ASK_H

#include "libckpt/base/buf.h"

/*
 * argv ends with NULL; argv[0] is found by PATH.  out has a limit; what is printed beyond it is
 * CKPT_ELIMIT.  CKPT_ENOTFOUND when there is no such program, CKPT_EREFUSED when its status is not
 * 0, CKPT_ESTOPPED when it has not ended after seconds.  Its messages are lost with quiet, else
 * they go to standard error.
 */
int ckpt_ask(struct ckpt_buf *out, const char *const *argv, const char *input, int seconds,
             bool quiet, struct ckpt_err *err);

#endif

/*
 * cli_lines - lines of standard input: paths and addresses, one a line.
 */
#ifndef CKPT_TOOLS_CLI_LINES_H
#define CKPT_TOOLS_CLI_LINES_H

#include <stdbool.h>
#include <stddef.h>

#include "libckpt/fail.h"

/* No path or address is longer; a stream without line ends must not fill memory. */
#define CLI_MAX_LINE 65536

struct cli_lines {
    int                  end;           /* the byte that ends a line: '\n', or NUL */
    int                  quit;          /* a descriptor that ends the waiting when it is readable
                                           or closed at its other end, or -1 */
    const unsigned char *head;          /* bytes read already, before those of the descriptor */
    size_t               n_head, at;
    size_t               n_line;        /* lines read so far */
    unsigned char        buffer[4096];
    char                 line[CLI_MAX_LINE];
};

/*
 * The next line that is not empty, in l->line with its NUL; *more is false at the end of input,
 * and when quit says so.  CKPT_ELIMIT, CKPT_EFORMAT for a NUL byte within, CKPT_EIO; CKPT_ESTOPPED
 * when a signal that asks to stop comes while it waits.
 */
int cli_lines_next(struct cli_lines *l, bool *more, struct ckpt_err *err);

#endif

/*
 * cli_lines - read lines of standard input: one path or address per line, or an object with one.
 */
#ifndef CKPT_TOOLS_CLI_LINES_H
#define CKPT_TOOLS_CLI_LINES_H

#include <stdbool.h>
#include <stddef.h>

#include "libckpt/fail.h"

/* Longer than any path or address; a stream without line ends must not fill memory. */
#define CLI_MAX_LINE 65536

struct cli_lines {
    int                  end;           /* the byte that ends a line: '\n', or NUL */
    int                  quit;          /* a descriptor that ends the waiting when it is readable
                                           or its other end is closed, or -1 */
    bool                 peek;          /* bytes stay in the pipe until the lines that they
                                           end were given */
    int                  copy[2];       /* a pipe of their copies; for peek */
    size_t               peeked;        /* bytes to take out of the pipe */
    const unsigned char *head;       /* bytes read already, which precede those of the descriptor */
    size_t               n_head, at;
    size_t               n_line;        /* lines read so far */
    unsigned char        buffer[4096];
    char                 line[CLI_MAX_LINE];
};

/* Set peek where standard input is a pipe: who writes it sees then what was given out. */
void cli_lines_peek(struct cli_lines *l);
void cli_lines_end(struct cli_lines *l);
/*
 * The next non-empty line, in l->line with its NUL, or "path" of the object that it is; *more is
 * false at the end of input, and when quit ends the waiting.  CKPT_ELIMIT, CKPT_EFORMAT for a NUL
 * byte within and for an object without a path, CKPT_EIO;
 * CKPT_ESTOPPED when a signal asks to stop while it waits.
 */
int cli_lines_next(struct cli_lines *l, bool *more, struct ckpt_err *err);

#endif

/*
 * progress - how far long work has come, on stderr.
 *
 * On a terminal one line is drawn, at most five times a second, and erased at the end and before
 * any other line.  Elsewhere a line is printed now and then, when nothing else has been for a
 * while.  With -q there is neither.  The rate is that of the last seconds; how long it takes is
 * not guessed before two of them.
 */
#ifndef CKPT_TOOLS_PROGRESS_H
#define CKPT_TOOLS_PROGRESS_H

#include <stddef.h>
#include <stdint.h>

#include "tools/cli.h"

struct progress;

/* Show what libraries tell through ckpt_log_progress.  cli is kept until progress_stop. */
void progress_start(const struct cli *cli);
void progress_stop(void);
/* Before anything else is printed: erase the line; it is drawn again with the next tick. */
void progress_hide(void);

struct progress *progress_new(const struct cli *cli, const char *what, bool bytes);
/* Fits ckpt_copy_progress_fn with the progress as context. */
void progress_tick(void *progress, uint64_t done, uint64_t total);
/* Erase the line and release; NULL accepted. */
void progress_end(struct progress *p);

/* Where work was at some times of the last seconds. */
#define PROGRESS_MARKS 20

struct progress_window {
    struct { double t; uint64_t done; } mark[PROGRESS_MARKS];
    size_t n;
    double start;
};

void progress_window_add(struct progress_window *w, double t, uint64_t done);
/* Units a second at time t; 0 while that cannot be told yet. */
double progress_window_rate(const struct progress_window *w, double t, uint64_t done);
/* "what: 3 of 9 steps, 1.5/s, 4 s left"; unit NULL: bytes.  Without a rate neither it nor the
 * time. */
char *progress_text(char dst[200], const char *what, const char *unit, uint64_t done,
                    uint64_t total, double rate);

#endif

/*
 * progress - progress of long work, on stderr.
 *
 * On a terminal one line is drawn, at most five times a second, and erased at the end and before
 * any other line.  Elsewhere a line is printed when nothing else has been for a while.  With -q
 * there is neither.  The rate is that of the last seconds; the remaining time is not estimated
 * before two seconds have passed.
 */
#ifndef CKPT_TOOLS_PROGRESS_H
#define CKPT_TOOLS_PROGRESS_H

#include <stddef.h>
#include <stdint.h>

#include "tools/cli.h"

struct progress;

/* Show the progress that libraries report through ckpt_log_progress.  cli is kept until
 * progress_stop. */
void progress_start(const struct cli *cli);
void progress_stop(void);
/* Erase the line before anything else is printed; the next tick draws it again. */
void progress_hide(void);

struct progress *progress_new(const struct cli *cli, const char *what, bool bytes);
/* A ckpt_copy_progress_fn whose context is the progress. */
void progress_tick(void *progress, uint64_t done, uint64_t total);
/* Erase the line and release; NULL accepted. */
void progress_end(struct progress *p);

/* How much was done at some times of the last seconds. */
#define PROGRESS_MARKS 20

struct progress_window {
    struct { double t; uint64_t done; } mark[PROGRESS_MARKS];
    size_t n;
    double start;
};

void progress_window_add(struct progress_window *w, double t, uint64_t done);
/* Units a second at time t; 0 while that is unknown. */
double progress_window_rate(const struct progress_window *w, double t, uint64_t done);
/* "what: 3 of 9 steps, 1.5/s, 4 s left"; unit NULL: bytes.  Without a rate, neither rate nor
 * time are shown. */
char *progress_text(char dst[200], const char *what, const char *unit, uint64_t done,
                    uint64_t total, double rate);

#endif

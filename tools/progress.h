/*
 * progress - progress of long work, on stderr.
 *
 * On a terminal one line with a bar is drawn, at most five times a second, as wide as fits; it is
 * erased at the end, and drawn anew below any other line.  Elsewhere a line is printed when nothing
 * else has been for a while.  With -q there is neither.  The rate is that of the last seconds; the
 * remaining time is not estimated before two seconds have passed.
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
/* Lines that are printed now and then instead of a bar, also on a terminal. */
void progress_plain(void);
/* This process shows no progress: another rank does. */
void progress_silent(void);
/* Erase the line before anything else is printed; progress_back, or the next tick, draws it
 * again. */
void progress_hide(void);
void progress_back(void);

/* What else is said of training; NaN: unknown. */
struct progress_facts {
    double epoch, num_epochs, loss, tokens_per_second;
    double memory;              /* MiB */
    size_t files, n_files;      /* done, of how many; 0: not counted */
};

/* Of the work with this name, from now on. */
void progress_tell(const char *what, const struct progress_facts *facts);

struct progress *progress_new(const struct cli *cli, const char *what, bool bytes);
/* A ckpt_copy_progress_fn whose context is the progress. */
void progress_tick(void *progress, uint64_t done, uint64_t total);
/* Of so many files so many are done. */
void progress_files(struct progress *p, size_t done, size_t n);
/* Erase the line and release; NULL accepted. */
void progress_end(struct progress *p);

#define PROGRESS_LINE 300

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
char *progress_text(char dst[PROGRESS_LINE], const char *what, const char *unit, uint64_t done,
                    uint64_t total, double rate);
/* The same with facts (NULL: none) for a line of its own. */
char *progress_note(char dst[PROGRESS_LINE], const char *what, const char *unit, uint64_t done,
                    uint64_t total, double rate, const struct progress_facts *facts);
/* The same as a bar that fits into so many columns, 20 at least; what is least important goes
 * first. */
char *progress_bar(char dst[PROGRESS_LINE], int columns, const char *what, const char *unit,
                   uint64_t done, uint64_t total, double rate,
                   const struct progress_facts *facts);

#endif

/*
 * progress - a rate-limited line on a terminal: done, total, rate, time left; erased at the end.
 * Nothing is drawn when stderr is no terminal or with -q.
 */
#ifndef CKPT_PROGRESS_H
#define CKPT_PROGRESS_H

#include <stdint.h>

#include "tools/cli.h"

struct progress;

struct progress *progress_new(const struct cli *cli, const char *what, bool bytes);
/* Fits ckpt_progress_fn with the progress as context. */
void progress_tick(void *progress, uint64_t done, uint64_t total);
/* Erase the line and release; NULL accepted. */
void progress_end(struct progress *p);

#endif

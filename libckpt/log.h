/*
 * log - one hook for diagnostics.  The library never prints: it calls the hook that the program
 * has installed; without one, diagnostics are dropped.
 */
#ifndef CKPT_LIBCKPT_LOG_H
#define CKPT_LIBCKPT_LOG_H

#include <stdint.h>

#include "libckpt/api.h"
#include "libckpt/fail.h"

CKPT_BEGIN_C

enum ckpt_log_level { CKPT_LOG_ERROR, CKPT_LOG_WARNING, CKPT_LOG_NOTE, CKPT_LOG_DEBUG };

/* Called with one line, no newline.  May be called by any thread, one call at a time. */
typedef void ckpt_log_fn(void *ctx, enum ckpt_log_level level, const char *line);

/* Install the hook (NULL removes it).  Call before threads start; ctx is kept until replaced. */
void ckpt_log_hook(ckpt_log_fn *fn, void *ctx);

void ckpt_log(enum ckpt_log_level level, const char *fmt, ...) CKPT_PRINTF(2, 3);

/*
 * Progress of long work: done of total, in unit ("steps"; NULL: bytes).  May be called often, by
 * any thread; done == total ends it.  what and unit are string constants.
 */
typedef void ckpt_log_progress_fn(void *ctx, const char *what, const char *unit, uint64_t done,
                                  uint64_t total);
void ckpt_log_progress_hook(ckpt_log_progress_fn *fn, void *ctx);
void ckpt_log_progress(const char *what, const char *unit, uint64_t done, uint64_t total);
/* From now on what the calling thread does is not shown: it works beside one that tells more. */
void ckpt_log_progress_mute(void);
/* How often that was called so far: whether work goes on. */
uint64_t ckpt_log_progress_calls(void);

CKPT_END_C

#endif

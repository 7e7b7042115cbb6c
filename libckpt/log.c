/* log - see log.h. */
#include "libckpt/log.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "libckpt/base/secret.h"

static pthread_mutex_t hook_lock = PTHREAD_MUTEX_INITIALIZER;
static ckpt_log_fn *hook_fn;
static void *hook_ctx;

void ckpt_log_hook(ckpt_log_fn *fn, void *ctx)
{
    pthread_mutex_lock(&hook_lock);
    hook_fn = fn;
    hook_ctx = ctx;
    pthread_mutex_unlock(&hook_lock);
}

void ckpt_log(enum ckpt_log_level level, const char *fmt, ...)
{
    char raw[1024], line[1100];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(raw, sizeof raw, fmt, ap);
    va_end(ap);
    ckpt_secret_mask(raw);
    ckpt_err_escape(line, sizeof line, raw, strlen(raw));
    pthread_mutex_lock(&hook_lock);
    if (hook_fn)
        hook_fn(hook_ctx, level, line);
    pthread_mutex_unlock(&hook_lock);
}

static ckpt_log_progress_fn *progress_fn;
static void *progress_ctx;
static uint64_t progress_calls;

void ckpt_log_progress_hook(ckpt_log_progress_fn *fn, void *ctx)
{
    pthread_mutex_lock(&hook_lock);
    progress_fn = fn;
    progress_ctx = ctx;
    pthread_mutex_unlock(&hook_lock);
}

static _Thread_local bool progress_muted;

void ckpt_log_progress_mute(void) { progress_muted = true; }

void ckpt_log_progress(const char *what, const char *unit, uint64_t done, uint64_t total)
{
    __atomic_add_fetch(&progress_calls, 1, __ATOMIC_RELAXED);
    pthread_mutex_lock(&hook_lock);
    if (progress_fn && !progress_muted)
        progress_fn(progress_ctx, what, unit, done, total);
    pthread_mutex_unlock(&hook_lock);
}

uint64_t ckpt_log_progress_calls(void)
{
    return __atomic_load_n(&progress_calls, __ATOMIC_RELAXED);
}

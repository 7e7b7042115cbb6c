/* clock - monotonic time. */
#ifndef CKPT_TRAINER_CLOCK_H
#define CKPT_TRAINER_CLOCK_H

#include <stdint.h>
#include <time.h>

/* Seconds since some moment. */
static inline double clock_now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static inline int64_t clock_ms(void) { return (int64_t)(clock_now() * 1e3); }

#endif

/*
 * profile - when a run's operations are timed: ten steps after three to warm up, fewer in
 * a short run; then the table goes to the log.
 */
#ifndef CKPT_TRAINER_TELL_PROFILE_H
#define CKPT_TRAINER_TELL_PROFILE_H

#include <stdint.h>

#include "libckpt/fail.h"

struct device;
struct profile;

/* A zeroed struct has not begun. */
struct profile_run {
    struct profile *on;
    int64_t         from;           /* steps done when it began */
};

/* Between two steps: so many are done, of all that this run does. */
int profile_advance(struct profile_run *r, struct device *dev, int64_t done, int64_t all,
                     struct ckpt_err *err);
/* The run is over, however. */
void profile_end(struct profile_run *r);

#endif

/*
 * verdict - whether a try is over, and what it came to.
 */
#ifndef CKPT_TRAINER_LAUNCH_VERDICT_H
#define CKPT_TRAINER_LAUNCH_VERDICT_H

#include "trainer/launch/watch.h"

/* Whether all is over; what is found goes to w->verdict. */
bool verdict_over(struct watch *w);
/* The run's status, to w->end: of a failure, of what the supervisor found, of the ranks
 * themselves. */
void verdict_settle(struct watch *w);

#endif

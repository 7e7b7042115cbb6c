/*
 * checkpoint/replicas - whether all groups of hybrid sharding have the same.
 *
 * One group of each folder writes a checkpoint for all.  What the others hold is lost then: it must
 * be what that group holds, bit for bit.
 */
#ifndef CKPT_TRAINER_CHECKPOINT_REPLICAS_H
#define CKPT_TRAINER_CHECKPOINT_REPLICAS_H

#include "trainer/run/session.h"

/*
 * Compare a digest of this rank's trained weights and moments with the first group's.  Collective;
 * to be agreed upon.  CKPT_ECOMM (reason "replicas-differ") where it is another.
 */
int replicas_check(struct session *s, struct ckpt_err *err);

#endif

/*
 * comm/same - what all ranks of a run must have alike.
 */
#ifndef CKPT_TRAINER_COMM_SAME_H
#define CKPT_TRAINER_COMM_SAME_H

#include <stddef.h>

#include "trainer/comm/comm.h"

/*
 * Compare n lines "NAME VALUE" with rank 0's.  CKPT_ECONFIG on every rank, with the first line
 * that differs on the lowest rank that has another.  Collective.
 */
int comm_same(struct comm *c, const char *const *line, size_t n, struct ckpt_err *err);

#endif

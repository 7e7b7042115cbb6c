/*
 * zero_copy - a copy of what a rank has of weights and moments, on the host, to be read in another
 * thread while steps go on.
 *
 * It reads like the zero it is a copy of (zero.h, "between arrays and the host"), through a device
 * and a communicator of its own.  On a GPU it is made on OP_STREAM_OUT beside the next step's
 * passes, and the step's optimizer waits for it.  It has what a checkpoint holds: not the frozen
 * base of an adapter, whose memory is asked for and never touched.
 */
#ifndef CKPT_TRAINER_SHARD_ZERO_COPY_H
#define CKPT_TRAINER_SHARD_ZERO_COPY_H

#include "trainer/shard/zero.h"

struct zero_copy;

/*
 * Memory for it, page-locked where a GPU copies, unless the base is frozen.  comm: the ranks that
 * share the weights, as the readers' thread meets them; it and z outlive the copy.  holds false:
 * nobody reads values on this rank, and none are copied.
 */
int zero_copy_new(struct zero_copy **out, struct zero *z, struct comm *comm, bool holds,
                  struct ckpt_err *err);
void zero_copy_free(struct zero_copy *c);
/* The bytes that such a copy holds; and of what zero_new would make of such options. */
uint64_t zero_copy_bytes(const struct zero *z);
int zero_copy_plan(uint64_t *bytes, const struct params *params, const struct zero_opts *opts,
                   int world_size, const struct device *dev, struct ckpt_err *err);
/* Begin to copy what is there now.  Nobody may read it before zero_copy_wait. */
void zero_copy_take(struct zero_copy *c);
/* Until it is there; what the device failed with. */
int zero_copy_wait(struct zero_copy *c, struct ckpt_err *err);
/* To be read. */
struct zero *zero_copy_zero(const struct zero_copy *c);

#endif

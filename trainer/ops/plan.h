/*
 * plan - a list of needed buffers (name, bytes, life-time) -> one arena with offsets.
 *
 * Time is any increasing count of a pass's phases.  Two buffers that are never alive in the
 * same phase may share bytes; a buffer is alive in every phase of [first, last].  Placement is
 * greedy, largest first, each at the lowest offset that is free for its whole life: for the
 * nested life-times of a forward and backward pass it meets or nearly meets the lower bound,
 * which is the peak of bytes alive at once.
 */
#ifndef CKPT_TRAINER_OPS_PLAN_H
#define CKPT_TRAINER_OPS_PLAN_H

#include <stddef.h>
#include <stdint.h>

#include "libckpt/fail.h"

#define PLAN_ALIGN 256u             /* of every offset: what alloc of ops.h gives */

struct plan_item {
    const char *name;               /* borrowed, for messages and listings */
    uint64_t    bytes;
    int         first, last;        /* phases, both alive */
    uint64_t    offset;             /* after plan_pack */
};

/* A zeroed struct is an empty plan. */
struct plan {
    struct plan_item *item;
    size_t            n, cap;
    uint64_t          bytes;        /* of the arena, after plan_pack */
    int               failed;       /* code of a refused add; plan_pack tells */
};

/* Index of the new buffer.  Failures are sticky and told by plan_pack. */
size_t plan_add(struct plan *p, const char *name, uint64_t bytes, int first, int last);
/* Place everything.  CKPT_ENOMEM; CKPT_ELIMIT when sizes overflow. */
int plan_pack(struct plan *p, struct ckpt_err *err);
/* The most bytes alive in one phase: no placement can need less. */
uint64_t plan_peak(const struct plan *p);
/* Where buffer i lies in an arena that starts at base. */
void *plan_at(const struct plan *p, void *base, size_t i);
void plan_release(struct plan *p);

#endif

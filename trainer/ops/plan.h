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
    void      **to[2];              /* where its address goes; NULL: nowhere */
    uint64_t    bytes;
    int         first, last;        /* phases, both alive */
    uint64_t    offset;             /* after plan_pack */
};

/* A zeroed struct is an empty plan. */
struct plan {
    struct plan_item *item;
    size_t            n, cap;
    uint64_t          bytes;        /* of the arena, after plan_pack */
    int               failed;       /* code of a refused add, which plan_pack returns */
};

/*
 * Index of the new buffer, whose address plan_hand_out writes to *to (NULL: nowhere).  Failures are
 * sticky and returned by plan_pack.
 */
size_t plan_add(struct plan *p, void **to, const char *name, uint64_t bytes, int first, int last);
/* Buffer i's address goes to *also as well. */
void plan_share(struct plan *p, size_t i, void **also);
/* Place everything.  CKPT_ENOMEM; CKPT_ELIMIT when sizes overflow. */
int plan_pack(struct plan *p, struct ckpt_err *err);
/* Write the addresses of all buffers, in an arena that starts at base. */
void plan_hand_out(const struct plan *p, void *base);
void plan_release(struct plan *p);

#endif

/*
 * pickle/walk - which names a pickle asks for, whatever else is wrong with it.
 *
 * pickle.h refuses what is not as a pickle should be; who looks for danger goes on, since a
 * loader would have run by then what came before.  The walk follows the stack only as far as
 * names, texts and small tuples need it; a stack that is empty gives values that are unknown.
 * Names in pickles within byte strings are found too.
 *
 * Between the opcodes of joblib's files stand the bytes of arrays: one padding byte with its
 * padding where the wrapper's state says numpy_array_alignment_bytes, then the elements; arrays
 * of objects are pickles.  Source: joblib 1.5 numpy_pickle.py; opcodes as in pickle.h.
 */
#ifndef CKPT_FORMATS_CONTAINER_PICKLE_WALK_H
#define CKPT_FORMATS_CONTAINER_PICKLE_WALK_H

#include <stdbool.h>
#include <stddef.h>

#include "libckpt/fail.h"
#include "libckpt/mem.h"

#define PICKLE_WALK_ODDS 16u

/* A name, told once. */
struct pickle_use {
    const char *module, *name;
    size_t      at;             /* offset of the opcode that asks for it first */
    bool        called;         /* some call of it is recorded, or a call within a call */
    bool        member;         /* getattr asks for a member of it */
};

/* What is strange about a pickle that is no name. */
struct pickle_odd {
    const char *what;
    size_t      at;
    bool        dangerous;      /* or only what checkpoints do not do */
};

struct pickle_walk {
    struct ckpt_arena  arena;
    struct pickle_use *use;
    size_t             n_use, cap_use;
    struct pickle_odd  odd[PICKLE_WALK_ODDS];   /* the first ones */
    size_t             n_odd;
    size_t             end;         /* after STOP, or where the walk gave up */
    bool               stopped;     /* STOP was met */
    bool               cut;         /* the bytes ended before */
    bool               called;      /* a loader would have called something */
    bool               arrays;      /* bytes of joblib's arrays stand in it */
    bool               getattr;     /* is used otherwise than as getattr(a class, "MEMBER") */
    const char        *broken;      /* the first thing that a loader would stop at, or NULL */
    size_t             broken_at;
};

/*
 * Walk the pickle at the start of n bytes; w is zeroed before the first, and gathers names when it
 * is given again.  CKPT_ENOMEM; CKPT_ELIMIT when there is more than is followed.
 */
int pickle_walk(struct pickle_walk *w, const void *bytes, size_t n, struct ckpt_err *err);
void pickle_walk_release(struct pickle_walk *w);

#endif

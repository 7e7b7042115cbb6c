/*
 * pickle/walk - the names that a pickle refers to, even if the pickle is malformed.
 *
 * pickle.h refuses malformed pickles; a search for danger continues, since a loader would have
 * run everything up to the fault.  The walk tracks the stack only as far as names, texts and
 * small tuples need it; an empty stack gives unknown values.  Names in pickles within byte
 * strings are found too.
 *
 * Between the opcodes of joblib's files are the bytes of arrays: a byte with the padding's length
 * and the padding, where the wrapper's state has numpy_array_alignment_bytes, then the elements;
 * arrays of objects are pickles.  Source: joblib 1.5 numpy_pickle.py; opcodes as in pickle.h.
 */
#ifndef CKPT_FORMATS_CONTAINER_PICKLE_WALK_H
#define CKPT_FORMATS_CONTAINER_PICKLE_WALK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "libckpt/fail.h"
#include "libckpt/mem.h"

#define PICKLE_WALK_ODDS 16u

/* A name, listed once. */
struct pickle_use {
    const char *module, *name;
    size_t      at;             /* offset of the first opcode that refers to it */
    bool        called;         /* it is called, or the result of a call of it is */
    bool        member;         /* getattr takes a member of it */
};

/* A suspicious fact about a pickle, other than a name. */
struct pickle_odd {
    const char *what;
    size_t      at;
    bool        dangerous;      /* else it is only unusual for checkpoints */
};

struct pickle_walk {
    struct ckpt_arena  arena;
    struct pickle_use *use;
    size_t             n_use, cap_use;
    struct pickle_odd  odd[PICKLE_WALK_ODDS];   /* the first ones */
    size_t             n_odd;
    uint64_t           steps;       /* opcodes that were followed */
    size_t             end;         /* offset after STOP, or where the walk gave up */
    bool               stopped;     /* STOP was met */
    bool               cut;         /* the bytes ended before STOP */
    bool               called;      /* a loader would have called something */
    bool               arrays;      /* contains bytes of joblib's arrays */
    bool               getattr;     /* getattr is used other than as getattr(a class, "MEMBER") */
    const char        *broken;      /* the first fault that would stop a loader, or NULL */
    size_t             broken_at;
};

/*
 * Walk the pickle at the start of n bytes; w is zeroed before the first, and accumulates names
 * when it is passed again.  CKPT_ENOMEM; CKPT_ELIMIT when the pickle is larger than the walk's
 * limits.
 */
int pickle_walk(struct pickle_walk *w, const void *bytes, size_t n, struct ckpt_err *err);
void pickle_walk_release(struct pickle_walk *w);

#endif

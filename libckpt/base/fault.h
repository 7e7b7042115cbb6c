/*
 * fault - make the n-th operation fail, for tests.  Compiled in by -DCKPT_FAULTS only; in other
 * builds every query is the constant false and nothing can arm it.
 *
 * Counters are process-wide and count per kind.  The environment is read once, at the first
 * query: CKPT_FAULT=kind:n[:kill], kind one of alloc read write sync rename open.  The n-th
 * operation of that kind (from 1) fails with ENOMEM/EIO/ENOSPC, or kills the process.
 */
#ifndef CKPT_LIBCKPT_BASE_FAULT_H
#define CKPT_LIBCKPT_BASE_FAULT_H

#include <stdbool.h>

enum ckpt_fault { CKPT_FAULT_ALLOC, CKPT_FAULT_READ, CKPT_FAULT_WRITE, CKPT_FAULT_SYNC,
                  CKPT_FAULT_RENAME, CKPT_FAULT_OPEN, CKPT_FAULT_KINDS };

#ifdef CKPT_FAULTS
/* True when this operation is the one to fail. */
bool ckpt_fault(enum ckpt_fault kind);
/* Arm from a test: fail the n-th operation of kind from now on (0 disarms). */
void ckpt_fault_arm(enum ckpt_fault kind, unsigned long n);
/* True when an armed operation has been reached since arming. */
bool ckpt_fault_struck(void);
#else
static inline bool ckpt_fault(enum ckpt_fault kind)
{
    (void)kind;
    return false;
}
#endif

#endif

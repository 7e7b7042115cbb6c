/*
 * pickle - a pickle machine that builds values and calls nothing.
 *
 * Protocols 0 to 5 by one table of opcodes.  GLOBAL makes a name, REDUCE, NEWOBJ, OBJ, INST and
 * BUILD make records; there is no operation that looks anything up or runs it.
 * Source: CPython 3.13 Lib/pickle.py and Lib/pickletools.py.
 */
#ifndef CKPT_FORMATS_CONTAINER_PICKLE_PICKLE_H
#define CKPT_FORMATS_CONTAINER_PICKLE_PICKLE_H

#include "formats/container/value.h"
#include "libckpt/base/buf.h"

#define PICKLE_MAX_STACK 1048576u
#define PICKLE_MAX_MEMO  16777216u
#define PICKLE_MAX_TEXT  ((size_t)64 << 20)
#define PICKLE_MAX_DEPTH 512

/*
 * Run one pickle at the cursor up to STOP; the cursor moves after it.  *out lives in arena.
 * names, if not NULL, gets every global in order, including those that are not in the value
 * (popped, or of a pickle that fails later).  CKPT_EFORMAT names opcode and offset; CKPT_ELIMIT
 * the budget.  The cursor is failed when the bytes ended too early.
 */
int pickle_read(struct value **out, struct ckpt_cursor *c, struct ckpt_arena *arena,
                struct value_seq *names, struct ckpt_err *err);

#endif

/*
 * err - the error record: a code that says what the caller can do, and one sentence.
 *
 * The record is owned by the caller, has a fixed size (so that out-of-memory can be told too) and
 * is never NULL and never global.  Its content before a call does not matter: a failing call
 * fills it, a successful one need not touch it, so only the return code says whether a call
 * failed.  Text from files is escaped on its way in: control bytes, ESC, line ends and
 * bidirectional controls never reach a terminal.
 */
#ifndef CKPT_LIBCKPT_ERR_H
#define CKPT_LIBCKPT_ERR_H

#include "libckpt/fail.h"

struct ckpt_err {
    int      code;           /* enum ckpt_code of the last failure, 0 when none */
    char     reason[32];     /* stable word for programs: "truncated", "overlap", ... or "" */
    char     text[1024];     /* the sentence: lower case, no newline, no full stop */
    char     hint[256];      /* what to try, or "" */
};

#endif

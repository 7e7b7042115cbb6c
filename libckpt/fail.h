/*
 * fail - the codes of failures, and the calls that fill an error record (err.h).
 *
 * Headers that only name the record, and files that only fill it, include this header instead of
 * err.h and are not recompiled when the record changes.
 */
#ifndef CKPT_LIBCKPT_FAIL_H
#define CKPT_LIBCKPT_FAIL_H

#include <stddef.h>
#include <stdint.h>

#include "libckpt/api.h"

CKPT_BEGIN_C

struct ckpt_err;

/* Each code says what the caller can do about it.  Exit statuses are those of sysexits(3). */
enum ckpt_code {
    CKPT_OK           = 0,
    CKPT_ENOTFOUND    = -1,  /* the requested thing is absent, or not a regular file: exit 66 */
    CKPT_EFORMAT      = -2,  /* bytes contradict the format or themselves: exit 65 */
    CKPT_EUNSUPPORTED = -3,  /* legal, but not read or written here: exit 65 */
    CKPT_EMISMATCH    = -4,  /* two inputs do not belong together: exit 65 */
    CKPT_ELIMIT       = -5,  /* beyond a stated limit: exit 65 */
    CKPT_EREFUSED     = -6,  /* would execute, unsafe path, not permitted: exit 77 */
    CKPT_ECREATE      = -7,  /* output cannot be created: exit 73 */
    CKPT_EIO          = -8,  /* read, write, sync or close failed: exit 74 */
    CKPT_ENOMEM       = -9,  /* memory, processes or descriptors ran out: exit 71 */
    CKPT_EDEVICE      = -10, /* a device or service is not available: exit 69 */
    CKPT_ECOMM        = -11, /* a peer rank failed; run again: exit 75 */
    CKPT_ESTATE       = -12, /* call out of order, our bug: exit 70 */
    CKPT_EUSAGE       = -13, /* an argument or the command line is wrong: exit 64 */
    CKPT_ECONFIG      = -14, /* a configuration is wrong: exit 78 */
    CKPT_EPROTOCOL    = -15, /* a server broke the protocol: exit 76 */
    CKPT_ESTOPPED     = -16, /* stopped without loss, run again: exit 75 */
    CKPT_ENO          = -17  /* ran to the end, the answer is no: exit 1 */
};

/*
 * Fill err and return code, so that failing is one statement.  The sentence names the thing,
 * the value found and the value wanted.  ckpt_fail_as also sets the reason word; ckpt_fail
 * leaves a default that follows from the code.
 */
int ckpt_fail(struct ckpt_err *err, int code, const char *fmt, ...) CKPT_PRINTF(3, 4);
int ckpt_fail_as(struct ckpt_err *err, int code, const char *reason, const char *fmt, ...)
    CKPT_PRINTF(4, 5);

/* As ckpt_fail, with ": " and the text of errno value errnum after the sentence.  The code is
 * CKPT_ENOMEM where errnum says that memory or descriptors ran out. */
int ckpt_fail_errno(struct ckpt_err *err, int code, int errnum, const char *fmt, ...)
    CKPT_PRINTF(4, 5);

/* Put "context: " in front of the sentence, unless that begins with "context:" or "context/", or
 * with a path of which context is a part.  Returns err->code, for use in a return. */
int ckpt_err_in(struct ckpt_err *err, const char *fmt, ...) CKPT_PRINTF(2, 3);

/* Set the hint.  Returns err->code. */
int ckpt_err_hint(struct ckpt_err *err, const char *fmt, ...) CKPT_PRINTF(2, 3);

/* Forget what is in err. */
void ckpt_err_clear(struct ckpt_err *err);

/*
 * The code of a failed call that returned something other than a code: a pointer, a bool.  Never
 * 0: an empty record becomes CKPT_ESTATE with a sentence, so that a failure cannot pass for
 * success.
 */
int ckpt_err_code(struct ckpt_err *err);

/* The exit status that belongs to a code (0 for CKPT_OK). */
int ckpt_err_status(int code);

/*
 * Escape foreign text for people: bytes that do not print, invalid UTF-8 and bidirectional
 * controls become \xNN, ends of lines and tabs \n, \r and \t; text that does not fit ends in
 * "...".  Always terminated.  Returns dst.
 */
char *ckpt_err_escape(char *dst, size_t dst_size, const char *src, size_t src_len);

CKPT_END_C

#endif

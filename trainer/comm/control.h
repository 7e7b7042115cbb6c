/*
 * control - the messages between the ranks of a host and their supervisor.
 *
 * A rank connects to the unix socket (SOCK_SEQPACKET) that CKPT_CONTROL names as WORD:PATH and
 * says hello with the word, which only the ranks were given.  Every message is one struct
 * control_message.  The supervisor answers a hello with one CONTROL_WELCOME, which carries its
 * own standard output and error, and for rank 0 its standard input before them: a rank writes
 * where the user sees it, whoever started it.  After that only ranks send; a connection that
 * closes without a CONTROL_BYE means that the rank has died.
 */
#ifndef CKPT_TRAINER_COMM_CONTROL_H
#define CKPT_TRAINER_COMM_CONTROL_H

#include <stdint.h>

#include "libckpt/err.h"

#define CONTROL_ENV     "CKPT_CONTROL"
#define CONTROL_VERSION 1u
#define CONTROL_WORD    32              /* hexadecimal digits */
#define CONTROL_BEAT_MS 250             /* a rank is heard from at least so often */

enum control_kind {
    CONTROL_HELLO = 1,                  /* word, rank, text: the host's name */
    CONTROL_WELCOME,
    CONTROL_BEAT,
    CONTROL_PHASE,                      /* text: what the rank is doing */
    CONTROL_ERROR,                      /* err; value: 1 when all ranks know of it */
    CONTROL_BYE                         /* value: exit status */
};

struct control_message {
    uint32_t kind, version;
    int32_t  rank, value;
    char     word[CONTROL_WORD + 1];
    char     text[95];
    struct ckpt_err err;
};

#endif

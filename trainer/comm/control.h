/*
 * control - the messages of a rank to the supervisor that started it.
 *
 * A rank inherits one end of a pair of sockets (SOCK_SEQPACKET); CKPT_CONTROL is the number of its
 * descriptor.  Every message is one struct control_message, and only ranks send.  A pair that
 * closes without a CONTROL_BYE means that the rank has died.
 */
#ifndef CKPT_TRAINER_COMM_CONTROL_H
#define CKPT_TRAINER_COMM_CONTROL_H

#include <stdint.h>

#include "libckpt/err.h"

#define CONTROL_ENV     "CKPT_CONTROL"
#define CONTROL_VERSION 2u
#define CONTROL_BEAT_MS 250             /* a rank is heard from at least so often */

enum control_kind {
    CONTROL_BEAT = 1,
    CONTROL_PHASE,                      /* text: what the rank is doing */
    CONTROL_ERROR,                      /* err; value: 1 when all ranks know of it */
    CONTROL_BYE                         /* value: exit status */
};

struct control_message {
    uint32_t kind, version;
    int32_t  value;
    char     text[96];
    struct ckpt_err err;
};

#endif

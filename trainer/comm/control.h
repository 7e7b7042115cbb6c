/*
 * control - the messages of a rank to the supervisor that started it.
 *
 * A rank inherits one end of a pair of sockets (SOCK_SEQPACKET); CKPT_CONTROL is the number of its
 * descriptor.  Every message is one struct control_message, and only ranks send.  A pair that
 * closes without a CONTROL_BYE means that the rank has died.  Ranks that are started again find in
 * CKPT_SAVED the first step that earlier tries of the same run began to save.
 */
#ifndef CKPT_TRAINER_COMM_CONTROL_H
#define CKPT_TRAINER_COMM_CONTROL_H

#include <stdint.h>

#include "libckpt/err.h"

#define CONTROL_ENV     "CKPT_CONTROL"
#define CONTROL_SAVED_ENV "CKPT_SAVED"
#define CONTROL_VERSION 3u
#define CONTROL_BEAT_MS 250             /* a rank is heard from at least so often */

enum control_kind {
    CONTROL_BEAT = 1,                   /* progress, collectives; text: the one it is in */
    CONTROL_PHASE,                      /* text: what the rank is doing; value: a control_stage */
    CONTROL_ERROR,                      /* err; value: 1 when all ranks know of it */
    CONTROL_BYE                         /* value: exit status */
};

enum control_stage {
    CONTROL_OTHER,
    CONTROL_TRAIN,                      /* step: the one that begins */
    CONTROL_SAVE,                       /* step: whose save begins */
    CONTROL_SAVED                       /* step: whose checkpoint is complete */
};

struct control_message {
    uint32_t kind, version;
    int32_t  value;
    int64_t  step;
    uint64_t progress;                  /* goes up whenever the rank has done something */
    uint64_t collectives;               /* begun so far */
    char     text[96];
    struct ckpt_err err;
};

#endif

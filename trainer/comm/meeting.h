/*
 * comm/meeting - where ranks find each other: what a communicator's plug-in is given to start with.
 *
 * Keys and values go through the ranks' store (store.h).  The plug-in calls these functions while
 * it starts and while it splits a communicator, and keeps the meeting until it is closed.
 */
#ifndef CKPT_TRAINER_COMM_MEETING_H
#define CKPT_TRAINER_COMM_MEETING_H

#include <stddef.h>
#include <stdint.h>

#include "libckpt/err.h"

struct comm_meeting {
    int         rank, world_size, local_rank;
    const char *address;            /* of this host, as the others can reach it: numbers */
    int64_t     timeout_ms;         /* for a peer to come */
    void       *ctx;
    int       (*set)(void *ctx, const char *key, const void *value, size_t n,
                     struct ckpt_err *err);
    /* The value of at most max bytes, waited for. */
    int       (*get)(void *ctx, const char *key, void *value, size_t max, size_t *n,
                     struct ckpt_err *err);
};

#endif

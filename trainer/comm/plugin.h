/*
 * comm/plugin - what a communicator's plug-in exports under the name comm_plugin.
 *
 * A plug-in links neither libckpt nor the program: the opener allocates size bytes, start fills
 * the head (ops, rank, world_size, local_rank, global_rank) and its own fields after it, and on
 * failure returns non-zero with c->err filled.  ops->close releases what start or split made; the
 * block itself is freed by comm_close.  The meeting is NULL for plug-ins whose ranks meet by
 * themselves.
 */
#ifndef CKPT_TRAINER_COMM_PLUGIN_H
#define CKPT_TRAINER_COMM_PLUGIN_H

#include "trainer/comm/comm.h"
#include "trainer/comm/meeting.h"

#define COMM_PLUGIN_VERSION 8

struct comm_plugin {
    int    version;
    size_t size;
    int  (*start)(struct comm *c, const struct comm_meeting *meeting);
};

#endif

/*
 * comm/pulse - ranks that no one supervisor of ours watches watch each other, through their store.
 *
 * A thread of each rank counts a number up in the store, and looks whether the next rank's number
 * goes up.  A rank that is not heard for PULSE_SILENT_MS ends all, by name: the others end with
 * CKPT_ECOMM's status within a second, whatever their main threads wait for.  A rank that fails by
 * itself tells why, and the others end with its status.  So do all when none
 * of them has come any further (report.h) for as long as ranks wait for each other: by the name of
 * the one that is behind.
 */
#ifndef CKPT_TRAINER_COMM_PULSE_H
#define CKPT_TRAINER_COMM_PULSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "libckpt/fail.h"
#include "trainer/comm/store.h"

#define PULSE_BEAT_MS   300
#define PULSE_SILENT_MS 3000

struct pulse;

struct pulse_opts {
    struct store *store;                /* a connection of its own; taken, also on failure */
    const char   *run;                  /* before every key; copied */
    const char   *host;                 /* this one's name; copied */
    const char   *holder;               /* of the store, for messages; a literal */
    int           rank, world_size;
    int64_t       patience_ms;          /* without progress of any rank; 0: no end */
};

int pulse_open(struct pulse **out, const struct pulse_opts *opts, struct ckpt_err *err);
/* Tell the others why this rank fails; it is watched no more. */
void pulse_tell(struct pulse *p, const struct ckpt_err *why);
/* What another rank told, with its code ("peer-failed"), or what was found out of one that is not
 * heard (CKPT_ECOMM); waits for it as long as that takes.  False: nothing. */
bool pulse_cause(struct pulse *p, struct ckpt_err *why);
/* The end of the others is no surprise from here on.  NULL is closed. */
void pulse_close(struct pulse *p);

#endif

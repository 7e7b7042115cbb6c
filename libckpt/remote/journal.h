/*
 * journal - what an upload to one target has done so far, so that a killed process loses no part.
 *
 * $CKPT_CACHE (cache/cache.h) holds uploads/<key>: a line a record, the CRC-32 of its JSON in hex,
 * a space, the JSON.  It is read up to the first damaged line and removed when the upload is
 * complete.  It may hold addresses with signatures that are valid for some hours: mode 0600.  Of
 * two processes that upload to one target, only the first has a journal.
 */
#ifndef CKPT_LIBCKPT_REMOTE_JOURNAL_H
#define CKPT_LIBCKPT_REMOTE_JOURNAL_H

#include <jansson.h>
#include <stdbool.h>

#include "libckpt/fail.h"

struct journal;

/* Of the target of that name.  NULL where none can be kept: all functions accept that. */
struct journal *journal_open(const char *target);
/* The records of earlier processes, oldest first; borrowed. */
const json_t *journal_records(const struct journal *j);
/* Append a record (taken).  It lasts when the call returns.  Any thread. */
void journal_add(struct journal *j, json_t *record);
/* Close; done removes it. */
void journal_close(struct journal *j, bool done);

#endif

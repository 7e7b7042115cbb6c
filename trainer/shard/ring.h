/*
 * ring - arrays on the host that pass through a few slots on the device, piece by piece: fetched
 * ahead, worked on, written back, all three at once on pieces that follow each other.
 *
 * Piece k uses slot k mod n.  Fetching it waits until the slot's last piece has been worked on and
 * written back, working waits for the fetch, writing back for the work.  Nothing here waits on the
 * host: a run is queued on the streams, and what it writes is there once the device's sync has come
 * back.  A run's first fetches wait for all write-backs before it, so that runs over the same
 * arrays follow each other.
 */
#ifndef CKPT_TRAINER_SHARD_RING_H
#define CKPT_TRAINER_SHARD_RING_H

#include "trainer/ops/ops.h"

enum { RING_SLOTS = 3 };

struct ring;

/* One array's part of a piece: bytes of pinned memory, and at offset `at` of the slot. */
struct ring_move {
    const void *in;                     /* fetched from there; NULL: not fetched */
    void       *out;                    /* written back to there; NULL: not */
    size_t      at, bytes;
};

struct ring_run {
    void   *ctx;
    int64_t n;                          /* pieces */
    /* What piece k moves, and how many that are, up to the ring's n_move. */
    int  (*moves)(void *ctx, int64_t k, struct ring_move *move);
    /* Give piece k's operations to the device; slot is where its bytes are. */
    void (*work)(void *ctx, int64_t k, unsigned char *slot);
};

/* Slots of that size; events [event, event + RING_EVENTS) are the ring's own. */
enum { RING_EVENTS = 3 * RING_SLOTS + 1 };
int ring_new(struct ring **out, struct device *dev, size_t slot_bytes, size_t n_move, int event,
             struct ckpt_err *err);
void ring_free(struct ring *r);
/* Bytes on the device. */
uint64_t ring_bytes(size_t slot_bytes);
void ring_run(struct ring *r, const struct ring_run *run);

#endif

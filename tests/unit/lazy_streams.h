/*
 * lazy_streams - a CPU device whose streams copy as late as they may: only when an event that is waited
 * for asks for it, or sync does.  What was read too early, or overwritten before it was copied,
 * shows in the results.
 */
#ifndef CKPT_TESTS_UNIT_LAZY_STREAMS_H
#define CKPT_TESTS_UNIT_LAZY_STREAMS_H

#include <assert.h>
#include <string.h>

#include "trainer/ops/ops.h"

enum { LAZY_MOST = 1 << 16 };

struct lazy_entry {
    void       *dst;                    /* NULL: wait for another stream's entries */
    const void *src;
    size_t      bytes;
    enum op_stream stream;
    int         upto;
};

struct lazy_queue {
    struct lazy_entry entry[LAZY_MOST];
    int               n, done;
};

struct lazy {
    struct ops        row;
    const struct ops *inner;
    struct lazy_queue stream[OP_N_STREAMS];
    struct { enum op_stream stream; int upto; } event[OP_N_EVENTS];
    int               copies;           /* made so far */
};

static struct lazy lazy_state;          /* of the one device a test makes lazy */

/* Make what the stream was given up to there; waits of an entry nest at most once a stream each way. */
static inline void lazy_force(enum op_stream stream, int upto)
{
    struct lazy_queue *q = &lazy_state.stream[stream];

    while (q->done < upto) {
        struct lazy_entry *e = &q->entry[q->done++];

        if (e->dst) {
            memcpy(e->dst, e->src, e->bytes);
            lazy_state.copies++;
        } else {
            lazy_force(e->stream, e->upto);
        }
    }
}

static inline void lazy_add(enum op_stream stream, struct lazy_entry e)
{
    struct lazy_queue *q = &lazy_state.stream[stream];

    assert(q->n < LAZY_MOST);
    q->entry[q->n++] = e;
}

static inline void lazy_copy(struct device *dev, enum op_stream stream, void *dst, const void *src,
                             size_t bytes)
{
    (void)dev;
    if (bytes)
        lazy_add(stream, (struct lazy_entry){.dst = dst, .src = src, .bytes = bytes});
}

static inline void lazy_record(struct device *dev, enum op_stream stream, int i)
{
    (void)dev;
    lazy_state.event[i].stream = stream;
    lazy_state.event[i].upto = lazy_state.stream[stream].n;
}

static inline void lazy_wait_event(struct device *dev, enum op_stream stream, int i)
{
    (void)dev;
    if (stream == OP_STREAM_MAIN)
        lazy_force(lazy_state.event[i].stream, lazy_state.event[i].upto);
    else
        lazy_add(stream, (struct lazy_entry){.stream = lazy_state.event[i].stream,
                                           .upto = lazy_state.event[i].upto});
}

static inline void lazy_wait(struct device *dev, int i)
{
    (void)dev;
    lazy_force(lazy_state.event[i].stream, lazy_state.event[i].upto);
}

static inline void lazy_sync(struct device *dev)
{
    for (int i = 0; i < OP_N_STREAMS; i++) {
        lazy_force((enum op_stream)i, lazy_state.stream[i].n);
        lazy_state.stream[i].n = lazy_state.stream[i].done = 0;
    }
    memset(lazy_state.event, 0, sizeof lazy_state.event);
    lazy_state.inner->sync(dev);
}

static inline void lazy_close(struct device *dev)
{
    lazy_sync(dev);
    dev->ops = lazy_state.inner;
    dev->ops->close(dev);
}

/* From now on the device's streams are lazy, until it is closed. */
static inline void lazy_streams(struct device *dev)
{
    memset(&lazy_state, 0, sizeof lazy_state);
    lazy_state.inner = dev->ops;
    lazy_state.row = *dev->ops;
    lazy_state.row.stream_copy = lazy_copy;
    lazy_state.row.event_record = lazy_record;
    lazy_state.row.stream_wait_event = lazy_wait_event;
    lazy_state.row.event_sync = lazy_wait;
    lazy_state.row.sync = lazy_sync;
    lazy_state.row.close = lazy_close;
    dev->ops = &lazy_state.row;
}

#endif

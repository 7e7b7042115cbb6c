/*
 * lazy_streams - a CPU device whose streams work as late as they may: only when an event that is waited
 * for asks for it, or sync does.  What was read too early, or overwritten before it was copied,
 * shows in the results.  The main stream's operations are done at once.
 */
#ifndef CKPT_TESTS_UNIT_LAZY_STREAMS_H
#define CKPT_TESTS_UNIT_LAZY_STREAMS_H

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "trainer/ops/ops.h"

enum { LAZY_MOST = 1 << 16 };

struct lazy_entry {
    void      (*run)(const struct lazy_entry *e);       /* NULL: wait for another stream's entries */
    void       *ctx, *dst;
    const void *src;
    int64_t     n;                      /* elements, or bytes of a copy */
    enum ckpt_dtype to, from;
    int         how;
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

static _Thread_local struct lazy *lazy_now;     /* of the one device a thread makes lazy */

/* Make what the stream was given up to there; waits of an entry nest at most once a stream each way. */
static inline void lazy_force(enum op_stream stream, int upto)
{
    struct lazy_queue *q = &lazy_now->stream[stream];

    while (q->done < upto) {
        struct lazy_entry *e = &q->entry[q->done++];

        if (e->run)
            e->run(e);
        else
            lazy_force(e->stream, e->upto);
    }
}

static inline void lazy_add(enum op_stream stream, struct lazy_entry e)
{
    struct lazy_queue *q = &lazy_now->stream[stream];

    assert(q->n < LAZY_MOST);
    q->entry[q->n++] = e;
}

static inline void lazy_run_copy(const struct lazy_entry *e)
{
    memcpy(e->dst, e->src, (size_t)e->n);
    lazy_now->copies++;
}

static inline void lazy_copy(struct device *dev, enum op_stream stream, void *dst, const void *src,
                             size_t bytes)
{
    (void)dev;
    if (bytes)
        lazy_add(stream, (struct lazy_entry){.run = lazy_run_copy, .dst = dst, .src = src,
                                             .n = (int64_t)bytes});
}

static inline void lazy_run_cast(const struct lazy_entry *e)
{
    lazy_now->inner->cast(e->ctx, OP_STREAM_MAIN, e->dst, e->to, e->src, e->from, e->n);
}

static inline void lazy_cast(struct device *dev, enum op_stream stream, void *dst,
                             enum ckpt_dtype to, const void *src, enum ckpt_dtype from, int64_t n)
{
    struct lazy_entry e = {.run = lazy_run_cast, .ctx = dev, .dst = dst, .src = src, .n = n,
                           .to = to, .from = from};

    if (stream == OP_STREAM_MAIN)
        e.run(&e);
    else
        lazy_add(stream, e);
}

static inline void lazy_run_add(const struct lazy_entry *e)
{
    lazy_now->inner->add(e->ctx, OP_STREAM_MAIN, e->dst, e->src, e->n);
}

static inline void lazy_sum(struct device *dev, enum op_stream stream, float *dst,
                            const float *src, int64_t n)
{
    struct lazy_entry e = {.run = lazy_run_add, .ctx = dev, .dst = dst, .src = src, .n = n};

    if (stream == OP_STREAM_MAIN)
        e.run(&e);
    else
        lazy_add(stream, e);
}

static inline void lazy_record(struct device *dev, enum op_stream stream, int i)
{
    (void)dev;
    lazy_now->event[i].stream = stream;
    lazy_now->event[i].upto = lazy_now->stream[stream].n;
}

static inline void lazy_wait_event(struct device *dev, enum op_stream stream, int i)
{
    (void)dev;
    if (stream == OP_STREAM_MAIN)
        lazy_force(lazy_now->event[i].stream, lazy_now->event[i].upto);
    else
        lazy_add(stream, (struct lazy_entry){.stream = lazy_now->event[i].stream,
                                           .upto = lazy_now->event[i].upto});
}

static inline void lazy_wait(struct device *dev, int i)
{
    (void)dev;
    lazy_force(lazy_now->event[i].stream, lazy_now->event[i].upto);
}

static inline void lazy_sync(struct device *dev)
{
    for (int i = 0; i < OP_N_STREAMS; i++)
        lazy_force((enum op_stream)i, lazy_now->stream[i].n);
    for (int i = 0; i < OP_N_STREAMS; i++)      /* forcing one may have asked for another */
        lazy_now->stream[i].n = lazy_now->stream[i].done = 0;
    memset(lazy_now->event, 0, sizeof lazy_now->event);
    lazy_now->inner->sync(dev);
}

static inline void lazy_close(struct device *dev)
{
    lazy_sync(dev);
    dev->ops = lazy_now->inner;
    free(lazy_now);
    lazy_now = NULL;
    dev->ops->close(dev);
}

/* From now on the device's streams are lazy, until it is closed. */
static inline void lazy_streams(struct device *dev)
{
    lazy_now = calloc(1, sizeof *lazy_now);
    assert(lazy_now);
    lazy_now->inner = dev->ops;
    lazy_now->row = *dev->ops;
    lazy_now->row.stream_copy = lazy_copy;
    lazy_now->row.cast = lazy_cast;
    lazy_now->row.add = lazy_sum;
    lazy_now->row.event_record = lazy_record;
    lazy_now->row.stream_wait_event = lazy_wait_event;
    lazy_now->row.event_sync = lazy_wait;
    lazy_now->row.sync = lazy_sync;
    lazy_now->row.close = lazy_close;
    dev->ops = &lazy_now->row;
}

#endif

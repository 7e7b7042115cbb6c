/* ring - see ring.h. */
#include "trainer/shard/ring.h"

#include "libckpt/mem.h"

struct ring {
    struct device *dev;
    unsigned char *slot;                /* [RING_SLOTS][bytes] */
    size_t         bytes;               /* of one, a multiple of 256 */
    int            event;
    struct ring_move *move;             /* [n_move], of a piece */
};

/* Marks of a slot, and one of the whole ring. */
enum { FETCHED, WORKED, WRITTEN, PER_SLOT };

static int event_of(const struct ring *r, int64_t k, int what)
{
    return r->event + (int)(k % RING_SLOTS) * PER_SLOT + what;
}

static size_t whole(size_t slot_bytes) { return (slot_bytes + 255) / 256 * 256; }

uint64_t ring_bytes(size_t slot_bytes) { return (uint64_t)whole(slot_bytes) * RING_SLOTS; }

int ring_new(struct ring **out, struct device *dev, size_t slot_bytes, size_t n_move, int event,
             struct ckpt_err *err)
{
    struct ring *r = ckpt_alloc(1, sizeof *r);

    *out = NULL;
    if (!r)
        return ckpt_nomem(err, sizeof *r);
    *r = (struct ring){.dev = dev, .bytes = whole(slot_bytes), .event = event};
    r->move = ckpt_alloc(n_move, sizeof *r->move);
    if (!r->move) {
        ring_free(r);
        return ckpt_nomem(err, n_move * sizeof *r->move);
    }
    r->slot = device_alloc(dev, (size_t)ring_bytes(slot_bytes), err);
    if (!r->slot) {
        ring_free(r);
        return ckpt_err_code(err);
    }
    /* The slots have been zeroed in the main order. */
    for (int k = 0; k < RING_SLOTS; k++)
        dev->ops->event_record(dev, OP_STREAM_MAIN, event_of(r, k, WORKED));
    *out = r;
    return 0;
}

void ring_free(struct ring *r)
{
    if (!r)
        return;
    r->dev->ops->free(r->dev, r->slot);
    ckpt_free(r->move);
    ckpt_free(r);
}

static void fetch(struct ring *r, int64_t k, const struct ring_move *move, int n)
{
    const struct ops *ops = r->dev->ops;
    unsigned char *slot = r->slot + (size_t)(k % RING_SLOTS) * r->bytes;

    ops->stream_wait_event(r->dev, OP_STREAM_IN, event_of(r, k, WORKED));
    ops->stream_wait_event(r->dev, OP_STREAM_IN, event_of(r, k, WRITTEN));
    for (int i = 0; i < n; i++)
        if (move[i].in)
            ops->stream_copy(r->dev, OP_STREAM_IN, slot + move[i].at, move[i].in, move[i].bytes);
    ops->event_record(r->dev, OP_STREAM_IN, event_of(r, k, FETCHED));
}

static void write_back(struct ring *r, int64_t k, const struct ring_move *move, int n)
{
    const struct ops *ops = r->dev->ops;
    const unsigned char *slot = r->slot + (size_t)(k % RING_SLOTS) * r->bytes;

    ops->stream_wait_event(r->dev, OP_STREAM_OUT, event_of(r, k, WORKED));
    for (int i = 0; i < n; i++)
        if (move[i].out)
            ops->stream_copy(r->dev, OP_STREAM_OUT, move[i].out, slot + move[i].at, move[i].bytes);
    ops->event_record(r->dev, OP_STREAM_OUT, event_of(r, k, WRITTEN));
}

void ring_run(struct ring *r, const struct ring_run *run)
{
    const struct ops *ops = r->dev->ops;
    struct ring_move *move = r->move;
    int before = r->event + RING_SLOTS * PER_SLOT;

    ops->event_record(r->dev, OP_STREAM_OUT, before);
    ops->stream_wait_event(r->dev, OP_STREAM_IN, before);
    for (int64_t k = 0; k < run->n; k++) {
        int n = run->moves(run->ctx, k, move);

        fetch(r, k, move, n);
        ops->stream_wait_event(r->dev, OP_STREAM_MAIN, event_of(r, k, FETCHED));
        run->work(run->ctx, k, r->slot + (size_t)(k % RING_SLOTS) * r->bytes);
        ops->event_record(r->dev, OP_STREAM_MAIN, event_of(r, k, WORKED));
        write_back(r, k, move, n);
    }
}

/* Streams on a GPU: pinned memory is zero, pieces pass the ring in order, events are waited
 * for. */
#include "tests/gpu/gpu.h"

#include "trainer/shard/ring.h"

enum { PIECE = 3 << 20, PIECES = 40, ROUNDS = 3 };

struct job {
    struct device *dev;
    unsigned char *a, *b;               /* [PIECES][PIECE], pinned */
};

static int moves(void *ctx, int64_t k, struct ring_move *move)
{
    struct job *j = ctx;

    move[0] = (struct ring_move){j->a + (size_t)k * PIECE, j->a + (size_t)k * PIECE, 0, PIECE};
    move[1] = (struct ring_move){j->b + (size_t)k * PIECE, j->b + (size_t)k * PIECE, PIECE, PIECE};
    return 2;
}

/* Swap the two, by way of a third, whose old bytes are stale. */
static void work(void *ctx, int64_t k, unsigned char *slot)
{
    struct device *dev = ((struct job *)ctx)->dev;

    (void)k;
    dev->ops->copy(dev, slot + 2 * PIECE, slot, PIECE);
    dev->ops->copy(dev, slot, slot + PIECE, PIECE);
    dev->ops->copy(dev, slot + PIECE, slot + 2 * PIECE, PIECE);
}

static unsigned char byte_of(size_t i, int which)
{
    return (unsigned char)((i * 2654435761u >> 13) + (size_t)which * 91);
}

TEST(ring)
{
    struct ckpt_err err = {0};
    struct ring *r;
    struct gpu g;
    struct job j;
    size_t all = (size_t)PIECE * PIECES;

    gpu_open(&g, CKPT_F32, NULL);
    j = (struct job){g.gpu, g.gpu->ops->pin(g.gpu, all), g.gpu->ops->pin(g.gpu, all)};
    gpu_fine(&g);
    for (size_t i = 0; i < all; i++) {
        assert_int_equal(j.a[i] | j.b[i], 0);
        j.a[i] = byte_of(i, 0);
        j.b[i] = byte_of(i, 1);
    }
    assert_int_equal(ring_new(&r, g.gpu, 3 * (size_t)PIECE, 2, 7, &err), 0);
    for (int t = 0; t < ROUNDS; t++)
        ring_run(r, &(struct ring_run){.ctx = &j, .n = PIECES, .moves = moves, .work = work});
    gpu_fine(&g);
    for (size_t i = 0; i < all; i++)
        if (j.a[i] != byte_of(i, ROUNDS % 2) || j.b[i] != byte_of(i, 1 - ROUNDS % 2))
            fail_msg("byte %zu", i);
    ring_free(r);
    g.gpu->ops->unpin(g.gpu, j.a);
    g.gpu->ops->unpin(g.gpu, j.b);
    gpu_close(&g);
}

/* The host waits for one event, not for all. */
TEST(wait)
{
    struct gpu g;
    unsigned char *host, *dev;
    const size_t n = 1 << 20;

    gpu_open(&g, CKPT_F32, NULL);
    host = g.gpu->ops->pin(g.gpu, 2 * n);
    dev = g.gpu->ops->alloc(g.gpu, n);
    gpu_fine(&g);
    for (int t = 0; t < 20; t++) {
        memset(host, t + 1, n);
        g.gpu->ops->stream_copy(g.gpu, OP_STREAM_IN, dev, host, n);
        g.gpu->ops->event_record(g.gpu, OP_STREAM_IN, 0);
        g.gpu->ops->stream_wait_event(g.gpu, OP_STREAM_OUT, 0);
        g.gpu->ops->stream_copy(g.gpu, OP_STREAM_OUT, host + n, dev, n);
        g.gpu->ops->event_record(g.gpu, OP_STREAM_OUT, 1);
        g.gpu->ops->event_sync(g.gpu, 1);
        assert_int_equal(host[n], t + 1);
        assert_int_equal(host[2 * n - 1], t + 1);
    }
    gpu_fine(&g);
    gpu_close(&g);
}

/* The ring of slots: pieces come, are worked on and go back, on streams that copy late. */
#include "tests/unit/model_help.h"

#include "tests/unit/lazy_streams.h"
#include "trainer/shard/ring.h"

enum { PIECES = 11, FLOATS = 100 };

struct job {
    struct device *dev;
    float         *a, *b;               /* [PIECES][FLOATS] each, pinned */
    int            works;
};

static int moves(void *ctx, int64_t k, struct ring_move *move)
{
    struct job *j = ctx;
    size_t bytes = FLOATS * sizeof(float);

    move[0] = (struct ring_move){j->a + k * FLOATS, j->a + k * FLOATS, 0, bytes};
    move[1] = (struct ring_move){k % 2 ? NULL : j->b + k * FLOATS,
                                 k % 2 ? j->b + k * FLOATS : NULL, 1024, bytes};
    return 2;
}

/* a becomes 2 a + 1; b, of odd pieces, what a was. */
static void work(void *ctx, int64_t k, unsigned char *slot)
{
    float *a = (float *)(void *)slot, *b = (float *)(void *)(slot + 1024);
    struct job *j = ctx;

    j->works++;
    for (int i = 0; i < FLOATS; i++) {
        if (k % 2)
            b[i] = a[i];
        else
            assert_true(b[i] == (float)(-k - 1));
        a[i] = 2 * a[i] + 1;
    }
}

static struct device *open_lazy(void)
{
    struct device *dev = cpu_device(1);

    lazy_streams(dev);
    return dev;
}

static void start(struct job *j, struct device *dev)
{
    *j = (struct job){.dev = dev};
    j->a = dev->ops->pin(dev, PIECES * FLOATS * sizeof *j->a);
    j->b = dev->ops->pin(dev, PIECES * FLOATS * sizeof *j->b);
    assert_non_null(j->a);
    assert_non_null(j->b);
    assert_true(j->a[0] == 0 && j->b[PIECES * FLOATS - 1] == 0);
    for (int i = 0; i < PIECES * FLOATS; i++) {
        j->a[i] = (float)i;
        j->b[i] = (float)(-(i / FLOATS) - 1);
    }
}

TEST(pieces_pass)
{
    struct device *dev = open_lazy();
    struct ckpt_err err = {0};
    struct ring *r;
    struct job j;

    start(&j, dev);
    assert_int_equal(ring_new(&r, dev, 2048, 2, 5, &err), 0);
    /* Twice without a sync between: the second run reads what the first wrote. */
    for (int t = 0; t < 2; t++)
        ring_run(r, &(struct ring_run){.ctx = &j, .n = PIECES, .moves = moves, .work = work});
    assert_int_equal(device_sync(dev, &err), 0);
    assert_int_equal(j.works, 2 * PIECES);
    for (int i = 0; i < PIECES * FLOATS; i++) {
        assert_true(j.a[i] == (float)(4 * i + 3));
        if (i / FLOATS % 2)
            assert_true(j.b[i] == (float)(2 * i + 1));
    }
    ring_free(r);
    dev->ops->unpin(dev, j.a);
    dev->ops->unpin(dev, j.b);
    device_close(dev);
}

/* The streams of this test are late: most of the last write-backs are made by the sync alone. */
TEST(streams_are_late)
{
    struct device *dev = open_lazy();
    struct ckpt_err err = {0};
    struct ring *r;
    struct job j;
    int before;

    start(&j, dev);
    assert_int_equal(ring_new(&r, dev, 2048, 2, 0, &err), 0);
    ring_run(r, &(struct ring_run){.ctx = &j, .n = PIECES, .moves = moves, .work = work});
    before = lazy_now->copies;
    assert_int_equal(device_sync(dev, &err), 0);
    assert_true(lazy_now->copies - before >= RING_SLOTS);
    ring_free(r);
    dev->ops->unpin(dev, j.a);
    dev->ops->unpin(dev, j.b);
    device_close(dev);
}

/*
 * Seconds of a step in collectives, where these go on beside the host: what ends late, what other
 * work had, and parts.
 */
#include "tests/unit/unit.h"

#include <math.h>

#include "trainer/comm/comm.h"

static double ended;                    /* seconds of collectives that have ended */

static void queue_sum(struct comm *c, void *buf, int64_t n, enum ckpt_dtype t, enum comm_op op)
{
    (void)c, (void)buf, (void)n, (void)t, (void)op;
}

static void group(struct comm *c, bool begin) { (void)c, (void)begin; }

static double seconds(struct comm *c)
{
    (void)c;
    return ended;
}

static const struct comm_ops host_ops = {.name = "host", .all_reduce = queue_sum},
    device_ops = {.name = "device", .all_reduce = queue_sum, .group = group, .seconds = seconds},
    unknown_ops = {.name = "unknown", .all_reduce = queue_sum, .group = group};

static void work(struct comm *c)
{
    float x = 0;

    comm_all_reduce(c, &x, 1, CKPT_F32, COMM_SUM);
}

static double lap(struct comm *c, double from, double to)
{
    ended = from;
    comm_lap_begin(c);
    work(comm_on_device(c));
    ended = to;
    return comm_lap_end(c);
}

static void near(double found, double wanted, double most)
{
    assert_true(fabs(found - wanted) <= most);
}

TEST(laps_have_what_ended_in_them)
{
    struct comm device = {.ops = &device_ops, .world_size = 2};
    struct comm host = {.ops = &host_ops, .world_size = 2, .device = &device};

    near(lap(&host, 0, 1), 1, 0);
    near(lap(&host, 1.5, 2), 1, 0);      /* with the end of the one before */
    work(&device);                                      /* an evaluation */
    near(lap(&host, 5, 5.25), 0.25, 0);
    work(&host);
    near(lap(&host, 7, 7.5), 0.5, 0);
}

TEST(laps_have_those_of_parts)
{
    struct comm device = {.ops = &device_ops, .world_size = 2};
    struct comm part = {.ops = &host_ops, .world_size = 2, .device = &device};
    struct comm alone = {.ops = &host_ops, .world_size = 1, .next = &part};
    struct comm host = {.ops = &host_ops, .world_size = 4, .parts = &alone};

    near(lap(&host, 0, 1), 1, 1e-3);     /* the host's own takes time too */
    work(&device);
    near(lap(&host, 3, 3.5), 0.5, 1e-3);
    part.concurrent = true;
    near(lap(&host, 4, 8), 0, 1e-3);
}

TEST(laps_are_unknown_to_one_rank_and_where_nobody_counts)
{
    struct comm device = {.ops = &unknown_ops, .world_size = 2};
    struct comm host = {.ops = &host_ops, .world_size = 2, .device = &device};
    struct comm single = {.ops = &host_ops, .world_size = 1};

    assert_true(isnan(lap(&host, 0, 1)));
    assert_true(isnan(lap(&device, 0, 1)));
    assert_true(isnan(lap(&single, 0, 1)));
}

/* Simulated collectives: what the model says of their time, and what the communicator asks of a
 * device. */
#include "tests/unit/unit.h"

#include <math.h>

#include "trainer/comm/simulate.h"

static const struct simulate_net net = {.node = 8, .network = 50e9};
static const enum simulate_kind kinds[] = {SIMULATE_ALL_GATHER, SIMULATE_REDUCE_SCATTER,
                                           SIMULATE_BROADCAST, SIMULATE_ALL_REDUCE};

static double gather(int n, double S) { return simulate_seconds(&net, SIMULATE_ALL_GATHER, n, S); }

static double reduced(int n, double S) { return simulate_seconds(&net, SIMULATE_ALL_REDUCE, n, S); }

static void near(double found, double wanted, double within)
{
    if (!(fabs(found / wanted - 1) <= within))
        print_error("found %g, wanted %g\n", found, wanted);
    assert_true(fabs(found / wanted - 1) <= within);
}

TEST(what_was_measured_on_two_gpus_is_met)
{
    const double MiB = 1 << 20;

    near(gather(2, 1024 * MiB), 1024 * MiB / 268e9, 0.01);
    near(gather(2, 16 * MiB), 16 * MiB / 153e9, 0.01);
    near(gather(2, MiB), 32e-6, 0.01);
}

TEST(one_rank_and_no_bytes_take_no_time)
{
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
        assert_true(simulate_seconds(&net, kinds[k], 1, 1e9) == 0);
        assert_true(simulate_seconds(&net, kinds[k], 8, 0) == 0);
    }
}

TEST(more_bytes_take_longer)
{
    const int worlds[] = {2, 3, 8, 9, 64, 1024, 100000};

    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++)
        for (size_t w = 0; w < sizeof worlds / sizeof worlds[0]; w++)
            for (double S = 1; S < 1e12; S *= 1.5)
                assert_true(simulate_seconds(&net, kinds[k], worlds[w], 1.5 * S) >=
                            simulate_seconds(&net, kinds[k], worlds[w], S));
}

TEST(more_ranks_take_longer)
{
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++)
        for (double S = 1; S < 1e12; S *= 32)
            for (int n = 2; n < 3000; n++)
                assert_true(simulate_seconds(&net, kinds[k], n + 1, S) >=
                            simulate_seconds(&net, kinds[k], n, S));
}

TEST(a_slow_network_counts_between_nodes_alone)
{
    const struct simulate_net slow = {.node = 8, .network = 1e9};
    const double S = 1e9;

    assert_true(simulate_seconds(&slow, SIMULATE_ALL_GATHER, 8, S) == gather(8, S));
    near(simulate_seconds(&slow, SIMULATE_ALL_GATHER, 16, S), 0.5 * S / 8e9, 0.01);
    near(simulate_seconds(&slow, SIMULATE_ALL_GATHER, 1024, S), 127.0 / 128 * S / 8e9, 0.01);
    /* Fast enough, the links inside of a node count again. */
    near(gather(16, S), 15.0 / 16 * S / simulate_model.link, 0.02);
}

TEST(a_link_that_is_given_counts_instead_of_the_measured)
{
    const struct simulate_net fast = {.node = 8, .network = 50e9, .link = 360e9};
    const double S = 4e9;

    near(simulate_seconds(&fast, SIMULATE_ALL_GATHER, 8, S), 7.0 / 8 * S / 360e9, 0.01);
    near(simulate_seconds(&fast, SIMULATE_ALL_GATHER, 1024, S), S / 360e9, 0.01);
    assert_true(gather(8, S) > 2 * simulate_seconds(&fast, SIMULATE_ALL_GATHER, 8, S));
}

TEST(nodes_of_one_gpu_have_a_network_alone)
{
    const struct simulate_net single = {.node = 1, .network = 25e9};

    near(simulate_seconds(&single, SIMULATE_ALL_GATHER, 4, 1e9), 0.75 * 1e9 / 25e9, 0.01);
}

TEST(replicas_of_a_group_have_a_network_card_each)
{
    const double S = 1e9;
    struct simulate_net across = simulate_part(&net, 8), pairs = simulate_part(&net, 4);

    assert_int_equal(simulate_part(&net, 1).node, 8);   /* a group's own ranks are neighbours */
    assert_int_equal(across.node, 1);
    assert_int_equal(pairs.node, 2);
    assert_int_equal(simulate_part(&net, 16).node, 1);
    /* Four nodes: 3/4 of the bytes pass one card, there and back; no link inside of a node. */
    near(simulate_seconds(&across, SIMULATE_ALL_REDUCE, 4, S), 2 * 0.75 * S / 50e9, 0.01);
    /* Two replicas a node: half passes each of two cards, and the link counts. */
    assert_true(simulate_seconds(&pairs, SIMULATE_ALL_REDUCE, 4, S) >
                2 * 0.5 * S / (2 * 50e9));
    assert_int_equal(simulate_nodes(&pairs, 4), 2);
}

TEST(an_all_reduce_is_two_rings_or_a_tree)
{
    const double S = 1e9;

    near(reduced(8, S), 2 * gather(8, S), 0.01);
    /* A small one goes by the tree, whose hops are few. */
    assert_true(reduced(1024, 1000) < 0.2 * gather(1024, 1000));
    assert_true(reduced(1024, 1000) > simulate_model.start + 2 * 7 * simulate_model.tree_net_hop);
}

/* -- the communicator ------------------------------------------------------------------------- */

static int n_begun, n_ended, n_copies;
static double asked;

static void fake_begin(struct device *dev)
{
    (void)dev;
    assert_int_equal(n_begun++, n_ended);
}

static void fake_repeat(struct device *dev, void *dst, const void *src, size_t bytes,
                        int64_t times)
{
    (void)dev;
    assert_int_equal(n_begun, n_ended + 1);
    n_copies++;
    for (int64_t i = 0; i < times; i++)
        memmove((char *)dst + (size_t)i * bytes, src, bytes);
}

static void fake_end(struct device *dev, double seconds)
{
    (void)dev;
    n_ended++;
    asked = seconds;
}

static const struct simulate_device fake = {fake_begin, fake_repeat, fake_end};

static struct comm *open_fake(int n)
{
    struct ckpt_err err = {0};
    struct comm *host;

    n_begun = n_ended = n_copies = 0;
    assert_int_equal(comm_open_single(&host, n, &err), 0);
    assert_int_equal(simulate_open(&host->device, n, &net, NULL, &fake, &err), 0);
    return host;
}

TEST(a_gather_puts_the_own_part_everywhere)
{
    struct comm *host = open_fake(4), *c = comm_on_device(host);
    float part[3] = {1, 2, 3}, whole[12] = {0};

    comm_all_gather(c, whole, part, 3, CKPT_F32);
    for (int i = 0; i < 12; i++)
        assert_true(whole[i] == part[i % 3]);
    assert_int_equal(n_ended, 1);
    assert_true(asked == gather(4, sizeof whole));
    comm_close(host);
}

TEST(a_scatter_gives_the_own_slice)
{
    struct comm *host = open_fake(2), *c = comm_on_device(host);
    float mine[2] = {0}, all[4] = {5, 6, 7, 8};

    comm_reduce_scatter(c, mine, all, 2, CKPT_F32);
    assert_true(mine[0] == 5 && mine[1] == 6);
    assert_true(asked == simulate_seconds(&net, SIMULATE_REDUCE_SCATTER, 2, sizeof all));
    comm_reduce_scatter(c, all, all, 2, CKPT_F32);
    assert_int_equal(n_copies, 1);
    comm_close(host);
}

TEST(a_sum_and_a_broadcast_leave_what_is_there)
{
    struct comm *host = open_fake(16), *c = comm_on_device(host);
    double x = 3;

    comm_all_reduce(c, &x, 1, CKPT_F64, COMM_SUM);
    assert_true(x == 3 && asked == reduced(16, sizeof x));
    comm_broadcast(c, &x, 1, CKPT_F64, 0);
    assert_true(x == 3 && asked == simulate_seconds(&net, SIMULATE_BROADCAST, 16, sizeof x));
    assert_int_equal(n_copies, 0);
    comm_close(host);
}

TEST(a_group_is_one_transfer)
{
    struct comm *host = open_fake(1024), *c = comm_on_device(host);
    float part[3] = {1, 2, 3}, *whole = calloc(1024 * 3, sizeof *whole);
    struct simulate_sum sum;

    assert_true(comm_groups(c));
    comm_group_begin(c);
    comm_all_gather(c, whole, part, 3, CKPT_F32);
    comm_all_gather(c, whole, part, 2, CKPT_F32);
    assert_int_equal(n_ended, 0);
    comm_group_end(c);
    assert_int_equal(n_begun, 1);
    assert_int_equal(n_ended, 1);
    assert_true(asked == gather(1024, 1024 * 5 * sizeof *whole));
    comm_group_begin(c);                /* one without anything in it */
    comm_group_end(c);
    comm_all_reduce(c, part, 3, CKPT_F32, COMM_SUM);
    assert_int_equal(n_ended, 2);
    sum = simulate_take(c);
    assert_int_equal(sum.n, 2);
    near(sum.bytes, 1024 * 20 + 12, 1e-9);
    near(sum.seconds, gather(1024, 1024 * 20) + reduced(1024, 12), 1e-9);
    assert_int_equal(simulate_take(c).n, 0);
    free(whole);
    comm_close(host);
}

TEST(a_paused_world_takes_no_time)
{
    struct comm *host = open_fake(2), *c = comm_on_device(host);
    float part[2] = {1, 2}, whole[4] = {0};

    simulate_pause(c, true);
    comm_group_begin(c);
    comm_all_gather(c, whole, part, 2, CKPT_F32);
    comm_group_end(c);
    assert_int_equal(n_begun + n_ended + n_copies, 0);
    assert_int_equal(simulate_take(c).n, 0);
    simulate_pause(c, false);
    comm_all_gather(c, whole, part, 2, CKPT_F32);
    assert_int_equal(n_ended, 1);
    assert_true(whole[3] == 2);
    comm_close(host);
}

TEST(the_hosts_of_a_planned_world_agree_by_themselves)
{
    struct comm *host = open_fake(1024);
    struct ckpt_err err = {0};
    int64_t count = 7;

    comm_all_reduce(host, &count, 1, CKPT_I64, COMM_SUM);
    assert_int_equal(count, 7);
    assert_int_equal(comm_agree(host, 0, &err), 0);
    ckpt_fail(&err, CKPT_EIO, "it failed");
    assert_int_equal(comm_agree(host, CKPT_EIO, &err), CKPT_EIO);
    assert_string_equal(err.text, "rank 0: it failed");
    assert_true(host->agreed);
    comm_close(host);
}

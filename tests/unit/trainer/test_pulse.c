/* Ranks that watch each other: a failure is heard, and the one that fails ends with its own status. */
#include "tests/unit/unit.h"

#include <unistd.h>

#include "trainer/comm/pulse.h"
#include "trainer/comm/store_server.h"

static struct pulse *one_of_two(const struct store_server *s, int rank)
{
    struct pulse_opts o = {.run = "t", .host = "here", .holder = "rank 0", .rank = rank,
                           .world_size = 2};
    struct ckpt_err err = {0};
    struct pulse *p;

    assert_int_equal(store_open(&o.store, "127.0.0.1", store_server_port(s), NULL, 1000, &err), 0);
    assert_int_equal(pulse_open(&p, &o, &err), 0);
    return p;
}

TEST(a_failure_is_heard_and_its_rank_goes_on_to_its_own_end)
{
    struct ckpt_err err = {0};
    struct store_server *s;
    struct pulse *zero, *one;
    char text[100] = "";

    assert_int_equal(store_server_open(&s, "127.0.0.1", 0, NULL, &err), 0);
    zero = one_of_two(s, 0);
    one = one_of_two(s, 1);
    pulse_tell(zero, "rank 0: no disk");
    assert_true(pulse_cause(one, text, sizeof text));
    assert_string_equal(text, "rank 0: no disk");
    usleep(1500000);                    /* a thread that still watched would end the process */
    pulse_close(one);
    pulse_close(zero);
    store_server_close(s);
}

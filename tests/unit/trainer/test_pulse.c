/* Ranks that watch each other: a failure is heard, and the one that fails ends with its own status. */
#include "tests/unit/unit.h"

#include <unistd.h>

#include "trainer/comm/pulse.h"
#include "trainer/comm/report.h"
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
    struct ckpt_err why = {0};

    assert_int_equal(store_server_open(&s, "127.0.0.1", 0, NULL, &err), 0);
    zero = one_of_two(s, 0);
    one = one_of_two(s, 1);
    ckpt_fail(&err, CKPT_EIO, "rank 0: no disk");
    pulse_tell(zero, &err);
    assert_true(pulse_cause(one, &why));
    assert_string_equal(why.text, "rank 0: no disk");
    assert_int_equal(why.code, CKPT_EIO);
    assert_string_equal(why.reason, "peer-failed");
    usleep(1500000);                    /* a thread that still watched would end the process */
    pulse_close(one);
    pulse_close(zero);
    store_server_close(s);
}

/* What is stored as the cause is heard as a lost peer where it has no code of ours. */
TEST(a_cause_without_a_code_is_a_lost_peer)
{
    static const char *const stored[][2] = {
        {"rank 7 burns", "rank 7 burns"}, {"12 text", "text"}, {"-99999 text", "text"}, {"-", "-"}, {"", ""},
    };

    for (size_t i = 0; i < sizeof stored / sizeof stored[0]; i++) {
        struct ckpt_err err = {0}, why = {0};
        struct store_server *s;
        struct store *other;
        struct pulse *one;

        assert_int_equal(store_server_open(&s, "127.0.0.1", 0, NULL, &err), 0);
        assert_int_equal(store_open(&other, "127.0.0.1", store_server_port(s), NULL, 1000, &err), 0);
        one = one_of_two(s, 1);
        assert_int_equal(store_set(other, "t/cause/0", stored[i][0], strlen(stored[i][0]), &err), 0);
        assert_true(pulse_cause(one, &why));
        assert_int_equal(why.code, CKPT_ECOMM);
        assert_string_equal(why.reason, "peer-dead");
        assert_string_equal(why.text, stored[i][1]);
        pulse_close(one);
        store_close(other);
        store_server_close(s);
    }
}

static bool phase_is(struct store *s, const char *want, int64_t within_ms)
{
    char text[100] = "";
    size_t n = 0;
    struct ckpt_err err = {0};

    for (int64_t ms = 0; ms <= within_ms; ms += 5) {
        if (store_has(s, "t/phase/1", &err) == 1 && store_get(s, "t/phase/1", text, sizeof text - 1, &n, 1000, &err) == 0 &&
            n == strlen(want) && memcmp(text, want, n) == 0)
            return true;
        usleep(5000);
    }
    return false;
}

/* A rank that is killed in its first steps is not said to be loading: others know of a new phase at once, and of the next
 * step of the same with the next beat. */
TEST(a_phase_is_told_when_it_begins)
{
    struct ckpt_err err = {0};
    struct store_server *s;
    struct store *other;
    struct pulse *one;

    assert_int_equal(store_server_open(&s, "127.0.0.1", 0, NULL, &err), 0);
    assert_int_equal(store_open(&other, "127.0.0.1", store_server_port(s), NULL, 1000, &err), 0);
    report_phase("load");
    one = one_of_two(s, 1);
    assert_true(phase_is(other, "load", 1000));
    usleep(100000);                     /* within a beat */
    report_step(CONTROL_TRAIN, 1);
    assert_true(phase_is(other, "train step 1", PULSE_BEAT_MS / 2));
    report_step(CONTROL_SAVE, 1);
    assert_true(phase_is(other, "save of step 1", PULSE_BEAT_MS / 2));
    report_step(CONTROL_TRAIN, 2);
    report_step(CONTROL_TRAIN, 3);
    assert_true(phase_is(other, "train step 3", 4 * PULSE_BEAT_MS));
    pulse_close(one);
    store_close(other);
    store_server_close(s);
}

/* restart: what follows on the end of a try; node: what a host's supervisor is told and answers. */
#include "tests/unit/unit.h"

#include "libckpt/mem.h"
#include "trainer/launch/node.h"
#include "trainer/launch/restart.h"

#define TRIES 6
static const struct {
    const char *name;
    int64_t n, max, min;
    struct { int status; bool again; int64_t step, saved; } end[TRIES];
    const char *follows;                /* a letter for each try: its end, or ranks of the next */
} cases[] = {
    {"well", 2, 3, 0, {{0, false, 9, 9}}, "e"},
    {"bad data", 2, 3, 0, {{65, false, 9, -1}}, "e"},
    {"none allowed", 2, 0, 0, {{75, true, 9, -1}}, "0"},
    {"until none is left", 2, 2, 0, {{75, true, 1, -1}, {75, true, 2, -1}, {75, true, 3, -1}},
     "220"},
    {"then well", 2, 2, 0, {{75, true, 1, -1}, {75, true, 2, -1}, {0, false, 9, 9}}, "22e"},
    {"the same place twice", 2, 9, 0, {{75, true, 4, -1}, {75, true, 4, -1}}, "2s"},
    {"before any step", 2, 9, 0, {{75, true, -1, -1}, {75, true, -1, -1}}, "2s"},
    {"with another status", 2, 9, 0, {{75, true, 4, -1}, {70, true, 4, -1}, {70, true, 4, -1}},
     "22s"},
    {"another place between", 2, 9, 0, {{75, true, 4, -1}, {75, true, 5, -1}, {75, true, 4, -1},
     {75, true, 4, -1}}, "222s"},
    {"a save between", 2, 9, 0, {{75, true, 4, -1}, {75, true, 4, 3}, {75, true, 4, -1}}, "22s"},
    {"fewer ranks are allowed", 3, 9, 2, {{75, true, 4, -1}, {75, true, 4, -1}, {75, true, 4, -1},
     {75, true, 4, -1}}, "322s"},
    {"not below so many", 2, 9, 2, {{75, true, 4, -1}, {75, true, 4, -1}}, "2s"},
};

TEST(a_try_follows_where_it_may_help)
{
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct restart r = {.n = cases[i].n, .max = cases[i].max, .min = cases[i].min,
                            .saving = -1, .saved = -1};
        char follows[TRIES + 1] = "";

        for (size_t k = 0; k < strlen(cases[i].follows); k++) {
            const struct restart_end end = {
                .status = cases[i].end[k].status, .again = cases[i].end[k].again,
                .step = cases[i].end[k].step, .saving = cases[i].end[k].saved,
                .saved = cases[i].end[k].saved,
            };
            enum restart_what what = restart_judge(&r, &end);

            follows[k] = (char)(what == RESTART_AGAIN ? '0' + r.n : what == RESTART_SPENT ? '0'
                                : what == RESTART_STUCK ? 's' : 'e');
        }
        if (strcmp(follows, cases[i].follows) != 0)
            fail_msg("%s: %s, %s expected", cases[i].name, follows, cases[i].follows);
    }
}

TEST(pauses_grow)
{
    static const double pause[] = {1, 2, 4, 8, 16, 32, 60, 60};

    for (size_t i = 0; i < sizeof pause / sizeof pause[0]; i++)
        assert_true(restart_pause(&(struct restart){.tried = (int64_t)i + 1}) == pause[i]);
    assert_true(restart_pause(&(struct restart){.tried = INT64_MAX}) == 60);
}

TEST(what_was_saved_is_kept_of_all_tries)
{
    struct restart r = {.n = 2, .max = 9, .saving = -1, .saved = -1};

    restart_judge(&r, &(struct restart_end){.again = true, .step = 7, .saving = 5, .saved = 5});
    restart_judge(&r, &(struct restart_end){.again = true, .step = 8, .saving = -1, .saved = -1});
    assert_int_equal(r.saving, 5);
    assert_int_equal(r.saved, 5);
    restart_judge(&r, &(struct restart_end){.again = true, .step = 11, .saving = 10, .saved = 10});
    assert_int_equal(r.saving, 5);
    assert_int_equal(r.saved, 10);
}

TEST(answers_of_a_host)
{
    static const char *const none[] = {"", "fail", "fail x", "fail 3\037a\037b\037c", "end 1 2",
                                       "fail -99\037a\037b\037c", "warning: end 1 2 3 4 5"};
    struct restart_end end = {0};

    for (size_t i = 0; i < sizeof none / sizeof none[0]; i++)
        assert_false(node_answer(&end, none[i]));
    assert_int_equal(end.n_failures, 0);
    assert_true(node_answer(&end, "fail -2\037truncated\037rank 1: a: it ends\033[31m\037see it"));
    assert_true(node_answer(&end, "fail -11\037peer-dead\037gone"));
    assert_true(node_answer(&end, "end 65 0 12 5 10"));
    assert_int_equal(end.n_failures, 2);
    assert_int_equal(end.failure[0].code, CKPT_EFORMAT);
    assert_string_equal(end.failure[0].reason, "truncated");
    assert_string_equal(end.failure[0].text, "rank 1: a: it ends\\x1b[31m");
    assert_string_equal(end.failure[0].hint, "see it");
    assert_string_equal(end.failure[1].hint, "");
    assert_int_equal(end.status, 65);
    assert_false(end.again);
    assert_int_equal(end.step, 12);
    assert_int_equal(end.saved, 10);
    ckpt_free(end.failure);
}

TEST(signals_of_a_launcher)
{
    assert_int_equal(node_signal("signal 15"), 15);
    assert_int_equal(node_signal("signal 10"), 10);
    assert_int_equal(node_signal("signal 9"), 0);
    assert_int_equal(node_signal("signal"), 0);
    assert_int_equal(node_signal(""), 0);
}

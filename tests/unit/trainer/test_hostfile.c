/* hostfile: DeepSpeed's lines, and choices among hosts and slots. */
#include "tests/unit/unit.h"

#include "trainer/launch/hostfile.h"

static const char four[] = "# all\nworker-0 slots=4\n\n  worker-1\tslots=2 max_slots=4 # slower\r\n"
                           "spare slots=0\nw2.x_y slots=1";

/* "worker-0:0,1 w2:0", the hosts and their slots. */
static void show(char *out, size_t size, const struct hostfile *h)
{
    size_t at = 0;

    *out = '\0';
    for (size_t i = 0; i < h->n; i++) {
        char slots[256];

        hostfile_slot_list(slots, sizeof slots, &h->host[i]);
        at += (size_t)snprintf(out + at, size - at, "%s%s:%s", i ? " " : "", h->host[i].name,
                               slots);
    }
}

static void read_four(struct hostfile *h)
{
    struct ckpt_err err = {0};

    assert_int_equal(hostfile_parse(h, four, sizeof four - 1, "hosts", &err), 0);
}

TEST(hosts_and_slots_are_read)
{
    struct hostfile h;
    char text[256];

    read_four(&h);
    show(text, sizeof text, &h);
    assert_string_equal(text, "worker-0:0,1,2,3 worker-1:0,1 w2.x_y:0");
    assert_int_equal(hostfile_slots(&h), 7);
    hostfile_release(&h);
}

TEST(what_is_no_host_is_named)
{
    static const struct { const char *text, *says; } rows[] = {
        {"", "there is no host in it"},
        {"# none\n", "there is no host in it"},
        {"a slots=0\n", "there is no host in it"},
        {"a\n", "line 1: wanted HOST slots=N: a"},
        {"a slots=2\nb slots=x", "line 2: the number of slots is no whole number up to 1024: b"},
        {"a slots=", "no whole number"},
        {"a slots=-1", "no whole number"},
        {"a slots=1025", "no whole number"},
        {"a slots=99999999999999999999", "no whole number"},
        {"a slots = 2", "wanted HOST slots=N"},
        {"a slots=2 b", "something follows"},
        {"a slots=2 max_slots=2 c", "something follows"},
        {"a slots=1\n\na slots=2", "line 3: the host is there twice: a slots=2"},
        {"-oProxyCommand=x slots=1", "the host's name has other characters"},
        {"-v slots=1", "the host's name has other characters"},
        {"a@b slots=1", "the host's name has other characters"},
        {"a;b slots=1", "the host's name has other characters"},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct ckpt_err err = {0};
        struct hostfile h;

        assert_int_equal(hostfile_parse(&h, rows[i].text, strlen(rows[i].text), "hosts", &err),
                         CKPT_ECONFIG);
        if (strncmp(err.text, "hosts: ", 7) != 0 || !strstr(err.text, rows[i].says))
            fail_msg("\"%s\": %s", rows[i].text, err.text);
        assert_int_equal(h.n, 0);
    }
}

/* The choices of DeepSpeed's own tests (tests/unit/launcher/test_run.py), and more. */
TEST(choices)
{
    static const struct { bool include; const char *choice, *left; } rows[] = {
        {true, "worker-0", "worker-0:0,1,2,3"},
        {true, "worker-0@worker-1:0", "worker-0:0,1,2,3 worker-1:0"},
        {true, "worker-1@worker-0:3,1", "worker-0:3,1 worker-1:0,1"},
        {true, "worker-0:1,1,0", "worker-0:1,0"},
        {true, "worker-0:1@worker-0:2", "worker-0:1,2"},
        {false, "worker-0", "worker-1:0,1 w2.x_y:0"},
        {false, "worker-0:0,2@w2.x_y", "worker-0:1,3 worker-1:0,1"},
        {false, "worker-1:0,1", "worker-0:0,1,2,3 w2.x_y:0"},
        {true, "worker-9", "\"worker-9\" is no host"},
        {true, "worker-0@", "\"\" is no host"},
        {true, "", "\"\" is no host"},
        {true, "spare", "\"spare\" is no host"},
        {true, "worker-1:2", "worker-1: there is no slot \"2\", the host file has 2"},
        {true, "worker-1:", "there is no slot \"\""},
        {true, "worker-1:0,", "there is no slot \"\""},
        {true, "worker-1:0:1", "there is no slot \"0:1\""},
        {false, "worker-1:x", "there is no slot \"x\""},
        {false, "worker-0@worker-1@w2.x_y", "leaves no host"},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct ckpt_err err = {0};
        struct hostfile h;
        char text[1024];
        int rc;

        read_four(&h);
        rc = rows[i].include ? hostfile_include(&h, rows[i].choice, &err)
                             : hostfile_exclude(&h, rows[i].choice, &err);
        show(text, sizeof text, &h);
        if (rc)
            snprintf(text, sizeof text, "%s", err.text);
        if (rc ? !strstr(text, rows[i].left) || rc != CKPT_ECONFIG
               : strcmp(text, rows[i].left) != 0)
            fail_msg("%s %s: %s", rows[i].include ? "with" : "without", rows[i].choice, text);
        hostfile_release(&h);
    }
}

TEST(the_first_of_them)
{
    struct ckpt_err err = {0};
    struct hostfile h;
    char text[256];

    read_four(&h);
    assert_int_equal(hostfile_first_hosts(&h, 4, &err), CKPT_ECONFIG);
    assert_int_equal(hostfile_first_hosts(&h, 2, &err), 0);
    assert_int_equal(hostfile_first_slots(&h, 3, &err), CKPT_ECONFIG);
    assert_string_equal(err.text, "`num_gpus 3`: worker-1 has 2 slots");
    assert_int_equal(hostfile_first_slots(&h, 1, &err), 0);
    show(text, sizeof text, &h);
    assert_string_equal(text, "worker-0:0 worker-1:0");
    hostfile_release(&h);
    assert_true(hostfile_is_here("localhost"));
    assert_true(hostfile_is_here("127.0.0.1"));
    assert_false(hostfile_is_here("no-such-host.invalid"));
}

/* test_meet - ranks that do not belong together, or meet at a port which another program holds. */
#include "tests/unit/unit.h"

#include <netinet/in.h>
#include <pthread.h>
#include <sys/socket.h>

#include "trainer/clock.h"
#include "trainer/comm/meet.h"

/* A listening socket on loopback, for rank 1 of two. */
static int listen_for(struct ranks *r)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof a;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof a), 0);
    assert_int_equal(listen(fd, 1), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&a, &size), 0);
    *r = (struct ranks){.world_size = 2, .rank = 1, .host = "127.0.0.1", .meet = RANKS_STORE,
                        .port = ntohs(a.sin_port)};
    return fd;
}

TEST_ERR(a_program_that_never_answers_is_waited_for_as_long_as_a_rank)
{
    struct ranks r;
    int fd = listen_for(&r);
    int64_t since = clock_ms();
    struct meet *m;

    assert_int_equal(meet_open(&m, &r, 200, err), CKPT_ECOMM);
    assert_null(m);
    assert_true(clock_ms() - since < 5000);
    assert_non_null(strstr(err->text, "store at 127.0.0.1:"));
    assert_non_null(strstr(err->hint, "another program may hold this port"));
    close(fd);
}

/* As sshd and others do, it speaks first. */
static void *greet(void *arg)
{
    static const char words[] = "SSH-2.0-OpenSSH_9.2p1\r\n";
    char heard[256];
    int fd = accept(*(int *)arg, NULL, NULL);

    if (fd >= 0 && send(fd, words, sizeof words - 1, MSG_NOSIGNAL) > 0)
        while (recv(fd, heard, sizeof heard, 0) > 0)
            ;
    close(fd);
    return NULL;
}

TEST_ERR(one_that_speaks_first_is_no_store)
{
    struct ranks r;
    int fd = listen_for(&r);
    pthread_t other;
    struct meet *m;

    assert_int_equal(pthread_create(&other, NULL, greet, &fd), 0);
    assert_int_equal(meet_open(&m, &r, 2000, err), CKPT_ECOMM);
    assert_non_null(strstr(err->text, "what answers there is no store"));
    assert_non_null(strstr(err->hint, "choose another MASTER_PORT"));
    pthread_join(other, NULL);
    close(fd);
}

struct rank {
    struct ranks    r;
    struct meet    *meet;
    int             rc;
    struct ckpt_err err;
};

static void *come(void *arg)
{
    struct rank *k = arg;

    k->rc = meet_open(&k->meet, &k->r, 5000, &k->err);
    return NULL;
}

TEST(ranks_of_worlds_of_different_sizes_are_refused_by_name)
{
    static const struct { long world[2]; const char *text; } worlds[] = {
        {{2, 3}, "rank 1 is one of 3 ranks, rank 0 of 2"},
        {{3, 2}, "rank 1 is one of 2 ranks, rank 0 of 3"},
        {{1, 2}, "rank 1 is one of 2 ranks, rank 0 of 1"},      /* rank 0 expects none */
    };

    for (size_t i = 0; i < sizeof worlds / sizeof worlds[0]; i++) {
        struct rank rank[2] = {0};
        pthread_t other;

        close(listen_for(&rank[0].r));  /* a free port */
        for (int k = 0; k < 2; k++) {
            rank[k].r = rank[0].r;
            rank[k].r.rank = k;
            rank[k].r.world_size = worlds[i].world[k];
        }
        assert_int_equal(pthread_create(&other, NULL, come, &rank[1]), 0);
        come(&rank[0]);
        pthread_join(other, NULL);
        assert_int_equal(rank[1].rc, CKPT_ECONFIG);
        assert_non_null(strstr(rank[1].err.text, worlds[i].text));
        if (worlds[i].world[0] > 1) {
            assert_int_equal(rank[0].rc, CKPT_ECONFIG);
            assert_string_equal(rank[0].err.text, worlds[i].text);
            assert_non_null(strstr(rank[0].err.hint, "WORLD_SIZE"));
        }
        meet_close(rank[0].meet, true);
    }
}

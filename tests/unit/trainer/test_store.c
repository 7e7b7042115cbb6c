/* test_store - ranks' store: requests and their answers, waiting, strangers, the word. */
#include "tests/unit/unit.h"

#include <netinet/in.h>
#include <pthread.h>
#include <sys/socket.h>

#include "trainer/comm/store.h"
#include "trainer/comm/store_server.h"

static struct store_server *serve(const char *word)
{
    struct store_server *s;
    struct ckpt_err err;

    if (store_server_open(&s, "127.0.0.1", 0, word, &err))
        fail_msg("%s", err.text);
    return s;
}

static struct store *connect_to(const struct store_server *s, const char *word)
{
    struct store *c;
    struct ckpt_err err;

    if (store_open(&c, "127.0.0.1", store_server_port(s), word, 2000, &err))
        fail_msg("%s", err.text);
    return c;
}

TEST(values_are_set_added_and_got)
{
    struct store_server *s = serve(NULL);
    struct store *a = connect_to(s, NULL), *b = connect_to(s, NULL);
    struct ckpt_err err;
    char got[100];
    int64_t sum;
    size_t n;

    assert_int_equal(store_set(a, "k", "value", 5, &err), 0);
    assert_int_equal(store_get(b, "k", got, sizeof got, &n, 1000, &err), 0);
    assert_int_equal(n, 5);
    assert_memory_equal(got, "value", 5);
    assert_int_equal(store_set(a, "k", "", 0, &err), 0);
    assert_int_equal(store_get(a, "k", got, sizeof got, &n, 1000, &err), 0);
    assert_int_equal(n, 0);
    assert_int_equal(store_add(a, "n", 40, &sum, &err), 0);
    assert_int_equal(store_add(b, "n", -50, &sum, &err), 0);
    assert_int_equal(sum, -10);
    assert_int_equal(store_get(b, "n", got, sizeof got, &n, 1000, &err), 0);
    assert_memory_equal(got, "-10", 3);
    assert_int_equal(store_has(b, "n", &err), 1);
    assert_int_equal(store_has(b, "absent", &err), 0);
    assert_int_equal(store_set(a, "k", "longer", 6, &err), 0);
    assert_int_equal(store_get(a, "k", got, 5, &n, 1000, &err), CKPT_ELIMIT);
    assert_non_null(strstr(err.text, "k has 6 bytes, at most 5 expected"));
    store_close(a);
    store_close(b);
    store_server_close(s);
}

TEST(time_over_leaves_the_connection_usable)
{
    struct store_server *s = serve(NULL);
    struct store *a = connect_to(s, NULL);
    struct ckpt_err err;
    char got[10];
    size_t n;

    assert_int_equal(store_get(a, "late", got, sizeof got, &n, 50, &err), CKPT_ENOTFOUND);
    assert_int_equal(store_set(a, "late", "x", 1, &err), 0);
    assert_int_equal(store_get(a, "late", got, sizeof got, &n, 1000, &err), 0);
    assert_int_equal(n, 1);
    store_close(a);
    store_server_close(s);
}

enum { N_RANKS = 24 };

struct rank {
    struct store_server *server;
    pthread_t            thread;
    int64_t              number;
    int                  rc;
};

/* Each tells its name and waits for everybody's. */
static void *meet(void *arg)
{
    struct rank *r = arg;
    struct ckpt_err err;
    struct store *c;
    char key[40], got[40];
    int64_t sum;
    size_t n;

    r->rc = store_open(&c, "127.0.0.1", store_server_port(r->server), "open sesame", 2000, &err);
    snprintf(key, sizeof key, "rank/%lld", (long long)r->number);
    r->rc = r->rc ? r->rc : store_set(c, key, key, strlen(key), &err);
    for (int i = 0; r->rc == 0 && i < N_RANKS; i++) {
        snprintf(key, sizeof key, "rank/%d", i);
        r->rc = store_get(c, key, got, sizeof got, &n, 10000, &err);
        if (r->rc == 0 && (n != strlen(key) || memcmp(got, key, n) != 0))
            r->rc = -100;
    }
    r->rc = r->rc ? r->rc : store_add(c, "met", 1, &sum, &err);
    store_close(c);
    return NULL;
}

TEST(ranks_meet)
{
    struct store_server *s = serve("open sesame");
    struct store *c = connect_to(s, "open sesame");
    struct rank rank[N_RANKS];
    struct ckpt_err err;
    int64_t sum;

    for (int i = 0; i < N_RANKS; i++) {
        rank[i] = (struct rank){.server = s, .number = i};
        assert_int_equal(pthread_create(&rank[i].thread, NULL, meet, &rank[i]), 0);
    }
    for (int i = 0; i < N_RANKS; i++) {
        pthread_join(rank[i].thread, NULL);
        assert_int_equal(rank[i].rc, 0);
    }
    assert_int_equal(store_add(c, "met", 0, &sum, &err), 0);
    assert_int_equal(sum, N_RANKS);
    store_close(c);
    store_server_close(s);
}

TEST(who_does_not_know_the_word_gets_nothing)
{
    static const char *const words[] = {NULL, "", "open", "open sesame!"};
    struct store_server *s = serve("open sesame");

    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        struct store *c = connect_to(s, words[i]);
        struct ckpt_err err;

        assert_int_equal(store_has(c, "k", &err), CKPT_ECOMM);
        store_close(c);
    }
    store_server_close(s);
}

/* What a stranger sends, byte for byte: the connection is closed, and others go on. */
TEST(other_bytes_end_the_connection)
{
    static const struct {
        const char *bytes;
        size_t      n;
    } row[] = {
        {"GET / HTTP/1.1\r\n\r\n", 18},
        {"\x00\xce\xf7\x85\x3d", 5},                                /* another number */
        {"\x01\x01\0\0\0\0\0\0\0k\0\0\0\0\0\0\0\0", 18},            /* SET before VALIDATE */
        {"\x00\xce\xf7\x85\x3c\x0e", 6},                            /* no such request */
        {"\x00\xce\xf7\x85\x3c\x03\xff\xff\xff\xff\xff\xff\xff\xff", 14},   /* a key of 2^64 - 1 */
        {"\x00\xce\xf7\x85\x3c\x06\xff\xff\xff\xff\xff\xff\xff\xff", 14},   /* so many keys */
        {"\x00\xce\xf7\x85\x3c\x00\xce\xf7\x85\x3c", 10},           /* VALIDATE twice */
    };
    struct store_server *s = serve(NULL);
    struct store *well = connect_to(s, NULL);
    struct ckpt_err err;

    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(store_server_port(s)),
                                .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        char c;

        assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof a), 0);
        assert_int_equal(write(fd, row[i].bytes, row[i].n), row[i].n);
        if (read(fd, &c, 1) > 0)
            fail_msg("row %zu: answered", i);
        close(fd);
    }
    assert_int_equal(store_set(well, "k", "v", 1, &err), 0);
    assert_int_equal(store_has(well, "k", &err), 1);
    store_close(well);
    store_server_close(s);
}

TEST(nobody_there)
{
    struct store_server *s = serve(NULL), *t;
    uint16_t port = store_server_port(s);
    struct ckpt_err err;
    struct store *c;

    assert_int_equal(store_server_open(&t, "127.0.0.1", port, NULL, &err), CKPT_ECONFIG);
    assert_non_null(strstr(err.text, "cannot listen"));
    assert_non_null(strstr(err.hint, "another MASTER_PORT"));
    assert_string_not_equal(err.reason, STORE_SERVER_ELSEWHERE);
    assert_int_equal(store_server_open(&t, "192.0.2.1", 0, NULL, &err), CKPT_ECONFIG);
    assert_string_equal(err.reason, STORE_SERVER_ELSEWHERE);
    assert_int_equal(store_server_open(&t, "no-such-host.invalid", 0, NULL, &err), CKPT_ECONFIG);
    assert_string_equal(err.reason, STORE_SERVER_ELSEWHERE);
    store_server_close(s);
    assert_int_equal(store_open(&c, "127.0.0.1", port, NULL, 300, &err), CKPT_ECOMM);
    assert_non_null(strstr(err.text, "nobody answered"));
    assert_int_equal(store_open(&c, "no-such-host.invalid", port, NULL, 300, &err), CKPT_ECONFIG);
}

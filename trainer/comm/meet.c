/* comm/meet - see meet.h. */
#include "trainer/comm/meet.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "libckpt/ckpt.h"
#include "libckpt/log.h"
#include "trainer/clock.h"
#include "trainer/comm/pulse.h"
#include "trainer/comm/report.h"
#include "trainer/comm/store.h"
#include "trainer/comm/store_server.h"

#define MAX_HELLO 256
#define MAX_THERE 1000                  /* processes that take themselves for one rank */
#define TELL_MS   3000                  /* without a store: then a line tells what is waited for */

struct meet {
    struct comm_meeting  meeting;
    struct store        *store;
    struct store_server *server;        /* NULL: another process holds the store */
    struct pulse        *pulse;         /* NULL: a supervisor watches */
    char                 run[160];      /* before every key: this start of this run */
    char                 address[64];
    char                 host[65], word[65];
};

static int set_key(void *ctx, const char *key, const void *value, size_t n, struct ckpt_err *err)
{
    const struct meet *m = ctx;
    char name[512];

    snprintf(name, sizeof name, "%s/%s", m->run, key);
    return store_set(m->store, name, value, n, err);
}

static int get_key(void *ctx, const char *key, void *value, size_t max, size_t *n,
                   struct ckpt_err *err)
{
    const struct meet *m = ctx;
    char name[512];

    snprintf(name, sizeof name, "%s/%s", m->run, key);
    return store_get(m->store, name, value, max, n, m->meeting.timeout_ms, err);
}

/* torchrun's agent keeps its store from one start of the ranks to the next. */
static void name_run(struct meet *m)
{
    const char *id = getenv("TORCHELASTIC_RUN_ID"), *start = getenv("TORCHELASTIC_RESTART_COUNT");

    snprintf(m->run, sizeof m->run, "ckpt/%.64s/%.16s", id ? id : "", start ? start : "0");
}

/* Take the store's word from the environment, where child processes would see it. */
static void take_word(struct meet *m)
{
    const char *given = getenv(MEET_WORD_ENV);

    snprintf(m->word, sizeof m->word, "%s", given ? given : "");
    unsetenv(MEET_WORD_ENV);
}

static int connect_store(struct store **out, const struct meet *m, const struct ranks *r,
                         struct ckpt_err *err)
{
    return store_open(out, r->host, r->port, m->word[0] ? m->word : NULL, m->meeting.timeout_ms,
                      err);
}

/* The master's name may lead nowhere yet, or still to the host that had it before. */
static int hold_store(struct meet *m, const struct ranks *r, struct ckpt_err *err)
{
    const struct timespec a_while = {.tv_nsec = 500000000};
    int64_t now = clock_ms(), until = now + m->meeting.timeout_ms, tell_at = now + TELL_MS;
    bool told = false;
    int rc;

    while ((rc = store_server_open(&m->server, r->host, r->port, m->word[0] ? m->word : NULL,
                                   err)) == CKPT_ECONFIG &&
           strcmp(err->reason, STORE_SERVER_ELSEWHERE) == 0 && (now = clock_ms()) < until) {
        if (now >= tell_at && !told)
            ckpt_log(CKPT_LOG_WARNING, "waiting for %s to be an address of this host, %lld s more "
                     "at most: %s", r->host, (long long)((until - now) / 1000), err->text);
        told = now >= tell_at;
        nanosleep(&a_while, NULL);
    }
    if (rc == 0)
        *err = (struct ckpt_err){0};
    return rc;
}

static int reach_store(struct meet *m, const struct ranks *r, struct ckpt_err *err)
{
    int rc = 0;

    take_word(m);
    if (r->rank == 0 && !r->held)
        rc = hold_store(m, r, err);
    if (rc == 0)
        rc = connect_store(&m->store, m, r, err);
    if (rc == 0)
        rc = store_own_address(m->store, m->address, sizeof m->address, err);
    if (rc && rc != CKPT_ESTOPPED && !err->hint[0])
        ckpt_err_hint(err, "MASTER_ADDR and MASTER_PORT name a host and a free port that all ranks "
                      "reach");
    return rc;
}

/* "VERSION/WORLD_SIZE HOST": what the others must know of this rank. */
static int say_hello(struct meet *m, const struct ranks *r, struct ckpt_err *err)
{
    char key[256], hello[MAX_HELLO];
    int64_t there;
    int rc;

    snprintf(key, sizeof key, "%s/here/%d", m->run, m->meeting.rank);
    if (m->meeting.timeout_ms < STORE_ANSWER_MS)
        store_answers_within(m->store, m->meeting.timeout_ms);
    rc = store_add(m->store, key, 1, &there, err);
    store_answers_within(m->store, STORE_ANSWER_MS);
    if (rc == 0 && (there < 1 || there > MAX_THERE))
        rc = ckpt_fail(err, CKPT_ECOMM, "store at %s:%u: what answers there is no store", r->host,
                       (unsigned)r->port);
    if (rc == CKPT_ECOMM)               /* it took the connection, but may be anything */
        ckpt_err_hint(err, "another program may hold this port: choose another MASTER_PORT");
    if (rc)
        return rc;
    if (there > 1)
        return ckpt_fail(err, CKPT_ECONFIG, "rank %d is there already: two processes say that they "
                         "are it", m->meeting.rank);
    snprintf(key, sizeof key, "hello/%d", m->meeting.rank);
    snprintf(hello, sizeof hello, "%s/%d %s", CKPT_VERSION, m->meeting.world_size, m->host);
    return set_key(m, key, hello, strlen(hello), err);
}

static int fail_world(int r, long world, int other, long others, struct ckpt_err *err)
{
    ckpt_fail(err, CKPT_ECONFIG, "rank %d is one of %ld ranks, rank %d of %ld", r, world, other,
              others);
    return ckpt_err_hint(err, "each rank needs the same WORLD_SIZE");
}

/* Rank 0: whether rank r came in time, as the same program, to as many. */
static int expect_rank(struct meet *m, int r, int64_t until, struct ckpt_err *err)
{
    char name[192], hello[MAX_HELLO + 1];
    size_t n = 0, same = strlen(CKPT_VERSION);
    int64_t left = until - clock_ms();
    long world;
    int rc;

    snprintf(name, sizeof name, "%s/hello/%d", m->run, r);
    rc = store_get(m->store, name, hello, MAX_HELLO, &n, left > 0 ? left : 0, err);
    if (rc == CKPT_ENOTFOUND) {
        rc = ckpt_fail(err, CKPT_ECOMM, "rank %d of %d did not come within %lld s", r,
                       m->meeting.world_size, (long long)(m->meeting.timeout_ms / 1000));
        ckpt_err_hint(err, "see what rank %d says where it was started", r);
    }
    if (rc)
        return rc;
    hello[n] = '\0';
    if (strncmp(hello, CKPT_VERSION, same) == 0 && hello[same] == '/') {
        world = strtol(hello + same + 1, NULL, 10);
        return world == m->meeting.world_size ? 0 : fail_world(r, world, 0, m->meeting.world_size,
                                                               err);
    }
    return ckpt_fail(err, CKPT_ECONFIG, "rank %d is of version %.64s, rank 0 on %s of %s", r, hello,
                     m->host, CKPT_VERSION);
}

/* Rank 0 tells all what came of it: 0 and how many there are, or the code and the reason. */
static int call_roll(struct meet *m, struct ckpt_err *err)
{
    int64_t until = clock_ms() + m->meeting.timeout_ms;
    struct ckpt_err unheard = {0};
    char verdict[1100] = "";
    int rc = 0;

    for (int r = 1; r < m->meeting.world_size && rc == 0; r++)
        rc = expect_rank(m, r, until, err);
    if (rc)
        snprintf(verdict, sizeof verdict, "%d %s", rc, err->text);
    if (rc == 0) {
        snprintf(verdict, sizeof verdict, "0 %d", m->meeting.world_size);
        return set_key(m, "roll", verdict, strlen(verdict), err);
    }
    set_key(m, "roll", verdict, strlen(verdict), &unheard);     /* they give up by themselves too */
    return rc;
}

static int hear_roll(struct meet *m, struct ckpt_err *err)
{
    const int64_t slack = 5000;         /* rank 0 tells who is missing when the time is over */
    char name[192], verdict[1101], *text;
    size_t n = 0;
    long code, world;
    int rc;

    snprintf(name, sizeof name, "%s/roll", m->run);
    rc = store_get(m->store, name, verdict, sizeof verdict - 1, &n,
                   m->meeting.timeout_ms + slack, err);
    if (rc == CKPT_ENOTFOUND)
        return ckpt_fail(err, CKPT_ECOMM, "rank 0 of %d did not come within %lld s",
                         m->meeting.world_size, (long long)(m->meeting.timeout_ms / 1000));
    if (rc)
        return rc;
    verdict[n] = '\0';
    code = strtol(verdict, &text, 10);
    if (code == 0) {
        world = strtol(text, NULL, 10);
        return world == m->meeting.world_size
                   ? 0 : fail_world(m->meeting.rank, m->meeting.world_size, 0, world, err);
    }
    return ckpt_fail(err, code == CKPT_ECONFIG ? CKPT_ECONFIG : CKPT_ECOMM, "rank 0: %s",
                     *text == ' ' ? text + 1 : text);
}

/* Ranks of which no supervisor watches all watch each other: it holds their store. */
static int start_pulse(struct meet *m, const struct ranks *r, struct ckpt_err *err)
{
    struct pulse_opts opts = {.run = m->run, .host = m->host, .rank = m->meeting.rank,
                              .world_size = m->meeting.world_size,
                              .patience_ms = m->meeting.timeout_ms,
                              .holder = r->held ? "the launcher" : "rank 0"};
    int rc = report_watched() && r->held ? 1 : connect_store(&opts.store, m, r, err);

    return rc == 1 ? 0 : rc ? rc : pulse_open(&m->pulse, &opts, err);
}

int meet_open(struct meet **out, const struct ranks *r, int64_t timeout_ms, struct ckpt_err *err)
{
    struct meet *m = ckpt_alloc(1, sizeof *m);
    int rc;

    *out = NULL;
    if (!m)
        return ckpt_nomem(err, sizeof *m);
    m->meeting = (struct comm_meeting){
        .rank = (int)r->rank, .world_size = (int)r->world_size, .local_rank = (int)r->local_rank,
        .address = m->address, .timeout_ms = timeout_ms, .ctx = m, .set = set_key, .get = get_key,
    };
    name_run(m);
    if (gethostname(m->host, sizeof m->host - 1))
        snprintf(m->host, sizeof m->host, "unknown");
    rc = reach_store(m, r, err);
    if (rc == 0)
        rc = say_hello(m, r, err);
    if (rc == 0)
        rc = m->meeting.rank == 0 ? call_roll(m, err) : hear_roll(m, err);
    if (rc == 0)
        rc = start_pulse(m, r, err);
    if (rc)
        meet_close(m, false);
    else
        *out = m;
    return rc;
}

const struct comm_meeting *meet_meeting(const struct meet *m) { return &m->meeting; }

void meet_tell(const struct meet *m, const struct ckpt_err *why)
{
    if (m && m->pulse)
        pulse_tell(m->pulse, why);
}

bool meet_cause(const struct meet *m, struct ckpt_err *why)
{
    return m && m->pulse && pulse_cause(m->pulse, why);
}

/* Until every rank has closed its meeting: they would take the end of the store for a failure. */
static void outlast_others(struct meet *m, int64_t ms)
{
    const struct timespec a_while = {.tv_nsec = 20000000};
    int64_t until = clock_ms() + ms, left = 0;
    struct ckpt_err unheard = {0};
    char key[192];

    snprintf(key, sizeof key, "%s/left", m->run);
    while (store_add(m->store, key, 0, &left, &unheard) == 0 && left < m->meeting.world_size &&
           clock_ms() < until)
        nanosleep(&a_while, NULL);
}

void meet_close(struct meet *m, bool well)
{
    struct ckpt_err unheard = {0};
    char key[192];
    int64_t left;

    if (!m)
        return;
    pulse_close(m->pulse);
    if (m->store)                       /* whoever holds it may be why this one ends */
        store_answers_within(m->store, well ? 5000 : 500);
    snprintf(key, sizeof key, "%s/left", m->run);
    if (m->store && store_add(m->store, key, 1, &left, &unheard) == 0 && m->server)
        outlast_others(m, well ? 30000 : 1000);
    store_close(m->store);
    store_server_close(m->server);
    ckpt_free(m);
}

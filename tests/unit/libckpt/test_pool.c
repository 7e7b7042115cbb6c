/* pool: every item once, errors stop the rest, workers never share an index. */
#include "tests/unit/unit.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#include "libckpt/base/fault.h"
#include "libckpt/base/pool.h"

#define ITEMS   1000
#define WORKERS 8

struct tally {
    atomic_int  done[ITEMS];
    atomic_int  busy[WORKERS];          /* calls in work for each worker */
    atomic_bool clash, beyond;
    atomic_size_t calls;
    size_t      bad;                    /* item that fails, or SIZE_MAX */
    size_t      workers;
    pthread_t   caller;
    atomic_bool elsewhere;              /* some item ran on another thread */
};

static int count(void *ctx, size_t i, size_t worker, struct ckpt_err *err)
{
    struct tally *t = ctx;

    atomic_fetch_add(&t->calls, 1);
    if (worker >= t->workers || i >= ITEMS) {
        atomic_store(&t->beyond, true);
        return 0;
    }
    if (atomic_fetch_add(&t->busy[worker], 1) != 0)
        atomic_store(&t->clash, true);
    if (!pthread_equal(pthread_self(), t->caller))
        atomic_store(&t->elsewhere, true);
    if (i % 50 == 0)
        sched_yield();
    atomic_fetch_add(&t->done[i], 1);
    atomic_fetch_sub(&t->busy[worker], 1);
    if (i == t->bad)
        return ckpt_fail(err, CKPT_EFORMAT, "item %zu", i);
    return 0;
}

TEST(every_item_once)
{
    static const size_t workers[] = {0, 1, 2, WORKERS};

    for (size_t k = 0; k < 4; k++) {
        struct tally t = {.bad = SIZE_MAX, .workers = workers[k] ? workers[k] : 1,
                          .caller = pthread_self()};
        struct ckpt_err err = {0};

        assert_int_equal(ckpt_pool_run(workers[k], ITEMS, count, &t, &err), 0);
        for (size_t i = 0; i < ITEMS; i++)
            assert_int_equal(atomic_load(&t.done[i]), 1);
        assert_false(atomic_load(&t.clash));
        assert_false(atomic_load(&t.beyond));
        if (workers[k] < 2)
            assert_false(atomic_load(&t.elsewhere));
        assert_string_equal(err.text, "");
    }
}

/* The order of one worker is the items' order, and an error ends it there. */
TEST_ERR(an_error_ends_it)
{
    struct tally one = {.bad = 7, .workers = 1, .caller = pthread_self()};
    struct tally many = {.bad = 0, .workers = WORKERS, .caller = pthread_self()};

    assert_int_equal(ckpt_pool_run(1, ITEMS, count, &one, err), CKPT_EFORMAT);
    assert_string_equal(err->text, "item 7");
    assert_int_equal(atomic_load(&one.calls), 8);
    ckpt_err_clear(err);
    assert_int_equal(ckpt_pool_run(WORKERS, ITEMS, count, &many, err), CKPT_EFORMAT);
    assert_string_equal(err->text, "item 0");
}

/* All fail at once: one error is told, whole. */
static atomic_int waiting;

static int fail_together(void *ctx, size_t i, size_t worker, struct ckpt_err *err)
{
    (void)worker;
    atomic_fetch_add(&waiting, 1);
    while (atomic_load(&waiting) < *(int *)ctx)
        sched_yield();
    return ckpt_fail(err, i % 2 ? CKPT_EIO : CKPT_EFORMAT, "item %zu fails", i);
}

TEST_ERR(one_error_is_told)
{
    char want[40];
    int all = 4, rc;
    unsigned i = 99;

    rc = ckpt_pool_run(4, 4, fail_together, &all, err);
    assert_int_equal(sscanf(err->text, "item %u fails", &i), 1);
    assert_true(i < 4);
    snprintf(want, sizeof want, "item %u fails", i);
    assert_string_equal(err->text, want);
    assert_int_equal(rc, i % 2 ? CKPT_EIO : CKPT_EFORMAT);
    assert_int_equal(err->code, rc);
}

TEST_ERR(nothing_to_do)
{
    struct tally t = {.bad = SIZE_MAX, .workers = 1};

    assert_int_equal(ckpt_pool_run(4, 0, count, &t, err), 0);
    assert_int_equal(atomic_load(&t.calls), 0);
}

TEST(default)
{
    cpu_set_t was, one;

    assert_int_equal(ckpt_pool_default(1), 1);
    assert_int_equal(sched_getaffinity(0, sizeof was, &was), 0);
    assert_int_equal(ckpt_pool_default(SIZE_MAX), CPU_COUNT(&was));
    CPU_ZERO(&one);
    for (size_t i = 0; i < CPU_SETSIZE && CPU_COUNT(&one) == 0; i++)
        if (CPU_ISSET(i, &was))
            CPU_SET(i, &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    assert_int_equal(ckpt_pool_default(64), 1);
    assert_int_equal(sched_setaffinity(0, sizeof was, &was), 0);
}

TEST_ERR(no_memory)
{
#ifdef CKPT_FAULTS
    struct tally t = {.bad = SIZE_MAX, .workers = 4, .caller = pthread_self()};

    ckpt_fault_arm(CKPT_FAULT_ALLOC, 1);
    assert_int_equal(ckpt_pool_run(4, ITEMS, count, &t, err), CKPT_ENOMEM);
    assert_true(ckpt_fault_struck());
    ckpt_fault_arm(CKPT_FAULT_ALLOC, 0);
    assert_int_equal(atomic_load(&t.calls), 0);
#else
    (void)err;
    skip();
#endif
}

/* pool - see pool.h. */
#include "libckpt/base/pool.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#include "libckpt/err.h"
#include "libckpt/mem.h"

struct shared {
    size_t          n;
    ckpt_pool_fn   *fn;
    void           *ctx;
    atomic_size_t   next;           /* item to hand out */
    atomic_bool     failed;
    pthread_mutex_t lock;           /* of err */
    struct ckpt_err err;
};

struct worker {
    struct shared *s;
    size_t         index;
    pthread_t      thread;
};

static void *work(void *arg)
{
    struct worker *w = arg;
    struct shared *s = w->s;

    while (!atomic_load(&s->failed)) {
        size_t i = atomic_fetch_add(&s->next, 1);
        struct ckpt_err err = {0};

        if (i >= s->n)
            break;
        if (s->fn(s->ctx, i, w->index, &err) == 0)
            continue;
        pthread_mutex_lock(&s->lock);
        if (!atomic_exchange(&s->failed, true))
            s->err = err;
        pthread_mutex_unlock(&s->lock);
    }
    return NULL;
}

int ckpt_pool_run(size_t n_workers, size_t n, ckpt_pool_fn *fn, void *ctx, struct ckpt_err *err)
{
    struct shared s = {.n = n, .fn = fn, .ctx = ctx, .lock = PTHREAD_MUTEX_INITIALIZER};
    struct worker *w;
    size_t started = 1;

    if (n_workers > n)
        n_workers = n;
    if (n_workers < 1)
        n_workers = 1;
    w = ckpt_alloc(n_workers, sizeof *w);
    if (!w)
        return ckpt_nomem(err, n_workers * sizeof *w);
    for (size_t k = 0; k < n_workers; k++)
        w[k] = (struct worker){.s = &s, .index = k};
    /* When not all threads can be started, those that run do all the work. */
    while (started < n_workers && pthread_create(&w[started].thread, NULL, work, &w[started]) == 0)
        started++;
    work(&w[0]);
    for (size_t k = 1; k < started; k++)
        pthread_join(w[k].thread, NULL);
    ckpt_free(w);
    pthread_mutex_destroy(&s.lock);
    if (atomic_load(&s.failed))
        *err = s.err;
    return atomic_load(&s.failed) ? ckpt_err_code(err) : 0;
}

size_t ckpt_pool_default(size_t max)
{
    cpu_set_t set;
    size_t n = 1;

    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) > 0)
        n = (size_t)CPU_COUNT(&set);
    return n < max ? n : max;
}

/*
 * rank_threads - ranks that are threads of a test, with the collectives of GPUs: many small ones at
 * once, over a device's buffers, in the order of its stream OP_STREAM_COMM, as late as they may be
 * where that is lazy (lazy_streams.h).
 */
#ifndef CKPT_TESTS_UNIT_RANK_THREADS_H
#define CKPT_TESTS_UNIT_RANK_THREADS_H

#include <pthread.h>

#include "tests/unit/lazy_streams.h"
#include "libckpt/convert.h"
#include "trainer/comm/comm.h"

enum { RANK_THREADS = 4 };

struct rank_world {
    int               n;
    pthread_barrier_t barrier;
    const void       *from[RANK_THREADS];       /* of the collective in work */
};

struct rank_comm {
    struct comm        head;
    struct rank_world *world;
    bool               lazy;
};

static inline struct rank_comm *rank_of(struct comm *c) { return (struct rank_comm *)c; }

/* What every rank gives is there; and may be changed again. */
static inline void rank_meet(struct rank_world *w) { pthread_barrier_wait(&w->barrier); }

/* Of 16 bits each sum is rounded. */
static inline void rank_add_half(char *sum, const char *x, enum ckpt_dtype t)
{
    float a, b;

    ckpt_convert(&a, CKPT_F32, sum, t, 1);
    ckpt_convert(&b, CKPT_F32, x, t, 1);
    a += b;
    ckpt_convert(sum, t, &a, CKPT_F32, 1);
}

static inline void rank_add(void *sum, const void *x, int64_t n, enum ckpt_dtype t)
{
    for (int64_t i = 0; i < n; i++)
        if (t == CKPT_F64)
            ((double *)sum)[i] += ((const double *)x)[i];
        else if (t == CKPT_I64)
            ((int64_t *)sum)[i] += ((const int64_t *)x)[i];
        else if (t == CKPT_F32)
            ((float *)sum)[i] += ((const float *)x)[i];
        else
            rank_add_half((char *)sum + 2 * i, (const char *)x + 2 * i, t);
}

/* The sum over ranks of n elements at `skip` of their buffers; a caller frees it. */
static inline void *rank_sums(struct rank_world *w, int64_t skip, int64_t n, enum ckpt_dtype t)
{
    size_t wide = ckpt_dtype_size(t), at = (size_t)skip * wide;
    char *sum = calloc((size_t)n, wide);

    assert(sum);
    for (int r = 0; r < w->n; r++)
        rank_add(sum, (const char *)w->from[r] + at, n, t);
    return sum;
}

static inline void rank_run_reduce(const struct lazy_entry *e)
{
    struct rank_comm *c = e->ctx;
    bool scatter = e->how == 1;
    void *sum;

    c->world->from[c->head.rank] = e->src;
    rank_meet(c->world);
    sum = rank_sums(c->world, scatter ? c->head.rank * e->n : 0, e->n, e->to);
    rank_meet(c->world);
    memcpy(e->dst, sum, (size_t)e->n * ckpt_dtype_size(e->to));
    free(sum);
}

static inline void rank_run_gather(const struct lazy_entry *e)
{
    struct rank_comm *c = e->ctx;
    size_t bytes = (size_t)e->n * ckpt_dtype_size(e->to);

    c->world->from[c->head.rank] = e->src;
    rank_meet(c->world);
    for (int r = 0; r < c->world->n; r++)
        memmove((char *)e->dst + (size_t)r * bytes, c->world->from[r], bytes);
    rank_meet(c->world);
}

static inline void rank_give(struct comm *c, struct lazy_entry e)
{
    e.ctx = c;
    if (rank_of(c)->lazy)
        lazy_add(OP_STREAM_COMM, e);
    else
        e.run(&e);
}

static inline void rank_all_reduce(struct comm *c, void *buf, int64_t n, enum ckpt_dtype t,
                                   enum comm_op op)
{
    assert(op == COMM_SUM);
    rank_give(c, (struct lazy_entry){.run = rank_run_reduce, .dst = buf, .src = buf, .n = n,
                                     .to = t});
}

static inline void rank_reduce_scatter(struct comm *c, void *dst, const void *src, int64_t n,
                                       enum ckpt_dtype t)
{
    rank_give(c, (struct lazy_entry){.run = rank_run_reduce, .dst = dst, .src = src, .n = n,
                                     .to = t, .how = 1});
}

static inline void rank_all_gather(struct comm *c, void *dst, const void *src, int64_t n,
                                   enum ckpt_dtype t)
{
    rank_give(c, (struct lazy_entry){.run = rank_run_gather, .dst = dst, .src = src, .n = n,
                                     .to = t});
}

static inline void rank_group(struct comm *c, bool begin)
{
    (void)c;
    (void)begin;
}

static const struct comm_ops rank_host_ops = {
    .name = "threads", .all_reduce = rank_all_reduce, .all_gather = rank_all_gather,
    .reduce_scatter = rank_reduce_scatter};
static const struct comm_ops rank_device_ops = {
    .name = "threads of GPUs", .all_reduce = rank_all_reduce, .all_gather = rank_all_gather,
    .reduce_scatter = rank_reduce_scatter, .group = rank_group};

/* The communicators of one rank: over the host's buffers, and over its device's. */
struct rank_comms {
    struct rank_comm host, device;
};

static inline struct comm *rank_join(struct rank_comms *c, struct rank_world *w, int rank)
{
    *c = (struct rank_comms){
        .host = {.head = {.ops = &rank_host_ops, .rank = rank, .world_size = w->n}, .world = w},
        .device = {.head = {.ops = &rank_device_ops, .rank = rank, .world_size = w->n},
                   .world = w, .lazy = true}};
    c->host.head.device = &c->device.head;
    return &c->host.head;
}

/* One body for each rank; arg is the test's. */
struct rank_thread {
    struct rank_world *world;
    int                rank;
    void             (*body)(struct rank_thread *t);
    void              *arg;
    pthread_t          thread;
};

static inline void *rank_start(void *arg)
{
    struct rank_thread *t = arg;

    t->body(t);
    return NULL;
}

static inline void rank_threads(int n, void (*body)(struct rank_thread *t), void *arg)
{
    struct rank_thread t[RANK_THREADS];
    struct rank_world w = {.n = n};

    assert(n <= RANK_THREADS && pthread_barrier_init(&w.barrier, NULL, (unsigned)n) == 0);
    for (int r = 0; r < n; r++) {
        t[r] = (struct rank_thread){.world = &w, .rank = r, .body = body, .arg = arg};
        if (pthread_create(&t[r].thread, NULL, rank_start, &t[r]))
            abort();
    }
    for (int r = 0; r < n; r++)
        pthread_join(t[r].thread, NULL);
    pthread_barrier_destroy(&w.barrier);
}

#endif

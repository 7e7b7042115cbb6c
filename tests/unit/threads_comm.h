/*
 * threads_comm - communicators among the threads of a test, as fast as barriers are.  Sums have the order of
 * the ranks.  Those of threads_grouped take collectives in groups, as a GPU's do.
 */
#ifndef CKPT_TESTS_UNIT_THREADS_COMM_H
#define CKPT_TESTS_UNIT_THREADS_COMM_H

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/convert.h"
#include "trainer/comm/comm.h"

enum { THREADS_MOST = 8 };

/* What the ranks of one communicator share. */
struct threads_hub {
    pthread_barrier_t   barrier;
    const void         *given[THREADS_MOST];
    struct threads_hub *made[THREADS_MOST];     /* by a color's first rank */
};

struct threads_comm {
    struct comm         head;
    struct threads_hub *hub;
    int                 n_calls, n_sums;        /* collectives, and all_reduces of them */
};

static inline struct threads_comm *threads_of(struct comm *c) { return (struct threads_comm *)c; }

static inline void threads_meet(struct comm *c)
{
    pthread_barrier_wait(&threads_of(c)->hub->barrier);
}

/* Give the others an address, until the next threads_meet. */
static inline void threads_give(struct comm *c, const void *p)
{
    threads_of(c)->hub->given[c->rank] = p;
    threads_of(c)->n_calls++;
    threads_meet(c);
}

static inline double threads_get(const void *from, int64_t i, enum ckpt_dtype t)
{
    float x;

    if (t == CKPT_F32)
        return ((const float *)from)[i];
    if (t == CKPT_F64)
        return ((const double *)from)[i];
    if (t == CKPT_I64)
        return (double)((const int64_t *)from)[i];
    ckpt_convert(&x, CKPT_F32, (const char *)from + 2 * i, t, 1);
    return x;
}

static inline void threads_put(void *to, int64_t i, enum ckpt_dtype t, double x)
{
    float y = (float)x;

    if (t == CKPT_F32)
        ((float *)to)[i] = y;
    else if (t == CKPT_F64)
        ((double *)to)[i] = x;
    else if (t == CKPT_I64)
        ((int64_t *)to)[i] = (int64_t)x;
    else
        ckpt_convert((char *)to + 2 * i, t, &y, CKPT_F32, 1);
}

/* to[n] <- the ranks' elements from `at` on. */
static inline void threads_fold(struct comm *c, void *to, int64_t at, int64_t n, enum ckpt_dtype t,
                                enum comm_op op)
{
    for (int64_t i = 0; i < n; i++) {
        double x = 0;

        for (int r = 0; r < c->world_size; r++) {
            double y = threads_get(threads_of(c)->hub->given[r], at + i, t);

            if (r == 0)
                x = y;
            else if (op == COMM_SUM)
                x = t == CKPT_F32 ? (float)x + (float)y : x + y;
            else
                x = (op == COMM_MAX) == (y > x) ? y : x;
        }
        threads_put(to, i, t, x);
    }
}

static inline void threads_all_reduce(struct comm *c, void *buf, int64_t n, enum ckpt_dtype t,
                                      enum comm_op op)
{
    void *sum = malloc((size_t)n * 8);

    threads_give(c, buf);
    threads_of(c)->n_sums++;
    threads_fold(c, sum, 0, n, t, op);
    threads_meet(c);
    memcpy(buf, sum, (size_t)n * ckpt_dtype_size(t));
    free(sum);
}

static inline void threads_all_gather(struct comm *c, void *dst, const void *src, int64_t n,
                                      enum ckpt_dtype t)
{
    size_t bytes = (size_t)n * ckpt_dtype_size(t);
    char *own = malloc(bytes);

    memcpy(own, src, bytes);
    threads_give(c, own);
    for (int r = 0; r < c->world_size; r++)
        memcpy((char *)dst + (size_t)r * bytes, threads_of(c)->hub->given[r], bytes);
    threads_meet(c);
    free(own);
}

static inline void threads_reduce_scatter(struct comm *c, void *dst, const void *src, int64_t n,
                                          enum ckpt_dtype t)
{
    void *sum = malloc((size_t)n * 8);

    threads_give(c, src);
    threads_fold(c, sum, c->rank * n, n, t, COMM_SUM);
    threads_meet(c);
    memcpy(dst, sum, (size_t)n * ckpt_dtype_size(t));
    free(sum);
}

static inline void threads_broadcast(struct comm *c, void *buf, int64_t n, enum ckpt_dtype t,
                                     int root)
{
    threads_give(c, buf);
    if (c->rank != root)
        memcpy(buf, threads_of(c)->hub->given[root], (size_t)n * ckpt_dtype_size(t));
    threads_meet(c);
}

static inline void threads_group(struct comm *c, bool begin)
{
    (void)c;
    (void)begin;
}

static inline struct threads_hub *threads_hub(int n)
{
    struct threads_hub *hub = calloc(1, sizeof *hub);

    pthread_barrier_init(&hub->barrier, NULL, (unsigned)n);
    return hub;
}

static inline void threads_split(struct comm *part, struct comm *c, int color)
{
    struct threads_hub *hub = threads_of(c)->hub;

    if (part->rank == 0)
        hub->made[color] = threads_hub(part->world_size);
    threads_meet(c);
    threads_of(part)->hub = hub->made[color];
    threads_meet(c);
}

static inline void threads_close(struct comm *c)
{
    struct threads_hub *hub = threads_of(c)->hub;

    threads_meet(c);
    if (c->rank)
        return;
    pthread_barrier_destroy(&hub->barrier);
    free(hub);
}

#define THREADS_OPS(grouping)                                                                  \
    {.name = "threads", .size = sizeof(struct threads_comm), .all_reduce = threads_all_reduce, \
     .all_gather = threads_all_gather, .reduce_scatter = threads_reduce_scatter,               \
     .broadcast = threads_broadcast, .barrier = threads_meet, .group = (grouping),             \
     .split = threads_split, .close = threads_close}
static const struct comm_ops threads_plain = THREADS_OPS(NULL);
static const struct comm_ops threads_grouped = THREADS_OPS(threads_group);

/* Rank r of n; all of them get the same hub. */
static inline struct comm *threads_open(struct threads_hub *hub, const struct comm_ops *ops, int r,
                                        int n)
{
    struct threads_comm *c = calloc(1, sizeof *c);

    c->head = (struct comm){.ops = ops, .rank = r, .world_size = n, .local_rank = r,
                            .global_rank = r, .stride = 1};
    c->hub = hub;
    return &c->head;
}

#endif

/*
 * store - a source and a sink in memory, for the tests of what lies between them.
 *
 * The source's tensors lie one behind the other in a file of counted bytes; the sink keeps what
 * is written and can refuse the n-th write.
 */
#ifndef CKPT_TESTS_UNIT_STORE_H
#define CKPT_TESTS_UNIT_STORE_H

#include "tests/unit/unit.h"

#include <stdatomic.h>

#include "libckpt/sink.h"
#include "libckpt/source.h"

struct store_row {
    const char     *name;
    enum ckpt_dtype dtype;
    int             rank;
    int64_t         dim[4];
    size_t          alias_of;           /* 0: none; else one more than the index */
};

struct store_in {
    unsigned char     *bytes;
    struct ckpt_file  *file;
    struct ckpt_extra  extra[1];
    int               *closed;          /* counted up when the source is closed */
};

static inline void store_close(void *self)
{
    struct store_in *in = self;

    if (in->closed)
        ++*in->closed;
    ckpt_file_close(in->file);
    free(in->bytes);
    free(in);
}

static const struct ckpt_source_ops store_in_ops = {.format = "store", .close = store_close};

/* The tensors of rows, their bytes counting up modulo a prime; one extra named "side". */
static inline struct ckpt_source *store_source(const struct store_row *row, size_t n,
                                               int *closed)
{
    struct store_in *in = calloc(1, sizeof *in);
    struct ckpt_tensors list = {0};
    struct ckpt_source *src;
    struct ckpt_err err = {0};
    uint64_t size = 0, at = 0, bytes;

    for (size_t i = 0; i < n; i++) {
        struct ckpt_shape shape = ckpt_shape_of(row[i].rank, row[i].dim);

        assert_true(ckpt_shape_bytes(&bytes, &shape, row[i].dtype));
        size += bytes;
    }
    in->bytes = malloc(size + 1);
    in->closed = closed;
    for (uint64_t i = 0; i < size; i++)
        in->bytes[i] = (unsigned char)(i % 251);
    assert_int_equal(ckpt_file_memory(&in->file, in->bytes, size, "store", &err), 0);
    for (size_t i = 0; i < n; i++) {
        struct ckpt_shape shape = ckpt_shape_of(row[i].rank, row[i].dim);
        struct ckpt_fragment *f = ckpt_arena_alloc(&list.arena, 1, sizeof *f);
        struct ckpt_tensor *t;
        int64_t numel = 0;

        assert_true(ckpt_shape_numel(&numel, &shape));
        *f = (struct ckpt_fragment){.file = in->file, .offset = at};
        assert_int_equal(ckpt_tensors_add(&list, &t, row[i].name, strlen(row[i].name),
                                          row[i].dtype, &shape, f, numel > 0, false, &err), 0);
        if (row[i].alias_of)
            t->alias_of = row[i].alias_of - 1;
        at += ckpt_tensor_bytes(t);
    }
    in->extra[0] = (struct ckpt_extra){"side", in->file};
    assert_int_equal(ckpt_source_new(&src, &store_in_ops, in, &list, in->extra, 1,
                                     json_pack("{s:i}", "step", 7), &err), 0);
    return src;
}

struct store_out {
    const struct ckpt_tensors *list;
    unsigned char            **bytes;   /* [tensor], whole */
    size_t                     n;
    atomic_int                 writes;
    int                        fail_at; /* this write is refused; 0: none */
    _Atomic(int64_t)           most;    /* elements of the longest write */
    struct ckpt_out           *place;   /* where located ranges go, tensor behind tensor */
    int                       *committed, *aborted;
};

static inline int store_write(void *self, size_t i, int64_t start, int64_t count,
                              const void *src, struct ckpt_err *err)
{
    struct store_out *o = self;
    size_t width = ckpt_dtype_size(o->list->item[i].dtype);

    if (atomic_fetch_add(&o->writes, 1) + 1 == o->fail_at)
        return ckpt_fail(err, CKPT_EIO, "the store is full");
    memcpy(o->bytes[i] + (size_t)start * width, src, (size_t)count * width);
    for (int64_t most = atomic_load(&o->most); count > most;)
        if (atomic_compare_exchange_weak(&o->most, &most, count))
            break;
    return 0;
}

static inline void store_free(struct store_out *o)
{
    for (size_t i = 0; i < o->n; i++)
        free(o->bytes[i]);
    free(o->bytes);
    free(o);
}

static inline int store_commit(void *self, struct ckpt_err *err)
{
    (void)err;
    ++*((struct store_out *)self)->committed;
    store_free(self);
    return 0;
}

static inline void store_abort(void *self)
{
    ++*((struct store_out *)self)->aborted;
    store_free(self);
}

static const struct ckpt_sink_ops store_out_ops = {
    .format = "store", .write = store_write, .commit = store_commit, .abort = store_abort,
};

static inline struct store_out *store_new(const struct ckpt_tensors *list, int *committed,
                                          int *aborted)
{
    struct store_out *o = calloc(1, sizeof *o);

    o->list = list;
    o->n = list->n;
    o->committed = committed;
    o->aborted = aborted;
    o->bytes = calloc(o->n + 1, sizeof *o->bytes);
    for (size_t i = 0; i < o->n; i++)
        o->bytes[i] = calloc(1, (size_t)ckpt_tensor_bytes(&list->item[i]) + 1);
    return o;
}

/* A source of rows, and a sink for its tensors into a store; the source owns the list. */
struct store_pair {
    struct ckpt_source *src;
    struct store_out   *out;
    struct ckpt_sink   *sink;
    int                 committed, aborted;
    struct ckpt_err     err;
};

static inline void store_open_pair(struct store_pair *p, const struct store_row *row, size_t n,
                                   bool stream)
{
    memset(p, 0, sizeof *p);
    p->src = store_source(row, n, NULL);
    p->out = store_new(ckpt_source_tensors(p->src), &p->committed, &p->aborted);
    assert_int_equal(ckpt_sink_new(&p->sink, &store_out_ops, p->out,
                                   ckpt_source_tensors(p->src), stream, &p->err), 0);
}

/* All bytes of tensor i; the caller frees them. */
static inline void *store_whole(struct ckpt_source *s, size_t i)
{
    const struct ckpt_tensor *t = ckpt_source_tensor(s, i);
    void *bytes = malloc((size_t)ckpt_tensor_bytes(t) + 1);
    struct ckpt_err err = {0};

    if (ckpt_source_read(s, i, 0, t->numel, bytes, &err))
        fail_msg("%s", err.text);
    return bytes;
}

#endif

/*
 * comm/mpi - collectives over MPI (MPI-3.1 calls only), built as the plug-in libckpt_mpi.so.
 *
 * MPI counts are ints: longer buffers go in pieces where pieces keep their meaning, and as one
 * derived datatype where ranks' parts must stay apart.  For a given world and count MPI's
 * algorithms are fixed, so reruns give the same bits.
 */
#include <limits.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "trainer/comm/comm.h"
#include "trainer/comm/plugin.h"

#define PIECE ((int64_t)1 << 30)        /* elements a call at most; an int holds it */

struct comm_mpi {
    struct comm head;
    MPI_Comm    world;
    bool        split;                  /* a part of another one's ranks */
};

static MPI_Comm world_of(struct comm *c) { return ((struct comm_mpi *)c)->world; }

static void mark(struct comm *c, int rc, const char *what)
{
    char text[MPI_MAX_ERROR_STRING];
    int len = 0;

    if (rc == MPI_SUCCESS || c->err.code)
        return;
    MPI_Error_string(rc, text, &len);
    c->err.code = CKPT_ECOMM;
    snprintf(c->err.reason, sizeof c->err.reason, "peer-dead");
    snprintf(c->err.text, sizeof c->err.text, "rank %d: %s: %.*s", c->global_rank, what, len, text);
}

static MPI_Datatype type_of(enum ckpt_dtype t)
{
    switch (t) {
    case CKPT_F32: return MPI_FLOAT;
    case CKPT_F64: return MPI_DOUBLE;
    case CKPT_I64: return MPI_INT64_T;
    case CKPT_I32: return MPI_INT32_T;
    case CKPT_BF16:
    case CKPT_F16: return MPI_UINT16_T; /* moved, never reduced */
    default:       return MPI_BYTE;     /* moved, never reduced */
    }
}

static size_t width_of(enum ckpt_dtype t)
{
    int n = 1;

    MPI_Type_size(type_of(t), &n);
    return (size_t)n;
}

static void mpi_all_reduce(struct comm *c, void *buf, int64_t count, enum ckpt_dtype t,
                           enum comm_op op)
{
    static const MPI_Op ops[] = {MPI_SUM, MPI_MAX, MPI_MIN};

    for (int64_t at = 0; at < count && !c->err.code; at += PIECE) {
        int n = (int)(count - at < PIECE ? count - at : PIECE);

        mark(c, MPI_Allreduce(MPI_IN_PLACE, (char *)buf + (size_t)at * width_of(t), n, type_of(t),
                              ops[op], world_of(c)), "all_reduce");
    }
}

/* A datatype of count elements, count beyond an int's range. */
static int long_type(MPI_Datatype *out, int64_t count, MPI_Datatype base)
{
    int extent, rest = (int)(count % PIECE), rc, len[2] = {(int)(count / PIECE), 1};
    MPI_Aint at[2] = {0, 0};
    MPI_Datatype part[2];

    MPI_Type_size(base, &extent);
    at[1] = (MPI_Aint)(count - rest) * extent;
    rc = MPI_Type_contiguous((int)PIECE, base, &part[0]);
    if (rc == MPI_SUCCESS)
        rc = MPI_Type_contiguous(rest, base, &part[1]);
    if (rc == MPI_SUCCESS)
        rc = MPI_Type_create_struct(2, len, at, part, out);
    return rc == MPI_SUCCESS ? MPI_Type_commit(out) : rc;
}

static void mpi_all_gather(struct comm *c, void *dst, const void *src, int64_t count,
                           enum ckpt_dtype t)
{
    const char *own = (char *)dst + (size_t)c->rank * (size_t)count * width_of(t);
    const void *from = src == own ? MPI_IN_PLACE : src;
    MPI_Datatype type = type_of(t);
    int n = (int)count;

    if (count > PIECE) {
        n = 1;
        mark(c, long_type(&type, count, type_of(t)), "all_gather");
    }
    if (!c->err.code)
        mark(c, MPI_Allgather(from, n, type, dst, n, type, world_of(c)), "all_gather");
}

static void mpi_reduce_scatter(struct comm *c, void *dst, const void *src, int64_t count,
                               enum ckpt_dtype t)
{
    size_t width = width_of(t);

    if (count <= PIECE) {
        mark(c, MPI_Reduce_scatter_block(src, dst, (int)count, type_of(t), MPI_SUM, world_of(c)),
             "reduce_scatter");
        return;
    }
    for (int root = 0; root < c->world_size; root++)
        for (int64_t at = 0; at < count && !c->err.code; at += PIECE)
            mark(c,
                 MPI_Reduce((const char *)src +
                                ((size_t)root * (size_t)count + (size_t)at) * width,
                            (char *)dst + (size_t)at * width,
                            (int)(count - at < PIECE ? count - at : PIECE), type_of(t), MPI_SUM,
                            root, world_of(c)),
                 "reduce_scatter");
}

static void mpi_broadcast(struct comm *c, void *buf, int64_t count, enum ckpt_dtype t, int root)
{
    for (int64_t at = 0; at < count && !c->err.code; at += PIECE)
        mark(c, MPI_Bcast((char *)buf + (size_t)at * width_of(t),
                          (int)(count - at < PIECE ? count - at : PIECE), type_of(t), root,
                          world_of(c)), "broadcast");
}

/* MPI wants counts and places as ints: the wrapper has checked that they are. */
static void mpi_exchange(struct comm *c, void *dst, const int64_t *taken, const void *src,
                         const int64_t *given, enum ckpt_dtype t)
{
    size_t n = (size_t)c->world_size;
    int *list = malloc(4 * n * sizeof *list), *in = list, *from = list + n, *out = list + 2 * n;
    int *to = list + 3 * n, got = 0, sent = 0;

    if (!list) {
        mark(c, MPI_ERR_NO_MEM, "exchange");
        return;
    }
    for (size_t r = 0; r < n; r++) {
        in[r] = (int)taken[r];
        out[r] = (int)given[r];
        from[r] = got;
        to[r] = sent;
        got += in[r];
        sent += out[r];
    }
    mark(c, MPI_Alltoallv(src, out, to, type_of(t), dst, in, from, type_of(t), world_of(c)),
         "exchange");
    free(list);
}

static void mpi_barrier(struct comm *c) { mark(c, MPI_Barrier(world_of(c)), "barrier"); }

static void mpi_split(struct comm *part, struct comm *c, int color)
{
    struct comm_mpi *m = (struct comm_mpi *)part;

    m->split = true;
    m->world = MPI_COMM_NULL;
    mark(part, MPI_Comm_split(world_of(c), color, c->rank, &m->world), "MPI_Comm_split");
}

static void mpi_close(struct comm *c)
{
    const struct timespec heard = {.tv_nsec = 200000000};   /* mpirun forwards the last words */
    struct comm_mpi *m = (struct comm_mpi *)c;
    int done = 0;

    MPI_Finalized(&done);
    if (done)
        return;
    if (m->split) {                     /* collective: not when peers may be gone */
        if (m->world != MPI_COMM_NULL && !c->err.code)
            MPI_Comm_free(&m->world);
        return;
    }
    if (c->err.code) {                  /* peers may hang in a collective: end them too */
        nanosleep(&heard, NULL);
        MPI_Abort(world_of(c), c->status);
    }
    MPI_Finalize();
}

static const struct comm_ops mpi_ops = {
    .name = "mpi",
    .size = sizeof(struct comm_mpi),
    .all_reduce = mpi_all_reduce,
    .all_gather = mpi_all_gather,
    .reduce_scatter = mpi_reduce_scatter,
    .broadcast = mpi_broadcast,
    .barrier = mpi_barrier,
    .exchange = mpi_exchange,
    .split = mpi_split,
    .close = mpi_close,
};

static int start(struct comm *c, const struct comm_meeting *unused)
{
    struct comm_mpi *m = (struct comm_mpi *)c;
    MPI_Comm node;
    int provided, rc = MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &provided);

    (void)unused;                       /* MPI's ranks meet by themselves */
    if (rc != MPI_SUCCESS) {
        mark(c, rc, "MPI_Init_thread");
        return -1;
    }
    c->ops = &mpi_ops;
    mark(c, MPI_Comm_dup(MPI_COMM_WORLD, &m->world), "MPI_Comm_dup");
    if (c->err.code)
        return -1;
    MPI_Comm_set_errhandler(m->world, MPI_ERRORS_RETURN);
    MPI_Comm_rank(m->world, &c->rank);
    c->global_rank = c->rank;
    MPI_Comm_size(m->world, &c->world_size);
    if (MPI_Comm_split_type(m->world, MPI_COMM_TYPE_SHARED, c->rank, MPI_INFO_NULL, &node) ==
        MPI_SUCCESS) {
        MPI_Comm_rank(node, &c->local_rank);
        MPI_Comm_free(&node);
    }
    return 0;
}

__attribute__((visibility("default"))) const struct comm_plugin comm_plugin = {
    .version = COMM_PLUGIN_VERSION,
    .size = sizeof(struct comm_mpi),
    .start = start,
};

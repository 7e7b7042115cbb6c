/*
 * comm - the row of collectives among ranks.
 *
 * Counts are in ELEMENTS, with the dtype beside them.  Buffers are the host's; those of
 * comm_on_device are the device's, and move in the order of its stream OP_STREAM_COMM.  Every
 * rank calls the same collectives in the same order.  Like devices, communicators are sticky: the
 * first failure marks the handle, later calls do nothing, and comm_error reports it.
 * Reductions have a fixed order (rank 0 + rank 1 + ...), so a rerun with the same world size
 * gives the same bits.
 */
#ifndef CKPT_TRAINER_COMM_COMM_H
#define CKPT_TRAINER_COMM_COMM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "libckpt/dtype.h"
#include "libckpt/err.h"

struct comm;

enum comm_op { COMM_SUM, COMM_MAX, COMM_MIN };

struct comm_ops {
    const char *name;                       /* "single", "mpi", "gloo", "shared memory" */
    size_t      size;                       /* bytes of a communicator, struct comm first */
    /* buf[count] <- reduction over ranks.  F32, F64, I64. */
    void (*all_reduce)(struct comm *c, void *buf, int64_t count, enum ckpt_dtype t,
                       enum comm_op op);
    /* dst[world * count] <- src[count] of every rank, by rank; src may be dst's own part.  Any of
     * the types above, I32, U8, BF16, F16. */
    void (*all_gather)(struct comm *c, void *dst, const void *src, int64_t count,
                       enum ckpt_dtype t);
    /* dst[count] <- sum over ranks of src[rank * count ...]; F32, of a device also BF16, F16. */
    void (*reduce_scatter)(struct comm *c, void *dst, const void *src, int64_t count,
                           enum ckpt_dtype t);
    void (*broadcast)(struct comm *c, void *buf, int64_t count, enum ckpt_dtype t, int root);
    void (*barrier)(struct comm *c);
    /* NULL on devices. */
    void (*exchange)(struct comm *c, void *dst, const int64_t *taken, const void *src,
                     const int64_t *given, enum ckpt_dtype t);
    /* Collectives between the two calls are done at once; NULL: one by one is as fast. */
    void (*group)(struct comm *c, bool begin);
    /* Connect part, whose rank and world_size are set, to those ranks of c that give the same
     * color.  Every rank of c calls it. */
    void (*split)(struct comm *part, struct comm *c, int color);
    void (*close)(struct comm *c);
    bool threads;                           /* two communicators may be used at once, each by a
                                               thread of its own */
    /* Of a device: seconds that those of its collectives took that have ended.  NULL: unknown, or
     * of the host, where each call is as long as its collective. */
    double (*seconds)(struct comm *c);
};

/* The head of every communicator; backends put their own fields after it. */
struct comm {
    const struct comm_ops *ops;
    int                    rank, world_size, local_rank;
    int                    global_rank;     /* among all ranks of the run: in messages */
    int                    stride;          /* global ranks from one of its ranks to the next */
    struct ckpt_err        err;             /* err.code != 0: broken */
    bool                   planned;         /* its other ranks are not there (comm_open_single) */
    bool                   agreed;          /* all ranks know that they leave */
    bool                   concurrent;      /* a part that another thread uses (comm_twin) */
    uint64_t               calls;           /* of collectives so far */
    double                 seconds;         /* that they took, on the host */
    uint64_t               lap_calls;       /* by the end of the last lap, its parts' included */
    double                 lap;             /* seconds by then */
    int                    status;          /* with err: exit status of ranks that this one
                                               ends */
    struct comm           *device;          /* over buffers of a GPU; NULL: this one is */
    struct meet           *meet;            /* where its ranks met; NULL: through MPI, or alone */
    struct comm           *parts, *next;    /* what comm_split made of it; the next one of these */
};

/* Checked wrappers: counts >= 0, not broken, one-rank shortcuts. */
void comm_all_reduce(struct comm *c, void *buf, int64_t count, enum ckpt_dtype t, enum comm_op op);
void comm_all_gather(struct comm *c, void *dst, const void *src, int64_t count, enum ckpt_dtype t);
void comm_reduce_scatter(struct comm *c, void *dst, const void *src, int64_t count,
                         enum ckpt_dtype t);
void comm_broadcast(struct comm *c, void *buf, int64_t count, enum ckpt_dtype t, int root);
void comm_barrier(struct comm *c);
/*
 * What each rank has for each: src is what this one gives, given[r] elements for rank r, one rank
 * after another; dst what it takes, taken[r] from rank r, likewise.  Both sides know both counts.
 * At most 2^30 elements in sum.  Of the host.
 */
void comm_exchange(struct comm *c, void *dst, const int64_t *taken, const void *src,
                   const int64_t *given, enum ckpt_dtype t);
/*
 * Whether many small collectives are as fast as a large one, with comm_group_begin and
 * comm_group_end around them: on GPUs.  Elsewhere the two do nothing.
 */
static inline bool comm_groups(const struct comm *c) { return c->ops->group != NULL; }
void comm_group_begin(struct comm *c);
void comm_group_end(struct comm *c);
/* The communicator for buffers of the device: another one than c on a GPU. */
static inline struct comm *comm_on_device(struct comm *c) { return c->device ? c->device : c; }
/*
 * Seconds that this rank spent in collectives of c and its parts between the two calls, waiting for
 * others included; NaN for one rank, and where nobody knows.  On a GPU, whose collectives go on
 * beside what the host does: those that have ended by then.  The others are the next lap's, unless
 * there were other collectives between the laps, an evaluation's: all these are no lap's.
 */
void comm_lap_begin(struct comm *c);
double comm_lap_end(struct comm *c);
/* 0, or the sticky failure, also of the device's and of its parts, copied to err. */
int comm_error(const struct comm *c, struct ckpt_err *err);
/*
 * Agree: every rank passes the code of its last call (0: it succeeded) with its record;
 * returns 0 when all succeeded, else on every rank the code and text of the lowest failing rank
 * ("rank 2: ...").
 */
int comm_agree(struct comm *c, int rc, struct ckpt_err *err);
/*
 * Divide the ranks of c into groups of `size` consecutive ones, for hybrid sharding: inside of a
 * group, mostly a node, and replicated across groups.  COMM_WITHIN: the ranks of this rank's group;
 * COMM_ACROSS: the ranks that have this one's place in every group.  Collective; fails on all ranks
 * or on none.  Before the device joins c: then its ranks are joined part by part.  The part is c's
 * own and is closed with it; a failure in it is c's failure.
 */
enum comm_part { COMM_WITHIN, COMM_ACROSS };
int comm_split(struct comm **out, struct comm *c, enum comm_part which, int size,
               struct ckpt_err *err);
/*
 * A part of all ranks of c, for another thread than c's, on the host.  Its failures are told to
 * that thread alone, and its collectives do not count as the run's progress.  NULL, and 0: such
 * ranks cannot talk in two threads at once.  As a split, but after the device has joined.
 */
int comm_twin(struct comm **out, struct comm *c, struct ckpt_err *err);
/* The same of what comm_split gives. */
int comm_twin_split(struct comm **out, struct comm *c, enum comm_part which, int size,
                    struct ckpt_err *err);
/* CKPT_ECONFIG when groups of `size` do not fill a world, with the sizes that do. */
int comm_split_check(int64_t world_size, int64_t size, struct ckpt_err *err);
/*
 * The ranks of a node, by their numbers on it (local_rank).  Collective.  CKPT_ECONFIG on all ranks
 * where nodes have different numbers of ranks, or the ranks of a node are not consecutive.
 */
int comm_split_node(int *size, struct comm *c, struct ckpt_err *err);
/*
 * Whether a failure is this rank's alone, so that no other rank reports it; then "rank N: " is put
 * in front of err.  Of a lost peer that told why, err gets its code and its words.  To be asked,
 * and reported, before comm_close, which ends the peers.
 */
bool comm_alone(const struct comm *c, struct ckpt_err *err);
/*
 * Close what comm_on_device gives of c and its parts, before the device is waited for or closed:
 * after a failure what its stream still holds is given up.
 */
void comm_leave_device(struct comm *c);
/* NULL is closed.  With a failure that was not agreed upon all peers are ended too. */
void comm_close(struct comm *c);

/*
 * Chooser (comm/open.c): MPI when started by mpirun or srun with PMI (plug-in libckpt_mpi.so),
 * shared memory for ranks that a supervisor of ours gave some, Gloo for those of other launchers
 * (libckpt_gloo.so), single otherwise.  Ranks wait timeout_ms (0: half
 * an hour) for each other.  CKPT_EDEVICE when the plug-in cannot be opened, CKPT_ECONFIG for ranks
 * that were announced and cannot meet.
 */
int comm_open(struct comm **out, int64_t timeout_ms, struct ckpt_err *err);
/* comm_open ends with CKPT_ESTOPPED once *stop is not 0.  stop outlives it. */
void comm_stop_on(const volatile int *stop);
/* Alone, whatever is announced; with n > 1 as if there were so many ranks, for a plan: what this
 * one brings to a collective counts for all. */
int comm_open_single(struct comm **out, int n, struct ckpt_err *err);

#endif

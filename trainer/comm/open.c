/*
 * comm/open - which communicator a process gets; the only file that knows them all.
 *
 * Ranks announce themselves through the environment of their launcher (ranks.h).  Those that MPI
 * started meet through it, all others through a store (meet.h); these talk through memory where
 * their supervisor gave them some (shared.h), else over Gloo.  MPI and Gloo live in plug-ins: a run
 * of one process, or of one host, needs neither installed.
 */
#include <dlfcn.h>
#include <string.h>

#include "libckpt/log.h"
#include "libckpt/mem.h"
#include "trainer/comm/comm.h"
#include "trainer/comm/meet.h"
#include "trainer/comm/plugin.h"
#include "trainer/comm/ranks.h"
#include "trainer/comm/shared.h"
#include "trainer/comm/store.h"
#include "trainer/plugin.h"

static void single_close(struct comm *c) { (void)c; }

/* One rank: the wrappers in comm.c never call the other entries. */
static const struct comm_ops single_ops = {.name = "single", .close = single_close};

/* As if there were more: what one rank brings counts for all. */
static void plan_reduce(struct comm *c, void *buf, int64_t n, enum ckpt_dtype t, enum comm_op op)
{
    (void)c;
    (void)buf;
    (void)n;
    (void)t;
    (void)op;
}

static void plan_gather(struct comm *c, void *dst, const void *src, int64_t n, enum ckpt_dtype t)
{
    size_t bytes = (size_t)n * ckpt_dtype_size(t);

    for (int r = 0; r < c->world_size; r++)
        memmove((char *)dst + (size_t)r * bytes, src, bytes);
}

static void plan_scatter(struct comm *c, void *dst, const void *src, int64_t n, enum ckpt_dtype t)
{
    (void)c;
    memmove(dst, src, (size_t)n * ckpt_dtype_size(t));
}

static void plan_broadcast(struct comm *c, void *buf, int64_t n, enum ckpt_dtype t, int root)
{
    (void)c;
    (void)buf;
    (void)n;
    (void)t;
    (void)root;
}

static void plan_barrier(struct comm *c) { (void)c; }

static const struct comm_ops plan_ops = {
    .name = "planned",
    .all_reduce = plan_reduce, .all_gather = plan_gather, .reduce_scatter = plan_scatter,
    .broadcast = plan_broadcast, .barrier = plan_barrier, .close = single_close,
};

int comm_open_single(struct comm **out, int n, struct ckpt_err *err)
{
    struct comm *c = ckpt_alloc(1, sizeof *c);

    *out = NULL;
    if (!c)
        return ckpt_nomem(err, sizeof *c);
    c->ops = n > 1 ? &plan_ops : &single_ops;
    c->world_size = n;
    c->stride = 1;
    c->planned = n > 1;
    *out = c;
    return 0;
}

/* Start a communicator of a plug-in; on failure *out is NULL. */
static int open_plugin(struct comm **out, const char *name, const struct comm_meeting *meeting,
                       const struct ranks *ranks, struct ckpt_err *err)
{
    const struct comm_plugin *plugin;
    char why[512];
    struct comm *c;
    int rc;
    void *so = plugin_open(name, why, sizeof why);

    if (!so)
        return ckpt_fail(err, CKPT_EDEVICE, "%s says %ld ranks, but their plug-in did not open: %s",
                         ranks->where, ranks->world_size, why);
    plugin = dlsym(so, "comm_plugin");
    if (!plugin || plugin->version != COMM_PLUGIN_VERSION)
        return ckpt_fail(err, CKPT_EDEVICE, "%s: of another version than this program", name);
    c = ckpt_alloc(1, plugin->size);
    if (!c)
        return ckpt_nomem(err, plugin->size);
    rc = plugin->start(c, meeting);
    if (rc) {
        *err = c->err;
        ckpt_free(c);
        return ckpt_err_code(err);
    }
    c->stride = 1;
    *out = c;
    return 0;
}

static int open_mpi(struct comm **out, const struct ranks *ranks, struct ckpt_err *err)
{
    int rc = open_plugin(out, "libckpt_mpi.so", NULL, ranks, err);

    if (rc || (*out)->world_size == ranks->world_size)
        return rc;
    rc = ckpt_fail(err, CKPT_ECONFIG,
                   "%s says %ld ranks (%s), MPI found %d: they were not started by the MPI "
                   "that is installed", ranks->where, ranks->world_size, ranks->launcher,
                   (*out)->world_size);
    ckpt_err_hint(err, "`nproc %ld` on one host, Open MPI's mpirun -np %ld, or srun",
                  ranks->world_size, ranks->world_size);
    comm_close(*out);
    *out = NULL;
    return rc;
}

static const volatile int *stop_on;

void comm_stop_on(const volatile int *stop) { stop_on = stop; }

/* One that finds a peer gone while they connect tells by whom, as far as that is known, and tells
 * the others, which may wait for this one: its goodbye is none. */
static void tell_others(struct meet *meet, const struct ranks *ranks, struct ckpt_err *err)
{
    struct ckpt_err cause = {0};

    if (err->code == CKPT_ECOMM && meet_cause(meet, &cause)) {
        ckpt_fail_as(err, cause.code, cause.reason, "ended: %.900s", cause.text);
        return;
    }
    cause = *err;
    if (strncmp(cause.text, "rank ", 5) != 0)
        ckpt_err_in(&cause, "rank %ld", ranks->rank);
    meet_tell(meet, &cause);
}

static int open_met(struct comm **out, const struct ranks *ranks, int64_t timeout_ms,
                    struct ckpt_err *err)
{
    int fd = shared_inherited();
    struct meet *meet;
    int rc;

    store_stop_on(stop_on);             /* what comes later tells itself when it was stopped */
    rc = meet_open(&meet, ranks, timeout_ms ? timeout_ms : 1800 * 1000, err);
    store_stop_on(NULL);
    if (rc == 0 && fd >= 0)
        rc = shared_open(out, fd, (int)ranks->rank, (int)ranks->world_size, err);
    else if (rc == 0)
        rc = open_plugin(out, "libckpt_gloo.so", meet_meeting(meet), ranks, err);
    if (rc && meet)
        tell_others(meet, ranks, err);
    rc = rc ? ckpt_err_code(err) : 0;
    if (rc)
        meet_close(meet, false);
    else
        (*out)->meet = meet;
    return rc;
}

int comm_open(struct comm **out, int64_t timeout_ms, struct ckpt_err *err)
{
    struct ranks ranks = ranks_found();
    int rc;

    *out = NULL;
    if ((rc = ranks_check(&ranks, err)) != 0)
        return rc;
    if (ranks.world_size == 1) {
        if (ranks.job)
            ckpt_log(CKPT_LOG_NOTE, "%s says %ld tasks, but srun did not start this process: "
                     "running one rank (`nproc %ld` starts as many here)", ranks.job,
                     ranks.job_size, ranks.job_size);
        return comm_open_single(out, 1, err);
    }
    rc = ranks.meet == RANKS_MPI ? open_mpi(out, &ranks, err)
                                 : open_met(out, &ranks, timeout_ms, err);
    return rc ? ckpt_err_in(err, "rank %ld", ranks.rank) : 0;
}

/* split - see split.h. */
#include "tools/eval/split/split.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "libckpt/digest.h"
#include "libckpt/mem.h"
#include "tools/cli.h"
#include "tools/progress.h"
#include "trainer/comm/comm.h"
#include "trainer/comm/report.h"
#include "trainer/launch/supervise.h"
#include "trainer/run/session.h"

struct split {
    struct comm *comm;
    char         device[32];            /* this rank's, where it has one of its own */
    bool         agreed;                /* on the last failure */
};

/* -- ranks ------------------------------------------------------------------------------------ */

static void print(void *ctx, const struct ckpt_err *err) { cli_error(ctx, err); }

/* Start the ranks and wait for their end. */
static int start(int *status, const struct split_opts *opts, struct ckpt_err *err)
{
    struct supervise_opts o = {.n = opts->nproc, .argv = opts->argv, .line = -1,
                               .ctx = opts->cli, .tell = print};
    int rc = launch_count(&o.n, opts->nproc == SPLIT_GPUS, *opts->device, &o.on_gpus, err);

    if (rc || o.n < 2) {
        if (rc == 0 && o.on_gpus)
            *opts->device = "cuda";
        return rc;
    }
    rc = supervise_run(status, &o, err);
    return rc ? rc : 1;
}

/* Be one of them. */
static int join(struct split *s, const struct split_opts *opts, struct ckpt_err *err)
{
    struct device_opts device = {.name = *opts->device, .threads = (int)*opts->threads};
    int rc = comm_open(&s->comm, 0, err);

    if (rc)
        return rc;
    opts->cli->rank = s->comm->rank;
    if (s->comm->rank > 0) {
        opts->cli->quiet = true;        /* the first says the same */
        progress_silent();
    }
    cli_ignore_pipe();                  /* which would end one rank of several */
    report_phase("evaluation");
    if (s->comm->world_size > 1) {
        rc = session_device(&device, s->device, s->comm, err);
        *opts->device = device.name;
        *opts->threads = device.threads;
    }
    return split_agree(s, rc, err);
}

int split_begin(struct split **out, int *status, const struct split_opts *opts,
                struct ckpt_err *err)
{
    struct split *s;

    *out = NULL;
    if (!report_watched())
        return opts->nproc ? start(status, opts, err) : 0;
    *out = s = ckpt_alloc(1, sizeof *s);
    return s ? join(s, opts, err) : ckpt_nomem(err, sizeof *s);
}

bool split_end(struct split *s, int rc, int *status, struct ckpt_err *err)
{
    bool alone, first = split_first(s);

    if (!s)
        return false;
    alone = rc && (!s->comm || s->comm->err.code || (!first && !s->agreed));
    if (!alone) {
        comm_close(s->comm);
        *status = first ? *status : 0;
    } else {
        *status = ckpt_err_status(err->code);
        if (s->comm && !s->comm->err.code)
            s->comm->err = *err;        /* its peers must not wait for it */
        if (s->comm)
            comm_alone(s->comm, err);
        report_error(err, false);
        comm_close(s->comm);
    }
    ckpt_free(s);
    return alone || !first;
}

bool split_first(const struct split *s) { return !s || !s->comm || s->comm->rank == 0; }

bool split_mine(const struct split *s, int64_t i)
{
    return !s || i % s->comm->world_size == s->comm->rank;
}

bool split_lost(const struct split *s) { return s && s->comm->err.code; }

struct comm *split_comm(struct split *s) { return s->comm; }

/* -- what all do ------------------------------------------------------------------------------ */

/* Whether all have failed, with the same words. */
static bool fail_alike(struct split *s, int rc, const struct ckpt_err *err)
{
    unsigned char digest[CKPT_XXH128_BYTES] = {0};
    int64_t of[2] = {0, 0};

    if (rc) {
        ckpt_xxh128(digest, err->text, strlen(err->text));
        memcpy(&of[0], digest, sizeof of[0]);
        of[1] = of[0];
    }
    comm_all_reduce(s->comm, &of[0], 1, CKPT_I64, COMM_MIN);
    comm_all_reduce(s->comm, &of[1], 1, CKPT_I64, COMM_MAX);
    return rc && of[0] == of[1] && !s->comm->err.code;
}

int split_agree(struct split *s, int rc, struct ckpt_err *err)
{
    if (!s)
        return rc;
    if (!fail_alike(s, rc, err))
        rc = comm_agree(s->comm, rc, err);
    s->comm->agreed = false;            /* the next model is another matter */
    s->agreed = rc && !s->comm->err.code;
    return rc;
}

int split_sum(struct split *s, double *v, size_t n, struct ckpt_err *err)
{
    if (!s)
        return 0;
    comm_all_reduce(s->comm, v, (int64_t)n, CKPT_F64, COMM_SUM);
    return comm_error(s->comm, err);
}

/* The number of a descriptor that item names: "-" and /dev/stdin are 0. */
static bool names_descriptor(int *fd, const char *item)
{
    int tail = 0;

    *fd = 0;
    return strcmp(item, "-") == 0 || strcmp(item, "/dev/stdin") == 0 ||
           (sscanf(item, "/dev/fd/%d%n", fd, &tail) == 1 && !item[tail]);
}

/* Have the file that the first rank, process `pid`, has as a descriptor: as standard input, which
 * no other rank reads, or under a number of this process, which *item then names. */
static int reopen(char **item, int64_t pid, struct ckpt_err *err)
{
    char path[64];
    int fd, got;

    if (!names_descriptor(&fd, *item))
        return 0;
    snprintf(path, sizeof path, "/proc/%lld/fd/%d", (long long)pid, fd);
    got = open(path, O_RDONLY | O_CLOEXEC);
    if (got < 0 || (fd == 0 && dup2(got, STDIN_FILENO) < 0))
        return ckpt_fail_errno(err, CKPT_EIO, errno, "%s of the first rank", *item);
    if (fd == 0)
        close(got);
    else
        snprintf(path, sizeof path, "/dev/fd/%d", got);
    if (fd) {
        ckpt_free(*item);
        *item = ckpt_strdup(path);
    }
    return *item ? 0 : ckpt_nomem(err, sizeof path);
}

int split_item(struct split *s, char **item, struct ckpt_err *err)
{
    int64_t head[2] = {0, getpid()};    /* bytes of the name, 0: none; the first rank's process */
    int rc;

    if (!s)
        return 0;
    s->agreed = false;
    if (split_first(s) && *item)
        head[0] = (int64_t)strlen(*item) + 1;
    comm_broadcast(s->comm, head, 2, CKPT_I64, 0);
    rc = comm_error(s->comm, err);
    if (rc || head[0] == 0)
        return rc;
    if (!split_first(s) && !(*item = ckpt_alloc((size_t)head[0], 1)))
        return ckpt_nomem(err, (size_t)head[0]);
    comm_broadcast(s->comm, *item, head[0], CKPT_U8, 0);
    rc = comm_error(s->comm, err);
    return rc || split_first(s) ? rc : reopen(item, head[1], err);
}

/* checkpoint/folders - see checkpoint/folders.h. */
#include "trainer/checkpoint/folders.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "libckpt/digest.h"
#include "libckpt/io/path.h"
#include "libckpt/log.h"
#include "libckpt/mem.h"

#define NAME_BYTES 512          /* "host:path" of a folder, for the log */

/* What each rank tells all others. */
struct seen {
    int64_t first;
    char    name[NAME_BYTES];
};

/* A name by which ckpt_outdir_sweep knows what a killed run left. */
static void token(char path[4200], const char *output_dir, uint64_t run, int rank)
{
    snprintf(path, 4200, "%s/.folder-%d.%016llx.tmp", output_dir, rank, (unsigned long long)run);
}

static int leave(const char *path, const char *output_dir, const char *host, const struct comm *c,
                 struct ckpt_err *err)
{
    int why = 0, fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666), rc = 0;

    if (fd < 0 || write(fd, "", 1) != 1)
        why = errno;
    if (fd >= 0 && close(fd) && !why)
        why = errno;
    if (why) {
        rc = ckpt_fail_errno(err, CKPT_ECREATE, why, "%s: cannot write a file here", output_dir);
        if (*host && c->world_size > 1)
            ckpt_err_in(err, "rank %d on %s", c->rank, host);
    }
    return rc;
}

/* The lowest rank whose file is seen. */
static int lowest_seen(const char *output_dir, uint64_t run, const struct comm *c)
{
    char path[4200];
    int r = 0;

    for (; r < c->rank; r++) {
        token(path, output_dir, run, r);
        if (access(path, F_OK) == 0)
            break;
    }
    return r;
}

/* "0-3, 6" of the ranks of a folder. */
static void ranks_text(char *text, size_t size, const struct seen *all, int world, int64_t first)
{
    size_t n = 0;

    *text = '\0';
    for (int r = 0; r < world && n < size; r++) {
        int end = r;

        if (all[r].first != first)
            continue;
        while (end + 1 < world && all[end + 1].first == first)
            end++;
        n += (size_t)snprintf(text + n, size - n, end > r ? "%s%d-%d" : "%s%d", n ? ", " : "", r,
                              end);
        r = end;
    }
}

static void tell(const struct folders *f, const struct seen *all, int world, bool sharded)
{
    ckpt_log(CKPT_LOG_WARNING, "the output is not one folder but %d, each on its nodes' own disk: "
             "each gets %s", f->n,
             sharded ? "its ranks' shards; ckpt-merge --together reads them as one, and a run "
                       "resumes, or is tried again, once each has the files of all"
                     : "weights and optimizer as a whole, and the random states of its "
                       "ranks");
    for (int r = 0; r < world; r++) {
        char ranks[256];

        if (all[r].first != r)
            continue;
        ranks_text(ranks, sizeof ranks, all, world, r);
        ckpt_log(CKPT_LOG_NOTE, "%s: ranks %s", all[r].name, ranks);
    }
}

static void count(struct folders *f, const struct seen *all, const struct comm *c)
{
    f->n = 0;
    f->first = (int)all[c->rank].first;
    for (int r = 0; r < c->world_size; r++) {
        if (all[r].first != r)
            continue;
        if (r == f->first)
            f->mine = f->n;
        f->n++;
    }
    f->leads = f->first == c->rank;
}

int folders_find(struct folders *f, const char *output_dir, struct comm *c, bool sharded,
                 struct ckpt_err *err)
{
    struct seen *all = ckpt_alloc((size_t)c->world_size, sizeof *all), *own;
    char path[4200], host[65] = "", full[4096];
    int64_t run = 0;
    int rc = all ? 0 : ckpt_nomem(err, (size_t)c->world_size * sizeof *all);

    *f = (struct folders){.n = 1};
    if (gethostname(host, sizeof host - 1))
        *host = '\0';
    if (rc == 0 && c->rank == 0 && getrandom(&run, sizeof run, 0) != sizeof run)
        rc = ckpt_fail_errno(err, CKPT_EIO, errno, "random numbers");
    if (rc == 0)
        rc = ckpt_path_make_dirs(output_dir, err);
    if ((rc = comm_agree(c, rc, err)) != 0 || !all)
        goto out;
    comm_broadcast(c, &run, 1, CKPT_I64, 0);
    token(path, output_dir, (uint64_t)run, c->rank);
    rc = comm_agree(c, leave(path, output_dir, host, c, err), err);
    own = &all[c->rank];
    own->first = lowest_seen(output_dir, (uint64_t)run, c);
    snprintf(own->name, sizeof own->name, "%s:%.400s", host,
             realpath(output_dir, full) ? full : output_dir);
    /* Nobody removes its file before all have looked. */
    comm_all_gather(c, all, own, (int64_t)sizeof *own, CKPT_U8);
    unlink(path);
    rc = rc ? rc : comm_error(c, err);
    if (rc)
        goto out;
    count(f, all, c);
    if (c->rank == 0 && f->n > 1)
        tell(f, all, c->world_size, sharded);
out:
    ckpt_free(all);
    return rc;
}

int folders_share(const struct folders *f, struct comm *c, char *text, size_t size,
                  struct ckpt_err *err)
{
    char *all;
    int rc;

    if (f->n <= 1) {
        comm_broadcast(c, text, (int64_t)size, CKPT_U8, 0);
        return comm_error(c, err);
    }
    all = ckpt_alloc((size_t)c->world_size, size);
    rc = comm_agree(c, all ? 0 : ckpt_nomem(err, (size_t)c->world_size * size), err);
    if (rc == 0 && all) {
        comm_all_gather(c, all, text, (int64_t)size, CKPT_U8);
        rc = comm_error(c, err);
    }
    if (rc == 0 && all)
        memcpy(text, all + (size_t)f->first * size, size);
    ckpt_free(all);
    return rc;
}

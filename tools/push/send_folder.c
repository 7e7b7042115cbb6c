/* send_folder - copy a plan into a folder; see send.h. */
#include "tools/push/dest.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "libckpt/commit.h"
#include "libckpt/base/pool.h"
#include "libckpt/err.h"
#include "libckpt/io/file_at.h"
#include "libckpt/io/path.h"
#include "libckpt/remote/cache/proof.h"
#include "tools/progress.h"
#include "tools/push/events.h"
#include "tools/push/plan_file.h"

#define CHUNK      ((size_t)1 << 20)
#define PATH_BYTES 4096u
#define LARGE      ((uint64_t)16 << 20) /* smaller ones are copied out of the cache */
#define FILES      4                    /* at once, where --jobs is not given */
#define HELD       500                  /* files open at once; more are copied out of the cache */

/* Progress over all files of a plan.  Any thread. */
struct tally {
    struct progress *progress;
    pthread_mutex_t  lock;
    uint64_t         done, total;
};

static void tick(void *tally, uint64_t bytes)
{
    struct tally *t = tally;

    pthread_mutex_lock(&t->lock);
    t->done += bytes;
    progress_tick(t->progress, t->done, t->total);
    pthread_mutex_unlock(&t->lock);
}

/* What the workers share. */
struct sending {
    struct push_plan   *p;
    const char         *path;
    struct ckpt_outdir *whole;          /* the folder being built; NULL: path exists */
    bool                follow;
    const struct cli   *cli;
    struct tally        tally;
    size_t              first;          /* in the plan, of those that are sent now */
    struct arrived     *arrived;        /* [p->n] */
    atomic_size_t       held;           /* files of these that are open */
};

/* A file that was fetched for this. */
struct arrived {
    struct ckpt_file *file;             /* to be moved; or NULL */
    bool              told;             /* its bytes are in the tally */
};

/* Copy one file into out and commit it. */
static int copy_file(struct ckpt_out *out, struct ckpt_file *file, struct tally *t,
                     struct ckpt_err *err)
{
    uint64_t size = ckpt_file_size(file);
    void *bounce = ckpt_alloc_buffer(CHUNK);
    int rc = bounce ? ckpt_out_reserve(out, size, err) : ckpt_nomem(err, CHUNK);

    for (uint64_t at = 0; rc == 0 && at < size; at += CHUNK) {
        uint64_t n = size - at < CHUNK ? size - at : CHUNK;

        rc = ckpt_out_copy(out, at, file, at, n, bounce, CHUNK, err);
        if (t)
            tick(t, n);
    }
    ckpt_free(bounce);
    if (rc == 0)
        return ckpt_out_commit(out, err);
    ckpt_out_abort(out);
    return rc;
}

/* The folder of path below root, or root itself. */
static void parent_of(char full[2 * PATH_BYTES], const char *root, const char *path)
{
    const char *slash = strrchr(path, '/');

    snprintf(full, 2 * PATH_BYTES, "%s%s%.*s", root, slash ? "/" : "",
             slash ? (int)(slash - path) : 0, path);
}

/* Create the folders of path below root, where missing. */
static int make_parents(const char *root, const char *path, struct ckpt_err *err)
{
    char full[2 * PATH_BYTES];

    if (!strchr(path, '/'))
        return 0;
    parent_of(full, root, path);
    return ckpt_path_make_dirs(full, err);
}

int send_folder_check(const struct dest *d, const struct send_want *w, struct ckpt_err *err)
{
    const char *path = d->place;
    struct stat st;

    (void)w;
    if (stat(path, &st))
        return ckpt_outdir_ready(path, err);
    if (!S_ISDIR(st.st_mode))
        return ckpt_fail(err, CKPT_ECREATE, "%s: exists and is no folder", path);
    return access(path, W_OK | X_OK) ? ckpt_fail_errno(err, CKPT_ECREATE, errno, "%s", path) : 0;
}

/* Check lengths of paths, and sizes of files. */
static int check_fit(const struct push_plan *p, const char *path, bool exists,
                     struct ckpt_err *err)
{
    struct statvfs v;

    for (size_t i = 0; i < p->n; i++)
        if (strlen(path) + strlen(p->file[i].to) + 2 > PATH_BYTES)
            return ckpt_fail(err, CKPT_ELIMIT, "%.200s: the path is too long in %.200s",
                             p->file[i].to, path);
    if (exists && statvfs(path, &v) == 0 && v.f_blocks && p->bytes > v.f_bavail * v.f_frsize)
        return ckpt_fail_as(err, CKPT_EIO, "no-space", "%s: %.1f MB are to be written, %.1f MB are "
                            "free", path, (double)p->bytes / 1e6,
                            (double)(v.f_bavail * v.f_frsize) / 1e6);
    return 0;
}

static int is_source(const char *path, struct ckpt_err *err)
{
    return ckpt_fail(err, CKPT_ECREATE, "%s: is the source itself", path);
}

/* Whether full is the i-th file of the source: on this host, and one that is there. */
static bool is_same_file(const struct push_plan *p, size_t i, const char *full, bool follow)
{
    struct ckpt_err ignored = {0};
    struct ckpt_file *file;
    struct stat there, in;
    uint64_t base;
    bool same;
    int fd;

    if (p->file[i].made || lstat(full, &there) || ckpt_path_is_remote(p->source) ||
        push_plan_open(&file, p, i, follow, &ignored))
        return false;
    fd = ckpt_file_fd(file, &base);
    same = fd >= 0 && fstat(fd, &in) == 0 && in.st_dev == there.st_dev && in.st_ino == there.st_ino;
    ckpt_file_close(file);
    return same;
}

/* What stands in the way of any file, before the first one is written. */
static int check_places(const struct push_plan *p, const char *path, bool follow,
                        struct ckpt_err *err)
{
    char full[2 * PATH_BYTES], first[PATH_BYTES];
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < p->n; i++) {
        parent_of(full, path, p->file[i].to);
        rc = ckpt_path_dirs_ready(first, sizeof first, full, err);
        if (rc || *first)
            continue;
        snprintf(full, sizeof full, "%s/%s", path, p->file[i].to);
        rc = ckpt_out_ready(full, CKPT_REPLACE, err);
        if (rc == 0 && is_same_file(p, i, full, follow))
            rc = is_source(path, err);
    }
    return rc;
}

/* What the folder has at the path of the i-th file. */
static int find_state(struct push_plan *p, size_t i, const char *path, bool exists, bool follow,
                      struct ckpt_err *err)
{
    enum push_state state = PUSH_NEW;
    char full[PATH_BYTES], mine[CKPT_SHA256_HEX], theirs[CKPT_SHA256_HEX] = "";
    struct ckpt_err ignored = {0};
    struct ckpt_file *there = NULL;
    uint64_t base;
    int rc = push_plan_digest(mine, p, i, follow, false, err);

    snprintf(full, sizeof full, "%s/%s", path, p->file[i].to);
    if (rc == 0 && exists && ckpt_file_open(&there, full, 0, &ignored) == 0) {
        state = PUSH_CHANGED;
        if (ckpt_file_size(there) == p->file[i].size &&
            cache_digest(theirs, ckpt_file_fd(there, &base), false, &ignored) == 0 &&
            strcmp(mine, theirs) == 0)
            state = PUSH_SAME;
        ckpt_file_close(there);
    }
    return rc ? rc : push_plan_found(p, i, state, "sha256", mine, err);
}

/* Compare with the folder, for a plan that is made or carried out. */
static int settle(struct push_plan *p, const char *path, bool exists, const struct send_want *w,
                  struct ckpt_err *err)
{
    int rc = 0;

    push_plan_forget(p);
    for (size_t i = 0; rc == 0 && i < p->n; i++)
        rc = cli_stop ? cli_stopped(err) : find_state(p, i, path, exists, w->follow, err);
    return rc ? rc : plan_file_agrees(w->plan, p, err);
}

/* Send one file, into the folder being built or the existing one. */
static int send_file(struct sending *s, const struct push_file *f, struct ckpt_file *file,
                     const struct arrived *a, struct ckpt_err *err)
{
    struct ckpt_out *out = NULL;
    char full[PATH_BYTES];
    int rc;

    if (s->whole) {
        rc = ckpt_outdir_file(&out, s->whole, f->to, err);
    } else {
        snprintf(full, sizeof full, "%s/%s", s->path, f->to);
        rc = make_parents(s->path, f->to, err);
        if (rc == 0)
            rc = ckpt_out_create(&out, full, CKPT_REPLACE, err);
    }
    if (rc == 0 && ckpt_out_would_replace(out, file)) {
        ckpt_out_abort(out);
        rc = is_source(s->path, err);
    } else if (rc == 0) {
        rc = a->file && file_take(file, out)
                 ? ckpt_out_commit(out, err)
                 : copy_file(out, file, a->told ? NULL : &s->tally, err);
    }
    return rc;
}

static int send_item(void *ctx, size_t i, size_t worker, struct ckpt_err *err)
{
    struct sending *s = ctx;
    const struct push_file *f = &s->p->file[s->first + i];
    const struct arrived *a = &s->arrived[s->first + i];
    struct ckpt_file *file = NULL;
    int rc;

    (void)worker;
    if (cli_stop)
        return ckpt_fail(err, CKPT_ESTOPPED, "%s: stopped", s->path);
    if (f->state == PUSH_SAME) {        /* known where a plan is carried out */
        push_event_file(s->cli, f, false);
        return 0;
    }
    rc = a->file ? 0 : push_plan_open(&file, s->p, s->first + i, s->follow, err);
    if (rc == 0)
        rc = send_file(s, f, a->file ? a->file : file, a, err);
    ckpt_file_close(file);
    if (rc == 0)
        push_event_file(s->cli, f, true);
    return rc;
}

/*
 * Large files that are elsewhere come first, all of them: should one fail, the cache keeps the
 * others for the next run.  From there they are moved.
 */
static int fetch_item(void *ctx, size_t i, size_t worker, struct ckpt_err *err)
{
    struct sending *s = ctx;
    const struct push_file *f = &s->p->file[i];
    struct ckpt_file *file = NULL;
    bool came = false;
    int rc;

    (void)worker;
    if (f->size < LARGE || f->made || f->state == PUSH_SAME)
        return 0;
    if (cli_stop)
        return ckpt_fail(err, CKPT_ESTOPPED, "%s: stopped", s->path);
    rc = push_plan_open(&file, s->p, i, s->follow, err);
    if (rc == 0)
        rc = file_fetch(file, true, &came, tick, &s->tally, err);
    s->arrived[i].told = rc == 0 && came;
    if (rc == 0 && came && atomic_fetch_add(&s->held, 1) < HELD)
        s->arrived[i].file = file;
    else
        ckpt_file_close(file);
    return rc;
}

/* Several files at once; those that make the others visible after them, one by one. */
static int send_all(struct sending *s, struct ckpt_err *err)
{
    size_t workers = s->cli->jobs > 0 ? (size_t)s->cli->jobs : FILES, n = 0;
    int rc = ckpt_pool_run(workers, s->p->n, fetch_item, s, err);

    while (n < s->p->n && !s->p->file[n].index)
        n++;
    rc = rc ? rc : ckpt_pool_run(workers, n, send_item, s, err);
    s->first = n;
    return rc ? rc : ckpt_pool_run(1, s->p->n - n, send_item, s, err);
}

int send_folder(char *url, size_t url_size, const struct dest *d, struct push_plan *p,
                const struct send_want *w, const struct cli *cli, struct ckpt_err *err)
{
    const char *path = d->place;
    struct sending s = {.p = p, .path = path, .follow = w->follow, .cli = cli,
                        .tally = {.total = p->bytes, .lock = PTHREAD_MUTEX_INITIALIZER}};
    struct stat st;
    bool exists = stat(path, &st) == 0;
    int rc = send_folder_check(d, w, err);

    if (rc == 0)
        rc = check_fit(p, path, exists, err);
    if (rc == 0 && exists)
        rc = check_places(p, path, w->follow, err);
    if (rc == 0 && (w->dry_run || w->plan))
        rc = settle(p, path, exists, w, err);
    if (rc || w->dry_run)
        return rc;
    if (!exists && (rc = ckpt_outdir_create(&s.whole, path, err)) != 0)
        return rc;
    s.arrived = ckpt_alloc(p->n + 1, sizeof *s.arrived);
    s.tally.progress = progress_new(cli, "copy", true);
    rc = s.arrived ? send_all(&s, err) : ckpt_nomem(err, p->n * sizeof *s.arrived);
    for (size_t i = 0; s.arrived && i < p->n; i++)
        ckpt_file_close(s.arrived[i].file);
    ckpt_free(s.arrived);
    progress_end(s.tally.progress);
    pthread_mutex_destroy(&s.tally.lock);
    if (rc == 0 && cli_stop)
        rc = ckpt_fail(err, CKPT_ESTOPPED, "%s: stopped", path);
    if (rc == 0 && s.whole) {
        rc = ckpt_outdir_commit(s.whole, err);
        s.whole = NULL;
    }
    ckpt_outdir_abort(s.whole);
    if (rc == 0)
        snprintf(url, url_size, "%s", path);
    return rc;
}

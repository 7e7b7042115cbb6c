/* send_folder - copy a plan into a folder; see send.h. */
#include "tools/push/dest.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "libckpt/commit.h"
#include "libckpt/err.h"
#include "libckpt/io/path.h"
#include "libckpt/remote/cache/proof.h"
#include "tools/progress.h"
#include "tools/push/events.h"
#include "tools/push/plan_file.h"

#define CHUNK      ((size_t)4 << 20)
#define PATH_BYTES 4096u

/* Progress over all files of a plan. */
struct tally {
    struct progress *progress;
    uint64_t         done, total;
};

static void tick(void *ctx, uint64_t bytes)
{
    struct tally *t = ctx;

    t->done += bytes;
    progress_tick(t->progress, t->done, t->total);
}

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
        tick(t, n);
    }
    ckpt_free(bounce);
    if (rc == 0)
        return ckpt_out_commit(out, err);
    ckpt_out_abort(out);
    return rc;
}

/* Create the folders of path below root, where missing. */
static int make_parents(const char *root, const char *path, struct ckpt_err *err)
{
    const char *slash = strrchr(path, '/');
    char full[8192];

    if (!slash)
        return 0;
    snprintf(full, sizeof full, "%s/%.*s", root, (int)(slash - path), path);
    return ckpt_path_make_dirs(full, err);
}

int send_folder_check(const struct dest *d, const struct send_want *w, struct ckpt_err *err)
{
    const char *path = d->place;
    struct stat st;

    (void)w;
    if (stat(path, &st))
        return 0;
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
static int send_file(struct push_plan *p, size_t i, const char *path, struct ckpt_outdir *whole,
                     bool follow, struct tally *t, struct ckpt_err *err)
{
    struct ckpt_file *file = NULL;
    struct ckpt_out *out = NULL;
    char full[PATH_BYTES];
    int rc = push_plan_open(&file, p, i, follow, err);

    if (rc == 0 && whole) {
        rc = ckpt_outdir_file(&out, whole, p->file[i].to, err);
    } else if (rc == 0) {
        snprintf(full, sizeof full, "%s/%s", path, p->file[i].to);
        rc = make_parents(path, p->file[i].to, err);
        if (rc == 0)
            rc = ckpt_out_create(&out, full, CKPT_REPLACE, err);
    }
    if (rc == 0 && ckpt_out_would_replace(out, file)) {
        ckpt_out_abort(out);
        rc = ckpt_fail(err, CKPT_ECREATE, "%s: is the source itself", path);
    } else if (rc == 0) {
        rc = copy_file(out, file, t, err);
    }
    ckpt_file_close(file);
    return rc;
}

int send_folder(char *url, size_t url_size, const struct dest *d, struct push_plan *p,
                const struct send_want *w, const struct cli *cli, struct ckpt_err *err)
{
    const char *path = d->place;
    struct ckpt_outdir *whole = NULL;
    struct tally t = {.total = p->bytes};
    struct stat st;
    bool exists = stat(path, &st) == 0;
    int rc = send_folder_check(d, w, err);

    if (rc == 0)
        rc = check_fit(p, path, exists, err);
    if (rc == 0 && (w->dry_run || w->plan))
        rc = settle(p, path, exists, w, err);
    if (rc || w->dry_run)
        return rc;
    if (!exists)
        rc = ckpt_outdir_create(&whole, path, err);
    t.progress = progress_new(cli, "copy", true);
    for (size_t i = 0; rc == 0 && i < p->n && !cli_stop; i++)
        if (p->file[i].state == PUSH_SAME)      /* known where a plan is carried out */
            push_event_file(cli, &p->file[i], false);
        else if ((rc = send_file(p, i, path, whole, w->follow, &t, err)) == 0)
            push_event_file(cli, &p->file[i], true);
    progress_end(t.progress);
    if (rc == 0 && cli_stop)
        rc = ckpt_fail(err, CKPT_ESTOPPED, "%s: stopped", path);
    if (rc == 0 && whole) {
        rc = ckpt_outdir_commit(whole, err);
        whole = NULL;
    }
    ckpt_outdir_abort(whole);
    if (rc == 0)
        snprintf(url, url_size, "%s", path);
    return rc;
}

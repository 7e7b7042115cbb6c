/* outdir - directories built aside and renamed as a whole; see commit.h and commit_sys.h. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "libckpt/io/commit_sys.h"
#include "libckpt/io/follow.h"
#include "libckpt/base/fault.h"

#define MAX_PARTS 32            /* components of a relative path: bounds the walk that syncs */

struct ckpt_outdir {
    int   parent;               /* directory that the final name goes into; -1 after join */
    int   fd;                   /* of the staging directory; holds its lock */
    bool  over;                 /* replace a directory that has the final name */
    char  name[256];            /* final */
    char  temp[300];            /* staging name in parent; "" before it is created */
    char *staging;              /* its absolute path, from realpath */
    char *path;                 /* as given */
    uint64_t follow_least;      /* see follow.h; 0: no file is followed */
};

void follow_outdir(struct ckpt_outdir *dir, uint64_t least) { dir->follow_least = least; }

static void free_outdir(struct ckpt_outdir *d)
{
    if (d->fd >= 0)
        close(d->fd);
    if (d->parent >= 0)
        close(d->parent);
    free(d->staging);
    ckpt_free(d->path);
    ckpt_free(d);
}

static struct ckpt_outdir *new_outdir(const char *path)
{
    struct ckpt_outdir *d = ckpt_alloc(1, sizeof *d);

    if (!d)
        return NULL;
    d->fd = d->parent = -1;
    d->path = ckpt_strdup(path);
    if (!d->path) {
        ckpt_free(d);
        return NULL;
    }
    return d;
}

/* Create the staging directory and lock it. */
static int make_staging(struct ckpt_outdir *d, const char *dir, struct ckpt_err *err)
{
    char full[4600], nonce[COMMIT_NONCE + 1];

    for (int i = 0; i < COMMIT_TRIES && d->fd < 0; i++) {
        commit_nonce(nonce);
        snprintf(d->temp, sizeof d->temp, ".%s.staging-%s", commit_short(d->name), nonce);
        if (ckpt_fault(CKPT_FAULT_OPEN) ? (errno = EIO, -1) : mkdirat(d->parent, d->temp, 0777)) {
            d->temp[0] = '\0';
            if (errno == EEXIST)
                continue;
            break;
        }
        d->fd = openat(d->parent, d->temp, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (d->fd < 0 && errno != ENOENT)
            break;
        if (d->fd >= 0 && !commit_hold(d->parent, d->temp, d->fd)) {
            close(d->fd);
            d->fd = -1;
            errno = EAGAIN;
        }
    }
    if (d->fd < 0)
        return ckpt_fail_errno(err, CKPT_ECREATE, errno, "%s", d->path);
    snprintf(full, sizeof full, "%s/%s", dir, d->temp);
    d->staging = realpath(full, NULL);
    if (!d->staging)
        return ckpt_fail_errno(err, CKPT_ECREATE, errno, "%s", d->path);
    return commit_sync_dir(d->parent, d->path, err);
}

static int create(struct ckpt_outdir **out, const char *path, bool over, struct ckpt_err *err)
{
    struct ckpt_outdir *d = new_outdir(path);
    char dir[4096], head[280];

    *out = NULL;
    if (!d)
        return ckpt_nomem(err, sizeof *d);
    if (commit_split(dir, sizeof dir, d->name, path, err))
        goto fail;
    d->parent = commit_parent(dir, path, CKPT_ECREATE, err);
    if (d->parent < 0)
        goto fail;
    d->over = over;
    if (commit_check_dir(d->parent, d->name, path, over, err))
        goto fail;
    snprintf(head, sizeof head, ".%s.staging-", commit_short(d->name));
    commit_leftovers(d->parent, head, "", false);
    if (make_staging(d, dir, err))
        goto fail;
    *out = d;
    return 0;
fail:
    if (d->temp[0])
        unlinkat(d->parent, d->temp, AT_REMOVEDIR);
    free_outdir(d);
    return ckpt_err_code(err);
}

int ckpt_outdir_create(struct ckpt_outdir **out, const char *path, struct ckpt_err *err)
{
    return create(out, path, false, err);
}

int ckpt_outdir_create_over(struct ckpt_outdir **out, const char *path, struct ckpt_err *err)
{
    return create(out, path, true, err);
}

int ckpt_outdir_join(struct ckpt_outdir **out, const char *staging, struct ckpt_err *err)
{
    struct ckpt_outdir *d = new_outdir(staging);

    *out = NULL;
    if (!d)
        return ckpt_nomem(err, sizeof *d);
    d->fd = ckpt_fault(CKPT_FAULT_OPEN)
                ? (errno = EIO, -1)
                : open(staging, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (d->fd < 0) {
        ckpt_fail_errno(err, CKPT_ECREATE, errno, "%s", staging);
        goto fail;
    }
    /* The directory stays locked as long as any of its writers lives. */
    if (flock(d->fd, LOCK_SH | LOCK_NB) && errno == EWOULDBLOCK) {
        ckpt_fail(err, CKPT_ECREATE, "%s: is being removed, its maker is gone", staging);
        goto fail;
    }
    d->staging = ckpt_strdup(staging);
    if (!d->staging) {
        ckpt_nomem(err, strlen(staging) + 1);
        goto fail;
    }
    *out = d;
    return 0;
fail:
    free_outdir(d);
    return ckpt_err_code(err);
}

const char *ckpt_outdir_staging(const struct ckpt_outdir *dir) { return dir->staging; }

/* Create the folders of rel and return the one that its last component goes into; -1 and errno. */
static int make_folders(const struct ckpt_outdir *dir, const char *rel, const char **last)
{
    int at = fcntl(dir->fd, F_DUPFD_CLOEXEC, 0), parts = 1;

    *last = rel;
    for (const char *slash; at >= 0 && (slash = strchr(*last, '/')) != NULL; *last = slash + 1) {
        char name[256];
        int next, saved;

        snprintf(name, sizeof name, "%.*s", (int)(slash - *last), *last);
        if (++parts > MAX_PARTS)
            next = (errno = ENAMETOOLONG, -1);
        else if (ckpt_fault(CKPT_FAULT_OPEN))
            next = (errno = EIO, -1);
        else
            next = mkdirat(at, name, 0777) && errno != EEXIST
                       ? -1
                       : openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        saved = errno;
        close(at);
        errno = saved;
        at = next;
    }
    return at;
}

int ckpt_outdir_file(struct ckpt_out **out, struct ckpt_outdir *dir, const char *rel,
                     struct ckpt_err *err)
{
    const char *last;
    char path[8400];
    int at, rc;

    *out = NULL;
    snprintf(path, sizeof path, "%s/%s", dir->path, rel);
    if (!ckpt_file_path_is_kept(rel))
        return ckpt_fail_as(err, CKPT_EREFUSED, "refused-path",
                            "%s: no clean relative path, it might lead out of %s", rel, dir->path);
    at = make_folders(dir, rel, &last);
    if (at < 0)
        return ckpt_fail_errno(err, CKPT_ECREATE, errno, "%s", path);
    rc = commit_create_at(out, at, last, path, COMMIT_STAGED, err);
    if (rc == 0)
        commit_follow(*out, dir->follow_least);
    return rc;
}

int ckpt_outdir_put(struct ckpt_outdir *dir, const char *rel, const void *bytes, size_t n,
                    struct ckpt_err *err)
{
    struct ckpt_out *out;
    int rc = ckpt_outdir_file(&out, dir, rel, err);

    return rc ? rc : commit_bytes(out, bytes, n, err);
}

/* A file created by this process or a peer, and neither committed nor aborted. */
static bool is_unfinished(const char *name)
{
    size_t n = strlen(name);

    return name[0] == '.' && n > 4 && strcmp(name + n - 4, ".tmp") == 0;
}

/* Sync fd and every directory below it, as deep as make_folders may create them. */
static int sync_tree(int fd, const char *path, int depth, struct ckpt_err *err)
{
    int copy = ckpt_fault(CKPT_FAULT_OPEN)
                   ? (errno = EIO, -1)
                   : openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *stream = copy < 0 ? NULL : fdopendir(copy);
    struct dirent *e;
    int rc = 0;

    if (!stream) {
        rc = ckpt_fail_errno(err, CKPT_EIO, errno, "%s", path);
        if (copy >= 0)
            close(copy);
        return rc;
    }
    for (errno = 0; rc == 0 && (e = readdir(stream)) != NULL; errno = 0) {
        int sub;

        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
            continue;
        if (is_unfinished(e->d_name)) {
            rc = ckpt_fail(err, CKPT_ESTATE, "%s: %s was never finished", path, e->d_name);
            break;
        }
        /* Not every file system reports types. */
        if (e->d_type != DT_DIR && e->d_type != DT_UNKNOWN)
            continue;
        sub = openat(fd, e->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (sub >= 0 && depth < MAX_PARTS)
            rc = sync_tree(sub, path, depth + 1, err);
        else if (sub >= 0 || (errno != ENOTDIR && errno != ELOOP))
            rc = ckpt_fail_errno(err, CKPT_EIO, sub < 0 ? errno : ENAMETOOLONG, "%s/%s", path,
                                 e->d_name);
        if (sub >= 0)
            close(sub);
    }
    if (rc == 0 && errno)
        rc = ckpt_fail_errno(err, CKPT_EIO, errno, "%s", path);
    closedir(stream);
    return rc ? rc : commit_sync_dir(fd, path, err);
}

/*
 * Swap the staging directory with the one that has the final name: 0, 1 when none has, or -1 and
 * errno.  Where names cannot be swapped (NFS, say) the old one is moved aside first; a crash in
 * between leaves neither under the name.
 */
static int swap_names(const struct ckpt_outdir *dir)
{
    char aside[300], nonce[COMMIT_NONCE + 1];
    int saved;

    if (ckpt_fault(CKPT_FAULT_RENAME)) {
        errno = EIO;
        return -1;
    }
    if (renameat2(dir->parent, dir->temp, dir->parent, dir->name, RENAME_EXCHANGE) == 0)
        return 0;
    if (errno == ENOENT)
        return 1;
    if (errno != EINVAL && errno != ENOSYS)
        return -1;
    commit_nonce(nonce);
    snprintf(aside, sizeof aside, ".trash-%s-%s", commit_short(dir->name), nonce);
    if (commit_rename(dir->parent, dir->name, aside, false))
        return errno == ENOENT ? 1 : -1;
    if (commit_rename(dir->parent, dir->temp, dir->name, false) == 0) {
        commit_rename(dir->parent, aside, dir->temp, false);
        return 0;
    }
    saved = errno;
    commit_rename(dir->parent, aside, dir->name, false);
    errno = saved;
    return -1;
}

/* Remove the old directory, now under the staging name; if that fails it stays hidden until a
 * later run removes it. */
static void remove_old(const struct ckpt_outdir *dir)
{
    int old = openat(dir->parent, dir->temp, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

    if (old < 0)
        return;
    if (commit_tree_empty(old) == 0)
        unlinkat(dir->parent, dir->temp, AT_REMOVEDIR);
    close(old);
}

/* Commit over a directory of the same name; *done is false when there is none. */
static int commit_over(const struct ckpt_outdir *dir, bool *done, struct ckpt_err *err)
{
    int rc = swap_names(dir);

    *done = rc <= 0;
    if (rc < 0)
        return ckpt_fail_errno(err, CKPT_EIO, errno, "%s: rename", dir->path);
    if (rc > 0)
        return 0;
    rc = commit_sync_dir(dir->parent, dir->path, err);
    if (rc) {
        swap_names(dir);                /* it may not last: swap back */
        return rc;
    }
    remove_old(dir);
    return 0;
}

int ckpt_outdir_commit(struct ckpt_outdir *dir, struct ckpt_err *err)
{
    bool done = false;
    int rc = 0;

    if (dir->parent < 0)
        rc = ckpt_fail(err, CKPT_ESTATE, "%s: a joined directory is committed by its maker",
                       dir->path);
    if (rc == 0)
        rc = sync_tree(dir->fd, dir->path, 0, err);
    if (rc == 0 && dir->over)
        rc = commit_over(dir, &done, err);
    if (rc == 0 && !done && commit_rename(dir->parent, dir->temp, dir->name, false)) {
        rc = errno == EEXIST || errno == ENOTEMPTY || errno == ENOTDIR
                 ? ckpt_fail(err, CKPT_ECREATE, "%s: exists already", dir->path)
                 : ckpt_fail_errno(err, CKPT_EIO, errno, "%s: rename", dir->path);
    } else if (rc == 0 && !done) {
        rc = commit_sync_dir(dir->parent, dir->path, err);
        /* The new name may not last: take it back. */
        if (rc && commit_is(dir->parent, dir->name, dir->fd))
            commit_rename(dir->parent, dir->name, dir->temp, false);
    }
    if (rc)
        ckpt_outdir_abort(dir);
    else
        free_outdir(dir);
    return rc;
}

/* Move one file of the staging directory to its parent. */
static int move_up(const struct ckpt_outdir *dir, const char *name, struct ckpt_err *err)
{
    struct stat st;

    if (fstatat(dir->fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && !S_ISREG(st.st_mode))
        return ckpt_fail(err, CKPT_ESTATE, "%s: %s is no file", dir->path, name);
    if (ckpt_fault(CKPT_FAULT_RENAME) ? (errno = EIO, -1)
                                      : renameat(dir->fd, name, dir->parent, name))
        return ckpt_fail_errno(err, CKPT_EIO, errno, "%s: rename beside it", name);
    return 0;
}

int ckpt_outdir_commit_beside(struct ckpt_outdir *dir, struct ckpt_err *err)
{
    int rc = sync_tree(dir->fd, dir->path, 0, err), copy = -1;
    DIR *stream = NULL;
    struct dirent *e;

    if (rc == 0 && ((copy = openat(dir->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC)) < 0 ||
                    !(stream = fdopendir(copy))))
        rc = ckpt_fail_errno(err, CKPT_EIO, errno, "%s", dir->path);
    for (errno = 0; rc == 0 && (e = readdir(stream)) != NULL; errno = 0)
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
            rc = move_up(dir, e->d_name, err);
    if (rc == 0 && errno)
        rc = ckpt_fail_errno(err, CKPT_EIO, errno, "%s", dir->path);
    if (stream)
        closedir(stream);
    else if (copy >= 0)
        close(copy);
    if (rc == 0)
        rc = commit_sync_dir(dir->parent, dir->path, err);
    ckpt_outdir_abort(dir);                 /* it is empty now, or what is left goes */
    return rc;
}

void ckpt_outdir_abort(struct ckpt_outdir *dir)
{
    if (!dir)
        return;
    if (dir->parent >= 0 && commit_is(dir->parent, dir->temp, dir->fd) &&
        commit_tree_empty(dir->fd) == 0)
        unlinkat(dir->parent, dir->temp, AT_REMOVEDIR);
    free_outdir(dir);
}

/* outdir - whole directories, built aside and renamed; see commit.h. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "libckpt/commit_sys.h"
#include "libckpt/fault.h"
#include "libckpt/log.h"

#define MAX_DEPTH 32

struct ckpt_outdir {
    int   parent;               /* directory the final name goes to; -1 after join */
    int   fd;                   /* of the staging directory; holds its lock */
    char  name[256];            /* final */
    char  temp[300];            /* staging, in parent */
    char *staging;              /* absolute */
    char *path;                 /* as given */
};

/* Remove everything below fd, following no link; fd stays open.  Depth is bounded. */
static int empty_dir(int fd, int depth)
{
    int copy = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), rc = 0;
    DIR *stream = copy < 0 ? NULL : fdopendir(copy);
    struct dirent *e;

    if (!stream) {
        if (copy >= 0)
            close(copy);
        return -1;
    }
    while (rc == 0 && (e = readdir(stream)) != NULL) {
        int sub;

        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
            continue;
        if (unlinkat(fd, e->d_name, 0) == 0)
            continue;
        if (errno != EISDIR && errno != EPERM) {
            rc = -1;
            break;
        }
        sub = depth < MAX_DEPTH
                  ? openat(fd, e->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC) : -1;
        rc = sub < 0 ? -1 : empty_dir(sub, depth + 1);
        if (sub >= 0)
            close(sub);
        if (rc == 0)
            rc = unlinkat(fd, e->d_name, AT_REMOVEDIR);
    }
    closedir(stream);
    return rc;
}

/* Remove name in parent with all below it. */
static int remove_at(int parent, const char *name)
{
    int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC), rc;

    if (fd < 0)
        return -1;
    rc = empty_dir(fd, 0);
    close(fd);
    return rc ? rc : unlinkat(parent, name, AT_REMOVEDIR);
}

/* Staging of earlier runs for the same name, if nobody holds it. */
static void remove_leftovers(int parent, const char *name)
{
    int copy = openat(parent, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *stream = copy < 0 ? NULL : fdopendir(copy);
    char prefix[300];
    struct dirent *e;

    if (!stream) {
        if (copy >= 0)
            close(copy);
        return;
    }
    snprintf(prefix, sizeof prefix, ".%s.staging-", name);
    while ((e = readdir(stream)) != NULL) {
        int fd;

        if (strncmp(e->d_name, prefix, strlen(prefix)) != 0)
            continue;
        fd = openat(parent, e->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (fd < 0)
            continue;
        if (flock(fd, LOCK_EX | LOCK_NB) == 0 && empty_dir(fd, 0) == 0 &&
            unlinkat(parent, e->d_name, AT_REMOVEDIR) == 0)
            ckpt_log(CKPT_LOG_NOTE, "%s: removed, left by an interrupted run", e->d_name);
        close(fd);
    }
    closedir(stream);
}

static void free_outdir(struct ckpt_outdir *d)
{
    if (d->fd >= 0)
        close(d->fd);
    if (d->parent >= 0)
        close(d->parent);
    free(d->staging);           /* realpath's */
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

/* Make the staging directory and take its lock. */
static int make_staging(struct ckpt_outdir *d, const char *dir, struct ckpt_err *err)
{
    char full[4600], nonce[17];

    commit_nonce(nonce);
    snprintf(d->temp, sizeof d->temp, ".%s.staging-%s", d->name, nonce);
    if (ckpt_fault(CKPT_FAULT_OPEN) || mkdirat(d->parent, d->temp, 0777))
        return ckpt_fail_errno(err, CKPT_ECREATE, errno ? errno : EIO, "%s", d->path);
    d->fd = openat(d->parent, d->temp, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    snprintf(full, sizeof full, "%s/%s", dir, d->temp);
    d->staging = realpath(full, NULL);
    if (d->fd < 0 || flock(d->fd, LOCK_EX | LOCK_NB) || !d->staging)
        return ckpt_fail_errno(err, CKPT_ECREATE, errno, "%s", d->path);
    return commit_sync(d->parent, d->path, err);
}

int ckpt_outdir_create(struct ckpt_outdir **out, const char *path, struct ckpt_err *err)
{
    struct ckpt_outdir *d = new_outdir(path);
    char dir[4096];

    *out = NULL;
    if (!d)
        return ckpt_nomem(err, sizeof *d);
    if (commit_split(dir, sizeof dir, d->name, path, err))
        goto fail;
    d->parent = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (d->parent < 0) {
        ckpt_fail_errno(err, CKPT_ECREATE, errno, "%s", path);
        goto fail;
    }
    if (faccessat(d->parent, d->name, F_OK, AT_SYMLINK_NOFOLLOW) == 0) {
        ckpt_fail(err, CKPT_ECREATE, "%s: exists already", path);
        goto fail;
    }
    remove_leftovers(d->parent, d->name);
    if (make_staging(d, dir, err)) {
        if (d->temp[0])
            unlinkat(d->parent, d->temp, AT_REMOVEDIR);
        goto fail;
    }
    *out = d;
    return 0;
fail:
    free_outdir(d);
    return err->code;
}

int ckpt_outdir_join(struct ckpt_outdir **out, const char *staging, struct ckpt_err *err)
{
    struct ckpt_outdir *d = new_outdir(staging);

    *out = NULL;
    if (!d)
        return ckpt_nomem(err, sizeof *d);
    d->fd = open(staging, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    d->staging = strdup(staging);
    if (d->fd < 0 || !d->staging) {
        ckpt_fail_errno(err, CKPT_ECREATE, errno, "%s", staging);
        free_outdir(d);
        return err->code;
    }
    *out = d;
    return 0;
}

const char *ckpt_outdir_staging(const struct ckpt_outdir *dir) { return dir->staging; }

int ckpt_outdir_file(struct ckpt_out **out, struct ckpt_outdir *dir, const char *rel,
                     struct ckpt_err *err)
{
    int at = dup(dir->fd);
    const char *part = rel;
    char path[4400];

    *out = NULL;
    snprintf(path, sizeof path, "%s/%s", dir->path, rel);
    if (!ckpt_relpath_is_clean(rel)) {
        close(at);
        return ckpt_fail_as(err, CKPT_EREFUSED, "refused-path", "%s: no clean relative path", rel);
    }
    for (const char *slash; at >= 0 && (slash = strchr(part, '/')) != NULL; part = slash + 1) {
        char name[256];
        int next;

        snprintf(name, sizeof name, "%.*s", (int)(slash - part), part);
        if (mkdirat(at, name, 0777) && errno != EEXIST) {
            ckpt_fail_errno(err, CKPT_ECREATE, errno, "%s", path);
            close(at);
            return err->code;
        }
        next = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        close(at);
        at = next;
    }
    if (at < 0)
        return ckpt_fail_errno(err, CKPT_ECREATE, errno, "%s", path);
    return commit_create_at(out, at, part, path, 0, err);
}

int ckpt_outdir_put(struct ckpt_outdir *dir, const char *rel, const void *bytes, size_t n,
                    struct ckpt_err *err)
{
    struct ckpt_out *out;

    if (ckpt_outdir_file(&out, dir, rel, err))
        return err->code;
    if (ckpt_out_write(out, bytes, n, err)) {
        ckpt_out_abort(out);
        return err->code;
    }
    return ckpt_out_commit(out, err);
}

/* Sync fd and every directory below it. */
static int sync_tree(int fd, const char *path, int depth, struct ckpt_err *err)
{
    int copy = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), rc = 0;
    DIR *stream = copy < 0 ? NULL : fdopendir(copy);
    struct dirent *e;

    if (!stream) {
        if (copy >= 0)
            close(copy);
        return ckpt_fail_errno(err, CKPT_EIO, errno, "%s", path);
    }
    while (rc == 0 && depth < MAX_DEPTH && (e = readdir(stream)) != NULL) {
        int sub;

        if (e->d_type != DT_DIR || strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
            continue;
        sub = openat(fd, e->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        rc = sub < 0 ? ckpt_fail_errno(err, CKPT_EIO, errno, "%s", path)
                     : sync_tree(sub, path, depth + 1, err);
        if (sub >= 0)
            close(sub);
    }
    closedir(stream);
    return rc ? rc : commit_sync(fd, path, err);
}

int ckpt_outdir_commit(struct ckpt_outdir *dir, struct ckpt_err *err)
{
    int rc = 0;

    if (dir->parent < 0)
        rc = ckpt_fail(err, CKPT_ESTATE, "%s: a joined directory is committed by its maker",
                       dir->path);
    if (rc == 0)
        rc = sync_tree(dir->fd, dir->path, 0, err);
    if (rc == 0 && commit_rename(dir->parent, dir->temp, dir->name, false))
        rc = ckpt_fail_errno(err, errno == EEXIST ? CKPT_ECREATE : CKPT_EIO, errno, "%s",
                             dir->path);
    if (rc) {
        ckpt_outdir_abort(dir);
        return rc;
    }
    rc = commit_sync(dir->parent, dir->path, err);
    free_outdir(dir);
    return rc;
}

void ckpt_outdir_abort(struct ckpt_outdir *dir)
{
    if (!dir)
        return;
    if (dir->parent >= 0 && empty_dir(dir->fd, 0) == 0)
        unlinkat(dir->parent, dir->temp, AT_REMOVEDIR);
    free_outdir(dir);
}

int ckpt_remove_tree(const char *path, struct ckpt_err *err)
{
    char dir[4096], name[256], trash[300], nonce[17];
    int parent, rc = 0;

    if (commit_split(dir, sizeof dir, name, path, err))
        return err->code;
    parent = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (parent < 0)
        return ckpt_fail_errno(err, CKPT_EIO, errno, "%s", path);
    commit_nonce(nonce);
    snprintf(trash, sizeof trash, ".trash-%s-%s", name, nonce);
    if (commit_rename(parent, name, trash, false))
        rc = ckpt_fail_errno(err, errno == ENOENT ? CKPT_ENOTFOUND : CKPT_EIO, errno, "%s", path);
    if (rc == 0)
        rc = commit_sync(parent, path, err);
    if (rc == 0 && remove_at(parent, trash))
        rc = ckpt_fail_errno(err, CKPT_EIO, errno, "%s: remove", path);
    close(parent);
    return rc;
}

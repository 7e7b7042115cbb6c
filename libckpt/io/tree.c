/*
 * tree - remove directories by handle, and leftovers of dead processes; see commit_sys.h.
 *
 * A tree is removed without recursion and with three descriptors however deep it is: a directory
 * found two levels down is moved up beside the first level under a fresh name, until nothing is
 * left.  No symbolic link is ever followed.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "libckpt/io/commit_sys.h"
#include "libckpt/base/fault.h"
#include "libckpt/log.h"

#define MAX_PASSES 1000000      /* each pass removes at least one level, unless another process
                                   adds some */

/* The entries of the directory fd, which stays open; NULL and errno on failure. */
static DIR *entries_of(int fd)
{
    int copy = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), saved;
    DIR *stream = copy < 0 ? NULL : fdopendir(copy);

    if (!stream && copy >= 0) {
        saved = errno;
        close(copy);
        errno = saved;
    }
    return stream;
}

/* The next entry but "." and ".."; NULL with errno 0 at the end. */
static const char *next_name(DIR *stream)
{
    struct dirent *e;

    do {
        errno = 0;
        e = readdir(stream);
    } while (e && (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0));
    return e ? e->d_name : NULL;
}

/* Remove name in fd if one call can do it: 0; 1 when it is a directory that is not empty. */
static int remove_simple(int fd, const char *name)
{
    int why;

    if (unlinkat(fd, name, 0) == 0 || errno == ENOENT)
        return 0;
    if (errno != EISDIR && errno != EPERM)      /* POSIX says EPERM for a directory */
        return -1;
    why = errno;
    if (unlinkat(fd, name, AT_REMOVEDIR) == 0 || errno == ENOENT)
        return 0;
    if (errno == ENOTEMPTY || errno == EEXIST)
        return 1;
    if (errno == ENOTDIR)
        errno = why;
    return -1;
}

/* Empty the directory name of top; its non-empty subdirectories move up into top. */
static int flatten(int top, const char *name)
{
    int fd = openat(top, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC), rc = 0, saved;
    DIR *stream = fd < 0 ? NULL : entries_of(fd);
    const char *sub;

    while (stream && rc == 0 && (sub = next_name(stream)) != NULL) {
        rc = remove_simple(fd, sub);
        if (rc == 1) {
            char fresh[COMMIT_NONCE + 1];

            commit_nonce(fresh);
            rc = renameat(fd, sub, top, fresh);
        }
    }
    if (!stream || errno)
        rc = -1;
    saved = errno;
    if (stream)
        closedir(stream);
    if (fd >= 0)
        close(fd);
    errno = saved;
    return rc;
}

int commit_tree_empty(int fd)
{
    bool found = true;
    int rc = 0;

    for (int pass = 0; rc == 0 && found; pass++) {
        DIR *stream = entries_of(fd);
        const char *name;
        int saved;

        if (!stream)
            return -1;
        if (pass == MAX_PASSES) {
            closedir(stream);
            errno = EBUSY;
            return -1;
        }
        found = false;
        while (rc == 0 && (name = next_name(stream)) != NULL) {
            found = true;
            rc = remove_simple(fd, name);
            if (rc == 1)
                rc = flatten(fd, name);
        }
        if (errno && rc == 0)
            rc = -1;
        saved = errno;
        closedir(stream);
        errno = saved;
    }
    return rc;
}

bool commit_is(int dir_fd, const char *name, int fd)
{
    struct stat there, open_one;

    return fstatat(dir_fd, name, &there, AT_SYMLINK_NOFOLLOW) == 0 && fstat(fd, &open_one) == 0 &&
           there.st_dev == open_one.st_dev && there.st_ino == open_one.st_ino;
}

bool commit_hold(int dir_fd, const char *name, int fd)
{
    /* Only a cleaner locks exclusively.  Any other error means that there are no locks here. */
    if (flock(fd, LOCK_SH | LOCK_NB) && errno == EWOULDBLOCK)
        return false;
    return commit_is(dir_fd, name, fd);
}

/* head + anything (if any) + nonce + tail */
static bool is_leftover(const char *name, const char *head, const char *tail, bool any)
{
    size_t n = strlen(name), h = strlen(head), t = strlen(tail);

    if (n < h + COMMIT_NONCE + t || (!any && n > h + COMMIT_NONCE + t))
        return false;
    return memcmp(name, head, h) == 0 && strcmp(name + n - t, tail) == 0 &&
           strspn(name + n - t - COMMIT_NONCE, "0123456789abcdef") >= COMMIT_NONCE;
}

static void remove_leftover(int dir_fd, const char *name)
{
    int how = O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK, fd;
    bool gone = false, is_dir = true;

    fd = openat(dir_fd, name, how | O_RDONLY | O_DIRECTORY);
    if (fd < 0 && errno == ENOTDIR) {
        is_dir = false;
        fd = openat(dir_fd, name, how | O_RDWR);        /* NFS takes an exclusive lock only on a
                                                           file opened for writing */
    }
    if (fd < 0)
        return;
    /*
     * An exclusive lock means that the maker is dead or done.  If it is done, it has renamed the
     * file, and fd is finished work: only an entry that still has this name is a leftover.
     */
    if (flock(fd, LOCK_EX | LOCK_NB) == 0 && commit_is(dir_fd, name, fd))
        gone = is_dir ? commit_tree_empty(fd) == 0 && unlinkat(dir_fd, name, AT_REMOVEDIR) == 0
                      : unlinkat(dir_fd, name, 0) == 0;
    close(fd);
    if (gone)
        ckpt_log(CKPT_LOG_NOTE, "%s: removed, left by an interrupted run", name);
}

void commit_leftovers(int dir_fd, const char *head, const char *tail, bool any)
{
    DIR *stream = entries_of(dir_fd);
    const char *name;

    if (!stream)
        return;
    while ((name = next_name(stream)) != NULL)
        if (is_leftover(name, head, tail, any))
            remove_leftover(dir_fd, name);
    closedir(stream);
}

/* Any of the names that are given to what is unfinished. */
static bool is_unfinished(const char *name)
{
    static const char staging[] = ".staging-", tmp[] = ".tmp";
    size_t n = strlen(name), s = sizeof staging - 1 + COMMIT_NONCE;
    size_t t = sizeof tmp - 1 + COMMIT_NONCE;

    return is_leftover(name, ".trash-", "", true) ||
           (is_leftover(name, ".", tmp, true) && n > t + 1 && name[n - t - 1] == '.') ||
           (is_leftover(name, ".", "", true) && n > s + 1 &&
            memcmp(name + n - s, staging, sizeof staging - 1) == 0);
}

void ckpt_outdir_sweep(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *stream = fd < 0 ? NULL : entries_of(fd);
    const char *name;

    while (stream && (name = next_name(stream)) != NULL)
        if (is_unfinished(name))
            remove_leftover(fd, name);
    if (stream)
        closedir(stream);
    if (fd >= 0)
        close(fd);
}

/* Rename name, open as fd, to a hidden name and remove it. */
static int remove_held(int parent, const char *name, int fd, const char *path,
                       struct ckpt_err *err)
{
    char trash[300], nonce[COMMIT_NONCE + 1];

    commit_nonce(nonce);
    snprintf(trash, sizeof trash, ".trash-%s-%s", commit_short(name), nonce);
    /* If the lock fails, locks do not work here and nobody cleans. */
    (void)flock(fd, LOCK_SH | LOCK_NB);
    if (commit_rename(parent, name, trash, false))
        return ckpt_fail_errno(err, errno == ENOENT ? CKPT_ENOTFOUND : CKPT_EIO, errno,
                               "%s: rename", path);
    if (commit_sync_dir(parent, path, err)) {
        commit_rename(parent, trash, name, false);      /* complete again: rename it back */
        return ckpt_err_code(err);
    }
    if (!commit_is(parent, trash, fd) || commit_tree_empty(fd) ||
        unlinkat(parent, trash, AT_REMOVEDIR))
        return ckpt_fail_errno(err, CKPT_EIO, errno, "%s: remove", path);
    return 0;
}

int ckpt_outdir_remove(const char *path, struct ckpt_err *err)
{
    char name[256];
    int parent, fd, rc;

    if ((rc = commit_open_parent(&parent, name, path, CKPT_ENOTFOUND, err)) != 0)
        return rc;
    commit_leftovers(parent, ".trash-", "", true);
    fd = ckpt_fault(CKPT_FAULT_OPEN)
             ? (errno = EIO, -1)
             : openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd >= 0)
        rc = remove_held(parent, name, fd, path, err);
    else if (errno == ENOENT)
        rc = ckpt_fail(err, CKPT_ENOTFOUND, "%s: no such directory", path);
    else if (errno == ENOTDIR || errno == ELOOP)
        rc = ckpt_fail(err, CKPT_ENOTFOUND, "%s: is no directory", path);
    else
        rc = ckpt_fail_errno(err, CKPT_EIO, errno, "%s", path);
    if (fd >= 0)
        close(fd);
    close(parent);
    return rc;
}

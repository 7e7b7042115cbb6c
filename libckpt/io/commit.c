/*
 * commit - see commit.h.  Directories are in outdir.c, what stands in the way of an output in
 * ready.c, leftovers of dead processes in tree.c.
 *
 * Assumed: rename(2) and link(2) are atomic within a directory (POSIX.1-2008), fsync of the
 * directory makes the name durable (Linux, ext4 to NFS), flock(2) ends with its last descriptor.
 */
#include "libckpt/commit.h"
#include "libckpt/err.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "libckpt/io/adopt.h"
#include "libckpt/io/commit_sys.h"
#include "libckpt/io/direct.h"
#include "libckpt/io/follow.h"
#include "libckpt/io/guard.h"
#include "libckpt/base/fault.h"

#define MAX_SHORT 200u          /* ".<name>.staging-<nonce>" fits in 255 bytes */
#define EARLY_SYNC ((size_t)1 << 20)    /* bytes of a write that the disk begins with at once */

struct ckpt_out {
    int      fd;
    int      hold;              /* duplicate of fd that keeps the lock after fd is closed */
    int      direct;            /* the same file opened with O_DIRECT; -1: none */
    int      dir_fd;            /* directory that the file goes into; -1 for a stream */
    char    *path;              /* as given, for messages */
    char     name[256];         /* final name in dir_fd */
    char     temp[300];         /* name while it is written; "" before and after */
    unsigned flags;
    bool     stream;
    uint64_t pos;               /* position of ckpt_out_write */
    uint64_t size;              /* reserved */
    uint64_t follow_least;      /* bytes of a file that is digested while it is written; 0: none */
    struct follow *follow;
};

void commit_nonce(char out[COMMIT_NONCE + 1])
{
    static const char hex[] = "0123456789abcdef";
    uint64_t bits = 0;

    if (getrandom(&bits, sizeof bits, 0) != (ssize_t)sizeof bits)
        bits = (uint64_t)getpid();      /* not random, but the name is created exclusively all
                                           the same */
    for (size_t i = 0; i < COMMIT_NONCE; i++)
        out[i] = hex[bits >> (4 * i) & 15];
    out[COMMIT_NONCE] = '\0';
}

int ckpt_out_check(const char *path, struct ckpt_err *err)
{
    size_t scheme = 0, user = strcspn(path, "@:/"), host = user + strcspn(path + user, ":/");

    while (isalnum((unsigned char)path[scheme]) || (path[scheme] && strchr("+.-", path[scheme])))
        scheme++;
    if ((!scheme || strncmp(path + scheme, "://", 3) != 0) &&
        (path[user] != '@' || path[host] != ':'))
        return 0;
    ckpt_fail(err, CKPT_EUSAGE, "%.300s: is an address, and nothing is written to such", path);
    return ckpt_err_hint(err, "a path on this host is wanted; ckpt-push publishes it; a file of "
                         "that name begins with ./");
}

int commit_split(char *dir, size_t dir_size, char name[256], const char *path,
                 struct ckpt_err *err)
{
    size_t n = strlen(path), from;
    int rc;

    if ((rc = ckpt_out_check(path, err)) != 0)
        return rc;
    while (n > 1 && path[n - 1] == '/')
        n--;
    for (from = n; from > 0 && path[from - 1] != '/'; from--)
        ;
    if (n - from > 255 || from >= dir_size)
        return ckpt_fail(err, CKPT_ECREATE, "%s: a name of %zu bytes, at most 255", path, n - from);
    snprintf(name, 256, "%.*s", (int)(n - from), path + from);
    if (from == 0)
        snprintf(dir, dir_size, ".");
    else
        snprintf(dir, dir_size, "%.*s", (int)(from > 1 ? from - 1 : 1), path);
    if (!ckpt_file_name_is_clean(name))
        return ckpt_fail(err, CKPT_ECREATE, "%s: ends in no name that could be created", path);
    return 0;
}

const char *commit_short(const char *name) { return strlen(name) <= MAX_SHORT ? name : "long"; }

int commit_parent(const char *dir, const char *path, int code, struct ckpt_err *err)
{
    int fd = ckpt_fault(CKPT_FAULT_OPEN) ? (errno = EIO, -1)
                                         : open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (fd < 0)
        ckpt_fail_errno(err, errno == ENOENT || errno == ENOTDIR || code == CKPT_ECREATE
                                 ? code : CKPT_EIO, errno, "%s: the directory it lies in", path);
    return fd;
}

int commit_open_parent(int *fd, char name[256], const char *path, int code, struct ckpt_err *err)
{
    char dir[4096];
    int rc = commit_split(dir, sizeof dir, name, path, err);

    *fd = rc ? -1 : commit_parent(dir, path, code, err);
    return *fd < 0 ? ckpt_err_code(err) : 0;
}

static int sync_failed(const char *what, int errnum, struct ckpt_err *err)
{
    int rc = ckpt_fail_errno(err, CKPT_EIO, errnum, "%s: sync", what);

    snprintf(err->reason, sizeof err->reason, "sync-failed");
    return rc;
}

int commit_sync(int fd, const char *what, struct ckpt_err *err)
{
    if (ckpt_fault(CKPT_FAULT_SYNC))
        return sync_failed(what, EIO, err);
    return fsync(fd) ? sync_failed(what, errno, err) : 0;
}

int commit_sync_dir(int fd, const char *what, struct ckpt_err *err)
{
    if (ckpt_fault(CKPT_FAULT_SYNC))
        return sync_failed(what, EIO, err);
    /* Some network and user-space file systems cannot sync a directory, and say so. */
    if (fsync(fd) == 0 || errno == EINVAL || errno == EOPNOTSUPP || errno == ENOSYS)
        return 0;
    return sync_failed(what, errno, err);
}

int commit_rename(int dir_fd, const char *from, const char *to, bool replace)
{
    struct stat st;

    if (ckpt_fault(CKPT_FAULT_RENAME)) {
        errno = EIO;
        return -1;
    }
    if (replace)
        return renameat(dir_fd, from, dir_fd, to);
    if (renameat2(dir_fd, from, dir_fd, to, RENAME_NOREPLACE) == 0)
        return 0;
    if (errno != EINVAL && errno != ENOSYS)
        return -1;
    /* RENAME_NOREPLACE is not supported here (on NFS, say).  A hard link never replaces, but
     * directories cannot have one. */
    if (linkat(dir_fd, from, dir_fd, to, 0) == 0) {
        unlinkat(dir_fd, from, 0);
        return 0;
    }
    if (errno == EEXIST)
        return -1;
    if (fstatat(dir_fd, to, &st, AT_SYMLINK_NOFOLLOW) == 0) {
        errno = EEXIST;
        return -1;
    }
    return renameat(dir_fd, from, dir_fd, to);
}

static int write_failed(struct ckpt_err *err, const char *path, int errnum)
{
    int rc = ckpt_fail_errno(err, CKPT_EIO, errnum, "%s: write", path);

    if (errnum == ENOSPC || errnum == EDQUOT || errnum == EFBIG)
        snprintf(err->reason, sizeof err->reason, "no-space");
    return rc;
}

static struct ckpt_out *new_out(const char *path)
{
    struct ckpt_out *o = ckpt_alloc(1, sizeof *o);

    if (!o)
        return NULL;
    o->fd = o->hold = o->direct = o->dir_fd = -1;
    o->path = ckpt_strdup(path);
    if (!o->path) {
        ckpt_free(o);
        return NULL;
    }
    return o;
}

static void free_out(struct ckpt_out *o)
{
    follow_abort(o->follow);
    if (o->temp[0])
        unlinkat(o->dir_fd, o->temp, 0);
    if (o->fd >= 0 && !o->stream)
        close(o->fd);
    if (o->hold >= 0)
        close(o->hold);
    if (o->direct >= 0)
        close(o->direct);
    if (o->dir_fd >= 0)
        close(o->dir_fd);
    ckpt_free(o->path);
    ckpt_free(o);
}

/* Create and lock the file under a hidden name that is not in use. */
static int create_temp(struct ckpt_out *o, struct ckpt_err *err)
{
    char nonce[COMMIT_NONCE + 1];

    for (int i = 0; i < COMMIT_TRIES && o->fd < 0; i++) {
        commit_nonce(nonce);
        snprintf(o->temp, sizeof o->temp, ".%s.%s.tmp", commit_short(o->name), nonce);
        o->fd = ckpt_fault(CKPT_FAULT_OPEN)
                    ? (errno = EIO, -1)
                    : openat(o->dir_fd, o->temp,
                             O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
        if (o->fd < 0 && errno != EEXIST)
            break;
        if (o->fd >= 0 && !commit_hold(o->dir_fd, o->temp, o->fd)) {
            close(o->fd);
            o->fd = -1;
            errno = EAGAIN;
        }
    }
    if (o->fd < 0)
        o->temp[0] = '\0';
    else
        o->hold = fcntl(o->fd, F_DUPFD_CLOEXEC, 0);
    return o->hold < 0 ? ckpt_fail_errno(err, CKPT_ECREATE, errno, "%s", o->path) : 0;
}

int commit_create_at(struct ckpt_out **out, int dir_fd, const char *name, const char *path,
                     unsigned flags, struct ckpt_err *err)
{
    struct ckpt_out *o = new_out(path);
    int rc;

    *out = NULL;
    if (!o) {
        close(dir_fd);
        return ckpt_nomem(err, sizeof *o);
    }
    o->dir_fd = dir_fd;
    o->flags = flags;
    o->follow_least = flags & FOLLOW_FILE ? FOLLOW_LEAST : 0;
    snprintf(o->name, sizeof o->name, "%s", name);
    rc = commit_check_file(dir_fd, name, path, flags, err);
    if (rc == 0)
        rc = create_temp(o, err);
    if (rc)
        free_out(o);
    else
        *out = o;
    return rc;
}

int ckpt_out_create(struct ckpt_out **out, const char *path, unsigned flags,
                    struct ckpt_err *err)
{
    char name[256], head[260];
    int fd, rc;

    *out = NULL;
    if ((rc = commit_open_parent(&fd, name, path, CKPT_ECREATE, err)) != 0)
        return rc;
    snprintf(head, sizeof head, ".%s.", commit_short(name));
    commit_leftovers(fd, head, ".tmp", false);
    return commit_create_at(out, fd, name, path, flags & (CKPT_REPLACE | FOLLOW_FILE), err);
}

int ckpt_out_stream(struct ckpt_out **out, int fd, const char *name, struct ckpt_err *err)
{
    struct ckpt_out *o = new_out(name);

    *out = NULL;
    if (!o)
        return ckpt_nomem(err, sizeof *o);
    o->fd = fd;
    o->stream = true;
    *out = o;
    return 0;
}

int ckpt_out_reserve(struct ckpt_out *out, uint64_t size, struct ckpt_err *err)
{
    int rc;

    if (out->stream || size == 0)
        return 0;
    if (size > INT64_MAX)
        return write_failed(err, out->path, EFBIG);
    do {
        rc = ckpt_fault(CKPT_FAULT_WRITE) ? (errno = ENOSPC, -1)
                                          : fallocate(out->fd, 0, 0, (off_t)size);
    } while (rc && errno == EINTR);
    if (rc && errno != EOPNOTSUPP && errno != ENOSYS)
        return write_failed(err, out->path, errno);
    /* When the file system cannot reserve, a full disk is only found while writing. */
    if (rc && ftruncate(out->fd, (off_t)size))
        return write_failed(err, out->path, errno);
    if (rc == 0 && size >= DIRECT_LEAST && out->direct < 0)
        out->direct = direct_open(out->dir_fd, out->temp, out->fd);
    if (out->follow_least && size >= out->follow_least && !out->follow) {
        out->size = size;
        out->follow = follow_begin(out->fd, size);
    }
    return 0;
}

/* Write all n bytes through fd at an offset; a stream appends them. */
static int write_through(struct ckpt_out *out, int fd, const unsigned char *src, size_t n,
                         uint64_t at, struct ckpt_err *err)
{
    while (n > 0) {
        ssize_t done;

        if (ckpt_fault(CKPT_FAULT_WRITE))
            return write_failed(err, out->path, ENOSPC);
        done = out->stream ? write(fd, src, n) : pwrite(fd, src, n, (off_t)at);
        if (done < 0 && errno == EINVAL && fd == out->direct) {
            fd = out->fd;               /* the alignment of this memory, or of the rest, does not
                                           suit direct writes */
            continue;
        }
        if (done < 0 && errno == EINTR)
            continue;
        if (done < 0 && errno == EAGAIN && out->stream) {
            /* A pipe that another process made non-blocking may just be full. */
            struct pollfd room = {.fd = fd, .events = POLLOUT};

            poll(&room, 1, -1);
            continue;
        }
        if (done <= 0)
            return write_failed(err, out->path, done < 0 ? errno : EIO);
        src += done;
        n -= (size_t)done;
        at += (uint64_t)done;
    }
    return 0;
}

/*
 * The disk begins with what has just been written: a commit waits for all of it anyway, and the
 * kernel would let it lie until a tenth of the memory is dirty.  Advice: a failure means nothing.
 */
static void begin_sync(const struct ckpt_out *out, uint64_t at, size_t n)
{
    if (!out->stream && n >= EARLY_SYNC)
        (void)sync_file_range(out->fd, (off_t)at, (off_t)n, SYNC_FILE_RANGE_WRITE);
}

/* Write all n bytes; whole pages bypass the page cache where possible. */
static int write_all(struct ckpt_out *out, const unsigned char *src, size_t n, uint64_t at,
                     struct ckpt_err *err)
{
    size_t head, pages;
    int rc;

    if (!out->stream && (at > INT64_MAX || n > INT64_MAX - at))
        return write_failed(err, out->path, EFBIG);
    pages = out->direct >= 0 ? direct_pages(&head, src, at, n) : 0;
    if (pages == 0) {
        rc = write_through(out, out->fd, src, n, at, err);
        if (rc == 0)
            begin_sync(out, at, n);
    } else {
        rc = write_through(out, out->fd, src, head, at, err);
        if (rc == 0)
            rc = write_through(out, out->direct, src + head, pages, at + head, err);
        head += pages;
        if (rc == 0)
            rc = write_through(out, out->fd, src + head, n - head, at + head, err);
    }
    if (rc == 0)
        follow_wrote(out->follow, at, n);
    return rc;
}

int ckpt_out_write(struct ckpt_out *out, const void *src, size_t n, struct ckpt_err *err)
{
    int rc = write_all(out, src, n, out->pos, err);

    out->pos += n;
    return rc;
}

int ckpt_out_write_at(struct ckpt_out *out, const void *src, size_t n, uint64_t offset,
                      struct ckpt_err *err)
{
    if (out->stream)
        return ckpt_fail(err, CKPT_ESTATE, "%s: a stream has no offsets", out->path);
    return write_all(out, src, n, offset, err);
}

/*
 * Copy inside the kernel as far as possible; returns the bytes copied.  copy_file_range shares
 * extents itself where both sides are aligned and the file system can (vfs_copy_file_range asks
 * for a clone first), so FICLONERANGE would add nothing.
 */
static uint64_t kernel_copy(struct ckpt_out *out, uint64_t offset, const struct ckpt_file *file,
                            uint64_t from, uint64_t n)
{
    uint64_t base, done = 0;
    int fd = ckpt_file_fd(file, &base);

    while (fd >= 0 && done < n && !ckpt_fault(CKPT_FAULT_READ)) {
        off_t in = (off_t)(base + from + done), to = (off_t)(offset + done);
        ssize_t k = copy_file_range(fd, &in, out->fd, &to, (size_t)(n - done), 0);

        if (k < 0 && errno == EINTR)
            continue;
        if (k <= 0)
            break;                      /* if there is an error, the plain copy will report it */
        done += (uint64_t)k;
    }
    return done;
}

int ckpt_out_copy(struct ckpt_out *out, uint64_t offset, const struct ckpt_file *file,
                  uint64_t from, uint64_t n, void *bounce, size_t bounce_bytes,
                  struct ckpt_err *err)
{
    uint64_t done;
    int rc;

    if (out->stream)
        return ckpt_fail(err, CKPT_ESTATE, "%s: a stream has no offsets", out->path);
    if (from > ckpt_file_size(file) || n > ckpt_file_size(file) - from)
        return ckpt_fail_as(err, CKPT_EFORMAT, "truncated",
                            "%s: %llu bytes at offset %llu wanted, the file has %llu",
                            ckpt_file_name(file), (unsigned long long)n, (unsigned long long)from,
                            (unsigned long long)ckpt_file_size(file));
    if (offset > INT64_MAX || n > INT64_MAX - offset)
        return write_failed(err, out->path, EFBIG);
    if ((rc = ckpt_guard_prove(file, from, n, err)) != 0)
        return rc;
    done = kernel_copy(out, offset, file, from, n);
    follow_wrote(out->follow, offset, done);
    if (done < n && bounce_bytes == 0)
        return ckpt_fail(err, CKPT_ESTATE, "%s: a copy without a buffer", out->path);
    while (done < n) {
        size_t k = n - done < bounce_bytes ? (size_t)(n - done) : bounce_bytes;

        if ((rc = ckpt_file_read_at(file, bounce, k, from + done, err)) != 0 ||
            (rc = write_all(out, bounce, k, offset + done, err)) != 0)
            return rc;
        done += k;
    }
    return 0;
}

bool commit_adopt(struct ckpt_out *out, const char *path, int fd)
{
    int own = out->stream ? -1 : adopt_open(path, fd, out->fd);
    int hold = own < 0 ? -1 : fcntl(own, F_DUPFD_CLOEXEC, 0);

    /* Locked under its old name already, so that it is nobody's leftover under the new one. */
    if (hold < 0 || !commit_hold(AT_FDCWD, path, own) || ckpt_fault(CKPT_FAULT_RENAME) ||
        renameat(AT_FDCWD, path, out->dir_fd, out->temp)) {
        if (own >= 0)
            close(own);
        if (hold >= 0)
            close(hold);
        return false;
    }
    close(out->fd);
    close(out->hold);
    out->fd = own;
    out->hold = hold;
    return true;
}

bool ckpt_out_is_stream(const struct ckpt_out *out) { return out->stream; }
bool ckpt_out_is_direct(const struct ckpt_out *out) { return out->direct >= 0; }

bool ckpt_out_would_replace(const struct ckpt_out *out, const struct ckpt_file *file)
{
    struct stat there, in;
    uint64_t base;
    int fd = ckpt_file_fd(file, &base);

    return !out->stream && fd >= 0 && fstat(fd, &in) == 0 &&
           fstatat(out->dir_fd, out->name, &there, AT_SYMLINK_NOFOLLOW) == 0 &&
           in.st_dev == there.st_dev && in.st_ino == there.st_ino;
}

/* Give the file its final name durably, or leave the name as it was. */
static int publish(struct ckpt_out *out, struct ckpt_err *err)
{
    bool replaced = false;
    int rc = commit_rename(out->dir_fd, out->temp, out->name, false);

    if (rc && errno == EEXIST && (out->flags & CKPT_REPLACE)) {
        replaced = true;
        rc = commit_rename(out->dir_fd, out->temp, out->name, true);
    }
    if (rc)
        return errno == EEXIST ? ckpt_fail(err, CKPT_ECREATE, "%s: exists already", out->path)
                               : ckpt_fail_errno(err, CKPT_EIO, errno, "%s: rename", out->path);
    out->temp[0] = '\0';
    if ((out->flags & COMMIT_STAGED) || commit_sync_dir(out->dir_fd, out->path, err) == 0)
        return 0;
    if (replaced)
        return ckpt_err_hint(err, "the new file is there, whole, but may not last");
    if (commit_is(out->dir_fd, out->name, out->hold))
        unlinkat(out->dir_fd, out->name, 0);
    return ckpt_err_code(err);
}

void commit_follow(struct ckpt_out *out, uint64_t least) { out->follow_least = least; }

/* The digest, if the file was followed, is known once the file is as it stays. */
static bool end_follow(struct ckpt_out *out, char hex[CKPT_SHA256_HEX])
{
    struct follow *f = out->follow;

    out->follow = NULL;
    return f && follow_end(f, hex);
}

int ckpt_out_commit(struct ckpt_out *out, struct ckpt_err *err)
{
    char hex[CKPT_SHA256_HEX];
    bool digested;
    int rc = 0, fd = out->fd;

    if (out->stream) {
        free_out(out);
        return 0;
    }
    rc = commit_sync(fd, out->path, err);
    digested = rc == 0 && end_follow(out, hex);
    follow_abort(out->follow);
    out->follow = NULL;
    out->fd = -1;
    if (close(fd) && rc == 0)
        rc = ckpt_fail_errno(err, CKPT_EIO, errno, "%s: close", out->path);
    if (rc == 0)
        rc = publish(out, err);
    if (rc == 0 && digested)
        follow_leave(out->dir_fd, out->name, out->size, hex);
    free_out(out);
    return rc;
}

void ckpt_out_abort(struct ckpt_out *out)
{
    if (out)
        free_out(out);
}

int commit_bytes(struct ckpt_out *out, const void *bytes, size_t n, struct ckpt_err *err)
{
    int rc = ckpt_out_write(out, bytes, n, err);

    if (rc) {
        ckpt_out_abort(out);
        return rc;
    }
    return ckpt_out_commit(out, err);
}

int ckpt_out_put(const char *path, const void *bytes, size_t n, struct ckpt_err *err)
{
    struct ckpt_out *out;
    int rc = ckpt_out_create(&out, path, CKPT_REPLACE, err);

    return rc ? rc : commit_bytes(out, bytes, n, err);
}

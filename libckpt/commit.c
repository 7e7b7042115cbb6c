/* commit - see commit.h.  Whole directories are in outdir.c. */
#include "libckpt/commit.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "libckpt/commit_sys.h"
#include "libckpt/fault.h"

struct ckpt_out {
    int      fd;
    int      dir_fd;            /* of the directory the file goes to; -1 for a stream */
    char    *path;              /* as given, for messages */
    char     name[256];         /* final name in dir_fd */
    char     temp[280];         /* name while it is written */
    unsigned flags;
    bool     stream;
    uint64_t pos;               /* of ckpt_out_write */
};

void commit_nonce(char out[17])
{
    unsigned char bytes[8] = {0};

    if (getrandom(bytes, sizeof bytes, 0) != (ssize_t)sizeof bytes)
        snprintf((char *)bytes, sizeof bytes, "%06x", (unsigned)getpid() & 0xffffffu);
    for (size_t i = 0; i < 8; i++)
        snprintf(out + 2 * i, 3, "%02x", bytes[i]);
}

int commit_split(char *dir, size_t dir_size, char name[256], const char *path,
                 struct ckpt_err *err)
{
    size_t n = strlen(path), from;

    while (n > 1 && path[n - 1] == '/')
        n--;
    for (from = n; from > 0 && path[from - 1] != '/'; from--)
        ;
    if (n - from == 0 || n - from > 200 || from >= dir_size)
        return ckpt_fail(err, CKPT_ECREATE, "%s: no usable name", path);
    snprintf(name, 256, "%.*s", (int)(n - from), path + from);
    if (from == 0)
        snprintf(dir, dir_size, ".");
    else
        snprintf(dir, dir_size, "%.*s", (int)(from > 1 ? from - 1 : 1), path);
    if (!ckpt_name_is_clean(name))
        return ckpt_fail(err, CKPT_ECREATE, "%s: no usable name", path);
    return 0;
}

int commit_sync(int fd, const char *what, struct ckpt_err *err)
{
    if (ckpt_fault(CKPT_FAULT_SYNC))
        return ckpt_fail_as(err, CKPT_EIO, "sync-failed", "%s: sync: injected", what);
    if (fsync(fd) == 0)
        return 0;
    ckpt_fail_errno(err, CKPT_EIO, errno, "%s: sync", what);
    snprintf(err->reason, sizeof err->reason, "sync-failed");
    return err->code;
}

int commit_rename(int dir_fd, const char *from, const char *to, bool replace)
{
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
    /* A file system without NOREPLACE: look, then rename. */
    if (faccessat(dir_fd, to, F_OK, AT_SYMLINK_NOFOLLOW) == 0) {
        errno = EEXIST;
        return -1;
    }
    return renameat(dir_fd, from, dir_fd, to);
}

static int write_failed(struct ckpt_err *err, const char *path, int errnum)
{
    ckpt_fail_errno(err, CKPT_EIO, errnum, "%s: write", path);
    if (errnum == ENOSPC || errnum == EDQUOT || errnum == EFBIG)
        snprintf(err->reason, sizeof err->reason, "no-space");
    return err->code;
}

static struct ckpt_out *new_out(const char *path)
{
    struct ckpt_out *o = ckpt_alloc(1, sizeof *o);

    if (!o)
        return NULL;
    o->fd = o->dir_fd = -1;
    o->path = ckpt_strdup(path);
    if (!o->path) {
        ckpt_free(o);
        return NULL;
    }
    return o;
}

static void free_out(struct ckpt_out *o)
{
    if (o->fd >= 0 && !o->stream)
        close(o->fd);
    if (o->dir_fd >= 0)
        close(o->dir_fd);
    ckpt_free(o->path);
    ckpt_free(o);
}

int commit_create_at(struct ckpt_out **out, int dir_fd, const char *name, const char *path,
                     unsigned flags, struct ckpt_err *err)
{
    struct ckpt_out *o = new_out(path);
    char nonce[17];

    *out = NULL;
    if (!o) {
        close(dir_fd);
        return ckpt_nomem(err, sizeof *o);
    }
    o->dir_fd = dir_fd;
    o->flags = flags;
    snprintf(o->name, sizeof o->name, "%s", name);
    if (!(flags & CKPT_REPLACE) && faccessat(dir_fd, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0) {
        ckpt_fail(err, CKPT_ECREATE, "%s: exists already", path);
        goto fail;
    }
    commit_nonce(nonce);
    snprintf(o->temp, sizeof o->temp, ".%s.%s.tmp", name, nonce);
    o->fd = ckpt_fault(CKPT_FAULT_OPEN)
                ? (errno = EIO, -1)
                : openat(dir_fd, o->temp, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (o->fd < 0) {
        ckpt_fail_errno(err, CKPT_ECREATE, errno, "%s", path);
        goto fail;
    }
    *out = o;
    return 0;
fail:
    free_out(o);
    return err->code;
}

int ckpt_out_create(struct ckpt_out **out, const char *path, unsigned flags,
                    struct ckpt_err *err)
{
    char dir[4096], name[256];
    struct stat st;
    int fd;

    *out = NULL;
    if (commit_split(dir, sizeof dir, name, path, err))
        return err->code;
    fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return ckpt_fail_errno(err, CKPT_ECREATE, errno, "%s", path);
    if (fstatat(fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode)) {
        close(fd);
        return ckpt_fail(err, CKPT_ECREATE, "%s: is a directory", path);
    }
    return commit_create_at(out, fd, name, path, flags, err);
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
    if (out->stream || size == 0)
        return 0;
    if (ckpt_fault(CKPT_FAULT_WRITE))
        return write_failed(err, out->path, ENOSPC);
    if (fallocate(out->fd, 0, 0, (off_t)size) == 0)
        return 0;
    if (errno != EOPNOTSUPP && errno != ENOSYS && errno != EINTR)
        return write_failed(err, out->path, errno);
    return ftruncate(out->fd, (off_t)size) ? write_failed(err, out->path, errno) : 0;
}

/* All of n bytes, at an offset or, with at == UINT64_MAX, behind what was written. */
static int write_all(struct ckpt_out *out, const unsigned char *src, size_t n, uint64_t at,
                     struct ckpt_err *err)
{
    while (n > 0) {
        ssize_t done;

        if (ckpt_fault(CKPT_FAULT_WRITE))
            return write_failed(err, out->path, ENOSPC);
        done = at == UINT64_MAX ? write(out->fd, src, n) : pwrite(out->fd, src, n, (off_t)at);
        if (done < 0 && errno == EINTR)
            continue;
        if (done < 0)
            return write_failed(err, out->path, errno);
        src += done;
        n -= (size_t)done;
        if (at != UINT64_MAX)
            at += (uint64_t)done;
    }
    return 0;
}

int ckpt_out_write(struct ckpt_out *out, const void *src, size_t n, struct ckpt_err *err)
{
    int rc = write_all(out, src, n, out->stream ? UINT64_MAX : out->pos, err);

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

/* Inside the kernel as far as it goes: returns bytes done. */
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
            break;                      /* the plain way tells what is wrong, if anything is */
        done += (uint64_t)k;
    }
    return done;
}

int ckpt_out_copy(struct ckpt_out *out, uint64_t offset, const struct ckpt_file *file,
                  uint64_t from, uint64_t n, void *bounce, size_t bounce_bytes,
                  struct ckpt_err *err)
{
    uint64_t done;

    if (out->stream)
        return ckpt_fail(err, CKPT_ESTATE, "%s: a stream has no offsets", out->path);
    if (from > ckpt_file_size(file) || n > ckpt_file_size(file) - from)
        return ckpt_file_read_at(file, bounce, 1, ckpt_file_size(file), err);
    done = kernel_copy(out, offset, file, from, n);
    while (done < n) {
        size_t k = n - done < bounce_bytes ? (size_t)(n - done) : bounce_bytes;

        if (ckpt_file_read_at(file, bounce, k, from + done, err) ||
            write_all(out, bounce, k, offset + done, err))
            return err->code;
        done += k;
    }
    return 0;
}

bool ckpt_out_is_stream(const struct ckpt_out *out) { return out->stream; }

bool ckpt_out_would_replace(const struct ckpt_out *out, const struct ckpt_file *file)
{
    struct stat there, in;
    uint64_t base;
    int fd = ckpt_file_fd(file, &base);

    return !out->stream && fd >= 0 && fstat(fd, &in) == 0 &&
           fstatat(out->dir_fd, out->name, &there, AT_SYMLINK_NOFOLLOW) == 0 &&
           in.st_dev == there.st_dev && in.st_ino == there.st_ino;
}

int ckpt_out_commit(struct ckpt_out *out, struct ckpt_err *err)
{
    int rc = 0, fd;

    if (out->stream) {
        free_out(out);
        return 0;
    }
    rc = commit_sync(out->fd, out->path, err);
    fd = out->fd;
    out->fd = -1;
    if (close(fd) && rc == 0)
        rc = ckpt_fail_errno(err, CKPT_EIO, errno, "%s: close", out->path);
    if (rc == 0 && commit_rename(out->dir_fd, out->temp, out->name, out->flags & CKPT_REPLACE))
        rc = ckpt_fail_errno(err, errno == EEXIST ? CKPT_ECREATE : CKPT_EIO, errno, "%s",
                             out->path);
    if (rc)
        unlinkat(out->dir_fd, out->temp, 0);
    else
        rc = commit_sync(out->dir_fd, out->path, err);
    free_out(out);
    return rc;
}

void ckpt_out_abort(struct ckpt_out *out)
{
    if (!out)
        return;
    if (!out->stream)
        unlinkat(out->dir_fd, out->temp, 0);
    free_out(out);
}

int ckpt_put_file(const char *path, const void *bytes, size_t n, struct ckpt_err *err)
{
    struct ckpt_out *out;

    if (ckpt_out_create(&out, path, CKPT_REPLACE, err))
        return err->code;
    if (ckpt_out_write(out, bytes, n, err)) {
        ckpt_out_abort(out);
        return err->code;
    }
    return ckpt_out_commit(out, err);
}

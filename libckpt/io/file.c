/* file - see file.h.  Directories are in dir.c. */
#include "libckpt/file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "libckpt/base/fault.h"
#include "libckpt/io/file_at.h"
#include "libckpt/io/guard.h"
#include "libckpt/io/path.h"
#include "libckpt/io/snapshot.h"

struct ckpt_file {
    char                *name;
    uint64_t             size;
    int                  fd;        /* -1: memory */
    bool                 borrowed;  /* fd is owned by another file */
    unsigned             flags;
    struct guard        *guard;     /* checksums of ranges, or NULL */
    uint64_t             base;      /* offset of the file's first byte in fd */
    const unsigned char *bytes;     /* memory */
    dev_t                dev;
    ino_t                ino;
    uint64_t             part_at, part_size;    /* a member of an archive: where it is; else 0 */
    const struct file_ops *ops;     /* set when the file is not on disk; fd is -1 then */
    void                 *self;
};

static int make(struct ckpt_file **out, const char *name, int fd, struct ckpt_err *err)
{
    struct ckpt_file *f = ckpt_alloc(1, sizeof *f);
    char *copy = ckpt_strdup(name);

    *out = NULL;
    if (!f || !copy) {
        ckpt_free(f);
        ckpt_free(copy);
        if (fd >= 0)
            close(fd);
        return ckpt_nomem(err, sizeof *f + strlen(name));
    }
    f->name = copy;
    f->fd = fd;
    *out = f;
    return 0;
}

/* The name of a file type other than a regular file. */
static const char *kind_of(mode_t mode)
{
    return S_ISDIR(mode) ? "a directory" : S_ISFIFO(mode) ? "a fifo" : S_ISLNK(mode)
           ? "a symbolic link" : S_ISSOCK(mode) ? "a socket" : "a device";
}

int file_take_fd(struct ckpt_file **out, int fd, const char *name, unsigned flags,
                 struct ckpt_err *err)
{
    struct stat st;
    int rc;

    *out = NULL;
    if (fstat(fd, &st)) {
        rc = ckpt_fail_errno(err, CKPT_EIO, errno, "%s", name);
        close(fd);
        return rc;
    }
    if (!S_ISREG(st.st_mode)) {
        close(fd);
        return ckpt_fail_as(err, CKPT_ENOTFOUND, "not-regular", "%s: is %s, a regular file wanted",
                            name, kind_of(st.st_mode));
    }
    if ((rc = make(out, name, fd, err)) != 0)
        return rc;
    (*out)->flags = flags;
    (*out)->size = (uint64_t)st.st_size;
    (*out)->dev = st.st_dev;
    (*out)->ino = st.st_ino;
    return 0;
}

int file_open_failed(struct ckpt_err *err, const char *name, int errnum)
{
    switch (errnum) {
    case ENOENT:
    case ENOTDIR:
        return ckpt_fail(err, CKPT_ENOTFOUND, "%s: no such file or directory", name);
    case ELOOP:
    case EXDEV:
        ckpt_fail_as(err, CKPT_EREFUSED, "refused-path", "%s: a symbolic link leads there", name);
        return ckpt_err_hint(err, "--follow-symlinks allows it");
    case EACCES:
    case EPERM:
        return ckpt_fail_errno(err, CKPT_EREFUSED, errnum, "%s", name);
    case ENOMEM:
    case ENFILE:
    case EMFILE:
        return ckpt_fail_errno(err, CKPT_ENOMEM, errnum, "%s", name);
    case ENXIO:
        return ckpt_fail_as(err, CKPT_ENOTFOUND, "not-regular",
                            "%s: is a socket or a fifo, a regular file wanted", name);
    default:
        return ckpt_fail_errno(err, CKPT_EIO, errnum, "%s", name);
    }
}

/* Open a link at the end of a path from the user; links before it were followed. */
static int open_in_snapshot(const char *path, int flags)
{
    const char *slash = strrchr(path, '/');
    char *parent = ckpt_strdup(path);
    int dir, fd, saved;

    if (!parent) {
        errno = ENOMEM;
        return -1;
    }
    if (slash)
        parent[slash == path ? 1 : slash - path] = '\0';
    dir = open(slash ? parent : ".", O_PATH | O_DIRECTORY | O_CLOEXEC);
    fd = dir < 0 ? -1 : snapshot_open(dir, slash ? slash + 1 : path, flags);
    saved = dir < 0 ? ELOOP : errno;
    if (dir >= 0)
        close(dir);
    ckpt_free(parent);
    errno = saved;
    return fd;
}

int ckpt_file_open(struct ckpt_file **out, const char *path, unsigned flags,
                   struct ckpt_err *err)
{
    int how = O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY;
    bool follow = flags & CKPT_FOLLOW || ckpt_path_is_descriptor(path);
    int fd = ckpt_fault(CKPT_FAULT_OPEN) ? (errno = EIO, -1)
                                         : open(path, how | (follow ? 0 : O_NOFOLLOW));

    if (fd < 0 && errno == ELOOP && !(flags & CKPT_FOLLOW))
        fd = open_in_snapshot(path, how);
    *out = NULL;
    return fd < 0 ? file_open_failed(err, path, errno)
                  : file_take_fd(out, fd, path, flags, err);
}

int ckpt_file_memory(struct ckpt_file **out, const void *bytes, size_t size, const char *name,
                     struct ckpt_err *err)
{
    int rc;

    if ((rc = make(out, name, -1, err)) != 0)
        return rc;
    (*out)->bytes = bytes;
    (*out)->size = size;
    return 0;
}

int ckpt_file_window(struct ckpt_file **out, struct ckpt_file *file, uint64_t offset,
                     uint64_t size, const char *name, struct ckpt_err *err)
{
    int rc;

    *out = NULL;
    if (offset > file->size || size > file->size - offset)
        return ckpt_fail_as(err, CKPT_EFORMAT, "truncated",
                            "%s: %llu bytes at offset %llu wanted, the file has %llu", name,
                            (unsigned long long)size, (unsigned long long)offset,
                            (unsigned long long)file->size);
    if ((rc = make(out, name, -1, err)) != 0)
        return rc;
    (*out)->fd = file->fd;
    (*out)->borrowed = true;
    (*out)->flags = file->flags;
    (*out)->base = file->base + offset;
    (*out)->bytes = file->bytes ? file->bytes + offset : NULL;
    (*out)->ops = file->ops;
    (*out)->self = file->self;
    (*out)->size = size;
    (*out)->dev = file->dev;
    (*out)->ino = file->ino;
    (*out)->part_at = file->part_at;
    (*out)->part_size = file->part_size;
    return 0;
}

int file_make(struct ckpt_file **out, const struct file_ops *ops, void *self, uint64_t size,
              const char *name, unsigned flags, struct ckpt_err *err)
{
    int rc = make(out, name, -1, err);

    if (rc) {
        ops->drop(self);
        return rc;
    }
    (*out)->ops = ops;
    (*out)->self = self;
    (*out)->size = size;
    (*out)->flags = flags;
    return 0;
}

int file_part(struct ckpt_file **out, const struct ckpt_file *file, uint64_t offset,
              uint64_t size, const char *name, struct ckpt_err *err)
{
    int fd = -1;
    int rc;

    *out = NULL;
    if (offset > file->size || size > file->size - offset)
        return ckpt_fail_as(err, CKPT_EFORMAT, "truncated",
                            "%s: %llu bytes at offset %llu wanted, the file has %llu", name,
                            (unsigned long long)size, (unsigned long long)offset,
                            (unsigned long long)file->size);
    if (file->fd >= 0)
        fd = ckpt_fault(CKPT_FAULT_OPEN) ? (errno = EMFILE, -1)
                                         : fcntl(file->fd, F_DUPFD_CLOEXEC, 0);
    if (file->fd >= 0 && fd < 0)
        return file_open_failed(err, name, errno);
    if ((rc = make(out, name, fd, err)) != 0)
        return rc;
    (*out)->base = file->base + offset;
    (*out)->bytes = file->bytes ? file->bytes + offset : NULL;
    (*out)->ops = file->ops;
    (*out)->self = file->self;
    if (file->ops)
        file->ops->keep(file->self);
    (*out)->size = size;
    (*out)->flags = file->flags;
    (*out)->dev = file->dev;
    (*out)->ino = file->ino;
    (*out)->part_at = file->base + offset + 1;
    (*out)->part_size = size;
    return 0;
}

void ckpt_file_close(struct ckpt_file *file)
{
    if (!file)
        return;
    if (file->fd >= 0 && !file->borrowed)
        close(file->fd);
    if (file->ops && !file->borrowed)
        file->ops->drop(file->self);
    guard_free(file->guard);
    ckpt_free(file->name);
    ckpt_free(file);
}

const char *ckpt_file_name(const struct ckpt_file *file) { return file->name; }
uint64_t ckpt_file_size(const struct ckpt_file *file) { return file->size; }
unsigned ckpt_file_flags(const struct ckpt_file *file) { return file->flags; }

int ckpt_file_fd(const struct ckpt_file *file, uint64_t *base)
{
    *base = file->base;
    return file->ops ? file->ops->fd(file->self) : file->fd;
}

int file_fetch(const struct ckpt_file *file, bool take, bool *came, file_tick_fn *tick, void *ctx,
               struct ckpt_err *err)
{
    *came = false;
    return file->ops && !file->part_size
               ? file->ops->fetch(file->self, take, came, tick, ctx, err) : 0;
}

bool file_take(const struct ckpt_file *file, struct ckpt_out *out)
{
    bool is_all = !file->borrowed && !file->part_size && !file->guard;

    return file->ops && is_all && file->ops->take(file->self, out);
}

int file_read(const struct ckpt_file *file, void *dst, size_t n, uint64_t offset,
              struct ckpt_err *err)
{
    unsigned char *to = dst;

    if (offset > file->size || n > file->size - offset)
        return ckpt_fail_as(err, CKPT_EFORMAT, "truncated",
                            "%s: %zu bytes at offset %llu wanted, the file has %llu", file->name, n,
                            (unsigned long long)offset, (unsigned long long)file->size);
    if (file->ops)
        return n ? file->ops->read(file->self, to, n, file->base + offset, file->flags, err) : 0;
    if (file->fd < 0) {
        if (n > 0)
            memcpy(to, file->bytes + offset, n);
        return 0;
    }
    while (n > 0) {
        ssize_t got = ckpt_fault(CKPT_FAULT_READ)
                          ? (errno = EIO, -1)
                          : pread(file->fd, to, n, (off_t)(file->base + offset));

        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return ckpt_fail_errno(err, CKPT_EIO, errno, "%s: read at %llu", file->name,
                                   (unsigned long long)offset);
        if (got == 0)
            return ckpt_fail_as(err, CKPT_EIO, "truncated",
                                "%s: ended at %llu while it was read, it had %llu bytes",
                                file->name, (unsigned long long)offset,
                                (unsigned long long)file->size);
        to += got;
        n -= (size_t)got;
        offset += (uint64_t)got;
    }
    return 0;
}

int ckpt_guard_file(struct ckpt_file *file, const struct ckpt_sum *sum, size_t n,
                    struct ckpt_err *err)
{
    return guard_new(&file->guard, sum, n, err);
}

int ckpt_guard_prove(const struct ckpt_file *file, uint64_t offset, uint64_t n,
                    struct ckpt_err *err)
{
    return file->guard ? guard_prove(file->guard, file, offset, n, err) : 0;
}

int ckpt_file_read_at(const struct ckpt_file *file, void *dst, size_t n, uint64_t offset,
                      struct ckpt_err *err)
{
    int rc;

    if (file->guard && offset <= file->size && n <= file->size - offset &&
        (rc = guard_prove(file->guard, file, offset, n, err)) != 0)
        return rc;
    return file_read(file, dst, n, offset, err);
}

int ckpt_file_slurp(struct ckpt_file *file, struct ckpt_arena *arena, uint64_t limit,
                    char **out, size_t *len, struct ckpt_err *err)
{
    char *bytes;
    int rc;

    *out = NULL;
    *len = 0;
    if (file->size > limit)
        return ckpt_fail(err, CKPT_ELIMIT, "%s: %llu bytes, %llu at most", file->name,
                         (unsigned long long)file->size, (unsigned long long)limit);
    bytes = ckpt_arena_alloc(arena, (size_t)file->size + 1, 1);
    if (!bytes)
        return ckpt_nomem(err, (size_t)file->size + 1);
    if ((rc = ckpt_file_read_at(file, bytes, (size_t)file->size, 0, err)) != 0)
        return rc;
    *out = bytes;
    *len = (size_t)file->size;
    return 0;
}

void ckpt_file_sequential(const struct ckpt_file *file)
{
    if (file->fd >= 0)
        posix_fadvise(file->fd, (off_t)file->base, (off_t)file->size, POSIX_FADV_SEQUENTIAL);
}

bool ckpt_file_same(const struct ckpt_file *a, const struct ckpt_file *b)
{
    bool one = a->ops ? a->ops == b->ops && a->self == b->self
                      : a->fd >= 0 && b->fd >= 0 && a->dev == b->dev && a->ino == b->ino;

    return one && a->part_at == b->part_at && a->part_size == b->part_size;
}

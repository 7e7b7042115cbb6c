/* log_file - see log_file.h. */
#include "formats/logs/log_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "libckpt/base/fault.h"

int log_file_open(struct log_file *f, const char *path, bool fresh, struct ckpt_err *err)
{
    int flags = O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | (fresh ? O_EXCL : 0);
    struct stat st;

    f->fd = -1;
    if ((size_t)snprintf(f->path, sizeof f->path, "%s", path) >= sizeof f->path)
        return ckpt_fail(err, CKPT_ECREATE, "%.200s...: the path is too long", path);
    f->fd = open(path, flags, 0666);
    if (f->fd < 0 || fstat(f->fd, &st))
        return ckpt_fail_errno(err, CKPT_ECREATE, errno, "%s", path);
    if (!S_ISREG(st.st_mode))
        return ckpt_fail(err, CKPT_ECREATE, "%s: not a regular file", path);
    f->size = (uint64_t)st.st_size;
    return 0;
}

int log_file_ready(const char *path, struct ckpt_err *err)
{
    int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    struct stat st;
    int rc = 0;

    if (fd < 0)
        return errno == ENOENT ? 0 : ckpt_fail_errno(err, CKPT_ECREATE, errno, "%s", path);
    if (fstat(fd, &st) == 0 && !S_ISREG(st.st_mode))
        rc = ckpt_fail(err, CKPT_ECREATE, "%s: not a regular file", path);
    close(fd);
    return rc;
}

/* All of the bytes at offset; false with errno. */
static bool write_at(int fd, const unsigned char *b, size_t n, uint64_t offset)
{
    while (n > 0) {
        ssize_t k;

        if (ckpt_fault(CKPT_FAULT_WRITE)) {
            errno = ENOSPC;
            return false;
        }
        k = pwrite(fd, b, n, (off_t)offset);
        if (k < 0 && errno == EINTR)
            continue;
        if (k <= 0) {
            errno = k < 0 ? errno : ENOSPC;
            return false;
        }
        b += k;
        n -= (size_t)k;
        offset += (uint64_t)k;
    }
    return true;
}

int log_file_put(struct log_file *f, const void *bytes, size_t n, struct ckpt_err *err)
{
    int why;

    if (write_at(f->fd, bytes, n, f->size)) {
        f->size += n;
        return 0;
    }
    why = errno;
    if (ftruncate(f->fd, (off_t)f->size))
        why = errno;            /* the next record is written over the torn one */
    return ckpt_fail_errno(err, CKPT_EIO, why, "%s: write", f->path);
}

int log_file_replace(const char *path, const void *bytes, size_t n, struct ckpt_err *err)
{
    char aside[4300];
    int fd, rc = 0;

    snprintf(aside, sizeof aside, "%s.new", path);
    fd = open(aside, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (fd < 0)
        return ckpt_fail_errno(err, CKPT_ECREATE, errno, "%s", aside);
    if (!write_at(fd, bytes, n, 0))
        rc = ckpt_fail_errno(err, CKPT_EIO, errno, "%s: write", path);
    if (close(fd) && rc == 0)
        rc = ckpt_fail_errno(err, CKPT_EIO, errno, "%s: close", path);
    if (rc == 0 && (ckpt_fault(CKPT_FAULT_RENAME) || rename(aside, path)))
        rc = ckpt_fail_errno(err, CKPT_EIO, errno, "%s: rename", path);
    if (rc && unlink(aside) && errno != ENOENT)
        ckpt_err_in(err, "%s stays", aside);
    return rc;
}

void log_file_close(struct log_file *f)
{
    if (f->fd >= 0)
        close(f->fd);
    f->fd = -1;
}

/* lock - see lock.h. */
#include "libckpt/io/lock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "libckpt/mem.h"

struct ckpt_lock {
    int fd;
};

/* errno of flock where a file system has no locks. */
static bool is_lockless(int errnum)
{
    return errnum == ENOLCK || errnum == ENOSYS || errnum == EOPNOTSUPP || errnum == EBADF ||
           errnum == EINVAL;
}

/* 1: taken, 0: another process has it, -1: locks do not work here. */
static int take(int fd, int how)
{
    while (flock(fd, how | LOCK_NB) != 0)
        if (errno != EINTR)
            return errno == EWOULDBLOCK ? 0 : is_lockless(errno) ? 1 : -1;
    return 1;
}

static struct ckpt_lock *hold(int fd)
{
    struct ckpt_lock *lock = ckpt_alloc(1, sizeof *lock);

    if (lock)
        lock->fd = fd;
    else
        close(fd);
    return lock;
}

/* The holder that the file names: "process 12 on host", or "another process". */
static const char *holder(char *text, size_t size, int fd)
{
    ssize_t n = pread(fd, text, size - 1, 0);

    text[n > 0 ? n : 0] = '\0';
    text[strcspn(text, "\n")] = '\0';
    return *text ? text : "another process";
}

/* CKPT_ECREATE: fd is locked by another process, whom the file names. */
static int refuse(const char *dir, int fd, struct ckpt_err *err)
{
    char text[200];

    ckpt_fail_as(err, CKPT_ECREATE, "locked", "%s: %s is writing there", dir,
                 holder(text, sizeof text, fd));
    return ckpt_err_hint(err, "wait for it to end, or name another output");
}

int ckpt_lock_writer_ready(const char *dir, struct ckpt_err *err)
{
    char path[4200];
    int fd, rc;

    snprintf(path, sizeof path, "%s/" CKPT_LOCK_NAME, dir);
    fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0)
        return 0;                       /* nobody has written there, or dir says why not */
    rc = take(fd, LOCK_SH) == 0 ? refuse(dir, fd, err) : 0;
    close(fd);
    return rc;
}

int ckpt_lock_writer(struct ckpt_lock **out, const char *dir, struct ckpt_err *err)
{
    char path[4200], text[200], host[100] = "";
    int fd, got, n;

    *out = NULL;
    snprintf(path, sizeof path, "%s/" CKPT_LOCK_NAME, dir);
    fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (fd < 0)
        return ckpt_fail_errno(err, CKPT_ECREATE, errno, "%s", path);
    got = take(fd, LOCK_EX);
    if (got == 0) {
        refuse(dir, fd, err);
        close(fd);
        return CKPT_ECREATE;
    }
    if (got < 0) {
        ckpt_fail_errno(err, CKPT_ECREATE, errno, "%s: flock", path);
        close(fd);
        return CKPT_ECREATE;
    }
    gethostname(host, sizeof host - 1);
    n = snprintf(text, sizeof text, "process %ld on %s\n", (long)getpid(), host);
    /* The name is only for messages: the lock holds without it. */
    if (ftruncate(fd, 0) == 0 && pwrite(fd, text, (size_t)n, 0) != n)
        errno = 0;
    *out = hold(fd);
    return *out ? 0 : ckpt_nomem(err, sizeof **out);
}

int ckpt_lock_pass(int *fd, bool *got, const char *dir, const char *name, struct ckpt_err *err)
{
    char path[4200];
    int how;

    *got = false;
    snprintf(path, sizeof path, "%s/%s", dir, name);
    *fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (*fd < 0)
        return ckpt_fail_errno(err, CKPT_ECREATE, errno, "%s", path);
    how = take(*fd, LOCK_EX);
    *got = how == 1;
    if (how < 0)
        ckpt_fail_errno(err, CKPT_ECREATE, errno, "%s: flock", path);
    if (how != 1)
        close(*fd);
    return how < 0 ? CKPT_ECREATE : 0;
}

/* Open path and lock it; NULL when it is absent or another process has a conflicting lock. */
static struct ckpt_lock *lock_path(const char *path, int how)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

    if (fd < 0)
        return NULL;
    if (take(fd, how) == 1)
        return hold(fd);
    close(fd);
    return NULL;
}

struct ckpt_lock *ckpt_lock_reader(const char *path) { return lock_path(path, LOCK_SH); }

struct ckpt_lock *ckpt_lock_removal(const char *path) { return lock_path(path, LOCK_EX); }

bool ckpt_lock_unread(const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    bool unread;

    if (fd < 0)
        return true;
    unread = take(fd, LOCK_EX) != 0;
    close(fd);
    return unread;
}

void ckpt_lock_release(struct ckpt_lock *lock)
{
    if (!lock)
        return;
    close(lock->fd);
    ckpt_free(lock);
}

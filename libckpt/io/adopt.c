/*
 * adopt - see adopt.h.
 *
 * Assumed: a write lease is granted only where no other descriptor has the file open (fcntl(2),
 * Linux).  Where a file system has no leases, nothing is adopted.
 */
#include "libckpt/io/adopt.h"

#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

static bool is_alone(int fd)
{
    /* Who opens the file meanwhile waits, and this process gets a signal: SIGIO would end it. */
    bool alone = fcntl(fd, F_SETSIG, SIGURG) == 0 && fcntl(fd, F_SETLEASE, F_WRLCK) == 0;

    if (alone)
        fcntl(fd, F_SETLEASE, F_UNLCK);
    return alone;
}

/* Whether an attribute, of at most some bytes, is the same of both. */
static bool same_attribute(int a, int b, const char *name)
{
    char x[512], y[512];
    ssize_t n = fgetxattr(a, name, x, sizeof x), k = fgetxattr(b, name, y, sizeof y);

    return (n < 0 && k < 0) || (n >= 0 && n == k && memcmp(x, y, (size_t)n) == 0);
}

int adopt_open(const char *path, int fd, int like)
{
    struct stat was, want, st;
    int own;

    if (fstat(fd, &was) || was.st_nlink != 1 || fstat(like, &want) || !is_alone(fd))
        return -1;
    own = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (own < 0)
        return -1;
    if (fstat(own, &st) == 0 && st.st_dev == was.st_dev && st.st_ino == was.st_ino &&
        st.st_uid == want.st_uid && same_attribute(own, like, "system.posix_acl_access") &&
        same_attribute(own, like, "security.selinux") &&
        (st.st_gid == want.st_gid || fchown(own, (uid_t)-1, want.st_gid) == 0) &&
        fchmod(own, want.st_mode & 0777) == 0)
        return own;
    close(own);
    return -1;
}

/*
 * ready - what stands in the way of a new file or directory; see commit.h.
 *
 * Creating looks at the name here; ckpt_out_ready and ckpt_outdir_ready look at the folder too, as
 * creating an entry there would.
 */
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "libckpt/io/commit_sys.h"

int commit_check_file(int dir_fd, const char *name, const char *path, unsigned flags,
                      struct ckpt_err *err)
{
    struct stat st, target;

    if (fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW))
        return 0;
    /* Committing replaces a link itself, but /dev/stdout is still a device although it is a
     * link. */
    if (S_ISLNK(st.st_mode) && fstatat(dir_fd, name, &target, 0) == 0)
        st = target;
    if (S_ISDIR(st.st_mode))
        return ckpt_fail(err, CKPT_ECREATE, "%s: is a directory", path);
    if (!(flags & CKPT_REPLACE))
        return ckpt_fail(err, CKPT_ECREATE, "%s: exists already", path);
    if (!S_ISREG(st.st_mode) && !S_ISLNK(st.st_mode))
        return ckpt_fail(err, CKPT_ECREATE,
                         "%s: is a device, a fifo or a socket, no file to replace", path);
    return 0;
}

int commit_check_dir(int parent, const char *name, const char *path, bool over,
                     struct ckpt_err *err)
{
    struct stat st;

    return fstatat(parent, name, &st, AT_SYMLINK_NOFOLLOW) || (over && S_ISDIR(st.st_mode))
               ? 0 : ckpt_fail(err, CKPT_ECREATE, "%s: exists already", path);
}

/* A file of flags, or a directory. */
static int ready(const char *path, bool file, unsigned flags, struct ckpt_err *err)
{
    char name[256];
    int fd, rc;

    if ((rc = commit_open_parent(&fd, name, path, CKPT_ECREATE, err)) != 0)
        return rc;
    rc = file ? commit_check_file(fd, name, path, flags, err)
              : commit_check_dir(fd, name, path, false, err);
    if (rc == 0 && faccessat(fd, ".", W_OK | X_OK, AT_EACCESS))
        rc = ckpt_fail_errno(err, CKPT_ECREATE, errno, "%s", path);
    close(fd);
    return rc;
}

int ckpt_out_ready(const char *path, unsigned flags, struct ckpt_err *err)
{
    return ready(path, true, flags, err);
}

int ckpt_outdir_ready(const char *path, struct ckpt_err *err)
{
    return ready(path, false, 0, err);
}

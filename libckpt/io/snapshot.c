/* snapshot - see snapshot.h. */
#include "libckpt/io/snapshot.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define MAX_DEPTH 32            /* folders between a file and its repository */

/* The path of the open directory fd, without links. */
static bool real_path(char path[PATH_MAX], int fd)
{
    char link[40];
    ssize_t n;

    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    n = readlink(link, path, PATH_MAX - 1);
    if (n <= 0 || n >= PATH_MAX - 1 || path[0] != '/')
        return false;
    path[n] = '\0';
    return true;
}

/* Number of folders between the directory at path and its repository's; 0 when it is in none. */
static int depth_of(const char *path)
{
    static const char *const kinds[] = {"models--", "datasets--", "spaces--"};
    int depth = 0;

    for (const char *end = path + strlen(path), *at; end > path; end = at) {
        for (at = end - 1; at > path && *at != '/'; at--)
            ;
        for (size_t i = 0; depth >= 2 && i < 3; i++)
            if (strncmp(at + 1, kinds[i], strlen(kinds[i])) == 0 &&
                strncmp(end, "/snapshots/", 11) == 0)
                return depth;
        if (++depth > MAX_DEPTH)
            break;
    }
    return 0;
}

/* The blob name when text goes depth folders up and then into blobs; else NULL. */
static const char *blob_of(const char *text, int depth)
{
    size_t n;

    for (; depth > 0; depth--, text += 3)
        if (strncmp(text, "../", 3) != 0)
            return NULL;
    n = strncmp(text, "blobs/", 6) == 0 ? strspn(text + 6, "0123456789abcdef") : 0;
    return (n == 40 || n == 64) && !text[6 + n] ? text : NULL;
}

static int open_how(int at, const char *path, int flags)
{
    struct open_how how = {.flags = (uint64_t)(unsigned)flags,
                           .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS |
                                      RESOLVE_NO_MAGICLINKS};

    return (int)syscall(SYS_openat2, at, path, &how, sizeof how);
}

/* The directory that the last part of rel lies in. */
static int open_parent(int dir_fd, const char *rel, const char **name)
{
    const char *slash = strrchr(rel, '/');
    char parent[PATH_MAX];

    *name = slash ? slash + 1 : rel;
    if (!slash)
        return openat(dir_fd, ".", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if ((size_t)(slash - rel) >= sizeof parent)
        return -1;
    memcpy(parent, rel, (size_t)(slash - rel));
    parent[slash - rel] = '\0';
    return open_how(dir_fd, parent, O_PATH | O_DIRECTORY | O_CLOEXEC);
}

int snapshot_open(int dir_fd, const char *rel, int flags)
{
    char path[PATH_MAX], text[PATH_MAX], up[3 * MAX_DEPTH + 4] = "";
    const char *name, *blob = NULL;
    int parent = flags & O_DIRECTORY ? -1 : open_parent(dir_fd, rel, &name), root, fd = -1;
    int depth = parent >= 0 && real_path(path, parent) ? depth_of(path) : 0;
    ssize_t n = depth ? readlinkat(parent, name, text, sizeof text - 1) : -1;

    if (n > 0) {
        text[n] = '\0';
        blob = blob_of(text, depth);
    }
    if (blob) {
        memcpy(up, text, (size_t)(blob - text));
        root = openat(parent, up, O_PATH | O_DIRECTORY | O_CLOEXEC);
        fd = root < 0 ? -1 : open_how(root, blob, flags);
        if (root >= 0)
            close(root);
    }
    if (parent >= 0)
        close(parent);
    if (!blob || (fd < 0 && errno != ENOENT && errno != EACCES))
        errno = ELOOP;
    return fd;
}

int snapshot_stat(int dir_fd, const char *name, struct stat *st)
{
    int fd = snapshot_open(dir_fd, name, O_PATH | O_CLOEXEC), rc;

    if (fd < 0)
        return -1;
    rc = fstat(fd, st);
    close(fd);
    return rc;
}

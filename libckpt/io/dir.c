/*
 * dir - directories and what lies below them; see file.h.
 *
 * The kernel itself keeps a path below its handle (openat2 with RESOLVE_BENEATH, Linux 5.6);
 * where it cannot, components are opened one by one without following links.  Links that make a
 * snapshot of the Hub's cache are the one exception (snapshot.h).  With CKPT_FOLLOW links may
 * point anywhere (caches made of links keep the bytes elsewhere), but "..", and links of /proc,
 * are refused there too.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "libckpt/base/fault.h"
#include "libckpt/io/file_at.h"
#include "libckpt/io/snapshot.h"

#define MAX_ENTRIES 1048576u

struct ckpt_dir {
    char                 *path;
    int                   fd;
    unsigned              flags;
    const struct dir_ops *ops;      /* set when the directory is not on disk; fd is -1 then */
    void                 *self;
};

bool ckpt_file_name_is_clean(const char *name)
{
    size_t n = strlen(name);

    return n > 0 && n <= 255 && !strchr(name, '/') && strcmp(name, ".") != 0 &&
           strcmp(name, "..") != 0;
}

bool file_parts_are(const char *rel, bool (*good)(const char *part))
{
    char part[256];

    if (strlen(rel) >= 4096)
        return false;
    for (;;) {
        size_t n = strcspn(rel, "/");

        if (n == 0 || n > 255)
            return false;
        memcpy(part, rel, n);
        part[n] = '\0';
        if (!ckpt_file_name_is_clean(part) || !good(part))
            return false;
        if (!rel[n])
            return true;
        rel += n + 1;
    }
}

static bool is_shown(const char *part) { return part[0] != '.'; }

bool ckpt_file_path_is_clean(const char *rel) { return file_parts_are(rel, is_shown); }

bool ckpt_file_name_is_kept(const char *name)
{
    return is_shown(name) || strcmp(name, ".metadata") == 0 || strcmp(name, ".data_ready") == 0;
}

bool ckpt_file_path_is_kept(const char *rel)
{
    const char *slash = strrchr(rel, '/'), *name = slash ? slash + 1 : rel;
    char folder[4096];

    if (ckpt_file_path_is_clean(rel))
        return true;
    snprintf(folder, sizeof folder, "%.*s", slash ? (int)(slash - rel) : 0, rel);
    return strlen(rel) < sizeof folder && *name && ckpt_file_name_is_kept(name) &&
           (!slash || ckpt_file_path_is_clean(folder));
}

/* Whether rel can never name something below a directory, links or not. */
static bool leads_out(const char *rel)
{
    bool out = *rel == '/' || !*rel;

    for (const char *part = rel; !out && part; part = strchr(part, '/')) {
        part += *part == '/';
        out = strcspn(part, "/") == 2 && part[0] == '.' && part[1] == '.';
    }
    return out;
}

/* Open rel component by component, for kernels without openat2. */
static int open_slowly(int at, const char *rel, int flags)
{
    int fd = dup(at);

    while (fd >= 0 && *rel) {
        size_t n = strcspn(rel, "/");
        char part[256];
        int next, saved;

        if (n == 0 || n > 255) {
            close(fd);
            errno = ENOENT;
            return -1;
        }
        memcpy(part, rel, n);
        part[n] = '\0';
        next = openat(fd, part, rel[n] ? O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC
                                       : flags | O_NOFOLLOW);
        saved = errno;
        close(fd);
        errno = saved;
        fd = next;
        rel += n + (rel[n] == '/');
    }
    return fd;
}

static int open_below(const struct ckpt_dir *dir, const char *rel, int flags)
{
    struct open_how how = {.flags = (uint64_t)(unsigned)flags,
                           .resolve = dir->flags & CKPT_FOLLOW
                                          ? RESOLVE_NO_MAGICLINKS
                                          : RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS |
                                                RESOLVE_NO_MAGICLINKS};
    long fd;

    if (ckpt_fault(CKPT_FAULT_OPEN)) {
        errno = EIO;
        return -1;
    }
    if (leads_out(rel)) {
        errno = EXDEV;
        return -1;
    }
    fd = syscall(SYS_openat2, dir->fd, rel, &how, sizeof how);
    if (fd < 0 && (errno == ENOSYS || errno == EPERM))  /* EPERM: a seccomp filter that does not
                                                           know the call */
        return dir->flags & CKPT_FOLLOW ? openat(dir->fd, rel, flags)
                                        : open_slowly(dir->fd, rel, flags);
    if (fd < 0 && errno == ELOOP && !(dir->flags & CKPT_FOLLOW))
        fd = snapshot_open(dir->fd, rel, flags);
    return (int)fd;
}

/* The error of an open_below that failed. */
static int below_failed(struct ckpt_err *err, const char *path, const char *rel)
{
    return leads_out(rel) ? ckpt_fail_as(err, CKPT_EREFUSED, "refused-path",
                                         "%s: leads out of the directory", path)
                          : file_open_failed(err, path, errno);
}

static void let_go(const struct ckpt_dir *dir)
{
    if (dir->ops)
        dir->ops->close(dir->self);
    else
        close(dir->fd);
}

/* A directory with the handle of d and this path; takes that handle, on failure too. */
static int make_dir(struct ckpt_dir **out, const struct ckpt_dir *d, const char *path,
                    struct ckpt_err *err)
{
    struct ckpt_dir *made = ckpt_alloc(1, sizeof *made);
    char *copy = ckpt_strdup(path);

    *out = NULL;
    if (!made || !copy) {
        ckpt_free(made);
        ckpt_free(copy);
        let_go(d);
        return ckpt_nomem(err, sizeof *made + strlen(path));
    }
    *made = *d;
    made->path = copy;
    *out = made;
    return 0;
}

int file_make_dir(struct ckpt_dir **out, const struct dir_ops *ops, void *self, const char *path,
                  struct ckpt_err *err)
{
    return make_dir(out, &(struct ckpt_dir){.fd = -1, .ops = ops, .self = self}, path, err);
}

int ckpt_dir_open(struct ckpt_dir **out, const char *path, unsigned flags, struct ckpt_err *err)
{
    bool follow = flags & CKPT_FOLLOW;
    int fd;

    *out = NULL;
    fd = ckpt_fault(CKPT_FAULT_OPEN)
             ? (errno = EIO, -1)
             : open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | (follow ? 0 : O_NOFOLLOW));
    if (fd < 0) {
        struct stat st;

        /* O_DIRECTORY with O_NOFOLLOW gives ENOTDIR for a link. */
        if (errno == ENOTDIR && lstat(path, &st) == 0)
            return S_ISLNK(st.st_mode) ? file_open_failed(err, path, ELOOP)
                                       : ckpt_fail(err, CKPT_ENOTFOUND,
                                                   "%s: a directory wanted, is none", path);
        return file_open_failed(err, path, errno);
    }
    return make_dir(out, &(struct ckpt_dir){.fd = fd, .flags = flags}, path, err);
}

int ckpt_dir_open_at(struct ckpt_dir **out, struct ckpt_dir *parent, const char *rel,
                     struct ckpt_err *err)
{
    char path[8192];
    int fd;

    *out = NULL;
    snprintf(path, sizeof path, "%s/%s", parent->path, rel);
    if (parent->ops)
        return leads_out(rel) ? below_failed(err, path, rel)
                              : parent->ops->open_dir(parent->self, out, rel, path, err);
    fd = open_below(parent, rel, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return below_failed(err, path, rel);
    return make_dir(out, &(struct ckpt_dir){.fd = fd, .flags = parent->flags}, path, err);
}

void ckpt_dir_close(struct ckpt_dir *dir)
{
    if (!dir)
        return;
    let_go(dir);
    ckpt_free(dir->path);
    ckpt_free(dir);
}

const char *ckpt_dir_path(const struct ckpt_dir *dir) { return dir->path; }

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct ckpt_entry *)a)->name, ((const struct ckpt_entry *)b)->name);
}

/* Names of an open stream into a growing array. */
static int read_names(DIR *stream, struct ckpt_dir *dir, struct ckpt_arena *arena,
                      struct ckpt_entry **list, size_t *n, struct ckpt_err *err)
{
    size_t cap = 0;
    struct dirent *e;
    int rc;

    for (errno = 0; (e = readdir(stream)) != NULL; errno = 0) {
        struct ckpt_entry *entry;
        struct stat st;

        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
            continue;
        if (*n == MAX_ENTRIES)
            return ckpt_fail(err, CKPT_ELIMIT, "%s: more than %u entries", dir->path, MAX_ENTRIES);
        if ((rc = ckpt_reserve(list, *n, &cap, sizeof **list, err)) != 0)
            return rc;
        if (fstatat(dir->fd, e->d_name, &st, dir->flags & CKPT_FOLLOW ? 0 : AT_SYMLINK_NOFOLLOW))
            memset(&st, 0, sizeof st);  /* it was removed meanwhile, or is a dangling link: not a
                                           file */
        if (S_ISLNK(st.st_mode) && snapshot_stat(dir->fd, e->d_name, &st))
            memset(&st, 0, sizeof st);
        entry = &(*list)[*n];
        entry->name = ckpt_arena_strndup(arena, e->d_name, strlen(e->d_name));
        entry->is_dir = S_ISDIR(st.st_mode);
        entry->is_file = S_ISREG(st.st_mode);
        entry->size = entry->is_file ? (uint64_t)st.st_size : 0;
        if (!entry->name)
            return ckpt_nomem(err, strlen(e->d_name));
        ++*n;
    }
    return errno ? ckpt_fail_errno(err, CKPT_EIO, errno, "%s", dir->path) : 0;
}

/* The entries of a directory on disk. */
static int read_dir(struct ckpt_dir *dir, struct ckpt_arena *arena, struct ckpt_entry **out,
                    size_t *n, struct ckpt_err *err)
{
    struct ckpt_entry *list = NULL;
    int fd = openat(dir->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), rc;
    DIR *stream = fd < 0 ? NULL : fdopendir(fd);

    if (!stream) {
        rc = ckpt_fail_errno(err, CKPT_EIO, errno, "%s", dir->path);
        if (fd >= 0)
            close(fd);
        return rc;
    }
    rc = read_names(stream, dir, arena, &list, n, err);
    closedir(stream);
    if (rc == 0) {
        *out = ckpt_arena_alloc(arena, *n, sizeof **out);
        if (!*out)
            rc = ckpt_nomem(err, *n * sizeof **out);
    }
    if (rc == 0 && *n > 0)
        memcpy(*out, list, *n * sizeof **out);
    ckpt_free(list);
    return rc;
}

int ckpt_dir_list(struct ckpt_dir *dir, struct ckpt_arena *arena, struct ckpt_entry **out,
                  size_t *n, struct ckpt_err *err)
{
    int rc;

    *out = NULL;
    *n = 0;
    rc = dir->ops ? dir->ops->list(dir->self, dir->path, arena, out, n, err)
                  : read_dir(dir, arena, out, n, err);
    if (rc == 0 && *n > 0)
        qsort(*out, *n, sizeof **out, by_name);
    return rc;
}

int ckpt_file_open_at(struct ckpt_file **out, struct ckpt_dir *dir, const char *rel,
                      struct ckpt_err *err)
{
    char path[8192];
    int fd;

    *out = NULL;
    snprintf(path, sizeof path, "%s/%s", dir->path, rel);
    if (dir->ops)
        return leads_out(rel) ? below_failed(err, path, rel)
                              : dir->ops->open_file(dir->self, out, rel, path, err);
    fd = open_below(dir, rel, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    return fd < 0 ? below_failed(err, path, rel) : file_take_fd(out, fd, path, dir->flags, err);
}

bool ckpt_dir_has(struct ckpt_dir *dir, const char *rel)
{
    int fd = dir->ops ? -1 : open_below(dir, rel, O_PATH | O_CLOEXEC);
    struct stat st;
    bool yes = dir->ops ? !leads_out(rel) && dir->ops->has(dir->self, rel)
                        : fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode);

    if (fd >= 0)
        close(fd);
    return yes;
}

int ckpt_dir_expect(struct ckpt_dir *dir, const char *const *rel, size_t n,
                    struct ckpt_err *err)
{
    return dir->ops && dir->ops->expect ? dir->ops->expect(dir->self, rel, n, err) : 0;
}

/* cache/part - see cache/part.h. */
#include "libckpt/remote/cache/part.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include "libckpt/io/commit_sys.h"
#include "libckpt/digest.h"
#include "libckpt/err.h"
#include "libckpt/remote/cache/cache.h"
#include "libckpt/remote/cache/at.h"

#define WEEK       (7 * 24 * 3600)
#define READ_BYTES ((size_t)128 << 10)

struct cache_part {
    int         fd, sums;
    atomic_bool used;
    char        key[CACHE_KEY];
    char        path[4096], sums_path[4096];
};

/* Give the file its size, without its blocks: reserving them costs a file system in memory as much
 * as writing them.  What does not fit is refused nevertheless. */
static int set_size(const struct cache_part *p, uint64_t size, const struct stat *st,
                    struct ckpt_err *err)
{
    uint64_t have = (uint64_t)st->st_blocks * 512;
    struct statvfs v;

    if (size > have && fstatvfs(p->fd, &v) == 0 && v.f_blocks &&
        size - have > (uint64_t)v.f_bavail * v.f_frsize)
        return ckpt_fail_errno(err, CKPT_EIO, ENOSPC, "%s: %llu bytes", p->path,
                               (unsigned long long)size);
    return ftruncate(p->fd, (off_t)size)
               ? ckpt_fail_errno(err, CKPT_EIO, errno, "%s", p->path) : 0;
}

int cache_part_open(struct cache_part **out, const char *key, uint64_t size, struct ckpt_err *err)
{
    struct cache_part *p = ckpt_alloc(1, sizeof *p);
    const int how = O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
    char name[CACHE_KEY + 8];
    struct stat st;

    *out = NULL;
    if (!p)
        return ckpt_nomem(err, sizeof *p);
    p->fd = p->sums = -1;
    snprintf(p->key, sizeof p->key, "%s", key);
    snprintf(name, sizeof name, "%s.sums", key);
    if (!cache_ready("parts") || !cache_path(p->path, sizeof p->path, "parts", key) ||
        !cache_path(p->sums_path, sizeof p->sums_path, "parts", name)) {
        ckpt_free(p);
        return ckpt_fail(err, CKPT_ECREATE, "the cache has no place");
    }
    p->fd = open(p->path, how, 0600);
    p->sums = open(p->sums_path, how, 0600);
    if (p->fd < 0 || p->sums < 0 || fstat(p->fd, &st))
        ckpt_fail_errno(err, CKPT_ECREATE, errno, "%s", p->path);
    else if (set_size(p, size, &st, err) == 0) {
        *out = p;
        return 0;
    }
    cache_part_close(p, false);
    return ckpt_err_code(err);
}

int cache_part_fd(const struct cache_part *p) { return p->fd; }

bool cache_part_used(const struct cache_part *p) { return p->used; }

bool cache_part_has(struct cache_part *p, size_t i, size_t n, uint64_t at, cache_take_fn *take,
                    void *ctx)
{
    static const unsigned char none[CKPT_XXH128_BYTES];
    unsigned char sum[CKPT_XXH128_BYTES], got[CKPT_XXH128_BYTES];
    struct ckpt_xxh128_state *state = NULL;
    struct ckpt_err ignored = {0};
    bool good = pread(p->sums, sum, sizeof sum, (off_t)(i * sizeof sum)) == sizeof sum &&
                memcmp(sum, none, sizeof sum) != 0 && ckpt_xxh128_new(&state, &ignored) == 0;
    void *buf = good ? ckpt_alloc_buffer(READ_BYTES) : NULL;

    good = good && buf;
    for (size_t done = 0; good && done < n;) {
        size_t k = n - done < READ_BYTES ? n - done : READ_BYTES;

        good = pread(p->fd, buf, k, (off_t)(at + done)) == (ssize_t)k &&
               take(ctx, buf, k, &ignored) == 0;
        if (good)
            ckpt_xxh128_add(state, buf, k);
        done += k;
    }
    if (good) {
        ckpt_xxh128_end(state, got);
        good = memcmp(got, sum, sizeof sum) == 0;
    }
    if (good)
        p->used = true;
    ckpt_xxh128_free(state);
    ckpt_free(buf);
    return good;
}

void cache_part_note(struct cache_part *p, size_t i, const unsigned char sum[CKPT_XXH128_BYTES])
{
    if (pwrite(p->sums, sum, CKPT_XXH128_BYTES, (off_t)(i * CKPT_XXH128_BYTES)) !=
        CKPT_XXH128_BYTES)
        errno = 0;
}

int cache_part_commit(struct cache_part *p, struct ckpt_err *err)
{
    char path[4096], folder[4096];
    int rc = commit_sync(p->fd, p->path, err), dir = -1;

    if (rc == 0 && (!cache_path(path, sizeof path, "objects", p->key) ||
                    !cache_path(folder, sizeof folder, "objects", "")))
        rc = ckpt_fail(err, CKPT_ECREATE, "the cache has no place");
    if (rc == 0 && rename(p->path, path))
        rc = ckpt_fail_errno(err, CKPT_EIO, errno, "%s", path);
    if (rc == 0 && (dir = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC)) < 0)
        rc = ckpt_fail_errno(err, CKPT_EIO, errno, "%s", folder);
    if (rc == 0)
        rc = commit_sync_dir(dir, folder, err);
    if (dir >= 0)
        close(dir);
    cache_part_close(p, false);
    return rc;
}

void cache_part_close(struct cache_part *p, bool keep)
{
    if (!p)
        return;
    if (!keep) {
        unlink(p->path);
        unlink(p->sums_path);
    }
    if (p->fd >= 0)
        close(p->fd);
    if (p->sums >= 0)
        close(p->sums);
    ckpt_free(p);
}

void cache_part_clean(void)
{
    time_t now = time(NULL);
    struct dirent *e;
    char path[4096];
    struct stat st;
    DIR *dir;

    if (!cache_path(path, sizeof path, "parts", "") || !(dir = opendir(path)))
        return;
    while ((e = readdir(dir)) != NULL)
        if (fstatat(dirfd(dir), e->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
            S_ISREG(st.st_mode) && now - st.st_mtime > WEEK)
            unlinkat(dirfd(dir), e->d_name, 0);
    closedir(dir);
}

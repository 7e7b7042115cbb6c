/* cache - see cache.h. */
#include "libckpt/remote/cache/cache.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "libckpt/commit.h"
#include "libckpt/digest.h"
#include "libckpt/err.h"
#include "libckpt/io/commit_sys.h"
#include "libckpt/io/file_at.h"
#include "libckpt/base/json.h"
#include "libckpt/log.h"
#include "libckpt/remote/cache/at.h"
#include "libckpt/remote/cache/part.h"
#include "libckpt/remote/cache/proof.h"
#include "libckpt/remote/http.h"
#include "libckpt/io/spool.h"

#define LIMIT_BYTES ((uint64_t)200 << 30)
#define PART_BYTES  ((uint64_t)16 << 20)   /* smaller objects are fetched again from the start */
#define ALL_BYTE    0                   /* of the lock file: operations on all objects */

struct cache_sink {
    struct ckpt_out   *out;             /* or */
    struct cache_part *part;            /* a large object, whose descriptor is fd; or */
    int                fd;              /* an unnamed file */
    const char        *name;
};

/* -- where ------------------------------------------------------------------------------------ */

bool cache_place(char *out, size_t size, const char *variable, const char *tail,
                 const char *fallback)
{
    const char *v = getenv(variable), *home = getenv("HOME");
    int n = -1;

    if (v && *v)
        n = snprintf(out, size, "%s%s", v, tail);
    else if (home && *home)
        n = snprintf(out, size, "%s%s", home, fallback);
    return n > 0 && (size_t)n < size;
}

static bool root_of(char *out, size_t size)
{
    const char *v = getenv("CKPT_CACHE");

    if (v && (!*v || strcmp(v, "none") == 0))
        return false;
    return v ? cache_place(out, size, "CKPT_CACHE", "", "")
             : cache_place(out, size, "XDG_CACHE_HOME", "/ckpt", "/.cache/ckpt");
}

bool cache_path(char *out, size_t size, const char *folder, const char *name)
{
    char root[3072];

    return root_of(root, sizeof root) &&
           (size_t)snprintf(out, size, "%s/%s%s%s", root, folder, *name ? "/" : "", name) < size;
}

/* Create every folder of path, as mkdir -p does, readable by the owner alone. */
static bool make_folders(const char *path)
{
    char part[4096];
    size_t n = strlen(path);

    if (n >= sizeof part)
        return false;
    memcpy(part, path, n + 1);
    for (char *p = part + 1;; p++)
        if (*p == '/' || !*p) {
            char was = *p;

            *p = '\0';
            if (mkdir(part, 0700) && errno != EEXIST)
                return false;
            *p = was;
            if (!was)
                return true;
        }
}

bool cache_ready(const char *folder)
{
    char path[4096];

    return cache_path(path, sizeof path, folder, "") && make_folders(path) &&
           access(path, W_OK | X_OK) == 0;
}

int cache_check(struct ckpt_err *err)
{
    static const char *const folders[] = {"objects", "lists", "proofs", "parts"};
    char path[4096];
    int rc;

    if (!root_of(path, sizeof path))
        return 0;
    if ((rc = cache_check_owner(path, err)) != 0)
        return rc;
    for (size_t i = 0; i < sizeof folders / sizeof folders[0]; i++)
        if (cache_path(path, sizeof path, folders[i], "") &&
            (rc = cache_check_owner(path, err)) != 0)
            return rc;
    return 0;
}

void cache_key(char key[CACHE_KEY], const char *kind, const char *text)
{
    unsigned char digest[CKPT_SHA256_BYTES];
    struct ckpt_sha256 *sha = NULL;
    struct ckpt_err ignored = {0};
    char hex[CKPT_SHA256_HEX];

    key[0] = '\0';
    if (ckpt_sha256_new(&sha, &ignored) == 0 &&
        ckpt_sha256_add(sha, text, strlen(text), &ignored) == 0 &&
        ckpt_sha256_end(sha, digest, &ignored) == 0) {
        ckpt_digest_hex(hex, digest, sizeof digest);
        snprintf(key, CACHE_KEY, "%.8s-%s", kind, hex);
    }
    ckpt_sha256_free(sha);
}

/* -- one at a time ---------------------------------------------------------------------------- */

/* Lock a byte of the lock file; gives the descriptor to close, or -1. */
static int lock_byte(off_t byte, struct ckpt_err *err)
{
    struct flock l = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = byte, .l_len = 1};
    char path[4096];
    int fd;

    if (!cache_path(path, sizeof path, "lock", ""))
        return ckpt_fail(err, CKPT_ECREATE, "the cache has no place"), -1;
    fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return ckpt_fail_errno(err, CKPT_ECREATE, errno, "%s", path), -1;
    while (fcntl(fd, F_OFD_SETLK, &l)) {
        bool busy = errno == EAGAIN || errno == EACCES || errno == EINTR;

        if (!busy)
            ckpt_fail_errno(err, CKPT_EIO, errno, "%s", path);
        if (!busy || http_stopped(err)) {
            close(fd);
            return -1;
        }
        nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
    }
    return fd;
}

static int lock_key(const char *key, struct ckpt_err *err)
{
    unsigned char digest[CKPT_XXH128_BYTES];
    uint64_t byte;

    ckpt_xxh128(digest, key, strlen(key));
    memcpy(&byte, digest, sizeof byte);
    return lock_byte((off_t)(byte >> 2) + ALL_BYTE + 1, err);
}

/* -- how much --------------------------------------------------------------------------------- */

static uint64_t limit_bytes(void)
{
    const char *v = getenv("CKPT_CACHE_LIMIT");
    unsigned long long n;
    char *end;
    int shift;

    if (!v || *v < '0' || *v > '9')
        return LIMIT_BYTES;
    n = strtoull(v, &end, 10);
    shift = *end == 'K' ? 10 : *end == 'M' ? 20 : *end == 'G' ? 30 : *end == 'T' ? 40 : 0;
    if (n > UINT64_MAX >> 41 || (shift && end[1]) || (!shift && *end))
        return LIMIT_BYTES;
    return (uint64_t)n << shift;
}

struct kept {
    char            name[CACHE_KEY];
    uint64_t        bytes;
    struct timespec used;
};

static int by_use(const void *a, const void *b)
{
    const struct kept *x = a, *y = b;

    if (x->used.tv_sec != y->used.tv_sec)
        return x->used.tv_sec < y->used.tv_sec ? -1 : 1;
    return x->used.tv_nsec < y->used.tv_nsec ? -1 : x->used.tv_nsec > y->used.tv_nsec;
}

/* All objects, and the sum of their bytes; NULL without memory or objects. */
static struct kept *list_objects(DIR *dir, size_t *n, uint64_t *sum)
{
    struct ckpt_err ignored = {0};
    struct kept *all = NULL;
    size_t cap = 0;
    struct dirent *e;
    struct stat st;

    *n = 0;
    *sum = 0;
    while ((e = readdir(dir)) != NULL) {
        if (e->d_name[0] == '.' || strlen(e->d_name) >= CACHE_KEY ||
            fstatat(dirfd(dir), e->d_name, &st, AT_SYMLINK_NOFOLLOW) || !S_ISREG(st.st_mode))
            continue;
        if (ckpt_reserve(&all, *n, &cap, sizeof *all, &ignored))
            break;
        snprintf(all[*n].name, CACHE_KEY, "%.*s", CACHE_KEY - 1, e->d_name);
        all[*n].bytes = (uint64_t)st.st_size;
        if (!cache_record_time(e->d_name, &all[*n].used))
            all[*n].used = st.st_mtim;
        *sum += all[(*n)++].bytes;
    }
    return all;
}

static void drop_record(const char *key)
{
    char path[4096];

    if (cache_path(path, sizeof path, "proofs", key))
        unlink(path);
}

/* Remove the least recently used objects until need bytes fit. */
static void make_room(uint64_t need)
{
    uint64_t limit = limit_bytes(), sum;
    struct ckpt_err ignored = {0};
    struct kept *all;
    char path[4096];
    DIR *dir;
    size_t n;
    int lock;

    if (limit == 0 || !cache_path(path, sizeof path, "objects", "") || !(dir = opendir(path)))
        return;
    lock = lock_byte(ALL_BYTE, &ignored);
    all = list_objects(dir, &n, &sum);
    if (n > 0)
        qsort(all, n, sizeof *all, by_use);
    for (size_t i = 0; i < n && sum + need > limit; i++)
        if (unlinkat(dirfd(dir), all[i].name, 0) == 0) {
            sum -= all[i].bytes;
            drop_record(all[i].name);
        }
    if (lock >= 0)
        close(lock);
    ckpt_free(all);
    closedir(dir);
    cache_part_clean();
}

/* -- objects ---------------------------------------------------------------------------------- */

/* Open the object of a key, unverified; -1 when there is none. */
static int open_object(const char *key, uint64_t size)
{
    char path[4096];
    struct stat st;
    int fd;

    if (!*key || !cache_path(path, sizeof path, "objects", key))
        return -1;
    fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd >= 0 && (fstat(fd, &st) || !S_ISREG(st.st_mode) ||
                    (size != FIELD_NONE && (uint64_t)st.st_size != size))) {
        close(fd);
        return -1;
    }
    return fd;
}

/* Move a damaged object out of the way, with a warning.  Offline this is an error and the object
 * stays, since it cannot be fetched again. */
static int set_aside(const char *key, const char *name, enum cache_proof proof,
                     struct ckpt_err *err)
{
    char path[4096], aside[4096];

    if (proof == CACHE_WRONG && strncmp(key, "sha", 3) == 0 && http_offline()) {
        ckpt_fail_as(err, CKPT_EFORMAT, "digest", "%s: is damaged in the cache, where it is %s",
                     name, key);
        return ckpt_err_hint(err, "online it is fetched again");
    }
    if (!cache_path(path, sizeof path, "objects", key) ||
        (size_t)snprintf(aside, sizeof aside, "%.*s/damaged-%s", (int)(strrchr(path, '/') - path),
                         path, key) >= sizeof aside)
        return 0;
    drop_record(key);
    if (proof == CACHE_UNKNOWN) {
        unlink(path);                   /* of an earlier version, or written by another process */
        return 0;
    }
    ckpt_log(CKPT_LOG_WARNING, "%s: was damaged in the cache, %s is set aside", name, path);
    if (rename(path, aside))
        unlink(path);
    return 0;
}

int cache_find(struct ckpt_file **out, const char *key, uint64_t size, const char *name,
               struct ckpt_err *err)
{
    enum cache_proof proof;
    int fd, rc = cache_check(err);

    *out = NULL;
    fd = rc ? -1 : open_object(key, size);
    if (fd < 0)
        return rc;
    rc = cache_prove(&proof, fd, key, key, err);
    if (rc == 0 && proof == CACHE_PROVED)
        return file_take_fd(out, fd, name, 0, err);
    close(fd);
    return rc ? ckpt_err_in(err, "%s", name) : set_aside(key, name, proof, err);
}

bool cache_take(const char *key, int fd, struct ckpt_out *out)
{
    struct ckpt_err ignored = {0};
    char path[4096];
    int lock = *key && cache_path(path, sizeof path, "objects", key) ? lock_key(key, &ignored) : -1;
    bool taken = lock >= 0 && commit_adopt(out, path, fd);

    if (taken)
        drop_record(key);
    if (lock >= 0)
        close(lock);
    return taken;
}

void cache_drop(const char *key)
{
    char path[4096];

    if (*key && cache_path(path, sizeof path, "objects", key))
        unlink(path);
    drop_record(key);
}

bool cache_keeps(void) { return cache_ready("objects"); }

int cache_put(struct cache_sink *s, const void *src, size_t n, uint64_t at, struct ckpt_err *err)
{
    const unsigned char *from = src;

    if (s->out)
        return ckpt_out_write_at(s->out, src, n, at, err);
    while (n > 0) {
        ssize_t k = pwrite(s->fd, from, n, (off_t)at);

        if (k < 0 && errno == EINTR)
            continue;
        if (k <= 0)
            return ckpt_fail_errno(err, CKPT_EIO, k ? errno : ENOSPC, "%s: a copy in %s", s->name,
                                   getenv("TMPDIR") ? getenv("TMPDIR") : "/var/tmp");
        from += k;
        n -= (size_t)k;
        at += (uint64_t)k;
    }
    return 0;
}

static int get_unnamed(struct ckpt_file **out, const char *name, cache_fill_fn *fill, void *ctx,
                       struct ckpt_err *err)
{
    const char *where = getenv("TMPDIR");
    struct cache_sink s = {.fd = spool_create(where && *where ? where : NULL, err), .name = name};
    int rc;

    if (s.fd < 0)
        return ckpt_err_code(err);
    rc = fill(ctx, &s, err);
    if (rc == 0)
        return file_take_fd(out, s.fd, name, 0, err);
    close(s.fd);
    return rc;
}

bool cache_has_piece(struct cache_sink *s, size_t i, size_t n, uint64_t at, cache_take_fn *take,
                     void *ctx)
{
    return s->part && cache_part_has(s->part, i, n, at, take, ctx);
}

void cache_note_piece(struct cache_sink *s, size_t i, const unsigned char sum[CKPT_XXH128_BYTES])
{
    if (s->part)
        cache_part_note(s->part, i, sum);
}

/* Fetch an object whose pieces are kept if the fetch is interrupted. */
static int fill_part(struct cache_sink *s, const char *key, uint64_t size, cache_fill_fn *fill,
                     void *ctx, struct ckpt_err *err)
{
    int rc;

    for (;;) {
        bool used, wrong;

        rc = cache_part_open(&s->part, key, size, err);
        if (rc)
            return rc;
        s->fd = cache_part_fd(s->part);
        rc = fill(ctx, s, err);
        if (rc == 0)
            return cache_part_commit(s->part, err);
        used = cache_part_used(s->part);
        wrong = rc == CKPT_EFORMAT;
        cache_part_close(s->part, !wrong && rc != CKPT_EIO);
        if (!wrong || !used)
            return rc;
        ckpt_log(CKPT_LOG_WARNING, "%s: the part in the cache is damaged; it is fetched whole",
                 s->name);
        ckpt_err_clear(err);
    }
}

static int fill_aside(struct cache_sink *s, const char *key, uint64_t size, cache_fill_fn *fill,
                      void *ctx, struct ckpt_err *err)
{
    char path[4096];
    int rc = cache_path(path, sizeof path, "objects", key)
                 ? ckpt_out_create(&s->out, path, CKPT_REPLACE, err)
                 : ckpt_fail(err, CKPT_ECREATE, "the cache has no place");

    if (rc == 0 && size > 0 && size != FIELD_NONE)
        rc = ckpt_out_reserve(s->out, size, err);
    if (rc == 0)
        rc = fill(ctx, s, err);
    if (rc == 0)
        return ckpt_out_commit(s->out, err);
    ckpt_out_abort(s->out);
    return rc;
}

static int get_named(struct ckpt_file **out, const char *key, uint64_t size, const char *name,
                     cache_fill_fn *fill, void *ctx, struct ckpt_err *err)
{
    struct cache_sink s = {.fd = -1, .name = name};
    int lock = lock_key(key, err), fd, rc;

    if (lock < 0)
        return ckpt_err_code(err);
    rc = cache_find(out, key, size, name, err);  /* another process may have fetched it meanwhile */
    if (rc == 0 && !*out) {
        make_room(size == FIELD_NONE ? 0 : size);
        rc = size != FIELD_NONE && size >= PART_BYTES ? fill_part(&s, key, size, fill, ctx, err)
                                                      : fill_aside(&s, key, size, fill, ctx, err);
        fd = rc ? -1 : open_object(key, size);
        if (rc == 0 && fd < 0)
            rc = ckpt_fail(err, CKPT_EIO, "%s: vanished from the cache", name);
        if (rc == 0) {
            cache_record(fd, key, key);
            rc = file_take_fd(out, fd, name, 0, err);
        }
    }
    close(lock);
    return rc;
}

int cache_get(struct ckpt_file **out, const char *key, uint64_t size, const char *name,
              cache_fill_fn *fill, void *ctx, struct ckpt_err *err)
{
    uint64_t limit = limit_bytes();
    int rc;

    *out = NULL;
    if ((rc = cache_check(err)) != 0)
        return rc;
    if (!*key || (limit && size != FIELD_NONE && size > limit) || !cache_ready("objects"))
        return get_unnamed(out, name, fill, ctx, err);
    return get_named(out, key, size, name, fill, ctx, err);
}

/* -- lists ------------------------------------------------------------------------------------ */

json_t *cache_list(const char *key)
{
    struct ckpt_err ignored = {0};
    struct ckpt_file *file;
    json_t *list = NULL;
    char path[4096];

    if (!*key || !cache_path(path, sizeof path, "lists", key) ||
        ckpt_file_open(&file, path, 0, &ignored))
        return NULL;
    if (ckpt_json_read(&list, file, CKPT_JSON_MAX_BYTES, CKPT_JSON_STRICT, &ignored))
        list = NULL;
    ckpt_file_close(file);
    return list;
}

void cache_keep_list(const char *key, const json_t *list)
{
    struct ckpt_err err = {0};
    struct ckpt_buf b;
    char path[4096];

    if (!*key || !cache_ready("lists") || !cache_path(path, sizeof path, "lists", key))
        return;
    ckpt_buf_init(&b, (size_t)CKPT_JSON_MAX_BYTES);
    if (ckpt_json_write(&b, list, 0, false, &err) || ckpt_out_put(path, b.data, b.len, &err))
        ckpt_log(CKPT_LOG_DEBUG, "the cache does not take a list: %s", err.text);
    ckpt_buf_release(&b);
}

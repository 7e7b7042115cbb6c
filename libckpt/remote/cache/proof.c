/* cache/proof - see cache/proof.h. */
#include "libckpt/remote/cache/proof.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "libckpt/digest.h"
#include "libckpt/err.h"
#include "libckpt/remote/cache/at.h"
#include "libckpt/remote/http.h"

#define PIECE   ((size_t)1 << 20)
#define VERSION "ckpt-proof 1"

/* Two changes within this time may give a file the same time stamp: a few ticks of the kernel's
 * clock, and two seconds where a file system stores whole ones. */
#define TICKS_NS UINT64_C(100000000)
#define COARSE_NS UINT64_C(2000000000)

/* Attributes that identify an unchanged file. */
struct identity {
    unsigned long long dev, ino, size, mtime, ctime;
};

struct record {
    char               hex[CKPT_SHA256_HEX];
    struct identity    id;
    unsigned long long at;              /* when the proof began */
};

static unsigned long long ns(struct timespec t)
{
    return (unsigned long long)t.tv_sec * 1000000000u + (unsigned long long)t.tv_nsec;
}

static int identify(struct identity *id, int fd, struct ckpt_err *err)
{
    struct stat st;

    if (fstat(fd, &st))
        return ckpt_fail_errno(err, CKPT_EIO, errno, "the cache");
    *id = (struct identity){st.st_dev, st.st_ino, (unsigned long long)st.st_size, ns(st.st_mtim),
                            ns(st.st_ctim)};
    return 0;
}

static bool same(const struct identity *a, const struct identity *b)
{
    return a->dev == b->dev && a->ino == b->ino && a->size == b->size && a->mtime == b->mtime &&
           a->ctime == b->ctime;
}

/* Whether any later change must give the file another time. */
static bool is_settled(const struct record *r)
{
    unsigned long long last = r->id.mtime > r->id.ctime ? r->id.mtime : r->id.ctime;
    unsigned long long slack = r->id.ctime % 1000000000u ? TICKS_NS : COARSE_NS;

    return last <= r->at && r->at - last >= slack;
}

/* -- records ---------------------------------------------------------------------------------- */

static bool read_record(struct record *r, const char *name)
{
    char path[4096], text[400], end[2] = "";
    ssize_t n;
    int fd;

    if (!*name || !cache_path(path, sizeof path, "proofs", name))
        return false;
    fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0)
        return false;
    n = read(fd, text, sizeof text - 1);
    close(fd);
    if (n <= 0)
        return false;
    text[n] = '\0';
    return sscanf(text, VERSION " %64[0-9a-f] %llu %llu %llu %llu %llu %llu%1[\n]", r->hex,
                  &r->id.dev, &r->id.ino, &r->id.size, &r->id.mtime, &r->id.ctime, &r->at,
                  end) == 8;
}

/* A record that cannot be stored costs computing the digest again. */
/* Written atomically: a process that read half a record would take the object for unknown. */
static void write_record(const struct record *r, const char *name)
{
    char path[4096], aside[4096 + 32], text[400];
    bool good;
    int n, fd;

    if (!*name || !cache_ready("proofs") || !cache_path(path, sizeof path, "proofs", name))
        return;
    n = snprintf(text, sizeof text, VERSION " %s %llu %llu %llu %llu %llu %llu\n", r->hex,
                 r->id.dev, r->id.ino, r->id.size, r->id.mtime, r->id.ctime, r->at);
    snprintf(aside, sizeof aside, "%s.%ld-%d", path, (long)getpid(), gettid());
    fd = open(aside, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return;
    good = write(fd, text, (size_t)n) == n;
    close(fd);
    if (!good || rename(aside, path))
        unlink(aside);
}

bool cache_record_time(const char *name, struct timespec *used)
{
    char path[4096];
    struct stat st;

    if (!cache_path(path, sizeof path, "proofs", name) || lstat(path, &st) || !S_ISREG(st.st_mode))
        return false;
    *used = st.st_mtim;
    return true;
}

static void touch_record(const char *name)
{
    char path[4096];

    if (*name && cache_path(path, sizeof path, "proofs", name))
        utimensat(AT_FDCWD, path, NULL, AT_SYMLINK_NOFOLLOW);
}

/* -- digests ---------------------------------------------------------------------------------- */

/* The digest that a key names, and its algorithm; NULL where it names none. */
static const EVP_MD *named_digest(const char **hex, const char *key, bool *git)
{
    size_t n;

    *hex = strchr(key, '-');
    if (!*hex)
        return NULL;
    n = strspn(++*hex, "0123456789abcdef");
    if ((*hex)[n])
        return NULL;
    *git = strncmp(key, "sha1-", 5) == 0;
    return *git && n == 40 ? EVP_sha1()
           : strncmp(key, "sha256-", 7) == 0 && n == 64 ? EVP_sha256() : NULL;
}

/* Pass each piece of the file to the digest. */
static int read_all(int fd, uint64_t size, EVP_MD_CTX *md, struct ckpt_xxh128_state *xxh,
                    struct ckpt_err *err)
{
    char *buf = ckpt_alloc_buffer(PIECE);
    int rc = buf ? 0 : ckpt_nomem(err, PIECE);

    posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL);
    for (uint64_t at = 0; rc == 0 && at < size;) {
        ssize_t n = pread(fd, buf, PIECE, (off_t)at);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            rc = n ? ckpt_fail_errno(err, CKPT_EIO, errno, "the cache")
                   : ckpt_fail_as(err, CKPT_EFORMAT, "changed", "changed while it was read");
        } else {
            if (md && EVP_DigestUpdate(md, buf, (size_t)n) != 1)
                rc = ckpt_nomem(err, 256);
            if (xxh)
                ckpt_xxh128_add(xxh, buf, (size_t)n);
            at += (uint64_t)n;
            rc = rc ? rc : http_stopped(err);
        }
    }
    ckpt_free(buf);
    return rc;
}

/* The digest of the file as its key demands: SHA, or XXH3 where the key names none. */
static int digest_of(char hex[CKPT_SHA256_HEX], int fd, uint64_t size, const char *key,
                     struct ckpt_err *err)
{
    unsigned char digest[EVP_MAX_MD_SIZE];
    struct ckpt_xxh128_state *xxh = NULL;
    unsigned n = CKPT_XXH128_BYTES;
    const char *wanted;
    char head[40];
    bool git = false;
    const EVP_MD *how = named_digest(&wanted, key, &git);
    EVP_MD_CTX *md = how ? EVP_MD_CTX_new() : NULL;
    int k = snprintf(head, sizeof head, "blob %llu", (unsigned long long)size) + 1;
    int rc = how ? 0 : ckpt_xxh128_new(&xxh, err);

    if (how && (!md || EVP_DigestInit_ex(md, how, NULL) != 1 ||
                (git && EVP_DigestUpdate(md, head, (size_t)k) != 1)))
        rc = ckpt_nomem(err, 256);
    if (rc == 0)
        rc = read_all(fd, size, md, xxh, err);
    if (rc == 0 && md && EVP_DigestFinal_ex(md, digest, &n) != 1)
        rc = ckpt_nomem(err, 256);
    if (rc == 0 && xxh)
        ckpt_xxh128_end(xxh, digest);
    if (rc == 0)
        ckpt_digest_hex(hex, digest, n);
    EVP_MD_CTX_free(md);
    ckpt_xxh128_free(xxh);
    return rc;
}

static int make_record(struct record *r, int fd, const char *key, struct ckpt_err *err)
{
    struct identity after;
    struct timespec now;
    int rc;

    clock_gettime(CLOCK_REALTIME, &now);
    r->at = ns(now);
    if ((rc = identify(&r->id, fd, err)) != 0 ||
        (rc = digest_of(r->hex, fd, r->id.size, key, err)) != 0 ||
        (rc = identify(&after, fd, err)) != 0)
        return rc;
    if (!same(&r->id, &after))
        r->at = 0;                      /* it is changing right now: never settled */
    return 0;
}

int cache_prove(enum cache_proof *proof, int fd, const char *key, const char *name,
                struct ckpt_err *err)
{
    struct record before = {0}, r;
    struct identity id;
    const char *wanted = NULL;
    bool git, known = read_record(&before, name);
    int rc;

    if (!named_digest(&wanted, key, &git))
        wanted = known ? before.hex : NULL;
    *proof = CACHE_UNKNOWN;
    if (!wanted)
        return 0;
    if ((rc = identify(&id, fd, err)) != 0)
        return rc;
    *proof = CACHE_PROVED;
    if (known && same(&id, &before.id) && is_settled(&before) && strcmp(wanted, before.hex) == 0) {
        touch_record(name);
        return 0;
    }
    if ((rc = make_record(&r, fd, key, err)) != 0)
        return rc;
    if (strcmp(r.hex, wanted) != 0)
        *proof = CACHE_WRONG;
    else
        write_record(&r, name);
    return 0;
}

void cache_record(int fd, const char *key, const char *name)
{
    struct ckpt_err ignored = {0};
    struct record r = {0};
    const char *hex;
    bool git;

    /* A fetched object with a digest in its key was verified on the way; it is digested again at
     * its next use. */
    if (!named_digest(&hex, key, &git) && make_record(&r, fd, key, &ignored) == 0)
        write_record(&r, name);
}

int cache_digest(char hex[CKPT_SHA256_HEX], int fd, bool git, struct ckpt_err *err)
{
    static const char sha1[] = "sha1-0000000000000000000000000000000000000000";
    static const char sha256[] = "sha256-00000000000000000000000000000000"
                                 "00000000000000000000000000000000";
    struct record before = {0}, r = {0};
    struct identity id;
    char name[100];
    int rc;

    if ((rc = identify(&id, fd, err)) != 0)
        return rc;
    snprintf(name, sizeof name, "file-%llx-%llx-%s", id.dev, id.ino, git ? "sha1" : "sha256");
    if (read_record(&before, name) && same(&id, &before.id) && is_settled(&before) &&
        strlen(before.hex) == (git ? 40 : 64)) {
        touch_record(name);
        memcpy(hex, before.hex, CKPT_SHA256_HEX);
        return 0;
    }
    if ((rc = make_record(&r, fd, git ? sha1 : sha256, err)) != 0)
        return rc;
    if (r.at == 0)
        return ckpt_fail_as(err, CKPT_EFORMAT, "changed", "changed while it was read");
    write_record(&r, name);
    memcpy(hex, r.hex, CKPT_SHA256_HEX);
    return 0;
}

int cache_check_owner(const char *path, struct ckpt_err *err)
{
    struct stat st;

    if (stat(path, &st))
        return 0;                       /* it does not exist yet: we will create it */
    if (!S_ISDIR(st.st_mode))
        return ckpt_fail(err, CKPT_EREFUSED, "%s: the cache is no directory", path);
    if (st.st_uid != geteuid() && st.st_uid != 0)
        ckpt_fail(err, CKPT_EREFUSED, "%s: the cache belongs to another user, %lu", path,
                  (unsigned long)st.st_uid);
    else if ((st.st_mode & (S_IWGRP | S_IWOTH)) && !(st.st_mode & S_ISVTX))
        ckpt_fail(err, CKPT_EREFUSED, "%s: other users can write to the cache", path);
    else
        return 0;
    return ckpt_err_hint(err, "CKPT_CACHE names another place; chmod go-w makes one safe");
}

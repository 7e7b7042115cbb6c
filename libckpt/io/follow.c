/* follow - see follow.h. */
#include "libckpt/io/follow.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "libckpt/err.h"
#include "libckpt/mem.h"

#define CHUNK      ((size_t)1 << 20)    /* bytes read at once */
#define MOST_PARTS 4096u                /* ranges that wait for the bytes before them */

struct range {
    uint64_t at, end;
};

struct follow {
    pthread_t           thread;
    pthread_mutex_t     lock;
    pthread_cond_t      changed;
    int                 fd;
    uint64_t            size;
    uint64_t            whole;          /* no byte before is missing */
    struct range        part[MOST_PARTS];       /* behind it: sorted, none adjacent */
    size_t              n;
    bool                spoilt, stop;   /* no digest any more; nobody waits for one */
    struct ckpt_sha256 *sha;            /* of the thread */
    unsigned char      *chunk;          /* [CHUNK] */
    uint64_t            read;           /* bytes digested */
};

/* -- what is written ------------------------------------------------------------------------- */

/* Move the parts from index `from` on to index `to`. */
static void move(struct follow *f, size_t to, size_t from)
{
    memmove(f->part + to, f->part + from, (f->n - from) * sizeof *f->part);
    f->n = f->n - from + to;
}

/* Add a range behind f->whole, joined with those that it touches. */
static void add(struct follow *f, struct range r)
{
    size_t first = 0, end;

    while (first < f->n && f->part[first].end < r.at)
        first++;
    for (end = first; end < f->n && f->part[end].at <= r.end; end++) {
        r.at = f->part[end].at < r.at ? f->part[end].at : r.at;
        r.end = f->part[end].end > r.end ? f->part[end].end : r.end;
    }
    if (first == end && f->n == MOST_PARTS) {
        f->spoilt = true;
        return;
    }
    move(f, first + 1, end);
    f->part[first] = r;
}

void follow_wrote(struct follow *f, uint64_t at, uint64_t n)
{
    if (!f || n == 0)
        return;
    pthread_mutex_lock(&f->lock);
    if (at < f->whole)
        f->spoilt = true;
    else if (!f->spoilt)
        add(f, (struct range){at, at + n});
    if (f->n && f->part[0].at <= f->whole) {
        f->whole = f->part[0].end;
        move(f, 0, 1);
    }
    pthread_cond_signal(&f->changed);
    pthread_mutex_unlock(&f->lock);
}

/* -- the thread ------------------------------------------------------------------------------ */

/* Wait until more of the file is there; bytes that can be read now, 0: nothing more will come. */
static uint64_t more(struct follow *f)
{
    uint64_t n;

    pthread_mutex_lock(&f->lock);
    while (f->whole == f->read && f->read < f->size && !f->stop && !f->spoilt)
        pthread_cond_wait(&f->changed, &f->lock);
    n = f->stop || f->spoilt ? 0 : f->whole - f->read;
    pthread_mutex_unlock(&f->lock);
    return n;
}

static bool digest_some(struct follow *f, size_t n)
{
    struct ckpt_err ignored = {0};

    for (size_t k = 0; k < n;) {
        ssize_t got = pread(f->fd, f->chunk + k, n - k, (off_t)(f->read + k));

        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return false;
        k += (size_t)got;
    }
    if (ckpt_sha256_add(f->sha, f->chunk, n, &ignored))
        return false;
    f->read += n;
    return true;
}

static void *run(void *ctx)
{
    struct follow *f = ctx;
    uint64_t n;

    while ((n = more(f)) > 0)
        if (!digest_some(f, n < CHUNK ? (size_t)n : CHUNK)) {
            pthread_mutex_lock(&f->lock);
            f->spoilt = true;
            pthread_mutex_unlock(&f->lock);
        }
    return NULL;
}

static void release(struct follow *f)
{
    pthread_cond_destroy(&f->changed);
    pthread_mutex_destroy(&f->lock);
    ckpt_sha256_free(f->sha);
    ckpt_free(f->chunk);
    ckpt_free(f);
}

struct follow *follow_begin(int fd, uint64_t size)
{
    struct follow *f = ckpt_alloc(1, sizeof *f);
    struct ckpt_err ignored = {0};

    if (!f)
        return NULL;
    f->fd = fd;
    f->size = size;
    f->chunk = ckpt_alloc_buffer(CHUNK);
    pthread_mutex_init(&f->lock, NULL);
    pthread_cond_init(&f->changed, NULL);
    if (f->chunk && ckpt_sha256_new(&f->sha, &ignored) == 0 &&
        pthread_create(&f->thread, NULL, run, f) == 0)
        return f;
    release(f);
    return NULL;
}

/* End the thread; at once, or when it has read all. */
static void join(struct follow *f, bool at_once)
{
    pthread_mutex_lock(&f->lock);
    f->stop = at_once || f->whole < f->size;
    pthread_cond_signal(&f->changed);
    pthread_mutex_unlock(&f->lock);
    pthread_join(f->thread, NULL);
}

bool follow_end(struct follow *f, char hex[CKPT_SHA256_HEX])
{
    unsigned char digest[CKPT_SHA256_BYTES];
    struct ckpt_err ignored = {0};
    bool there;

    join(f, false);
    there = !f->spoilt && f->read == f->size && ckpt_sha256_end(f->sha, digest, &ignored) == 0;
    if (there)
        ckpt_digest_hex(hex, digest, sizeof digest);
    release(f);
    return there;
}

void follow_abort(struct follow *f)
{
    if (!f)
        return;
    join(f, true);
    release(f);
}

/* -- beside the file ------------------------------------------------------------------------- */

/* The text is whole or ignored: its length is fixed. */
#define TEXT_BYTES (CKPT_SHA256_HEX + 20u)

static bool side_name(char out[256], const char *name)
{
    return snprintf(out, 256, ".%s.sha256", name) < 256;
}

static void side_text(char text[TEXT_BYTES + 1], const char *hex, uint64_t size)
{
    snprintf(text, TEXT_BYTES + 1, "%.64s %020llu", hex, (unsigned long long)size);
}

void follow_leave(int dir_fd, const char *name, uint64_t size, const char *hex)
{
    char side[256], text[TEXT_BYTES + 1];
    int fd;

    if (!side_name(side, name))
        return;
    side_text(text, hex, size);
    fd = openat(dir_fd, side, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (fd < 0)
        return;
    if (write(fd, text, TEXT_BYTES) != (ssize_t)TEXT_BYTES)
        unlinkat(dir_fd, side, 0);
    close(fd);
}

bool follow_take(char hex[CKPT_SHA256_HEX], const char *dir_path, const char *name,
                 uint64_t size)
{
    const char *slash = strrchr(name, '/'), *last = slash ? slash + 1 : name;
    char path[4096], side[256], text[TEXT_BYTES + 1] = "", wanted[TEXT_BYTES + 1];
    int fd;

    if (!side_name(side, last) ||
        snprintf(path, sizeof path, "%s/%.*s%s", dir_path, (int)(last - name), name, side) >=
            (int)sizeof path)
        return false;
    fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return false;
    if (read(fd, text, TEXT_BYTES) != (ssize_t)TEXT_BYTES)
        text[0] = '\0';
    close(fd);
    unlink(path);
    side_text(wanted, text, size);
    if (strcmp(text, wanted) != 0 || strspn(text, "0123456789abcdef") != CKPT_SHA256_HEX - 1)
        return false;
    snprintf(hex, CKPT_SHA256_HEX, "%.64s", text);
    return true;
}

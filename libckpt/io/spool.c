/* spool - see spool.h. */
#include "libckpt/io/spool.h"

#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "libckpt/err.h"
#include "libckpt/io/commit_sys.h"
#include "libckpt/base/fault.h"
#include "libckpt/io/file_at.h"

#define PIECE ((size_t)1 << 20)

struct feed {
    int               fd;       /* input descriptor, or -1 */
    const void       *before;   /* bytes already read from it */
    size_t            n_before;
    struct ckpt_file *file;     /* else */
    uint64_t          pos;      /* input bytes passed on so far */
    const char       *name;
    unsigned          flags;    /* flags of the resulting file */
    const volatile int *stop;
    unsigned char    *piece;
    bool              failed;   /* reading the input failed, as err says */
    struct ckpt_err  *err;
};

bool ckpt_spool_is_compressed(const unsigned char *head, size_t n)
{
    static const struct {
        const char *magic;
        size_t      n;
    } kinds[] = {{"\x1f\x8b\x08", 3}, {"\xfd" "7zXZ", 6}, {"\x04\x22\x4d\x18", 4},
                 {"\x28\xb5\x2f\xfd", 4}};

    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        if (n >= kinds[i].n && memcmp(head, kinds[i].magic, kinds[i].n) == 0)
            return true;
    /* Old lzma: its properties, then an unknown length. */
    if (n >= 13 && memcmp(head, "\x5d\0\0", 3) == 0 &&
        memcmp(head + 5, "\xff\xff\xff\xff\xff\xff\xff\xff", 8) == 0)
        return true;
    /* A text file could begin with BZh: the first block, or the end mark of an empty stream,
     * must follow. */
    return n >= 10 && memcmp(head, "BZh", 3) == 0 && head[3] >= '1' && head[3] <= '9' &&
           (memcmp(head + 4, "1AY&SY", 6) == 0 ||
            memcmp(head + 4, "\x17\x72\x45\x38\x50\x90", 6) == 0);
}

int spool_create(const char *where, struct ckpt_err *err)
{
    char name[4200], nonce[COMMIT_NONCE + 1];
    int fd;

    if (!where)
        where = "/var/tmp";
    fd = ckpt_fault(CKPT_FAULT_OPEN)
             ? (errno = EIO, -1)
             : open(where, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd < 0 && (errno == EOPNOTSUPP || errno == EISDIR || errno == EINVAL)) {
        /* For a file system without O_TMPFILE: create a file and unlink it at once. */
        commit_nonce(nonce);
        snprintf(name, sizeof name, "%s/.ckpt-spool-%s", where, nonce);
        fd = open(name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
        if (fd >= 0)
            unlink(name);
    }
    if (fd < 0) {
        ckpt_fail_errno(err, CKPT_ECREATE, errno, "%s: no place to unpack in", where);
        ckpt_err_hint(err, "TMPDIR names another place");
    }
    return fd;
}

/* libarchive's read callback. */
static la_ssize_t give(struct archive *a, void *ctx, const void **bytes)
{
    struct feed *f = ctx;
    ssize_t n;

    *bytes = f->piece;
    if (f->n_before > 0) {
        *bytes = f->before;
        n = (ssize_t)f->n_before;
        f->n_before = 0;
    } else if (f->fd < 0) {
        uint64_t left = ckpt_file_size(f->file) - f->pos;

        n = left < PIECE ? (ssize_t)left : (ssize_t)PIECE;
        if (ckpt_file_read_at(f->file, f->piece, (size_t)n, f->pos, f->err))
            n = -1;
    } else {
        do
            n = ckpt_fault(CKPT_FAULT_READ) ? (errno = EIO, -1) : read(f->fd, f->piece, PIECE);
        while (n < 0 && errno == EINTR && !(f->stop && *f->stop));
        if (n < 0 && errno != EINTR)
            ckpt_fail_errno(f->err, CKPT_EIO, errno, "%s: read", f->name);
    }
    if (f->stop && *f->stop) {
        ckpt_fail(f->err, CKPT_ESTOPPED, "%s: stopped while it was read", f->name);
        n = -1;
    }
    f->failed = n < 0;
    if (f->failed)
        archive_set_error(a, EIO, "read");
    else
        f->pos += (uint64_t)n;
    return n;
}

/*
 * Add the filters that have a library.  For a filter that libarchive was built without, it would
 * run a program, so that one is not added.
 */
static int add_filters(struct archive *a)
{
    int rc = ARCHIVE_OK;

    if (archive_zlib_version())
        rc |= archive_read_support_filter_gzip(a);
    if (archive_bzlib_version())
        rc |= archive_read_support_filter_bzip2(a);
    if (archive_liblzma_version())
        rc |= archive_read_support_filter_xz(a) | archive_read_support_filter_lzma(a);
    if (archive_liblz4_version())
        rc |= archive_read_support_filter_lz4(a);
    if (archive_libzstd_version())
        rc |= archive_read_support_filter_zstd(a);
    return rc;
}

int spool_put(int fd, const void *src, size_t n, const char *name, struct ckpt_err *err)
{
    const unsigned char *from = src;

    while (n > 0) {
        ssize_t k = ckpt_fault(CKPT_FAULT_WRITE) ? (errno = ENOSPC, -1) : write(fd, from, n);

        if (k < 0 && errno == EINTR)
            continue;
        if (k <= 0) {
            int why = k < 0 ? errno : EIO;

            ckpt_fail_errno(err, CKPT_EIO, why, "%s: while it was unpacked", name);
            if (why == ENOSPC || why == EDQUOT || why == EFBIG) {
                snprintf(err->reason, sizeof err->reason, "no-space");
                ckpt_err_hint(err, "TMPDIR names another place");
            }
            return CKPT_EIO;
        }
        from += k;
        n -= (size_t)k;
    }
    return 0;
}

int spool_check(const char *name, uint64_t unpacked, uint64_t packed, struct ckpt_err *err)
{
    if (unpacked <= SPOOL_FREE_BYTES ||
        (unpacked - SPOOL_FREE_BYTES) / SPOOL_MOST_TIMES <= packed)
        return 0;
    return ckpt_fail(err, CKPT_ELIMIT,
                     "%s: %llu bytes out of %llu: more than %u times as much is not unpacked", name,
                     (unsigned long long)unpacked, (unsigned long long)packed, SPOOL_MOST_TIMES);
}

/* Report libarchive's message, unless the cause is known to be our input. */
static int reading_failed(struct archive *a, const struct feed *f)
{
    if (f->failed)
        return ckpt_err_code(f->err);
    if (archive_errno(a) == ENOMEM)
        return ckpt_nomem(f->err, PIECE);
    return ckpt_fail(f->err, CKPT_EFORMAT, "%s: damaged at byte %llu of what is packed: %s",
                     f->name, (unsigned long long)f->pos,
                     archive_error_string(a) ? archive_error_string(a) : "no reason given");
}

static int drain(struct archive *a, struct feed *f, int fd)
{
    unsigned char *buf = ckpt_alloc_buffer(PIECE);
    struct archive_entry *entry;
    uint64_t size = 0;
    la_ssize_t n = 1;
    int rc = buf ? archive_read_next_header(a, &entry) : ARCHIVE_OK;

    if (!buf)
        return ckpt_nomem(f->err, PIECE);
    if (rc == ARCHIVE_OK && archive_filter_count(a) > 2)
        rc = ckpt_fail(f->err, CKPT_ELIMIT, "%s: is compressed more than once", f->name);
    else if (rc == ARCHIVE_EOF)
        n = rc = 0;                     /* nothing in it */
    else if (rc != ARCHIVE_OK)
        rc = reading_failed(a, f);
    while (rc == 0 && n > 0) {
        n = archive_read_data(a, buf, PIECE);
        if (n < 0)
            rc = reading_failed(a, f);
        else if (size == 0 && archive_filter_count(a) < 2 &&
                 ckpt_spool_is_compressed(buf, (size_t)n))
            rc = ckpt_fail(f->err, CKPT_EFORMAT, "%s: begins as compressed bytes do and is damaged",
                           f->name);
        else
            rc = spool_put(fd, buf, (size_t)n, f->name, f->err);
        size += n > 0 ? (uint64_t)n : 0;
        if (rc == 0)
            rc = spool_check(f->name, size, f->pos, f->err);
    }
    ckpt_free(buf);
    return rc;
}

static int spool(struct ckpt_file **out, struct feed *f, const char *where)
{
    struct archive *a = archive_read_new();
    int fd = -1, rc = 0;

    *out = NULL;
    f->piece = ckpt_alloc_buffer(PIECE);
    if (!a || !f->piece)
        rc = ckpt_nomem(f->err, PIECE);
    if (rc == 0 && (add_filters(a) || archive_read_support_format_raw(a) ||
                    archive_read_support_format_empty(a)))
        rc = ckpt_fail(f->err, CKPT_ENOMEM, "libarchive: %s", archive_error_string(a));
    if (rc == 0) {
        fd = spool_create(where, f->err);
        rc = fd < 0 ? ckpt_err_code(f->err) : 0;
    }
    if (rc == 0 && archive_read_open(a, f, NULL, give, NULL))
        rc = reading_failed(a, f);
    if (rc == 0)
        rc = drain(a, f, fd);
    if (a)
        archive_read_free(a);
    ckpt_free(f->piece);
    if (rc == 0)
        return file_take_fd(out, fd, f->name, f->flags, f->err);
    if (fd >= 0)
        close(fd);
    return rc;
}

int ckpt_spool_file(struct ckpt_file **out, struct ckpt_file *file, const char *where,
                    struct ckpt_err *err)
{
    struct feed f = {.fd = -1, .file = file, .name = ckpt_file_name(file),
                     .flags = ckpt_file_flags(file), .err = err};
    int rc = spool(out, &f, where);

    ckpt_file_close(file);
    return rc;
}

int ckpt_spool_fd(struct ckpt_file **out, int fd, const struct ckpt_spool *how,
                  struct ckpt_err *err)
{
    struct feed f = {.fd = fd, .before = how->before, .n_before = how->n_before,
                     .name = how->name, .flags = how->flags, .stop = how->stop, .err = err};
    unsigned char head[16];
    struct stat st;
    int copy;

    *out = NULL;
    if (how->n_before == 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) &&
        lseek(fd, 0, SEEK_CUR) == 0) {
        ssize_t got = pread(fd, head, sizeof head, 0);

        if (got >= 0 && !ckpt_spool_is_compressed(head, (size_t)got)) {
            copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);
            return copy < 0 ? file_open_failed(err, how->name, errno)
                            : file_take_fd(out, copy, how->name, how->flags, err);
        }
    }
    return spool(out, &f, how->where);
}

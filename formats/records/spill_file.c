/* records/spill_file - see records/spill_file.h. */
#include "formats/records/spill_file.h"

#include <errno.h>
#include <lz4.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "libckpt/base/fault.h"
#include "libckpt/base/range.h"
#include "libckpt/mem.h"
#include "libckpt/io/spool.h"

#define BLOCK ((size_t)16 << 10)    /* bytes of lines; a longer line gets a block of its own */

struct spill_block {
    uint64_t at;                    /* in the file */
    uint32_t packed, raw;           /* bytes */
    int64_t  first;                 /* its first line */
};

struct spill_file {
    int             fd;
    uint64_t        end;
    pthread_mutex_t lock;           /* of end */
};

int spill_file_open(struct spill_file **out, struct ckpt_err *err)
{
    const char *dir = getenv("TMPDIR");
    struct spill_file *s = ckpt_alloc(1, sizeof *s);

    *out = NULL;
    if (!s)
        return ckpt_nomem(err, sizeof *s);
    s->fd = spool_create(dir && *dir ? dir : NULL, err);
    if (s->fd < 0) {
        ckpt_free(s);
        return ckpt_err_code(err);
    }
    pthread_mutex_init(&s->lock, NULL);
    *out = s;
    return 0;
}

void spill_file_close(struct spill_file *s)
{
    if (!s)
        return;
    close(s->fd);
    pthread_mutex_destroy(&s->lock);
    ckpt_free(s);
}

void spill_file_part_release(struct spill_part *p)
{
    ckpt_buf_release(&p->filling);
    ckpt_free(p->block);
    *p = (struct spill_part){0};
}

static int write_at(struct spill_file *s, const unsigned char *b, size_t n, uint64_t at,
                    struct ckpt_err *err)
{
    while (n > 0) {
        ssize_t got = ckpt_fault(CKPT_FAULT_WRITE) ? (errno = ENOSPC, -1)
                                                   : pwrite(s->fd, b, n, (off_t)at);

        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0) {
            ckpt_fail_errno(err, CKPT_EIO, got < 0 ? errno : ENOSPC,
                            "a temporary file of %llu bytes", (unsigned long long)at);
            return ckpt_err_hint(err, "TMPDIR names another place");
        }
        b += got;
        n -= (size_t)got;
        at += (uint64_t)got;
    }
    return 0;
}

int spill_file_flush(struct spill_file *s, struct spill_part *p, struct ckpt_err *err)
{
    int most = LZ4_compressBound((int)p->filling.len), n;
    struct spill_block *b;
    char *packed;
    int rc;

    if (p->filling.len == 0)
        return 0;
    if (ckpt_reserve(&p->block, p->n, &p->cap, sizeof *p->block, err))
        return CKPT_ENOMEM;
    b = &p->block[p->n];
    packed = ckpt_alloc_buffer((size_t)most);
    if (!packed)
        return ckpt_nomem(err, (size_t)most);
    n = LZ4_compress_default((const char *)p->filling.data, packed, (int)p->filling.len, most);
    pthread_mutex_lock(&s->lock);
    *b = (struct spill_block){s->end, (uint32_t)n, (uint32_t)p->filling.len, p->filling_first};
    s->end += (uint64_t)n;
    pthread_mutex_unlock(&s->lock);
    rc = write_at(s, (const unsigned char *)packed, (size_t)n, b->at, err);
    if (rc == 0) {
        p->n++;
        p->filling.len = 0;
    }
    ckpt_free(packed);
    return rc;
}

int spill_file_put(struct spill_file *s, struct spill_part *p, const void *line, size_t len,
                   struct ckpt_err *err)
{
    int rc;

    if (p->filling.cap == 0)
        ckpt_buf_init(&p->filling, (size_t)1 << 30);
    if (p->filling.len > 0 && len > BLOCK - p->filling.len &&
        (rc = spill_file_flush(s, p, err)) != 0)
        return rc;
    if (p->filling.len == 0)
        p->filling_first = p->lines;
    ckpt_buf_put(&p->filling, line, len);
    ckpt_buf_put_u8(&p->filling, '\n');
    if (!ckpt_buf_ok(&p->filling))
        return ckpt_nomem(err, len);
    p->lines++;
    return p->filling.len >= BLOCK ? spill_file_flush(s, p, err) : 0;
}

static int read_at(const struct spill_file *s, unsigned char *b, size_t n, uint64_t at,
                   struct ckpt_err *err)
{
    while (n > 0) {
        ssize_t got = ckpt_fault(CKPT_FAULT_READ) ? (errno = EIO, -1)
                                                  : pread(s->fd, b, n, (off_t)at);

        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return ckpt_fail_errno(err, CKPT_EIO, got < 0 ? errno : EIO, "a temporary file");
        b += got;
        n -= (size_t)got;
        at += (uint64_t)got;
    }
    return 0;
}

int spill_file_get(struct spill_file *s, const struct spill_part *p, int64_t i,
                   struct ckpt_buf *buf, struct ckpt_err *err)
{
    const struct spill_block *b =
        &p->block[ckpt_range_of(&p->block->first, p->n, sizeof *p->block, (uint64_t)i)];
    unsigned char *raw = ckpt_alloc_buffer((size_t)b->raw + b->packed), *line, *end, *last;
    int rc;

    buf->len = 0;
    if (!raw)
        return ckpt_nomem(err, (size_t)b->raw + b->packed);
    rc = read_at(s, raw + b->raw, b->packed, b->at, err);
    if (rc == 0 && LZ4_decompress_safe((const char *)raw + b->raw, (char *)raw, (int)b->packed,
                                       (int)b->raw) != (int)b->raw)
        rc = ckpt_fail(err, CKPT_EIO, "a temporary file has changed");
    if (rc)
        goto out;
    last = raw + b->raw;
    for (line = raw; i > b->first && line < last; i--)
        line = (unsigned char *)memchr(line, '\n', (size_t)(last - line)) + 1;
    end = memchr(line, '\n', (size_t)(last - line));
    ckpt_buf_put(buf, line, (size_t)(end - line));
    if (!ckpt_buf_ok(buf))
        rc = ckpt_nomem(err, (size_t)(end - line));
out:
    ckpt_free(raw);
    return rc;
}

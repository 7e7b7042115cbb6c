/* unfold - see unfold.h. */
#include "formats/container/unfold.h"

#include <unistd.h>
#include <zlib.h>

#include "libckpt/io/file_at.h"
#include "libckpt/io/spool.h"

#define PIECE ((size_t)256 << 10)

/* Unpack the stream into fd. */
static int run(z_stream *z, int fd, const struct ckpt_file *file, uint64_t at, uint64_t end,
               unsigned char *in, unsigned char *out, struct ckpt_err *err)
{
    const char *name = ckpt_file_name(file);
    uint64_t size = 0, begin = at;
    int state = Z_OK, rc = 0;

    while (rc == 0 && state != Z_STREAM_END) {
        if (z->avail_in == 0) {
            size_t n = end - at < PIECE ? (size_t)(end - at) : PIECE;

            if (n == 0)
                return ckpt_fail(err, CKPT_EFORMAT, "%s: what is packed ends too early", name);
            rc = ckpt_file_read_at(file, in, n, at, err);
            z->next_in = in;
            z->avail_in = (unsigned)n;
            at += n;
        }
        z->next_out = out;
        z->avail_out = PIECE;
        if (rc == 0)
            state = inflate(z, Z_NO_FLUSH);
        if (rc == 0 && state != Z_OK && state != Z_STREAM_END && state != Z_BUF_ERROR)
            rc = ckpt_fail(err, CKPT_EFORMAT, "%s: damaged at byte %llu of what is packed: %s",
                           name, (unsigned long long)z->total_in, z->msg ? z->msg : "no reason");
        if (rc == 0)
            rc = spool_put(fd, out, PIECE - z->avail_out, name, err);
        size += PIECE - z->avail_out;
        if (rc == 0)
            rc = spool_check(name, size, at - begin, err);
    }
    return rc;
}

int unfold(struct ckpt_file **out, uint64_t *used, const struct ckpt_file *file, uint64_t offset,
           uint64_t size, enum unfold_as as, const char *where, struct ckpt_err *err)
{
    unsigned char *buf = ckpt_alloc_buffer(2 * PIECE);
    z_stream z = {0};
    int fd, rc;

    *out = NULL;
    *used = 0;
    if (!buf || inflateInit2(&z, as == UNFOLD_ZLIB ? 15 : -15) != Z_OK) {
        ckpt_free(buf);
        return ckpt_nomem(err, 2 * PIECE);
    }
    fd = spool_create(where, err);
    rc = fd < 0 ? ckpt_err_code(err)
                : run(&z, fd, file, offset, offset + size, buf, buf + PIECE, err);
    *used = z.total_in;
    inflateEnd(&z);
    ckpt_free(buf);
    if (rc == 0)
        return file_take_fd(out, fd, ckpt_file_name(file), ckpt_file_flags(file), err);
    if (fd >= 0)
        close(fd);
    return rc;
}

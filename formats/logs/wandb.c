/*
 * wandb - see wandb.h.  Chunks and records; what a record says is in wandb_record.c.
 */
#include "formats/logs/wandb.h"

#include <string.h>
#include <zlib.h>

#include "formats/logs/wandb_record.h"

#define BLOCK 32768
#define CHUNK 7                 /* bytes before a chunk's data; also the size of the file's head */

enum { WHOLE = 1, FIRST, MIDDLE, LAST };

static const unsigned char magic[CHUNK] = {':', 'W', '&', 'B', 0xe1, 0xbe, 0};

struct chunk {
    const unsigned char *data;      /* NULL: the file is truncated here, or ends */
    size_t               len;
    unsigned             type;
    uint64_t             next;      /* offset of the next one */
};

bool wandb_is(const unsigned char *head, size_t len)
{
    return len >= CHUNK && memcmp(head, magic, CHUNK - 1) == 0;
}

static uint32_t le32(const unsigned char *b)
{
    return (uint32_t)b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
}

/* The chunk at offset at. */
static int read_chunk(struct chunk *c, struct run_log_window *w, uint64_t at,
                      struct ckpt_err *err)
{
    uint64_t size = ckpt_file_size(w->file);
    const unsigned char *b;
    size_t len;
    bool zeros;
    int rc;

    *c = (struct chunk){0};
    if (BLOCK - at % BLOCK < CHUNK)
        at += BLOCK - at % BLOCK;
    if (at >= size || size - at < CHUNK)
        return 0;
    if ((rc = run_log_window_at(&b, w, at, CHUNK, err)) != 0)
        return rc;
    len = (size_t)b[4] | (size_t)b[5] << 8;
    if (b[6] < WHOLE || b[6] > LAST || len > BLOCK - CHUNK - at % BLOCK) {
        if ((rc = run_log_window_zeros(w, at, &zeros, err)) != 0)
            return rc;
        return zeros ? 0 : ckpt_fail(err, CKPT_EFORMAT, "a chunk of type %u with %zu bytes",
                                     b[6], len);
    }
    if (size - at - CHUNK < len)
        return 0;
    if ((rc = run_log_window_at(&b, w, at, CHUNK + len, err)) != 0)
        return rc;
    if (le32(b) != (uint32_t)crc32(0, b + 6, (unsigned)len + 1))
        return ckpt_fail_as(err, CKPT_EFORMAT, "checksum", "the checksum of a chunk does not hold");
    *c = (struct chunk){b + CHUNK, len, b[6], at + CHUNK + len};
    return 0;
}

/* Read the record at *at into rec (cleared first); *at moves past it, or stays where the file is
 * truncated. */
static int read_record(struct ckpt_buf *rec, struct run_log_window *w, uint64_t *at,
                       struct ckpt_err *err)
{
    uint64_t next = *at;
    struct chunk c;
    int rc;

    rec->len = 0;
    do {
        if ((rc = read_chunk(&c, w, next, err)) != 0)
            return rc;
        if (!c.data)
            return 0;
        if ((c.type == WHOLE || c.type == FIRST) != (next == *at))
            return ckpt_fail(err, CKPT_EFORMAT, "a chunk of type %u %s", c.type,
                             next == *at ? "begins a record" : "inside a record");
        if (c.len > rec->limit - rec->len)
            return ckpt_fail(err, CKPT_ELIMIT, "a record of more than %zu bytes", rec->limit);
        ckpt_buf_put(rec, c.data, c.len);
        if (!ckpt_buf_ok(rec))
            return ckpt_nomem(err, rec->len + c.len);
        next = c.next;
    } while (c.type == FIRST || c.type == MIDDLE);
    *at = next;
    return 0;
}

int wandb_read(struct run_log *log, struct ckpt_file *file, struct ckpt_err *err)
{
    struct run_log_window w = {.file = file};
    uint64_t at = CHUNK, before;
    struct ckpt_buf rec;
    unsigned char head[CHUNK];
    int rc;

    log->format = "wandb";
    ckpt_buf_init(&rec, (size_t)LOG_MAX_RECORD);
    ckpt_file_sequential(file);
    rc = ckpt_file_read_at(file, head, CHUNK, 0, err);
    if (rc == 0 && head[CHUNK - 1] != 0)
        rc = ckpt_fail(err, CKPT_EUNSUPPORTED, "version %u of the file format; 0 is read",
                       head[CHUNK - 1]);
    if (rc == 0)
        rc = wandb_record_begin(log, err);
    for (before = 0; rc == 0 && at != before;) {
        before = at;
        rc = read_record(&rec, &w, &at, err);
        if (rc == 0 && at != before)
            rc = wandb_record(log, rec.data, rec.len, err);
        if (rc)
            ckpt_err_in(err, "record %llu, at byte %llu", (unsigned long long)log->records + 1,
                        (unsigned long long)before);
        log->records += rc == 0 && at != before;
    }
    log->torn_bytes = ckpt_file_size(file) - at;
    run_log_window_release(&w);
    ckpt_buf_release(&rec);
    return rc;
}

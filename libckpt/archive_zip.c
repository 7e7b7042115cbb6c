/*
 * archive_zip - names in the central directory of a zip file, which libarchive does not tell: it
 * takes names from the headers before the members.  PKWARE APPNOTE 6.3.10, 4.3.12 to 4.3.16.
 *
 *   directory entry   "PK\1\2", 24 bytes, name length 2, extra length 2, comment length 2,
 *                     12 bytes, name, extra, comment
 *   end record        "PK\5\6", 6 bytes, entries 2, directory bytes 4, offset 4, comment 2 + n
 *   zip64 locator     20 bytes before the end record: "PK\6\7", 4 bytes, offset of the next 8
 *   zip64 end record  "PK\6\6", 28 bytes, entries 8, directory bytes 8, offset 8
 */
#include <string.h>

#include "libckpt/archive_index.h"
#include "libckpt/buf.h"

#define END_BYTES  22u
#define MAX_BEHIND (END_BYTES + 65535u)

/* Where the directory lies. */
struct where {
    uint64_t n, bytes, offset;
};

static int broken(struct ckpt_file *file, const char *what, struct ckpt_err *err)
{
    return ckpt_fail(err, CKPT_EFORMAT, "%s: damaged zip file: %s", ckpt_file_name(file), what);
}

/* The zip64 end record, when the locator before the end record at end names one. */
static int read_zip64(struct where *w, struct ckpt_file *file, uint64_t end, struct ckpt_err *err)
{
    unsigned char bytes[56];
    struct ckpt_cursor c;
    uint64_t at;

    if (end < 20)
        return broken(file, "no zip64 locator", err);
    if (ckpt_file_read_at(file, bytes, 20, end - 20, err))
        return err->code;
    if (memcmp(bytes, "PK\6\7", 4) != 0)
        return broken(file, "no zip64 locator", err);
    ckpt_cursor_init(&c, bytes + 8, 8);
    at = ckpt_get_u64le(&c);
    if (at > end - 20 || end - 20 - at < sizeof bytes)
        return broken(file, "the zip64 end record lies outside", err);
    if (ckpt_file_read_at(file, bytes, sizeof bytes, at, err))
        return err->code;
    if (memcmp(bytes, "PK\6\6", 4) != 0)
        return broken(file, "no zip64 end record", err);
    ckpt_cursor_init(&c, bytes + 32, 24);
    w->n = ckpt_get_u64le(&c);
    w->bytes = ckpt_get_u64le(&c);
    w->offset = ckpt_get_u64le(&c);
    return 0;
}

/* The one end record whose comment ends with the file. */
static int find_directory(struct where *w, struct ckpt_file *file, struct ckpt_err *err)
{
    uint64_t size = ckpt_file_size(file);
    size_t n = size < MAX_BEHIND ? (size_t)size : MAX_BEHIND, at, found = SIZE_MAX;
    unsigned char *tail = ckpt_alloc_buffer(n ? n : 1);
    struct ckpt_cursor c;
    int rc = tail ? ckpt_file_read_at(file, tail, n, size - n, err) : ckpt_nomem(err, n);

    for (at = 0; rc == 0 && at + END_BYTES <= n; at++)
        if (memcmp(tail + at, "PK\5\6", 4) == 0 &&
            n - at - END_BYTES == tail[at + 20] + 256u * tail[at + 21]) {
            if (found != SIZE_MAX)
                rc = broken(file, "two end records", err);
            found = at;
        }
    if (rc == 0 && found == SIZE_MAX)
        rc = broken(file, "no end record", err);
    if (rc == 0) {
        ckpt_cursor_init(&c, tail + found + 10, 10);
        w->n = ckpt_get_u16le(&c);
        w->bytes = ckpt_get_u32le(&c);
        w->offset = ckpt_get_u32le(&c);
        if (w->n == UINT16_MAX || w->bytes == UINT32_MAX || w->offset == UINT32_MAX)
            rc = read_zip64(w, file, size - n + found, err);
    }
    if (rc == 0 && (w->offset > size || w->bytes > size - w->offset ||
                    w->n > ARCHIVE_MAX_MEMBERS || w->n > w->bytes / 46))
        rc = broken(file, "the directory lies outside", err);
    ckpt_free(tail);
    return rc;
}

int archive_zip_names(const char ***out, size_t *n, struct ckpt_file *file,
                      struct ckpt_arena *arena, struct ckpt_err *err)
{
    unsigned char *bytes = NULL;
    struct ckpt_cursor c;
    struct where w;
    int rc = find_directory(&w, file, err);

    *out = NULL;
    *n = 0;
    if (rc == 0) {
        bytes = ckpt_alloc_buffer(w.bytes ? (size_t)w.bytes : 1);
        *out = ckpt_arena_alloc(arena, (size_t)w.n, sizeof **out);
        rc = bytes && *out ? ckpt_file_read_at(file, bytes, (size_t)w.bytes, w.offset, err)
                           : ckpt_nomem(err, (size_t)w.bytes);
    }
    if (rc == 0)
        ckpt_cursor_init(&c, bytes, (size_t)w.bytes);
    while (rc == 0 && *n < w.n) {
        const unsigned char *head = ckpt_get_bytes(&c, 46);
        size_t len = head ? head[28] + 256u * head[29] : 0;
        size_t rest = head ? head[30] + 256u * head[31] + head[32] + 256u * head[33] : 0;
        const unsigned char *name = ckpt_get_bytes(&c, len);

        ckpt_skip(&c, rest);
        if (c.failed || memcmp(head, "PK\1\2", 4) != 0 || memchr(name, 0, len))
            rc = broken(file, "its directory cannot be followed", err);
        else if (((*out)[*n] = ckpt_arena_strndup(arena, (const char *)name, len)) == NULL)
            rc = ckpt_nomem(err, len);
        else
            ++*n;
    }
    ckpt_free(bytes);
    return rc;
}

/*
 * archive_zip - the central directory of a zip file, which libarchive does not expose: it takes
 * names from the local headers before the members.  PKWARE APPNOTE 6.3.10, 4.3.7, 4.3.12 to
 * 4.3.16.
 *
 *   member            "PK\3\4", 2 bytes, flags 2, method 2, 8 bytes, packed 4, size 4, name
 *                     length 2, extra length 2, name, extra, bytes; when flag 8 is set, sizes
 *                     may be 0 there and follow the bytes
 *   directory entry   "PK\1\2", 24 bytes, name length 2, extra length 2, comment length 2,
 *                     12 bytes, name, extra, comment
 *   end record        "PK\5\6", 6 bytes, entries 2, directory bytes 4, offset 4, comment 2 + n
 *   zip64 locator     20 bytes before the end record: "PK\6\7", 4 bytes, offset of the next 8
 *   zip64 end record  "PK\6\6", 28 bytes, entries 8, directory bytes 8, offset 8
 */
#include <stdlib.h>
#include <string.h>

#include "libckpt/io/archive_index.h"
#include "libckpt/base/buf.h"

#define END_BYTES  22u
#define MAX_BEHIND (END_BYTES + 65535u)

/* Where the central directory lies. */
struct where {
    uint64_t n, bytes, offset;
};

static int broken(struct ckpt_file *file, const char *what, struct ckpt_err *err)
{
    return ckpt_fail(err, CKPT_EFORMAT, "%s: damaged zip file: %s", ckpt_file_name(file), what);
}

/* Read the zip64 end record, if the locator before the end record at end points to one. */
static int read_zip64(struct where *w, struct ckpt_file *file, uint64_t end, struct ckpt_err *err)
{
    unsigned char bytes[56];
    struct ckpt_cursor c;
    uint64_t at;
    int rc;

    if (end < 20)
        return broken(file, "no zip64 locator", err);
    if ((rc = ckpt_file_read_at(file, bytes, 20, end - 20, err)) != 0)
        return rc;
    if (memcmp(bytes, "PK\6\7", 4) != 0)
        return broken(file, "no zip64 locator", err);
    ckpt_cursor_init(&c, bytes + 8, 8);
    at = ckpt_cursor_u64le(&c);
    if (at > end - 20 || end - 20 - at < sizeof bytes)
        return broken(file, "the zip64 end record lies outside", err);
    if ((rc = ckpt_file_read_at(file, bytes, sizeof bytes, at, err)) != 0)
        return rc;
    if (memcmp(bytes, "PK\6\6", 4) != 0)
        return broken(file, "no zip64 end record", err);
    ckpt_cursor_init(&c, bytes + 32, 24);
    w->n = ckpt_cursor_u64le(&c);
    w->bytes = ckpt_cursor_u64le(&c);
    w->offset = ckpt_cursor_u64le(&c);
    return 0;
}

/* Find the end record whose comment ends exactly at the end of the file; there must be one only. */
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
        w->n = ckpt_cursor_u16le(&c);
        w->bytes = ckpt_cursor_u32le(&c);
        w->offset = ckpt_cursor_u32le(&c);
        if (w->n == UINT16_MAX || w->bytes == UINT32_MAX || w->offset == UINT32_MAX)
            rc = read_zip64(w, file, size - n + found, err);
    }
    if (rc == 0 && (w->offset > size || w->bytes > size - w->offset ||
                    w->n > ARCHIVE_MAX_MEMBERS || w->n > w->bytes / 46))
        rc = broken(file, "the directory lies outside", err);
    ckpt_free(tail);
    return rc;
}

/*
 * An 8-byte zip64 field that replaces a 4-byte field of all ones: number skip of the zip64 block
 * of the extra fields.  False when it is absent.
 */
static bool wide(uint64_t *out, const unsigned char *extra, size_t n, size_t skip)
{
    struct ckpt_cursor c;

    ckpt_cursor_init(&c, extra, n);
    while (!c.failed) {
        unsigned id = ckpt_cursor_u16le(&c), len = ckpt_cursor_u16le(&c);
        const unsigned char *block = ckpt_cursor_bytes(&c, len);
        struct ckpt_cursor in;

        if (!block)
            return false;
        if (id != 1)
            continue;
        ckpt_cursor_init(&in, block, len);
        ckpt_cursor_skip(&in, 8 * skip);
        *out = ckpt_cursor_u64le(&in);
        return !in.failed;
    }
    return false;
}

/* Parse an entry of the directory.  False when zip64 fields that it needs are absent. */
static bool entry_of(struct archive_zip_entry *e, const unsigned char *head,
                     const unsigned char *extra, size_t n_extra)
{
    struct ckpt_cursor c;
    uint64_t size;
    size_t k = 0;

    ckpt_cursor_init(&c, head, 46);
    ckpt_cursor_skip(&c, 8);
    e->flags = ckpt_cursor_u16le(&c);
    e->method = ckpt_cursor_u16le(&c);
    ckpt_cursor_skip(&c, 8);
    e->packed = ckpt_cursor_u32le(&c);
    size = ckpt_cursor_u32le(&c);
    ckpt_cursor_skip(&c, 14);
    e->offset = ckpt_cursor_u32le(&c);
    k += size == UINT32_MAX;
    if (e->packed == UINT32_MAX && !wide(&e->packed, extra, n_extra, k++))
        return false;
    return e->offset != UINT32_MAX || wide(&e->offset, extra, n_extra, k);
}

int archive_zip_list(struct archive_zip *z, struct ckpt_file *file, struct ckpt_arena *arena,
                     struct ckpt_err *err)
{
    unsigned char *bytes = NULL;
    struct ckpt_cursor c;
    struct where w;
    int rc = find_directory(&w, file, err);

    *z = (struct archive_zip){0};
    if (rc == 0) {
        bytes = ckpt_alloc_buffer(w.bytes ? (size_t)w.bytes : 1);
        z->entry = ckpt_arena_alloc(arena, (size_t)w.n, sizeof *z->entry);
        z->directory = w.offset;
        rc = bytes && z->entry ? ckpt_file_read_at(file, bytes, (size_t)w.bytes, w.offset, err)
                               : ckpt_nomem(err, (size_t)w.bytes);
    }
    if (rc == 0)
        ckpt_cursor_init(&c, bytes, (size_t)w.bytes);
    while (rc == 0 && z->n < w.n) {
        struct archive_zip_entry *e = &z->entry[z->n];
        const unsigned char *head = ckpt_cursor_bytes(&c, 46);
        size_t len = head ? head[28] + 256u * head[29] : 0;
        size_t n_extra = head ? head[30] + 256u * head[31] : 0;
        const unsigned char *name = ckpt_cursor_bytes(&c, len);
        const unsigned char *extra = ckpt_cursor_bytes(&c, n_extra);

        ckpt_cursor_skip(&c, head ? head[32] + 256u * head[33] : 0);
        if (!head || c.failed || memcmp(head, "PK\1\2", 4) != 0 || memchr(name, 0, len) ||
            !entry_of(e, head, extra, n_extra))
            rc = broken(file, "its directory cannot be followed", err);
        else if ((e->name = ckpt_arena_strndup(arena, (const char *)name, len)) == NULL)
            rc = ckpt_nomem(err, len);
        else
            z->n++;
    }
    ckpt_free(bytes);
    return rc;
}

/* -- the headers before the members ---------------------------------------------------------- */

#define HEAD_BYTES 30u

/* The gap between members may hold a data descriptor or padding, but not another local header. */
static int check_gap(bool *same, struct ckpt_file *file, uint64_t from, uint64_t to,
                     struct ckpt_err *err)
{
    int rc;

    CKPT_UNSET unsigned char piece[4096];

    while (*same && from < to && to - from >= 4) {
        size_t n = to - from < sizeof piece ? (size_t)(to - from) : sizeof piece;

        if ((rc = ckpt_file_read_at(file, piece, n, from, err)) != 0)
            return rc;
        *same = memmem(piece, n, "PK\3\4", 4) == NULL;
        from += n - 3;
    }
    return 0;
}

/* The local header must agree with the directory.  *end: the end of the member's bytes. */
static int check_head(bool *same, uint64_t *end, struct ckpt_file *file,
                      const struct archive_zip_entry *e, uint64_t limit, struct ckpt_err *err)
{
    size_t len = strlen(e->name), n_extra;
    unsigned char head[HEAD_BYTES], *rest;
    uint64_t packed, left;
    struct ckpt_cursor c;
    int rc;

    if (e->offset > limit || limit - e->offset < HEAD_BYTES + len) {
        *same = false;
        return 0;
    }
    if ((rc = ckpt_file_read_at(file, head, sizeof head, e->offset, err)) != 0)
        return rc;
    n_extra = head[28] + 256u * head[29];
    left = limit - e->offset - HEAD_BYTES - len;
    *same = memcmp(head, "PK\3\4", 4) == 0 && head[26] + 256u * head[27] == len &&
            (head[6] & 9u) == (e->flags & 9u) && head[8] + 256u * head[9] == e->method &&
            n_extra <= left && e->packed <= left - n_extra;
    if (!*same)
        return 0;
    rest = ckpt_alloc_buffer(len + n_extra + 1);
    if (!rest)
        return ckpt_nomem(err, len + n_extra);
    rc = ckpt_file_read_at(file, rest, len + n_extra, e->offset + HEAD_BYTES, err);
    ckpt_cursor_init(&c, head + 18, 4);
    packed = ckpt_cursor_u32le(&c);
    if (rc == 0 && packed == UINT32_MAX)  /* zip64: both sizes are in the extra field, or neither */
        *same = wide(&packed, rest + len, n_extra, 1);
    *same = *same && rc == 0 && memcmp(rest, e->name, len) == 0 &&
            (packed == e->packed || (e->flags & 8u && packed == 0));
    *end = e->offset + HEAD_BYTES + len + n_extra + e->packed;
    ckpt_free(rest);
    return rc;
}

static int by_offset(const void *a, const void *b)
{
    const struct archive_zip_entry *x = a, *y = b;

    return x->offset != y->offset ? (x->offset < y->offset ? -1 : 1) : 0;
}

int archive_zip_headers(bool *same, struct archive_zip *z, struct ckpt_file *file,
                        struct ckpt_err *err)
{
    uint64_t at = 0;
    int rc = 0;

    *same = true;
    if (z->n)
        qsort(z->entry, z->n, sizeof *z->entry, by_offset);
    for (size_t i = 0; rc == 0 && *same && i < z->n; i++) {
        const struct archive_zip_entry *e = &z->entry[i];

        *same = e->offset >= at;
        if (*same)
            rc = check_gap(same, file, at, e->offset, err);
        if (rc == 0 && *same)
            rc = check_head(same, &at, file, e, z->directory, err);
    }
    return rc == 0 && *same ? check_gap(same, file, at, z->directory, err) : rc;
}

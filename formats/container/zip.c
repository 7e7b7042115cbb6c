/* zip - see zip.h. */
#include "formats/container/zip.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "libckpt/buf.h"
#include "libckpt/map.h"

#define BIG          0xffffffffu
#define END_BYTES    22u
#define MAX_DIR      ((uint64_t)1 << 30)

struct end {
    uint64_t n, bytes, offset;  /* entries, size and place of the directory */
    uint64_t limit;             /* where the first end record begins: payloads stay below */
};

/* A member with what only the checks need. */
struct raw {
    struct zip_entry e;
    const char      *full;
    uint64_t         header;
    uint16_t         flags;
};

static int bad(struct ckpt_err *err, const char *what)
{
    return ckpt_fail(err, CKPT_EFORMAT, "zip: %s", what);
}

/* The zip64 end record that the locator at `at` points to. */
static int read_zip64(struct end *end, struct ckpt_file *file, uint64_t at, struct ckpt_err *err)
{
    unsigned char raw[56];
    struct ckpt_cursor c;
    uint64_t where;

    if (ckpt_file_read_at(file, raw, 20, at, err))
        return err->code;
    ckpt_cursor_init(&c, raw, 20);
    if (ckpt_get_u32le(&c) != 0x07064b50)
        return 0;                       /* no locator: the classic record stands */
    ckpt_skip(&c, 4);
    where = ckpt_get_u64le(&c);
    if (where > at || at - where < sizeof raw)
        return bad(err, "the zip64 locator points nowhere");
    if (ckpt_file_read_at(file, raw, sizeof raw, where, err))
        return err->code;
    ckpt_cursor_init(&c, raw, sizeof raw);
    if (ckpt_get_u32le(&c) != 0x06064b50)
        return bad(err, "no zip64 end record where the locator points");
    if (ckpt_get_u64le(&c) != at - where - 12)
        return bad(err, "the zip64 end record has another size than it says");
    ckpt_skip(&c, 12);
    end->n = ckpt_get_u64le(&c);
    if (ckpt_get_u64le(&c) != end->n)
        return bad(err, "the archive spans several disks");
    end->bytes = ckpt_get_u64le(&c);
    end->offset = ckpt_get_u64le(&c);
    end->limit = where;
    return 0;
}

static int read_end(struct end *end, struct ckpt_file *file, struct ckpt_err *err)
{
    uint64_t size = ckpt_file_size(file);
    unsigned char raw[END_BYTES];
    struct ckpt_cursor c;
    uint16_t comment;

    if (size < END_BYTES)
        return bad(err, "too short for an end record");
    /* torch writes no comment; an archive with one is read only if it ends the file exactly. */
    if (ckpt_file_read_at(file, raw, END_BYTES, size - END_BYTES, err))
        return err->code;
    ckpt_cursor_init(&c, raw, END_BYTES);
    if (ckpt_get_u32le(&c) != 0x06054b50)
        return ckpt_fail_as(err, CKPT_EFORMAT, "truncated",
                            "zip: the file does not end in an end record: cut off, or something "
                            "follows it");
    if (ckpt_get_u32le(&c) != 0)
        return bad(err, "the archive spans several disks");
    end->n = ckpt_get_u16le(&c);
    if (ckpt_get_u16le(&c) != end->n)
        return bad(err, "the archive spans several disks");
    end->bytes = ckpt_get_u32le(&c);
    end->offset = ckpt_get_u32le(&c);
    comment = ckpt_get_u16le(&c);
    end->limit = size - END_BYTES;
    if (comment)
        return bad(err, "the end record has a comment that is not there");
    if (size >= END_BYTES + 20 && read_zip64(end, file, size - END_BYTES - 20, err))
        return err->code;
    if (end->offset > end->limit || end->bytes > end->limit - end->offset)
        return bad(err, "the central directory lies outside the file");
    if (end->offset + end->bytes != end->limit)
        return bad(err, "something lies between the central directory and its end record");
    if (end->n > ZIP_MAX_MEMBERS || end->bytes > MAX_DIR)
        return ckpt_fail(err, CKPT_ELIMIT, "zip: %llu members, %u at most",
                         (unsigned long long)end->n, ZIP_MAX_MEMBERS);
    return 0;
}

/* Fields that overflowed, from a zip64 block in the extra field. */
static int read_extra(struct raw *m, uint64_t *packed, struct ckpt_cursor extra,
                      struct ckpt_err *err)
{
    while (ckpt_cursor_left(&extra) >= 4) {
        uint16_t id = ckpt_get_u16le(&extra), n = ckpt_get_u16le(&extra);
        struct ckpt_cursor c;

        if (n > ckpt_cursor_left(&extra))
            return bad(err, "an extra field is longer than its place");
        ckpt_cursor_init(&c, extra.base + extra.pos, n);
        ckpt_skip(&extra, n);
        if (id != 1)
            continue;
        if (m->e.size == BIG)
            m->e.size = ckpt_get_u64le(&c);
        if (*packed == BIG)
            *packed = ckpt_get_u64le(&c);
        if (m->header == BIG)
            m->header = ckpt_get_u64le(&c);
        if (c.failed)
            return bad(err, "a zip64 block is too short");
    }
    return 0;
}

static int read_entry(struct zip *z, struct raw *m, struct ckpt_cursor *c, struct ckpt_err *err)
{
    const unsigned char *name;
    struct ckpt_cursor extra;
    uint16_t method, n_name, n_extra, n_comment;
    uint64_t packed;

    if (ckpt_get_u32le(c) != 0x02014b50)
        return bad(err, "a directory entry has no signature");
    ckpt_skip(c, 4);
    m->flags = ckpt_get_u16le(c);
    method = ckpt_get_u16le(c);
    ckpt_skip(c, 4);
    m->e.crc = ckpt_get_u32le(c);
    packed = ckpt_get_u32le(c);
    m->e.size = ckpt_get_u32le(c);
    n_name = ckpt_get_u16le(c);
    n_extra = ckpt_get_u16le(c);
    n_comment = ckpt_get_u16le(c);
    ckpt_skip(c, 8);
    m->header = ckpt_get_u32le(c);
    name = ckpt_get_bytes(c, n_name);
    ckpt_cursor_init(&extra, c->base + c->pos, ckpt_cursor_left(c) < n_extra ? 0 : n_extra);
    ckpt_skip(c, n_extra);
    ckpt_skip(c, n_comment);
    if (c->failed || !name)
        return bad(err, "the central directory ends inside an entry");
    if (n_name == 0 || n_name > ZIP_MAX_NAME || !ckpt_utf8_valid(name, n_name))
        return bad(err, "a member's name is empty, too long or no UTF-8");
    m->full = ckpt_arena_strndup(&z->arena, (const char *)name, n_name);
    if (!m->full)
        return ckpt_nomem(err, n_name);
    if (read_extra(m, &packed, extra, err))
        return err->code;
    if (m->flags & 1)
        return ckpt_fail(err, CKPT_EUNSUPPORTED, "zip: %s: encrypted", m->full);
    if (method != 0)
        return ckpt_fail(err, CKPT_EUNSUPPORTED,
                         "zip: %s: compressed (method %u), as TorchScript archives have it",
                         m->full, method);
    if (packed != m->e.size)
        return ckpt_fail(err, CKPT_EFORMAT, "zip: %s: stored, but its two sizes differ", m->full);
    return 0;
}

/* Same characters, case apart, give the same key. */
static char *folded(struct ckpt_arena *a, const char *s)
{
    char *copy = ckpt_arena_strndup(a, s, strlen(s));

    for (char *p = copy; p && *p; p++)
        *p = (char)tolower((unsigned char)*p);
    return copy;
}

/* Names are clean, in one folder, and different. */
static int check_names(struct zip *z, struct raw *raw, size_t n, struct ckpt_err *err)
{
    const char *slash = n ? strchr(raw[0].full, '/') : NULL;
    size_t top = slash ? (size_t)(slash - raw[0].full) : 0;
    struct ckpt_map *seen = NULL;
    int rc = ckpt_map_new(&seen, n, err);

    if (rc == 0 && (top == 0 || !(z->top = ckpt_arena_strndup(&z->arena, raw[0].full, top))))
        rc = bad(err, "members lie in no common folder");
    for (size_t i = 0; rc == 0 && i < n; i++) {
        const char *rest = raw[i].full + top + 1;
        char *key = folded(&z->arena, raw[i].full);

        if (!key)
            rc = ckpt_nomem(err, strlen(raw[i].full));
        else if (strncmp(raw[i].full, raw[0].full, top + 1) != 0)
            rc = ckpt_fail(err, CKPT_EFORMAT, "zip: %s: not in the folder %s", raw[i].full, z->top);
        else if (strstr(raw[i].full, "..") || raw[i].full[0] == '/' || strchr(raw[i].full, '\\') ||
                 !*rest)
            rc = ckpt_fail_as(err, CKPT_EREFUSED, "refused-path", "zip: %s: no clean name",
                              raw[i].full);
        else if (ckpt_map_add(seen, key, strlen(key), i, err))
            rc = ckpt_err_in(err, "zip");
        raw[i].e.name = rest;
    }
    ckpt_map_free(seen);
    return rc;
}

/* A descriptor behind the payload: 16 or 24 bytes.  *end moves behind it. */
static int check_descriptor(const struct zip *z, const struct raw *m, uint64_t *end,
                            uint64_t limit, struct ckpt_err *err)
{
    unsigned char raw[24];
    struct ckpt_cursor c;
    uint64_t n = limit - *end < 24 ? limit - *end : 24;
    uint32_t crc;

    if (ckpt_file_read_at(z->file, raw, (size_t)n, *end, err))
        return err->code;
    ckpt_cursor_init(&c, raw, (size_t)n);
    if (ckpt_get_u32le(&c) != 0x08074b50)
        return ckpt_fail(err, CKPT_EFORMAT, "zip: %s: no data descriptor behind it", m->full);
    crc = ckpt_get_u32le(&c);
    if (m->e.size < BIG && ckpt_get_u32le(&c) == m->e.size && ckpt_get_u32le(&c) == m->e.size) {
        *end += 16;
    } else {
        ckpt_cursor_init(&c, raw, (size_t)n);
        ckpt_skip(&c, 8);
        if (ckpt_get_u64le(&c) != m->e.size || ckpt_get_u64le(&c) != m->e.size)
            return ckpt_fail(err, CKPT_EFORMAT,
                             "zip: %s: its data descriptor says another size", m->full);
        *end += 24;
    }
    if (c.failed || crc != m->e.crc)
        return ckpt_fail(err, CKPT_EFORMAT, "zip: %s: its data descriptor says another checksum",
                         m->full);
    return 0;
}

/* The local header agrees with the directory; finds the payload; *end: behind the member. */
static int check_local(const struct zip *z, struct raw *m, uint64_t limit, uint64_t *end,
                       struct ckpt_err *err)
{
    unsigned char raw[30], name[ZIP_MAX_NAME];
    struct ckpt_cursor c;
    uint16_t flags, method, n_name, n_extra;
    uint32_t crc, packed, size;

    if (m->header > limit || limit - m->header < sizeof raw)
        return ckpt_fail(err, CKPT_EFORMAT, "zip: %s: its header lies outside the file", m->full);
    if (ckpt_file_read_at(z->file, raw, sizeof raw, m->header, err))
        return err->code;
    ckpt_cursor_init(&c, raw, sizeof raw);
    if (ckpt_get_u32le(&c) != 0x04034b50)
        return ckpt_fail(err, CKPT_EFORMAT, "zip: %s: no local header at %llu", m->full,
                         (unsigned long long)m->header);
    ckpt_skip(&c, 2);
    flags = ckpt_get_u16le(&c);
    method = ckpt_get_u16le(&c);
    ckpt_skip(&c, 4);
    crc = ckpt_get_u32le(&c);
    packed = ckpt_get_u32le(&c);
    size = ckpt_get_u32le(&c);
    n_name = ckpt_get_u16le(&c);
    n_extra = ckpt_get_u16le(&c);
    if (flags != m->flags || method != 0 || n_name != strlen(m->full))
        return ckpt_fail(err, CKPT_EFORMAT, "zip: %s: local header and directory differ", m->full);
    m->e.offset = m->header + sizeof raw + n_name + n_extra;
    if (m->e.offset > limit || m->e.size > limit - m->e.offset)
        return ckpt_fail_as(err, CKPT_EFORMAT, "truncated",
                            "zip: %s: %llu bytes at %llu pass the directory", m->full,
                            (unsigned long long)m->e.size, (unsigned long long)m->e.offset);
    if (ckpt_file_read_at(z->file, name, n_name, m->header + sizeof raw, err))
        return err->code;
    if (memcmp(name, m->full, n_name) != 0)
        return ckpt_fail_as(err, CKPT_EFORMAT, "ambiguous",
                            "zip: %s: its local header has another name", m->full);
    *end = m->e.offset + m->e.size;
    if (flags & 8) {
        if ((crc && crc != m->e.crc) || (packed && packed != m->e.size && packed != BIG) ||
            (size && size != m->e.size && size != BIG))
            return ckpt_fail(err, CKPT_EFORMAT, "zip: %s: local header and directory differ",
                             m->full);
        return check_descriptor(z, m, end, limit, err);
    }
    if ((size != m->e.size || packed != m->e.size) && size != BIG)
        return ckpt_fail(err, CKPT_EFORMAT, "zip: %s: local header and directory differ in size",
                         m->full);
    return crc == m->e.crc ? 0 : ckpt_fail(err, CKPT_EFORMAT,
                                           "zip: %s: local header and directory differ in checksum",
                                           m->full);
}

static int by_header(const void *a, const void *b)
{
    uint64_t x = ((const struct raw *)a)->header, y = ((const struct raw *)b)->header;

    return x < y ? -1 : x > y ? 1 : 0;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct zip_entry *)a)->name, ((const struct zip_entry *)b)->name);
}

/* Read all members, check them against their local headers and each other. */
static int read_members(struct zip *z, const struct end *end, struct raw *raw,
                        struct ckpt_cursor *c, struct ckpt_err *err)
{
    uint64_t last = 0, behind;

    for (uint64_t i = 0; i < end->n; i++)
        if (read_entry(z, &raw[i], c, err))
            return err->code;
    if (ckpt_cursor_left(c) != 0)
        return bad(err, "the central directory has more bytes than entries");
    if (check_names(z, raw, (size_t)end->n, err))
        return err->code;
    qsort(raw, (size_t)end->n, sizeof *raw, by_header);
    for (uint64_t i = 0; i < end->n; i++) {
        if (raw[i].header < last)
            return ckpt_fail_as(err, CKPT_EFORMAT, "overlap", "zip: %s: overlaps the member before "
                                "it", raw[i].full);
        if (check_local(z, &raw[i], end->offset, &behind, err))
            return err->code;
        last = behind;
        z->entry[i] = raw[i].e;
    }
    z->n = (size_t)end->n;
    qsort(z->entry, z->n, sizeof *z->entry, by_name);
    return 0;
}

int zip_open(struct zip *z, struct ckpt_file *file, struct ckpt_err *err)
{
    struct ckpt_arena scratch = {0};
    struct ckpt_cursor c;
    struct raw *raw = NULL;
    struct end end = {0};
    char *dir;
    int rc;

    memset(z, 0, sizeof *z);
    z->file = file;
    rc = read_end(&end, file, err);
    /* An entry has 46 bytes at least: a count that cannot be is found before it is believed. */
    if (rc == 0 && end.n > end.bytes / 46)
        rc = bad(err, "more members than the central directory can hold");
    if (rc == 0 && end.n == 0)
        rc = bad(err, "the archive is empty");
    if (rc == 0) {
        dir = ckpt_arena_alloc(&scratch, (size_t)end.bytes, 1);
        raw = ckpt_arena_alloc(&scratch, (size_t)end.n, sizeof *raw);
        z->entry = ckpt_arena_alloc(&z->arena, (size_t)end.n, sizeof *z->entry);
        if (!dir || !raw || !z->entry)
            rc = ckpt_nomem(err, (size_t)end.bytes);
    }
    if (rc == 0)
        rc = ckpt_file_read_at(file, dir, (size_t)end.bytes, end.offset, err);
    if (rc == 0) {
        ckpt_cursor_init(&c, dir, (size_t)end.bytes);
        rc = read_members(z, &end, raw, &c, err);
    }
    ckpt_arena_release(&scratch);
    if (rc)
        zip_release(z);
    return rc;
}

void zip_release(struct zip *z)
{
    ckpt_arena_release(&z->arena);
    memset(z, 0, sizeof *z);
}

const struct zip_entry *zip_find(const struct zip *z, const char *name)
{
    struct zip_entry key = {.name = name};

    return z->n ? bsearch(&key, z->entry, z->n, sizeof *z->entry, by_name) : NULL;
}

int zip_slurp(const struct zip *z, const struct zip_entry *e, struct ckpt_arena *arena,
              uint64_t limit, char **out, struct ckpt_err *err)
{
    uLong crc = crc32(0, NULL, 0);

    *out = NULL;
    if (e->size > limit)
        return ckpt_fail(err, CKPT_ELIMIT, "zip: %s: %llu bytes, %llu at most", e->name,
                         (unsigned long long)e->size, (unsigned long long)limit);
    *out = ckpt_arena_alloc(arena, (size_t)e->size + 1, 1);
    if (!*out)
        return ckpt_nomem(err, (size_t)e->size + 1);
    if (ckpt_file_read_at(z->file, *out, (size_t)e->size, e->offset, err))
        return err->code;
    crc = crc32(crc, (const unsigned char *)*out, (uInt)e->size);
    if (e->crc != (uint32_t)crc)
        return ckpt_fail_as(err, CKPT_EFORMAT, "digest", "zip: %s: its checksum does not fit "
                            "(torch can be told not to write one)", e->name);
    return 0;
}

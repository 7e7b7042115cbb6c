/* zip - see zip.h. */
#include "formats/container/zip.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "libckpt/base/buf.h"
#include "libckpt/base/crc32.h"
#include "libckpt/base/map.h"

#define BIG          0xffffffffu
#define END_BYTES    22u
#define LOCAL_BYTES  30u         /* of a local header, without name and extra field */
#define MAX_DIR      ((uint64_t)1 << 30)

struct end {
    uint64_t n, bytes, offset;  /* entries, size and place of the directory */
    uint64_t limit;             /* offset of the first end record, which payloads must not exceed */
};

/* A member, with fields that only the checks need. */
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

static int fault(struct ckpt_err *err, const char *name, const char *what)
{
    return ckpt_fail(err, CKPT_EFORMAT, "zip: %s: %s", name, what);
}

/* The zip64 end record that the locator at `at` points to. */
static int read_zip64(struct end *end, struct ckpt_file *file, uint64_t at, struct ckpt_err *err)
{
    unsigned char raw[56];
    struct ckpt_cursor c;
    uint64_t where;
    int rc;

    if ((rc = ckpt_file_read_at(file, raw, 20, at, err)) != 0)
        return rc;
    ckpt_cursor_init(&c, raw, 20);
    if (ckpt_cursor_u32le(&c) != 0x07064b50)
        return 0;                       /* no locator: the classic record is valid */
    ckpt_cursor_skip(&c, 4);
    where = ckpt_cursor_u64le(&c);
    if (where > at || at - where < sizeof raw)
        return bad(err, "the zip64 locator points nowhere");
    if ((rc = ckpt_file_read_at(file, raw, sizeof raw, where, err)) != 0)
        return rc;
    ckpt_cursor_init(&c, raw, sizeof raw);
    if (ckpt_cursor_u32le(&c) != 0x06064b50)
        return bad(err, "no zip64 end record where the locator points");
    if (ckpt_cursor_u64le(&c) != at - where - 12)
        return bad(err, "the zip64 end record has another size than it says");
    ckpt_cursor_skip(&c, 12);
    end->n = ckpt_cursor_u64le(&c);
    if (ckpt_cursor_u64le(&c) != end->n)
        return bad(err, "the archive spans several disks");
    end->bytes = ckpt_cursor_u64le(&c);
    end->offset = ckpt_cursor_u64le(&c);
    end->limit = where;
    return 0;
}

static int read_end(struct end *end, struct ckpt_file *file, struct ckpt_err *err)
{
    uint64_t size = ckpt_file_size(file);
    unsigned char raw[END_BYTES];
    struct ckpt_cursor c;
    uint16_t comment;
    int rc;

    if (size < END_BYTES)
        return bad(err, "too short for an end record");
    /* torch writes no comment; an archive with one is accepted only if the comment ends the
     * file. */
    if ((rc = ckpt_file_read_at(file, raw, END_BYTES, size - END_BYTES, err)) != 0)
        return rc;
    ckpt_cursor_init(&c, raw, END_BYTES);
    if (ckpt_cursor_u32le(&c) != 0x06054b50)
        return ckpt_fail_as(err, CKPT_EFORMAT, "truncated",
                            "zip: the file does not end in an end record: cut off, or something "
                            "follows it");
    if (ckpt_cursor_u32le(&c) != 0)
        return bad(err, "the archive spans several disks");
    end->n = ckpt_cursor_u16le(&c);
    if (ckpt_cursor_u16le(&c) != end->n)
        return bad(err, "the archive spans several disks");
    end->bytes = ckpt_cursor_u32le(&c);
    end->offset = ckpt_cursor_u32le(&c);
    comment = ckpt_cursor_u16le(&c);
    end->limit = size - END_BYTES;
    if (comment)
        return bad(err, "the end record has a comment that is not there");
    if (size >= END_BYTES + 20 && (rc = read_zip64(end, file, size - END_BYTES - 20, err)) != 0)
        return rc;
    if (end->offset > end->limit || end->bytes > end->limit - end->offset)
        return bad(err, "the central directory lies outside the file");
    if (end->offset + end->bytes != end->limit)
        return bad(err, "something lies between the central directory and its end record");
    if (end->n > ZIP_MAX_MEMBERS || end->bytes > MAX_DIR)
        return ckpt_fail(err, CKPT_ELIMIT, "zip: %llu members, %u at most",
                         (unsigned long long)end->n, ZIP_MAX_MEMBERS);
    return 0;
}

/* Read fields that overflowed from the zip64 block of an extra field; header may be NULL. */
static int read_extra(const char *name, uint64_t *size, uint64_t *packed, uint64_t *header,
                      struct ckpt_cursor extra, struct ckpt_err *err)
{
    bool seen = false;

    while (ckpt_cursor_left(&extra) >= 4) {
        uint16_t id = ckpt_cursor_u16le(&extra), n = ckpt_cursor_u16le(&extra);
        struct ckpt_cursor c;

        if (n > ckpt_cursor_left(&extra))
            return fault(err, name, "an extra field is longer than its place");
        ckpt_cursor_init(&c, extra.base + extra.pos, n);
        ckpt_cursor_skip(&extra, n);
        if (id != 1)
            continue;
        if (seen)                       /* readers disagree on which of two they use */
            return fault(err, name, "two zip64 blocks");
        seen = true;
        if (*size == BIG)
            *size = ckpt_cursor_u64le(&c);
        if (*packed == BIG)
            *packed = ckpt_cursor_u64le(&c);
        if (header && *header == BIG)
            *header = ckpt_cursor_u64le(&c);
        if (c.failed)
            return fault(err, name, "its zip64 block is too short");
    }
    return 0;
}

/* Whether a member is one that TorchScript deflates, and that is not read here:
 * <folder>/code/... */
static bool is_code(const char *full)
{
    const char *slash = strchr(full, '/');

    return slash && strncmp(slash, "/code/", 6) == 0;
}

static int read_entry(struct zip *z, struct raw *m, struct ckpt_cursor *c, struct ckpt_err *err)
{
    const unsigned char *name;
    struct ckpt_cursor extra;
    uint16_t method, n_name, n_extra, n_comment;
    uint64_t packed;
    int rc;

    if (ckpt_cursor_u32le(c) != 0x02014b50)
        return bad(err, "a directory entry has no signature");
    ckpt_cursor_skip(c, 4);
    m->flags = ckpt_cursor_u16le(c);
    method = ckpt_cursor_u16le(c);
    ckpt_cursor_skip(c, 4);
    m->e.crc = ckpt_cursor_u32le(c);
    packed = ckpt_cursor_u32le(c);
    m->e.plain = ckpt_cursor_u32le(c);
    n_name = ckpt_cursor_u16le(c);
    n_extra = ckpt_cursor_u16le(c);
    n_comment = ckpt_cursor_u16le(c);
    ckpt_cursor_skip(c, 8);
    m->header = ckpt_cursor_u32le(c);
    name = ckpt_cursor_bytes(c, n_name);
    ckpt_cursor_init(&extra, c->base + c->pos, ckpt_cursor_left(c) < n_extra ? 0 : n_extra);
    ckpt_cursor_skip(c, n_extra);
    ckpt_cursor_skip(c, n_comment);
    if (c->failed || !name)
        return bad(err, "the central directory ends inside an entry");
    if (n_name == 0 || n_name > ZIP_MAX_NAME || !ckpt_utf8_valid(name, n_name))
        return bad(err, "a member's name is empty, too long or no UTF-8");
    m->full = ckpt_arena_strndup(&z->arena, (const char *)name, n_name);
    if (!m->full)
        return ckpt_nomem(err, n_name);
    if ((rc = read_extra(m->full, &m->e.plain, &packed, &m->header, extra, err)) != 0)
        return rc;
    if (m->flags & 0x2041)             /* encrypted, strongly encrypted, masked headers */
        return ckpt_fail(err, CKPT_EUNSUPPORTED, "zip: %s: encrypted", m->full);
    m->e.size = packed;
    m->e.deflated = method == 8 && is_code(m->full);
    if (method != 0 && !m->e.deflated)
        return ckpt_fail(err, CKPT_EUNSUPPORTED, "zip: %s: compressed (method %u)", m->full,
                         method);
    if (!m->e.deflated && packed != m->e.plain)
        return ckpt_fail(err, CKPT_EFORMAT, "zip: %s: stored, but its two sizes differ", m->full);
    return 0;
}

/* A key that is equal for names that differ in case only. */
static char *folded(struct ckpt_arena *a, const char *s)
{
    char *copy = ckpt_arena_strndup(a, s, strlen(s));

    for (char *p = copy; p && *p; p++)
        *p = (char)tolower((unsigned char)*p);
    return copy;
}

/* Components joined by "/", none empty, "." or "..": safe below a folder on any system. */
static bool is_clean(const char *name)
{
    for (const char *p = name;; p++) {
        size_t n = strcspn(p, "/\\");

        if (n == 0 || (n <= 2 && strncmp(p, "..", n) == 0) || p[n] == '\\')
            return false;
        if (!*(p += n))
            return true;
    }
}

/* Check that names are clean, in one folder, and distinct. */
static int check_names(struct zip *z, struct raw *raw, size_t n, struct ckpt_err *err)
{
    const char *slash = n ? strchr(raw[0].full, '/') : NULL;
    size_t top = slash ? (size_t)(slash - raw[0].full) : 0;
    struct ckpt_map *seen = NULL;
    int rc = ckpt_map_new(&seen, n, err);

    for (size_t i = 0; rc == 0 && i < n; i++)
        if (!is_clean(raw[i].full))
            rc = ckpt_fail_as(err, CKPT_EREFUSED, "refused-path", "zip: %s: no clean name",
                              raw[i].full);
    if (rc == 0 && (top == 0 || !(z->top = ckpt_arena_strndup(&z->arena, raw[0].full, top))))
        rc = bad(err, "members lie in no common folder");
    for (size_t i = 0; rc == 0 && i < n; i++) {
        const char *rest = raw[i].full + top + 1;
        char *key = folded(&z->arena, raw[i].full);

        if (!key)
            rc = ckpt_nomem(err, strlen(raw[i].full));
        else if (strncmp(raw[i].full, raw[0].full, top + 1) != 0)
            rc = ckpt_fail(err, CKPT_EFORMAT, "zip: %s: not in the folder %s", raw[i].full, z->top);
        else if (ckpt_map_add(seen, key, strlen(key), i, err))
            rc = ckpt_err_in(err, "zip");
        raw[i].e.name = rest;
    }
    ckpt_map_free(seen);
    return rc;
}

/* Check the descriptor after m's payload, which fills the n bytes at p: 16 or 24 bytes, or none. */
static int check_descriptor(const struct raw *m, const unsigned char *p, size_t n,
                            struct ckpt_err *err)
{
    struct ckpt_cursor c;
    uint64_t packed, size;
    uint32_t crc;

    /* Only descriptors may lie between members: some readers would find other bytes. */
    if (n == 0 && ((m->flags & 8) == 0 || m->e.size == 0))
        return 0;
    if (n != 0 && (m->flags & 8) == 0)
        return fault(err, m->full, "bytes after it belong to no member");
    ckpt_cursor_init(&c, p, n);
    if (ckpt_cursor_u32le(&c) != 0x08074b50 || (n != 16 && n != 24))
        return fault(err, m->full, "no data descriptor after it, or more than that");
    crc = ckpt_cursor_u32le(&c);
    packed = n == 16 ? ckpt_cursor_u32le(&c) : ckpt_cursor_u64le(&c);
    size = n == 16 ? ckpt_cursor_u32le(&c) : ckpt_cursor_u64le(&c);
    if (packed != m->e.size || size != m->e.plain)
        return fault(err, m->full, "its data descriptor says another size");
    return crc == m->e.crc ? 0 : fault(err, m->full, "its data descriptor says another checksum");
}

/* Extra field of a local header: sizes beyond 32 bits. */
static int read_local_extra(const struct zip *z, struct raw *m, uint16_t n, uint64_t *size,
                            uint64_t *packed, struct ckpt_err *err)
{
    unsigned char extra[UINT16_MAX];
    struct ckpt_cursor c;
    int rc;

    if (*size != BIG && *packed != BIG)
        return 0;
    if ((rc = ckpt_file_read_at(z->file, extra, n, m->e.offset - n, err)) != 0)
        return rc;
    ckpt_cursor_init(&c, extra, n);
    return read_extra(m->full, size, packed, NULL, c, err);
}

/* Check that the local header at p, followed by the name, agrees with the directory; find the
 * payload. */
static int check_local(const struct zip *z, struct raw *m, const unsigned char *p, uint64_t limit,
                       struct ckpt_err *err)
{
    size_t n_name = strlen(m->full);
    struct ckpt_cursor c;
    uint16_t flags, method, n, n_extra;
    uint64_t packed, size;
    uint32_t crc;
    int rc;

    ckpt_cursor_init(&c, p, LOCAL_BYTES);
    if (ckpt_cursor_u32le(&c) != 0x04034b50)
        return ckpt_fail(err, CKPT_EFORMAT, "zip: %s: no local header at %llu", m->full,
                         (unsigned long long)m->header);
    ckpt_cursor_skip(&c, 2);
    flags = ckpt_cursor_u16le(&c);
    method = ckpt_cursor_u16le(&c);
    ckpt_cursor_skip(&c, 4);
    crc = ckpt_cursor_u32le(&c);
    packed = ckpt_cursor_u32le(&c);
    size = ckpt_cursor_u32le(&c);
    n = ckpt_cursor_u16le(&c);
    n_extra = ckpt_cursor_u16le(&c);
    if (flags != m->flags || method != (m->e.deflated ? 8 : 0))
        return fault(err, m->full, "local header and directory differ");
    if (n != n_name || memcmp(p + LOCAL_BYTES, m->full, n_name) != 0)
        return ckpt_fail_as(err, CKPT_EFORMAT, "ambiguous",
                            "zip: %s: its local header has another name", m->full);
    m->e.offset = m->header + LOCAL_BYTES + n_name + n_extra;
    if (m->e.offset > limit || m->e.size > limit - m->e.offset)
        return ckpt_fail_as(err, CKPT_EFORMAT, "truncated",
                            "zip: %s: %llu bytes at %llu pass the directory", m->full,
                            (unsigned long long)m->e.size, (unsigned long long)m->e.offset);
    if ((flags & 8) && crc == 0 && packed == 0 && size == 0)
        return 0;                       /* the descriptor has them */
    if ((rc = read_local_extra(z, m, n_extra, &size, &packed, err)) != 0)
        return rc;
    return size == m->e.plain && packed == m->e.size && crc == m->e.crc
               ? 0 : fault(err, m->full, "local header and directory differ in size or checksum");
}

/*
 * Check the bytes from `from`, the end of the preceding payload, up to the name of m's local
 * header: one read for the descriptor of one and the header of the other.  m NULL: up to the
 * directory.
 */
static int check_between(const struct zip *z, const struct raw *before, struct raw *m,
                         uint64_t from, uint64_t limit, struct ckpt_err *err)
{
    int rc;

    CKPT_UNSET unsigned char raw[24 + LOCAL_BYTES + ZIP_MAX_NAME];
    uint64_t header = m ? m->header : limit;
    size_t n = m ? LOCAL_BYTES + strlen(m->full) : 0;

    if (header < from)
        return ckpt_fail_as(err, CKPT_EFORMAT, "overlap", "zip: %s: overlaps the member before it",
                            m ? m->full : before->full);
    if (header > limit || limit - header < n)
        return fault(err, m->full, "its header lies outside the file");
    if (header - from > 24)
        return ckpt_fail(err, CKPT_EFORMAT, "zip: %llu bytes at %llu belong to no member",
                         (unsigned long long)(header - from), (unsigned long long)from);
    n += (size_t)(header - from);
    if ((rc = ckpt_file_read_at(z->file, raw, n, from, err)) != 0)
        return rc;
    if (!before && header != 0)
        return bad(err, "bytes in front of the first member");
    if (before && (rc = check_descriptor(before, raw, (size_t)(header - from), err)) != 0)
        return rc;
    return m ? check_local(z, m, raw + (header - from), limit, err) : 0;
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
    const struct raw *before = NULL;
    uint64_t from = 0;
    int rc;

    for (uint64_t i = 0; i < end->n; i++)
        if ((rc = read_entry(z, &raw[i], c, err)) != 0)
            return rc;
    if (ckpt_cursor_left(c) != 0)
        return bad(err, "the central directory has more bytes than entries");
    if ((rc = check_names(z, raw, (size_t)end->n, err)) != 0)
        return rc;
    qsort(raw, (size_t)end->n, sizeof *raw, by_header);
    for (uint64_t i = 0; i < end->n; i++) {
        if ((rc = check_between(z, before, &raw[i], from, end->offset, err)) != 0)
            return rc;
        before = &raw[i];
        from = before->e.offset + before->e.size;
        z->entry[i] = before->e;
    }
    if ((rc = check_between(z, before, NULL, from, end->offset, err)) != 0)
        return rc;
    z->n = (size_t)end->n;
    z->no_sums = true;
    for (size_t i = 0; i < z->n; i++)
        z->no_sums = z->no_sums && z->entry[i].crc == 0;
    qsort(z->entry, z->n, sizeof *z->entry, by_name);
    return 0;
}

/* Find the end records.  An entry has at least 46 bytes, so an impossible count is found early. */
static int find_end(struct end *end, struct ckpt_file *file, struct ckpt_err *err)
{
    int rc;

    if ((rc = read_end(end, file, err)) != 0)
        return rc;
    if (end->n > end->bytes / 46)
        return bad(err, "more members than the central directory can hold");
    return end->n == 0 ? bad(err, "the archive is empty") : 0;
}

int zip_count(uint64_t *n, struct ckpt_file *file, struct ckpt_err *err)
{
    struct end end = {0};
    int rc = find_end(&end, file, err);

    *n = end.n;
    return rc;
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
    rc = find_end(&end, file, err);
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

static int misfit(const struct zip_entry *e, struct ckpt_err *err)
{
    return ckpt_fail_as(err, CKPT_EFORMAT, "digest", "zip: %s: its bytes have another checksum "
                        "than the directory says (torch has an option not to write one)", e->name);
}

int zip_slurp(const struct zip *z, const struct zip_entry *e, struct ckpt_arena *arena,
              uint64_t limit, char **out, struct ckpt_err *err)
{
    int rc;

    *out = NULL;
    if (e->deflated)
        return ckpt_fail(err, CKPT_EUNSUPPORTED, "zip: %s: compressed", e->name);
    if (e->size > limit)
        return ckpt_fail(err, CKPT_ELIMIT, "zip: %s: %llu bytes, %llu at most", e->name,
                         (unsigned long long)e->size, (unsigned long long)limit);
    *out = ckpt_arena_alloc(arena, (size_t)e->size + 1, 1);
    if (!*out)
        return ckpt_nomem(err, (size_t)e->size + 1);
    if ((rc = ckpt_file_read_at(z->file, *out, (size_t)e->size, e->offset, err)) != 0)
        return rc;
    return z->no_sums || ckpt_crc32(0, *out, (size_t)e->size) == e->crc
               ? 0 : misfit(e, err);
}

/* Checksum of a deflated member's content, whose length must match. */
static int unfold_crc(const struct zip *z, const struct zip_entry *e, unsigned char *buf, size_t n,
                      uint32_t *crc, struct ckpt_err *err)
{
    unsigned char out[4096];
    uint64_t left = e->size, got = 0;
    z_stream s = {0};
    int rc = Z_OK, io = 0;

    if (inflateInit2(&s, -15) != Z_OK)
        return ckpt_nomem(err, sizeof s);
    while (rc == Z_OK && io == 0) {
        if (s.avail_in == 0 && left > 0) {
            s.avail_in = left < n ? (uInt)left : (uInt)n;
            s.next_in = buf;
            io = ckpt_file_read_at(z->file, buf, s.avail_in, e->offset + e->size - left, err);
            left -= s.avail_in;
        }
        s.next_out = out;
        s.avail_out = sizeof out;
        rc = io ? Z_ERRNO : inflate(&s, Z_NO_FLUSH);
        got += sizeof out - s.avail_out;
        *crc = ckpt_crc32(*crc, out, sizeof out - s.avail_out);
        if (got > e->plain)
            rc = Z_DATA_ERROR;
    }
    inflateEnd(&s);
    if (io)
        return io;
    return rc == Z_STREAM_END && got == e->plain && left == 0 && s.avail_in == 0
               ? 0 : fault(err, e->name, "does not unfold to what the directory says");
}

int zip_verify(const struct zip *z, const struct zip_entry *e, void *buf, size_t buf_bytes,
               struct ckpt_err *err)
{
    uint32_t crc = 0;
    int rc;

    if (e->deflated && (rc = unfold_crc(z, e, buf, buf_bytes < 1 << 20 ? buf_bytes : 1 << 20,
                                        &crc, err)) != 0)
        return rc;
    for (uint64_t at = 0; !z->no_sums && !e->deflated && at < e->size;) {
        size_t n = e->size - at < buf_bytes ? (size_t)(e->size - at) : buf_bytes;

        if ((rc = ckpt_file_read_at(z->file, buf, n, e->offset + at, err)) != 0)
            return rc;
        crc = ckpt_crc32(crc, buf, n);
        at += n;
    }
    return z->no_sums || crc == e->crc ? 0 : misfit(e, err);
}

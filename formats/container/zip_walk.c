/* zip_walk - see zip_walk.h. */
#include "formats/container/zip_walk.h"

#include <stdlib.h>
#include <string.h>

#include "formats/container/zip.h"
#include "libckpt/base/buf.h"
#include "libckpt/err.h"

#define END_BYTES    22u
#define END64_BYTES  56u
#define LOCATOR      20u
#define TAIL_BYTES   (END_BYTES + 65535u)
#define ENTRY_BYTES  46u
#define LOCAL_BYTES  30u
#define DESCRIPTOR   24u                /* most bytes of a descriptor after a payload */
#define MAX_DIR      ((uint64_t)256 << 20)

struct end {
    uint64_t at;                /* of the end record */
    uint64_t dir, size;         /* of the directory, from its end */
    uint64_t base;              /* what its offsets are relative to */
};

struct entry {
    struct zip_piece piece;
    uint64_t         local;     /* of the local header, in the file */
    unsigned         flags;
};

static uint32_t u32(const unsigned char *p)
{
    return p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static uint64_t u64(const unsigned char *p) { return u32(p) | (uint64_t)u32(p + 4) << 32; }
static unsigned u16(const unsigned char *p) { return p[0] | (unsigned)p[1] << 8; }

static int no_end(const struct ckpt_file *file, struct ckpt_err *err)
{
    return ckpt_fail(err, CKPT_EFORMAT, "%s: no end of a zip file", ckpt_file_name(file));
}

/* The last end record in the tail whose comment fits. */
static int find_end(uint64_t *at, unsigned char end[END_BYTES], struct ckpt_file *file,
                    struct ckpt_err *err)
{
    uint64_t size = ckpt_file_size(file), n = size < TAIL_BYTES ? size : TAIL_BYTES;
    unsigned char *tail;
    bool found = false;
    int rc;

    if (n < END_BYTES)
        return no_end(file, err);
    tail = ckpt_alloc_buffer(n);
    rc = tail ? ckpt_file_read_at(file, tail, n, size - n, err) : ckpt_nomem(err, n);
    for (uint64_t i = n - END_BYTES + 1; rc == 0 && !found && i-- > 0;)
        if (memcmp(tail + i, "PK\005\006", 4) == 0 && u16(tail + i + 20) <= n - i - END_BYTES) {
            *at = size - n + i;
            memcpy(end, tail + i, END_BYTES);
            found = true;
        }
    ckpt_free(tail);
    return rc || found ? rc : no_end(file, err);
}

/* Use the 64-bit end record before the other one, if there is one. */
static int use_end64(struct end *e, uint64_t *dir_at, struct ckpt_file *file,
                     struct ckpt_err *err)
{
    unsigned char b[END64_BYTES + LOCATOR];
    int rc;

    if (e->at < sizeof b)
        return 0;
    if ((rc = ckpt_file_read_at(file, b, sizeof b, e->at - sizeof b, err)) != 0)
        return rc;
    if (memcmp(b + END64_BYTES, "PK\006\007", 4) != 0 || memcmp(b, "PK\006\006", 4) != 0)
        return 0;
    e->size = u64(b + 40);
    *dir_at = u64(b + 48);
    e->dir = e->at - sizeof b;          /* end of the directory */
    return 0;
}

static int read_end(struct end *e, struct ckpt_file *file, struct ckpt_err *err)
{
    unsigned char b[END_BYTES] = {0};
    uint64_t dir_at;
    int rc;

    if ((rc = find_end(&e->at, b, file, err)) != 0)
        return rc;
    e->dir = e->at;
    e->size = u32(b + 12);
    dir_at = u32(b + 16);
    if ((rc = use_end64(e, &dir_at, file, err)) != 0)
        return rc;
    if (e->size > e->dir || dir_at > e->dir - e->size || e->size > MAX_DIR)
        return ckpt_fail(err, CKPT_EFORMAT, "%s: the directory of the zip file is not there",
                         ckpt_file_name(file));
    e->dir -= e->size;
    e->base = e->dir - dir_at;
    return 0;
}

bool zip_ends_here(struct ckpt_file *file)
{
    struct ckpt_err ignored = {0};
    struct end e = {0};
    unsigned char b[4] = {0};

    return read_end(&e, file, &ignored) == 0 && e.size >= ENTRY_BYTES &&
           ckpt_file_read_at(file, b, sizeof b, e.dir, &ignored) == 0 &&
           memcmp(b, "PK\001\002", 4) == 0;
}

uint64_t zip_front(struct ckpt_file *file)
{
    struct ckpt_err ignored = {0};
    struct ckpt_file *front;
    struct end e = {0};
    bool ends;

    if (read_end(&e, file, &ignored) || e.base == 0 ||
        ckpt_file_window(&front, file, 0, e.base, ckpt_file_name(file), &ignored))
        return 0;
    ends = zip_ends_here(front);
    ckpt_file_close(front);
    return ends ? e.base : 0;
}

/* Size and offset of a member beyond 32 bits. */
static void use_extra64(struct zip_piece *p, uint64_t *local, const unsigned char *extra, size_t n)
{
    uint64_t *const field[] = {&p->plain, &p->size, local};

    while (n >= 4) {
        size_t len = u16(extra + 2), at = 4;

        if (len > n - 4)
            return;
        for (size_t i = 0; u16(extra) == 1 && i < 3; i++)
            if (*field[i] == 0xffffffff && at + 8 <= len + 4) {
                *field[i] = u64(extra + at);
                at += 8;
            }
        extra += 4 + len;
        n -= 4 + len;
    }
}

/* Find the payload, and check whether the local header before it agrees. */
static int read_local(struct entry *e, struct ckpt_file *file, struct ckpt_err *err)
{
    struct zip_piece *p = &e->piece;
    uint64_t size = ckpt_file_size(file), name;
    unsigned char b[LOCAL_BYTES] = {0};
    char text[ZIP_MAX_NAME];
    int rc = 0;

    if (e->local <= size && size - e->local >= LOCAL_BYTES)
        rc = ckpt_file_read_at(file, b, sizeof b, e->local, err);
    if (rc || memcmp(b, "PK\003\004", 4) != 0) {
        p->wrong = "has no local header";
        p->offset = p->size = 0;
        return rc;
    }
    name = u16(b + 26);
    p->offset = e->local + LOCAL_BYTES + name + u16(b + 28);
    if (p->offset > size || p->size > size - p->offset) {
        p->wrong = "passes the end of the file";
        p->offset = p->offset > size ? size : p->offset;
        p->size = size - p->offset;
    } else if (u16(b + 8) != p->method) {
        p->wrong = "is compressed in another way by its local header";
    } else if (name != strlen(p->name) || name > sizeof text) {
        p->wrong = "has another name in its local header";
    } else {
        rc = ckpt_file_read_at(file, text, (size_t)name, e->local + LOCAL_BYTES, err);
        if (rc == 0 && memcmp(text, p->name, (size_t)name) != 0)
            p->wrong = "has another name in its local header";
    }
    p->encrypted |= u16(b + 6) & 1;
    return rc;
}

static int read_entry(struct entry *e, struct ckpt_cursor *c, const struct end *end,
                      struct ckpt_arena *arena, struct ckpt_err *err)
{
    const unsigned char *b = ckpt_cursor_bytes(c, ENTRY_BYTES), *name, *extra;
    size_t n_name;

    if (!b || memcmp(b, "PK\001\002", 4) != 0)
        return ckpt_fail(err, CKPT_EFORMAT, "zip: the directory is damaged at byte %llu",
                         (unsigned long long)(end->dir + c->pos));
    e->flags = u16(b + 8);
    n_name = u16(b + 28);
    e->piece = (struct zip_piece){.method = u16(b + 10), .size = u32(b + 20), .plain = u32(b + 24),
                                  .encrypted = e->flags & 1};
    e->local = u32(b + 42);
    name = ckpt_cursor_bytes(c, n_name);
    extra = ckpt_cursor_bytes(c, u16(b + 30));
    ckpt_cursor_skip(c, u16(b + 32));
    if (c->failed)
        return ckpt_fail(err, CKPT_EFORMAT, "zip: the directory ends inside a member's entry");
    use_extra64(&e->piece, &e->local, extra, u16(b + 30));
    e->piece.name = ckpt_arena_strndup(arena, (const char *)name, n_name);
    if (!e->piece.name)
        return ckpt_nomem(err, n_name);
    e->local = e->local > UINT64_MAX - end->base ? UINT64_MAX : e->local + end->base;
    return 0;
}

static int by_place(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;

    return x->local < y->local ? -1 : x->local > y->local;
}

/* List members, and the bytes before, between and after them. */
static size_t put_pieces(struct zip_piece *out, struct entry *e, size_t n, const struct end *end,
                         uint64_t size)
{
    uint64_t at = 0, last = end->at + END_BYTES;
    size_t k = 0;

    for (size_t i = 0; i < n; i++) {
        uint64_t gap = e[i].local > at && e[i].local <= end->dir ? e[i].local - at : 0;

        if (gap > (i && (e[i - 1].flags & 8) ? DESCRIPTOR : 0))
            out[k++] = (struct zip_piece){.offset = at, .size = gap};
        if (!e[i].piece.wrong && e[i].local < at)
            e[i].piece.wrong = "overlaps another one";
        out[k++] = e[i].piece;
        if (e[i].piece.offset + e[i].piece.size > at)
            at = e[i].piece.offset + e[i].piece.size;
    }
    if (end->dir > at && end->dir - at > (n && (e[n - 1].flags & 8) ? DESCRIPTOR : 0))
        out[k++] = (struct zip_piece){.offset = at, .size = end->dir - at};
    if (size > last)
        out[k++] = (struct zip_piece){.offset = last, .size = size - last};
    return k;
}

/* Read the directory's entries and their local headers; *n of them. */
static int read_entries(struct entry **out, size_t *n, const struct end *end,
                        struct ckpt_file *file, struct ckpt_arena *arena, struct ckpt_err *err)
{
    unsigned char *bytes = ckpt_alloc_buffer(end->size);
    size_t most = (size_t)(end->size / ENTRY_BYTES);
    struct ckpt_cursor c;
    int rc = 0;

    *n = 0;
    *out = ckpt_alloc(most + 1, sizeof **out);
    if (!bytes || !*out)
        rc = ckpt_nomem(err, (size_t)end->size);
    if (rc == 0)
        rc = ckpt_file_read_at(file, bytes, (size_t)end->size, end->dir, err);
    ckpt_cursor_init(&c, bytes, (size_t)end->size);
    while (rc == 0 && ckpt_cursor_left(&c) > 0) {
        rc = *n < ZIP_MAX_MEMBERS ? read_entry(&(*out)[*n], &c, end, arena, err)
                                  : ckpt_fail(err, CKPT_ELIMIT, "zip: more than %u members",
                                              ZIP_MAX_MEMBERS);
        if (rc == 0)
            rc = read_local(&(*out)[(*n)++], file, err);
    }
    ckpt_free(bytes);
    return rc;
}

int zip_walk(struct zip_piece **out, size_t *n, struct ckpt_file *file, struct ckpt_arena *arena,
             struct ckpt_err *err)
{
    struct entry *e = NULL;
    struct end end = {0};
    size_t n_entry = 0;
    int rc = read_end(&end, file, err);

    *out = NULL;
    *n = 0;
    if (rc == 0)
        rc = read_entries(&e, &n_entry, &end, file, arena, err);
    if (rc == 0) {
        qsort(e, n_entry, sizeof *e, by_place);
        *out = ckpt_arena_alloc(arena, 2 * n_entry + 3, sizeof **out);
        if (*out)
            *n = put_pieces(*out, e, n_entry, &end, ckpt_file_size(file));
        else
            rc = ckpt_nomem(err, n_entry * sizeof **out);
    }
    ckpt_free(e);
    return rc;
}

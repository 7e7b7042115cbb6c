/* archive_read - the headers of a tar or zip file into an index; see archive.h. */
#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "libckpt/base/map.h"
#include "libckpt/err.h"
#include "libckpt/io/archive_index.h"
#include "libckpt/io/file_at.h"
#include "libckpt/io/spool.h"

#define PIECE      ((size_t)65536)
#define MAX_NAMES  ((uint64_t)256 << 20)
#define MAX_PADDED ((uint64_t)1 << 20)    /* zeros allowed after the end mark: tar pads to 10 KiB */

struct reader {
    struct archive       *a;
    struct archive_entry *entry;
    struct ckpt_file     *file;
    uint64_t              pos;
    unsigned char        *piece;
    struct ckpt_map      *files;        /* path -> member, for hard links; NULL before the first */
    size_t                n_mapped;     /* members that were looked at for it */
    struct ckpt_err      *err;
    int                   failed;       /* code of the failed read, whose text is in err */
};

/* -- libarchive over a file ------------------------------------------------------------- */

static la_ssize_t give(struct archive *a, void *ctx, const void **bytes)
{
    struct reader *r = ctx;
    uint64_t left = ckpt_file_size(r->file) - r->pos;
    size_t n = left < PIECE ? (size_t)left : PIECE;

    *bytes = r->piece;
    r->failed = ckpt_file_read_at(r->file, r->piece, n, r->pos, r->err);
    if (r->failed) {
        archive_set_error(a, EIO, "read");
        return -1;
    }
    r->pos += n;
    return (la_ssize_t)n;
}

static la_int64_t skip(struct archive *a, void *ctx, la_int64_t n)
{
    struct reader *r = ctx;
    uint64_t left = ckpt_file_size(r->file) - r->pos;

    (void)a;
    if (n < 0)
        return 0;
    if ((uint64_t)n > left)
        n = (la_int64_t)left;
    r->pos += (uint64_t)n;
    return n;
}

static la_int64_t seek(struct archive *a, void *ctx, la_int64_t offset, int whence)
{
    struct reader *r = ctx;
    int64_t size = (int64_t)ckpt_file_size(r->file);
    int64_t from = whence == SEEK_SET ? 0 : whence == SEEK_CUR ? (int64_t)r->pos : size;

    (void)a;
    if (__builtin_add_overflow(from, offset, &from) || from < 0 || from > size)
        return ARCHIVE_FATAL;
    r->pos = (uint64_t)from;
    return from;
}

static void reader_close(struct reader *r)
{
    if (r->a)
        archive_read_free(r->a);
    ckpt_free(r->piece);
    ckpt_map_free(r->files);
    *r = (struct reader){0};
}

static int failed(struct reader *r)
{
    const char *why = archive_error_string(r->a);

    if (r->failed)
        return r->failed;
    if (archive_errno(r->a) == ENOMEM)
        return ckpt_nomem(r->err, PIECE);
    return ckpt_fail(r->err, CKPT_EFORMAT, "%s: damaged archive: %s", ckpt_file_name(r->file),
                     why ? why : "no reason given");
}

static int reader_open(struct reader *r, struct ckpt_file *file, int (*format)(struct archive *),
                       struct ckpt_err *err)
{
    *r = (struct reader){.file = file, .err = err};
    r->a = archive_read_new();
    r->piece = ckpt_alloc_buffer(PIECE);
    if (!r->a || !r->piece || format(r->a) != ARCHIVE_OK) {
        reader_close(r);
        return ckpt_nomem(err, PIECE);
    }
    archive_read_set_callback_data(r->a, r);
    archive_read_set_read_callback(r->a, give);
    archive_read_set_skip_callback(r->a, skip);
    archive_read_set_seek_callback(r->a, seek);
    return archive_read_open1(r->a) == ARCHIVE_OK ? 0 : failed(r);
}

/* The next header: 0, 1 at the end, or a failure. */
static int next(struct reader *r)
{
    int rc = archive_read_next_header(r->a, &r->entry);

    /* In an ASCII locale libarchive warns of every non-ASCII name; its bytes are right all the
     * same. */
    if (rc == ARCHIVE_WARN && archive_error_string(r->a) &&
        strstr(archive_error_string(r->a), "converted"))
        rc = ARCHIVE_OK;
    return rc == ARCHIVE_OK ? 0 : rc == ARCHIVE_EOF ? 1 : failed(r);
}

/* -- members ---------------------------------------------------------------------------- */

/*
 * Strip a leading "./" and a trailing "/" from name, into arena memory.  *out is "" for the top
 * itself.  False when name breaks the rules of archive.h.
 */
static bool clean(const char **out, const char *name, struct ckpt_arena *arena)
{
    size_t n, parts = 0;
    char part[256];

    while (name[0] == '.' && name[1] == '/')
        for (name += 2; *name == '/'; name++)
            ;
    n = strlen(name);
    while (n > 0 && name[n - 1] == '/' && *name != '/')
        n--;
    if (n == 1 && *name == '.')
        n = 0;
    if (n > 4095)
        return false;
    *out = ckpt_arena_strndup(arena, name, n);
    for (size_t i = 0; *out && i < n; parts++) {
        size_t k = strcspn(*out + i, "/");

        if (k == 0 || k > 255 || parts == ARCHIVE_MAX_PARTS)
            return false;
        memcpy(part, *out + i, k);
        part[k] = '\0';
        if (!ckpt_file_name_is_clean(part))
            return false;
        i += k + ((*out)[i + k] == '/');
    }
    return true;
}

static int refuse(struct reader *r, const char *name, const char *what)
{
    return ckpt_fail_as(r->err, CKPT_EREFUSED, "refused-path", "%s: member %s %s",
                        ckpt_file_name(r->file), name, what);
}

/* Whether a symbolic link's target, as text, stays inside the archive. */
static bool leads_inside(const char *path, const char *target)
{
    long depth = 0;

    if (!target || *target == '/')
        return false;
    for (const char *p = path; (p = strchr(p, '/')) != NULL; p++)
        depth++;
    while (*target && depth >= 0) {
        size_t k = strcspn(target, "/");

        if (k == 2 && memcmp(target, "..", 2) == 0)
            depth--;
        else if (k > 0 && !(k == 1 && *target == '.'))
            depth++;
        target += k + (target[k] == '/');
    }
    return depth >= 0;
}

/* Room for one more member; NULL with err filled in. */
static struct member *add(struct archive_index *x, struct reader *r)
{
    if (x->n == ARCHIVE_MAX_MEMBERS) {
        ckpt_fail(r->err, CKPT_ELIMIT, "%s: more than %u members", ckpt_file_name(r->file),
                  ARCHIVE_MAX_MEMBERS);
        return NULL;
    }
    if (ckpt_reserve(&x->member, x->n, &x->cap, sizeof *x->member, r->err))
        return NULL;
    x->member[x->n] = (struct member){0};
    return &x->member[x->n++];
}

/*
 * The files among all members but the last, by their paths: an archive may have as many hard links
 * as members.  Of two with one path the first counts; settle refuses them anyway.
 */
static int map_files(struct archive_index *x, struct reader *r)
{
    struct ckpt_err twice = {0};
    int rc = r->files ? 0 : ckpt_map_new(&r->files, x->n, r->err);

    for (; rc == 0 && r->n_mapped + 1 < x->n; r->n_mapped++) {
        const struct member *m = &x->member[r->n_mapped];

        if (m->kind == MEMBER_FILE &&
            ckpt_map_add(r->files, m->path, strlen(m->path), r->n_mapped, &twice) == CKPT_ENOMEM)
            rc = ckpt_nomem(r->err, x->n);
    }
    return rc;
}

/* Resolve a hard link to the file it names, which must precede it. */
static int link_to(struct archive_index *x, struct reader *r, struct member *m,
                   const char *target)
{
    const char *path;
    size_t at;
    int rc;

    if (!clean(&path, target, &x->arena))
        return refuse(r, m->path, "is a hard link that leads out");
    if (!path)
        return ckpt_nomem(r->err, strlen(target));
    if ((rc = map_files(x, r)) != 0)
        return rc;
    at = ckpt_map_get(r->files, path, strlen(path));
    if (at == CKPT_MAP_NONE)
        return ckpt_fail(r->err, CKPT_EFORMAT, "%s: member %s is a hard link to %s, which is not "
                         "there", ckpt_file_name(r->file), m->path, path);
    m->offset = x->member[at].offset;
    m->size = x->member[at].size;
    return 0;
}

static const char *name_of(struct archive_entry *e)
{
    const char *name = archive_entry_pathname_utf8(e);

    return name ? name : archive_entry_pathname(e);
}

/*
 * Turn the entry into a member according to the rules; NULL with code 0 for the top folder
 * itself.  The caller sets offsets of files.
 */
static int take(struct archive_index *x, struct reader *r, struct member **out)
{
    const char *name = name_of(r->entry), *path, *hard = archive_entry_hardlink(r->entry);
    struct member *m;
    int rc;

    *out = NULL;
    if (!name || !*name)
        return refuse(r, "without a name", "");
    x->of_here = x->of_here || (name[0] == '.' && (name[1] == '/' || !name[1]));
    if (!clean(&path, name, &x->arena))
        return refuse(r, name, "has a name that leads out, or none that could be created");
    if (!path)
        return ckpt_nomem(r->err, strlen(name));
    if (!*path)
        return archive_entry_filetype(r->entry) == AE_IFDIR ? 0 : refuse(r, name, "is no file");
    m = add(x, r);
    if (!m)
        return ckpt_err_code(r->err);
    m->path = path;
    if (hard) {
        if ((rc = link_to(x, r, m, hard)) != 0)
            return rc;
    } else if (archive_entry_filetype(r->entry) == AE_IFDIR) {
        m->kind = MEMBER_DIR;
    } else if (archive_entry_filetype(r->entry) == AE_IFLNK) {
        m->kind = MEMBER_LINK;
        if (!leads_inside(path, archive_entry_symlink(r->entry)))
            return refuse(r, path, "is a symbolic link that leads out");
    } else if (archive_entry_filetype(r->entry) != AE_IFREG) {
        return refuse(r, path, "is a device, a fifo or a socket");
    } else {
        *out = m;
    }
    return 0;
}

/* -- tar -------------------------------------------------------------------------------- */

/* Require at least one block of zeros, and nothing but zeros until the end of the file. */
static int check_end(struct reader *r, uint64_t at)
{
    uint64_t size = ckpt_file_size(r->file);
    unsigned char block[512];
    int rc;

    if (at > size || size - at < sizeof block)
        return ckpt_fail_as(r->err, CKPT_EFORMAT, "truncated",
                            "%s: the archive has no end mark at %llu, the file has %llu bytes",
                            ckpt_file_name(r->file), (unsigned long long)at,
                            (unsigned long long)size);
    while (at < size) {
        size_t n = size - at < sizeof block ? (size_t)(size - at) : sizeof block;
        bool zero = size - at <= MAX_PADDED;

        if ((rc = ckpt_file_read_at(r->file, block, n, at, r->err)) != 0)
            return rc;
        for (size_t i = 0; i < n; i++)
            zero = zero && block[i] == 0;
        if (!zero)
            return ckpt_fail_as(r->err, CKPT_EFORMAT, "ambiguous",
                                "%s: bytes after the archive's end, at %llu",
                                ckpt_file_name(r->file), (unsigned long long)at);
        at += n;
    }
    return 0;
}

static int read_tar(struct archive_index *x, struct ckpt_file *file, struct ckpt_err *err)
{
    uint64_t end = 0, size;
    struct member *m;
    struct reader r;
    int rc = reader_open(&r, file, archive_read_support_format_tar, err);

    while (rc == 0 && (rc = next(&r)) == 0) {
        int64_t at = archive_filter_bytes(r.a, 0), said = archive_entry_size(r.entry);

        /* libarchive's position is the data's: in a tar the data follow the header without a
         * gap. */
        size = said > 0 ? (uint64_t)said : 0;
        if (archive_entry_sparse_count(r.entry) > 0) {
            rc = ckpt_fail(err, CKPT_EUNSUPPORTED, "%s: member %s is stored sparse",
                           ckpt_file_name(file), name_of(r.entry) ? name_of(r.entry) : "");
            break;
        }
        if ((uint64_t)archive_read_header_position(r.a) != end || at < 0 || at % 512 ||
            (uint64_t)at > ckpt_file_size(file) || size > ckpt_file_size(file) - (uint64_t)at) {
            rc = ckpt_fail_as(err, CKPT_EFORMAT, "truncated",
                              "%s: member %s has %llu bytes at %llu, the file has %llu",
                              ckpt_file_name(file), name_of(r.entry) ? name_of(r.entry) : "",
                              (unsigned long long)size, (unsigned long long)at,
                              (unsigned long long)ckpt_file_size(file));
            break;
        }
        end = (uint64_t)at + (size + 511) / 512 * 512;
        rc = take(x, &r, &m);
        if (rc == 0 && m) {
            m->offset = (uint64_t)at;
            m->size = size;
        }
    }
    if (rc == 1)
        rc = check_end(&r, end);
    reader_close(&r);
    return rc;
}

/* -- zip -------------------------------------------------------------------------------- */

/* Append a member's unpacked bytes to fd. */
static int unpack(struct reader *r, int fd, uint64_t *sum, struct member *m)
{
    unsigned char *buf = ckpt_alloc_buffer(PIECE);
    la_ssize_t n = 1;
    int rc = buf ? 0 : ckpt_nomem(r->err, PIECE);

    m->offset = *sum;
    while (rc == 0 && n > 0) {
        n = archive_read_data(r->a, buf, PIECE);
        if (n < 0)
            rc = failed(r);
        else
            rc = spool_put(fd, buf, (size_t)n, ckpt_file_name(r->file), r->err);
        m->size += n > 0 ? (uint64_t)n : 0;
        *sum += n > 0 ? (uint64_t)n : 0;
        if (rc == 0)
            rc = spool_check(ckpt_file_name(r->file), *sum, ckpt_file_size(r->file), r->err);
    }
    if (rc == 0 && archive_entry_size_is_set(r->entry) &&
        m->size != (uint64_t)archive_entry_size(r->entry))
        rc = ckpt_fail(r->err, CKPT_EFORMAT, "%s: member %s has %llu bytes, its header says %llu",
                       ckpt_file_name(r->file), m->path, (unsigned long long)m->size,
                       (unsigned long long)archive_entry_size(r->entry));
    ckpt_free(buf);
    return rc;
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/*
 * Three ways to read a zip file must agree: by the directory and its offsets (x), by the local
 * headers alone, and by the names in the directory; programs use one or the other.  Local headers
 * are found through the directory, since a search for their signature would also find those
 * inside a member that is a zip file.
 */
static int compare_ways(struct archive_index *x, struct ckpt_file *file, struct ckpt_err *err)
{
    struct ckpt_arena arena = {.limit = MAX_NAMES};
    const char **said = NULL, **have = NULL;
    struct archive_zip z;
    bool same = true;
    size_t kept = 0;
    int rc = archive_zip_list(&z, file, &arena, err);

    if (rc == 0) {
        said = ckpt_arena_alloc(&arena, z.n, sizeof *said);
        have = ckpt_arena_alloc(&arena, x->n, sizeof *have);
        rc = said && have ? 0 : ckpt_nomem(err, (z.n + x->n) * sizeof *have);
    }
    for (size_t i = 0; rc == 0 && same && i < z.n; i++) {
        same = clean(&said[kept], z.entry[i].name, &arena) && said[kept];
        kept += same && *said[kept];
    }
    for (size_t i = 0; rc == 0 && i < x->n; i++)
        have[i] = x->member[i].path;
    same = same && kept == x->n;
    if (rc == 0 && same && kept > 0) {
        qsort(said, kept, sizeof *said, by_text);
        qsort(have, kept, sizeof *have, by_text);
        for (size_t i = 0; i < kept; i++)
            same = same && strcmp(said[i], have[i]) == 0;
    }
    if (rc == 0 && same)
        rc = archive_zip_headers(&same, &z, file, err);
    if (rc == 0 && !same)
        rc = ckpt_fail_as(err, CKPT_EFORMAT, "ambiguous",
                          "%s: the zip file's directory and headers tell different members",
                          ckpt_file_name(file));
    ckpt_arena_release(&arena);
    return rc;
}

static int read_zip(struct archive_index *x, struct ckpt_file *file, int fd,
                    struct ckpt_err *err)
{
    struct member *m;
    struct reader r;
    uint64_t sum = 0;
    int rc = reader_open(&r, file, archive_read_support_format_zip_seekable, err);

    while (rc == 0 && (rc = next(&r)) == 0) {
        if (archive_entry_is_encrypted(r.entry))
            rc = ckpt_fail(err, CKPT_EUNSUPPORTED, "%s: is encrypted", ckpt_file_name(file));
        else
            rc = take(x, &r, &m);
        if (rc == 0 && m)
            rc = unpack(&r, fd, &sum, m);
    }
    reader_close(&r);
    return rc == 1 ? compare_ways(x, file, err) : rc;
}

bool ckpt_archive_is_zip(struct ckpt_file *file)
{
    struct ckpt_err err = {0};
    bool folder = false;
    struct reader r;
    int rc = reader_open(&r, file, archive_read_support_format_zip_seekable, &err);

    while (rc == 0 && (rc = next(&r)) == 0) {
        const char *name = name_of(r.entry), *slash = name ? strchr(name, '/') : NULL;
        const char *rest = slash ? slash + 1 : name ? name : "data.pkl";

        folder = true;
        if (strcmp(rest, "data.pkl") == 0 || strcmp(rest, "constants.pkl") == 0 ||
            (slash && strcmp(rest, "archive_format") == 0))
            rc = CKPT_EFORMAT;          /* torch.save's and torch.export's */
    }
    reader_close(&r);
    return rc == 1 && folder;
}

/* -- both ------------------------------------------------------------------------------- */

static int by_path(const void *a, const void *b)
{
    return strcmp(((const struct member *)a)->path, ((const struct member *)b)->path);
}

const struct member *archive_find(const struct archive_index *x, const char *path)
{
    struct member key = {.path = path};

    return x->n ? bsearch(&key, x->member, x->n, sizeof key, by_path) : NULL;
}

/* Sort; folders may occur twice, other paths once; nothing may lie below a file. */
static int settle(struct archive_index *x, const char *name, struct ckpt_err *err)
{
    size_t kept = 0;
    char above[4096];

    if (x->n > 0)
        qsort(x->member, x->n, sizeof *x->member, by_path);
    for (size_t i = 0; i < x->n; i++) {
        const struct member *m = &x->member[i], *last = kept ? &x->member[kept - 1] : NULL;

        if (last && strcmp(last->path, m->path) == 0) {
            if (last->kind == MEMBER_DIR && m->kind == MEMBER_DIR)
                continue;
            return ckpt_fail_as(err, CKPT_EFORMAT, "duplicate", "%s: member %s is there twice",
                                name, m->path);
        }
        x->member[kept++] = *m;
    }
    x->n = kept;
    for (size_t i = 0; i < x->n; i++)
        for (const char *s = x->member[i].path; (s = strchr(s, '/')) != NULL; s++) {
            const struct member *m;

            snprintf(above, sizeof above, "%.*s", (int)(s - x->member[i].path), x->member[i].path);
            m = archive_find(x, above);
            if (m && m->kind != MEMBER_DIR)
                return ckpt_fail_as(err, CKPT_EFORMAT, "ambiguous",
                                    "%s: member %s is no folder, and %s lies in it", name, above,
                                    x->member[i].path);
        }
    return 0;
}

int archive_read_all(struct archive_index *x, struct ckpt_file *file, const char *where,
                     struct ckpt_err *err)
{
    unsigned char head[4] = {0};
    int fd = -1, rc;

    x->arena.limit = MAX_NAMES;
    rc = ckpt_file_size(file) < 4 ? 0 : ckpt_file_read_at(file, head, 4, 0, err);
    if (rc == 0 && memcmp(head, "PK", 2) == 0) {
        fd = spool_create(where, err);
        rc = fd < 0 ? ckpt_err_code(err) : read_zip(x, file, fd, err);
    } else if (rc == 0) {
        rc = read_tar(x, file, err);
    }
    if (rc == 0)
        rc = settle(x, ckpt_file_name(file), err);
    if (rc == 0 && fd >= 0)
        rc = file_take_fd(&x->bytes, fd, ckpt_file_name(file), ckpt_file_flags(file), err);
    else if (fd >= 0)
        close(fd);
    if (rc == 0 && fd < 0)
        x->bytes = file;
    else
        ckpt_file_close(file);
    return rc;
}

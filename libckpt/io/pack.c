/* pack - see pack.h. */
#include "libckpt/io/pack.h"
#include "libckpt/err.h"

#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define PIECE     ((size_t)1 << 20)
#define TAR_BLOCK 10240

/* Files found so far, and folders still to be listed. */
struct walk {
    struct ckpt_arena arena;
    const char      **file, **folder;
    size_t            n_file, n_folder, cap_file, cap_folder;
};

struct sink {
    struct archive  *a;
    struct ckpt_out *out;
    int              failed;    /* code of the failed write, whose text is in err */
    struct ckpt_err *err;
};

enum ckpt_pack ckpt_pack_of(const char *name)
{
    static const struct {
        const char    *tail;
        enum ckpt_pack kind;
    } row[] = {{".tar", CKPT_PACK_TAR},         {".tar.gz", CKPT_PACK_TAR_GZ},
               {".tgz", CKPT_PACK_TAR_GZ},      {".tar.bz2", CKPT_PACK_TAR_BZ2},
               {".tar.xz", CKPT_PACK_TAR_XZ},   {".tar.zst", CKPT_PACK_TAR_ZST},
               {".tzst", CKPT_PACK_TAR_ZST},    {".zip", CKPT_PACK_ZIP}};
    size_t n = strlen(name);

    for (size_t i = 0; i < sizeof row / sizeof row[0]; i++) {
        size_t k = strlen(row[i].tail);

        if (n > k && strcmp(name + n - k, row[i].tail) == 0 && name[n - k - 1] != '/')
            return row[i].kind;
    }
    return CKPT_PACK_NONE;
}

static int push(const char ***list, size_t *n, size_t *cap, const char *path, struct ckpt_err *err)
{
    int rc = ckpt_reserve(list, *n, cap, sizeof **list, err);

    if (rc == 0)
        (*list)[(*n)++] = path;
    return rc;
}

/* Append the entries of one folder ("" is dir itself) to the walk's lists. */
static int look_into(struct walk *w, struct ckpt_dir *dir, const char *folder,
                     struct ckpt_err *err)
{
    struct ckpt_dir *sub = NULL;
    struct ckpt_entry *e;
    size_t n = 0;
    int rc = *folder ? ckpt_dir_open_at(&sub, dir, folder, err) : 0;

    if (rc == 0)
        rc = ckpt_dir_list(sub ? sub : dir, &w->arena, &e, &n, err);
    for (size_t i = 0; rc == 0 && i < n; i++) {
        const char *path = ckpt_arena_printf(&w->arena, "%s%s%s", folder, *folder ? "/" : "",
                                             e[i].name);

        if (!path)
            rc = ckpt_nomem(err, strlen(folder));
        else if (e[i].is_file)
            rc = push(&w->file, &w->n_file, &w->cap_file, path, err);
        else if (e[i].is_dir)
            rc = push(&w->folder, &w->n_folder, &w->cap_folder, path, err);
        else
            rc = ckpt_fail_as(err, CKPT_EREFUSED, "refused-path", "%s/%s: is no regular file",
                              ckpt_dir_path(dir), path);
    }
    ckpt_dir_close(sub);
    return rc;
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static int find_files(struct walk *w, struct ckpt_dir *dir, struct ckpt_err *err)
{
    int rc = look_into(w, dir, "", err);

    while (rc == 0 && w->n_folder > 0)
        rc = look_into(w, dir, w->folder[--w->n_folder], err);
    if (rc == 0 && w->n_file > 0)
        qsort(w->file, w->n_file, sizeof *w->file, by_text);
    return rc;
}

static la_ssize_t put(struct archive *a, void *ctx, const void *bytes, size_t n)
{
    struct sink *s = ctx;

    s->failed = ckpt_out_write(s->out, bytes, n, s->err);
    if (s->failed) {
        archive_set_error(a, EIO, "write");
        return -1;
    }
    return (la_ssize_t)n;
}

static int failed(const struct sink *s)
{
    const char *why = archive_error_string(s->a);

    if (s->failed)
        return s->failed;
    return ckpt_fail(s->err, archive_errno(s->a) == ENOMEM ? CKPT_ENOMEM : CKPT_EIO,
                     "archive: %s", why ? why : "not written");
}

static int begin(struct sink *s, enum ckpt_pack kind)
{
    bool tar = kind != CKPT_PACK_ZIP;
    int rc = tar ? archive_write_set_format_pax_restricted(s->a)
                 : archive_write_set_format_zip(s->a);

    if (kind == CKPT_PACK_TAR_GZ)
        rc |= archive_write_add_filter_gzip(s->a) | archive_write_set_options(s->a, "!timestamp");
    else if (kind == CKPT_PACK_TAR_BZ2)
        rc |= archive_write_add_filter_bzip2(s->a);
    else if (kind == CKPT_PACK_TAR_XZ)
        rc |= archive_write_add_filter_xz(s->a);
    else if (kind == CKPT_PACK_TAR_ZST)
        rc |= archive_write_add_filter_zstd(s->a);
    else if (kind == CKPT_PACK_ZIP)
        rc |= archive_write_set_options(s->a, "compression=store");
    rc |= archive_write_set_bytes_per_block(s->a, (int)PIECE);
    rc |= archive_write_set_bytes_in_last_block(s->a, kind == CKPT_PACK_TAR ? TAR_BLOCK : 1);
    if (rc == ARCHIVE_OK)
        rc = archive_write_open(s->a, s, NULL, put, NULL);
    return rc == ARCHIVE_OK ? 0 : failed(s);
}

static int add(struct sink *s, struct ckpt_dir *dir, const char *path, void *buf,
               const volatile int *stop)
{
    struct archive_entry *e = archive_entry_new();
    struct ckpt_file *f = NULL;
    int rc = e ? ckpt_file_open_at(&f, dir, path, s->err) : ckpt_nomem(s->err, PIECE);
    uint64_t size = rc == 0 ? ckpt_file_size(f) : 0;

    if (rc == 0) {
        archive_entry_set_pathname(e, path);
        archive_entry_set_filetype(e, AE_IFREG);
        archive_entry_set_perm(e, 0644);
        archive_entry_set_mtime(e, 0, 0);
        archive_entry_set_size(e, (la_int64_t)size);
        if (archive_write_header(s->a, e) < ARCHIVE_WARN)
            rc = failed(s);
        ckpt_file_sequential(f);
    }
    for (uint64_t at = 0; rc == 0 && at < size;) {
        size_t n = size - at < PIECE ? (size_t)(size - at) : PIECE;

        rc = ckpt_file_read_at(f, buf, n, at, s->err);
        if (rc == 0 && archive_write_data(s->a, buf, n) != (la_ssize_t)n)
            rc = failed(s);
        if (rc == 0 && stop && *stop)
            rc = ckpt_fail(s->err, CKPT_ESTOPPED, "stopped while %s was packed", path);
        at += n;
    }
    ckpt_file_close(f);
    if (e)
        archive_entry_free(e);
    return rc;
}

int ckpt_pack(struct ckpt_out *out, struct ckpt_dir *dir, enum ckpt_pack kind,
              const volatile int *stop, struct ckpt_err *err)
{
    struct sink s = {.a = archive_write_new(), .out = out, .err = err};
    void *buf = ckpt_alloc_buffer(PIECE);
    struct walk w = {0};
    int rc = s.a && buf ? 0 : ckpt_nomem(err, PIECE);

    if (rc == 0)
        ckpt_err_clear(err);
    if (rc == 0)
        rc = find_files(&w, dir, err);
    if (rc == 0)
        rc = begin(&s, kind);
    for (size_t i = 0; rc == 0 && i < w.n_file; i++)
        rc = add(&s, dir, w.file[i], buf, stop);
    if (rc == 0 && archive_write_close(s.a) != ARCHIVE_OK)
        rc = failed(&s);
    if (s.a) {
        if (rc)
            archive_write_fail(s.a);      /* otherwise archive_write_free would write the trailer */
        archive_write_free(s.a);
    }
    ckpt_free(w.file);
    ckpt_free(w.folder);
    ckpt_arena_release(&w.arena);
    ckpt_free(buf);
    return rc;
}

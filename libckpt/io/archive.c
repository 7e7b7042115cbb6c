/* archive - see archive.h.  Reading is in archive_read.c. */
#include "libckpt/io/archive.h"

#include <stdio.h>
#include <string.h>

#include "libckpt/io/archive_index.h"
#include "libckpt/io/file_at.h"

/* One folder of the archive. */
struct folder {
    struct archive_index *index;
    char                 *prefix;       /* "" or "a/b/" */
};

bool ckpt_archive_is_tar(const unsigned char *head, size_t n)
{
    unsigned long sum = 0, said = 0;
    long with_signs = 0;
    size_t i = 148;

    if (n < 512 || head[0] == 0)
        return false;
    for (size_t k = 0; k < 512; k++) {
        unsigned char c = k >= 148 && k < 156 ? ' ' : head[k];

        sum += c;
        with_signs += (signed char)c;       /* some old tars summed signed bytes */
    }
    while (i < 156 && head[i] == ' ')
        i++;
    if (i == 156 || head[i] < '0' || head[i] > '7')
        return false;
    for (; i < 156 && head[i] >= '0' && head[i] <= '7'; i++)
        said = said * 8 + (unsigned long)(head[i] - '0');
    return said == sum || (long)said == with_signs;
}

static void drop(struct archive_index *x)
{
    if (atomic_fetch_sub(&x->refs, 1) > 1)
        return;
    ckpt_file_close(x->bytes);
    ckpt_free(x->member);
    ckpt_arena_release(&x->arena);
    ckpt_free(x);
}

static void close_folder(void *self)
{
    struct folder *f = self;

    drop(f->index);
    ckpt_free(f->prefix);
    ckpt_free(f);
}

static const struct dir_ops ops;

/* Takes a reference of index, on failure too. */
static int make(struct ckpt_dir **out, struct archive_index *x, const char *prefix,
                const char *path, struct ckpt_err *err)
{
    struct folder *f = ckpt_alloc(1, sizeof *f);
    char *copy = ckpt_strdup(prefix);

    *out = NULL;
    if (!f || !copy) {
        ckpt_free(f);
        ckpt_free(copy);
        drop(x);
        return ckpt_nomem(err, sizeof *f + strlen(prefix));
    }
    f->index = x;
    f->prefix = copy;
    return file_make_dir(out, &ops, f, path, err);
}

/* The first member, from `from` on, whose path is not less than text. */
static size_t not_less(const struct archive_index *x, size_t from, const char *text)
{
    size_t to = x->n;

    while (from < to) {
        size_t mid = from + (to - from) / 2;

        if (strcmp(x->member[mid].path, text) < 0)
            from = mid + 1;
        else
            to = mid;
    }
    return from;
}

/* prefix + rel + tail; false when that is longer than any member's path. */
static bool join(char path[4096], const struct folder *f, const char *rel, const char *tail)
{
    return (size_t)snprintf(path, 4096, "%s%s%s", f->prefix, rel, tail) < 4096;
}

/* True when something lies below the folder, or the folder itself is a member. */
static bool is_folder(const struct archive_index *x, const char *with_slash)
{
    size_t n = strlen(with_slash), at = not_less(x, 0, with_slash);
    char path[4096];
    const struct member *m;

    if (at < x->n && strncmp(x->member[at].path, with_slash, n) == 0)
        return true;
    snprintf(path, sizeof path, "%.*s", (int)(n - 1), with_slash);
    m = archive_find(x, path);
    return m && m->kind == MEMBER_DIR;
}

static int open_file(void *self, struct ckpt_file **out, const char *rel, const char *path,
                     struct ckpt_err *err)
{
    struct folder *f = self;
    char inside[4096];
    const struct member *m = join(inside, f, rel, "") ? archive_find(f->index, inside) : NULL;

    *out = NULL;
    if (m && m->kind == MEMBER_FILE)
        return file_part(out, f->index->bytes, m->offset, m->size, path, err);
    if (m && m->kind == MEMBER_LINK)
        return ckpt_fail_as(err, CKPT_EREFUSED, "refused-path",
                            "%s: a symbolic link in an archive, which is not followed", path);
    if (join(inside, f, rel, "/") && is_folder(f->index, inside))
        return ckpt_fail_as(err, CKPT_ENOTFOUND, "not-regular",
                            "%s: is a directory, a regular file wanted", path);
    return ckpt_fail(err, CKPT_ENOTFOUND, "%s: no such file in the archive", path);
}

static int open_dir(void *self, struct ckpt_dir **out, const char *rel, const char *path,
                    struct ckpt_err *err)
{
    struct folder *f = self;
    char inside[4096];

    *out = NULL;
    if (!join(inside, f, rel, "/") || !is_folder(f->index, inside))
        return ckpt_fail(err, CKPT_ENOTFOUND, "%s: no such directory in the archive", path);
    atomic_fetch_add(&f->index->refs, 1);
    return make(out, f->index, inside, path, err);
}

/* Members of the folder: each file once, and each folder below it once. */
static int list(void *self, const char *path, struct ckpt_arena *arena, struct ckpt_entry **out,
                size_t *n, struct ckpt_err *err)
{
    struct folder *f = self;
    const struct archive_index *x = f->index;
    size_t len = strlen(f->prefix), from = not_less(x, 0, f->prefix), to = from, i = from;

    (void)path;
    while (to < x->n && strncmp(x->member[to].path, f->prefix, len) == 0)
        to++;
    *out = ckpt_arena_alloc(arena, to - from, sizeof **out);
    if (!*out)
        return ckpt_nomem(err, (to - from) * sizeof **out);
    while (i < to) {
        const struct member *m = &x->member[i];
        size_t k = strcspn(m->path + len, "/");
        bool below = m->path[len + k] == '/';
        struct ckpt_entry *e = &(*out)[*n];
        char past[4100];

        /* A folder that is a member itself is found through the members below it, if there are
         * any. */
        snprintf(past, sizeof past, "%.*s/", (int)(len + k), m->path);
        if (m->kind == MEMBER_DIR && !below) {
            size_t in = not_less(x, i + 1, past);

            if (in < to && strncmp(x->member[in].path, past, len + k + 1) == 0) {
                i++;
                continue;
            }
        }
        e->name = ckpt_arena_strndup(arena, m->path + len, k);
        if (!e->name)
            return ckpt_nomem(err, k);
        e->is_dir = below || m->kind == MEMBER_DIR;
        e->is_file = !below && m->kind == MEMBER_FILE;
        e->size = e->is_file ? m->size : 0;
        ++*n;
        past[len + k] = '/' + 1;        /* sorts after every member below the folder */
        i = below ? not_less(x, i + 1, past) : i + 1;
    }
    return 0;
}

static bool has(void *self, const char *rel)
{
    struct folder *f = self;
    char inside[4096];
    const struct member *m = join(inside, f, rel, "") ? archive_find(f->index, inside) : NULL;

    return m && m->kind == MEMBER_FILE;
}

static const struct dir_ops ops = {.open_file = open_file, .open_dir = open_dir, .list = list,
                                   .has = has, .close = close_folder};

/* The single top-level folder, with its slash; "" when there is none. */
static void only_folder(const struct archive_index *x, char prefix[4096])
{
    size_t k = x->n ? strcspn(x->member[0].path, "/") : 0;
    bool folder = false;

    prefix[0] = '\0';
    for (size_t i = 0; i < x->n; i++) {
        const struct member *m = &x->member[i];

        if (strncmp(m->path, x->member[0].path, k) != 0 || (m->path[k] && m->path[k] != '/'))
            return;
        folder = folder || m->path[k] == '/' || m->kind == MEMBER_DIR;
    }
    if (folder)
        snprintf(prefix, 4096, "%.*s/", (int)k, x->member[0].path);
}

int ckpt_archive_open(struct ckpt_dir **out, struct ckpt_file *file, const char *where,
                      struct ckpt_err *err)
{
    struct archive_index *x = ckpt_alloc(1, sizeof *x);
    char prefix[4096] = "", *name = ckpt_strdup(ckpt_file_name(file));
    int rc;

    *out = NULL;
    if (!x || !name) {
        ckpt_free(x);
        ckpt_free(name);
        ckpt_file_close(file);
        return ckpt_nomem(err, sizeof *x);
    }
    atomic_init(&x->refs, 1);
    rc = archive_read_all(x, file, where, err);
    if (rc) {
        drop(x);
    } else {
        if (!x->of_here)
            only_folder(x, prefix);
        rc = make(out, x, prefix, name, err);
    }
    ckpt_free(name);
    return rc;
}

/* dir_union - several directories seen as one; see file.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/io/file_at.h"

#define COMPARE_BYTES ((size_t)1 << 20)

struct joined {
    struct ckpt_dir **part;
    size_t            n;
};

static void close_parts(void *self)
{
    struct joined *u = self;

    for (size_t i = 0; i < u->n; i++)
        ckpt_dir_close(u->part[i]);
    ckpt_free(u->part);
    ckpt_free(u);
}

/* Compare the bytes of both files. */
static int same_bytes(bool *same, struct ckpt_file *a, struct ckpt_file *b, struct ckpt_err *err)
{
    uint64_t size = ckpt_file_size(a);
    unsigned char *buf;
    int rc = 0;

    *same = size == ckpt_file_size(b);
    if (!*same || ckpt_file_same(a, b))
        return 0;
    buf = ckpt_alloc_buffer(2 * COMPARE_BYTES);
    if (!buf)
        return ckpt_nomem(err, 2 * COMPARE_BYTES);
    for (uint64_t at = 0; rc == 0 && *same && at < size;) {
        size_t n = size - at < COMPARE_BYTES ? (size_t)(size - at) : COMPARE_BYTES;

        rc = ckpt_file_read_at(a, buf, n, at, err);
        if (rc == 0)
            rc = ckpt_file_read_at(b, buf + COMPARE_BYTES, n, at, err);
        *same = memcmp(buf, buf + COMPARE_BYTES, n) == 0;
        at += n;
    }
    ckpt_free(buf);
    return rc;
}

/* No part has rel as a file: fail as the part does where rel is something else. */
static int open_none(struct joined *u, const char *rel, const char *path, struct ckpt_err *err)
{
    for (size_t i = 0; i < u->n; i++) {
        struct ckpt_file *f = NULL;
        int rc = ckpt_file_open_at(&f, u->part[i], rel, err);

        ckpt_file_close(f);
        if (rc && rc != CKPT_ENOTFOUND)
            return rc;
    }
    return ckpt_fail(err, CKPT_ENOTFOUND, "%s: no such file in any of %zu folders", path, u->n);
}

static int open_file(void *self, struct ckpt_file **out, const char *rel, const char *path,
                     struct ckpt_err *err)
{
    struct joined *u = self;
    struct ckpt_file *first = NULL;
    int rc = 0;

    *out = NULL;
    for (size_t i = 0; rc == 0 && i < u->n; i++) {
        struct ckpt_file *f = NULL;
        bool same = true;

        if (!ckpt_dir_has(u->part[i], rel))
            continue;
        rc = ckpt_file_open_at(&f, u->part[i], rel, err);
        if (rc == 0 && !first) {
            first = f;
            continue;
        }
        if (rc == 0)
            rc = same_bytes(&same, first, f, err);
        if (!same)
            rc = ckpt_fail_as(err, CKPT_EFORMAT, "ambiguous", "%s and %s differ",
                              ckpt_file_name(first), ckpt_file_name(f));
        ckpt_file_close(f);
    }
    if (rc == 0 && !first)
        rc = open_none(u, rel, path, err);
    if (rc) {
        ckpt_file_close(first);
        first = NULL;
    }
    *out = first;
    return rc;
}

static const struct dir_ops ops;

/* Takes part. */
static int make(struct ckpt_dir **out, struct ckpt_dir **part, size_t n, const char *path,
                struct ckpt_err *err)
{
    struct joined *u = ckpt_alloc(1, sizeof *u);

    *out = NULL;
    if (!u) {
        for (size_t i = 0; i < n; i++)
            ckpt_dir_close(part[i]);
        ckpt_free(part);
        return ckpt_nomem(err, sizeof *u);
    }
    u->part = part;
    u->n = n;
    return file_make_dir(out, &ops, u, path, err);
}

static int open_dir(void *self, struct ckpt_dir **out, const char *rel, const char *path,
                    struct ckpt_err *err)
{
    struct joined *u = self;
    struct ckpt_dir **part = ckpt_alloc(u->n, sizeof *part);
    size_t n = 0;
    int rc = 0;

    *out = NULL;
    if (!part)
        return ckpt_nomem(err, u->n * sizeof *part);
    for (size_t i = 0; rc == 0 && i < u->n; i++) {
        rc = ckpt_dir_open_at(&part[n], u->part[i], rel, err);
        if (rc == 0)
            n++;
        else if (rc == CKPT_ENOTFOUND)
            rc = 0;
    }
    if (rc == 0 && n == 0)
        rc = ckpt_fail(err, CKPT_ENOTFOUND, "%s: no such directory in any of %zu folders", path,
                       u->n);
    if (rc == 0)
        return make(out, part, n, path, err);
    while (n > 0)
        ckpt_dir_close(part[--n]);
    ckpt_free(part);
    return rc;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct ckpt_entry *)a)->name, ((const struct ckpt_entry *)b)->name);
}

/* List a name that several parts have once. */
static int fold(struct ckpt_entry *e, size_t *n, const char *path, struct ckpt_err *err)
{
    size_t kept = 0;

    qsort(e, *n, sizeof *e, by_name);
    for (size_t i = 0; i < *n; i++) {
        if (kept > 0 && strcmp(e[kept - 1].name, e[i].name) == 0) {
            if (e[kept - 1].is_dir != e[i].is_dir || e[kept - 1].is_file != e[i].is_file)
                return ckpt_fail_as(err, CKPT_EFORMAT, "ambiguous",
                                    "%s/%s: a file in one folder, something else in another", path,
                                    e[i].name);
            continue;
        }
        e[kept++] = e[i];
    }
    *n = kept;
    return 0;
}

static int list(void *self, const char *path, struct ckpt_arena *arena, struct ckpt_entry **out,
                size_t *n, struct ckpt_err *err)
{
    struct joined *u = self;
    struct ckpt_entry **each = ckpt_arena_alloc(arena, u->n, sizeof *each);
    size_t *count = ckpt_arena_alloc(arena, u->n, sizeof *count), all = 0;
    int rc;

    if (!each || !count)
        return ckpt_nomem(err, u->n * sizeof *each);
    for (size_t i = 0; i < u->n; i++) {
        if ((rc = ckpt_dir_list(u->part[i], arena, &each[i], &count[i], err)) != 0)
            return rc;
        all += count[i];
    }
    *out = ckpt_arena_alloc(arena, all, sizeof **out);
    if (!*out)
        return ckpt_nomem(err, all * sizeof **out);
    for (size_t i = 0; i < u->n; i++) {
        if (count[i] > 0)
            memcpy(*out + *n, each[i], count[i] * sizeof **out);
        *n += count[i];
    }
    return *n > 0 ? fold(*out, n, path, err) : 0;
}

static bool has(void *self, const char *rel)
{
    struct joined *u = self;

    for (size_t i = 0; i < u->n; i++)
        if (ckpt_dir_has(u->part[i], rel))
            return true;
    return false;
}

static const struct dir_ops ops = {.open_file = open_file, .open_dir = open_dir, .list = list,
                                   .has = has, .close = close_parts};

int ckpt_dir_union(struct ckpt_dir **out, struct ckpt_dir **part, size_t n, struct ckpt_err *err)
{
    struct ckpt_dir **copy = ckpt_alloc(n, sizeof *copy);
    char name[4096];

    *out = NULL;
    if (!copy) {
        for (size_t i = 0; i < n; i++)
            ckpt_dir_close(part[i]);
        return ckpt_nomem(err, n * sizeof *copy);
    }
    memcpy(copy, part, n * sizeof *copy);
    snprintf(name, sizeof name, "%s", ckpt_dir_path(part[0]));
    return make(out, copy, n, name, err);
}

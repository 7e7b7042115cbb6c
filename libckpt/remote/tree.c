/* tree - see tree.h. */
#include "libckpt/remote/tree.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/err.h"
#include "libckpt/io/file_at.h"
#include "libckpt/log.h"
#include "libckpt/base/pool.h"

#define AT_ONCE 8               /* heads that are fetched together */

/* A directory of a tree. */
struct folder {
    struct tree *tree;
    unsigned     flags;
    size_t       n_prefix;
    char         prefix[];      /* "" or "sub/" */
};

int tree_new(struct tree **out, const char *name, struct ckpt_err *err)
{
    struct tree *t = ckpt_alloc(1, sizeof *t);

    *out = NULL;
    if (!t || !(t->name = ckpt_strdup(name))) {
        ckpt_free(t);
        return ckpt_nomem(err, sizeof *t);
    }
    t->arena.limit = (uint64_t)512 << 20;
    pthread_mutex_init(&t->lock, NULL);
    *out = t;
    return 0;
}

void tree_free(struct tree *t)
{
    if (!t)
        return;
    for (size_t i = 0; i < t->n; i++)
        range_drop(t->file[i].range);
    pthread_mutex_destroy(&t->lock);
    ckpt_arena_release(&t->arena);
    ckpt_free(t->file);
    ckpt_free(t->name);
    ckpt_free(t);
}

/* Components of a path may be hidden ones here. */
static bool is_safe(const char *part) { return !strchr(part, '\\'); }

int tree_add(struct tree *t, const char *path, uint64_t size, const char *digest,
             struct ckpt_err *err)
{
    int rc;

    if (!file_parts_are(path, is_safe)) {
        ckpt_log(CKPT_LOG_WARNING, "%s: a file named %.200s is left out", t->name, path);
        return 0;
    }
    if (t->n == TREE_MAX_FILES)
        return ckpt_fail(err, CKPT_ELIMIT, "%s: more than %u files", t->name, TREE_MAX_FILES);
    if ((rc = ckpt_reserve(&t->file, t->n, &t->cap, sizeof *t->file, err)) != 0)
        return rc;
    t->file[t->n] = (struct tree_file){
        .path = ckpt_arena_strndup(&t->arena, path, strlen(path)), .size = size,
        .digest = ckpt_arena_strndup(&t->arena, digest, strlen(digest)),
    };
    if (!t->file[t->n].path || !t->file[t->n].digest)
        return ckpt_nomem(err, strlen(path));
    t->n++;
    return 0;
}

static int by_path(const void *a, const void *b)
{
    return strcmp(((const struct tree_file *)a)->path, ((const struct tree_file *)b)->path);
}

static struct tree_file *find(const struct tree *t, const char *path)
{
    struct tree_file key = {.path = path};

    return t->n ? bsearch(&key, t->file, t->n, sizeof key, by_path) : NULL;
}

/* The first file at or after a text. */
static size_t first_from(const struct tree *t, const char *text, size_t n)
{
    size_t low = 0, high = t->n;

    while (low < high) {
        size_t mid = low + (high - low) / 2;

        if (strncmp(t->file[mid].path, text, n) < 0)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

int tree_ready(struct tree *t, struct ckpt_err *err)
{
    char above[4096];

    if (t->n > 0)
        qsort(t->file, t->n, sizeof *t->file, by_path);
    for (size_t i = 0; i < t->n; i++) {
        const char *path = t->file[i].path;

        if (i > 0 && strcmp(path, t->file[i - 1].path) == 0)
            return ckpt_fail(err, CKPT_EPROTOCOL, "%s: lists %.200s twice", t->name, path);
        for (const char *s = path; (s = strchr(s, '/')) != NULL; s++) {
            snprintf(above, sizeof above, "%.*s", (int)(s - path), path);
            if (find(t, above))
                return ckpt_fail(err, CKPT_EPROTOCOL, "%s: lists %.200s as a file and as a folder",
                                 t->name, above);
        }
    }
    return 0;
}

static bool has_below(const struct tree *t, const char *rel)
{
    char prefix[4100];
    int n = snprintf(prefix, sizeof prefix, "%s/", rel);
    size_t i;

    if (n < 0 || (size_t)n >= sizeof prefix)
        return false;
    i = first_from(t, prefix, (size_t)n);
    return i < t->n && strncmp(t->file[i].path, prefix, (size_t)n) == 0;
}

bool tree_same(const struct tree *a, const struct tree *b, const char *path)
{
    const struct tree_file *x = find(a, path), *y = find(b, path);

    return !x || !y ? x == y : x->size == y->size && strcmp(x->digest, y->digest) == 0;
}

int tree_kind(const struct tree *t, const char *rel)
{
    return !*rel ? 2 : find(t, rel) ? 1 : has_below(t, rel) ? 2 : 0;
}

/* -- files ------------------------------------------------------------------------------------ */

static void got(const void *tree, const void *file, struct ckpt_file *whole)
{
    const struct tree *t = tree;

    if (t->got)
        t->got(t, file, whole);
}

static int renew(const void *tree, const void *file, char url[HTTP_URL],
                 const struct http_auth **auth, struct ckpt_err *err)
{
    struct tree *t = (struct tree *)(uintptr_t)tree;
    int rc;

    pthread_mutex_lock(&t->lock);
    rc = t->renew(t, file, url, auth, err);
    pthread_mutex_unlock(&t->lock);
    return rc;
}

/* The range of a file, shared by all who open it. */
static int range_of(struct range **out, struct tree *t, struct tree_file *f, struct ckpt_err *err)
{
    char name[8192], *url = ckpt_alloc(1, HTTP_URL);
    struct ckpt_file *have = NULL;
    int rc = url ? 0 : ckpt_nomem(err, HTTP_URL);

    pthread_mutex_lock(&t->lock);
    if (rc == 0 && !f->range) {
        snprintf(name, sizeof name, "%s/%s", t->name, f->path);
        rc = t->locate(t, f, url, &have, err);
        if (rc == 0)
            rc = range_new(&f->range, &(struct range_at){
                .name = name, .url = url, .auth = t->auth_of ? t->auth_of(t, f) : t->auth,
                .size = f->size, .digest = f->digest, .got = got,
                .renew = t->renew ? renew : NULL, .tree = t, .file = f}, err);
        if (rc == 0 && have) {
            got(t, f, have);
            range_have(f->range, have);
        } else {
            ckpt_file_close(have);
        }
    }
    *out = f->range;
    pthread_mutex_unlock(&t->lock);
    ckpt_free(url);
    return rc;
}

int tree_open_file(struct ckpt_file **out, struct tree *t, const char *rel, unsigned flags,
                   struct ckpt_err *err)
{
    struct tree_file *f = find(t, rel);
    struct range *r;

    *out = NULL;
    if (!f && has_below(t, rel))
        return ckpt_fail_as(err, CKPT_ENOTFOUND, "not-regular", "%s/%s: is a directory, a regular "
                            "file wanted", t->name, rel);
    if (!f)
        return ckpt_fail(err, CKPT_ENOTFOUND, "%s/%s: no such file or directory", t->name, rel);
    return range_of(&r, t, f, err) ? ckpt_err_code(err) : range_file(out, r, flags, err);
}

/* -- directories ------------------------------------------------------------------------------ */

static int in_tree(char *out, size_t size, const struct folder *d, const char *rel,
                   struct ckpt_err *err)
{
    return (size_t)snprintf(out, size, "%s%s", d->prefix, rel) < size
               ? 0 : ckpt_fail(err, CKPT_ELIMIT, "%.200s: path too long", rel);
}

static int open_file(void *self, struct ckpt_file **out, const char *rel, const char *path,
                     struct ckpt_err *err)
{
    struct folder *d = self;
    char whole[4096];

    (void)path;
    *out = NULL;
    return in_tree(whole, sizeof whole, d, rel, err)
               ? ckpt_err_code(err) : tree_open_file(out, d->tree, whole, d->flags, err);
}

static int open_dir(void *self, struct ckpt_dir **out, const char *rel, const char *path,
                    struct ckpt_err *err)
{
    struct folder *d = self;
    char whole[4096];

    *out = NULL;
    return in_tree(whole, sizeof whole, d, rel, err)
               ? ckpt_err_code(err) : tree_open_dir(out, d->tree, whole, path, d->flags, err);
}

static int list(void *self, const char *path, struct ckpt_arena *arena, struct ckpt_entry **out,
                size_t *n, struct ckpt_err *err)
{
    struct folder *d = self;
    struct tree *t = d->tree;
    size_t from = first_from(t, d->prefix, d->n_prefix), end = from;
    const char *last = NULL;
    size_t n_last = 0;

    (void)path;
    while (end < t->n && strncmp(t->file[end].path, d->prefix, d->n_prefix) == 0)
        end++;
    *n = 0;
    *out = ckpt_arena_alloc(arena, end - from + 1, sizeof **out);
    if (!*out)
        return ckpt_nomem(err, (end - from) * sizeof **out);
    for (size_t i = from; i < end; i++) {
        const char *rest = t->file[i].path + d->n_prefix;
        size_t k = strcspn(rest, "/");
        struct ckpt_entry *e = &(*out)[*n];

        if (rest[k] && last && n_last == k && memcmp(last, rest, k) == 0)
            continue;
        e->name = ckpt_arena_strndup(arena, rest, k);
        if (!e->name)
            return ckpt_nomem(err, k);
        e->is_dir = rest[k] == '/';
        e->is_file = !e->is_dir;
        e->size = e->is_file && t->file[i].size != FIELD_NONE ? t->file[i].size : 0;
        if (e->is_dir) {
            last = e->name;
            n_last = k;
        }
        ++*n;
    }
    return 0;
}

static bool has(void *self, const char *rel)
{
    struct ckpt_err ignored = {0};
    struct folder *d = self;
    char whole[4096];

    return in_tree(whole, sizeof whole, d, rel, &ignored) == 0 && find(d->tree, whole);
}

struct heads {
    struct folder     *folder;
    const char *const *rel;
};

static int get_head(void *ctx, size_t i, size_t worker, struct ckpt_err *err)
{
    struct heads *h = ctx;
    char whole[4096];
    struct tree_file *f;
    struct range *r;
    int rc;

    (void)worker;
    if ((rc = in_tree(whole, sizeof whole, h->folder, h->rel[i], err)) != 0)
        return rc;
    f = find(h->folder->tree, whole);
    if (!f)
        return 0;
    return range_of(&r, h->folder->tree, f, err) ? ckpt_err_code(err)
                                                 : range_head(r, h->folder->flags, err);
}

static int expect(void *self, const char *const *rel, size_t n, struct ckpt_err *err)
{
    struct heads h = {self, rel};

    return n > 1 ? ckpt_pool_run(n < AT_ONCE ? n : AT_ONCE, n, get_head, &h, err) : 0;
}

static void close_folder(void *self) { ckpt_free(self); }

static const struct dir_ops ops = {.open_file = open_file, .open_dir = open_dir, .list = list,
                                   .has = has, .expect = expect, .close = close_folder};

int tree_open_dir(struct ckpt_dir **out, struct tree *t, const char *rel, const char *path,
                  unsigned flags, struct ckpt_err *err)
{
    size_t n = strlen(rel);
    struct folder *d;

    *out = NULL;
    if (tree_kind(t, rel) != 2)
        return ckpt_fail(err, CKPT_ENOTFOUND, find(t, rel) ? "%s: a directory wanted, is none"
                         : "%s: no such file or directory", path);
    d = ckpt_alloc(1, sizeof *d + n + 2);
    if (!d)
        return ckpt_nomem(err, sizeof *d + n);
    d->tree = t;
    d->flags = flags;
    d->n_prefix = n ? n + 1 : 0;
    memcpy(d->prefix, rel, n);
    d->prefix[n] = n ? '/' : '\0';
    return file_make_dir(out, &ops, d, path, err);
}

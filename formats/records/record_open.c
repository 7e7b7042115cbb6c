/* record_open - chooses the reader for a path or a list of paths, see record.h. */
#include <glob.h>
#include <string.h>
#include <sys/stat.h>

#include "formats/records/record.h"
#include "formats/records/record_dir.h"
#include "formats/records/record_rows.h"

#define MAX_FILES 65536     /* each keeps a descriptor */
#define HEAD      4096      /* bytes that readers see before they bid */

static const struct record_ops *const rows[] = {&record_jsonl, &record_text, &record_parquet,
                                                &record_arrow};
#define N_ROWS (sizeof rows / sizeof *rows)

struct part {
    const struct record_ops *ops;
    void                    *self;
    char                    *name;
    int64_t                  first;     /* record number of its first record */
};

struct records {
    struct part *part;
    size_t       n, cap;
    int64_t      count;
};

static int choose(const struct record_ops **out, const char *name, struct ckpt_file *file,
                  struct ckpt_err *err)
{
    static const char pointer[] = "version https://git-lfs.github.com/spec/";
    unsigned char head[HEAD];
    uint64_t size = ckpt_file_size(file);
    size_t n = size < HEAD ? (size_t)size : HEAD;
    int best = 0;

    *out = NULL;
    if (n > 0 && ckpt_file_read_at(file, head, n, 0, err))
        return err->code;
    if (n >= sizeof pointer - 1 && memcmp(head, pointer, sizeof pointer - 1) == 0)
        return ckpt_fail(err, CKPT_EUNSUPPORTED,
                         "is a Git LFS pointer, the file itself was not fetched");
    for (size_t i = 0; i < N_ROWS; i++) {
        int bid = rows[i]->bid(name, head, n);

        if (bid > 0 && bid == best)
            return ckpt_fail(err, CKPT_EFORMAT, "could be %s or %s", (*out)->name,
                             rows[i]->name);
        if (bid > best) {
            best = bid;
            *out = rows[i];
        }
    }
    if (!*out)
        return ckpt_fail(err, CKPT_EUNSUPPORTED, "neither JSON lines nor parquet nor "
                         "Arrow nor a .txt file");
    return 0;
}

/* takes file */
static int add_file(struct records *r, struct ckpt_file *file, struct ckpt_err *err)
{
    const char *name = ckpt_file_name(file);
    struct part part = {.first = r->count};

    if (r->n == MAX_FILES) {
        ckpt_file_close(file);
        return ckpt_fail(err, CKPT_ELIMIT, "more than %d files of records", MAX_FILES);
    }
    if (r->n == r->cap) {
        size_t cap = r->cap ? 2 * r->cap : 16;
        void *p = ckpt_grow(r->part, cap, sizeof *r->part);

        if (!p) {
            ckpt_file_close(file);
            return ckpt_nomem(err, cap * sizeof *r->part);
        }
        r->part = p;
        r->cap = cap;
    }
    part.name = ckpt_strdup(name);
    if (!part.name || choose(&part.ops, name, file, err)) {
        int rc = part.name ? ckpt_err_in(err, "%s", name) : ckpt_nomem(err, strlen(name));

        ckpt_free(part.name);
        ckpt_file_close(file);
        return rc;
    }
    if (part.ops->open(&part.self, file, err)) {
        ckpt_err_in(err, "%s", part.name);
        ckpt_free(part.name);
        return err->code;
    }
    r->part[r->n++] = part;
    r->count += part.ops->count(part.self);
    return 0;
}

static int add_dir(struct records *r, const char *path, struct ckpt_err *err)
{
    struct ckpt_arena arena = {0};
    struct ckpt_dir *dir = NULL;
    struct ckpt_file *file;
    const char **name;
    size_t n;
    int rc = record_dir_list(&dir, &name, &n, path, &arena, err);

    for (size_t i = 0; rc == 0 && i < n; i++) {
        rc = ckpt_file_open_at(&file, dir, name[i], err);
        if (rc == 0)
            rc = add_file(r, file, err);
    }
    ckpt_dir_close(dir);
    ckpt_arena_release(&arena);
    return rc;
}

static int add_named(struct records *r, const char *path, struct ckpt_err *err)
{
    struct ckpt_file *file;
    struct stat st;

    if (stat(path, &st) == 0 && S_ISDIR(st.st_mode))
        return add_dir(r, path, err);
    return ckpt_file_open(&file, path, CKPT_FOLLOW, err) ? err->code : add_file(r, file, err);
}

/* A path, or where there is none of that name a pattern: all that match, in name order. */
static int add_path(struct records *r, const char *path, struct ckpt_err *err)
{
    struct stat st;
    glob_t found;
    int rc;

    if (!strpbrk(path, "*?[") || lstat(path, &st) == 0)
        return add_named(r, path, err);
    rc = glob(path, 0, NULL, &found);
    if (rc)
        return rc == GLOB_NOMATCH ? ckpt_fail(err, CKPT_ENOTFOUND, "%s: no file matches", path)
               : rc == GLOB_NOSPACE ? ckpt_nomem(err, strlen(path))
                                    : ckpt_fail(err, CKPT_EIO, "%s: cannot be listed", path);
    for (size_t i = 0; rc == 0 && i < found.gl_pathc; i++)
        rc = add_named(r, found.gl_pathv[i], err);
    globfree(&found);
    return rc;
}

int records_open(struct records **out, const char *const *path, size_t n_path,
                 struct ckpt_err *err)
{
    struct records *r = ckpt_alloc(1, sizeof *r);
    int rc = 0;

    *out = NULL;
    if (!r)
        return ckpt_nomem(err, sizeof *r);
    for (size_t i = 0; rc == 0 && i < n_path; i++)
        rc = add_path(r, path[i], err);
    if (rc) {
        records_close(r);
        return rc;
    }
    *out = r;
    return 0;
}

void records_close(struct records *r)
{
    if (!r)
        return;
    for (size_t i = 0; i < r->n; i++) {
        r->part[i].ops->close(r->part[i].self);
        ckpt_free(r->part[i].name);
    }
    ckpt_free(r->part);
    ckpt_free(r);
}

int64_t records_count(const struct records *r) { return r->count; }

const char *records_format(const struct records *r) { return r->part[0].ops->name; }

bool records_is(const char *path, const unsigned char *head, size_t len)
{
    for (size_t i = 0; i < N_ROWS; i++)
        if (rows[i]->bid(path, head, len) > 0)
            return true;
    return false;
}

/* The part record i lies in: the last that starts at or before i, since empty files share a
 * start with the next. */
static const struct part *part_of(const struct records *r, int64_t i)
{
    size_t low = 0, high = r->n;

    while (high - low > 1) {
        size_t mid = low + (high - low) / 2;

        if (r->part[mid].first <= i)
            low = mid;
        else
            high = mid;
    }
    return &r->part[low];
}

int records_err_in(const struct records *r, int64_t i, struct ckpt_err *err)
{
    const struct part *p = part_of(r, i);

    return ckpt_err_in(err, "%s: record %lld", p->name, (long long)(i - p->first + 1));
}

int records_get(struct records *r, int64_t i, json_t **out, struct ckpt_err *err)
{
    const struct part *p;

    *out = NULL;
    if (i < 0 || i >= r->count)
        return ckpt_fail(err, CKPT_ENOTFOUND, "record %lld of %lld", (long long)i,
                         (long long)r->count);
    p = part_of(r, i);
    return p->ops->get(p->self, i - p->first, out, err) ? records_err_in(r, i, err) : 0;
}

/* records/open - choose the reader for a path or a list of paths, see record.h. */
#include <assert.h>
#include <glob.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "formats/records/record.h"
#include "formats/records/dir.h"
#include "formats/records/rows.h"
#include "formats/records/split.h"
#include "libckpt/base/buf.h"
#include "libckpt/base/range.h"
#include "libckpt/digest.h"
#include "libckpt/err.h"
#include "libckpt/io/path.h"
#include "libckpt/io/spool.h"

#define MAX_FILES 65536     /* each keeps a descriptor */
#define HEAD      4096      /* bytes that readers get to bid */
#define PIECE     ((size_t)1 << 20)     /* bytes that are hashed at once */

static const struct record_ops *const rows[] = {
    &record_jsonl, &record_json, &record_csv, &record_text, &record_parquet, &record_arrow,
    &record_token_ids,
};
#define N_ROWS (sizeof rows / sizeof *rows)

struct part {
    const struct record_ops *ops;
    void                    *self;
    char                    *name;
    int64_t                  first;     /* index of its first record */
    unsigned char            id[16];    /* of the file, if requested */
};

/* Records at [first, first + n) of all that the files hold. */
struct view { int64_t first, n; };

struct records {
    struct part               *part;
    size_t                     n, cap;
    int64_t                    held;    /* records of all files */
    int64_t                    count;   /* of the views */
    struct view                view[SPLIT_MAX_PARTS];
    size_t                     n_view;
    int64_t                    begin, stride;   /* record i is number begin + i * stride of the
                                                   views */
    const struct records_opts *opts;    /* valid while files are opened */
    const char                *split;   /* split of the files being opened, or NULL */
    unsigned char              id[16];  /* of the options of reading, if requested */
    bool                       has_id;
};

static int read_head(struct ckpt_file *file, unsigned char head[HEAD], size_t *n,
                     struct ckpt_err *err)
{
    uint64_t size = ckpt_file_size(file);

    *n = size < HEAD ? (size_t)size : HEAD;
    return *n ? ckpt_file_read_at(file, head, *n, 0, err) : 0;
}

/* Unpack a compressed file; *file is then another. */
static int unpack(struct ckpt_file **file, struct ckpt_err *err)
{
    const char *dir = getenv("TMPDIR");
    unsigned char head[HEAD];
    struct ckpt_file *packed = *file;
    size_t n;
    int rc;

    rc = read_head(packed, head, &n, err);
    if (rc)
        return rc;
    if (!ckpt_spool_is_compressed(head, n))
        return 0;
    *file = NULL;
    return ckpt_spool_file(file, packed, dir && *dir ? dir : NULL, err);
}

/* name: without its compression suffix. */
static int choose(const struct record_ops **out, const char *name, struct ckpt_file *file,
                  struct ckpt_err *err)
{
    static const char pointer[] = "version https://git-lfs.github.com/spec/";
    unsigned char head[HEAD];
    size_t n;
    int best = 0;
    int rc;

    *out = NULL;
    if ((rc = read_head(file, head, &n, err)) != 0)
        return rc;
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
    if (!*out && n == 0)
        return ckpt_fail(err, CKPT_EFORMAT, "is empty, and its name does not say of what");
    if (!*out) {
        ckpt_fail(err, CKPT_EUNSUPPORTED, "neither JSON nor CSV nor parquet nor "
                  "Arrow nor token ids nor a .txt file");
        return ckpt_err_hint(err, n > 262 && (memcmp(head, "PK\3\4", 4) == 0 ||
                                              memcmp(head + 257, "ustar", 5) == 0)
                                      ? "it is an archive: unpack it, a folder of files is read"
                                      : "CSV and text are known by names that end in .csv, .tsv "
                                        "or .txt");
    }
    return 0;
}

int record_open(void **self, const struct record_ops *ops, struct ckpt_file *file,
                const struct records_opts *opts, struct ckpt_err *err)
{
    void *made = ckpt_alloc(1, ops->size);
    int rc;

    *self = NULL;
    if (!made) {
        ckpt_file_close(file);
        return ckpt_nomem(err, ops->size);
    }
    rc = ops->open(made, file, opts, err);
    if (rc)
        record_close(made, ops);
    else
        *self = made;
    return rc;
}

void record_close(void *self, const struct record_ops *ops)
{
    if (!self)
        return;
    ops->close(self);
    ckpt_free(self);
}

int64_t records_int(const unsigned char *bytes, size_t width, bool is_signed)
{
    uint64_t v = 0;

    assert(width >= 1 && width <= 8);
    for (size_t i = 0; i < width; i++)
        v |= (uint64_t)bytes[i] << 8 * i;
    if (is_signed && width < 8 && v >> (8 * width - 1))
        v |= UINT64_MAX << 8 * width;
    return (int64_t)v;
}

/* Identify a local file by path, size and time; a remote one by its bytes. */
static int file_id(unsigned char id[16], struct ckpt_file *file, struct ckpt_err *err)
{
    const char *name = ckpt_file_name(file);
    uint64_t size = ckpt_file_size(file), base;
    int fd = ckpt_path_is_remote(name) ? -1 : ckpt_file_fd(file, &base);
    struct ckpt_xxh128_state *x = NULL;
    unsigned char *piece = NULL;
    char path[PATH_MAX];
    struct stat st;
    int rc = ckpt_xxh128_new(&x, err);

    if (rc == 0 && fd >= 0 && fstat(fd, &st) == 0) {
        if (realpath(name, path))
            name = path;
        ckpt_xxh128_add(x, name, strlen(name) + 1);
        ckpt_xxh128_add(x, &size, sizeof size);
        ckpt_xxh128_add(x, &st.st_mtim.tv_sec, sizeof st.st_mtim.tv_sec);
        ckpt_xxh128_add(x, &st.st_mtim.tv_nsec, sizeof st.st_mtim.tv_nsec);
    } else if (rc == 0) {
        piece = ckpt_alloc_buffer(PIECE);
        rc = piece ? 0 : ckpt_nomem(err, PIECE);
        for (uint64_t at = 0; rc == 0 && at < size; at += PIECE) {
            size_t n = size - at < PIECE ? (size_t)(size - at) : PIECE;

            rc = ckpt_file_read_at(file, piece, n, at, err);
            if (rc == 0)
                ckpt_xxh128_add(x, piece, n);
        }
    }
    if (rc == 0)
        ckpt_xxh128_end(x, id);
    ckpt_xxh128_free(x);
    ckpt_free(piece);
    return rc;
}

/* takes file */
static int add_file(struct records *r, struct ckpt_file *file, struct ckpt_err *err)
{
    struct part part = {.first = r->held, .name = ckpt_strdup(ckpt_file_name(file))};
    char *plain = ckpt_strdup(ckpt_file_name(file));
    int rc = part.name && plain ? 0 : ckpt_nomem(err, sizeof part);

    if (rc == 0 && r->n == MAX_FILES)
        rc = ckpt_fail(err, CKPT_ELIMIT, "more than %d files of records", MAX_FILES);
    if (rc == 0)
        rc = ckpt_reserve(&r->part, r->n, &r->cap, sizeof *r->part, err);
    if (rc == 0 && r->opts->identity)
        rc = file_id(part.id, file, err);
    if (rc == 0)
        rc = unpack(&file, err);
    if (rc == 0) {
        assert(plain);
        plain[split_plain_length(plain)] = '\0';
        rc = choose(&part.ops, plain, file, err);
    }
    if (rc == 0) {
        rc = record_open(&part.self, part.ops, file, r->opts, err);
        file = NULL;
    }
    if (rc == 0) {
        r->part[r->n++] = part;
        r->held += part.ops->count(part.self);
    } else {
        if (part.name)
            ckpt_err_in(err, "%s", part.name);
        ckpt_free(part.name);
    }
    ckpt_free(plain);
    ckpt_file_close(file);
    return rc;
}

/* Add the data files below a folder, or those that match a pattern. */
static int add_dir(struct records *r, const char *path, const char *pattern, struct ckpt_err *err)
{
    struct ckpt_arena arena = {0};
    struct ckpt_dir *dir = NULL;
    struct ckpt_file *file;
    const char **name;
    size_t n;
    int rc = pattern ? records_dir_match(&dir, &name, &n, path, pattern, &arena, err)
                     : records_dir_list(&dir, &name, &n, path, r->opts->config, r->split, &arena,
                                        err);

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
    int rc;

    if (ckpt_path_is_dir(path))
        return add_dir(r, path, NULL, err);
    rc = ckpt_path_file(&file, path, CKPT_FOLLOW | CKPT_PROVE, err);
    return rc ? rc : add_file(r, file, err);
}

/* Add remote files that match a pattern in a listable place:
 * "hf://datasets/owner/name/data/train-*". */
static int add_remote(struct records *r, const char *path, struct ckpt_err *err)
{
    size_t n = strcspn(path, "*?[");
    char *base;
    int rc;

    /* In a web address "?" is part of it. */
    if (!path[n] || strncmp(path, "http", 4) == 0 || ckpt_path_is_file(path))
        return add_named(r, path, err);
    while (n > 0 && path[n - 1] != '/')
        n--;
    base = ckpt_strdup(path);
    if (!base)
        return ckpt_nomem(err, n);
    base[n > 0 ? n - 1 : 0] = '\0';
    rc = add_dir(r, base, path + n, err);
    ckpt_free(base);
    return rc;
}

/* Add a path, or if it does not exist a pattern: all matches, in the order of names. */
static int add_path(struct records *r, const char *path, struct ckpt_err *err)
{
    struct stat st;
    glob_t found;
    int rc;

    if (ckpt_path_is_remote(path))
        return add_remote(r, path, err);
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

/* Add the files that belong to split, or with NULL all. */
static int add_paths(struct records *r, const char *split, const char *const *path, size_t n,
                     struct ckpt_err *err)
{
    int rc = 0;

    r->split = split;
    for (size_t i = 0; rc == 0 && i < n; i++)
        rc = add_path(r, path[i], err);
    r->split = NULL;
    return rc;
}

/* Add the files of each part's split, each split once, and find its range of records. */
static int add_splits(struct records *r, const char *const *path, size_t n, struct ckpt_err *err)
{
    struct split_part part[SPLIT_MAX_PARTS];
    struct view whole[SPLIT_MAX_PARTS];
    int64_t from, to;
    size_t n_part, k;
    int rc;

    if ((rc = split_parse(part, &n_part, r->opts->split, err)) != 0)
        return rc;
    for (size_t i = 0; i < n_part; i++) {
        for (k = 0; k < i && strcmp(part[k].name, part[i].name) != 0; k++)
            ;
        if (k < i) {
            whole[i] = whole[k];
        } else {
            whole[i].first = r->held;
            rc = add_paths(r, part[i].name, path, n, err);
            if (rc)
                return rc;
            whole[i].n = r->held - whole[i].first;
        }
        if ((rc = split_range(&part[i], whole[i].n, &from, &to, err)) != 0)
            return rc;
        r->view[r->n_view++] = (struct view){whole[i].first + from, to - from};
        r->count += to - from;
    }
    return 0;
}

/* Digest of the other options that records depend on. */
static int opts_id(struct records *r, struct ckpt_err *err)
{
    const struct records_opts *o = r->opts;
    struct ckpt_buf b;

    ckpt_buf_init(&b, SIZE_MAX);
    ckpt_buf_printf(&b, "%s\n%s\n%d\n%d\n%lld\n", o->field ? o->field : "",
                    o->columns ? o->columns : "", o->delimiter, o->literal,
                    (long long)o->stream_tokens);
    if (ckpt_buf_ok(&b))
        ckpt_xxh128(r->id, b.data, b.len);
    r->has_id = ckpt_buf_ok(&b);
    ckpt_buf_release(&b);
    return r->has_id ? 0 : ckpt_nomem(err, sizeof r->id);
}

int records_identity(const struct records *r, unsigned char id[16], struct ckpt_err *err)
{
    struct ckpt_buf b;
    int rc = 0;

    if (!r->has_id)
        return ckpt_fail(err, CKPT_ESTATE, "the records were not to be told apart");
    ckpt_buf_init(&b, SIZE_MAX);
    ckpt_buf_put(&b, r->id, sizeof r->id);
    for (size_t i = 0; i < r->n; i++) {
        ckpt_buf_put(&b, r->part[i].id, sizeof r->part[i].id);
        ckpt_buf_put_u64le(&b, (uint64_t)r->part[i].first);
    }
    ckpt_buf_put_u64le(&b, (uint64_t)r->begin);
    ckpt_buf_put_u64le(&b, (uint64_t)r->stride);
    ckpt_buf_put_u64le(&b, (uint64_t)r->count);
    for (size_t i = 0; i < r->n_view; i++) {
        ckpt_buf_put_u64le(&b, (uint64_t)r->view[i].first);
        ckpt_buf_put_u64le(&b, (uint64_t)r->view[i].n);
    }
    if (ckpt_buf_ok(&b))
        ckpt_xxh128(id, b.data, b.len);
    else
        rc = ckpt_nomem(err, b.len);
    ckpt_buf_release(&b);
    return rc;
}

int records_open_with(struct records **out, const char *const *path, size_t n_path,
                      const struct records_opts *opts, struct ckpt_err *err)
{
    static const struct records_opts none;
    struct records *r = ckpt_alloc(1, sizeof *r);
    int rc;

    *out = NULL;
    if (!r)
        return ckpt_nomem(err, sizeof *r);
    r->opts = opts ? opts : &none;
    r->stride = 1;
    if (r->opts->split) {
        rc = add_splits(r, path, n_path, err);
    } else {
        rc = add_paths(r, NULL, path, n_path, err);
        r->count = r->held;
        r->view[r->n_view++] = (struct view){0, r->held};
    }
    if (rc == 0 && r->opts->identity)
        rc = opts_id(r, err);
    r->opts = NULL;
    if (rc) {
        records_close(r);
        return rc;
    }
    *out = r;
    return 0;
}

int records_open(struct records **out, const char *const *path, size_t n_path,
                 struct ckpt_err *err)
{
    return records_open_with(out, path, n_path, NULL, err);
}

static int64_t bound(int64_t at, int64_t n)
{
    at = at < 0 ? at + n : at;
    return at < 0 ? 0 : at > n ? n : at;
}

void records_slice(struct records *r, int64_t from, int64_t to)
{
    int64_t at = 0, end = bound(to, r->count), begin = bound(from, r->count);

    if (r->stride > 1) {
        r->begin += begin * r->stride;
        r->count = end > begin ? end - begin : 0;
        return;
    }
    r->count = 0;
    for (size_t i = 0; i < r->n_view; i++) {
        struct view v = r->view[i];
        int64_t a = begin - at > 0 ? begin - at : 0, b = end - at < v.n ? end - at : v.n;

        a = a < v.n ? a : v.n;
        b = b > a ? b : a;
        r->view[i] = (struct view){v.first + a, b - a};
        r->count += b - a;
        at += v.n;
    }
}

int records_shard(struct records *r, int64_t n, int64_t index, bool strided, struct ckpt_err *err)
{
    int64_t each, longer, first;

    if (n < 1 || index < 0 || index >= n)
        return ckpt_fail(err, CKPT_EUSAGE, "shard %lld of %lld; 0 to one below their number wanted",
                         (long long)index, (long long)n);
    each = r->count / n;
    longer = r->count % n;
    if (!strided) {
        first = each * index + (index < longer ? index : longer);
        records_slice(r, first, first + each + (index < longer));
        return 0;
    }
    r->begin += index * r->stride;
    r->stride *= n;
    r->count = each + (index < longer);
    return 0;
}

void records_close(struct records *r)
{
    if (!r)
        return;
    for (size_t i = 0; i < r->n; i++) {
        record_close(r->part[i].self, r->part[i].ops);
        ckpt_free(r->part[i].name);
    }
    ckpt_free(r->part);
    ckpt_free(r);
}

int64_t records_count(const struct records *r) { return r->count; }

const char *records_format(const struct records *r) { return r->part[0].ops->name; }

const json_t *records_metadata(const struct records *r)
{
    const struct part *first = r->part;

    return first->ops->metadata ? first->ops->metadata(first->self) : NULL;
}

bool records_is(const char *path, const unsigned char *head, size_t len)
{
    for (size_t i = 0; i < N_ROWS; i++)
        if (rows[i]->bid(path, head, len) > 0)
            return true;
    return false;
}

/* The file that contains record i of the views, and the record's index among all. */
static const struct part *part_of(const struct records *r, int64_t *i)
{
    size_t k = 0;

    *i = r->begin + *i * r->stride;
    while (k + 1 < r->n_view && *i >= r->view[k].n)
        *i -= r->view[k++].n;
    *i += r->view[k].first;
    return &r->part[ckpt_range_of(&r->part->first, r->n, sizeof *r->part, (uint64_t)*i)];
}

int records_err_in(const struct records *r, int64_t i, struct ckpt_err *err)
{
    const struct part *p = part_of(r, &i);

    return ckpt_err_in(err, "%s: record %lld", p->name, (long long)(i - p->first + 1));
}

int records_get(struct records *r, int64_t i, json_t **out, struct ckpt_err *err)
{
    const struct part *p;
    int64_t at;

    *out = NULL;
    if (i < 0 || i >= r->count)
        return ckpt_fail(err, CKPT_ENOTFOUND, "record %lld of %lld", (long long)i,
                         (long long)r->count);
    at = i;
    p = part_of(r, &at);
    return p->ops->get(p->self, at - p->first, out, err) ? records_err_in(r, i, err) : 0;
}

/* manifest - see manifest.h. */
#include "trainer/checkpoint/manifest.h"

#include <string.h>

#include "libckpt/digest.h"
#include "libckpt/base/json.h"
#include "libckpt/base/pool.h"
#include "libckpt/err.h"
#include "libckpt/mem.h"
#include "libckpt/io/follow.h"
#include "libckpt/io/path.h"

#define MAX_MANIFEST_BYTES ((uint64_t)64 << 20)

#define MAX_THREADS 16          /* that hash a file each */

/* A file of the checkpoint. */
struct row {
    const char *name;           /* relative to the checkpoint */
    uint64_t    size;
    char        hex[CKPT_SHA256_HEX];
};

/* All files of a checkpoint, in the order in which they are listed. */
struct rows {
    struct ckpt_arena arena;
    const char       *path;     /* of the checkpoint */
    struct ckpt_dir  *dir;
    struct row       *row;
    size_t            n, cap;
};

static int add_file(struct rows *rows, const char *prefix, const struct ckpt_entry *e,
                    struct ckpt_err *err)
{
    const char *name = ckpt_arena_printf(&rows->arena, "%s%s%s", prefix, *prefix ? "/" : "",
                                         e->name);
    int rc = name ? ckpt_reserve(&rows->row, rows->n, &rows->cap, sizeof *rows->row, err)
                  : ckpt_nomem(err, strlen(e->name));

    if (rc == 0)
        rows->row[rows->n++] = (struct row){.name = name, .size = e->size};
    return rc;
}

/* List the files of one directory; sub-directories are visited when prefix is "". */
static int add_dir(struct rows *rows, struct ckpt_dir *dir, const char *prefix,
                   struct ckpt_err *err)
{
    struct ckpt_entry *entry;
    size_t n = 0;
    int rc = ckpt_dir_list(dir, &rows->arena, &entry, &n, err);

    for (size_t i = 0; rc == 0 && i < n; i++) {
        struct ckpt_dir *sub = NULL;

        if (!ckpt_file_name_is_kept(entry[i].name) ||
            (!*prefix && strcmp(entry[i].name, MANIFEST_NAME) == 0))
            continue;
        if (entry[i].is_file) {
            rc = add_file(rows, prefix, &entry[i], err);
        } else if (entry[i].is_dir && !*prefix) {
            rc = ckpt_dir_open_at(&sub, dir, entry[i].name, err);
            if (rc == 0)
                rc = add_dir(rows, sub, entry[i].name, err);
            ckpt_dir_close(sub);
        }
    }
    return rc;
}

static int hash(void *ctx, size_t i, size_t worker, struct ckpt_err *err)
{
    struct rows *rows = ctx;
    struct row *row = &rows->row[i];
    struct ckpt_file *f = NULL;
    int rc = ckpt_file_open_at(&f, rows->dir, row->name, err);

    (void)worker;
    if (rc == 0) {
        row->size = ckpt_file_size(f);
        if (!follow_take(row->hex, rows->path, row->name, row->size))
            rc = ckpt_sha256_file(row->hex, f, err);
    }
    ckpt_file_close(f);
    return rc;
}

/* The files below a directory as the manifest has them. */
static int list_files(json_t *files, struct ckpt_dir *dir, const char *path, struct ckpt_err *err)
{
    struct rows rows = {.dir = dir, .path = path};
    int rc = add_dir(&rows, dir, "", err);

    /* The ranks of the node wait meanwhile: its cores are free. */
    if (rc == 0)
        rc = ckpt_pool_run(ckpt_pool_default(MAX_THREADS), rows.n, hash, &rows, err);
    for (size_t i = 0; rc == 0 && i < rows.n; i++) {
        json_t *row = json_pack("{s:s,s:I,s:s}", "name", rows.row[i].name, "size",
                                (json_int_t)rows.row[i].size, "sha256", rows.row[i].hex);

        if (!row || json_array_append_new(files, row))
            rc = ckpt_nomem(err, sizeof *row);
    }
    ckpt_free(rows.row);
    ckpt_arena_release(&rows.arena);
    return rc;
}

/* SHA-256 of the compact, sorted text of a manifest without its "digest". */
static int own_digest(char hex[CKPT_SHA256_HEX], const json_t *manifest, struct ckpt_err *err)
{
    json_t *rest = json_copy((json_t *)manifest);
    struct ckpt_sha256 *s = NULL;
    struct ckpt_buf text;
    int rc;

    ckpt_buf_init(&text, MAX_MANIFEST_BYTES);
    if (!rest) {
        rc = ckpt_nomem(err, sizeof *rest);
        goto out;
    }
    json_object_del(rest, "digest");
    rc = ckpt_json_write(&text, rest, 0, true, err);
    if (rc == 0)
        rc = ckpt_sha256_new(&s, err);
    if (rc == 0)
        rc = ckpt_sha256_add(s, text.data, text.len, err);
out:
    rc = ckpt_sha256_finish(hex, s, rc, err);
    ckpt_buf_release(&text);
    json_decref(rest);
    return rc;
}

bool manifest_set(json_t *manifest, const char *name, uint64_t size, const char *sha256)
{
    json_t *row;
    size_t i;

    json_array_foreach (json_object_get(manifest, "files"), i, row) {
        const char *there = json_string_value(json_object_get(row, "name"));

        if (there && strcmp(there, name) == 0)
            return json_object_set_new(row, "size", json_integer((json_int_t)size)) == 0 &&
                   json_object_set_new(row, "sha256", json_string(sha256)) == 0;
    }
    return false;
}

int manifest_text(char **text, json_t *manifest, struct ckpt_err *err)
{
    char hex[CKPT_SHA256_HEX];
    struct ckpt_buf b;
    int rc = own_digest(hex, manifest, err);

    *text = NULL;
    ckpt_buf_init(&b, MAX_MANIFEST_BYTES);
    if (rc == 0 && json_object_set_new(manifest, "digest", json_string(hex)))
        rc = ckpt_nomem(err, sizeof hex);
    if (rc == 0)
        rc = ckpt_json_write(&b, manifest, 2, false, err);
    if (rc == 0) {
        *text = ckpt_buf_str(&b) ? ckpt_strdup(ckpt_buf_str(&b)) : NULL;
        rc = *text ? 0 : ckpt_nomem(err, b.len);
    }
    ckpt_buf_release(&b);
    return rc;
}

int manifest_make(char **text, const char *path, const json_t *facts, struct ckpt_err *err)
{
    json_t *files = json_array(), *m = json_pack("{s:s,s:i}", "format", "ckpt-manifest",
                                                 "version", 1);
    struct ckpt_dir *dir = NULL;
    int rc;

    *text = NULL;
    if (!files || !m || json_object_update(m, (json_t *)facts) ||
        json_object_set(m, "files", files)) {
        rc = ckpt_nomem(err, sizeof *m);
        goto out;
    }
    rc = ckpt_dir_open(&dir, path, 0, err);
    if (rc == 0)
        rc = list_files(files, dir, path, err);
    if (rc == 0)
        rc = manifest_text(text, m, err);
out:
    ckpt_dir_close(dir);
    json_decref(files);
    json_decref(m);
    return rc;
}

int manifest_check_file(const json_t *row, struct ckpt_dir *dir, enum manifest_depth depth,
                        struct ckpt_err *err)
{
    char hex[CKPT_SHA256_HEX];
    const char *name, *sha256;
    struct ckpt_file *f = NULL;
    int64_t size;
    int rc;

    if ((rc = ckpt_json_str(&name, row, "name", err)) != 0 ||
        (rc = ckpt_json_int(&size, row, "size", err)) != 0 ||
        (rc = ckpt_json_str(&sha256, row, "sha256", err)) != 0)
        return rc;
    if (!ckpt_file_path_is_kept(name))
        return ckpt_fail_as(err, CKPT_EREFUSED, "refused-path", "file %s: not a clean path", name);
    rc = ckpt_file_open_at(&f, dir, name, err);
    if (rc == CKPT_ENOTFOUND)
        rc = ckpt_fail_as(err, CKPT_EFORMAT, "missing", "%s: absent", name);
    if (rc == 0 && ckpt_file_size(f) != (uint64_t)size)
        rc = ckpt_fail_as(err, CKPT_EFORMAT, "truncated", "%s: %llu bytes, %lld expected", name,
                          (unsigned long long)ckpt_file_size(f), (long long)size);
    if (rc == 0 && depth == MANIFEST_DIGESTS) {
        rc = ckpt_sha256_file(hex, f, err);
        if (rc == 0 && strcmp(hex, sha256) != 0)
            rc = ckpt_fail_as(err, CKPT_EFORMAT, "digest", "%s: sha-256 is %s, %s expected", name,
                              hex, sha256);
    }
    ckpt_file_close(f);
    return rc;
}

int manifest_read(json_t **out, struct ckpt_dir *dir, struct ckpt_err *err)
{
    char hex[CKPT_SHA256_HEX];
    struct ckpt_file *f = NULL;
    json_t *m = NULL, *files;
    const char *digest;
    int rc = ckpt_file_open_at(&f, dir, MANIFEST_NAME, err);

    *out = NULL;
    if (rc == 0)
        rc = ckpt_json_read(&m, f, MAX_MANIFEST_BYTES, 0, err);
    if (rc == 0)
        rc = ckpt_json_str(&digest, m, "digest", err);
    if (rc == 0)
        rc = own_digest(hex, m, err);
    if (rc == 0 && strcmp(hex, digest) != 0)
        rc = ckpt_fail_as(err, CKPT_EFORMAT, "digest", "%s: its own digest does not match",
                          MANIFEST_NAME);
    if (rc == 0)
        rc = ckpt_json_get(&files, m, "files", JSON_ARRAY, err);
    ckpt_file_close(f);
    if (rc)
        json_decref(m);
    else
        *out = m;
    return rc;
}

int manifest_check(json_t **out, const char *path, enum manifest_depth depth,
                   struct ckpt_err *err)
{
    struct ckpt_dir *dir = NULL;
    json_t *m = NULL, *files;
    int rc = ckpt_path_dir(&dir, path, 0, err);

    if (rc == 0)
        rc = manifest_read(&m, dir, err);
    files = json_object_get(m, "files");
    for (size_t i = 0; rc == 0 && i < json_array_size(files); i++)
        rc = manifest_check_file(json_array_get(files, i), dir, depth, err);
    if (rc)
        ckpt_err_in(err, "%s", path);
    else if (out)
        *out = json_incref(m);
    json_decref(m);
    ckpt_dir_close(dir);
    return rc;
}

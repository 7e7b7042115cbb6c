/* prepare - see prepare.h. */
#include "trainer/data/prepare.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "libckpt/commit.h"
#include "libckpt/base/json.h"
#include "libckpt/err.h"
#include "libckpt/io/path.h"
#include "trainer/data/pcg64.h"

#define FLUSH ((size_t)1 << 20)

int prepare_path(char *path, size_t size, const struct prepare_opts *o, struct ckpt_err *err)
{
    double rest = 1 - o->train_ratio;
    int n;

    if (!ckpt_file_name_is_clean(o->name) || !ckpt_file_name_is_clean(o->config))
        return ckpt_fail(err, CKPT_ECONFIG, "\"%s\" and \"%s\" do not make a folder's name",
                         o->name, o->config);
    n = snprintf(path, size, "%s/%s/%s/train=%.4g-val=%.4g-test=%.4g", o->dir, o->name, o->config,
                 o->train_ratio, rest * o->val_test_ratio, rest * (1 - o->val_test_ratio));
    return n > 0 && (size_t)n < size ? 0
           : ckpt_fail(err, CKPT_ECONFIG, "%s: too long a path", o->dir);
}

int prepare_ready(bool *ready, const char *path, const struct prepare_opts *o, int64_t n,
                  struct ckpt_err *err)
{
    struct ckpt_dir *dir;
    struct ckpt_file *file = NULL;
    struct stat st;
    json_t *made = NULL;
    int64_t rows = 0, seed = 0;
    int rc;

    *ready = false;
    if (stat(path, &st) != 0)
        return 0;
    if ((rc = ckpt_dir_open(&dir, path, CKPT_FOLLOW, err)) != 0)
        return rc;
    rc = ckpt_file_open_at(&file, dir, ".data_ready", err);
    if (rc == 0)
        rc = ckpt_json_read(&made, file, 65536, CKPT_JSON_STRICT, err);
    if (rc == 0)
        rc = ckpt_json_int(&rows, made, "rows", err);
    if (rc == 0)
        rc = ckpt_json_int(&seed, made, "seed", err);
    if (rc) {
        ckpt_err_in(err, "%s/.data_ready", path);
    } else if (rows != n || seed != (int64_t)o->seed) {
        rc = ckpt_fail(err, CKPT_ECONFIG, "%s: was made of %lld records with seed %lld, not of "
                       "%lld with seed %lld", path, (long long)rows, (long long)seed, (long long)n,
                       (long long)o->seed);
        ckpt_err_hint(err, "remove the folder, or name another with `data_dir`");
    }
    *ready = rc == 0;
    json_decref(made);
    ckpt_file_close(file);
    ckpt_dir_close(dir);
    return rc;
}

/* Write records row[n] as lines of rel. */
static int put_rows(struct ckpt_outdir *out, const char *rel, struct records *all,
                    const int64_t *row, int64_t n, struct ckpt_err *err)
{
    struct ckpt_out *file;
    struct ckpt_buf b;
    int rc;

    ckpt_buf_init(&b, SIZE_MAX);
    if ((rc = ckpt_outdir_file(&file, out, rel, err)) != 0)
        return rc;
    rc = 0;
    for (int64_t i = 0; rc == 0 && i < n; i++) {
        json_t *record = NULL;

        rc = records_get(all, row[i], &record, err);
        if (rc == 0)
            rc = ckpt_json_write(&b, record, 0, false, err);
        json_decref(record);
        ckpt_buf_put_u8(&b, '\n');
        if (rc == 0 && !ckpt_buf_ok(&b))
            rc = ckpt_nomem(err, b.len);
        if (rc == 0 && (b.len >= FLUSH || i + 1 == n)) {
            rc = ckpt_out_write(file, b.data, b.len, err);
            b.len = 0;
        }
    }
    ckpt_buf_release(&b);
    if (rc == 0)
        return ckpt_out_commit(file, err);
    ckpt_out_abort(file);
    return rc;
}

static int make_parents(const char *path, struct ckpt_err *err)
{
    char above[4096];

    snprintf(above, sizeof above, "%.*s", (int)(strrchr(path, '/') - path), path);
    return ckpt_path_make_dirs(above, err);
}

int prepare_make(const char *path, const struct prepare_opts *o, struct records *all,
                 struct ckpt_err *err)
{
    int64_t n = records_count(all), *row = ckpt_alloc((size_t)n + 1, sizeof *row), n_train, n_val;
    int64_t *left = ckpt_alloc((size_t)n + 1, sizeof *left), *rest;
    struct ckpt_outdir *out = NULL;
    char ready[400];
    int rc = row && left ? 0 : ckpt_nomem(err, 2 * (size_t)n * sizeof *row);

    if (rc)
        goto out;
    n_train = pcg64_train_test_split(row, n, 1 - o->train_ratio, true, o->seed);
    rest = row + n_train;
    n_val = pcg64_train_test_split(left, n - n_train, 1 - o->val_test_ratio, true, o->seed);
    if (o->val_test_ratio <= 0)
        n_val = 0;
    for (int64_t i = 0; i < n - n_train; i++)
        left[i] = rest[left[i]];
    snprintf(ready, sizeof ready, "{\"rows\": %lld, \"seed\": %lld, \"training\": %lld, "
             "\"validation\": %lld, \"test\": %lld}\n", (long long)n, (long long)o->seed,
             (long long)n_train, (long long)n_val, (long long)(n - n_train - n_val));
    rc = make_parents(path, err);
    if (rc == 0)
        rc = ckpt_outdir_create(&out, path, err);
    if (rc == 0)
        rc = put_rows(out, "training.jsonl", all, row, n_train, err);
    if (rc == 0)
        rc = put_rows(out, "validation.jsonl", all, left, n_val, err);
    if (rc == 0)
        rc = put_rows(out, "test.jsonl", all, left + n_val, n - n_train - n_val, err);
    if (rc == 0)
        rc = ckpt_outdir_put(out, ".data_ready", ready, strlen(ready), err);
    if (rc == 0)
        rc = ckpt_outdir_commit(out, err);
    else if (out)
        ckpt_outdir_abort(out);
out:
    ckpt_free(row);
    ckpt_free(left);
    return rc;
}

/* settings - runs side by side in a page: names, curves, and the settings that differ; see
 * inspect.h. */
#include <stdio.h>
#include <string.h>

#include "libckpt/base/json.h"
#include "tools/inspect/inspect.h"
#include "tools/inspect/page/curves.h"

#define MAX_SETTINGS 200        /* rows of the table */
#define NAME_BYTES   120

/* -- names ----------------------------------------------------------------------------------- */

/* The last part of a path, or of the one before where it ends in a slash. */
static void last_part(char *dst, size_t size, const char *path)
{
    size_t end = strlen(path), start;

    while (end > 1 && path[end - 1] == '/')
        end--;
    for (start = end; start > 0 && path[start - 1] != '/';)
        start--;
    snprintf(dst, size, "%.*s", (int)(end - start < size ? end - start : size - 1), path + start);
}

/* Names of runs for a legend: the last parts of their paths, with a number where two are the
 * same. */
static void name_runs(char (*name)[NAME_BYTES], const char *const *path, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        char other[NAME_BYTES];
        bool again = false;

        last_part(name[i], NAME_BYTES - 24, path[i]);
        for (size_t k = 0; k < n && !again; k++) {
            last_part(other, NAME_BYTES - 24, path[k]);
            again = k != i && strcmp(name[i], other) == 0;
        }
        if (again)
            snprintf(name[i] + strlen(name[i]), 24, " (%zu)", i + 1);
    }
}

/* -- settings -------------------------------------------------------------------------------- */

/* Add the fields of an object that are no objects to all. */
static int add_fields(json_t *all, const json_t *fields, struct ckpt_err *err)
{
    const char *key;
    json_t *v;

    json_object_foreach ((json_t *)fields, key, v)
        if (!json_is_object(v) && !json_object_get(all, key) && json_object_set(all, key, v))
            return ckpt_nomem(err, strlen(key));
    return 0;
}

/* Add the fields of a JSON file, or of its member, in a run's folder or in its newest checkpoint,
 * whose name is the first `at` bytes of state. */
static int add_file(json_t *all, struct ckpt_dir *dir, const char *state, int at,
                    const char *file, const char *member, struct ckpt_err *err)
{
    char name[INSPECT_STATE_NAME + 32];
    struct ckpt_file *f = NULL;
    json_t *doc = NULL;
    int rc;

    snprintf(name, sizeof name, "%.*s%s", ckpt_dir_has(dir, file) ? 0 : at, state, file);
    if (!ckpt_dir_has(dir, name))
        return 0;
    rc = ckpt_file_open_at(&f, dir, name, err);
    if (rc == 0)
        rc = ckpt_json_read(&doc, f, CKPT_JSON_MAX_BYTES, CKPT_JSON_PYTHON, err);
    ckpt_file_close(f);
    if (rc == 0)
        rc = add_fields(all, member ? json_object_get(doc, member) : doc, err);
    json_decref(doc);
    return rc;
}

static int add_arguments(json_t *all, struct ckpt_dir *dir, const char *state, int at,
                         struct ckpt_err *err)
{
    struct ckpt_err ignored = {0};
    char name[INSPECT_STATE_NAME + 32];
    struct ckpt_file *f;
    json_t *doc = NULL;
    int rc;

    snprintf(name, sizeof name, "%.*straining_args.bin",
             ckpt_dir_has(dir, "training_args.bin") ? 0 : at, state);
    if (!ckpt_dir_has(dir, name))
        return 0;
    rc = ckpt_file_open_at(&f, dir, name, err);
    if (rc == 0 && inspect_arguments(&doc, f, &ignored) == 0)           /* takes it */
        rc = add_fields(all, doc, err);
    json_decref(doc);
    return rc;
}

/* The manifest has settings for which the arguments have no field, and names of schedules that they
 * do not know. */
static int read_settings(json_t *all, struct ckpt_dir *dir, struct ckpt_err *err)
{
    char state[INSPECT_STATE_NAME];
    int at, rc = inspect_newest_state(state, dir, err);

    at = rc == 0 && strchr(state, '/') ? (int)(strchr(state, '/') - state) + 1 : 0;
    if (rc == 0)
        rc = add_file(all, dir, state, at, "MANIFEST.json", "settings", err);
    if (rc == 0)
        rc = add_arguments(all, dir, state, at, err);
    return rc ? rc : add_file(all, dir, state, at, "config.json", NULL, err);
}

/* A row of the table when the values of key are not the same in all runs. */
static int add_row(json_t *rows, const json_t *all, const char *key, char (*name)[NAME_BYTES],
                   struct ckpt_err *err)
{
    const json_t *first = json_object_get(json_array_get(all, 0), key);
    bool same = true;
    json_t *row;

    for (size_t i = 1; i < json_array_size(all); i++) {
        const json_t *v = json_object_get(json_array_get(all, i), key);

        same &= first && v ? json_equal(first, v) : first == v;
    }
    if (same || json_array_size(rows) == MAX_SETTINGS)
        return 0;
    row = json_pack("{s:s}", "setting", key);
    for (size_t i = 0; row && i < json_array_size(all); i++) {
        json_t *v = json_object_get(json_array_get(all, i), key);

        if (v)
            json_object_set(row, name[i], v);   /* refuses a name that is not UTF-8 */
    }
    return json_array_append_new(rows, row) ? ckpt_nomem(err, 64) : 0;
}

static int put_settings(struct out *o, const json_t *all, char (*name)[NAME_BYTES],
                        struct ckpt_err *err)
{
    json_t *rows = json_array(), *seen = json_object(), *fields, *v;
    const char *key;
    size_t i;
    int rc = rows && seen ? 0 : ckpt_nomem(err, 64);

    json_array_foreach ((json_t *)all, i, fields)
        json_object_foreach (fields, key, v)
            if (rc == 0 && !json_object_get(seen, key)) {
                rc = json_object_set_new(seen, key, json_true()) ? ckpt_nomem(err, 64) : 0;
                if (rc == 0)
                    rc = add_row(rows, all, key, name, err);
            }
    if (rc == 0 && json_array_size(rows))
        out_json(o, "settings", NULL, rows);
    json_decref(seen);
    json_decref(rows);
    return rc;
}

int inspect_gather_runs(struct out *o, struct page_curves *curves, const char *const *path,
                        size_t n, bool follow, struct ckpt_err *err)
{
    char (*name)[NAME_BYTES] = ckpt_alloc(n, sizeof *name);
    json_t *all = json_array(), *hardware = json_object();
    int rc = name && all && hardware ? 0 : ckpt_nomem(err, n * sizeof *name);

    if (rc == 0)
        name_runs(name, path, n);
    curves->by_name = true;
    for (size_t i = 0; rc == 0 && i < n; i++) {
        struct ckpt_dir *dir = NULL;
        json_t *settings = json_object();

        rc = settings && json_array_append_new(all, settings) == 0 ? 0 : ckpt_nomem(err, 64);
        if (rc == 0)
            rc = ckpt_path_dir(&dir, path[i], follow ? CKPT_FOLLOW : 0, err);
        if (rc == 0)
            rc = inspect_gather_curves(hardware, curves, name[i], dir, err);
        if (rc == 0)
            rc = read_settings(settings, dir, err);
        ckpt_dir_close(dir);
        if (rc)
            ckpt_err_in(err, "%s", path[i]);
    }
    if (rc == 0)
        rc = put_settings(o, all, name, err);
    json_decref(hardware);
    json_decref(all);
    ckpt_free(name);
    return rc;
}

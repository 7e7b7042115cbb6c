/* records/dir - see records/dir.h. */
#include "formats/records/dir.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "formats/records/card.h"
#include "formats/records/split.h"
#include "libckpt/base/buf.h"
#include "libckpt/base/json.h"
#include "libckpt/io/path.h"
#include "libckpt/log.h"

#define MAX_DEPTH 6             /* depth below the named folder */
#define MAX_DIRS  4096

/* Suffixes of data files; in a tie the first kind wins. */
static const char *const kinds[][2] = {
    {".parquet", NULL}, {".jsonl", ".ndjson"}, {".json", NULL}, {".csv", NULL}, {".tsv", NULL},
    {".arrow", NULL}, {".txt", NULL}, {".npy", ".idx"},
};
#define N_KINDS (sizeof kinds / sizeof *kinds)

/* Kind of a name without its compression suffix; N_KINDS: not data. */
static size_t kind_of(const char *path)
{
    static const char *const not_data[] = {"config.json", "dataset_info.json", "state.json",
                                           "dataset_infos.json", "dataset_dict.json"};
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    size_t n = split_plain_length(name);

    for (size_t i = 0; i < sizeof not_data / sizeof *not_data; i++)
        if (strcmp(name, not_data[i]) == 0)
            return N_KINDS;
    for (size_t k = 0; k < N_KINDS; k++)
        for (size_t i = 0; i < 2 && kinds[k][i]; i++) {
            size_t m = strlen(kinds[k][i]);

            if (n > m && strncmp(name + n - m, kinds[k][i], m) == 0)
                return k;
        }
    return N_KINDS;
}

static int more_names(const char ***name, size_t *n, size_t *cap, const char *one,
                      struct ckpt_arena *arena, struct ckpt_err *err)
{
    int rc = ckpt_arena_reserve(arena, name, *n, cap, sizeof **name, err);

    if (rc == 0)
        (*name)[(*n)++] = one;
    return rc;
}

static int depth_of(const char *rel)
{
    int depth = 1;

    for (; *rel; rel++)
        depth += *rel == '/';
    return depth;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* List the data files of all kinds below dir by path; an empty list is no error. */
static int list_tree(struct ckpt_dir *dir, const char ***name, size_t *n,
                     struct ckpt_arena *arena, struct ckpt_err *err)
{
    const char **todo = NULL;
    size_t n_todo = 0, cap_todo = 0, cap = 0;
    int rc = more_names(&todo, &n_todo, &cap_todo, "", arena, err);

    *n = 0;
    for (size_t d = 0; rc == 0 && d < n_todo && d < MAX_DIRS; d++) {
        struct ckpt_dir *inner = NULL;
        struct ckpt_entry *entry;
        size_t n_entry = 0;

        if (*todo[d])
            rc = ckpt_dir_open_at(&inner, dir, todo[d], err);
        if (rc == 0)
            rc = ckpt_dir_list(inner ? inner : dir, arena, &entry, &n_entry, err);
        for (size_t i = 0; rc == 0 && i < n_entry; i++) {
            const char *rel;

            if (entry[i].name[0] == '.' || strncmp(entry[i].name, "__", 2) == 0)
                continue;
            rel = ckpt_arena_printf(arena, "%s%s%s", todo[d], *todo[d] ? "/" : "", entry[i].name);
            if (!rel)
                rc = ckpt_nomem(err, strlen(entry[i].name));
            else if (entry[i].is_dir && depth_of(rel) < MAX_DEPTH)
                rc = more_names(&todo, &n_todo, &cap_todo, rel, arena, err);
            else if (entry[i].is_file && kind_of(rel) < N_KINDS)
                rc = more_names(name, n, &cap, rel, arena, err);
        }
        ckpt_dir_close(inner);
    }
    if (rc == 0 && *n > 1)
        qsort(*name, *n, sizeof **name, by_name);
    return rc;
}

/* Keep only the kind of most files, as datasets uses one reader per folder.  Texts are left out in
 * silence, they may be notes; of other kinds it is told. */
static void keep_kind(const char *path, const char **name, size_t *n)
{
    size_t count[N_KINDS + 1] = {0}, best = 0, kept = 0, left = 0;
    const char *one = NULL, *text = "a.txt";

    for (size_t i = 0; i < *n; i++)
        count[kind_of(name[i])]++;
    for (size_t k = 1; k < N_KINDS; k++)
        if (count[k] > count[best])
            best = k;
    for (size_t i = 0; i < *n; i++)
        if (kind_of(name[i]) == best) {
            name[kept++] = name[i];
        } else if (kind_of(name[i]) != kind_of(text)) {
            left++;
            one = name[i];
        }
    if (left)
        ckpt_log(CKPT_LOG_NOTE, "%s: files of one kind are read, %s and its like; left out: %s%s",
                 path, name[0], one, left > 1 ? " and others" : "");
    *n = kept;
}

/* Keep only the files of a split; without a split, all must be of one. */
static int keep_split(const char *path, const char **name, size_t *n, const char *split,
                      struct ckpt_err *err)
{
    enum split_rule rule = split_rule_of(name, *n);
    size_t kept = 0, first = 0;     /* of a split: a file of none may come before */

    assert(name || *n == 0);
    while (first + 1 < *n && split_name_of(name[first], rule).len == 0)
        first++;
    for (size_t i = 0; i < *n; i++) {
        struct split_name a = split_name_of(name[first], rule), b = split_name_of(name[i], rule);

        if (split && b.len == strlen(split) && strncmp(b.name, split, b.len) == 0) {
            name[kept++] = name[i];
        } else if (!split && a.len && b.len &&
                   (a.len != b.len || strncmp(a.name, b.name, a.len) != 0)) {
            const char *one = strncmp(b.name, "train", b.len) == 0 ? name[i] : name[first];
            size_t len = strcspn(one, "-0123456789");

            ckpt_fail(err, CKPT_EUSAGE, "%s: files of several splits, %s and %s", path,
                      name[first], name[i]);
            return ckpt_err_hint(err, "name a split, or the files of one, as in '%.150s/%.*s*'",
                                 path, (int)(len < 60 ? len : 60), one);
        }
    }
    if (split && kept == 0 && *n > 0) {
        struct split_name a = split_name_of(name[first], rule);

        return ckpt_fail(err, CKPT_ENOTFOUND, "%s: no files of split \"%s\"; %s is of \"%.*s\"",
                         path, split, name[first], (int)a.len, a.name);
    }
    if (split)
        *n = kept;
    return 0;
}

static int read_json(json_t **out, struct ckpt_dir *dir, const char *rel, struct ckpt_err *err)
{
    struct ckpt_file *file;
    int rc = ckpt_file_open_at(&file, dir, rel, err);

    *out = NULL;
    if (rc)
        return rc;
    rc = ckpt_json_read(out, file, CKPT_JSON_MAX_BYTES, CKPT_JSON_STRICT, err);
    ckpt_file_close(file);
    return rc;
}

/* state.json: {"_data_files": [{"filename": ...}, ...]}. */
static int list_saved(struct ckpt_dir *dir, const char ***name, size_t *n,
                      struct ckpt_arena *arena, struct ckpt_err *err)
{
    json_t *state = NULL, *files = NULL, *file;
    int rc = read_json(&state, dir, "state.json", err);
    size_t i;

    if (rc == 0)
        rc = ckpt_json_get(&files, state, "_data_files", JSON_ARRAY, err);
    *n = 0;
    *name = rc == 0 ? ckpt_arena_alloc(arena, json_array_size(files) + 1, sizeof **name) : NULL;
    if (rc == 0 && !*name)
        rc = ckpt_nomem(err, json_array_size(files) * sizeof **name);
    for (i = 0; rc == 0 && i < json_array_size(files); i++) {
        const char *s;

        file = json_array_get(files, i);
        rc = json_is_object(file) ? ckpt_json_str(&s, file, "filename", err)
                                  : ckpt_fail(err, CKPT_EFORMAT, "a file that is no object");
        if (rc == 0 && !ckpt_file_name_is_clean(s))
            rc = ckpt_fail(err, CKPT_EREFUSED, "\"%s\" is no name of a file beside it", s);
        if (rc)
            break;
        (*name)[*n] = ckpt_arena_strndup(arena, s, strlen(s));
        if (!(*name)[(*n)++]) {
            rc = ckpt_nomem(err, strlen(s));
            break;
        }
    }
    if (rc)
        ckpt_err_in(err, "state.json");
    json_decref(state);
    return rc;
}

/* Enter the split's folder, as listed in dataset_dict.json: {"splits": [...]}; *dir becomes it. */
static int enter_split(struct ckpt_dir **dir, const char *path, const char *split,
                       struct ckpt_err *err)
{
    json_t *dict = NULL, *list, *one;
    struct ckpt_dir *inner;
    const char *first;
    size_t i;
    int rc = read_json(&dict, *dir, "dataset_dict.json", err);

    if (rc)
        return rc;
    list = json_object_get(dict, "splits");
    first = json_string_value(json_array_get(list, 0));
    if (!split) {
        rc = ckpt_fail(err, CKPT_EUSAGE, "%s: a data set of %zu splits", path,
                       json_array_size(list));
        ckpt_err_hint(err, "name one of them, as in %.150s/%.60s", path, first ? first : "train");
        goto out;
    }
    rc = ckpt_fail(err, CKPT_ENOTFOUND, "%s: no split \"%s\" in dataset_dict.json", path, split);
    json_array_foreach(list, i, one)
        if (json_is_string(one) && strcmp(json_string_value(one), split) == 0 &&
            ckpt_file_name_is_clean(split)) {
            ckpt_err_clear(err);
            rc = ckpt_dir_open_at(&inner, *dir, split, err);
            if (rc == 0) {
                ckpt_dir_close(*dir);
                *dir = inner;
            }
            break;
        }
out:
    json_decref(dict);
    return rc;
}

/* The split to use of a configuration's; if none is named, there must be only one. */
static int config_split(const char **split, const struct card_config *config, const char *path,
                        struct ckpt_err *err)
{
    const char *first = config->files[0].split;
    struct ckpt_buf names;
    int rc;

    for (size_t i = 0; i < config->n; i++)
        if (*split && strcmp(config->files[i].split, *split) == 0)
            return 0;
        else if (!*split && strcmp(config->files[i].split, first) != 0) {
            ckpt_fail(err, CKPT_EUSAGE, "%s: files of several splits, %.80s and %.80s", path, first,
                      config->files[i].split);
            return ckpt_err_hint(err, "name a split, or the files of one, as in '%.150s/%.60s'",
                                 path, config->files[0].pattern);
        }
    if (!*split) {
        *split = first;
        return 0;
    }
    ckpt_buf_init(&names, 1000);
    for (size_t i = 0; i < config->n; i++)
        if (i == 0 || strcmp(config->files[i].split, config->files[i - 1].split) != 0)
            ckpt_buf_printf(&names, "%s%.80s", i ? ", " : "", config->files[i].split);
    rc = ckpt_fail(err, CKPT_ENOTFOUND, "%s: no files of split \"%s\"; README.md names %.400s",
                   path, *split, ckpt_buf_ok(&names) ? ckpt_buf_str(&names) : "many others");
    ckpt_buf_release(&names);
    return rc;
}

/* Add those of all[n_all] that match a pattern, or the file it names. */
static int add_matches(struct ckpt_dir *dir, const char ***name, size_t *n, size_t *cap,
                       const char *const *all, size_t n_all, const char *pattern,
                       struct ckpt_arena *arena, struct ckpt_err *err)
{
    bool exact = !strpbrk(pattern, "*?[") && ckpt_dir_has(dir, pattern);
    const char *below = strpbrk(pattern, "*?[") || exact ? pattern
                        : ckpt_arena_printf(arena, "%s/**", pattern);
    size_t before = *n;
    int rc;

    if (!below)
        return ckpt_nomem(err, strlen(pattern));
    if (exact)
        return more_names(name, n, cap, pattern, arena, err);
    for (size_t i = 0; i < n_all; i++)
        if (card_matches(below, all[i]) &&
            (rc = more_names(name, n, cap, all[i], arena, err)) != 0)
            return rc;
    return *n > before ? 0 : ckpt_fail(err, CKPT_ENOTFOUND, "no file of data matches \"%.200s\"",
                                       pattern);
}

/* List the files of a configuration in README.md. */
static int list_config(struct ckpt_dir *dir, const struct card_config *config, const char *path,
                       const char *split, const char ***name, size_t *n,
                       struct ckpt_arena *arena, struct ckpt_err *err)
{
    size_t n_all, cap = 0, len = strlen(config->data_dir), kept = 0;
    const char **all = NULL;
    int rc;

    *n = 0;
    if (config->n && (rc = config_split(&split, config, path, err)) != 0)
        return rc;
    rc = list_tree(dir, &all, &n_all, arena, err);
    for (size_t i = 0; rc == 0 && i < config->n; i++)
        if (strcmp(config->files[i].split, split) == 0 &&
            (rc = add_matches(dir, name, n, &cap, all, n_all, config->files[i].pattern, arena,
                              err)))
            ckpt_err_in(err, "%s: README.md: configuration \"%s\"", path, config->name);
    if (rc || config->n)
        return rc;
    for (size_t i = 0; i < n_all; i++)
        if (len == 0 || (strncmp(all[i], config->data_dir, len) == 0 && all[i][len] == '/'))
            all[kept++] = all[i];
    *name = all;
    *n = kept;
    keep_kind(path, *name, n);
    return keep_split(path, *name, n, split, err);
}

int records_dir_match(struct ckpt_dir **dir, const char ***name, size_t *n, const char *path,
                      const char *pattern, struct ckpt_arena *arena, struct ckpt_err *err)
{
    const char **all = NULL;
    size_t n_all, cap = 0;
    int rc = ckpt_path_dir(dir, path, CKPT_FOLLOW | CKPT_PROVE, err);

    *n = 0;
    *name = NULL;
    if (rc)
        return rc;
    rc = list_tree(*dir, &all, &n_all, arena, err);
    if (rc == 0 && (rc = add_matches(*dir, name, n, &cap, all, n_all, pattern, arena, err)))
        ckpt_err_in(err, "%s", path);
    if (rc) {
        ckpt_dir_close(*dir);
        *dir = NULL;
    }
    return rc;
}

int records_dir_list(struct ckpt_dir **dir, const char ***name, size_t *n, const char *path,
                     const char *config, const char *split, struct ckpt_arena *arena,
                     struct ckpt_err *err)
{
    int rc = ckpt_path_dir(dir, path, CKPT_FOLLOW | CKPT_PROVE, err);
    const struct card_config *picked;
    struct card_config *configs;
    size_t n_config;

    *n = 0;
    *name = NULL;
    if (rc)
        return rc;
    if (ckpt_dir_has(*dir, "dataset_dict.json") && (rc = enter_split(dir, path, split, err)))
        goto out;
    if (ckpt_dir_has(*dir, "state.json") && ckpt_dir_has(*dir, "dataset_info.json")) {
        rc = list_saved(*dir, name, n, arena, err);
        if (rc)
            ckpt_err_in(err, "%s", path);
        goto out;
    }
    rc = card_read(&configs, &n_config, *dir, arena, err);
    if (rc) {
        ckpt_err_in(err, "%s", path);
        goto out;
    }
    if (n_config > 0) {
        rc = card_pick(&picked, configs, n_config, config, path, err);
        if (rc == 0)
            rc = list_config(*dir, picked, path, split, name, n, arena, err);
        goto out;
    }
    rc = list_tree(*dir, name, n, arena, err);
    if (rc == 0) {
        keep_kind(path, *name, n);
        rc = keep_split(path, *name, n, split, err);
    }
out:
    if (rc == 0 && *n == 0)
        rc = ckpt_fail(err, CKPT_ENOTFOUND, "%s: no *.parquet, *.jsonl, *.json, *.csv, *.tsv, "
                       "*.arrow, *.txt or *.npy file inside", path);
    if (rc) {
        ckpt_dir_close(*dir);
        *dir = NULL;
    }
    return rc;
}

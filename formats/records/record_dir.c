/* record_dir - see record_dir.h. */
#include "formats/records/record_dir.h"

#include <string.h>
#include <strings.h>

#include "libckpt/json.h"

static bool is_data_name(const char *name)
{
    static const char *const ends[] = {".jsonl", ".ndjson", ".parquet", ".arrow", ".txt"};
    size_t n = strlen(name);

    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (name[0] != '.' && n > strlen(ends[i]) &&
            strcmp(name + n - strlen(ends[i]), ends[i]) == 0)
            return true;
    return false;
}

/* The split a name begins with, as datasets knows them; NULL for none. */
static const char *split_of(const char *name)
{
    static const struct { const char *word, *split; } words[] = {
        {"train", "train"}, {"training", "train"}, {"test", "test"}, {"testing", "test"},
        {"eval", "test"}, {"evaluation", "test"}, {"validation", "validation"},
        {"valid", "validation"}, {"dev", "validation"}, {"val", "validation"},
    };
    size_t n = strcspn(name, "-_. ");

    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (n == strlen(words[i].word) && strncasecmp(name, words[i].word, n) == 0)
            return words[i].split;
    return NULL;
}

static int one_split(const char *path, const char **name, size_t n, struct ckpt_err *err)
{
    for (size_t i = 1; i < n; i++) {
        const char *a = split_of(name[0]), *b = split_of(name[i]);

        if (a && b && strcmp(a, b) != 0) {
            ckpt_fail(err, CKPT_EUSAGE, "%s: files of several splits, %s and %s", path, name[0],
                      name[i]);
            return ckpt_err_hint(err, "name the files of one, as in '%.150s/%s*'", path,
                                 strcmp(b, "train") == 0 ? b : a);
        }
    }
    return 0;
}

/* The data files of dir by name; none is no error. */
static int list_named(struct ckpt_dir *dir, const char ***name, size_t *n,
                      struct ckpt_arena *arena, struct ckpt_err *err)
{
    struct ckpt_entry *entry;
    size_t n_entry;

    *n = 0;
    if (ckpt_dir_list(dir, arena, &entry, &n_entry, err))
        return err->code;
    *name = ckpt_arena_alloc(arena, n_entry + 1, sizeof **name);
    if (!*name)
        return ckpt_nomem(err, n_entry * sizeof **name);
    for (size_t i = 0; i < n_entry; i++)
        if (entry[i].is_file && is_data_name(entry[i].name))
            (*name)[(*n)++] = entry[i].name;
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
        if (rc == 0 && !ckpt_name_is_clean(s))
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

/* dataset_dict.json: {"splits": [...]}, each a folder beside it. */
static int tell_splits(struct ckpt_dir *dir, const char *path, struct ckpt_err *err)
{
    json_t *dict = NULL;
    const char *first;
    int rc = read_json(&dict, dir, "dataset_dict.json", err);

    if (rc == 0) {
        first = json_string_value(json_array_get(json_object_get(dict, "splits"), 0));
        rc = ckpt_fail(err, CKPT_EUSAGE, "%s: a data set of %zu splits", path,
                       json_array_size(json_object_get(dict, "splits")));
        ckpt_err_hint(err, "name one of them, as in %.150s/%.60s", path, first ? first : "train");
    }
    json_decref(dict);
    return rc;
}

int record_dir_list(struct ckpt_dir **dir, const char ***name, size_t *n, const char *path,
                    struct ckpt_arena *arena, struct ckpt_err *err)
{
    struct ckpt_err none = {0};
    struct ckpt_dir *inner;
    int rc = ckpt_dir_open(dir, path, CKPT_FOLLOW, err);

    if (rc)
        return rc;
    if (ckpt_dir_has(*dir, "dataset_dict.json")) {
        rc = tell_splits(*dir, path, err);
        goto out;
    }
    if (ckpt_dir_has(*dir, "state.json") && ckpt_dir_has(*dir, "dataset_info.json")) {
        rc = list_saved(*dir, name, n, arena, err);
        if (rc)
            ckpt_err_in(err, "%s", path);
        goto out;
    }
    rc = list_named(*dir, name, n, arena, err);
    if (rc == 0 && *n == 0 && ckpt_dir_open_at(&inner, *dir, "data", &none) == 0) {
        ckpt_dir_close(*dir);
        *dir = inner;
        rc = list_named(*dir, name, n, arena, err);
    }
    if (rc == 0)
        rc = one_split(ckpt_dir_path(*dir), *name, *n, err);
out:
    if (rc == 0 && *n == 0)
        rc = ckpt_fail(err, CKPT_ENOTFOUND, "%s: no *.jsonl, *.ndjson, *.parquet, *.arrow or *.txt "
                       "file inside", path);
    if (rc) {
        ckpt_dir_close(*dir);
        *dir = NULL;
    }
    return rc;
}

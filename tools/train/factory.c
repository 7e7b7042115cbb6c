/* train/factory - LLaMA-Factory's dataset_info.json: names of data sets -> files, and columns;
 * see train/names.h. */
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include <jansson.h>

#include "libckpt/base/json.h"
#include "libckpt/err.h"
#include "libckpt/file.h"
#include "libckpt/mem.h"
#include "tools/train/names.h"

static const char *text(const json_t *of, const char *name)
{
    return json_string_value(json_object_get(of, name));
}

/* Members of a data set's columns and tags, and the values that are read, theirs first. */
static const struct { const char *name, *values; } columns[] = {
    /* renamed by put_columns */
    {"prompt", NULL}, {"query", NULL}, {"response", NULL}, {"messages", NULL}, {"system", NULL},
    {"tools", "tools"},
}, tags[] = {
    {"role_tag", "from role"}, {"content_tag", "value content"}, {"user_tag", "human user"},
    {"assistant_tag", "gpt assistant"}, {"observation_tag", "observation tool function_response"},
    {"function_tag", "function_call assistant"}, {"system_tag", "system"},
};

static bool has_word(const char *words, const char *word)
{
    size_t n = strlen(word);

    for (const char *p = words; n > 0 && (p = strstr(p, word)) != NULL; p += n)
        if ((p == words || p[-1] == ' ') && (p[n] == ' ' || p[n] == '\0'))
            return true;
    return false;
}

/* What would be left out of the records, or read in another way, is refused by name. */
static int check_members(struct opt_put *put, const char *set, const json_t *info, bool is_tags,
                         struct ckpt_err *err)
{
    const char *where = is_tags ? "tags" : "columns", *name;
    size_t n = is_tags ? sizeof tags / sizeof tags[0] : sizeof columns / sizeof columns[0];
    json_t *value;

    json_object_foreach(json_object_get(info, where), name, value) {
        const char *is = json_string_value(value);
        size_t i = 0;

        while (i < n && strcmp(is_tags ? tags[i].name : columns[i].name, name) != 0)
            i++;
        if (json_is_null(value) ||
            (i < n && is && (!is_tags && !columns[i].values)) ||
            (i < n && is && has_word(is_tags ? tags[i].values : columns[i].values, is)))
            continue;
        return opt_put_refuse(put, err, "%s: %s.%s %s is not done", set, where, name,
                              is ? is : "of another kind");
    }
    return 0;
}

static bool is_chat(const json_t *info)
{
    const char *formatting = text(info, "formatting");

    return formatting && strcmp(formatting, "alpaca") != 0;
}

/* What all data sets of a run must have alike, as their records are read alike. */
static const char *shape(struct opt_put *put, const json_t *info)
{
    static const char *const names[][2] = {{"prompt", "instruction"}, {"query", "input"},
                                           {"response", "output"}};
    const json_t *of = json_object_get(info, "columns");
    const char *is[3], *messages = text(of, "messages");

    if (is_chat(info))
        return ckpt_arena_printf(opt_put_arena(put), "chats in %s",
                                 messages ? messages : "conversations");
    for (size_t i = 0; i < 3; i++)
        is[i] = text(of, names[i][0]) ? text(of, names[i][0]) : names[i][1];
    return ckpt_arena_printf(opt_put_arena(put), "%s, %s and %s", is[0], is[1], is[2]);
}

/* {"instruction": "title"}: the names of our fields -> columns of the data. */
static int put_columns(struct opt_put *put, const json_t *info, struct ckpt_err *err)
{
    static const char *const names[][2] = {{"prompt", "instruction"}, {"query", "input"},
                                           {"response", "output"}, {"system", "system"}};
    const json_t *of = json_object_get(info, "columns");
    const char *messages = text(of, "messages");
    char *map = NULL;
    int rc = 0;

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const char *column = text(of, names[i][0]);

        if (!column || strcmp(column, names[i][1]) == 0)
            continue;
        if (strpbrk(column, "\"\\"))
            return opt_put_refuse(put, err, "a column's name has quotes");
        map = ckpt_arena_printf(opt_put_arena(put), "%s%s\"%s\": \"%s\"", map ? map : "",
                                map ? ", " : "", names[i][1], column);
        if (!map)
            return ckpt_nomem(err, strlen(column));
    }
    if (map && !(map = ckpt_arena_printf(opt_put_arena(put), "{%s}", map)))
        return ckpt_nomem(err, 64);
    if (map)
        rc = opt_put_option(put, "field-mapping", map, err);
    if (rc == 0 && messages && strcmp(messages, "conversations") != 0 &&
        strcmp(messages, "messages") != 0) {
        const char *own = ckpt_arena_printf(opt_put_arena(put), "%s", messages);

        rc = own ? opt_put_option(put, "messages-field", own, err)
                 : ckpt_nomem(err, strlen(messages));
    }
    return rc;
}

/* A data set against the first one of the run. */
static int check_shape(struct opt_put *put, const json_t *all, const char *name,
                       struct ckpt_err *err)
{
    const char *sets = opt_put_other(put, "dataset"), *was, *is;
    const char *first = sets ? ckpt_arena_strndup(opt_put_arena(put), sets, strcspn(sets, ", "))
                             : name;
    const json_t *info = json_object_get(all, name), *other;

    if (!first)
        return ckpt_nomem(err, strlen(sets));
    if (!(other = json_object_get(all, first)))
        return 0;
    if (!(was = shape(put, other)) || !(is = shape(put, info)))
        return ckpt_nomem(err, 64);
    return strcmp(was, is) == 0
        ? 0 : opt_put_refuse(put, err, "the data sets of a run are read alike, but %s has %s, and "
                             "%s has %s", first, was, name, is);
}

static int put_set(struct opt_put *put, const char *option, const json_t *all, const char *dir,
                   const char *name, struct ckpt_err *err)
{
    const json_t *info = json_object_get(all, name);
    const char *file = text(info, "file_name"), *hub = text(info, "hf_hub_url");
    const char *at = file ? ckpt_arena_printf(opt_put_arena(put), "%s/%s", dir, file)
                     : hub ? ckpt_arena_printf(opt_put_arena(put), "hf://datasets/%s", hub) : NULL;
    int rc;

    if (!info)
        return opt_put_refuse(put, err, "%s/dataset_info.json has no data set %s", dir, name);
    if (!file && !hub)
        return opt_put_refuse(put, err, "%s/dataset_info.json: %s has neither file_name nor "
                              "hf_hub_url", dir, name);
    if (json_is_true(json_object_get(info, "ranking")))
        return opt_put_refuse(put, err, "%s is for ranking: supervised data is wanted", name);
    if (json_object_get(info, "num_samples") || json_object_get(info, "folder"))
        return opt_put_refuse(put, err, "%s: %s is not done", name,
                              json_object_get(info, "folder") ? "folder" : "num_samples");
    if (!is_chat(info) && text(json_object_get(info, "columns"), "system"))
        return opt_put_refuse(put, err, "%s: columns.system is done in chats alone", name);
    if (!at)
        return ckpt_nomem(err, strlen(name));
    if ((rc = check_members(put, name, info, false, err)) != 0 ||
        (rc = check_members(put, name, info, true, err)) != 0 ||
        (rc = check_shape(put, all, name, err)) != 0)
        return rc;
    rc = opt_put_option(put, option, at, err);
    return rc ? rc : put_columns(put, info, err);
}

static int read_info(json_t **all, const char *dir, struct opt_put *put, struct ckpt_err *err)
{
    const char *path = ckpt_arena_printf(opt_put_arena(put), "%s/dataset_info.json", dir);
    struct ckpt_file *file = NULL;
    int rc = path ? ckpt_file_open(&file, path, CKPT_FOLLOW, err) : ckpt_nomem(err, strlen(dir));

    if (rc == 0 && (rc = ckpt_json_read(all, file, CKPT_JSON_MAX_BYTES, 0, err)) != 0)
        ckpt_err_in(err, "%s", path);
    ckpt_file_close(file);
    if (rc)
        return rc;
    return json_is_object(*all) ? 0 : ckpt_fail(err, CKPT_EFORMAT, "%s: no object", path);
}

int train_names_factory_data(struct opt_put *put, const char *const *value, size_t n,
                             struct ckpt_err *err)
{
    const char *dir = opt_put_other(put, "dataset_dir");
    bool train = opt_put_is(put, "dataset");
    json_t *all = NULL;
    int rc = read_info(&all, dir = dir ? dir : "data", put, err);

    for (size_t i = 0; rc == 0 && i < n; i++)
        for (const char *p = value[i]; rc == 0 && *p; p += strspn(p, ", ")) {
            size_t k = strcspn(p, ", ");
            const char *name = ckpt_arena_strndup(opt_put_arena(put), p, k);

            rc = name ? put_set(put, train ? "train-file" : "eval-file", all, dir, name, err)
                      : ckpt_nomem(err, k);
            p += k;
        }
    json_decref(all);
    return rc;
}

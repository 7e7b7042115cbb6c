/*
 * json - configurations that name code: remote code of transformers, adapters and sentence
 * transformers, chat templates, Keras layers, Hydra targets; see scan.h.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/inspect/scan/scan.h"

#define MAX_DEPTH 64                    /* as ckpt_json_parse */
#define MAX_TOLD  16                    /* of the files that one index names */

static void put(struct scan *s, const char *path, const char *what, enum verdict v,
                const char *reason)
{
    scan_put(s, path, what, SCAN_NOWHERE, "", v, reason);
}

static const char *text(const json_t *object, const char *key)
{
    const char *t = json_string_value(json_object_get(object, key));

    return t ? t : "";
}

/* -- names of code in the folder, or elsewhere ----------------------------------------------- */

static void put_code(struct scan *s, const char *path, const char *key, const json_t *value)
{
    char *all = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT), what[1200];

    snprintf(what, sizeof what, "%s: %.1000s", key, all ? all : "");
    put(s, path, what, SCAN_SUSPICIOUS, "names code that a loader that trusts the model runs");
    free(all);
}

/* Adapters name the library of their base class. */
static void auto_mapping(struct scan *s, const char *path, const json_t *value)
{
    const char *library = text(value, "parent_library");

    if (json_is_object(value) && strncmp(library, "transformers.", 13) != 0)
        put_code(s, path, "auto_mapping", value);
}

static void custom_pipelines(struct scan *s, const char *path, const json_t *value)
{
    if (json_object_size(value))
        put_code(s, path, "custom_pipelines", value);
}

static void auto_map(struct scan *s, const char *path, const json_t *value)
{
    if (json_object_size(value) || json_is_string(value) || json_array_size(value))
        put_code(s, path, "auto_map", value);
}

static void trust(struct scan *s, const char *path, const json_t *value)
{
    if (json_is_true(value))
        put(s, path, "trust_remote_code: true", SCAN_SUSPICIOUS, "asks to run the model's code");
}

static void target(struct scan *s, const char *path, const json_t *value)
{
    if (json_is_string(value))
        scan_target(s, path, "_target_", json_string_value(value));
}

static void chat_template(struct scan *s, const char *path, const json_t *value)
{
    const json_t *item;
    size_t i;

    if (json_is_string(value))
        scan_template(s, path, "chat_template", json_string_value(value),
                      json_string_length(value));
    json_array_foreach ((json_t *)value, i, item)
        chat_template(s, path, json_is_object(item) ? json_object_get(item, "template") : item);
    if (json_is_object(value)) {
        void *it = json_object_iter((json_t *)value);

        for (; it; it = json_object_iter_next((json_t *)value, it))
            if (json_is_string(json_object_iter_value(it)))
                chat_template(s, path, json_object_iter_value(it));
    }
}

/* A class in a list is diffusers' way to name a file of the repository. */
static void class_name(struct scan *s, const char *path, const json_t *value)
{
    if (json_array_size(value))
        put_code(s, path, "_class_name", value);
}

/* An index names the files of the model's tensors. */
static void weight_map(struct scan *s, const char *path, const json_t *value)
{
    const json_t *file;
    const char *key;
    size_t told = 0;

    json_object_foreach ((json_t *)value, key, file) {
        const char *name = json_string_value(file);
        char what[600];

        if (!name || ckpt_file_path_is_clean(name))
            continue;
        if (told++ == MAX_TOLD)
            break;
        snprintf(what, sizeof what, "%.200s: %.300s", key, name);
        put(s, path, what, SCAN_DANGEROUS, "names a file that is not in the folder");
    }
}

static const struct {
    const char *key;
    void (*judge)(struct scan *, const char *, const json_t *);
} keys[] = {
    {"auto_map", auto_map}, {"auto_mapping", auto_mapping}, {"trust_remote_code", trust},
    {"custom_pipelines", custom_pipelines}, {"_target_", target},
    {"chat_template", chat_template}, {"_class_name", class_name}, {"weight_map", weight_map},
};

/* -- Keras ----------------------------------------------------------------------------------- */

/* {"class_name": "Lambda"} contains code, {"module", "class_name"} names a class or a function. */
static void keras(struct scan *s, const char *path, const json_t *object)
{
    const char *class = text(object, "class_name"), *module = text(object, "module"), *reason;
    const json_t *config = json_object_get(object, "config");
    const char *name = json_is_string(config) ? json_string_value(config) : class;
    char what[1200];

    if (strcmp(class, "Lambda") == 0 || strcmp(class, "__lambda__") == 0 ||
        strcmp(class, "TFOpLambda") == 0 || strcmp(class, "SlicingOpLambda") == 0) {
        bool code = class[0] != 'T' && class[0] != 'S';

        snprintf(what, sizeof what, "class_name: %s, %.200s", class,
                 text(json_is_object(config) ? config : object, "name"));
        put(s, path, what, code ? SCAN_DANGEROUS : SCAN_SUSPICIOUS,
            code ? "holds code that runs when the model is loaded or called"
                 : "calls a function of TensorFlow's by name");
    }
    if (!*module || !*class)
        return;
    snprintf(what, sizeof what, "module: %.300s, class_name: %.300s, %.300s", module, class,
             json_is_string(config) ? name : "");
    if (strncmp(module, "keras.utils", 11) == 0 || strncmp(module, "keras.config", 12) == 0 ||
        strncmp(module, "keras.src.utils", 15) == 0 || strncmp(module, "keras.src.config", 16) == 0)
        put(s, path, what, SCAN_DANGEROUS, "names a function that is no layer");
    else if (strcmp(module, "builtins") != 0 || strcmp(class, "function") == 0) {
        if (strncmp(module, "keras", 5) != 0 && strncmp(module, "tensorflow", 10) != 0 &&
            strncmp(module, "tf_keras", 8) != 0)
            put(s, path, what,
                scan_judge(module, name, &reason) == SCAN_DANGEROUS ? SCAN_DANGEROUS
                                                                    : SCAN_SUSPICIOUS,
                "names a class or function that is not Keras's");
    }
}

/* -- sentence transformers: modules.json ------------------------------------------------------ */

static void modules(struct scan *s, const char *path, const json_t *list)
{
    const json_t *item;
    size_t i;

    json_array_foreach ((json_t *)list, i, item) {
        const char *type = text(item, "type");

        if (*type && strncmp(type, "sentence_transformers.", 22) != 0) {
            char what[600];

            snprintf(what, sizeof what, "type: %.500s", type);
            put(s, path, what, SCAN_SUSPICIOUS, "names a module that is not the library's");
        }
    }
}

/* -- the walk -------------------------------------------------------------------------------- */

static void walk(struct scan *s, const char *path, const json_t *v, int depth)
{
    const char *key;
    json_t *item;
    size_t i;

    if (depth > MAX_DEPTH)
        return;
    json_array_foreach ((json_t *)v, i, item)
        if (json_is_object(item) || json_is_array(item))
            walk(s, path, item, depth + 1);
    if (!json_is_object(v))
        return;
    keras(s, path, v);
    json_object_foreach ((json_t *)v, key, item) {
        for (i = 0; i < sizeof keys / sizeof keys[0]; i++)
            if (strcmp(keys[i].key, key) == 0)
                keys[i].judge(s, path, item);
        if (json_is_object(item) || json_is_array(item))
            walk(s, path, item, depth + 1);
    }
}

void scan_json(struct scan *s, const char *path, const json_t *json)
{
    if (json_is_array(json) && strcmp(scan_base(path), "modules.json") == 0)
        modules(s, path, json);
    walk(s, path, json, 0);
}

/* component - see component.h. */
#include "formats/tokens/component.h"

#include <string.h>

#include "formats/tokens/unicode/unicode.h"
#include "libckpt/base/json.h"
#include "libckpt/mem.h"

bool component_is_absent(const json_t *v)
{
    return !v || json_is_null(v);
}

/* Position in a list, and in the lists around it. */
struct level { const json_t *list; size_t i; };

static int in_lists(const char *list, const struct level *open, size_t depth,
                    struct ckpt_err *err)
{
    while (depth-- > 0)
        ckpt_err_in(err, "%s[%zu]", list, open[depth].i - 1);
    return ckpt_err_code(err);
}

static int one(const json_t *json, const struct component_table *t, void *ctx,
               struct ckpt_err *err)
{
    const char *type, *name;
    int rc;

    if ((rc = ckpt_json_str(&type, json, "type", err)) != 0)
        return rc;
    for (size_t i = 0; i < t->n; i++) {
        const char *row = (const char *)t->row + i * t->size;

        memcpy(&name, row, sizeof name);
        if (strcmp(name, type) == 0)
            return t->add(ctx, row, json, err) ? ckpt_err_in(err, "%s", type) : 0;
    }
    return ckpt_fail(err, CKPT_EUNSUPPORTED, "type \"%s\" is not read", type);
}

/* A stack of sequences keeps their nesting off the C stack. */
int component_each(const json_t *json, const char *list, const struct component_table *table,
                   void *ctx, struct ckpt_err *err)
{
    struct level open[CKPT_JSON_MAX_DEPTH];
    const json_t *item = json;
    size_t depth = 0;
    json_t *inner;

    if (component_is_absent(json))
        return 0;
    for (;;) {
        const char *type = json_string_value(json_object_get(item, "type"));

        if (type && strcmp(type, "Sequence") == 0) {
            if (ckpt_json_get(&inner, item, list, JSON_ARRAY, err))
                return in_lists(list, open, depth, err);
            if (depth == CKPT_JSON_MAX_DEPTH)
                return ckpt_fail(err, CKPT_ELIMIT, "nested deeper than %d",
                                 CKPT_JSON_MAX_DEPTH);
            open[depth].list = inner;
            open[depth++].i = 0;
        } else if (one(item, table, ctx, err)) {
            return in_lists(list, open, depth, err);
        }
        while (depth > 0 && open[depth - 1].i == json_array_size(open[depth - 1].list))
            depth--;
        if (depth == 0)
            return 0;
        item = json_array_get(open[depth - 1].list, open[depth - 1].i++);
    }
}

int component_pattern(const json_t *json, const char **pattern, bool *literal,
                      struct ckpt_err *err)
{
    const char *regex, *text;
    json_t *v;
    int rc;

    if ((rc = ckpt_json_get(&v, json, "pattern", JSON_OBJECT, err)) != 0 ||
        (rc = ckpt_json_str_or(&regex, v, "Regex", NULL, err)) != 0 ||
        (rc = ckpt_json_str_or(&text, v, "String", NULL, err)) != 0)
        return rc;
    if (!regex == !text)
        return ckpt_fail(err, CKPT_EFORMAT, "a pattern must be one of Regex and String");
    *pattern = regex ? regex : text;
    *literal = !regex;
    return 0;
}

int component_text(char **out, const json_t *json, const char *key, const char *fallback,
                   struct ckpt_err *err)
{
    const char *s;
    int rc;

    if ((rc = fallback ? ckpt_json_str_or(&s, json, key, fallback, err)
                       : ckpt_json_str(&s, json, key, err)) != 0)
        return rc;
    *out = ckpt_strdup(s);
    return *out ? 0 : ckpt_nomem(err, strlen(s));
}

int component_char(const json_t *json, const char *key, const char **s, struct ckpt_err *err)
{
    int rc;

    if ((rc = ckpt_json_str(s, json, key, err)) != 0)
        return rc;
    if (!**s || strlen(*s) != utf8_width((unsigned char)**s))
        return ckpt_fail(err, CKPT_EFORMAT, "%s \"%s\" is not one character", key, *s);
    return 0;
}

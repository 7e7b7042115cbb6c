/*
 * tokenizer_post - the post_processor of a tokenizer.json, reduced to the ids it puts around a
 * text and to whether offsets leave out white space.
 *
 * Rows for pairs of texts are not read: a record is one text.  Source: huggingface/tokenizers
 * 0.21 tokenizers/src/processors/{template,roberta,bert,sequence}.rs.
 */
#include <string.h>

#include "formats/tokens/tokenizer_parts.h"
#include "libckpt/json.h"

#define MAX_AROUND 64       /* ids before or after a text; the most seen is 4 */

/* ids outside what stands there already: before[0] comes first, after[n - 1] last. */
static int around(struct tokenizer *t, bool before, const int32_t *id, size_t n,
                  struct ckpt_err *err)
{
    int32_t **list = before ? &t->post.before : &t->post.after, *grown;
    size_t *have = before ? &t->post.n_before : &t->post.n_after;

    if (n == 0)
        return 0;
    if (n > MAX_AROUND - *have)
        return ckpt_fail(err, CKPT_ELIMIT, "post_processor: more than %d tokens at one end",
                         MAX_AROUND);
    grown = ckpt_arena_alloc(&t->arena, *have + n, sizeof *grown);
    if (!grown)
        return ckpt_nomem(err, (*have + n) * sizeof *grown);
    memcpy(grown + (before ? n : 0), *list ? *list : grown, *have * sizeof *grown);
    memcpy(grown + (before ? 0 : *have), id, n * sizeof *grown);
    *list = grown;
    *have += n;
    return 0;
}

static int known_id(const struct tokenizer *t, int32_t *out, const json_t *id,
                    struct ckpt_err *err)
{
    json_int_t v = json_is_integer(id) ? json_integer_value(id) : -1;

    if (v < 0 || v >= t->n || !t->token[v].token)
        return ckpt_fail(err, CKPT_EFORMAT, "post_processor: id %lld is not in the vocabulary",
                         (long long)v);
    *out = (int32_t)v;
    return 0;
}

static int parse_trim(struct tokenizer *t, const json_t *json, struct ckpt_err *err)
{
    bool trim, prefix;

    if (ckpt_json_bool_or(&trim, json, "trim_offsets", true, err) ||
        ckpt_json_bool_or(&prefix, json, "add_prefix_space", true, err))
        return err->code;
    if (trim) {
        t->post.trim = true;
        t->post.trim_prefix_space = prefix;
    }
    return 0;
}

/* RobertaProcessing, BertProcessing: "cls": [token, id], "sep": [token, id]. */
static int parse_cls_sep(struct tokenizer *t, const json_t *json, struct ckpt_err *err)
{
    json_t *cls, *sep;
    int32_t first, last;

    if (ckpt_json_get(&cls, json, "cls", JSON_ARRAY, err) ||
        ckpt_json_get(&sep, json, "sep", JSON_ARRAY, err) ||
        known_id(t, &first, json_array_get(cls, 1), err) ||
        known_id(t, &last, json_array_get(sep, 1), err) ||
        around(t, true, &first, 1, err))
        return err->code;
    return around(t, false, &last, 1, err);
}

static int parse_roberta(struct tokenizer *t, const json_t *json, struct ckpt_err *err)
{
    return parse_trim(t, json, err) ? err->code : parse_cls_sep(t, json, err);
}

/* ids of one {"SpecialToken": {"id": name}} appended to id[*n]. */
static int template_ids(const struct tokenizer *t, const json_t *special, const json_t *tokens,
                        int32_t id[MAX_AROUND], size_t *n, struct ckpt_err *err)
{
    const char *name;
    json_t *row, *ids;

    if (ckpt_json_str(&name, special, "id", err) ||
        ckpt_json_get(&row, tokens, name, JSON_OBJECT, err) ||
        ckpt_json_get(&ids, row, "ids", JSON_ARRAY, err))
        return ckpt_err_in(err, "post_processor");
    for (size_t i = 0; i < json_array_size(ids); i++) {
        if (*n == MAX_AROUND)
            return ckpt_fail(err, CKPT_ELIMIT, "post_processor: more than %d tokens at one end",
                             MAX_AROUND);
        if (known_id(t, &id[(*n)++], json_array_get(ids, i), err))
            return err->code;
    }
    return 0;
}

static int parse_template(struct tokenizer *t, const json_t *json, struct ckpt_err *err)
{
    json_t *single, *tokens;
    int32_t id[2][MAX_AROUND];
    size_t n[2] = {0, 0}, side = 0;

    if (ckpt_json_get(&single, json, "single", JSON_ARRAY, err) ||
        ckpt_json_get(&tokens, json, "special_tokens", JSON_OBJECT, err))
        return ckpt_err_in(err, "post_processor");
    for (size_t i = 0; i < json_array_size(single); i++) {
        const json_t *item = json_array_get(single, i);
        const json_t *special = json_object_get(item, "SpecialToken");

        if (json_object_get(item, "Sequence") && side == 0)
            side = 1;
        else if (!special)
            return ckpt_fail(err, CKPT_EUNSUPPORTED, "post_processor: a template must hold the "
                             "text once, and special tokens");
        else if (template_ids(t, special, tokens, id[side], &n[side], err))
            return err->code;
    }
    if (side == 0)
        return ckpt_fail(err, CKPT_EUNSUPPORTED, "post_processor: the template leaves out the "
                         "text");
    return around(t, true, id[0], n[0], err) ? err->code : around(t, false, id[1], n[1], err);
}

/* Component types but Sequence. */
static const struct {
    const char *type;
    int (*parse)(struct tokenizer *t, const json_t *json, struct ckpt_err *err);
} rows[] = {
    {"ByteLevel", parse_trim},
    {"TemplateProcessing", parse_template},
    {"RobertaProcessing", parse_roberta},
    {"BertProcessing", parse_cls_sep},
};

static int parse_one(struct tokenizer *t, const json_t *json, struct ckpt_err *err)
{
    const char *type;

    if (ckpt_json_str(&type, json, "type", err))
        return ckpt_err_in(err, "post_processor");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (strcmp(rows[i].type, type) == 0)
            return rows[i].parse(t, json, err);
    return ckpt_fail(err, CKPT_EUNSUPPORTED, "post_processor: type \"%s\" is not read", type);
}

int tokenizer_post_read(struct tokenizer *t, const json_t *json, struct ckpt_err *err)
{
    const char *type = json_string_value(json_object_get(json, "type"));
    json_t *list;

    if (!json || json_is_null(json))
        return 0;
    if (!type || strcmp(type, "Sequence") != 0)
        return parse_one(t, json, err);
    if (ckpt_json_get(&list, json, "processors", JSON_ARRAY, err))
        return ckpt_err_in(err, "post_processor");
    for (size_t i = 0; i < json_array_size(list); i++)
        if (parse_one(t, json_array_get(list, i), err))
            return err->code;
    return 0;
}

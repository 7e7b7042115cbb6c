/* post - see post.h. */
#include "formats/tokens/post.h"

#include <string.h>

#include "formats/tokens/component.h"
#include "libckpt/base/json.h"

#define MAX_PARTS 256       /* most parts of a template; the most seen is 7 */

/* State of reading the post-processor. */
struct reading {
    struct post        *post;
    const struct vocab *vocab;
    bool                done;       /* the tokens around texts are set */
};

static int add_part(struct post_template *t, const struct vocab *v, struct post_part part,
                    struct ckpt_err *err)
{
    if (!t->part)
        t->part = ckpt_arena_alloc(v->arena, MAX_PARTS, sizeof *t->part);
    if (!t->part)
        return ckpt_nomem(err, MAX_PARTS * sizeof *t->part);
    if (t->n == MAX_PARTS)
        return ckpt_fail(err, CKPT_ELIMIT, "a template of more than %d parts", MAX_PARTS);
    t->part[t->n++] = part;
    t->n_token += part.kind == POST_TOKEN;
    return 0;
}

static int add_parts(struct post_template *t, const struct vocab *v,
                     const struct post_part *part, size_t n, struct ckpt_err *err)
{
    int rc;

    memset(t, 0, sizeof *t);
    for (size_t i = 0; i < n; i++)
        if ((part[i].kind != POST_TOKEN || part[i].id >= 0) &&
            (rc = add_part(t, v, part[i], err)) != 0)
            return rc;
    return 0;
}

/* Set the parts around a pair; the first three also apply to one text. */
static int set_parts(struct post *post, const struct vocab *v, const struct post_part *part,
                     size_t n, struct ckpt_err *err)
{
    int rc = add_parts(&post->single, v, part, 3, err);

    return rc ? rc : add_parts(&post->pair, v, part, n, err);
}

int post_set(struct post *post, const struct vocab *v, int32_t before, int32_t after,
             struct ckpt_err *err)
{
    const struct post_part part[] = {
        {POST_TOKEN, before, 0}, {POST_A, 0, 0}, {POST_TOKEN, after, 0},
        {POST_TOKEN, before, 1}, {POST_B, 0, 1}, {POST_TOKEN, after, 1},
    };

    return set_parts(post, v, part, 6, err);
}

static int known_id(const struct vocab *v, int32_t *out, const json_t *id, struct ckpt_err *err)
{
    json_int_t n = json_is_integer(id) ? json_integer_value(id) : -1;

    if (n < 0 || n >= v->n || !v->token[n].token)
        return ckpt_fail(err, CKPT_EFORMAT, "id %lld is not in the vocabulary", (long long)n);
    *out = (int32_t)n;
    return 0;
}

static int parse_trim(struct reading *r, const json_t *json, struct ckpt_err *err)
{
    bool trim, prefix;
    int rc;

    if ((rc = ckpt_json_bool_or(&trim, json, "trim_offsets", true, err)) != 0 ||
        (rc = ckpt_json_bool_or(&prefix, json, "add_prefix_space", true, err)) != 0)
        return rc;
    if (trim) {
        r->post->trim = true;
        r->post->trim_prefix_space = prefix;
    }
    return 0;
}

/* Refuse two components that add tokens: one would have to surround the other. */
static int only_once(struct reading *r, struct ckpt_err *err)
{
    if (r->done)
        return ckpt_fail(err, CKPT_EUNSUPPORTED, "a second component that adds tokens");
    r->done = true;
    return 0;
}

/* "cls": [token, id], "sep": [token, id]. */
static int cls_sep(struct reading *r, const json_t *json, int32_t *cls, int32_t *sep,
                   struct ckpt_err *err)
{
    json_t *c, *s;
    int rc;

    if ((rc = only_once(r, err)) != 0 ||
        (rc = ckpt_json_get(&c, json, "cls", JSON_ARRAY, err)) != 0 ||
        (rc = ckpt_json_get(&s, json, "sep", JSON_ARRAY, err)) != 0 ||
        (rc = known_id(r->vocab, cls, json_array_get(c, 1), err)) != 0)
        return rc;
    return known_id(r->vocab, sep, json_array_get(s, 1), err);
}

static int parse_bert(struct reading *r, const json_t *json, struct ckpt_err *err)
{
    int32_t cls, sep;
    int rc;

    if ((rc = cls_sep(r, json, &cls, &sep, err)) != 0)
        return rc;
    const struct post_part part[] = {
        {POST_TOKEN, cls, 0}, {POST_A, 0, 0}, {POST_TOKEN, sep, 0},
        {POST_B, 0, 1}, {POST_TOKEN, sep, 1},
    };
    return set_parts(r->post, r->vocab, part, 5, err);
}

static int parse_roberta(struct reading *r, const json_t *json, struct ckpt_err *err)
{
    int32_t cls, sep;
    int rc;

    if ((rc = parse_trim(r, json, err)) != 0 || (rc = cls_sep(r, json, &cls, &sep, err)) != 0)
        return rc;
    /* Tokens of both texts count for the first. */
    const struct post_part part[] = {
        {POST_TOKEN, cls, 0}, {POST_A, 0, 0}, {POST_TOKEN, sep, 0},
        {POST_TOKEN, sep, 0}, {POST_B, 0, 0}, {POST_TOKEN, sep, 0},
    };
    return set_parts(r->post, r->vocab, part, 6, err);
}

static int parse_type(int32_t *type, const json_t *json, struct ckpt_err *err)
{
    int64_t n;
    int rc;

    if ((rc = ckpt_json_int_or(&n, json, "type_id", 0, err)) != 0)
        return rc;
    if (n < 0 || n > INT32_MAX)
        return ckpt_fail(err, CKPT_EFORMAT, "type_id %lld", (long long)n);
    *type = (int32_t)n;
    return 0;
}

/* {"Sequence": {"id": "A"}} or {"SpecialToken": {"id": name}}. */
static int parse_part(struct reading *r, struct post_template *t, const json_t *item,
                      const json_t *tokens, struct ckpt_err *err)
{
    const json_t *text = json_object_get(item, "Sequence");
    const json_t *special = json_object_get(item, "SpecialToken");
    struct post_part part = {.kind = POST_TOKEN};
    json_t *row, *ids;
    const char *name;
    int rc;

    if (!text == !special)
        return ckpt_fail(err, CKPT_EFORMAT, "a part must be one of Sequence and SpecialToken");
    if ((rc = parse_type(&part.type, text ? text : special, err)) != 0 ||
        (rc = ckpt_json_str(&name, text ? text : special, "id", err)) != 0)
        return rc;
    if (text) {
        part.kind = strcmp(name, "A") == 0 ? POST_A : POST_B;
        if (part.kind == POST_B && strcmp(name, "B") != 0)
            return ckpt_fail(err, CKPT_EFORMAT, "Sequence \"%s\" is neither A nor B", name);
        return add_part(t, r->vocab, part, err);
    }
    if ((rc = ckpt_json_get(&row, tokens, name, JSON_OBJECT, err)) != 0 ||
        (rc = ckpt_json_get(&ids, row, "ids", JSON_ARRAY, err)) != 0)
        return rc;
    for (size_t i = 0; i < json_array_size(ids); i++)
        if ((rc = known_id(r->vocab, &part.id, json_array_get(ids, i), err)) != 0 ||
            (rc = add_part(t, r->vocab, part, err)) != 0)
            return rc;
    return 0;
}

static int parse_template(struct reading *r, const json_t *json, struct ckpt_err *err)
{
    json_t *single, *pair = json_object_get(json, "pair"), *tokens;
    int rc;

    if ((rc = only_once(r, err)) != 0 ||
        (rc = ckpt_json_get(&single, json, "single", JSON_ARRAY, err)) != 0 ||
        (rc = ckpt_json_get(&tokens, json, "special_tokens", JSON_OBJECT, err)) != 0)
        return rc;
    memset(&r->post->single, 0, sizeof r->post->single);
    for (size_t i = 0; i < json_array_size(single); i++) {
        const json_t *item = json_array_get(single, i);

        if (parse_part(r, &r->post->single, item, tokens, err))
            return ckpt_err_in(err, "single[%zu]", i);
        if (r->post->single.n > 0 &&
            r->post->single.part[r->post->single.n - 1].kind == POST_B)
            return ckpt_fail(err, CKPT_EFORMAT, "single[%zu]: one text has no B", i);
    }
    if (component_is_absent(pair))
        return 0;
    memset(&r->post->pair, 0, sizeof r->post->pair);
    for (size_t i = 0; i < json_array_size(pair); i++)
        if (parse_part(r, &r->post->pair, json_array_get(pair, i), tokens, err))
            return ckpt_err_in(err, "pair[%zu]", i);
    return 0;
}

/* Component types but Sequence. */
static const struct row {
    const char *type;
    int (*parse)(struct reading *r, const json_t *json, struct ckpt_err *err);
} rows[] = {
    {"ByteLevel", parse_trim},
    {"TemplateProcessing", parse_template},
    {"RobertaProcessing", parse_roberta},
    {"BertProcessing", parse_bert},
};

static int parse_row(void *ctx, const void *row, const json_t *json, struct ckpt_err *err)
{
    return ((const struct row *)row)->parse(ctx, json, err);
}

int post_read(struct post *post, const struct vocab *v, const json_t *json,
              struct ckpt_err *err)
{
    static const struct component_table table = {rows, sizeof rows / sizeof *rows, sizeof *rows,
                                                 parse_row};
    struct reading r = {.post = post, .vocab = v};
    int rc;

    memset(post, 0, sizeof *post);
    if ((rc = post_set(post, v, -1, -1, err)) != 0)
        return rc;
    return component_each(json, "processors", &table, &r, err)
               ? ckpt_err_in(err, "post_processor") : 0;
}

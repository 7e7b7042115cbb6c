/* model_card - see model_card.h. */
#include "formats/hf/model_card.h"

#include <string.h>

#include "formats/container/yaml_limits.h"
#include "formats/hf/model_index.h"
#include "libckpt/err.h"
#include "libckpt/mem.h"

/* Where the parts of a card are, in bytes of its text. */
struct parts {
    size_t yaml, end;           /* the front matter, without its fences; both 0: there is none */
    bool   any;
    bool   crlf;                /* its lines end with CR LF */
};

/* The line at `at` is "---" and nothing else; *next gets the beginning of the one after it. */
static bool is_fence(const char *text, size_t n, size_t at, size_t *next)
{
    if (n - at < 3 || memcmp(text + at, "---", 3) != 0)
        return false;
    at += 3;
    if (at < n && text[at] == '\r')
        at++;
    if (at < n && text[at] != '\n')
        return false;
    *next = at < n ? at + 1 : n;
    return true;
}

static struct parts find_parts(const char *text, size_t n)
{
    struct parts p = {0};
    size_t at = n >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0 ? 3 : 0, next;

    while (at < n && strchr(" \t\r\n", text[at]) && text[at])
        at++;
    if ((at > 0 && text[at - 1] != '\n' && at != 3) || at >= n || !is_fence(text, n, at, &next))
        return p;
    p.crlf = next >= 2 && text[next - 2] == '\r';
    p.yaml = next;
    for (at = next; at < n;) {
        const char *line = memchr(text + at, '\n', n - at);

        if (is_fence(text, n, at, &next)) {
            p.any = true;
            p.end = at;
            return p;
        }
        at = line ? (size_t)(line - text) + 1 : n;
    }
    return (struct parts){0};
}

/* -- reading ---------------------------------------------------------------------------------- */

/* Whether another document follows, or the first one says that it ends: lines at the end of the
 * front matter would then not be of it. */
static bool goes_on(yaml_parser_t *parser, const yaml_document_t *doc)
{
    yaml_document_t next;
    bool more;

    if (!doc->end_implicit)
        return true;
    if (yaml_parser_load(parser, &next) != 1)
        return true;
    more = yaml_document_get_root_node(&next) != NULL;
    yaml_document_delete(&next);
    return more;
}

/* Parse the front matter; *root gets its mapping, or 0 where it is empty.  Delete doc after 0. */
static int load(yaml_document_t *doc, int *root, const char *text, const struct parts *p,
                struct ckpt_err *err)
{
    yaml_parser_t parser;
    yaml_node_t *top;
    int rc;

    *root = 0;
    if ((rc = yaml_check_limits(text + p->yaml, p->end - p->yaml, err)) != 0)
        return ckpt_err_in(err, "README.md");
    if (yaml_parser_initialize(&parser) != 1)
        return ckpt_nomem(err, sizeof parser);
    yaml_parser_set_encoding(&parser, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&parser, (const unsigned char *)text + p->yaml, p->end - p->yaml);
    if (yaml_parser_load(&parser, doc) != 1) {
        rc = ckpt_fail(err, CKPT_EFORMAT, "README.md: line %zu of its front matter: %s",
                       parser.problem_mark.line + 1, parser.problem ? parser.problem : "no YAML");
        yaml_parser_delete(&parser);
        return rc;
    }
    top = yaml_document_get_root_node(doc);
    if (top && goes_on(&parser, doc)) {
        yaml_parser_delete(&parser);
        yaml_document_delete(doc);
        return ckpt_fail(err, CKPT_EFORMAT, "README.md: its front matter is more than one "
                         "document");
    }
    yaml_parser_delete(&parser);
    if (top && top->type == YAML_MAPPING_NODE)
        *root = (int)(top - doc->nodes.start) + 1;
    else if (top) {
        yaml_document_delete(doc);
        return ckpt_fail(err, CKPT_EFORMAT, "README.md: its front matter is no mapping");
    }
    return 0;
}

static json_t *text_of(const yaml_node_t *n)
{
    return n->type != YAML_SCALAR_NODE
               ? NULL : json_stringn((const char *)n->data.scalar.value, n->data.scalar.length);
}

/* A string, or a list of strings; NULL for any other value. */
static json_t *json_of(yaml_document_t *doc, const yaml_node_t *n)
{
    json_t *list, *item;

    if (n->type != YAML_SEQUENCE_NODE)
        return text_of(n);
    list = json_array();
    for (yaml_node_item_t *i = n->data.sequence.items.start; list && i < n->data.sequence.items.top;
         i++)
        if ((item = text_of(yaml_document_get_node(doc, *i))) == NULL ||
            json_array_append_new(list, item)) {
            json_decref(list);
            list = NULL;
        }
    return list;
}

int model_card_read(json_t **keys, const char *text, size_t n, struct ckpt_err *err)
{
    struct parts p = find_parts(text, n);
    yaml_document_t doc;
    yaml_node_t *top;
    int root = 0, rc = p.any ? load(&doc, &root, text, &p, err) : 0;

    *keys = rc ? NULL : json_object();
    if (rc || !*keys)
        return rc ? rc : ckpt_nomem(err, 64);
    top = root ? yaml_document_get_node(&doc, root) : NULL;
    for (yaml_node_pair_t *i = top ? top->data.mapping.pairs.start : NULL;
         i && i < top->data.mapping.pairs.top; i++) {
        const yaml_node_t *key = yaml_document_get_node(&doc, i->key);
        json_t *value = json_of(&doc, yaml_document_get_node(&doc, i->value));

        if (value && key->type == YAML_SCALAR_NODE)
            json_object_set_new(*keys, (const char *)key->data.scalar.value, value);
        else
            json_decref(value);
    }
    if (p.any)
        yaml_document_delete(&doc);
    return 0;
}

/* -- writing ---------------------------------------------------------------------------------- */

static int put_bytes(void *ctx, unsigned char *bytes, size_t n)
{
    ckpt_buf_put(ctx, bytes, n);
    return 1;
}

/* The mapping of doc as lines; takes doc. */
static int dump(struct ckpt_buf *out, yaml_document_t *doc, bool crlf, struct ckpt_err *err)
{
    yaml_emitter_t e;
    int good;

    if (yaml_emitter_initialize(&e) != 1) {
        yaml_document_delete(doc);
        return ckpt_nomem(err, sizeof e);
    }
    yaml_emitter_set_output(&e, put_bytes, out);
    yaml_emitter_set_unicode(&e, 1);
    yaml_emitter_set_width(&e, -1);
    yaml_emitter_set_break(&e, crlf ? YAML_CRLN_BREAK : YAML_LN_BREAK);
    good = yaml_emitter_open(&e) && yaml_emitter_dump(&e, doc) && yaml_emitter_close(&e);
    yaml_emitter_delete(&e);
    return good && ckpt_buf_ok(out) ? 0 : ckpt_fail(err, CKPT_ELIMIT, "README.md: its front matter "
                                                    "cannot be written");
}

/* Nodes of a string or a list of strings; 0: no memory, or another kind. */
static int node_of(yaml_document_t *to, const json_t *value)
{
    json_t *item;
    size_t i;
    int list;

    if (json_is_string(value))
        return model_index_text(to, json_string_value(value));
    list = json_is_array(value)
               ? yaml_document_add_sequence(to, NULL, YAML_BLOCK_SEQUENCE_STYLE) : 0;
    json_array_foreach (value, i, item) {
        int one = json_is_string(item) ? model_index_text(to, json_string_value(item)) : 0;

        if (!list || !one || !yaml_document_append_sequence_item(to, list, one))
            return 0;
    }
    return list;
}

/* The byte of the text at a place in the front matter: the library counts characters. */
static size_t byte_at(const char *text, const struct parts *p, size_t characters)
{
    size_t at = p->yaml;

    while (at < p->end && characters-- > 0)
        do
            at++;
        while (at < p->end && ((unsigned char)text[at] & 0xc0) == 0x80);
    return at;
}

/* The byte after a value and the rest of its line: comments that follow belong to what is next. */
static size_t end_of(yaml_document_t *doc, int index, const char *text, const struct parts *p)
{
    yaml_node_t *n = yaml_document_get_node(doc, index);
    const char *line;
    size_t at;

    for (;;) {
        if (n->type == YAML_SEQUENCE_NODE &&
            n->data.sequence.style == YAML_BLOCK_SEQUENCE_STYLE &&
            n->data.sequence.items.start < n->data.sequence.items.top)
            n = yaml_document_get_node(doc, n->data.sequence.items.top[-1]);
        else if (n->type == YAML_MAPPING_NODE &&
                 n->data.mapping.style == YAML_BLOCK_MAPPING_STYLE &&
                 n->data.mapping.pairs.start < n->data.mapping.pairs.top)
            n = yaml_document_get_node(doc, n->data.mapping.pairs.top[-1].value);
        else
            break;
    }
    at = byte_at(text, p, n->end_mark.index);
    if (at > p->yaml && text[at - 1] == '\n')       /* a block of text ends with its last line */
        return at;
    line = memchr(text + at, '\n', p->end - at);
    return line ? (size_t)(line - text) + 1 : p->end;
}

/* What is there of model-index, and which bytes it has. */
struct found {
    yaml_document_t doc;
    bool            loaded;
    int             root, index;        /* nodes; 0: none */
    size_t          begin, end;         /* of the whole pair in the text */
};

static bool has_alias(const char *text, const struct parts *p)
{
    yaml_parser_t parser;
    bool found = false, end = yaml_parser_initialize(&parser) != 1;

    if (end)
        return true;
    yaml_parser_set_encoding(&parser, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&parser, (const unsigned char *)text + p->yaml, p->end - p->yaml);
    while (!end) {
        yaml_event_t event;

        if (yaml_parser_parse(&parser, &event) != 1)
            break;
        found = found || event.type == YAML_ALIAS_EVENT;
        end = event.type == YAML_STREAM_END_EVENT;
        yaml_event_delete(&event);
    }
    yaml_parser_delete(&parser);
    return found;
}

/* Whether a line ends otherwise than with "\n" or "\r\n", as YAML's may: the lines that are put in
 * and taken out here are those. */
static bool has_other_breaks(const char *text, const struct parts *p)
{
    static const char *const breaks[] = {"\xc2\x85", "\xe2\x80\xa8", "\xe2\x80\xa9"};

    for (size_t i = 0; i < sizeof breaks / sizeof breaks[0]; i++)
        if (memmem(text + p->yaml, p->end - p->yaml, breaks[i], strlen(breaks[i])))
            return true;
    for (size_t at = p->yaml; at < p->end; at++)
        if (text[at] == '\r' && (at + 1 == p->end || text[at + 1] != '\n'))
            return true;
    return false;
}

/* Refuse what cannot be edited in place: a mapping in braces, and values that stand for others. */
static int check_form(struct found *f, const char *text, const struct parts *p,
                      struct ckpt_err *err)
{
    yaml_node_t *top = yaml_document_get_node(&f->doc, f->root);

    if (top->data.mapping.style == YAML_FLOW_MAPPING_STYLE)
        return ckpt_fail(err, CKPT_EUNSUPPORTED, "README.md: its front matter is a mapping in "
                         "braces, which is not edited here");
    if (top->start_mark.column > 0)
        return ckpt_fail(err, CKPT_EUNSUPPORTED, "README.md: its front matter is indented, and is "
                         "not edited here");
    if (has_other_breaks(text, p))
        return ckpt_fail(err, CKPT_EUNSUPPORTED, "README.md: a line of its front matter ends with "
                         "neither \\n nor \\r\\n, and it is not edited here");
    return !has_alias(text, p)
               ? 0 : ckpt_fail(err, CKPT_EUNSUPPORTED, "README.md: its front matter has aliases, "
                               "and is not edited here");
}

static int find(struct found *f, const char *text, const struct parts *p, struct ckpt_err *err)
{
    yaml_node_t *top;
    int rc;

    memset(f, 0, sizeof *f);
    if (!p->any)
        return 0;
    if ((rc = load(&f->doc, &f->root, text, p, err)) != 0)
        return rc;
    f->loaded = true;
    if (!f->root)
        return 0;
    if ((rc = check_form(f, text, p, err)) != 0)
        return rc;
    top = yaml_document_get_node(&f->doc, f->root);
    for (yaml_node_pair_t *i = top->data.mapping.pairs.start; i < top->data.mapping.pairs.top;
         i++) {
        yaml_node_t *key = yaml_document_get_node(&f->doc, i->key);

        if (key->type != YAML_SCALAR_NODE ||
            strcmp((const char *)key->data.scalar.value, "model-index") != 0)
            continue;
        f->index = i->value;
        f->begin = byte_at(text, p, key->start_mark.index);
        f->end = end_of(&f->doc, i->value, text, p);
    }
    return 0;
}

static bool has_key(const struct found *f, const char *name)
{
    yaml_document_t *doc = (yaml_document_t *)&f->doc;
    yaml_node_t *top = f->root ? yaml_document_get_node(doc, f->root) : NULL;

    for (yaml_node_pair_t *i = top ? top->data.mapping.pairs.start : NULL;
         i && i < top->data.mapping.pairs.top; i++) {
        const yaml_node_t *key = yaml_document_get_node(doc, i->key);

        if (key->type == YAML_SCALAR_NODE &&
            strcmp((const char *)key->data.scalar.value, name) == 0)
            return true;
    }
    return false;
}

/* The lines of a mapping with what is new: keys (NULL: none), or model-index. */
static int put_lines(struct ckpt_buf *out, struct found *f, const json_t *keys, const char *name,
                     const struct model_card_result *result, size_t n, bool crlf,
                     struct ckpt_err *err)
{
    yaml_document_t doc;
    const char *key;
    json_t *value;
    int map, index = 0, rc = 0;
    bool any = n > 0;

    if (yaml_document_initialize(&doc, NULL, NULL, NULL, 1, 1) != 1)
        return ckpt_nomem(err, sizeof doc);
    map = yaml_document_add_mapping(&doc, NULL, YAML_BLOCK_MAPPING_STYLE);
    json_object_foreach ((json_t *)keys, key, value) {
        if (has_key(f, key))
            continue;
        any = true;
        if (rc == 0 && !model_index_pair(&doc, map, key, node_of(&doc, value)))
            rc = ckpt_nomem(err, 256);
    }
    if (rc == 0 && n > 0)
        rc = model_index_put(&index, &doc, &f->doc, f->index, name, result, n, err);
    if (rc == 0 && n > 0 && !model_index_pair(&doc, map, "model-index", index))
        rc = ckpt_nomem(err, 256);
    if (rc || !any) {
        yaml_document_delete(&doc);
        return rc ? ckpt_err_in(err, "README.md") : 0;
    }
    return dump(out, &doc, crlf, err);
}

/* Read the card that was made: nothing is written that does not say what was put in. */
static int check_result(const struct ckpt_buf *out, const json_t *keys, bool results, size_t body,
                        struct ckpt_err *err)
{
    const char *text = (const char *)out->data, *key;
    struct parts p = find_parts(text, out->len);
    json_t *value;
    struct found f;
    int rc = find(&f, text, &p, err);
    bool good = rc == 0 && p.any && out->len - p.end >= body && (!results || f.index);

    json_object_foreach ((json_t *)keys, key, value)
        good = good && has_key(&f, key);
    if (f.loaded)
        yaml_document_delete(&f.doc);
    return good || rc == CKPT_ENOMEM
               ? rc : ckpt_fail(err, CKPT_EUNSUPPORTED, "README.md: its front matter is written in "
                                "a way that is not edited here");
}

int model_card_edit(struct ckpt_buf *out, const char *text, size_t n, const json_t *keys,
                    const char *name, const struct model_card_result *result, size_t n_results,
                    struct ckpt_err *err)
{
    struct parts p = find_parts(text, n);
    const char *eol = p.crlf ? "\r\n" : "\n";
    bool replaced;
    struct found f;
    int rc = find(&f, text, &p, err);

    replaced = rc == 0 && f.index && n_results > 0;
    if (rc == 0 && !p.any)
        ckpt_buf_put_str(out, "---\n");
    else if (rc == 0)
        ckpt_buf_put(out, text, replaced ? f.begin : p.end);
    if (rc == 0 && replaced) {
        rc = put_lines(out, &f, NULL, name, result, n_results, p.crlf, err);
        ckpt_buf_put(out, text + f.end, p.end - f.end);
    }
    if (rc == 0 && out->len > 0 && out->data && out->data[out->len - 1] != '\n')
        ckpt_buf_put_str(out, eol);
    if (rc == 0)
        rc = put_lines(out, &f, keys, name, result, replaced ? 0 : n_results, p.crlf, err);
    if (rc == 0 && !p.any)
        ckpt_buf_put_str(out, n ? "---\n\n" : "---\n");
    if (rc == 0)
        ckpt_buf_put(out, text + p.end, n - p.end);
    if (rc == 0 && !ckpt_buf_ok(out))
        rc = ckpt_fail(err, CKPT_ELIMIT, "README.md: longer than %zu bytes", out->limit);
    if (rc == 0 && (n_results || json_object_size(keys)))
        rc = check_result(out, keys, n_results > 0, n - p.end, err);
    if (f.loaded)
        yaml_document_delete(&f.doc);
    return rc;
}

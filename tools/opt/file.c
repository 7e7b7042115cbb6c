/* opt/file - a run file's values into the rows, through libyaml (JSON is YAML); opt/rows.h. */
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <yaml.h>

#include "formats/container/yaml_limits.h"
#include "libckpt/file.h"
#include "tools/opt/rows.h"

#define MAX_BYTES ((uint64_t)4 << 20)

struct reader {
    const struct opt_table *t;
    const char             *path;
    bool                   *given;      /* rows that a flag has set */
    bool                   *seen;       /* rows that the file has named */
    yaml_document_t         doc;
    struct ckpt_err        *err;
};

static int bad(struct reader *r, const yaml_node_t *at, const char *what)
{
    return ckpt_fail(r->err, CKPT_ECONFIG, "%s:%zu: %s", r->path, at->start_mark.line + 1, what);
}

/* Without a value ("key:", "key: null", "key: ~"): the default stands. */
static bool is_null(const yaml_node_t *v)
{
    const char *text = (const char *)v->data.scalar.value;

    return v->type == YAML_SCALAR_NODE && v->data.scalar.style == YAML_PLAIN_SCALAR_STYLE &&
           (!*text || strcmp(text, "~") == 0 || strcasecmp(text, "null") == 0);
}

/* The scalar's text in memory that outlives the document: options borrow it for the run. */
static int text_of(struct reader *r, const yaml_node_t *v, const char **out)
{
    const char *text = (const char *)v->data.scalar.value;

    if (v->type != YAML_SCALAR_NODE)
        return bad(r, v, "a plain value is wanted here");
    if (strlen(text) != v->data.scalar.length)
        return bad(r, v, "a NUL byte is no part of a value");
    *out = ckpt_arena_strndup(r->t->arena, text, v->data.scalar.length);
    return *out ? 0 : ckpt_nomem(r->err, v->data.scalar.length);
}

/* YAML's words for it, of 1.1 and 1.2. */
static int truth_of(const char *text)
{
    static const char *const words[][2] = {{"false", "true"}, {"no", "yes"}, {"off", "on"}};

    for (size_t i = 0; i < 3; i++)
        for (int k = 0; k < 2; k++)
            if (strcasecmp(text, words[i][k]) == 0)
                return k;
    return -1;
}

static int set_scalar(struct reader *r, const struct opt *o, const yaml_node_t *v)
{
    const char *text;
    char where[4352];
    int on;

    if (text_of(r, v, &text))
        return r->err->code;
    on = truth_of(text);
    if (opt_is_flag(o)) {
        if (on < 0)
            return bad(r, v, "true or false is wanted here");
        opt_set_flag(o, on);
        return 0;
    }
    if (o->kind == OPT_COUNT) {
        bool digit = text[0] >= '0' && text[0] <= '9' && !text[1];

        if (on < 0 && !digit)
            return bad(r, v, "a number below 10, or true or false, is wanted here");
        *(int *)o->dest = digit ? text[0] - '0' : on;
        return 0;
    }
    snprintf(where, sizeof where, "%s:%zu: %s", r->path, v->start_mark.line + 1, o->name);
    if (opt_set(r->t, o, text, where, r->err))
        r->err->code = CKPT_ECONFIG;
    return r->err->code;
}

static int set_node(struct reader *r, size_t i, const yaml_node_t *v)
{
    const struct opt *o = opt_at(r->t, i);

    if (is_null(v))
        return 0;
    if (o->kind != OPT_LIST || v->type != YAML_SEQUENCE_NODE)
        return set_scalar(r, o, v);
    for (yaml_node_item_t *it = v->data.sequence.items.start; it < v->data.sequence.items.top; it++)
        if (set_scalar(r, o, yaml_document_get_node(&r->doc, *it)))
            return r->err->code;
    return 0;
}

/* The row a key names, once. */
static int row_of(struct reader *r, const yaml_node_t *k, size_t *i)
{
    const char *name = (const char *)k->data.scalar.value;

    if (k->type != YAML_SCALAR_NODE)
        return bad(r, k, "an option's name is wanted here");
    *i = opt_find(r->t, name, k->data.scalar.length);
    if (*i == SIZE_MAX || opt_at(r->t, *i)->no_config) {
        ckpt_fail(r->err, CKPT_ECONFIG, "%s:%zu: unknown option %s", r->path,
                  k->start_mark.line + 1, name);
        return opt_hint_unknown(r->t, name, strlen(name), true, r->err);
    }
    if (r->seen[*i])
        return ckpt_fail(r->err, CKPT_ECONFIG, "%s:%zu: %s appears twice", r->path,
                         k->start_mark.line + 1, opt_at(r->t, *i)->name);
    r->seen[*i] = true;
    return 0;
}

static int read_mapping(struct reader *r, const yaml_node_t *root)
{
    for (yaml_node_pair_t *p = root->data.mapping.pairs.start; p < root->data.mapping.pairs.top;
         p++) {
        size_t i = 0;

        if (row_of(r, yaml_document_get_node(&r->doc, p->key), &i))
            return r->err->code;
        if (!r->given[i] && set_node(r, i, yaml_document_get_node(&r->doc, p->value)))
            return r->err->code;
    }
    return 0;
}

static int no_yaml(struct reader *r, const yaml_parser_t *parser)
{
    return ckpt_fail(r->err, CKPT_ECONFIG, "%s:%zu: %s", r->path, parser->problem_mark.line + 1,
                     parser->problem ? parser->problem : "no YAML");
}

/* One document, a mapping, and nothing behind it. */
static int read_document(struct reader *r, yaml_parser_t *parser)
{
    const yaml_node_t *root;
    yaml_document_t more;
    int rc;

    if (!yaml_parser_load(parser, &r->doc))
        return no_yaml(r, parser);
    root = yaml_document_get_root_node(&r->doc);
    if (!root || root->type != YAML_MAPPING_NODE)
        rc = ckpt_fail(r->err, CKPT_ECONFIG, "%s: a mapping of options is wanted", r->path);
    else
        rc = read_mapping(r, root);
    yaml_document_delete(&r->doc);
    if (rc)
        return rc;
    if (!yaml_parser_load(parser, &more))
        return no_yaml(r, parser);
    root = yaml_document_get_root_node(&more);
    if (root)
        rc = bad(r, root, "a second document; one is read");
    yaml_document_delete(&more);
    return rc;
}

int opt_run_file(const struct opt_table *t, const char *path, bool *given, struct ckpt_err *err)
{
    struct reader r = {.t = t, .path = path, .given = given, .err = err};
    struct ckpt_arena a = {0};
    struct ckpt_file *file = NULL;
    yaml_parser_t parser;
    char *text;
    size_t n;
    int rc = opt_stream(&path, t->arena, err);

    r.path = path;
    if (rc == 0)
        rc = ckpt_file_open(&file, path, CKPT_FOLLOW, err);
    if (rc == 0)
        rc = ckpt_file_slurp(file, &a, MAX_BYTES, &text, &n, err);
    ckpt_file_close(file);
    if (rc == 0 && (rc = yaml_check_limits(text, n, err)))
        ckpt_err_in(err, "%s", path);
    r.seen = ckpt_arena_alloc(&a, opt_count(t), sizeof *r.seen);
    if (rc == 0 && (!r.seen || !yaml_parser_initialize(&parser)))
        rc = ckpt_nomem(err, sizeof parser);
    if (rc == 0) {
        yaml_parser_set_input_string(&parser, (const unsigned char *)text, n);
        rc = read_document(&r, &parser);
        yaml_parser_delete(&parser);
    }
    ckpt_arena_release(&a);
    return rc;
}

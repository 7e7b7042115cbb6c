/* opt/file - set rows from a run file, through libyaml (JSON is YAML); see opt/rows.h. */
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <yaml.h>

#include "formats/container/yaml_limits.h"
#include "libckpt/err.h"
#include "libckpt/file.h"
#include "tools/opt/rows.h"

#define MAX_BYTES ((uint64_t)4 << 20)

struct reader {
    const struct opt_table *t;
    const char             *path;
    bool                   *seen;       /* rows named in the file so far */
    yaml_document_t         doc;
    struct ckpt_err        *err;
};

static int bad(struct reader *r, const yaml_node_t *at, const char *what)
{
    return ckpt_fail(r->err, CKPT_ECONFIG, "%s:%zu: %s", r->path, at->start_mark.line + 1, what);
}

/* A key without a value ("key:", "key: null", "key: ~") keeps the default. */
static bool is_null(const yaml_node_t *v)
{
    const char *text = (const char *)v->data.scalar.value;

    return v->type == YAML_SCALAR_NODE && v->data.scalar.style == YAML_PLAIN_SCALAR_STYLE &&
           (!*text || strcmp(text, "~") == 0 || strcasecmp(text, "null") == 0);
}

/* Copy the scalar's text to memory that outlives the document: options borrow it. */
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

/* Booleans of YAML 1.1 and 1.2. */
static int truth_of(const char *text)
{
    static const char *const words[][2] = {{"false", "true"}, {"no", "yes"}, {"off", "on"}};

    for (size_t i = 0; i < 3; i++)
        for (int k = 0; k < 2; k++)
            if (strcasecmp(text, words[i][k]) == 0)
                return k;
    return -1;
}

static int set_scalar(struct reader *r, const struct opt_slot *s, const yaml_node_t *v)
{
    const char *text;
    char where[4352];
    int on, rc = text_of(r, v, &text);

    if (rc)
        return rc;
    on = truth_of(text);
    if (s->row->kind == OPT_KIND_FLAG && on < 0)
        return bad(r, v, "true or false is wanted here");
    if (s->row->kind == OPT_KIND_COUNT) {
        if (text[0] >= '0' && text[0] <= '9' && !text[1])
            on = text[0] - '0';
        if (on < 0)
            return bad(r, v, "a number below 10, or true or false, is wanted here");
        while (on-- > 0)
            opt_set_flag(s, true);
        return 0;
    }
    if (s->row->kind == OPT_KIND_FLAG) {
        opt_set_flag(s, on);
        return 0;
    }
    snprintf(where, sizeof where, "%s:%zu: %s", r->path, v->start_mark.line + 1, s->row->name);
    if (opt_set(r->t, s, text, where, r->err) == 0)
        return 0;
    return r->err->code = CKPT_ECONFIG;
}

static int set_node(struct reader *r, struct opt_slot *s, const yaml_node_t *v)
{
    int rc = 0;

    if (is_null(v))
        return 0;
    s->given = true;
    if (s->row->kind != OPT_KIND_LIST || v->type != YAML_SEQUENCE_NODE)
        return set_scalar(r, s, v);
    for (yaml_node_item_t *it = v->data.sequence.items.start;
         rc == 0 && it < v->data.sequence.items.top; it++)
        rc = set_scalar(r, s, yaml_document_get_node(&r->doc, *it));
    return rc;
}

/* The row that a key names; each at most once. */
static int row_of(struct reader *r, const yaml_node_t *k, struct opt_slot **s)
{
    const char *name = (const char *)k->data.scalar.value;

    if (k->type != YAML_SCALAR_NODE)
        return bad(r, k, "an option's name is wanted here");
    *s = opt_find(r->t, name, k->data.scalar.length);
    if (!*s || (*s)->row->no_config) {
        ckpt_fail(r->err, CKPT_ECONFIG, "%s:%zu: unknown option %s", r->path,
                  k->start_mark.line + 1, name);
        opt_hint_unknown(r->t, name, strlen(name), true, r->err);
        return CKPT_ECONFIG;
    }
    if (r->seen[*s - r->t->slot])
        return ckpt_fail(r->err, CKPT_ECONFIG, "%s:%zu: %s appears twice", r->path,
                         k->start_mark.line + 1, (*s)->row->name);
    r->seen[*s - r->t->slot] = true;
    return 0;
}

static int read_mapping(struct reader *r, const yaml_node_t *root)
{
    int rc = 0;

    for (yaml_node_pair_t *p = root->data.mapping.pairs.start;
         rc == 0 && p < root->data.mapping.pairs.top; p++) {
        struct opt_slot *s = NULL;

        rc = row_of(r, yaml_document_get_node(&r->doc, p->key), &s);
        if (rc == 0 && !s->given)
            rc = set_node(r, s, yaml_document_get_node(&r->doc, p->value));
    }
    return rc;
}

static int no_yaml(struct reader *r, const yaml_parser_t *parser)
{
    return ckpt_fail(r->err, CKPT_ECONFIG, "%s:%zu: %s", r->path, parser->problem_mark.line + 1,
                     parser->problem ? parser->problem : "no YAML");
}

/* Read one document, a mapping, with nothing after it. */
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

int opt_run_file(const struct opt_table *t, const char *path, struct ckpt_err *err)
{
    struct reader r = {.t = t, .path = path, .err = err};
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
    r.seen = ckpt_arena_alloc(&a, t->n, sizeof *r.seen);
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

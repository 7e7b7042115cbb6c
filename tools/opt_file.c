/* opt_file - a run file's values into the rows, through libyaml (JSON is YAML); opt_rows.h. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <yaml.h>

#include "libckpt/file.h"
#include "tools/opt_rows.h"

#define MAX_BYTES ((uint64_t)4 << 20)

struct reader {
    const struct opt_table *t;
    const char             *path;
    bool                   *given;
    yaml_document_t         doc;
    struct ckpt_err        *err;
};

static int bad(struct reader *r, const yaml_node_t *at, const char *what)
{
    return ckpt_fail(r->err, CKPT_ECONFIG, "%s:%zu: %s", r->path, at->start_mark.line + 1, what);
}

/* The scalar's text in memory that outlives the document: options borrow it for the run. */
static const char *text_of(struct reader *r, const yaml_node_t *n)
{
    return ckpt_arena_strndup(r->t->arena, (const char *)n->data.scalar.value,
                              n->data.scalar.length);
}

static int set_scalar(struct reader *r, const struct opt *o, const yaml_node_t *v)
{
    const char *text;
    char where[4352];

    if (v->type != YAML_SCALAR_NODE)
        return bad(r, v, "a plain value is wanted here");
    snprintf(where, sizeof where, "%s:%zu: %s", r->path, v->start_mark.line + 1, o->name);
    text = text_of(r, v);
    if (!text)
        return ckpt_nomem(r->err, v->data.scalar.length);
    if (o->kind == OPT_FLAG) {
        bool on = strcmp(text, "true") == 0;

        if (!on && strcmp(text, "false") != 0)
            return bad(r, v, "true or false is wanted here");
        opt_set_flag(o, on);
        return 0;
    }
    if (o->kind == OPT_COUNT) {
        *(int *)o->dest = text[0] >= '0' && text[0] <= '9' && !text[1] ? text[0] - '0' : 0;
        return 0;
    }
    if (opt_set(r->t, o, text, where, r->err))
        r->err->code = CKPT_ECONFIG;
    return r->err->code;
}

static int set_node(struct reader *r, size_t i, const yaml_node_t *v)
{
    const struct opt *o = opt_at(r->t, i);

    if (o->kind != OPT_LIST || v->type != YAML_SEQUENCE_NODE)
        return set_scalar(r, o, v);
    for (yaml_node_item_t *it = v->data.sequence.items.start; it < v->data.sequence.items.top; it++)
        if (set_scalar(r, o, yaml_document_get_node(&r->doc, *it)))
            return r->err->code;
    return 0;
}

static int read_mapping(struct reader *r, const yaml_node_t *root)
{
    for (yaml_node_pair_t *p = root->data.mapping.pairs.start; p < root->data.mapping.pairs.top;
         p++) {
        const yaml_node_t *k = yaml_document_get_node(&r->doc, p->key);
        const yaml_node_t *v = yaml_document_get_node(&r->doc, p->value);
        const char *name, *near;
        size_t i;

        if (k->type != YAML_SCALAR_NODE)
            return bad(r, k, "an option's name is wanted here");
        name = (const char *)k->data.scalar.value;
        i = opt_find(r->t, name, strlen(name));
        if (i == SIZE_MAX || opt_at(r->t, i)->no_config) {
            near = opt_nearest(r->t, name, strlen(name));
            ckpt_fail(r->err, CKPT_ECONFIG, "%s:%zu: unknown option %s", r->path,
                      k->start_mark.line + 1, name);
            return near ? ckpt_err_hint(r->err, "did you mean %s?", near) : r->err->code;
        }
        if (!r->given[i] && set_node(r, i, v))
            return r->err->code;
    }
    return 0;
}

int opt_run_file(const struct opt_table *t, const char *path, bool *given, struct ckpt_err *err)
{
    struct reader r = {.t = t, .path = path, .given = given, .err = err};
    struct ckpt_arena a = {0};
    struct ckpt_file *file = NULL;
    const yaml_node_t *root;
    yaml_parser_t parser;
    char *text;
    size_t n;
    int rc = ckpt_file_open(&file, path, CKPT_FOLLOW, err);

    if (rc == 0)
        rc = ckpt_file_slurp(file, &a, MAX_BYTES, &text, &n, err);
    ckpt_file_close(file);
    if (rc == 0 && yaml_parser_initialize(&parser)) {
        yaml_parser_set_input_string(&parser, (const unsigned char *)text, n);
        if (!yaml_parser_load(&parser, &r.doc)) {
            rc = ckpt_fail(err, CKPT_ECONFIG, "%s:%zu: %s", path, parser.problem_mark.line + 1,
                           parser.problem ? parser.problem : "no YAML");
        } else {
            root = yaml_document_get_root_node(&r.doc);
            if (!root || root->type != YAML_MAPPING_NODE)
                rc = ckpt_fail(err, CKPT_ECONFIG, "%s: a mapping of options is wanted", path);
            else
                rc = read_mapping(&r, root);
            yaml_document_delete(&r.doc);
        }
        yaml_parser_delete(&parser);
    }
    ckpt_arena_release(&a);
    return rc;
}

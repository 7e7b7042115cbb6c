/* opt/file - set rows from a file, through libyaml (JSON is YAML); see opt/rows.h.  A file is
 * first made flat: names with dots, each with its values and its line; then the dialect is known
 * that the names are read in. */
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <yaml.h>

#include "formats/container/yaml_limits.h"
#include "libckpt/base/json.h"
#include "libckpt/err.h"
#include "libckpt/file.h"
#include "tools/opt/rows.h"

#define MAX_BYTES   ((uint64_t)4 << 20)
#define MAX_ENTRIES 4096        /* each is compared with those before it */
#define MAX_VALUES  65536       /* aliases could repeat a list in each entry */
#define MAX_NAME    256

struct reader {
    struct opt_table *t;
    struct opt_input *in;
    const char       *path;
    size_t            n_value;
    yaml_document_t   doc;
    struct ckpt_err  *err;
};

static int flatten(struct reader *r, struct opt_input *in, const char *prefix,
                   const yaml_node_t *map, int depth);

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

/* Whether the mapping names a class to make of it, as in torchtune's files. */
static bool names_component(struct reader *r, const yaml_node_t *v)
{
    const yaml_node_pair_t *pair = v->data.mapping.pairs.start;
    const yaml_node_t *key;

    for (; v->type == YAML_MAPPING_NODE && pair < v->data.mapping.pairs.top; pair++) {
        key = yaml_document_get_node(&r->doc, pair->key);
        if (key->type == YAML_SCALAR_NODE &&
            strcmp((const char *)key->data.scalar.value, "_component_") == 0)
            return true;
    }
    return false;
}

/* Copy the scalar's text to memory that outlives the document: options borrow it. */
static int text_of(struct reader *r, const yaml_node_t *v, const char **out)
{
    const char *text = (const char *)v->data.scalar.value;

    if (v->type != YAML_SCALAR_NODE)
        return bad(r, v, "a plain value is wanted here");
    if (strlen(text) != v->data.scalar.length)
        return bad(r, v, "a NUL byte is no part of a value");
    if (++r->n_value > MAX_VALUES)
        return bad(r, v, "too many values");
    *out = ckpt_arena_strndup(r->t->arena, text, v->data.scalar.length);
    return *out ? 0 : ckpt_nomem(r->err, v->data.scalar.length);
}

static size_t length(const yaml_node_t *v)
{
    return v->type == YAML_SEQUENCE_NODE
               ? (size_t)(v->data.sequence.items.top - v->data.sequence.items.start)
           : v->type == YAML_MAPPING_NODE
               ? (size_t)(v->data.mapping.pairs.top - v->data.mapping.pairs.start) : 1;
}

/* The values of a list, or one. */
static int values_of(struct reader *r, struct opt_entry *e, const yaml_node_t *v)
{
    size_t n = is_null(v) ? 0 : length(v);
    const char **value = ckpt_arena_alloc(r->t->arena, n + 1, sizeof *value);
    int rc = 0;

    if (!value)
        return ckpt_nomem(r->err, n * sizeof *value);
    if (n && v->type != YAML_SEQUENCE_NODE)
        rc = text_of(r, v, &value[0]);
    for (size_t i = 0; v->type == YAML_SEQUENCE_NODE && rc == 0 && i < n; i++)
        rc = text_of(r, yaml_document_get_node(&r->doc, v->data.sequence.items.start[i]),
                     &value[i]);
    e->value = value;
    e->n = n;
    return rc;
}

/* The members of a mapping of plain values, "key=value"; joined by commas where one text is
 * wanted. */
static int pairs_of(struct reader *r, struct opt_entry *e, const yaml_node_t *v, bool joined)
{
    size_t n = length(v);
    const char **value = ckpt_arena_alloc(r->t->arena, n + 1, sizeof *value);
    int rc = 0;

    if (!value)
        return ckpt_nomem(r->err, n * sizeof *value);
    for (size_t i = 0; rc == 0 && i < n; i++) {
        const yaml_node_pair_t *p = &v->data.mapping.pairs.start[i];
        const char *a, *b, *before = joined && i ? value[0] : "";

        rc = text_of(r, yaml_document_get_node(&r->doc, p->key), &a);
        if (rc == 0)
            rc = text_of(r, yaml_document_get_node(&r->doc, p->value), &b);
        if (rc == 0 && !(value[joined ? 0 : i] = ckpt_arena_printf(
                             r->t->arena, "%s%s%s=%s", before, *before ? "," : "", a, b)))
            rc = ckpt_nomem(r->err, strlen(a) + strlen(b));
    }
    e->value = value;
    e->n = joined && n ? 1 : n;
    return rc;
}

/* The members of a mapping of plain values as one text, a JSON object of strings. */
static int object_of(struct reader *r, struct opt_entry *e, const yaml_node_t *v)
{
    const char **value = ckpt_arena_alloc(r->t->arena, 1, sizeof *value);
    struct ckpt_buf b;
    int rc = 0;

    if (!value)
        return ckpt_nomem(r->err, sizeof *value);
    ckpt_buf_init(&b, MAX_BYTES);
    ckpt_buf_put_u8(&b, '{');
    for (size_t i = 0; rc == 0 && i < length(v); i++) {
        const yaml_node_pair_t *p = &v->data.mapping.pairs.start[i];
        const char *key, *text;

        rc = text_of(r, yaml_document_get_node(&r->doc, p->key), &key);
        if (rc == 0)
            rc = text_of(r, yaml_document_get_node(&r->doc, p->value), &text);
        if (rc)
            break;
        ckpt_buf_put_str(&b, i ? ", " : "");
        ckpt_json_put_string(&b, key, strlen(key));
        ckpt_buf_put_str(&b, ": ");
        ckpt_json_put_string(&b, text, strlen(text));
    }
    ckpt_buf_put_u8(&b, '}');
    if (rc == 0)
        *value = ckpt_buf_ok(&b) ? ckpt_arena_strndup(r->t->arena, ckpt_buf_str(&b), b.len) : NULL;
    if (rc == 0 && !*value)
        rc = ckpt_nomem(r->err, b.len);
    ckpt_buf_release(&b);
    e->value = value;
    e->n = 1;
    return rc;
}

static int add(struct reader *r, struct opt_input *in, const struct opt_entry *e)
{
    if (in->n == in->cap) {
        size_t cap = in->cap ? 2 * in->cap : 32;
        struct opt_entry *grown = ckpt_arena_alloc(r->t->arena, cap, sizeof *grown);

        if (!grown)
            return ckpt_nomem(r->err, cap * sizeof *grown);
        if (in->n)
            memcpy(grown, in->entry, in->n * sizeof *grown);
        in->entry = grown;
        in->cap = cap;
    }
    in->entry[in->n++] = *e;
    return 0;
}

/* Names are compared as options are; those of a list's members may come again. */
static int check_once(struct reader *r, const struct opt_input *in, const char *name,
                      const yaml_node_t *k)
{
    if (in->n >= MAX_ENTRIES)
        return bad(r, k, "too many names");
    for (size_t i = 0; i < in->n && !strchr(name, '*'); i++) {
        const char *a = name, *b = in->entry[i].name;
        const struct opt_slot *s;

        while (*a && (*a == '-' ? '_' : *a) == (*b == '-' ? '_' : *b))
            a++, b++;
        if (*a || *b)
            continue;
        s = opt_find(r->t, name, strlen(name));
        return ckpt_fail(r->err, CKPT_ECONFIG, "%s:%zu: %s appears twice", r->path,
                         k->start_mark.line + 1, s ? s->row->name : name);
    }
    return 0;
}

/* A list whose members are mappings or lists. */
static bool has_members(struct reader *r, const yaml_node_t *v)
{
    if (v->type != YAML_SEQUENCE_NODE)
        return v->type == YAML_MAPPING_NODE;
    for (size_t i = 0; i < length(v); i++)
        if (yaml_document_get_node(&r->doc, v->data.sequence.items.start[i])->type !=
            YAML_SCALAR_NODE)
            return true;
    return false;
}

/* The members of a mapping, or of each mapping in a list. */
static int enter(struct reader *r, struct opt_input *in, const char *name, const yaml_node_t *v,
                 int depth)
{
    char star[MAX_NAME];
    int rc = 0;

    if (++r->n_value > MAX_VALUES || depth > YAML_MAX_DEPTH)    /* aliases */
        return bad(r, v, "too many values");
    if (v->type == YAML_MAPPING_NODE)
        return flatten(r, in, name, v, depth + 1);
    snprintf(star, sizeof star, "%s%s*", name, *name ? "." : "");
    for (size_t i = 0; rc == 0 && i < length(v); i++) {
        const yaml_node_t *m = yaml_document_get_node(&r->doc, v->data.sequence.items.start[i]);

        if (m->type == YAML_SCALAR_NODE)
            rc = bad(r, m, "a mapping is wanted here");
        else
            rc = enter(r, in, star, m, depth + 1);
    }
    return rc;
}

/* A value that has members: they are entered where there are names for them; an option may take
 * them as pairs, or as JSON; else they stand as one value, to be passed over or refused. */
static int nested(struct reader *r, struct opt_input *in, struct opt_entry *e,
                  const yaml_node_t *v, int depth)
{
    size_t n = strlen(e->name);
    const struct opt_field *f = opt_field_of(r->t, in, e->name, n);
    const struct opt_slot *s = opt_find(r->t, f && f->option ? f->option : e->name,
                                        f && f->option ? strlen(f->option) : n);
    bool map = s && s->row->arg && v->type == YAML_MAPPING_NODE;
    bool pairs = map && strchr(s->row->arg, '=');
    static const char *const shown[] = {"{...}"};

    if (f && f->inner) {
        struct opt_input *inner = opt_input_new(r->t, f->inner, true, r->err);

        return inner ? enter(r, inner, "", v, depth) : CKPT_ENOMEM;
    }
    if (pairs && (!f || f->state == OPT_STATE_DOES)) {
        int rc = pairs_of(r, e, v, s->row->kind != OPT_KIND_LIST);

        e->mapping = true;
        return rc ? rc : add(r, in, e);
    }
    if (map && strcmp(s->row->arg, "JSON") == 0 && (!f || f->state == OPT_STATE_DOES)) {
        int rc = object_of(r, e, v);

        return rc ? rc : add(r, in, e);
    }
    if (opt_dialect_nests(in->dialect, e->name, n))
        return enter(r, in, e->name, v, depth);
    if (s && !f) {
        bad(r, v->type == YAML_SEQUENCE_NODE ? yaml_document_get_node(
                &r->doc, v->data.sequence.items.start[0]) : v, "a plain value is wanted here");
        return names_component(r, v) ? ckpt_err_hint(r->err, "a file of torchtune is not read: "
                                                     "ckpt-run(5) has those that are")
                                     : CKPT_ECONFIG;
    }
    e->value = shown;
    e->n = length(v) ? 1 : 0;
    e->mapping = true;
    return add(r, in, e);
}

static int flatten_pair(struct reader *r, struct opt_input *in, const char *prefix,
                        const yaml_node_t *k, const yaml_node_t *v, int depth)
{
    struct opt_entry e = {0};
    char name[MAX_NAME];
    const char *key;
    int n, rc;

    if (k->type != YAML_SCALAR_NODE)
        return bad(r, k, "an option's name is wanted here");
    if ((rc = text_of(r, k, &key)) != 0)
        return rc;
    n = snprintf(name, sizeof name, "%s%s%s", prefix, *prefix ? "." : "", key);
    if (n >= (int)sizeof name)
        return bad(r, k, "this name is too long");
    e.name = ckpt_arena_strndup(r->t->arena, name, (size_t)n);
    e.where = ckpt_arena_printf(r->t->arena, "%s:%zu", r->path, k->start_mark.line + 1);
    if (!e.name || !e.where)
        return ckpt_nomem(r->err, (size_t)n);
    if ((rc = check_once(r, in, name, k)) != 0)
        return rc;
    if (has_members(r, v))
        return nested(r, in, &e, v, depth);
    rc = values_of(r, &e, v);
    return rc ? rc : add(r, in, &e);
}

static int flatten(struct reader *r, struct opt_input *in, const char *prefix,
                   const yaml_node_t *map, int depth)
{
    int rc = 0;

    for (yaml_node_pair_t *p = map->data.mapping.pairs.start;
         rc == 0 && p < map->data.mapping.pairs.top; p++)
        rc = flatten_pair(r, in, prefix, yaml_document_get_node(&r->doc, p->key),
                          yaml_document_get_node(&r->doc, p->value), depth);
    return rc;
}

/* The program whose names a mapping has most of those that only its files have. */
static const struct opt_dialect *dialect_of(struct reader *r, const yaml_node_t *root)
{
    const struct opt_dialect *const *all = r->t->dialect, *best = all ? all[0] : NULL;
    size_t most = 0;

    for (; all && *all; all++) {
        size_t n = 0;

        for (yaml_node_pair_t *p = root->data.mapping.pairs.start;
             p < root->data.mapping.pairs.top; p++) {
            const yaml_node_t *k = yaml_document_get_node(&r->doc, p->key);

            n += k->type == YAML_SCALAR_NODE &&
                 opt_dialect_tells(*all, (const char *)k->data.scalar.value,
                                   k->data.scalar.length);
        }
        if (n > most) {
            most = n;
            best = *all;
        }
    }
    return best;
}

static int no_yaml(struct reader *r, const yaml_parser_t *parser)
{
    return ckpt_fail(r->err, CKPT_ECONFIG, "%s:%zu: %s", r->path, parser->problem_mark.line + 1,
                     parser->problem ? parser->problem : "no YAML");
}

/* A model's config.json, which is no file of options. */
static bool is_model(struct reader *r, const yaml_node_t *root)
{
    bool type = false, architectures = false;

    for (const yaml_node_pair_t *p = root->data.mapping.pairs.start;
         p < root->data.mapping.pairs.top; p++) {
        const yaml_node_t *k = yaml_document_get_node(&r->doc, p->key);
        const char *name = k->type == YAML_SCALAR_NODE ? (const char *)k->data.scalar.value : "";

        type |= strcmp(name, "model_type") == 0;
        architectures |= strcmp(name, "architectures") == 0 ||
                         strcmp(name, "transformers_version") == 0;
    }
    return type && architectures;
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
    if (!root || root->type != YAML_MAPPING_NODE) {
        rc = ckpt_fail(r->err, CKPT_ECONFIG, "%s: a mapping of options is wanted", r->path);
    } else if (is_model(r, root)) {
        rc = ckpt_fail(r->err, CKPT_ECONFIG, "%s: is a model's config.json, not a file of options",
                       r->path);
        if (opt_find(r->t, "init", 4))
            ckpt_err_hint(r->err, "--init %s starts such a model with random weights, --model "
                          "FOLDER one that is trained", r->path);
        else if (opt_find(r->t, "model", 5))
            ckpt_err_hint(r->err, "--model FOLDER takes the model");
    } else {
        if (!r->in->dialect)
            r->in->dialect = dialect_of(r, root);
        r->in->firm = r->in->dialect && r->in->dialect->firm;
        rc = flatten(r, r->in, "", root, 0);
    }
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

static int read_text(struct opt_table *t, struct opt_input *in, const char *name,
                     const char *text, size_t n, struct ckpt_err *err)
{
    struct reader r = {.t = t, .in = in, .path = name, .err = err};
    yaml_parser_t parser;
    int rc = yaml_check_limits(text, n, err);

    if (rc) {
        ckpt_err_in(err, "%s", name);
        return rc;
    }
    if (!yaml_parser_initialize(&parser))
        return ckpt_nomem(err, sizeof parser);
    yaml_parser_set_input_string(&parser, (const unsigned char *)text, n);
    rc = read_document(&r, &parser);
    yaml_parser_delete(&parser);
    return rc;
}

static int read_file(struct opt_table *t, struct opt_input *in, const char *path,
                     struct ckpt_err *err)
{
    struct ckpt_arena a = {0};
    struct ckpt_file *file = NULL;
    const char *name = path;
    char *text = NULL;
    size_t n = 0;
    int rc = opt_stream(&path, "config", t->arena, err);

    if (rc == 0)
        rc = ckpt_file_open(&file, path, CKPT_FOLLOW, err);
    if (rc == 0)
        rc = ckpt_file_slurp(file, &a, MAX_BYTES, &text, &n, err);
    ckpt_file_close(file);
    if (rc == 0)
        rc = read_text(t, in, strcmp(name, "-") == 0 ? path : name, text, n, err);
    ckpt_arena_release(&a);
    return rc;
}

int opt_run_file(struct opt_table *t, const char *path, struct ckpt_err *err)
{
    struct opt_input *in = opt_input_new(t, NULL, false, err);
    int rc = in ? read_file(t, in, path, err) : CKPT_ENOMEM;

    return rc ? rc : opt_take_all(t, in, err);
}

int opt_run_text(struct opt_table *t, const char *name, const char *text, size_t n,
                 struct ckpt_err *err)
{
    struct opt_input *in = opt_input_new(t, NULL, false, err);
    int rc = in ? read_text(t, in, name, text, n, err) : CKPT_ENOMEM;

    return rc ? rc : opt_take_all(t, in, err);
}

int opt_read_inner(struct opt_table *t, const struct opt_dialect *d, const char *value,
                   const char *where, struct ckpt_err *err)
{
    struct opt_input *in = opt_input_new(t, d, true, err);

    if (!in)
        return CKPT_ENOMEM;
    return value[strspn(value, " \t\r\n")] == '{'
               ? read_text(t, in, where, value, strlen(value), err)
               : read_file(t, in, value, err);
}

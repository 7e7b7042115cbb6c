/*
 * parquet/schema - see parquet/schema.h.
 *
 * How LIST and MAP are recognised is LogicalTypes.md, "Nested Types", with its rules for files
 * of older writers: the repeated child of a LIST is the element itself when it is no group,
 * when it has several fields or a repeated one, or when it is named "array" or after the list with
 * "_tuple".
 */
#include "formats/records/parquet/schema.h"

#include <string.h>

#include "libckpt/base/json.h"
#include "libckpt/base/map.h"

#define MAX_NAME 4096

enum { REQUIRED, OPTIONAL, REPEATED };
/* ConvertedType */
enum { UTF8, MAP, MAP_KEY_VALUE, LIST, ENUM, DECIMAL, DATE, TIME_MILLIS, TIME_MICROS,
       TIMESTAMP_MILLIS, TIMESTAMP_MICROS, UINT_8, UINT_64 = 14, INT_8, JSON = 19, BSON, INTERVAL };
/* Members of the union LogicalType */
enum { L_STRING = 1, L_MAP, L_LIST, L_ENUM, L_DECIMAL, L_DATE, L_TIME, L_TIMESTAMP,
       L_INTEGER = 10, L_UNKNOWN, L_JSON, L_BSON, L_UUID, L_FLOAT16 };

/* A SchemaElement as it stands in the file. */
struct element {
    int64_t              type, width, repetition, children, converted, scale, precision;
    const unsigned char *name;
    size_t               name_len;
    bool                 has_type;
    int                  logical;       /* member of LogicalType, or 0 */
    bool                 utc, is_signed;
    uint8_t              digits, bits;
};

static void parse_unit(struct element *e, struct ckpt_cursor *c)
{
    struct thrift_field f = {0};

    while (thrift_next(c, &f)) {
        if (f.id >= 1 && f.id <= 3)
            e->digits = (uint8_t)(3 * f.id);
        thrift_skip(c, &f);
    }
}

/* Parse a member of LogicalType: decimals, times and integers. */
static void parse_member(struct element *e, struct ckpt_cursor *c)
{
    struct thrift_field f = {0};

    while (thrift_next(c, &f)) {
        if (e->logical == L_DECIMAL && f.id == 1)
            e->scale = f.i;
        else if (e->logical == L_DECIMAL && f.id == 2)
            e->precision = f.i;
        else if ((e->logical == L_TIME || e->logical == L_TIMESTAMP) && f.id == 1)
            e->utc = f.i != 0;
        else if (e->logical == L_INTEGER && f.id == 1)
            e->bits = f.i == 8 || f.i == 16 ? (uint8_t)f.i : 0;
        else if (e->logical == L_INTEGER && f.id == 2)
            e->is_signed = f.i != 0;
        if ((e->logical == L_TIME || e->logical == L_TIMESTAMP) && f.id == 2 &&
            f.type == THRIFT_STRUCT)
            parse_unit(e, c);
        else
            thrift_skip(c, &f);
    }
}

static void parse_logical(struct element *e, struct ckpt_cursor *c)
{
    struct thrift_field f = {0};

    while (thrift_next(c, &f)) {
        if (f.type != THRIFT_STRUCT) {
            thrift_skip(c, &f);
            continue;
        }
        e->logical = f.id;
        e->is_signed = true;
        parse_member(e, c);
    }
}

static void parse_element(struct element *e, struct ckpt_cursor *c)
{
    struct thrift_field f = {0};

    *e = (struct element){.repetition = REQUIRED, .converted = -1};
    while (thrift_next(c, &f)) {
        switch (f.id) {
        case 1: e->type = f.i; e->has_type = true; break;
        case 2: e->width = f.i; break;
        case 3: e->repetition = f.i; break;
        case 4: e->name = f.bytes; e->name_len = f.len; break;
        case 5: e->children = f.i; break;
        case 6: e->converted = f.i; break;
        case 7: e->scale = f.i; break;
        case 8: e->precision = f.i; break;
        }
        if (f.id == 10 && f.type == THRIFT_STRUCT)
            parse_logical(e, c);
        else
            thrift_skip(c, &f);
    }
}

const char *pq_json_key(struct ckpt_arena *arena, const char *name, struct ckpt_err *err)
{
    json_t *v = json_string_nocheck(name);
    char *key = NULL, *text = v ? json_dumps(v, JSON_ENCODE_ANY) : NULL;

    if (text)
        key = ckpt_arena_printf(arena, "%s:", text);
    if (!key)
        ckpt_nomem(err, strlen(name));
    free(text);                         /* jansson's own */
    json_decref(v);
    return key;
}

static void converted_meaning(struct pq_node *n, const struct element *e)
{
    switch (e->converted) {
    case UTF8: case ENUM: case JSON: n->meaning = PQ_TEXT; break;
    case DECIMAL: n->meaning = PQ_DECIMAL; break;
    case DATE: n->meaning = PQ_DATE; break;
    case TIME_MILLIS: case TIME_MICROS:
        n->meaning = PQ_TIME;
        n->digits = e->converted == TIME_MILLIS ? 3 : 6;
        break;
    case TIMESTAMP_MILLIS: case TIMESTAMP_MICROS:
        n->meaning = PQ_TIMESTAMP;
        n->digits = e->converted == TIMESTAMP_MILLIS ? 3 : 6;
        break;
    case INTERVAL: n->meaning = PQ_INTERVAL; break;
    default:
        if (e->converted >= UINT_8 && e->converted <= UINT_64)
            n->meaning = PQ_UNSIGNED;
        n->bits = e->converted == UINT_8 || e->converted == INT_8      ? 8
                  : e->converted == UINT_8 + 1 || e->converted == INT_8 + 1 ? 16 : 0;
    }
    n->utc = n->meaning == PQ_TIME || n->meaning == PQ_TIMESTAMP;
}

static void logical_meaning(struct pq_node *n, const struct element *e)
{
    static const enum pq_meaning meaning[] = {
        [L_STRING] = PQ_TEXT, [L_ENUM] = PQ_TEXT, [L_DECIMAL] = PQ_DECIMAL, [L_DATE] = PQ_DATE,
        [L_TIME] = PQ_TIME, [L_TIMESTAMP] = PQ_TIMESTAMP, [L_UNKNOWN] = PQ_NOTHING,
        [L_JSON] = PQ_TEXT, [L_UUID] = PQ_UUID, [L_FLOAT16] = PQ_HALF,
    };

    n->digits = e->digits ? e->digits : 6;
    n->utc = e->utc;
    n->bits = e->bits;
    if (e->logical == L_INTEGER)
        n->meaning = e->is_signed ? PQ_PLAIN : PQ_UNSIGNED;
    else if (e->logical <= L_FLOAT16)
        n->meaning = meaning[e->logical];
}

/* A meaning applies only to the types it is defined for; elsewhere it is ignored. */
static bool fits(const struct pq_node *n)
{
    bool whole = n->type == PQ_INT32 || n->type == PQ_INT64;

    switch (n->meaning) {
    case PQ_TEXT: return n->type == PQ_BYTE_ARRAY || n->type == PQ_FIXED;
    case PQ_UNSIGNED: return whole;
    case PQ_DECIMAL:
        return (whole || n->type == PQ_BYTE_ARRAY || n->type == PQ_FIXED) && n->scale >= 0 &&
               n->scale <= 100;
    case PQ_DATE: return n->type == PQ_INT32;
    case PQ_TIME: return n->type == (n->digits == 3 ? PQ_INT32 : PQ_INT64);
    case PQ_TIMESTAMP: return n->type == PQ_INT64;
    case PQ_UUID: return n->type == PQ_FIXED && n->width == 16;
    case PQ_HALF: return n->type == PQ_FIXED && n->width == 2;
    case PQ_INTERVAL: return n->type == PQ_FIXED && n->width == 12;
    case PQ_PLAIN: case PQ_NOTHING: return true;
    }
    return false;
}

static int set_leaf(struct pq_node *n, const struct element *e, struct ckpt_err *err)
{
    if (e->type < PQ_BOOLEAN || e->type > PQ_FIXED)
        return ckpt_fail(err, CKPT_EUNSUPPORTED, "column \"%s\" has type %lld", n->name,
                         (long long)e->type);
    n->type = (enum pq_type)e->type;
    if (n->type == PQ_FIXED && (e->width < 1 || e->width > 1 << 20))
        return ckpt_fail(err, CKPT_EFORMAT, "column \"%s\" has values of %lld bytes", n->name,
                         (long long)e->width);
    n->width = (int32_t)e->width;
    n->scale = e->scale >= 0 && e->scale <= 1000 ? (int32_t)e->scale : -1;
    n->precision = e->precision >= 0 && e->precision <= 1000 ? (int32_t)e->precision : 0;
    if (e->logical)
        logical_meaning(n, e);
    else
        converted_meaning(n, e);
    if (!fits(n))
        n->meaning = PQ_PLAIN;
    return 0;
}

/* The kind of a group before its children are known: from its annotation. */
static enum pq_kind group_kind(const struct element *e)
{
    if (e->logical == L_LIST || e->converted == LIST)
        return PQ_LIST;
    if (e->logical == L_MAP || e->converted == MAP || e->converted == MAP_KEY_VALUE)
        return PQ_MAP;
    return PQ_STRUCT;
}

/* A group between the root and the current position in the schema. */
struct open_group {
    size_t  node;
    int64_t left;               /* children still to come */
};

static int add_node(struct pq_file *f, const struct element *e, const struct open_group *parent,
                    struct ckpt_err *err)
{
    struct pq_node *n = &f->node[f->n_node], *up = parent ? &f->node[parent->node] : NULL;

    if (!e->name || e->name_len > MAX_NAME || !ckpt_utf8_valid(e->name, e->name_len))
        return ckpt_fail(err, CKPT_EFORMAT, "a column's name is missing, too long or not UTF-8");
    n->name = ckpt_arena_strndup(&f->arena, (const char *)e->name, e->name_len);
    if (!n->name)
        return ckpt_nomem(err, e->name_len);
    n->key = pq_json_key(&f->arena, n->name, err);
    if (!n->key)
        return ckpt_err_code(err);
    if (e->repetition < REQUIRED || e->repetition > REPEATED)
        return ckpt_fail(err, CKPT_EFORMAT, "\"%s\" has repetition %lld", n->name,
                         (long long)e->repetition);
    n->optional = up && e->repetition == OPTIONAL;
    n->repeated = up && e->repetition == REPEATED;
    n->def = (uint8_t)((up ? up->def : 0) + (n->optional || n->repeated));
    n->rep = (uint8_t)((up ? up->rep : 0) + n->repeated);
    n->leaf = f->n_leaf;
    f->n_node++;
    if (up && e->has_type && e->children == 0) {
        f->leaf[f->n_leaf++] = f->n_node - 1;
        n->leaf_end = f->n_leaf;
        n->end = f->n_node;
        n->kind = PQ_LEAF;
        return set_leaf(n, e, err);
    }
    n->kind = up ? group_kind(e) : PQ_STRUCT;
    if (e->children < 0 || e->children > INT32_MAX || (up && e->children == 0))
        return ckpt_fail(err, CKPT_EFORMAT, "group \"%s\" has %lld children", n->name,
                         (long long)e->children);
    return 0;
}

/* Whether the repeated child r of list n is an element itself, not a level around one. */
static bool is_element(const struct pq_node *n, const struct pq_node *r)
{
    const struct pq_node *only = r + 1;
    size_t len = strlen(n->name);

    return r->kind != PQ_STRUCT || only->end != r->end || only->repeated ||
           strcmp(r->name, "array") == 0 ||
           (strncmp(r->name, n->name, len) == 0 && strcmp(r->name + len, "_tuple") == 0);
}

/* A LIST or MAP of an unexpected structure becomes a struct. */
static void settle(struct pq_file *f, size_t i)
{
    struct pq_node *n = &f->node[i], *r = &f->node[i + 1];
    size_t first = i + 2;

    n->end = f->n_node;
    n->leaf_end = f->n_leaf;
    if (n->kind != PQ_LIST && n->kind != PQ_MAP)
        return;
    /* A repeated node that is a MAP is the inside of a map, as Hive annotated it. */
    if (r->end != n->end || !r->repeated || (n->repeated && n->kind == PQ_MAP)) {
        n->kind = PQ_STRUCT;
        return;
    }
    n->element = i + 1;
    if (n->kind == PQ_LIST) {
        n->element = is_element(n, r) ? i + 1 : first;
    } else if (r->kind != PQ_STRUCT) {
        n->kind = PQ_LIST;
    } else if (f->node[first].end == r->end) {
        n->kind = PQ_LIST;              /* keys alone: a set */
        n->element = first;
    } else if (f->node[f->node[first].end].end != r->end) {
        n->kind = PQ_LIST;              /* not of keys and values */
    }
}

/* Fields of a struct must have distinct names. */
static int check_names(const struct pq_file *f, struct ckpt_err *err)
{
    for (size_t i = 0; i < f->n_node; i++) {
        const struct pq_node *n = &f->node[i];
        struct ckpt_map *names = NULL;
        int rc;

        if (n->kind != PQ_STRUCT || n->end == i + 1 || f->node[i + 1].end == n->end)
            continue;
        rc = ckpt_map_new(&names, 16, err);
        for (size_t k = i + 1; rc == 0 && k < n->end; k = f->node[k].end)
            if (ckpt_map_add(names, f->node[k].name, strlen(f->node[k].name), k, err))
                rc = ckpt_fail_as(err, CKPT_EFORMAT, "duplicate", "two fields are named \"%s\"",
                                  f->node[k].name);
        ckpt_map_free(names);
        if (rc)
            return rc;
    }
    return 0;
}

int pq_schema_read(struct pq_file *f, struct ckpt_cursor *c, struct ckpt_err *err)
{
    struct open_group stack[PQ_MAX_DEPTH];
    enum thrift_type type;
    size_t n = thrift_list(c, &type), depth = 0;
    int rc;

    if (c->failed || type != THRIFT_STRUCT || n == 0)
        return ckpt_fail(err, CKPT_EFORMAT, "the schema is no list of elements");
    if (n > PQ_MAX_NODES)
        return ckpt_fail(err, CKPT_ELIMIT, "a schema of %zu elements; the limit is %d", n,
                         PQ_MAX_NODES);
    f->node = ckpt_arena_alloc(&f->arena, n, sizeof *f->node);
    f->leaf = ckpt_arena_alloc(&f->arena, n, sizeof *f->leaf);
    if (!f->node || !f->leaf)
        return ckpt_nomem(err, n * sizeof *f->node);
    for (size_t i = 0; i < n; i++) {
        struct element e;

        parse_element(&e, c);
        if (c->failed || (i > 0 && depth == 0))
            return ckpt_fail(err, CKPT_EFORMAT, "schema element %zu of %zu: %s", i + 1, n,
                             c->failed ? "is damaged" : "belongs to no group");
        if ((rc = add_node(f, &e, i > 0 ? &stack[depth - 1] : NULL, err)) != 0)
            return rc;
        if (i > 0)
            stack[depth - 1].left--;
        if (f->node[i].end == 0) {
            if (depth == PQ_MAX_DEPTH)
                return ckpt_fail(err, CKPT_ELIMIT, "nested deeper than %d levels", PQ_MAX_DEPTH);
            stack[depth++] = (struct open_group){i, e.children};
        }
        while (depth > 0 && stack[depth - 1].left == 0)
            settle(f, stack[--depth].node);
    }
    if (depth > 0)
        return ckpt_fail(err, CKPT_EFORMAT, "group \"%s\" lacks %lld children",
                         f->node[stack[depth - 1].node].name,
                         (long long)stack[depth - 1].left);
    return check_names(f, err);
}

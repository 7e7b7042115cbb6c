/* jinja/value - values of a template as Python has them: truth, equality, printing. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "formats/jinja/parts.h"
#include "libckpt/base/json.h"

#define MAX_NESTED 64           /* nested lists that are compared or printed */

struct jv jv_none(void) { return (struct jv){.kind = V_NONE}; }
struct jv jv_bool(bool b) { return (struct jv){.kind = V_BOOL, .b = b}; }
struct jv jv_int(int64_t i) { return (struct jv){.kind = V_INT, .i = i}; }

struct jv jv_str(const char *s, size_t n)
{
    return (struct jv){.kind = V_STRING, .str = {s, n}};
}

int jinja_no_memory(struct run *r, size_t bytes)
{
    if (r->arena.limit && r->arena.used + bytes > r->arena.limit)
        return jinja_fail(r, CKPT_ELIMIT, "more than %llu bytes of values",
                          (unsigned long long)r->arena.limit);
    if (r->rc == 0)
        r->rc = ckpt_nomem(r->err, bytes);
    return r->rc;
}

static struct jv no_memory(struct run *r, size_t bytes)
{
    jinja_no_memory(r, bytes);
    return (struct jv){0};
}

/* Make space for one more element in an array in the rendering's arena. */
static int grow(struct run *r, void *array, size_t n, size_t *cap, size_t size)
{
    struct ckpt_err ignored;

    return ckpt_arena_reserve(&r->arena, array, n, cap, size, &ignored)
               ? jinja_no_memory(r, 2 * n * size) : 0;
}

struct jv jv_list_new(struct run *r, size_t room)
{
    struct jv_list *list = ckpt_arena_alloc(&r->arena, 1, sizeof *list);

    if (list && room > 0) {
        list->item = ckpt_arena_alloc(&r->arena, room, sizeof *list->item);
        list->cap = room;
    }
    if (!list || (room > 0 && !list->item))
        return no_memory(r, room * sizeof *list->item);
    return (struct jv){.kind = V_LIST, .list = list};
}

struct jv jv_map_new(struct run *r)
{
    struct jv_map *map = ckpt_arena_alloc(&r->arena, 1, sizeof *map);

    return map ? (struct jv){.kind = V_MAP, .map = map} : no_memory(r, sizeof *map);
}

struct jv jv_copy_str(struct run *r, const char *s, size_t n)
{
    char *copy = ckpt_arena_strndup(&r->arena, s, n);

    return copy ? jv_str(copy, n) : no_memory(r, n);
}

int jinja_full(struct run *r, const struct ckpt_buf *b)
{
    if (b->len < JINJA_MAX_OUTPUT / 4)
        return jinja_no_memory(r, 2 * b->cap);
    return jinja_fail(r, CKPT_ELIMIT, "a text of more than %zu bytes", JINJA_MAX_OUTPUT);
}

struct jv jv_of_buf(struct run *r, struct ckpt_buf *b)
{
    struct jv v = {0};

    if (!ckpt_buf_ok(b))
        jinja_full(r, b);
    else
        v = jv_copy_str(r, b->len ? (const char *)b->data : "", b->len);
    ckpt_buf_release(b);
    return v;
}

int jv_append(struct run *r, struct jv_list *list, struct jv v)
{
    int rc = grow(r, &list->item, list->n, &list->cap, sizeof *list->item);

    if (rc == 0)
        list->item[list->n++] = v;
    return rc;
}

void jv_work(struct run *r, size_t bytes)
{
    if (!r || r->rc)
        return;
    r->steps += 1 + (int64_t)(bytes / JINJA_STEP_BYTES);
    if (r->steps > JINJA_MAX_STEPS)
        jinja_fail(r, CKPT_ELIMIT, "takes too many steps");
}

const struct jv *jv_find(struct run *r, const struct jv_map *map, const struct jv *key)
{
    for (size_t i = 0; i < map->n; i++)
        if (jv_equal(r, &map->pair[i].key, key))
            return &map->pair[i].value;
    return NULL;
}

const struct jv *jv_get(struct run *r, const struct jv_map *map, const char *key, size_t n)
{
    struct jv k = jv_str(key, n);

    return jv_find(r, map, &k);
}

/* Add a key that the map does not have. */
static int put_new(struct run *r, struct jv_map *map, struct jv key, struct jv v)
{
    int rc = grow(r, &map->pair, map->n, &map->cap, sizeof *map->pair);

    if (rc == 0)
        map->pair[map->n++] = (struct jv_pair){key, v};
    return rc;
}

int jv_put(struct run *r, struct jv_map *map, struct jv key, struct jv v)
{
    for (size_t i = 0; i < map->n && !r->rc; i++)
        if (jv_equal(r, &map->pair[i].key, &key)) {
            map->pair[i].value = v;
            return r->rc;
        }
    return r->rc ? r->rc : put_new(r, map, key, v);
}

/* Strings are borrowed from the JSON, which outlives the rendering.  The JSON's parser has
 * bounded its depth. */
struct jv jv_of_json(struct run *r, const json_t *v)
{
    struct jv out = {0};
    const char *key;
    json_t *item;
    size_t i;

    switch (v ? json_typeof(v) : JSON_NULL) {
    case JSON_NULL:    return jv_none();
    case JSON_TRUE:    return jv_bool(true);
    case JSON_FALSE:   return jv_bool(false);
    case JSON_INTEGER: return jv_int(json_integer_value(v));
    case JSON_REAL:    return (struct jv){.kind = V_FLOAT, .d = json_real_value(v)};
    case JSON_STRING:  return jv_str(json_string_value(v), json_string_length(v));
    case JSON_ARRAY:
        out = jv_list_new(r, json_array_size(v));
        json_array_foreach((json_t *)v, i, item)
            if (r->rc || jv_append(r, out.list, jv_of_json(r, item)))
                return (struct jv){0};
        return out;
    case JSON_OBJECT:
        out = jv_map_new(r);
        json_object_foreach((json_t *)v, key, item)
            if (r->rc || put_new(r, out.map, jv_str(key, strlen(key)), jv_of_json(r, item)))
                return (struct jv){0};
    }
    return out;
}

/* -- truth and equality ---------------------------------------------------------------------- */

bool jv_true(const struct jv *v)
{
    switch (v->kind) {
    case V_UNDEFINED:
    case V_NONE:   return false;
    case V_BOOL:   return v->b;
    case V_INT:    return v->i != 0;
    case V_FLOAT:  return v->d != 0;
    case V_STRING: return v->str.n > 0;
    case V_LIST:   return v->list->n > 0;
    case V_MAP:    return v->map->is_namespace || v->map->n > 0;
    default:       return true;
    }
}

bool jv_is_number(const struct jv *v)
{
    return v->kind == V_BOOL || v->kind == V_INT || v->kind == V_FLOAT;
}

double jv_number(const struct jv *v)
{
    return v->kind == V_FLOAT ? v->d : v->kind == V_INT ? (double)v->i : v->b;
}

static bool equal_at(struct run *r, const struct jv *a, const struct jv *b, int depth)
{
    jv_work(r, a->kind == V_STRING ? a->str.n : 0);
    if (depth > MAX_NESTED || (r && r->rc))
        return false;
    if (jv_is_number(a) && jv_is_number(b))
        return a->kind == V_INT && b->kind == V_INT ? a->i == b->i
                                                    : jv_number(a) == jv_number(b);
    if (a->kind != b->kind)
        return false;
    switch (a->kind) {
    case V_STRING:
        return a->str.n == b->str.n && memcmp(a->str.s, b->str.s, a->str.n) == 0;
    case V_LIST:
        if (a->list->n != b->list->n || a->is_tuple != b->is_tuple)
            return false;
        for (size_t i = 0; i < a->list->n; i++)
            if (!equal_at(r, &a->list->item[i], &b->list->item[i], depth + 1))
                return false;
        return true;
    case V_MAP:
        if (a->map->n != b->map->n)
            return false;
        for (size_t i = 0; i < a->map->n; i++) {
            const struct jv *other = jv_find(r, b->map, &a->map->pair[i].key);

            if (!other || !equal_at(r, &a->map->pair[i].value, other, depth + 1))
                return false;
        }
        return true;
    case V_UNDEFINED:
    case V_NONE:     return true;
    case V_FUNCTION: return a->function == b->function;
    case V_MACRO:    return a->node == b->node;
    default:         return false;
    }
}

bool jv_equal(struct run *r, const struct jv *a, const struct jv *b)
{
    return equal_at(r, a, b, 0);
}

bool jv_less(struct run *r, const struct jv *a, const struct jv *b)
{
    size_t n;
    int c;

    jv_work(r, a->kind == V_STRING ? a->str.n : 0);
    if (jv_is_number(a) && jv_is_number(b))
        return a->kind == V_INT && b->kind == V_INT ? a->i < b->i
                                                    : jv_number(a) < jv_number(b);
    if (a->kind == V_STRING && b->kind == V_STRING) {
        n = a->str.n < b->str.n ? a->str.n : b->str.n;
        c = memcmp(a->str.s, b->str.s, n);
        return c ? c < 0 : a->str.n < b->str.n;
    }
    if (a->kind == V_LIST && b->kind == V_LIST) {
        for (size_t i = 0; i < a->list->n && i < b->list->n; i++)
            if (!jv_equal(r, &a->list->item[i], &b->list->item[i]))
                return (a->list->item[i].kind != V_LIST || b->list->item[i].kind != V_LIST) &&
                       jv_less(r, &a->list->item[i], &b->list->item[i]);
        return a->list->n < b->list->n;
    }
    jinja_fail(r, CKPT_EFORMAT, "%s and %s cannot be put in order", jv_type(a), jv_type(b));
    return false;
}

bool jv_is_str(const struct jv *v, const char *s)
{
    return v->kind == V_STRING && v->str.n == strlen(s) && memcmp(v->str.s, s, v->str.n) == 0;
}

const char *jv_type(const struct jv *v)
{
    static const char *const names[] = {
        "an undefined value", "none", "a truth", "an integer", "a number", "a string", "a list",
        "a mapping", "a macro", "a function", "a method",
    };

    return names[v->kind];
}

/* -- printing -------------------------------------------------------------------------------- */

/* Python's repr: the shortest digits that read back. */
static void print_real(struct ckpt_buf *b, double d, bool json)
{
    char text[40];

    if (isnan(d) || isinf(d)) {
        ckpt_buf_put_str(b, isnan(d) ? (json ? "NaN" : "nan") : d > 0 ? (json ? "Infinity" : "inf")
                                                             : (json ? "-Infinity" : "-inf"));
        return;
    }
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*e", digits - 1, d);
        if (strtod(text, NULL) == d) {
            int exponent = (int)strtol(strchr(text, 'e') + 1, NULL, 10);

            if (exponent >= -4 && exponent < 16)
                snprintf(text, sizeof text, "%.*f", digits - 1 - exponent > 1
                         ? digits - 1 - exponent : 1, d);
            break;
        }
    }
    ckpt_buf_put_str(b, text);
}

static void print_quoted(struct ckpt_buf *b, const char *s, size_t n)
{
    char quote = memchr(s, '\'', n) && !memchr(s, '"', n) ? '"' : '\'';

    ckpt_buf_put_u8(b, (uint8_t)quote);
    for (size_t i = 0; i < n; i++) {
        if (s[i] == '\n' || s[i] == '\t' || s[i] == '\r')
            ckpt_buf_printf(b, "\\%c", s[i] == '\n' ? 'n' : s[i] == '\t' ? 't' : 'r');
        else if (s[i] == '\\' || s[i] == quote)
            ckpt_buf_printf(b, "\\%c", s[i]);
        else if ((unsigned char)s[i] < 0x20 || s[i] == 0x7f)
            ckpt_buf_printf(b, "\\x%02x", s[i]);
        else
            ckpt_buf_put_u8(b, (uint8_t)s[i]);
    }
    ckpt_buf_put_u8(b, (uint8_t)quote);
}

/* A value that contains another twice, that one a third twice and so on is endless as a text: a
 * full buffer ends the walk. */
static void print_at(struct ckpt_buf *b, const struct jv *v, bool quoted, int depth)
{
    if (!ckpt_buf_ok(b))
        return;
    if (depth > MAX_NESTED) {
        ckpt_buf_put_str(b, "...");
        return;
    }
    switch (v->kind) {
    case V_UNDEFINED: ckpt_buf_put_str(b, quoted ? "Undefined" : ""); return;
    case V_NONE:      ckpt_buf_put_str(b, "None"); return;
    case V_BOOL:      ckpt_buf_put_str(b, v->b ? "True" : "False"); return;
    case V_INT:       ckpt_buf_printf(b, "%" PRId64, v->i); return;
    case V_FLOAT:     print_real(b, v->d, false); return;
    case V_STRING:
        if (quoted)
            print_quoted(b, v->str.s, v->str.n);
        else
            ckpt_buf_put(b, v->str.s, v->str.n);
        return;
    case V_LIST:
        ckpt_buf_put_str(b, v->is_tuple ? "(" : "[");
        for (size_t i = 0; i < v->list->n; i++) {
            ckpt_buf_put_str(b, i ? ", " : "");
            print_at(b, &v->list->item[i], true, depth + 1);
        }
        ckpt_buf_put_str(b, v->is_tuple ? (v->list->n == 1 ? ",)" : ")") : "]");
        return;
    case V_MAP:
        ckpt_buf_put_str(b, "{");
        for (size_t i = 0; i < v->map->n; i++) {
            ckpt_buf_put_str(b, i ? ", " : "");
            print_at(b, &v->map->pair[i].key, true, depth + 1);
            ckpt_buf_put_str(b, ": ");
            print_at(b, &v->map->pair[i].value, true, depth + 1);
        }
        ckpt_buf_put_str(b, "}");
        return;
    default:
        ckpt_buf_printf(b, "<%s>", jv_type(v));
    }
}

void jv_print(struct ckpt_buf *b, const struct jv *v, bool quoted)
{
    print_at(b, v, quoted, 0);
}

static void json_gap(struct ckpt_buf *b, int indent, int level)
{
    if (indent >= 0) {
        ckpt_buf_put_u8(b, '\n');
        for (int i = 0; i < indent * level; i++)
            ckpt_buf_put_u8(b, ' ');
    }
}

static void put_json_string(struct ckpt_buf *b, const char *s, size_t n, bool ascii)
{
    struct ckpt_buf text;
    utf8proc_ssize_t width;

    if (!ascii) {
        ckpt_json_put_string(b, s, n);
        return;
    }
    ckpt_buf_init(&text, JINJA_MAX_OUTPUT);
    ckpt_json_put_string(&text, s, n);
    for (size_t i = 0; i < text.len; i += (size_t)width) {
        utf8proc_int32_t c;

        width = utf8proc_iterate(text.data + i, (utf8proc_ssize_t)(text.len - i), &c);
        if (width <= 0)
            break;
        if (c < 0x7f)
            ckpt_buf_put_u8(b, (uint8_t)c);
        else if (c < 0x10000)
            ckpt_buf_printf(b, "\\u%04x", (unsigned)c);
        else
            ckpt_buf_printf(b, "\\u%04x\\u%04x", 0xd7c0u + ((unsigned)c >> 10),
                            0xdc00u + ((unsigned)c & 0x3ffu));
    }
    ckpt_buf_release(&text);
}

static int by_key(const void *a, const void *b)
{
    const struct jv *x = &((const struct jv_pair *)a)->key, *y = &((const struct jv_pair *)b)->key;
    int order = memcmp(x->str.s, y->str.s, x->str.n < y->str.n ? x->str.n : y->str.n);

    return order ? order : (x->str.n > y->str.n) - (x->str.n < y->str.n);
}

/* The pairs of a map, by rising key if wanted; NULL with r->rc. */
static const struct jv_pair *pairs_of(struct run *r, const struct jv_map *map, bool sorted)
{
    struct jv_pair *pair;

    if (!sorted || map->n == 0)
        return map->pair;
    for (size_t i = 0; i < map->n; i++)
        if (map->pair[i].key.kind != V_STRING) {
            jinja_fail(r, CKPT_EUNSUPPORTED, "tojson: %s among keys to be sorted",
                       jv_type(&map->pair[i].key));
            return NULL;
        }
    pair = ckpt_arena_alloc(&r->arena, map->n, sizeof *pair);
    if (!pair) {
        jinja_no_memory(r, map->n * sizeof *pair);
        return NULL;
    }
    memcpy(pair, map->pair, map->n * sizeof *pair);
    qsort(pair, map->n, sizeof *pair, by_key);
    return pair;
}

int jv_json(struct run *r, struct ckpt_buf *b, const struct jv *v, const struct jv_json *how,
            int level)
{
    bool is_list = v->kind == V_LIST;
    size_t n = is_list ? v->list->n : v->kind == V_MAP ? v->map->n : 0;
    const struct jv_pair *pair = NULL;
    int rc;

    if (level > MAX_NESTED)
        return jinja_fail(r, CKPT_ELIMIT, "tojson: nested deeper than %d", MAX_NESTED);
    if (!ckpt_buf_ok(b))
        return jinja_full(r, b);
    switch (v->kind) {
    case V_NONE:   ckpt_buf_put_str(b, "null"); return 0;
    case V_BOOL:   ckpt_buf_put_str(b, v->b ? "true" : "false"); return 0;
    case V_INT:    ckpt_buf_printf(b, "%" PRId64, v->i); return 0;
    case V_FLOAT:  print_real(b, v->d, true); return 0;
    case V_STRING: put_json_string(b, v->str.s, v->str.n, how->ascii); return 0;
    case V_LIST:
    case V_MAP:    break;
    default:
        return jinja_fail(r, CKPT_EFORMAT, "tojson: %s is no JSON", jv_type(v));
    }
    if (n > 0 && !is_list && !(pair = pairs_of(r, v->map, how->sorted)))
        return r->rc;
    ckpt_buf_put_str(b, is_list ? "[" : "{");
    for (size_t i = 0; i < n; i++) {
        if (i)
            ckpt_buf_put(b, how->item.str.s, how->item.str.n);
        json_gap(b, how->indent, level + 1);
        if (!is_list) {
            struct ckpt_buf key;

            ckpt_buf_init(&key, JINJA_MAX_OUTPUT);
            jv_print(&key, &pair[i].key, false);
            if (!ckpt_buf_ok(&key))
                jinja_full(r, &key);
            put_json_string(b, key.len ? (const char *)key.data : "", key.len, how->ascii);
            ckpt_buf_release(&key);
            ckpt_buf_put(b, how->key.str.s, how->key.str.n);
            if (r->rc)
                return r->rc;
        }
        if ((rc = jv_json(r, b, is_list ? &v->list->item[i] : &pair[i].value, how,
                          level + 1)) != 0)
            return rc;
    }
    if (n > 0)
        json_gap(b, how->indent, level);
    ckpt_buf_put_str(b, is_list ? "]" : "}");
    return 0;
}

/* -- characters ------------------------------------------------------------------------------ */

size_t jv_utf8_count(const char *s, size_t n)
{
    size_t count = 0;

    for (size_t i = 0; i < n; i++)
        count += ((unsigned char)s[i] & 0xc0) != 0x80;
    return count;
}

size_t jv_utf8_offset(const char *s, size_t n, size_t k)
{
    size_t i = 0;

    while (i < n && k > 0) {
        i++;
        while (i < n && ((unsigned char)s[i] & 0xc0) == 0x80)
            i++;
        k--;
    }
    return i;
}

bool jv_utf8_is_space(const char *s, size_t n, size_t *width)
{
    utf8proc_int32_t c;
    utf8proc_ssize_t got = utf8proc_iterate((const utf8proc_uint8_t *)s, (utf8proc_ssize_t)n, &c);
    utf8proc_category_t kind;

    *width = got > 0 ? (size_t)got : 1;
    if (got <= 0)
        return false;
    kind = utf8proc_category(c);
    return (c >= 9 && c <= 13) || (c >= 0x1c && c <= 0x1f) || c == 0x85 ||
           kind == UTF8PROC_CATEGORY_ZS || kind == UTF8PROC_CATEGORY_ZL ||
           kind == UTF8PROC_CATEGORY_ZP;
}

int jv_items(struct run *r, const struct jv *v, struct jv_list **out)
{
    struct jv list;
    int rc;

    if (v->kind == V_LIST) {
        *out = v->list;
        return 0;
    }
    list = jv_list_new(r, 0);
    *out = list.list;
    if (r->rc)
        return r->rc;
    if (v->kind == V_MAP) {
        for (size_t i = 0; i < v->map->n; i++)
            if ((rc = jv_append(r, list.list, v->map->pair[i].key)) != 0)
                return rc;
    } else if (v->kind == V_STRING) {
        for (size_t i = 0, n; i < v->str.n; i += n) {
            n = jv_utf8_offset(v->str.s + i, v->str.n - i, 1);
            if ((rc = jv_append(r, list.list, jv_str(v->str.s + i, n))) != 0)
                return rc;
        }
    } else if (v->kind != V_UNDEFINED) {
        return jinja_fail(r, CKPT_EFORMAT, "%s cannot be gone through", jv_type(v));
    }
    return 0;
}

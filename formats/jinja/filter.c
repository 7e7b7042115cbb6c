/* jinja/filter - filters of templates: jinja2's filters.py, and transformers' own tojson. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/jinja/parts.h"

enum filter {
    F_TRIM, F_LENGTH, F_TOJSON, F_DEFAULT, F_JOIN, F_UPPER, F_LOWER, F_REPLACE, F_FIRST, F_LAST,
    F_LIST, F_ITEMS, F_MAP, F_SELECTATTR, F_REJECTATTR, F_SELECT, F_REJECT, F_STRING, F_INT,
    F_FLOAT, F_SAFE, F_CAPITALIZE, F_TITLE, F_INDENT, F_SORT, F_UNIQUE, F_DICTSORT,
    F_REVERSE, F_MIN, F_MAX,
    F_SUM, F_ABS, F_ROUND, F_ESCAPE, F_BATCH, F_SLICE, F_GROUPBY, F_WORDCOUNT, F_FORMAT
};

static const struct { const char *name; enum filter filter; } filters[] = {
    {"trim", F_TRIM}, {"length", F_LENGTH}, {"count", F_LENGTH}, {"tojson", F_TOJSON},
    {"default", F_DEFAULT}, {"d", F_DEFAULT}, {"join", F_JOIN}, {"upper", F_UPPER},
    {"lower", F_LOWER}, {"replace", F_REPLACE}, {"first", F_FIRST}, {"last", F_LAST},
    {"list", F_LIST}, {"items", F_ITEMS}, {"map", F_MAP}, {"selectattr", F_SELECTATTR},
    {"rejectattr", F_REJECTATTR}, {"select", F_SELECT}, {"reject", F_REJECT},
    {"string", F_STRING}, {"int", F_INT}, {"float", F_FLOAT}, {"safe", F_SAFE},
    {"capitalize", F_CAPITALIZE}, {"title", F_TITLE}, {"indent", F_INDENT}, {"sort", F_SORT},
    {"unique", F_UNIQUE}, {"dictsort", F_DICTSORT}, {"reverse", F_REVERSE}, {"min", F_MIN},
    {"max", F_MAX}, {"sum", F_SUM}, {"abs", F_ABS}, {"round", F_ROUND}, {"escape", F_ESCAPE},
    {"e", F_ESCAPE}, {"batch", F_BATCH}, {"slice", F_SLICE}, {"groupby", F_GROUPBY},
    {"wordcount", F_WORDCOUNT}, {"format", F_FORMAT},
};

static int find_filter(const char *name)
{
    for (size_t i = 0; i < sizeof filters / sizeof *filters; i++)
        if (strcmp(filters[i].name, name) == 0)
            return (int)filters[i].filter;
    return -1;
}

bool jinja_knows_filter(const char *name) { return find_filter(name) >= 0; }

static struct jv as_string(struct run *r, const struct jv *v)
{
    struct ckpt_buf b;

    if (v->kind == V_STRING)
        return *v;
    ckpt_buf_init(&b, JINJA_MAX_OUTPUT);
    jv_print(&b, v, false);
    return jv_of_buf(r, &b);
}

/* tojson(ensure_ascii, indent, separators, sort_keys), as transformers defines it. */
static struct jv to_json(struct run *r, const struct jv *v, const struct args *args)
{
    struct jv none = jv_none(), no = jv_bool(false), ascii = jinja_arg(args, 0, "ensure_ascii", no),
              indent = jinja_arg(args, 1, "indent", none),
              between = jinja_arg(args, 2, "separators", none),
              sorted = jinja_arg(args, 3, "sort_keys", no);
    struct jv_json how = {.indent = -1, .item = STR(", "), .key = STR(": "),
                          .ascii = jv_true(&ascii), .sorted = jv_true(&sorted)};
    struct ckpt_buf b;

    if (indent.kind == V_INT) {
        if (indent.i < 0 || indent.i > 64) {
            jinja_fail(r, CKPT_ELIMIT, "tojson: an indent of %" PRId64, indent.i);
            return *v;
        }
        how.indent = (int)indent.i;
        how.item = STR(",");
    } else if (indent.kind != V_NONE) {
        jinja_fail(r, CKPT_EUNSUPPORTED, "tojson: %s as indent", jv_type(&indent));
        return *v;
    }
    if (between.kind == V_LIST && between.list->n == 2) {
        how.item = between.list->item[0];
        how.key = between.list->item[1];
    }
    if (how.item.kind != V_STRING || how.key.kind != V_STRING ||
        (between.kind != V_NONE && (between.kind != V_LIST || between.list->n != 2))) {
        jinja_fail(r, CKPT_EFORMAT, "tojson: two strings are wanted as separators");
        return *v;
    }
    ckpt_buf_init(&b, JINJA_MAX_OUTPUT);
    jv_json(r, &b, v, &how, 0);
    return jv_of_buf(r, &b);
}

static struct jv length_of(struct run *r, const struct jv *v)
{
    if (v->kind == V_STRING)
        return jv_int((int64_t)jv_utf8_count(v->str.s, v->str.n));
    if (v->kind == V_LIST)
        return jv_int((int64_t)v->list->n);
    if (v->kind == V_MAP)
        return jv_int((int64_t)v->map->n);
    if (v->kind != V_UNDEFINED)
        jinja_fail(r, CKPT_EFORMAT, "%s has no length", jv_type(v));
    return jv_int(0);
}

/* One part of a path: an index, else an item of that name, else an attribute. */
static struct jv step_of(struct run *r, struct jv v, const char *s, size_t n)
{
    const struct jv *found;
    int64_t i = 0;
    size_t at = 0;

    while (at < n && at < 18 && s[at] >= '0' && s[at] <= '9')
        i = 10 * i + s[at++] - '0';
    if (n > 0 && at == n) {
        struct jv key = jv_int(i);

        return jinja_item(r, &v, &key);
    }
    found = v.kind == V_MAP ? jv_get(r, v.map, s, n) : NULL;
    return found ? *found : jinja_attr(r, &v, s, n);
}

/* Look up "a.b" or 0 in v; undefined if absent. */
static struct jv path_of(struct run *r, struct jv v, const struct jv *path)
{
    const char *s = path->kind == V_STRING ? path->str.s : "", *end;
    size_t n = path->kind == V_STRING ? path->str.n : 0;

    if (path->kind == V_INT)
        return jinja_item(r, &v, path);
    for (const char *last = s + n; s <= last && n > 0 && !r->rc; s = end + 1) {
        for (end = s; end < last && *end != '.'; end++)
            ;
        v = step_of(r, v, s, (size_t)(end - s));
    }
    return v;
}

/* A filter's or test's name out of an argument, as a string of its own. */
static const char *name_arg(struct run *r, const struct jv *v)
{
    const char *name = v->kind == V_STRING
                           ? ckpt_arena_strndup(&r->arena, v->str.s, v->str.n) : NULL;

    if (!name)
        jinja_fail(r, CKPT_EFORMAT, "%s where a name was expected", jv_type(v));
    return name ? name : "";
}

static struct jv map(struct run *r, const struct jv_list *items, const struct args *args)
{
    struct jv none = {0}, attribute = jinja_arg(args, 9, "attribute", none),
                 fallback = jinja_arg(args, 9, "default", none), out = jv_list_new(r, items->n);
    struct args rest = args->n > 1 ? (struct args){.item = args->item + 1, .n = args->n - 1}
                                   : (struct args){0};
    const char *name = attribute.kind == V_UNDEFINED && args->n ? name_arg(r, &args->item[0]) : "";

    if (attribute.kind == V_UNDEFINED && !r->rc && !jinja_knows_filter(name))
        jinja_fail(r, CKPT_EUNSUPPORTED, "map: no filter \"%s\"", name);
    for (size_t i = 0; i < items->n && !r->rc; i++) {
        struct jv v;

        jv_work(r, 0);
        if (attribute.kind == V_UNDEFINED) {
            v = jinja_filter(r, name, items->item[i], &rest);
        } else {
            v = path_of(r, items->item[i], &attribute);
            if (v.kind == V_UNDEFINED && fallback.kind != V_UNDEFINED)
                v = fallback;
        }
        if (!r->rc)
            jv_append(r, out.list, v);
    }
    return out;
}

static struct jv select_items(struct run *r, const struct jv_list *items,
                                 const struct args *args, bool by_attribute, bool want)
{
    struct jv out = jv_list_new(r, 0), none = {0},
                 path = by_attribute ? jinja_arg(args, 0, "", none) : none;
    size_t skip = by_attribute;
    struct args rest = {0};
    const char *name = args->n > skip ? name_arg(r, &args->item[skip]) : NULL;

    if (args->n > skip + 1)
        rest = (struct args){.item = args->item + skip + 1, .n = args->n - skip - 1};
    if (!r->rc && name && !jinja_knows_test(name))
        jinja_fail(r, CKPT_EUNSUPPORTED, "no test \"%s\"", name);
    for (size_t i = 0; i < items->n && !r->rc; i++) {
        struct jv v = by_attribute ? path_of(r, items->item[i], &path) : items->item[i];

        jv_work(r, 0);
        if (!r->rc && (name ? jinja_test(r, name, &v, &rest) : jv_true(&v)) == want)
            jv_append(r, out.list, items->item[i]);
    }
    return out;
}

static struct jv to_number(const struct jv *v, const struct args *args, bool whole)
{
    struct jv fallback = jinja_arg(args, 0, "default", whole ? jv_int(0)
                                                                : (struct jv){.kind = V_FLOAT});
    char text[64], *end;
    double d;

    if (jv_is_number(v))
        d = jv_number(v);
    else if (v->kind != V_STRING || v->str.n == 0 || v->str.n >= sizeof text)
        return fallback;
    else {
        memcpy(text, v->str.s, v->str.n);
        text[v->str.n] = '\0';
        if (strpbrk(text, "xXpPnN"))
            return fallback;
        d = strtod(text, &end);
        if (end[strspn(end, " \t\n")])
            return fallback;
    }
    if (!whole)
        return (struct jv){.kind = V_FLOAT, .d = d};
    if (v->kind == V_INT)
        return *v;
    return fabs(d) < 9e18 ? jv_int((int64_t)d) : fallback;
}

static struct jv indent(struct run *r, struct jv v, const struct args *args)
{
    struct jv width = jinja_arg(args, 0, "width", jv_int(4)),
                 first = jinja_arg(args, 1, "first", jv_bool(false)),
                 blank = jinja_arg(args, 2, "blank", jv_bool(false));
    struct jv pad = width.kind == V_STRING ? width
                       : jinja_op(r, "*", STR(" "), width);
    struct ckpt_buf b;

    if (r->rc || v.kind != V_STRING || pad.kind != V_STRING)
        return v;
    ckpt_buf_init(&b, JINJA_MAX_OUTPUT);
    for (size_t i = 0, n; i < v.str.n; i += n + 1) {
        const char *eol = memchr(v.str.s + i, '\n', v.str.n - i);

        n = eol ? (size_t)(eol - v.str.s) - i : v.str.n - i;
        if ((i > 0 || jv_true(&first)) && (n > 0 || jv_true(&blank)))
            ckpt_buf_put(&b, pad.str.s, pad.str.n);
        ckpt_buf_put(&b, v.str.s + i, n);
        if (eol)
            ckpt_buf_put_u8(&b, '\n');
    }
    return jv_of_buf(r, &b);
}

/* The key of comparisons: the value, or an attribute; strings are folded unless case matters, which
 * argument `cased_at` says. */
static struct jv sort_key(struct run *r, struct jv v, const struct args *args, size_t cased_at)
{
    struct jv none = {0}, attribute = jinja_arg(args, 9, "attribute", none),
                 cased = jinja_arg(args, cased_at, "case_sensitive", jv_bool(false));

    if (attribute.kind != V_UNDEFINED)
        v = path_of(r, v, &attribute);
    return v.kind == V_STRING && !jv_true(&cased) ? jinja_case(r, v, 'l') : v;
}

/* A stable sort by insertion; lists here are short. */
static void sort(struct run *r, struct jv *item, struct jv *key, size_t n, bool down)
{
    for (size_t i = 1; i < n && !r->rc; i++) {
        struct jv v = item[i], k = key[i];
        size_t at = i;

        while (at > 0 && !r->rc &&
               (down ? jv_less(r, &key[at - 1], &k) : jv_less(r, &k, &key[at - 1]))) {
            item[at] = item[at - 1];
            key[at] = key[at - 1];
            at--;
            jv_work(r, 0);
        }
        item[at] = v;
        key[at] = k;
    }
}

/* sort, dictsort, unique, reverse, min, max */
static struct jv arrange(struct run *r, enum filter filter, const struct jv_list *items,
                            const struct args *args)
{
    bool pairs = filter == F_DICTSORT;  /* dictsort(case_sensitive, by, reverse) */
    struct jv out = jv_list_new(r, items->n), keys = jv_list_new(r, items->n),
              down = jinja_arg(args, pairs ? 2 : 0, "reverse", jv_bool(false)),
              by = jinja_arg(args, 1, "by", STR("key"));
    size_t half = jv_is_str(&by, "value");

    for (size_t i = 0; i < items->n && !r->rc; i++) {
        size_t from = filter == F_REVERSE ? items->n - 1 - i : i;
        struct jv key = filter == F_REVERSE ? jv_none()
                           : pairs ? items->item[i].list->item[half] : items->item[from];

        if (filter != F_REVERSE)
            key = sort_key(r, key, args, filter == F_SORT ? 1 : 0);
        if (filter == F_UNIQUE) {
            size_t k = 0;

            while (k < keys.list->n && !jv_equal(r, &keys.list->item[k], &key))
                k++;
            if (k < keys.list->n)
                continue;
        }
        if (!r->rc && jv_append(r, keys.list, key) == 0)
            jv_append(r, out.list, items->item[from]);
    }
    if (r->rc || filter == F_REVERSE || filter == F_UNIQUE)
        return out;
    sort(r, out.list->item, keys.list->item, out.list->n,
         filter == F_MAX || ((filter == F_SORT || pairs) && jv_true(&down)));
    if (filter == F_SORT || pairs || r->rc)
        return out;
    return out.list->n ? out.list->item[0] : (struct jv){.kind = V_UNDEFINED, .str = {"", 0}};
}

/* groupby(attribute, default, case_sensitive): tuples of a key, as the first item has it, and the
 * items; by rising key. */
static struct jv group_by(struct run *r, const struct jv_list *items, const struct args *args)
{
    struct jv none = jv_none(), path = jinja_arg(args, 0, "attribute", none),
                 fallback = jinja_arg(args, 1, "default", none),
                 cased = jinja_arg(args, 2, "case_sensitive", jv_bool(false)),
                 out = jv_list_new(r, 0), own = jv_list_new(r, items->n),
                 keys = jv_list_new(r, items->n), order = jv_list_new(r, items->n);

    for (size_t i = 0; i < items->n && !r->rc; i++) {
        struct jv key = path_of(r, items->item[i], &path);

        if (key.kind == V_UNDEFINED && fallback.kind != V_NONE)
            key = fallback;
        jv_append(r, own.list, key);
        jv_append(r, order.list, jv_int((int64_t)i));
        if (key.kind == V_STRING && !jv_true(&cased))
            key = jinja_case(r, key, 'l');
        jv_append(r, keys.list, key);
    }
    if (!r->rc)
        sort(r, order.list->item, keys.list->item, items->n, false);
    for (size_t i = 0; i < items->n && !r->rc; i++) {
        const size_t from = (size_t)order.list->item[i].i;
        struct jv group;

        if (i == 0 || !jv_equal(r, &keys.list->item[i - 1], &keys.list->item[i])) {
            group = jv_list_new(r, 2);
            group.is_tuple = group.is_group = true;
            if (r->rc || jv_append(r, group.list, own.list->item[from]) ||
                jv_append(r, group.list, jv_list_new(r, 0)) || jv_append(r, out.list, group))
                break;
        }
        group = out.list->item[out.list->n - 1];
        jv_append(r, group.list->item[1].list, items->item[from]);
    }
    return out;
}

static struct jv sum(struct run *r, const struct jv_list *items, const struct args *args)
{
    struct jv none = {0}, attribute = jinja_arg(args, 0, "attribute", none),
                 out = jinja_arg(args, 1, "start", jv_int(0));

    for (size_t i = 0; i < items->n && !r->rc; i++)
        out = jinja_op(r, "+", out, attribute.kind == V_UNDEFINED
                       ? items->item[i] : path_of(r, items->item[i], &attribute));
    return out;
}

struct jv jinja_escape(struct run *r, struct jv v)
{
    static const char from[] = "&<>'\"", *const to[] = {"&amp;", "&lt;", "&gt;", "&#39;", "&#34;"};
    struct ckpt_buf b;

    ckpt_buf_init(&b, JINJA_MAX_OUTPUT);
    for (size_t i = 0; i < v.str.n; i++) {
        const char *at = v.str.s[i] ? strchr(from, v.str.s[i]) : NULL;

        if (at)
            ckpt_buf_put_str(&b, to[at - from]);
        else
            ckpt_buf_put_u8(&b, (uint8_t)v.str.s[i]);
    }
    v = jv_of_buf(r, &b);
    v.is_safe = true;
    return v;
}

/* By the digits of the decimal value, as Python's round; "floor" and "ceil" scale, as jinja2. */
static struct jv round_to(struct run *r, const struct jv *v, const struct args *args)
{
    struct jv digits = jinja_arg(args, 0, "precision", jv_int(0)),
              method = jinja_arg(args, 1, "method", STR("common"));
    bool floors = jv_is_str(&method, "floor"), ceils = jv_is_str(&method, "ceil");
    double scale = pow(10, digits.kind == V_INT ? (double)digits.i : 0), d;
    char text[400];

    if (!jv_is_number(v)) {
        jinja_fail(r, CKPT_EFORMAT, "round: a number is wanted");
        return (struct jv){.kind = V_UNDEFINED};
    }
    d = jv_number(v);
    if (floors || ceils)
        d = (floors ? floor(d * scale) : ceil(d * scale)) / scale;
    if (floors || ceils)
        return (struct jv){.kind = V_FLOAT, .d = d};
    if (v->kind != V_FLOAT && scale >= 1)
        return jv_int(v->kind == V_INT ? v->i : v->b);
    if (isfinite(d) && scale >= 1 && scale <= 1e22) {
        snprintf(text, sizeof text, "%.*f", digits.kind == V_INT ? (int)digits.i : 0, d);
        return (struct jv){.kind = V_FLOAT, .d = strtod(text, NULL)};
    }
    d = rint(d * scale) / scale;
    if (v->kind == V_FLOAT)
        return (struct jv){.kind = V_FLOAT, .d = d};
    return fabs(d) < 9e18 ? jv_int((int64_t)d) : *v;
}

/* Filters over the items of a value. */
static struct jv over_items(struct run *r, enum filter filter, const struct jv *v,
                               const struct args *args)
{
    struct jv undefined = {.kind = V_UNDEFINED, .str = {"an item", 7}}, out;
    struct jv_list *items;

    /* jinja2 does not go through a value that is false, such as none. */
    if (!jv_true(v) && (filter == F_MAP || filter == F_SELECT || filter == F_REJECT ||
                        filter == F_SELECTATTR || filter == F_REJECTATTR))
        return jv_list_new(r, 0);
    if (jv_items(r, v, &items))
        return undefined;
    switch (filter) {
    case F_JOIN:
        out = jinja_arg(args, 1, "attribute", (struct jv){0});
        if (out.kind != V_UNDEFINED) {
            struct jv by = jv_map_new(r), list;

            if (r->rc || jv_put(r, by.map, STR("attribute"), out))
                return undefined;
            list = map(r, items, &(struct args){.named = by.map});
            items = r->rc ? items : list.list;
        }
        out = jinja_arg(args, 0, "d", STR(""));
        return jinja_join(r, items, &out);
    case F_FIRST: return items->n ? items->item[0] : undefined;
    case F_LAST:  return items->n ? items->item[items->n - 1] : undefined;
    case F_LIST:  return (struct jv){.kind = V_LIST, .list = items};
    case F_MAP:   return map(r, items, args);
    case F_SELECTATTR:
    case F_REJECTATTR: return select_items(r, items, args, true, filter == F_SELECTATTR);
    case F_SELECT:
    case F_REJECT:     return select_items(r, items, args, false, filter == F_SELECT);
    case F_SUM:   return sum(r, items, args);
    case F_BATCH: return jinja_batch(r, items, args);
    case F_SLICE: return jinja_slice(r, items, args);
    case F_GROUPBY: return group_by(r, items, args);
    default:      return arrange(r, filter, items, args);
    }
}

struct jv jinja_filter(struct run *r, const char *name, struct jv v, const struct args *args)
{
    struct jv none = jv_none(), a = jinja_arg(args, 0, "", none), b;
    int filter = find_filter(name);

    if (filter < 0)
        jinja_fail(r, CKPT_EUNSUPPORTED, "no filter \"%s\"", name);
    jv_work(r, v.kind == V_STRING ? v.str.n : 0);
    if (r->rc)
        return v;
    switch (filter) {
    case F_TOJSON:  return to_json(r, &v, args);
    case F_LENGTH:  return length_of(r, &v);
    case F_INT:
    case F_FLOAT:   return to_number(&v, args, filter == F_INT);
    case F_SAFE:
        v = as_string(r, &v);
        v.is_safe = true;
        return v;
    case F_ROUND:   return round_to(r, &v, args);
    case F_ABS:     return v.kind == V_BOOL ? jv_int(v.b)
                           : v.kind == V_INT && v.i < 0 && v.i > INT64_MIN ? jv_int(-v.i)
                           : v.kind == V_FLOAT ? (struct jv){.kind = V_FLOAT, .d = fabs(v.d)} : v;
    case F_DEFAULT:
        a = jinja_arg(args, 0, "default_value", STR(""));
        b = jinja_arg(args, 1, "boolean", jv_bool(false));
        return v.kind == V_UNDEFINED || (jv_true(&b) && !jv_true(&v)) ? a : v;
    case F_ITEMS:
    case F_DICTSORT:
        if (v.kind != V_MAP && v.kind != V_UNDEFINED)
            jinja_fail(r, CKPT_EFORMAT, "%s: %s is no mapping", name, jv_type(&v));
        if (v.kind != V_MAP)
            return jv_list_new(r, 0);
        v = jinja_items(r, v.map);
        return filter == F_ITEMS || r->rc ? v : over_items(r, F_DICTSORT, &v, args);
    case F_REVERSE:
        if (v.kind == V_STRING) {
            b = over_items(r, F_REVERSE, &v, args);
            return r->rc ? b : jinja_join(r, b.list, &(struct jv){0});
        }
        return over_items(r, F_REVERSE, &v, args);
    case F_JOIN: case F_FIRST: case F_LAST: case F_LIST: case F_MAP: case F_SELECTATTR:
    case F_REJECTATTR: case F_SELECT: case F_REJECT: case F_SORT: case F_UNIQUE: case F_MIN:
    case F_MAX: case F_SUM: case F_BATCH: case F_SLICE: case F_GROUPBY:
        return over_items(r, (enum filter)filter, &v, args);
    default:
        break;
    }
    v = as_string(r, &v);
    if (r->rc)
        return v;
    switch (filter) {
    case F_TRIM:       return jinja_strip(v, &a, true, true);
    case F_UPPER:      return jinja_case(r, v, 'u');
    case F_LOWER:      return jinja_case(r, v, 'l');
    case F_CAPITALIZE: return jinja_case(r, v, 'c');
    case F_TITLE:      return jinja_case(r, v, 'w');
    case F_INDENT:     return indent(r, v, args);
    case F_ESCAPE:     return v.is_safe ? v : jinja_escape(r, v);
    case F_WORDCOUNT:  return jinja_word_count(&v);
    case F_FORMAT:     return jinja_percent(r, v, args);
    case F_REPLACE:
        b = jinja_arg(args, 1, "new", none);
        none = jinja_arg(args, 2, "count", none);
        return jinja_replace(r, v, &a, &b, none.kind == V_INT ? none.i : -1);
    default:           return v;
    }
}

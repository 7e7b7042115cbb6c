/* jinja/eval - a template's tree, walked: variables, statements, expressions; see jinja.h. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "formats/jinja/parts.h"

#define MAX_RANGE 1000000

enum function { F_RAISE, F_STRFTIME, F_NAMESPACE, F_RANGE, F_DICT, N_FUNCTIONS };

static const char *const functions[] = {"raise_exception", "strftime_now", "namespace", "range",
                                        "dict"};

int jinja_fail(struct run *r, int code, const char *fmt, ...)
{
    char text[600];
    va_list ap;

    if (r->rc)
        return r->rc;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return r->rc = ckpt_fail(r->err, code, "chat template: line %d: %s", r->line, text);
}

static const struct node *node_at(const struct run *r, int32_t i) { return &r->t->node[i]; }

static struct jv get_var(struct run *r, const char *name, size_t n)
{
    const struct jv *v = jinja_get(r, name, n);

    jv_work(r, r->n_var);

    if (v)
        return *v;
    for (int f = 0; f < N_FUNCTIONS; f++)
        if (strlen(functions[f]) == n && memcmp(functions[f], name, n) == 0)
            return (struct jv){.kind = V_FUNCTION, .function = f};
    return (struct jv){.kind = V_UNDEFINED, .str = {name, n}};
}

/* -- calls ----------------------------------------------------------------------------------- */

struct jv jinja_arg(const struct args *args, size_t i, const char *name, struct jv fallback)
{
    const struct jv *v = args->named ? jv_get(NULL, args->named, name, strlen(name)) : NULL;

    return i < args->n ? args->item[i] : v ? *v : fallback;
}

/* "*v" among arguments. */
static void append_all(struct run *r, struct jv_list *list, const struct jv *v)
{
    struct jv_list *items;

    if (r->rc || jv_items(r, v, &items))
        return;
    for (size_t i = 0; i < items->n && !r->rc; i++) {
        jv_work(r, 0);
        jv_append(r, list, items->item[i]);
    }
}

/* "**v" among arguments. */
static void put_all(struct run *r, struct jv_map *named, const struct jv *v)
{
    if (!r->rc && v->kind != V_MAP)
        jinja_fail(r, CKPT_EFORMAT, "%s after **, where a mapping is wanted", jv_type(v));
    for (size_t i = 0; !r->rc && i < v->map->n; i++) {
        const struct jv_pair *pair = &v->map->pair[i];

        if (pair->key.kind != V_STRING)
            jinja_fail(r, CKPT_EFORMAT, "%s as an argument's name", jv_type(&pair->key));
        else
            jv_put(r, named, pair->key, pair->value);
    }
}

int jinja_args_of(struct run *r, int32_t first, struct args *args)
{
    struct jv list = jv_list_new(r, 0);

    if (r->rc)
        return r->rc;
    args->named = NULL;
    for (int32_t i = first; i >= 0 && !r->rc; i = node_at(r, i)->next) {
        const struct node *n = node_at(r, i);
        struct jv v = jinja_eval(r, n->a);

        if (n->kind == N_STAR) {
            append_all(r, list.list, &v);
        } else if (n->kind != N_KEYWORD && n->kind != N_STARS) {
            jv_append(r, list.list, v);
        } else {
            if (!args->named)
                args->named = jv_map_new(r).map;
            if (args->named && n->kind == N_STARS)
                put_all(r, args->named, &v);
            else if (args->named)
                jv_put(r, args->named, jv_str(n->name, n->n_name), v);
        }
    }
    args->item = list.list->item;
    args->n = list.list->n;
    return r->rc;
}

static struct jv call_macro(struct run *r, const struct node *m, const struct args *args)
{
    struct jv out = {0};
    size_t before = jinja_push(r), k = 0;
    int line = r->line;

    for (int32_t i = m->a; i >= 0 && !r->rc; i = node_at(r, i)->next, k++) {
        const struct node *param = node_at(r, i);
        struct jv none = {.kind = V_UNDEFINED, .str = {param->name, param->n_name}};
        struct jv v = jinja_arg(args, k, param->name, none);

        if (v.kind == V_UNDEFINED && param->a >= 0)
            v = jinja_eval(r, param->a);
        jinja_set(r, param->name, param->n_name, v);
    }
    if (args->n > k)
        jinja_fail(r, CKPT_EFORMAT, "macro %s takes %zu arguments, not %zu", m->name, k, args->n);
    if (!r->rc)
        out = jinja_capture(r, m->c);
    jinja_pop(r, before);
    r->line = line;
    return out;
}

static struct jv make_range(struct run *r, const struct args *args)
{
    struct jv zero = jv_int(0), a = jinja_arg(args, 0, "", zero),
                 b = jinja_arg(args, 1, "", zero), step = jinja_arg(args, 2, "", jv_int(1)), out;

    if (args->n == 1) {
        b = a;
        a = zero;
    }
    if (a.kind != V_INT || b.kind != V_INT || step.kind != V_INT || step.i == 0) {
        jinja_fail(r, CKPT_EFORMAT, "range of what is no integer");
        return zero;
    }
    out = jv_list_new(r, 0);
    for (int64_t i = a.i; !r->rc && (step.i > 0 ? i < b.i : i > b.i);) {
        if (out.list->n == MAX_RANGE)
            jinja_fail(r, CKPT_ELIMIT, "a range of more than %d", MAX_RANGE);
        else
            jv_append(r, out.list, jv_int(i));
        if (__builtin_add_overflow(i, step.i, &i))
            break;
    }
    return out;
}

static struct jv tell_time(struct run *r, const struct jv *format)
{
    time_t now = r->now ? (time_t)r->now : time(NULL);
    char how[256], text[512];
    struct tm tm;
    size_t n;

    if (format->kind != V_STRING || format->str.n >= sizeof how) {
        jinja_fail(r, CKPT_EFORMAT, "strftime_now of what is no short string");
        return *format;
    }
    memcpy(how, format->str.s, format->str.n);
    how[format->str.n] = '\0';
    jv_work(r, sizeof text);
    localtime_r(&now, &tm);
    /* The format is the template's own; the buffer bounds strftime's output. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    n = strftime(text, sizeof text, how, &tm);
#pragma GCC diagnostic pop
    return jv_copy_str(r, text, n);
}

static struct jv make_map(struct run *r, const struct args *args, bool is_namespace)
{
    struct jv out = jv_map_new(r);

    if (!r->rc)
        out.map->is_namespace = is_namespace;
    for (size_t i = 0; args->n > 0 && args->item[0].kind == V_MAP && i < args->item[0].map->n &&
                       !r->rc; i++)
        jv_put(r, out.map, args->item[0].map->pair[i].key, args->item[0].map->pair[i].value);
    for (size_t i = 0; args->named && i < args->named->n && !r->rc; i++)
        jv_put(r, out.map, args->named->pair[i].key, args->named->pair[i].value);
    return out;
}

struct jv jinja_call(struct run *r, const struct jv *f, const struct args *args)
{
    struct jv none = {0}, first = jinja_arg(args, 0, "message", none);
    struct ckpt_buf b;

    if (f->kind == V_MACRO)
        return call_macro(r, node_at(r, f->node), args);
    if (f->kind == V_METHOD)
        return jinja_method(r, f->method.self, f->method.name, args);
    if (f->kind != V_FUNCTION) {
        jinja_fail(r, CKPT_EFORMAT, "%s%s%.*s cannot be called", jv_type(f),
                   f->kind == V_UNDEFINED ? " " : "",
                   f->kind == V_UNDEFINED ? (int)f->str.n : 0, f->str.s);
        return none;
    }
    switch (f->function) {
    case F_RAISE:
        ckpt_buf_init(&b, 1024);
        jv_print(&b, &first, false);
        jinja_fail(r, CKPT_EFORMAT, "%s", ckpt_buf_str(&b) ? ckpt_buf_str(&b) : "it refuses");
        ckpt_buf_release(&b);
        return none;
    case F_STRFTIME:  return tell_time(r, &first);
    case F_RANGE:     return make_range(r, args);
    default:          return make_map(r, args, f->function == F_NAMESPACE);
    }
}

/* -- expressions ----------------------------------------------------------------------------- */

struct jv jinja_attr(struct run *r, const struct jv *v, const char *name, size_t n)
{
    struct jv out = {.kind = V_UNDEFINED, .str = {name, n}};
    const struct jv *found;

    if (v->kind == V_UNDEFINED) {
        jinja_fail(r, CKPT_EFORMAT, "\"%.*s\" is undefined, and \"%.*s\" of it is asked for",
                   (int)v->str.n, v->str.s ? v->str.s : "", (int)n, name);
        return out;
    }
    if (!(v->kind == V_MAP && v->map->is_namespace) && jinja_has_method(v, name)) {
        struct jv *self = ckpt_arena_alloc(&r->arena, 1, sizeof *self);

        if (!self) {
            jinja_no_memory(r, sizeof *self);
            return out;
        }
        *self = *v;
        return (struct jv){.kind = V_METHOD, .method = {self, name}};
    }
    if (v->is_group && n == 7 && memcmp(name, "grouper", n) == 0)
        return v->list->item[0];
    if (v->is_group && n == 4 && memcmp(name, "list", n) == 0)
        return v->list->item[1];
    found = v->kind == V_MAP ? jv_get(r, v->map, name, n) : NULL;
    return found ? *found : out;
}

struct jv jinja_item(struct run *r, const struct jv *v, const struct jv *key)
{
    struct jv none = {.kind = V_UNDEFINED, .str = {"an item", 7}};
    const struct jv *found;
    int64_t i, n;

    if (v->kind == V_MAP) {
        found = jv_find(r, v->map, key);
        return found ? *found
               : key->kind == V_STRING ? (struct jv){.kind = V_UNDEFINED, .str = key->str} : none;
    }
    if (v->kind == V_UNDEFINED) {
        jinja_fail(r, CKPT_EFORMAT, "\"%.*s\" is undefined, and an item of it is asked for",
                   (int)v->str.n, v->str.s ? v->str.s : "");
        return none;
    }
    if ((v->kind != V_LIST && v->kind != V_STRING) || key->kind != V_INT)
        return none;
    jv_work(r, v->kind == V_STRING ? v->str.n : 0);
    n = v->kind == V_LIST ? (int64_t)v->list->n : (int64_t)jv_utf8_count(v->str.s, v->str.n);
    i = key->i < 0 ? key->i + n : key->i;
    if (i < 0 || i >= n)
        return none;
    if (v->kind == V_LIST)
        return v->list->item[i];
    {
        size_t from = jv_utf8_offset(v->str.s, v->str.n, (size_t)i);

        return jv_str(v->str.s + from, jv_utf8_offset(v->str.s + from, v->str.n - from, 1));
    }
}

/* Python's slice bounds over n items. */
static int64_t slice_bound(const struct jv *v, int64_t n, int64_t step, bool is_start)
{
    int64_t at;

    if (v->kind != V_INT)
        return is_start == (step > 0) ? (step > 0 ? 0 : -1) : step > 0 ? n : n - 1;
    at = v->i < 0 ? v->i + n : v->i;
    if (step > 0)
        return at < 0 ? 0 : at > n ? n : at;
    return at < -1 ? -1 : at > n - 1 ? n - 1 : at;
}

static struct jv slice_of(struct run *r, const struct node *node)
{
    struct jv none = jv_none(), v = jinja_eval(r, node->a),
                 from = node->b < 0 ? none : jinja_eval(r, node->b),
                 to = node->c < 0 ? none : jinja_eval(r, node->c),
                 by = node->d < 0 ? none : jinja_eval(r, node->d), out;
    int64_t step = by.kind == V_INT ? by.i : 1, n, end;
    struct jv_list *items;
    struct ckpt_buf b;

    if (!r->rc && step != 0 && v.kind != V_LIST && v.kind != V_STRING && v.kind != V_UNDEFINED)
        return (struct jv){.kind = V_UNDEFINED, .str = {"an item", 7}};
    if (r->rc || step == 0 || (v.kind != V_LIST && v.kind != V_STRING)) {
        jinja_fail(r, CKPT_EFORMAT, "a slice of %s with step %" PRId64, jv_type(&v), step);
        return none;
    }
    if (jv_items(r, &v, &items))
        return none;
    n = (int64_t)items->n;
    out = jv_list_new(r, 0);
    out.is_tuple = v.is_tuple;
    end = step > 0 ? slice_bound(&to, n, step, false)
                   : to.kind == V_INT ? slice_bound(&to, n, step, false) : -1;
    for (int64_t i = step < 0 && from.kind != V_INT ? n - 1 : slice_bound(&from, n, step, true);
         !r->rc && (step > 0 ? i < end : i > end);) {
        jv_append(r, out.list, items->item[i]);
        if (__builtin_add_overflow(i, step, &i))
            break;
    }
    if (r->rc || v.kind == V_LIST)
        return out;
    ckpt_buf_init(&b, JINJA_MAX_OUTPUT);
    for (size_t i = 0; i < out.list->n; i++)
        ckpt_buf_put(&b, out.list->item[i].str.s, out.list->item[i].str.n);
    return jv_of_buf(r, &b);
}

static struct jv eval_list(struct run *r, const struct node *node)
{
    struct jv out = node->kind == N_LIST ? jv_list_new(r, 0) : jv_map_new(r);

    for (int32_t i = node->a; i >= 0 && !r->rc; i = node_at(r, i)->next) {
        struct jv v = jinja_eval(r, i);

        if (r->rc)
            break;
        if (node->kind == N_LIST) {
            jv_append(r, out.list, v);
        } else {
            i = node_at(r, i)->next;
            if (i < 0)
                break;
            jv_put(r, out.map, v, jinja_eval(r, i));
        }
    }
    out.is_tuple = node->kind == N_LIST && node->value.is_tuple;
    return out;
}

static struct jv eval_call(struct run *r, const struct node *node)
{
    struct jv v = jinja_eval(r, node->a);
    struct args args = {0};

    if (r->rc || jinja_args_of(r, node->b, &args))
        return v;
    if (node->kind == N_FILTER)
        return jinja_filter(r, node->name, v, &args);
    if (node->kind == N_TEST)
        return jv_bool(jinja_test(r, node->name, &v, &args));
    return jinja_call(r, &v, &args);
}

static struct jv eval_node(struct run *r, const struct node *node)
{
    struct jv v = {0}, key;

    switch (node->kind) {
    case N_CONST:   return node->value;
    case N_NAME:    return get_var(r, node->name, node->n_name);
    case N_LIST:
    case N_MAP:     return eval_list(r, node);
    case N_SLICE:   return slice_of(r, node);
    case N_CALL:
    case N_FILTER:
    case N_TEST:    return eval_call(r, node);
    default:        break;
    }
    v = jinja_eval(r, node->a);
    if (r->rc)
        return v;
    switch (node->kind) {
    case N_PLUS: return v;
    case N_ATTR: return jinja_attr(r, &v, node->name, node->n_name);
    case N_NOT:  return jv_bool(!jv_true(&v));
    case N_ITEM:
        key = jinja_eval(r, node->b);
        return r->rc ? key : jinja_item(r, &v, &key);
    case N_AND:  return jv_true(&v) ? jinja_eval(r, node->b) : v;
    case N_OR:   return jv_true(&v) ? v : jinja_eval(r, node->b);
    case N_COND:
        return jv_true(&v) ? jinja_eval(r, node->b)
               : node->c >= 0 ? jinja_eval(r, node->c)
                              : (struct jv){.kind = V_UNDEFINED, .str = {"else", 4}};
    case N_NEGATE:
        return v.kind == V_FLOAT ? (struct jv){.kind = V_FLOAT, .d = -v.d}
                                 : jinja_op(r, "-", jv_int(0), v);
    case N_OP:
        key = jinja_eval(r, node->b);
        return r->rc ? key : jinja_op(r, node->name, v, key);
    default:
        jinja_fail(r, CKPT_ESTATE, "node %d is no expression", node->kind);
        return v;
    }
}

struct jv jinja_eval(struct run *r, int32_t i)
{
    struct jv v = {0};

    if (i < 0)
        return v;
    jv_work(r, 0);
    if (r->depth >= 2 * JINJA_MAX_DEPTH)
        jinja_fail(r, CKPT_ELIMIT, "calls itself too deep");
    if (r->rc)
        return v;
    r->depth++;
    v = eval_node(r, node_at(r, i));
    r->depth--;
    return v;
}

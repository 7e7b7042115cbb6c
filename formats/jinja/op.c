/* jinja/op - operators of templates as Python has them, and tests ("x is ..."). */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "formats/jinja/parts.h"

#define MAX_REPEAT ((int64_t)1 << 24)

static struct jv real(double d) { return (struct jv){.kind = V_FLOAT, .d = d}; }

static struct jv no_op(struct run *r, const char *op, const struct jv *a,
                          const struct jv *b)
{
    jinja_fail(r, CKPT_EFORMAT, "%s %s %s", jv_type(a), op, jv_type(b));
    return jv_none();
}

static int64_t floor_div(int64_t a, int64_t b)
{
    int64_t q = a / b;

    return q - (a % b != 0 && (a % b < 0) != (b < 0));
}

static struct jv int_op(struct run *r, char op, int64_t a, int64_t b)
{
    int64_t out = 0;
    bool over = false;

    if ((op == '/' || op == '%') && b == 0) {
        jinja_fail(r, CKPT_EFORMAT, "division by zero");
        return jv_none();
    }
    if (op == '+')
        over = __builtin_add_overflow(a, b, &out);
    else if (op == '-')
        over = __builtin_sub_overflow(a, b, &out);
    else if (op == '*')
        over = __builtin_mul_overflow(a, b, &out);
    else if (a == INT64_MIN && b == -1)
        over = true;
    else
        out = op == '/' ? floor_div(a, b) : a - b * floor_div(a, b);
    if (over)
        jinja_fail(r, CKPT_ELIMIT, "a number beyond 64 bits");
    return jv_int(out);
}

/* op: '+', '-', '*', 'd' (a / b), '/' (a // b), '%', 'p' (a ** b) */
static struct jv number_op(struct run *r, char op, const struct jv *a, const struct jv *b)
{
    double x = jv_number(a), y = jv_number(b);

    if (op == 'p') {
        double z = pow(x, y);

        return a->kind != V_FLOAT && b->kind != V_FLOAT && y >= 0 && fabs(z) < 9e15
                   ? jv_int((int64_t)z) : real(z);
    }
    if (op != 'd' && a->kind != V_FLOAT && b->kind != V_FLOAT)
        return int_op(r, op, a->kind == V_INT ? a->i : a->b, b->kind == V_INT ? b->i : b->b);
    if ((op == 'd' || op == '/' || op == '%') && y == 0) {
        jinja_fail(r, CKPT_EFORMAT, "division by zero");
        return jv_none();
    }
    return real(op == '+' ? x + y : op == '-' ? x - y : op == '*' ? x * y : op == 'd' ? x / y
                : op == '/' ? floor(x / y) : x - y * floor(x / y));
}

static bool is_whole(const struct jv *v) { return v->kind == V_INT || v->kind == V_BOOL; }

static struct jv join_two(struct run *r, const struct jv *a, const struct jv *b)
{
    struct ckpt_buf text;

    ckpt_buf_init(&text, JINJA_MAX_OUTPUT);
    jv_print(&text, a, false);
    jv_print(&text, b, false);
    return jv_of_buf(r, &text);
}

static struct jv repeat(struct run *r, const struct jv *v, int64_t n)
{
    struct jv out;
    struct ckpt_buf text;

    n = n < 0 ? 0 : n;
    if (n > MAX_REPEAT || (v->kind == V_STRING && n * (int64_t)v->str.n > 4 * MAX_REPEAT)) {
        jinja_fail(r, CKPT_ELIMIT, "repeats something %" PRId64 " times", n);
        return jv_none();
    }
    if (v->kind == V_STRING) {
        ckpt_buf_init(&text, JINJA_MAX_OUTPUT);
        for (int64_t i = 0; v->str.n && i < n; i++)
            ckpt_buf_put(&text, v->str.s, v->str.n);
        return jv_of_buf(r, &text);
    }
    out = jv_list_new(r, 0);
    for (int64_t i = 0; v->list->n && i < n && !r->rc; i++)
        for (size_t k = 0; k < v->list->n && !r->rc; k++)
            jv_append(r, out.list, v->list->item[k]);
    out.is_tuple = v->is_tuple;
    return out;
}

static bool contains(struct run *r, const struct jv *in, const struct jv *v)
{
    if (in->kind == V_STRING) {
        if (v->kind != V_STRING)
            return jinja_fail(r, CKPT_EFORMAT, "%s in a string", jv_type(v)), false;
        jv_work(r, JINJA_SLOW * (in->str.n + v->str.n));
        return v->str.n == 0 || (in->str.n && memmem(in->str.s, in->str.n, v->str.s, v->str.n));
    }
    if (in->kind == V_MAP)
        return jv_find(r, in->map, v) != NULL;
    if (in->kind != V_LIST)
        return in->kind == V_UNDEFINED
                   ? false : (jinja_fail(r, CKPT_EFORMAT, "in %s", jv_type(in)), false);
    for (size_t i = 0; i < in->list->n; i++)
        if (jv_equal(r, &in->list->item[i], v))
            return true;
    return false;
}

static struct jv add(struct run *r, const struct jv *a, const struct jv *b)
{
    struct jv out;

    /* What the filter safe marks escapes the other string, as markupsafe's Markup does. */
    if (a->kind == V_STRING && b->kind == V_STRING) {
        bool safe = a->is_safe || b->is_safe;
        struct jv left = safe && !a->is_safe ? jinja_escape(r, *a) : *a,
                  right = safe && !b->is_safe ? jinja_escape(r, *b) : *b;

        out = r->rc ? jv_none() : join_two(r, &left, &right);
        out.is_safe = safe;
        return out;
    }
    if (a->kind != V_LIST || b->kind != V_LIST)
        return no_op(r, "+", a, b);
    out = jv_list_new(r, 0);
    for (size_t i = 0; i < a->list->n && !r->rc; i++)
        jv_append(r, out.list, a->list->item[i]);
    for (size_t i = 0; i < b->list->n && !r->rc; i++)
        jv_append(r, out.list, b->list->item[i]);
    out.is_tuple = a->is_tuple;
    return out;
}

static bool compare(struct run *r, const char *op, const struct jv *a, const struct jv *b)
{
    if (strcmp(op, "==") == 0)
        return jv_equal(r, a, b);
    if (strcmp(op, "!=") == 0)
        return !jv_equal(r, a, b);
    if (op[0] == '<')
        return op[1] ? !jv_less(r, b, a) : jv_less(r, a, b);
    return op[1] ? !jv_less(r, a, b) : jv_less(r, b, a);
}

struct jv jinja_op(struct run *r, const char *op, struct jv a, struct jv b)
{
    char sign = strcmp(op, "//") == 0 ? '/' : strcmp(op, "/") == 0 ? 'd'
                : strcmp(op, "**") == 0 ? 'p' : op[0];

    if (strcmp(op, "in") == 0)
        return jv_bool(contains(r, &b, &a));
    if (strchr("=!<>", op[0]))
        return jv_bool(compare(r, op, &a, &b));
    if (op[0] == '~')
        return join_two(r, &a, &b);
    if (jv_is_number(&a) && jv_is_number(&b))
        return number_op(r, sign, &a, &b);
    if (sign == '+')
        return add(r, &a, &b);
    if (sign == '*' && (a.kind == V_STRING || a.kind == V_LIST) && is_whole(&b))
        return repeat(r, &a, b.kind == V_INT ? b.i : b.b);
    if (sign == '*' && (b.kind == V_STRING || b.kind == V_LIST) && is_whole(&a))
        return repeat(r, &b, a.kind == V_INT ? a.i : a.b);
    if (sign == '%' && a.kind == V_STRING) {
        struct args args = {.item = &b, .n = 1};

        if (b.kind == V_LIST && b.is_tuple)
            args = (struct args){.item = b.list->item, .n = b.list->n};
        else if (b.kind == V_MAP)
            args = (struct args){.named = b.map};
        return jinja_percent(r, a, &args);
    }
    return no_op(r, op, &a, &b);
}

/* -- tests ----------------------------------------------------------------------------------- */

enum test {
    T_DEFINED, T_UNDEFINED, T_NONE, T_STRING, T_MAPPING, T_ITERABLE, T_SEQUENCE, T_NUMBER,
    T_INTEGER, T_FLOAT, T_BOOLEAN, T_TRUE, T_FALSE, T_ODD, T_EVEN, T_DIVISIBLE, T_EQ, T_NE, T_LT,
    T_LE, T_GT, T_GE, T_IN, T_LOWER, T_UPPER, T_CALLABLE, T_SAME
};

static const struct { const char *name; enum test test; } tests[] = {
    {"defined", T_DEFINED}, {"undefined", T_UNDEFINED}, {"none", T_NONE}, {"string", T_STRING},
    {"mapping", T_MAPPING}, {"iterable", T_ITERABLE}, {"sequence", T_SEQUENCE},
    {"number", T_NUMBER}, {"integer", T_INTEGER}, {"float", T_FLOAT}, {"boolean", T_BOOLEAN},
    {"true", T_TRUE}, {"false", T_FALSE}, {"odd", T_ODD}, {"even", T_EVEN},
    {"divisibleby", T_DIVISIBLE}, {"eq", T_EQ}, {"equalto", T_EQ}, {"ne", T_NE}, {"lt", T_LT},
    {"lessthan", T_LT}, {"le", T_LE}, {"gt", T_GT}, {"greaterthan", T_GT}, {"ge", T_GE},
    {"in", T_IN}, {"lower", T_LOWER}, {"upper", T_UPPER}, {"callable", T_CALLABLE},
    {"sameas", T_SAME},
};

static int find_test(const char *name)
{
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++)
        if (strcmp(tests[i].name, name) == 0)
            return (int)tests[i].test;
    return -1;
}

bool jinja_knows_test(const char *name) { return find_test(name) >= 0; }

/* Python's islower and isupper, of ASCII letters. */
static bool is_cased(const struct jv *v, char from, char to, char not_from, char not_to)
{
    bool any = false;

    for (size_t i = 0; v->kind == V_STRING && i < v->str.n; i++) {
        if (v->str.s[i] >= not_from && v->str.s[i] <= not_to)
            return false;
        any |= v->str.s[i] >= from && v->str.s[i] <= to;
    }
    return any;
}

static bool is_integer_test(struct run *r, enum test test, const struct jv *v,
                            const struct jv *by)
{
    int64_t n = test == T_DIVISIBLE ? (by->kind == V_INT ? by->i : 0) : 2, i;

    if (!is_whole(v) || n == 0 || n == -1) {
        if (is_whole(v) && n == -1)
            return true;
        jinja_fail(r, CKPT_EFORMAT, "%s is no integer to be divided", jv_type(v));
        return false;
    }
    i = v->kind == V_INT ? v->i : v->b;
    return test == T_ODD ? i % n != 0 : i % n == 0;
}

bool jinja_test(struct run *r, const char *name, const struct jv *v, const struct args *args)
{
    struct jv a = jinja_arg(args, 0, "", jv_none());
    int test = find_test(name);

    if (test < 0)
        jinja_fail(r, CKPT_EUNSUPPORTED, "no test \"%s\"", name);
    switch (test) {
    case T_DEFINED:   return v->kind != V_UNDEFINED;
    case T_UNDEFINED: return v->kind == V_UNDEFINED;
    case T_NONE:      return v->kind == V_NONE;
    case T_STRING:    return v->kind == V_STRING;
    case T_MAPPING:   return v->kind == V_MAP && !v->map->is_namespace;
    case T_SEQUENCE:
    case T_ITERABLE:  return v->kind == V_LIST || v->kind == V_MAP || v->kind == V_STRING ||
                             v->kind == V_UNDEFINED;
    case T_NUMBER:    return jv_is_number(v);
    case T_INTEGER:   return v->kind == V_INT;
    case T_FLOAT:     return v->kind == V_FLOAT;
    case T_BOOLEAN:   return v->kind == V_BOOL;
    case T_TRUE:      return v->kind == V_BOOL && v->b;
    case T_FALSE:     return v->kind == V_BOOL && !v->b;
    case T_ODD:
    case T_EVEN:
    case T_DIVISIBLE: return is_integer_test(r, (enum test)test, v, &a);
    case T_EQ:        return jv_equal(r, v, &a);
    case T_NE:        return !jv_equal(r, v, &a);
    case T_LT:        return compare(r, "<", v, &a);
    case T_LE:        return compare(r, "<=", v, &a);
    case T_GT:        return compare(r, ">", v, &a);
    case T_GE:        return compare(r, ">=", v, &a);
    case T_IN:        return contains(r, &a, v);
    case T_LOWER:     return is_cased(v, 'a', 'z', 'A', 'Z');
    case T_UPPER:     return is_cased(v, 'A', 'Z', 'a', 'z');
    case T_CALLABLE:  return v->kind == V_MACRO || v->kind == V_FUNCTION || v->kind == V_METHOD ||
                             v->kind == V_UNDEFINED;     /* as jinja's Undefined is */
    case T_SAME:      return v->kind == a.kind && jv_equal(r, v, &a);
    default:          return false;
    }
}

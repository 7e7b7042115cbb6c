/* jinja/parse - parse tokens into a flat tree; unknown constructs are refused by name and line. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "formats/jinja/parser.h"

int32_t jp_bad(struct parser *p, int code, const char *what, const char *s, size_t n)
{
    if (!p->rc)
        p->rc = ckpt_fail(p->err, code, "chat template: line %d: %s%s%.*s%s",
                          p->token[p->i].line, what, n ? " \"" : "", (int)(n > 60 ? 60 : n), s,
                          n ? "\"" : "");
    return -1;
}

int32_t jp_no_memory(struct parser *p, size_t bytes)
{
    if (!p->rc)
        p->rc = ckpt_nomem(p->err, bytes);
    return -1;
}

bool jp_enter(struct parser *p)
{
    if (++p->depth <= JINJA_MAX_DEPTH)
        return true;
    jp_bad(p, CKPT_ELIMIT, "nested too deep", "", 0);
    return false;
}

const struct token *jp_now(const struct parser *p) { return &p->token[p->i]; }

int32_t jp_wrong(struct parser *p, const char *wanted)
{
    const struct token *t = jp_now(p);

    if (t->n == 0)
        return jp_bad(p, CKPT_EFORMAT, wanted, "", 0);
    return jp_bad(p, CKPT_EFORMAT, wanted, t->s, t->n);
}

bool jp_is(const struct token *t, enum token_kind kind, const char *s)
{
    return t->kind == kind && t->n == strlen(s) && memcmp(t->s, s, t->n) == 0;
}

bool jp_accept(struct parser *p, enum token_kind kind, const char *s)
{
    if (!jp_is(jp_now(p), kind, s))
        return false;
    p->i++;
    return true;
}

bool jp_expect(struct parser *p, const char *s)
{
    if (jp_accept(p, TOK_OP, s))
        return true;
    jp_wrong(p, s[0] == ')' ? "')' is missing before" : s[0] == ']' ? "']' is missing before"
             : s[0] == '}' ? "'}' is missing before" : s[0] == ':' ? "':' is missing before"
             : s[0] == '=' ? "'=' is missing before" : "a sign is missing before");
    return false;
}

int32_t jp_new(struct parser *p, enum node_kind kind)
{
    struct jinja *t = p->t;

    if (p->rc)
        return -1;
    p->rc = ckpt_arena_reserve(&t->arena, &t->node, t->n, &t->cap, sizeof *t->node, p->err);
    if (p->rc)
        return -1;
    t->node[t->n] = (struct node){.kind = kind, .line = jp_now(p)->line, .a = -1, .b = -1, .c = -1,
                                  .d = -1, .e = -1, .next = -1};
    return (int32_t)t->n++;
}

struct node *jp_at(struct parser *p, int32_t i) { return &p->t->node[i]; }

/* Make a node with children; -1 when an error prevented one of them. */
int32_t jp_node(struct parser *p, enum node_kind kind, int32_t a, int32_t b, int32_t c)
{
    int32_t n = jp_new(p, kind);

    if (n < 0)
        return -1;
    jp_at(p, n)->a = a;
    jp_at(p, n)->b = b;
    jp_at(p, n)->c = c;
    return n;
}

static int32_t op_of(struct parser *p, const char *op, int32_t a, int32_t b)
{
    int32_t n = jp_node(p, N_OP, a, b, -1);

    if (n >= 0)
        jp_at(p, n)->name = op;
    return n;
}

static int32_t const_of(struct parser *p, struct jv v)
{
    int32_t n = jp_new(p, N_CONST);

    if (n >= 0)
        jp_at(p, n)->value = v;
    return n;
}

/* Copy a name to a string. */
bool jp_name(struct parser *p, int32_t n, const struct token *t)
{
    if (n < 0)
        return false;
    jp_at(p, n)->name = ckpt_arena_strndup(&p->t->arena, t->s, t->n);
    jp_at(p, n)->n_name = t->n;
    if (!jp_at(p, n)->name)
        jp_no_memory(p, t->n);
    return jp_at(p, n)->name != NULL;
}

/* Append a node to a chain: sets first if it is empty, and moves *last. */
void jp_chain(struct parser *p, int32_t *first, int32_t *last, int32_t n)
{
    if (n < 0)
        return;
    if (*first < 0)
        *first = n;
    else
        jp_at(p, *last)->next = n;
    *last = n;
}

/* -- expressions ----------------------------------------------------------------------------- */

/* Parse arguments up to the closing parenthesis, from after the opening one. */
int32_t jp_args(struct parser *p)
{
    int32_t first = -1, last = -1, value;

    while (!p->rc && !jp_accept(p, TOK_OP, ")")) {
        if (first >= 0 && !jp_expect(p, ","))
            return -1;
        if (jp_accept(p, TOK_OP, ")"))
            break;
        if (jp_is(jp_now(p), TOK_OP, "*") || jp_is(jp_now(p), TOK_OP, "**")) {
            int32_t n = jp_new(p, jp_now(p)->n == 1 ? N_STAR : N_STARS);

            p->i++;
            value = jp_expr(p);
            if (p->rc)
                return -1;
            jp_at(p, n)->a = value;
            jp_chain(p, &first, &last, n);
        } else if (jp_now(p)->kind == TOK_NAME && jp_is(&p->token[p->i + 1], TOK_OP, "=")) {
            int32_t n = jp_new(p, N_KEYWORD);

            if (!jp_name(p, n, jp_now(p)))
                return -1;
            p->i += 2;
            value = jp_expr(p);
            jp_at(p, n)->a = value;
            jp_chain(p, &first, &last, n);
        } else {
            /* In a separate node, since an expression may be shared. */
            value = jp_expr(p);
            jp_chain(p, &first, &last, jp_node(p, N_PLUS, value, -1, -1));
        }
    }
    return first;
}

/* Parse items up to close; each is wrapped so that it can be chained. */
static int32_t parse_items(struct parser *p, const char *close, bool is_map)
{
    int32_t first = -1, last = -1;

    while (!p->rc && !jp_accept(p, TOK_OP, close)) {
        if (first >= 0 && !jp_expect(p, ","))
            return -1;
        if (jp_accept(p, TOK_OP, close))
            break;
        jp_chain(p, &first, &last, jp_node(p, N_PLUS, jp_expr(p), -1, -1));
        if (is_map && jp_expect(p, ":"))
            jp_chain(p, &first, &last, jp_node(p, N_PLUS, jp_expr(p), -1, -1));
    }
    return first;
}

static int32_t parse_parens(struct parser *p)
{
    int32_t first = -1, last = -1, n;
    bool tuple = false;

    if (jp_accept(p, TOK_OP, ")")) {
        n = jp_new(p, N_LIST);
        if (n >= 0)
            jp_at(p, n)->value.is_tuple = true;
        return n;
    }
    n = jp_expr(p);
    while (!p->rc && jp_accept(p, TOK_OP, ",")) {
        if (!tuple)
            jp_chain(p, &first, &last, jp_node(p, N_PLUS, n, -1, -1));
        tuple = true;
        if (jp_is(jp_now(p), TOK_OP, ")"))
            break;
        jp_chain(p, &first, &last, jp_node(p, N_PLUS, jp_expr(p), -1, -1));
    }
    if (!jp_expect(p, ")"))
        return -1;
    if (!tuple)
        return n;
    n = jp_node(p, N_LIST, first, -1, -1);
    if (n >= 0)
        jp_at(p, n)->value.is_tuple = true;
    return n;
}

static int32_t parse_number(struct parser *p)
{
    const struct token *t = &p->token[p->i++];
    char text[40], *end;
    struct jv v;
    size_t n = 0;

    for (size_t i = 0; i < t->n && n < sizeof text - 1; i++)
        if (t->s[i] != '_')
            text[n++] = t->s[i];
    text[n] = '\0';
    errno = 0;
    if (t->kind == TOK_FLOAT) {
        v = (struct jv){.kind = V_FLOAT, .d = strtod(text, &end)};
        errno = 0;                      /* a value out of range is infinite, as in Python */
    } else {
        v = jv_int(strtoll(text, &end, 10));
    }
    return *end || errno ? jp_bad(p, CKPT_EFORMAT, "no number", t->s, t->n) : const_of(p, v);
}

/* Concatenate adjacent strings. */
static int32_t parse_string(struct parser *p)
{
    struct ckpt_buf b;
    char *text;
    size_t n;

    ckpt_buf_init(&b, JINJA_MAX_TEMPLATE);
    while (jp_now(p)->kind == TOK_STRING) {
        ckpt_buf_put(&b, jp_now(p)->s, jp_now(p)->n);
        p->i++;
    }
    n = b.len;
    text = ckpt_arena_strndup(&p->t->arena, n ? (const char *)b.data : "", n);
    ckpt_buf_release(&b);
    if (!text)
        return jp_no_memory(p, n);
    return const_of(p, jv_str(text, n));
}

static int32_t parse_name(struct parser *p)
{
    static const struct { const char *word; enum jv_kind kind; bool b; } words[] = {
        {"true", V_BOOL, true}, {"True", V_BOOL, true}, {"false", V_BOOL, false},
        {"False", V_BOOL, false}, {"none", V_NONE, false}, {"None", V_NONE, false},
    };
    const struct token *t = &p->token[p->i++];
    int32_t n;

    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (jp_is(t, TOK_NAME, words[i].word))
            return const_of(p, (struct jv){.kind = words[i].kind, .b = words[i].b});
    n = jp_new(p, N_NAME);
    return jp_name(p, n, t) ? n : -1;
}

static int32_t parse_primary(struct parser *p)
{
    const struct token *t = jp_now(p);

    if (t->kind == TOK_STRING)
        return parse_string(p);
    if (t->kind == TOK_INT || t->kind == TOK_FLOAT)
        return parse_number(p);
    if (t->kind == TOK_NAME)
        return parse_name(p);
    if (jp_accept(p, TOK_OP, "("))
        return parse_parens(p);
    if (jp_accept(p, TOK_OP, "["))
        return jp_node(p, N_LIST, parse_items(p, "]", false), -1, -1);
    if (jp_accept(p, TOK_OP, "{"))
        return jp_node(p, N_MAP, parse_items(p, "}", true), -1, -1);
    return jp_wrong(p, "a value is missing before");
}

/* "[...]" after value n. */
static int32_t parse_subscript(struct parser *p, int32_t n)
{
    int32_t part[3] = {-1, -1, -1}, made;
    int k = 0;

    for (; k < 3 && !p->rc; k++) {
        if (!jp_is(jp_now(p), TOK_OP, ":") && !jp_is(jp_now(p), TOK_OP, "]"))
            part[k] = jp_expr(p);
        if (!jp_accept(p, TOK_OP, ":"))
            break;
    }
    if (!jp_expect(p, "]"))
        return -1;
    if (k == 0)
        return part[0] < 0 ? jp_wrong(p, "an index is missing before")
                           : jp_node(p, N_ITEM, n, part[0], -1);
    made = jp_node(p, N_SLICE, n, part[0], part[1]);
    if (made >= 0)
        jp_at(p, made)->d = part[2];
    return made;
}

/* Whether this place is in a branch: of a statement, or of an "if" in the same tag. */
static bool may_be_unused(const struct parser *p)
{
    const struct token *t = jp_now(p);

    while (!p->soft && t->kind >= TOK_NAME && t->kind < TOK_END && !jp_is(t, TOK_NAME, "if"))
        t++;
    return p->soft || jp_is(t, TOK_NAME, "if");
}

int32_t jp_filter(struct parser *p, int32_t n)
{
    const struct token *t = jp_now(p);
    int32_t made, args;

    if (t->kind != TOK_NAME)
        return jp_wrong(p, "a filter's name is missing before");
    made = jp_node(p, N_FILTER, n, -1, -1);
    if (!jp_name(p, made, t))
        return -1;
    if (!jinja_knows_filter(jp_at(p, made)->name) && !may_be_unused(p))
        return jp_bad(p, CKPT_EUNSUPPORTED, "no filter", t->s, t->n);
    p->i++;
    if (jp_accept(p, TOK_OP, "(")) {
        args = jp_args(p);
        jp_at(p, made)->b = args;
    }
    return made;
}

static bool starts_argument(const struct token *t)
{
    static const char *const words[] = {"else", "and", "or", "is", "not", "in", "if"};

    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (jp_is(t, TOK_NAME, words[i]))
            return false;
    return t->kind == TOK_NAME || t->kind == TOK_STRING || t->kind == TOK_INT ||
           t->kind == TOK_FLOAT || jp_is(t, TOK_OP, "[") || jp_is(t, TOK_OP, "{");
}

static int32_t parse_postfix(struct parser *p, int32_t n);

/* After "is". */
static int32_t parse_test(struct parser *p, int32_t n)
{
    bool negate = jp_accept(p, TOK_NAME, "not");
    const struct token *t = jp_now(p);
    int32_t made, args = -1;

    if (t->kind != TOK_NAME)
        return jp_wrong(p, "a test's name is missing before");
    made = jp_node(p, N_TEST, n, -1, -1);
    if (!jp_name(p, made, t))
        return -1;
    if (!jinja_knows_test(jp_at(p, made)->name) && !may_be_unused(p))
        return jp_bad(p, CKPT_EUNSUPPORTED, "no test", t->s, t->n);
    p->i++;
    if (jp_accept(p, TOK_OP, "("))
        args = jp_args(p);
    else if (starts_argument(jp_now(p)))
        args = jp_node(p, N_PLUS, parse_postfix(p, parse_primary(p)), -1, -1);
    if (made >= 0 && !p->rc)
        jp_at(p, made)->b = args;
    return negate ? jp_node(p, N_NOT, made, -1, -1) : made;
}

static int32_t parse_postfix(struct parser *p, int32_t n)
{
    while (!p->rc) {
        int32_t made;

        if (jp_accept(p, TOK_OP, ".")) {
            if (jp_now(p)->kind != TOK_NAME && jp_now(p)->kind != TOK_INT)
                return jp_wrong(p, "a name is missing before");
            if (jp_now(p)->kind == TOK_INT) {
                n = jp_node(p, N_ITEM, n, parse_number(p), -1);
                continue;
            }
            made = jp_node(p, N_ATTR, n, -1, -1);
            if (!jp_name(p, made, jp_now(p)))
                return -1;
            p->i++;
            n = made;
        } else if (jp_accept(p, TOK_OP, "[")) {
            n = parse_subscript(p, n);
        } else if (jp_accept(p, TOK_OP, "(")) {
            n = jp_node(p, N_CALL, n, jp_args(p), -1);
        } else {
            break;
        }
    }
    return n;
}

/* Unary signs, then postfix, filters and tests, as jinja binds them. */
static int32_t parse_unary(struct parser *p, bool with_filters)
{
    int32_t n;

    if (!jp_enter(p))
        return -1;
    if (jp_accept(p, TOK_OP, "-"))
        n = jp_node(p, N_NEGATE, parse_unary(p, false), -1, -1);
    else if (jp_accept(p, TOK_OP, "+"))
        n = jp_node(p, N_PLUS, parse_unary(p, false), -1, -1);
    else
        n = parse_postfix(p, parse_primary(p));
    if (!p->rc && jp_accept(p, TOK_OP, "**"))
        n = op_of(p, "**", n, parse_unary(p, false));
    while (with_filters && !p->rc) {
        if (jp_accept(p, TOK_OP, "|"))
            n = jp_filter(p, n);
        else if (jp_accept(p, TOK_NAME, "is"))
            n = parse_test(p, n);
        else if (jp_is(jp_now(p), TOK_OP, "("))
            n = parse_postfix(p, n);
        else
            break;
    }
    p->depth--;
    return n;
}

/* Levels of binary operators, loosest binding first. */
static const char *const levels[][5] = {
    {"+", "-", NULL}, {"~", NULL}, {"*", "/", "//", "%", NULL},
};

static int32_t parse_binary(struct parser *p, size_t level)
{
    int32_t n;

    if (level == sizeof levels / sizeof *levels)
        return parse_unary(p, true);
    n = parse_binary(p, level + 1);
    while (!p->rc) {
        size_t k;

        for (k = 0; levels[level][k] && !jp_is(jp_now(p), TOK_OP, levels[level][k]); k++)
            ;
        if (!levels[level][k])
            return n;
        p->i++;
        n = op_of(p, levels[level][k], n, parse_binary(p, level + 1));
    }
    return n;
}

/* a < b < c is (a < b) and (b < c). */
static int32_t parse_compare(struct parser *p)
{
    static const char *const ops[] = {"==", "!=", "<", "<=", ">", ">="};
    int32_t left = parse_binary(p, 0), all = -1;

    while (!p->rc) {
        const char *op = NULL;
        int32_t right, one;
        bool negate = false;

        for (size_t k = 0; k < 6 && !op; k++)
            op = jp_accept(p, TOK_OP, ops[k]) ? ops[k] : NULL;
        if (!op && jp_accept(p, TOK_NAME, "in"))
            op = "in";
        if (!op && jp_is(jp_now(p), TOK_NAME, "not") &&
            jp_is(&p->token[p->i + 1], TOK_NAME, "in")) {
            p->i += 2;
            op = "in";
            negate = true;
        }
        if (!op)
            break;
        right = parse_binary(p, 0);
        one = op_of(p, op, left, right);
        if (negate)
            one = jp_node(p, N_NOT, one, -1, -1);
        all = all < 0 ? one : jp_node(p, N_AND, all, one, -1);
        left = right;
    }
    return all < 0 ? left : all;
}

static int32_t parse_not(struct parser *p)
{
    int32_t n;

    if (!jp_accept(p, TOK_NAME, "not"))
        return parse_compare(p);
    if (!jp_enter(p))
        return -1;
    n = jp_node(p, N_NOT, parse_not(p), -1, -1);
    p->depth--;
    return n;
}

static int32_t parse_and(struct parser *p)
{
    int32_t n = parse_not(p);

    while (!p->rc && jp_accept(p, TOK_NAME, "and"))
        n = jp_node(p, N_AND, n, parse_not(p), -1);
    return n;
}

int32_t jp_or(struct parser *p)
{
    int32_t n = parse_and(p);

    while (!p->rc && jp_accept(p, TOK_NAME, "or"))
        n = jp_node(p, N_OR, n, parse_and(p), -1);
    return n;
}

int32_t jp_expr(struct parser *p)
{
    int32_t n, condition, otherwise;

    if (!jp_enter(p))
        return -1;
    n = jp_or(p);
    while (!p->rc && jp_accept(p, TOK_NAME, "if")) {
        bool before = p->soft;

        p->soft = true;
        condition = jp_or(p);
        otherwise = !p->rc && jp_accept(p, TOK_NAME, "else") ? jp_expr(p) : -1;
        n = jp_node(p, N_COND, condition, n, otherwise);
        p->soft = before;
    }
    p->depth--;
    return n;
}


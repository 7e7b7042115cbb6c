/* jinja/block - statements of a template into the flat tree. */
#include <string.h>

#include "formats/jinja/parser.h"

static int32_t parse_body(struct parser *p, const char *const *ends);

static bool end_block(struct parser *p)
{
    if (jp_now(p)->kind == TOK_BLOCK_END) {
        p->i++;
        return true;
    }
    jp_wrong(p, "\"%}\" is missing before");
    return false;
}

/* Parse "{% name %}", from its name on. */
static bool close_with(struct parser *p, const char *name)
{
    if (jp_accept(p, TOK_NAME, name))
        return end_block(p);
    jp_bad(p, CKPT_EFORMAT, "a block without its", name, strlen(name));
    return false;
}

/* Parse the rest of a tag, statements, and "{% end %}"; false on failure. */
static bool parse_inside(struct parser *p, const char *end, int32_t *body)
{
    const char *const ends[] = {end, NULL};

    if (p->rc || !end_block(p))
        return false;
    *body = parse_body(p, ends);
    return !p->rc && close_with(p, end);
}

/* Names with commas between, chained. */
static int32_t parse_targets(struct parser *p)
{
    int32_t first = -1, last = -1, n;
    bool paren = jp_accept(p, TOK_OP, "(");

    do {
        if (jp_now(p)->kind != TOK_NAME)
            return jp_wrong(p, "a variable's name is missing before");
        n = jp_new(p, N_NAME);
        if (!jp_name(p, n, jp_now(p)))
            return -1;
        p->i++;
        if (jp_accept(p, TOK_OP, ".")) {
            int32_t attr = jp_node(p, N_ATTR, n, -1, -1);

            if (jp_now(p)->kind != TOK_NAME || !jp_name(p, attr, jp_now(p)))
                return jp_wrong(p, "a name is missing before");
            p->i++;
            n = attr;
        }
        jp_chain(p, &first, &last, n);
    } while (!p->rc && jp_accept(p, TOK_OP, ","));
    if (paren && !jp_expect(p, ")"))
        return -1;
    return first;
}

static int32_t parse_branches(struct parser *p)
{
    static const char *const ends[] = {"elif", "else", "endif", NULL};
    int32_t n = jp_new(p, N_IF), condition = jp_expr(p), then = -1, otherwise = -1;

    if (p->rc || !end_block(p))
        return -1;
    then = parse_body(p, ends);
    if (p->rc)
        return -1;
    if (!jp_enter(p))
        return -1;
    if (jp_accept(p, TOK_NAME, "elif")) {
        otherwise = parse_branches(p);
    } else if (jp_accept(p, TOK_NAME, "else")) {
        parse_inside(p, "endif", &otherwise);
    } else {
        close_with(p, "endif");
    }
    p->depth--;
    if (p->rc)
        return -1;
    jp_at(p, n)->a = condition;
    jp_at(p, n)->b = then;
    jp_at(p, n)->c = otherwise;
    return n;
}

/* As in jinja, a filter or test that is unknown is an error where it is used, not where it stands:
 * templates ask first what the renderer has. */
static int32_t parse_if(struct parser *p)
{
    bool before = p->soft;
    int32_t n;

    p->soft = true;
    n = parse_branches(p);
    p->soft = before;
    return n;
}

static int32_t parse_for(struct parser *p)
{
    static const char *const ends[] = {"else", "endfor", NULL}, *const end[] = {"endfor", NULL};
    int32_t n = jp_new(p, N_FOR), targets = parse_targets(p), list, where = -1, body, other = -1;

    if (p->rc || !jp_accept(p, TOK_NAME, "in"))
        return jp_wrong(p, "\"in\" is missing before");
    /* Without the ternary, which would consume the filter's if. */
    p->loops++;
    list = jp_or(p);
    if (jp_accept(p, TOK_NAME, "if"))
        where = jp_expr(p);
    if (jp_accept(p, TOK_NAME, "recursive"))
        return jp_bad(p, CKPT_EUNSUPPORTED, "a recursive loop", "", 0);
    if (p->rc || !end_block(p))
        return -1;
    body = parse_body(p, ends);
    p->loops--;
    if (!p->rc && jp_accept(p, TOK_NAME, "else") && end_block(p))
        other = parse_body(p, end);
    if (p->rc || !close_with(p, "endfor"))
        return -1;
    jp_at(p, n)->a = targets;
    jp_at(p, n)->b = list;
    jp_at(p, n)->c = body;
    jp_at(p, n)->d = where;
    jp_at(p, n)->e = other;
    return n;
}

static int32_t parse_set(struct parser *p)
{
    int32_t targets = parse_targets(p), n, value;

    if (p->rc)
        return -1;
    if (jp_accept(p, TOK_OP, "=")) {
        value = jp_expr(p);
        if (!p->rc && jp_is(jp_now(p), TOK_OP, ",")) {
            int32_t first = -1, last = -1;

            jp_chain(p, &first, &last, jp_node(p, N_PLUS, value, -1, -1));
            while (jp_accept(p, TOK_OP, ",") && jp_now(p)->kind != TOK_BLOCK_END)
                jp_chain(p, &first, &last, jp_node(p, N_PLUS, jp_expr(p), -1, -1));
            value = jp_node(p, N_LIST, first, -1, -1);
            if (value >= 0)
                jp_at(p, value)->value.is_tuple = true;
        }
        n = jp_node(p, N_SET, targets, value, -1);
        return !p->rc && end_block(p) ? n : -1;
    }
    if (jp_is(jp_now(p), TOK_OP, "|"))
        return jp_bad(p, CKPT_EUNSUPPORTED, "set with a filter", "", 0);
    n = jp_node(p, N_SET_BLOCK, targets, -1, -1);
    if (!parse_inside(p, "endset", &value))
        return -1;
    jp_at(p, n)->c = value;
    return n;
}

static int32_t parse_macro(struct parser *p)
{
    int32_t n = jp_new(p, N_MACRO), first = -1, last = -1, body, value;
    int loops = p->loops;

    if (jp_now(p)->kind != TOK_NAME || !jp_name(p, n, jp_now(p)))
        return jp_wrong(p, "a macro's name is missing before");
    p->i++;
    if (!jp_expect(p, "("))
        return -1;
    while (!p->rc && !jp_accept(p, TOK_OP, ")")) {
        int32_t param = jp_new(p, N_KEYWORD);

        if (jp_now(p)->kind != TOK_NAME || !jp_name(p, param, jp_now(p)))
            return jp_wrong(p, "a parameter is missing before");
        p->i++;
        if (jp_accept(p, TOK_OP, "=")) {
            value = jp_expr(p);
            jp_at(p, param)->a = value;
        }
        jp_chain(p, &first, &last, param);
        if (!jp_is(jp_now(p), TOK_OP, ")") && !jp_expect(p, ","))
            return -1;
    }
    p->loops = 0;
    if (!parse_inside(p, "endmacro", &body))
        return -1;
    p->loops = loops;
    jp_at(p, n)->a = first;
    jp_at(p, n)->c = body;
    return n;
}

/* Parse a block that only wraps its content, or applies a filter to it. */
static int32_t parse_wrapped(struct parser *p, enum node_kind kind, const char *end)
{
    int32_t n = jp_new(p, kind), filter = -1, body;

    if (kind == N_FILTER_BLOCK)
        filter = jp_filter(p, -1);
    if (!parse_inside(p, end, &body))
        return -1;
    jp_at(p, n)->a = filter;
    jp_at(p, n)->c = body;
    return n;
}

static int32_t parse_statement(struct parser *p)
{
    const struct token *t = jp_now(p);
    int32_t n;

    if (jp_accept(p, TOK_NAME, "if"))
        return parse_if(p);
    if (jp_accept(p, TOK_NAME, "for"))
        return parse_for(p);
    if (jp_accept(p, TOK_NAME, "set"))
        return parse_set(p);
    if (jp_accept(p, TOK_NAME, "macro"))
        return parse_macro(p);
    if (jp_accept(p, TOK_NAME, "generation"))
        return parse_wrapped(p, N_GENERATION, "endgeneration");
    if (jp_accept(p, TOK_NAME, "filter"))
        return parse_wrapped(p, N_FILTER_BLOCK, "endfilter");
    if (jp_is(t, TOK_NAME, "break") || jp_is(t, TOK_NAME, "continue")) {
        n = jp_new(p, t->n == 5 ? N_BREAK : N_CONTINUE);
        p->i++;
        if (p->loops == 0)
            return jp_bad(p, CKPT_EFORMAT, "outside a loop:", t->s, t->n);
        return end_block(p) ? n : -1;
    }
    return t->kind == TOK_NAME ? jp_bad(p, CKPT_EUNSUPPORTED, "no statement", t->s, t->n)
                               : jp_wrong(p, "a statement is missing before");
}

/* Parse up to a block whose name is in ends, leaving the parser there; ends NULL: to the end. */
static int32_t parse_body(struct parser *p, const char *const *ends)
{
    int32_t first = -1, last = -1, n;

    if (!jp_enter(p))
        return -1;
    while (!p->rc) {
        const struct token *t = jp_now(p);

        if (t->kind == TOK_END) {
            if (ends)
                return jp_bad(p, CKPT_EFORMAT, "the template ends before its", ends[0],
                              strlen(ends[0]));
            break;
        }
        p->i++;
        if (t->kind == TOK_TEXT) {
            n = jp_new(p, N_TEXT);
            if (n >= 0)
                jp_at(p, n)->value = jv_str(t->s, t->n);
        } else if (t->kind == TOK_VAR) {
            n = jp_node(p, N_PRINT, jp_expr(p), -1, -1);
            if (!p->rc && jp_now(p)->kind != TOK_VAR_END)
                return jp_wrong(p, "\"}}\" is missing before");
            p->i++;
        } else {
            for (size_t k = 0; ends && ends[k]; k++)
                if (jp_is(jp_now(p), TOK_NAME, ends[k])) {
                    p->depth--;
                    return first;
                }
            n = parse_statement(p);
        }
        jp_chain(p, &first, &last, n);
    }
    p->depth--;
    return first;
}

int jinja_parse(struct jinja **out, const char *text, size_t len, struct ckpt_err *err)
{
    struct parser p = {.err = err};
    struct token *token = NULL;
    size_t n;

    *out = NULL;
    if (len > JINJA_MAX_TEMPLATE)
        return ckpt_fail(err, CKPT_ELIMIT, "chat template: %zu bytes, the limit is %zu", len,
                         JINJA_MAX_TEMPLATE);
    if (!ckpt_utf8_valid(text, len))
        return ckpt_fail(err, CKPT_EFORMAT, "chat template: not UTF-8 text");
    p.t = ckpt_alloc(1, sizeof *p.t);
    if (!p.t)
        return ckpt_nomem(err, sizeof *p.t);
    p.rc = jinja_lex(&token, &n, text, len, &p.t->arena, err);
    p.token = token;
    if (p.rc == 0)
        p.t->root = parse_body(&p, NULL);
    if (p.rc)
        jinja_free(p.t);
    else
        *out = p.t;
    return p.rc;
}

void jinja_free(struct jinja *t)
{
    if (!t)
        return;
    ckpt_arena_release(&t->arena);
    ckpt_free(t);
}

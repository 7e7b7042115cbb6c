/* jinja/lex - a template's text into tokens; white space as trim_blocks and lstrip_blocks say. */
#include <string.h>

#include "formats/jinja/parts.h"

struct lexer {
    const char        *s;
    size_t             i, n;
    int                line;
    bool               at_line_start;       /* the last tag consumed the end of its line */
    bool               strip;               /* the last tag ended in "-": strip following white
                                               space */
    struct token      *token;
    size_t             n_token, cap;
    struct ckpt_arena *arena;
    struct ckpt_err   *err;
};

static int broken(struct lexer *l, const char *what)
{
    return ckpt_fail(l->err, CKPT_EFORMAT, "chat template: line %d: %s", l->line, what);
}

static int add(struct lexer *l, enum token_kind kind, const char *s, size_t n)
{
    int rc = ckpt_arena_reserve(l->arena, &l->token, l->n_token, &l->cap, sizeof *l->token, l->err);

    if (rc == 0)
        l->token[l->n_token++] = (struct token){kind, s, n, l->line};
    return rc;
}

static void count_lines(struct lexer *l, size_t from, size_t to)
{
    for (size_t i = from; i < to; i++)
        l->line += l->s[i] == '\n';
}

static bool is_space(char c) { return c && strchr(" \t\n\r\f\v", c); }

static bool is_at(const struct lexer *l, size_t i, const char *what)
{
    size_t n = strlen(what);

    return n <= l->n - i && memcmp(l->s + i, what, n) == 0;
}

/* The next "{{", "{%" or "{#", or the end. */
static size_t find_tag(const struct lexer *l)
{
    for (size_t i = l->i; i + 1 < l->n; i++)
        if (l->s[i] == '{' && (l->s[i + 1] == '{' || l->s[i + 1] == '%' || l->s[i + 1] == '#'))
            return i;
    return l->n;
}

/* Add text [l->i, tag) as a token, without white space that adjacent tags strip. */
static int add_text(struct lexer *l, size_t tag)
{
    size_t from = l->i, to = tag, at;
    char mark = tag + 2 < l->n ? l->s[tag + 2] : '\0';
    int rc;

    while (l->strip && from < to && is_space(l->s[from]))
        from++;
    if (tag < l->n && mark == '-') {
        while (to > from && is_space(l->s[to - 1]))
            to--;
    } else if (tag < l->n && mark != '+' && l->s[tag + 1] != '{') {
        for (at = to; at > from && (l->s[at - 1] == ' ' || l->s[at - 1] == '\t'); at--)
            ;
        if (at > from ? l->s[at - 1] == '\n' : from == l->i && l->at_line_start)
            to = at;
    }
    if (to > from && (rc = add(l, TOK_TEXT, l->s + from, to - from)) != 0)
        return rc;
    count_lines(l, l->i, tag);
    l->i = tag;
    l->strip = l->at_line_start = false;
    return 0;
}

/* After a tag: strip what "-" and trim_blocks strip. */
static void end_tag(struct lexer *l, bool minus, bool plus, bool is_var)
{
    l->strip = minus;
    if (!minus && !plus && !is_var && l->i < l->n && l->s[l->i] == '\n') {
        l->i++;
        l->line++;
        l->at_line_start = true;
    }
}

static int lex_comment(struct lexer *l)
{
    size_t at = l->i + 2;

    while (at + 1 < l->n && !is_at(l, at, "#}"))
        at++;
    if (at + 1 >= l->n)
        return broken(l, "a comment without end");
    count_lines(l, l->i, at);
    l->i = at + 2;
    end_tag(l, at > 0 && l->s[at - 1] == '-', l->s[at - 1] == '+', false);
    return 0;
}

static int hex_of(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

static size_t put_utf8(char *to, uint32_t c)
{
    if (c < 0x80) {
        to[0] = (char)c;
        return 1;
    }
    if (c < 0x800) {
        to[0] = (char)(0xc0 | c >> 6);
        to[1] = (char)(0x80 | (c & 63));
        return 2;
    }
    if (c < 0x10000) {
        to[0] = (char)(0xe0 | c >> 12);
        to[1] = (char)(0x80 | (c >> 6 & 63));
        to[2] = (char)(0x80 | (c & 63));
        return 3;
    }
    to[0] = (char)(0xf0 | c >> 18);
    to[1] = (char)(0x80 | (c >> 12 & 63));
    to[2] = (char)(0x80 | (c >> 6 & 63));
    to[3] = (char)(0x80 | (c & 63));
    return 4;
}

/* Decode "\n" and the like, with the backslash at l->i; escapes unknown to Python are kept. */
static int unescape(struct lexer *l, char *to, size_t *n)
{
    static const char from[] = "ntrbfav\\'\"", value[] = "\n\t\r\b\f\a\v\\'\"";
    char c = l->i + 1 < l->n ? l->s[l->i + 1] : '\0';
    const char *at = c ? strchr(from, c) : NULL;
    unsigned digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    uint32_t code = 0;

    l->i += 2;
    if (c == '\n') {
        l->line++;
        return 0;
    }
    if (at) {
        to[(*n)++] = value[at - from];
        return 0;
    }
    if (digits == 0) {
        to[(*n)++] = '\\';
        l->i--;
        return 0;
    }
    for (unsigned k = 0; k < digits; k++, l->i++) {
        int v = l->i < l->n ? hex_of(l->s[l->i]) : -1;

        if (v < 0)
            return broken(l, "an escape without its digits");
        code = code << 4 | (uint32_t)v;
    }
    if (code == 0 || code > 0x10ffff || (code >= 0xd800 && code < 0xe000))
        return broken(l, "an escape of no character");
    *n += put_utf8(to + *n, code);
    return 0;
}

static int lex_string(struct lexer *l)
{
    char quote = l->s[l->i++], *text;
    size_t from = l->i, end = from, n = 0;
    int rc;

    while (end < l->n && l->s[end] != quote)
        end += l->s[end] == '\\' ? 2 : 1;
    if (end >= l->n)
        return broken(l, "a string without end");
    text = ckpt_arena_alloc(l->arena, end - from + 1, 1);
    if (!text)
        return ckpt_nomem(l->err, end - from);
    while (l->i < end) {
        if (l->s[l->i] == '\\') {
            if ((rc = unescape(l, text, &n)) != 0)
                return rc;
        } else {
            l->line += l->s[l->i] == '\n';
            text[n++] = l->s[l->i++];
        }
    }
    l->i = end + 1;
    return add(l, TOK_STRING, text, n);
}

static bool is_word(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || (c >= '0' && c <= '9');
}

static int lex_number(struct lexer *l)
{
    size_t from = l->i;
    bool real = false;

    while (l->i < l->n) {
        char c = l->s[l->i], next = l->i + 1 < l->n ? l->s[l->i + 1] : '\0';

        if (c == '.' && !real && next >= '0' && next <= '9')
            real = true;
        else if ((c == 'e' || c == 'E') && ((next >= '0' && next <= '9') ||
                 ((next == '-' || next == '+') && is_word(l->i + 2 < l->n ? l->s[l->i + 2] : 0))))
            real = true, l->i++;
        else if (!is_word(c))
            break;
        l->i++;
    }
    if (l->i - from > 30)
        return broken(l, "a number of too many digits");
    return add(l, real ? TOK_FLOAT : TOK_INT, l->s + from, l->i - from);
}

/* One token inside a tag. */
static int lex_one(struct lexer *l)
{
    static const char *const ops[] = {"==", "!=", ">=", "<=", "//", "**"};
    char c = l->s[l->i];
    size_t from = l->i;

    if (c == '"' || c == '\'')
        return lex_string(l);
    if (c >= '0' && c <= '9')
        return lex_number(l);
    if (is_word(c)) {
        while (l->i < l->n && is_word(l->s[l->i]))
            l->i++;
        return add(l, TOK_NAME, l->s + from, l->i - from);
    }
    for (size_t k = 0; k < sizeof ops / sizeof *ops; k++)
        if (is_at(l, l->i, ops[k])) {
            l->i += 2;
            return add(l, TOK_OP, ops[k], 2);
        }
    if (!c || !strchr("+-*/%~<>=.:|,()[]{}", c))
        return broken(l, "a byte that is no part of an expression");
    l->i++;
    return add(l, TOK_OP, l->s + from, 1);
}

/* Lex the inside of "{{ }}" or "{% %}", from its first byte. */
static int lex_tag(struct lexer *l)
{
    bool is_var = l->s[l->i + 1] == '{';
    const char *close = is_var ? "}}" : "%}";
    int nested = 0;
    int rc;

    if ((rc = add(l, is_var ? TOK_VAR : TOK_BLOCK, "", 0)) != 0)
        return rc;
    l->i += 2;
    if (l->i < l->n && (l->s[l->i] == '-' || l->s[l->i] == '+'))
        l->i++;
    while (l->i < l->n) {
        bool marked = l->s[l->i] == '-' || (l->s[l->i] == '+' && !is_var);
        char mark = l->s[l->i];

        if (is_space(mark)) {
            l->line += mark == '\n';
            l->i++;
            continue;
        }
        if (nested == 0 && (is_at(l, l->i, close) || (marked && is_at(l, l->i + 1, close)))) {
            l->i += marked ? 3 : 2;
            end_tag(l, marked && mark == '-', marked && mark == '+', is_var);
            return add(l, is_var ? TOK_VAR_END : TOK_BLOCK_END, "", 0);
        }
        nested += mark == '{' || mark == '(' || mark == '[';
        nested -= nested > 0 && (mark == '}' || mark == ')' || mark == ']');
        if ((rc = lex_one(l)) != 0)
            return rc;
    }
    return broken(l, "a tag without end");
}

/* The end of a tag at `at` that holds only this word; 0: it is no such tag.  sign: before "%}". */
static size_t word_tag(const struct lexer *l, size_t at, const char *word, char *sign)
{
    if (!is_at(l, at, "{%"))
        return 0;
    at += 2;
    at += at < l->n && (l->s[at] == '-' || l->s[at] == '+');
    while (at < l->n && is_space(l->s[at]))
        at++;
    if (!is_at(l, at, word))
        return 0;
    at += strlen(word);
    while (at < l->n && is_space(l->s[at]))
        at++;
    *sign = at < l->n ? l->s[at] : '\0';
    at += *sign == '-' || *sign == '+';
    return is_at(l, at, "%}") ? at + 2 : 0;
}

/* Lex "{% raw %}...{% endraw %}", from "{%": its inside is text.  trim_blocks leaves the line's end
 * after the first tag. */
static int lex_raw(struct lexer *l, bool *taken)
{
    char sign = '\0';
    size_t from = word_tag(l, l->i, "raw", &sign), end = from, after = 0;
    int rc;

    *taken = from > 0 && sign != '+';
    if (!*taken)
        return 0;
    count_lines(l, l->i, from);
    l->i = from;
    end_tag(l, sign == '-', true, false);
    while (end < l->n && !(after = word_tag(l, end, "endraw", &sign)))
        end++;
    if (!after)
        return broken(l, "raw without endraw");
    if ((rc = add_text(l, end)) != 0)
        return rc;
    count_lines(l, l->i, after);
    l->i = after;
    end_tag(l, sign == '-', sign == '+', false);
    return 0;
}

int jinja_lex(struct token **out, size_t *n, const char *text, size_t len,
              struct ckpt_arena *arena, struct ckpt_err *err)
{
    struct lexer l = {.line = 1, .at_line_start = true, .arena = arena, .err = err};
    char *plain = ckpt_arena_alloc(arena, len + 1, 1);
    bool taken;
    int rc = plain ? 0 : ckpt_nomem(err, len + 1);

    /* Normalise line ends to "\n", and drop one at the end, as jinja does. */
    for (size_t i = 0; rc == 0 && i < len; i++) {
        plain[l.n++] = text[i] == '\r' ? '\n' : text[i];
        i += text[i] == '\r' && i + 1 < len && text[i + 1] == '\n';
    }
    if (l.n > 0 && plain[l.n - 1] == '\n')
        l.n--;
    l.s = plain;
    while (rc == 0 && l.i < l.n) {
        rc = add_text(&l, find_tag(&l));
        if (rc || l.i >= l.n)
            break;
        if (l.s[l.i + 1] == '#') {
            rc = lex_comment(&l);
        } else {
            taken = false;
            if (l.s[l.i + 1] == '%')
                rc = lex_raw(&l, &taken);
            if (rc == 0 && !taken)
                rc = lex_tag(&l);
        }
    }
    if (rc == 0)
        rc = add(&l, TOK_END, "", 0);
    *out = l.token;
    *n = l.n_token;
    return rc;
}

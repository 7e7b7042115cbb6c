/* jinja/format - Python's string formatting: the filter format and "%" of strings (printf-style),
 * and str.format with the specification of each field's type.
 *
 * Source: Python 3.11, library reference, "Format String Syntax" and "printf-style String
 * Formatting".
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/jinja/parts.h"

#define MAX_WIDTH     100000
#define MAX_PRECISION 400       /* digits; with those of the largest double, fits in number.text */

struct spec {
    const char *fill;
    size_t      n_fill;
    char        align;          /* '<', '>', '^', '=', or 0: as the type has it */
    char        sign;           /* '+', ' ' or '-' */
    bool        alt, zero;
    int64_t     width, precision;       /* -1: not given */
    char        group;          /* ',', '_' or 0 */
    char        type;           /* 0: not given */
};

static struct jv as_text(struct run *r, const struct jv *v, bool quoted)
{
    struct ckpt_buf b;

    ckpt_buf_init(&b, JINJA_MAX_OUTPUT);
    jv_print(&b, v, quoted);
    return jv_of_buf(r, &b);
}

static void repeat(struct ckpt_buf *b, const struct spec *s, int64_t n)
{
    for (; n > 0; n--)
        ckpt_buf_put(b, s->fill, s->n_fill);
}

/* A prefix (sign, 0x) and the rest, in the field's width. */
static void put_padded(struct run *r, struct ckpt_buf *b, const struct spec *s, const char *prefix,
                       struct jv text, char align)
{
    int64_t gap = s->width - (int64_t)strlen(prefix) -
                  (int64_t)jv_utf8_count(text.str.s, text.str.n);
    int64_t left;

    gap = gap < 0 ? 0 : gap;
    align = s->align ? s->align : align;
    left = align == '>' ? gap : align == '^' ? gap / 2 : 0;
    jv_work(r, (size_t)gap + text.str.n);
    repeat(b, s, left);
    ckpt_buf_put_str(b, prefix);
    repeat(b, s, align == '=' ? gap : 0);
    ckpt_buf_put(b, text.str.s, text.str.n);
    repeat(b, s, align == '<' || align == '^' ? gap - left : 0);
}

static void put_string(struct run *r, struct ckpt_buf *b, const struct spec *s, struct jv v)
{
    if (s->precision >= 0)
        v.str.n = jv_utf8_offset(v.str.s, v.str.n, (size_t)s->precision);
    put_padded(r, b, s, "", v, '<');
}

/* Put separators between groups of digits of the number that the text begins with. */
static void put_groups(char *to, size_t size, const char *from, char mark, int digits)
{
    size_t n = strspn(from, "0123456789abcdefABCDEF"), k = 0;

    if (memchr(from, 'e', n) && digits == 3)
        n = (size_t)((const char *)memchr(from, 'e', n) - from);
    for (size_t i = 0; from[i] && k + 2 < size; i++) {
        if (i > 0 && i < n && (n - i) % (size_t)digits == 0)
            to[k++] = mark;
        to[k++] = from[i];
    }
    to[k] = '\0';
}

static void put_signed(struct run *r, struct ckpt_buf *b, const struct spec *s, bool negative,
                       const char *base, const char *digits, int group)
{
    char prefix[4], grouped[1024];
    const char *sign = negative ? "-" : s->sign == '+' ? "+" : s->sign == ' ' ? " " : "";

    if (s->group && s->zero) {
        jinja_fail(r, CKPT_EUNSUPPORTED, "format: zeros before groups of digits");
        return;
    }
    if (s->group) {
        put_groups(grouped, sizeof grouped, digits, s->group, group);
        digits = grouped;
    }
    snprintf(prefix, sizeof prefix, "%s%s", sign, base);
    put_padded(r, b, s, prefix, jv_str(digits, strlen(digits)), '>');
}

static void put_int(struct run *r, struct ckpt_buf *b, const struct spec *s, int64_t i)
{
    uint64_t n = i < 0 ? 0 - (uint64_t)i : (uint64_t)i;
    const char *base = !s->alt ? "" : s->type == 'x' ? "0x" : s->type == 'X' ? "0X"
                       : s->type == 'o' ? "0o" : s->type == 'b' ? "0b" : "";
    unsigned by = s->type == 'x' || s->type == 'X' ? 16 : s->type == 'o' ? 8
                  : s->type == 'b' ? 2 : 10;
    char text[MAX_PRECISION + 80], *at = text + sizeof text;

    *--at = '\0';
    do {
        *--at = (s->type == 'X' ? "0123456789ABCDEF" : "0123456789abcdef")[n % by];
        n /= by;
    } while (n || (s->precision > 0 && text + sizeof text - 1 - at < s->precision));
    put_signed(r, b, s, i < 0, base, at, by == 10 ? 3 : 4);
}

static void put_real(struct run *r, struct ckpt_buf *b, const struct spec *s, double d)
{
    char text[MAX_PRECISION + 400];
    int precision = s->precision < 0 ? 6 : (int)s->precision;
    char type = s->type;
    struct jv v;

    if (type == 0) {
        v = as_text(r, &(struct jv){.kind = V_FLOAT, .d = fabs(d)}, false);
        if (s->precision >= 0)
            jinja_fail(r, CKPT_EUNSUPPORTED, "format: a precision without a type");
        if (!r->rc && v.str.n < sizeof text)
            put_signed(r, b, s, signbit(d), "", v.str.s, 3);
        return;
    }
    if (type == '%')
        d *= 100;
    switch (type) {
    case 'e': snprintf(text, sizeof text, s->alt ? "%#.*e" : "%.*e", precision, fabs(d)); break;
    case 'E': snprintf(text, sizeof text, s->alt ? "%#.*E" : "%.*E", precision, fabs(d)); break;
    case 'g': snprintf(text, sizeof text, s->alt ? "%#.*g" : "%.*g", precision, fabs(d)); break;
    case 'G': snprintf(text, sizeof text, s->alt ? "%#.*G" : "%.*G", precision, fabs(d)); break;
    case 'F': snprintf(text, sizeof text, s->alt ? "%#.*F" : "%.*F", precision, fabs(d)); break;
    case '%': snprintf(text, sizeof text, s->alt ? "%#.*f%%" : "%.*f%%", precision, fabs(d)); break;
    default:  snprintf(text, sizeof text, s->alt ? "%#.*f" : "%.*f", precision, fabs(d));
    }
    put_signed(r, b, s, signbit(d) && !isnan(d), "", text, 3);
}

/* A number by its type, which is one of Python's or 0. */
static void put_number(struct run *r, struct ckpt_buf *b, const struct spec *s, const struct jv *v)
{
    bool real = s->type ? strchr("eEfFgG%", s->type) != NULL : v->kind == V_FLOAT;

    if (real)
        put_real(r, b, s, jv_number(v));
    else if (v->kind == V_FLOAT)
        jinja_fail(r, CKPT_EFORMAT, "format: \"%c\" of %s", s->type, jv_type(v));
    else
        put_int(r, b, s, v->kind == V_INT ? v->i : v->b);
}

/* Digits at *at; -1 without any. */
static int64_t take_number(struct run *r, const char **at, const char *end, int64_t most)
{
    int64_t n = -1;

    for (; *at < end && **at >= '0' && **at <= '9' && !r->rc; ++*at) {
        n = 10 * (n < 0 ? 0 : n) + **at - '0';
        if (n > most)
            jinja_fail(r, CKPT_ELIMIT, "format: a width or precision of more than %" PRId64, most);
    }
    return n;
}

/* -- printf-style ---------------------------------------------------------------------------- */

struct percent {
    const struct args *args;
    size_t             used;
};

static struct jv next_value(struct run *r, struct percent *p)
{
    if (p->used < p->args->n)
        return p->args->item[p->used++];
    jinja_fail(r, CKPT_EFORMAT, "not enough arguments for the format");
    return jv_none();
}

static int64_t take_count(struct run *r, struct percent *p, const char **at, const char *end,
                          int64_t most)
{
    struct jv v;

    if (*at >= end || **at != '*')
        return take_number(r, at, end, most);
    ++*at;
    v = next_value(r, p);
    if (!r->rc && (v.kind != V_INT || v.i < 0 || v.i > most))
        jinja_fail(r, CKPT_EFORMAT, "format: * wants a number up to %" PRId64, most);
    return v.kind == V_INT ? v.i : 0;
}

/* "%(name)" */
static struct jv named_value(struct run *r, const struct percent *p, const char **at,
                             const char *end)
{
    const char *name = ++*at;
    const struct jv *found;

    while (*at < end && **at != ')')
        ++*at;
    found = p->args->named && *at < end
                ? jv_get(r, p->args->named, name, (size_t)(*at - name)) : NULL;
    if (!found)
        jinja_fail(r, CKPT_EFORMAT, "format: no value \"%.*s\"", (int)(*at - name), name);
    *at += *at < end;
    return found ? *found : jv_none();
}

/* One conversion, from after its "%". */
static void convert(struct run *r, struct percent *p, struct ckpt_buf *b, const char **at,
                    const char *end)
{
    struct spec s = {.fill = " ", .n_fill = 1, .sign = '-', .precision = -1};
    bool named = *at < end && **at == '(', left = false;
    struct jv v = named ? named_value(r, p, at, end) : jv_none();

    for (; *at < end && **at && strchr("-+ #0", **at); ++*at) {
        left |= **at == '-';
        s.alt |= **at == '#';
        s.zero |= **at == '0';
        s.sign = **at == '+' ? '+' : **at == ' ' && s.sign != '+' ? ' ' : s.sign;
    }
    s.width = take_count(r, p, at, end, MAX_WIDTH);
    if (*at < end && **at == '.') {
        ++*at;
        s.precision = take_count(r, p, at, end, MAX_PRECISION);
        s.precision = s.precision < 0 ? 0 : s.precision;
    }
    while (*at < end && **at && strchr("hlL", **at))
        ++*at;
    s.type = *at < end ? *(*at)++ : '\0';
    s.align = left ? '<' : s.zero && strchr("diuxXoeEfFgG", s.type) ? '=' : '>';
    s.fill = s.align == '=' ? "0" : " ";
    if (r->rc)
        return;
    if (s.type == '%') {
        ckpt_buf_put_u8(b, '%');
        return;
    }
    if (!s.type || !strchr("diuxXoeEfFgGsr", s.type)) {
        jinja_fail(r, CKPT_EUNSUPPORTED, "format: conversion \"%%%c\"", s.type ? s.type : ' ');
        return;
    }
    if (!named)
        v = next_value(r, p);
    if (r->rc)
        return;
    if (s.type == 's' || s.type == 'r') {
        v = as_text(r, &v, s.type == 'r');
        if (!r->rc)
            put_string(r, b, &s, v);
        return;
    }
    if (!jv_is_number(&v)) {
        jinja_fail(r, CKPT_EFORMAT, "format: \"%%%c\" of %s", s.type, jv_type(&v));
        return;
    }
    if (strchr("diu", s.type)) {
        s.type = 'd';
        if (v.kind == V_FLOAT && fabs(v.d) < 9e18)
            v = jv_int((int64_t)v.d);
    }
    put_number(r, b, &s, &v);
}

struct jv jinja_percent(struct run *r, struct jv v, const struct args *args)
{
    struct percent p = {.args = args};
    const char *at = v.str.s, *end = at + v.str.n;
    struct ckpt_buf b;

    if (args->n && args->named)
        jinja_fail(r, CKPT_EFORMAT, "format: values both by place and by name");
    ckpt_buf_init(&b, JINJA_MAX_OUTPUT);
    while (at < end && !r->rc) {
        const char *sign = memchr(at, '%', (size_t)(end - at));

        jv_work(r, 0);
        ckpt_buf_put(&b, at, (size_t)((sign ? sign : end) - at));
        at = sign ? sign + 1 : end;
        if (sign)
            convert(r, &p, &b, &at, end);
    }
    if (p.used < args->n)
        jinja_fail(r, CKPT_EFORMAT, "not all arguments are converted by the format");
    return jv_of_buf(r, &b);
}

/* -- str.format ------------------------------------------------------------------------------ */

struct fields {
    const struct args *args;
    int64_t            next;    /* of fields without a number; -1: they have numbers */
};

static void expand(struct run *r, struct fields *f, struct ckpt_buf *b, const char *s, size_t n,
                   int depth);

/* The value of "0.name[key]" */
static struct jv field_value(struct run *r, struct fields *f, const char *s, const char *end)
{
    const char *at = s;
    const struct jv *found = NULL;
    struct jv v = jv_none(), key;
    int64_t i;

    while (at < end && *at != '.' && *at != '[')
        at++;
    i = s < at && *s >= '0' && *s <= '9' ? take_number(r, &s, at, MAX_WIDTH) : -1;
    if (i >= 0 ? f->next > 0 : s == at && f->next < 0)
        jinja_fail(r, CKPT_EFORMAT, "format: fields with and without numbers");
    if (s == at) {
        f->next = i >= 0 ? -1 : f->next + 1;
        i = i >= 0 ? i : f->next - 1;
        found = i >= 0 && (size_t)i < f->args->n ? &f->args->item[i] : NULL;
    } else if (f->args->named) {
        found = jv_get(r, f->args->named, s, (size_t)(at - s));
    }
    if (!found)
        jinja_fail(r, CKPT_EFORMAT, "format: no value for \"{%.*s}\"", (int)(end - s), s);
    else
        v = *found;
    while (at < end && !r->rc) {
        const char *from = at + 1, *stop;

        for (stop = from; stop < end && (*at == '[' ? *stop != ']' : *stop != '.' && *stop != '[');)
            stop++;
        if (*at == '.') {
            v = jinja_attr(r, &v, from, (size_t)(stop - from));
        } else if (*at == '[' && stop < end) {
            const char *digits = from;

            i = take_number(r, &digits, stop, INT32_MAX);
            key = i >= 0 && digits == stop ? jv_int(i) : jv_str(from, (size_t)(stop - from));
            v = jinja_item(r, &v, &key);
            stop++;
        } else {
            jinja_fail(r, CKPT_EFORMAT, "format: \"%.*s\" is no field", (int)(end - at), at);
        }
        at = stop;
    }
    return v;
}

/* "[[fill]align][sign][#][0][width][,][.precision][type]" */
static void read_spec(struct run *r, struct spec *s, const char *at, const char *end)
{
    size_t first = at < end ? jv_utf8_offset(at, (size_t)(end - at), 1) : 0;
    bool filled = at + first < end && strchr("<>^=", at[first]);

    *s = (struct spec){.fill = " ", .n_fill = 1, .sign = '-', .precision = -1};
    if (filled) {
        s->fill = at;
        s->n_fill = first;
        s->align = at[first];
        at += first + 1;
    } else if (at < end && strchr("<>^=", *at)) {
        s->align = *at++;
    }
    if (at < end && strchr("+- ", *at))
        s->sign = *at++;
    s->alt = at < end && *at == '#';
    at += s->alt;
    if (at < end && *at == '0') {
        at++;
        s->zero = !s->align;
        s->fill = filled ? s->fill : "0";
    }
    s->width = take_number(r, &at, end, MAX_WIDTH);
    if (at < end && (*at == ',' || *at == '_'))
        s->group = *at++;
    if (at < end && *at == '.') {
        at++;
        s->precision = take_number(r, &at, end, MAX_PRECISION);
    }
    s->type = at < end ? *at++ : '\0';
    if (!r->rc && (at < end || (s->type && !strchr("bcdeEfFgGosxX%", s->type))))
        jinja_fail(r, CKPT_EFORMAT, "format: a specification that is not understood");
}

static void put_field(struct run *r, struct ckpt_buf *b, const struct jv *v, const char *spec,
                      size_t n)
{
    struct spec s;
    struct jv text;

    if (n == 0) {
        jv_print(b, v, false);
        return;
    }
    read_spec(r, &s, spec, spec + n);
    if (r->rc)
        return;
    if (jv_is_number(v) && s.type != 's' && s.type != 'c') {
        s.align = s.zero ? '=' : s.align;
        put_number(r, b, &s, v);
        return;
    }
    text = as_text(r, v, false);
    if (v->kind != V_STRING || (s.type && s.type != 's') || s.align == '=' || s.sign != '-' ||
        s.group)
        jinja_fail(r, CKPT_EFORMAT, "format: \"%.*s\" of %s", (int)n, spec, jv_type(v));
    else
        put_string(r, b, &s, text);
}

/* One field, from after "{" to its "}". */
static void expand_field(struct run *r, struct fields *f, struct ckpt_buf *b, const char *s,
                         const char *end, int depth)
{
    const char *name_end = s, *colon;
    struct ckpt_buf spec;
    char how = '\0';
    struct jv v;

    while (name_end < end && *name_end != '!' && *name_end != ':')
        name_end += *name_end == '[' && memchr(name_end, ']', (size_t)(end - name_end))
                        ? (const char *)memchr(name_end, ']', (size_t)(end - name_end)) - name_end
                        : 1;
    colon = name_end;
    if (colon + 1 < end && *colon == '!') {
        how = colon[1];
        colon += 2;
    }
    if ((colon < end && *colon != ':') || (how && !strchr("rs", how)))
        jinja_fail(r, CKPT_EFORMAT, "format: \"{%.*s}\" is no field", (int)(end - s), s);
    v = r->rc ? jv_none() : field_value(r, f, s, name_end);
    if (how && !r->rc)
        v = as_text(r, &v, how == 'r');
    ckpt_buf_init(&spec, JINJA_MAX_TEMPLATE);
    if (colon < end && !r->rc)
        expand(r, f, &spec, colon + 1, (size_t)(end - colon - 1), depth + 1);
    if (!ckpt_buf_ok(&spec))
        jinja_full(r, &spec);
    if (!r->rc)
        put_field(r, b, &v, spec.len ? (const char *)spec.data : "", spec.len);
    ckpt_buf_release(&spec);
}

static void expand(struct run *r, struct fields *f, struct ckpt_buf *b, const char *s, size_t n,
                   int depth)
{
    const char *end = s + n;

    if (depth > 1)
        jinja_fail(r, CKPT_EFORMAT, "format: fields nested too deep");
    while (s < end && !r->rc) {
        const char *close = s + 1;
        int nested = 1;

        jv_work(r, 0);
        if (*s != '{' && *s != '}') {
            ckpt_buf_put_u8(b, (uint8_t)*s++);
            continue;
        }
        if (depth == 0 && s + 1 < end && s[1] == *s) {
            ckpt_buf_put_u8(b, (uint8_t)*s);
            s += 2;
            continue;
        }
        while (*s == '{' && close < end && (nested += (*close == '{') - (*close == '}')) > 0)
            close++;
        if (*s == '}' || close >= end) {
            jinja_fail(r, CKPT_EFORMAT, "format: a single \"%c\"", *s);
            return;
        }
        expand_field(r, f, b, s + 1, close, depth);
        s = close + 1;
    }
}

struct jv jinja_format(struct run *r, struct jv v, const struct args *args)
{
    struct fields f = {.args = args};
    struct ckpt_buf b;

    ckpt_buf_init(&b, JINJA_MAX_OUTPUT);
    expand(r, &f, &b, v.str.s, v.str.n, 0);
    return jv_of_buf(r, &b);
}

/* json_lex - see json_lex.h.  Source: RFC 8259. */
#include "libckpt/base/json_lex.h"

#include <string.h>

#include "libckpt/base/json.h"

static size_t place(const struct ckpt_json_lex *l)
{
    return (size_t)(l->base + (uint64_t)(l->p - l->begin));
}

int ckpt_json_stop(struct ckpt_json_lex *l, const char *wanted)
{
    if (l->p == l->end)
        return ckpt_fail(l->err, CKPT_EFORMAT, "%s ends at byte %zu, %s wanted", l->name, place(l),
                         wanted);
    return ckpt_fail(l->err, CKPT_EFORMAT, "%s, byte %zu: %.1s found, %s wanted", l->name, place(l),
                     l->p, wanted);
}

static bool hex4(uint32_t *out, const char *p, const char *end)
{
    *out = 0;
    if (end - p < 4)
        return false;
    for (int i = 0; i < 4; i++) {
        char c = p[i];
        int v = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10
                : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;

        if (v < 0)
            return false;
        *out = *out << 4 | (uint32_t)v;
    }
    return true;
}

static char *put_utf8(char *to, uint32_t c)
{
    static const unsigned char lead[] = {0, 0xc0, 0xe0, 0xf0};
    int more = c < 0x80 ? 0 : c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;

    *to++ = (char)(lead[more] | c >> 6 * more);
    while (more-- > 0)
        *to++ = (char)(0x80 | (c >> 6 * more & 0x3f));
    return to;
}

/* Decode the escape after a backslash, at l->p; NULL when it is invalid. */
static char *take_escape(struct ckpt_json_lex *l, char *to)
{
    static const char from[] = "\"\\/bfnrt", is[] = "\"\\/\b\f\n\r\t";
    uint32_t c, low;
    const char *k;

    if (l->p == l->end)
        return NULL;
    if (*l->p != 'u') {
        k = *l->p ? strchr(from, *l->p) : NULL;
        if (!k)
            return NULL;
        l->p++;
        *to++ = is[k - from];
        return to;
    }
    if (!hex4(&c, l->p + 1, l->end) || c == 0 || (c >= 0xdc00 && c < 0xe000))
        return NULL;
    l->p += 5;
    if (c >= 0xd800 && c < 0xdc00) {
        if (l->end - l->p < 6 || l->p[0] != '\\' || l->p[1] != 'u' ||
            !hex4(&low, l->p + 2, l->end) || low < 0xdc00 || low >= 0xe000)
            return NULL;
        l->p += 6;
        c = 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00);
    }
    return put_utf8(to, c);
}

/* Decode the rest of a string, from its first escape; the result is never longer than the
 * spelling. */
static int take_escaped(struct ckpt_json_lex *l, struct ckpt_json_text *out, const char *first)
{
    bool escaped = false;
    const char *close = ckpt_json_string_end(l->p, l->end, &escaped);
    size_t most = (size_t)(close - first);
    char *copy, *to;

    if (!l->arena && close < l->end) {
        *out = (struct ckpt_json_text){first, most};
        l->p = close + 1;
        return 0;
    }
    copy = to = l->arena ? ckpt_arena_alloc(l->arena, most + 1, 1) : NULL;
    if (!copy)
        return ckpt_nomem(l->err, most + 1);
    memcpy(to, first, (size_t)(l->p - first));
    to += l->p - first;
    while (l->p < l->end && *l->p != '"') {
        if ((unsigned char)*l->p < 0x20)
            return ckpt_json_stop(l, "an escaped control character");
        if (*l->p != '\\') {
            *to++ = *l->p++;
            continue;
        }
        l->p++;
        to = take_escape(l, to);
        if (!to)
            return ckpt_json_stop(l, "an escape (of no NUL and no lone surrogate)");
    }
    if (l->p == l->end)
        return ckpt_json_stop(l, "the string's end");
    l->p++;
    *out = (struct ckpt_json_text){copy, (size_t)(to - copy)};
    return 0;
}

int ckpt_json_take_string(struct ckpt_json_lex *l, struct ckpt_json_text *out)
{
    const char *first, *p;

    ckpt_json_blanks(l);
    if (l->p == l->end || *l->p != '"')
        return ckpt_json_stop(l, "a string");
    for (first = p = l->p + 1; p < l->end && *p != '"' && *p != '\\'; p++)
        if ((unsigned char)*p < 0x20)
            break;
    l->p = p;
    if (p == l->end)
        return ckpt_json_stop(l, "the string's end");
    if (*p == '\\')
        return take_escaped(l, out, first);
    if (*p != '"')
        return ckpt_json_stop(l, "an escaped control character");
    *out = (struct ckpt_json_text){first, (size_t)(p - first)};
    l->p++;
    return 0;
}

static bool digit(const struct ckpt_json_lex *l)
{
    return l->p < l->end && *l->p >= '0' && *l->p <= '9';
}

int ckpt_json_take_size(struct ckpt_json_lex *l, uint64_t *out)
{
    const char *first;
    uint64_t v = 0;

    ckpt_json_blanks(l);
    if (!digit(l))
        return ckpt_json_stop(l, "a whole number >= 0");
    for (first = l->p; digit(l); l->p++)
        if (!ckpt_mul(&v, v, 10) || !ckpt_add(&v, v, (uint64_t)(*l->p - '0')) || v > INT64_MAX)
            return ckpt_json_stop(l, "a number below 2^63");
    if ((*first == '0' && l->p - first > 1) ||
        (l->p < l->end && (*l->p == '.' || *l->p == 'e' || *l->p == 'E')))
        return ckpt_json_stop(l, "a whole number without leading zeros");
    *out = v;
    return 0;
}

static int skip_digits(struct ckpt_json_lex *l)
{
    if (!digit(l))
        return ckpt_json_stop(l, "a digit");
    while (digit(l))
        l->p++;
    return 0;
}

static int skip_number(struct ckpt_json_lex *l)
{
    int rc = 0;

    if (*l->p == '-')
        l->p++;
    if (digit(l) && *l->p == '0')
        l->p++;
    else
        rc = skip_digits(l);
    if (rc == 0 && l->p < l->end && *l->p == '.') {
        l->p++;
        rc = skip_digits(l);
    }
    if (rc == 0 && l->p < l->end && (*l->p == 'e' || *l->p == 'E')) {
        l->p++;
        if (l->p < l->end && (*l->p == '+' || *l->p == '-'))
            l->p++;
        rc = skip_digits(l);
    }
    return rc;
}

static int skip_scalar(struct ckpt_json_lex *l)
{
    static const char *const words[] = {"true", "false", "null", "NaN", "Infinity", "-Infinity"};
    struct ckpt_json_text ignored;

    if (l->p < l->end && *l->p == '"')
        return ckpt_json_take_string(l, &ignored);
    for (size_t i = 0; i < (l->python ? 6 : 3); i++) {
        size_t n = strlen(words[i]);

        if ((size_t)(l->end - l->p) >= n && memcmp(l->p, words[i], n) == 0) {
            l->p += n;
            return 0;
        }
    }
    if (l->p < l->end && (*l->p == '-' || digit(l)))
        return skip_number(l);
    return ckpt_json_stop(l, "a value");
}

int ckpt_json_take_key(struct ckpt_json_lex *l, struct ckpt_json_text *key)
{
    int rc = ckpt_json_take_string(l, key);

    return rc ? rc : ckpt_json_want(l, ':', "a colon");
}

int ckpt_json_skip_value(struct ckpt_json_lex *l)
{
    bool object[CKPT_JSON_MAX_DEPTH];       /* per open level: an object, else an array */
    struct ckpt_json_text key;
    size_t depth = 0;
    int rc;

    for (;;) {
        bool opened = false;

        ckpt_json_blanks(l);
        if (l->p < l->end && (*l->p == '{' || *l->p == '[')) {
            if (depth == CKPT_JSON_MAX_DEPTH)
                return ckpt_fail(l->err, CKPT_ELIMIT, "%s, byte %zu: deeper than %d levels",
                                 l->name, place(l), CKPT_JSON_MAX_DEPTH);
            object[depth++] = *l->p == '{';
            opened = true;
            l->p++;
        } else if ((rc = skip_scalar(l)) != 0) {
            return rc;
        }
        while (depth > 0) {
            ckpt_json_blanks(l);
            if (l->p == l->end || *l->p != (object[depth - 1] ? '}' : ']'))
                break;
            l->p++;
            depth--;
            opened = false;
        }
        if (depth == 0)
            return 0;
        if ((!opened && (rc = ckpt_json_want(l, ',', "a comma or the end of the list")) != 0) ||
            (object[depth - 1] && (rc = ckpt_json_take_key(l, &key)) != 0))
            return rc;
    }
}

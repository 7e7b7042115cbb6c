/* pickle/text - see pickle/text.h. */
#include "formats/container/pickle/text.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/buf.h"

#define MAX_DIGITS 640          /* digits of PICKLE_MAX_INT bytes, and some more */

bool pickle_text_valid(const unsigned char *s, size_t n)
{
    for (size_t i = 0; i < n;) {
        size_t k = s[i] < 0x80 ? 1 : s[i] >= 0xf0 ? 4 : s[i] >= 0xe0 ? 3 : 2;
        bool surrogate = s[i] == 0xed && n - i >= 3 && s[i + 1] >= 0xa0 && s[i + 1] <= 0xbf &&
                         (s[i + 2] & 0xc0) == 0x80;

        if (k > n - i || (k > 1 && !surrogate && !ckpt_utf8_valid(s + i, k)))
            return false;
        i += k;
    }
    return true;
}

static struct value *text(struct ckpt_arena *a, enum value_kind kind, const void *p, size_t n)
{
    struct value *v = value_bytes(a, p, n);

    if (v)
        v->kind = kind;
    return v;
}

struct value *pickle_str8(struct ckpt_arena *a, const void *p, size_t n)
{
    return text(a, pickle_text_valid(p, n) ? VALUE_STR : VALUE_BYTES, p, n);
}

/* -- numbers --------------------------------------------------------------------------------- */

/* The decimal digits of p, ending at end; returns where they begin. */
static char *to_decimal(char *end, const unsigned char *p, size_t n)
{
    unsigned char mag[PICKLE_MAX_INT];
    bool negative = p[n - 1] & 0x80;
    unsigned carry = 1;

    for (size_t i = 0; i < n; i++) {
        unsigned b = negative ? (unsigned)(unsigned char)~p[i] + carry : p[i];

        mag[i] = (unsigned char)b;
        carry = negative ? b >> 8 : 0;
    }
    while (n > 0) {                     /* divide by ten repeatedly */
        unsigned rest = 0;

        for (size_t i = n; i-- > 0;) {
            unsigned cur = rest << 8 | mag[i];

            mag[i] = (unsigned char)(cur / 10);
            rest = cur % 10;
        }
        *--end = (char)('0' + rest);
        while (n > 0 && mag[n - 1] == 0)
            n--;
    }
    if (negative)
        *--end = '-';
    return end;
}

struct value *pickle_long(struct ckpt_arena *a, const unsigned char *p, size_t n,
                          const char **why)
{
    char digits[MAX_DIGITS], *from;
    uint64_t bits = 0;

    /* Drop bytes that only repeat the sign. */
    while (n > 1 && p[n - 1] == (p[n - 2] & 0x80 ? 0xff : 0))
        n--;
    if (n > PICKLE_MAX_INT) {
        *why = "a number of more than 256 bytes";
        return NULL;
    }
    if (n > 8) {
        from = to_decimal(digits + sizeof digits, p, n);
        return text(a, VALUE_BIGINT, from, (size_t)(digits + sizeof digits - from));
    }
    for (size_t i = 0; i < n; i++)
        bits |= (uint64_t)p[i] << (8 * i);
    if (n > 0 && n < 8 && (p[n - 1] & 0x80))
        bits |= ~(uint64_t)0 << (8 * n);
    return value_int(a, (int64_t)bits);
}

struct value *pickle_line_int(struct ckpt_arena *a, const char *p, size_t n, bool bools,
                              const char **why)
{
    char digits[MAX_DIGITS], *end;
    size_t sign;
    long long v;

    if (bools && n == 2 && p[0] == '0' && (p[1] == '0' || p[1] == '1'))
        return value_bool(a, p[1] == '1');
    if (n > 0 && p[n - 1] == 'L')
        n--;
    sign = n > 0 && (*p == '-' || *p == '+');
    for (size_t i = sign; i < n; i++)
        if (p[i] < '0' || p[i] > '9')
            n = sign;
    if (n > sign + 1 && p[sign] == '0')
        n = sign;                    /* some readers take it as octal, others as wrong or decimal */
    if (n == sign || n >= sizeof digits) {
        *why = n >= sizeof digits ? "a number of too many digits" : "no number";
        return NULL;
    }
    memcpy(digits, p, n);
    digits[n] = '\0';
    errno = 0;
    v = strtoll(digits, &end, 10);
    return errno ? text(a, VALUE_BIGINT, digits, n) : value_int(a, v);
}

struct value *pickle_line_float(struct ckpt_arena *a, const char *p, size_t n, const char **why)
{
    char buf[64], *end;
    double f;

    *why = "no number";
    if (n == 0 || n >= sizeof buf || memchr(p, 'x', n) || memchr(p, 'X', n) || p[0] <= ' ')
        return NULL;
    memcpy(buf, p, n);
    buf[n] = '\0';
    f = strtod(buf, &end);
    if (end != buf + n)
        return NULL;
    *why = NULL;
    return value_float(a, f);
}

/* -- texts ----------------------------------------------------------------------------------- */

/* The value of up to max digits of base at p; *used of them. */
static uint32_t digits_at(const char *p, size_t n, size_t max, unsigned base, size_t *used)
{
    uint32_t v = 0;

    for (*used = 0; *used < max && *used < n; ++*used) {
        char c = p[*used];
        unsigned d = c >= '0' && c <= '9' ? (unsigned)(c - '0')
                     : (c | 32) >= 'a' && (c | 32) <= 'f' ? (unsigned)((c | 32) - 'a') + 10 : 99;

        if (d >= base)
            break;
        v = v * base + d;
    }
    return v;
}

/* Decode one escape after a backslash at p[0..n) to *to.  Returns how many bytes it took. */
static size_t unescape(unsigned char *to, const char *p, size_t n)
{
    static const char from[] = "\\'\"abfnrtv", what[] = "\\'\"\a\b\f\n\r\t\v";
    const char *at = *p ? strchr(from, *p) : NULL;
    size_t used;

    if (at) {
        *to = (unsigned char)what[at - from];
        return 1;
    }
    if (*p == 'x') {
        *to = (unsigned char)digits_at(p + 1, n - 1, 2, 16, &used);
        return used == 2 ? 3 : 0;
    }
    *to = (unsigned char)digits_at(p, n, 3, 8, &used);
    return used;
}

struct value *pickle_line_string(struct ckpt_arena *a, const char *p, size_t n, const char **why)
{
    unsigned char *out, *to;
    struct ckpt_arena scratch = {0};
    struct value *v = NULL;

    if (n < 2 || (p[0] != '\'' && p[0] != '"') || p[n - 1] != p[0]) {
        *why = "a string without its quotes";
        return NULL;
    }
    p++;
    n -= 2;
    out = to = ckpt_arena_alloc(&scratch, n + 1, 1);
    for (size_t i = 0; out && i < n; to++) {
        size_t used = 0;

        if (p[i] != '\\') {
            *to = (unsigned char)p[i++];
            continue;
        }
        if (i + 1 < n)
            used = unescape(to, p + i + 1, n - i - 1);
        if (used == 0) {
            *why = "an escape that is none";
            break;
        }
        i += 1 + used;
    }
    if (out && !*why)
        v = pickle_str8(a, out, (size_t)(to - out));
    ckpt_arena_release(&scratch);
    return v;
}

/* c as UTF-8, surrogates included. */
static void put_utf8(struct ckpt_buf *b, uint32_t c)
{
    if (c < 0x80) {
        ckpt_buf_put_u8(b, (uint8_t)c);
        return;
    }
    if (c >= 0x10000) {
        ckpt_buf_put_u8(b, (uint8_t)(0xf0 | c >> 18));
        ckpt_buf_put_u8(b, (uint8_t)(0x80 | (c >> 12 & 0x3f)));
    } else if (c >= 0x800) {
        ckpt_buf_put_u8(b, (uint8_t)(0xe0 | c >> 12));
    } else {
        ckpt_buf_put_u8(b, (uint8_t)(0xc0 | c >> 6));
    }
    if (c >= 0x800)
        ckpt_buf_put_u8(b, (uint8_t)(0x80 | (c >> 6 & 0x3f)));
    ckpt_buf_put_u8(b, (uint8_t)(0x80 | (c & 0x3f)));
}

struct value *pickle_line_unicode(struct ckpt_arena *a, const char *p, size_t n, const char **why)
{
    struct value *v = NULL;
    struct ckpt_buf b;

    ckpt_buf_init(&b, SIZE_MAX);
    for (size_t i = 0; i < n; i++) {
        size_t want = p[i] != '\\' || i + 1 >= n ? 0
                    : p[i + 1] == 'u' ? 4 : p[i + 1] == 'U' ? 8 : 0;
        uint32_t c = (unsigned char)p[i];
        size_t used = 0;

        if (want) {
            c = digits_at(p + i + 2, n - i - 2, want, 16, &used);
            if (used != want || c > 0x10ffff) {
                *why = "an escape that is none";
                break;
            }
            i += 1 + want;
        }
        put_utf8(&b, c);
    }
    if (!*why && ckpt_buf_ok(&b))
        v = text(a, VALUE_STR, b.len ? (const char *)b.data : "", b.len);
    ckpt_buf_release(&b);
    return v;
}

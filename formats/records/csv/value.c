/* csv/value - see csv/value.h. */
#include "formats/records/csv/value.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define LONGEST 63              /* most bytes of a number */

bool csv_is_null(const char *s, size_t n, bool literal)
{
    static const char *const words[] = {
        "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN",
        "<NA>", "N/A", "NA", "NULL", "NaN", "None", "n/a", "nan", "null",
    };

    if (n == 0 || literal || n > 8 || !memchr("#-1<Nn", *s, 6))
        return n == 0;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (*words[i] == *s && n == strlen(words[i]) && memcmp(s, words[i], n) == 0)
            return true;
    return false;
}

/* Strip blanks; false when the rest is too long for a number, or empty. */
static bool trim(const char **s, size_t *n)
{
    while (*n > 0 && (**s == ' ' || **s == '\t'))
        ++*s, --*n;
    while (*n > 0 && ((*s)[*n - 1] == ' ' || (*s)[*n - 1] == '\t'))
        --*n;
    return *n > 0 && *n <= LONGEST;
}

bool csv_as_int(const char *s, size_t n, int64_t *out)
{
    bool minus;
    int64_t v = 0;
    size_t i;

    if (!trim(&s, &n))
        return false;
    minus = *s == '-';
    i = minus || *s == '+';
    if (i == n)
        return false;
    for (; i < n; i++)
        if (s[i] < '0' || s[i] > '9' || __builtin_mul_overflow(v, 10, &v) ||
            __builtin_sub_overflow(v, s[i] - '0', &v))
            return false;
    /* Counted downwards: the smallest number has no positive counterpart. */
    if (!minus && v == INT64_MIN)
        return false;
    *out = minus ? v : -v;
    return true;
}

/*
 * Only digits and a point, and so few that the integer and the power of ten are exact in a
 * double: then one division rounds as a full conversion would.
 */
static bool short_decimal(const char *s, size_t n, double *out)
{
    static const double ten[] = {1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12,
                                 1e13, 1e14, 1e15};
    bool minus = *s == '-', point = false;
    size_t i = minus || *s == '+', behind = 0, digits = 0;
    int64_t v = 0;

    if (n > 17)
        return false;
    for (; i < n; i++) {
        if (s[i] == '.' && !point) {
            point = true;
        } else if (s[i] >= '0' && s[i] <= '9') {
            v = 10 * v + (s[i] - '0');
            digits++;
            behind += point;
        } else {
            return false;
        }
    }
    if (digits == 0 || digits > 15)
        return false;
    *out = (double)v / ten[behind];
    *out = minus ? -*out : *out;
    return true;
}

bool csv_as_real(const char *s, size_t n, double *out)
{
    char text[LONGEST + 1], *end;
    int64_t whole;
    size_t sign;

    if (!trim(&s, &n))
        return false;
    if (short_decimal(s, n, out))
        return true;
    memcpy(text, s, n);
    text[n] = '\0';
    sign = text[0] == '+' || text[0] == '-';
    if (strcasecmp(text + sign, "inf") == 0 || strcasecmp(text + sign, "infinity") == 0) {
        *out = text[0] == '-' ? -INFINITY : INFINITY;
        return true;
    }
    if (text[strspn(text, "+-0123456789.eE")] != '\0')
        return false;
    if (!strpbrk(text, ".eE") && !csv_as_int(text, n, &whole))
        return false;
    *out = strtod(text, &end);
    return end != text && *end == '\0' && isfinite(*out);
}

int csv_as_bool(const char *s, size_t n)
{
    if (n == 4 && (!memcmp(s, "True", 4) || !memcmp(s, "TRUE", 4) || !memcmp(s, "true", 4)))
        return 1;
    if (n == 5 && (!memcmp(s, "False", 5) || !memcmp(s, "FALSE", 5) || !memcmp(s, "false", 5)))
        return 0;
    return -1;
}

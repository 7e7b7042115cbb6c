/* scan - see scan.h. */
#include "formats/tokens/unicode/scan.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "formats/tokens/unicode/unicode.h"

const char scan_gpt2_pattern[] =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

static const char bloom_pattern[] = " ?[^(\\s|[.,!?…。，、।۔،])]+";

#define LLAMA3(digits) \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" digits \
    "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
static const char llama3_pattern[] = LLAMA3("\\p{N}{1,3}");
static const char qwen_pattern[] = LLAMA3("\\p{N}");

/* enum unicode_class of ASCII. */
#define O UNICODE_OTHER
#define L UNICODE_LETTER
#define N UNICODE_NUMBER
#define S UNICODE_SPACE
static const unsigned char ascii[128] = {
    O, O, O, O, O, O, O, O, O, S, S, S, S, S, O, O, O, O, O, O, O, O, O, O, O, O,
    O, O, O, O, O, O, S, O, O, O, O, O, O, O, O, O, O, O, O, O, O, O, N, N, N, N,
    N, N, N, N, N, N, O, O, O, O, O, O, O, L, L, L, L, L, L, L, L, L, L, L, L, L,
    L, L, L, L, L, L, L, L, L, L, L, L, L, O, O, O, O, O, O, L, L, L, L, L, L, L,
    L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, O, O, O, O, O,
};
#undef O
#undef L
#undef N
#undef S

static inline enum unicode_class class_at(const unsigned char *s, size_t *width)
{
    if (s[0] < 0x80) {
        *width = 1;
        return (enum unicode_class)ascii[s[0]];
    }
    return unicode_class_of(utf8_get(s, width));
}

/* The end of the run of class cls that starts at i. */
static inline size_t run_end(const unsigned char *s, size_t n, size_t i, enum unicode_class cls)
{
    size_t width;

    while (i < n && class_at(s + i, &width) == cls)
        i += width;
    return i;
}

/* \s+(?!\S)|\s+ at from: all of a run that ends the text, else all but its last character,
 * unless that leaves nothing. */
static size_t spaces_end(const unsigned char *s, size_t n, size_t from)
{
    size_t end = run_end(s, n, from, UNICODE_SPACE), last = end;

    if (end == n)
        return n;
    do
        last--;
    while ((s[last] & 0xc0) == 0x80);
    return last > from ? last : end;
}

size_t scan_gpt2(const unsigned char *s, size_t n, size_t from)
{
    size_t i = from, width;
    enum unicode_class cls;

    if (s[i] == '\'' && n - i >= 2) {
        if (s[i + 1] == 's' || s[i + 1] == 't' || s[i + 1] == 'm' || s[i + 1] == 'd')
            return i + 2;
        if (n - i >= 3 && ((s[i + 1] == 'r' && s[i + 2] == 'e') ||
                           (s[i + 1] == 'v' && s[i + 2] == 'e') ||
                           (s[i + 1] == 'l' && s[i + 2] == 'l')))
            return i + 3;
    }
    i += s[i] == ' ';
    if (i == n)
        return n;
    cls = class_at(s + i, &width);
    if (cls == UNICODE_SPACE)
        return spaces_end(s, n, from);
    return run_end(s, n, i + width, cls);
}

/* Bytes of (?i:'s|'t|'re|'ve|'m|'ll|'d) at s[0] == '\'', 0 when it does not match.  U+017F
 * folds to s. */
static size_t contraction(const unsigned char *s, size_t n)
{
    unsigned a = n > 1 ? s[1] | 0x20u : 0, b = n > 2 ? s[2] | 0x20u : 0;

    if (n > 2 && s[1] == 0xc5 && s[2] == 0xbf)
        return 3;
    if (a == 's' || a == 't' || a == 'm' || a == 'd')
        return 2;
    return (a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l') ? 3 : 0;
}

static size_t scan_llama3_digits(const unsigned char *s, size_t n, size_t from, int max_digits)
{
    enum unicode_class cls;
    size_t width, next, i, end;

    if (s[from] == '\'' && (width = contraction(s + from, n - from)) > 0)
        return from + width;
    cls = class_at(s + from, &width);
    if (cls == UNICODE_LETTER)
        return run_end(s, n, from + width, UNICODE_LETTER);
    i = from + width;
    if (cls == UNICODE_NUMBER) {
        for (int d = 1; d < max_digits && i < n && class_at(s + i, &next) == UNICODE_NUMBER;
             d++)
            i += next;
        return i;
    }
    if (s[from] != '\r' && s[from] != '\n' && i < n &&
        class_at(s + i, &next) == UNICODE_LETTER)
        return run_end(s, n, i + next, UNICODE_LETTER);
    if (cls == UNICODE_OTHER ||
        (s[from] == ' ' && i < n && class_at(s + i, &next) == UNICODE_OTHER)) {
        i = run_end(s, n, i, UNICODE_OTHER);
        while (i < n && (s[i] == '\r' || s[i] == '\n'))
            i++;
        return i;
    }
    /* \s*[\r\n]+ matches up to the last line end of the run of white space. */
    end = run_end(s, n, from, UNICODE_SPACE);
    for (i = end; i > from; i--)
        if (s[i - 1] == '\r' || s[i - 1] == '\n')
            return i;
    return spaces_end(s, n, from);
}

static size_t scan_llama3(const unsigned char *s, size_t n, size_t from)
{
    return scan_llama3_digits(s, n, from, 3);
}

static size_t scan_qwen(const unsigned char *s, size_t n, size_t from)
{
    return scan_llama3_digits(s, n, from, 1);
}

/* [^\s(|).,!?…。，、।۔،]: the class nested in BLOOM's pattern is part of the union. */
static inline bool bloom_word(const unsigned char *s, size_t *width)
{
    uint32_t cp;

    if (s[0] < 0x80) {
        *width = 1;
        switch (s[0]) {
        case '(': case '|': case ')': case '.': case ',': case '!': case '?':
            return false;
        default:
            return ascii[s[0]] != UNICODE_SPACE;
        }
    }
    cp = utf8_get(s, width);
    return cp != 0x2026 && cp != 0x3002 && cp != 0xff0c && cp != 0x3001 && cp != 0x0964 &&
           cp != 0x06d4 && cp != 0x060c && !unicode_is_space(cp);
}

/* True when " ?[...]+" matches at i. */
static bool bloom_starts(const unsigned char *s, size_t n, size_t i)
{
    size_t width;

    return bloom_word(s + i, &width) ||
           (s[i] == ' ' && i + 1 < n && bloom_word(s + i + 1, &width));
}

static size_t scan_bloom(const unsigned char *s, size_t n, size_t from)
{
    size_t i = from, width;

    if (bloom_starts(s, n, from)) {
        i += s[i] == ' ';
        while (i < n && bloom_word(s + i, &width))
            i += width;
        return i;
    }
    do
        i += utf8_width(s[i]);
    while (i < n && !bloom_starts(s, n, i));
    return i;
}

scan_fn *scan_for(const char *pattern)
{
    static const struct { const char *pattern; scan_fn *fn; } rows[] = {
        {scan_gpt2_pattern, scan_gpt2},
        {bloom_pattern, scan_bloom},
        {llama3_pattern, scan_llama3},
        {qwen_pattern, scan_qwen},
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (strcmp(rows[i].pattern, pattern) == 0)
            return rows[i].fn;
    return NULL;
}

/* unicode - see unicode.h.  Well-formed sequences: The Unicode Standard, table 3-7. */
#include "formats/tokens/unicode/unicode.h"

#include <string.h>
#include <utf8proc.h>

bool unicode_is_space(uint32_t cp)
{
    if (cp < 0x80)
        return cp == ' ' || (cp >= 0x09 && cp <= 0x0d);
    return cp == 0x85 || cp == 0xa0 || cp == 0x1680 || (cp >= 0x2000 && cp <= 0x200a) ||
           cp == 0x2028 || cp == 0x2029 || cp == 0x202f || cp == 0x205f || cp == 0x3000;
}

/* Letters and numbers that Unicode 16 added: the reference library knows them, a utf8proc of
 * Unicode 14 or 15 calls them unassigned. */
static enum unicode_class newly_assigned(uint32_t cp)
{
    static const struct { uint32_t first, last; enum unicode_class cls; } added[] = {
        {0x1c89, 0x1c8a, UNICODE_LETTER},   {0xa7cb, 0xa7cd, UNICODE_LETTER},
        {0xa7da, 0xa7dc, UNICODE_LETTER},   {0x105c0, 0x105f3, UNICODE_LETTER},
        {0x10d40, 0x10d49, UNICODE_NUMBER}, {0x10d4a, 0x10d65, UNICODE_LETTER},
        {0x10d6f, 0x10d85, UNICODE_LETTER}, {0x10ec2, 0x10ec4, UNICODE_LETTER},
        {0x11380, 0x11389, UNICODE_LETTER}, {0x1138b, 0x1138b, UNICODE_LETTER},
        {0x1138e, 0x1138e, UNICODE_LETTER}, {0x11390, 0x113b5, UNICODE_LETTER},
        {0x113b7, 0x113b7, UNICODE_LETTER}, {0x113d1, 0x113d1, UNICODE_LETTER},
        {0x113d3, 0x113d3, UNICODE_LETTER}, {0x116d0, 0x116e3, UNICODE_NUMBER},
        {0x11bc0, 0x11be0, UNICODE_LETTER}, {0x11bf0, 0x11bf9, UNICODE_NUMBER},
        {0x13460, 0x143fa, UNICODE_LETTER}, {0x16100, 0x1611d, UNICODE_LETTER},
        {0x16130, 0x16139, UNICODE_NUMBER}, {0x16d40, 0x16d6c, UNICODE_LETTER},
        {0x16d70, 0x16d79, UNICODE_NUMBER}, {0x18cff, 0x18cff, UNICODE_LETTER},
        {0x1ccf0, 0x1ccf9, UNICODE_NUMBER}, {0x1e5d0, 0x1e5ed, UNICODE_LETTER},
        {0x1e5f0, 0x1e5f0, UNICODE_LETTER}, {0x1e5f1, 0x1e5fa, UNICODE_NUMBER},
        {0x2ebf0, 0x2ee5d, UNICODE_LETTER}, /* 15.1 */
    };

    for (size_t i = 0; i < sizeof added / sizeof *added; i++)
        if (cp >= added[i].first && cp <= added[i].last)
            return added[i].cls;
    return UNICODE_OTHER;
}

enum unicode_class unicode_class_of(uint32_t cp)
{
    switch (utf8proc_category((utf8proc_int32_t)cp)) {
    case UTF8PROC_CATEGORY_LU: case UTF8PROC_CATEGORY_LL: case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM: case UTF8PROC_CATEGORY_LO:
        return UNICODE_LETTER;
    case UTF8PROC_CATEGORY_ND: case UTF8PROC_CATEGORY_NL: case UTF8PROC_CATEGORY_NO:
        return UNICODE_NUMBER;
    case UTF8PROC_CATEGORY_CN:
        return newly_assigned(cp);
    default:
        return unicode_is_space(cp) ? UNICODE_SPACE : UNICODE_OTHER;
    }
}

size_t utf8_put(unsigned char *dst, uint32_t cp)
{
    if (cp < 0x80) {
        dst[0] = (unsigned char)cp;
        return 1;
    }
    if (cp < 0x800) {
        dst[0] = (unsigned char)(0xc0 | cp >> 6);
        dst[1] = (unsigned char)(0x80 | (cp & 0x3f));
        return 2;
    }
    if (cp < 0x10000) {
        dst[0] = (unsigned char)(0xe0 | cp >> 12);
        dst[1] = (unsigned char)(0x80 | (cp >> 6 & 0x3f));
        dst[2] = (unsigned char)(0x80 | (cp & 0x3f));
        return 3;
    }
    dst[0] = (unsigned char)(0xf0 | cp >> 18);
    dst[1] = (unsigned char)(0x80 | (cp >> 12 & 0x3f));
    dst[2] = (unsigned char)(0x80 | (cp >> 6 & 0x3f));
    dst[3] = (unsigned char)(0x80 | (cp & 0x3f));
    return 4;
}

/*
 * Length of the sequence at s: > 0 well formed; < 0 minus the bytes of the maximal part that
 * could have begun a well-formed one (at least one).
 */
static int sequence(const unsigned char *s, size_t left)
{
    unsigned char lo = 0x80, hi = 0xbf;
    int want, i;

    if (s[0] < 0x80)
        return 1;
    if (s[0] < 0xc2 || s[0] > 0xf4)
        return -1;
    want = s[0] < 0xe0 ? 2 : s[0] < 0xf0 ? 3 : 4;
    lo = s[0] == 0xe0 ? 0xa0 : s[0] == 0xf0 ? 0x90 : lo;
    hi = s[0] == 0xed ? 0x9f : s[0] == 0xf4 ? 0x8f : hi;
    for (i = 1; i < want; i++) {
        if ((size_t)i == left || s[i] < lo || s[i] > hi)
            return -i;
        lo = 0x80;
        hi = 0xbf;
    }
    return want;
}

size_t utf8_valid_prefix(const unsigned char *s, size_t len)
{
    size_t i = 0;

    while (i < len) {
        uint64_t eight;
        int n;

        if (len - i >= 8) {
            memcpy(&eight, s + i, 8);
            if (!(eight & UINT64_C(0x8080808080808080))) {
                i += 8;
                continue;
            }
        }
        n = sequence(s + i, len - i);
        if (n < 0)
            break;
        i += (size_t)n;
    }
    return i;
}

void utf8_put_lossy(struct ckpt_buf *out, const unsigned char *s, size_t len)
{
    while (len > 0) {
        size_t good = utf8_valid_prefix(s, len);

        ckpt_buf_put(out, s, good);
        s += good;
        len -= good;
        if (len > 0) {
            size_t bad = (size_t)-sequence(s, len);

            ckpt_buf_put(out, "\xef\xbf\xbd", 3);
            s += bad;
            len -= bad;
        }
    }
}

/* pickle_int - see pickle_int.h. */
#include "formats/container/pickle_int.h"

#include "libckpt/buf.h"

#define MAX_BYTES 256

struct value *pickle_big_int(struct ckpt_arena *a, const unsigned char *p, size_t n)
{
    struct value *v = ckpt_arena_alloc(a, 1, sizeof *v);
    unsigned char mag[MAX_BYTES];
    char digits[640] = "?";
    bool negative = p[n - 1] & 0x80;
    size_t at = n > MAX_BYTES ? 0 : sizeof digits, len = 1;
    unsigned carry = 1;

    for (size_t i = 0; at && i < n; i++) {
        unsigned b = negative ? (unsigned)(unsigned char)~p[i] + carry : p[i];

        mag[i] = (unsigned char)b;
        carry = negative ? b >> 8 : 0;
    }
    while (at && n > 0) {               /* divide by ten until nothing is left */
        unsigned rest = 0;

        for (size_t i = n; i-- > 0;) {
            unsigned cur = rest << 8 | mag[i];

            mag[i] = (unsigned char)(cur / 10);
            rest = cur % 10;
        }
        digits[--at] = (char)('0' + rest);
        while (n > 0 && mag[n - 1] == 0)
            n--;
    }
    if (at) {
        if (negative)
            digits[--at] = '-';
        len = sizeof digits - at;
    }
    if (!v)
        return NULL;
    v->kind = VALUE_BIGINT;
    v->u.text.p = ckpt_arena_strndup(a, digits + at, len);
    v->u.text.n = len;
    return v->u.text.p ? v : NULL;
}

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

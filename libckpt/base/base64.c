/* base64 - see base64.h. */
#include "libckpt/base/base64.h"

#include <limits.h>
#include <openssl/evp.h>

#include "libckpt/mem.h"

bool base64_decode(unsigned char *dst, size_t *n, const char *s, size_t len)
{
    size_t pad = 0;
    int got;

    *n = 0;
    if (len == 0)
        return true;
    if (len % 4 != 0 || len > INT_MAX)
        return false;
    /* The library ignores white space at the ends, which is invalid here. */
    for (size_t i = 0; i < len; i += len - 1 ? len - 1 : 1)
        if ((unsigned char)s[i] <= ' ')
            return false;
    while (pad < 2 && s[len - 1 - pad] == '=')
        pad++;
    got = EVP_DecodeBlock(dst, (const unsigned char *)s, (int)len);
    if (got < 0 || (size_t)got < pad)
        return false;
    *n = (size_t)got - pad;
    return true;
}

char *base64_encode(const unsigned char *s, size_t n)
{
    char *text = n < INT_MAX / 2 ? ckpt_alloc(n / 3 * 4 + 8, 1) : NULL;

    if (text && n > 0)
        EVP_EncodeBlock((unsigned char *)text, s, (int)n);
    return text;
}

/* bytelevel - see bytelevel.h. */
#include "formats/tokens/bytelevel.h"

#include <string.h>

#include "formats/tokens/unicode/unicode.h"

static bool spells_itself(uint32_t b)
{
    return (b >= 0x21 && b <= 0x7e) || (b >= 0xa1 && b <= 0xac) || (b >= 0xae && b <= 0xff);
}

uint32_t bytelevel_char(unsigned char byte)
{
    if (spells_itself(byte))
        return byte;
    /* Remaining bytes below: 0x00-0x20 are 0..32, 0x7f-0xa0 are 33..66, 0xad is 67. */
    return 0x100u + (byte <= 0x20 ? byte : byte <= 0xa0 ? byte - 0x7fu + 33u : 67u);
}

int bytelevel_byte(uint32_t cp)
{
    if (cp <= 0xff)
        return spells_itself(cp) ? (int)cp : -1;
    if (cp > 0x143)
        return -1;
    cp -= 0x100;
    return (int)(cp <= 32 ? cp : cp <= 66 ? cp - 33 + 0x7f : 0xad);
}

bool bytelevel_decode(unsigned char *dst, size_t *n, const char *token, size_t len)
{
    const unsigned char *s = (const unsigned char *)token;
    size_t width;

    *n = 0;
    for (size_t i = 0; i < len; i += width) {
        int byte = bytelevel_byte(utf8_get(s + i, &width));

        if (byte < 0) {
            memcpy(dst, token, len);
            *n = len;
            return false;
        }
        dst[(*n)++] = (unsigned char)byte;
    }
    return true;
}

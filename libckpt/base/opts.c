/* opts - see opts.h. */
#include "libckpt/base/opts.h"

#include <string.h>

int ckpt_opts_read(void *dst, size_t size, const void *src, struct ckpt_err *err)
{
    const unsigned char *bytes = src;
    size_t n = 0;

    memset(dst, 0, size);
    if (!src)
        return 0;
    memcpy(&n, src, sizeof n);
    n = n ? n : size;                   /* no struct has grown since 0.1 */
    if (n < sizeof n)
        return ckpt_fail(err, CKPT_EUSAGE, "options of %zu bytes: their size is their sizeof, or 0",
                         n);
    for (size_t i = size; i < n; i++)
        if (bytes[i])
            return ckpt_fail(err, CKPT_EUNSUPPORTED, "options of a newer libckpt: %zu bytes are "
                             "known, byte %zu is set", size, i);
    memcpy(dst, src, n < size ? n : size);
    memcpy(dst, &size, sizeof size);
    return 0;
}

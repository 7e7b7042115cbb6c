/*
 * A W&B run of any bytes, its checksums made right: refused with a sentence, or a log
 * whose series hold what they count.
 * Seeds: tests/golden/logs.
 */
#include <zlib.h>

#include "tests/fuzz/lib/log_walk.h"

static void mend(unsigned char *b, size_t size)
{
    size_t at = 7;

    while (size > at && size - at >= 7) {
        size_t len;

        if (32768 - at % 32768 < 7) {
            at += 32768 - at % 32768;
            continue;
        }
        len = (size_t)b[at + 4] | (size_t)b[at + 5] << 8;
        if (len > size - at - 7)
            return;
        put_u32(b + at, (uint32_t)crc32(0, b + at + 6, (unsigned)len + 1));
        at += 7 + len;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    return mended_log_walk(data, size, mend);
}

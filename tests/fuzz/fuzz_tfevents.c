/*
 * A TensorBoard event file of any bytes, its checksums made right: refused with a sentence, or a
 * log whose series hold what they count.
 * Seeds: tests/golden/logs.
 */
#include "formats/logs/crc32c.h"
#include "tests/fuzz/lib/log_walk.h"

static void mend(unsigned char *b, size_t size)
{
    size_t at = 0;

    while (size - at >= 16) {
        uint64_t len = 0;

        for (int k = 7; k >= 0; k--)
            len = len << 8 | b[at + (size_t)k];
        put_u32(b + at + 8, crc32c_masked(b + at, 8));
        if (len > size - at - 16)
            return;
        put_u32(b + at + 12 + len, crc32c_masked(b + at + 12, (size_t)len));
        at += 16 + (size_t)len;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    return mended_log_walk(data, size, mend);
}

/*
 * A W&B run of any bytes, its checksums made right: refused with a sentence, or a log
 * whose series hold what they count.
 * Seeds: tests/golden/logs.
 */
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "tests/fuzz/lib/log_walk.h"

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size);

static void put_u32(unsigned char *b, uint32_t v)
{
    for (int k = 0; k < 4; k++)
        b[k] = (unsigned char)(v >> 8 * k);
}

/* Checksums would keep the fuzzer out of all that lies behind them. */
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

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size)
{
    unsigned char *copy = malloc(size + 1);

    if (!copy)
        abort();
    memcpy(copy, data, size);
    mend(copy, size);
    log_walk(copy, size);
    free(copy);
    return 0;
}

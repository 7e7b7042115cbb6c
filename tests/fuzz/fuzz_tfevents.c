/*
 * A TensorBoard event file of any bytes, its checksums made right: refused with a sentence, or a log
 * whose series hold what they count.
 * Seeds: tests/golden/logs.
 */
#include <stdlib.h>
#include <string.h>

#include "formats/logs/crc32c.h"
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

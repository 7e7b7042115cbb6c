/* crc32: what zlib gives, for every length, alignment, start and cut. */
#include "tests/unit/unit.h"

#include <stdlib.h>
#include <zlib.h>

#include "libckpt/base/crc32.h"

#define SIZE 5000

static unsigned char *bytes(void)
{
    unsigned char *p = malloc(SIZE + 64);
    uint32_t state = 5;

    for (size_t i = 0; i < SIZE + 64; i++)
        p[i] = (unsigned char)((state = state * 1664525 + 1013904223) >> 24);
    return p;
}

TEST(every_length_and_alignment)
{
    unsigned char *p = bytes();

    assert_int_equal(ckpt_crc32(0, "123456789", 9), 0xcbf43926);
    for (size_t n = 0; n <= SIZE; n += n < 700 ? 1 : 61)
        for (size_t at = 0; at < 20; at++) {
            uint32_t start = n % 3 ? (uint32_t)(n * 2654435761u) : 0;

            if (ckpt_crc32(start, p + at, n) != (uint32_t)crc32_z(start, p + at, n))
                fail_msg("%zu bytes at %zu", n, at);
        }
    free(p);
}

TEST(parts_join)
{
    unsigned char *p = bytes();
    uint32_t whole = ckpt_crc32(0, p, SIZE);

    for (size_t cut = 0; cut <= SIZE; cut += 37) {
        uint32_t a = ckpt_crc32(0, p, cut);

        assert_int_equal(ckpt_crc32(a, p + cut, SIZE - cut), whole);
        assert_int_equal(ckpt_crc32_join(a, ckpt_crc32(0, p + cut, SIZE - cut), SIZE - cut),
                         whole);
    }
    free(p);
}

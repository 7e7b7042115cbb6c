/*
 * range - find the range that holds an offset; each range begins where the one before it ends.
 */
#ifndef CKPT_LIBCKPT_BASE_RANGE_H
#define CKPT_LIBCKPT_BASE_RANGE_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/*
 * The last of n ranges that begins at or before `at`; an empty range begins where the next does.
 * begin points to range 0's 64-bit begin, which is not negative; each further one is `size` bytes
 * after the one before.
 */
static inline size_t ckpt_range_of(const void *begin, size_t n, size_t size, uint64_t at)
{
    size_t low = 0, high = n;

    while (high - low > 1) {
        size_t mid = low + (high - low) / 2;
        uint64_t first;

        memcpy(&first, (const char *)begin + mid * size, sizeof first);
        if (first <= at)
            low = mid;
        else
            high = mid;
    }
    return low;
}

#endif

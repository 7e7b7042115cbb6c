/*
 * crc32 - see crc32.h.
 *
 * Carry-less multiplication folds four blocks of 16 bytes at a time, then the four into one,
 * which Barrett reduction turns into the checksum: V. Gopal and others, "Fast CRC Computation for
 * Generic Polynomials Using PCLMULQDQ Instruction" (Intel, 2009), with the constants given there
 * for this polynomial.
 */
#include "libckpt/base/crc32.h"

#include <zlib.h>

#if defined(__x86_64__)
#include <immintrin.h>
#include <sys/platform/x86.h>

#define LEAST 256               /* below that many bytes the tables are as fast */

/* Fold x over the bytes at the distance that constant k is made for. */
#define FOLD(x, k, next)                                                                      \
    _mm_xor_si128(_mm_xor_si128(_mm_clmulepi64_si128(x, k, 0x00),                             \
                                _mm_clmulepi64_si128(x, k, 0x11)), next)

/* n is a multiple of 16, at least 64; crc is inverted, on entry and on return. */
__attribute__((target("pclmul,sse4.1"))) static uint32_t fold(uint32_t crc,
                                                               const unsigned char *p, size_t n)
{
    const __m128i by_4 = _mm_set_epi64x(0x1c6e41596, 0x154442bd4);
    const __m128i by_1 = _mm_set_epi64x(0x0ccaa009e, 0x1751997d0);
    const __m128i last = _mm_set_epi64x(0, 0x163cd6124);
    const __m128i poly = _mm_set_epi64x(0x1f7011641, 0x1db710641);
    const __m128i low = _mm_set_epi32(0, -1, 0, -1);
    const __m128i_u *b = (const __m128i_u *)p;
    __m128i x0 = _mm_xor_si128(_mm_loadu_si128(b), _mm_cvtsi32_si128((int)crc));
    __m128i x1 = _mm_loadu_si128(b + 1), x2 = _mm_loadu_si128(b + 2), t;
    __m128i x3 = _mm_loadu_si128(b + 3);

    for (b += 4, n -= 64; n >= 64; b += 4, n -= 64) {
        x0 = FOLD(x0, by_4, _mm_loadu_si128(b));
        x1 = FOLD(x1, by_4, _mm_loadu_si128(b + 1));
        x2 = FOLD(x2, by_4, _mm_loadu_si128(b + 2));
        x3 = FOLD(x3, by_4, _mm_loadu_si128(b + 3));
    }
    x0 = FOLD(x0, by_1, x1);
    x0 = FOLD(x0, by_1, x2);
    x0 = FOLD(x0, by_1, x3);
    for (; n >= 16; b++, n -= 16)
        x0 = FOLD(x0, by_1, _mm_loadu_si128(b));
    x0 = _mm_xor_si128(_mm_srli_si128(x0, 8), _mm_clmulepi64_si128(x0, by_1, 0x10));
    t = _mm_clmulepi64_si128(_mm_and_si128(x0, low), last, 0x00);
    x0 = _mm_xor_si128(_mm_srli_si128(x0, 4), t);
    t = _mm_clmulepi64_si128(_mm_and_si128(x0, low), poly, 0x10);
    t = _mm_clmulepi64_si128(_mm_and_si128(t, low), poly, 0x00);
    return (uint32_t)_mm_extract_epi32(_mm_xor_si128(x0, t), 1);
}
#endif

uint32_t ckpt_crc32(uint32_t crc, const void *bytes, size_t n)
{
    const unsigned char *p = bytes;

#if defined(__x86_64__)
    if (n >= LEAST && CPU_FEATURE_ACTIVE(PCLMULQDQ) && CPU_FEATURE_ACTIVE(SSE4_1)) {
        crc = ~fold(~crc, p, n & ~(size_t)15);
        p += n & ~(size_t)15;
        n &= 15;
    }
#endif
    return (uint32_t)crc32_z(crc, p, n);
}

uint32_t ckpt_crc32_join(uint32_t a, uint32_t b, uint64_t bytes_b)
{
    return (uint32_t)crc32_combine(a, b, (z_off_t)bytes_b);
}

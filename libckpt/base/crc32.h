/*
 * crc32 - the checksum of zip archives at the speed of memory: CRC-32 with the polynomial of
 * IEEE 802.3 (0xedb88320, bits reflected), what zlib's crc32 gives.
 */
#ifndef CKPT_LIBCKPT_BASE_CRC32_H
#define CKPT_LIBCKPT_BASE_CRC32_H

#include <stddef.h>
#include <stdint.h>

/* Of bytes that follow those whose checksum is crc; 0 before the first. */
uint32_t ckpt_crc32(uint32_t crc, const void *bytes, size_t n);
/* Of a and b one after the other, from both checksums. */
uint32_t ckpt_crc32_join(uint32_t a, uint32_t b, uint64_t bytes_b);

#endif

/*
 * crc32 - the checksum of zip archives at memory speed: CRC-32 with the polynomial of IEEE 802.3
 * (0xedb88320, bits reflected), the same values as zlib's crc32.
 */
#ifndef CKPT_LIBCKPT_BASE_CRC32_H
#define CKPT_LIBCKPT_BASE_CRC32_H

#include <stddef.h>
#include <stdint.h>

/* Continue checksum crc (0 before the first bytes) over n more bytes. */
uint32_t ckpt_crc32(uint32_t crc, const void *bytes, size_t n);
/* Checksum of a followed by b, from the checksums of both. */
uint32_t ckpt_crc32_join(uint32_t a, uint32_t b, uint64_t bytes_b);

#endif

/*
 * crc32c - the checksum of TFRecord files: CRC-32 with Castagnoli's polynomial, as RFC 3720 has
 * it, and its masked form (rotated and shifted, so that the checksum of data that contains
 * checksums stays useful).
 */
#ifndef CKPT_FORMATS_LOGS_CRC32C_H
#define CKPT_FORMATS_LOGS_CRC32C_H

#include <stddef.h>
#include <stdint.h>

uint32_t crc32c(const void *bytes, size_t n);           /* "123456789" gives 0xe3069283 */
uint32_t crc32c_masked(const void *bytes, size_t n);    /* and 0xc78ab0e5 */

#endif

/*
 * crc_join - the CRC-32 of bytes that arrive in pieces, in any order.
 *
 * Adjacent pieces are joined at once, so memory grows with the number of gaps only.
 */
#ifndef CKPT_FORMATS_CONTAINER_CRC_JOIN_H
#define CKPT_FORMATS_CONTAINER_CRC_JOIN_H

#include <stdbool.h>

#include "libckpt/fail.h"

struct crc_piece {
    uint64_t start, bytes;
    uint32_t crc;
};

/* A zeroed struct has no pieces. */
struct crc_join {
    struct crc_piece *piece;        /* sorted, none adjacent to the next */
    uint32_t          n, cap;
};

/* Add a piece that overlaps none of the others; CKPT_ESTATE otherwise. */
int crc_join_add(struct crc_join *j, uint64_t start, uint64_t bytes, uint32_t crc,
                 struct ckpt_err *err);
/* True when all of [0, bytes) has been added; *crc is then its CRC. */
bool crc_join_whole(const struct crc_join *j, uint64_t bytes, uint32_t *crc);
void crc_join_release(struct crc_join *j);

#endif

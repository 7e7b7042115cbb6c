/*
 * crc_join - the CRC-32 of bytes that arrive in pieces, in any order.
 *
 * Pieces that touch are joined at once: only as many are kept as there are gaps.
 */
#ifndef CKPT_FORMATS_CONTAINER_CRC_JOIN_H
#define CKPT_FORMATS_CONTAINER_CRC_JOIN_H

#include <stdbool.h>

#include "libckpt/fail.h"

struct crc_piece {
    uint64_t start, bytes;
    uint32_t crc;
};

/* A zeroed struct is one without pieces. */
struct crc_join {
    struct crc_piece *piece;        /* in order, none touching the next */
    uint32_t          n, cap;
};

/* A piece that overlaps none that is there; CKPT_ESTATE otherwise. */
int crc_join_add(struct crc_join *j, uint64_t start, uint64_t bytes, uint32_t crc,
                 struct ckpt_err *err);
/* True when all of [0, bytes) has come; *crc is then its CRC. */
bool crc_join_whole(const struct crc_join *j, uint64_t bytes, uint32_t *crc);
void crc_join_release(struct crc_join *j);

#endif

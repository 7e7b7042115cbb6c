/*
 * unfold - unpack a zlib stream (a deflated member of a zip file, or a bare stream as joblib
 * writes them) into an unnamed file, within spool.h's limit against bombs.
 */
#ifndef CKPT_FORMATS_CONTAINER_UNFOLD_H
#define CKPT_FORMATS_CONTAINER_UNFOLD_H

#include "libckpt/file.h"

enum unfold_as { UNFOLD_DEFLATE, UNFOLD_ZLIB };

/*
 * Unpack [offset, offset + size) of file; where: see ckpt_spool_file.  *used: packed bytes that
 * the stream takes.  CKPT_EFORMAT when it is damaged or truncated, CKPT_ELIMIT for a bomb.
 */
int unfold(struct ckpt_file **out, uint64_t *used, const struct ckpt_file *file, uint64_t offset,
           uint64_t size, enum unfold_as as, const char *where, struct ckpt_err *err);

#endif

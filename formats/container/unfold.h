/*
 * unfold - bytes that zlib packed (a deflated member of a zip file, or a bare zlib stream as
 * joblib writes them), unpacked into a file without a name, within spool.h's limit against bombs.
 */
#ifndef CKPT_FORMATS_CONTAINER_UNFOLD_H
#define CKPT_FORMATS_CONTAINER_UNFOLD_H

#include "libckpt/file.h"

enum unfold_as { UNFOLD_DEFLATE, UNFOLD_ZLIB };

/*
 * [offset, offset + size) of file; where: see ckpt_spool_file.  *used: packed bytes that the
 * stream has.  CKPT_EFORMAT when it is damaged or cut, CKPT_ELIMIT for a bomb.
 */
int unfold(struct ckpt_file **out, uint64_t *used, const struct ckpt_file *file, uint64_t offset,
           uint64_t size, enum unfold_as as, const char *where, struct ckpt_err *err);

#endif

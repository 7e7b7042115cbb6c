/*
 * opts - option structs of programs that were compiled against another version of the library.
 *
 * Such a struct begins with `size_t size`, its sizeof where the program was compiled, or 0, which
 * stands for version 0.1; later versions add fields at the end only, whose zero changes nothing.
 */
#ifndef CKPT_LIBCKPT_BASE_OPTS_H
#define CKPT_LIBCKPT_BASE_OPTS_H

#include <stddef.h>

#include "libckpt/fail.h"

/*
 * Fill dst, of size bytes, from src (may be NULL); fields that src is too short for become zero.
 * CKPT_EUNSUPPORTED when src sets a field that this version does not have.
 */
int ckpt_opts_read(void *dst, size_t size, const void *src, struct ckpt_err *err);

#endif

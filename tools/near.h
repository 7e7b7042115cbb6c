/*
 * near - how far a mistyped name is from one that exists.
 */
#ifndef CKPT_TOOLS_NEAR_H
#define CKPT_TOOLS_NEAR_H

#include <stddef.h>

/* Edit distance between a[0..n) and b, "_" equal to "-"; SIZE_MAX when one is too long to
 * compare. */
size_t near_edits(const char *a, size_t n, const char *b);

#endif

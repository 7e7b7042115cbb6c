/*
 * near - how far a mistyped name is from one that exists.
 */
#ifndef CKPT_TOOLS_NEAR_H
#define CKPT_TOOLS_NEAR_H

#include <stddef.h>

/* Edits between a[0..n) and b, "_" as "-"; SIZE_MAX when one is longer than is looked at. */
size_t near_edits(const char *a, size_t n, const char *b);

#endif

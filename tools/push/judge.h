/*
 * judge - whether a file of settings may be published unasked: a pickle that a reader could load
 * without running anything, with no token in it.
 */
#ifndef CKPT_TOOLS_PUSH_JUDGE_H
#define CKPT_TOOLS_PUSH_JUDGE_H

#include "libckpt/file.h"

/* Takes file.  False tells why not, in why (of size bytes). */
bool judge_settings(char *why, size_t size, struct ckpt_file *file);

#endif

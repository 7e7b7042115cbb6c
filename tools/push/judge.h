/*
 * judge - whether a settings file may be published by default: a pickle that can be loaded
 * without executing anything, and that contains no token.
 */
#ifndef CKPT_TOOLS_PUSH_JUDGE_H
#define CKPT_TOOLS_PUSH_JUDGE_H

#include "libckpt/file.h"

/* Takes file.  False gives the reason in why (of size bytes). */
bool judge_settings(char *why, size_t size, struct ckpt_file *file);

#endif

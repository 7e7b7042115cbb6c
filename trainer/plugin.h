/*
 * plugin - opening a plug-in of the program: communicators and devices that need libraries which
 * not every machine has.
 */
#ifndef CKPT_TRAINER_PLUGIN_H
#define CKPT_TRAINER_PLUGIN_H

#include <stddef.h>

/*
 * Load the file `name` from the folder that CKPT_PLUGIN_PATH names (an absolute path), from beside
 * the program, or, for a program in PREFIX/bin, from PREFIX/lib/ckpt: the first of them that has
 * it.  Never from the working directory, nor from a folder or file that anybody may write to or
 * that belongs to neither the system, this user nor the program's owner.  Returns dlopen's handle,
 * which is never closed; NULL with the reason in why.
 */
void *plugin_open(const char *name, char *why, size_t why_size);

#endif

/*
 * plugin - open plug-ins of the program: communicators and devices whose libraries are not on
 * every machine.
 */
#ifndef CKPT_TRAINER_PLUGIN_H
#define CKPT_TRAINER_PLUGIN_H

#include <stddef.h>

/*
 * Load the file `name` from the first of these folders that has it: the one that CKPT_PLUGIN_PATH
 * names (an absolute path), the program's own, or, for a program in PREFIX/bin, PREFIX/lib/ckpt.
 * Never from the working directory, nor a folder or file that anybody may write to, or that is
 * owned by neither the system, this user nor the program's owner.  Returns dlopen's handle, which
 * is never closed; NULL with the reason in why.
 */
void *plugin_open(const char *name, char *why, size_t why_size);

#endif

/*
 * plugin - opening a plug-in of the program: communicators and devices that need libraries which
 * not every machine has.
 */
#ifndef CKPT_PLUGIN_H
#define CKPT_PLUGIN_H

#include <stddef.h>

/*
 * Load the file `name`, which stands beside the program, above it (tests) or in ../lib/ckpt
 * (installed).  Returns dlopen's handle, which is never closed; NULL with the reason in why.
 */
void *plugin_open(const char *name, char *why, size_t why_size);

#endif

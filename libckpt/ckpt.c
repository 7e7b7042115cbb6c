/* ckpt - see ckpt.h; ckpt_open and its like are in formats/formats.c. */
#include "libckpt/ckpt.h"

const char *ckpt_version(void) { return CKPT_VERSION; }

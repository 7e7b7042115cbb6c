/*
 * keys - shared by the lists of families: macros for the rows of keys, and limits.
 */
#ifndef CKPT_FORMATS_FAMILIES_KEYS_H
#define CKPT_FORMATS_FAMILIES_KEYS_H

#include "formats/families/family.h"

#define AT(field) offsetof(struct arch, field)
/* Larger than in any published model; products of two sizes stay far from overflow. */
#define MAX_VOCAB  (1 << 24)
#define MAX_HIDDEN (1 << 20)
#define MAX_LAYERS 4096
#define MAX_POSITIONS (1 << 28)
#define MAX_EXPERTS 4096

#define END {NULL, NULL, KEY_INT, 0, 0, 0, 0}
#define NAMES_END {ROLE_COUNT, NULL}

extern const struct family families_early[], families_llama[], families_encoders[];
extern const struct family families_others[];

#endif

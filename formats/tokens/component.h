/*
 * component - what the parts of a tokenizer.json have in common: an object with a type, or a
 * Sequence of such, which may hold sequences.
 */
#ifndef CKPT_FORMATS_TOKENS_COMPONENT_H
#define CKPT_FORMATS_TOKENS_COMPONENT_H

#include <jansson.h>
#include <stdbool.h>

#include "libckpt/fail.h"

/* Rows of a table, whose first member is the name of a type, and what is done with one. */
struct component_table {
    const void *row;
    size_t      n, size;            /* rows; bytes of one */
    int (*add)(void *ctx, const void *row, const json_t *json, struct ckpt_err *err);
};

/* True when v is absent or null. */
bool component_is_absent(const json_t *v);
/*
 * Add each component in json, in order, by its row: json is one, or sequences of them, whose
 * members are under list; nothing when it is absent.  A type without a row is CKPT_EUNSUPPORTED.
 */
int component_each(const json_t *json, const char *list, const struct component_table *table,
                   void *ctx, struct ckpt_err *err);
/* "pattern": {"String": s} or {"Regex": s}. */
int component_pattern(const json_t *json, const char **pattern, bool *literal,
                      struct ckpt_err *err);
/* A member that is text, copied; fallback NULL: it must be there. */
int component_text(char **out, const json_t *json, const char *key, const char *fallback,
                   struct ckpt_err *err);
/* A member that is one character. */
int component_char(const json_t *json, const char *key, const char **s, struct ckpt_err *err);

#endif

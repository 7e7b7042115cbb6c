/*
 * template - "{field}" text made from a record.
 *
 * Grammar: text with "{" path [ "|" filter ]... "}"; "{{" and "}}" are literal braces.
 * path = name { "." name | "[" integer "]" | "[*]" }, a negative integer counts from the end, a
 * name may be quoted as ['odd name'].  Filters: trim, lower (ASCII letters), json,
 * default:"text".  "{?path}...{/path}" is kept only when the field is there and not empty,
 * "{!path}...{/path}" only when it is absent, null or empty, "{~path}...{/path}" only when the
 * record does not have it, not even as null.
 * Numbers print shortest, booleans true and false; "[*]" joins a list with ", ".
 */
#ifndef CKPT_TRAINER_DATA_TEMPLATE_H
#define CKPT_TRAINER_DATA_TEMPLATE_H

#include <jansson.h>

#include "libckpt/base/buf.h"

struct template;

/* "alpaca" names the prompt of the Stanford Alpaca data.  CKPT_ECONFIG says where the syntax is
 * wrong. */
int template_parse(struct template **out, const char *text, struct ckpt_err *err);
void template_free(struct template *t);
/* Append to out.  CKPT_EFORMAT when a field is absent or null, with the names of the fields
 * present. */
int template_render(const struct template *t, struct ckpt_buf *out, const json_t *record,
                    struct ckpt_err *err);

#endif

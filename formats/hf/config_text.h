/*
 * config_text - change one member of config.json and leave every other byte unchanged.
 *
 * Rewriting it through a JSON tree would change what others wrote: numbers' spelling, NaN and
 * Infinity, order, indentation.
 */
#ifndef CKPT_FORMATS_HF_CONFIG_TEXT_H
#define CKPT_FORMATS_HF_CONFIG_TEXT_H

#include <stdbool.h>

#include "libckpt/base/buf.h"

/*
 * text is one JSON object that ckpt_json_parse accepts (Python's words too).  Set member `key` of
 * the object to `value` (JSON text); a new member goes to the end.  CKPT_EFORMAT when text is not
 * an object.
 */
int config_set(struct ckpt_buf *out, const char *text, size_t len, const char *key,
               const char *value, struct ckpt_err *err);

/*
 * Replace "dtype" and "torch_dtype", where they name a floating dtype, by torch's name `dtype`:
 * in the object itself and in the members that describe parts of the model ("text_config").
 */
int config_set_dtype(struct ckpt_buf *out, const char *text, size_t len, const char *dtype,
                     struct ckpt_err *err);

#endif

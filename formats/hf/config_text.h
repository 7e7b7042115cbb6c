/*
 * config_text - config.json with one fact changed and every other byte as it was.
 *
 * Rewriting it through a JSON tree would change what others wrote: numbers' spelling, NaN and
 * Infinity, order, indentation.
 */
#ifndef CKPT_FORMATS_HF_CONFIG_TEXT_H
#define CKPT_FORMATS_HF_CONFIG_TEXT_H

#include <stdbool.h>

#include "libckpt/base/buf.h"

/*
 * text is one JSON object that ckpt_json_parse accepts (Python's words too).  Member `key` of
 * the object gets `value` (JSON text); it is put at the end when there is none.
 * CKPT_EFORMAT when text is no object.
 */
int config_set(struct ckpt_buf *out, const char *text, size_t len, const char *key,
               const char *value, struct ckpt_err *err);

/*
 * "dtype" and "torch_dtype", where they name a floating dtype, become torch's name `dtype`: in
 * the object itself and in the members that describe parts of the model ("text_config").
 */
int config_set_dtype(struct ckpt_buf *out, const char *text, size_t len, const char *dtype,
                     struct ckpt_err *err);

#endif

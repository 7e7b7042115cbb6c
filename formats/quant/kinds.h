/*
 * quant/kinds - the table of libraries that quantise weights: how each is recognised, and whether
 * it is read.
 *
 * Sources: transformers 5.23 utils/quantization_config.py (QuantizationMethod), and models saved
 * by the libraries in the rows.
 */
#ifndef CKPT_FORMATS_QUANT_KINDS_H
#define CKPT_FORMATS_QUANT_KINDS_H

#include "formats/quant/config.h"

struct quant_kind {
    const char *method;         /* quant_method in lower case */
    const char *format;         /* the config's value for the layout; NULL: any */
    const char *name;           /* name for messages */
    bool        is_read;
    const char *hint;           /* if it is not read; or NULL */
};

/* The row for a config: never NULL, unknown methods have a row too. */
const struct quant_kind *quant_kind_of(const struct quant_config *c);
/* The row that tensor i's name, dtype and neighbours suggest, or NULL. */
const struct quant_kind *quant_kind_shown(const struct ckpt_source *src, size_t i);

#endif

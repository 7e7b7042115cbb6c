/*
 * quant/kinds - the table of libraries that quantise weights: by what they are known, and which
 * are read.
 *
 * Sources: transformers 5.23 utils/quantization_config.py (QuantizationMethod), and the saved
 * models of the libraries that the rows name.
 */
#ifndef CKPT_FORMATS_QUANT_KINDS_H
#define CKPT_FORMATS_QUANT_KINDS_H

#include "formats/quant/config.h"

struct quant_kind {
    const char *method;         /* quant_method in lower case */
    const char *format;         /* what the config says about the layout; NULL: whatever it is */
    const char *name;           /* for a sentence */
    bool        is_read;
    const char *hint;           /* where it is not read; or NULL */
};

/* The row that a config belongs to: never NULL, methods that nobody knows have one too. */
const struct quant_kind *quant_kind_of(const struct quant_config *c);
/* The row that tensor i shows by its name, dtype and the tensors beside it, or NULL. */
const struct quant_kind *quant_kind_shown(const struct ckpt_source *src, size_t i);

#endif

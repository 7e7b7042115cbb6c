/*
 * quant/config - what a checkpoint says about how its weights are quantised, and a checkpoint that
 * no longer says so.
 *
 * Places, in the order in which they are looked at: config.json's quantization_config,
 * compression_config or MLX's quantization, the same within text_config; quantize_config.json
 * (AutoGPTQ), quant_config.json (AutoAWQ), hf_quant_config.json (ModelOpt).
 */
#ifndef CKPT_FORMATS_QUANT_CONFIG_H
#define CKPT_FORMATS_QUANT_CONFIG_H

#include "libckpt/source.h"

#define QUANT_MAX_BLOCKS 16

struct quant_config {
    char            method[40];         /* in lower case; "" when nothing is said */
    char            format[40];         /* of the layout, in lower case, or "" */
    enum ckpt_dtype dtype;              /* of the model, or NONE */
    int64_t         block[QUANT_MAX_BLOCKS][2];     /* sizes that scales may stand for */
    size_t          n_block;
    int64_t         bits;               /* 0: not said */
    bool            zeros_as_they_are;  /* GPTQ: else they are stored less one */
};

/* CKPT_EFORMAT for a description that is no JSON, or has a field out of range. */
int quant_config_read(struct quant_config *out, const struct ckpt_source *src,
                      struct ckpt_err *err);
/* The same of a config.json alone. */
int quant_config_of(struct quant_config *out, const json_t *config, struct ckpt_err *err);
/* Takes the description out of a config.json; whether there was one. */
bool quant_config_strip(json_t *config);
/* *src without any of it.  Takes *src; NULL on failure. */
int quant_config_drop(struct ckpt_source **src, struct ckpt_err *err);

#endif

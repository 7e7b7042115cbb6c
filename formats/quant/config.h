/*
 * quant/config - a checkpoint's description of how its weights are quantised, and its removal.
 *
 * Places, in order of precedence: config.json's quantization_config, compression_config or MLX's
 * quantization, the same within text_config; quantize_config.json (AutoGPTQ), quant_config.json
 * (AutoAWQ), hf_quant_config.json (ModelOpt).
 */
#ifndef CKPT_FORMATS_QUANT_CONFIG_H
#define CKPT_FORMATS_QUANT_CONFIG_H

#include "libckpt/source.h"

#define QUANT_MAX_BLOCKS 16

struct quant_config {
    char            method[40];         /* in lower case; "" when there is none */
    char            format[40];         /* of the layout, in lower case, or "" */
    enum ckpt_dtype dtype;              /* of the model, or NONE */
    int64_t         block[QUANT_MAX_BLOCKS][2];     /* block sizes that a scale may cover */
    size_t          n_block;
    int64_t         bits;               /* 0: not said */
    bool            zeros_as_they_are;  /* GPTQ: zeros are stored directly; else minus one */
};

/* CKPT_EFORMAT for a description that is not JSON, or has a field out of range. */
int quant_config_read(struct quant_config *out, const struct ckpt_source *src,
                      struct ckpt_err *err);
/* The same from a config.json alone. */
int quant_config_of(struct quant_config *out, const json_t *config, struct ckpt_err *err);
/* Remove the description from a config.json; whether there was one. */
bool quant_config_strip(json_t *config);
/* Remove every description from *src.  Takes *src; NULL on failure. */
int quant_config_drop(struct ckpt_source **src, struct ckpt_err *err);

#endif

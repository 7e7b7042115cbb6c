/*
 * quant - quantised weights of any library, dequantised to the values that the library computes
 * with.
 *
 * One rule for every quantization_config: where values are needed (a cast, an adapter, an
 * average, GGUF, evaluation, training, a comparison), packed weights are dequantised, or the
 * quantisation is named and refused.  A copy that needs no values may keep codes, scales and
 * config.json unchanged.
 *
 * Evidence: config.json's quantization_config (or MLX's "quantization", or the side files of
 * AutoGPTQ, AutoAWQ and ModelOpt), and the names of tensors.  Layouts are recognised by names and
 * dtypes, so a single file without a config is read as well.  quant/kinds.c has the table of
 * libraries, quant/parts.h the layouts.
 */
#ifndef CKPT_FORMATS_QUANT_QUANT_H
#define CKPT_FORMATS_QUANT_QUANT_H

#include "libckpt/source.h"

/* How a checkpoint is quantised. */
struct quant_told {
    size_t      n;              /* packed tensors; 0: not quantised */
    char        what[128];      /* "FP8 with block scales", "GPTQ" ..., for messages */
    bool        is_read;        /* quant_view can dequantise it */
    const char *hint;           /* a program that converts it, if it is not read; or NULL */
};

/* CKPT_EFORMAT when the description of the quantisation cannot be read. */
int quant_tell(struct quant_told *out, const struct ckpt_source *src, struct ckpt_err *err);
/* Whether tensor i holds codes of weights. */
bool quant_is_packed(const struct ckpt_source *src, size_t i);
/* Whether weights with such a config.json can be read: CKPT_EUNSUPPORTED names the obstacle. */
int quant_check_config(const json_t *config, struct ckpt_err *err);
/*
 * src dequantised: packed tensors under the names and shapes of the model's own parameters, in
 * the dtype of their scales (F16, BF16), else in the one config.json names, else BF16.  Tensors
 * that only describe another, scales of activations, and quantization_config are removed.  Takes
 * src, on failure too; *out is src itself when nothing is packed.  CKPT_EUNSUPPORTED for a
 * quantisation that is not read, CKPT_EFORMAT when parts are missing or do not fit.
 */
int quant_view(struct ckpt_source **out, struct ckpt_source *src, struct ckpt_err *err);

#endif

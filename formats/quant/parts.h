/*
 * quant/parts - which tensors of a source are packed, their layouts, and the parts of each.
 *
 * One code per element, rows in order ("scaled"):
 *   X  F8 [.., rows, columns]; X_scale_inv, X_scale (or for X = Y.weight also Y.scale as
 *      DeepSeek's convert.py and Y.scale_weight as ComfyUI write it): one for all; one a row;
 *      [.., ceil(rows / a), ceil(columns / b)] for blocks of a x b elements, those at the edges
 *      smaller.  DeepSeek-V3, Qwen3-FP8, compressed-tensors, FBGEMM, ModelOpt.
 *   X  I8; X_scale as above; X_zero_point, if any, of the scale's shape.  compressed-tensors
 *
 * Rows of bits in words, the first element lowest ("packed", compressed-tensors' pack-quantized):
 *   Y.weight_packed      I32 [rows, ceil(columns * bits / 32)], code + 2^(bits - 1)
 *   Y.weight_shape       [2]: rows, columns
 *   Y.weight_scale       [rows, groups]
 *   Y.weight_zero_point  the same in words down the rows, I32 [ceil(rows * bits / 32), groups],
 *                        or I8 [rows, groups]
 *   Y.weight_g_idx       I32 [columns], the group of each
 *
 * Transposed, K inputs and N outputs ("words"; the value lies as [N, K], under Y.weight):
 *   GPTQ   Y.qweight  I32 [K * bits / 32, N]; Y.qzeros I32 [groups, N * bits / 32], less one
 *          where the format is not gptq_v2; Y.scales [groups, N]; Y.g_idx I32 [K]
 *   AWQ    Y.qweight  I32 [K, N / 8]; Y.qzeros I32 [groups, N / 8]; Y.scales [groups, N];
 *          eight outputs a word, in the order 0 2 4 6 1 3 5 7
 *
 * A value is (code - zero) * scale in F32, rounded once: products of 8 and 16 bits are exact in
 * F32, so libraries that compute in the scales' own dtype get the same.
 *
 * Sources: DeepSeek-V3 inference/kernel.py and fp8_cast_bf16.py; transformers 5.23
 * integrations/finegrained_fp8.py; compressed-tensors 0.20 compressors/{naive_quantized,
 * pack_quantized}, quantization/lifecycle/forward_helpers.py; AutoGPTQ qlinear_cuda.py; AutoAWQ
 * awq/utils/packing_utils.py.
 */
#ifndef CKPT_FORMATS_QUANT_PARTS_H
#define CKPT_FORMATS_QUANT_PARTS_H

#include "formats/quant/config.h"
#include "formats/quant/seen.h"

enum quant_how { QUANT_PLAIN, QUANT_SCALED, QUANT_PACKED, QUANT_GPTQ, QUANT_AWQ };

/* A part that is absent is QUANT_NONE. */
struct quant_part {
    struct quant_seen seen;
    enum quant_how    how;
    size_t            scale, zero, order;           /* indices of tensors in the source */
    int64_t           rows, columns;                /* of one matrix; shape may have several */
    int64_t           block[2];                     /* elements that share a scale */
    int64_t           grid[2];                      /* scales of one matrix */
    unsigned          bits;                         /* bits of a code in words */
    unsigned          less;                         /* a zero in words is stored minus this */
};

/* How tensor i is packed, judged by its name, its dtype and the names beside it. */
enum quant_how quant_how_of(const struct ckpt_source *src, size_t i);
/* List all tensors of the view, in order, and check their parts. */
int quant_parts(struct quant_seen_list *out, struct ckpt_source *src,
                const struct quant_config *config, struct ckpt_err *err);

#endif

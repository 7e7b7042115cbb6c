/* quant/kinds - see quant/kinds.h. */
#include "formats/quant/kinds.h"

#include <string.h>

#include "formats/quant/parts.h"

#define BY_ITS_OWN "load it with its own library and save plain weights from there"

/* In order of precedence: a method's format comes before the method. */
static const struct quant_kind rows[] = {
    {"bitsandbytes", NULL, "bitsandbytes", true, NULL},
    {"fp8", NULL, "FP8 with block scales", true, NULL},
    {"fbgemm_fp8", NULL, "FBGEMM FP8", true, NULL},
    {"modelopt", "fp8", "ModelOpt FP8", true, NULL},
    {"modelopt", NULL, "ModelOpt", false, NULL},
    {"compressed-tensors", "nvfp4-pack-quantized", "compressed-tensors NVFP4", false, NULL},
    {"compressed-tensors", "mxfp4-pack-quantized", "compressed-tensors MXFP4", false, NULL},
    {"compressed-tensors", "mxfp6-pack-quantized", "compressed-tensors MXFP6", false, NULL},
    {"compressed-tensors", "mxfp8-quantized", "compressed-tensors MXFP8", false, NULL},
    {"compressed-tensors", "marlin-24", "compressed-tensors Marlin 2:4", false, NULL},
    {"compressed-tensors", "sparse-24-bitmask", "compressed-tensors sparse 2:4", false, NULL},
    {"compressed-tensors", "sparse-bitmask", "compressed-tensors sparse", false, NULL},
    {"compressed-tensors", NULL, "compressed-tensors", true, NULL},
    {"gptq", "marlin", "GPTQ in Marlin's order", false, "GPTQModel saves it as format gptq"},
    {"gptq", "bitblas", "GPTQ in BitBLAS's order", false, "GPTQModel saves it as format gptq"},
    {"gptq", NULL, "GPTQ", true, NULL},
    {"awq", "", "AWQ", true, NULL},
    {"awq", "gemm", "AWQ", true, NULL},
    {"awq", NULL, "AWQ in another order than GEMM's", false, NULL},
    {"auto-round", NULL, "AutoRound", false, "auto-round exports it as auto_gptq or auto_awq"},
    {"mlx", NULL, "MLX", false, "mlx_lm.convert --dequantize writes it as values"},
    {"torchao", NULL, "torchao", false, BY_ITS_OWN},
    {"hqq", NULL, "HQQ", false, BY_ITS_OWN},
    {"quanto", NULL, "quanto", false, BY_ITS_OWN},
    {"eetq", NULL, "EETQ", false, BY_ITS_OWN},
    {"aqlm", NULL, "AQLM", false, BY_ITS_OWN},
    {"vptq", NULL, "VPTQ", false, BY_ITS_OWN},
    {"spqr", NULL, "SpQR", false, BY_ITS_OWN},
    {"higgs", NULL, "HIGGS", false, BY_ITS_OWN},
    {"bitnet", NULL, "BitNet", false, BY_ITS_OWN},
    {"mxfp4", NULL, "MXFP4", false, BY_ITS_OWN},
    {"nvfp4", NULL, "NVFP4", false, BY_ITS_OWN},
    {"mxfp8", NULL, "MXFP8", false, BY_ITS_OWN},
    {"quark", NULL, "Quark", false, BY_ITS_OWN},
    {"fp_quant", NULL, "FP-Quant", false, BY_ITS_OWN},
    {"fouroversix", NULL, "Four Over Six", false, BY_ITS_OWN},
    {"sinq", NULL, "SINQ", false, BY_ITS_OWN},
    {"metal", NULL, "Metal", false, BY_ITS_OWN},
    {"exl2", NULL, "EXL2", false, NULL},
    {"exl3", NULL, "EXL3", false, NULL},
};

static const struct quant_kind unknown = {
    "", NULL, "a library that is not known here", false, BY_ITS_OWN,
};

/* Layouts that are not read, recognised by tensors that only they have. */
static const struct {
    const char *tail, *beside;          /* "Y" tail, and "Y" beside; NULL: tail alone */
    const char *method, *format;
} shown[] = {
    {".weight_packed", ".weight_global_scale", "compressed-tensors", "nvfp4-pack-quantized"},
    {".weight", ".weight_scale_2", "modelopt", ""},
    {"._data", "._scale", "quanto", ""},
    {".W_q", NULL, "hqq", ""},
    {".codes", ".codebooks", "aqlm", ""},
    {".weight", ".weight_scales", "eetq", ""},
    {"_blocks", "_scales", "mxfp4", ""},
    {".indices", ".centroids", "vptq", ""},
    {".dense_weights", NULL, "spqr", ""},
    {".q_weight", ".q_scale", "exl2", ""},
    {".trellis", NULL, "exl3", ""},
    {".weight._quantized_data", NULL, "torchao", ""},
    {".weight_qdata", NULL, "torchao", ""},
};

static const struct quant_kind *row_of(const char *method, const char *format)
{
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (strcmp(rows[i].method, method) == 0 &&
            (!rows[i].format || strcmp(rows[i].format, format) == 0))
            return &rows[i];
    return &unknown;
}

const struct quant_kind *quant_kind_of(const struct quant_config *c)
{
    return row_of(c->method, c->format);
}

/* U32 words of codes with an offset per group: X, with "scales" and "biases" beside it. */
static bool is_mlx(const struct ckpt_source *src, const struct ckpt_tensor *t, size_t n)
{
    return t->dtype == CKPT_U32 && n > 7 && strcmp(t->name + n - 7, ".weight") == 0 &&
           quant_beside(src, t->name, n - 6, "scales") != QUANT_NONE &&
           quant_beside(src, t->name, n - 6, "biases") != QUANT_NONE;
}

const struct quant_kind *quant_kind_shown(const struct ckpt_source *src, size_t i)
{
    const struct ckpt_tensor *t = ckpt_source_tensor(src, i);
    size_t n = strlen(t->name);

    for (size_t k = 0; k < sizeof shown / sizeof shown[0]; k++) {
        size_t len = strlen(shown[k].tail);

        if (n > len && strcmp(t->name + n - len, shown[k].tail) == 0 &&
            (!shown[k].beside ||
             quant_beside(src, t->name, n - len, shown[k].beside) != QUANT_NONE))
            return row_of(shown[k].method, shown[k].format);
    }
    if (is_mlx(src, t, n))
        return row_of("mlx", "");
    if (t->dtype == CKPT_U8 && quant_beside(src, t->name, n, "_scale") != QUANT_NONE)
        return row_of("bitnet", "");
    switch (quant_how_of(src, i)) {
    case QUANT_SCALED:
        return row_of(quant_beside(src, t->name, n, "_scale_inv") != QUANT_NONE
                          ? "fp8" : "compressed-tensors", "");
    case QUANT_PACKED:
        return row_of("compressed-tensors", "");
    case QUANT_GPTQ:
        return row_of("gptq", "");
    case QUANT_AWQ:
        return row_of("awq", "");
    default:
        return NULL;
    }
}

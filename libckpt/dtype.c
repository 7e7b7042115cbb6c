/*
 * dtype - see dtype.h.  Names of other ecosystems: torch 2.15 (torch/storage.py), safetensors 0.8
 * (tensor.rs), numpy, DeepSpeed configs.
 */
#include "libckpt/dtype.h"

#include <string.h>
#include <strings.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "little-endian hosts only");
_Static_assert(sizeof(void *) == 8, "64-bit hosts only");

struct row {
    const char           *name;         /* safetensors' spelling */
    unsigned              bits;
    enum ckpt_dtype_class class;
    const char           *torch;        /* torch.dtype */
    const char           *storage;      /* torch storage class */
    const char           *alias[4];
};

static const struct row rows[CKPT_DTYPE_COUNT] = {
    [CKPT_DTYPE_NONE] = {"?", 0, CKPT_CLASS_OTHER, NULL, NULL, {NULL}},
    [CKPT_BOOL] = {"BOOL", 8, CKPT_CLASS_INT, "bool", "BoolStorage", {NULL}},
    [CKPT_U8] = {"U8", 8, CKPT_CLASS_INT, "uint8", "ByteStorage", {NULL}},
    [CKPT_I8] = {"I8", 8, CKPT_CLASS_INT, "int8", "CharStorage", {NULL}},
    [CKPT_U16] = {"U16", 16, CKPT_CLASS_INT, "uint16", NULL, {NULL}},
    [CKPT_I16] = {"I16", 16, CKPT_CLASS_INT, "int16", "ShortStorage", {"short"}},
    [CKPT_U32] = {"U32", 32, CKPT_CLASS_INT, "uint32", NULL, {NULL}},
    [CKPT_I32] = {"I32", 32, CKPT_CLASS_INT, "int32", "IntStorage", {"int"}},
    [CKPT_U64] = {"U64", 64, CKPT_CLASS_INT, "uint64", NULL, {NULL}},
    [CKPT_I64] = {"I64", 64, CKPT_CLASS_INT, "int64", "LongStorage", {"long"}},
    [CKPT_F16] = {"F16", 16, CKPT_CLASS_FLOAT, "float16", "HalfStorage", {"half", "fp16"}},
    [CKPT_BF16] = {"BF16", 16, CKPT_CLASS_FLOAT, "bfloat16", "BFloat16Storage", {NULL}},
    [CKPT_F32] = {"F32", 32, CKPT_CLASS_FLOAT, "float32", "FloatStorage", {"float", "fp32"}},
    [CKPT_F64] = {"F64", 64, CKPT_CLASS_FLOAT, "float64", "DoubleStorage", {"double", "fp64"}},
    [CKPT_F8_E4M3] = {"F8_E4M3", 8, CKPT_CLASS_FLOAT, "float8_e4m3fn", NULL, {"fp8_e4m3"}},
    [CKPT_F8_E5M2] = {"F8_E5M2", 8, CKPT_CLASS_FLOAT, "float8_e5m2", NULL, {"fp8_e5m2"}},
    [CKPT_F8_E4M3FNUZ] = {"F8_E4M3FNUZ", 8, CKPT_CLASS_FLOAT, "float8_e4m3fnuz", NULL, {NULL}},
    [CKPT_F8_E5M2FNUZ] = {"F8_E5M2FNUZ", 8, CKPT_CLASS_FLOAT, "float8_e5m2fnuz", NULL, {NULL}},
    [CKPT_F8_E8M0] = {"F8_E8M0", 8, CKPT_CLASS_OTHER, "float8_e8m0fnu", NULL, {NULL}},
    [CKPT_C32] = {"C32", 32, CKPT_CLASS_COMPLEX, "complex32", NULL, {"chalf"}},
    [CKPT_C64] = {"C64", 64, CKPT_CLASS_COMPLEX, "complex64", "ComplexFloatStorage", {"cfloat"}},
    [CKPT_C128] = {"C128", 128, CKPT_CLASS_COMPLEX, "complex128", "ComplexDoubleStorage",
                   {"cdouble"}},
    [CKPT_F4] = {"F4", 4, CKPT_CLASS_OTHER, "float4_e2m1fn_x2", NULL, {NULL}},
    [CKPT_F6_E2M3] = {"F6_E2M3", 6, CKPT_CLASS_OTHER, NULL, NULL, {NULL}},
    [CKPT_F6_E3M2] = {"F6_E3M2", 6, CKPT_CLASS_OTHER, NULL, NULL, {NULL}},
    [CKPT_QI8] = {"QI8", 8, CKPT_CLASS_OTHER, "qint8", "QInt8Storage", {NULL}},
    [CKPT_QU8] = {"QU8", 8, CKPT_CLASS_OTHER, "quint8", "QUInt8Storage", {NULL}},
    [CKPT_QI32] = {"QI32", 32, CKPT_CLASS_OTHER, "qint32", "QInt32Storage", {NULL}},
};

static const struct row *row_of(enum ckpt_dtype t)
{
    return &rows[(unsigned)t < CKPT_DTYPE_COUNT ? t : CKPT_DTYPE_NONE];
}

size_t ckpt_dtype_size(enum ckpt_dtype t)
{
    unsigned bits = row_of(t)->bits;

    return bits % 8 == 0 ? bits / 8 : 0;
}

unsigned ckpt_dtype_bits(enum ckpt_dtype t) { return row_of(t)->bits; }
const char *ckpt_dtype_name(enum ckpt_dtype t) { return row_of(t)->name; }
const char *ckpt_dtype_torch_name(enum ckpt_dtype t) { return row_of(t)->torch; }
const char *ckpt_dtype_torch_storage(enum ckpt_dtype t) { return row_of(t)->storage; }
enum ckpt_dtype_class ckpt_dtype_class(enum ckpt_dtype t) { return row_of(t)->class; }

static int same(const char *a, const char *b) { return b && strcasecmp(a, b) == 0; }

enum ckpt_dtype ckpt_dtype_parse(const char *name)
{
    for (int t = 1; t < CKPT_DTYPE_COUNT; t++)  /* the canonical name is by far the most frequent */
        if (strcmp(name, rows[t].name) == 0)
            return (enum ckpt_dtype)t;
    if (strncasecmp(name, "torch.", 6) == 0)
        name += 6;
    for (int t = 1; t < CKPT_DTYPE_COUNT; t++) {
        const struct row *r = &rows[t];

        if (same(name, r->name) || same(name, r->torch) || same(name, r->storage))
            return (enum ckpt_dtype)t;
        for (int i = 0; i < 4; i++)
            if (same(name, r->alias[i]))
                return (enum ckpt_dtype)t;
    }
    return CKPT_DTYPE_NONE;
}

/* quant: the values of the libraries that quantise, in any range; what is not read is named; parts
 * that are missing or do not fit are refused. */
#include "tests/unit/compare.h"
#include "tests/unit/files.h"

#include "formats/quant/quant.h"
#include "libckpt/base/half.h"
#include "libckpt/view.h"

#define Q "tests/golden/quant/"
#define LIE "build/quant-lie"

static struct ckpt_source *must_view(const char *path)
{
    struct ckpt_source *out;
    struct ckpt_err err = {0};

    if (quant_view(&out, must_open(path, NULL), &err))
        fail_msg("%s: %s", path, err.text);
    return out;
}

static const char *const goldens[] = {
    Q "fp8", Q "ct-float", Q "ct-int8", Q "ct-pack", Q "gptq", Q "gptq-sym", Q "gptq-v2", Q "awq",
};
#define N_GOLDENS (sizeof goldens / sizeof goldens[0])

TEST(values_are_those_of_the_libraries)
{
    for (size_t i = 0; i < N_GOLDENS; i++) {
        struct ckpt_source *seen = must_view(goldens[i]);
        char path[200];

        snprintf(path, sizeof path, "%s.expected.safetensors", goldens[i]);
        assert_int_equal(assert_holds(seen, path), ckpt_source_count(seen));
        ckpt_source_close(seen);
    }
}

TEST(a_config_no_longer_tells_of_it)
{
    struct ckpt_source *seen = must_view(Q "fp8");
    const struct ckpt_extra *e = ckpt_source_extra(seen, "config.json");
    const json_t *config = json_object_get(ckpt_source_info(seen), "config");
    char text[4096] = "";
    struct ckpt_err err = {0};

    assert_non_null(e);
    assert_int_equal(ckpt_file_read_at(e->file, text, (size_t)ckpt_file_size(e->file), 0, &err),
                     0);
    assert_null(strstr(text, "quantization_config"));
    assert_non_null(strstr(text, "\"dtype\": \"bfloat16\""));
    assert_non_null(json_object_get(config, "model_type"));
    assert_null(json_object_get(config, "quantization_config"));
    ckpt_source_close(seen);
}

TEST(any_range_is_that_of_the_whole)
{
    for (size_t g = 0; g < N_GOLDENS; g++) {
        struct ckpt_source *s = must_view(goldens[g]);

        for (size_t i = 0; i < ckpt_source_count(s); i++) {
            int64_t n = ckpt_source_tensor(s, i)->numel;

            assert_any_range(s, i, 1 + n / 17, 1 + n / 7, 9000);
        }
        ckpt_source_close(s);
    }
}

TEST(what_it_is_is_told)
{
    static const struct { const char *path, *what; size_t n; } row[] = {
        {Q "fp8", "FP8 with block scales", 8},
        {Q "ct-pack", "compressed-tensors", 4},
        {Q "gptq", "GPTQ", 1},
        {Q "awq/model.safetensors", "AWQ", 1},          /* by its tensors alone */
        {Q "fp8/model.safetensors", "FP8 with block scales", 8},
        {"tests/golden/bnb/weights.safetensors", "bitsandbytes (", 7},
        {Q "fp8.expected.safetensors", "", 0},
    };

    for (size_t i = 0; i < sizeof row / sizeof row[0]; i++) {
        struct ckpt_source *src = must_open(row[i].path, NULL);
        struct quant_told told;
        struct ckpt_err err = {0};

        assert_int_equal(quant_tell(&told, src, &err), 0);
        if (told.n != row[i].n || strncmp(told.what, row[i].what, strlen(row[i].what)) != 0 ||
            (told.n && !told.is_read))
            fail_msg("%s: %zu %s", row[i].path, told.n, told.what);
        ckpt_source_close(src);
    }
}

/* A lone file of the same tensors has the same values: layouts show in names and shapes. */
TEST(a_file_without_a_config_is_read)
{
    static const char *const name[] = {"fp8", "gptq", "gptq-sym", "awq"};

    for (size_t i = 0; i < 4; i++) {
        char path[200];
        struct ckpt_source *seen;

        snprintf(path, sizeof path, Q "%s/model.safetensors", name[i]);
        seen = must_view(path);
        snprintf(path, sizeof path, Q "%s.expected.safetensors", name[i]);
        assert_int_equal(assert_holds(seen, path), ckpt_source_count(seen));
        ckpt_source_close(seen);
    }
}

TEST(a_source_that_is_not_packed_passes)
{
    struct ckpt_source *src = must_open(Q "fp8.expected.safetensors", NULL), *out;
    struct ckpt_err err = {0};

    assert_int_equal(quant_view(&out, src, &err), 0);
    assert_ptr_equal(out, src);
    ckpt_source_close(out);
}

/* -- models that lie ------------------------------------------------------------------------- */

/* A folder of a config and "name dtype shape,..." items, all zero. */
static void make(const char *quantization, const char *tensors)
{
    char header[4096], name[100], dtype[20], shape[60];
    static const char zeros[4096];
    size_t h = 1, at = 0;

    scratch_at(LIE);
    snprintf(header, sizeof header, "{\"model_type\":\"x\",%s}", quantization);
    put_text(LIE "/config.json", header);
    for (int used; sscanf(tensors, " %99s %19s %59s%n", name, dtype, shape, &used) == 3;
         tensors += used) {
        size_t n = ckpt_dtype_size(ckpt_dtype_parse(dtype));

        for (char *d = shape; *d && strcmp(shape, "-") != 0; d += *d == ',')
            n *= (size_t)strtol(d, &d, 10);
        h += (size_t)snprintf(header + h, sizeof header - h,
                              "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[%s],\"data_offsets\":[%zu,%zu]}",
                              h > 1 ? "," : "", name, dtype, *shape == '-' ? "" : shape, at, at + n);
        at += n;
    }
    snprintf(header + h, sizeof header - h, "}");
    assert_true(at <= sizeof zeros);
    put_safetensors(LIE "/model.safetensors", header, zeros, at);
}

static void expect_refused(const char *quantization, const char *tensors, int code,
                           const char *says)
{
    struct ckpt_source *out = NULL, *src;
    struct ckpt_err err = {0};

    make(quantization, tensors);
    src = must_open(LIE, NULL);
    if (quant_view(&out, src, &err) != code || !strstr(err.text, says))
        fail_msg("%s, %s: %d %s", quantization, tensors, err.code, err.text);
    assert_null(out);
}

#define FP8 "\"quantization_config\":{\"quant_method\":\"fp8\",\"weight_block_size\":[128,128]}"
#define CT  "\"quantization_config\":{\"quant_method\":\"compressed-tensors\"}"
#define GQ  "\"quantization_config\":{\"quant_method\":\"gptq\",\"bits\":4,\"group_size\":32}"

TEST(parts_that_are_missing_or_do_not_fit_are_refused)
{
    static const struct { const char *config, *tensors, *says; } row[] = {
        {FP8, "a.weight F8_E4M3 4,4 b.weight F8_E4M3 4,4 b.weight_scale_inv F32 1,1",
         "tensor a.weight: F8_E4M3 elements without a scale"},
        {FP8, "a.weight F8_E4M3 4,4", "elements without a scale"},
        {FP8, "a.weight F8_E4M3 200,4 a.weight_scale_inv F32 3,1", "each block of 200 x 4"},
        {FP8, "a.weight F8_E4M3 4,4 a.weight_scale_inv I32 1,1", "a.weight_scale_inv is [1, 1] of I32"},
        {FP8, "a.weight F8_E4M3 4,4 a.weight_scale_inv F32 2,1,1", "a scale for each block"},
        {FP8, "a.weight F8_E4M3 4,4 a.weight_scale_inv F32 0,0", "each block of 4 x 4"},
        {"\"quantization_config\":{\"quant_method\":\"fp8\",\"weight_block_size\":[0,128]}",
         "a.weight F8_E4M3 4,4 a.weight_scale_inv F32 1,1", "blocks of 0 x 128 elements"},
        {"\"quantization_config\":{\"quant_method\":\"fp8\",\"weight_block_size\":[4,9999999999]}",
         "a.weight F8_E4M3 4,4 a.weight_scale_inv F32 1,1", "weight_block_size"},
        {"\"quantization_config\":{\"quant_method\":\"fp8\",\"weight_block_size\":\"x\"}",
         "a.weight F8_E4M3 4,4 a.weight_scale_inv F32 1,1", "weight_block_size: two numbers"},
        {"\"quantization_config\":{\"quant_method\":\"gptq\",\"bits\":\"x\"}",
         "a.weight F8_E4M3 4,4", "config.json: quantization_config: "},
        {CT, "a.weight I8 4,4 a.weight_scale F32 4,1 a.weight_zero_point I8 3,1",
         "a.weight_zero_point is [3, 1] of I8"},
        {CT, "a.weight I8 4,4 b.weight I8 4,4 b.weight_scale F32 4,1", "I8 elements without a scale"},
        {CT, "a.weight_packed I32 4,1 a.weight_scale F32 4,1", "a.weight_shape is not there"},
        {CT, "a.weight_packed I32 4,1 a.weight_scale F32 4,1 a.weight_shape F32 2", "two integers"},
        {CT, "a.weight_packed I32 4,1 a.weight_scale F32 4,1 a.weight_shape I64 2", "shape of the codes"},
        {GQ, "a.qweight I32 8,8 a.qzeros I32 2,1 a.scales F16 2,8 a.g_idx I32 63", "of each column"},
        {GQ, "a.qweight I32 8,8 a.qzeros I32 2,2 a.scales F16 2,8", "groups of 32 inputs"},
        {GQ, "a.qweight I32 8,8 a.qzeros I32 3,1 a.scales F16 3,8", "groups of 64 inputs"},
        {GQ, "a.qweight I32 8,8 a.qzeros I32 2,1 a.scales I32 2,8", "floats wanted"},
        {GQ, "a.qweight I32 8,8 a.qzeros I32 2,1 a.scales F16 16", "groups of 64 inputs"},
        {GQ, "a.qweight I32 8,8 a.qzeros F32 2,1 a.scales F16 2,8", "words of zeros"},
    };

    for (size_t i = 0; i < sizeof row / sizeof row[0]; i++)
        expect_refused(row[i].config, row[i].tensors, CKPT_EFORMAT, row[i].says);
}

/* A name that unpacking would give twice. */
TEST(a_name_given_twice_is_refused)
{
    struct ckpt_source *out = NULL;
    struct ckpt_err err = {0};

    make(GQ, "a.qweight I32 8,8 a.qzeros I32 2,1 a.scales F16 2,8 a.weight F32 2,2");
    assert_int_equal(quant_view(&out, must_open(LIE, NULL), &err), CKPT_EFORMAT);
    assert_string_equal(err.reason, "duplicate");
    assert_null(out);
}

/* All codes, read together and one at a time: vector code and the loop have the same bits. */
TEST(each_code_alone_is_as_in_a_row)
{
    struct ckpt_source *s;
    float whole[256], one;
    struct ckpt_err err = {0};
    const float scale = 0.0123f;
    unsigned char codes[256];

    for (int i = 0; i < 256; i++)
        codes[i] = (unsigned char)i;
    make("\"dtype\":\"float32\"," FP8, "a.weight F8_E4M3 2,128 a.weight_scale_inv F32 1,1");
    patch_end(LIE "/model.safetensors", 260, codes, 256);
    patch_end(LIE "/model.safetensors", 4, &scale, 4);
    assert_int_equal(quant_view(&s, must_open(LIE, NULL), &err), 0);
    assert_int_equal(ckpt_source_tensor(s, 0)->dtype, CKPT_F32);
    assert_int_equal(ckpt_source_read(s, 0, 0, 256, whole, &err), 0);
    for (int i = 0; i < 256; i++) {
        float want = ckpt_f8_e4m3_to_f32((uint8_t)i) * scale;

        assert_int_equal(ckpt_source_read(s, 0, i, 1, &one, &err), 0);
        if (memcmp(&one, &want, 4) != 0 || memcmp(&whole[i], &want, 4) != 0)
            fail_msg("code %d: %g alone, %g in a row, %g wanted", i, (double)one,
                     (double)whole[i], (double)want);
    }
    ckpt_source_close(s);
}

#define M(method, more) "\"quantization_config\":{\"quant_method\":\"" method "\"" more "}"

TEST(what_is_not_read_is_named)
{
    static const struct { const char *config, *tensors, *says; } row[] = {
        {M("hqq", ""), "a.W_q U8 4,4", "by HQQ"},
        {M("torchao", ""), "a.weight I8 4,4", "by torchao"},
        {M("aqlm", ""), "a.codes I8 4,4,1 a.codebooks F16 1,4,1,8", "by AQLM"},
        {M("eetq", ""), "a.weight I8 4,4 a.weight_scales F16 4", "by EETQ"},
        {M("quanto", ""), "a.weight._data I8 4,4 a.weight._scale F16 4,1", "by quanto"},
        {M("bitnet", ""), "a.weight U8 1,4 a.weight_scale BF16 1", "by BitNet"},
        {M("mxfp4", ""), "a_blocks U8 1,4,1,16 a_scales U8 1,4,1", "by MXFP4"},
        {M("next-year", ""), "a.weight U8 4,4", "not known here (next-year)"},
        {M("awq", ",\"version\":\"gemv\""), "a.qweight I32 8,8 a.qzeros I32 1,1 a.scales F16 1,64",
         "AWQ in another order"},
        {M("gptq", ",\"checkpoint_format\":\"marlin\""), "a.B I32 8,8 a.s F16 1,8", "Marlin"},
        {M("compressed-tensors", ",\"format\":\"nvfp4-pack-quantized\""),
         "a.weight_packed U8 4,4 a.weight_scale F8_E4M3 4,1 a.weight_global_scale F32 1", "NVFP4"},
        {M("compressed-tensors", ",\"sparsity_config\":{\"format\":\"sparse-24-bitmask\"}"),
         "a.compressed I8 4,4", "sparse 2:4"},
        {"\"quantization\":{\"group_size\":64,\"bits\":4},"
         "\"quantization_config\":{\"group_size\":64,\"bits\":4}",
         "a.weight U32 4,8 a.scales F16 4,1 a.biases F16 4,1", "by MLX"},
        {"\"a\":1", "a.weight U32 4,8 a.scales F16 4,1 a.biases F16 4,1", "by MLX"},
        {"\"a\":1", "a.weight._data I8 4,4 a.weight._scale F16 4,1", "by quanto"},
        {M("gptq", ",\"bits\":3"), "a.qweight I32 6,32 a.qzeros I32 1,3 a.scales F16 1,32",
         "codes of 3 bits"},
    };

    for (size_t i = 0; i < sizeof row / sizeof row[0]; i++)
        expect_refused(row[i].config, row[i].tensors, CKPT_EUNSUPPORTED, row[i].says);
}

/* A description alone packs nothing. */
TEST(plain_weights_with_a_description_pass)
{
    struct ckpt_source *out, *src;
    struct ckpt_err err = {0};

    make(M("torchao", ""), "a.weight BF16 4,4");
    src = must_open(LIE, NULL);
    assert_int_equal(quant_view(&out, src, &err), 0);
    assert_ptr_equal(out, src);
    ckpt_source_close(out);
}

/* Groups outside of the scales are found where they are used. */
TEST(a_group_that_is_not_there_is_refused)
{
    struct ckpt_source *out, *src;
    struct ckpt_err err = {0};
    unsigned char value[64];

    make(GQ, "a.qweight I32 8,8 a.qzeros I32 2,1 a.scales F16 2,8 a.g_idx I32 64");
    patch_end(LIE "/model.safetensors", 4, "\2", 1);
    src = must_open(LIE, NULL);
    assert_int_equal(quant_view(&out, src, &err), 0);
    assert_int_equal(ckpt_source_read(out, 0, 0, 8, value, &err), CKPT_EFORMAT);
    if (!strstr(err.text, "column 63 is in group 2 of 2"))
        fail_msg("%s", err.text);
    ckpt_source_close(out);
}

/* bnb: the values of bitsandbytes' kernels, in any range; parts that are missing or do not fit. */
#include "tests/unit/compare.h"
#include "tests/unit/files.h"

#include "formats/bnb/bnb.h"
#include "libckpt/view.h"

#define B "tests/golden/bnb/"

static struct ckpt_source *must_view(struct ckpt_source *src)
{
    struct ckpt_source *out;
    struct ckpt_err err = {0};

    if (bnb_view(&out, src, &err))
        fail_msg("%s", err.text);
    return out;
}

TEST(values_are_those_of_the_kernels)
{
    static const struct { const char *packed, *expected, *what; size_t n; } row[] = {
        {B "weights.safetensors", B "weights.expected.safetensors", "fp4", 7},
        {B "AdamW8bit.pt", B "AdamW8bit.expected.safetensors", "8-bit optimizer", 2},
        {B "Lion8bit.pt", B "Lion8bit.expected.safetensors", "8-bit optimizer", 1},
        {B "AdEMAMix8bit.pt", B "AdEMAMix8bit.expected.safetensors", "8-bit optimizer", 2},
    };

    for (size_t i = 0; i < sizeof row / sizeof row[0]; i++) {
        struct ckpt_source *src = must_open(row[i].packed, NULL), *seen;
        const char *what;

        if (bnb_count(src, &what) != row[i].n)
            fail_msg("%s: %zu packed", row[i].packed, bnb_count(src, &what));
        if (i > 0)
            assert_string_equal(what, row[i].what);
        seen = must_view(src);
        assert_int_equal(assert_holds(seen, row[i].expected), ckpt_source_count(seen));
        ckpt_source_close(seen);
    }
}

TEST(any_range_is_that_of_the_whole)
{
    struct ckpt_source *s = must_view(must_open(B "weights.safetensors", NULL));

    for (size_t i = 0; i < ckpt_source_count(s); i++) {
        int64_t n = ckpt_source_tensor(s, i)->numel;

        assert_any_range(s, i, 1 + n / 37, 1 + n / 11, 5000);
    }
    ckpt_source_close(s);
}

TEST(a_source_that_is_not_packed_passes)
{
    struct ckpt_source *src = must_open(B "weights.expected.safetensors", NULL), *out;
    struct ckpt_err err = {0};

    assert_int_equal(bnb_view(&out, src, &err), 0);
    assert_ptr_equal(out, src);
    ckpt_source_close(out);
}

/* The view without one tensor, or with another name for it. */
static void expect_refused(const char *name, const char *instead, const char *says)
{
    struct ckpt_source *less = must_open(B "weights.safetensors", NULL), *out;
    struct ckpt_rename_rule rule[] = {{name, instead}, {instead, name}};
    struct ckpt_err err = {0};

    if (instead)
        assert_int_equal(ckpt_view_rename(&less, less, rule, 2, &err), 0);
    else
        less = without(less, name);
    if (bnb_view(&out, less, &err) != CKPT_EFORMAT || !strstr(err.text, says))
        fail_msg("%s: %d %s", name, err.code, err.text);
    assert_null(out);
}

TEST(parts_that_are_missing_or_do_not_fit_are_told)
{
    expect_refused("l.0.k.weight.absmax", NULL, "l.0.k.weight.absmax is not there");
    expect_refused("l.0.k.weight.quant_map", NULL, "l.0.k.weight.quant_map is not there");
    expect_refused("l.0.k.weight.nested_quant_map", NULL, "nested_quant_map is not there");
    expect_refused("l.0.k.weight.nested_absmax", NULL, "elements of U8, 40 of F32 wanted");
    expect_refused("l.0.k.weight.absmax", "l.0.o.weight.absmax", "300 elements of U8, 40 of U8");
    expect_refused("l.0.q.weight.quant_map", "l.0.k.weight.nested_quant_map",
                   "of F32 wanted");
    expect_refused("l.0.q.weight.quant_state.bitsandbytes__nf4",
                   "l.0.k.weight.quant_state.bitsandbytes__nf4", "tensor l.0.");
    expect_refused("l.0.up.SCB", "l.0.q.weight.absmax", "elements of F32, 12 of F32 wanted");
}

/* quant_state is JSON from a file. */
TEST(a_state_that_lies_is_refused)
{
    static const struct { const char *json, *says; } row[] = {
        {"{\"dtype\":\"bfloat16\",\"shape\":[2,4]}", "blocksize"},
        {"{\"blocksize\":0,\"dtype\":\"bfloat16\",\"shape\":[2,4]}", "blocksize is 0"},
        {"{\"blocksize\":64,\"dtype\":\"int8\",\"shape\":[2,4]}", "dtype int8"},
        {"{\"blocksize\":64,\"dtype\":\"bfloat16\",\"shape\":[2,5]}", "10 elements in 4 bytes"},
        {"{\"blocksize\":64,\"dtype\":\"bfloat16\",\"shape\":[-2,4]}", "out of range"},
        {"{\"blocksize\":64,\"dtype\":\"bfloat16\",\"shape\":null}", "no list"},
        {"{\"blocksize\":64,\"dtype\":\"bfloat16\",\"shape\":[4611686018427387904,4]}", "range"},
        {"{\"blocksize\":64,", "l.weight.quant_state.bitsandbytes__nf4"},
        {"[]", "no list"},
    };

    for (size_t i = 0; i < sizeof row / sizeof row[0]; i++) {
        char header[1024];
        size_t n = strlen(row[i].json);
        struct ckpt_source *src, *out;
        struct ckpt_err err = {0};
        unsigned char data[256] = {0};

        memcpy(data + 72, row[i].json, n);
        snprintf(header, sizeof header,
            "{\"l.weight\":{\"dtype\":\"U8\",\"shape\":[4,1],\"data_offsets\":[0,4]},"
            "\"l.weight.absmax\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]},"
            "\"l.weight.quant_map\":{\"dtype\":\"F32\",\"shape\":[16],\"data_offsets\":[8,72]},"
            "\"l.weight.quant_state.bitsandbytes__nf4\":{\"dtype\":\"U8\",\"shape\":[%zu],"
            "\"data_offsets\":[72,%zu]}}", n, 72 + n);
        put_safetensors("build/bnb-lie.safetensors", header, data, 72 + n);
        src = must_open("build/bnb-lie.safetensors", NULL);
        if (bnb_view(&out, src, &err) == 0 || !strstr(err.text, row[i].says))
            fail_msg("row %zu: %d %s", i, err.code, err.text);
        remove("build/bnb-lie.safetensors");
    }
}

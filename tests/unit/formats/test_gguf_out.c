/* gguf_out: what is written is read back, blocks are the reference's, refusals are told. */
#include "tests/unit/compare.h"
#include "tests/unit/files.h"

#include <sys/stat.h>
#include <unistd.h>

#include "formats/gguf/header.h"
#include "tests/unit/store.h"

#define TMP "build/test-gguf-out.gguf"

static int create(struct ckpt_sink **sink, const struct ckpt_tensors *list, json_t *keys,
                  const char *record, struct ckpt_err *err)
{
    json_t *info = json_pack("{s:o}", "gguf", keys ? keys : json_array());
    struct ckpt_create_opts opts = {.info = info, .flags = CKPT_REPLACE,
                                    .record = record};
    int rc;

    memset(err, 0, sizeof *err);
    mkdir("build", 0777);
    rc = ckpt_create(sink, "gguf", TMP, list, &opts, err);
    json_decref(info);
    return rc;
}

TEST(every_dtype_comes_back)
{
    static const struct store_row row[] = {
        {"f32", CKPT_F32, 2, {3, 5}, 0}, {"f16", CKPT_F16, 3, {2, 3, 4}, 0},
        {"bf16", CKPT_BF16, 4, {2, 1, 3, 2}, 0}, {"f64", CKPT_F64, 1, {7}, 0},
        {"i8", CKPT_I8, 1, {13}, 0}, {"i16", CKPT_I16, 1, {3}, 0}, {"i32", CKPT_I32, 0, {0}, 0},
        {"i64", CKPT_I64, 2, {1, 1}, 0}, {"none", CKPT_F32, 2, {0, 4}, 0},
    };
    struct ckpt_source *src = store_source(row, 9, NULL), *back;
    struct ckpt_copy_opts copy = {.workers = 2, .chunk_bytes = 4096};
    struct ckpt_sink *sink;
    struct ckpt_err err;

    assert_int_equal(create(&sink, ckpt_source_tensors(src), NULL, NULL, &err), 0);
    assert_int_equal(ckpt_copy(sink, src, &copy, &err), 0);
    assert_int_equal(ckpt_sink_commit(sink, &err), 0);
    back = must_open(TMP, NULL);
    assert_int_equal(ckpt_source_count(back), 9);
    for (size_t i = 0; i < 9; i++)
        assert_same_tensor(back, row[i].name, src, i, "dtypes");
    ckpt_source_close(back);
    ckpt_source_close(src);
    remove(TMP);
}

/* One F32 tensor to be packed. */
static void packed_list(struct ckpt_tensors *list, int64_t rows, int64_t cols)
{
    struct ckpt_shape shape = ckpt_shape_2d(rows, cols);
    struct ckpt_err err = {0};
    struct ckpt_tensor *t;

    memset(list, 0, sizeof *list);
    assert_int_equal(ckpt_tensors_add(list, &t, "x", 1, CKPT_F32, &shape, NULL, 0, false, &err),
                     0);
    t->stored = "Q8_0";
}

/* The data of a file with one tensor: its last bytes, up to padding. */
static void assert_same_data(const char *path, const char *golden, size_t bytes)
{
    size_t n, m, padded = (bytes + 31) / 32 * 32;
    char *a = slurp(path, &n), *b = slurp(golden, &m);

    assert_true(n > padded && m > padded);
    if (memcmp(a + n - padded, b + m - padded, bytes) != 0)
        fail_msg("the blocks differ");
    free(a);
    free(b);
}

TEST(blocks_are_the_reference_s_in_whatever_order_they_come)
{
    static const int64_t steps[] = {1280, 640, 96, 33, 7, 1};
    struct ckpt_source *src = must_open("tests/golden/gguf/q8_0.safetensors", NULL);
    float *x = read_whole(src, 0);
    struct ckpt_tensors list;
    struct ckpt_err err;

    packed_list(&list, 20, 64);
    for (size_t k = 0; k < sizeof steps / sizeof steps[0]; k++) {
        int64_t step = steps[k], pieces = (1280 + step - 1) / step;
        struct ckpt_sink *sink;

        assert_int_equal(create(&sink, &list, NULL, NULL, &err), 0);
        for (int64_t p = pieces; p-- > 0;) {            /* from behind */
            int64_t at = p * step, n = 1280 - at < step ? 1280 - at : step;

            assert_int_equal(ckpt_sink_write(sink, 0, at, n, x + at, &err), 0);
        }
        if (ckpt_sink_commit(sink, &err))
            fail_msg("step %lld: %s", (long long)step, err.text);
        assert_same_data(TMP, "tests/golden/gguf/q8_0.gguf", 1360);
    }
    free(x);
    ckpt_tensors_release(&list);
    ckpt_source_close(src);
    remove(TMP);
}

TEST(keys_of_every_kind_come_back)
{
    static const struct store_row row[] = {{"t", CKPT_F32, 1, {2}, 0}};
    static const struct { const char *key; int64_t value; } integers[] = {
        {"a.u8", 255}, {"a.i8", -128}, {"a.u16", 65535}, {"a.i16", -32768}, {"a.u32", 4294967295},
        {"a.i32", -2147483648}, {"a.u64", INT64_MAX}, {"a.i64", INT64_MIN},
    };
    json_t *keys = json_pack(
        "[[s,s,i],[s,s,i],[s,s,i],[s,s,i],[s,s,I],[s,s,I],[s,s,f],[s,s,f],[s,s,b],[s,s,s],[s,s,[s,s]],"
        "[s,s,[i,i]],[s,s,[f]],[s,s,I],[s,s,I]]",
        "a.u8", "u8", 255, "a.i8", "i8", -128, "a.u16", "u16", 65535, "a.i16", "i16", -32768,
        "a.u32", "u32", (json_int_t)4294967295, "a.i32", "i32", (json_int_t)-2147483648, "a.f32",
        "f32", 0.1, "a.f64", "f64", 0.1, "a.bool", "bool", 1, "a.string", "string", "h\xc3\xa9",
        "a.strings", "string[]", "x", "", "a.ints", "i32[]", -1, 2, "a.reals", "f32[]", 1.5,
        "a.u64", "u64", (json_int_t)INT64_MAX, "a.i64", "i64", (json_int_t)INT64_MIN);
    struct ckpt_source *src = store_source(row, 1, NULL);
    struct ckpt_sink *sink;
    struct gguf_header h;
    struct ckpt_file *f;
    struct ckpt_err err;
    char record[] = "{\"a\":1}";

    assert_non_null(keys);
    assert_int_equal(create(&sink, ckpt_source_tensors(src), keys, record, &err), 0);
    assert_int_equal(ckpt_copy(sink, src, NULL, &err), 0);
    record[5] = '7';                                    /* known at the end only */
    assert_int_equal(ckpt_sink_commit(sink, &err), 0);
    assert_int_equal(ckpt_file_open(&f, TMP, 0, &err), 0);
    if (gguf_header_read(&h, f, &err))
        fail_msg("%s", err.text);
    assert_int_equal(h.n_pair, 16);
    assert_string_equal(gguf_string(&h, "ckpt.provenance"), "{\"a\":7}");
    assert_int_equal(gguf_pair(&h, "a.i8")->kind, GGUF_I8);
    for (size_t i = 0; i < sizeof integers / sizeof integers[0]; i++)
        assert_true(json_integer_value(gguf_pair(&h, integers[i].key)->value) ==
                    integers[i].value);
    assert_true(json_real_value(gguf_pair(&h, "a.f32")->value) == (double)0.1f);
    assert_true(json_real_value(gguf_pair(&h, "a.f64")->value) == 0.1);
    assert_true(json_is_true(gguf_pair(&h, "a.bool")->value));
    assert_string_equal(gguf_string(&h, "a.string"), "h\xc3\xa9");
    assert_int_equal(json_array_size(gguf_pair(&h, "a.strings")->value), 2);
    assert_int_equal(gguf_pair(&h, "a.ints")->of, GGUF_I32);
    assert_true(json_real_value(json_array_get(gguf_pair(&h, "a.reals")->value, 0)) == 1.5);
    gguf_header_release(&h);
    ckpt_file_close(f);
    ckpt_source_close(src);
    remove(TMP);
}

static void expect_refused(const struct store_row *row, const char *says)
{
    struct ckpt_source *src = store_source(row, 1, NULL);
    struct ckpt_sink *sink;
    struct ckpt_err err;

    assert_int_equal(create(&sink, ckpt_source_tensors(src), NULL, NULL, &err),
                     CKPT_EUNSUPPORTED);
    if (!strstr(err.text, says))
        fail_msg("%s, \"%s\" wanted", err.text, says);
    assert_int_not_equal(access(TMP, F_OK), 0);
    ckpt_source_close(src);
}

TEST(what_gguf_lacks_is_refused_by_name)
{
    static const struct store_row row[] = {
        {"b", CKPT_BOOL, 1, {2}, 0}, {"u", CKPT_U8, 1, {2}, 0}, {"e", CKPT_F8_E4M3, 1, {2}, 0},
        {"0123456789012345678901234567890123456789012345678901234567890123", CKPT_F32, 1, {1}, 0},
    };
    struct ckpt_shape five = {.rank = 5, .dim = {1, 1, 1, 1, 1}};
    struct ckpt_tensors list = {0};
    struct ckpt_sink *sink;
    struct ckpt_err err;

    expect_refused(&row[0], "tensor b: GGUF has no BOOL");
    expect_refused(&row[1], "tensor u: GGUF has no U8");
    expect_refused(&row[2], "tensor e: GGUF has no F8_E4M3");
    expect_refused(&row[3], "its name has 64 bytes, GGUF takes 63");
    assert_int_equal(ckpt_tensors_add(&list, NULL, "t", 1, CKPT_F32, &five, NULL, 0, false, &err),
                     0);
    assert_int_equal(create(&sink, &list, NULL, NULL, &err), CKPT_EUNSUPPORTED);
    assert_string_equal(err.text, "tensor t: 5 axes, GGUF takes 4");
    ckpt_tensors_release(&list);
    packed_list(&list, 2, 48);
    assert_int_equal(create(&sink, &list, NULL, NULL, &err), CKPT_EUNSUPPORTED);
    assert_string_equal(err.text, "tensor x: its rows are not multiples of 32, as Q8_0 wants");
    ckpt_tensors_release(&list);
}

/* json: strict in, Python's spelling out. */
#include "tests/unit/unit.h"

#include "libckpt/base/json.h"

static int parse(json_t **out, const char *text, unsigned flags)
{
    struct ckpt_err err = {0};

    return ckpt_json_parse(out, text, strlen(text), flags, &err);
}

TEST(refuses)
{
    static const char *const bad[] = {
        "", "{", "{\"a\":1,}", "{\"a\":1,\"a\":2}", "NaN", "[NaN]", "[1e999]", "{\"a\":\"\xff\"}",
        "[99999999999999999999]", "[01]", "[1] x", "\"text\"", "{\"a\":\"\x01\"}",
    };
    struct ckpt_err err = {0};
    char deep[300];
    json_t *v;

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_int_not_equal(parse(&v, bad[i], 0), 0);
    assert_int_equal(ckpt_json_parse(&v, "[\"a\\u0000\"]", 11, 0, &err), CKPT_EFORMAT);
    assert_non_null(strstr(err.text, "a text with \\u0000 in it"));
    ckpt_err_clear(&err);
    memset(deep, '[', 65);
    memset(deep + 65, ']', 65);
    deep[130] = '\0';
    assert_int_equal(parse(&v, deep, 0), CKPT_ELIMIT);
    assert_int_equal(parse(&v, deep + 1, 0), CKPT_EFORMAT);     /* 64 deep, but unbalanced */
}

TEST(python_words_become_text)
{
    static const char *const keys[] = {"{NaN: 1}", "{\"a\": 1, Infinity \n\t: 1}", "{-Infinity:1}",
                                       "[NaN NaN]", "[xNaN]", "[NaNx]", "[--Infinity]"};
    json_t *v;

    assert_int_equal(parse(&v, "{\"a\": [NaN, -Infinity, Infinity], \"NaN\": \"x NaN\"}",
                           CKPT_JSON_PYTHON), 0);
    assert_string_equal(json_string_value(json_array_get(json_object_get(v, "a"), 1)), "-Infinity");
    assert_string_equal(json_string_value(json_object_get(v, "NaN")), "x NaN");
    json_decref(v);
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        assert_int_equal(parse(&v, keys[i], CKPT_JSON_PYTHON), CKPT_EFORMAT);
}

/* transformers' int(1e30) stands in every tokenizer_config.json without a limit of length. */
TEST(integers_beyond_64_bits_are_reals_to_python)
{
    static const char *const bad[] = {
        "[00000000000000000000001]", "[-]", "[1 000000000000000000000]", "[99999999999999999999x]",
        "{99999999999999999999: 1}", "[99999999999999999999.]", "[--99999999999999999999]",
    };
    json_t *v, *list;
    char *many = malloc(420);

    assert_int_equal(parse(&v, "{\"model_max_length\": 1000000000000000019884624838656, \"list\": "
                              "[9223372036854775807, -9223372036854775808,9223372036854775808,\n"
                              "-9223372036854775809, 0.12345678901234567890123, "
                              "1e00000000000000000000005, 18446744073709551615 ,NaN"
                              "], \"s\": \"99999999999999999999 \\\" 99999999999999999999\"}",
                           CKPT_JSON_PYTHON), 0);
    assert_true(json_real_value(json_object_get(v, "model_max_length")) == 1e30);
    list = json_object_get(v, "list");
    assert_int_equal(json_integer_value(json_array_get(list, 0)), INT64_MAX);
    assert_int_equal(json_integer_value(json_array_get(list, 1)), INT64_MIN);
    assert_true(json_real_value(json_array_get(list, 2)) == 0x1p63);
    assert_true(json_real_value(json_array_get(list, 3)) == -0x1p63);
    assert_true(json_real_value(json_array_get(list, 4)) == 0.12345678901234567890123);
    assert_true(json_real_value(json_array_get(list, 5)) == 1e5);
    assert_true(json_real_value(json_array_get(list, 6)) == 0x1p64);
    assert_string_equal(json_string_value(json_array_get(list, 7)), "NaN");
    assert_string_equal(json_string_value(json_object_get(v, "s")),
                        "99999999999999999999 \" 99999999999999999999");
    json_decref(v);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_int_equal(parse(&v, bad[i], CKPT_JSON_PYTHON), CKPT_EFORMAT);
    assert_non_null(many);
    memset(many, '9', 419);             /* no double holds it */
    many[0] = '[';
    many[418] = ']';
    many[419] = '\0';
    assert_int_equal(parse(&v, many, CKPT_JSON_PYTHON), CKPT_EFORMAT);
    free(many);
}

static void assert_written(const char *in, unsigned indent, bool sort, const char *out)
{
    struct ckpt_err err = {0};
    struct ckpt_buf b;
    json_t *v;

    ckpt_buf_init(&b, 10000);
    assert_int_equal(parse(&v, in, 0), 0);
    assert_int_equal(ckpt_json_write(&b, v, indent, sort, &err), 0);
    assert_string_equal(ckpt_buf_str(&b), out);
    ckpt_buf_release(&b);
    json_decref(v);
}

/* What CPython 3.13's json.dumps gives. */
TEST(writes_as_python)
{
    assert_written("[0.1,1.0,1e-05,1e16,1e22,123456789.0,0.0001,1e15,-0.0,5e-324,0.3,100.0]", 0,
                   false,
                   "[0.1,1.0,1e-05,1e+16,1e+22,123456789.0,0.0001,1000000000000000.0,-0.0,5e-324,"
                   "0.3,100.0]");
    assert_written("{\"b\":[1,{}],\"a\":[]}", 2, false,
                   "{\n  \"b\": [\n    1,\n    {}\n  ],\n  \"a\": []\n}");
    assert_written("{\"b\":null,\"a\":true}", 0, true, "{\"a\":true,\"b\":null}");
    assert_written("[\"\\u0001\\\"\\\\\\n\xc3\xa9\"]", 0, false,
                   "[\"\\u0001\\\"\\\\\\n\xc3\xa9\"]");
}

TEST(names_of_any_bytes_are_text)
{
    static const struct { const char *bytes; size_t n; const char *text; } rows[] = {
        {"", 0, ""}, {"plain", 5, "plain"}, {"caf\xc3\xa9", 5, "caf\xc3\xa9"},
        {"a\xff\xfe" "b", 4, "a\\xff\\xfe" "b"}, {"\xc3", 1, "\\xc3"}, {"ab", 1, "a"},
        {"\xed\xa0\x80", 3, "\\xed\\xa0\\x80"}};
    char long_name[300], want[1201];

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        json_t *v = ckpt_json_text(rows[i].bytes, rows[i].n);

        assert_string_equal(json_string_value(v), rows[i].text);
        json_decref(v);
    }
    memset(long_name, 0x80, sizeof long_name);
    for (size_t i = 0; i < sizeof long_name; i++)
        memcpy(want + 4 * i, "\\x80", 5);
    json_t *v = ckpt_json_text(long_name, sizeof long_name);
    assert_string_equal(json_string_value(v), want);
    json_decref(v);
}

TEST_ERR(getters_name_key_and_type)
{
    const char *s;
    int64_t i;
    double d;
    json_t *v;

    assert_int_equal(parse(&v, "{\"i\":3,\"s\":\"x\",\"n\":null,\"d\":2.5}", 0), 0);
    assert_int_equal(ckpt_json_int(&i, v, "i", err), 0);
    assert_int_equal(i, 3);
    assert_int_equal(ckpt_json_int(&i, v, "d", err), CKPT_EFORMAT);
    assert_string_equal(err->text, "\"d\" is a number, an integer wanted");
    assert_int_equal(ckpt_json_str(&s, v, "absent", err), CKPT_EFORMAT);
    assert_int_equal(ckpt_json_int_or(&i, v, "n", 9, err), 0);
    assert_int_equal(i, 9);
    assert_int_equal(ckpt_json_num_or(&d, v, "i", 0, err), 0);
    assert_true(d == 3.0);
    assert_int_equal(ckpt_json_num_or(&d, v, "s", 0, err), CKPT_EFORMAT);
    json_decref(v);
}

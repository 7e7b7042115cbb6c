/* config_text: one fact changed, every other byte kept. */
#include "tests/unit/unit.h"

#include "formats/hf/config_text.h"

static void assert_set(const char *text, const char *key, const char *value, const char *wanted)
{
    struct ckpt_err err = {0};
    struct ckpt_buf b;

    ckpt_buf_init(&b, SIZE_MAX);
    if (config_set(&b, text, strlen(text), key, value, &err))
        fail_msg("%s: %s", text, err.text);
    assert_string_equal(ckpt_buf_str(&b), wanted);
    ckpt_buf_release(&b);
}

static void assert_dtype(const char *text, const char *wanted)
{
    struct ckpt_err err = {0};
    struct ckpt_buf b;

    ckpt_buf_init(&b, SIZE_MAX);
    if (config_set_dtype(&b, text, strlen(text), "bfloat16", &err))
        fail_msg("%s: %s", text, err.text);
    assert_string_equal(ckpt_buf_str(&b), wanted);
    ckpt_buf_release(&b);
}

TEST(a_member_is_replaced)
{
    assert_set("{\"tie\": true}", "tie", "false", "{\"tie\": false}");
    assert_set(" {\n  \"a\" : [1e-05, {\"tie\": 1}],\n  \"tie\" :\ttrue ,\n \"x\":NaN}\n", "tie",
               "false", " {\n  \"a\" : [1e-05, {\"tie\": 1}],\n  \"tie\" :\tfalse ,\n \"x\":NaN}\n");
    assert_set("{\"s\":\"a\\\"}, \\\\\",\"tie\":{\"deep\":[]}}", "tie", "0",
               "{\"s\":\"a\\\"}, \\\\\",\"tie\":0}");
    assert_set("{\"n\":-Infinity,\"tie\":\"x\"}", "tie", "null", "{\"n\":-Infinity,\"tie\":null}");
}

TEST(a_member_is_added_as_its_neighbours_are)
{
    assert_set("{\n  \"a\": 1,\n  \"b\": {\"tie\": 1}\n}\n", "tie", "false",
               "{\n  \"a\": 1,\n  \"b\": {\"tie\": 1},\n  \"tie\": false\n}\n");
    assert_set("{}", "tie", "false", "{\"tie\": false}");
    assert_set("{\"a\":1}", "tie", "false", "{\"a\":1,\"tie\": false}");
}

TEST(dtypes_change_where_they_are_the_models)
{
    assert_dtype("{\"torch_dtype\": \"float32\", \"eps\": 1e-05}",
                 "{\"torch_dtype\": \"bfloat16\", \"eps\": 1e-05}");
    assert_dtype("{\"dtype\":\"float16\",\"torch_dtype\":\"float16\"}",
                 "{\"dtype\":\"bfloat16\",\"torch_dtype\":\"bfloat16\"}");
    assert_dtype("{\"text_config\": {\"dtype\": \"float32\", \"x\": {}}, \"dtype\": \"float32\"}",
                 "{\"text_config\": {\"dtype\": \"bfloat16\", \"x\": {}}, \"dtype\": \"bfloat16\"}");
    assert_dtype("{\"quantization_config\": {\"dtype\": \"float32\"}, \"dtype\": \"int8\"}",
                 "{\"quantization_config\": {\"dtype\": \"float32\"}, \"dtype\": \"int8\"}");
    assert_dtype("{\"dtype\": null, \"a\": [\"dtype\", \"float32\"], \"limit\": [0.0, Infinity]}",
                 "{\"dtype\": null, \"a\": [\"dtype\", \"float32\"], \"limit\": [0.0, Infinity]}");
}

TEST(no_object_is_refused)
{
    static const char *const texts[] = {"", "[]", "1", "{\"a\":}", "{\"a\":1,\"a\":2}", "{} {}"};
    struct ckpt_err err = {0};
    struct ckpt_buf b;

    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        ckpt_buf_init(&b, SIZE_MAX);
        assert_int_equal(config_set(&b, texts[i], strlen(texts[i]), "k", "1", &err), CKPT_EFORMAT);
        assert_int_equal(config_set_dtype(&b, texts[i], strlen(texts[i]), "float32", &err),
                         CKPT_EFORMAT);
        ckpt_buf_release(&b);
    }
}

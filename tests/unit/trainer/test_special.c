/* special: tokens that settings name, in the files that are saved. */
#include "tests/unit/unit.h"
#include "trainer/checkpoint/special.h"

static const struct special both = {.eos = "<|im_end|>", .pad = "a\"b", .eos_id = 7, .pad_id = 9};

/* The file's text with the tokens; NULL: it stays. */
static void says(const char *name, const char *text, const struct special *special,
                 const char *want)
{
    struct ckpt_err err = {0};
    struct ckpt_buf out;

    ckpt_buf_init(&out, 1 << 20);
    assert_int_equal(special_say(&out, name, text, strlen(text), special, &err), 0);
    assert_true(ckpt_buf_ok(&out));
    if (want)
        assert_string_equal(ckpt_buf_str(&out), want);
    else
        assert_int_equal(out.len, 0);
    ckpt_buf_release(&out);
}

TEST(tokens_are_texts)
{
    static const char *const names[] = {"tokenizer_config.json", "special_tokens_map.json"};

    for (size_t i = 0; i < 2; i++) {
        says(names[i], "{\"x\": 1e5,\n \"eos_token\": {\"content\": \"</s>\"}, \"y\": NaN}", &both,
             "{\"x\": 1e5,\n \"eos_token\": \"<|im_end|>\", \"y\": NaN,\"pad_token\": \"a\\\"b\"}");
        says(names[i], "{\"eos_token\": {\"content\": \"<|im_end|>\"}, \"pad_token\": \"a\\\"b\"}",
             &both, NULL);
        says(names[i], "{\"eos_token\": \"x\"}", &(struct special){.eos = "y"},
             "{\"eos_token\": \"y\"}");
        says(names[i], "{}", &(struct special){.pad = "y"}, "{\"pad_token\": \"y\"}");
        says(names[i], "{\"eos_token\": null}", &(struct special){0}, NULL);
    }
}

TEST(generation_ends_at_each)
{
    const char *name = "generation_config.json";

    says(name, "{\"eos_token_id\": 2}", &both,
         "{\"eos_token_id\": [7,2],\"pad_token_id\": 9}");
    says(name, "{\"pad_token_id\": 9, \"eos_token_id\": [2, 3]}", &both,
         "{\"pad_token_id\": 9, \"eos_token_id\": [7,2,3]}");
    says(name, "{\"pad_token_id\": 9, \"eos_token_id\": [2, 7]}", &both, NULL);
    says(name, "{\"pad_token_id\": 9, \"eos_token_id\": 7}", &both, NULL);
    says(name, "{\"eos_token_id\": null}", &(struct special){.eos = "x", .eos_id = 7},
         "{\"eos_token_id\": [7]}");
}

TEST(others_stay)
{
    says("tokenizer.json", "{\"eos_token\": 1}", &both, NULL);
    says("generation_config.json", "[1]", &both, NULL);
    says("generation_config.json", "{broken", &both, NULL);
    says("generation_config.json", "", &both, NULL);
}

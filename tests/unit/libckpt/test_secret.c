/* secret: in no form does it reach a message. */
#include "tests/unit/unit.h"

#include "libckpt/log.h"
#include "libckpt/base/secret.h"

#define TOKEN "hf_AbCdEfGhIjKlMnOpQrStUvWxYz0123456789"

TEST(none)
{
    char text[] = "nothing is secret yet, not even " TOKEN;

    ckpt_secret_mask(text);
    assert_non_null(strstr(text, TOKEN));
}

TEST(what_an_address_says_of_its_user)
{
    static const char *const rows[][2] = {
        {"http://me:word@h:1/x", "http://***@h:1/x"}, {"git+https://token@h/x", "git+https://***@h/x"},
        {"ssh://git@h/x", "ssh://git@h/x"}, {"ssh://me:word@h and http://a:b@c",
                                             "ssh://me:***@h and http://***@c"},
        {"http://h:80/a@b", "http://h:80/a@b"}, {"hf://a/b@v1", "hf://a/b@v1"},
        {"ssh://me:w@h", "ssh://me:*@h"}, {"://", "://"}, {"http://@h", "http://@h"}};

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char text[100];

        snprintf(text, sizeof text, "%s", rows[i][0]);
        ckpt_secret_mask(text);
        assert_string_equal(text, rows[i][1]);
    }
}

TEST(forms)
{
    static const char *const hidden[] = {
        TOKEN, "x" TOKEN "y", "hf_AbCdEfGhIjKl", "GhIjKlMnOpQr", "HF_ABCDEFGHIJKLMNOP",
        "h f _ A b C d E f G h I j K l", "hf_\\u0041bCdEfGhIjKl", "hf%5FAbCdEfGhI%6aKlMn",
        "\\\\u0068f_Ab%2543dEfGhIjKlMn", "hf_&#65;&#x62;CdEfGhIjKlMn",
        "dXNlcjpoZl9BYkNkRWZHaElqS2xNbk9wUXJTdFV2V3hZejAxMjM0NTY3ODk=",
        "Basic dXNlcjpoZl9BYkNkRWZHaElqS2xNbk9wUXJTdFV2V3hZejAxMjM0NTY3ODk",
        "xxxdXNlcjpoZl9BYkNkRWZHaElqS2xNbk9wUXJTdFV2V3hZejAxMjM0NTY3ODk=",
        "/path/AbCd/EfGh/IjKl/MnOp", "hf_AbCd\xe2\x80\x8b" "EfGhIjKlMn",
    };
    static const char *const shown[] = {
        "hf://acme/llama: status 403: bad", "hf_AbCdE", "weights of a model", "%", "\\u00", "&#",
        "&#x", "fedcba9876543210fedcba9876543210", "AAAAAAAAAAAAAAAAAAAA", "",
    };

    ckpt_secret_add(TOKEN);
    ckpt_secret_add(TOKEN);
    for (size_t i = 0; i < sizeof hidden / sizeof hidden[0]; i++) {
        char text[300];

        if (!ckpt_secret_in(hidden[i], strlen(hidden[i])))
            fail_msg("%s: is not seen", hidden[i]);
        snprintf(text, sizeof text, "hf://acme/llama: status 403: %s", hidden[i]);
        ckpt_secret_mask(text);
        assert_non_null(strstr(text, "***"));
        assert_false(ckpt_secret_in(text, strlen(text)));
    }
    for (size_t i = 0; i < sizeof shown / sizeof shown[0]; i++) {
        char text[300];

        snprintf(text, sizeof text, "%s", shown[i]);
        ckpt_secret_mask(text);
        assert_string_equal(text, shown[i]);
    }
}

static char line[1100];

static void keep(void *ctx, enum ckpt_log_level level, const char *text)
{
    (void)ctx;
    (void)level;
    snprintf(line, sizeof line, "%s", text);
}

TEST_ERR(messages)
{
    ckpt_fail(err, CKPT_EREFUSED, "hf://a/b: status 403: bad token " TOKEN);
    assert_string_equal(err->text, "hf://a/b: status 403: bad token ***");
    ckpt_err_in(err, "http://host/%s", "hf%5fAbCdEfGhIjKl");
    assert_null(strstr(err->text, "AbCdEf"));
    ckpt_err_hint(err, "say %s", TOKEN);
    assert_string_equal(err->hint, "say ***");
    ckpt_log_hook(keep, NULL);
    ckpt_log(CKPT_LOG_DEBUG, "GET http://host/%s: status 200", TOKEN);
    assert_string_equal(line, "GET *** status 200");
    ckpt_log_hook(NULL, NULL);
}

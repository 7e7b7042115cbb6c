/* err: codes have statuses, sentences are escaped and never overflow. */
#include <errno.h>

#include "tests/unit/unit.h"

TEST(status_follows_code)
{
    assert_int_equal(ckpt_err_status(CKPT_OK), 0);
    assert_int_equal(ckpt_err_status(CKPT_EFORMAT), 65);
    assert_int_equal(ckpt_err_status(CKPT_EREFUSED), 77);
    assert_int_equal(ckpt_err_status(CKPT_ENO), 1);
    assert_int_equal(ckpt_err_status(-9999), 70);
}

TEST_ERR(what_ran_out_is_no_fault_of_a_disk)
{
    assert_int_equal(ckpt_fail_errno(err, CKPT_EIO, ENOMEM, "x"), CKPT_ENOMEM);
    assert_string_equal(err->reason, "no-memory");
    assert_int_equal(ckpt_fail_errno(err, CKPT_EIO, EMFILE, "x"), CKPT_ENOMEM);
    assert_int_equal(ckpt_fail_errno(err, CKPT_EIO, ENOSPC, "x"), CKPT_EIO);
    assert_int_equal(ckpt_fail_errno(err, CKPT_ECREATE, ENFILE, "x"), CKPT_ENOMEM);
    ckpt_err_clear(err);
}

TEST_ERR(context_goes_in_front)
{
    assert_int_equal(ckpt_fail(err, CKPT_EFORMAT, "%d bytes", 3), CKPT_EFORMAT);
    assert_int_equal(ckpt_err_in(err, "file %s", "x"), CKPT_EFORMAT);
    assert_string_equal(err->text, "file x: 3 bytes");
    assert_string_equal(err->reason, "malformed");
    ckpt_err_in(err, "%s", "file x");  /* told once, and so is what lies inside it */
    assert_string_equal(err->text, "file x: 3 bytes");
    ckpt_err_in(err, "%s", "file");
    assert_string_equal(err->text, "file: file x: 3 bytes");
    ckpt_fail(err, CKPT_EFORMAT, "dir/a: bad");
    ckpt_err_in(err, "%s", "dir");
    assert_string_equal(err->text, "dir/a: bad");
    ckpt_err_in(err, "%s", "di");
    assert_string_equal(err->text, "di: dir/a: bad");
    ckpt_fail(err, CKPT_EFORMAT, "/x/run/step 4/a.pt: bad: see b");
    ckpt_err_in(err, "%s", "step 4");
    ckpt_err_in(err, "%s", "/x/run");
    ckpt_err_in(err, "%s", "a.pt");
    assert_string_equal(err->text, "/x/run/step 4/a.pt: bad: see b");
    ckpt_err_in(err, "%s", "bad");     /* said, but not of where */
    ckpt_err_in(err, "%s", "step");
    assert_string_equal(err->text, "step: bad: /x/run/step 4/a.pt: bad: see b");
    ckpt_fail_as(err, CKPT_EFORMAT, "overlap", "y");
    assert_string_equal(err->reason, "overlap");
    assert_string_equal(err->text, "y");
}

TEST_ERR(long_sentences_are_cut)
{
    static char big[5000];

    memset(big, 'a', sizeof big - 1);
    ckpt_fail(err, CKPT_EIO, "%s", big);
    ckpt_err_in(err, "%s", big);
    assert_true(strlen(err->text) < sizeof err->text);
}

TEST_ERR(failure_is_never_0)
{
    assert_int_equal(ckpt_err_code(err), CKPT_ESTATE);
    assert_string_equal(err->text, "a call failed without a reason");
    ckpt_fail(err, CKPT_EIO, "x");
    assert_int_equal(ckpt_err_code(err), CKPT_EIO);
}

TEST(escape)
{
    static const struct { const char *in; size_t n; const char *out; } rows[] = {
        {"plain", 5, "plain"},
        {"\x1b[31m", 5, "\\x1b[31m"},
        {"a\nb\tc\r", 6, "a\\nb\\tc\\r"},
        {"\xc3\xa9", 2, "\xc3\xa9"},
        {"\xc3", 1, "\\xc3"},
        {"\xe2\x80\xae" "x", 4, "\\xe2\\x80\\xaex"},      /* right-to-left override */
        {"\xed\xa0\x80", 3, "\\xed\\xa0\\x80"},
        {"a\0b", 3, "a\\x00b"},
    };
    char dst[64];

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        assert_string_equal(ckpt_err_escape(dst, sizeof dst, rows[i].in, rows[i].n), rows[i].out);
    assert_string_equal(ckpt_err_escape(dst, 8, "abcdefghijkl", 12), "abcd...");
    for (size_t size = 1; size < 12; size++) {  /* never past the end */
        memset(dst, 'Z', sizeof dst);
        ckpt_err_escape(dst, size, "\x01\x02\x03\x04", 4);
        assert_true(strlen(dst) < size);
        assert_int_equal(dst[size], 'Z');
    }
}

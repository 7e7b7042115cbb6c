/* jsonl, text, lines, record_open: records at random, line ends, blank lines, errors, choice.
 */
#include "tests/unit/records_help.h"

#include "formats/records/lines.h"
#include "formats/records/rows.h"

static const char *dir;

static struct records *open_text(const char *name, const char *text)
{
    return must_open_records(put_in(dir, name, text), NULL);
}

TEST(line_ends_and_blank_lines)
{
    struct records *r = open_text("a.jsonl", "\xef\xbb\xbf{\"t\":\"one\"}\r\n\n  \t\r\n"
                                             "{\"t\":\"two\"}\n\n\n{\"t\":\"\\u00e9 three\"}");

    assert_int_equal(records_count(r), 3);
    assert_member(r, 2, "t", "\xc3\xa9 three");
    assert_member(r, 0, "t", "one");
    assert_member(r, 1, "t", "two");
    records_close(r);
}

TEST(text_lines)
{
    struct records *r = open_text("lines.txt",
                                  "first\n\nthird \xc3\xa9\r\nlast without newline");

    assert_int_equal(records_count(r), 4);
    assert_member(r, 0, "text", "first");
    assert_member(r, 1, "text", "");
    assert_member(r, 2, "text", "third \xc3\xa9");
    assert_member(r, 3, "text", "last without newline");
    records_close(r);
}

TEST(errors_name_file_record_and_line)
{
    static const struct { const char *body, *says; } bad[] = {
        {"{\"a\":1}\n\n{\"a\":}\n", "bad.jsonl: record 2: line 3"},
        {"{\"a\":1}\n[1]\n", "record 2: line 2: not a JSON object"},
        {"{\"a\":1}\n{\"a\":1,\"a\":2}\n", "record 2: line 2"},
        {"{\"a\":1}\n{\"a\":\"\xff\"}\n", "record 2: line 2"},
        {"{\"a\":1}\n{\"a\":1} {\"b\":2}\n", "record 2: line 2"},
        {"{\"a\":1}\n{\"a\":1", "record 2: line 2"},
    };
    struct ckpt_err err;

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct records *r = open_text("bad.jsonl", bad[i].body);
        json_t *v;

        assert_int_equal(records_count(r), 2);
        assert_int_equal(records_get(r, 0, &v, &err), 0);
        json_decref(v);
        assert_int_equal(records_get(r, 1, &v, &err), CKPT_EFORMAT);
        assert_null(v);
        if (!strstr(err.text, bad[i].says))
            fail_msg("case %zu: \"%s\"", i, err.text);
        assert_int_equal(records_get(r, 2, &v, &err), CKPT_ENOTFOUND);
        assert_int_equal(records_get(r, -1, &v, &err), CKPT_ENOTFOUND);
        records_close(r);
    }
}

/* Records larger than the scan's block, and a block border inside every kind of line end. */
TEST(lines_across_blocks)
{
    const size_t block = (size_t)1 << 20;
    char *s = malloc(3 * block);

    for (size_t shift = 0; shift < 4; shift++) {
        struct records *r;
        size_t n = 0;

        n += (size_t)sprintf(s + n, "{\"t\":\"");
        memset(s + n, 'x', 2 * block - 8 - shift - n);
        n = 2 * block - 8 - shift;
        n += (size_t)sprintf(s + n, "\"}\r\n\r\n{\"t\":\"b\"}\r\n");
        r = must_open_records(put_bytes_in(dir, "big.jsonl", s, n), NULL);
        assert_int_equal(records_count(r), 2);
        assert_member(r, 1, "t", "b");
        records_close(r);
    }
    free(s);
}

TEST(a_line_beyond_the_limit)
{
    const char *path = put_in(dir, "huge.jsonl", "{\"t\":\"a\"}\n{\"t\":\"");
    struct ckpt_err err;
    struct records *r;
    json_t *v;

    assert_int_equal(truncate(path, (off_t)LINES_MAX_LINE + 100), 0);
    r = must_open_records(path, NULL);
    assert_int_equal(records_count(r), 2);
    assert_member(r, 0, "t", "a");
    assert_int_equal(records_get(r, 1, &v, &err), CKPT_ELIMIT);
    records_close(r);
    unlink(path);
}

TEST(several_files_are_one_list)
{
    struct ckpt_err err = {0};
    struct records *r;
    const char *list[3];

    list[0] = put_in(dir, "one.jsonl", "{\"t\":\"0\"}\n{\"t\":\"1\"}\n");
    list[1] = put_in(dir, "none.jsonl", "");
    list[2] = put_in(dir, "two.jsonl", "{\"t\":\"2\"}\n");
    assert_int_equal(records_open(&r, list, 3, &err), 0);
    assert_int_equal(records_count(r), 3);
    for (int i = 2; i >= 0; i--) {
        char want[2] = {(char)('0' + i), '\0'};

        assert_member(r, i, "t", want);
    }
    records_close(r);
}

TEST(directories_in_name_order)
{
    struct records *r;

    assert_int_equal(mkdir(path_in(dir, "d"), 0700), 0);
    refuse_records(path_in(dir, "d"), NULL, CKPT_ENOTFOUND, "", "");
    put_in(dir, "d/b.jsonl", "{\"t\":\"second\"}\n");
    put_in(dir, "d/a.jsonl", "{\"t\":\"first\"}\n");
    put_in(dir, "d/README.md", "not data\n");
    r = must_open_records(path_in(dir, "d"), NULL);
    assert_int_equal(records_count(r), 2);
    assert_member(r, 0, "t", "first");
    assert_member(r, 1, "t", "second");
    records_close(r);
}

TEST(what_is_no_data)
{
    refuse_records(put_in(dir, "x.bin", "BIN1\0\0"), NULL, CKPT_EUNSUPPORTED, "x.bin", "");
    refuse_records(path_in(dir, "absent.jsonl"), NULL, CKPT_ENOTFOUND, "", "");
    /* Structure decides where the name says nothing. */
    assert_true(record_jsonl.bid("noname", (const unsigned char *)" \n{\"a\"", 6) > 0);
    assert_int_equal(record_text.bid("noname", (const unsigned char *)"abc", 3), 0);
}

BEFORE_ALL()
{
    dir = scratch("jsonl");
}

AFTER_ALL()
{
    scratch_remove(dir);
}

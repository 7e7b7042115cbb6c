/* jsonl, text, lines, record_open: records at random, line ends, blank lines, errors, choice.
 */
#include "tests/unit/unit.h"

#include "formats/records/lines.h"
#include "formats/records/record.h"
#include "formats/records/rows.h"
#include "libckpt/commit.h"

static char dir[] = "/tmp/ckpt-test-jsonl-XXXXXX";

static const char *path_of(const char *name)
{
    static char path[8][256];
    static int i;

    i = (i + 1) % 8;
    snprintf(path[i], sizeof path[i], "%s/%s", dir, name);
    return path[i];
}

static const char *put(const char *name, const void *bytes, size_t n)
{
    const char *path = path_of(name);
    FILE *f = fopen(path, "wb");

    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
    return path;
}

static const char *put_str(const char *name, const char *s) { return put(name, s, strlen(s)); }

static struct records *open_one(const char *path, struct ckpt_err *err)
{
    struct records *r;

    ckpt_err_clear(err);
    records_open(&r, &path, 1, err);
    return r;
}

static void expect_str(struct records *r, int64_t i, const char *key, const char *want)
{
    struct ckpt_err err = {0};
    json_t *v;

    if (records_get(r, i, &v, &err))
        fail_msg("%s", err.text);
    assert_string_equal(json_string_value(json_object_get(v, key)), want);
    json_decref(v);
}

TEST(line_ends_and_blank_lines)
{
    struct ckpt_err err;
    struct records *r =
        open_one(put_str("a.jsonl", "\xef\xbb\xbf{\"t\":\"one\"}\r\n\n  "
                                    "\t\r\n{\"t\":\"two\"}\n\n\n{\"t\":\"\\u00e9 three\"}"),
                 &err);

    assert_non_null(r);
    assert_int_equal(records_count(r), 3);
    expect_str(r, 2, "t", "\xc3\xa9 three");
    expect_str(r, 0, "t", "one");
    expect_str(r, 1, "t", "two");
    records_close(r);
}

TEST(text_lines)
{
    struct ckpt_err err;
    struct records *r =
        open_one(put_str("lines.txt", "first\n\nthird \xc3\xa9\r\nlast without newline"), &err);

    assert_non_null(r);
    assert_int_equal(records_count(r), 4);
    expect_str(r, 0, "text", "first");
    expect_str(r, 1, "text", "");
    expect_str(r, 2, "text", "third \xc3\xa9");
    expect_str(r, 3, "text", "last without newline");
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
        struct records *r = open_one(put_str("bad.jsonl", bad[i].body), &err);
        json_t *v;

        assert_non_null(r);
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
    struct ckpt_err err;
    char *s = malloc(3 * block);

    for (size_t shift = 0; shift < 4; shift++) {
        struct records *r;
        size_t n = 0;

        n += (size_t)sprintf(s + n, "{\"t\":\"");
        memset(s + n, 'x', 2 * block - 8 - shift - n);
        n = 2 * block - 8 - shift;
        n += (size_t)sprintf(s + n, "\"}\r\n\r\n{\"t\":\"b\"}\r\n");
        r = open_one(put("big.jsonl", s, n), &err);
        assert_non_null(r);
        assert_int_equal(records_count(r), 2);
        expect_str(r, 1, "t", "b");
        records_close(r);
    }
    free(s);
}

TEST(a_line_beyond_the_limit)
{
    const char *path = put_str("huge.jsonl", "{\"t\":\"a\"}\n{\"t\":\"");
    struct ckpt_err err;
    struct records *r;
    json_t *v;

    assert_int_equal(truncate(path, (off_t)LINES_MAX_LINE + 100), 0);
    r = open_one(path, &err);
    assert_non_null(r);
    assert_int_equal(records_count(r), 2);
    expect_str(r, 0, "t", "a");
    assert_int_equal(records_get(r, 1, &v, &err), CKPT_ELIMIT);
    records_close(r);
    unlink(path);
}

TEST(several_files_are_one_list)
{
    struct ckpt_err err = {0};
    struct records *r;
    const char *list[3];

    list[0] = put_str("one.jsonl", "{\"t\":\"0\"}\n{\"t\":\"1\"}\n");
    list[1] = put_str("none.jsonl", "");
    list[2] = put_str("two.jsonl", "{\"t\":\"2\"}\n");
    assert_int_equal(records_open(&r, list, 3, &err), 0);
    assert_int_equal(records_count(r), 3);
    for (int i = 2; i >= 0; i--) {
        char want[2] = {(char)('0' + i), '\0'};

        expect_str(r, i, "t", want);
    }
    records_close(r);
}

TEST(directories_in_name_order)
{
    struct ckpt_err err;
    struct records *r;

    assert_int_equal(mkdir(path_of("d"), 0700), 0);
    r = open_one(path_of("d"), &err);
    assert_null(r);
    assert_int_equal(err.code, CKPT_ENOTFOUND);
    put_str("d/b.jsonl", "{\"t\":\"second\"}\n");
    put_str("d/a.jsonl", "{\"t\":\"first\"}\n");
    put_str("d/README.md", "not data\n");
    r = open_one(path_of("d"), &err);
    assert_non_null(r);
    assert_int_equal(records_count(r), 2);
    expect_str(r, 0, "t", "first");
    expect_str(r, 1, "t", "second");
    records_close(r);
}

TEST(what_is_no_data)
{
    struct ckpt_err err;

    assert_null(open_one(put_str("x.bin", "BIN1\0\0"), &err));
    assert_int_equal(err.code, CKPT_EUNSUPPORTED);
    assert_non_null(strstr(err.text, "x.bin"));
    assert_null(open_one(path_of("absent.jsonl"), &err));
    assert_int_equal(err.code, CKPT_ENOTFOUND);
    /* Structure decides where the name says nothing. */
    assert_true(record_jsonl.bid("noname", (const unsigned char *)" \n{\"a\"", 6) > 0);
    assert_int_equal(record_text.bid("noname", (const unsigned char *)"abc", 3), 0);
}

BEFORE_ALL()
{
    assert_non_null(mkdtemp(dir));
}

AFTER_ALL()
{
    struct ckpt_err err = {0};

    assert_int_equal(ckpt_outdir_remove(dir, &err), 0);
}

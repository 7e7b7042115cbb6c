/* out: one set of calls gives a table for people and a document for programs. */
#include "tests/unit/stdio_to.h"

#include <fcntl.h>
#include <math.h>

#include "libckpt/base/json.h"
#include "tools/out.h"

static const struct out_column columns[] = {
    {"name", "tensor", OUT_LEFT}, {"bytes", "bytes", OUT_RIGHT}, {"shape", "shape", OUT_LEFT},
    {"hidden", NULL, OUT_LEFT},   {"mean", "mean", OUT_RIGHT},
};

static void fill(struct out *o)
{
    json_t *v = json_pack("{s:[i,i]}", "k", 1, 2);

    out_str(o, "format", "format", "x\033[31m");
    out_str(o, "secret", NULL, "for programs");
    out_int(o, "n", "count", -3);
    out_real(o, "loss", "loss", 0.1);
    out_real(o, "worst", "worst", NAN);
    out_bytes(o, "size", "size", 1500000000);
    out_line(o, "a line");
    out_json(o, "facts", "facts", v);
    out_json(o, "nothing", "nothing", NULL);
    out_table(o, "rows", columns, 5);
    out_cell_str(o, "w\xc3\xa9");
    out_cell_bytes(o, 12);
    out_cell_json(o, "[2, 3]");
    out_cell_str(o, "h");
    out_cell_real(o, 1.0 / 3);
    out_cell_str(o, "longer");
    out_cell_int(o, 1234);
    out_cell_none(o);
    out_cell_none(o);
    out_cell_real(o, INFINITY);
    out_table_end(o);
    out_table(o, "empty", columns, 2);
    out_table_end(o);
    json_decref(v);
}

static struct out *begun(bool json)
{
    struct ckpt_err err = {0};
    struct out *o;

    assert_int_equal(out_new(&o, json, &err), 0);
    return o;
}

/* What is printed at the end. */
static char *ended(struct out *o)
{
    struct ckpt_err err = {0};
    struct stdio_to s;

    stdio_begin(&s, stdout);
    assert_int_equal(out_end(o, &err), 0);
    return stdio_end(&s);
}

/* The same as a document. */
static json_t *document(struct out *o)
{
    struct ckpt_err err = {0};
    char *text = ended(o);
    json_t *doc;

    assert_int_equal(ckpt_json_parse(&doc, text, strlen(text), CKPT_JSON_STRICT, &err), 0);
    free(text);
    return doc;
}

static char *printed(bool json)
{
    struct out *o = begun(json);

    fill(o);
    return ended(o);
}

TEST(table_for_people)
{
    char *text = printed(false);

    assert_string_equal(text, "format: x\\x1b[31m\n"
                              "count: -3\n"
                              "loss: 0.1\n"
                              "worst: nan\n"
                              "size: 1.50 GB\n"
                              "a line\n"
                              "facts: {\n  \"k\": [\n    1,\n    2\n  ]\n}\n"
                              "tensor  bytes  shape       mean\n"
                              "w\xc3\xa9       12 B  [2, 3]  0.333333\n"
                              "longer   1234               inf\n"
                              "tensor  bytes\n");
    free(text);
}

TEST(document_for_programs)
{
    struct out *o = begun(true);
    json_t *doc, *row;

    fill(o);
    doc = document(o);
    assert_string_equal(json_string_value(json_object_get(doc, "format")), "x\033[31m");
    assert_string_equal(json_string_value(json_object_get(doc, "secret")), "for programs");
    assert_int_equal(json_integer_value(json_object_get(doc, "n")), -3);
    assert_true(json_real_value(json_object_get(doc, "loss")) == 0.1);
    assert_true(json_is_null(json_object_get(doc, "worst")));
    assert_int_equal(json_integer_value(json_object_get(doc, "size")), 1500000000);
    assert_int_equal(json_array_size(json_object_get(json_object_get(doc, "facts"), "k")), 2);
    assert_true(json_is_null(json_object_get(doc, "nothing")));
    assert_int_equal(json_array_size(json_object_get(doc, "rows")), 2);
    assert_int_equal(json_array_size(json_object_get(doc, "empty")), 0);
    row = json_array_get(json_object_get(doc, "rows"), 0);
    assert_string_equal(json_string_value(json_object_get(row, "name")), "w\xc3\xa9");
    assert_int_equal(json_integer_value(json_array_get(json_object_get(row, "shape"), 1)), 3);
    assert_string_equal(json_string_value(json_object_get(row, "hidden")), "h");
    assert_true(json_real_value(json_object_get(row, "mean")) == 1.0 / 3);
    row = json_array_get(json_object_get(doc, "rows"), 1);
    assert_true(json_is_null(json_object_get(row, "shape")));
    assert_true(json_is_null(json_object_get(row, "mean")));
    assert_int_equal(json_object_size(row), 5);
    json_decref(doc);
}

/* Every row is one line, so that grep and paste work on it. */
TEST(a_row_is_a_line)
{
    char *text = printed(true);

    assert_non_null(strstr(text, "\n    {\"name\": \"longer\", \"bytes\": 1234, \"shape\": null, "
                                 "\"hidden\": null, \"mean\": null}\n"));
    assert_non_null(strstr(text, "\n  \"n\": -3,\n"));
    free(text);
}

TEST(strings_survive)
{
    static const struct { const char *in, *out; } rows[] = {
        {"", ""}, {"plain", "plain"}, {"\"\\\n\x7f\x01", "\"\\\n\x7f\x01"},
        {"\xe2\x82\xac", "\xe2\x82\xac"}, {"caf\xe9", "caf\\xe9"},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct out *o = begun(true);
        json_t *doc;

        out_str(o, "k", "k", rows[i].in);
        doc = document(o);
        assert_string_equal(json_string_value(json_object_get(doc, "k")), rows[i].out);
        json_decref(doc);
    }
}

TEST(reals_read_back)
{
    static const double values[] = {0, -0.0, 1, -1e300, 5e-324, 0.1, 1e16, 123456789.125, 1e-5};

    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
        struct out *o = begun(true);
        json_t *doc;

        out_real(o, "k", "k", values[i]);
        doc = document(o);
        assert_true(json_is_real(json_object_get(doc, "k")));
        assert_true(json_real_value(json_object_get(doc, "k")) == values[i]);
        json_decref(doc);
    }
}

static void assert_printed(char *text, const char *want)
{
    assert_string_equal(text, want);
    free(text);
}

TEST(nothing_is_a_document)
{
    struct stdio_to s;
    struct out *o;

    assert_printed(ended(begun(true)), "{}\n");
    o = begun(false);
    out_str(o, "k", "k", "v");
    stdio_begin(&s, stdout);
    out_abort(o);
    assert_printed(stdio_end(&s), "");
}

TEST(nothing_is_no_text) { assert_printed(ended(begun(false)), ""); }

TEST_ERR(a_full_disk_is_told)
{
    struct out *o;
    int was, full, rc;

    assert_int_equal(out_new(&o, false, err), 0);
    out_str(o, "k", "k", "v");
    fflush(stdout);
    was = dup(1);
    full = open("/dev/full", O_WRONLY);
    assert_true(was >= 0 && full >= 0);
    assert_int_equal(dup2(full, 1), 1);
    rc = out_end(o, err);
    clearerr(stdout);
    assert_int_equal(dup2(was, 1), 1);
    close(was);
    close(full);
    assert_int_equal(rc, CKPT_EIO);
    assert_non_null(strstr(err->text, "standard output"));
}

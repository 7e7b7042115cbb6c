/* choice_row: contexts and continuations are those of lm-evaluation-harness's tasks.  [A, E7, X3] */
#include "tests/unit/unit.h"

#include "tools/eval/tasks/choice_row.h"

static json_t *golden;
static struct ckpt_arena arena;

BEFORE_ALL()
{
    json_error_t why;

    golden = json_load_file("tests/golden/choices.json", 0, &why);
    assert_non_null(golden);
}

AFTER_ALL() { json_decref(golden); }
AFTER_EACH() { ckpt_arena_release(&arena); }

/* The two texts in a row. */
static const char *joined(const char *a, const char *b)
{
    return ckpt_arena_printf(&arena, "%s%s", a, b);
}

static void check_row(const char *shape, const json_t *record, const json_t *want)
{
    const json_t *continuations = json_array_get(want, 1);
    const char *context = json_string_value(json_array_get(want, 0));
    struct choice_row row = {0};
    struct ckpt_err err = {0};

    if (choice_row_read(&row, record, &(struct choice_opts){0}, &arena, &err))
        fail_msg("%s: %s", shape, err.text);
    assert_int_equal(row.n, json_array_size(continuations));
    assert_int_equal(row.right, json_integer_value(json_array_get(want, 2)));
    for (size_t k = 0; k < row.n; k++)
        assert_string_equal(joined(row.context, row.continuation[k]),
                            joined(context, json_string_value(json_array_get(continuations, k))));
}

TEST(rows_of_three_shapes)
{
    const json_t *shape;
    size_t i, checked = 0;

    json_array_foreach (golden, i, shape) {
        const json_t *rows = json_object_get(shape, "rows"), *each = json_object_get(shape, "each");

        for (size_t k = 0; k < json_array_size(rows); k++, checked++)
            check_row(json_string_value(json_object_get(shape, "shape")), json_array_get(rows, k),
                      json_array_get(each, k));
    }
    assert_int_equal(checked, 120);
}

/* Read a record of JSON. */
static int read_text(struct choice_row *row, const char *text, const struct choice_opts *o,
                     struct ckpt_err *err)
{
    json_t *record = json_loads(text, 0, NULL);
    int rc;

    assert_non_null(record);
    rc = choice_row_read(row, record, o, &arena, err);
    json_decref(record);
    return rc;
}

TEST_ERR(white_space_goes_to_the_continuation)
{
    struct choice_row row;

    assert_int_equal(read_text(&row, "{\"prompt\": \"a b \\n\", \"choices\": [\"x\", \"y\"], "
                               "\"label\": 1}", &(struct choice_opts){0}, err), 0);
    assert_string_equal(row.context, "a b");
    assert_string_equal(row.continuation[1], " \n y");
    assert_int_equal(row.right, 1);
}

TEST_ERR(marks_of_wikihow_are_removed)
{
    struct choice_row row;

    assert_int_equal(read_text(&row, "{\"ctx\": \" a [title] b [x [y] z] [open\", \"endings\": "
                               "[\"[s]  e\", \"f\"], \"label\": \"0\"}",
                               &(struct choice_opts){0}, err), 0);
    assert_string_equal(row.context, "a. b z] [open");
    assert_string_equal(row.choice[0], " e");
}

TEST_ERR(labels_are_words_or_numbers)
{
    static const char *const words[] = {"bad", "good"};
    struct choice_opts o = {.words = {words, 2}};
    struct choice_row row;

    assert_int_equal(read_text(&row, "{\"text\": \"t\", \"label\": 1}", &o, err), 0);
    assert_int_equal(row.right, 1);
    assert_int_equal(read_text(&row, "{\"text\": \"t\", \"label\": \"bad\"}", &o, err), 0);
    assert_int_equal(row.right, 0);
    assert_string_equal(row.continuation[row.right], " bad");
    assert_int_equal(read_text(&row, "{\"text\": \"t\", \"label\": \"ugly\"}", &o, err),
                     CKPT_EFORMAT);
    assert_int_equal(read_text(&row, "{\"text\": \"t\", \"label\": 2}", &o, err), CKPT_EFORMAT);
    assert_int_equal(read_text(&row, "{\"text\": \"t\", \"label\": 1.5}", &o, err), CKPT_EFORMAT);
    assert_int_equal(read_text(&row, "{\"text\": \"t\", \"label\": 1.0}", &o, err), 0);
    assert_int_equal(row.right, 1);
    assert_int_equal(read_text(&row, "{\"label\": 1}", &o, err), CKPT_EFORMAT);
}

TEST(what_is_no_question_is_refused)
{
    static const char *const records[] = {
        "{}", "[]", "{\"endings\": [\"a\", \"b\"]}",
        "{\"endings\": [\"a\", \"b\"], \"label\": \"\", \"ctx\": \"c\"}",
        "{\"endings\": [\"a\"], \"label\": 0, \"ctx\": \"c\"}",
        "{\"endings\": [\"a\", 1], \"label\": 0, \"ctx\": \"c\"}",
        "{\"endings\": \"ab\", \"label\": 0, \"ctx\": \"c\"}",
        "{\"question\": \"q\", \"choices\": {\"text\": [\"a\", \"b\"], \"label\": [\"A\", \"B\"]}, "
        "\"answerKey\": \"C\"}",
        "{\"question\": 1, \"choices\": [\"a\", \"b\"], \"answer\": 0}",
        "{\"question\": \"q\", \"choices\": [\"a\", \"b\"], \"answer\": -1}",
        "{\"question\": \"q\", \"choices\": [\"a\", \"b\"], \"answer\": 99999999999999}",
        "{\"question\": \"q\", \"choices\": [\"a\", \"b\"], \"answer\": null}",
        "{\"prompt\": 1, \"choices\": [\"a\", \"b\"], \"answer\": 1}",
    };

    for (size_t i = 0; i < sizeof records / sizeof records[0]; i++) {
        struct choice_row row = {0};
        struct ckpt_err err = {0};

        if (read_text(&row, records[i], &(struct choice_opts){0}, &err) != CKPT_EFORMAT)
            fail_msg("%s is not refused", records[i]);
    }
}

/* row_keys: rows of two systems are paired by index or id where all have one of their own. */
#include "tests/unit/unit.h"

#include <jansson.h>

#include "tools/eval/row_keys.h"

#define OK(call, err) do { if (call) fail_msg("%s", (err).text); } while (0)

/* Rows whose predictions are their places in the file; records is an array. */
struct side {
    struct answers  answers;
    struct row_keys keys;
};

static void side_open(struct side *s, const char *records)
{
    static const char *const place[] = {"0", "1", "2", "3"};
    json_t *all = json_loads(records, 0, NULL);
    struct ckpt_err err = {0};

    assert_non_null(all);
    memset(s, 0, sizeof *s);
    OK(answers_init(&s->answers, json_array_size(all), &err), err);
    OK(row_keys_init(&s->keys, &s->answers, &err), err);
    for (size_t i = 0; i < s->answers.n; i++) {
        s->answers.row[i].prediction = place[i];
        OK(row_keys_note(&s->keys, &s->answers, i, json_array_get(all, i), &err), err);
    }
    OK(row_keys_end(&s->keys, &err), err);
    json_decref(all);
}

static void side_close(struct side *s)
{
    row_keys_release(&s->keys);
    answers_release(&s->answers);
}

/* Pair b's rows with a's: order is the places of b's rows then; NULL: an error says `lacks`. */
static void pairs(const char *a, const char *b, const char *order, const char *lacks)
{
    struct ckpt_err err = {0};
    struct side of_a, of_b;
    int rc;

    side_open(&of_a, a);
    side_open(&of_b, b);
    rc = row_keys_pair(&of_b.answers, &of_b.keys, &of_a.keys, &err);
    if (!order) {
        assert_int_equal(rc, CKPT_EFORMAT);
        assert_string_equal(err.text, lacks);
    } else {
        OK(rc, err);
        assert_int_equal(of_b.answers.n, strlen(order));
        for (size_t i = 0; i < of_b.answers.n; i++)
            if (of_b.answers.row[i].prediction[0] != order[i])
                fail_msg("%s beside %s: row %zu is %s, wanted %c", b, a, i,
                         of_b.answers.row[i].prediction, order[i]);
    }
    side_close(&of_b);
    side_close(&of_a);
}

TEST(rows_in_another_order_are_paired)
{
    pairs("[{\"index\": 0}, {\"index\": 1}, {\"index\": 2}]",
          "[{\"index\": 2}, {\"index\": 0}, {\"index\": 1}]", "120", NULL);
    pairs("[{\"id\": \"b\"}, {\"id\": \"a\"}]", "[{\"id\": \"a\"}, {\"id\": \"b\"}]", "10", NULL);
    pairs("[{\"id\": 7, \"index\": 1}, {\"id\": 8, \"index\": 0}]",
          "[{\"id\": 7, \"index\": 0}, {\"id\": 8, \"index\": 1}]", "10", NULL); /* index goes first */
    pairs("[{\"id\": 7}, {\"id\": 8, \"index\": 0}]", "[{\"id\": 8}, {\"id\": 7, \"index\": 0}]", "10",
          NULL);                        /* what all have */
    pairs("[{\"id\": \"\"}, {\"id\": \"\\u00e9\"}]", "[{\"id\": \"\\u00e9\"}, {\"id\": \"\"}]", "10",
          NULL);
}

TEST(rows_that_keys_do_not_tell_apart_keep_their_places)
{
    pairs("[{\"index\": 1}, {\"index\": 0}]", "[{\"index\": 0}, {}]", "01", NULL);
    pairs("[{\"index\": 1}, {\"index\": 0}]", "[{\"index\": 0}, {\"index\": 0}]", "01", NULL);
    pairs("[{\"index\": 1}, {\"index\": 0}]", "[{\"id\": 0}, {\"id\": 1}]", "01", NULL);
    pairs("[{\"index\": 1}, {\"index\": 0}]", "[{\"index\": 0}, {\"id\": 1}]", "01", NULL);
    pairs("[{\"index\": 1}, {\"index\": 0}]", "[{\"index\": 0.5}, {\"index\": [1]}]", "01", NULL);
    pairs("[{\"index\": 1}, {\"index\": 0}]", "[{\"index\": 0}, {\"index\": 1}, {\"index\": 2}]",
          "012", NULL);
    pairs("[]", "[]", "", NULL);
}

TEST(a_row_that_the_other_lacks_is_named)
{
    pairs("[{\"index\": 0}, {\"index\": 5}]", "[{\"index\": 0}, {\"index\": 1}]", NULL,
          "no row with the index 5");
    pairs("[{\"id\": \"x\"}]", "[{\"id\": \"X\"}]", NULL, "no row with the id x");
}

TEST(the_first_key_that_comes_twice_is_known)
{
    struct side s;

    side_open(&s, "[{\"id\": \"a\"}, {\"id\": \"b\"}, {\"id\": \"b\"}, {\"id\": \"a\"}]");
    assert_int_equal(s.keys.n_again, 2);
    assert_int_equal(s.keys.again, 2);
    side_close(&s);
}

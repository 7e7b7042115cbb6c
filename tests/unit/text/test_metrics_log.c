/* metrics_log: of many runs in one file the newest one's rows, with those it went on from. */
#include "tests/unit/unit.h"

#include "formats/logs/metrics_log.h"
#include "libckpt/base/json.h"

#define FRESH(id)      "{\"run\":\"" id "\",\"start_step\":0,\"continues\":false}\n"
#define ON(id, step)   "{\"run\":\"" id "\",\"start_step\":" #step ",\"continues\":true}\n"
#define LOSS(step, v)  "{\"step\":" #step ",\"loss\":" #v "}\n"
#define EVAL(step, v)  "{\"step\":" #step ",\"eval_loss\":" #v "}\n"
#define DONE(step)     "{\"step\":" #step ",\"train_runtime\":1}\n"

/* The losses of what is read, as "step:loss " a row; others as "step:- ". */
static void assert_reads(const char *text, const char *want)
{
    struct ckpt_err err = {0};
    struct ckpt_file *f;
    char got[500] = "";
    json_t *rows, *row;
    size_t i;

    assert_int_equal(ckpt_file_memory(&f, text, strlen(text), "memory", &err), 0);
    assert_int_equal(metrics_log_read(&rows, f, &err), 0);
    json_array_foreach (rows, i, row) {
        const json_t *loss = json_object_get(row, "loss");
        size_t n = strlen(got);

        if (json_object_get(row, "run"))
            continue;
        snprintf(got + n, sizeof got - n, loss ? "%d:%d " : "%d:- ",
                 (int)json_number_value(json_object_get(row, "step")),
                 (int)json_number_value(loss));
    }
    assert_string_equal(got, want);
    json_decref(rows);
    ckpt_file_close(f);
}

TEST(the_newest_run_counts)
{
    assert_reads("", "");
    assert_reads(FRESH("a") LOSS(1, 9) LOSS(2, 8) DONE(2), "1:9 2:8 2:- ");
    assert_reads(FRESH("a") LOSS(1, 9) LOSS(5, 8) DONE(5) FRESH("b") LOSS(7, 3), "7:3 ");
    assert_reads(FRESH("a") LOSS(1, 9) FRESH("b"), "");         /* it has told nothing yet */
}

TEST(a_run_that_goes_on_keeps_what_it_went_on_from)
{
    assert_reads(FRESH("a") LOSS(1, 9) LOSS(2, 8) LOSS(3, 7) DONE(3) ON("b", 2) LOSS(3, 6) DONE(3),
                 "1:9 2:8 3:6 3:- ");
    assert_reads(FRESH("a") LOSS(1, 9) LOSS(2, 8) DONE(2) ON("b", 2) LOSS(3, 6),
                 "1:9 2:8 3:6 ");                               /* its summary is its own */
    assert_reads(FRESH("a") LOSS(1, 9) EVAL(1, 5) LOSS(4, 8) ON("b", 1) LOSS(2, 6) ON("c", 1)
                 LOSS(2, 5), "1:9 1:- 2:5 ");
}

TEST(files_of_older_programs_are_told_by_their_steps)
{
    assert_reads(LOSS(1, 9) LOSS(2, 8) EVAL(2, 1) DONE(2) LOSS(1, 7), "1:7 ");
    assert_reads(LOSS(1, 9) LOSS(2, 8) EVAL(2, 1) LOSS(3, 7), "1:9 2:8 2:- 3:7 ");
    assert_reads(LOSS(6, 9) LOSS(6, 8), "6:8 ");
}

TEST(what_is_no_row_is_left_out)
{
    assert_reads(LOSS(1, 9) "\n[1]\nno json\n" LOSS(2, 8) "{\"step\":3,\"lo", "1:9 2:8 ");
}

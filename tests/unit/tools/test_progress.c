/* progress: rates of the last seconds, and what a line says. */
#include "tests/unit/unit.h"

#include <math.h>

#include "tools/progress.h"

static void assert_line(const char *unit, uint64_t done, uint64_t total, double rate,
                        const char *wanted)
{
    char text[PROGRESS_LINE];

    assert_string_equal(progress_text(text, "push", unit, done, total, rate), wanted);
}

TEST(a_line)
{
    assert_line("steps", 3, 9, 0, "push: 3 of 9 steps");
    assert_line("steps", 3, 9, 1.5, "push: 3 of 9 steps, 1.50 steps/s, 4 s left");
    assert_line("steps", 0, 1000, 0.5, "push: 0 of 1000 steps, 0.50 steps/s, 33 min 20 s left");
    assert_line("steps", 0, 100000, 0.5, "push: 0 of 100000 steps, 0.50 steps/s, 55 h 33 min left");
    assert_line(NULL, 500000000, 2500000000, 1e8, "push: 0.50 of 2.50 GB, 0.10 GB/s, 20 s left");
    assert_line(NULL, 5000000, 25000000, 1e6, "push: 5.00 of 25.00 MB, 1.00 MB/s, 20 s left");
    assert_line(NULL, 5, 10, 0, "push: 5 of 10 B");
}

TEST(no_rate_before_two_seconds)
{
    struct progress_window w = {0};

    progress_window_add(&w, 10, 0);
    assert_true(progress_window_rate(&w, 10.1, 1) <= 0);
    assert_true(progress_window_rate(&w, 11.9, 100) <= 0);
    assert_float_equal(progress_window_rate(&w, 12, 100), 50, 1e-9);
}

/* Hours at a crawl, then fast: what was long ago does not count. */
TEST(a_rate_is_that_of_the_last_seconds)
{
    struct progress_window w = {0};
    double t = 0;
    uint64_t done = 0;

    for (; t < 3600; t += 1)
        progress_window_add(&w, t, done++);
    for (; t < 3620; t += 0.25)
        progress_window_add(&w, t, done += 100);
    assert_float_equal(progress_window_rate(&w, t, done), 400, 20);
}

/* Work that begins again, or that stands, has no rate. */
TEST(no_rate_backwards)
{
    struct progress_window w = {0};

    progress_window_add(&w, 0, 50);
    progress_window_add(&w, 3, 50);
    assert_true(progress_window_rate(&w, 4, 50) <= 0);
    assert_true(progress_window_rate(&w, 4, 10) <= 0);
}

static const struct progress_facts facts = {.epoch = 1.26, .num_epochs = 3, .loss = 2.34561,
                                            .tokens_per_second = 12345, .memory = 2048};

static void assert_bar(int columns, const struct progress_facts *f, double rate, const char *want)
{
    char text[PROGRESS_LINE];

    assert_string_equal(progress_bar(text, columns, "training", "steps", 420, 1000, rate, f), want);
    assert_true(strlen(text) <= (size_t)columns);
}

TEST(a_bar_is_as_wide_as_fits)
{
    assert_bar(150, &facts, 2, "training  42% [#############.................] 420/1000 steps "
               "epoch 1.26/3 loss 2.3456 12.3k tok/s 2.0 GiB 4:50 left");
    assert_bar(79, &facts, 2, "training  42% [###....] 420/1000 epoch 1.26/3 loss 2.3456 12.3k tok/s "
               "4:50 left");
    assert_bar(39, &facts, 2, "42% 420/1000 loss 2.3456 4:50");
    assert_bar(19, &facts, 2, "42% 420/1000 4:50");
    assert_bar(14, &facts, 2, "42% 420/1000");
    assert_bar(12, &facts, 2, "420/1000");
    assert_bar(19, NULL, 0, "42% 420/1000");
}

/* Whatever the numbers are, no line is too long, down to 20 columns. */
TEST(no_bar_is_wider_than_the_terminal)
{
    static const double odd[] = {0, 1e-30, 1e36, -1e36, (double)NAN, (double)INFINITY};
    char text[PROGRESS_LINE];

    for (int columns = 19; columns < 320; columns++)
        for (size_t i = 0; i < sizeof odd / sizeof odd[0]; i++) {
            const struct progress_facts f = {odd[i], odd[i], odd[i], odd[i], odd[i], i, i};

            progress_bar(text, columns, "training", "steps", 99999999, UINT64_MAX, 1e-9, &f);
            assert_true(strlen(text) <= (size_t)columns);
            progress_bar(text, columns, "loading", NULL, 5, UINT64_MAX, odd[i], NULL);
            assert_true(strlen(text) <= (size_t)columns);
        }
}

TEST(a_line_has_the_facts)
{
    char text[PROGRESS_LINE];
    struct progress_facts f = facts;

    assert_string_equal(progress_note(text, "training", "steps", 3, 9, 1.5, &f),
                        "training: 3 of 9 steps, 1.50 steps/s, 4 s left, epoch 1.26/3, "
                        "loss 2.3456, 12.3k tok/s, 2.0 GiB");
    f.loss = 1.5e36;
    f.epoch = f.memory = f.tokens_per_second = (double)NAN;
    assert_string_equal(progress_note(text, "training", "steps", 3, 9, 0, &f),
                        "training: 3 of 9 steps, loss 1.50e+36");
}

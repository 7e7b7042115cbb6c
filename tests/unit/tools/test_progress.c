/* progress: rates of the last seconds, and what a line says. */
#include "tests/unit/unit.h"

#include "tools/progress.h"

static void assert_line(const char *unit, uint64_t done, uint64_t total, double rate,
                        const char *wanted)
{
    char text[200];

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

/* course: what falls on which step, what is the best, when there is no progress any more. */
#include "tests/unit/unit.h"

#include <math.h>

#include "trainer/run/course.h"

static struct course of(const char *strategy, double every, int64_t total)
{
    struct settings s;
    struct course c;

    settings_default(&s);
    s.eval_strategy = s.save_strategy = strategy;
    s.eval_steps = s.save_steps = every;
    s.eval_delay = 3;
    course_init(&c, &s, total, true, 0);
    return c;
}

/* The steps of ten, five an epoch, that an event falls on, as bits. */
static unsigned falls_on(const struct course *c, const struct course_event *e)
{
    unsigned on = 0;

    for (int64_t step = 1; step <= 10; step++) {
        const struct run_state state = {.global_step = step, .max_steps = 10,
                                        .epoch = (double)step / 5};

        on |= (unsigned)course_due(c, e, &state, step % 5 == 0) << step;
    }
    return on;
}

TEST(what_falls_on_which_step)
{
    const struct { const char *strategy; double every; unsigned saves, evaluations; } rows[] = {
        {"no", 2, 0, 0},
        {"steps", 0, 1 << 10, 1 << 10},
        {"steps", 4, 1 << 4 | 1 << 8 | 1 << 10, 1 << 4 | 1 << 8 | 1 << 10},
        {"steps", 2, 1 << 2 | 1 << 4 | 1 << 6 | 1 << 8 | 1 << 10,
         1 << 4 | 1 << 6 | 1 << 8 | 1 << 10},               /* none before step 3 */
        {"steps", 0.25, 1 << 3 | 1 << 6 | 1 << 9 | 1 << 10, 1 << 3 | 1 << 6 | 1 << 9 | 1 << 10},
        {"epoch", 2, 1 << 5 | 1 << 10, 1 << 10},            /* nor before epoch 3, but the last */
        {"best", 2, 0, 0},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct course c = of(rows[i].strategy, rows[i].every, 10);

        assert_int_equal(falls_on(&c, &c.save), rows[i].saves);
        assert_int_equal(falls_on(&c, &c.eval), rows[i].evaluations);
    }
}

TEST(nothing_is_evaluated_without_data)
{
    struct settings s;
    struct course c;

    settings_default(&s);
    s.eval_steps = 1;
    course_init(&c, &s, 10, false, 0);
    assert_int_equal(falls_on(&c, &c.eval), 0);
}

/* HF Trainer's EarlyStoppingCallback counts by its threshold, its best metric does not. */
TEST(the_best_and_the_end_of_patience)
{
    static const struct { double loss; bool better, ends; int64_t waits; } rows[] = {
        {5, true, false, 0}, {4, true, false, 0}, {3.95, true, false, 1}, {NAN, false, true, 2},
        {3.5, true, false, 0}, {3.6, false, false, 1}, {INFINITY, false, true, 2},
    };
    const struct course c = {.patience = 2, .threshold = 0.1};
    struct run_state state = {.best_metric = NAN};

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const struct evaluate_result e = {.loss = rows[i].loss};
        bool better, ends;

        state.global_step = (int64_t)i + 1;
        course_judge(&c, &state, &e, &better, &ends);
        assert_int_equal(better, rows[i].better);
        assert_int_equal(ends, rows[i].ends);
        assert_int_equal(state.evals_without_progress, rows[i].waits);
    }
    assert_int_equal(state.best_global_step, 5);
}

TEST(more_may_be_better)
{
    const struct course c = {.greater = true, .perplexity = true};
    struct run_state state = {.best_metric = NAN};
    bool better, ends;

    course_judge(&c, &state, &(struct evaluate_result){.loss = 1}, &better, &ends);
    course_judge(&c, &state, &(struct evaluate_result){.loss = 2}, &better, &ends);
    assert_true(better && !ends);
    assert_true(fabs(state.best_metric - exp(2)) < 1e-12);
    course_judge(&c, &state, &(struct evaluate_result){.loss = 1}, &better, &ends);
    assert_false(better);
}

/* gate: bounds on figures, and the figures of losses.  [C3, D6] */
#include "tests/unit/unit.h"

#include <math.h>

#include "tools/eval/gate.h"

#define LIST(...) {(const char *const[]){__VA_ARGS__}, sizeof((const char *[]){__VA_ARGS__}) / sizeof(char *)}

static struct figure figure[] = {{.name = "loss", .value = 2.02, .base = 2, .p = 1},
                                 {.name = "f1", .value = 79, .base = 80, .p = 1}};
static const struct figures figures = {.of = figure, .n = 2, .beside = true};

TEST_ERR(bounds_that_hold)
{
    const struct gate_want w = {.above = LIST("loss=2.02"), .below = LIST("f1=79", "loss=0"),
                                .worse = LIST("2%", "f1=1", "loss=1.1%")};

    assert_int_equal(gate_check(&w, err), 0);
    assert_int_equal(gate_pass(&w, &figures, "model", err), 0);
    assert_int_equal(gate_pass(&(struct gate_want){0}, &figures, "model", err), 0);
}

TEST_ERR(every_figure_beyond_its_bound_is_named)
{
    const struct gate_want w = {.above = LIST("loss=2"), .worse = LIST("f1=1%", "loss=0.5%")};

    assert_int_equal(gate_pass(&w, &figures, "dir/model", err), CKPT_ENO);
    assert_string_equal(err->text, "dir/model: loss is 2.02, above 2; f1 is 79, 1.25% worse than "
                        "the base's 80; loss is 2.02, 1% worse than the base's 2");
}

TEST_ERR(a_large_share_is_told_in_digits)
{
    struct figure bad = {.name = "perplexity", .value = 4713.35, .base = 43.2443};
    const struct figures f = {.of = &bad, .n = 1};

    assert_int_equal(gate_pass(&(struct gate_want){.worse = LIST("1%")}, &f, "m", err), CKPT_ENO);
    assert_string_equal(err->text, "m: perplexity is 4713.35, 10799.4% worse than the base's "
                        "43.2443");
}

TEST_ERR(what_is_no_number_is_beyond)
{
    struct figure bad = {.name = "f1", .value = NAN, .base = NAN};
    const struct figures f = {.of = &bad, .n = 1};
    const struct gate_want w[] = {{.above = LIST("f1=1")}, {.below = LIST("f1=1")},
                                  {.worse = LIST("50%")}};

    for (size_t i = 0; i < 3; i++)
        assert_int_equal(gate_pass(&w[i], &f, "m", err), CKPT_ENO);
}

TEST_ERR(bounds_that_are_not_written_so)
{
    static const char *const wrong[] = {"", "=", "loss", "3.2", "loss=", "loss=x", "loss=1%",
                                        "loss=nan", "loss=inf", "=1", "loss=1 "};

    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        const struct gate_want w = {.above = {&wrong[i], 1}};

        if (gate_check(&w, err) != CKPT_EUSAGE)
            fail_msg("\"%s\" is a bound", wrong[i]);
    }
    assert_int_equal(gate_check(&(struct gate_want){.worse = LIST("-1%")}, err), CKPT_EUSAGE);
    assert_int_equal(gate_pass(&(struct gate_want){.above = LIST("los=1")}, &figures, "m", err),
                     CKPT_EUSAGE);
    assert_string_equal(err->hint, "figures: loss f1");
}

TEST_ERR(figures_that_no_metric_has_are_known_before_the_work)
{
    const struct { struct gate_want w; const char *text, *hint; } bad[] = {
        {{.above = LIST("loss=1", "los=1")}, "--fail-above los=1: there is no such figure",
         "figures: loss perplexity bits_per_byte byte_perplexity exact_match f1"},
        {{.below = LIST("rouge1=1")}, "--fail-below rouge1=1: there is no such figure",
         "figures: loss perplexity bits_per_byte byte_perplexity exact_match f1; "
         "--metric rouge gives it"},
        {{.worse = LIST("acc=1%")}, "--fail-worse-than-base acc=1%: there is no such figure",
         "figures: loss perplexity bits_per_byte byte_perplexity exact_match f1; "
         "--task multiple-choice gives it"},
    };
    const struct opt_list metrics = LIST("loss", "squad");
    const struct gate_want good = {.above = LIST("loss=1"), .below = LIST("f1=1"),
                                   .worse = LIST("1%", "exact_match=2")};

    assert_int_equal(gate_check_figures(&good, &metrics, err), 0);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(gate_check_figures(&bad[i].w, &metrics, err), CKPT_EUSAGE);
        assert_string_equal(err->text, bad[i].text);
        assert_string_equal(err->hint, bad[i].hint);
    }
}

TEST_ERR(figures_of_losses)
{
    const double stat[] = {6, 2, 6, 4, /* row 2 */ 2, 2, 1, 3};
    const double wordless[] = {6, 2, 6, 0};
    double value[SCORE_FIGURES];
    struct figures f = {0};
    struct score *s;

    assert_int_equal(score_of(&s, "loss", stat, 2, err), 0);
    score_values(value, s);
    assert_true(fabs(value[0] - 2) < 1e-12);
    assert_true(fabs(value[1] - exp(2)) < 1e-12);
    assert_true(fabs(value[2] - 1 / log(2)) < 1e-12);
    assert_true(fabs(value[3] - exp(1)) < 1e-12);
    score_free(s);
    assert_int_equal(score_of(&s, "loss", wordless, 1, err), 0);
    assert_int_equal(figures_add(&f, s, NULL, 1, err), 0);
    assert_int_equal(f.n, 2);           /* none of bytes */
    assert_true(score_falls(f.of[0].name) && score_falls(f.of[1].name));
    assert_false(score_falls("f1"));
    figures_release(&f);
    score_free(s);
}

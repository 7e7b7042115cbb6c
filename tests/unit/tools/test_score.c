/* score - figures of text metrics equal those of their reference packages. */
#include "tests/unit/unit.h"

#include <jansson.h>
#include <math.h>

#include "libckpt/mem.h"
#include "tools/eval/score/score.h"
#include "tools/eval/score/stem.h"

#define MOST 200

static json_t *golden, *fixture;
static struct score_row row[MOST];
static const char *reference[MOST][4];
static size_t n_rows;

BEFORE_ALL()
{
    json_error_t why;
    const json_t *rows;

    golden = json_load_file("tests/golden/scores.json", 0, &why);
    fixture = json_load_file("tests/golden/metrics.json", 0, &why);
    assert_non_null(golden);
    assert_non_null(fixture);
    rows = json_object_get(golden, "rows");
    n_rows = json_array_size(rows);
    assert_in_range(n_rows, 100, MOST);
    for (size_t i = 0; i < n_rows; i++) {
        const json_t *one = json_array_get(rows, i), *list = json_object_get(one, "references");

        for (size_t k = 0; k < json_array_size(list); k++)
            reference[i][k] = json_string_value(json_array_get(list, k));
        row[i] = (struct score_row){
            .prediction = json_string_value(json_object_get(one, "prediction")),
            .reference = reference[i], .n_references = json_array_size(list)};
    }
}

AFTER_ALL()
{
    json_decref(golden);
    json_decref(fixture);
}

static void check(const char *metric, const struct score_row *rows, size_t n, const json_t *wanted)
{
    struct ckpt_err err = {0};
    double value[SCORE_FIGURES];
    struct score *s;

    assert_int_equal(score_new(&s, metric, rows, n, &err), 0);
    score_values(value, s);
    for (size_t k = 0; k < json_array_size(wanted); k++) {
        double want = json_number_value(json_array_get(wanted, k));

        if (!(fabs(value[k] - want) <= 1e-9 * fmax(1, fabs(want))))
            fail_msg("%s of \"%.60s\": %s is %.12g, not %.12g", metric, rows->prediction,
                     score_figure_name(s, k), value[k], want);
    }
    score_free(s);
}

TEST(figures_of_each_row)
{
    const json_t *each = json_object_get(golden, "each"), *list;
    const char *metric;

    json_object_foreach ((json_t *)each, metric, list)
        for (size_t i = 0; i < n_rows; i++)
            check(metric, &row[i], 1, json_array_get(list, i));
}

TEST(figures_of_a_corpus)
{
    const json_t *corpus = json_object_get(golden, "corpus"), *wanted;
    const char *metric;

    json_object_foreach ((json_t *)corpus, metric, wanted)
        check(metric, row, n_rows, wanted);
}

TEST(pairs_of_the_fixture)
{
    const json_t *pairs = json_object_get(fixture, "pairs");
    static const char *const names[] = {"rouge1", "rouge2", "rougeL", "rougeLsum"};

    for (size_t i = 0; i < json_array_size(pairs); i++) {
        const json_t *one = json_array_get(pairs, i);
        const char *text = json_string_value(json_object_get(one, "reference"));
        struct score_row r = {json_string_value(json_object_get(one, "prediction")), &text, 1};

        for (int stems = 0; stems < 2; stems++) {
            const json_t *of = json_object_get(one, stems ? "rouge_stem" : "rouge");
            json_t *wanted = json_array();

            for (size_t k = 0; k < 4; k++)
                json_array_append(wanted, json_array_get(json_object_get(of, names[k]), 2));
            check(stems ? "rouge_stem" : "rouge", &r, 1, wanted);
            json_decref(wanted);
        }
    }
}

TEST(figures_of_labels)
{
    const json_t *sets = json_object_get(golden, "labels");

    for (size_t s = 0; s < json_array_size(sets); s++) {
        const json_t *set = json_array_get(sets, s), *truth = json_object_get(set, "true");
        struct score_row rows[MOST];
        const char *text[MOST];
        size_t n = json_array_size(truth);

        for (size_t i = 0; i < n; i++) {
            text[i] = json_string_value(json_array_get(truth, i));
            rows[i] = (struct score_row){
                json_string_value(json_array_get(json_object_get(set, "pred"), i)), &text[i], 1};
        }
        check("labels", rows, n, json_object_get(set, "figures"));
    }
}

TEST(stems)
{
    const json_t *stems = json_object_get(golden, "stems");

    for (size_t i = 0; i < json_array_size(stems); i++) {
        const json_t *pair = json_array_get(stems, i);
        const char *word = json_string_value(json_array_get(pair, 0));
        const char *want = json_string_value(json_array_get(pair, 1));
        char text[64];

        snprintf(text, sizeof text, "%s", word);
        text[stem_word(text, strlen(text))] = '\0';
        assert_string_equal(text, want);
    }
}

TEST(queries)
{
    static const struct { const char *a, *b; double match, exact; } of[] = {
        {"SELECT x FROM t WHERE a = 1 AND b = 'Two'", "select x from t where b = two and a = 1;",
         1, 0},
        {"SELECT x  FROM t", "SELECT x FROM t", 1, 1},
        {"SELECT x FROM t WHERE a = 1", "SELECT x FROM t WHERE a = 2", 0, 0},
        {"SELECT x FROM t WHERE a = 1", "SELECT x FROM t", 0, 0},
        {"", "SELECT x FROM t", 0, 0},
    };

    for (size_t i = 0; i < sizeof of / sizeof of[0]; i++) {
        struct score_row r = {of[i].a, &of[i].b, 1};
        json_t *wanted = json_pack("[f, f]", of[i].match, of[i].exact);

        check("sql", &r, 1, wanted);
        json_decref(wanted);
    }
}

TEST_ERR(resampled_rows)
{
    struct score_interval once[SCORE_FIGURES], again[SCORE_FIGURES];
    double value[SCORE_FIGURES], p[SCORE_FIGURES];
    struct score *a, *b;
    struct score_row other[MOST];

    for (size_t i = 0; i < n_rows; i++)
        other[i] = (struct score_row){reference[i][0], reference[i], row[i].n_references};
    assert_int_equal(score_new(&a, "rouge", row, n_rows, err), 0);
    assert_int_equal(score_new(&b, "rouge", other, n_rows, err), 0);
    score_values(value, a);
    assert_int_equal(score_intervals(once, a, 500, 1, err), 0);
    assert_int_equal(score_intervals(again, a, 500, 1, err), 0);
    assert_memory_equal(once, again, 4 * sizeof *once);
    for (size_t k = 0; k < 4; k++) {
        assert_true(once[k].low < value[k] && value[k] < once[k].high);
        assert_true(once[k].high - once[k].low < 0.3);
    }
    assert_int_equal(score_paired(p, a, a, 500, 1, err), 0);
    assert_true(p[0] == 1);
    assert_int_equal(score_paired(p, a, b, 500, 1, err), 0);
    assert_true(p[0] < 0.01);
    score_free(a);
    score_free(b);
}

/* Of two rows one has no token and no byte: samples of it alone have no value and do not count. */
TEST_ERR(samples_without_a_value)
{
    static const double stat[] = {3, 2, 3, 4, 0, 0, 0, 0}, less[] = {1, 2, 1, 4, 0, 0, 0, 0};
    struct score_interval in[SCORE_FIGURES];
    double p[SCORE_FIGURES];
    struct score *a, *b;

    assert_int_equal(score_of(&a, "loss", stat, 2, err), 0);
    assert_int_equal(score_of(&b, "loss", less, 2, err), 0);
    assert_int_equal(score_intervals(in, a, 200, 1, err), 0);
    assert_true(in[0].low == 1.5 && in[0].high == 1.5);
    assert_int_equal(score_paired(p, a, b, 200, 1, err), 0);
    for (size_t k = 0; k < score_figures(a); k++)
        assert_true(in[k].low == in[k].high && p[k] > 0 && p[k] <= 1);
    score_free(b);
    score_free(a);
    assert_int_equal(score_of(&a, "loss", stat + 4, 1, err), 0);
    assert_int_equal(score_intervals(in, a, 200, 1, err), 0);
    assert_true(isnan(in[0].low) && isnan(in[0].high));
    score_free(a);
}

TEST_ERR(no_such_metric)
{
    struct score *s;

    assert_int_equal(score_new(&s, "meteor", row, 1, err), CKPT_EUSAGE);
    assert_null(s);
}

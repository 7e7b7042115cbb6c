/* page: text that stays well-formed, ticks, curves of any length as a bounded figure. */
#include "tests/unit/unit.h"

#include <ctype.h>
#include <float.h>
#include <math.h>

#include "libckpt/mem.h"
#include "tools/inspect/page/chart.h"
#include "tools/inspect/page/document.h"
#include "tools/inspect/page/table.h"
#include "tools/inspect/page/text.h"

/* The buffer as a string that the next test may use again. */
static char *text_of(struct ckpt_buf *b)
{
    char *s = ckpt_buf_str(b);

    assert_non_null(s);
    return s;
}

static size_t count(const char *in, const char *what)
{
    size_t n = 0;

    for (; (in = strstr(in, what)) != NULL; in += strlen(what))
        n++;
    return n;
}

/* Every element is closed in order, every attribute quoted, every '&' one of five entities. */
static void check_markup(const char *s)
{
    char open[64][32];
    size_t depth = 0;

    for (; *s; s++) {
        size_t n;

        assert_true(*s != '&' || !strncmp(s, "&amp;", 5) || !strncmp(s, "&lt;", 4) ||
                    !strncmp(s, "&gt;", 4) || !strncmp(s, "&quot;", 6) || !strncmp(s, "&#39;", 5));
        assert_true(*s != '>');
        if (*s != '<')
            continue;
        n = strcspn(s + 1, " />\n") + (s[1] == '/' ? strcspn(s + 2, ">") + 1 : 0);
        if (s[1] == '/') {
            assert_true(depth > 0);
            assert_true(strncmp(open[--depth], s + 2, n - 1) == 0 && open[depth][n - 1] == '\0');
        } else {
            assert_true(islower((unsigned char)s[1]) && n < 32 && depth < 64);
            snprintf(open[depth++], 32, "%.*s", (int)n, s + 1);
        }
        for (bool quoted = false; quoted || *s != '>'; s++) {
            assert_true(*s != '\0');
            assert_true(!quoted || *s != '<');
            quoted ^= *s == '"';
        }
        depth -= s[-1] == '/';
    }
    assert_int_equal(depth, 0);
}

TEST(text_is_escaped_and_cut)
{
    struct ckpt_buf b;

    ckpt_buf_init(&b, SIZE_MAX);
    page_text(&b, "<a href='x'>&\"\x01\x7f\xc2\x85\xff\xed\xa0\x80\xef\xbf\xbf|\n", 0);
    assert_string_equal(text_of(&b), "&lt;a href=&#39;x&#39;&gt;&amp;&quot;\ufffd\ufffd\ufffd\ufffd"
                        "\ufffd\ufffd\ufffd\ufffd\ufffd\ufffd\ufffd|\n");
    ckpt_buf_release(&b);
    ckpt_buf_init(&b, SIZE_MAX);
    page_text(&b, "aä€uro", 5);         /* no character is cut */
    assert_string_equal(text_of(&b), "aä\u2026");
    ckpt_buf_release(&b);
}

TEST(numbers_as_people_read_them)
{
    static const struct { double v; const char *number, *in_short; } cases[] = {
        {0, "0", "0"}, {-0.0, "0", "0"}, {1234567, "1,234,567", "1.235M"}, {5e-5, "5e-5", "5e-5"},
        {0.002, "0.002", "0.002"}, {-12500, "-12,500", "-12.5k"}, {6.56614, "6.5661", "6.566"},
        {1e20, "1e20", "1e20"}, {NAN, "NaN", "NaN"}, {-INFINITY, "\u2212\u221e", "\u2212\u221e"},
        {DBL_MAX, "1.7977e308", "1.798e308"}, {4915.31, "4,915.3", "4,915.3"},
    };
    char text[PAGE_NUMBER];

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_string_equal(page_number(text, cases[i].v, 5), cases[i].number);
        assert_string_equal(page_short(text, cases[i].v), cases[i].in_short);
    }
    assert_string_equal(page_bytes(text, 1.5e9), "1.50 GB");
    assert_string_equal(page_seconds(text, 4321), "72 min 1 s");
    assert_string_equal(page_seconds(text, 90061), "25 h 1 min");
}

TEST(ticks_are_round_and_bounded)
{
    static const double hard[][2] = {{0, 1}, {-3, 7}, {1e-300, 2e-300}, {-1e300, 1e300}, {5, 5},
                                     {1e15, 1e15 + 1}, {0, 5e-324}, {0, INFINITY}, {NAN, 1}};
    double t[CHART_MAX_TICKS];

    assert_int_equal(chart_ticks(t, 0, 1, 5, false), 6);
    assert_true(t[0] == 0 && fabs(t[1] - 0.2) < 1e-15 && t[5] == 1);
    assert_int_equal(chart_ticks(t, 1, 3, 10, true), 3);        /* no half step */
    for (size_t i = 0; i < sizeof hard / sizeof hard[0]; i++)
        for (int want = 0; want < 12; want++)
            assert_true(chart_ticks(t, hard[i][0], hard[i][1], want, false) <= CHART_MAX_TICKS);
    assert_int_equal(chart_log_ticks(t, 0.9, 1100), 4);
    assert_true(t[0] == 1 && t[3] == 1000);
    assert_true(chart_log_ticks(t, 2, 9) >= 2);
    assert_in_range(chart_log_ticks(t, DBL_MIN, DBL_MAX), 5, 12);
}

/* A page of these curves; free it. */
static char *page_of(struct page_curves *curves, const json_t *doc)
{
    struct ckpt_buf b;
    char *out;

    ckpt_buf_init(&b, SIZE_MAX);
    page_body(&b, doc, curves);
    out = strdup(text_of(&b));
    ckpt_buf_release(&b);
    assert_non_null(out);
    check_markup(out);
    return out;
}

static void add(struct page_curves *c, const char *chart, const char *curve, double x, double y)
{
    struct ckpt_err err = {0};

    assert_int_equal(page_curves_add(c, chart, curve, "step", x, y, &err), 0);
}

TEST(a_million_points_are_a_bounded_figure)
{
    struct page_curves c = {0};
    json_t *doc = json_object();
    char *page;

    for (int i = 0; i < 1000000; i++)
        add(&c, "Loss", "train", i, 2 + sin(i) - (i == 777777) * 10);
    page = page_of(&c, doc);
    assert_true(strlen(page) < 60000);
    assert_int_equal(count(page, "<polyline"), 2);              /* it and its mean */
    assert_non_null(strstr(page, "777777,"));                   /* the outlier is there */
    free(page);
    page_curves_release(&c);
    json_decref(doc);
}

TEST(gaps_single_points_and_numbers_without_bound)
{
    static const double hard[] = {0, -0.0, 1, -1, DBL_MAX, -DBL_MAX, DBL_MIN, 5e-324, NAN,
                                  INFINITY, -INFINITY};
    size_t n = sizeof hard / sizeof hard[0];
    struct page_curves c = {0};
    json_t *doc = json_object();
    char *page, name[40];

    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < n; k++) {
            snprintf(name, sizeof name, "<%zu> & \"%zu\"", i, k % 5);
            add(&c, name, "a]]>", hard[k], hard[i]);
            add(&c, name, "a]]>", 1, hard[k]);
        }
    add(&c, "one", "one", 5, 7);
    for (int i = 0; i < 9; i++)
        add(&c, "gap", "gap", i, i == 4 ? (double)NAN : i);
    page = page_of(&c, doc);
    assert_null(strstr(page, "nan"));
    assert_null(strstr(page, "inf,"));
    assert_non_null(strstr(page, "1 value is NaN or infinite, the first at step 4<"));
    free(page);
    page_curves_release(&c);
    json_decref(doc);
}

TEST(charts_and_curves_beyond_the_limit_are_said)
{
    struct page_curves c = {0};
    json_t *doc = json_object();
    char *page, name[40];

    for (int i = 0; i < 200; i++) {
        snprintf(name, sizeof name, "%d", i);
        add(&c, name, "a", i, i);
        add(&c, "0", name, 0, i);
    }
    page = page_of(&c, doc);
    assert_int_equal(count(page, "<figure"), CURVES_MAX_CHARTS);
    assert_int_equal(count(page, "class=\"key\""), CURVES_MAX_CHARTS + CURVES_MAX - 1);
    assert_int_equal(count(page, "further ones are not"), 2);
    free(page);
    page_curves_release(&c);
    json_decref(doc);
}

TEST(documents_of_any_shape)
{
    static const char text[] =
        "{\"path\": \"/a/<b>/\", \"refused\": \"<script>\", \"x\": null, \"n\": 3, \"rows\": [{\"a\": "
        "1, \"b\": [1, {\"c\": \"&\"}]}, {\"d\": \"<i>\"}, 5, null], \"o\": {\"k<\": [[]]}, \"l\": [],"
        "\"differences\": [{\"name\": \"s\", \"relative\": 0.001}, {\"name\": \"t\"}, {\"name\": "
        "\"l\", \"relative\": 0.5}], \"h\": [{\"histogram\": {\"low\": 0, \"high\": 1, \"counts\": "
        "[0, 5, \"x\"]}}], \"config\": {\"hidden_size\": 16}, \"arguments\": [{\"name\": \"optim\", "
        "\"value\": \"adamw\"}]}";
    json_t *doc = json_loads(text, 0, NULL);
    struct page_curves c = {0};
    char *page;

    assert_non_null(doc);
    page = page_of(&c, doc);
    assert_non_null(strstr(page, "<h1>&lt;b&gt;</h1>"));
    assert_non_null(strstr(page, "<dt>Hidden size</dt><dd>16</dd>"));
    assert_non_null(strstr(page, "<dt>Optimizer</dt><dd>adamw</dd>"));
    assert_true(strstr(page, "<td>t</td>") < strstr(page, "<td>l</td>"));
    assert_true(strstr(page, "<td>l</td>") < strstr(page, "<td>s</td>"));
    assert_null(strstr(page, "<script"));
    free(page);
    json_decref(doc);
}

TEST(long_tables_are_cut_and_say_so)
{
    json_t *doc = json_object(), *rows = json_array();
    struct page_curves c = {0};
    char *page;

    for (int i = 0; i < 5000; i++)
        json_array_append_new(rows, json_pack("{s:i}", "n", i));
    json_object_set_new(doc, "rows", rows);
    page = page_of(&c, doc);
    assert_int_equal(count(page, "<tr>"), TABLE_MAX_ROWS + 1);
    assert_non_null(strstr(page, "1000 of 5000 rows; --json has all"));
    free(page);
    json_decref(doc);
}

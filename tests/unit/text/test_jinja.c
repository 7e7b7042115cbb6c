/* jinja: what transformers' apply_chat_template renders, byte for byte; errors; limits. */
#include <time.h>

#include "tests/unit/golden_files.h"

#include "formats/jinja/jinja.h"

static const char *str(const json_t *v, const char *key)
{
    return json_string_value(json_object_get(v, key));
}

/* Spans in characters, as the golden file has them. */
static void check_spans(const struct jinja_out *out, const json_t *want, const char *name)
{
    assert_int_equal(out->n_span, json_array_size(want));
    for (size_t i = 0; i < out->n_span; i++) {
        const json_t *pair = json_array_get(want, i);
        int64_t n[2] = {0, 0};

        for (size_t b = 0; b < out->span[i].end; b++) {
            n[0] += b < out->span[i].begin && (out->text.data[b] & 0xc0) != 0x80;
            n[1] += (out->text.data[b] & 0xc0) != 0x80;
        }
        if (n[0] != json_integer_value(json_array_get(pair, 0)) ||
            n[1] != json_integer_value(json_array_get(pair, 1)))
            fail_msg("%s: span %zu is %lld..%lld", name, i, (long long)n[0], (long long)n[1]);
    }
}

TEST(renders_what_transformers_renders)
{
    json_t *root = golden_json("tests/golden/chat.json"), *one;
    struct jinja_out out = {0};
    size_t i, good = 0;

    setenv("TZ", "UTC", 1);
    json_array_foreach(json_object_get(root, "cases"), i, one) {
        const char *name = str(one, "name"), *text = str(one, "template"), *want = str(one, "text");
        struct ckpt_err err = {0};
        struct jinja *t = NULL;
        int rc = jinja_parse(&t, text, strlen(text), &err);

        if (rc == 0)
            rc = jinja_render(t, json_object_get(one, "vars"), 1700000000, &out, &err);
        if (want && rc)
            fail_msg("%s: %s", name, err.text);
        if (!want && (rc == 0 || !strstr(err.text, str(one, "error"))))
            fail_msg("%s: \"%s\" does not say \"%s\"", name, err.text, str(one, "error"));
        if (want && (out.text.len != strlen(want) ||
                     (out.text.len && memcmp(out.text.data, want, out.text.len) != 0)))
            fail_msg("%s:\n<%s>\nnot\n<%s>", name, ckpt_buf_str(&out.text), want);
        if (want && json_object_get(one, "spans"))
            check_spans(&out, json_object_get(one, "spans"), name);
        good++;
        jinja_free(t);
    }
    assert_true(good >= 100);
    jinja_out_release(&out);
    json_decref(root);
}

static void fails(const char *text, int code, const char *why)
{
    struct ckpt_err err = {0};
    struct jinja_out out = {0};
    struct jinja *t = NULL;
    json_t *vars = json_object();

    if (jinja_parse(&t, text, strlen(text), &err) == 0)
        jinja_render(t, vars, 0, &out, &err);
    if (err.code != code || !strstr(err.text, why))
        fail_msg("%.60s: %d \"%s\", not %d \"%s\"", text, err.code, err.text, code, why);
    jinja_free(t);
    jinja_out_release(&out);
    json_decref(vars);
}

/* The record may hold anything before a call. */
TEST(an_earlier_failure_changes_nothing)
{
    static const char text[] = "{% set a = [1, {'b': 2}] %}{{ a[1].b }}{{ x }}";
    struct ckpt_err err = {.code = CKPT_EIO, .text = "before"};
    struct jinja_out out = {0};
    struct jinja *t;
    json_t *vars = json_pack("{s:s}", "x", "y");

    assert_int_equal(jinja_parse(&t, text, strlen(text), &err), 0);
    assert_int_equal(jinja_render(t, vars, 0, &out, &err), 0);
    assert_string_equal(ckpt_buf_str(&out.text), "2y");
    jinja_out_release(&out);
    jinja_free(t);
    json_decref(vars);
}

TEST(what_is_not_understood_is_refused_by_name)
{
    fails("a\n{% include 'x' %}", CKPT_EUNSUPPORTED, "chat template: line 2: no statement \"include\"");
    fails("{{ x|nothing }}", CKPT_EUNSUPPORTED, "line 1: no filter \"nothing\"");
    fails("{{ x is nothing }}", CKPT_EUNSUPPORTED, "no test \"nothing\"");
    fails("{{ ['a'] | reject('odd') | list }}", CKPT_EFORMAT, "no integer to be divided");
    fails("{% if x %}", CKPT_EFORMAT, "ends before its \"elif\"");
    fails("{{ x", CKPT_EFORMAT, "a tag without end");
    fails("{{ 'x }}", CKPT_EFORMAT, "a string without end");
    fails("{# x", CKPT_EFORMAT, "a comment without end");
    fails("{{ x y }}", CKPT_EFORMAT, "missing before \"y\"");
    fails("{{ }}", CKPT_EFORMAT, "a value is missing before");
    fails("{% break %}", CKPT_EFORMAT, "outside a loop");
    fails("{{ x.y }}", CKPT_EFORMAT, "\"x\" is undefined");
    fails("{{ x() }}", CKPT_EFORMAT, "cannot be called");
    fails("{{ 1 // 0 }}", CKPT_EFORMAT, "division by zero");
    fails("{{ 'a' + 1 }}", CKPT_EFORMAT, "a string + an integer");
    fails("{{ [].append(1) }}", CKPT_EFORMAT, "cannot be called");
    fails("{{ nothing|round(2) }}", CKPT_EFORMAT, "round: a number is wanted");
    fails("{{ 'a'|round }}", CKPT_EFORMAT, "round: a number is wanted");
    fails("{% for i in 5 %}{% endfor %}", CKPT_EFORMAT, "an integer cannot be gone through");
    fails("{% if true %}{{ 1|nothing }}{% endif %}", CKPT_EUNSUPPORTED, "line 1: no filter \"nothing\"");
    fails("{% if 1 is nothing %}{% endif %}", CKPT_EUNSUPPORTED, "no test \"nothing\"");
    fails("{{ range(**[1]) }}", CKPT_EFORMAT, "a list after **, where a mapping is wanted");
    fails("{{ range(*5) }}", CKPT_EFORMAT, "an integer cannot be gone through");
    fails("{{ [1]|slice(0) }}", CKPT_EFORMAT, "division by zero");
    fails("{{ [1]|batch('a') }}", CKPT_EFORMAT, "a string where an integer is wanted");
    fails("{% for i in [1] %}{{ loop.cycle() }}{% endfor %}", CKPT_EFORMAT, "cycle without items");
    fails("{{ '%d'|format('x') }}", CKPT_EFORMAT, "format: \"%d\" of a string");
    fails("{{ '%s'|format() }}", CKPT_EFORMAT, "not enough arguments");
    fails("{{ '%s'|format(1, 2) }}", CKPT_EFORMAT, "not all arguments");
    fails("{{ '%(a)s'|format(b=1) }}", CKPT_EFORMAT, "no value \"a\"");
    fails("{{ '%y'|format(1) }}", CKPT_EUNSUPPORTED, "conversion \"%y\"");
    fails("{{ '{} {}'.format(1) }}", CKPT_EFORMAT, "no value for");
    fails("{{ '{} {0}'.format(1) }}", CKPT_EFORMAT, "with and without numbers");
    fails("{{ '{'.format(1) }}", CKPT_EFORMAT, "a single \"{\"");
    fails("{{ '{:d}'.format('x') }}", CKPT_EFORMAT, "\"d\" of a string");
    fails("{{ raise_exception('only user and assistant') }}", CKPT_EFORMAT, "only user and assistant");
}

TEST(a_template_is_bounded)
{
    char deep[4096];

    fails("{% for i in range(1000000) %}{% for j in range(1000000) %}{% endfor %}{% endfor %}",
          CKPT_ELIMIT, "");
    fails("{% macro a() %}{{ a() }}{% endmacro %}{{ a() }}", CKPT_ELIMIT, "calls itself too deep");
    fails("{% set ns = namespace(x='aaaaaaaaaa') %}{% for i in range(60) %}"
          "{% set ns.x = ns.x ~ ns.x %}{% endfor %}", CKPT_ELIMIT, "");
    fails("{{ 'a' * 10000000000 }}", CKPT_ELIMIT, "repeats");
    fails("{% for i in range(100000) %}{{ 'a' * 10000 }}{% endfor %}", CKPT_ELIMIT, "");
    fails("{{ range(10000000)|list }}", CKPT_ELIMIT, "a range of more than");
    fails("{{ [1]|batch(1000000000, 'x') }}", CKPT_ELIMIT, "");
    fails("{{ [1]|slice(1000000000) }}", CKPT_ELIMIT, "");
    fails("{{ '%9999999999999999999999d'|format(1) }}", CKPT_ELIMIT, "width or precision");
    fails("{{ '{:.9999999999999999999f}'.format(1) }}", CKPT_ELIMIT, "width or precision");
    fails("{{ '{:{:{}}}'.format(1, 2, 3) }}", CKPT_EFORMAT, "nested too deep");
    fails("{% set s = '{:90000}' * 10000 %}{{ s.format(*[1] * 10000) }}", CKPT_ELIMIT, "");
    fails("{{ 9223372036854775807 + 1 }}", CKPT_ELIMIT, "beyond 64 bits");
    memset(deep, '(', 2000);
    memset(deep + 999, ')', 1001);
    memcpy(deep, "{{ ", 3);
    memcpy(deep + 996, " 1 ", 3);
    memcpy(deep + 1992, " }}", 4);
    fails(deep, CKPT_ELIMIT, "nested too deep");
    for (size_t i = 0; i < 200; i++)
        memcpy(deep + 14 * i, "{% if true %} ", 15);
    fails(deep, CKPT_ELIMIT, "nested too deep");
}

/* Work within one node counts as steps: bytes that are searched, pairs that are compared. */
TEST(long_searches_are_bounded)
{
#define LONG "{% set s = 'ab' * 500000 %}"
#define LADDER(a) "{% set n = namespace(a=[1, 2]) %}{% for i in range(40) %}" \
                  "{% set n.a = " a " %}{% endfor %}"
    static const char *const set[] = {
        LONG "{% for i in range(100000) %}{{ 'x' in s }}{% endfor %}",
        LONG "{% for i in range(100000) %}{{ s.find('x') }}{% endfor %}",
        LONG "{% for i in range(100000) %}{{ s.rfind('abababac') }}{% endfor %}",
        LONG "{% for i in range(100000) %}{{ s.count('x') }}{% endfor %}",
        LONG "{% for i in range(100000) %}{{ s.strip('cdefghijklmnopqrstuvwxyzab') | length }}{% endfor %}",
        LONG "{% set t = s ~ 'c' %}{{ s.rfind(t[400000:]) }}{% for i in range(99) %}"
             "{{ s.rfind(s[1:400000]) }}{% endfor %}",
        LONG "{% for i in range(100000) %}{{ s == s }}{% endfor %}",
        LONG "{% for i in range(100000) %}{{ s < s }}{% endfor %}",
        LONG "{% for i in range(100000) %}{{ s | upper | length }}{% endfor %}",
        LONG "{% for i in range(100000) %}{{ s.split('x') | length }}{% endfor %}",
        LONG "{% for i in range(100000) %}{{ s.replace('x', '') | length }}{% endfor %}",
        LONG "{% set l = (s ~ ' ') * 20 %}{% for i in range(100000) %}{{ l.split() | length }}{% endfor %}",
        "{% set l = range(100000) | list %}{% for i in range(100000) %}{{ -1 in l }}{% endfor %}",
        "{% set l = range(100000) | list %}{{ l | unique | list | length }}",
        LADDER("[n.a, n.a]") "{{ n.a == n.a }}",
        LADDER("[n.a, n.a]") "{{ n.a }}",
        LADDER("[n.a, n.a]") "{{ 'a' ~ n.a }}",
        LADDER("[n.a, n.a]") "{{ n.a | tojson }}",
        LADDER("{'a': n.a, 'b': n.a}") "{{ n.a | tojson(indent=2) }}",
        LADDER("(n.a, n.a)") "{{ {n.a: 1} | tojson }}",
        LONG "{% for i in range(100000) %}{{ s[500000] }}{{ s[-1] }}{% endfor %}",
        LONG "{% set t = s[:30000] ~ 'c' %}{% for i in range(100000) %}{{ t in s }}{% endfor %}",
    };

    for (size_t i = 0; i < sizeof set / sizeof *set; i++) {
        struct timespec began, ended;

        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &began);
        fails(set[i], CKPT_ELIMIT, "");
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ended);
#ifndef __SANITIZE_ADDRESS__            /* whose checks cost many times the work */
        if (ended.tv_sec - began.tv_sec > 4)
            fail_msg("%s took %ld s", set[i], (long)(ended.tv_sec - began.tv_sec));
#endif
    }
}

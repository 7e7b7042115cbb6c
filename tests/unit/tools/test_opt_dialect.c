/* opt_dialect: names of other programs, on the command line and in their files. */
#include "tests/unit/opt_rows_of.h"
#include "tools/opt/dialect.h"

/* "half" is half of the value. */
static int half(struct opt_put *put, const char *const *value, size_t n, struct ckpt_err *err)
{
    if (strcmp(value[0], "odd") == 0)
        return opt_put_refuse(put, err, "\"%s\" has no half", value[0]);
    return opt_put_option(put, "max-steps", n > 1 ? value[1] : "4", err);
}

static const struct opt_field inner_fields[] = {
    OPT_DOES("pace", "rate"),
    OPT_DOES("deep.hue", "color"),
    OPT_HARMLESS("noise"),
};
static const struct opt_dialect inner = {.name = "Inner", .skip = "auto", .firm = true,
                                         .field = inner_fields, .n_field = 3};

static const struct opt_field base_fields[] = {
    OPT_DOES("steps", "max-steps", .values = "-1=0 default"),
    OPT_DOES("speed", "rate", .when = "gear"),
    OPT_DOES("hue", "color"),
    OPT_DOES("things", "item"),
    OPT_DOES("quick", "fast-mode"),
    OPT_DOES("half", NULL, .convert = half),
    OPT_DOES("other", NULL, .inner = &inner),
    OPT_HARMLESS("workers"),
    OPT_NOT_DONE("noise", "0 none", "noise is not done"),
    OPT_NOT_DONE("width", "", "an option of this name is there"),
    OPT_NOT_DONE("when", "always never=0", "the time is fixed", .option = "max-steps"),
    OPT_DOES("couples", "pair"),
    OPT_DOES("names", "columns"),
};
static const struct opt_dialect base = {.name = "Base", .field = base_fields, .n_field = 13};

static const struct opt_field own_fields[] = {
    OPT_DOES("steps", "any"),
    OPT_DOES("sets.*.path", "item"),
    OPT_HARMLESS("gear"),
};
static const struct opt_field_default own_absent[] = {{"hue", "blue"}, {"speed", "0.25"}};
static const struct opt_dialect own = {.name = "Own", .tells = "gear sets", .base = &base,
                                       .field = own_fields, .n_field = 3, .absent = own_absent,
                                       .n_absent = 2};
static const struct opt_dialect *const dialects[] = {&base, &own, &inner, NULL};

static char path[300];

BEFORE_ALL()
{
    snprintf(path, sizeof path, "%s/run.yaml", scratch("opt_dialect"));
}

AFTER_ALL()
{
    *strrchr(path, '/') = '\0';
    scratch_remove(path);
}

static void parse_as(struct parsed *p, const char *const *arg)
{
    const struct opt_spec spec = {.synopsis = "", .summary = "test", .dialect = dialects,
                                  .section = {OPT_SECTION(value_rows, &p->v)}};
    int argc = 1;

    p->argv[0] = (char *)"tool";
    for (; arg[argc - 1]; argc++)
        p->argv[argc] = (char *)arg[argc - 1];
    p->argv[argc] = NULL;
    p->cli.tool = "tool";
    p->rc = opt_parse(&spec, &p->cli, argc, p->argv, &p->rest, &p->n_rest, &p->given, &p->err);
}

#define AS(p, ...) parse_as(p, (const char *const[]){__VA_ARGS__ __VA_OPT__(,) NULL})

static void file(const char *text)
{
    FILE *f = fopen(path, "w");

    assert_non_null(f);
    assert_int_equal(fwrite(text, 1, strlen(text), f), strlen(text));
    assert_int_equal(fclose(f), 0);
}

static void refused(const char *text, const char *said)
{
    struct parsed p = {0};
    char want[700];

    file(text);
    AS(&p, "--config", path);
    snprintf(want, sizeof want, "%s%s", path, said);
    assert_said(&p, CKPT_ECONFIG, want);
}

TEST(names_on_the_command_line)
{
    struct parsed p = {.v = {.steps = 7}};

    AS(&p, "--steps", "-1", "--hue", "red", "--things", "a", "b", "--quick", "True", "--workers",
       "4", "--noise", "none", "--speed=0.5");
    assert_string_equal(p.err.text, "");
    assert_int_equal(p.rc, 0);
    assert_int_equal(p.v.steps, 0);
    assert_string_equal(p.v.color, "red");
    assert_int_equal(p.v.item.n, 2);
    assert_true(p.v.fast && p.v.rate == 0.5);
    assert_int_equal(p.n_rest, 0);
    assert_int_equal(opt_harmless(&p.cli).n, 1);
    assert_string_equal(opt_harmless(&p.cli).item[0], "workers");
    assert_true(opt_has(&p.given, "max_steps") && opt_has(&p.given, "color"));
    parsed_release(&p);
    p.v.steps = 7;
    AS(&p, "--steps", "default", "--slow", "false", "--item", "x", "y", "--half", "1", "2",
       "--quick");
    assert_int_equal(p.rc, 0);
    assert_int_equal(p.v.steps, 2);
    assert_true(p.v.fast && !p.v.slow);
    assert_int_equal(p.v.item.n, 2);
    parsed_release(&p);
}

TEST(what_is_refused_on_the_command_line)
{
    struct parsed p = {0};

    AS(&p, "--noise", "5");
    assert_said(&p, CKPT_EUSAGE, "--noise 5: noise is not done");
    AS(&p, "--noise");
    assert_said(&p, CKPT_EUSAGE, "--noise true: noise is not done");
    AS(&p, "--half", "odd");
    assert_said(&p, CKPT_EUSAGE, "--half: \"odd\" has no half");
    AS(&p, "--hue");
    assert_said(&p, CKPT_EUSAGE, "--hue needs a value");
    AS(&p, "--quick=maybe");
    assert_said(&p, CKPT_EUSAGE, "--quick: \"maybe\" is neither true nor false");
    AS(&p, "--when", "never", "--when", "always");
    assert_int_equal(p.rc, 0);
    parsed_release(&p);
    AS(&p, "--width", "3");
    assert_int_equal(p.rc, 0);
    assert_int_equal(p.v.width, 3);
    parsed_release(&p);
    AS(&p, "--spead", "1");
    assert_string_equal(p.err.hint, "did you mean --speed?");
    parsed_release(&p);
}

/* A file is known by its names; its program's defaults apply, unless something is given. */
TEST(a_file_of_a_program)
{
    struct parsed p = {0};

    file("gear: true\nsteps: 9\nsets:\n  - path: a\n  - path: b\n");
    AS(&p, "--config", path);
    assert_string_equal(p.err.text, "");
    assert_int_equal(p.v.any, 9);
    assert_int_equal(p.v.steps, 0);
    assert_int_equal(p.v.item.n, 2);
    assert_string_equal(p.v.color, "blue");
    assert_true(p.v.rate == 0.25);
    assert_false(opt_has(&p.given, "color"));
    parsed_release(&p);
    file("gear: false\nspeed: 0.5\nhue: red\n");    /* the gate is off */
    AS(&p, "--config", path, "--item", "c");
    assert_int_equal(p.rc, 0);
    assert_true(p.v.rate == 0);
    assert_string_equal(p.v.color, "red");
    assert_int_equal(p.v.item.n, 1);
    parsed_release(&p);
    file("speed: 0.5\nsteps: -1\nthings: [a, b]\nworkers: {any: [1, {x: 2}]}\nnoise: 0.0\n");
    AS(&p, "--config", path);                   /* nobody's: the base */
    assert_string_equal(p.err.text, "");
    assert_true(p.v.rate == 0.5);
    assert_int_equal(p.v.item.n, 2);
    parsed_release(&p);
    file("couples: {a: 1, b: 2}\nnames: {x: y}\n");     /* an option's mapping by another name */
    AS(&p, "--config", path);
    assert_string_equal(p.err.text, "");
    assert_int_equal(p.v.pair.n, 2);
    assert_string_equal(p.v.pair.item[1], "b=2");
    assert_string_equal(p.v.columns, "{\"x\": \"y\"}");
    parsed_release(&p);
}

TEST(inner_names_must_agree)
{
    struct parsed p = {0};

    file("other: {pace: 0.5, deep: {hue: red}, noise: [1]}\n");
    AS(&p, "--config", path);
    assert_string_equal(p.err.text, "");
    assert_true(p.v.rate == 0.5);
    assert_string_equal(p.v.color, "red");
    parsed_release(&p);
    AS(&p, "--config", path, "--rate", "5e-1");
    assert_int_equal(p.rc, 0);
    parsed_release(&p);
    AS(&p, "--other", "{\"pace\": 0.25, \"deep\": {\"hue\": \"auto\"}}", "--color", "red");
    assert_string_equal(p.err.text, "");
    assert_true(p.v.rate == 0.25);
    parsed_release(&p);
    AS(&p, "--other", path, "--rate", "0.75");
    assert_int_equal(p.rc, CKPT_ECONFIG);
    assert_non_null(strstr(p.err.text, "run.yaml:1: unknown option other"));
    parsed_release(&p);
    AS(&p, "--other", "{pace: 0.25}", "--rate", "0.75");
    assert_said(&p, CKPT_ECONFIG, "--other:1: pace is 0.25, but --rate says 0.75");
    AS(&p, "--rate", "0.75", "--other", "{pace: 0.25}");
    assert_said(&p, CKPT_ECONFIG, "--other:1: pace is 0.25, but --rate says 0.75");
}

TEST(wrong_files)
{
    struct parsed p = {0};

    file("steps: 3\nmax_steps: 4\n");
    AS(&p, "--config", path);
    assert_int_equal(p.rc, CKPT_ECONFIG);
    assert_non_null(strstr(p.err.text, "run.yaml:2: max_steps is 4, but "));
    assert_non_null(strstr(p.err.text, "run.yaml:1 says 3"));
    parsed_release(&p);
    refused("gear: true\nstepz: 1\n", ":2: unknown option stepz");
    refused("noise: 3\n", ":1: noise 3: noise is not done");
    refused("noise: {a: 1}\n", ":1: noise {...}: noise is not done");
    refused("hue: pink\n", ":1: color: \"pink\" is none of: red green blue");
    refused("other: {pece: 1}\n", ":1: unknown option pece");
    refused("gear: 1\nsets: [a, {path: b}]\n", ":2: a mapping is wanted here");
    refused("gear: 1\nsets:\n- {path: {x: 1}}\n", ":3: sets.*.path: a plain value is wanted here");
    refused("half: odd\n", ":1: \"odd\" has no half");
}

/* Aliases make little text long, or endless. */
TEST(hostile_files)
{
    struct parsed p = {0};
    char text[20000] = "gear: 1\n";
    size_t at = strlen(text);

    file("gear: 1\nsets: &a [*a, *a]\n");
    AS(&p, "--config", path);
    assert_int_equal(p.rc, CKPT_ECONFIG);
    parsed_release(&p);
    file("gear: 1\nx: &a {y: &b [{}, {}]}\nsets: [[*b, *b, *b], [*b, *b], {path: c}]\n");
    AS(&p, "--config", path);
    assert_int_equal(p.rc, CKPT_ECONFIG);
    parsed_release(&p);
    for (int i = 0; i < 20; i++)
        at += (size_t)snprintf(text + at, sizeof text - at, "k%d: &k%d [*k%d, *k%d, *k%d]\n", i, i,
                               i ? i - 1 : 0, i ? i - 1 : 0, i ? i - 1 : 0);
    file(text);
    AS(&p, "--config", path);
    assert_int_equal(p.rc, CKPT_ECONFIG);
    parsed_release(&p);
    at = 0;
    for (int i = 0; at + 300 < sizeof text; i++)
        at += (size_t)snprintf(text + at, sizeof text - at, "%0250d: 1\n", i);
    file(text);
    AS(&p, "--config", path);
    assert_int_equal(p.rc, CKPT_ECONFIG);
    parsed_release(&p);
}

/* opt: the command line's words into values of every kind, and what is said of wrong ones. */
#include "tests/unit/opt_rows_of.h"
#include "tests/unit/stdio_to.h"

TEST(every_kind)
{
    struct parsed p = {0};

    PARSE(&p, "--fast-mode", "--max-steps=-2", "--any", "9223372036854775807", "--rate", "1e-1",
          "--name", "", "--output=a=b", "--color", "green");
    assert_int_equal(p.rc, 0);
    assert_true(p.v.fast);
    assert_false(p.v.slow);
    assert_int_equal(p.v.steps, -2);
    assert_true(p.v.any == INT64_MAX);
    assert_true(p.v.rate == 0.1);
    assert_string_equal(p.v.name, "");
    assert_string_equal(p.v.path, "a=b");
    assert_string_equal(p.v.color, "green");
    assert_int_equal(p.n_rest, 0);
    parsed_release(&p);
}

TEST(defaults_stand)
{
    struct parsed p = {.v = {.fast = true, .steps = 7, .color = "blue"}};

    PARSE(&p, "x");
    assert_int_equal(p.rc, 0);
    assert_true(p.v.fast && p.v.steps == 7);
    assert_string_equal(p.v.color, "blue");
    parsed_release(&p);
}

/* Short options alone, joined, with the value behind or apart. */
TEST(short_options)
{
    struct parsed p = {0};

    PARSE(&p, "-fsn3", "-o", "-x", "-vv", "-v", "-ia", "-i", "b");
    assert_int_equal(p.rc, 0);
    assert_true(p.v.fast && p.v.slow && p.v.steps == 3);
    assert_string_equal(p.v.path, "-x");
    assert_int_equal(p.cli.verbose, 3);
    assert_int_equal(p.v.item.n, 2);
    assert_string_equal(p.v.item.item[0], "a");
    assert_string_equal(p.v.item.item[1], "b");
    parsed_release(&p);
    PARSE(&p, "-fZ");
    assert_string_equal(p.err.hint, "tool --help lists them");
    assert_said(&p, CKPT_EUSAGE, "unknown option -Z");
    PARSE(&p, "-sn");
    assert_said(&p, CKPT_EUSAGE, "-n needs a value");
}

/* The last one counts; a flag can be undone; "_" is "-". */
TEST(repeated)
{
    struct parsed p = {0};

    PARSE(&p, "--fast_mode", "--max_steps", "1", "-n2", "--no-fast-mode", "--slow", "--no_slow");
    assert_int_equal(p.rc, CKPT_EUSAGE);        /* "no_" is no prefix: nothing is named so */
    parsed_release(&p);
    PARSE(&p, "--fast_mode", "--max_steps", "1", "-n2", "--no-fast_mode", "--no-slow", "--slow",
          "--item", "1", "--item", "1");
    assert_int_equal(p.rc, 0);
    assert_false(p.v.fast);
    assert_true(p.v.slow);
    assert_int_equal(p.v.steps, 2);
    assert_int_equal(p.v.item.n, 2);
    parsed_release(&p);
}

/* Positional arguments keep their order, whatever stands between; "-" is one, "--" ends options. */
TEST(positional)
{
    struct parsed p = {0};

    PARSE(&p, "a", "-n", "1", "-", "b", "--slow", "--", "-f", "--", "c");
    assert_int_equal(p.rc, 0);
    assert_int_equal(p.n_rest, 6);
    assert_string_equal(p.rest[0], "a");
    assert_string_equal(p.rest[1], "-");
    assert_string_equal(p.rest[2], "b");
    assert_string_equal(p.rest[3], "-f");
    assert_string_equal(p.rest[4], "--");
    assert_string_equal(p.rest[5], "c");
    assert_false(p.v.fast);
    parsed_release(&p);
}

TEST(numbers)
{
    static const struct { const char *arg, *said; } wrong[] = {
        {"--max-steps=11", "--max-steps: 11 is out of range, -2 to 10 wanted"},
        {"--max-steps=-3", "--max-steps: -3 is out of range, -2 to 10 wanted"},
        {"--max-steps=", "--max-steps: \"\" is no whole number"},
        {"--max-steps=1.5", "--max-steps: \"1.5\" is no whole number"},
        {"--max-steps= 1", "--max-steps: \" 1\" is no number"},
        {"--max-steps=1x", "--max-steps: \"1x\" is no whole number"},
        {"--any=9223372036854775808", "--any: \"9223372036854775808\" is no whole number"},
        {"-n99", "-n: 99 is out of range, -2 to 10 wanted"},
        {"--rate=1.0001", "--rate: 1.0001 is out of range, 0 to 1 wanted"},
        {"--rate=nan", "--rate: \"nan\" is no number"},
        {"--rate=inf", "--rate: \"inf\" is no number"},
        {"--rate=1e", "--rate: \"1e\" is no number"},
    };
    struct parsed p = {0};

    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        p.v.steps = 5;
        PARSE(&p, wrong[i].arg);
        assert_int_equal(p.v.steps, 5);
        assert_said(&p, CKPT_EUSAGE, wrong[i].said);
    }
}

TEST(sizes)
{
    static const struct { const char *text; uint64_t size; } right[] = {
        {"0", 0},          {"4096", 4096},         {"1K", 1024},      {"1k", 1024},
        {"1.5M", 1572864}, {"5GB", 5000000000ull}, {"2GiB", 2ull << 30}, {"3kb", 3000},
        {"1T", 1ull << 40}, {"2TB", 2000000000000ull},
    };
    static const char *const wrong[] = {"", "-1", "5QB", "5KX", "K", "1KBB", " 1", "nan", "1e30",
                                        "inf", "5GiX"};
    struct parsed p = {0};

    for (size_t i = 0; i < sizeof right / sizeof right[0]; i++) {
        PARSE(&p, "--shard-size", right[i].text);
        assert_int_equal(p.rc, 0);
        assert_true(p.v.size == right[i].size);
        parsed_release(&p);
    }
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        p.v.size = 3;
        PARSE(&p, "--shard-size", wrong[i]);
        assert_int_equal(p.rc, CKPT_EUSAGE);
        assert_true(p.v.size == 3);
        assert_non_null(strstr(p.err.text, "is no size"));
        parsed_release(&p);
    }
}

TEST(words_beside_numbers)
{
    static const struct { const char *text; int64_t value; } rows[] = {
        {"any", -1}, {"full", -2}, {"3", 3}, {"0", 0},
    };
    struct parsed p = {0};

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        PARSE(&p, "--slow", "--width", rows[i].text);
        assert_int_equal(p.rc, 0);
        assert_int_equal(p.v.width, rows[i].value);
        parsed_release(&p);
    }
    PARSE(&p, "--slow", "--width", "ful");
    assert_said(&p, CKPT_EUSAGE, "--width: \"ful\" is no whole number");
    PARSE(&p, "--slow", "--width", "-1");
    assert_said(&p, CKPT_EUSAGE, "--width: -1 is out of range, 0 to 9 wanted");
}

TEST(choices)
{
    struct parsed p = {0};

    PARSE(&p, "--color=re");
    assert_said(&p, CKPT_EUSAGE, "--color: \"re\" is none of: red green blue");
    PARSE(&p, "--color", "red green");
    assert_said(&p, CKPT_EUSAGE, "--color: \"red green\" is none of: red green blue");
    PARSE(&p, "--color=");
    assert_said(&p, CKPT_EUSAGE, "--color: \"\" is none of: red green blue");
}

/* What begins as the choice with a number is told about its number, anything else about choices. */
TEST(choices_with_a_number)
{
    static const char *const good[] = {"host", "chip", "chip:0", "chip:12", "chip:1023"};
    static const char *const none[] = {"chip1", "host:1", "chi", "CHIP:0", "chip;0"};
    static const char *const number[] = {"chip:N", "chip:", "chip:1x", "chip:-1", "chip:+1",
                                         "chip: 1", "chip:1.5", "chip:0 chip:1", "chip:1024",
                                         "chip:99999999999999999999"};
    struct parsed p = {0};
    char said[120];

    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        PARSE(&p, "--slow", "--place", good[i]);
        assert_string_equal(p.v.place, good[i]);
        parsed_release(&p);
    }
    for (size_t i = 0; i < sizeof none / sizeof none[0]; i++) {
        PARSE(&p, "--slow", "--place", none[i]);
        snprintf(said, sizeof said, "--place: \"%s\" is none of: host chip chip:N", none[i]);
        assert_said(&p, CKPT_EUSAGE, said);
    }
    for (size_t i = 0; i < sizeof number / sizeof number[0]; i++) {
        PARSE(&p, "--slow", "--place", number[i]);
        snprintf(said, sizeof said, "--place: \"%s\" is not chip:N with a whole number N from 0 "
                 "to 1023", number[i]);
        assert_said(&p, CKPT_EUSAGE, said);
    }
}

TEST(unknown)
{
    static const struct { const char *arg, *hint; } rows[] = {
        {"--max-step", "did you mean --max-steps?"}, {"--MAX", "tool --help lists them"},
        {"--colour=red", "did you mean --color?"},   {"--heading", "tool --help lists them"},
        {"--verbos", "did you mean --verbose?"},     {"--no-such", "tool --help lists them"},
        {"--max_stpes", "did you mean --max-steps?"},
    };
    struct parsed p = {0};
    char said[80];

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        PARSE(&p, rows[i].arg);
        assert_string_equal(p.err.hint, rows[i].hint);
        snprintf(said, sizeof said, "unknown option %.*s", (int)strcspn(rows[i].arg, "="),
                 rows[i].arg);
        assert_said(&p, CKPT_EUSAGE, said);
    }
    /* Names longer than any option cost nothing. */
    PARSE(&p, "--aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa");
    assert_int_equal(p.rc, CKPT_EUSAGE);
    parsed_release(&p);
}

TEST(values_where_none_goes)
{
    struct parsed p = {0};

    PARSE(&p, "--slow=1");
    assert_said(&p, CKPT_EUSAGE, "--slow takes no value");
    PARSE(&p, "--no-slow=1");
    assert_said(&p, CKPT_EUSAGE, "--no-slow takes no value");
    PARSE(&p, "--no-name");
    assert_said(&p, CKPT_EUSAGE, "unknown option --no-name");
    PARSE(&p, "--no-help");
    assert_said(&p, CKPT_EUSAGE, "unknown option --no-help");
    PARSE(&p, "--name");
    assert_said(&p, CKPT_EUSAGE, "--name needs a value");
    PARSE(&p, "--jobs=-1");
    assert_said(&p, CKPT_EUSAGE, "--jobs: -1 is out of range, 0 to 4096 wanted");
    PARSE(&p, "-j7");
    assert_int_equal(p.rc, 0);
    assert_int_equal(p.cli.jobs, 7);
    parsed_release(&p);
}

/* --help says every row and stops the program, whatever else is asked. */
TEST(help)
{
    struct parsed p = {0};
    struct stdio_to s;
    char *text;

    stdio_begin(&s, stdout);
    PARSE(&p, "-h", "--config", "build/no-such-file");
    text = stdio_end(&s);
    assert_int_equal(p.rc, 1);
    assert_non_null(strstr(text, "usage: tool [option ...]\n\ntest\n\nThings:\n"));
    assert_non_null(strstr(text, "\n  -n, --max-steps N               steps (default: 0)\n"));
    assert_non_null(strstr(text, "one of: red green blue\n"));
    assert_non_null(strstr(text, "--config FILE"));
    free(text);
    parsed_release(&p);
    stdio_begin(&s, stdout);
    PARSE(&p, "--completion=bash");
    text = stdio_end(&s);
    assert_int_equal(p.rc, 1);
    assert_non_null(strstr(text, "compgen -W 'red green blue'"));
    free(text);
    parsed_release(&p);
}

TEST(a_char)
{
    struct parsed p = {0};

    PARSE(&p, "--comma=;", "--slow");
    assert_int_equal(p.rc, 0);
    assert_int_equal(p.v.comma, ';');
    parsed_release(&p);
    PARSE(&p, "--comma", "tab", "--color", "blue");
    assert_int_equal(p.v.comma, '\t');
    parsed_release(&p);
    PARSE(&p, "--comma=ab");
    assert_said(&p, CKPT_EUSAGE, "--comma: \"ab\" is not one byte");
}

/* What is said counts, whether it is the default or not; a flag that is off, and said off, not. */
TEST(given_is_what_was_said)
{
    struct parsed p = {.v = {.comma = ',', .width = 5, .steps = 3}};

    PARSE(&p, "--max-steps", "3", "--no-fast-mode", "--slow", "--item", "x");
    assert_int_equal(p.rc, 0);
    assert_int_equal(p.given.n, 3);
    assert_true(opt_has(&p.given, "max_steps") && opt_has(&p.given, "slow"));
    assert_true(opt_has(&p.given, "item") && !opt_has(&p.given, "fast_mode"));
    parsed_release(&p);
    p.v.comma = ',';
    PARSE(&p, "--comma", ",");
    assert_said(&p, CKPT_EUSAGE, "--comma has no effect without --color=blue or --slow");
    p.v.width = 5;
    PARSE(&p, "--width", "5");
    assert_said(&p, CKPT_EUSAGE, "--width has no effect without --color=blue or --slow");
    PARSE(&p, "--no-slow", "--width", "5");
    assert_said(&p, CKPT_EUSAGE, "--width has no effect without --color=blue or --slow");
    PARSE(&p, "--comma=,", "--slow", "--any", "0");
    assert_said(&p, CKPT_EUSAGE, "--any has no effect with --comma");
    p.v.color = "blue";                         /* that value, though nobody said it */
    PARSE(&p, "--comma=,");
    assert_int_equal(p.rc, 0);
    parsed_release(&p);
}

/* -- bytes of values -------------------------------------------------------------------------- */

struct named { const char *text, *folder; struct opt_list file, glob; };

#define OPT_VALUES struct named
static const struct opt named_rows[] = {
    OPT_TEXT("text", "PATH", text, "a word that looks like a path's"),
    OPT_TEXT("folder", "X", folder, "folder", .bytes = OPT_BYTES_ANY),
    OPT_LIST("file", "X", file, "files", .bytes = OPT_BYTES_FILE),
    OPT_LIST("glob", "X", glob, "patterns", .bytes = OPT_BYTES_ANY),
};
#undef OPT_VALUES

/* --NAME VALUE: 0, or the error's text. */
static const char *named(const char *name, const char *value, bool text_alone)
{
    static struct ckpt_err err;
    struct named v = {0};
    const struct opt_spec spec = {.synopsis = "", .summary = "test",
                                  .section = {OPT_SECTION(named_rows, &v)},
                                  .writes_values = text_alone};
    struct cli cli = {.tool = "tool"};
    char option[32], *argv[] = {"tool", option, (char *)value, NULL}, **rest;
    int n_rest, rc;

    snprintf(option, sizeof option, "--%s", name);
    rc = opt_parse(&spec, &cli, 3, argv, &rest, &n_rest, NULL, &err);
    ckpt_arena_release(&cli.arena);
    return rc ? err.text : NULL;
}

TEST(a_row_says_whether_it_names_files)
{
    assert_string_equal(named("text", "\xff", false), "--text: \"\\xff\" is no UTF-8");
    assert_null(named("text", "", false));
    assert_null(named("file", "\xff", false));
    assert_string_equal(named("file", "", false), "--file is empty, a X is wanted");
    for (int i = 0; i < 2; i++) {
        const char *name = i ? "glob" : "folder";

        assert_null(named(name, "\xff", false));
        assert_null(named(name, "", false));
        assert_non_null(strstr(named(name, "\xff", true), "is no UTF-8"));
    }
    assert_non_null(strstr(named("file", "\xff", true), "is no UTF-8"));
}

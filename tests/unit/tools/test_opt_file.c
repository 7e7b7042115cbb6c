/* opt_file: a run file says what the command line can, once, and nothing else. */
#include "tests/unit/opt_rows_of.h"

static char path[300];

BEFORE_ALL()
{
    snprintf(path, sizeof path, "%s/run.yaml", scratch("opt_file"));
}

AFTER_ALL()
{
    *strrchr(path, '/') = '\0';
    scratch_remove(path);
}

static void put(const char *text, size_t n)
{
    FILE *f = fopen(path, "w");

    assert_non_null(f);
    assert_int_equal(fwrite(text, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

/* Parse with a run file of this text. */
static void with(struct parsed *p, const char *text)
{
    put(text, strlen(text));
    PARSE(p, "--config", path);
}

/* A run file that is refused, and how: said follows "FILE". */
static void refused(const char *text, const char *said)
{
    struct parsed p = {0};
    char want[700];

    with(&p, text);
    snprintf(want, sizeof want, "%s%s", path, said);
    assert_said(&p, CKPT_ECONFIG, want);
}

static void check(struct parsed *p)
{
    assert_string_equal(p->err.text, "");
    assert_int_equal(p->rc, 0);
    assert_true(p->v.fast && !p->v.slow && p->v.steps == 3 && p->v.size == 2048);
    assert_true(p->v.rate == 0.5);
    assert_string_equal(p->v.name, "# a name");
    assert_string_equal(p->v.color, "red");
    assert_int_equal(p->v.item.n, 2);
    assert_string_equal(p->v.item.item[0], "x");
    assert_string_equal(p->v.item.item[1], "y z");
    assert_int_equal(p->cli.verbose, 2);
    assert_int_equal(p->cli.jobs, 4);
    parsed_release(p);
}

TEST(every_kind)
{
    struct parsed p = {.v = {.slow = true}};

    with(&p, "# comment\nfast_mode: yes\nslow: off\nmax-steps: 3\nshard_size: 2K\nrate: 0.5\n"
             "name: '# a name'\ncolor: red\nitem: [x, y z]\nverbose: 2\njobs: 4\n");
    check(&p);
    p.v.slow = true;
    with(&p, "{\"fast-mode\": true, \"slow\": false, \"max_steps\": 3, \"shard_size\": 2048,\n"
             " \"rate\": 5e-1, \"name\": \"# a name\", \"color\": \"red\",\n"
             " \"item\": [\"x\", \"y z\"], \"verbose\": 2, \"jobs\": 4}\n");
    check(&p);
}

/* Flags win, also over a value that is wrong; what has no value keeps its default. */
TEST(flags_win)
{
    struct parsed p = {.v = {.rate = 0.25, .name = "kept"}};
    const char *text = "max_steps: 3\nfast_mode: true\nitem: [file]\nrate:\nname: ~\ncolor: null\n";

    put(text, strlen(text));
    PARSE(&p, "-n1", "--config", path, "--no-fast-mode", "--item", "flag");
    assert_int_equal(p.rc, 0);
    assert_int_equal(p.v.steps, 1);
    assert_false(p.v.fast);
    assert_int_equal(p.v.item.n, 1);
    assert_string_equal(p.v.item.item[0], "flag");
    assert_true(p.v.rate == 0.25);
    assert_string_equal(p.v.name, "kept");
    assert_null(p.v.color);
    parsed_release(&p);
    with(&p, "name: 'null'\nitem: one\n");
    assert_int_equal(p.rc, 0);
    assert_string_equal(p.v.name, "null");
    assert_int_equal(p.v.item.n, 1);
    parsed_release(&p);
}

/* A mapping is an option's value where that is made of pairs, or JSON. */
TEST(mappings)
{
    struct parsed p = {0};

    with(&p, "pair: {b: 2, a: 1}\ncolumns:\n  z: 'a \"b\\c'\n  a: 1\nnumbers: {m: 0.9, n: true}\n");
    assert_int_equal(p.rc, 0);
    assert_int_equal(p.v.pair.n, 2);
    assert_string_equal(p.v.pair.item[0], "b=2");
    assert_string_equal(p.v.pair.item[1], "a=1");
    assert_string_equal(p.v.columns, "{\"z\": \"a \\\"b\\\\c\", \"a\": \"1\"}");
    assert_string_equal(p.v.numbers, "m=0.9,n=true");
    parsed_release(&p);
    with(&p, "columns: '{}'\nnumbers: {}\npair: c=3\n");
    assert_int_equal(p.rc, 0);
    assert_string_equal(p.v.columns, "{}");
    assert_null(p.v.numbers);
    assert_string_equal(p.v.pair.item[0], "c=3");
    parsed_release(&p);
    refused("columns: {a: [b]}", ":1: a plain value is wanted here");
    refused("columns: {a: {b: c}}", ":1: a plain value is wanted here");
    refused("columns: {[a]: b}", ":1: a plain value is wanted here");
    refused("columns: [{a: b}]", ":1: a plain value is wanted here");
    refused("numbers: {a: [b]}", ":1: a plain value is wanted here");
    refused("name: {a: b}", ":1: a plain value is wanted here");
}

TEST(wrong_values)
{
    refused("\nmax_steps: many\n", ":2: max-steps: \"many\" is no whole number");
    refused("max_steps: 11", ":1: max-steps: 11 is out of range, -2 to 10 wanted");
    refused("rate: .nan", ":1: rate: \".nan\" is no number");
    refused("color: pink", ":1: color: \"pink\" is none of: red green blue");
    refused("shard_size: big", ":1: shard-size: \"big\" is no size; 5GB, 512M and 4096 are");
    refused("slow: 2", ":1: slow: \"2\" is neither true nor false");
    refused("verbose: 12",
            ":1: verbose: \"12\" is neither a number below 10 nor true or false");
    refused("name: [a, b]", ":1: a plain value is wanted here");
    refused("item: [a, [b]]", ":1: a plain value is wanted here");
    refused("item: {a: b}", ":1: a plain value is wanted here");
}

TEST(names)
{
    struct parsed p = {0};

    refused("rate: 0\n\nnothing: 1\n", ":3: unknown option nothing");
    refused("help: true", ":1: unknown option help");
    refused("heading: true", ":1: unknown option heading");
    refused("config: other.yaml", ":1: unknown option config");
    refused("[a]: b", ":1: an option's name is wanted here");
    refused("rate: 0\nrate: 0\n", ":2: rate appears twice");
    refused("max_steps: 1\nmax-steps: 1\n", ":2: max-steps appears twice");
    with(&p, "max_stepz: 1\n");
    assert_string_equal(p.err.hint, "did you mean max-steps?");
    parsed_release(&p);
    with(&p, "confog: 1\n");                    /* the nearest is none of a run file's */
    assert_null(strstr(p.err.hint, "config"));
    parsed_release(&p);
    /* Twice is twice, though a flag wins over both. */
    put("rate: 0\nrate: 1\n", 16);
    PARSE(&p, "--rate", "0.5", "--config", path);
    assert_int_equal(p.rc, CKPT_ECONFIG);
    parsed_release(&p);
}

/* What a run file says beside an option that leaves no use for it is as if it were not said. */
TEST(a_run_file_yields)
{
    struct parsed p = {.v = {.size = 7, .name = "default"}};
    static const char text[] = "shard_size: 5\nname: x\nfast_mode: true\nslow: true\n";

    put(text, sizeof text - 1);
    PARSE(&p, "--config", path, "--width", "3");
    assert_int_equal(p.rc, 0);
    assert_true(p.v.size == 7 && !p.v.fast && p.v.slow && p.v.width == 3);
    assert_string_equal(p.v.name, "default");
    assert_false(opt_has(&p.given, "name"));
    parsed_release(&p);
    PARSE(&p, "--config", path, "--width", "3", "--name", "y");
    assert_int_equal(p.rc, CKPT_EUSAGE);
    assert_string_equal(p.err.text, "--name has no effect with --width");
    parsed_release(&p);
    PARSE(&p, "--config", path);
    assert_true(p.rc == 0 && p.v.size == 5);
    assert_string_equal(p.v.name, "x");
    parsed_release(&p);
}

TEST(documents)
{
    struct parsed p = {0};
    static const char nul[] = "name: \"a\\0b\"\n", raw[] = "name: a\0b\n";

    refused("rate: 0\n---\nrate: 1\n", ":3: a second document; one is read");
    refused("", ": a mapping of options is wanted");
    refused("- rate\n", ": a mapping of options is wanted");
    refused("rate\n", ": a mapping of options is wanted");
    put(nul, sizeof nul - 1);
    PARSE(&p, "--config", path);
    assert_int_equal(p.rc, CKPT_ECONFIG);
    assert_non_null(strstr(p.err.text, ":1: a NUL byte is no part of a value"));
    parsed_release(&p);
    put(raw, sizeof raw - 1);
    PARSE(&p, "--config", path);
    assert_int_equal(p.rc, CKPT_ECONFIG);
    parsed_release(&p);
    with(&p, "rate: 0\nname: [a\n");
    assert_int_equal(p.rc, CKPT_ECONFIG);
    assert_non_null(strstr(p.err.text, path));
    parsed_release(&p);
    with(&p, "---\nrate: 1\n...\n");
    assert_int_equal(p.rc, 0);
    assert_true(p.v.rate == 1);
    parsed_release(&p);
    PARSE(&p, "--config", "build/no-such-file.yaml");
    assert_int_equal(p.rc, CKPT_ENOTFOUND);
    parsed_release(&p);
}

/* Values outlive the file's text, and a document that bites its own tail is no endless walk. */
TEST(aliases)
{
    struct parsed p = {0};

    with(&p, "name: &n word\noutput: *n\n");
    assert_int_equal(p.rc, 0);
    put("overwritten: text", 17);
    assert_string_equal(p.v.path, "word");
    assert_string_equal(p.v.name, "word");
    parsed_release(&p);
    refused("item: &l [a, *l]\n", ":1: a plain value is wanted here");
}

/* opt_rows_of - a table with a row of every kind, and a parse of it. */
#ifndef CKPT_TESTS_UNIT_OPT_ROWS_OF_H
#define CKPT_TESTS_UNIT_OPT_ROWS_OF_H

#include "tests/unit/unit.h"
#include "tools/opt/opt.h"

#define MAX_ARGS 16

struct values {
    bool            fast, slow;
    int64_t         steps, any, width;
    double          rate;
    uint64_t        size;
    const char     *name, *path, *color, *columns, *numbers, *place;
    char            comma;
    struct opt_list item, pair;
};

#define OPT_VALUES struct values
static const struct opt value_rows[] = {
    OPT_HEADING("Things"),
    OPT_FLAG("fast-mode", fast, "fast", .letter = 'f'),
    OPT_FLAG("slow", slow, "slow", .letter = 's'),
    OPT_INT("max-steps", "N", steps, -2, 10, "steps", .letter = 'n'),
    OPT_INT("any", "N", any, -1e19, 1e19, "any"),
    OPT_REAL("rate", "R", rate, 0, 1, "rate"),
    OPT_SIZE("shard-size", size, "size", .absent = "no limit"),
    OPT_TEXT("name", "NAME", name, "name"),
    OPT_PATH("output", "PATH", path, "path", .letter = 'o'),
    OPT_ENUM("color", "WORD", color, "red green blue", "color"),
    OPT_CHAR("comma", comma, "byte between values", .absent = "a comma"),
    OPT_INT("width", "N", width, 0, 9, "width", .choices = "any full"),
    OPT_LIST("item", "X", item, "items", .letter = 'i'),
    OPT_LIST("pair", "NAME=N", pair, "pairs"),
    OPT_TEXT("columns", "JSON", columns, "an object"),
    OPT_ENUM("place", "WHERE", place, "host chip chip:N", "place", .max = 1023),
    OPT_TEXT("numbers", "K=V,...", numbers, "numbers"),
};
#undef OPT_VALUES

static const struct opt_rule value_rules[] = {
    {OPT_NEEDS, "comma width", "color=blue slow"},
    {OPT_BARS, "comma", "any item"},
    {OPT_YIELDS, "width", "shard-size name fast-mode"},
};

struct parsed {
    struct values   v;
    struct opt_list given;
    struct cli      cli;
    struct ckpt_err err;
    char           *argv[MAX_ARGS + 2];
    char          **rest;
    int             n_rest, rc;
};

/* Parse args (ended by NULL) into p, whose values hold defaults before. */
static inline void parse(struct parsed *p, const char *const *arg)
{
    const struct opt_spec spec = {.synopsis = "[option ...]", .summary = "test",
                                  .section = {OPT_SECTION(value_rows, &p->v)},
                                  .rule = value_rules,
                                  .n_rule = sizeof value_rules / sizeof value_rules[0]};
    int argc = 1;

    p->argv[0] = (char *)"tool";
    for (; arg[argc - 1]; argc++) {
        assert_true(argc <= MAX_ARGS);
        p->argv[argc] = (char *)arg[argc - 1];
    }
    p->argv[argc] = NULL;
    p->cli.tool = "tool";
    p->rc = opt_parse(&spec, &p->cli, argc, p->argv, &p->rest, &p->n_rest, &p->given, &p->err);
}

#define PARSE(p, ...) parse(p, (const char *const[]){__VA_ARGS__ __VA_OPT__(,) NULL})

/* Back to nothing, for the next parse. */
static inline void parsed_release(struct parsed *p)
{
    ckpt_arena_release(&p->cli.arena);
    memset(p, 0, sizeof *p);
}

/* The parse failed with code and this sentence. */
static inline void assert_said(struct parsed *p, int code, const char *text)
{
    assert_int_equal(p->rc, code);
    assert_string_equal(p->err.text, text);
    parsed_release(p);
}

#endif

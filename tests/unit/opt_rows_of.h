/* opt_rows_of - a table with a row of every kind, and a parse of it. */
#ifndef CKPT_TESTS_UNIT_OPT_ROWS_OF_H
#define CKPT_TESTS_UNIT_OPT_ROWS_OF_H

#include "tests/unit/unit.h"
#include "tools/opt/opt.h"

#define MAX_ARGS 16

struct values {
    bool            fast, slow;
    int64_t         steps, any;
    double          rate;
    uint64_t        size;
    const char     *name, *path, *color;
    struct opt_list item;
};

struct parsed {
    struct values   v;
    struct cli      cli;
    struct ckpt_err err;
    char           *argv[MAX_ARGS + 2];
    char          **rest;
    int             n_rest, rc;
};

/* Parse args (ended by NULL) into p, whose values hold defaults before. */
static inline void parse(struct parsed *p, const char *const *arg)
{
    const struct opt row[] = {
        {0, "heading", NULL, OPT_GROUP, NULL, "Things", NULL, 0, 0, true},
        {'f', "fast-mode", NULL, OPT_FLAG, &p->v.fast, "fast", NULL, 0, 0, false},
        {'s', "slow", NULL, OPT_FLAG, &p->v.slow, "slow", NULL, 0, 0, false},
        {'n', "max-steps", "N", OPT_INT, &p->v.steps, "steps", NULL, -2, 10, false},
        {0, "any", "N", OPT_INT, &p->v.any, "any", NULL, 0, 0, false},
        {0, "rate", "R", OPT_REAL, &p->v.rate, "rate", NULL, 0, 1, false},
        {0, "shard-size", "SIZE", OPT_SIZE, &p->v.size, "size", NULL, 0, 0, false},
        {0, "name", "NAME", OPT_STR, &p->v.name, "name", NULL, 0, 0, false},
        {'o', "output", "PATH", OPT_PATH, &p->v.path, "path", NULL, 0, 0, false},
        {0, "color", "WORD", OPT_CHOICE, &p->v.color, "color", "red green blue", 0, 0, false},
        {'i', "item", "X", OPT_LIST, &p->v.item, "items", NULL, 0, 0, false},
    };
    const struct opt_spec spec = {.synopsis = "[option ...]", .summary = "test", .row = row,
                                  .n = sizeof row / sizeof row[0], .run_file = true};
    int argc = 1;

    p->argv[0] = (char *)"tool";
    for (; arg[argc - 1]; argc++) {
        assert_true(argc <= MAX_ARGS);
        p->argv[argc] = (char *)arg[argc - 1];
    }
    p->argv[argc] = NULL;
    p->cli.tool = "tool";
    p->rc = opt_parse(&spec, &p->cli, argc, p->argv, &p->rest, &p->n_rest, &p->err);
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

/* opt - see opt.h.  Values, help and run files are in opt/value.c, opt/help.c, opt/file.c,
 * what options have to do with each other in opt/rules.c, other spellings in opt/known.c. */
#include "tools/opt/opt.h"

#include <stdio.h>
#include <string.h>

#include "libckpt/ckpt.h"
#include "tools/opt/rows.h"

struct parse {
    const struct opt_spec *spec;
    struct cli            *cli;
    struct opt_table       t;
    struct opt             common[OPT_COMMON];
    union opt_value        was[OPT_MAX_ROWS];
    bool                   given[OPT_MAX_ROWS]; /* set by a flag: the run file leaves it alone */
    const char            *config, *completion;
    bool                   help, version;
    char                 **argv;
    int                    argc, at;
    struct ckpt_err       *err;
};

static int unknown(struct parse *p, const char *name, size_t n)
{
    ckpt_fail(p->err, CKPT_EUSAGE, "unknown option --%.*s", (int)n, name);
    if (opt_hint_unknown(&p->t, name, n, false, p->err) && p->err->hint[0])
        return p->err->code;
    return ckpt_err_hint(p->err, "%s --help lists them", p->cli->tool);
}

/* Rows that act on the parse itself; false when the row is an ordinary one. */
static bool special(struct parse *p, const struct opt *o, const char *value)
{
    if (strcmp(o->name, "help") == 0)
        p->help = true;
    else if (strcmp(o->name, "version") == 0)
        p->version = true;
    else if (strcmp(o->name, "config") == 0)
        p->config = value;
    else if (strcmp(o->name, "completion") == 0)
        p->completion = value;
    else
        return false;
    return true;
}

static int apply(struct parse *p, size_t i, const char *value, const char *where)
{
    const struct opt *o = opt_at(&p->t, i);

    p->given[i] = true;
    if (special(p, o, value))
        return 0;
    if (o->kind == OPT_COUNT) {
        ++*(int *)o->dest;
        return 0;
    }
    if (opt_is_flag(o)) {
        opt_set_flag(o, true);
        return 0;
    }
    return opt_set(&p->t, o, value, where, p->err);
}

/* The value of an option that needs one: given behind "=", or the next argument. */
static int take_value(struct parse *p, const char **value, const char *attached, const char *name)
{
    if (!attached && p->at >= p->argc)
        return ckpt_fail(p->err, CKPT_EUSAGE, "%s needs a value", name);
    *value = attached ? attached : p->argv[p->at++];
    return 0;
}

static int long_option(struct parse *p, const char *arg)
{
    const char *eq = strchr(arg, '='), *value = NULL;
    size_t n = eq ? (size_t)(eq - arg) : strlen(arg);
    size_t i = opt_find(&p->t, arg, n);
    char where[128];

    snprintf(where, sizeof where, "--%.*s", (int)n, arg);
    if (i == SIZE_MAX && n > 3 && strncmp(arg, "no-", 3) == 0) {
        i = opt_find(&p->t, arg + 3, n - 3);
        if (i != SIZE_MAX && opt_is_flag(opt_at(&p->t, i)) && opt_at(&p->t, i)->dest) {
            if (eq)
                return ckpt_fail(p->err, CKPT_EUSAGE, "%s takes no value", where);
            p->given[i] = true;
            opt_set_flag(opt_at(&p->t, i), false);
            return 0;
        }
        i = SIZE_MAX;
    }
    if (i == SIZE_MAX)
        return unknown(p, arg, n);
    if (opt_takes_value(opt_at(&p->t, i))) {
        if (take_value(p, &value, eq ? eq + 1 : NULL, where))
            return p->err->code;
    } else if (eq) {
        return ckpt_fail(p->err, CKPT_EUSAGE, "%s takes no value", where);
    }
    return apply(p, i, value, where);
}

/* -x, -xVALUE, -x VALUE, or several flags in one word. */
static int short_options(struct parse *p, const char *arg)
{
    for (; *arg; arg++) {
        const char *value = NULL;
        char where[3] = {'-', *arg, '\0'};
        size_t i = 0;

        while (i < opt_count(&p->t) && opt_at(&p->t, i)->short_name != *arg)
            i++;
        if (i == opt_count(&p->t)) {
            ckpt_fail(p->err, CKPT_EUSAGE, "unknown option -%c", *arg);
            return ckpt_err_hint(p->err, "%s --help lists them", p->cli->tool);
        }
        if (!opt_takes_value(opt_at(&p->t, i))) {
            if (apply(p, i, NULL, where))
                return p->err->code;
            continue;
        }
        if (take_value(p, &value, arg[1] ? arg + 1 : NULL, where))
            return p->err->code;
        return apply(p, i, value, where);
    }
    return 0;
}

static int arguments(struct parse *p, char ***rest, int *n_rest)
{
    bool only_rest = false;

    *rest = p->argv + 1;
    *n_rest = 0;
    for (p->at = 1; p->at < p->argc;) {
        char *arg = p->argv[p->at++];

        if (only_rest || arg[0] != '-' || arg[1] == '\0')
            (*rest)[(*n_rest)++] = arg;     /* never ahead of what is read */
        else if (strcmp(arg, "--") == 0)
            only_rest = true;
        else if (arg[1] == '-' ? long_option(p, arg + 2) : short_options(p, arg + 1))
            return p->err->code;
    }
    return 0;
}

/* For cli_flags. */
static bool has_option(const void *options, const char *name, size_t n)
{
    const struct opt_spec *spec = options;

    return opt_find(&(struct opt_table){.tool = spec->row, .n_tool = spec->n}, name, n) != SIZE_MAX;
}

int opt_parse(const struct opt_spec *spec, struct cli *cli, int argc, char **argv, char ***rest,
              int *n_rest, struct ckpt_err *err)
{
    struct parse p = {.spec = spec, .cli = cli, .argv = argv, .argc = argc, .err = err};
    int64_t jobs = cli->jobs;
    int rc;

    cli->has_option = has_option;
    cli->options = spec;
    p.t.tool = spec->row;
    p.t.n_tool = spec->n;
    p.t.common = p.common;
    p.t.arena = &cli->arena;
    p.t.n_common = opt_common(p.common, cli, spec->run_file);
    if (opt_count(&p.t) > OPT_MAX_ROWS)
        return ckpt_fail(err, CKPT_ESTATE, "more than %d options", OPT_MAX_ROWS);
    for (size_t i = 0; i < p.t.n_common; i++)
        if (strcmp(p.common[i].name, "jobs") == 0)
            p.common[i].dest = &jobs;
    for (size_t i = 0; i < opt_count(&p.t); i++)
        p.was[i] = opt_value_of(opt_at(&p.t, i));
    p.t.was = p.was;
    rc = arguments(&p, rest, n_rest);
    if (rc == 0 && p.config && !p.help && !p.version && !p.completion)
        rc = opt_run_file(&p.t, p.config, p.given, err);
    if (rc == 0 && !p.help && !p.version && !p.completion)
        rc = opt_check_rules(&p.t, spec, err);
    if (rc == 0 && !p.help && !p.version && !p.completion)
        rc = opt_streams(&p.t, spec->streams, err);
    cli->jobs = (int)jobs;
    for (int i = p.at; rc && i < argc && strcmp(argv[i], "--") != 0; i++)
        cli->json |= strcmp(argv[i], "--json") == 0;    /* it is about this error, too */
    if (rc)
        return rc;
    if (p.help)
        opt_help(&p.t, spec, cli);
    else if (p.version)
        printf("%s %s\n", cli->tool, CKPT_VERSION);
    else if (p.completion)
        return opt_completion(&p.t, cli, p.completion, err) ? err->code : 1;
    else
        return 0;
    return 1;
}

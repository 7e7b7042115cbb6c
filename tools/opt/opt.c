/* opt - see opt.h.  Values, help and run files are in opt/value.c, opt/help.c, opt/file.c, rules
 * between options in opt/rules.c, names of other programs in opt/known.c. */
#include "tools/opt/opt.h"

#include <stdio.h>
#include <string.h>

#include "libckpt/ckpt.h"
#include "tools/opt/rows.h"

/* Values of rows that control the parse itself. */
struct own {
    struct opt_list config;
    const char *completion;
    bool        help, version;
};

struct parse {
    struct cli      *cli;
    struct opt_table *t;
    struct opt_input in;        /* the command line */
    struct own       own;
    char           **argv;
    int              argc, at;
    struct ckpt_err *err;
};

#define OPT_VALUES struct cli
static const struct opt common_rows[] = {
    OPT_HEADING("Common"),
    OPT_INT("jobs", "N", jobs, 0, 4096, "worker threads; 0: one for each CPU", .letter = 'j'),
    OPT_FLAG("null", nul, "lines of stdin and stdout end with NUL instead of newline",
             .letter = '0'),
    OPT_FLAG("json", json, "print JSON; errors too"),
    OPT_FLAG("strict", strict, "exit with status 1 after any warning"),
    OPT_FLAG("follow-symlinks", follow, "follow symbolic links"),
    OPT_FLAG("quiet", quiet, "print errors only", .letter = 'q'),
    OPT_COUNT("verbose", verbose, "print notes; twice: debug messages too", .letter = 'v'),
};
#undef OPT_VALUES

#define OPT_VALUES struct own
static const struct opt own_rows[] = {
    OPT_ENUM("completion", "SHELL", completion, "bash zsh fish",
             "print the completion script for a shell", .no_config = true),
    OPT_FLAG("help", help, "print this help", .letter = 'h', .no_config = true),
    OPT_FLAG("version", version, "print the version", .no_config = true),
    OPT_LIST("config", "FILE", config, "read options from a YAML or JSON file; repeatable",
             .no_config = true, .bytes = OPT_BYTES_FILE),
};
#undef OPT_VALUES

static int unknown(struct parse *p, const char *name, size_t n)
{
    ckpt_fail(p->err, CKPT_EUSAGE, "unknown option --%.*s", (int)n, name);
    opt_hint_unknown(p->t, p->in.dialect, name, n, false, p->err);
    return p->err->hint[0] ? CKPT_EUSAGE
                           : ckpt_err_hint(p->err, "%s --help lists them", p->cli->tool);
}

/* Set a row's value: NULL for flags and counts. */
static int apply(struct parse *p, struct opt_slot *s, const char *value, const char *where)
{
    s->given = true;
    s->input = &p->in;
    if (!(s->from = ckpt_arena_printf(p->t->arena, "%s", where)))
        return ckpt_nomem(p->err, strlen(where));
    if (value)
        return opt_set(p->t, s, value, where, p->err);
    opt_set_flag(s, true);
    return 0;
}

/* The value of an option that takes one: after "=", or the next argument. */
static int take_value(struct parse *p, const char **value, const char *attached, const char *name)
{
    if (!attached && p->at >= p->argc)
        return ckpt_fail(p->err, CKPT_EUSAGE, "%s needs a value", name);
    *value = attached ? attached : p->argv[p->at++];
    return 0;
}

/* The option of a letter; NULL: there is none. */
static struct opt_slot *find_letter(const struct parse *p, char letter)
{
    for (size_t i = 0; i < p->t->n; i++)
        if (p->t->slot[i].row->letter == letter)
            return &p->t->slot[i];
    return NULL;
}

/* Whether an argument is an option: negative numbers are not, but -0 may be one. */
static bool is_option(const struct parse *p, const char *arg)
{
    bool number = arg[0] == '-' && arg[1] >= '0' && arg[1] <= '9';

    return number ? !arg[2] && find_letter(p, arg[1]) : arg[0] == '-';
}

/* Whether the next argument is a further value of the option before it, as in programs that take
 * no positional arguments: no option itself, and of a flag only true or false. */
static bool next_is_value(const struct parse *p, const struct opt_slot *s)
{
    const char *next = p->at < p->argc ? p->argv[p->at] : NULL;

    if (!p->in.dialect || !next || is_option(p, next))
        return false;
    return !s || (s->row->kind == OPT_KIND_FLAG ? opt_truth(next) >= 0
                                                : s->row->kind == OPT_KIND_LIST);
}

/* A name of another program: what it needs, or what there is, up to the next option. */
static int field_option(struct parse *p, const struct opt_field *f, const char *attached,
                        const char *where)
{
    const struct opt_slot *s = f->option ? opt_find(p->t, f->option, strlen(f->option)) : NULL;
    const char **value = ckpt_arena_alloc(p->t->arena, (size_t)p->argc + 1, sizeof *value);
    struct opt_entry e = {.name = f->name, .value = value};
    bool one = f->inner || (s && opt_takes_value(s->row) && !f->values);

    if (!value || !(e.where = ckpt_arena_printf(p->t->arena, "%s", where)))
        return ckpt_nomem(p->err, strlen(where));
    if (attached || (one && p->at < p->argc))
        value[e.n++] = attached ? attached : p->argv[p->at++];
    while (!attached && next_is_value(p, one || (s && !f->values) ? s : NULL))
        value[e.n++] = p->argv[p->at++];
    if (one && e.n == 0)
        return ckpt_fail(p->err, CKPT_EUSAGE, "%s needs a value", where);
    if (e.n == 0)
        value[e.n++] = "true";
    return opt_take(p->t, &p->in, &e, p->err);
}

static int long_option(struct parse *p, const char *arg)
{
    const char *eq = strchr(arg, '='), *value = NULL;
    size_t n = eq ? (size_t)(eq - arg) : strlen(arg);
    const struct opt_field *f = opt_field_of(p->t, &p->in, arg, n);
    struct opt_slot *s = opt_find(p->t, arg, n);
    bool undone = !s && !f && n > 3 && strncmp(arg, "no-", 3) == 0;
    char where[128];
    int rc;

    snprintf(where, sizeof where, "--%.*s", (int)n, arg);
    if (f)
        return field_option(p, f, eq ? eq + 1 : NULL, where);
    if (undone && (s = opt_find(p->t, arg + 3, n - 3)) &&
        (s->row->kind != OPT_KIND_FLAG || s->row->no_config))
        s = NULL;
    if (!s)
        return unknown(p, arg, n);
    if (eq && !opt_takes_value(s->row) && (undone || !p->in.dialect))
        return ckpt_fail(p->err, CKPT_EUSAGE, "%s takes no value", where);
    if (opt_takes_value(s->row) && (rc = take_value(p, &value, eq ? eq + 1 : NULL, where)))
        return rc;
    if (!opt_takes_value(s->row) && !undone)
        value = eq ? eq + 1 : next_is_value(p, s) ? p->argv[p->at++] : NULL;
    rc = apply(p, s, value, where);
    while (rc == 0 && !eq && s->row->kind == OPT_KIND_LIST && !s->row->no_config &&
           next_is_value(p, s))
        rc = apply(p, s, p->argv[p->at++], where);
    if (undone)
        opt_set_flag(s, false);
    return rc;
}

/* -x, -xVALUE, -x VALUE, or several flags in one word. */
static int short_options(struct parse *p, const char *arg)
{
    for (; *arg; arg++) {
        const char *value = NULL;
        char where[3] = {'-', *arg, '\0'};
        struct opt_slot *s = find_letter(p, *arg);
        int rc;

        if (!s) {
            ckpt_fail(p->err, CKPT_EUSAGE, "unknown option -%c", *arg);
            return ckpt_err_hint(p->err, "%s --help lists them", p->cli->tool);
        }
        if (opt_takes_value(s->row)) {
            rc = take_value(p, &value, arg[1] ? arg + 1 : NULL, where);
            return rc ? rc : apply(p, s, value, where);
        }
        if ((rc = apply(p, s, NULL, where)))
            return rc;
    }
    return 0;
}

static int arguments(struct parse *p, char ***rest, int *n_rest)
{
    bool only_rest = false;
    int rc = 0;

    *rest = p->argv + 1;
    *n_rest = 0;
    for (p->at = 1; rc == 0 && p->at < p->argc;) {
        char *arg = p->argv[p->at++];

        if (only_rest || arg[0] != '-' || arg[1] == '\0')
            (*rest)[(*n_rest)++] = arg;     /* cannot overtake the argument being read */
        else if (strcmp(arg, "--") == 0)
            only_rest = true;
        else
            rc = arg[1] == '-' ? long_option(p, arg + 2) : short_options(p, arg + 1);
    }
    return rc;
}

/* Join the rows of all sections in one table, with the current values as defaults. */
static int join(struct parse *p, const struct opt_spec *spec)
{
    const struct opt_section common[] = {OPT_SECTION(common_rows, p->cli),
                                         OPT_SECTION(own_rows, &p->own)};
    const struct opt_section *all[] = {&spec->section[0], &spec->section[1], &spec->section[2],
                                       &spec->section[3], &spec->section[4], &spec->section[5],
                                       &spec->section[6],
                                       &common[0], &common[1]};
    struct opt_table *t = p->t;
    size_t n = 0;

    for (size_t k = 0; k < sizeof all / sizeof all[0]; k++)
        n += all[k]->n;
    t->arena = &p->cli->arena;
    t->dialect = spec->dialect;
    t->utf8 = spec->writes_values;
    p->in.dialect = spec->dialect ? spec->dialect[0] : NULL;
    t->slot = ckpt_arena_alloc(t->arena, n, sizeof *t->slot);
    if (!t->slot)
        return ckpt_nomem(p->err, n * sizeof *t->slot);
    for (size_t k = 0; k < sizeof all / sizeof all[0]; k++) {
        for (size_t i = 0; i < all[k]->n; i++) {
            struct opt_slot *s = &t->slot[t->n++];

            *s = (struct opt_slot){.row = &all[k]->row[i], .values = all[k]->values};
            s->was = opt_value_of(s);
        }
        if (k < sizeof spec->section / sizeof spec->section[0])
            t->n_tool = t->n;
    }
    return 0;
}

/* An option's name as settings spell it: "top_k"; NULL when out of memory. */
static char *setting_name(const struct opt_table *t, const struct opt_slot *s)
{
    char *name = ckpt_arena_printf(t->arena, "%s", s->row->name);

    for (char *c = name; c && *c; c++)
        *c = *c == '-' ? '_' : *c;
    return name;
}

/* List the options that count as given. */
static int tell_given(struct opt_list *given, const struct opt_table *t, struct ckpt_err *err)
{
    const char **item = ckpt_arena_alloc(t->arena, t->n_tool + 1, sizeof *item);

    *given = (struct opt_list){item, 0};
    for (size_t i = 0; item && i < t->n_tool; i++) {
        if (!opt_counts(&t->slot[i]))
            continue;
        item[given->n] = setting_name(t, &t->slot[i]);
        if (!item[given->n++])
            return ckpt_nomem(err, strlen(t->slot[i].row->name));
    }
    return item ? 0 : ckpt_nomem(err, t->n * sizeof *item);
}

bool opt_has(const struct opt_list *given, const char *name)
{
    for (size_t i = 0; i < given->n; i++)
        if (strcmp(given->item[i], name) == 0)
            return true;
    return false;
}

int opt_values(struct opt_list *out, struct cli *cli, const char *without, struct ckpt_err *err)
{
    const struct opt_table *t = cli->options;
    const char **item = ckpt_arena_alloc(&cli->arena, t->n_tool + 1, sizeof *item);

    *out = (struct opt_list){item, 0};
    for (const struct opt_slot *s = t->slot; item && s < t->slot + t->n_tool; s++) {
        union opt_value v = opt_value_of(s);
        char word[64], *name;

        if (s->row->kind == OPT_KIND_HEADING || s->row->kind == OPT_KIND_LIST ||
            opt_among(without, s->row->name, strlen(s->row->name)))
            continue;
        name = setting_name(t, s);
        item[out->n] = ckpt_arena_printf(&cli->arena, "%s %s", name ? name : "",
                                         opt_value_text(word, s->row->kind, &v));
        if (!name || !item[out->n++])
            return ckpt_nomem(err, strlen(s->row->name));
    }
    return item ? 0 : ckpt_nomem(err, t->n_tool * sizeof *item);
}

/* For cli_flags: names of the tool's own options, and of the common ones. */
static bool has_option(const void *slots, const char *name, size_t n)
{
    return opt_find(slots, name, n) != NULL;
}

int opt_parse(const struct opt_spec *spec, struct cli *cli, int argc, char **argv, char ***rest,
              int *n_rest, struct opt_list *given, struct ckpt_err *err)
{
    struct opt_table *t = ckpt_arena_alloc(&cli->arena, 1, sizeof *t);
    struct parse p = {.cli = cli, .t = t, .argv = argv, .argc = argc, .err = err};
    const struct own *own = &p.own;
    int rc = t ? join(&p, spec) : ckpt_nomem(err, sizeof *t);
    bool stop;

    if (rc)
        return rc;
    cli->options = t;
    cli->has_option = has_option;
    rc = arguments(&p, rest, n_rest);
    stop = own->help || own->version || own->completion;
    for (size_t i = own->config.n; rc == 0 && !stop && i-- > 0;)    /* the last one wins */
        rc = opt_run_file(t, own->config.item[i], err);
    if (rc == 0 && !stop)
        rc = opt_take_later(t, err);
    if (rc == 0 && !stop)
        rc = opt_check_rules(t, spec, err);
    if (rc == 0 && !stop)
        rc = opt_streams(t, spec->streams, err);
    if (rc == 0 && given)
        rc = tell_given(given, t, err);
    for (int i = p.at; rc && i < argc && strcmp(argv[i], "--") != 0; i++)
        cli->json |= strcmp(argv[i], "--json") == 0;    /* this error must be JSON too */
    if (rc)
        return rc;
    if (own->help)
        opt_help(t, spec, cli);
    else if (own->version)
        printf("%s %s\n", cli->tool, CKPT_VERSION);
    else if (own->completion)
        rc = opt_completion(t, cli, own->completion, err);
    return rc ? rc : stop;
}

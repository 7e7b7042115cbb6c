/*
 * opt/dialect - names of other programs, on the command line and in their own config files, and
 * what becomes of them: a table of rows for each program.
 *
 * A row's name has "_"; a value within a mapping is named with dots, "zero_optimization.stage",
 * and the members of a list of mappings with a star, "datasets.*.path".  To turn a field on that
 * was not done, change its row to OPT_DOES(name, "option").
 */
#ifndef CKPT_TOOLS_OPT_DIALECT_H
#define CKPT_TOOLS_OPT_DIALECT_H

#include <stdbool.h>
#include <stddef.h>

#include "libckpt/fail.h"

enum opt_state {
    OPT_STATE_DOES,             /* sets an option */
    OPT_STATE_HARMLESS,         /* accepted; there is nothing here that it could change */
    OPT_STATE_NOT_DONE          /* refused, except with a value that changes nothing */
};

struct opt_put;
struct opt_dialect;

/* Sets options, through opt_put_option, for values that a table cannot translate. */
typedef int opt_convert(struct opt_put *put, const char *const *value, size_t n,
                        struct ckpt_err *err);

struct opt_field {
    enum opt_state state;
    const char    *name;
    const char    *option;      /* that it sets; NULL: none, or several */
    const char    *says;        /* of NOT_DONE: why; else what it does beside the option's help */
    const char    *values;      /* space-separated: "theirs=ours", or "theirs" alone where that
                                   changes nothing; other values pass unchanged */
    const char    *when;        /* counts only if this name of the same file is on; "name=value"
                                   too */
    opt_convert   *convert;
    const struct opt_dialect *inner;    /* names of the mapping that is its value, or of a file */
};

/* The dots stand for further members. */
#define OPT_DOES(name_, option_, ...) \
    {.state = OPT_STATE_DOES, .name = name_, .option = option_, __VA_ARGS__}
#define OPT_HARMLESS(name_, ...) {.state = OPT_STATE_HARMLESS, .name = name_, __VA_ARGS__}
#define OPT_NOT_DONE(name_, defaults, why, ...) \
    {.state = OPT_STATE_NOT_DONE, .name = name_, .values = defaults, .says = why, __VA_ARGS__}

/* Values that a program has for names which its file lacks. */
struct opt_field_default { const char *name, *value; };

struct opt_dialect {
    const char *name;           /* "TRL": the program */
    const char *tells;          /* names that only its files have, space-separated */
    const char *skip;           /* values that change nothing under any name: "auto" */
    bool        firm;           /* values that were given elsewhere must be the same */
    const struct opt_field *field;
    size_t      n_field;
    const struct opt_field_default *absent;
    size_t      n_absent;
    const struct opt_dialect *base;     /* has the names that this one lacks */
};

/* Whether a name is one that only this program's files have. */
bool opt_dialect_tells(const struct opt_dialect *d, const char *name, size_t n);
/* Whether names begin with this one and a dot. */
bool opt_dialect_nests(const struct opt_dialect *d, const char *name, size_t n);
/* Set an option to a value by its name here, for an opt_convert. */
int opt_put_option(struct opt_put *put, const char *option, const char *value,
                   struct ckpt_err *err);
/* The same for a value that follows by itself: it does not replace one that was given. */
int opt_put_default(struct opt_put *put, const char *option, const char *value,
                    struct ckpt_err *err);
/* The value of another name of the same file, or its default there; NULL when it has none. */
const char *opt_put_other(const struct opt_put *put, const char *name);
/* The value that an option has by now, in words; "on" and "off" of a flag.  NULL: none. */
const char *opt_put_text(const struct opt_put *put, const char *option);
/* Whether the value is that of this name. */
bool opt_put_is(const struct opt_put *put, const char *name);
/* Whether the value is a default of the program that the file is for. */
bool opt_put_is_default(const struct opt_put *put);
/* Refuse the value: CKPT_ECONFIG, or CKPT_EUSAGE on the command line, names the place. */
int opt_put_refuse(const struct opt_put *put, struct ckpt_err *err, const char *fmt, ...)
    CKPT_PRINTF(3, 4);
/* The arena in which option values lie. */
struct ckpt_arena *opt_put_arena(const struct opt_put *put);

#endif

/*
 * opt/rows - what opt's rooms share: finding a row by name, giving it a value.
 */
#ifndef CKPT_TOOLS_OPT_ROWS_H
#define CKPT_TOOLS_OPT_ROWS_H

#include "tools/opt/opt.h"

/* The value of a row. */
union opt_value {
    bool        flag;
    char        byte;
    int         count;
    int64_t     i;
    uint64_t    size;
    double      real;
    const char *text;
    size_t      n;                      /* of a list */
};

/* A row in one parse. */
struct opt_slot {
    const struct opt *row;
    char             *values;           /* the struct of its section */
    union opt_value   was;              /* the default */
    bool              given;            /* by the command line or the run file */
};

/* All rows of one parse: the tool's, then the common ones. */
struct opt_table {
    struct opt_slot   *slot;
    size_t             n, n_tool;
    struct ckpt_arena *arena;           /* of lists, and of a run file's texts */
};

union opt_value opt_value_of(const struct opt_slot *s);
/* A value in words, in dst or not.  Lists and letters are "none". */
const char *opt_value_text(char dst[64], enum opt_kind kind, const union opt_value *v);
/* Whether a row was given and, if it is a flag that is off by default, is on. */
bool opt_counts(const struct opt_slot *s);
/* Refuse an option that has no effect beside those given: CKPT_EUSAGE names both. */
int opt_check_rules(const struct opt_table *t, const struct opt_spec *spec, struct ckpt_err *err);
/* A hint to err, which tells of an unknown option: its name here if other programs have it, the
 * nearest name, or nothing. */
void opt_hint_unknown(const struct opt_table *t, const char *name, size_t n, bool in_file,
                      struct ckpt_err *err);

/* By long name of n characters, "_" as "-"; NULL when absent. */
struct opt_slot *opt_find(const struct opt_table *t, const char *name, size_t n);
/* Whether a name is one of some words, "_" as "-" in it. */
bool opt_among(const char *words, const char *name, size_t n);
/* Parse text into the row's value.  where is put in front of a message ("--dtype",
 * "run.yaml:3"). */
int opt_set(const struct opt_table *t, const struct opt_slot *s, const char *text,
            const char *where, struct ckpt_err *err);
/* A flag without a value, or one more of a count. */
void opt_set_flag(const struct opt_slot *s, bool on);
/* True for kinds that take a value. */
bool opt_takes_value(const struct opt *o);

/* The run file's values into rows that are not given.  CKPT_ECONFIG with file and line. */
int opt_run_file(const struct opt_table *t, const char *path, struct ckpt_err *err);
/* A file that an option names: "-" and a pipe become the path of a file with all their bytes, in
 * the arena or for ever; anything else stays. */
int opt_stream(const char **path, struct ckpt_arena *arena, struct ckpt_err *err);
/* The same for all that the options of these names were given. */
int opt_streams(const struct opt_table *t, const char *names, struct ckpt_err *err);
/* --help and --completion on stdout. */
void opt_help(const struct opt_table *t, const struct opt_spec *spec, const struct cli *cli);
int opt_completion(const struct opt_table *t, const struct cli *cli, const char *shell,
                   struct ckpt_err *err);

#endif

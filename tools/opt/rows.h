/*
 * opt/rows - shared by opt's files: find a row by name, set its value.
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
    bool              given;            /* on the command line or in the run file */
};

/* All rows of one parse: the tool's, then the common ones. */
struct opt_table {
    struct opt_slot   *slot;
    size_t             n, n_tool;
    struct ckpt_arena *arena;           /* holds lists, and texts of a run file */
};

union opt_value opt_value_of(const struct opt_slot *s);
/* A value in words, possibly in dst.  Lists and letters are "none". */
const char *opt_value_text(char dst[64], enum opt_kind kind, const union opt_value *v);
/* Whether a row was given and, if it is a flag that is off by default, is on. */
bool opt_counts(const struct opt_slot *s);
/* Refuse an option that has no effect with those given: CKPT_EUSAGE names both. */
int opt_check_rules(const struct opt_table *t, const struct opt_spec *spec, struct ckpt_err *err);
/* For an unknown option, add a hint to err: its name here if other programs have it, else the
 * nearest name, else nothing. */
void opt_hint_unknown(const struct opt_table *t, const char *name, size_t n, bool in_file,
                      struct ckpt_err *err);

/* Find a row by the n characters of its long name, "_" equal to "-"; NULL when absent. */
struct opt_slot *opt_find(const struct opt_table *t, const char *name, size_t n);
/* Whether name is one of the words, "_" in it equal to "-". */
bool opt_among(const char *words, const char *name, size_t n);
/* Parse text into the row's value.  where prefixes a message ("--dtype", "run.yaml:3"). */
int opt_set(const struct opt_table *t, const struct opt_slot *s, const char *text,
            const char *where, struct ckpt_err *err);
/* A flag without a value, or one more of a count. */
void opt_set_flag(const struct opt_slot *s, bool on);
/* True for kinds that take a value. */
bool opt_takes_value(const struct opt *o);

/* Set rows that were not given to the run file's values.  CKPT_ECONFIG with file and line. */
int opt_run_file(const struct opt_table *t, const char *path, struct ckpt_err *err);
/* For a file that an option names: "-" and a pipe are replaced by the path of a file with all
 * their bytes, allocated in the arena or for ever; other paths stay. */
int opt_stream(const char **path, struct ckpt_arena *arena, struct ckpt_err *err);
/* The same for all values of the options with these names. */
int opt_streams(const struct opt_table *t, const char *names, struct ckpt_err *err);
/* --help and --completion on stdout. */
void opt_help(const struct opt_table *t, const struct opt_spec *spec, const struct cli *cli);
int opt_completion(const struct opt_table *t, const struct cli *cli, const char *shell,
                   struct ckpt_err *err);

#endif

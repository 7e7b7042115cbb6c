/*
 * opt/rows - shared by opt's files: find a row by name, set its value.
 */
#ifndef CKPT_TOOLS_OPT_ROWS_H
#define CKPT_TOOLS_OPT_ROWS_H

#include "tools/opt/dialect.h"
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
    const char       *from;             /* the place that gave it: "--seed", "run.yaml:3" */
    const struct opt_input *input;      /* likewise */
};

/* One name with its values, as a place gives them. */
struct opt_entry {
    const char *name;                   /* with dots where it is nested */
    const char *const *value;
    size_t      n;                      /* 0: null */
    const char *where;                  /* "run.yaml:3", "--name" */
    bool        is_default;             /* of the program whose file it is */
    bool        mapping;                /* a mapping or list with members, which value shows */
};

/* A place that gives values: the command line, or a file. */
struct opt_input {
    const struct opt_dialect *dialect;  /* NULL: options by their own names alone */
    bool              is_file;
    bool              firm;             /* values given elsewhere must be the same */
    struct opt_entry *entry;            /* those of a file */
    size_t            n, cap;
    struct opt_input *next;             /* to be taken after this one */
};

/* All rows of one parse: the tool's, then the common ones. */
struct opt_table {
    struct opt_slot   *slot;
    size_t             n, n_tool;
    bool               utf8;            /* all values, those that name files too */
    struct ckpt_arena *arena;           /* holds lists, and texts of a run file */
    const struct opt_dialect *const *dialect;   /* ended by NULL; the first is the command line's */
    const char       **harmless;        /* names that were accepted without effect */
    size_t             n_harmless, cap_harmless;
    struct opt_input  *last;            /* of the list of inputs to be taken at the end */
};

union opt_value opt_value_of(const struct opt_slot *s);
/* Back to the default, not given; the text of `from` stays. */
void opt_put_back(struct opt_slot *s);
/* A value in words, possibly in dst.  Lists and letters are "none". */
const char *opt_value_text(char dst[64], enum opt_kind kind, const union opt_value *v);
/* Whether a row was given and, if it is a flag that is off by default, is on. */
bool opt_counts(const struct opt_slot *s);
/* Refuse an option that has no effect with those given: CKPT_EUSAGE names both. */
int opt_check_rules(const struct opt_table *t, const struct opt_spec *spec, struct ckpt_err *err);
/* For an unknown option, add a hint to err: its name here if other programs have it, else the
 * nearest name, else nothing. */
void opt_hint_unknown(const struct opt_table *t, const struct opt_dialect *d, const char *name,
                      size_t n, bool in_file, struct ckpt_err *err);

/* Find a row by the n characters of its long name, "_" equal to "-"; NULL when absent. */
struct opt_slot *opt_find(const struct opt_table *t, const char *name, size_t n);
/* Whether name is one of the words, "_" in it equal to "-". */
bool opt_among(const char *words, const char *name, size_t n);
/* Parse text into the row's value.  where prefixes a message ("--dtype", "run.yaml:3"). */
int opt_set(const struct opt_table *t, const struct opt_slot *s, const char *text,
            const char *where, struct ckpt_err *err);
/* A flag without a value, or one more of a count. */
void opt_set_flag(const struct opt_slot *s, bool on);
/* 1, 0, or -1 for text that is neither true nor false. */
int opt_truth(const char *text);
/* True for kinds that take a value. */
bool opt_takes_value(const struct opt *o);

/* The row that a place's name has, or NULL: then it is an option's own name, or unknown. */
const struct opt_field *opt_field_of(const struct opt_table *t, const struct opt_input *in,
                                     const char *name, size_t n);
/* Whether an option of its name stands before a row of the first dialect that does nothing. */
bool opt_is_option(const struct opt_table *t, const struct opt_field *f);
/* Set what one name with its values means. */
int opt_take(struct opt_table *t, struct opt_input *in, const struct opt_entry *e,
             struct ckpt_err *err);
/* Take all of a file, and the defaults of the program that it is for. */
int opt_take_all(struct opt_table *t, struct opt_input *in, struct ckpt_err *err);
/* A new place, in the arena; later: to be taken by opt_take_later. */
struct opt_input *opt_input_new(struct opt_table *t, const struct opt_dialect *d, bool later,
                                struct ckpt_err *err);
int opt_take_later(struct opt_table *t, struct ckpt_err *err);

/* Set rows that were not given to the run file's values.  CKPT_ECONFIG with file and line. */
int opt_run_file(struct opt_table *t, const char *path, struct ckpt_err *err);
/* The same for bytes of a file called name. */
int opt_run_text(struct opt_table *t, const char *name, const char *text, size_t n,
                 struct ckpt_err *err);
/* Read a mapping of this dialect's names, the text itself or a file, to be taken at the end. */
int opt_read_inner(struct opt_table *t, const struct opt_dialect *d, const char *value,
                   const char *where, struct ckpt_err *err);
/* For a file that an option names: "-" and a pipe are replaced by the path of a file with all
 * their bytes, allocated in the arena or for ever; other paths stay.  option: NULL for a path of
 * the command line, which is not "-". */
int opt_stream(const char **path, const char *option, struct ckpt_arena *arena,
               struct ckpt_err *err);
/* The same for all values of the options with these names. */
int opt_streams(const struct opt_table *t, const char *names, struct ckpt_err *err);
/* The option of this process that has read standard input, of which nothing is left; or NULL. */
const char *opt_stream_taken(void);
/* --help and --completion on stdout. */
void opt_help(const struct opt_table *t, const struct opt_spec *spec, const struct cli *cli);
int opt_completion(const struct opt_table *t, const struct cli *cli, const char *shell,
                   struct ckpt_err *err);

#endif

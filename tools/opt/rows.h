/*
 * opt/rows - what opt's rooms share: the common rows, finding a row by name, giving it a value.
 */
#ifndef CKPT_TOOLS_OPT_ROWS_H
#define CKPT_TOOLS_OPT_ROWS_H

#include "tools/opt/opt.h"

#define OPT_COMMON 12

/* Rows every tool has; fills row[OPT_COMMON] and returns how many.  help, version, completion
 * and config have no dest. */
size_t opt_common(struct opt row[OPT_COMMON], struct cli *cli, bool run_file);

/* All rows of one parse: the tool's, then the common ones. */
struct opt_table {
    const struct opt *tool, *common;
    size_t            n_tool, n_common;
    struct ckpt_arena *arena;           /* of lists, and of a run file's texts */
    const union opt_value *was;         /* of every row, before parsing */
};

#define OPT_MAX_ROWS 256

/* What a row's dest holds. */
union opt_value {
    bool        flag;
    int         count;
    int64_t     i;
    uint64_t    size;
    double      real;
    const char *text;
    size_t      n;                      /* of a list */
};

union opt_value opt_value_of(const struct opt *o);
/* Whether row i's value is not the default any more. */
bool opt_given(const struct opt_table *t, size_t i);
/* Refuse an option that has no effect beside those given: CKPT_EUSAGE names both. */
int opt_check_rules(const struct opt_table *t, const struct opt_spec *spec, struct ckpt_err *err);
/*
 * A hint to err, which tells of an unknown option: what other programs' users mean by its name,
 * the nearest name, or nothing.  Returns err's code.
 */
int opt_hint_unknown(const struct opt_table *t, const char *name, size_t n, bool in_file,
                     struct ckpt_err *err);

size_t opt_count(const struct opt_table *t);
const struct opt *opt_at(const struct opt_table *t, size_t i);
/* By long name of n characters, "_" as "-"; SIZE_MAX when absent. */
size_t opt_find(const struct opt_table *t, const char *name, size_t n);
/* The long name nearest to a mistyped one, of those a run file takes when in_file, or NULL when
 * none is near. */
const char *opt_nearest(const struct opt_table *t, const char *name, size_t n, bool in_file);
/* Parse text into the row's dest.  where is put in front of a message ("--dtype", "run.yaml:3"). */
int opt_set(const struct opt_table *t, const struct opt *o, const char *text, const char *where,
            struct ckpt_err *err);
bool opt_is_flag(const struct opt *o);      /* given without a value, undone by --no-NAME */
void opt_set_flag(const struct opt *o, bool on);
/* True for kinds that take a value. */
bool opt_takes_value(const struct opt *o);

/* The run file's values into rows that `given` does not name.  CKPT_ECONFIG with file and line. */
int opt_run_file(const struct opt_table *t, const char *path, bool *given, struct ckpt_err *err);
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

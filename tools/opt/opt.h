/*
 * opt - option rows -> parsed values, usage, help, shell completion, run file.
 *
 * One table serves all: the command line, --help, the run file (--config, YAML or JSON), shell
 * completion, and the test that holds the manual against them.  "_" and "-" are the same in a
 * name.  Flags win over the run file.  An unknown option names the nearest known one, by its
 * letters or by what other programs call it.  What a row's dest holds before parsing is the
 * default that --help prints.
 */
#ifndef CKPT_TOOLS_OPT_OPT_H
#define CKPT_TOOLS_OPT_OPT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "libckpt/err.h"
#include "tools/cli.h"

enum opt_kind {
    OPT_FLAG,       /* bool; --no-x undoes it */
    OPT_SWITCH,     /* int: 1, or 0 by --no-x; not given, it stays as it was */
    OPT_COUNT,      /* int, each occurrence adds one */
    OPT_INT,        /* int64_t, in [min, max] */
    OPT_REAL,       /* double, in [min, max] */
    OPT_SIZE,       /* uint64_t bytes: K M G T (powers of 1024), KB MB GB (of 1000) */
    OPT_STR,        /* const char * */
    OPT_PATH,       /* const char *; completed as a file */
    OPT_CHOICE,     /* const char *, one of choices */
    OPT_LIST,       /* struct opt_list, each occurrence appends */
    OPT_GROUP       /* no option: a heading in --help */
};

struct opt_list { const char **item; size_t n; };

struct opt {
    char          short_name;   /* 0 for none */
    const char   *name;         /* long, with "-" */
    const char   *arg;          /* "PATH", NULL for flags */
    enum opt_kind kind;
    void         *dest;         /* holds the default before parsing */
    const char   *help;         /* one sentence, lower case, no full stop */
    const char   *choices;      /* "text json", space-separated, for OPT_CHOICE */
    double        min, max;     /* for numbers; both 0: no bound */
    bool          no_config;    /* not accepted in a run file (help, version, config itself) */
};

/*
 * What an option has to do with others, so that none is ignored in silence.  An option counts as
 * given when its value is not the default.  "to=deepspeed" is the option with that value.
 */
enum opt_rule_kind {
    OPT_ONLY,       /* beside name no other option of the tool counts but those of `others` */
    OPT_BARS,       /* beside name none of `others` counts */
    OPT_NEEDS       /* name counts only with one of `others` */
};

struct opt_rule {
    enum opt_rule_kind kind;
    const char        *name;
    const char        *others;      /* space-separated */
};

struct opt_spec {
    const char       *synopsis;     /* "[-o OUT] INPUT..." */
    const char       *summary;      /* one line: what the tool does to which files */
    const struct opt *row;
    size_t            n;
    bool              run_file;     /* accepts --config FILE */
    const char       *streams;      /* space-separated: options whose files may be "-" or pipes,
                                       which are then read once (OPT_PATH, OPT_LIST) */
    const struct opt_rule *rule;    /* n_rule of them */
    size_t            n_rule;
};

/*
 * Parse.  Positional arguments are moved to (*rest)[0..n_rest).  Common rows (-h --version -q -v
 * --json -0 -j --strict --follow-symlinks) are added by itself and land in cli.
 * Returns 0 to go on; 1 when the program should exit with status 0 (help, version, completion
 * printed to stdout); CKPT_EUSAGE, also when spec->rule forbids what was given, or CKPT_ECONFIG
 * naming file and line.
 */
int opt_parse(const struct opt_spec *spec, struct cli *cli, int argc, char **argv, char ***rest,
              int *n_rest, struct ckpt_err *err);

#endif

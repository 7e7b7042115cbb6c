/*
 * opt - option rows -> parsed values, usage, help, shell completion, run file.
 *
 * One table serves the command line, --help, the run file (--config, YAML or JSON), shell
 * completion, and the test that holds the manual against them.  "_" and "-" are the same in a
 * name.  The command line wins over the run file.  The value that a row's place holds before
 * parsing is the default that --help prints.  The error for an unknown option names the nearest
 * known one, by spelling or by its name in other programs.
 *
 * A table is static and const; its macros name fields of the struct OPT_VALUES, which the file
 * defines above it, and the compiler checks their types:
 *
 *     #define OPT_VALUES struct want
 *     static const struct opt rows[] = {
 *         OPT_PATH("output", "PATH", output, "directory to write", .letter = 'o'),
 *         OPT_INT("world", "RANKS", world, 1, 4096, "ranks to cut for", .absent = "as the input"),
 *     };
 */
#ifndef CKPT_TOOLS_OPT_OPT_H
#define CKPT_TOOLS_OPT_OPT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "libckpt/fail.h"
#include "tools/cli.h"

enum opt_kind {
    OPT_KIND_FLAG,      /* bool; --no-x undoes it */
    OPT_KIND_COUNT,     /* int, each occurrence adds one */
    OPT_KIND_INT,       /* int64_t, in [min, max] */
    OPT_KIND_REAL,      /* double, in [min, max] */
    OPT_KIND_SIZE,      /* uint64_t bytes: K M G T (powers of 1024), KB MB GB (of 1000) */
    OPT_KIND_CHAR,      /* char: one byte, or tab */
    OPT_KIND_TEXT,      /* const char * */
    OPT_KIND_PATH,      /* const char *; completed as a file */
    OPT_KIND_ENUM,      /* const char *, one of choices */
    OPT_KIND_LIST,      /* an array of const char * and its length; each occurrence appends */
    OPT_KIND_HEADING    /* no option: a heading in --help */
};

/* The bytes of a value: a name of a file may be any, other text is UTF-8. */
enum opt_bytes {
    OPT_BYTES_UTF8,
    OPT_BYTES_FILE,     /* a file, or several, perhaps with a word beside: any, but one at least */
    OPT_BYTES_ANY       /* text with such names: patterns, commands, addresses; also none */
};

struct opt_list { const char *const *item; size_t n; };

struct opt {
    enum opt_kind kind;
    char          letter;       /* short name, 0 for none */
    const char   *name;         /* long, with "-" */
    const char   *arg;          /* "PATH", NULL for flags */
    const char   *help;         /* with the unit; lower case, no full stop, no default */
    const char   *absent;       /* the default in words, if the value before parsing cannot show
                                   it */
    const char   *choices;      /* "text json", space-separated, also of a list's items; one that
                                   ends in ":N" has a number there, max at most; of OPT_KIND_INT:
                                   words beside the numbers, the first is -1, the next -2 ... */
    enum opt_bytes bytes;       /* of OPT_KIND_TEXT and OPT_KIND_LIST; OPT_PATH sets it */
    double        min, max;     /* for numbers */
    size_t        at, at_n;     /* offset of the value, and of a list's length, in OPT_VALUES */
    bool          no_config;    /* not accepted in a run file (help, version, config itself) */
};

/* The offset of a field of OPT_VALUES; a compile-time warning where its type is another. */
#define OPT_AT(field, type) \
    (offsetof(OPT_VALUES, field) + 0 * sizeof(1 ? &((OPT_VALUES *)0)->field : (type *)0))

/* The dots stand for further members: .letter = 'o', .absent = "none". */
#define OPT_HEADING(title) {.kind = OPT_KIND_HEADING, .name = "", .help = title}
#define OPT_FLAG(long_name, field, text, ...) \
    {.kind = OPT_KIND_FLAG, .name = long_name, .at = OPT_AT(field, bool), .help = text, \
     __VA_ARGS__}
#define OPT_COUNT(long_name, field, text, ...) \
    {.kind = OPT_KIND_COUNT, .name = long_name, .at = OPT_AT(field, int), .help = text, \
     __VA_ARGS__}
#define OPT_INT(long_name, unit, field, least, most, text, ...) \
    {.kind = OPT_KIND_INT, .name = long_name, .arg = unit, .at = OPT_AT(field, int64_t), \
     .min = least, .max = most, .help = text, __VA_ARGS__}
/* The same in a uint64_t. */
#define OPT_UINT(long_name, unit, field, most, text, ...) \
    {.kind = OPT_KIND_INT, .name = long_name, .arg = unit, .at = OPT_AT(field, uint64_t), \
     .max = most, .help = text, __VA_ARGS__}
#define OPT_REAL(long_name, unit, field, least, most, text, ...) \
    {.kind = OPT_KIND_REAL, .name = long_name, .arg = unit, .at = OPT_AT(field, double), \
     .min = least, .max = most, .help = text, __VA_ARGS__}
#define OPT_SIZE(long_name, field, text, ...) \
    {.kind = OPT_KIND_SIZE, .name = long_name, .arg = "SIZE", .at = OPT_AT(field, uint64_t), \
     .help = text, __VA_ARGS__}
#define OPT_CHAR(long_name, field, text, ...) \
    {.kind = OPT_KIND_CHAR, .name = long_name, .arg = "CHAR", .at = OPT_AT(field, char), \
     .help = text, __VA_ARGS__}
#define OPT_TEXT(long_name, word, field, text, ...) \
    {.kind = OPT_KIND_TEXT, .name = long_name, .arg = word, .at = OPT_AT(field, const char *), \
     .help = text, __VA_ARGS__}
#define OPT_PATH(long_name, word, field, text, ...) \
    {.kind = OPT_KIND_PATH, .name = long_name, .arg = word, .at = OPT_AT(field, const char *), \
     .bytes = OPT_BYTES_FILE, .help = text, __VA_ARGS__}
#define OPT_ENUM(long_name, word, field, words, text, ...) \
    {.kind = OPT_KIND_ENUM, .name = long_name, .arg = word, .at = OPT_AT(field, const char *), \
     .choices = words, .help = text, __VA_ARGS__}
/* The name of a device.  The bound tells a slip from a GPU that is not there; no host has more. */
#define OPT_DEVICE(field, text, ...) \
    OPT_ENUM("device", "NAME", field, "auto cpu cuda cuda:N", text, .max = 1023, __VA_ARGS__)
#define OPT_LIST_OF(long_name, word, items, length, text, ...) \
    {.kind = OPT_KIND_LIST, .name = long_name, .arg = word, .help = text, \
     .at = OPT_AT(items, const char *const *), .at_n = OPT_AT(length, size_t), __VA_ARGS__}
#define OPT_LIST(long_name, word, field, ...) \
    OPT_LIST_OF(long_name, word, field.item, field.n, __VA_ARGS__)

/* Rows, and the struct that their values lie in. */
struct opt_section { const struct opt *row; size_t n; void *values; };
#define OPT_SECTION(rows, values) {rows, sizeof(rows) / sizeof((rows)[0]), values}

/*
 * Which options have an effect together, so that none is silently ignored.  An option counts when
 * it is given; a flag that is off by default counts when it is given and on.  "to=deepspeed" is
 * the option with that value, given or not.
 */
enum opt_rule_kind {
    OPT_ONLY,       /* with name no other option of the tool counts, except `others` */
    OPT_BARS,       /* with name none of `others` counts */
    OPT_NEEDS,      /* name counts only with one of `others` */
    OPT_YIELDS      /* as OPT_BARS, but those that a run file gives do not count instead */
};

struct opt_rule {
    enum opt_rule_kind kind;
    const char        *name;        /* of OPT_NEEDS, or several, space-separated */
    const char        *others;      /* space-separated */
};

struct opt_dialect;

struct opt_spec {
    const char       *synopsis;     /* "[-o OUT] INPUT..." */
    const char       *summary;      /* one line: what the tool does to which files */
    struct opt_section section[7];  /* one with 0 rows ends them */
    const struct opt_dialect *const *dialect;   /* other programs whose names are read, ended by
                                       NULL; those of the first on the command line too, where
                                       such a tool takes no positional arguments */
    const char       *streams;      /* space-separated: options whose files may be "-" or pipes,
                                       which are then read once (paths, lists) */
    bool              writes_values; /* into files of text: those of paths are UTF-8 too */
    const struct opt_rule *rule;    /* n_rule of them */
    size_t            n_rule;
};

/*
 * Parse.  Positional arguments are moved to (*rest)[0..n_rest).  Common rows (-h --version -q -v
 * --json -0 -j --strict --follow-symlinks --config) are added and land in cli.  given (or NULL)
 * gets the options that count as given, with "_" for "-", in cli's arena.
 * Returns 0 to go on; 1 when the program should exit with status 0 (help, version, completion
 * printed to stdout); CKPT_EUSAGE, also when spec->rule forbids the combination, or CKPT_ECONFIG
 * naming file and line.
 */
int opt_parse(const struct opt_spec *spec, struct cli *cli, int argc, char **argv, char ***rest,
              int *n_rest, struct opt_list *given, struct ckpt_err *err);
/* Whether given, as filled by opt_parse, has an option ("top_k"). */
bool opt_has(const struct opt_list *given, const char *name);
/* Names that were accepted though they have no effect; in cli's arena. */
struct opt_list opt_harmless(const struct cli *cli);
/* Print each option of the tool with its value and the place that gave it, as a run file;
 * defaults as comments. */
void opt_print_values(const struct cli *cli);
/* Print the names of other programs with what becomes of them:
 * PROGRAM<TAB>NAME<TAB>STATE<TAB>TEXT. */
void opt_print_fields(const struct cli *cli);
/* "top_k 50": the value of each option of the tool after parsing cli's arguments, except those
 * named in without (separated by blanks), and except lists; in cli's arena. */
int opt_values(struct opt_list *out, struct cli *cli, const char *without, struct ckpt_err *err);

#endif

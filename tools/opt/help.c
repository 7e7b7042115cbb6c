/* opt/help - --help and shell completion from the rows; see opt/rows.h. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tools/opt/rows.h"
#include "tools/term.h"

#define COLUMN 34
#define NARROW 64               /* narrower than this, help stands below its option */
#define INDENT 10
#define WIDEST 100              /* longer lines are hard to read */

/* Columns of help on this terminal. */
struct page {
    size_t column, width;
    bool   bold;
};

static struct page page_of(void)
{
    size_t width = (size_t)term_width(STDOUT_FILENO);

    return (struct page){width < NARROW ? INDENT : COLUMN, width < WIDEST ? width : WIDEST,
                         term_bold(STDOUT_FILENO)};
}

/* Print the words of text, the first at column `at`, wrapped at the page's width; later lines
 * begin at left.  Gives the column after the last. */
static size_t wrapped(const struct page *p, size_t left, const char *text, size_t at)
{
    bool first = at == left;

    while (*text) {
        size_t n = strcspn(text, " ");

        if (!first && at + 1 + n > p->width) {
            printf("\n%*s", (int)left, "");
            at = left;
        } else if (!first) {
            putchar(' ');
            at++;
        }
        printf("%.*s", (int)n, text);
        at += n;
        text += n + (text[n] == ' ');
        first = false;
    }
    return at;
}

/* The default in words: the value in the row's struct before parsing, unless the row has its own
 * text. */
static const char *default_text(char dst[64], const struct opt_slot *s)
{
    return s->row->absent ? s->row->absent : opt_value_text(dst, s->row->kind, &s->was);
}

static void print_row(const struct page *p, const struct opt_slot *s)
{
    const struct opt *o = s->row;
    char left[128], word[64], note[128];
    size_t at = p->column;
    int n;

    if (o->kind == OPT_KIND_HEADING) {
        printf(p->bold ? "\n\033[1m%s:\033[0m\n" : "\n%s:\n", o->help);
        return;
    }
    n = o->letter ? snprintf(left, sizeof left, "  -%c, --%s", o->letter, o->name)
                  : snprintf(left, sizeof left, "      --%s", o->name);
    if (o->arg)
        n += snprintf(left + n, sizeof left - (size_t)n, " %s", o->arg);
    printf("%s", left);
    if ((size_t)n + 1 >= p->column)
        printf("\n%*s", (int)p->column, "");
    else
        printf("%*s", (int)p->column - n, "");
    at = wrapped(p, p->column, o->help, at);
    if (!o->no_config) {
        snprintf(note, sizeof note, "(default: %s)", default_text(word, s));
        if (at + 1 + strlen(note) > p->width) {     /* not broken, if a line can hold it */
            printf("\n%*s", (int)p->column, "");
            at = p->column;
        }
        wrapped(p, p->column, note, at);
    }
    if (o->choices && o->kind != OPT_KIND_INT) {
        printf("\n%*sone of: ", (int)p->column, "");
        wrapped(p, p->column + 8, o->choices, p->column + 8);
    }
    putchar('\n');
}

void opt_help(const struct opt_table *t, const struct opt_spec *spec, const struct cli *cli)
{
    struct page p = page_of();
    char line[300];
    size_t at = (size_t)printf("usage: %s", cli->tool);

    wrapped(&p, at + 1, spec->synopsis, at);
    printf("\n\n");
    wrapped(&p, 0, spec->summary, 0);
    putchar('\n');
    if (t->slot[0].row->kind != OPT_KIND_HEADING)
        printf("\nOptions:\n");
    for (size_t i = 0; i < t->n; i++)
        print_row(&p, &t->slot[i]);
    putchar('\n');
    snprintf(line, sizeof line,
             "Flags are turned off by --no-NAME; \"_\" and \"-\" are the same in a name.  "
             "See %s(1).", cli->tool);
    wrapped(&p, 0, line, 0);
    putchar('\n');
}

/* Print text inside a shell's single quotes. */
static void quoted(const char *s)
{
    for (; *s; s++)
        if (*s == '\'')
            printf("'\\''");
        else
            putchar(*s);
}

/* Turn "ckpt-merge" into a valid name of a shell function. */
static void function_name(const char *tool)
{
    for (putchar('_'); *tool; tool++)
        putchar(*tool == '-' ? '_' : *tool);
}

/* The next name of the first dialect, from i, that has an effect and is none of an option's. */
static const struct opt_field *alias(const struct opt_table *t, size_t *i)
{
    const struct opt_dialect *d = t->dialect ? t->dialect[0] : NULL;

    while (d && *i < d->n_field) {
        const struct opt_field *f = &d->field[(*i)++];

        if (f->state == OPT_STATE_DOES && !strchr(f->name, '.') &&
            !opt_find(t, f->name, strlen(f->name)))
            return f;
    }
    return NULL;
}

/* Print the values of an option, as a case of bash's. */
static void bash_value(const struct opt *o)
{
    if (o->letter)
        printf("    -%c|--%s)", o->letter, o->name);
    else
        printf("    --%s)", o->name);
    if (o->choices)
        printf(" COMPREPLY=($(compgen -W '%s' -- \"$cur\"));", o->choices);
    else if (o->kind != OPT_KIND_PATH && o->kind != OPT_KIND_LIST)
        printf(" compopt +o default 2>/dev/null;");     /* no file has that name */
    printf(" return ;;\n");
}

/* bash splits "--to=hf" into three words. */
static void bash(const struct opt_table *t, const struct cli *cli)
{
    const struct opt_field *f;

    function_name(cli->tool);
    printf("() {\n  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]}\n"
           "  COMPREPLY=()\n"
           "  if [ \"$cur\" = '=' ]; then cur=; elif [ \"$prev\" = '=' ]; then"
           " prev=${COMP_WORDS[COMP_CWORD-2]}; fi\n"
           "  case $prev in\n");
    for (size_t i = 0; i < t->n; i++)
        if (opt_takes_value(t->slot[i].row))
            bash_value(t->slot[i].row);
    printf("  esac\n  case $cur in\n    -*) COMPREPLY=($(compgen -W '");
    for (size_t i = 0; i < t->n; i++) {
        const struct opt *o = t->slot[i].row;

        if (o->kind != OPT_KIND_HEADING)
            printf("--%s ", o->name);
        if (o->kind == OPT_KIND_FLAG && !o->no_config)
            printf("--no-%s ", o->name);
    }
    for (size_t i = 0; (f = alias(t, &i)) != NULL;)
        printf("--%s ", f->name);
    printf("' -- \"$cur\")) ;;\n  esac\n}\ncomplete -o default -F ");
    function_name(cli->tool);
    printf(" %s\n", cli->tool);
}

/* Brackets and colons have a meaning in zsh's specifications. */
static void zsh_text(const char *s)
{
    char one[2] = {0};

    for (; *s; s++) {
        one[0] = *s;
        if (strchr("[]:", *s))
            putchar('\\');
        quoted(one);
    }
}

static void zsh(const struct opt_table *t, const struct cli *cli)
{
    const struct opt_field *f;

    printf("#compdef %s\n_arguments \\\n", cli->tool);
    for (size_t i = 0; i < t->n; i++) {
        const struct opt *o = t->slot[i].row;

        if (o->kind == OPT_KIND_HEADING)
            continue;
        printf("  '%s--%s%s[", o->kind == OPT_KIND_LIST ? "*" : "", o->name,
               opt_takes_value(o) ? "=" : "");
        zsh_text(o->help);
        printf("]");
        if (o->choices)
            printf(":%s:(%s)", o->arg, o->choices);
        else if (opt_takes_value(o))
            printf(":%s:%s", o->arg,
                   o->kind == OPT_KIND_PATH || o->kind == OPT_KIND_LIST ? "_files" : "");
        printf("' \\\n");
    }
    for (size_t i = 0; (f = alias(t, &i)) != NULL;) {
        printf("  '--%s=[", f->name);
        zsh_text(f->option ? f->option : f->says);
        printf("]:value:_files' \\\n");
    }
    printf("  '*:path:_files'\n");
}

static void fish(const struct opt_table *t, const struct cli *cli)
{
    const struct opt_field *f;

    for (size_t i = 0; i < t->n; i++) {
        const struct opt *o = t->slot[i].row;

        if (o->kind == OPT_KIND_HEADING)
            continue;
        printf("complete -c %s -l %s", cli->tool, o->name);
        if (o->letter)
            printf(" -s %c", o->letter);
        if (o->choices)
            printf(" -x -a '%s'", o->choices);
        else if (opt_takes_value(o))
            printf(" -r");
        printf(" -d '");
        for (const char *s = o->help; *s; s++)
            printf(strchr("'\\", *s) ? "\\%c" : "%c", *s);
        printf("'\n");
    }
    for (size_t i = 0; (f = alias(t, &i)) != NULL;)
        printf("complete -c %s -l %s -r\n", cli->tool, f->name);
}

int opt_completion(const struct opt_table *t, const struct cli *cli, const char *shell,
                   struct ckpt_err *err)
{
    static const struct {
        const char *name;
        void      (*print)(const struct opt_table *t, const struct cli *cli);
    } shells[] = {{"bash", bash}, {"zsh", zsh}, {"fish", fish}};

    for (size_t i = 0; i < sizeof shells / sizeof shells[0]; i++)
        if (strcmp(shells[i].name, shell) == 0) {
            shells[i].print(t, cli);
            return 0;
        }
    return ckpt_fail(err, CKPT_ESTATE, "no completion for %s", shell);
}

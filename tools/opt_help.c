/* opt_help - --help and shell completion from the rows; see opt_rows.h. */
#include <stdio.h>
#include <string.h>

#include "tools/opt_rows.h"

#define COLUMN 34
#define WIDTH  96

/* Words of text from COLUMN on, broken before WIDTH. */
static void wrapped(const char *text, size_t at)
{
    size_t col = at;

    while (*text) {
        size_t n = strcspn(text, " ");

        if (col > COLUMN && col + 1 + n > WIDTH) {
            printf("\n%*s", COLUMN, "");
            col = COLUMN;
        } else if (col > COLUMN) {
            putchar(' ');
            col++;
        }
        printf("%.*s", (int)n, text);
        col += n;
        text += n + (text[n] == ' ');
    }
}

/* The default, as it stands before parsing changed it, cannot be told here: rows hold values. */
static void print_row(const struct opt *o)
{
    char left[128];
    int n;

    if (o->kind == OPT_GROUP) {
        printf("\n%s:\n", o->help);
        return;
    }
    n = o->short_name ? snprintf(left, sizeof left, "  -%c, --%s", o->short_name, o->name)
                      : snprintf(left, sizeof left, "      --%s", o->name);
    if (o->arg)
        n += snprintf(left + n, sizeof left - (size_t)n, " %s", o->arg);
    printf("%s", left);
    if (n >= COLUMN - 1)
        printf("\n%*s", COLUMN, "");
    else
        printf("%*s", COLUMN - n, "");
    wrapped(o->help, COLUMN);
    if (o->kind == OPT_CHOICE && o->choices) {
        printf("\n%*s", COLUMN, "");
        wrapped("one of:", COLUMN);
        wrapped(o->choices, COLUMN + 7);
    }
    putchar('\n');
}

void opt_help(const struct opt_table *t, const struct opt_spec *spec, const struct cli *cli)
{
    printf("usage: %s %s\n\n%s\n", cli->tool, spec->synopsis, spec->summary);
    if (t->n_tool && t->tool[0].kind != OPT_GROUP)
        printf("\nOptions:\n");
    for (size_t i = 0; i < opt_count(t); i++)
        print_row(opt_at(t, i));
    printf("\nFlags are undone by --no-NAME; \"_\" and \"-\" are the same in a name.  See %s(1).\n",
           cli->tool);
}

/* Text inside single quotes of a shell. */
static void quoted(const char *s)
{
    for (; *s; s++)
        if (*s == '\'')
            printf("'\\''");
        else
            putchar(*s);
}

/* "ckpt-merge" as a shell's function may be called. */
static void function_name(const char *tool)
{
    for (putchar('_'); *tool; tool++)
        putchar(*tool == '-' ? '_' : *tool);
}

/* What may follow an option, as a case of bash's. */
static void bash_value(const struct opt *o)
{
    if (o->short_name)
        printf("    -%c|--%s)", o->short_name, o->name);
    else
        printf("    --%s)", o->name);
    if (o->kind == OPT_CHOICE && o->choices)
        printf(" COMPREPLY=($(compgen -W '%s' -- \"$cur\"));", o->choices);
    else if (o->kind != OPT_PATH && o->kind != OPT_LIST)
        printf(" compopt +o default 2>/dev/null;");     /* no file has that name */
    printf(" return ;;\n");
}

/* bash splits "--to=hf" into three words. */
static void bash(const struct opt_table *t, const struct cli *cli)
{
    function_name(cli->tool);
    printf("() {\n  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]}\n"
           "  COMPREPLY=()\n"
           "  if [ \"$cur\" = '=' ]; then cur=; elif [ \"$prev\" = '=' ]; then"
           " prev=${COMP_WORDS[COMP_CWORD-2]}; fi\n"
           "  case $prev in\n");
    for (size_t i = 0; i < opt_count(t); i++)
        if (opt_takes_value(opt_at(t, i)))
            bash_value(opt_at(t, i));
    printf("  esac\n  case $cur in\n    -*) COMPREPLY=($(compgen -W '");
    for (size_t i = 0; i < opt_count(t); i++) {
        const struct opt *o = opt_at(t, i);

        if (o->kind != OPT_GROUP)
            printf("--%s ", o->name);
        if (opt_is_flag(o) && o->dest)
            printf("--no-%s ", o->name);
    }
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
    printf("#compdef %s\n_arguments \\\n", cli->tool);
    for (size_t i = 0; i < opt_count(t); i++) {
        const struct opt *o = opt_at(t, i);

        if (o->kind == OPT_GROUP)
            continue;
        printf("  '%s--%s%s[", o->kind == OPT_LIST ? "*" : "", o->name,
               opt_takes_value(o) ? "=" : "");
        zsh_text(o->help);
        printf("]");
        if (o->kind == OPT_CHOICE && o->choices)
            printf(":%s:(%s)", o->arg, o->choices);
        else if (opt_takes_value(o))
            printf(":%s:%s", o->arg, o->kind == OPT_PATH || o->kind == OPT_LIST ? "_files" : "");
        printf("' \\\n");
    }
    printf("  '*:path:_files'\n");
}

static void fish(const struct opt_table *t, const struct cli *cli)
{
    for (size_t i = 0; i < opt_count(t); i++) {
        const struct opt *o = opt_at(t, i);

        if (o->kind == OPT_GROUP)
            continue;
        printf("complete -c %s -l %s", cli->tool, o->name);
        if (o->short_name)
            printf(" -s %c", o->short_name);
        if (o->kind == OPT_CHOICE && o->choices)
            printf(" -x -a '%s'", o->choices);
        else if (opt_takes_value(o))
            printf(" -r");
        printf(" -d '");
        for (const char *s = o->help; *s; s++)
            printf(strchr("'\\", *s) ? "\\%c" : "%c", *s);
        printf("'\n");
    }
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
    return ckpt_fail(err, CKPT_EUSAGE, "--completion: \"%s\" is none of: bash zsh fish", shell);
}

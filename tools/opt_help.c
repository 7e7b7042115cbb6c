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
        putchar(' ');
        wrapped(o->choices, COLUMN + 8);
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

static void bash(const struct opt_table *t, const struct cli *cli)
{
    printf("complete -o default -W '");
    for (size_t i = 0; i < opt_count(t); i++)
        if (opt_at(t, i)->kind != OPT_GROUP)
            printf("--%s ", opt_at(t, i)->name);
    printf("' %s\n", cli->tool);
}

/* Single quotes and brackets have a meaning in zsh's specifications. */
static void zsh_text(const char *s)
{
    for (; *s; s++)
        if (*s == '\'')
            printf("'\\''");
        else if (strchr("[]:", *s))
            printf("\\%c", *s);
        else
            putchar(*s);
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
        printf(" -d \"%s\"\n", o->help);
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

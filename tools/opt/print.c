/* opt/print - the values that a parse came to, and the names of other programs; see opt.h. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include <jansson.h>

#include "libckpt/mem.h"
#include "tools/opt/rows.h"

struct opt_list opt_harmless(const struct cli *cli)
{
    const struct opt_table *t = cli->options;

    return (struct opt_list){t->harmless, t->n_harmless};
}

/* Print a text as YAML and JSON have it, in quotes where it could be taken for something else. */
static void print_text(const char *text)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "_-./+";
    json_t *word = NULL;
    char *quoted = NULL;

    if (*text && !strchr("-+.", *text) && !text[strspn(text, plain)] && opt_truth(text) < 0 &&
        strcmp(text, "null") != 0) {
        fputs(text, stdout);
        return;
    }
    if ((word = json_string_nocheck(text)))
        quoted = json_dumps(word, JSON_ENCODE_ANY);
    fputs(quoted ? quoted : "\"\"", stdout);
    free(quoted);
    json_decref(word);
}

static void print_list(const struct opt_slot *s)
{
    const char *const *item = *(const char *const **)(void *)(s->values + s->row->at);
    size_t n = opt_value_of(s).n;

    putchar('[');
    for (size_t i = 0; i < n; i++) {
        fputs(i ? ", " : "", stdout);
        print_text(item[i]);
    }
    putchar(']');
}

/* With a point: "1e-06" is a word to readers of YAML 1.1. */
static void print_real(const union opt_value *v)
{
    char word[64];
    const char *e;

    opt_value_text(word, OPT_KIND_REAL, v);
    e = strchr(word, '.') ? NULL : strchr(word, 'e');
    if (e)
        printf("%.*s.0%s", (int)(e - word), word, e);
    else
        fputs(word, stdout);
}

static void print_value(const struct opt_slot *s)
{
    union opt_value v = opt_value_of(s);
    char word[64];

    switch (s->row->kind) {
    case OPT_KIND_LIST:
        print_list(s);
        break;
    case OPT_KIND_FLAG:
        fputs(v.flag ? "true" : "false", stdout);
        break;
    case OPT_KIND_CHAR:
        if (v.byte)
            print_text(v.byte == '\t' ? "tab" : (char[2]){v.byte});
        break;
    case OPT_KIND_TEXT:
    case OPT_KIND_PATH:
    case OPT_KIND_ENUM:
        if (v.text)
            print_text(v.text);
        break;
    case OPT_KIND_REAL:
        if (isfinite(v.real))
            print_real(&v);
        break;
    case OPT_KIND_INT:
        if (v.i < 0 && s->row->choices && s->row->min >= 0) {
            fputs(s->row->choices, stdout);
            break;
        }
        /* fall through */
    default:
        fputs(opt_value_text(word, s->row->kind, &v), stdout);
    }
}

/* Options that could not be in a run file, and paths of streams that are read by now, are left
 * out; a value that stands for "none" is null. */
void opt_print_values(const struct cli *cli)
{
    const struct opt_table *t = cli->options;

    for (const struct opt_slot *s = t->slot; s < t->slot + t->n_tool; s++) {
        if (s->row->kind == OPT_KIND_HEADING) {
            printf("# %s\n", s->row->help);
            continue;
        }
        if (s->row->no_config)
            continue;
        if (!s->from)           /* a default is no choice: other options may exclude it */
            fputs("# ", stdout);
        for (const char *c = s->row->name; *c; c++)
            putchar(*c == '-' ? '_' : *c);
        fputs(": ", stdout);
        print_value(s);
        printf("  # %s\n", s->from ? s->from : "default");
    }
}

static bool is_listed(const struct opt_table *t, const struct opt_dialect *d)
{
    for (const struct opt_dialect *const *all = t->dialect; *all; all++)
        if (*all == d)
            return true;
    return false;
}

static void print_field(const struct opt_table *t, const char *program, const char *above,
                        const struct opt_field *f)
{
    static const char *const states[] = {"does", "harmless", "not done"};
    const struct opt_slot *s = !*above && opt_is_option(t, f)
                                   ? opt_find(t, f->name, strlen(f->name)) : NULL;

    if (s) {
        printf("%s\t%s\tdoes\t--%s\n", program, f->name, s->row->name);
        return;
    }
    printf("%s\t%s%s%s\t%s\t", program, above, *above ? "." : "", f->name, states[f->state]);
    if (f->option)
        printf("--%s%s", f->option, f->says ? "; " : "");
    printf("%s\n", f->says ? f->says : "");
}

void opt_print_fields(const struct cli *cli)
{
    const struct opt_table *t = cli->options;

    for (const struct opt_dialect *const *all = t->dialect; all && *all; all++)
        for (const struct opt_field *f = (*all)->field; f < (*all)->field + (*all)->n_field; f++) {
            const struct opt_dialect *in = f->inner;

            print_field(t, (*all)->name, "", f);
            if (in && !is_listed(t, in))
                for (size_t i = 0; i < in->n_field; i++)
                    print_field(t, (*all)->name, f->name, &in->field[i]);
        }
}

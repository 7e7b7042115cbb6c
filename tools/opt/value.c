/* opt/value - rows, and text into their values; see opt/rows.h. */
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/mem.h"
#include "tools/near.h"
#include "tools/opt/rows.h"

size_t opt_common(struct opt row[OPT_COMMON], struct cli *cli, bool run_file)
{
    const struct opt all[OPT_COMMON - 1] = {
        {0, "common-options", NULL, OPT_GROUP, NULL, "Common", NULL, 0, 0, true},
        {'j', "jobs", "N", OPT_INT, NULL, "workers; 0: by CPUs", NULL, 0, 4096, false},
        {'0', "null", NULL, OPT_FLAG, &cli->nul, "end lines of stdin and stdout with NUL", NULL, 0,
         0, false},
        {0, "json", NULL, OPT_FLAG, &cli->json, "print JSON", NULL, 0, 0, false},
        {0, "strict", NULL, OPT_FLAG, &cli->strict, "warnings are errors", NULL, 0, 0, false},
        {0, "follow-symlinks", NULL, OPT_FLAG, &cli->follow, "follow symbolic links", NULL, 0, 0,
         false},
        {'q', "quiet", NULL, OPT_FLAG, &cli->quiet, "errors only", NULL, 0, 0, false},
        {'v', "verbose", NULL, OPT_COUNT, &cli->verbose, "say more; twice for debugging", NULL, 0,
         0, false},
        {0, "completion", "SHELL", OPT_CHOICE, NULL, "print completion for a shell",
         "bash zsh fish", 0, 0, true},
        {'h', "help", NULL, OPT_FLAG, NULL, "print this", NULL, 0, 0, true},
        {0, "version", NULL, OPT_FLAG, NULL, "print the version", NULL, 0, 0, true},
    };

    memcpy(row, all, sizeof all);
    if (run_file)
        row[OPT_COMMON - 1] = (struct opt){0, "config", "FILE", OPT_PATH, NULL,
                                           "options from a YAML or JSON file", NULL, 0, 0, true};
    return run_file ? OPT_COMMON : OPT_COMMON - 1;
}

size_t opt_count(const struct opt_table *t) { return t->n_tool + t->n_common; }

const struct opt *opt_at(const struct opt_table *t, size_t i)
{
    return i < t->n_tool ? &t->tool[i] : &t->common[i - t->n_tool];
}

static char dashed(char c) { return c == '_' ? '-' : c; }

size_t opt_find(const struct opt_table *t, const char *name, size_t n)
{
    for (size_t i = 0; i < opt_count(t); i++) {
        const struct opt *o = opt_at(t, i);
        size_t k = 0;

        if (o->kind == OPT_GROUP || strlen(o->name) != n)
            continue;
        while (k < n && dashed(name[k]) == o->name[k])
            k++;
        if (k == n)
            return i;
    }
    return SIZE_MAX;
}

/* The shortest name that has this one in it as whole words: "epochs" of num-train-epochs. */
static const char *holding(const struct opt_table *t, const char *name, size_t n, bool in_file)
{
    const char *best = NULL;

    for (size_t i = 0; n >= 3 && i < opt_count(t); i++) {
        const struct opt *o = opt_at(t, i);

        if (o->kind == OPT_GROUP || (in_file && o->no_config))
            continue;
        for (const char *p = o->name; p; p = strchr(p, '-'), p = p ? p + 1 : NULL) {
            size_t k = 0;

            while (k < n && p[k] && dashed(name[k]) == p[k])
                k++;
            if (k == n && (!p[k] || p[k] == '-') && (!best || strlen(o->name) < strlen(best)))
                best = o->name;
        }
    }
    return best;
}

const char *opt_nearest(const struct opt_table *t, const char *name, size_t n, bool in_file)
{
    const char *best = NULL;
    size_t least = n / 3 + 2;

    for (size_t i = 0; i < opt_count(t); i++) {
        const struct opt *o = opt_at(t, i);
        bool none = o->kind == OPT_GROUP || (in_file && o->no_config);
        size_t d = none ? SIZE_MAX : near_edits(name, n, o->name);

        if (d < least) {
            least = d;
            best = o->name;
        }
    }
    return best ? best : holding(t, name, n, in_file);
}

bool opt_takes_value(const struct opt *o)
{
    return !opt_is_flag(o) && o->kind != OPT_COUNT && o->kind != OPT_GROUP;
}

bool opt_is_flag(const struct opt *o) { return o->kind == OPT_FLAG || o->kind == OPT_SWITCH; }

void opt_set_flag(const struct opt *o, bool on)
{
    if (o->kind == OPT_SWITCH)
        *(int *)o->dest = on;
    else
        *(bool *)o->dest = on;
}

static int bad(struct ckpt_err *err, const char *where, const char *text, const char *want)
{
    return ckpt_fail(err, CKPT_EUSAGE, "%s: \"%s\" is %s", where, text, want);
}

static int set_number(const struct opt *o, const char *text, const char *where,
                      struct ckpt_err *err)
{
    bool bounded = o->min != 0 || o->max != 0;
    char *end;
    double v;

    errno = 0;
    if (isspace((unsigned char)text[0]))
        return bad(err, where, text, "no number");
    if (o->kind == OPT_INT) {
        long long i = strtoll(text, &end, 10);

        v = (double)i;
        if (end == text || *end || errno)
            return bad(err, where, text, "no whole number");
        if (!bounded || (v >= o->min && v <= o->max))
            *(int64_t *)o->dest = i;
    } else {
        v = strtod(text, &end);
        if (end == text || *end || !isfinite(v))
            return bad(err, where, text, "no number");
        if (!bounded || (v >= o->min && v <= o->max))
            *(double *)o->dest = v;
    }
    if (bounded && (v < o->min || v > o->max))
        return ckpt_fail(err, CKPT_EUSAGE, "%s: %s is out of range, %.15g to %.15g wanted", where,
                         text, o->min, o->max);
    return 0;
}

/* Bytes with a suffix: K M G T of 1024, KB MB GB TB of 1000. */
static int set_size(const struct opt *o, const char *text, const char *where,
                    struct ckpt_err *err)
{
    static const char letters[] = "KMGT", want[] = "no size; 5GB, 512M and 4096 are";
    const char *letter;
    double unit = 1, v;
    char *end;

    v = strtod(text, &end);
    if (end == text || !(v >= 0) || isspace((unsigned char)text[0]))
        return bad(err, where, text, want);
    letter = *end ? strchr(letters, *end >= 'a' ? *end - 32 : *end) : NULL;
    if (letter) {
        bool decimal = end[1] == 'B' || end[1] == 'b';

        for (const char *p = letters; p <= letter; p++)
            unit *= decimal ? 1000 : 1024;
        end += decimal ? 2 : end[1] == 'i' && end[2] == 'B' ? 3 : 1;
    }
    if (*end || v * unit >= 9.2e18)
        return bad(err, where, text, want);
    *(uint64_t *)o->dest = (uint64_t)(v * unit);
    return 0;
}

static int set_choice(const struct opt *o, const char *text, const char *where,
                      struct ckpt_err *err)
{
    size_t n = strlen(text);

    for (const char *p = o->choices; p && *p && n;) {
        size_t k = strcspn(p, " ");

        if (k == n && strncmp(p, text, n) == 0) {
            if (o->dest)
                *(const char **)o->dest = text;
            return 0;
        }
        p += k + (p[k] == ' ');
    }
    return ckpt_fail(err, CKPT_EUSAGE, "%s: \"%s\" is none of: %s", where, text, o->choices);
}

static int add_to_list(const struct opt_table *t, struct opt_list *l, const char *text,
                       struct ckpt_err *err)
{
    const char **grown = ckpt_arena_alloc(t->arena, l->n + 1, sizeof *l->item);

    if (!grown)
        return ckpt_nomem(err, (l->n + 1) * sizeof *grown);
    if (l->n)
        memcpy(grown, l->item, l->n * sizeof *grown);
    l->item = grown;
    l->item[l->n++] = text;
    return 0;
}

int opt_set(const struct opt_table *t, const struct opt *o, const char *text, const char *where,
            struct ckpt_err *err)
{
    switch (o->kind) {
    case OPT_INT:
    case OPT_REAL:   return set_number(o, text, where, err);
    case OPT_SIZE:   return set_size(o, text, where, err);
    case OPT_CHOICE: return set_choice(o, text, where, err);
    case OPT_LIST:   return add_to_list(t, o->dest, text, err);
    default:
        *(const char **)o->dest = text;
        return 0;
    }
}

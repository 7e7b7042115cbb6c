/* opt/take - what a name of another program, or an option's own, sets; see opt/dialect.h. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/err.h"
#include "libckpt/mem.h"
#include "tools/opt/rows.h"

/* -- rows of other programs ------------------------------------------------------------------- */

static bool same_name(const char *name, size_t n, const char *row)
{
    for (size_t i = 0; i < n; i++)
        if (!row[i] || (name[i] == '-' ? '_' : name[i]) != row[i])
            return false;
    return row[n] == '\0';
}

/* The row of a name, "_" equal to "-", in the dialect or its base; NULL when there is none. */
static const struct opt_field *find_field(const struct opt_dialect *d, const char *name, size_t n)
{
    for (; d; d = d->base)
        for (size_t i = 0; i < d->n_field; i++)
            if (same_name(name, n, d->field[i].name))
                return &d->field[i];
    return NULL;
}

bool opt_dialect_nests(const struct opt_dialect *d, const char *name, size_t n)
{
    for (; d; d = d->base)
        for (size_t i = 0; i < d->n_field; i++)
            if (strncmp(d->field[i].name, name, n) == 0 && d->field[i].name[n] == '.')
                return true;
    return false;
}

bool opt_dialect_tells(const struct opt_dialect *d, const char *name, size_t n)
{
    char word[64];

    for (const char *p = d->tells; p && *p; p += strspn(p, " ")) {
        snprintf(word, sizeof word, "%.*s", (int)strcspn(p, " "), p);
        if (same_name(name, n, word))
            return true;
        p += strcspn(p, " ");
    }
    return false;
}

/* -- values ----------------------------------------------------------------------------------- */

/* Whether two texts say the same value: as numbers, as truths, or letter by letter. */
static bool same_value(const char *a, size_t n, const char *b)
{
    char word[64], *end_a, *end_b;
    int truth = opt_truth(b);
    double x, y;

    if (n >= sizeof word)
        return strlen(b) == n && strncmp(a, b, n) == 0;
    memcpy(word, a, n);
    word[n] = '\0';
    if (strcmp(word, b) == 0 || (truth >= 0 && opt_truth(word) == truth))
        return true;
    x = strtod(word, &end_a);
    y = strtod(b, &end_b);
    return end_a != word && !*end_a && end_b != b && !*end_b && x == y;
}

/* What a row's table makes of a value: its own text, another, or NULL where nothing is to be
 * set.  Out of memory gives NULL and err. */
static const char *translate(const struct opt_table *t, const struct opt_field *f,
                             const char *value, bool *nothing, struct ckpt_err *err)
{
    *nothing = false;
    for (const char *p = f->values; p && *p; p += strspn(p, " ")) {
        size_t k = strcspn(p, " "), n = strcspn(p, "= ");

        if (same_value(p, n, value)) {
            const char *ours = n < k ? ckpt_arena_strndup(t->arena, p + n + 1, k - n - 1) : NULL;

            *nothing = n == k;
            if (n < k && !ours)
                ckpt_nomem(err, k);
            return ours;
        }
        p += k;
    }
    return value;
}

/* -- setting ---------------------------------------------------------------------------------- */

struct opt_put {
    struct opt_table       *t;
    struct opt_input       *in;
    const struct opt_entry *entry;
};

struct ckpt_arena *opt_put_arena(const struct opt_put *put) { return put->t->arena; }

int opt_put_refuse(const struct opt_put *put, struct ckpt_err *err, const char *fmt, ...)
{
    char text[sizeof err->text];
    va_list list;

    va_start(list, fmt);
    vsnprintf(text, sizeof text, fmt, list);
    va_end(list);
    return ckpt_fail(err, put->in->is_file ? CKPT_ECONFIG : CKPT_EUSAGE, "%s: %s",
                     put->entry->where, text);
}

/* How a place is called in a message: a file's line with the name, an option's name alone. */
static int place(char *dst, size_t size, const struct opt_input *in, const struct opt_entry *e,
                 const char *name)
{
    return in->is_file ? snprintf(dst, size, "%s: %s", e->where, name)
                       : snprintf(dst, size, "%s", e->where);
}

/* Another value than one given elsewhere. */
static int contradicts(struct opt_put *p, struct opt_slot *s, const char *text,
                       struct ckpt_err *err)
{
    union opt_value had = opt_value_of(s), has;
    char a[64], b[64], where[4500];
    int rc;

    if (s->row->kind == OPT_KIND_LIST)
        return 0;
    place(where, sizeof where, p->in, p->entry, p->entry->name);
    rc = opt_set(p->t, s, text, where, err);
    has = opt_value_of(s);
    if (rc == 0 && strcmp(opt_value_text(a, s->row->kind, &had),
                          opt_value_text(b, s->row->kind, &has)) != 0)
        return ckpt_fail(err, CKPT_ECONFIG, "%s is %s, but %s says %s", where,
                         opt_value_text(b, s->row->kind, &has), s->from,
                         opt_value_text(a, s->row->kind, &had));
    return rc;
}

/* Two names of one file that say different things of one option. */
static int again(struct opt_put *p, struct opt_slot *s, const char *text, struct ckpt_err *err)
{
    int rc = contradicts(p, s, text, err);

    if (rc == 0)
        s->from = p->entry->where;
    return rc;
}

static int set_slot(struct opt_put *p, struct opt_slot *s, const char *text, struct ckpt_err *err)
{
    const struct opt_entry *e = p->entry;
    bool list = s->row->kind == OPT_KIND_LIST;
    char where[4500];
    int rc;

    if (s->given && e->is_default)
        return 0;
    if (s->given && p->in->is_file) {
        if (s->input == p->in ? !list : p->in->firm)
            return again(p, s, text, err);
        if (s->input != p->in)
            return 0;
    }
    if (list && s->input != p->in)              /* replace the list of an input of less weight */
        *(size_t *)(void *)(s->values + s->row->at_n) = 0;
    place(where, sizeof where, p->in, e, s->row->name);
    rc = opt_set(p->t, s, text, where, err);
    s->given |= !e->is_default;
    s->from = e->where;
    s->input = p->in;
    return rc;
}

int opt_put_option(struct opt_put *put, const char *option, const char *value,
                   struct ckpt_err *err)
{
    struct opt_slot *s = opt_find(put->t, option, strlen(option));
    int rc = s ? set_slot(put, s, value, err)
               : ckpt_fail(err, CKPT_ESTATE, "no option %s", option);

    if (rc == CKPT_EUSAGE && put->in->is_file)
        rc = err->code = CKPT_ECONFIG;
    return rc;
}

int opt_put_default(struct opt_put *put, const char *option, const char *value,
                    struct ckpt_err *err)
{
    struct opt_entry e = *put->entry;
    struct opt_put own = {.t = put->t, .in = put->in, .entry = &e};

    e.is_default = true;
    return opt_put_option(&own, option, value, err);
}

const char *opt_put_text(const struct opt_put *put, const char *option)
{
    const struct opt_slot *s = opt_find(put->t, option, strlen(option));
    char word[64];
    union opt_value v;

    if (!s)
        return NULL;
    v = opt_value_of(s);
    return ckpt_arena_printf(put->t->arena, "%s", opt_value_text(word, s->row->kind, &v));
}

bool opt_put_is(const struct opt_put *put, const char *name)
{
    return same_name(put->entry->name, strlen(put->entry->name), name);
}

bool opt_put_is_default(const struct opt_put *put) { return put->entry->is_default; }

const char *opt_put_other(const struct opt_put *put, const char *name)
{
    const struct opt_input *in = put->in;

    for (size_t i = 0; i < in->n; i++)
        if (same_name(in->entry[i].name, strlen(in->entry[i].name), name))
            return in->entry[i].n ? in->entry[i].value[0] : NULL;
    for (size_t i = 0; in->dialect && i < in->dialect->n_absent; i++)
        if (strcmp(in->dialect->absent[i].name, name) == 0)
            return in->dialect->absent[i].value;
    return NULL;
}

/* Whether what a row depends on is on; on the command line it is taken to be. */
static bool is_on(const struct opt_put *put, const char *when)
{
    const char *eq = strchr(when, '='), *value = NULL;
    char name[64];

    snprintf(name, sizeof name, "%.*s", (int)strcspn(when, "="), when);
    if (put->in->is_file)
        value = opt_put_other(put, name);
    if (value && eq)
        return strcmp(value, eq + 1) == 0;

    if (!value)             /* where another program decides, its files say so */
        return !put->in->is_file || !put->in->dialect->tells;
    return (*value && opt_truth(value) != 0 && strcmp(value, "none") != 0);
}

static int tell_harmless(struct opt_table *t, const struct opt_entry *e, struct ckpt_err *err)
{
    const char **grown;

    for (size_t i = 0; i < t->n_harmless; i++)
        if (strcmp(t->harmless[i], e->name) == 0)
            return 0;
    if (t->n_harmless == t->cap_harmless) {
        size_t cap = t->cap_harmless ? 2 * t->cap_harmless : 16;

        if (!(grown = ckpt_arena_alloc(t->arena, cap, sizeof *grown)))
            return ckpt_nomem(err, cap * sizeof *grown);
        if (t->n_harmless)
            memcpy(grown, t->harmless, t->n_harmless * sizeof *grown);
        t->harmless = grown;
        t->cap_harmless = cap;
    }
    t->harmless[t->n_harmless++] = e->name;
    return 0;
}

/* A field that is not done is refused, but for values that leave things as they are. */
static int refuse(struct opt_put *p, const struct opt_field *f, struct ckpt_err *err)
{
    const struct opt_entry *e = p->entry;
    char where[4500];
    bool nothing;

    for (size_t i = 0; i < e->n; i++) {
        const char *ours = translate(p->t, f, e->value[i], &nothing, err);

        if (nothing)
            continue;
        if (ours != e->value[i])
            return ours ? opt_put_option(p, f->option, ours, err) : CKPT_ENOMEM;
        place(where, sizeof where, p->in, e, e->name);
        return ckpt_fail(err, p->in->is_file ? CKPT_ECONFIG : CKPT_EUSAGE, "%s %s: %s", where,
                         e->value[i], f->says);
    }
    return 0;
}

/* Whether an option's value is made of pairs. */
static bool takes_pairs(const struct opt_slot *s)
{
    return s && s->row->arg && strchr(s->row->arg, '=');
}

static int set_field(struct opt_put *p, const struct opt_field *f, struct ckpt_err *err)
{
    const struct opt_entry *e = p->entry;
    const struct opt_slot *s = f->option ? opt_find(p->t, f->option, strlen(f->option)) : NULL;
    int rc = 0;

    if (f->convert)
        return f->convert(p, e->value, e->n, err);
    if (f->inner && !f->option && e->value[0][0] != '{' &&
        opt_find(p->t, e->name, strlen(e->name)))       /* not a mapping: the option of that name */
        return opt_put_option(p, e->name, e->value[0], err);
    if (f->inner && f->option && e->value[0][0] != '{')
        rc = opt_put_option(p, f->option, e->value[0], err);
    if (f->inner)
        return rc ? rc : opt_read_inner(p->t, f->inner, e->value[0], e->where, err);
    for (size_t i = 0; rc == 0 && i < e->n; i++) {
        bool nothing;
        const char *ours = translate(p->t, f, e->value[i], &nothing, err);

        if (!ours && !nothing)
            return CKPT_ENOMEM;
        if (!nothing && e->mapping && !takes_pairs(s))
            return opt_put_refuse(p, err, "%s: a plain value is wanted here", e->name);
        if (!nothing)
            rc = opt_put_option(p, f->option, ours, err);
    }
    return rc;
}

bool opt_is_option(const struct opt_table *t, const struct opt_field *f)
{
    if (f->state == OPT_STATE_DOES || !opt_find(t, f->name, strlen(f->name)))
        return false;
    for (const struct opt_dialect *d = t->dialect ? t->dialect[0] : NULL; d; d = d->base)
        if (f >= d->field && f < d->field + d->n_field)
            return true;
    return false;
}

const struct opt_field *opt_field_of(const struct opt_table *t, const struct opt_input *in,
                                     const char *name, size_t n)
{
    const struct opt_field *f = in->dialect ? find_field(in->dialect, name, n) : NULL;

    return f && opt_is_option(t, f) ? NULL : f;
}

static int unknown(const struct opt_table *t, const struct opt_input *in,
                   const struct opt_entry *e, struct ckpt_err *err)
{
    ckpt_fail(err, CKPT_ECONFIG, "%s: unknown option %s", e->where, e->name);
    opt_hint_unknown(t, in->dialect, e->name, strlen(e->name), true, err);
    return CKPT_ECONFIG;
}

int opt_take(struct opt_table *t, struct opt_input *in, const struct opt_entry *e,
             struct ckpt_err *err)
{
    struct opt_put put = {.t = t, .in = in, .entry = e};
    const struct opt_field *f = opt_field_of(t, in, e->name, strlen(e->name));
    struct opt_slot *s = f ? NULL : opt_find(t, e->name, strlen(e->name));
    int rc = 0;

    if (!f && (!s || (in->is_file && s->row->no_config)))
        return unknown(t, in, e, err);
    if (f && f->state == OPT_STATE_HARMLESS)
        return e->is_default ? 0 : tell_harmless(t, e, err);
    if (e->n == 1 && in->dialect && in->dialect->skip && opt_among(in->dialect->skip, e->value[0],
                                                                   strlen(e->value[0])))
        return 0;
    if (f && f->state == OPT_STATE_NOT_DONE)
        return refuse(&put, f, err);
    if (e->n == 0)
        return 0;
    if (f && f->when && !is_on(&put, f->when))
        return e->is_default ? 0 : tell_harmless(t, e, err);
    if (f)
        return set_field(&put, f, err);
    if (e->n > 1 && s->row->kind != OPT_KIND_LIST)
        return opt_put_refuse(&put, err, "a plain value is wanted here");
    if (e->mapping && !takes_pairs(s))
        return opt_put_refuse(&put, err, "a plain value is wanted here");
    for (size_t i = 0; rc == 0 && i < e->n; i++)
        rc = opt_put_option(&put, s->row->name, e->value[i], err);
    return rc;
}

/* The program's own value of a name that its file lacks. */
static int take_absent(struct opt_table *t, struct opt_input *in,
                       const struct opt_field_default *d, struct ckpt_err *err)
{
    struct opt_entry e = {.name = d->name, .value = &d->value, .n = 1, .is_default = true};

    for (size_t i = 0; i < in->n; i++)
        if (same_name(in->entry[i].name, strlen(in->entry[i].name), d->name))
            return 0;
    if (!(e.where = ckpt_arena_printf(t->arena, "default of %s", in->dialect->name)))
        return ckpt_nomem(err, strlen(d->name));
    return opt_take(t, in, &e, err);
}

int opt_take_all(struct opt_table *t, struct opt_input *in, struct ckpt_err *err)
{
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < in->n; i++)
        rc = opt_take(t, in, &in->entry[i], err);
    for (size_t i = 0; rc == 0 && in->dialect && i < in->dialect->n_absent; i++)
        rc = take_absent(t, in, &in->dialect->absent[i], err);
    return rc;
}

struct opt_input *opt_input_new(struct opt_table *t, const struct opt_dialect *d, bool later,
                                struct ckpt_err *err)
{
    struct opt_input *in = ckpt_arena_alloc(t->arena, 1, sizeof *in);

    if (!in) {
        ckpt_nomem(err, sizeof *in);
        return NULL;
    }
    *in = (struct opt_input){.dialect = d, .is_file = true, .firm = d && d->firm};
    if (later) {
        in->next = t->last ? t->last->next : in;        /* a ring: last->next is the first */
        if (t->last)
            t->last->next = in;
        t->last = in;
    }
    return in;
}

int opt_take_later(struct opt_table *t, struct ckpt_err *err)
{
    int rc = 0;

    while (rc == 0 && t->last) {
        struct opt_input *first = t->last->next;

        if (first == t->last)
            t->last = NULL;
        else
            t->last->next = first->next;
        rc = opt_take_all(t, first, err);
    }
    return rc;
}

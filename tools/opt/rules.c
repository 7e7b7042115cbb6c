/* opt/rules - which options count beside which; see opt.h. */
#include <stdio.h>
#include <string.h>

#include "tools/opt/rows.h"

union opt_value opt_value_of(const struct opt *o)
{
    union opt_value v = {0};

    if (!o->dest)
        return v;
    switch (o->kind) {
    case OPT_FLAG:   v.flag = *(const bool *)o->dest; break;
    case OPT_SWITCH:
    case OPT_COUNT:  v.count = *(const int *)o->dest; break;
    case OPT_INT:    v.i = *(const int64_t *)o->dest; break;
    case OPT_REAL:   v.real = *(const double *)o->dest; break;
    case OPT_SIZE:   v.size = *(const uint64_t *)o->dest; break;
    case OPT_LIST:   v.n = ((const struct opt_list *)o->dest)->n; break;
    case OPT_GROUP:  break;
    default:         v.text = *(const char *const *)o->dest; break;
    }
    return v;
}

static bool is_text(const struct opt *o)
{
    return o->kind == OPT_STR || o->kind == OPT_PATH || o->kind == OPT_CHOICE;
}

bool opt_given(const struct opt_table *t, size_t i)
{
    const struct opt *o = opt_at(t, i);
    union opt_value v = opt_value_of(o), was = t->was[i];

    if (is_text(o) && v.text && was.text)
        return strcmp(v.text, was.text) != 0;
    return memcmp(&v, &was, sizeof v) != 0;     /* the same bits: NaN is a default, too */
}

/* Whether a word of a rule holds: "NAME" when it is given, "NAME=VALUE" when it is that. */
static bool holds(const struct opt_table *t, const char *word, size_t n)
{
    const char *eq = memchr(word, '=', n);
    size_t len = eq ? (size_t)(eq - word) : n, i = opt_find(t, word, len);
    union opt_value v;

    if (i == SIZE_MAX)
        return false;
    if (!eq)
        return opt_given(t, i);
    v = opt_value_of(opt_at(t, i));
    n -= len + 1;
    return is_text(opt_at(t, i)) && v.text && strlen(v.text) == n &&
           strncmp(v.text, eq + 1, n) == 0;
}

/* Whether a list has the option o among its words. */
static bool lists(const char *words, const struct opt *o)
{
    size_t n = strlen(o->name);

    for (const char *p = words; *p;) {
        size_t k = strcspn(p, " ");

        if (k == n && strncmp(p, o->name, n) == 0)
            return true;
        p += k + (p[k] == ' ');
    }
    return false;
}

static int barred(const struct opt_table *t, const struct opt_rule *r, struct ckpt_err *err)
{
    for (size_t i = 0; i < t->n_tool; i++) {
        const struct opt *o = &t->tool[i];
        bool bars = lists(r->others, o) == (r->kind == OPT_BARS);

        if (bars && opt_find(t, r->name, strcspn(r->name, "=")) != i && opt_given(t, i))
            return ckpt_fail(err, CKPT_EUSAGE, "--%s has no effect with --%s", o->name, r->name);
    }
    return 0;
}

static int lacks(const struct opt_table *t, const struct opt_rule *r, struct ckpt_err *err)
{
    char text[400];
    size_t at = 0;

    for (const char *p = r->others; *p;) {
        size_t k = strcspn(p, " ");
        bool last = !p[k];
        int n;

        if (holds(t, p, k))
            return 0;
        n = snprintf(text + at, sizeof text - at, "%s--%.*s",
                     p == r->others ? "" : last ? " or " : ", ", (int)k, p);
        at = at + (size_t)n < sizeof text ? at + (size_t)n : sizeof text - 1;
        p += k + !last;
    }
    return ckpt_fail(err, CKPT_EUSAGE, "--%s has no effect without %s", r->name, text);
}

int opt_check_rules(const struct opt_table *t, const struct opt_spec *spec, struct ckpt_err *err)
{
    for (size_t i = 0; i < spec->n_rule; i++) {
        const struct opt_rule *r = &spec->rule[i];

        if (holds(t, r->name, strlen(r->name)) &&
            (r->kind == OPT_NEEDS ? lacks(t, r, err) : barred(t, r, err)))
            return err->code;
    }
    return 0;
}

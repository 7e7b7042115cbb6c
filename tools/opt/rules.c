/* opt/rules - which options have an effect together; see opt.h. */
#include <stdio.h>
#include <string.h>

#include "libckpt/log.h"
#include "tools/opt/rows.h"

bool opt_counts(const struct opt_slot *s)
{
    bool off = s->row->kind == OPT_KIND_FLAG && !s->was.flag && !s->row->absent;

    return s->given && (!off || opt_value_of(s).flag);
}

/* Whether a word of a rule is true: "NAME" when the option counts, "NAME=VALUE" when it has that
 * value. */
static bool holds(const struct opt_table *t, const char *word, size_t n)
{
    const char *eq = memchr(word, '=', n), *text;
    size_t len = eq ? (size_t)(eq - word) : n;
    const struct opt_slot *s = opt_find(t, word, len);

    if (!s || !eq)
        return s && opt_counts(s);
    text = opt_value_of(s).text;
    return text && strlen(text) == n - len - 1 && strncmp(text, eq + 1, n - len - 1) == 0;
}

/* Back to the default, as if it were not given. */
static void take_back(struct opt_slot *s)
{
    opt_put_back(s);
    ckpt_log(CKPT_LOG_DEBUG, "%s: %s has no effect here", s->from, s->row->name);
}

static int barred(const struct opt_table *t, const struct opt_rule *r, struct ckpt_err *err)
{
    const struct opt_slot *own = opt_find(t, r->name, strcspn(r->name, "="));

    for (struct opt_slot *s = t->slot; s < t->slot + t->n_tool; s++) {
        if (s == own || !opt_counts(s) ||
            opt_among(r->others, s->row->name, strlen(s->row->name)) == (r->kind == OPT_ONLY))
            continue;
        if (r->kind != OPT_YIELDS || !s->input || !s->input->is_file)
            return ckpt_fail(err, CKPT_EUSAGE, "--%s has no effect with --%s", s->row->name,
                             r->name);
        take_back(s);
    }
    return 0;
}

static int lacks(const struct opt_table *t, const struct opt_rule *r, const char *name, size_t len,
                 struct ckpt_err *err)
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
    return ckpt_fail(err, CKPT_EUSAGE, "--%.*s has no effect without %s", (int)len, name, text);
}

int opt_check_rules(const struct opt_table *t, const struct opt_spec *spec, struct ckpt_err *err)
{
    int rc = 0;

    for (const struct opt_rule *r = spec->rule; rc == 0 && r < spec->rule + spec->n_rule; r++)
        for (const char *p = r->name; rc == 0 && *p;) {
            size_t k = strcspn(p, " ");

            if (holds(t, p, k))
                rc = r->kind == OPT_NEEDS ? lacks(t, r, p, k, err) : barred(t, r, err);
            p += k + (p[k] == ' ');
        }
    return rc;
}

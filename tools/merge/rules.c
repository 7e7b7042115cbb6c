/* rules - options of ckpt-merge as rules of views; see parts.h. */
#include "tools/merge/parts.h"

#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "libckpt/convert.h"

static int cast_rules(struct merge_rules *r, struct ckpt_arena *a, const struct opt_list *l,
                      struct ckpt_err *err)
{
    struct ckpt_cast_rule *rule = r->cast;

    if (l->n > MERGE_MAX_RULES)
        return ckpt_fail(err, CKPT_EUSAGE, "%zu --dtype rules, %d at most", l->n, MERGE_MAX_RULES);
    for (size_t i = 0; i < l->n; i++) {
        const char *eq = strrchr(l->item[i], '='), *name = eq ? eq + 1 : l->item[i];

        rule[i].glob = eq ? ckpt_arena_strndup(a, l->item[i], (size_t)(eq - l->item[i])) : "*";
        r->packs[i] = strcasecmp(name, "q8_0") == 0;
        rule[i].dtype = r->packs[i] ? CKPT_F32 : ckpt_dtype_parse(name);
        if (!rule[i].glob)
            return ckpt_nomem(err, strlen(l->item[i]));
        if (rule[i].dtype == CKPT_DTYPE_NONE ||
            ckpt_dtype_class(rule[i].dtype) != CKPT_CLASS_FLOAT)
            return ckpt_fail(err, CKPT_EUSAGE, "--dtype %s: no floating dtype; bf16, f16, f32, "
                             "f64, f8_e4m3 and f8_e5m2 are, and q8_0 in GGUF", name);
    }
    return 0;
}

static int rename_rules(struct merge_rules *r, struct ckpt_arena *a, const struct opt_list *l,
                        struct ckpt_err *err)
{
    struct ckpt_rename_rule *rule = r->rename;

    if (l->n > MERGE_MAX_RULES)
        return ckpt_fail(err, CKPT_EUSAGE, "%zu --rename rules, %d at most", l->n, MERGE_MAX_RULES);
    for (size_t i = 0; i < l->n; i++) {
        const char *eq = strchr(l->item[i], '=');

        if (!eq)
            return ckpt_fail(err, CKPT_EUSAGE, "--rename %s: FROM=TO wanted", l->item[i]);
        rule[i].from = ckpt_arena_strndup(a, l->item[i], (size_t)(eq - l->item[i]));
        rule[i].to = eq + 1;
        if (!rule[i].from)
            return ckpt_nomem(err, strlen(l->item[i]));
    }
    return 0;
}

int merge_rules_of(struct merge_rules *r, struct ckpt_arena *a, const struct merge_want *w,
                   struct ckpt_err *err)
{
    int rc = cast_rules(r, a, &w->dtype, err);

    r->n_cast = w->dtype.n;
    r->n_rename = w->rename.n;
    return rc ? rc : rename_rules(r, a, &w->rename, err);
}

/* What a tensor is to be computed in.  Rules are of its name in the result. */
static enum ckpt_dtype wide(const void *ctx, const struct ckpt_tensor *t)
{
    const struct merge_rules *r = ctx;
    const struct ckpt_rename_rule *to = ckpt_view_rename_rule(t->name, r->rename, r->n_rename);
    const struct ckpt_cast_rule *how;
    struct ckpt_tensor named = *t;
    char name[2 * CKPT_MAX_NAME + 1];

    if (to && snprintf(name, sizeof name, "%s%s", to->to, t->name + strlen(to->from)) <
                  (int)sizeof name)
        named.name = name;
    how = ckpt_view_cast_rule(&named, r->cast, r->n_cast);
    if (!how || how->dtype == t->dtype || ckpt_dtype_class(t->dtype) != CKPT_CLASS_FLOAT ||
        ckpt_dtype_size(t->dtype) >= sizeof(float) || !ckpt_convert_can(CKPT_F32, t->dtype))
        return t->dtype;
    return how->dtype == CKPT_F64 ? CKPT_F64 : CKPT_F32;
}

int merge_widen(struct ckpt_source **src, const struct merge_rules *r, struct ckpt_err *err)
{
    return r->n_cast ? ckpt_view_cast_by(src, *src, wide, r, err) : 0;
}

int merge_weights(double *weight, const char *text, size_t n, struct ckpt_err *err)
{
    const char *at = text;
    size_t k = 0;

    for (;; k++) {
        char *end;
        double w = strtod(at, &end);

        if (end == at || (*end && *end != ',') || w - w != 0)
            return ckpt_fail(err, CKPT_EUSAGE, "--weights %s: numbers with commas between them "
                             "wanted", text);
        if (k < n)
            weight[k] = w;
        if (!*end)
            break;
        at = end + 1;
    }
    if (k + 1 != n)
        return ckpt_fail(err, CKPT_EUSAGE, "--weights %s: %zu numbers for %zu checkpoints", text,
                         k + 1, n);
    return 0;
}

static bool matches(const struct ckpt_tensor *t, enum merge_pattern kind, const char *pattern)
{
    if (kind == MERGE_PREFIX)
        return strncmp(t->name, pattern, strlen(pattern)) == 0;
    return fnmatch(pattern, t->name, 0) == 0 &&
           (kind == MERGE_GLOB || ckpt_dtype_class(t->dtype) == CKPT_CLASS_FLOAT);
}

int merge_must_match(const struct ckpt_source *src, enum merge_pattern kind,
                     const struct opt_list *l, const char *option, struct ckpt_err *err)
{
    for (size_t i = 0; i < l->n; i++) {
        char *pattern = ckpt_strdup(l->item[i]), *eq = NULL;
        size_t k = 0;

        if (!pattern)
            return ckpt_nomem(err, strlen(l->item[i]));
        if (kind != MERGE_GLOB)
            eq = kind == MERGE_PREFIX ? strchr(pattern, '=') : strrchr(pattern, '=');
        if (eq)
            *eq = '\0';
        else if (kind != MERGE_GLOB)
            k = SIZE_MAX;               /* a plain dtype applies to all */
        while (k < ckpt_source_count(src) && !matches(ckpt_source_tensor(src, k), kind, pattern))
            k++;
        ckpt_free(pattern);
        if (k == ckpt_source_count(src))
            return ckpt_fail(err, CKPT_ENOTFOUND, "--%s %s: no %stensor matches", option,
                             l->item[i], kind == MERGE_GLOB_DTYPE ? "floating " : "");
    }
    return 0;
}

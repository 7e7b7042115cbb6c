/* optim/groups - see optim/groups.h. */
#include "trainer/optim/groups.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "formats/families/role.h"
#include "formats/tokens/unicode/regex.h"

/* One PATTERN=X of a setting. */
struct wish {
    struct regex     *re;
    struct regex_run *run;
    double            value;
    bool              met;
};

static int read_wish(struct wish *w, const char *text, const char *setting, struct ckpt_err *err)
{
    const char *equals = strrchr(text, '=');
    char *end;

    if (!equals || equals == text)
        return ckpt_fail(err, CKPT_ECONFIG, "`%s`: %s is not PATTERN=X", setting, text);
    w->value = strtod(equals + 1, &end);
    if (end == equals + 1 || *end || !(w->value >= 0 && w->value <= 1e3))
        return ckpt_fail(err, CKPT_ECONFIG, "`%s`: %s: a number from 0 to 1000 is wanted", setting,
                         text);
    if (regex_new(&w->re, text, (size_t)(equals - text), false, err) ||
        regex_run_new(&w->run, w->re, err)) {
        ckpt_err_in(err, "`%s`: %s", setting, text);
        return ckpt_err_code(err) == CKPT_ENOMEM ? CKPT_ENOMEM : CKPT_ECONFIG;
    }
    return 0;
}

static void free_wishes(struct wish *w, size_t n)
{
    for (size_t i = 0; w && i < n; i++) {
        regex_run_free(w[i].run);
        regex_free(w[i].re);
    }
}

static int read_wishes(struct wish **out, struct ckpt_arena *a, const char *const *text, size_t n,
                       const char *setting, struct ckpt_err *err)
{
    int rc = 0;

    *out = ckpt_arena_alloc(a, n + 1, sizeof **out);
    if (!*out)
        return ckpt_nomem(err, n * sizeof **out);
    for (size_t i = 0; rc == 0 && i < n; i++)
        rc = read_wish(&(*out)[i], text[i], setting, err);
    return rc;
}

/* *value is unchanged where nothing is found in the name. */
static int apply(double *value, struct wish *w, size_t n, const char *name, struct ckpt_err *err)
{
    for (size_t i = 0; i < n; i++) {
        size_t start, end;
        bool found;

        if (regex_find(w[i].re, w[i].run, (const unsigned char *)name, strlen(name), 0, &found,
                       &start, &end, err))
            return ckpt_err_in(err, "a pattern of parameters");
        if (found) {
            w[i].met = true;
            *value = w[i].value;
            return 0;
        }
    }
    return 0;
}

static bool same(const struct optim_group *a, const struct optim_group *b)
{
    return a->muon == b->muon && !(a->lr < b->lr) && !(a->lr > b->lr) &&
           !(a->weight_decay < b->weight_decay) && !(a->weight_decay > b->weight_decay);
}

/* The group with those numbers: one of the first two, by the parameter's own, or a further one. */
static int group_of(struct optim_groups *g, const struct optim_group *want, bool decay)
{
    int own = decay ? 0 : 1;

    if (same(&g->peak[own], want))
        return own;
    for (size_t i = 2; i < g->n; i++)
        if (same(&g->peak[i], want))
            return (int)i;
    g->peak[g->n] = *want;
    return (int)g->n++;
}

/* Of what is no hidden matrix. */
static double other_lr(const struct optim_groups_opts *o)
{
    return o->muon && !isnan(o->adam_lr) ? o->adam_lr : o->learning_rate;
}

static double lr_of(const struct param *p, const struct optim_groups_opts *o)
{
    if (o->loraplus_lr_ratio <= 0)
        return params_is_hidden(p) ? o->learning_rate : other_lr(o);
    if ((p->kind == PARAM_LORA_A || p->kind == PARAM_LORA_B) && p->role == ROLE_TOKENS)
        return o->loraplus_lr_embedding;
    return p->kind == PARAM_LORA_B ? o->learning_rate * o->loraplus_lr_ratio : o->learning_rate;
}

/* A pattern that nothing has is a mistake. */
static int check_met(const struct wish *w, const char *const *text, size_t n, const char *setting,
                     struct ckpt_err *err)
{
    for (size_t i = 0; i < n; i++)
        if (!w[i].met)
            return ckpt_fail(err, CKPT_ECONFIG, "`%s`: %s: no trained parameter has such a name, "
                             "or an earlier pattern has them all", setting, text[i]);
    return 0;
}

int optim_groups(struct optim_groups *out, struct ckpt_arena *a, struct params *p,
                 const struct optim_groups_opts *o, struct ckpt_err *err)
{
    struct wish *lr = NULL, *decay = NULL;
    int rc;

    *out = (struct optim_groups){.peak = ckpt_arena_alloc(a, p->n + 2, sizeof *out->peak), .n = 2};
    if (!out->peak)
        return ckpt_nomem(err, p->n * sizeof *out->peak);
    out->peak[0] = (struct optim_group){o->learning_rate, o->weight_decay, o->muon};
    out->peak[1] = (struct optim_group){other_lr(o), 0, false};
    rc = read_wishes(&lr, a, o->lr_for, o->n_lr_for, "lr_for", err);
    if (rc == 0)
        rc = read_wishes(&decay, a, o->weight_decay_for, o->n_weight_decay_for, "weight_decay_for",
                         err);
    for (size_t i = 0; rc == 0 && i < p->n; i++) {
        struct param *q = &p->item[i];
        struct optim_group want = {lr_of(q, o), q->decay ? o->weight_decay : 0,
                                   o->muon && params_is_hidden(q)};

        if (!q->trainable)
            continue;
        rc = apply(&want.lr, lr, o->n_lr_for, q->name, err);
        if (rc == 0)
            rc = apply(&want.weight_decay, decay, o->n_weight_decay_for, q->name, err);
        q->group = group_of(out, &want, q->decay);
    }
    if (rc == 0)
        rc = check_met(lr, o->lr_for, o->n_lr_for, "lr_for", err);
    if (rc == 0)
        rc = check_met(decay, o->weight_decay_for, o->n_weight_decay_for, "weight_decay_for", err);
    free_wishes(lr, o->n_lr_for);
    free_wishes(decay, o->n_weight_decay_for);
    return rc;
}

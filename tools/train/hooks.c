/* train/hooks - see train/hooks.h. */
#include "tools/train/hooks.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "libckpt/err.h"
#include "libckpt/log.h"
#include "libckpt/mem.h"
#include "tools/train/child.h"
#include "trainer/clock.h"

#define SAY_AFTER 2.0           /* seconds of waiting at the end before a line says for what */
#define MAX_WAIT  1000          /* commands that wait: a hook that hangs must not take all memory */

/* The environment of one command. */
struct facts {
    char  *var[CHILD_MAX_VARS];
    size_t n;
};

struct one {
    const char   *command;
    struct child  child;
    struct facts *wait;         /* [n] in order */
    size_t        n, cap;
    unsigned long failed, dropped;
};

struct hooks {
    struct one       of[HOOK_KINDS];
    const char      *output_dir;
    struct run_event last;
    char             checkpoint[4200];
};

static const char *const names[] = {"on_save", "on_log", "on_eval", "on_end"};
static const char *const words[] = {"save", "log", "eval", "end"};

/* -- what a command is told ------------------------------------------------------------------- */

static void release(struct facts *f)
{
    for (size_t i = 0; i < f->n; i++)
        ckpt_free(f->var[i]);
    f->n = 0;
}

/* Facts that memory does not suffice for are left out. */
static void __attribute__((format(printf, 2, 3))) put(struct facts *f, const char *fmt, ...)
{
    char *text = f->n < CHILD_MAX_VARS ? ckpt_alloc(4300, 1) : NULL;
    va_list ap;

    if (!text)
        return;
    va_start(ap, fmt);
    vsnprintf(text, 4300, fmt, ap);
    va_end(ap);
    f->var[f->n++] = text;
}

static void put_number(struct facts *f, const char *name, double v)
{
    if (isnan(v))
        put(f, "%s=", name);
    else
        put(f, "%s=%.9g", name, v);
}

static void put_facts(struct facts *f, const struct hooks *h, enum hook kind,
                      const struct run_event *e)
{
    put(f, "CKPT_EVENT=%s", words[kind]);
    put(f, "CKPT_OUTPUT_DIR=%s", h->output_dir);
    put(f, "CKPT_STEP=%lld", (long long)e->step);
    put(f, "CKPT_MAX_STEPS=%lld", (long long)e->max_steps);
    put_number(f, "CKPT_EPOCH", e->epoch);
    put_number(f, "CKPT_LOSS", e->loss);
    put_number(f, "CKPT_GRAD_NORM", e->grad_norm);
    put_number(f, "CKPT_LEARNING_RATE", e->learning_rate);
    put_number(f, "CKPT_TOKENS_PER_SECOND", e->tokens_per_second);
    put_number(f, "CKPT_EVAL_LOSS", e->eval_loss);
    put(f, "CKPT_CHECKPOINT=%s", h->checkpoint);
}

/* -- running ---------------------------------------------------------------------------------- */

static void start(struct one *o, enum hook kind)
{
    const char *const argv[] = {"/bin/sh", "-c", o->command, NULL};
    struct child_opts opts = {.argv = argv, .n_vars = o->wait[0].n,
                              .vars = (const char *const *)(uintptr_t)o->wait[0].var};
    struct ckpt_err err = {0};

    if (child_start(&o->child, &opts, &err))
        ckpt_log(CKPT_LOG_WARNING, "`%s`: %s", names[kind], err.text);
    release(&o->wait[0]);
    memmove(o->wait, o->wait + 1, --o->n * sizeof *o->wait);
}

/* A command that fails at every log line is told once; the others each time. */
static void ended(struct one *o, enum hook kind, int status)
{
    if (status == 0 || (o->failed++ > 0 && kind == HOOK_LOG))
        return;
    if (status > 128)
        ckpt_log(CKPT_LOG_WARNING, "`%s`: the command was ended by signal %d", names[kind],
                 status - 128);
    else
        ckpt_log(CKPT_LOG_WARNING, "`%s`: the command failed with status %d", names[kind], status);
}

/* Whether anything of the kind runs or waits. */
static bool look_after(struct hooks *h, enum hook kind)
{
    struct one *o = &h->of[kind];
    int status;

    if (o->child.pid && child_ended(&o->child, &status))
        ended(o, kind, status);
    if (!o->child.pid && o->n > 0)
        start(o, kind);
    return o->child.pid || o->n > 0;
}

static void add(struct hooks *h, enum hook kind, const struct run_event *e)
{
    struct one *o = &h->of[kind];
    struct ckpt_err err = {0};

    if (!o->command)
        return;
    if (o->n > 0 && kind == HOOK_LOG)
        release(&o->wait[--o->n]);
    if (o->n >= MAX_WAIT || ckpt_reserve(&o->wait, o->n, &o->cap, sizeof *o->wait, &err)) {
        if (o->dropped++ == 0)
            ckpt_log(CKPT_LOG_WARNING, "`%s`: %zu events wait for the command, later ones are "
                     "dropped", names[kind], o->n);
        return;
    }
    o->wait[o->n] = (struct facts){.n = 0};
    put_facts(&o->wait[o->n++], h, kind, e);
    look_after(h, kind);
}

int hooks_open(struct hooks **out, const char *const command[HOOK_KINDS], const char *output_dir,
               struct ckpt_err *err)
{
    bool any = false;
    struct hooks *h;

    *out = NULL;
    for (int i = 0; i < HOOK_KINDS; i++)
        any |= command[i] && *command[i];
    if (!any)
        return 0;
    if (!(h = ckpt_alloc(1, sizeof *h)))
        return ckpt_nomem(err, sizeof *h);
    for (int i = 0; i < HOOK_KINDS; i++)
        h->of[i] = (struct one){.command = command[i] && *command[i] ? command[i] : NULL,
                                .child = {.in = -1}};
    h->output_dir = output_dir;
    h->last = (struct run_event){.epoch = NAN, .loss = NAN, .grad_norm = NAN, .learning_rate = NAN,
                                 .tokens_per_second = NAN, .eval_loss = NAN};
    *out = h;
    return 0;
}

void hooks_event(struct hooks *h, const struct run_event *e)
{
    static const int of[RUN_EVENT_KINDS] = {[RUN_EVENT_STEP] = -1, [RUN_EVENT_LOG] = HOOK_LOG,
                                            [RUN_EVENT_EVAL] = HOOK_EVAL,
                                            [RUN_EVENT_SAVE] = HOOK_SAVE};

    if (!h)
        return;
    h->last = *e;
    if (e->checkpoint)
        snprintf(h->checkpoint, sizeof h->checkpoint, "%s", e->checkpoint);
    h->last.checkpoint = NULL;
    for (int i = 0; i < HOOK_KINDS; i++)
        look_after(h, (enum hook)i);
    if (of[e->kind] >= 0)
        add(h, (enum hook)of[e->kind], e);
}

/* Until no command of the kinds before `end` runs or waits. */
static void wait_for(struct hooks *h, enum hook first, enum hook end)
{
    double since = clock_now();
    bool said = false, busy = true;

    while (busy) {
        const char *which = NULL;

        for (int i = (int)first; i < (int)end; i++)
            if (look_after(h, (enum hook)i) && !which)
                which = names[i];
        busy = which != NULL;
        if (busy && !said && clock_now() - since >= SAY_AFTER) {
            ckpt_log(CKPT_LOG_NOTE, "waiting for the command of `%s`", which);
            said = true;
        }
        if (busy)
            child_pause();
    }
}

void hooks_end(struct hooks *h, int status)
{
    if (!h)
        return;
    wait_for(h, HOOK_SAVE, HOOK_END);
    if (!h->of[HOOK_END].command)
        return;
    if (ckpt_reserve(&h->of[HOOK_END].wait, 0, &h->of[HOOK_END].cap, sizeof *h->of[HOOK_END].wait,
                     &(struct ckpt_err){0}))
        return;
    h->of[HOOK_END].wait[0] = (struct facts){.n = 0};
    put_facts(&h->of[HOOK_END].wait[0], h, HOOK_END, &h->last);
    put(&h->of[HOOK_END].wait[0], "CKPT_STATUS=%d", status);
    h->of[HOOK_END].n = 1;
    wait_for(h, HOOK_END, HOOK_KINDS);
}

void hooks_close(struct hooks *h)
{
    if (!h)
        return;
    for (int i = 0; i < HOOK_KINDS; i++) {
        for (size_t k = 0; k < h->of[i].n; k++)
            release(&h->of[i].wait[k]);
        ckpt_free(h->of[i].wait);
    }
    ckpt_free(h);
}

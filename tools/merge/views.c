/* views - the source of a merge and the views over it; see parts.h. */
#include "tools/merge/parts.h"

#include <string.h>

#include "formats/quant/quant.h"
#include "formats/gguf/requantize.h"
#include "formats/gguf/as_model.h"
#include "formats/gguf/of_model.h"
#include "libckpt/views/chain.h"

/* A name tied to another is written once, under the kept name, as transformers does. */
static int drop_tied(struct ckpt_source **src, struct ckpt_err *err)
{
    size_t n = ckpt_source_count(*src), kept = 0;
    size_t *keep = ckpt_alloc(n, sizeof *keep);
    int rc = 0;

    if (!keep)
        return ckpt_nomem(err, n * sizeof *keep);
    for (size_t i = 0; i < n; i++) {
        const struct ckpt_tensor *t = ckpt_source_tensor(*src, i);

        if (t->alias_of == i)
            keep[kept++] = i;
        else
            ckpt_log(CKPT_LOG_NOTE, "%s: tied to %s, written once", t->name,
                     ckpt_source_tensor(*src, t->alias_of)->name);
    }
    if (kept < n)
        rc = ckpt_view_select(src, *src, keep, kept, err);
    ckpt_free(keep);
    return rc;
}

bool merge_is_optimizer(const struct ckpt_tensor *t)
{
    return t->kind == CKPT_OTHER &&
           (strncmp(t->name, "optimizer", 9) == 0 || strstr(t->name, ".state."));
}

static bool is_random_state(const struct ckpt_tensor *t)
{
    return t->dtype == CKPT_U8 && t->shape.rank == 1 &&
           (strstr(t->name, "rng") || strstr(t->name, "random_state"));
}

/*
 * A training program's dictionary in one torch file, such as Lightning's .ckpt: states of
 * optimizers, loops, callbacks and random numbers beside the weights are dropped with the
 * optimizer.  Its optimizers may have any key; below it torch's own is "state".
 */
static int drop_states(struct ckpt_source **src, struct ckpt_err *err)
{
    static const char *const states[] = {"lr_scheduler", "callbacks.", "loops."};
    size_t n = ckpt_source_count(*src), kept = 0, weights = 0;
    size_t *keep = ckpt_alloc(n + 1, sizeof *keep);
    int rc = 0;

    if (!keep)
        return ckpt_nomem(err, n * sizeof *keep);
    for (size_t i = 0; i < n; i++) {
        const struct ckpt_tensor *t = ckpt_source_tensor(*src, i);
        bool state = merge_is_optimizer(t) || (t->kind == CKPT_OTHER && is_random_state(t));

        for (size_t k = 0; t->kind == CKPT_OTHER && k < sizeof states / sizeof states[0]; k++)
            state |= strncmp(t->name, states[k], strlen(states[k])) == 0;
        weights += t->kind == CKPT_WEIGHT;
        if (!state)
            keep[kept++] = i;
    }
    if (weights && kept < n) {
        ckpt_log(CKPT_LOG_NOTE, "%zu tensors of optimizers and the like are left out", n - kept);
        rc = ckpt_view_select(src, *src, keep, kept, err);
    }
    ckpt_free(keep);
    return rc;
}

/* Dequantise where values are needed, else leave tensors packed. */
static int unpack(struct ckpt_source **src, bool values, struct ckpt_err *err)
{
    struct quant_told told;
    int rc;

    if (values)
        return quant_view(src, *src, err);
    rc = quant_tell(&told, *src, err);
    if (rc == 0 && told.n)
        ckpt_log(CKPT_LOG_NOTE, "%zu tensors are quantised (%s) and stay so%s", told.n, told.what,
                 told.is_read ? "; --dtype writes their values" : "");
    return rc;
}

static bool is_gguf(const struct ckpt_source *src)
{
    return strcmp(ckpt_source_format(src), "gguf") == 0;
}

/* Open a GGUF file as the model in it. */
static int see_model(struct ckpt_source **src, struct ckpt_err *err)
{
    return is_gguf(*src) ? gguf_as_model(src, *src, err) : 0;
}

int merge_open_one(struct ckpt_source **src, const char *format, const char *role,
                   const char *path, const struct ckpt_open_opts *opts, struct provenance *p,
                   struct ckpt_err *err)
{
    int rc = format ? ckpt_open_as(src, format, path, opts, err)
                    : ckpt_open(src, path, opts, err);
    const char *picked;

    picked = rc ? NULL
                : json_string_value(json_object_get(ckpt_source_info(*src), "checkpoint"));
    if (picked)
        ckpt_log(CKPT_LOG_NOTE, "%s: a run; its newest checkpoint is read: %s", path, picked);
    if (rc == 0)
        rc = provenance_add(p, role, path, *src, err);
    if (rc == 0 && strcmp(role, "base") == 0)
        rc = see_model(src, err);
    return rc ? rc : strcmp(role, "base") == 0 ? unpack(src, true, err) : 0;
}

/* What the steps of one merge have in common. */
struct chain {
    const struct merge_want *w;
    const struct merge_job  *job;
    struct provenance       *p;
    struct merge_rules       rules;
    bool                     follow, gguf;
    bool                     again;             /* a GGUF file stays one */
};

/* Open all inputs as one source: the only one, or their mean. */
static int open_inputs(struct ckpt_source **src, const struct chain *c, struct ckpt_err *err)
{
    const struct merge_want *w = c->w;
    const struct merge_job *job = c->job;
    struct ckpt_open_opts opts = {.tag = w->tag, .base = w->base, .follow = c->follow,
                                  .prove = w->checksums, .spool = cli_spool(),
                                  .shards = w->shards,
                                  .optimizer = strcmp(w->optimizer, "keep") == 0,
                                  .part = job->input + 1, .n_part = w->together ? job->n - 1 : 0};
    size_t n = w->together ? 1 : job->n;
    struct ckpt_source **all = ckpt_alloc(n, sizeof *all);
    double *weight = ckpt_alloc(n, sizeof *weight);
    int rc = all && weight ? 0 : ckpt_nomem(err, n * sizeof *all);

    if (rc == 0 && w->weights)
        rc = merge_weights(weight, w->weights, n, err);
    provenance_parts(c->p, opts.part, opts.n_part);
    for (size_t i = 0; rc == 0 && i < n; i++) {
        rc = merge_open_one(&all[i], NULL, "input", job->input[i], &opts, c->p, err);
        if (rc == 0 && !c->again)
            rc = see_model(&all[i], err);
        if (rc == 0 && n > 1)
            rc = unpack(&all[i], true, err);
        if (rc == 0 && n > 1)
            rc = merge_widen(&all[i], &c->rules, err);
    }
    if (rc == 0 && n > 1) {
        rc = ckpt_view_average(src, all, n, w->weights ? weight : NULL, err);
    } else if (rc == 0) {
        *src = all[0];
    } else {
        for (size_t i = 0; all && i < n; i++)
            ckpt_source_close(all[i]);
    }
    ckpt_free(all);
    ckpt_free(weight);
    return rc;
}

/* Refuse one of several files that each hold a part of every matrix: it is not a model. */
static int refuse_slice(const struct ckpt_source *src, const char *path, struct ckpt_err *err)
{
    json_int_t n = json_integer_value(json_object_get(ckpt_source_info(src), "tensor_parallel"));

    if (n <= 1)
        return 0;
    ckpt_fail(err, CKPT_EUNSUPPORTED, "%s: a slice of a model that is cut over %lld ranks by "
              "tensor parallelism, which are not joined", path, (long long)n);
    return ckpt_err_hint(err, "the program that saved it writes whole models or DCP too");
}

/* -- the views, one step each ------------------------------------------------------------------ */

static int leave_states(struct ckpt_source **src, void *ctx, struct ckpt_err *err)
{
    const struct chain *c = ctx;

    return strcmp(c->w->optimizer, "drop") == 0 && c->w->include.n == 0 &&
           strcmp(ckpt_source_format(*src), "torch") == 0 ? drop_states(src, err) : 0;
}

static int fill(struct ckpt_source **src, void *ctx, struct ckpt_err *err)
{
    const struct chain *c = ctx;

    return c->w->base && !c->w->extract && strcmp(ckpt_source_format(*src), "peft") != 0
               ? merge_fill(src, c->w, c->follow, c->p, err) : 0;
}

static int values(struct ckpt_source **src, void *ctx, struct ckpt_err *err)
{
    const struct chain *c = ctx;

    return unpack(src, c->w->dtype.n || c->w->adapter.n || c->gguf, err);
}

static int fold(struct ckpt_source **src, void *ctx, struct ckpt_err *err)
{
    const struct chain *c = ctx;

    return merge_fold(src, c->w, c->job, &c->rules, c->follow, c->p, err);
}

static int filter(struct ckpt_source **src, void *ctx, struct ckpt_err *err)
{
    const struct merge_want *w = ((const struct chain *)ctx)->w;
    int rc = merge_must_match(*src, MERGE_GLOB, &w->exclude, "exclude", err);

    return rc || w->include.n + w->exclude.n == 0
               ? rc : ckpt_view_filter(src, *src, w->include.item, w->include.n, w->exclude.item,
                                       w->exclude.n, err);
}

static int rename_prefixes(struct ckpt_source **src, void *ctx, struct ckpt_err *err)
{
    const struct chain *c = ctx;
    int rc = merge_must_match(*src, MERGE_PREFIX, &c->w->rename, "rename", err);

    return rc || c->w->rename.n == 0
               ? rc : ckpt_view_rename(src, *src, c->rules.rename, c->rules.n_rename, err);
}

static int untie(struct ckpt_source **src, void *ctx, struct ckpt_err *err)
{
    const struct chain *c = ctx;

    return strcmp(c->w->tied, "drop") == 0 ? drop_tied(src, err) : 0;
}

static int extract(struct ckpt_source **src, void *ctx, struct ckpt_err *err)
{
    const struct chain *c = ctx;

    return c->w->extract ? merge_extract(src, c->w, c->follow, c->p, err) : 0;
}

static int cast(struct ckpt_source **src, void *ctx, struct ckpt_err *err)
{
    const struct chain *c = ctx;
    int rc = merge_must_match(*src, MERGE_GLOB_DTYPE, &c->w->dtype, "dtype", err);

    return rc || c->w->dtype.n == 0 || c->gguf
               ? rc : ckpt_view_cast(src, *src, c->rules.cast, c->rules.n_cast, err);
}

static int pack(struct ckpt_source **src, void *ctx, struct ckpt_err *err)
{
    const struct chain *c = ctx;
    const struct merge_rules *r = &c->rules;

    if (!c->gguf)
        return 0;
    return c->again ? gguf_requantize(src, *src, c->job->input[0], r->cast, r->packs, r->n_cast,
                                      err)
                    : gguf_of_model(src, *src, r->cast, r->packs, r->n_cast, err);
}

int merge_open(struct ckpt_source **src, const struct ckpt_source **origin,
               const struct merge_want *w, const struct merge_job *job, const char *format,
               bool follow, struct provenance *p, struct ckpt_err *err)
{
    static ckpt_chain_step *const steps[] = {leave_states, fill, values, fold, filter,
                                             rename_prefixes, untie, extract, cast, pack};
    struct chain c = {.w = w, .job = job, .p = p, .follow = follow,
                      .gguf = strcmp(format, "gguf") == 0};
    struct ckpt_arena a = {0};
    int rc = merge_rules_of(&c.rules, &a, w, err);

    for (size_t i = 0; rc == 0 && !c.gguf && i < w->dtype.n; i++)
        if (c.rules.packs[i])
            rc = ckpt_fail(err, CKPT_EUSAGE, "--dtype %s goes into a GGUF file, not into %s",
                           w->dtype.item[i], format);
    /* GGUF to GGUF keeps names and keys, if no option needs the model. */
    c.again = c.gguf && job->n == 1 && w->adapter.n == 0 && !w->base && !w->extract &&
              gguf_is_file(job->input[0]);
    if (rc == 0)
        rc = open_inputs(src, &c, err);
    if (rc == 0)
        rc = refuse_slice(*src, job->input[0], err);
    c.again = c.again && rc == 0 && is_gguf(*src);
    *origin = rc == 0 && (job->n == 1 || w->together) ? *src : NULL;
    if (rc == 0)
        rc = ckpt_chain_run(src, steps, sizeof steps / sizeof steps[0], &c, err);
    if (rc) {
        ckpt_source_close(*src);
        *src = NULL;
    }
    ckpt_arena_release(&a);
    return rc;
}

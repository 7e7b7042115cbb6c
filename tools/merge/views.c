/* views - the source of a merge and the views over it; see parts.h. */
#include "tools/merge/parts.h"

#include <string.h>

#include "formats/formats.h"
#include "formats/weights/peft.h"

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
    if (kept < n) {
        struct ckpt_source *below = *src;

        *src = NULL;
        rc = ckpt_view_select(src, below, keep, kept, err);
    }
    ckpt_free(keep);
    return rc;
}

/* Fold adapters into the base that src is. */
static int fold_adapters(struct ckpt_source **src, const struct merge_want *w,
                         struct ckpt_err *err)
{
    for (size_t i = 0; i < w->adapter.n; i++) {
        struct ckpt_open_opts opts = {0};
        struct ckpt_source *adapter = NULL, *base = *src;

        *src = NULL;
        if (ckpt_open_as(&adapter, "peft", w->adapter.item[i], &opts, err)) {
            ckpt_source_close(base);
            return err->code;
        }
        if (peft_merge(src, base, adapter, err))
            return ckpt_err_in(err, "%s", w->adapter.item[i]);
    }
    return 0;
}

int merge_open(struct ckpt_source **src, const struct merge_want *w, const struct merge_job *job,
               bool follow, struct ckpt_err *err)
{
    struct ckpt_open_opts opts = {.tag = w->tag, .base = w->base, .follow = follow,
                                  .optimizer = strcmp(w->optimizer, "keep") == 0};
    struct ckpt_cast_rule cast[MERGE_MAX_RULES];
    struct ckpt_rename_rule rename_rule[MERGE_MAX_RULES];
    struct ckpt_arena a = {0};
    int rc;

    rc = merge_cast_rules(cast, &a, &w->dtype, err);
    if (rc == 0)
        rc = merge_rename_rules(rename_rule, &a, &w->rename, err);
    if (rc == 0)
        rc = ckpt_open(src, job->input, &opts, err);
    if (rc == 0 && strcmp(ckpt_source_format(*src), "peft") == 0 && w->base) {
        struct ckpt_source *adapter = *src, *base = NULL;

        *src = NULL;
        rc = ckpt_open(&base, w->base, &(struct ckpt_open_opts){.follow = follow}, err);
        if (rc)
            ckpt_source_close(adapter);
        else
            rc = peft_merge(src, base, adapter, err);
    }
    if (rc == 0)
        rc = fold_adapters(src, w, err);
    if (rc == 0 && (w->include.n || w->exclude.n)) {
        struct ckpt_source *below = *src;

        *src = NULL;
        rc = ckpt_view_filter(src, below, w->include.item, w->include.n, w->exclude.item,
                              w->exclude.n, err);
    }
    if (rc == 0 && w->rename.n) {
        struct ckpt_source *below = *src;

        *src = NULL;
        rc = ckpt_view_rename(src, below, rename_rule, w->rename.n, err);
    }
    if (rc == 0 && strcmp(w->tied, "drop") == 0)
        rc = drop_tied(src, err);
    if (rc == 0 && w->dtype.n) {
        struct ckpt_source *below = *src;

        *src = NULL;
        rc = ckpt_view_cast(src, below, cast, w->dtype.n, err);
    }
    if (rc) {
        ckpt_source_close(*src);
        *src = NULL;
    }
    ckpt_arena_release(&a);
    return rc;
}

/* adapters - which adapters are folded into which base, and with what weight; see parts.h. */
#include <fnmatch.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "formats/peft/peft.h"
#include "formats/peft/extract.h"
#include "libckpt/io/path.h"
#include "tools/merge/parts.h"

#define MAX_ADAPTERS 32

/* An existing path is taken as a whole, whatever it ends in. */
const char *merge_adapter_weight(const char *item)
{
    const char *colon = strrchr(item, ':');

    return colon && !strchr(colon, '/') && access(item, F_OK) != 0 ? colon + 1 : NULL;
}

/* "DIR" or "DIR:WEIGHT". */
static int parse_item(struct peft_adapter *to, struct ckpt_arena *a, const char *item,
                      struct ckpt_err *err)
{
    const char *weight = merge_adapter_weight(item);
    char *end, *name;

    to->name = item;
    to->weight = 1;
    if (!weight)
        return 0;
    to->weight = strtod(weight, &end);
    if (end == weight || *end || !isfinite(to->weight))
        return ckpt_fail(err, CKPT_EUSAGE, "--adapter %s: %s is no weight", item, weight);
    name = ckpt_arena_strndup(a, item, (size_t)(weight - 1 - item));
    if (!name)
        return ckpt_nomem(err, strlen(item));
    to->name = name;
    return 0;
}

int merge_split_excludes(struct merge_want *w, struct ckpt_arena *a, struct ckpt_err *err)
{
    static const char prefix[] = "base_model.";
    const char **item = ckpt_arena_alloc(a, 2 * w->exclude.n, sizeof *item);
    struct opt_list all = w->exclude;

    if (!item)
        return ckpt_nomem(err, 2 * all.n * sizeof *item);
    w->exclude = (struct opt_list){item, 0};
    w->exclude_adapter = (struct opt_list){item + all.n, 0};
    for (size_t i = 0; i < all.n; i++)
        if (strncmp(all.item[i], prefix, sizeof prefix - 1) == 0)
            item[all.n + w->exclude_adapter.n++] = all.item[i];
        else
            item[w->exclude.n++] = all.item[i];
    return 0;
}

/* Drop the adapter tensors excluded by name; each glob must match one in some adapter. */
static int exclude_named(struct peft_adapter *adapter, size_t n, const struct merge_want *w,
                         struct ckpt_err *err)
{
    const struct opt_list *l = &w->exclude_adapter;
    int rc;

    for (size_t k = 0; k < l->n; k++) {
        size_t found = 0;

        for (size_t i = 0; i < n; i++)
            for (size_t t = 0; t < ckpt_source_count(adapter[i].source); t++)
                found += fnmatch(l->item[k], ckpt_source_tensor(adapter[i].source, t)->name, 0) ==
                         0;
        if (!found)
            return ckpt_fail(err, CKPT_ENOTFOUND, "--exclude %s: no adapter's tensor matches",
                             l->item[k]);
    }
    for (size_t i = 0; l->n && i < n; i++) {
        struct ckpt_source *below = adapter[i].source;

        adapter[i].source = NULL;
        if ((rc = ckpt_view_filter(&adapter[i].source, below, NULL, 0, l->item, l->n,
                                   err)) != 0)
            return rc;
    }
    return 0;
}

static int open_list(struct peft_adapter *to, size_t *n, struct ckpt_arena *a,
                     const struct opt_list *l, const struct ckpt_open_opts *opts,
                     struct provenance *p, struct ckpt_err *err)
{
    int rc;

    if (l->n + *n > MAX_ADAPTERS)
        return ckpt_fail(err, CKPT_EUSAGE, "%zu adapters, %d at most", l->n + *n, MAX_ADAPTERS);
    for (size_t i = 0; i < l->n; i++, ++*n)
        if ((rc = parse_item(&to[*n], a, l->item[i], err)) != 0 ||
            (rc = merge_open_one(&to[*n].source, "peft", "adapter", to[*n].name, opts, p,
                                 err)) != 0)
            return rc;
    return 0;
}

/* Whether a name has the form "owner/name", which models have on the Hub and in
 * adapter_config.json. */
static bool is_hub_name(const char *name)
{
    const char *slash = strchr(name, '/');

    return slash && slash > name && slash[1] && !strchr(slash + 1, '/') && name[0] != '.' &&
           name[0] != '~';
}

static int tell_no_base(const char *name, struct ckpt_err *err)
{
    if (*name)
        ckpt_fail(err, CKPT_EUSAGE, "an adapter, its base model %s is no directory here", name);
    else
        ckpt_fail(err, CKPT_EUSAGE, "an adapter, and its adapter_config.json names no base model");
    return is_hub_name(name)
               ? ckpt_err_hint(err, "--base PATH names it, --base hf://%s fetches it; --no-merge "
                               "writes the adapter as it is", name)
               : ckpt_err_hint(err, "--base PATH names it; --no-merge writes the adapter as it is");
}

/*
 * The path of an adapter's base: --base, or the name in adapter_config.json, looked up as PEFT
 * does (relative to the working directory; on the Hub for an adapter from there) or beside the
 * adapter.
 */
static int find_base(char **base, struct ckpt_arena *a, const struct merge_want *w,
                     const char *input, const struct ckpt_source *adapter, struct ckpt_err *err)
{
    const json_t *info = ckpt_source_info(adapter), *config = json_object_get(info,
                                                                              "adapter_config");
    const char *name = json_string_value(json_object_get(config, "base_model_name_or_path"));
    const char *inside = json_string_value(json_object_get(info, "checkpoint"));
    bool found;

    name = w->base ? w->base : name ? name : "";
    *base = ckpt_arena_printf(a, "%s", name);
    if (!*base)
        return ckpt_nomem(err, strlen(input));
    if (w->base)
        return 0;
    found = *name && (ckpt_path_is_remote(name) || ckpt_path_is_dir(name));
    if (!found && *name && *name != '/') {
        *base = strncmp(input, "hf://", 5) == 0
                    ? ckpt_arena_printf(a, "hf://%s", name)
                    : ckpt_arena_printf(a, "%s/%s", inside ? inside : input, name);
        if (!*base)
            return ckpt_nomem(err, strlen(input));
        found = ckpt_path_is_dir(*base);
    }
    if (!found)
        return tell_no_base(name, err);
    ckpt_log(CKPT_LOG_NOTE, "%s: folded into %s, as its config says", input, *base);
    return 0;
}

int merge_fold(struct ckpt_source **src, const struct merge_want *w, const struct merge_job *job,
               const struct merge_rules *r, bool follow, struct provenance *p,
               struct ckpt_err *err)
{
    bool from_adapter = w->merge && job->n == 1 && strcmp(ckpt_source_format(*src), "peft") == 0;
    struct ckpt_source *base = from_adapter ? NULL : *src;
    struct ckpt_open_opts opts = {.follow = follow, .prove = w->checksums};
    struct peft_adapter adapter[MAX_ADAPTERS] = {0};
    struct ckpt_arena a = {0};
    char *path;
    size_t n = 0;
    int rc = 0;

    if (!from_adapter && w->adapter.n == 0)
        return w->exclude_adapter.n
                   ? ckpt_fail(err, CKPT_ENOTFOUND, "--exclude %s: there is no adapter",
                               w->exclude_adapter.item[0]) : 0;
    if (from_adapter && merge_has_states(*src)) {
        ckpt_fail(err, CKPT_EUNSUPPORTED, "--optimizer keep: the states are the adapter's, a "
                  "merged model has no place for them");
        return ckpt_err_hint(err, "--to deepspeed cuts the shards anew with them");
    }
    if (from_adapter) {
        adapter[n++] = (struct peft_adapter){*src, job->input[0], 1};
        rc = find_base(&path, &a, w, job->input[0], *src, err);
        if (rc == 0)
            rc = merge_open_one(&base, NULL, "base", path, &opts, p, err);
    }
    *src = NULL;
    if (rc == 0)
        rc = open_list(adapter, &n, &a, &w->adapter, &opts, p, err);
    if (rc == 0)
        rc = exclude_named(adapter, n, w, err);
    if (rc == 0)
        rc = merge_widen(&base, r, err);
    if (rc == 0) {
        rc = peft_merge(src, base, adapter, n, err);
        if (rc && n == 1 && !from_adapter)
            ckpt_err_in(err, "%s", adapter[0].name);
    } else {
        ckpt_source_close(base);
        for (size_t i = 0; i < MAX_ADAPTERS; i++)
            ckpt_source_close(adapter[i].source);
    }
    ckpt_arena_release(&a);
    return rc;
}

int merge_extract(struct ckpt_source **src, const struct merge_want *w, bool follow,
                  struct provenance *p, struct ckpt_err *err)
{
    struct ckpt_open_opts opts = {.follow = follow, .prove = w->checksums};
    struct peft_extract_opts how = {.rank = w->extract, .base_name = w->base,
                                    .partial = w->include.n || w->exclude.n};
    struct ckpt_source *full = *src, *base = NULL;

    int rc = merge_open_one(&base, NULL, "base", w->base, &opts, p, err);

    *src = NULL;
    if (rc) {
        ckpt_source_close(base);
        ckpt_source_close(full);
        return rc;
    }
    return peft_extract(src, base, full, &how, err);
}

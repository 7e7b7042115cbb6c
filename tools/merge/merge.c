/* merge - see merge.h. */
#include "tools/merge/merge.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "formats/formats.h"
#include "formats/weights/peft.h"
#include "libckpt/digest_of.h"
#include "tools/out.h"
#include "tools/progress.h"

#define MAX_RULES 64

static bool ends_in(const char *s, const char *tail)
{
    size_t n = strlen(s), k = strlen(tail);

    return n >= k && strcmp(s + n - k, tail) == 0;
}

/* The format that is written: what --to says, refined by what the output is called. */
static int output_format(const char **format, const struct merge_want *w, const char *output,
                         struct ckpt_err *err)
{
    bool stream = strcmp(output, "-") == 0;
    bool st = ends_in(output, ".safetensors"), pt = ends_in(output, ".pt") ||
              ends_in(output, ".pth") || ends_in(output, ".bin");

    *format = w->to;
    if (!w->to)
        *format = st || stream ? "safetensors" : pt ? "torch" : "hf";
    else if (strcmp(w->to, "safetensors") == 0 && !st && !stream)
        *format = "hf";                 /* a directory of safetensors */
    if ((st && strcmp(*format, "safetensors") != 0) || (pt && strcmp(*format, "torch") != 0))
        return ckpt_fail(err, CKPT_EUSAGE, "--to %s does not go with the name %s", *format, output);
    if (stream && strcmp(*format, "safetensors") != 0)
        return ckpt_fail(err, CKPT_EUSAGE, "-o - writes safetensors only, --to says %s", *format);
    return 0;
}

/* "GLOB=dtype" or "dtype" for everything. */
static int cast_rules(struct ckpt_cast_rule *rule, struct ckpt_arena *a, const struct opt_list *l,
                      struct ckpt_err *err)
{
    if (l->n > MAX_RULES)
        return ckpt_fail(err, CKPT_EUSAGE, "%zu --dtype rules, %d at most", l->n, MAX_RULES);
    for (size_t i = 0; i < l->n; i++) {
        const char *eq = strrchr(l->item[i], '='), *name = eq ? eq + 1 : l->item[i];

        rule[i].glob = eq ? ckpt_arena_strndup(a, l->item[i], (size_t)(eq - l->item[i])) : "*";
        rule[i].dtype = ckpt_dtype_parse(name);
        if (!rule[i].glob)
            return ckpt_nomem(err, strlen(l->item[i]));
        if (rule[i].dtype == CKPT_DTYPE_NONE ||
            ckpt_dtype_class(rule[i].dtype) != CKPT_CLASS_FLOAT)
            return ckpt_fail(err, CKPT_EUSAGE, "--dtype %s: no floating dtype; bf16, f16, f32, "
                             "f64, f8_e4m3 and f8_e5m2 are", name);
    }
    return 0;
}

static int rename_rules(struct ckpt_rename_rule *rule, struct ckpt_arena *a,
                        const struct opt_list *l, struct ckpt_err *err)
{
    if (l->n > MAX_RULES)
        return ckpt_fail(err, CKPT_EUSAGE, "%zu --rename rules, %d at most", l->n, MAX_RULES);
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

/* The source with every view the options ask for. */
static int open_views(struct ckpt_source **src, const struct merge_want *w, const char *input,
                      bool follow, struct ckpt_err *err)
{
    struct ckpt_open_opts opts = {.tag = w->tag, .base = w->base, .follow = follow,
                                  .optimizer = strcmp(w->optimizer, "keep") == 0};
    struct ckpt_cast_rule cast[MAX_RULES];
    struct ckpt_rename_rule rename_rule[MAX_RULES];
    struct ckpt_arena a = {0};
    int rc;

    rc = cast_rules(cast, &a, &w->dtype, err);
    if (rc == 0)
        rc = rename_rules(rename_rule, &a, &w->rename, err);
    if (rc == 0)
        rc = ckpt_open(src, input, &opts, err);
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

static uint64_t total_bytes(const struct ckpt_source *src)
{
    uint64_t sum = 0;

    for (size_t i = 0; i < ckpt_source_count(src); i++)
        sum += ckpt_tensor_bytes(ckpt_source_tensor(src, i));
    return sum;
}

/* What would be written, as rows on stdout. */
static int print_plan(const struct ckpt_source *src, const struct cli *cli, const char *format,
                      const char *input, const char *output, struct ckpt_err *err)
{
    static const struct out_column columns[] = {
        {"name", "tensor", OUT_LEFT}, {"dtype", "dtype", OUT_LEFT},
        {"shape", "shape", OUT_LEFT}, {"bytes", "bytes", OUT_RIGHT},
    };
    struct out *o;

    if (out_new(&o, cli->json, err))
        return err->code;
    out_str(o, "input", "input", input);
    out_str(o, "input_format", "input format", ckpt_source_format(src));
    out_str(o, "output", "output", output);
    out_str(o, "output_format", "output format", format);
    out_int(o, "tensors", "tensors", (int64_t)ckpt_source_count(src));
    out_bytes(o, "bytes", "bytes", total_bytes(src));
    out_table(o, "plan", columns, 4);
    for (size_t i = 0; i < ckpt_source_count(src); i++) {
        const struct ckpt_tensor *t = ckpt_source_tensor(src, i);
        char shape[256];

        out_cell_str(o, t->name);
        out_cell_str(o, ckpt_dtype_name(t->dtype));
        out_cell_json(o, ckpt_shape_text(shape, sizeof shape, &t->shape));
        out_cell_bytes(o, ckpt_tensor_bytes(t));
    }
    out_table_end(o);
    return out_end(o, err);
}

#define VERIFY_BYTES ((size_t)4 << 20)

/* Read back what was written and compare every element with what the views say. */
static int verify(struct ckpt_source *src, const char *output, struct ckpt_err *err)
{
    unsigned char *a = ckpt_alloc_buffer(2 * VERIFY_BYTES), *b = a ? a + VERIFY_BYTES : NULL;
    struct ckpt_source *back = NULL;
    int rc = a ? ckpt_open(&back, output, NULL, err) : ckpt_nomem(err, 2 * VERIFY_BYTES);

    for (size_t i = 0; rc == 0 && i < ckpt_source_count(src); i++) {
        const struct ckpt_tensor *t = ckpt_source_tensor(src, i);
        size_t j = ckpt_source_find(back, t->name), width = ckpt_dtype_size(t->dtype);
        int64_t step = (int64_t)(VERIFY_BYTES / (width ? width : 1));

        if (j == SIZE_MAX)
            rc = ckpt_fail_as(err, CKPT_EIO, "digest", "%s: %s is not there after writing", output,
                              t->name);
        for (int64_t at = 0; rc == 0 && at < t->numel; at += step) {
            int64_t n = t->numel - at < step ? t->numel - at : step;

            rc = ckpt_source_read(src, i, at, n, a, err);
            if (rc == 0)
                rc = ckpt_source_read(back, j, at, n, b, err);
            if (rc == 0 && memcmp(a, b, (size_t)n * width) != 0)
                rc = ckpt_fail_as(err, CKPT_EIO, "digest",
                                  "%s: %s reads back other than it was written", output, t->name);
        }
    }
    ckpt_source_close(back);
    ckpt_free(a);
    return rc;
}

/* The output must be no file or directory that the input consists of. */
static int refuse_overlap(const char *input, const char *output, struct ckpt_err *err)
{
    struct stat in, out;

    if (stat(input, &in) == 0 && stat(output, &out) == 0 && in.st_dev == out.st_dev &&
        in.st_ino == out.st_ino)
        return ckpt_fail(err, CKPT_ECREATE, "%s: is the input itself", output);
    return 0;
}

/* Create the sink and move everything into it. */
static int write_out(struct ckpt_source *src, const struct merge_want *w, const struct cli *cli,
                     const char *format, const char *output, struct ckpt_err *err)
{
    const struct ckpt_extra *extra;
    struct ckpt_create_opts create = {
        .max_shard_bytes = w->max_shard_size,
        .metadata = json_object_get(ckpt_source_info(src), "metadata"),
        .info = ckpt_source_info(src), .flags = w->overwrite ? CKPT_REPLACE : 0,
        .stream_fd = strcmp(output, "-") == 0 ? STDOUT_FILENO : -1,
    };
    struct progress *p = progress_new(cli, output, true);
    struct ckpt_copy_opts copy = {.workers = (size_t)cli->jobs, .progress = progress_tick,
                                  .progress_ctx = p, .stop = &cli_stop};
    struct ckpt_sink *sink = NULL;
    int rc;

    create.n_extra = ckpt_source_extras(src, &extra);
    create.extra = extra;
    rc = ckpt_create(&sink, format, output, ckpt_source_tensors(src), &create, err);
    if (rc == 0)
        rc = ckpt_copy(sink, src, &copy, err);
    progress_end(p);
    if (rc == 0) {
        rc = ckpt_sink_commit(sink, err);
        sink = NULL;
    }
    ckpt_sink_abort(sink);
    return rc;
}

int merge_run(const struct merge_want *w, struct cli *cli, const char *input, const char *output,
              struct ckpt_err *err)
{
    struct ckpt_source *src = NULL;
    const char *format;
    int rc = output_format(&format, w, output, err);

    if (rc == 0)
        rc = refuse_overlap(input, output, err);
    if (rc == 0)
        rc = open_views(&src, w, input, cli->follow, err);
    if (rc == 0 && ckpt_source_count(src) == 0)
        rc = ckpt_fail(err, CKPT_ENOTFOUND, "%s: no tensor to write", input);
    if (rc == 0 && w->dry_run)
        rc = print_plan(src, cli, format, input, output, err);
    else if (rc == 0)
        rc = write_out(src, w, cli, format, output, err);
    if (rc == 0 && w->verify && !w->dry_run && strcmp(output, "-") != 0)
        rc = verify(src, output, err);
    ckpt_source_close(src);
    return rc;
}

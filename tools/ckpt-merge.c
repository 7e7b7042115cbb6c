/* ckpt-merge - any checkpoint into any other: options -> items -> merge. */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "libckpt/base/map.h"
#include "libckpt/io/pack.h"
#include "libckpt/io/path.h"
#include "tools/cli_items.h"
#include "tools/merge/merge.h"

#define OPT_VALUES struct merge_want
static const struct opt rows[] = {
    OPT_PATH("output", "PATH", output, "directory or file to write; - is stdout", .letter = 'o',
             .absent = "INPUT-merged"),
    OPT_ENUM("to", "FORMAT", to, "hf safetensors torch dcp deepspeed universal gguf peft",
             "format to write", .absent = "by the output's name, else hf"),
    OPT_LIST("dtype", "[GLOB=]DTYPE", dtype,
             "convert floating-point tensors, of names that match GLOB; the last match wins; "
             "repeatable", .absent = "as the input", .bytes = OPT_BYTES_ANY),
    OPT_SIZE("max-shard-size", max_shard_size, "bytes of the largest file of a directory",
             .absent = "5GB"),
    OPT_LIST("adapter", "DIR[:WEIGHT]", adapter,
             "LoRA adapter to merge into the input; several are added up; repeatable",
             .bytes = OPT_BYTES_FILE),
    OPT_PATH("base", "PATH", base,
             "base model of an adapter, or of an input that lacks some weights",
             .absent = "the adapter's own"),
    OPT_FLAG("merge", merge, "merge an input that is an adapter into its base"),
    OPT_INT("extract-adapter", "RANK", extract, 1, 1024,
            "write the difference of the input from --base as an adapter of this rank",
            .absent = "none"),
    OPT_FLAG("best", best, "the folder of a run means its best checkpoint, not the newest"),
    OPT_TEXT("tag", "NAME", tag, "DeepSpeed folder to read", .absent = "named by latest"),
    OPT_LIST("include", "GLOB", include, "write only tensors whose names match; repeatable",
             .absent = "all", .bytes = OPT_BYTES_ANY),
    OPT_LIST("exclude", "GLOB", exclude, "leave out tensors whose names match; repeatable",
             .bytes = OPT_BYTES_ANY),
    OPT_LIST("rename", "FROM=TO", rename, "replace a prefix of tensor names; repeatable"),
    OPT_ENUM("optimizer", "WHAT", optimizer, "keep drop", "optimizer state",
             .absent = "drop; keep for DeepSpeed outputs"),
    OPT_INT("world", "RANKS", world, 1, 4096, "DeepSpeed: ranks to shard the output for",
            .absent = "as the input"),
    OPT_INT("stage", "N", stage, 1, 3, "DeepSpeed: ZeRO stage to write",
            .absent = "as the input"),
    OPT_ENUM("tied", "WHAT", tied, "keep drop",
             "names tied to another tensor; drop writes the tensor once"),
    OPT_FLAG("together", together,
             "the inputs are the parts of one checkpoint that the nodes of a run saved"),
    OPT_FLAG("average", average, "write one checkpoint: the mean of all inputs"),
    OPT_TEXT("weights", "W,W...", weights, "weights of the inputs in the mean, in their order",
             .absent = "equal"),
    OPT_ENUM("provenance", "WHAT", provenance, "xxh128 sha256 names none",
             "record inputs and options in the output, with this digest of each file read"),
    OPT_FLAG("overwrite", overwrite, "replace an existing file, never a directory"),
    OPT_FLAG("verify", verify, "read the output back and compare"),
    OPT_FLAG("checksums", checksums, "refuse archives with wrong checksums"),
    OPT_FLAG("dry-run", dry_run, "print what would be written"),
};
#undef OPT_VALUES

/* Which options have an effect together; those that depend on the output's format are checked in
 * merge.c. */
static const struct opt_rule rules[] = {
    {OPT_NEEDS, "weights", "average"},
    {OPT_BARS, "dry-run", "verify"},
    {OPT_BARS, "output=-", "verify overwrite"},
};

/* Output path of one of several items: OUTPUT/<last part>, or beside the item as <item>-merged. */
static char *output_for(struct ckpt_arena *a, const char *output, const char *item, bool many)
{
    size_t n = strlen(item);
    const char *last;

    while (n > 1 && item[n - 1] == '/')
        n--;
    if (!output)
        return ckpt_arena_printf(a, "%.*s-merged", (int)n, item);
    if (!many)
        return ckpt_arena_printf(a, "%s", output);
    for (last = item + n; last > item && last[-1] != '/'; last--)
        ;
    return ckpt_arena_printf(a, "%s/%.*s", output, (int)(item + n - last), last);
}

static bool is_file_name(const char *s)
{
    static const char *const tails[] = {".safetensors", ".pt", ".pth", ".bin", ".gguf", NULL};

    return ckpt_pack_of(s) != CKPT_PACK_NONE || ckpt_path_ends_in_any(s, tails);
}

/* Of a dry run: what the inputs before the next one would have left there. */
struct plan {
    char              first[4352];      /* part of the outputs' folder, made first; "": none is */
    struct ckpt_arena arena;            /* of the names */
    struct ckpt_map  *there;            /* their outputs */
};

/* Enter an output that would be made. */
static int enter(struct plan *p, const char *to, struct ckpt_err *err)
{
    size_t n = strlen(to);
    const char *name = ckpt_arena_strndup(&p->arena, to, n);

    if (!name)
        return ckpt_nomem(err, n);
    return ckpt_map_get(p->there, to, n) == CKPT_MAP_NONE
               ? ckpt_map_add(p->there, name, n, 0, err) : 0;
}

/* Refuse an output that would be there by now, and could not be replaced. */
static int check_entered(const struct plan *p, const struct merge_want *w, const char *to,
                         struct ckpt_err *err)
{
    bool file = is_file_name(to);

    if (ckpt_map_get(p->there, to, strlen(to)) == CKPT_MAP_NONE || (w->overwrite && file))
        return 0;
    ckpt_fail(err, CKPT_ECREATE, "%s: exists already", to);
    return merge_hint_overwrite(file, err);
}

/* Make one output from n inputs, and print its line on stdout.  plan: of a dry run, or NULL. */
static int one(const struct merge_want *w, struct cli *cli, const char *const *input, size_t n,
               bool many, struct plan *plan, struct ckpt_err *err)
{
    struct ckpt_arena a = {0};
    char *to = output_for(&a, w->output, input[0], many);
    struct merge_job job = {.input = input, .n = n, .output = to,
                            .first = plan && *plan->first ? plan->first : NULL};
    int rc = to ? 0 : ckpt_nomem(err, strlen(input[0]));

    if (rc == 0 && !w->output && ckpt_path_is_descriptor(input[0]))
        rc = ckpt_fail(err, CKPT_EUSAGE, "a checkpoint from a pipe needs -o");
    if (rc == 0 && plan)
        rc = check_entered(plan, w, to, err);
    if (rc == 0)
        rc = merge_run(w, cli, &job, err);
    if (rc == 0 && plan && strcmp(to, "-") != 0)
        rc = enter(plan, to, err);

    if (rc && n == 1)
        ckpt_err_in(err, "%s", input[0]);
    if (rc == 0 && !w->dry_run && strcmp(to, "-") != 0)
        rc = cli_artifact(cli, to, NULL, err);
    ckpt_arena_release(&a);
    return rc;
}

/* Each input by itself, as it arrives. */
struct by_itself {
    const struct merge_want *w;
    struct cli              *cli;
    bool                     many;
    struct plan             *plan;      /* of a dry run, or NULL */
};

static int merge_item(void *ctx, const char *item, struct ckpt_err *err)
{
    const struct by_itself *b = ctx;

    return one(b->w, b->cli, &item, 1, b->many, b->plan, err);
}

/* All inputs into one output. */
static int together(const struct merge_want *w, struct cli *cli, struct cli_items *items,
                    struct ckpt_err *err)
{
    const char *const *all;
    size_t n = 0;
    int rc = cli_items_all(items, &all, &n, err);

    if (rc == 0 && n < 2)
        rc = ckpt_fail(err, CKPT_EUSAGE, "--%s: %zu input, two at least are wanted",
                       w->average ? "average" : "together", n);
    if (rc == 0)
        rc = one(w, cli, all, n, false, NULL, err);
    return rc;
}

/* Create the directory for several outputs, and its parents, where missing; or see that a dry run's
 * could be. */
static int make_below(const char *path, struct plan *plan, struct ckpt_err *err)
{
    struct stat st;

    if (is_file_name(path) && (stat(path, &st) || !S_ISDIR(st.st_mode)))
        return ckpt_fail(err, CKPT_EUSAGE, "-o %s: one file, several inputs want a directory",
                         path);
    return plan ? ckpt_path_dirs_ready(plan->first, sizeof plan->first, path, err)
                : ckpt_path_make_dirs(path, err);
}

static int work(const struct merge_want *w, struct cli *cli, char **rest, int n_rest,
                int *status, struct ckpt_err *err)
{
    struct plan plan = {.there = NULL};
    struct by_itself by = {.w = w, .cli = cli, .plan = w->dry_run ? &plan : NULL};
    const char *output = w->output;
    bool many = n_rest != 1 || strcmp(rest[0], "-") == 0, bytes = false, below;
    bool one_output = w->average || w->together;
    struct cli_items *items = NULL;
    int rc;

    if (w->average && w->together)
        return ckpt_fail(err, CKPT_EUSAGE, "--average or --together, not both");
    rc = cli_items_open(&items, rest, n_rest, cli->nul, err);
    if (rc == 0)
        rc = cli_items_bytes(items, &bytes, err);
    if (rc == 0 && w->best)
        cli_items_best(items);
    if (rc == 0 && bytes && !output)
        rc = ckpt_fail(err, CKPT_EUSAGE, "a checkpoint on standard input needs -o");
    many = many && !(bytes && n_rest <= 1);
    below = many && output && strcmp(output, "-") != 0;
    if (rc == 0 && w->dry_run)
        rc = ckpt_map_new(&plan.there, 16, err);
    if (rc == 0 && below && !one_output)
        rc = make_below(output, by.plan, err);
    by.many = below || (many && !output);
    if (rc == 0)
        rc = one_output ? together(w, cli, items, err)
                        : cli_items_each(items, cli, merge_item, &by, status, err);
    cli_items_close(items);
    ckpt_map_free(plan.there);
    ckpt_arena_release(&plan.arena);
    return rc;
}

int main(int argc, char **argv)
{
    struct cli cli = {0};
    struct merge_want w = {.tied = "drop", .provenance = "xxh128", .merge = true,
                           .checksums = true};
    const struct opt_spec spec = {
        .synopsis = "[-o OUT] [option ...] [INPUT ...]",
        .summary = "turn checkpoints of any kind into a model directory or one file",
        .section = {OPT_SECTION(rows, &w)},
        .rule = rules, .n_rule = sizeof rules / sizeof rules[0],
    };
    struct ckpt_err err = {0};
    char **rest;
    int n_rest, rc, status = 0;

    cli_begin(&cli, "ckpt-merge");
    rc = opt_parse(&spec, &cli, argc, argv, &rest, &n_rest, &w.given, &err);
    if (rc == 1)
        return cli_end(&cli, 0);
    if (rc == 0 && w.output && strcmp(w.output, "-") == 0 && isatty(STDOUT_FILENO) && !w.dry_run)
        rc = ckpt_fail(&err, CKPT_EUSAGE, "-o -: stdout is a terminal, a checkpoint is binary");
    if (rc == 0)
        rc = work(&w, &cli, rest, n_rest, &status, &err);
    return cli_end(&cli, rc ? cli_error(&cli, &err) : status);
}

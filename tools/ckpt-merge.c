/* ckpt-merge - any checkpoint into any other: options -> items -> merge. */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "libckpt/io/pack.h"
#include "libckpt/io/path.h"
#include "tools/cli_items.h"
#include "tools/merge/merge.h"

#define ROWS 26

static size_t rows(struct opt *row, struct merge_want *w, const char **output)
{
    const struct opt all[] = {
        {'o', "output", "PATH", OPT_PATH, output,
         "directory or file to write (default: INPUT-merged); - is stdout", NULL, 0, 0, false},
        {0, "to", "FORMAT", OPT_CHOICE, &w->to,
         "format to write (default: by the output's name, else hf)",
         "hf safetensors torch dcp deepspeed universal gguf peft", 0, 0, false},
        {0, "dtype", "[GLOB=]DTYPE", OPT_LIST, &w->dtype,
         "cast floating tensors (whose name matches GLOB); the last match wins", NULL, 0, 0,
         false},
        {0, "max-shard-size", "SIZE", OPT_SIZE, &w->max_shard_size,
         "largest file of a directory (default: 5GB)", NULL, 0, 0, false},
        {0, "adapter", "DIR[:WEIGHT]", OPT_LIST, &w->adapter,
         "fold this LoRA adapter into the input; changes of several add up", NULL, 0, 0, false},
        {0, "base", "PATH", OPT_PATH, &w->base,
         "base model of an adapter, or of an input that lacks some weights", NULL, 0, 0, false},
        {0, "merge", NULL, OPT_FLAG, &w->merge,
         "fold an input that is an adapter into its base (default: yes)", NULL, 0, 0, false},
        {0, "extract-adapter", "RANK", OPT_INT, &w->extract,
         "write what the input changed of --base, as an adapter of this rank", NULL, 1, 1024,
         false},
        {0, "tag", "NAME", OPT_STR, &w->tag,
         "DeepSpeed folder to read (default: what latest says)", NULL, 0, 0, false},
        {0, "include", "GLOB", OPT_LIST, &w->include, "take only tensors that match", NULL, 0, 0,
         false},
        {0, "exclude", "GLOB", OPT_LIST, &w->exclude, "leave out tensors that match", NULL, 0, 0,
         false},
        {0, "rename", "FROM=TO", OPT_LIST, &w->rename, "replace a prefix of names", NULL, 0, 0,
         false},
        {0, "optimizer", "WHAT", OPT_CHOICE, &w->optimizer,
         "optimizer state (default: drop; DeepSpeed outputs keep it)", "keep drop", 0, 0, false},
        {0, "world", "N", OPT_INT, &w->world,
         "DeepSpeed: ranks to cut the output for (default: as the input)", NULL, 1, 4096, false},
        {0, "stage", "N", OPT_INT, &w->stage,
         "DeepSpeed: ZeRO stage to write (default: as the input)", NULL, 1, 3, false},
        {0, "tied", "WHAT", OPT_CHOICE, &w->tied,
         "names tied to another tensor: drop writes the tensor once", "keep drop", 0, 0, false},
        {0, "together", NULL, OPT_FLAG, &w->together,
         "the inputs are folders of one checkpoint, as the nodes of a run kept them", NULL, 0, 0,
         false},
        {0, "average", NULL, OPT_FLAG, &w->average,
         "write one checkpoint: the mean of all inputs", NULL, 0, 0, false},
        {0, "weights", "W,W...", OPT_STR, &w->weights,
         "of the inputs in the mean, by order (default: all alike)", NULL, 0, 0, false},
        {0, "provenance", "WHAT", OPT_CHOICE, &w->provenance,
         "record of inputs and options in the output, with this digest of every file read",
         "xxh128 sha256 names none", 0, 0, false},
        {0, "overwrite", NULL, OPT_FLAG, &w->overwrite,
         "replace an output file that exists; a directory never", NULL, 0, 0, false},
        {0, "verify", NULL, OPT_FLAG, &w->verify, "read the output back and compare", NULL, 0, 0,
         false},
        {0, "checksums", NULL, OPT_FLAG, &w->checksums,
         "refuse damaged archives; --no-checksums takes them", NULL, 0, 0, false},
        {0, "dry-run", NULL, OPT_FLAG, &w->dry_run, "print what would be written", NULL, 0, 0,
         false},
    };

    memcpy(row, all, sizeof all);
    return sizeof all / sizeof all[0];
}

/* What counts beside what; what the output's format decides is asked in merge.c. */
static const struct opt_rule rules[] = {
    {OPT_NEEDS, "weights", "average"},
    {OPT_BARS, "dry-run", "verify"},
    {OPT_BARS, "output=-", "verify overwrite"},
};

/* Where one of several items goes: OUTPUT/<last part>, or beside it as <item>-merged. */
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

/* One output of n inputs, and its line on stdout. */
static int one(const struct merge_want *w, struct cli *cli, const char *const *input, size_t n,
               const char *output, bool many, struct ckpt_err *err)
{
    struct ckpt_arena a = {0};
    char *to = output_for(&a, output, input[0], many);
    struct merge_job job = {.input = input, .n = n, .output = to};
    int rc = to ? merge_run(w, cli, &job, err) : ckpt_nomem(err, strlen(input[0]));

    if (rc && n == 1)
        ckpt_err_in(err, "%s", input[0]);
    if (rc == 0 && !w->dry_run && strcmp(to, "-") != 0)
        rc = cli_artifact(cli, to, NULL, err);
    ckpt_arena_release(&a);
    return rc;
}

/* Each input by itself, as it comes. */
struct by_itself {
    const struct merge_want *w;
    struct cli              *cli;
    const char              *output;
    bool                     many;
};

static int merge_item(void *ctx, const char *item, struct ckpt_err *err)
{
    const struct by_itself *b = ctx;

    return one(b->w, b->cli, &item, 1, b->output, b->many, err);
}

/* All inputs into one output. */
static int together(const struct merge_want *w, struct cli *cli, const char *output,
                    struct cli_items *items, struct ckpt_err *err)
{
    char **all = NULL, *item = NULL;
    size_t n = 0, cap = 0;
    int rc = 0;

    cli_items_hold(items);
    while (rc == 0 && (rc = cli_items_next(items, &item, err)) == 0 && item) {
        if (n == cap) {
            char **more = ckpt_grow(all, cap = cap ? 2 * cap : 8, sizeof *all);

            if (!more) {
                rc = ckpt_nomem(err, cap * sizeof *all);
                ckpt_free(item);
                break;
            }
            all = more;
        }
        all[n++] = item;
    }
    if (rc == 0 && n < 2)
        rc = ckpt_fail(err, CKPT_EUSAGE, "--%s: %zu input, two at least are wanted",
                       w->average ? "average" : "together", n);
    if (rc == 0)
        rc = one(w, cli, (const char *const *)all, n, output, false, err);
    while (n > 0)
        ckpt_free(all[--n]);
    ckpt_free(all);
    return rc;
}

static bool is_file_name(const char *s)
{
    static const char *const tail[] = {".safetensors", ".pt", ".pth", ".bin", ".gguf"};

    if (ckpt_pack_of(s) != CKPT_PACK_NONE)
        return true;

    for (size_t i = 0; i < sizeof tail / sizeof tail[0]; i++)
        if (strlen(s) >= strlen(tail[i]) && strcmp(s + strlen(s) - strlen(tail[i]), tail[i]) == 0)
            return true;
    return false;
}

/* The directory that several outputs go below, made with its parents where it is missing. */
static int make_below(const char *path, struct ckpt_err *err)
{
    struct stat st;

    if (is_file_name(path) && (stat(path, &st) || !S_ISDIR(st.st_mode)))
        return ckpt_fail(err, CKPT_EUSAGE, "-o %s: one file, several inputs want a directory",
                         path);
    return ckpt_path_make_dirs(path, err);
}

static int work(const struct merge_want *w, struct cli *cli, const char *output, char **rest,
                int n_rest, int *status, struct ckpt_err *err)
{
    struct by_itself by = {.w = w, .cli = cli, .output = output};
    bool many = n_rest != 1 || strcmp(rest[0], "-") == 0, bytes = false, below;
    bool one_output = w->average || w->together;
    struct cli_items *items = NULL;
    int rc;

    if (w->average && w->together)
        return ckpt_fail(err, CKPT_EUSAGE, "--average or --together, not both");
    rc = cli_items_open(&items, rest, n_rest, cli->nul, err);
    if (rc == 0)
        rc = cli_items_bytes(items, &bytes, err);
    if (rc == 0 && bytes && !output)
        rc = ckpt_fail(err, CKPT_EUSAGE, "a checkpoint on standard input needs -o");
    many = many && !(bytes && n_rest <= 1);
    below = many && output && strcmp(output, "-") != 0;
    if (rc == 0 && below && !one_output && !w->dry_run)
        rc = make_below(output, err);
    by.many = below || (many && !output);
    if (rc == 0)
        rc = one_output ? together(w, cli, output, items, err)
                        : cli_items_each(items, cli, merge_item, &by, status, err);
    cli_items_close(items);
    return rc;
}

int main(int argc, char **argv)
{
    struct cli cli = {0};
    struct merge_want w = {.tied = "drop", .provenance = "xxh128", .merge = true,
                           .checksums = true};
    const char *output = NULL;
    struct opt row[ROWS];
    struct opt_spec spec = {
        .synopsis = "[-o OUT] [option ...] [INPUT ...]",
        .summary = "turn checkpoints of any kind into a model directory or one file", .row = row,
        .run_file = true, .rule = rules, .n_rule = sizeof rules / sizeof rules[0],
    };
    struct ckpt_err err = {0};
    char **rest;
    int n_rest, rc, status = 0;

    cli_begin(&cli, "ckpt-merge");
    spec.n = rows(row, &w, &output);
    rc = opt_parse(&spec, &cli, argc, argv, &rest, &n_rest, &err);
    if (rc == 1)
        return cli_end(&cli, 0);
    if (rc == 0 && output && strcmp(output, "-") == 0 && isatty(STDOUT_FILENO) && !w.dry_run)
        rc = ckpt_fail(&err, CKPT_EUSAGE, "-o -: stdout is a terminal, a checkpoint is binary");
    if (rc == 0)
        rc = work(&w, &cli, output, rest, n_rest, &status, &err);
    return cli_end(&cli, rc ? cli_error(&cli, &err) : status);
}

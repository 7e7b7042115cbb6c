/* ckpt-inspect - tell everything about a checkpoint without running a byte of it. */
#include <stdio.h>
#include <string.h>

#include "tools/cli_items.h"
#include "tools/inspect/encode.h"
#include "tools/inspect/inspect.h"

#define ROWS 32

static size_t rows(struct opt *row, struct inspect_want *w, struct encode_want *e)
{
    const struct opt all[] = {
        {0, "glob", "GLOB", OPT_LIST, &w->glob, "show tensors whose name matches; may be repeated",
         NULL, 0, 0, false},
        {'t', "tensor", "NAME", OPT_STR, &w->tensor, "one tensor: first values, statistics, digest",
         NULL, 0, 0, false},
        {0, "stats", NULL, OPT_FLAG, &w->stats,
         "extremes, mean, deviation, zeros, NaN and infinite values, histogram of every tensor",
         NULL, 0, 0, false},
        {0, "digest", NULL, OPT_FLAG, &w->digest,
         "SHA-256 of every tensor's bytes, the same in every format", NULL, 0, 0, false},
        {0, "optimizer", NULL, OPT_FLAG, &w->optimizer,
         "list optimizer state too; groups, and norms of every parameter's moments", NULL, 0, 0,
         false},
        {0, "state", NULL, OPT_FLAG, &w->state,
         "the trainer's state: steps, losses as a curve, evaluations", NULL, 0, 0, false},
        {0, "args", NULL, OPT_FLAG, &w->args, "the run's training_args.bin as fields", NULL, 0, 0,
         false},
        {0, "rng", NULL, OPT_FLAG, &w->rng,
         "random states: seeds where they can be told, positions, the numbers that come next",
         NULL, 0, 0, false},
        {0, "scan", NULL, OPT_FLAG, &w->scan,
         "what loading any file below the path could run: names, code, templates, with a verdict",
         NULL, 0, 0, false},
        {0, "diff", NULL, OPT_FLAG, &w->diff,
         "tell what sets two checkpoints apart; status 1 when anything does", NULL, 0, 0, false},
        {0, "compare", NULL, OPT_FLAG, &w->compare,
         "show runs side by side: steps, losses, times", NULL, 0, 0, false},
        {0, "together", NULL, OPT_FLAG, &w->together,
         "the paths are folders of one checkpoint, as the nodes of a run kept them", NULL, 0, 0,
         false},
        {0, "verify", NULL, OPT_FLAG, &w->verify,
         "read everything; prove the manifest's digests where there is one", NULL, 0, 0, false},
        {0, "tree", NULL, OPT_FLAG, &w->tree,
         "a torch file as the values it holds, a checkpoint as its modules", NULL, 0, 0, false},
        {0, "plot", NULL, OPT_FLAG, &w->plot,
         "draw the losses of a trainer_state.json or a directory with one, or the tags of a log; "
         "with --compare losses and memory of all runs",
         NULL, 0, 0, false},
        {0, "html", "FILE", OPT_PATH, &w->html,
         "write a page of it: curves, tables that sort and filter, histograms", NULL, 0, 0, false},
        {0, "overwrite", NULL, OPT_FLAG, &w->overwrite, "replace a page that exists", NULL, 0, 0,
         false},
        {0, "tag", "NAME", OPT_STR, &w->tag,
         "DeepSpeed folder to read (default: what latest says)", NULL, 0, 0, false},
        {0, "encode", "FILE", OPT_PATH, &e->encode,
         "put the path's tokenizer to use: a text a line (in a .jsonl a JSON string) to ids", NULL,
         0, 0, false},
        {0, "decode", "FILE", OPT_PATH, &e->decode,
         "the way back: ids, or what --encode printed, to a JSON string a line", NULL, 0, 0,
         false},
        {0, "special-tokens", NULL, OPT_FLAG, &e->special,
         "with the tokens that a tokenizer adds (the default)", NULL, 0, 0, false},
    };

    memcpy(row, all, sizeof all);
    return sizeof all / sizeof all[0];
}

/*
 * What counts beside what.  Every path gets one kind of answer; the options that a kind has no
 * use for are refused.  With --tensor, --stats and --digest ask for what is told anyhow.
 */
static const struct opt_rule rules[] = {
    {OPT_ONLY, "encode", "special-tokens"},
    {OPT_ONLY, "decode", "special-tokens"},
    {OPT_NEEDS, "special-tokens", "encode decode"},
    {OPT_ONLY, "scan", "html overwrite"},
    {OPT_ONLY, "diff", "glob optimizer tag html overwrite"},
    {OPT_ONLY, "compare", "glob optimizer tag plot html overwrite"},
    {OPT_ONLY, "rng", "args state verify html overwrite"},
    {OPT_ONLY, "args", "rng state verify html overwrite"},
    {OPT_ONLY, "state", "rng args verify html overwrite"},
    {OPT_ONLY, "tensor", "stats digest optimizer tag together verify html overwrite"},
    {OPT_ONLY, "tree", "glob optimizer tag together verify html overwrite"},
    {OPT_ONLY, "plot", "glob compare together verify"},
    {OPT_BARS, "html", "plot"},
    {OPT_NEEDS, "overwrite", "html"},
};

/* --diff, --compare and --together: all paths in one answer. */
static int together(const struct inspect_want *w, struct cli *cli, struct cli_items *items,
                    struct ckpt_err *err)
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
    if (rc == 0 && w->together && n < 2) {
        rc = ckpt_fail(err, CKPT_EUSAGE, "--together: %zu path, two at least are wanted", n);
    } else if (rc == 0 && w->together) {
        struct inspect_want one = *w;

        one.part = (const char *const *)all + 1;
        one.n_part = n - 1;
        rc = inspect_path(&one, cli, all[0], err);
    } else if (rc == 0) {
        rc = inspect_together(w, cli, all, n, err);
    }
    while (n > 0)
        ckpt_free(all[--n]);
    ckpt_free(all);
    return rc;
}

/* Each path by itself. */
struct by_itself {
    const struct inspect_want *w;
    struct cli                *cli;
    size_t                     n;       /* looked at so far */
};

static int inspect_item(void *ctx, const char *item, struct ckpt_err *err)
{
    struct by_itself *b = ctx;

    if (b->n++ && b->w->html)
        return ckpt_fail(err, CKPT_EUSAGE, "--html: one page, one path; %s is another", item);
    return inspect_path(b->w, b->cli, item, err);
}

/* --encode and --decode: of the one path that has the tokenizer. */
static int encode(const struct encode_want *e, struct cli *cli, char **rest, int n_rest,
                  struct ckpt_err *err)
{
    if (e->encode && e->decode)
        return ckpt_fail(err, CKPT_EUSAGE, "--encode and --decode: one of them");
    if (n_rest != 1)
        return ckpt_fail(err, CKPT_EUSAGE, "--%s: %d paths, one is wanted that has the tokenizer",
                         e->encode ? "encode" : "decode", n_rest);
    return inspect_encode(e, cli, rest[0], err);
}

int main(int argc, char **argv)
{
    struct cli cli = {0};
    struct inspect_want w = {0};
    struct encode_want e = {.special = true};
    struct opt row[ROWS];
    struct opt_spec spec = {
        .synopsis = "[option ...] [PATH ...]",
        .summary = "tell what a checkpoint, or a file of a run, holds, without executing it",
        .row = row, .run_file = true, .rule = rules, .n_rule = sizeof rules / sizeof rules[0],
    };
    struct by_itself by = {.w = &w, .cli = &cli};
    struct cli_items *items = NULL;
    struct ckpt_err err = {0};
    char **rest;
    int n_rest, rc, status = 0;
    bool bytes;

    cli_begin(&cli, "ckpt-inspect");
    spec.n = rows(row, &w, &e);
    rc = opt_parse(&spec, &cli, argc, argv, &rest, &n_rest, &err);
    if (rc == 1)
        return cli_end(&cli, 0);
    if (rc == 0 && (e.encode || e.decode)) {
        rc = encode(&e, &cli, rest, n_rest, &err);
        return cli_end(&cli, rc ? cli_error(&cli, &err) : 0);
    }
    if (rc == 0)
        rc = cli_items_open(&items, rest, n_rest, cli.nul, &err);
    if (rc == 0 && w.diff + w.compare + w.together > 1)
        rc = ckpt_fail(&err, CKPT_EUSAGE, "--diff, --compare and --together: one of them");
    if (rc == 0)
        rc = cli_items_bytes(items, &bytes, &err);
    if (rc == 0)
        rc = w.diff || w.compare || w.together ? together(&w, &cli, items, &err)
                                 : cli_items_each(items, &cli, inspect_item, &by, &status, &err);
    cli_items_close(items);
    return cli_end(&cli, rc ? cli_error(&cli, &err) : status);
}

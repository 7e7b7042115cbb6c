/* ckpt-inspect - report everything about a checkpoint without executing a byte of it. */

#include "tools/cli_items.h"
#include "tools/inspect/encode.h"
#include "tools/inspect/inspect.h"

#define OPT_VALUES struct inspect_want
static const struct opt rows[] = {
    OPT_LIST("glob", "GLOB", glob, "show only tensors whose names match; repeatable",
             .absent = "all", .bytes = OPT_BYTES_ANY),
    OPT_TEXT("tensor", "NAME", tensor, "show one tensor: first values, statistics, digest",
             .letter = 't'),
    OPT_INT("rows", "N", rows, 0, 1000000000, "rows of data shown of the beginning and of the end",
            .absent = "5"),
    OPT_FLAG("best", best, "the folder of a run means its best checkpoint, not the newest"),
    OPT_FLAG("stats", stats,
             "minimum, maximum, mean, deviation, zeros, NaN, infinities and histogram of tensors"),
    OPT_FLAG("digest", digest, "SHA-256 of each tensor's bytes, the same in every format"),
    OPT_FLAG("optimizer", optimizer,
             "list optimizer state too: groups, and norms of the moments of parameters"),
    OPT_FLAG("state", state, "show trainer_state.json: steps, loss curve, evaluations"),
    OPT_FLAG("args", args, "show the fields of training_args.bin"),
    OPT_FLAG("rng", rng, "show random states: seeds if known, positions, next numbers"),
    OPT_FLAG("scan", scan,
             "list what loading any file of the path could execute: names, code, templates; with "
             "a verdict"),
    OPT_FLAG("diff", diff, "compare two checkpoints; exit status 1 if they differ"),
    OPT_FLAG("compare", compare, "show runs side by side: steps, losses, times"),
    OPT_FLAG("together", together,
             "the paths are the parts of one checkpoint that the nodes of a run saved"),
    OPT_FLAG("verify", verify, "read everything; check the digests of a manifest"),
    OPT_FLAG("verify-signature", verify_signature,
             "check model.sig, and that every file is as it was signed"),
    OPT_PATH("public-key", "FILE", public_key, "public key of the signer, in PEM"),
    OPT_PATH("certificate-root", "FILE", certificate_root,
             "root certificates in PEM that the signer's is below"),
    OPT_PATH("signature", "FILE", signature, "file with the signature",
             .absent = "model.sig in the path"),
    OPT_FLAG("ignore-unsigned-files", ignore_unsigned,
             "accept files that the signature does not cover"),
    OPT_FLAG("tree", tree, "show a torch file as nested values, a checkpoint as modules"),
    OPT_FLAG("plot", plot,
             "draw the losses of trainer_state.json or the tags of a log; with --compare losses "
             "and memory of all runs"),
    OPT_PATH("html", "FILE", html,
             "write a page instead: curves, facts, tables that sort and filter, histograms"),
    OPT_FLAG("overwrite", overwrite, "replace an existing page"),
    OPT_TEXT("tag", "NAME", tag, "DeepSpeed folder to read", .absent = "named by latest"),
};
#undef OPT_VALUES

#define OPT_VALUES struct encode_want
static const struct opt encode_rows[] = {
    OPT_PATH("encode", "FILE", encode,
             "encode texts with the path's tokenizer, one a line; in a .jsonl one JSON string a "
             "line"),
    OPT_PATH("decode", "FILE", decode,
             "decode arrays of ids, or the output of --encode, to JSON strings"),
    OPT_FLAG("special-tokens", special, "with the tokens that the tokenizer adds"),
};
#undef OPT_VALUES

/*
 * Which options have an effect together.  Every path gets one kind of answer; options without
 * effect on it are refused.  --tensor includes the output of --stats and --digest.
 */
static const struct opt_rule rules[] = {
    {OPT_ONLY, "encode", "special-tokens"},
    {OPT_ONLY, "decode", "special-tokens"},
    {OPT_NEEDS, "special-tokens", "encode decode"},
    {OPT_ONLY, "scan", "best html overwrite"},
    {OPT_ONLY, "verify-signature",
     "public-key certificate-root signature ignore-unsigned-files"},
    {OPT_NEEDS, "verify-signature", "public-key certificate-root"},
    {OPT_NEEDS, "public-key", "verify-signature"},
    {OPT_NEEDS, "certificate-root", "verify-signature"},
    {OPT_NEEDS, "signature", "verify-signature"},
    {OPT_NEEDS, "ignore-unsigned-files", "verify-signature"},
    {OPT_BARS, "public-key", "certificate-root"},
    {OPT_ONLY, "diff", "best glob optimizer tag html overwrite"},
    {OPT_ONLY, "compare", "best glob optimizer tag plot html overwrite"},
    {OPT_ONLY, "rng", "best args state verify html overwrite"},
    {OPT_ONLY, "args", "best rng state verify html overwrite"},
    {OPT_ONLY, "state", "best rng args verify html overwrite"},
    {OPT_ONLY, "tensor", "best stats digest optimizer tag together verify html overwrite"},
    {OPT_ONLY, "tree", "glob optimizer tag together verify html overwrite"},
    {OPT_ONLY, "plot", "glob compare together verify"},
    {OPT_BARS, "html", "plot"},
    {OPT_NEEDS, "overwrite", "html"},
};

/* --diff, --compare and --together: all paths in one answer. */
static int together(const struct inspect_want *w, struct cli *cli, struct cli_items *items,
                    struct ckpt_err *err)
{
    struct inspect_want one = *w;
    const char *const *all;
    size_t n = 0;
    int rc = cli_items_all(items, &all, &n, err);

    if (rc)
        return rc;
    if (!w->together)
        return inspect_together(w, cli, all, n, err);
    if (n < 2)
        return ckpt_fail(err, CKPT_EUSAGE, "--together: %zu path, two at least are wanted", n);
    one.part = all + 1;
    one.n_part = n - 1;
    return inspect_path(&one, cli, all[0], err);
}

/* Each path by itself. */
struct by_itself {
    const struct inspect_want *w;
    struct cli                *cli;
    size_t                     n;       /* paths reported so far */
};

static int inspect_item(void *ctx, const char *item, struct ckpt_err *err)
{
    struct by_itself *b = ctx;

    if (b->n++ && b->w->html)
        return ckpt_fail(err, CKPT_EUSAGE, "--html: one page, one path; %s is another", item);
    return inspect_path(b->w, b->cli, item, err) ? ckpt_err_in(err, "%s", item) : 0;
}

/* --encode and --decode: with the tokenizer of the single path. */
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
    struct inspect_want w = {.rows = -1};
    struct encode_want e = {.special = true};
    const struct opt_spec spec = {
        .synopsis = "[option ...] [PATH ...]",
        .summary = "show the contents of checkpoints and of files of a run; execute nothing",
        .section = {OPT_SECTION(rows, &w), OPT_SECTION(encode_rows, &e)},
        .rule = rules, .n_rule = sizeof rules / sizeof rules[0],
    };
    struct by_itself by = {.w = &w, .cli = &cli};
    struct cli_items *items = NULL;
    struct ckpt_err err = {0};
    char **rest;
    int n_rest, rc, status = 0;
    bool bytes;

    cli_begin(&cli, "ckpt-inspect");
    rc = opt_parse(&spec, &cli, argc, argv, &rest, &n_rest, NULL, &err);
    if (rc == 1)
        return cli_end(&cli, 0);
    if (rc == 0 && (e.encode || e.decode)) {
        rc = encode(&e, &cli, rest, n_rest, &err);
        return cli_end(&cli, rc ? cli_error(&cli, &err) : 0);
    }
    if (!w.html)
        cli_end_at_once();
    if (rc == 0)
        rc = cli_items_open(&items, rest, n_rest, cli.nul, &err);
    if (rc == 0 && w.diff + w.compare + w.together > 1)
        rc = ckpt_fail(&err, CKPT_EUSAGE, "--diff, --compare and --together: one of them");
    if (rc == 0)
        rc = cli_items_bytes(items, &bytes, &err);
    if (rc == 0 && w.best)
        cli_items_best(items);
    if (rc == 0)
        rc = w.diff || w.compare || w.together ? together(&w, &cli, items, &err)
                                 : cli_items_each(items, &cli, inspect_item, &by, &status, &err);
    cli_items_close(items);
    return cli_end(&cli, rc ? cli_error(&cli, &err) : status);
}

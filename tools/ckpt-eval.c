/* ckpt-eval - loss, perplexity and generations of models, side by side with a base. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "libckpt/mem.h"
#include "tools/cli_items.h"
#include "tools/data_rows.h"
#include "tools/eval/eval.h"
#include "tools/out.h"
#include "trainer/cpu/blas.h"

#define ROWS (40 + DATA_ROWS)

static size_t rows(struct opt *row, struct eval_want *w, struct data_want *data)
{
    const struct opt all[] = {
        {0, "model-options", NULL, OPT_GROUP, NULL, "Models", NULL, 0, 0, true},
        {'b', "base", "PATH", OPT_PATH, &w->base, "model to compare with", NULL, 0, 0, false},
        {0, "adapter", "DIR", OPT_PATH, &w->adapter, "PEFT adapter to put beside each model", NULL,
         0, 0, false},
        {0, "tokenizer", "DIR", OPT_PATH, &w->tokenizer,
         "directory of the tokenizer (default: beside the model)", NULL, 0, 0, false},
        {0, "tag", "NAME", OPT_STR, &w->tag,
         "DeepSpeed folder to read (default: what latest says)", NULL, 0, 0, false},
        {0, "dtype", "NAME", OPT_CHOICE, &w->dtype,
         "type in which weights are held; those of 16 bits take half the memory and are rounded "
         "(default: float32)",
         "float32 bfloat16 float16", 0, 0, false},
        {0, "device", "NAME", OPT_STR, &w->device,
         "auto (a GPU where one can be used), cpu, cuda or cuda:N", NULL, 0, 0, false},
        {0, "threads", "N", OPT_INT, &w->threads, "threads; 0: as many as CPUs", NULL, 0, 4096,
         false},
        {0, "data-options", NULL, OPT_GROUP, NULL, "Data", NULL, 0, 0, true},
        {'t', "eval-file", "PATH", OPT_LIST, &w->data,
         "held-out data: a file, a pattern or a directory of them; may be repeated",
         NULL, 0, 0, false},
        {0, "eval-split", "SPLIT", OPT_STR, &w->eval_split,
         "part of --eval-file, as in test[:100]", NULL, 0, 0, false},
        {0, "max-eval-samples", "N", OPT_INT, &w->max_eval_samples,
         "at most so many records; 0: all", NULL, 0, 1e15, false},
    };
    const struct opt behind[] = {
        {0, "batch-size", "N", OPT_INT, &w->batch_size, "samples at a time", NULL, 1, 1 << 20,
         false},
        {0, "logits", "FILE", OPT_PATH, &w->logits,
         "write logits and losses of every row as safetensors", NULL, 0, 0, false},
        {0, "hidden", "FILE", OPT_PATH, &w->hidden,
         "write an encoder's hidden states of every prompt as safetensors", NULL, 0, 0, false},
        {0, "overwrite", NULL, OPT_FLAG, &w->overwrite, "replace a file of --logits or --hidden",
         NULL, 0, 0, false},
        {0, "generation-options", NULL, OPT_GROUP, NULL, "Generation", NULL, 0, 0, true},
        {'p', "prompt", "TEXT", OPT_LIST, &w->prompt, "text to continue; may be repeated", NULL, 0,
         0, false},
        {'n', "generate", "N", OPT_INT, &w->generate, "continue the first N rows of the data",
         NULL, 0, 1 << 20, false},
        {0, "max-new-tokens", "N", OPT_INT, &w->max_new_tokens,
         "tokens of a continuation (default: the model's own, else 64)", NULL, 1, 1 << 20, false},
        {0, "min-new-tokens", "N", OPT_INT, &w->min_new_tokens,
         "no end before so many tokens (default: the model's own)", NULL, 0, 1 << 20, false},
        {0, "do-sample", NULL, OPT_SWITCH, &w->do_sample,
         "draw tokens instead of the likeliest (default: as the model says)", NULL, 0, 0, false},
        {0, "temperature", "X", OPT_REAL, &w->temperature,
         "divides logits before a draw (default: the model's own)", NULL, 1e-6, 1e6, false},
        {0, "top-k", "N", OPT_INT, &w->top_k,
         "draw among the N likeliest; 0: all (default: the model's own)", NULL, 0, 1 << 30, false},
        {0, "top-p", "X", OPT_REAL, &w->top_p,
         "draw among the likeliest of this mass, up to 1 (default: the model's own)", NULL, 1e-9, 1,
         false},
        {0, "min-p", "X", OPT_REAL, &w->min_p,
         "draw among those at least X times as likely as the likeliest; 0: all (default: the "
         "model's own)", NULL, 0, 1, false},
        {0, "repetition-penalty", "X", OPT_REAL, &w->repetition_penalty,
         "makes tokens that were there less likely; 1: off (default: the model's own)", NULL, 1e-6,
         1e6, false},
        {0, "no-repeat-ngram-size", "N", OPT_INT, &w->no_repeat_ngram_size,
         "no N tokens in a row come twice; 0: off (default: the model's own)", NULL, 0,
         1 << 20, false},
        {0, "num-beams", "N", OPT_INT, &w->num_beams,
         "search with N beams for the likeliest whole continuation; 1: no search (default: the "
         "model's own)", NULL, 1, 64, false},
        {0, "length-penalty", "X", OPT_REAL, &w->length_penalty,
         "beams are ranked by their score over length to the power X (default: the model's own)",
         NULL, -100, 100, false},
        {0, "early-stopping", "WHEN", OPT_CHOICE, &w->early_stopping,
         "end of a search (default: as the model says)", "false true never", 0, 0, false},
        {0, "seed", "N", OPT_INT, &w->seed, "of the draws with --do-sample", NULL, 0,
         4294967295.0, false},
    };

    size_t n = sizeof all / sizeof all[0];

    memcpy(row, all, sizeof all);
    n += data_rows(row + n, data);
    memcpy(row + n, behind, sizeof behind);
    return n + sizeof behind / sizeof behind[0];
}

/* What counts beside what; what the model's own generation_config.json decides is asked where
 * that is known. */
static const struct opt_rule rules[] = {
    {OPT_NEEDS, "eval-split", "eval-file"},
    {OPT_NEEDS, "max-eval-samples", "eval-file"},
    {OPT_NEEDS, "batch-size", "eval-file"},
    {OPT_NEEDS, "generate", "eval-file"},
    {OPT_NEEDS, "logits", "eval-file"},
    {OPT_NEEDS, "hidden", "prompt"},
    {OPT_NEEDS, "overwrite", "logits hidden"},
    {OPT_NEEDS, "dataset-config", "eval-file"},
    {OPT_NEEDS, "data-field", "eval-file"},
    {OPT_NEEDS, "csv-delimiter", "eval-file"},
    {OPT_NEEDS, "csv-columns", "eval-file"},
    {OPT_NEEDS, "csv-literal", "eval-file"},
    {OPT_NEEDS, "field-mapping", "eval-file"},
    {OPT_NEEDS, "text-field", "eval-file"},
    {OPT_NEEDS, "messages-field", "eval-file"},
    {OPT_NEEDS, "chat-template", "eval-file"},
    {OPT_NEEDS, "mask-history", "eval-file"},
    {OPT_NEEDS, "prompt-template", "eval-file"},
    {OPT_NEEDS, "completion-template", "eval-file"},
    {OPT_NEEDS, "train-on-prompt", "eval-file"},
    {OPT_NEEDS, "truncation-side", "eval-file"},
    {OPT_NEEDS, "add-eos-token", "eval-file"},
    {OPT_NEEDS, "skip-bad-rows", "eval-file"},
    {OPT_BARS, "hidden",
     "generate max-new-tokens min-new-tokens do-sample temperature top-k top-p min-p "
     "repetition-penalty no-repeat-ngram-size num-beams length-penalty early-stopping seed"},
    {OPT_NEEDS, "max-new-tokens", "prompt generate"},
    {OPT_NEEDS, "min-new-tokens", "prompt generate"},
    {OPT_NEEDS, "do-sample", "prompt generate"},
    {OPT_NEEDS, "temperature", "prompt generate"},
    {OPT_NEEDS, "top-k", "prompt generate"},
    {OPT_NEEDS, "top-p", "prompt generate"},
    {OPT_NEEDS, "min-p", "prompt generate"},
    {OPT_NEEDS, "repetition-penalty", "prompt generate"},
    {OPT_NEEDS, "no-repeat-ngram-size", "prompt generate"},
    {OPT_NEEDS, "num-beams", "prompt generate"},
    {OPT_NEEDS, "length-penalty", "prompt generate"},
    {OPT_NEEDS, "early-stopping", "prompt generate"},
    {OPT_NEEDS, "seed", "prompt generate"},
};

static void table_of_losses(struct out *o, const struct eval_result *const *r, size_t n)
{
    static const struct out_column columns[] = {
        {"model", "model", OUT_LEFT},       {"loss", "loss", OUT_RIGHT},
        {"perplexity", "perplexity", OUT_RIGHT}, {"tokens", "tokens", OUT_RIGHT},
        {"samples", "samples", OUT_RIGHT},  {"seconds", "seconds", OUT_RIGHT},
    };

    out_table(o, "scores", columns, 6);
    for (size_t i = 0; i < n; i++) {
        out_cell_str(o, r[i]->model);
        out_cell_real(o, r[i]->loss);
        out_cell_real(o, r[i]->perplexity);
        out_cell_int(o, r[i]->n_targets);
        out_cell_int(o, r[i]->n_samples);
        out_cell_real(o, r[i]->seconds);
    }
    out_table_end(o);
}

static void continuation(struct out *o, size_t i, const char *who, const char *text)
{
    out_cell_int(o, (int64_t)i + 1);
    out_cell_str(o, who);
    out_cell_str(o, text);
}

static void table_of_texts(struct out *o, const struct eval_result *const *r, size_t n)
{
    static const struct out_column columns[] = {
        {"sample", "#", OUT_RIGHT}, {"who", "who", OUT_LEFT}, {"text", "text", OUT_WRAP},
    };

    out_table(o, "generations", columns, 3);
    for (size_t i = 0; i < r[0]->n; i++) {
        continuation(o, i, "prompt", r[0]->prompt[i]);
        if (r[0]->reference[i][0])
            continuation(o, i, "reference", r[0]->reference[i]);
        for (size_t k = 0; k < n; k++)
            continuation(o, i, r[k]->model, r[k]->text[i]);
    }
    out_table_end(o);
}

static int report(const struct cli *cli, const struct eval_result *base,
                  const struct eval_result *model, struct ckpt_err *err)
{
    const struct eval_result *both[2] = {base ? base : model, model};
    size_t n = base ? 2 : 1;
    struct out *o;

    if (out_new(&o, cli->json, err))
        return err->code;
    out_str(o, "model", NULL, model->model);
    if (model->n_targets)
        table_of_losses(o, both, n);
    if (model->n)
        table_of_texts(o, both, n);
    return out_end(o, err);
}

struct job {
    const struct eval_want   *w;
    struct cli               *cli;
    const struct eval_result *base;     /* counts where w names one */
};

static int eval_item(void *ctx, const char *item, struct ckpt_err *err)
{
    const struct job *j = ctx;
    struct eval_result r = {0};
    int rc = eval_run(&r, j->w, item, j->w->adapter, err);

    if (rc == 0)
        rc = report(j->cli, j->w->base ? j->base : NULL, &r, err);
    eval_release(&r);
    return rc;
}

static int work(struct eval_want *w, struct cli *cli, char **rest, int n_rest, int *status,
                struct ckpt_err *err)
{
    struct eval_result base = {0};
    struct cli_items *items = NULL;
    const char *logits = w->logits, *hidden = w->hidden;
    int rc = cli_items_open(&items, rest, n_rest, cli->nul, err);

    w->logits = w->hidden = NULL;       /* the base's are not asked for */
    if (rc == 0 && w->base)
        rc = eval_run(&base, w, w->base, NULL, err);
    w->logits = logits;
    w->hidden = hidden;
    if (rc == 0)
        rc = cli_items_each(items, cli, eval_item, &(struct job){w, cli, &base}, status, err);
    eval_release(&base);
    cli_items_close(items);
    return rc;
}

/* Standard input is one thing: data, or models' paths. */
static int check_stdin(const struct opt_list *data, char *const *rest, int n_rest,
                       struct ckpt_err *err)
{
    bool models = n_rest == 0 || strcmp(rest[0], "-") == 0;

    for (size_t i = 0; models && i < data->n; i++)
        if (strcmp(data->item[i], "/dev/stdin") == 0)
            return ckpt_fail(err, CKPT_EUSAGE, "--eval-file - takes standard input: name the "
                             "models");
    return 0;
}

int main(int argc, char **argv)
{
    struct cli cli = {0};
    struct eval_want w = {.batch_size = 8, .seed = 42,
                          .max_new_tokens = EVAL_UNSAID, .min_new_tokens = EVAL_UNSAID,
                          .top_k = EVAL_UNSAID, .no_repeat_ngram_size = EVAL_UNSAID,
                          .num_beams = EVAL_UNSAID, .do_sample = EVAL_UNSAID,
                          .temperature = NAN, .top_p = NAN, .min_p = NAN,
                          .repetition_penalty = NAN, .length_penalty = NAN};
    struct data_want data = {0};
    struct opt row[ROWS];
    struct opt_spec spec = {
        .synopsis = "[--base MODEL] [--eval-file DATA] [--prompt TEXT] [option ...] [MODEL ...]",
        .summary = "score models on held-out data and let them continue prompts", .row = row,
        .run_file = true, .streams = "eval-file chat-template", .rule = rules,
        .n_rule = sizeof rules / sizeof rules[0],
    };
    struct ckpt_err err = {0};
    char **rest;
    int n_rest, rc, status = 0;

    blas_begin(argv);
    cli_begin(&cli, "ckpt-eval");
    data_settings_default(&data.s);
    spec.n = rows(row, &w, &data);
    rc = opt_parse(&spec, &cli, argc, argv, &rest, &n_rest, &err);
    if (rc == 1)
        return cli_end(&cli, 0);
    if (rc == 0 && !w.data.n && !w.prompt.n)
        rc = ckpt_fail(&err, CKPT_EUSAGE, "nothing to do: --eval-file DATA or --prompt TEXT");
    if (rc == 0)
        rc = check_stdin(&w.data, rest, n_rest, &err);
    if (rc == 0)
        rc = data_rows_take(&data, &err);
    w.rows = data.s;
    if (rc == 0)
        rc = work(&w, &cli, rest, n_rest, &status, &err);
    return cli_end(&cli, rc ? cli_error(&cli, &err) : status);
}

/* ckpt-eval - loss, perplexity and generations of models, side by side with a base. */
#include <stdio.h>
#include <string.h>

#include "libckpt/err.h"
#include "libckpt/io/path.h"
#include "tools/cli_items.h"
#include "tools/data_rows.h"
#include "tools/eval/eval.h"
#include "tools/eval/files.h"
#include "tools/eval/find.h"
#include "tools/eval/page.h"
#include "tools/eval/score/score.h"
#include "tools/eval/tables.h"
#include "tools/opt/rows.h"
#include "trainer/comm/report.h"
#include "trainer/cpu/blas.h"

#define OPT_VALUES struct eval_want
static const struct opt model_rows[] = {
    OPT_HEADING("Models"),
    OPT_PATH("base", "PATH", base, "model to compare with", .letter = 'b'),
    OPT_PATH("adapter", "DIR", adapter, "PEFT adapter to apply to each model"),
    OPT_PATH("results", "DIR", results,
             "evaluate the newest checkpoint of the runs in a folder"),
    OPT_FLAG("best", best, "the folder of a run means its best checkpoint, not the newest"),
    OPT_PATH("tokenizer", "DIR", tokenizer, "directory of the tokenizer",
             .absent = "the model's"),
    OPT_TEXT("tag", "NAME", tag, "DeepSpeed folder to read", .absent = "named by latest"),
    OPT_ENUM("dtype", "NAME", dtype, "float32 bfloat16 float16",
             "type that weights are held in; 16 bits take half the memory and are rounded",
             .absent = "float32"),
    OPT_DEVICE(device, "where to compute; auto: on a GPU if one can be used", .absent = "auto"),
    OPT_INT("threads", "N", threads, 0, 4096,
            "CPU threads; 0: one for each CPU, of several ranks one each"),
    OPT_INT("nproc", "N", nproc, 0, 4096,
            "ranks to start on this host, which share the rows, or gpu: one for each GPU; 0: none",
            .choices = "gpu"),
    OPT_HEADING("Data"),
    OPT_LIST("eval-file", "PATH", data,
             "evaluation data: a file, pattern or directory; repeatable", .letter = 't',
             .bytes = OPT_BYTES_FILE),
    OPT_PATH("datasets", "DIR", datasets, "evaluate on the newest test.jsonl in a folder"),
    OPT_TEXT("eval-split", "SPLIT", eval_split, "part of --eval-file, such as test[:100]",
             .absent = "all"),
    OPT_INT("max-eval-samples", "N", max_eval_samples, 0, 1e15,
            "evaluation records to use at most; 0: all"),
};

static const struct opt work_rows[] = {
    OPT_INT("batch-size", "N", batch_size, 1, 1 << 20,
            "samples in a batch; sequences generated at once: 64 unless this is given"),
    OPT_ENUM("task", "NAME", task, "multiple-choice",
             "what the records are: questions, each answer of which gets its likelihood",
             .absent = "records as in training"),
    OPT_LIST("choice", "TEXT", choice,
             "an answer of every record, whose label says which is right; repeatable"),
    OPT_INT("stride", "N", stride, 0, 1 << 20,
            "score long rows in windows of --max-seq-length that begin N tokens apart; 0: cut "
            "them"),
    OPT_INT("differences", "N", differences, 0, 1000,
            "rows to show whose loss differs most from the base's"),
    OPT_PATH("logits", "FILE", logits, "write logits and losses of every row as safetensors"),
    OPT_PATH("hidden", "FILE", hidden,
             "write an encoder's hidden states of every prompt as safetensors"),
    OPT_FLAG("overwrite", overwrite, "replace existing files"),
    OPT_HEADING("Predictions"),
    OPT_LIST("predictions", "PATH", predictions.file,
             "records with predictions and references, to score without a model; repeatable",
             .bytes = OPT_BYTES_FILE),
    OPT_PATH("base-predictions", "PATH", predictions.base,
             "predictions of another system for the same rows, to compare with"),
    OPT_LIST("metric", "NAME", metric,
             "compare predictions, or continuations of all rows, by this metric; repeatable",
             .choices = SCORE_NAMES),
    OPT_PATH("bertscore-model", "DIR", encoder.model,
             "encoder of the metric bertscore: BERT or RoBERTa"),
    OPT_INT("bertscore-layer", "N", encoder.layer, 0, 1000,
            "blocks of it to use; 0: as bert_score does for the model's name"),
    OPT_FLAG("bertscore-idf", encoder.idf, "tokens weigh more the fewer references have them"),
    OPT_PATH("bertscore-baseline", "FILE", encoder.baseline,
             "rescale by the layer's line LAYER,P,R,F, whose values become 0"),
    OPT_HEADING("Gate"),
    OPT_LIST("fail-above", "FIGURE=X", gate.above,
             "exit with status 1 when a figure is above X; repeatable"),
    OPT_LIST("fail-below", "FIGURE=X", gate.below,
             "exit with status 1 when a figure is below X; repeatable"),
    OPT_LIST("fail-worse-than-base", "[FIGURE=]X", gate.worse,
             "exit with status 1 when figures are worse than the base's by more than X or X%; "
             "repeatable"),
    OPT_FLAG("pass-through", pass_through,
             "results to stderr, and to stdout the paths of models within those bounds"),
    OPT_HEADING("Generation"),
    OPT_LIST("prompt", "TEXT", prompt, "text to continue; repeatable", .letter = 'p'),
    OPT_INT("generate", "N", generate, 0, 1 << 20, "continue the first N rows of the data too",
            .letter = 'n'),
    OPT_INT("max-new-tokens", "N", gen.max_new_tokens, 1, 1 << 20,
            "tokens of a continuation at most", .absent = "the model's, else 64"),
    OPT_INT("min-new-tokens", "N", gen.min_new_tokens, 0, 1 << 20,
            "tokens of a continuation at least", .absent = "the model's"),
    OPT_FLAG("do-sample", gen.do_sample, "draw tokens instead of taking the likeliest",
             .absent = "the model's"),
    OPT_REAL("temperature", "X", gen.temperature, 1e-6, 1e6,
             "divide logits by this before drawing", .absent = "the model's"),
    OPT_INT("top-k", "N", gen.top_k, 0, 1 << 30, "draw among the N likeliest tokens; 0: all",
            .absent = "the model's"),
    OPT_REAL("top-p", "X", gen.top_p, 1e-9, 1,
             "draw among the likeliest tokens of this total probability, up to 1",
             .absent = "the model's"),
    OPT_REAL("min-p", "X", gen.min_p, 0, 1,
             "draw among tokens at least X times as likely as the likeliest; 0: all",
             .absent = "the model's"),
    OPT_REAL("repetition-penalty", "X", gen.repetition_penalty, 1e-6, 1e6,
             "make tokens that occurred before less likely by this factor; 1: off",
             .absent = "the model's"),
    OPT_INT("no-repeat-ngram-size", "N", gen.no_repeat_ngram_size, 0, 1 << 20,
            "never repeat N tokens in a row; 0: off", .absent = "the model's"),
    OPT_INT("num-beams", "N", gen.num_beams, 1, 64,
            "number of beams that search for the likeliest continuation; 1: no search",
            .absent = "the model's"),
    OPT_REAL("length-penalty", "X", gen.length_penalty, -100, 100,
             "rank beams by their score over length to the power X", .absent = "the model's"),
    OPT_ENUM("early-stopping", "WHEN", early_stopping, "false true never",
             "when a search ends", .absent = "the model's"),
    OPT_INT("seed", "N", seed, 0, 4294967295.0, "random seed of --do-sample"),
    OPT_REAL("frequency-penalty", "X", gen.frequency_penalty, -100, 100,
             "subtract X from a token's logit for each time that it was generated; 0: off",
             .absent = "the model's"),
    OPT_REAL("presence-penalty", "X", gen.presence_penalty, -100, 100,
             "subtract X from the logit of tokens that were generated before; 0: off",
             .absent = "the model's"),
    OPT_REAL("typical-p", "X", gen.typical_p, 1e-9, 1,
             "draw among the most typical tokens of this total probability; 1: all",
             .absent = "the model's"),
    OPT_REAL("epsilon-cutoff", "X", gen.epsilon_cutoff, 0, 0.999999,
             "draw among tokens of at least this probability; 0: all", .absent = "the model's"),
    OPT_REAL("eta-cutoff", "X", gen.eta_cutoff, 0, 0.999999,
             "the same, and less where many tokens are likely; 0: all", .absent = "the model's"),
    OPT_LIST("stop", "TEXT", stop,
             "end a continuation at this text, which is cut off; repeatable"),
    OPT_INT("logprobs", "N", gen.n_logprobs, 0, 200,
            "tell the log-probability of each token, and those of the N likeliest",
            .absent = "none"),
    OPT_PATH("predictions-out", "FILE", predictions_out,
             "write continuations as JSON lines as they finish; -: to standard output"),
    OPT_PATH("html", "FILE", html,
             "write continuations as a page for a browser, side by side with the base's"),
    OPT_FLAG("in-order", in_order, "write them in the order of the prompts"),
};
#undef OPT_VALUES

#define GENERATION                                                                               \
    "max-new-tokens min-new-tokens do-sample temperature top-k top-p min-p repetition-penalty "  \
    "no-repeat-ngram-size num-beams length-penalty early-stopping seed stop logprobs "            \
    "frequency-penalty presence-penalty typical-p epsilon-cutoff eta-cutoff"

/* Which options have an effect together; options that depend on generation_config.json are
 * checked in eval.c. */
static const struct opt_rule rules[] = {
    {OPT_NEEDS,
     "eval-split max-eval-samples generate logits dataset-config data-field "
     "csv-delimiter csv-columns csv-literal field-mapping text-field messages-field chat-template "
     "mask-history prompt-template completion-template train-on-prompt truncation-side "
     "add-eos-token skip-bad-rows max-target-length stride task", "eval-file datasets"},
    {OPT_BARS, "nproc", "logits hidden predictions"},
    {OPT_NEEDS, "choice", "task"},
    {OPT_BARS, "task", "prompt generate logits hidden stride differences html in-order"},
    {OPT_YIELDS, "task", "field-mapping text-field messages-field chat-template mask-history "
     "completion-template chat-prompts train-on-prompt assistant-only-loss truncation-side "
     "skip-bad-rows " GENERATION},
    {OPT_NEEDS, "base-predictions", "predictions"},
    {OPT_NEEDS, "metric fail-above fail-below fail-worse-than-base",
     "predictions eval-file datasets"},
    {OPT_NEEDS, "bertscore-model", "metric"},
    {OPT_NEEDS, "bertscore-layer bertscore-idf bertscore-baseline", "bertscore-model"},
    {OPT_BARS, "datasets", "eval-file predictions"},
    {OPT_NEEDS, "fail-worse-than-base", "base base-predictions"},
    {OPT_NEEDS, "differences", "base"},
    {OPT_BARS, "predictions", "base adapter tokenizer tag dtype eval-file prompt "
     "results best pass-through html"},
    {OPT_NEEDS, "hidden", "prompt"},
    {OPT_NEEDS, "overwrite", "logits hidden predictions-out html"},
    {OPT_NEEDS, "batch-size", "eval-file datasets prompt"},
    {OPT_NEEDS, "in-order", "predictions-out"},
    {OPT_NEEDS, "predictions-out", "eval-file datasets prompt"},
    {OPT_NEEDS, "html", "prompt generate metric predictions-out"},
    {OPT_BARS, "hidden", "generate metric predictions-out html " GENERATION},
    {OPT_BARS, "stride", "logits"},
    {OPT_NEEDS, GENERATION, "prompt generate metric predictions-out"},
};

struct job {
    const struct eval_want   *w;
    struct cli               *cli;
    const struct eval_result *base;     /* NULL where w names none */
    size_t                    n_begun;  /* models */
    char                      newer[4096];  /* checkpoint than the one that --results found */
};

static int collect(struct figures *f, const struct job *j, const struct eval_result *r,
                   struct ckpt_err *err)
{
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < r->n_scores; i++)
        rc = figures_add(f, r->score[i], j->base ? j->base->score[i] : NULL,
                         (uint64_t)j->w->seed, err);
    return rc;
}

/* What the first rank does with a model's results. */
static int tell(const struct job *j, const char *item, struct eval_result *r, struct ckpt_err *err)
{
    struct figures f = {0};
    int rc = collect(&f, j, r, err);

    if (rc == 0 && j->w->html)
        rc = eval_page_write(j->w->html, j->w->overwrite, r, j->base, err);
    rc = rc ? rc : tables_print(j->w, j->cli, r, j->base, &f, err);
    rc = rc ? rc : gate_pass(&j->w->gate, &f, item, err);
    if (rc == 0 && j->w->pass_through)
        rc = cli_artifact(j->cli, item, NULL, err);
    figures_release(&f);
    return rc;
}

/* Files that hold one model's results are not for several. */
static int check_files(const struct eval_want *w, size_t n_models, struct ckpt_err *err)
{
    bool rows = w->predictions_out && strcmp(w->predictions_out, "-") != 0;
    const struct { const char *option, *file; } of[] = {
        {"predictions-out", rows ? w->predictions_out : NULL}, {"html", w->html},
        {"logits", w->logits}, {"hidden", w->hidden},
    };

    for (size_t i = 0; n_models > 1 && i < sizeof of / sizeof of[0]; i++)
        if (of[i].file) {
            ckpt_fail(err, CKPT_EUSAGE, "--%s %s: is one model's, and there are several",
                      of[i].option, of[i].file);
            return ckpt_err_hint(err, "evaluate each by itself, or name one --base");
        }
    return 0;
}

/* Evaluate a model.  A run that trains meanwhile replaces its checkpoints, so the newest may be
 * gone when it is opened: then there is another, which *item becomes. */
static int run_item(struct job *j, const char **item, struct eval_result *r, struct ckpt_err *err)
{
    struct ckpt_err ignored = {0};
    char newer[sizeof j->newer];
    enum { MOST = 10 };
    int rc;

    for (int i = 0;; i++) {
        rc = eval_run(r, j->w, *item, j->w->adapter, j->base, err);
        if (rc == 0 || rc == CKPT_ESTOPPED || !j->w->results || j->w->split || i == MOST ||
            ckpt_path_is_dir(*item) ||
            find_checkpoint(newer, j->w->results, j->w->best, &ignored) != 0)
            return rc;
        eval_release(r);
        ckpt_err_clear(err);
        memcpy(j->newer, newer, sizeof newer);
        *item = j->newer;
    }
}

static int eval_item(void *ctx, const char *item, struct ckpt_err *err)
{
    struct job *j = ctx;
    struct split *split = j->w->split;
    char *shared = (char *)(uintptr_t)item;
    struct eval_result r = {0};
    int rc = split_first(split) ? split_item(split, &shared, err) : 0;

    rc = rc ? rc : check_files(j->w, ++j->n_begun, err);
    rc = rc ? rc : run_item(j, &item, &r, err);
    if (rc == 0 && split_first(split))
        rc = tell(j, item, &r, err);
    eval_release(&r);
    return rc && split_lost(split) ? CKPT_ESTOPPED : rc;
}

/* The models that the first rank names; it tells what fails. */
static int follow(struct job *j, struct ckpt_err *err)
{
    char *item = NULL;
    int rc;

    while ((rc = split_item(j->w->split, &item, err)) == 0 && item) {
        rc = eval_item(j, item, err);
        ckpt_free(item);
        item = NULL;
        if (split_lost(j->w->split))
            return rc;
        ckpt_err_clear(err);
    }
    return rc;
}

/* The models of the command line or of standard input, of which the other ranks hear. */
static int lead(struct job *j, struct cli_items *items, int *status, struct ckpt_err *err)
{
    struct ckpt_err lost = {0};
    char *none = NULL;
    int rc = cli_items_each(items, j->cli, eval_item, j, status, err);

    if (split_lost(j->w->split) || split_item(j->w->split, &none, rc ? &lost : err) == 0)
        return rc;
    return rc ? rc : ckpt_err_code(err);
}

/* What is asked of the base: it writes no file. */
static struct eval_want base_want(const struct eval_want *w)
{
    struct eval_want b = *w;

    b.logits = b.hidden = b.predictions_out = NULL;
    return b;
}

static int work(struct eval_want *w, struct cli *cli, char **rest, int n_rest, int *status,
                struct ckpt_err *err)
{
    struct eval_want for_base = base_want(w);
    struct eval_result base = {0};
    struct job job = {.w = w, .cli = cli, .base = w->base ? &base : NULL};
    struct cli_items *items = NULL;
    bool first = split_first(w->split), bytes;
    int rc = first ? cli_items_open(&items, rest, n_rest, cli->nul, err) : 0;

    if (rc == 0 && first)
        rc = cli_items_bytes(items, &bytes, err);
    if (rc == 0 && first && w->best && !w->results)
        cli_items_best(items);
    rc = split_agree(w->split, rc, err);
    if (rc == 0 && w->base)
        rc = eval_run(&base, &for_base, w->base, NULL, NULL, err);
    w->beside = job.base;
    if (rc == 0)
        rc = first ? lead(&job, items, status, err) : follow(&job, err);
    eval_release(&base);
    cli_items_close(items);
    return rc;
}

static int check(const struct eval_want *w, char *const *rest, int n_rest, struct ckpt_err *err)
{
    int rc;

    if (w->predictions.file.n)
        return files_check_stdin(w, rest, n_rest, err);
    if (!w->data.n && !w->prompt.n)
        return ckpt_fail(err, CKPT_EUSAGE, "nothing to do: --eval-file DATA, --datasets DIR "
                         "or --prompt TEXT is missing");
    if ((rc = check_files(w, (size_t)n_rest, err)) != 0)
        return rc;
    if (!report_watched() && (rc = files_check(w, err)) != 0) /* of ranks, before they start */
        return rc;
    return files_check_stdin(w, rest, n_rest, err);
}

static int score_predictions(struct eval_want *w, const struct cli *cli, int n_rest,
                             struct ckpt_err *err)
{
    if (n_rest > 0)
        return ckpt_fail(err, CKPT_EUSAGE, "--predictions: a model is not needed");
    if (w->metric.n == 0) {
        ckpt_fail(err, CKPT_EUSAGE, "--predictions needs --metric NAME");
        return ckpt_err_hint(err, "metrics: %s", SCORE_NAMES);
    }
    w->predictions.seed = w->seed;
    w->predictions.metric = &w->metric;
    w->predictions.gate = &w->gate;
    w->predictions.encoder = &w->encoder;
    return predictions_print(&w->predictions, cli, err);
}

/* What --results and --datasets find. */
struct found {
    char        model[4096], test[4096];
    char       *rest[1];
    const char *data[1];
};

static int find(struct eval_want *w, struct found *f, char ***rest, int *n_rest,
                struct ckpt_err *err)
{
    int rc = w->datasets ? find_test(f->test, w->datasets, err) : 0;

    if (rc == 0 && w->datasets) {
        f->data[0] = f->test;
        w->data = (struct opt_list){f->data, 1};
    }
    if (rc || !w->results)
        return rc;
    if (*n_rest > 0)
        return ckpt_fail(err, CKPT_EUSAGE, "--results finds a model, and %s is another",
                         (*rest)[0]);
    f->rest[0] = f->model;
    *rest = f->rest;
    *n_rest = 1;
    return find_checkpoint(f->model, w->results, w->best, err);
}

/* The arguments as they were given, for ranks: parsing moves them about. */
static int copy_arguments(char ***out, struct cli *cli, int argc, char **argv,
                          struct ckpt_err *err)
{
    *out = ckpt_arena_alloc(&cli->arena, (size_t)argc + 1, sizeof **out);
    if (!*out)
        return ckpt_nomem(err, (size_t)argc * sizeof **out);
    memcpy(*out, argv, (size_t)argc * sizeof **out);
    return 0;
}

/* A shell's <(command) is read once: as base or adapter, and as a model of several ranks here,
 * before they start. */
static int settle(struct eval_want *w, char **rest, int n_rest, struct cli *cli,
                  struct ckpt_err *err)
{
    const char **of[] = {&w->base, &w->adapter};
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < sizeof of / sizeof of[0]; i++)
        if (*of[i] && ckpt_path_is_descriptor(*of[i]))
            rc = opt_stream(of[i], NULL, &cli->arena, err);
    for (int i = 0; rc == 0 && w->nproc && !report_watched() && i < n_rest; i++) {
        const char *path = rest[i];

        rc = ckpt_path_is_descriptor(path) ? opt_stream(&path, NULL, &cli->arena, err) : 0;
    }
    return rc;
}

int main(int argc, char **argv)
{
    struct cli cli = {0};
    struct found found;
    struct eval_want w = {.batch_size = 8, .seed = 42, .differences = 3};
    const struct opt_spec spec = {
        .synopsis = "[--base MODEL] [--eval-file DATA] [--prompt TEXT] [option ...] [MODEL ...]",
        .summary = "score models on evaluation data and let them continue prompts",
        .section = {OPT_SECTION(model_rows, &w), data_rows(&w.rows), OPT_SECTION(work_rows, &w)},
        .streams = "eval-file predictions base-predictions chat-template bertscore-baseline",
        .rule = rules, .n_rule = sizeof rules / sizeof rules[0],
    };
    struct split_opts ranks = {.cli = &cli, .device = &w.device,
                               .threads = &w.threads};
    struct ckpt_err err = {0};
    char **rest;
    int n_rest, rc, status = 0;

    blas_begin(argv);
    cli_begin(&cli, "ckpt-eval");
    data_settings_default(&w.rows);
    rc = report_open(&err);
    rc = rc ? rc : copy_arguments(&ranks.argv, &cli, argc, argv, &err);
    rc = rc ? rc : opt_parse(&spec, &cli, argc, argv, &rest, &n_rest, &w.given, &err);
    if (rc == 1)
        return report_close(cli_end(&cli, 0));
    rc = rc ? rc : eval_check_gate(&w, &err);
    rc = rc ? rc : find(&w, &found, &rest, &n_rest, &err);
    rc = rc ? rc : check(&w, rest, n_rest, &err);
    ranks.nproc = w.nproc;
    rc = rc ? rc : settle(&w, rest, n_rest, &cli, &err);
    rc = rc ? rc : split_begin(&w.split, &status, &ranks, &err);
    w.encoder.device = w.device;
    w.encoder.threads = w.threads;
    if (rc == 0 && w.predictions.file.n)
        rc = score_predictions(&w, &cli, n_rest, &err);
    else if (rc == 0)
        rc = work(&w, &cli, rest, n_rest, &status, &err);
    if (rc < 0 && !split_end(w.split, rc, &status, &err))
        status = cli_error(&cli, &err);
    else if (rc == 0)
        split_end(w.split, 0, &status, &err);
    return report_close(cli_end(&cli, status));
}

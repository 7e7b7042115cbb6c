/*
 * eval - one model on held-out data and on prompts: the results that ckpt-eval compares side by
 * side.
 */
#ifndef CKPT_TOOLS_EVAL_EVAL_H
#define CKPT_TOOLS_EVAL_EVAL_H

#include "tools/cli.h"
#include "tools/eval/answers.h"
#include "tools/eval/predictions.h"
#include "tools/eval/split/split.h"
#include "tools/opt/opt.h"
#include "trainer/data/options.h"
#include "trainer/model/generate/generate.h"

#define EVAL_MAX_NEW_TOKENS 64          /* if neither an option nor the model says */

struct eval_want {
    const char     *base;               /* model to compare with, or NULL */
    const char     *adapter;            /* directory of a PEFT adapter to apply to the models */
    struct opt_list data;               /* held-out files */
    struct opt_list prompt;             /* texts to continue */
    const char     *tokenizer, *tag;
    const char     *results;            /* folder of runs, to find a checkpoint in, or NULL */
    const char     *datasets;           /* folder of data sets, to find test data in, or NULL */
    bool            best;               /* runs mean their best checkpoint, not the newest */
    const char     *dtype;              /* type of weights: torch's name, or NULL: float32 */
    struct data_settings rows;          /* what records are */
    const char     *eval_split;         /* part of them, or NULL */
    int64_t         max_eval_samples;   /* 0: all */
    int64_t         batch_size;
    int64_t         generate;           /* records of the data to continue as well */
    const char     *device;             /* as in struct device_opts */
    int64_t         seed, threads;
    /* How texts are continued: fields named in `given`, the others as the model's own file says. */
    struct generate_opts gen;
    const char     *early_stopping;     /* "true", "false" or "never" */
    struct opt_list given;              /* options given, from opt_parse */
    struct opt_list stop;               /* texts that end a continuation */
    const char     *predictions_out;    /* file of generated rows, - for standard output, or
                                           NULL */
    bool            in_order;           /* of them */
    const char     *html;               /* page of the continuations, or NULL */
    const struct eval_result *beside;   /* results of the base, or NULL */
    const char     *logits;             /* file to write, or NULL */
    const char     *hidden;             /* file for an encoder's hidden states of the prompts, or
                                           NULL */
    int64_t         stride;             /* of windows of a row; 0: a row is cut instead */
    const char     *task;               /* "multiple-choice", or NULL: records to learn from */
    struct opt_list choice;             /* the answers of every record; none: its own */
    struct opt_list metric;             /* of continuations of all rows */
    struct bertscore_want encoder;      /* of the metric bertscore; its device is this one */
    int64_t         differences;        /* rows to show where model and base differ most */
    struct predictions_want predictions;        /* to be scored without a model */
    struct gate_want gate;
    bool            pass_through;       /* models within the gate's bounds to stdout */
    bool            overwrite;          /* replace existing files */
    int64_t         nproc;              /* ranks to start; 0: none; SPLIT_GPUS */
    struct split   *split;              /* among whom rows are split; NULL: there is one rank */
};

#define EVAL_SCORES 16                  /* most of one model */

struct row_loss;

/* A row whose loss the model and the base disagree on. */
struct eval_difference {
    int64_t row;                        /* of the data, from 0 */
    double  loss, base;                 /* mean over the row's tokens */
    char   *text;                       /* prompt and completion; "" for rows of ids */
};

/* Results of one model. */
struct eval_result {
    const char *model;                  /* its path as the user gave it */
    double      loss, perplexity, seconds;
    int64_t     n_targets, n_samples;   /* 0: no data was given */
    size_t      n;                      /* continuations */
    char      **prompt, **reference, **text;    /* [n]; reference is "" for --prompt; a text is
                                                   NULL until it is finished */
    const char **finish;                /* [n] why: "stop" at an eos or a text, or "length" */
    int64_t    *n_tokens;               /* [n] generated, an eos too */
    char      **logprobs;               /* [n] JSON, where wanted; else NULL */
    char      **answers_json;           /* [n] JSON: all right answers of a row that names several;
                                           else NULL */
    size_t      first_answered;         /* from here on they have references */
    bool        open_chats;             /* where "" is none: of chats, not all of which end in an
                                           answer */
    size_t      n_shown;                /* the first of them are for people */
    struct row_loss *row;               /* [n_rows] the loss of each row; NULL: no data */
    size_t         n_rows;
    struct answers answers;             /* the rows' continuations and references, for metrics */
    struct score  *score[EVAL_SCORES];  /* [n_scores]; the same metrics for model and base */
    size_t         n_scores;
    struct eval_difference *difference; /* [n_differences], the largest first */
    size_t         n_differences;
};

/* Before the work, which may be long: CKPT_EUSAGE for a bound on a figure that will not be. */
int eval_check_gate(const struct eval_want *w, struct ckpt_err *err);
/*
 * Load, score, generate; adapter (or NULL) is applied to the model, and a model path that is an
 * adapter's directory means its base with that adapter.  base is the result to find differences
 * from, or NULL.  Of several ranks each calls it, and the first has the results.  out is zeroed or
 * filled; release it either way.
 */
int eval_run(struct eval_result *out, const struct eval_want *w, const char *model,
             const char *adapter, const struct eval_result *base, struct ckpt_err *err);
void eval_release(struct eval_result *r);

#endif

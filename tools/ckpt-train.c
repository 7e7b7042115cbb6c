/* ckpt-train - fine-tune a model over shards of ranks: options -> settings -> run. */
#include <string.h>

#include "libckpt/log.h"
#include "tools/cli.h"
#include "tools/data_rows.h"
#include "tools/opt/opt.h"
#include "trainer/comm/ranks.h"
#include "trainer/comm/report.h"
#include "trainer/comm/supervise.h"
#include "trainer/cpu/blas.h"
#include "trainer/run/run.h"

struct want {
    struct settings s;
    struct opt_list train, eval;
    struct opt_list target, exclude, save, ranks, alphas, tokens;
    int64_t         seed;
    struct data_want data;
};

#define ROWS 113

/* The options of the tool, their places in w.  Returns how many. */
static size_t rows(struct opt *row, struct want *w)
{
    struct settings *s = &w->s;
    const struct opt all[] = {
        {0, "model-options", NULL, OPT_GROUP, NULL, "Model", NULL, 0, 0, true},
        {'m', "model", "PATH", OPT_PATH, &s->model,
         "model directory or checkpoint to start from", NULL, 0, 0, false},
        {0, "init", "PATH", OPT_PATH, &s->init,
         "start from fresh weights for this config.json", NULL, 0, 0, false},
        {0, "init-only", NULL, OPT_FLAG, &s->init_only,
         "write the fresh model to --output-dir and end", NULL, 0, 0, false},
        {0, "tokenizer", "DIR", OPT_PATH, &s->tokenizer,
         "directory of the tokenizer (default: beside the model)", NULL, 0, 0, false},
        {0, "adapter-options", NULL, OPT_GROUP, NULL, "Adapter (LoRA)", NULL, 0, 0, true},
        {0, "adapter", "DIR", OPT_PATH, &s->adapter,
         "go on training this PEFT adapter", NULL, 0, 0, false},
        {0, "lora-rank", "N", OPT_INT, &s->lora_rank,
         "train an adapter of this rank, and freeze the model", NULL, 0, 65536, false},
        {0, "lora-alpha", "X", OPT_REAL, &s->lora_alpha, "its scale, times the rank", NULL, 0, 1e9,
         false},
        {0, "lora-dropout", "X", OPT_REAL, &s->lora_dropout, "dropout of the adapter's input", NULL,
         0, 1, false},
        {0, "target-modules", "NAMES", OPT_LIST, &w->target,
         "modules to change: ends of their paths, one pattern, or all-linear; may be repeated",
         NULL, 0, 0, false},
        {0, "exclude-modules", "NAMES", OPT_LIST, &w->exclude,
         "modules to leave alone; may be repeated", NULL, 0, 0, false},
        {0, "modules-to-save", "NAMES", OPT_LIST, &w->save,
         "modules to train whole and save beside the adapter; may be repeated", NULL, 0, 0, false},
        {0, "rank-pattern", "NAME=N", OPT_LIST, &w->ranks,
         "another rank for modules of this name or pattern; may be repeated", NULL, 0, 0, false},
        {0, "alpha-pattern", "NAME=X", OPT_LIST, &w->alphas,
         "another alpha for modules of this name or pattern; may be repeated", NULL, 0, 0, false},
        {0, "trainable-token-indices", "IDS", OPT_LIST, &w->tokens,
         "tokens whose rows of the embedding are trained too; may be repeated", NULL, 0, 0, false},
        {0, "use-rslora", NULL, OPT_FLAG, &s->use_rslora,
         "scale by alpha over the root of the rank", NULL, 0, 0, false},
        {0, "use-dora", NULL, OPT_FLAG, &s->use_dora,
         "train the lengths of the weights' rows apart from their directions", NULL, 0, 0, false},
        {0, "lora-bias", "WHICH", OPT_CHOICE, &s->lora_bias, "biases to train",
         "none all lora_only", 0, 0, false},
        {0, "init-lora-weights", "HOW", OPT_CHOICE, &s->init_lora_weights,
         "how the factors start; false: so that they change the model", "true false gaussian", 0,
         0, false},
        {0, "data-options", NULL, OPT_GROUP, NULL, "Data", NULL, 0, 0, true},
        {'t', "train-file", "PATH", OPT_LIST, &w->train,
         "training data: a file, a pattern or a directory of them; may be repeated", NULL, 0, 0,
         false},
        {0, "eval-file", "PATH", OPT_LIST, &w->eval, "held-out data; may be repeated", NULL, 0, 0,
         false},
        {0, "train-split", "SPLIT", OPT_STR, &s->train_split,
         "part of --train-file, as in train[:80%]+test", NULL, 0, 0, false},
        {0, "eval-split", "SPLIT", OPT_STR, &s->eval_split,
         "part of --eval-file, or of --train-file without one", NULL, 0, 0, false},
        {0, "start-idx", "N", OPT_INT, &s->start_idx, "first training record, from 0", NULL, 0,
         1e15, false},
        {0, "end-idx", "N", OPT_INT, &s->end_idx, "training record behind the last; 0: all", NULL,
         0, 1e15, false},
        {0, "num-shards", "N", OPT_INT, &s->num_shards,
         "cut those into so many shards, as datasets' shard does; 0: no cut", NULL, 0, 1e9, false},
        {0, "shard-index", "N", OPT_INT, &s->shard_index, "the shard to train on, from 0", NULL, 0,
         1e9, false},
        {0, "shard-strided", NULL, OPT_FLAG, &s->shard_strided,
         "a shard is every N-th record, not a run of them", NULL, 0, 0, false},
        {0, "max-train-samples", "N", OPT_INT, &s->max_train_samples,
         "at most so many training records; 0: all", NULL, 0, 1e15, false},
        {0, "max-eval-samples", "N", OPT_INT, &s->max_eval_samples,
         "at most so many held-out records; 0: all", NULL, 0, 1e15, false},
        {0, "train-split-ratio", "X", OPT_REAL, &s->train_split_ratio,
         "train on this part of the data and keep the rest; 0: no cut", NULL, 0, 0.999999, false},
        {0, "val-test-split-ratio", "X", OPT_REAL, &s->val_test_split_ratio,
         "part of the rest that is for validation; what is left is for tests", NULL, 0, 1, false},
        {0, "data-dir", "DIR", OPT_PATH, &s->data_dir,
         "where data that was cut is kept and found again", NULL, 0, 0, false},
        {0, "dataset-name", "NAME", OPT_STR, &s->dataset_name,
         "its folder there (default: after --train-file)", NULL, 0, 0, false},
    };
    const struct opt behind[] = {
        {0, "train-sampling-strategy", "NAME", OPT_CHOICE, &s->train_sampling_strategy,
         "order: random as HF Trainer's, as torch's DistributedSampler deals it, or as it comes",
         "random distributed sequential group_by_length", 0, 0, false},
        {0, "dataloader-drop-last", NULL, OPT_FLAG, &s->dataloader_drop_last,
         "leave out the incomplete last batch of an epoch", NULL, 0, 0, false},
        {0, "data-seed", "N", OPT_INT, &s->data_seed, "of the data order; -1: --seed", NULL, -1,
         4294967295.0, false},
        {0, "packing", NULL, OPT_FLAG, &s->packing,
         "fill micro-batches with whole documents, isolated from each other", NULL, 0, 0, false},
        {0, "data-cache", "WHEN", OPT_CHOICE, &s->data_cache,
         "keep tokenised samples in the cache; auto: what is gone through more than once",
         "auto on off", 0, 0, false},
        {0, "loop-options", NULL, OPT_GROUP, NULL, "Training", NULL, 0, 0, true},
        {'o', "output-dir", "DIR", OPT_PATH, &s->output_dir,
         "where checkpoints and metrics.jsonl go (default: output)", NULL, 0, 0, false},
        {0, "num-train-epochs", "X", OPT_REAL, &s->num_train_epochs,
         "how often the data is gone through", NULL, 0, 1e9, false},
        {0, "max-steps", "N", OPT_INT, &s->max_steps,
         "optimizer steps of the run; wins over epochs", NULL, 0, 1e15, false},
        {0, "per-device-train-batch-size", "N", OPT_INT, &s->per_device_train_batch_size,
         "samples of a micro-batch on one rank", NULL, 1, 1 << 20, false},
        {0, "per-device-eval-batch-size", "N", OPT_INT, &s->per_device_eval_batch_size,
         "the same for evaluation", NULL, 1, 1 << 20, false},
        {0, "gradient-accumulation-steps", "N", OPT_INT, &s->gradient_accumulation_steps,
         "micro-batches of an optimizer step", NULL, 1, 1 << 20, false},
        {0, "learning-rate", "X", OPT_REAL, &s->learning_rate, "peak learning rate", NULL, 0, 1e3,
         false},
        {0, "min-lr", "X", OPT_REAL, &s->min_lr,
         "where cosine_with_min_lr and polynomial end (default: 0; of polynomial 1e-7)", NULL, 0,
         1e3, false},
        {0, "lr-scheduler-type", "NAME", OPT_CHOICE, &s->lr_scheduler_type,
         "how the learning rate goes",
         "constant constant_with_warmup linear cosine cosine_with_min_lr cosine_with_restarts "
         "polynomial inverse_sqrt", 0, 0, false},
        {0, "warmup-steps", "N", OPT_INT, &s->warmup_steps, "steps of linear warmup", NULL, 0,
         1e15, false},
        {0, "warmup-ratio", "X", OPT_REAL, &s->warmup_ratio,
         "warmup as a part of all steps, when --warmup-steps is 0", NULL, 0, 1, false},
        {0, "weight-decay", "X", OPT_REAL, &s->weight_decay,
         "decoupled weight decay, not for biases and norms", NULL, 0, 1e3, false},
        {0, "adam-beta1", "X", OPT_REAL, &s->adam_beta1, "AdamW's beta1", NULL, 0, 1, false},
        {0, "adam-beta2", "X", OPT_REAL, &s->adam_beta2, "AdamW's beta2", NULL, 0, 1, false},
        {0, "adam-epsilon", "X", OPT_REAL, &s->adam_epsilon, "AdamW's epsilon", NULL, 0, 1,
         false},
        {0, "max-grad-norm", "X", OPT_REAL, &s->max_grad_norm,
         "clip the gradient to this norm; 0: never", NULL, 0, 1e9, false},
        {0, "optim", "NAME", OPT_CHOICE, &s->optim,
         "AdamW with moments in float32 (adamw_torch), in 8 bits (adamw_8bit), in bfloat16 "
         "(adamw_anyprecision); paged_: they may lie on the host",
         "adamw_torch adamw_torch_fused adamw_8bit adamw_bnb_8bit adamw_anyprecision paged_adamw "
         "paged_adamw_32bit paged_adamw_8bit", 0, 0, false},
        {0, "seed", "N", OPT_INT, &w->seed,
         "of fresh weights, of the data order and of dropout", NULL, 0, 4294967295.0, false},
        {0, "gradient-checkpointing", NULL, OPT_FLAG, &s->gradient_checkpointing,
         "keep only block inputs and compute the rest again: less memory, a third slower", NULL,
         0, 0, false},
        {0, "recompute", "WHICH", OPT_CHOICE, &s->recompute,
         "what the backward pass computes again: none, norms (and activations: a few percent "
         "slower), full (as --gradient-checkpointing); auto: norms where memory is short",
         "auto none norms full", 0, 0, false},
        {0, "bf16", NULL, OPT_FLAG, &s->bf16,
         "compute with weights rounded to bfloat16; the true ones stay float32", NULL, 0, 0, false},
        {0, "fp16", NULL, OPT_FLAG, &s->fp16, "the same with float16, the loss scaled", NULL, 0, 0,
         false},
        {0, "loss-scale", "X", OPT_REAL, &s->scaler.loss_scale,
         "with --fp16: multiply the loss by X; 0: by what its gradients allow", NULL, 0, 1e60,
         false},
        {0, "initial-scale-power", "N", OPT_INT, &s->scaler.initial_scale_power,
         "a scale that is found starts at 2^N", NULL, 0, 200, false},
        {0, "loss-scale-window", "N", OPT_INT, &s->scaler.loss_scale_window,
         "steps without overflow until the scale is doubled", NULL, 1, 1e15, false},
        {0, "hysteresis", "N", OPT_INT, &s->scaler.hysteresis,
         "overflows until the scale is halved", NULL, 1, 1e15, false},
        {0, "min-loss-scale", "X", OPT_REAL, &s->scaler.min_loss_scale,
         "below which the scale does not fall", NULL, 1e-30, 1e30, false},
        {0, "tf32", NULL, OPT_FLAG, &s->tf32,
         "on a GPU: float32 products may round their factors to TensorFloat-32", NULL, 0, 0, false},
        {0, "fp8", NULL, OPT_FLAG, &s->fp8,
         "on a GPU, with --bf16: multiply the blocks' projections in 8 bits where that is faster",
         NULL, 0, 0, false},
        {0, "fp8-format", "NAME", OPT_CHOICE, &s->fp8_format,
         "hybrid: gradients of outputs are e5m2, the rest e4m3; or all e4m3", "hybrid e4m3", 0, 0,
         false},
        {0, "logging-steps", "N", OPT_INT, &s->logging_steps, "steps between two lines", NULL, 1,
         1e15, false},
        {0, "eval-steps", "N", OPT_INT, &s->eval_steps,
         "steps between two evaluations; 0: at the end only", NULL, 0, 1e15, false},
        {0, "save-steps", "N", OPT_INT, &s->save_steps,
         "steps between two checkpoints; 0: at the end only", NULL, 0, 1e15, false},
        {0, "save-total-limit", "N", OPT_INT, &s->save_total_limit,
         "keep only the newest N checkpoints and the best; 0: all", NULL, 0, 1e9, false},
        {0, "resume-from-checkpoint", "PATH", OPT_PATH, &s->resume_from_checkpoint,
         "go on from this checkpoint; latest or true: from the newest whole one in --output-dir, "
         "or start anew where there is none yet; none or false: start anew", NULL, 0, 0, false},
        {0, "overwrite-output-dir", NULL, OPT_FLAG, &s->overwrite_output_dir,
         "remove checkpoints of earlier runs that are in this run's way, before its first step",
         NULL, 0, 0, false},
        {0, "dump-grads", "FILE", OPT_PATH, &s->dump_grads,
         "write the first step's gradients as safetensors", NULL, 0, 0, false},
        {0, "rank-options", NULL, OPT_GROUP, NULL, "Ranks", NULL, 0, 0, true},
        {0, "nproc", "N", OPT_INT, &s->nproc,
         "start N ranks on this host, through mpirun, and answer for them", NULL, 0, 4096, false},
        {0, "zero-stage", "N", OPT_INT, &s->zero_stage,
         "0: every rank holds all; 3: weights, gradients and optimizer are sharded", NULL, 0, 3,
         false},
        {0, "stage3-gather-16bit-weights-on-model-save", NULL, OPT_FLAG,
         &s->stage3_gather_16bit_weights_on_model_save,
         "write model.safetensors beside the shards too", NULL, 0, 0, false},
        {0, "device", "NAME", OPT_STR, &s->device,
         "auto (a GPU where one can be used), cpu, cuda or cuda:N", NULL, 0, 0, false},
        {0, "device-memory-limit", "SIZE", OPT_SIZE, &s->device_memory_limit,
         "take at most so much of a GPU's memory", NULL, 0, 0, false},
        {0, "offload-optimizer", "WHERE", OPT_CHOICE, &s->offload_optimizer,
         "where moments, and with --bf16 or --fp16 the true weights, lie: none (on the device) or "
         "cpu, from where each step they pass the device", "none cpu", 0, 0, false},
        {0, "offload-param", "WHERE", OPT_CHOICE, &s->offload_param,
         "cpu: weights and gradients lie there too, but for the units in work; with --bf16 or "
         "--fp16", "none cpu", 0, 0, false},
        {0, "threads", "N", OPT_INT, &s->threads,
         "threads of a rank; 0: all CPUs, or one with several ranks", NULL, 0, 4096, false},
        {0, "memory-log", "SECONDS", OPT_REAL, &s->memory_log,
         "sample the device's memory so often into memory.csv of the output, in nvidia-smi's "
         "columns; 0: never", NULL, 0, 86400, false},
        {0, "profile", NULL, OPT_FLAG, &s->profile,
         "tell where the time of ten steps goes, operation by operation", NULL, 0, 0, false},
        {0, "dry-run", NULL, OPT_FLAG, &s->dry_run,
         "plan memory and steps, train nothing, write nothing", NULL, 0, 0, false},
    };

    size_t n = sizeof all / sizeof all[0];

    memcpy(row, all, sizeof all);
    n += data_rows(row + n, &w->data);
    memcpy(row + n, behind, sizeof behind);
    return n + sizeof behind / sizeof behind[0];
}

/* What counts beside what; settings_check asks what it can know better. */
static const struct opt_rule rules[] = {
    {OPT_ONLY, "init-only", "init tokenizer output-dir seed zero-stage nproc threads"},
    {OPT_NEEDS, "val-test-split-ratio", "train-split-ratio"},
    {OPT_NEEDS, "data-dir", "train-split-ratio"},
    {OPT_NEEDS, "dataset-name", "train-split-ratio"},
    {OPT_NEEDS, "max-eval-samples", "eval-file eval-split train-split-ratio"},
    {OPT_BARS, "dry-run", "profile dump-grads"},
};

/* Who is told of checkpoints, and whether anybody still listens. */
struct told {
    struct cli     *cli;
    struct ckpt_err lost;               /* why stdout takes no more; told once, status at the end */
};

/* A reader that left, or a full disk below it, is no reason to lose what is being trained. */
static int artifact(void *ctx, const char *path, struct ckpt_err *err)
{
    struct told *t = ctx;

    (void)err;
    if (t->lost.code || cli_artifact(t->cli, path, NULL, &t->lost) == 0)
        return 0;
    ckpt_log(CKPT_LOG_WARNING, "%s: no checkpoint is announced any more; training and saving go on",
             t->lost.text);
    return 0;
}

static void print(void *ctx, const struct ckpt_err *err) { cli_error(ctx, err); }

/* A rank's own failure is its supervisor's to print; without one, it is told with the rank. */
static void fail(void *ctx, const struct ckpt_err *err)
{
    const struct told *t = ctx;
    struct ranks r = ranks_found();
    struct ckpt_err own = *err;

    if (report_error(err, false))
        return;
    if (r.world_size > 1 && r.meets && strncmp(own.text, "rank ", 5) != 0)
        ckpt_err_in(&own, "rank %ld", r.rank);
    cli_error(t->cli, &own);
}

/* Whether this process is to start ranks: those that were started already do not. */
static int starts_ranks(bool *starts, const struct settings *s, struct ckpt_err *err)
{
    struct ranks r = ranks_found();

    *starts = s->nproc > 1 && !s->dry_run && !report_watched();
    if (!*starts || r.world_size == 1 || !r.placed)
        return 0;
    *starts = false;
    if (r.meets && r.world_size == s->nproc)
        return 0;
    ckpt_fail(err, CKPT_ECONFIG, "--nproc %lld starts ranks, but this process is one of %ld ranks "
              "of %s already (%s)", (long long)s->nproc, r.world_size, r.launcher, r.where);
    return ckpt_err_hint(err, "leave --nproc out, or start ckpt-train once");
}

/* Start ranks, or be one, or the only one.  Returns the exit status. */
static int train(struct cli *cli, struct want *w, char **argv, struct ckpt_err *err)
{
    struct told told = {.cli = cli};
    struct run_io io = {.ctx = &told, .artifact = artifact, .fail = fail, .stop = &cli_stop};
    const struct supervise_opts many = {.n = w->s.nproc, .argv = argv, .ctx = cli, .tell = print};
    bool starts = false;
    int status = 0;

    if (starts_ranks(&starts, &w->s, err) == 0 && starts)
        supervise_run(&status, &many, err);
    else if (err->code == 0)
        run_train(&w->s, &io, err);
    if (err->code == 0 && told.lost.code)
        *err = told.lost;
    if (err->code == 0)
        return status;
    if (!io.agreed && !io.told)
        fail(&told, err);
    else if (!io.told && !report_error(err, true))
        cli_error(cli, err);
    return ckpt_err_status(err->code);
}

/* Lists of the command line in the settings. */
static void take_lists(struct want *w)
{
    struct settings *s = &w->s;
    const struct {
        const struct opt_list *from;
        const char *const    **item;
        size_t                *n;
    } of[] = {
        {&w->train, &s->train, &s->n_train},
        {&w->eval, &s->eval, &s->n_eval},
        {&w->target, &s->target_modules, &s->n_target_modules},
        {&w->exclude, &s->exclude_modules, &s->n_exclude_modules},
        {&w->save, &s->modules_to_save, &s->n_modules_to_save},
        {&w->ranks, &s->rank_pattern, &s->n_rank_pattern},
        {&w->alphas, &s->alpha_pattern, &s->n_alpha_pattern},
        {&w->tokens, &s->trainable_token_indices, &s->n_trainable_token_indices},
    };

    for (size_t i = 0; i < sizeof of / sizeof of[0]; i++) {
        *of[i].item = of[i].from->item;
        *of[i].n = of[i].from->n;
    }
}

int main(int argc, char **argv)
{
    struct cli cli = {0};
    struct want w = {.seed = 42};
    struct opt row[ROWS];
    struct opt_spec spec = {
        .synopsis = "--model DIR --train-file DATA [-o DIR] [option ...]",
        .summary = "fine-tune a model, or train a fresh one, over one or several ranks",
        .row = row, .run_file = true, .streams = "train-file eval-file chat-template",
        .rule = rules, .n_rule = sizeof rules / sizeof rules[0],
    };
    struct ckpt_err err = {0};
    char **rest;
    int n_rest, rc;

    blas_begin(argv);
    cli_begin(&cli, "ckpt-train");
    settings_default(&w.s);
    w.data.s = w.s.data;
    spec.n = rows(row, &w);
    rc = report_open(&err);
    if (rc == 0)
        rc = opt_parse(&spec, &cli, argc, argv, &rest, &n_rest, &err);
    if (rc == 1)
        return report_close(cli_end(&cli, 0));
    if (rc == 0 && n_rest > 0)
        rc = ckpt_fail(&err, CKPT_EUSAGE, "%s: no positional argument is taken", rest[0]);
    cli_ignore_pipe();
    w.s.seed = (uint64_t)w.seed;
    take_lists(&w);
    if (rc == 0)
        rc = data_rows_take(&w.data, &err);
    w.s.data = w.data.s;
    if (rc == 0)
        rc = settings_check(&w.s, &err);
    if (rc == 0)
        return report_close(cli_end(&cli, train(&cli, &w, argv, &err)));
    fail(&(struct told){.cli = &cli}, &err);
    return report_close(cli_end(&cli, ckpt_err_status(rc)));
}

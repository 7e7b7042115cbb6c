/* train/dialects - the config files of TRL, LLaMA-Factory, axolotl and accelerate; see
 * train/names.h.
 *
 * Sources: trl 1.16; LLaMA-Factory 0.9 (src/llamafactory/hparams); axolotl 0.13 (its
 * config reference); accelerate 1.15 (commands/config).  Names that a table lacks are
 * transformers'. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/mem.h"
#include "tools/train/names.h"

#define ROWS(rows) .field = rows, .n_field = sizeof(rows) / sizeof((rows)[0])
#define ABSENT(rows) .absent = rows, .n_absent = sizeof(rows) / sizeof((rows)[0])

/* bf16 by default, but where fp16 is asked for. */
static int bf16(struct opt_put *put, const char *const *value, size_t n, struct ckpt_err *err)
{
    const char *fp16 = opt_put_text(put, "fp16");

    (void)n;
    if (opt_put_is_default(put) && fp16 && strcmp(fp16, "on") == 0)
        return 0;
    return opt_put_option(put, "bf16", strcmp(value[0], "auto") == 0 ? "true" : value[0], err);
}

/* A part of the data for evaluation: a fraction. */
static int eval_part(struct opt_put *put, const char *const *value, size_t n,
                     struct ckpt_err *err)
{
    char *end, *rest;
    double x = strtod(value[0], &end);
    int rc;

    (void)n;
    if (end == value[0] || *end || x < 0 || x >= 1)
        return opt_put_refuse(put, err, "\"%s\" is no fraction below 1; counts of samples are not "
                              "done", value[0]);
    if (x == 0)
        return 0;
    if (!(rest = ckpt_arena_printf(opt_put_arena(put), "%.15g", 1 - x)))
        return ckpt_nomem(err, 32);
    rc = opt_put_option(put, "train-split-ratio", rest, err);
    return rc ? rc : opt_put_option(put, "val-test-split-ratio", "1", err);
}

static int eval_percent(struct opt_put *put, const char *const *value, size_t n,
                        struct ckpt_err *err)
{
    const char *part = ckpt_arena_printf(opt_put_arena(put), "%.15g",
                                         strtod(value[0], NULL) / 100);

    return part ? eval_part(put, &part, n, err) : ckpt_nomem(err, 32);
}

/* Names of modules, comma-separated; all of them by one word. */
static int modules(struct opt_put *put, const char *const *value, size_t n, struct ckpt_err *err)
{
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < n; i++)
        for (const char *p = value[i]; rc == 0 && *p; p += strspn(p, ", ")) {
            size_t k = strcspn(p, ", ");
            const char *one = k == 3 && strncmp(p, "all", 3) == 0
                                  ? "all-linear" : ckpt_arena_strndup(opt_put_arena(put), p, k);

            rc = one ? opt_put_option(put, "target-modules", one, err) : ckpt_nomem(err, k);
            p += k;
        }
    return rc;
}

static int all_linear(struct opt_put *put, const char *const *value, size_t n,
                      struct ckpt_err *err)
{
    (void)n;
    return strcmp(value[0], "true") == 0
               ? opt_put_option(put, "target-modules", "all-linear", err) : 0;
}

/* -- names of training scripts ---------------------------------------------------------------- */

static const char parts[] = "single files of whole states are not done: a checkpoint is a folder";

static const struct opt_field script_fields[] = {
    OPT_DOES("model_id", "model", .convert = train_names_model),
    OPT_DOES("tokenizer_name", "tokenizer"),
    OPT_DOES("config_name", "init"),
    OPT_DOES("validation_file", "eval-file"),
    OPT_DOES("validation_split_percentage", "train-split-ratio", .convert = eval_percent,
             .says = "of 1 less this"),
    OPT_DOES("dataset_config_name", "dataset-config"),
    OPT_DOES("dataset_split", "train-split"),
    OPT_DOES("block_size", "max-seq-length"),
    OPT_DOES("max_source_length", "max-seq-length"),
    OPT_DOES("input_template", "prompt-template"),
    OPT_DOES("output_template", "completion-template"),
    OPT_DOES("num_processes", "nproc"),
    OPT_DOES("full_ft", "lora-rank", .values = "true=0 false", .says = "true: no adapter"),
    OPT_DOES("early_stopping_patience", "early-stopping-patience"),
    OPT_DOES("early_stopping_threshold", "early-stopping-threshold"),
    OPT_DOES("resume_file", "resume-file"),
    OPT_DOES("initial_epoch", "initial-epoch"),
    OPT_NOT_DONE("checkpoint_name", "", parts),
    OPT_HARMLESS("cache_dir", .says = "CKPT_CACHE"),
    OPT_HARMLESS("use_fast_tokenizer"),
    OPT_HARMLESS("low_cpu_mem_usage"),
    OPT_HARMLESS("overwrite_cache", .says = "--data-cache"),
    OPT_HARMLESS("preprocessing_num_workers", .says = "--jobs"),
    OPT_HARMLESS("pad_to_max_length", .says = "there is no padding"),
    OPT_HARMLESS("ignore_pad_token_for_loss"),
};

const struct opt_dialect train_scripts = {.name = "scripts", ROWS(script_fields)};

/* -- TRL -------------------------------------------------------------------------------------- */

static const struct opt_field trl_fields[] = {
    OPT_DOES("bf16", "bf16", .convert = bf16),
    OPT_DOES("dataset_train_split", "train-split", .when = "dataset_name"),
    OPT_NOT_DONE("env", "", "variables of the environment are set by the shell"),
};

static const struct opt_field_default trl_absent[] = {
    {"learning_rate", "2e-5"}, {"gradient_checkpointing", "true"}, {"logging_steps", "10"},
    {"max_length", "1024"}, {"dataset_train_split", "train"}, {"bf16", "true"},
    {"assistant_only_loss", "false"},
    {"lora_r", "16"}, {"lora_alpha", "32"}, {"lora_dropout", "0.05"},
};

const struct opt_dialect train_trl = {
    .name = "TRL", .base = &train_fields, ROWS(trl_fields), ABSENT(trl_absent),
    .tells = "use_peft dataset_train_split dataset_test_split assistant_only_loss "
             "completion_only_loss dataset_num_proc packing_strategy chat_template_path "
             "lora_task_type max_length padding_free dataset_kwargs eval_packing model_revision",
};

/* -- LLaMA-Factory ---------------------------------------------------------------------------- */

/* lora_alpha is twice the rank, unless it is said. */
static int rank(struct opt_put *put, const char *const *value, size_t n, struct ckpt_err *err)
{
    char *alpha = ckpt_arena_printf(opt_put_arena(put), "%ld", 2 * strtol(value[0], NULL, 10));
    int rc = opt_put_option(put, "lora-rank", value[0], err);

    (void)n;
    if (!alpha)
        return ckpt_nomem(err, 32);
    return rc || opt_put_other(put, "lora_alpha")
               ? rc : opt_put_default(put, "lora-alpha", alpha, err);
}

/* Instructions are turns of a chat too. */
static int chat_template(struct opt_put *put, const char *const *value, size_t n,
                         struct ckpt_err *err)
{
    const char *stage = opt_put_other(put, "stage");

    (void)n;
    if (strcmp(value[0], "empty") == 0 || (stage && strcmp(stage, "pt") == 0))
        return 0;
    return opt_put_option(put, "chat-prompts", "true", err);
}

/* dataset asks for it. */
static int place(struct opt_put *put, const char *const *value, size_t n, struct ckpt_err *err)
{
    (void)put;
    (void)value;
    (void)n;
    (void)err;
    return 0;
}

static bool is_true(const char *value) { return strcmp(value, "true") == 0; }

/* Moonshot's form, with AdamW's rate and decay. */
static int muon(struct opt_put *put, const char *const *value, size_t n, struct ckpt_err *err)
{
    int rc = is_true(value[0]) ? opt_put_option(put, "optim", "muon", err) : 0;

    (void)n;
    return rc || !is_true(value[0])
               ? rc : opt_put_default(put, "optim-args", "adjust_lr_fn=match_rms_adamw", err);
}

static int pure_bf16(struct opt_put *put, const char *const *value, size_t n, struct ckpt_err *err)
{
    int rc = is_true(value[0]) ? opt_put_option(put, "bf16", "true", err) : 0;

    (void)n;
    return rc || !is_true(value[0]) ? rc : opt_put_option(put, "master-weights", "false", err);
}

#define LORA .when = "finetuning_type=lora"
static const char rl[] = "supervised fine-tuning is done: sft, and pt";
static const char other_lora[] = "this kind of LoRA is not done";
static const char other_optim[] = "this optimizer is not done";

static const struct opt_field factory_fields[] = {
    OPT_NOT_DONE("stage", "sft pt", rl),
    OPT_NOT_DONE("finetuning_type", "lora full", "lora and full are done"),
    OPT_DOES("adapter_name_or_path", "adapter"),
    OPT_DOES("dataset", "train-file", .convert = train_names_factory_data),
    OPT_DOES("eval_dataset", "eval-file", .convert = train_names_factory_data),
    OPT_DOES("dataset_dir", NULL, .convert = place, .says = "where dataset looks"),
    OPT_HARMLESS("media_dir"),
    OPT_DOES("cutoff_len", "max-seq-length"),
    OPT_DOES("max_samples", "max-train-samples"),
    OPT_DOES("val_size", "train-split-ratio", .convert = eval_part),
    OPT_DOES("template", "chat-prompts", .values = "empty", .convert = chat_template,
             .says = "the template itself is the model's own, or --chat-template"),
    OPT_DOES("neat_packing", "packing"),
    OPT_HARMLESS("overwrite_cache"),
    OPT_HARMLESS("preprocessing_num_workers"),
    OPT_HARMLESS("preprocessing_batch_size"),
    OPT_HARMLESS("tokenized_path"),
    OPT_HARMLESS("buffer_size"),
    OPT_HARMLESS("ignore_pad_token_for_loss"),
    OPT_HARMLESS("data_shared_file_system"),
    OPT_NOT_DONE("mix_strategy", "concat", "data sets follow each other"),
    OPT_NOT_DONE("interleave_probs", "", "data sets follow each other"),
    OPT_NOT_DONE("tool_format", "", "the chat template has it"),
    OPT_NOT_DONE("default_system", "", "the chat template has it"),
    OPT_HARMLESS("enable_thinking"),
    OPT_HARMLESS("eval_on_each_dataset"),
    OPT_DOES("lora_rank", "lora-rank", .convert = rank, LORA),
    OPT_DOES("lora_alpha", "lora-alpha", LORA),
    OPT_DOES("lora_dropout", "lora-dropout", LORA),
    OPT_DOES("lora_target", "target-modules", .convert = modules, LORA),
    OPT_DOES("additional_target", "modules-to-save", LORA),
    OPT_DOES("use_rslora", "use-rslora", LORA),
    OPT_DOES("use_dora", "use-dora", LORA),
    OPT_DOES("loraplus_lr_ratio", "loraplus-lr-ratio", LORA),
    OPT_DOES("loraplus_lr_embedding", "loraplus-lr-embedding", .when = "loraplus_lr_ratio"),
    OPT_NOT_DONE("pissa_init", "false", other_lora),
    OPT_NOT_DONE("pissa_convert", "false", other_lora),
    OPT_HARMLESS("pissa_iter"),
    OPT_NOT_DONE("create_new_adapter", "false", "adapters are not stacked"),
    OPT_NOT_DONE("freeze_trainable_layers", "2", "lora and full are done"),
    OPT_DOES("pure_bf16", NULL, .convert = pure_bf16, .says = "--bf16, and --master-weights off"),
    OPT_NOT_DONE("use_galore", "false", other_optim),
    OPT_NOT_DONE("use_apollo", "false", other_optim),
    OPT_NOT_DONE("use_badam", "false", other_optim),
    OPT_NOT_DONE("use_adam_mini", "false", other_optim),
    OPT_DOES("use_muon", NULL, .convert = muon,
             .says = "--optim muon, with adjust_lr_fn=match_rms_adamw in --optim-args"),
    OPT_NOT_DONE("use_llama_pro", "false", "layers are not repeated"),
    OPT_NOT_DONE("use_dft_loss", "false", "the loss is the cross-entropy"),
    OPT_DOES("early_stopping_steps", "early-stopping-patience"),
    OPT_DOES("disable_shuffling", "train-sampling-strategy", .values = "true=sequential false"),
    OPT_HARMLESS("plot_loss", .says = "ckpt-inspect --plot"),
    OPT_NOT_DONE("compute_accuracy", "false", "ckpt-eval scores"),
    OPT_HARMLESS("include_effective_tokens_per_second", .says = "they are logged"),
    OPT_NOT_DONE("quantization_bit", "", "weights are trained over as they are stored"),
    OPT_HARMLESS("quantization_method"),
    OPT_HARMLESS("quantization_type"),
    OPT_HARMLESS("double_quantization"),
    OPT_NOT_DONE("rope_scaling", "", "config.json has it"),
    OPT_NOT_DONE("shift_attn", "false", "attention is the model's"),
    OPT_NOT_DONE("resize_vocab", "false", "the vocabulary stays"),
    OPT_NOT_DONE("add_tokens", "", "the vocabulary stays"),
    OPT_NOT_DONE("new_special_tokens", "", "the vocabulary stays"),
    OPT_NOT_DONE("train_from_scratch", "false", "--init does that"),
    OPT_HARMLESS("flash_attn"),
    OPT_HARMLESS("use_unsloth"),
    OPT_HARMLESS("use_unsloth_gc"),
    OPT_HARMLESS("enable_liger_kernel"),
    OPT_HARMLESS("upcast_layernorm"),
    OPT_HARMLESS("upcast_lmhead_output"),
    OPT_HARMLESS("use_reentrant_gc"),
    OPT_DOES("disable_gradient_checkpointing", "gradient-checkpointing",
             .values = "true=false false"),
    OPT_HARMLESS("cache_dir"),
    OPT_HARMLESS("use_fast_tokenizer"),
    OPT_HARMLESS("split_special_tokens"),
    OPT_HARMLESS("low_cpu_mem_usage"),
    OPT_HARMLESS("print_param_status"),
    OPT_HARMLESS("hf_hub_token"),
    OPT_HARMLESS("use_swanlab"),
    OPT_HARMLESS("ray_run_name"),
    OPT_HARMLESS("ray_storage_path"),
    OPT_HARMLESS("ray_num_workers"),
    OPT_HARMLESS("resources_per_worker"),
    OPT_HARMLESS("placement_strategy"),
};

static const struct opt_field_default factory_absent[] = {
    {"finetuning_type", "lora"}, {"lora_rank", "8"}, {"lora_target", "all"},
    {"cutoff_len", "2048"}, {"gradient_checkpointing", "true"},
};

const struct opt_dialect train_factory = {
    .name = "LLaMA-Factory", .base = &train_fields, ROWS(factory_fields), ABSENT(factory_absent),
    .tells = "stage finetuning_type template cutoff_len lora_target dataset dataset_dir val_size "
             "preprocessing_num_workers overwrite_cache plot_loss flash_attn",
};

/* -- axolotl ---------------------------------------------------------------------------------- */

static const char per_epoch[] = "so many times an epoch, as a fraction of all steps";

/* axolotl's own arithmetic: 1 / (times an epoch * num_epochs) of all steps. */
static int each(struct opt_put *put, const char *option, const char *times, struct ckpt_err *err)
{
    const char *epochs = opt_put_other(put, "num_epochs");
    double n = strtod(times, NULL) * (epochs ? strtod(epochs, NULL) : 1);
    const char *part;

    if (n <= 0)
        return strtod(times, NULL) == 0 ? opt_put_option(put, option, "0", err)
                                        : opt_put_refuse(put, err, "%s is no number of times",
                                                         times);
    if (n <= 1)
        return opt_put_option(put, option, "0", err);       /* once, at the end */
    part = ckpt_arena_printf(opt_put_arena(put), "%.15g", 1 / n);
    return part ? opt_put_option(put, option, part, err) : ckpt_nomem(err, 32);
}

static int evals_per_epoch(struct opt_put *put, const char *const *value, size_t n,
                           struct ckpt_err *err)
{
    (void)n;
    return each(put, "eval-steps", value[0], err);
}

static int saves_per_epoch(struct opt_put *put, const char *const *value, size_t n,
                           struct ckpt_err *err)
{
    (void)n;
    return each(put, "save-steps", value[0], err);
}

static int cosine_min_lr(struct opt_put *put, const char *const *value, size_t n,
                         struct ckpt_err *err)
{
    const char *rate = opt_put_other(put, "learning_rate"), *least;
    double x = strtod(value[0], NULL);

    (void)n;
    if (x == 0)
        return 0;
    if (!rate)
        return opt_put_refuse(put, err, "it is a fraction of learning_rate, which is not given");
    least = ckpt_arena_printf(opt_put_arena(put), "%.15g", x * strtod(rate, NULL));
    return least ? opt_put_option(put, "min-lr", least, err) : ckpt_nomem(err, 32);
}

/* With cosine_min_lr_ratio "cosine" is the one with a least rate. */
static int scheduler(struct opt_put *put, const char *const *value, size_t n,
                     struct ckpt_err *err)
{
    const char *ratio = opt_put_other(put, "cosine_min_lr_ratio");
    bool least = ratio && strtod(ratio, NULL) > 0 && strcmp(value[0], "cosine") == 0;

    (void)n;
    return opt_put_option(put, "lr-scheduler-type", least ? "cosine_with_min_lr" : value[0], err);
}

static int wandb_project(struct opt_put *put, const char *const *value, size_t n,
                         struct ckpt_err *err)
{
    (void)n;
    return *value[0] ? opt_put_option(put, "report-to", "wandb", err) : 0;
}

/* What a record is.  The prompt of "alpaca" is that of tatsu-lab/stanford_alpaca, train.py. */
static int record_type(struct opt_put *put, const char *const *value, size_t n,
                       struct ckpt_err *err)
{
    static const char alpaca[] =
        "Below is an instruction that describes a task{?input}, paired with an input that "
        "provides further context{/input}. Write a response that appropriately completes the "
        "request.\n\n### Instruction:\n{instruction}\n\n{?input}### Input:\n{input}\n\n{/input}"
        "### Response:\n";
    int rc;

    (void)n;
    if (strcmp(value[0], "chat_template") == 0 || strcmp(value[0], "sharegpt") == 0 ||
        strcmp(value[0], "completion") == 0)
        return 0;
    if (strcmp(value[0], "alpaca") != 0)
        return opt_put_refuse(put, err, "type %s is not done: --prompt-template and "
                              "--completion-template, or --messages-field, name what a record is",
                              value[0]);
    rc = opt_put_option(put, "prompt-template", alpaca, err);
    return rc ? rc : opt_put_option(put, "completion-template", "{output}", err);
}

static const struct opt_field axolotl_fields[] = {
    OPT_DOES("base_model", "model", .convert = train_names_model),
    OPT_HARMLESS("base_model_config"),
    OPT_DOES("tokenizer_config", "tokenizer"),
    OPT_HARMLESS("model_type"),
    OPT_HARMLESS("tokenizer_type"),
    OPT_HARMLESS("is_llama_derived_model"),
    OPT_HARMLESS("is_mistral_derived_model"),
    OPT_HARMLESS("plugins"),
    OPT_HARMLESS("liger_rope"),
    OPT_HARMLESS("liger_rms_norm"),
    OPT_HARMLESS("liger_glu_activation"),
    OPT_HARMLESS("liger_layer_norm"),
    OPT_HARMLESS("liger_fused_linear_cross_entropy"),
    OPT_HARMLESS("cut_cross_entropy"),
    OPT_HARMLESS("strict"),
    OPT_HARMLESS("chat_template", .says = "chats have the model's own template"),
    OPT_DOES("datasets.*.type", NULL, .convert = record_type,
             .says = "alpaca: --prompt-template and --completion-template; chat_template, "
                     "sharegpt and completion by their fields"),
    OPT_DOES("datasets.*.field", "text-field"),
    OPT_DOES("datasets.*.field_messages", "messages-field"),
    OPT_HARMLESS("datasets.*.ds_type"),
    OPT_HARMLESS("datasets.*.chat_template"),
    OPT_HARMLESS("datasets.*.message_property_mappings"),
    OPT_HARMLESS("datasets.*.roles"),
    OPT_NOT_DONE("datasets.*.roles_to_train", "assistant", "the assistant's turns are learnt"),
    OPT_NOT_DONE("datasets.*.train_on_eos", "turn all last", "ends of turns are learnt"),
    OPT_HARMLESS("dataset_prepared_path", .says = "--data-cache"),
    OPT_HARMLESS("dataset_processes"),
    OPT_HARMLESS("dataset_exact_deduplication"),
    OPT_DOES("val_set_size", "train-split-ratio", .convert = eval_part),
    OPT_NOT_DONE("adapter", "lora", "lora is done"),
    OPT_DOES("lora_model_dir", "adapter"),
    OPT_DOES("lora_r", "lora-rank", .when = "adapter"),
    OPT_DOES("lora_alpha", "lora-alpha", .when = "adapter"),
    OPT_DOES("lora_dropout", "lora-dropout", .when = "adapter"),
    OPT_DOES("lora_target_modules", "target-modules", .convert = modules, .when = "adapter"),
    OPT_DOES("lora_target_linear", "target-modules", .convert = all_linear, .when = "adapter"),
    OPT_DOES("lora_modules_to_save", "modules-to-save", .when = "adapter"),
    OPT_DOES("peft_use_rslora", "use-rslora", .when = "adapter"),
    OPT_DOES("peft_use_dora", "use-dora", .when = "adapter"),
    OPT_HARMLESS("lora_fan_in_fan_out"),
    OPT_HARMLESS("lora_mlp_kernel"),
    OPT_HARMLESS("lora_qkv_kernel"),
    OPT_HARMLESS("lora_o_kernel"),
    OPT_DOES("loraplus_lr_ratio", "loraplus-lr-ratio", .when = "adapter"),
    OPT_DOES("loraplus_lr_embedding", "loraplus-lr-embedding", .when = "loraplus_lr_ratio"),
    OPT_DOES("sequence_len", "max-seq-length"),
    OPT_DOES("sample_packing", "packing"),
    OPT_HARMLESS("eval_sample_packing"),
    OPT_HARMLESS("sample_packing_group_size"),
    OPT_HARMLESS("sample_packing_bin_size"),
    OPT_HARMLESS("pad_to_sequence_len"),
    OPT_DOES("train_on_inputs", "train-on-prompt"),
    OPT_DOES("micro_batch_size", "per-device-train-batch-size"),
    OPT_DOES("eval_batch_size", "per-device-eval-batch-size"),
    OPT_DOES("num_epochs", "num-train-epochs"),
    OPT_DOES("optimizer", "optim", .values = "adamw_hf=adamw_torch adamw_apex_fused=adamw_torch"),
    OPT_DOES("lr_scheduler", "lr-scheduler-type", .convert = scheduler),
    OPT_DOES("cosine_min_lr_ratio", "min-lr", .convert = cosine_min_lr,
             .says = "as a fraction of learning_rate, with cosine_with_min_lr"),
    OPT_DOES("bf16", "bf16", .convert = bf16),
    OPT_DOES("bfloat16", "bf16"),
    OPT_DOES("float16", "fp16"),
    OPT_DOES("gradient_checkpointing", "gradient-checkpointing",
             .values = "unsloth=true offload=true"),
    OPT_HARMLESS("flash_attention"),
    OPT_HARMLESS("flash_attn_cross_entropy"),
    OPT_HARMLESS("flash_attn_rms_norm"),
    OPT_HARMLESS("sdp_attention"),
    OPT_HARMLESS("xformers_attention"),
    OPT_HARMLESS("eager_attention"),
    OPT_NOT_DONE("s2_attention", "false", "attention is the model's"),
    OPT_DOES("evals_per_epoch", "eval-steps", .convert = evals_per_epoch, .says = per_epoch),
    OPT_DOES("saves_per_epoch", "save-steps", .convert = saves_per_epoch, .says = per_epoch),
    OPT_DOES("early_stopping_patience", "early-stopping-patience"),
    OPT_HARMLESS("eval_table_size"),
    OPT_HARMLESS("eval_max_new_tokens"),
    OPT_DOES("wandb_project", "report-to", .convert = wandb_project,
             .says = "wandb; WANDB_PROJECT names the project"),
    OPT_HARMLESS("wandb_entity"),
    OPT_HARMLESS("wandb_watch"),
    OPT_DOES("wandb_name", "run-name"),
    OPT_HARMLESS("wandb_run_id"),
    OPT_HARMLESS("wandb_log_model"),
    OPT_NOT_DONE("special_tokens", "", "the tokenizer has them"),
    OPT_HARMLESS("special_tokens.pad_token", .says = "there is no padding"),
    OPT_NOT_DONE("special_tokens.bos_token", "", "the tokenizer has it"),
    OPT_NOT_DONE("special_tokens.eos_token", "", "the tokenizer has it"),
    OPT_NOT_DONE("special_tokens.unk_token", "", "the tokenizer has it"),
    OPT_NOT_DONE("tokens", "", "the vocabulary stays"),
    OPT_NOT_DONE("unfrozen_parameters", "", "all weights are trained, or an adapter"),
    OPT_NOT_DONE("rl", "", rl),
    OPT_HARMLESS("torch_compile"),
    OPT_HARMLESS("auto_resume_from_checkpoints"),
    OPT_HARMLESS("save_safetensors"),
    OPT_HARMLESS("loss_watchdog_threshold"),
    OPT_HARMLESS("loss_watchdog_patience"),
    OPT_HARMLESS("debug"),
    OPT_HARMLESS("axolotl_config_path"),
};

static const struct opt_field_default axolotl_absent[] = {
    {"micro_batch_size", "1"}, {"sequence_len", "2048"}, {"num_epochs", "1"},
    {"logging_steps", "1"}, {"lora_r", "8"}, {"lora_alpha", "16"},
};

const struct opt_dialect train_axolotl = {
    .name = "axolotl", .base = &train_fields, ROWS(axolotl_fields), ABSENT(axolotl_absent),
    .tells = "base_model micro_batch_size sequence_len sample_packing val_set_size num_epochs "
             "lora_target_linear pad_to_sequence_len train_on_inputs dataset_prepared_path "
             "saves_per_epoch evals_per_epoch flash_attention lora_model_dir",
};

/* -- accelerate ------------------------------------------------------------------------------- */

static int precision(struct opt_put *put, const char *const *value, size_t n,
                     struct ckpt_err *err)
{
    (void)n;
    if (strcmp(value[0], "no") == 0)
        return 0;
    if (strcmp(value[0], "bf16") == 0 || strcmp(value[0], "fp16") == 0)
        return opt_put_option(put, value[0], "true", err);
    if (strcmp(value[0], "fp8") == 0) {
        int rc = opt_put_option(put, "bf16", "true", err);

        return rc ? rc : opt_put_option(put, "fp8", "true", err);
    }
    return opt_put_refuse(put, err, "\"%s\" is none of: no bf16 fp16 fp8", value[0]);
}

static const char hosts[] = "ranks on several hosts are started by --hostfile, srun or torchrun";

static const struct opt_field accelerate_fields[] = {
    OPT_NOT_DONE("compute_environment", "LOCAL_MACHINE", hosts),
    OPT_NOT_DONE("distributed_type", "NO MULTI_GPU MULTI_CPU DEEPSPEED FSDP",
                 "GPUs and CPUs share data"),
    OPT_DOES("num_processes", "nproc"),
    OPT_NOT_DONE("num_machines", "1", hosts),
    OPT_NOT_DONE("machine_rank", "0", hosts),
    OPT_HARMLESS("main_process_ip"),
    OPT_HARMLESS("main_process_port"),
    OPT_HARMLESS("main_training_function"),
    OPT_HARMLESS("main_training_module"),
    OPT_DOES("mixed_precision", NULL, .convert = precision,
             .says = "bf16: --bf16; fp16: --fp16; fp8: --fp8 too"),
    OPT_DOES("use_cpu", "device", .values = "true=cpu false"),
    OPT_NOT_DONE("gpu_ids", "all", "CUDA_VISIBLE_DEVICES chooses GPUs"),
    OPT_HARMLESS("same_network"),
    OPT_HARMLESS("rdzv_backend"),
    OPT_HARMLESS("debug"),
    OPT_HARMLESS("downcast_bf16"),
    OPT_HARMLESS("enable_cpu_affinity"),
    OPT_HARMLESS("dynamo_config"),
    OPT_HARMLESS("dynamo_backend"),
    OPT_HARMLESS("ipex_config"),
    OPT_HARMLESS("mpirun_config"),
    OPT_HARMLESS("tpu_env"),
    OPT_HARMLESS("tpu_name"),
    OPT_HARMLESS("tpu_zone"),
    OPT_HARMLESS("tpu_use_cluster"),
    OPT_HARMLESS("tpu_use_sudo"),
    OPT_HARMLESS("command_file"),
    OPT_HARMLESS("commands"),
    OPT_NOT_DONE("megatron_lm_config", "", "ranks share data alone"),
    OPT_NOT_DONE("parallelism_config", "", "ranks share data alone"),
    OPT_HARMLESS("fp8_config"),
    OPT_DOES("fsdp_config", NULL, .inner = &train_fsdp, .says = "its members"),
    OPT_DOES("gradient_accumulation_steps", "gradient-accumulation-steps"),
    OPT_DOES("deepspeed_config.deepspeed_config_file", "deepspeed",
             .inner = &train_deepspeed),
    OPT_DOES("deepspeed_config.zero_stage", "zero-stage"),
    OPT_DOES("deepspeed_config.gradient_accumulation_steps", "gradient-accumulation-steps"),
    OPT_DOES("deepspeed_config.gradient_clipping", "max-grad-norm"),
    OPT_DOES("deepspeed_config.offload_optimizer_device", "offload-optimizer"),
    OPT_DOES("deepspeed_config.offload_param_device", "offload-param"),
    OPT_HARMLESS("deepspeed_config.offload_optimizer_nvme_path"),
    OPT_HARMLESS("deepspeed_config.offload_param_nvme_path"),
    OPT_HARMLESS("deepspeed_config.zero3_init_flag"),
    OPT_HARMLESS("deepspeed_config.zero3_save_16bit_model"),
    OPT_DOES("deepspeed_config.deepspeed_hostfile", "hostfile"),
    OPT_HARMLESS("deepspeed_config.deepspeed_multinode_launcher"),
    OPT_HARMLESS("deepspeed_config.deepspeed_moe_layer_cls_names"),
};

const struct opt_dialect train_accelerate = {
    .name = "accelerate", .skip = "auto", ROWS(accelerate_fields),
    .tells = "compute_environment distributed_type num_processes num_machines machine_rank "
             "mixed_precision main_training_function rdzv_backend same_network downcast_bf16",
};

/* train/axolotl - the config files of axolotl; see train/names.h.
 *
 * Source: axolotl 0.13 to 0.19, its schemas (utils/schemas), their defaults where a file lacks a
 * name (core/builders/base.py), and the names in its examples.  Names that the table lacks are
 * transformers'. */
#include <stdlib.h>
#include <string.h>

#include "libckpt/mem.h"
#include "tools/train/names.h"

static int all_linear(struct opt_put *put, const char *const *value, size_t n,
                      struct ckpt_err *err)
{
    (void)n;
    return strcmp(value[0], "true") == 0
               ? opt_put_option(put, "target-modules", "all-linear", err) : 0;
}

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

/* Defaults that give way to another name of the same matter. */
static int yields(struct opt_put *put, const char *const *value, const char *option,
                  const char *to, const char *or_to, struct ckpt_err *err)
{
    bool other = opt_put_other(put, to) || (or_to && opt_put_other(put, or_to));

    return opt_put_is_default(put) && other ? 0 : opt_put_option(put, option, value[0], err);
}

static int warmup_ratio(struct opt_put *put, const char *const *value, size_t n,
                        struct ckpt_err *err)
{
    (void)n;
    return yields(put, value, "warmup-ratio", "warmup_steps", NULL, err);
}

static int save_strategy(struct opt_put *put, const char *const *value, size_t n,
                         struct ckpt_err *err)
{
    (void)n;
    return yields(put, value, "save-strategy", "save_steps", "saves_per_epoch", err);
}

static int eval_batch(struct opt_put *put, const char *const *value, size_t n,
                      struct ckpt_err *err)
{
    const char *micro = opt_put_other(put, "micro_batch_size");

    (void)n;
    return opt_put_option(put, "per-device-eval-batch-size",
                          opt_put_is_default(put) && micro ? micro : value[0], err);
}

/* Where texts are cut into pieces there, the first piece is kept here. */
static int excess(struct opt_put *put, const char *const *value, size_t n, struct ckpt_err *err)
{
    const char *type = opt_put_other(put, "datasets.*.type");
    bool pieces = (type && strcmp(type, "completion") == 0) ||
                  opt_put_other(put, "pretraining_dataset") ||
                  opt_put_other(put, "pretraining_dataset.*.path");

    (void)n;
    if (opt_put_is_default(put) && pieces)
        return 0;
    return opt_put_option(put, "excess-length-strategy", value[0], err);
}

/* With version 2 it is fsdp_config alone that asks for shards. */
static int shards(struct opt_put *put, const char *const *value, size_t n, struct ckpt_err *err)
{
    (void)n;
    if (strcmp(value[0], "1") == 0)
        return 0;
    return strcmp(value[0], "2") == 0
               ? opt_put_default(put, "fsdp", "full_shard", err)
               : opt_put_refuse(put, err, "fsdp_version %s: files of versions 1 and 2 are read",
                                value[0]);
}

static int reports(struct opt_put *put, const char *const *value, size_t n,
                   struct ckpt_err *err)
{
    (void)n;
    return strcmp(value[0], "true") == 0
        ? opt_put_option(put, "report-to", opt_put_is(put, "use_wandb") ? "wandb" : "tensorboard",
                         err) : 0;
}

static const char supervised[] = "supervised fine-tuning is done: sft, and pt";
static const char ranks[] = "ranks share data alone";
static const char quantised[] = "weights are trained over as they are stored";
static const char vocabulary[] = "the vocabulary stays";
static const char other_loss[] = "the loss is the cross-entropy";
static const char other_lora[] = "this kind of LoRA is not done";
static const char layers[] = "--target-modules takes a pattern, which may name layers";
static const char reporting[] = "--report-to has tensorboard, wandb and csv";

#define CUSTOM .convert = train_names_custom_prompt

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
    OPT_DOES("datasets.*.type", NULL, .convert = train_names_record_type,
             .says = "alpaca: --prompt-template and --completion-template; chat_template, "
                     "sharegpt and completion by their fields"),
    OPT_DOES("datasets.*.type.system_prompt", "prompt-template", CUSTOM,
             .says = "the system's text of records without field_system"),
    OPT_DOES("datasets.*.type.system_format", "prompt-template", CUSTOM,
             .says = "by default {system}"),
    OPT_DOES("datasets.*.type.field_system", "prompt-template", CUSTOM,
             .says = "by default system"),
    OPT_DOES("datasets.*.type.field_instruction", "prompt-template", CUSTOM,
             .says = "by default instruction"),
    OPT_DOES("datasets.*.type.field_input", "prompt-template", CUSTOM,
             .says = "by default input"),
    OPT_DOES("datasets.*.type.field_output", "completion-template", CUSTOM,
             .says = "by default output; a record without it is refused"),
    OPT_DOES("datasets.*.type.format", "prompt-template", CUSTOM,
             .says = "by default \"{instruction} {input} \"; prompt and completion are made tokens "
                     "as one text"),
    OPT_DOES("datasets.*.type.no_input_format", "prompt-template", CUSTOM,
             .says = "where the input is empty, by default \"{instruction} \""),
    OPT_HARMLESS("datasets.*.type.field"),
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
    OPT_DOES("val_set_size", "train-split-ratio", .convert = train_names_eval_part),
    OPT_NOT_DONE("adapter", "lora", "lora is done"),
    OPT_DOES("lora_model_dir", "adapter"),
    OPT_DOES("lora_r", "lora-rank", .when = "adapter"),
    OPT_DOES("lora_alpha", "lora-alpha", .when = "adapter"),
    OPT_DOES("lora_dropout", "lora-dropout", .when = "adapter"),
    OPT_DOES("lora_target_modules", "target-modules", .convert = train_names_modules,
             .when = "adapter"),
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
    OPT_DOES("eval_batch_size", "per-device-eval-batch-size", .convert = eval_batch,
             .says = "by default as micro_batch_size"),
    OPT_DOES("warmup_ratio", "warmup-ratio", .convert = warmup_ratio),
    OPT_DOES("save_strategy", "save-strategy", .convert = save_strategy,
             .says = "by default epoch"),
    OPT_DOES("adam_eps", "adam-epsilon"),
    OPT_DOES("excess_length_strategy", "excess-length-strategy", .convert = excess,
             .says = "by default drop, but for texts"),
    OPT_NOT_DONE("min_sample_len", "0 1 2", "short rows are trained on too"),
    OPT_NOT_DONE("cosine_constant_lr_ratio", "", "--lr-scheduler-kwargs has the numbers of "
                 "schedules"),
    OPT_NOT_DONE("lr_quadratic_warmup", "false", "the warmup is linear"),
    OPT_NOT_DONE("max_packed_sequence_len", "", "sample_packing fills sequence_len"),
    OPT_DOES("num_epochs", "num-train-epochs"),
    OPT_DOES("optimizer", "optim", .values = "adamw_hf=adamw_torch "
             "adamw_apex_fused=adamw_torch adamw_torch_8bit=adamw_8bit"),
    OPT_DOES("lr_scheduler", "lr-scheduler-type", .convert = scheduler),
    OPT_DOES("cosine_min_lr_ratio", "min-lr", .convert = cosine_min_lr,
             .says = "as a fraction of learning_rate, with cosine_with_min_lr"),
    OPT_DOES("bf16", "bf16", .convert = train_names_bf16),
    OPT_DOES("bfloat16", "bf16", .values = "false"),
    OPT_DOES("float16", "fp16", .values = "false"),
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
    OPT_HARMLESS("eval_table_max_new_tokens"),
    OPT_DOES("wandb_project", "report-to", .convert = wandb_project,
             .says = "wandb; WANDB_PROJECT names the project"),
    OPT_HARMLESS("wandb_entity"),
    OPT_HARMLESS("wandb_watch"),
    OPT_DOES("wandb_name", "run-name"),
    OPT_HARMLESS("wandb_run_id"),
    OPT_HARMLESS("wandb_log_model"),
    OPT_NOT_DONE("special_tokens", "", "a mapping is wanted"),
    OPT_DOES("special_tokens.eos_token", "eos-token"),
    OPT_DOES("special_tokens.pad_token", "pad-token"),
    OPT_DOES("special_tokens.bos_token", "bos-token"),
    OPT_DOES("special_tokens.unk_token", "unk-token"),
    OPT_NOT_DONE("special_tokens.additional_special_tokens", "", vocabulary),
    OPT_NOT_DONE("tokens", "", vocabulary),
    OPT_NOT_DONE("unfrozen_parameters", "", "all weights are trained, or an adapter"),
    OPT_NOT_DONE("rl", "", supervised),
    OPT_HARMLESS("torch_compile"),
    OPT_HARMLESS("auto_resume_from_checkpoints"),
    OPT_HARMLESS("save_safetensors"),
    OPT_HARMLESS("loss_watchdog_threshold"),
    OPT_HARMLESS("loss_watchdog_patience"),
    OPT_HARMLESS("debug"),
    OPT_HARMLESS("axolotl_config_path"),
    /* how it computes and loads */
    OPT_DOES("fsdp_version", "fsdp", .convert = shards, .says = "2: full_shard"),
    OPT_HARMLESS("use_kernels"),
    OPT_HARMLESS("experts_implementation"),
    OPT_HARMLESS("use_scattermoe"),
    OPT_HARMLESS("use_sonicmoe"),
    OPT_HARMLESS("fused_attn_kernel"),
    OPT_HARMLESS("flex_attention"),
    OPT_HARMLESS("flex_attn_compile_kwargs"),
    OPT_HARMLESS("flash_attn_fuse_mlp"),
    OPT_HARMLESS("flash_attn_fuse_qkv"),
    OPT_HARMLESS("flash_optimum"),
    OPT_HARMLESS("liger_rms_norm_gated"),
    OPT_HARMLESS("llama4_linearized_experts"),
    OPT_HARMLESS("gemma4_hybrid_attn_impl"),
    OPT_HARMLESS("tiled_mlp"),
    OPT_HARMLESS("device_map"),
    OPT_HARMLESS("torchdistx_path"),
    OPT_HARMLESS("experimental_skip_move_to_device"),
    OPT_HARMLESS("ddp"),
    OPT_HARMLESS("ddp_timeout", .says = "--ddp-timeout"),
    OPT_HARMLESS("hf_use_auth_token", .says = "HF_TOKEN"),
    OPT_HARMLESS("tokenizer_use_fast"),
    OPT_HARMLESS("tokenizer_legacy"),
    OPT_HARMLESS("tokenizer_use_mistral_common"),
    OPT_HARMLESS("sample_packing_eff_est"),
    OPT_HARMLESS("sample_packing_sequentially"),
    OPT_HARMLESS("sample_packing_seq_len_multiplier"),
    OPT_HARMLESS("total_num_tokens"),
    OPT_HARMLESS("shuffle_merged_datasets", .says = "--train-sampling-strategy"),
    OPT_HARMLESS("resize_token_embeddings_to_32x", .says = "the vocabulary stays"),
    OPT_HARMLESS("processor_type", .says = "texts are trained on"),
    OPT_HARMLESS("freeze_mm_modules", .says = "texts are trained on"),
    OPT_NOT_DONE("skip_prepare_dataset", "false", "data is always prepared"),
    OPT_HARMLESS("eot_tokens", .says = "the chat template ends turns"),
    OPT_HARMLESS("datasets.*.message_field_role"),
    OPT_HARMLESS("datasets.*.message_field_content"),
    OPT_HARMLESS("datasets.*.field_thinking", .says = "the chat template takes it"),
    OPT_HARMLESS("datasets.*.template_thinking_key"),
    OPT_NOT_DONE("datasets.*.drop_system_message", "false", "whole chats are rendered"),
    OPT_NOT_DONE("test_datasets", "", "--eval-file has the data of evaluations"),
    OPT_DOES("pretraining_dataset", "train-file", .convert = train_names_data,
             .says = "a path, or a data set of the Hub"),
    OPT_DOES("pretraining_dataset.*.path", "train-file", .convert = train_names_data,
             .says = "a path, or a data set of the Hub"),
    OPT_DOES("pretraining_dataset.*.data_files", "train-file"),
    OPT_DOES("pretraining_dataset.*.name", "dataset-config"),
    OPT_DOES("pretraining_dataset.*.split", "train-split"),
    OPT_DOES("pretraining_dataset.*.text_column", "text-field"),
    OPT_HARMLESS("pretraining_dataset.*.type"),
    OPT_HARMLESS("pretraining_dataset.*.trust_remote_code"),
    OPT_NOT_DONE("pretraining_dataset.*.skip", "0", "--start-idx leaves out the first rows"),
    OPT_NOT_DONE("push_dataset_to_hub", "", "ckpt-push publishes"),
    OPT_NOT_DONE("model_config", "", "config.json has it"),
    OPT_NOT_DONE("revision_of_model", "", "write it after the name: hf://owner/name@revision"),
    OPT_NOT_DONE("reinit_weights", "false", "--init does that"),
    /* as PEFT's and other names */
    OPT_DOES("lora_rank_pattern", "rank-pattern", .when = "adapter"),
    OPT_DOES("lora_alpha_pattern", "alpha-pattern", .when = "adapter"),
    OPT_DOES("peft_init_lora_weights", "init-lora-weights", .when = "adapter"),
    OPT_DOES("peft_trainable_token_indices", "trainable-token-indices", .when = "adapter"),
    OPT_NOT_DONE("peft_layers_to_transform", "", layers),
    OPT_NOT_DONE("peft_layers_pattern", "", layers),
    OPT_NOT_DONE("peft_layer_replication", "", "layers are not repeated"),
    OPT_NOT_DONE("peft_ensure_weight_tying", "false",
                 "tied weights stay tied where they are trained"),
    OPT_DOES("noisy_embedding_alpha", "neftune-noise-alpha"),
    OPT_DOES("dataset_shard_num", "num-shards"),
    OPT_DOES("dataset_shard_idx", "shard-index"),
    OPT_DOES("datasets.*.shards", "num-shards"),
    OPT_DOES("datasets.*.shards_idx", "shard-index"),
    OPT_HARMLESS("datasets.*.trust_remote_code", .says = "no code of a data set is ever run"),
    OPT_HARMLESS("datasets.*.preprocess_shards"),
    OPT_HARMLESS("datasets.*.conversation", .says = "chats have the model's own template"),
    OPT_NOT_DONE("datasets.*.revision", "main", "write it after the name: "
                 "hf://datasets/owner/name@revision"),
    OPT_NOT_DONE("datasets.*.train_on_eot", "turn all last", "ends of turns are learnt"),
    OPT_NOT_DONE("datasets.*.field_tools", "tools", "--field-mapping names columns"),
    OPT_NOT_DONE("datasets.*.field_human", "", "--field-mapping names columns"),
    OPT_NOT_DONE("datasets.*.field_model", "", "--field-mapping names columns"),
    OPT_NOT_DONE("datasets.*.message_field_training", "", "the assistant's turns are learnt"),
    OPT_NOT_DONE("datasets.*.message_field_training_detail", "",
                 "the assistant's turns are learnt"),
    OPT_NOT_DONE("datasets.*.split_thinking", "false", "the chat template takes it"),
    OPT_NOT_DONE("datasets.*.input_transform", "", "rows are taken as they are"),
    OPT_NOT_DONE("datasets.*.input_format", "", "--prompt-template makes prompts"),
    OPT_NOT_DONE("datasets.*.logprobs_field", "", other_loss),
    OPT_NOT_DONE("datasets.*.temperature", "", other_loss),
    OPT_NOT_DONE("chat_template_jinja", "", "--chat-template takes a file"),
    OPT_NOT_DONE("chat_template_kwargs", "", "the chat template has its defaults"),
    OPT_NOT_DONE("default_system_message", "", "the chat template has it"),
    OPT_NOT_DONE("added_tokens_overrides", "", vocabulary),
    OPT_NOT_DONE("fix_untrained_tokens", "false", "rows of the embedding stay as they are loaded"),
    OPT_NOT_DONE("overrides_of_model_config", "", "config.json has it"),
    OPT_HARMLESS("overrides_of_model_kwargs"),
    OPT_NOT_DONE("eval_sequence_len", "", "--max-seq-length is that of evaluations too"),
    OPT_NOT_DONE("batch_size", "", "micro_batch_size and gradient_accumulation_steps say it; "
                 "--train-batch-size"),
    OPT_NOT_DONE("embedding_lr", "", "--lr-for 'embed_tokens=X' sets it"),
    OPT_NOT_DONE("embedding_lr_scale", "", "--lr-for 'embed_tokens=X' sets it"),
    OPT_NOT_DONE("lr_groups", "", "--lr-for sets them"),
    OPT_NOT_DONE("save_first_step", "false", "--save-steps 1 saves each"),
    OPT_NOT_DONE("use_pose", "false", "positions are those of the text"),
    OPT_NOT_DONE("scaling_softmax", "false", "attention is the model's"),
    OPT_NOT_DONE("do_bench_eval", "false", "ckpt-eval scores"),
    OPT_NOT_DONE("generate_samples", "false", "ckpt-eval --generate does that"),
    OPT_NOT_DONE("use_ray", "false", "--nproc, --hostfile, torchrun, mpirun and srun start ranks"),
    OPT_NOT_DONE("trainer_cls", "", "there is one trainer"),
    OPT_NOT_DONE("quantization", "", quantised),
    OPT_NOT_DONE("use_onebitllms", "false", quantised),
    OPT_NOT_DONE("vllm", "", supervised),
    OPT_NOT_DONE("relora_prune_ratio", "", other_lora),
    OPT_NOT_DONE("merge_lora", "false", "ckpt-merge merges adapters"),
    OPT_NOT_DONE("eaft_alpha", "", other_loss),
    OPT_HARMLESS("batch_flattening", .says = "there is no padding"),
    OPT_HARMLESS("gpu_memory_limit", .says = "--device-memory-limit"),
    OPT_HARMLESS("profiler_steps", .says = "--profile"),
    OPT_HARMLESS("include_tkps", .says = "they are logged"),
    OPT_NOT_DONE("adam_beta3", "", "this optimizer is not done"),
    OPT_NOT_DONE("lr_div_factor", "", "schedules of transformers and DeepSpeed are done"),
    OPT_NOT_DONE("rope_scaling", "", "config.json has it"),
    OPT_NOT_DONE("ple_cpu_offload", "false", "weights lie where --offload-param says"),
    /* without effect with what is done, or at all */
    OPT_HARMLESS("adam_epsilon2"), OPT_HARMLESS("dion_lr"), OPT_HARMLESS("dion_momentum"),
    OPT_HARMLESS("dion_rank_fraction"), OPT_HARMLESS("dion_rank_multiple_of"),
    OPT_HARMLESS("qgalore_rank"), OPT_HARMLESS("qgalore_update_proj_gap"),
    OPT_HARMLESS("qgalore_scale"), OPT_HARMLESS("qgalore_proj_type"),
    OPT_HARMLESS("qgalore_proj_quant"), OPT_HARMLESS("qgalore_proj_bits"),
    OPT_HARMLESS("qgalore_proj_group_size"), OPT_HARMLESS("qgalore_cos_threshold"),
    OPT_HARMLESS("qgalore_gamma_proj"), OPT_HARMLESS("qgalore_queue_size"),
    OPT_HARMLESS("center_rewards_coefficient"), OPT_HARMLESS("dpo_beta"),
    OPT_HARMLESS("dpo_use_weighting"), OPT_HARMLESS("dpo_label_smoothing"),
    OPT_HARMLESS("dpo_use_logits_to_keep"), OPT_HARMLESS("dpo_generate_during_eval"),
    OPT_HARMLESS("dpo_norm_loss"), OPT_HARMLESS("dpo_use_liger_kernel"),
    OPT_HARMLESS("dpo_padding_free"), OPT_HARMLESS("dpo_loss_type"),
    OPT_HARMLESS("dpo_loss_weights"), OPT_HARMLESS("precompute_ref_log_probs"),
    OPT_HARMLESS("rpo_alpha"), OPT_HARMLESS("simpo_gamma"), OPT_HARMLESS("cpo_alpha"),
    OPT_HARMLESS("kto_desirable_weight"), OPT_HARMLESS("kto_undesirable_weight"),
    OPT_HARMLESS("fp8_config"), OPT_HARMLESS("pose_split_on_token_ids"),
    OPT_HARMLESS("pose_max_context_len"), OPT_HARMLESS("pose_num_chunks"),
    OPT_HARMLESS("ray_run_name"), OPT_HARMLESS("ray_num_workers"),
    OPT_HARMLESS("resources_per_worker"),
    OPT_HARMLESS("lora_on_cpu"), OPT_HARMLESS("lora_embedding_kernel"), OPT_HARMLESS("float32"),
    OPT_HARMLESS("fp32_norms"), OPT_HARMLESS("fp32_norm_classes"), OPT_HARMLESS("max_memory"),
    OPT_HARMLESS("is_falcon_derived_model"), OPT_HARMLESS("is_qwen_derived_model"),
    OPT_HARMLESS("type_of_model"), OPT_HARMLESS("cls_model_config"),
    OPT_HARMLESS("processor_kwargs"), OPT_HARMLESS("tokenizer_save_jinja_files"),
    OPT_HARMLESS("qlora_sharded_model_loading"), OPT_HARMLESS("peft_autocast_adapter_dtype"),
    OPT_HARMLESS("merge_method"), OPT_HARMLESS("selective_checkpointing"),
    OPT_HARMLESS("layer_offloading"), OPT_HARMLESS("gc_steps"), OPT_HARMLESS("gc_collect_steps"),
    OPT_HARMLESS("dataset_keep_in_memory"), OPT_HARMLESS("shuffle_before_merging_datasets"),
    OPT_HARMLESS("num_dataset_shards_to_save"), OPT_HARMLESS("preprocess_iterable"),
    OPT_HARMLESS("is_preprocess"), OPT_HARMLESS("total_supervised_tokens"),
    OPT_HARMLESS("world_size"), OPT_HARMLESS("profiler_steps_start"), OPT_HARMLESS("bench_dataset"),
    OPT_HARMLESS("bench_split"), OPT_HARMLESS("eaft_k"), OPT_HARMLESS("multipack_real_batches"),
    OPT_HARMLESS("sample_packing_mp_start_method"), OPT_HARMLESS("pretrain_multipack_buffer_size"),
    OPT_HARMLESS("pretrain_multipack_attn"), OPT_HARMLESS("pretraining_sample_concatenation"),
    OPT_HARMLESS("streaming_multipack_buffer_size"), OPT_HARMLESS("sage_attention"),
    OPT_HARMLESS("large_head_attention"), OPT_HARMLESS("flash_attn_d512"),
    OPT_HARMLESS("sdpa_varlen"), OPT_HARMLESS("scaling_softmax_factor"),
    OPT_HARMLESS("scaling_softmax_bias"), OPT_HARMLESS("chunked_cross_entropy"),
    OPT_HARMLESS("chunked_cross_entropy_num_chunks"), OPT_HARMLESS("tiled_mlp_num_shards"),
    OPT_HARMLESS("tiled_mlp_use_original_mlp"), OPT_HARMLESS("deepcompile"),
    OPT_HARMLESS("torch_compile_options"), OPT_HARMLESS("fsdp_final_state_dict_type"),
    OPT_HARMLESS("heads_k_stride"), OPT_HARMLESS("ring_attn_func"),
    OPT_HARMLESS("mean_resizing_embeddings"), OPT_HARMLESS("shrink_embeddings"),
    OPT_HARMLESS("embeddings_skip_upcast"), OPT_HARMLESS("fp8_enable_fsdp_float8_all_gather"),
    OPT_HARMLESS("dynamic_checkpoint"), OPT_HARMLESS("image_size"),
    OPT_HARMLESS("image_resize_algorithm"), OPT_HARMLESS("role_boundaries"),
    OPT_HARMLESS("max_prompt_len"), OPT_HARMLESS("liger_swiglu"),
    OPT_HARMLESS("liger_cross_entropy"), OPT_HARMLESS("liger_use_token_scaling"),
    OPT_HARMLESS("liger_kernel_impl"), OPT_HARMLESS("relora_prune_method"),
    OPT_HARMLESS("relora_cpu_offload"), OPT_HARMLESS("jagged_restart_warmup_steps"),
    OPT_HARMLESS("jagged_restart_anneal_steps"), OPT_HARMLESS("lisa_step_interval"),
    OPT_HARMLESS("lisa_layers_attribute"), OPT_HARMLESS("mlflow_tracking_uri"),
    OPT_HARMLESS("mlflow_experiment_name"), OPT_HARMLESS("mlflow_run_name"),
    OPT_HARMLESS("hf_mlflow_log_artifacts"), OPT_HARMLESS("comet_api_key"),
    OPT_HARMLESS("comet_workspace"), OPT_HARMLESS("comet_project_name"),
    OPT_HARMLESS("comet_experiment_key"), OPT_HARMLESS("comet_mode"), OPT_HARMLESS("comet_online"),
    OPT_HARMLESS("comet_experiment_config"), OPT_HARMLESS("use_otel_metrics"),
    OPT_HARMLESS("otel_metrics_host"), OPT_HARMLESS("otel_metrics_port"),
    OPT_HARMLESS("swanlab_project"), OPT_HARMLESS("swanlab_experiment_name"),
    OPT_HARMLESS("swanlab_mode"), OPT_HARMLESS("swanlab_workspace"),
    OPT_HARMLESS("swanlab_api_key"), OPT_HARMLESS("gradio_title"), OPT_HARMLESS("gradio_share"),
    OPT_HARMLESS("gradio_server_name"), OPT_HARMLESS("gradio_server_port"),
    OPT_HARMLESS("gradio_max_new_tokens"), OPT_HARMLESS("gradio_temperature"),
    OPT_HARMLESS("num_generation_samples"), OPT_HARMLESS("generation_max_new_tokens"),
    OPT_HARMLESS("generation_temperature"), OPT_HARMLESS("generation_top_p"),
    OPT_HARMLESS("generation_top_k"), OPT_HARMLESS("generation_prompt_ratio"),
    OPT_HARMLESS("generation_do_sample"),
    /* ranks */
    OPT_NOT_DONE("tensor_parallel_size", "1", ranks),
    OPT_NOT_DONE("context_parallel_size", "1", ranks),
    OPT_NOT_DONE("sequence_parallel_degree", "1", ranks),
    OPT_NOT_DONE("expert_parallel_size", "1", ranks),
    OPT_NOT_DONE("dp_shard_size", "", "--fsdp full_shard shards over all ranks, "
                 "--hybrid-shard-size N over N"),
    OPT_NOT_DONE("dp_replicate_size", "1", "--hybrid-shard-size N shards over N ranks"),
    /* quantisation */
    OPT_NOT_DONE("gptq", "false", quantised),
    OPT_HARMLESS("gptq_groupsize"),
    OPT_HARMLESS("gptq_model_v1"),
    OPT_HARMLESS("gptq_disable_exllama"),
    OPT_HARMLESS("bnb_config_kwargs"),
    OPT_NOT_DONE("model_quantization_config", "", quantised),
    OPT_HARMLESS("model_quantization_config_kwargs"),
    OPT_NOT_DONE("quantize_moe_experts", "false", quantised),
    OPT_NOT_DONE("qat", "", quantised),
    OPT_NOT_DONE("llmcompressor", "", "weights are not pruned"),
    /* other kinds of training */
    OPT_NOT_DONE("rl_beta", "", supervised),
    OPT_NOT_DONE("orpo_alpha", "", supervised),
    OPT_NOT_DONE("trl", "", supervised),
    OPT_NOT_DONE("ebft", "", supervised),
    OPT_NOT_DONE("reward_model", "false", supervised),
    OPT_NOT_DONE("process_reward_model", "false", supervised),
    OPT_NOT_DONE("num_labels", "", "language models are trained"),
    OPT_NOT_DONE("diffusion", "", "language models are trained"),
    OPT_NOT_DONE("use_eaft", "false", other_loss),
    OPT_NOT_DONE("use_dynamic_finetuning", "false", other_loss),
    OPT_NOT_DONE("lisa_n_layers", "", "all layers are trained"),
    OPT_NOT_DONE("relora", "false", other_lora),
    OPT_NOT_DONE("relora_steps", "", other_lora),
    OPT_NOT_DONE("jagged_restart_steps", "", "schedules do not restart so"),
    OPT_NOT_DONE("peft", "", other_lora),
    OPT_NOT_DONE("curriculum_sampling", "false", "--train-sampling-strategy has orders"),
    /* telling */
    OPT_DOES("use_wandb", "report-to", .convert = reports, .says = "true: wandb"),
    OPT_DOES("use_tensorboard", "report-to", .convert = reports, .says = "true: tensorboard"),
    OPT_NOT_DONE("use_mlflow", "false", reporting),
    OPT_NOT_DONE("use_comet", "false", reporting),
    OPT_NOT_DONE("use_trackio", "false", reporting),
    OPT_NOT_DONE("use_swanlab", "false", reporting),
    OPT_HARMLESS("wandb_mode", .says = "runs are written offline"),
    OPT_HARMLESS("trackio_project_name"),
    OPT_HARMLESS("trackio_run_name"),
    OPT_HARMLESS("eval_causal_lm_metrics", .says = "ckpt-eval scores"),
    OPT_NOT_DONE("do_causal_lm_eval", "false", "ckpt-eval scores"),
};

static const struct opt_field_default axolotl_absent[] = {
    {"micro_batch_size", "1"}, {"sequence_len", "2048"}, {"num_epochs", "1"},
    {"logging_steps", "1"}, {"lora_r", "8"}, {"lora_alpha", "16"}, {"lr_scheduler", "cosine"},
    {"warmup_ratio", "0.03"}, {"save_strategy", "epoch"}, {"save_total_limit", "4"},
    {"eval_batch_size", "1"}, {"excess_length_strategy", "drop"},
};

const struct opt_dialect train_axolotl = {
    .name = "axolotl", .base = &train_fields, .field = axolotl_fields,
    .n_field = sizeof axolotl_fields / sizeof axolotl_fields[0], .absent = axolotl_absent,
    .n_absent = sizeof axolotl_absent / sizeof axolotl_absent[0],
    .tells = "base_model micro_batch_size sequence_len sample_packing val_set_size num_epochs "
             "lora_target_linear pad_to_sequence_len train_on_inputs dataset_prepared_path "
             "saves_per_epoch evals_per_epoch flash_attention lora_model_dir",
};

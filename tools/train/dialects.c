/* train/dialects - the config files of TRL, LLaMA-Factory and accelerate; see train/names.h.
 *
 * Sources: trl 1.16; LLaMA-Factory 0.9 (src/llamafactory/hparams); accelerate 1.15
 * (commands/config).  Names that a table lacks are
 * transformers'. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/mem.h"
#include "tools/train/names.h"

#define ROWS(rows) .field = rows, .n_field = sizeof(rows) / sizeof((rows)[0])
#define ABSENT(rows) .absent = rows, .n_absent = sizeof(rows) / sizeof((rows)[0])

/* bf16 by default, but where fp16 is asked for. */
int train_names_bf16(struct opt_put *put, const char *const *value, size_t n,
                     struct ckpt_err *err)
{
    const char *fp16 = opt_put_text(put, "fp16");

    (void)n;
    if (opt_put_is_default(put) && fp16 && strcmp(fp16, "on") == 0)
        return 0;
    return opt_put_option(put, "bf16", strcmp(value[0], "auto") == 0 ? "true" : value[0], err);
}

/* A part of the data for evaluation: a fraction. */
int train_names_eval_part(struct opt_put *put, const char *const *value, size_t n,
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

    return part ? train_names_eval_part(put, &part, n, err) : ckpt_nomem(err, 32);
}

/* Names of modules, comma-separated; all of them by one word. */
int train_names_modules(struct opt_put *put, const char *const *value, size_t n,
                        struct ckpt_err *err)
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

static const char mixture[] =
    "--train-file is repeatable, and --train-split names splits; weights of data sets are not done";
static const char preferences[] = "supervised fine-tuning is done; preferences and rewards are not";

/* The program's own name of the split is for runs that evaluate, where nothing else names data. */
static int trl_test_split(struct opt_put *put, const char *const *value, size_t n,
                          struct ckpt_err *err)
{
    static const char *const none[][2] = {
        {"eval-strategy", "no"}, {"train-split-ratio", "0"}, {"eval-file", "none"},
    };
    const char *when = opt_put_other(put, "eval_strategy");

    if (!when)
        when = opt_put_other(put, "evaluation_strategy");
    if (!opt_put_is_default(put))
        return when && strcmp(when, "no") == 0
                   ? 0 : opt_put_option(put, "eval-split", value[0], err);
    for (n = 0; when && n < sizeof none / sizeof none[0]; n++) {
        const char *has = opt_put_text(put, none[n][0]);

        if (!has)
            return ckpt_nomem(err, 64);
        if ((strcmp(has, none[n][1]) == 0) != (n > 0))
            return 0;
    }
    return when ? opt_put_default(put, "eval-split", value[0], err) : 0;
}

static const struct opt_field trl_fields[] = {
    OPT_DOES("bf16", "bf16", .convert = train_names_bf16),
    OPT_DOES("dataset_train_split", "train-split", .when = "dataset_name"),
    OPT_DOES("dataset_test_split", "eval-split", .when = "dataset_name", .convert = trl_test_split,
             .says = "unless eval_strategy is no"),
    OPT_NOT_DONE("env", "", "variables of the environment are set by the shell"),
    OPT_NOT_DONE("dataset_mixer", "", mixture),
    OPT_NOT_DONE("dataset_mixture", "", mixture),
    OPT_NOT_DONE("dataset_splits", "", mixture),
    OPT_NOT_DONE("beta", "", preferences),
    OPT_NOT_DONE("max_prompt_length", "", preferences),
    OPT_NOT_DONE("max_completion_length", "", preferences),
    OPT_NOT_DONE("num_generations", "", preferences),
    OPT_NOT_DONE("reward_funcs", "", preferences),
};

static const struct opt_field_default trl_absent[] = {
    {"learning_rate", "2e-5"}, {"gradient_checkpointing", "true"}, {"logging_steps", "10"},
    {"max_length", "1024"}, {"dataset_train_split", "train"}, {"bf16", "true"},
    {"dataset_test_split", "test"}, {"assistant_only_loss", "false"},
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

/* Pre-training is on packed texts, unless it says otherwise. */
static int packs(struct opt_put *put, const char *const *value, size_t n, struct ckpt_err *err)
{
    const char *stage = opt_put_other(put, "stage");
    bool pt = stage && strcmp(stage, "pt") == 0;

    (void)n;
    return opt_put_is_default(put) && !pt ? 0 : opt_put_option(put, "packing", value[0], err);
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
    OPT_DOES("val_size", "train-split-ratio", .convert = train_names_eval_part),
    OPT_DOES("template", "chat-prompts", .values = "empty", .convert = chat_template,
             .says = "the template itself is the model's own, or --chat-template"),
    OPT_DOES("packing", "packing", .convert = packs, .says = "by default with stage pt"),
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
    OPT_DOES("lora_target", "target-modules", .convert = train_names_modules, LORA),
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
    OPT_NOT_DONE("mixture_of_depths", "", "layers are the model's"),
    OPT_NOT_DONE("moe_aux_loss_coef", "", "config.json has it"),
    OPT_NOT_DONE("add_special_tokens", "", "the vocabulary stays"),
    OPT_NOT_DONE("new_special_tokens_config", "", "the vocabulary stays"),
    OPT_NOT_DONE("preserve_thinking", "false", "the chat template decides"),
    OPT_NOT_DONE("use_mca", "false", "ranks share data alone"),
    OPT_NOT_DONE("use_hyper_parallel", "false", "ranks share data alone"),
    OPT_NOT_DONE("use_kt", "false", "weights lie where --offload-param says"),
    OPT_NOT_DONE("use_asft_loss", "false", "the loss is the cross-entropy"),
    OPT_NOT_DONE("use_eaft_loss", "false", "the loss is the cross-entropy"),
    OPT_HARMLESS("freeze_vision_tower", .says = "texts are trained on"),
    OPT_HARMLESS("freeze_multi_modal_projector", .says = "texts are trained on"),
    OPT_NOT_DONE("freeze_language_model", "false", "texts are trained on"),
    OPT_HARMLESS("enable_torch_profiler", .says = "--profile"),
    /* of what is refused by its own name, of inference and of images */
    OPT_HARMLESS("hyper_parallel_args"), OPT_HARMLESS("asft_alpha"), OPT_HARMLESS("eaft_alpha"),
    OPT_HARMLESS("init_special_tokens"), OPT_HARMLESS("use_kv_cache"),
    OPT_HARMLESS("use_v1_kernels"), OPT_HARMLESS("offload_folder"), OPT_HARMLESS("adapter_folder"),
    OPT_HARMLESS("ms_hub_token"), OPT_HARMLESS("om_hub_token"), OPT_HARMLESS("infer_dtype"),
    OPT_HARMLESS("infer_backend"), OPT_HARMLESS("quantization_device_map"),
    OPT_HARMLESS("kt_weight_path"), OPT_HARMLESS("kt_expert_checkpoint_path"),
    OPT_HARMLESS("kt_use_lora_experts"), OPT_HARMLESS("kt_lora_expert_num"),
    OPT_HARMLESS("kt_lora_expert_intermediate_size"), OPT_HARMLESS("compute_dtype"),
    OPT_HARMLESS("device_map"), OPT_HARMLESS("model_max_length"), OPT_HARMLESS("block_diag_attn"),
    OPT_HARMLESS("eval_num_beams"), OPT_HARMLESS("image_max_pixels"),
    OPT_HARMLESS("image_min_pixels"), OPT_HARMLESS("image_do_pan_and_scan"),
    OPT_HARMLESS("crop_to_patches"), OPT_HARMLESS("video_max_pixels"),
    OPT_HARMLESS("video_min_pixels"), OPT_HARMLESS("video_fps"), OPT_HARMLESS("video_maxlen"),
    OPT_HARMLESS("use_audio_in_video"), OPT_HARMLESS("audio_sampling_rate"),
    OPT_HARMLESS("export_dir"), OPT_HARMLESS("export_size"), OPT_HARMLESS("export_device"),
    OPT_HARMLESS("export_quantization_bit"), OPT_HARMLESS("export_quantization_dataset"),
    OPT_HARMLESS("export_quantization_nsamples"), OPT_HARMLESS("export_quantization_maxlen"),
    OPT_HARMLESS("export_legacy_format"), OPT_HARMLESS("export_hub_model_id"),
    OPT_HARMLESS("vllm_maxlen"), OPT_HARMLESS("vllm_gpu_util"), OPT_HARMLESS("vllm_enforce_eager"),
    OPT_HARMLESS("vllm_max_lora_rank"), OPT_HARMLESS("vllm_config"), OPT_HARMLESS("sglang_maxlen"),
    OPT_HARMLESS("sglang_mem_fraction"), OPT_HARMLESS("sglang_tp_size"),
    OPT_HARMLESS("sglang_config"), OPT_HARMLESS("sglang_lora_backend"), OPT_HARMLESS("do_sample"),
    OPT_HARMLESS("temperature"), OPT_HARMLESS("top_p"), OPT_HARMLESS("top_k"),
    OPT_HARMLESS("num_beams"), OPT_HARMLESS("max_new_tokens"), OPT_HARMLESS("repetition_penalty"),
    OPT_HARMLESS("length_penalty"), OPT_HARMLESS("skip_special_tokens"),
    OPT_HARMLESS("freeze_trainable_modules"), OPT_HARMLESS("freeze_extra_modules"),
    OPT_HARMLESS("module_dropout"), OPT_HARMLESS("oft_rank"), OPT_HARMLESS("oft_block_size"),
    OPT_HARMLESS("oft_target"), OPT_HARMLESS("pref_beta"), OPT_HARMLESS("pref_ftx"),
    OPT_HARMLESS("pref_bco_weight"), OPT_HARMLESS("pref_loss"), OPT_HARMLESS("dpo_label_smoothing"),
    OPT_HARMLESS("kto_chosen_weight"), OPT_HARMLESS("kto_rejected_weight"),
    OPT_HARMLESS("simpo_gamma"), OPT_HARMLESS("ppo_buffer_size"), OPT_HARMLESS("ppo_epochs"),
    OPT_HARMLESS("ppo_score_norm"), OPT_HARMLESS("ppo_target"), OPT_HARMLESS("ppo_whiten_rewards"),
    OPT_HARMLESS("ref_model"), OPT_HARMLESS("ref_model_adapters"),
    OPT_HARMLESS("ref_model_quantization_bit"), OPT_HARMLESS("reward_model"),
    OPT_HARMLESS("reward_model_adapters"), OPT_HARMLESS("reward_model_quantization_bit"),
    OPT_HARMLESS("reward_model_type"), OPT_HARMLESS("ld_alpha"), OPT_HARMLESS("galore_target"),
    OPT_HARMLESS("galore_rank"), OPT_HARMLESS("galore_update_interval"),
    OPT_HARMLESS("galore_scale"), OPT_HARMLESS("galore_proj_type"),
    OPT_HARMLESS("galore_layerwise"), OPT_HARMLESS("apollo_target"), OPT_HARMLESS("apollo_rank"),
    OPT_HARMLESS("apollo_update_interval"), OPT_HARMLESS("apollo_scale"),
    OPT_HARMLESS("apollo_proj"), OPT_HARMLESS("apollo_proj_type"),
    OPT_HARMLESS("apollo_scale_type"), OPT_HARMLESS("apollo_layerwise"),
    OPT_HARMLESS("apollo_scale_front"), OPT_HARMLESS("badam_mode"),
    OPT_HARMLESS("badam_start_block"), OPT_HARMLESS("badam_switch_mode"),
    OPT_HARMLESS("badam_switch_interval"), OPT_HARMLESS("badam_update_ratio"),
    OPT_HARMLESS("badam_mask_mode"), OPT_HARMLESS("badam_verbose"), OPT_HARMLESS("swanlab_project"),
    OPT_HARMLESS("swanlab_workspace"), OPT_HARMLESS("swanlab_run_name"),
    OPT_HARMLESS("swanlab_mode"), OPT_HARMLESS("swanlab_api_key"), OPT_HARMLESS("swanlab_logdir"),
    OPT_HARMLESS("swanlab_lark_webhook_url"), OPT_HARMLESS("swanlab_lark_secret"),
    OPT_HARMLESS("ray_init_kwargs"), OPT_HARMLESS("profiler_output_dir"),
    OPT_HARMLESS("profiler_wait_steps"), OPT_HARMLESS("profiler_warmup_steps"),
    OPT_HARMLESS("profiler_active_steps"), OPT_HARMLESS("profiler_repeat"),
    OPT_HARMLESS("profiler_record_shapes"), OPT_HARMLESS("profiler_profile_memory"),
    OPT_HARMLESS("profiler_with_stack"), OPT_HARMLESS("profile_modules"),
    OPT_HARMLESS("fp8_backend"), OPT_HARMLESS("fp8_enable_fsdp_float8_all_gather"),
};

static const struct opt_field_default factory_absent[] = {
    {"finetuning_type", "lora"}, {"lora_rank", "8"}, {"lora_target", "all"},
    {"cutoff_len", "2048"}, {"gradient_checkpointing", "true"}, {"packing", "true"},
};

const struct opt_dialect train_factory = {
    .name = "LLaMA-Factory", .base = &train_fields, ROWS(factory_fields), ABSENT(factory_absent),
    .tells = "stage finetuning_type template cutoff_len lora_target dataset dataset_dir val_size "
             "preprocessing_num_workers overwrite_cache plot_loss flash_attn",
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

/* FSDP shards, unless its strategy says otherwise. */
static int distributed(struct opt_put *put, const char *const *value, size_t n,
                       struct ckpt_err *err)
{
    static const char *const done[] = {"NO", "MULTI_GPU", "MULTI_CPU", "DEEPSPEED"};

    (void)n;
    for (size_t i = 0; i < sizeof done / sizeof done[0]; i++)
        if (strcmp(value[0], done[i]) == 0)
            return 0;
    return strcmp(value[0], "FSDP") == 0
               ? opt_put_default(put, "fsdp", "full_shard", err)
               : opt_put_refuse(put, err, "distributed_type %s: GPUs and CPUs share data",
                                value[0]);
}

static const char hosts[] = "ranks on several hosts are started by --hostfile, srun or torchrun";

static const struct opt_field accelerate_fields[] = {
    OPT_NOT_DONE("compute_environment", "LOCAL_MACHINE", hosts),
    OPT_DOES("distributed_type", NULL, .convert = distributed, .says = "FSDP: --fsdp full_shard"),
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

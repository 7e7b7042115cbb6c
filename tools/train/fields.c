/* train/fields - the fields of transformers' TrainingArguments, of TRL's SFTConfig, ModelConfig and
 * ScriptArguments and of PEFT's LoraConfig, and what becomes of each; see train/names.h.
 *
 * Sources: transformers 5.17 and 4.44, trl 1.16, peft 0.21; tests/golden/fields.json lists their
 * fields and defaults.  A field is accepted with its default, whatever its state. */
#include <stdlib.h>
#include <string.h>

#include "libckpt/mem.h"
#include "tools/train/names.h"

/* warmup_steps below 1 are a fraction of all steps (transformers 5). */
static int warmup(struct opt_put *put, const char *const *value, size_t n, struct ckpt_err *err)
{
    char *end;
    double x = strtod(value[0], &end);

    (void)n;
    return opt_put_option(put, !*end && x > 0 && x < 1 ? "warmup-ratio" : "warmup-steps",
                          !*end && x == 0 ? "0" : value[0], err);
}

/* "full_shard auto_wrap", as one text or a list; version 5 has true and false. */
static int fsdp(struct opt_put *put, const char *const *value, size_t n, struct ckpt_err *err)
{
    static const struct { const char *word, *option, *ours; } words[] = {
        {"full_shard", "fsdp", "full_shard"}, {"shard_grad_op", "fsdp", "shard_grad_op"},
        {"no_shard", "fsdp", "no_shard"}, {"hybrid_shard", "fsdp", "hybrid_shard"},
        {"hybrid_shard_zero2", "fsdp", "hybrid_shard_zero2"}, {"true", "fsdp", "full_shard"},
        {"false", NULL, NULL}, {"auto_wrap", NULL, NULL}, {"offload", "offload-param", "cpu"},
    };
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < n; i++)
        for (const char *p = value[i]; rc == 0 && *p; p += strspn(p, " ,")) {
            size_t k = strcspn(p, " ,"), w = 0;

            while (w < sizeof words / sizeof words[0] &&
                   (strlen(words[w].word) != k || strncmp(words[w].word, p, k) != 0))
                w++;
            if (w == sizeof words / sizeof words[0])
                rc = opt_put_refuse(put, err, "fsdp %.*s is not done: full_shard, shard_grad_op, "
                                    "hybrid_shard, no_shard, offload and auto_wrap are", (int)k, p);
            else if (words[w].option)
                rc = opt_put_option(put, words[w].option, words[w].ours, err);
            p += k;
        }
    return rc;
}

/* The type in which a model is loaded: ranks compute in it, with master weights of float32. */
static int dtype(struct opt_put *put, const char *const *value, size_t n, struct ckpt_err *err)
{
    bool said = opt_put_other(put, "bf16") || opt_put_other(put, "fp16");
    const char *word = strncmp(value[0], "torch.", 6) == 0 ? value[0] + 6 : value[0];

    (void)n;
    if (strcmp(word, "auto") == 0 || strcmp(word, "float32") == 0 || strcmp(word, "None") == 0)
        return 0;
    if (strcmp(word, "bfloat16") == 0 || strcmp(word, "float16") == 0)
        return said ? 0 : opt_put_default(put, word[0] == 'b' ? "bf16" : "fp16", "true", err);
    return opt_put_refuse(put, err, "\"%s\" is none of: auto float32 bfloat16 float16", value[0]);
}

/* On the command line ModelConfig's own defaults follow from use_peft alone. */
static int use_peft(struct opt_put *put, const char *const *value, size_t n, struct ckpt_err *err)
{
    static const struct opt_field_default own[] = {
        {"lora-rank", "16"}, {"lora-alpha", "32"}, {"lora-dropout", "0.05"}};
    int rc = 0;

    (void)n;
    for (size_t i = 0; rc == 0 && i < sizeof own / sizeof own[0] && strcmp(value[0], "true") == 0;
         i++)
        rc = opt_put_default(put, own[i].name, own[i].value, err);
    return rc;
}

/* An older name of an optimizer. */
static int adafactor(struct opt_put *put, const char *const *value, size_t n, struct ckpt_err *err)
{
    (void)n;
    if (strcmp(value[0], "false") == 0)
        return 0;
    if (strcmp(value[0], "true") == 0)
        return opt_put_option(put, "optim", "adafactor", err);
    return opt_put_refuse(put, err, "\"%s\" is neither true nor false", value[0]);
}

/* The part for tests, instead of that for training. */
static int test_part(struct opt_put *put, const char *const *value, size_t n,
                     struct ckpt_err *err)
{
    char *end, *rest;
    double x = strtod(value[0], &end);
    int rc;

    (void)n;
    if (end == value[0] || *end || !(x > 0 && x < 1))
        return opt_put_refuse(put, err, "\"%s\" is no fraction between 0 and 1", value[0]);
    rest = ckpt_arena_printf(opt_put_arena(put), "%.15g", 1 - x);
    if (!rest)
        return ckpt_nomem(err, 32);
    rc = opt_put_option(put, "train-split-ratio", rest, err);
    return rc ? rc : opt_put_option(put, "val-test-split-ratio", "1", err);
}

/* Evaluation data is looked for only where there is evaluation. */
static int test_split(struct opt_put *put, const char *const *value, size_t n,
                      struct ckpt_err *err)
{
    const char *when = opt_put_other(put, "eval_strategy");

    (void)n;
    return when && strcmp(when, "no") == 0 ? 0 : opt_put_option(put, "eval-split", value[0], err);
}

static const char alone[] = "ckpt-push publishes: ckpt-train ... | ckpt-merge | ckpt-push PLACE";
static const char galore[] = "projected optimizers are not done";
static const char packed[] = "packed weights are trained over as they are stored: quantise the "
                             "model first, or leave it out";
static const char method[] = "this kind of LoRA is not done";

static const struct opt_field fields[] = {
    /* TrainingArguments */
    OPT_DOES("output_dir", "output-dir"),
    OPT_DOES("overwrite_output_dir", "overwrite-output-dir"),
    OPT_DOES("per_device_train_batch_size", "per-device-train-batch-size"),
    OPT_DOES("per_gpu_train_batch_size", "per-device-train-batch-size"),
    OPT_DOES("per_device_eval_batch_size", "per-device-eval-batch-size"),
    OPT_DOES("per_gpu_eval_batch_size", "per-device-eval-batch-size"),
    OPT_DOES("num_train_epochs", "num-train-epochs"),
    OPT_DOES("max_steps", "max-steps", .values = "-1=0"),
    OPT_DOES("learning_rate", "learning-rate"),
    OPT_DOES("lr_scheduler_type", "lr-scheduler-type"),
    OPT_DOES("lr_scheduler_kwargs", NULL, .inner = &train_scheduler,
             .says = "min_lr and lr_end are --min-lr, the others --lr-scheduler-kwargs"),
    OPT_DOES("warmup_steps", NULL, .convert = warmup,
             .says = "--warmup-steps; below 1: --warmup-ratio"),
    OPT_DOES("warmup_ratio", "warmup-ratio"),
    OPT_DOES("optim", "optim", .values = "adamw_hf=adamw_torch adamw_apex_fused=adamw_torch "
                                         "adamw_torch_8bit=adamw_8bit",
             .says = "adamw_torch_8bit, torchao's, is adamw_8bit"),
    OPT_DOES("adafactor", NULL, .convert = adafactor, .says = "--optim adafactor"),
    OPT_DOES("optim_args", "optim-args"),
    OPT_NOT_DONE("optim_target_modules", "", galore),
    OPT_DOES("weight_decay", "weight-decay"),
    OPT_DOES("adam_beta1", "adam-beta1"),
    OPT_DOES("adam_beta2", "adam-beta2"),
    OPT_DOES("adam_epsilon", "adam-epsilon"),
    OPT_DOES("gradient_accumulation_steps", "gradient-accumulation-steps"),
    OPT_HARMLESS("average_tokens_across_devices",
                 .says = "the loss is always the mean over the tokens of all ranks"),
    OPT_DOES("max_grad_norm", "max-grad-norm"),
    OPT_DOES("label_smoothing_factor", "label-smoothing-factor"),
    OPT_DOES("bf16", "bf16"),
    OPT_DOES("fp16", "fp16"),
    OPT_HARMLESS("bf16_full_eval", .says = "evaluation has the precision of training"),
    OPT_HARMLESS("fp16_full_eval", .says = "evaluation has the precision of training"),
    OPT_HARMLESS("fp16_opt_level"),
    OPT_HARMLESS("fp16_backend"),
    OPT_HARMLESS("half_precision_backend"),
    OPT_DOES("tf32", "tf32"),
    OPT_DOES("gradient_checkpointing", "gradient-checkpointing"),
    OPT_HARMLESS("gradient_checkpointing_kwargs"),
    OPT_DOES("activation_checkpointing", "gradient-checkpointing"),
    OPT_HARMLESS("activation_checkpointing_kwargs"),
    OPT_HARMLESS("torch_compile", .says = "kernels are chosen by the device"),
    OPT_HARMLESS("torch_compile_backend"),
    OPT_HARMLESS("torch_compile_mode"),
    OPT_HARMLESS("torchdynamo"),
    OPT_HARMLESS("jit_mode_eval"),
    OPT_HARMLESS("use_ipex"),
    OPT_HARMLESS("use_liger_kernel", .says = "kernels are chosen by the device"),
    OPT_HARMLESS("use_liger"),
    OPT_HARMLESS("liger_kernel_config"),
    OPT_HARMLESS("use_cache"),
    OPT_DOES("neftune_noise_alpha", "neftune-noise-alpha"),
    OPT_HARMLESS("torch_empty_cache_steps", .says = "memory is planned before the run"),
    OPT_DOES("auto_find_batch_size", "auto-find-batch-size"),
    OPT_DOES("logging_strategy", "logging-strategy"),
    OPT_DOES("logging_steps", "logging-steps"),
    OPT_DOES("logging_first_step", "logging-first-step"),
    OPT_DOES("logging_dir", "logging-dir"),
    OPT_HARMLESS("log_on_each_node"),
    OPT_DOES("logging_nan_inf_filter", "logging-nan-inf-filter"),
    OPT_DOES("include_num_input_tokens_seen", "include-num-input-tokens-seen"),
    OPT_HARMLESS("include_tokens_per_second", .says = "they are logged"),
    OPT_DOES("log_level", "log-level"),
    OPT_HARMLESS("log_level_replica"),
    OPT_DOES("disable_tqdm", "disable-tqdm"),
    OPT_DOES("report_to", "report-to"),
    OPT_DOES("run_name", "run-name"),
    OPT_HARMLESS("project"),
    OPT_HARMLESS("trackio_space_id"),
    OPT_HARMLESS("trackio_bucket_id"),
    OPT_HARMLESS("trackio_static_space_id"),
    OPT_DOES("eval_strategy", "eval-strategy"),
    OPT_DOES("evaluation_strategy", "eval-strategy"),
    OPT_DOES("eval_steps", "eval-steps"),
    OPT_DOES("eval_delay", "eval-delay"),
    OPT_DOES("eval_on_start", "eval-on-start"),
    OPT_HARMLESS("prediction_loss_only", .says = "evaluation takes the loss alone"),
    OPT_HARMLESS("eval_do_concat_batches"),
    OPT_HARMLESS("eval_use_gather_object"),
    OPT_HARMLESS("eval_accumulation_steps"),
    OPT_HARMLESS("include_for_metrics"),
    OPT_HARMLESS("include_inputs_for_metrics"),
    OPT_HARMLESS("batch_eval_metrics"),
    OPT_DOES("save_only_model", "save-only-model"),
    OPT_DOES("save_strategy", "save-strategy"),
    OPT_DOES("save_steps", "save-steps"),
    OPT_HARMLESS("save_on_each_node"),
    OPT_HARMLESS("save_safetensors", .says = "weights are always safetensors"),
    OPT_DOES("save_total_limit", "save-total-limit", .values = "-1=0"),
    OPT_HARMLESS("enable_jit_checkpoint", .says = "SIGTERM always saves"),
    OPT_NOT_DONE("push_to_hub", "false", alone),
    OPT_HARMLESS("hub_token"),
    OPT_HARMLESS("hub_private_repo"),
    OPT_HARMLESS("hub_model_id"),
    OPT_HARMLESS("hub_strategy"),
    OPT_HARMLESS("hub_always_push"),
    OPT_HARMLESS("hub_revision"),
    OPT_HARMLESS("push_to_hub_model_id"),
    OPT_HARMLESS("push_to_hub_organization"),
    OPT_HARMLESS("push_to_hub_token"),
    OPT_DOES("load_best_model_at_end", "load-best-model-at-end"),
    OPT_DOES("metric_for_best_model", "metric-for-best-model"),
    OPT_DOES("greater_is_better", "greater-is-better", .values = "True=true False=false"),
    OPT_DOES("ignore_data_skip", "ignore-data-skip"),
    OPT_HARMLESS("restore_callback_states_from_checkpoint"),
    OPT_HARMLESS("full_determinism", .says = "runs are deterministic"),
    OPT_DOES("seed", "seed"),
    OPT_DOES("data_seed", "data-seed"),
    OPT_DOES("use_cpu", "device", .values = "true=cpu false"),
    OPT_DOES("no_cuda", "device", .values = "true=cpu false"),
    OPT_NOT_DONE("use_mps_device", "false", "there are CPUs and NVIDIA's GPUs: --device"),
    OPT_HARMLESS("accelerator_config"),
    OPT_NOT_DONE("parallelism_config", "", "ranks share data alone: --zero-stage"),
    OPT_DOES("dataloader_drop_last", "dataloader-drop-last"),
    OPT_HARMLESS("dataloader_num_workers", .says = "data is read ahead by itself"),
    OPT_HARMLESS("dataloader_pin_memory"),
    OPT_HARMLESS("dataloader_persistent_workers"),
    OPT_HARMLESS("dataloader_prefetch_factor"),
    OPT_HARMLESS("dataloader_multiprocessing_context"),
    OPT_HARMLESS("dataloader_in_order"),
    OPT_HARMLESS("dispatch_batches"),
    OPT_NOT_DONE("split_batches", "false", "a batch is one rank's"),
    OPT_HARMLESS("remove_unused_columns", .says = "columns that are not used are not read"),
    OPT_HARMLESS("label_names"),
    OPT_DOES("train_sampling_strategy", "train-sampling-strategy"),
    OPT_DOES("group_by_length", "train-sampling-strategy", .values = "true=group_by_length false"),
    OPT_HARMLESS("length_column_name", .says = "lengths are counted"),
    OPT_HARMLESS("ddp_find_unused_parameters"),
    OPT_HARMLESS("ddp_bucket_cap_mb"),
    OPT_HARMLESS("ddp_broadcast_buffers"),
    OPT_HARMLESS("ddp_static_graph"),
    OPT_HARMLESS("ddp_backend", .says = "NCCL on GPUs, Gloo or MPI on CPUs"),
    OPT_DOES("ddp_timeout", "ddp-timeout"),
    OPT_DOES("fsdp", NULL, .convert = fsdp,
             .says = "full_shard, shard_grad_op or no_shard: --fsdp; offload: --offload-param cpu"),
    OPT_DOES("fsdp_config", NULL, .inner = &train_fsdp, .says = "its members, or a file of them"),
    OPT_HARMLESS("fsdp_min_num_params"),
    OPT_HARMLESS("fsdp_transformer_layer_cls_to_wrap", .says = "a block is the unit"),
    OPT_DOES("deepspeed", "deepspeed", .inner = &train_deepspeed,
             .says = "its members, or a file of them"),
    OPT_HARMLESS("debug"),
    OPT_HARMLESS("skip_memory_metrics", .says = "--memory-log"),
    OPT_HARMLESS("do_train", .says = "ckpt-train always trains"),
    OPT_HARMLESS("do_eval", .says = "evaluation follows from --eval-file"),
    OPT_NOT_DONE("do_predict", "false", "ckpt-eval does that: --eval-file with --generate"),
    OPT_DOES("resume_from_checkpoint", "resume-from-checkpoint"),
    OPT_HARMLESS("local_rank", .says = "ranks come from the environment"),
    OPT_HARMLESS("_n_gpu"),
    OPT_HARMLESS("tpu_num_cores"),
    OPT_HARMLESS("tpu_metrics_debug"),
    OPT_NOT_DONE("past_index", "-1", "hidden states are not carried on"),
    OPT_HARMLESS("use_legacy_prediction_loop"),
    OPT_HARMLESS("mp_parameters"),
    OPT_HARMLESS("ray_scope"),
    /* Seq2SeqTrainingArguments */
    OPT_HARMLESS("sortish_sampler", .says = "HF Trainer does not read it either"),
    OPT_HARMLESS("predict_with_generate", .says = "evaluation takes the loss alone; ckpt-eval "
                 "generates"),
    OPT_HARMLESS("generation_max_length"),
    OPT_HARMLESS("generation_num_beams"),
    OPT_HARMLESS("generation_config"),
    /* SFTConfig */
    OPT_NOT_DONE("model_init_kwargs", "", "of these only types and attention are read"),
    OPT_DOES("model_init_kwargs.dtype", NULL, .convert = dtype, .says = "as dtype"),
    OPT_DOES("model_init_kwargs.torch_dtype", NULL, .convert = dtype, .says = "as dtype"),
    OPT_HARMLESS("model_init_kwargs.attn_implementation"),
    OPT_HARMLESS("model_init_kwargs.use_cache"),
    OPT_HARMLESS("trust_remote_code", .says = "no code of a model is ever run"),
    OPT_NOT_DONE("router_aux_loss_coef", "", "config.json has it"),
    OPT_DOES("chat_template_path", "chat-template"),
    OPT_DOES("dataset_text_field", "text-field", .values = "text"),
    OPT_NOT_DONE("dataset_kwargs", "", "of these none is read"),
    OPT_NOT_DONE("dataset_kwargs.skip_prepare_dataset", "false", "data is always prepared"),
    OPT_HARMLESS("dataset_num_proc", .says = "--jobs"),
    OPT_HARMLESS("dataset_batch_size"),
    OPT_DOES("eos_token", "eos-token"),
    OPT_DOES("pad_token", "pad-token"),
    OPT_DOES("max_length", "max-seq-length"),
    OPT_DOES("truncation_mode", "truncation-side", .values = "keep_start=right keep_end=left"),
    OPT_NOT_DONE("shuffle_dataset", "false", "--train-sampling-strategy random shuffles"),
    OPT_DOES("packing", "packing"),
    OPT_NOT_DONE("packing_strategy", "bfd", "--packing fills micro-batches with whole documents"),
    OPT_HARMLESS("padding_free", .says = "there is no padding"),
    OPT_HARMLESS("pad_to_multiple_of", .says = "there is no padding"),
    OPT_HARMLESS("eval_packing", .says = "losses of evaluation do not depend on it"),
    OPT_DOES("completion_only_loss", "train-on-prompt", .values = "true=false false=true"),
    OPT_DOES("assistant_only_loss", "assistant-only-loss"),
    OPT_NOT_DONE("loss_type", "nll chunked_nll", "the loss is the cross-entropy"),
    OPT_HARMLESS("activation_offloading", .says = "memory is planned: --recompute"),
    /* LoraConfig */
    OPT_NOT_DONE("task_type", "CAUSAL_LM SEQ_2_SEQ_LM", "language models are trained"),
    OPT_NOT_DONE("peft_type", "LORA", "the adapters are LoRA's"),
    OPT_HARMLESS("auto_mapping"),
    OPT_HARMLESS("peft_version"),
    OPT_DOES("base_model_name_or_path", "model", .convert = train_names_model),
    OPT_NOT_DONE("revision", "main", "write it after the name: hf://owner/name@revision"),
    OPT_HARMLESS("inference_mode"),
    OPT_DOES("r", "lora-rank"),
    OPT_DOES("target_modules", "target-modules"),
    OPT_DOES("exclude_modules", "exclude-modules"),
    OPT_DOES("lora_alpha", "lora-alpha", .when = "use_peft"),
    OPT_DOES("lora_dropout", "lora-dropout", .when = "use_peft"),
    OPT_HARMLESS("fan_in_fan_out", .says = "follows from the model"),
    OPT_DOES("bias", "lora-bias"),
    OPT_DOES("use_rslora", "use-rslora", .when = "use_peft"),
    OPT_DOES("modules_to_save", "modules-to-save"),
    OPT_DOES("init_lora_weights", "init-lora-weights", .values = "True=true False=false"),
    OPT_NOT_DONE("layers_to_transform", "", "--target-modules takes a pattern, which may name "
                 "layers"),
    OPT_NOT_DONE("layers_pattern", "", "--target-modules takes a pattern, which may name layers"),
    OPT_DOES("rank_pattern", "rank-pattern"),
    OPT_DOES("alpha_pattern", "alpha-pattern"),
    OPT_HARMLESS("megatron_config"),
    OPT_HARMLESS("megatron_core"),
    OPT_DOES("trainable_token_indices", "trainable-token-indices"),
    OPT_NOT_DONE("loftq_config", "{}", method),
    OPT_NOT_DONE("eva_config", "", method),
    OPT_NOT_DONE("corda_config", "", method),
    OPT_NOT_DONE("lora_ga_config", "", method),
    OPT_DOES("use_dora", "use-dora", .when = "use_peft"),
    OPT_NOT_DONE("velora_config", "", method),
    OPT_NOT_DONE("alora_invocation_tokens", "", method),
    OPT_NOT_DONE("use_qalora", "false", method),
    OPT_HARMLESS("qalora_group_size"),
    OPT_NOT_DONE("monteclora_config", "", method),
    OPT_NOT_DONE("layer_replication", "", "layers are not repeated"),
    OPT_HARMLESS("runtime_config"),
    OPT_DOES("lora_bias", "lora-bias", .values = "false",
             .says = "a bias of the factors themselves (PEFT's true) is not done"),
    OPT_NOT_DONE("target_parameters", "", "adapters are for modules: --target-modules"),
    OPT_NOT_DONE("use_bdlora", "", method),
    OPT_NOT_DONE("arrow_config", "", method),
    OPT_NOT_DONE("kasa_config", "", method),
    OPT_NOT_DONE("ensure_weight_tying", "false", "tied weights stay tied where they are trained"),
    /* ModelConfig */
    OPT_DOES("model_name_or_path", "model", .convert = train_names_model,
             .says = "a name that is no path is one of the Hub"),
    OPT_NOT_DONE("model_revision", "main", "write it after the name: hf://owner/name@revision"),
    OPT_DOES("dtype", NULL, .convert = dtype,
             .says = "bfloat16: --bf16; float16: --fp16; master weights are float32"),
    OPT_DOES("torch_dtype", NULL, .convert = dtype, .says = "as dtype"),
    OPT_HARMLESS("attn_implementation", .says = "kernels are chosen by the device"),
    OPT_DOES("use_peft", NULL, .convert = use_peft, .says = "lora_r and its kin have an effect"),
    OPT_DOES("lora_r", "lora-rank", .when = "use_peft"),
    OPT_DOES("lora_target_modules", "target-modules", .when = "use_peft"),
    OPT_NOT_DONE("lora_target_parameters", "", "adapters are for modules: --target-modules"),
    OPT_DOES("lora_modules_to_save", "modules-to-save", .when = "use_peft"),
    OPT_NOT_DONE("lora_task_type", "CAUSAL_LM SEQ_2_SEQ_LM", "language models are trained"),
    OPT_NOT_DONE("load_in_8bit", "false", packed),
    OPT_NOT_DONE("load_in_4bit", "false", packed),
    OPT_HARMLESS("bnb_4bit_quant_type"),
    OPT_HARMLESS("use_bnb_nested_quant"),
    OPT_HARMLESS("bnb_4bit_quant_storage"),
    OPT_HARMLESS("bnb_4bit_compute_dtype"),
    /* ScriptArguments, with DatasetMixtureConfig */
    OPT_DOES("dataset_name", "dataset-name",
             .says = "without --train-file a path, or a data set of the Hub"),
    OPT_DOES("dataset_config", "dataset-config"),
    OPT_DOES("dataset_train_split", "train-split"),
    OPT_DOES("dataset_test_split", "eval-split", .convert = test_split,
             .says = "unless eval_strategy is no"),
    OPT_HARMLESS("dataset_streaming", .says = "data is always streamed"),
    OPT_HARMLESS("ignore_bias_buffers"),
    OPT_NOT_DONE("datasets", "", "mappings with path are wanted"),
    OPT_DOES("datasets.*.path", "train-file", .convert = train_names_data,
             .says = "a path, or a data set of the Hub"),
    OPT_DOES("datasets.*.name", "dataset-config"),
    OPT_DOES("datasets.*.split", "train-split"),
    OPT_NOT_DONE("datasets.*.data_dir", "", "write the path itself"),
    OPT_DOES("datasets.*.data_files", "train-file"),
    OPT_NOT_DONE("datasets.*.columns", "", "--field-mapping names columns"),
    OPT_NOT_DONE("datasets.*.fraction", "1", "weights of data sets are not done"),
    OPT_HARMLESS("streaming", .says = "data is always streamed"),
    OPT_DOES("test_split_size", "train-split-ratio", .convert = test_part,
             .says = "of 1 less this"),
};

/* All of them together are the option's value, whichever of them comes first. */
static int scheduler_kwargs(struct opt_put *put, const char *const *value, size_t n,
                            struct ckpt_err *err)
{
    static const char *const names[] = {
        "power", "num_cycles", "min_lr_rate", "warmup_lr_rate", "min_lr_ratio", "timescale",
        "num_decay_steps", "num_stable_steps", "warmup_type", "decay_type", "factor", "patience",
        "threshold", "cooldown", "mode", "threshold_mode", "eps",
    };
    const char *all = "";

    (void)value;
    (void)n;
    for (size_t i = 0; all && i < sizeof names / sizeof names[0]; i++) {
        const char *v = opt_put_other(put, names[i]);

        if (v)
            all = ckpt_arena_printf(opt_put_arena(put), "%s%s%s=%s", all, *all ? "," : "",
                                    names[i], v);
    }
    return all ? opt_put_option(put, "lr-scheduler-kwargs", all, err) : ckpt_nomem(err, 256);
}

#define KWARG(name_) OPT_DOES(name_, "lr-scheduler-kwargs", .convert = scheduler_kwargs)
static const struct opt_field scheduler_fields[] = {
    OPT_DOES("min_lr", "min-lr"),
    OPT_DOES("lr_end", "min-lr"),
    KWARG("power"), KWARG("num_cycles"), KWARG("min_lr_rate"), KWARG("warmup_lr_rate"),
    KWARG("min_lr_ratio"), KWARG("timescale"), KWARG("num_decay_steps"), KWARG("num_stable_steps"),
    KWARG("warmup_type"), KWARG("decay_type"), KWARG("factor"), KWARG("patience"),
    KWARG("threshold"), KWARG("cooldown"), KWARG("mode"), KWARG("threshold_mode"), KWARG("eps"),
};

/* Names have "fsdp_" before them in accelerate's files, and may have it in transformers'. */
#define WRAPPED "a block is the unit"
static const struct opt_field fsdp_fields[] = {
    OPT_NOT_DONE("version", "1 2", "files of versions 1 and 2 are read"),
    OPT_NOT_DONE("fsdp_version", "1 2", "files of versions 1 and 2 are read"),
    OPT_DOES("sharding_strategy", "fsdp", .values = "FULL_SHARD=full_shard NO_SHARD=no_shard "
             "SHARD_GRAD_OP=shard_grad_op 1=full_shard 2=shard_grad_op 3=no_shard"),
    OPT_DOES("fsdp_sharding_strategy", "fsdp", .values = "FULL_SHARD=full_shard NO_SHARD=no_shard "
             "SHARD_GRAD_OP=shard_grad_op 1=full_shard 2=shard_grad_op 3=no_shard"),
    OPT_DOES("reshard_after_forward", "reshard-after-forward"),
    OPT_DOES("fsdp_reshard_after_forward", "reshard-after-forward",
             .values = "FULL_SHARD=true SHARD_GRAD_OP=false"),
    OPT_DOES("cpu_offload", "offload-param", .values = "true=cpu false=none"),
    OPT_DOES("offload_params", "offload-param", .values = "true=cpu false=none"),
    OPT_DOES("fsdp_offload_params", "offload-param", .values = "true=cpu false=none"),
    OPT_DOES("activation_checkpointing", "gradient-checkpointing"),
    OPT_DOES("fsdp_activation_checkpointing", "gradient-checkpointing"),
    OPT_HARMLESS("transformer_layer_cls_to_wrap", .says = WRAPPED),
    OPT_HARMLESS("fsdp_transformer_layer_cls_to_wrap", .says = WRAPPED),
    OPT_HARMLESS("auto_wrap_policy", .says = WRAPPED),
    OPT_HARMLESS("fsdp_auto_wrap_policy", .says = WRAPPED),
    OPT_HARMLESS("min_num_params", .says = WRAPPED),
    OPT_HARMLESS("fsdp_min_num_params", .says = WRAPPED),
    OPT_HARMLESS("backward_prefetch"),
    OPT_HARMLESS("fsdp_backward_prefetch"),
    OPT_HARMLESS("backward_prefetch_policy"),
    OPT_HARMLESS("fsdp_backward_prefetch_policy"),
    OPT_HARMLESS("forward_prefetch"),
    OPT_HARMLESS("fsdp_forward_prefetch"),
    OPT_HARMLESS("use_orig_params"),
    OPT_HARMLESS("fsdp_use_orig_params"),
    OPT_HARMLESS("sync_module_states"),
    OPT_HARMLESS("fsdp_sync_module_states"),
    OPT_HARMLESS("cpu_ram_efficient_loading"),
    OPT_HARMLESS("fsdp_cpu_ram_efficient_loading"),
    OPT_HARMLESS("limit_all_gathers"),
    OPT_HARMLESS("fsdp_limit_all_gathers"),
    OPT_DOES("state_dict_type", "checkpoint-format", .values = "SHARDED_STATE_DICT=dcp "
             "FULL_STATE_DICT=auto LOCAL_STATE_DICT=auto"),
    OPT_DOES("fsdp_state_dict_type", "checkpoint-format", .values = "SHARDED_STATE_DICT=dcp "
             "FULL_STATE_DICT=auto LOCAL_STATE_DICT=auto"),
    OPT_HARMLESS("final_state_dict_type", .says = "the final model is whole"),
    OPT_HARMLESS("cpu_offload_pin_memory"),
    OPT_HARMLESS("mixed_precision_policy", .says = "--bf16 and --fp16"),
    OPT_NOT_DONE("xla", "false", "there are CPUs and NVIDIA's GPUs"),
    OPT_HARMLESS("xla_fsdp_settings"),
    OPT_HARMLESS("xla_fsdp_grad_ckpt"),
    OPT_HARMLESS("xla_fsdp_v2"),
};

#define ROWS(rows) .field = rows, .n_field = sizeof(rows) / sizeof((rows)[0])
const struct opt_dialect train_fields = {
    .name = "transformers", ROWS(fields), .base = &train_scripts};
const struct opt_dialect train_scheduler = {.name = "lr_scheduler_kwargs", ROWS(scheduler_fields)};
const struct opt_dialect train_fsdp = {.name = "fsdp_config", ROWS(fsdp_fields)};

/* train/rows - see train/rows.h. */
#include "tools/train/rows.h"

#define OPT_VALUES struct settings
static const struct opt model_rows[] = {
    OPT_HEADING("Model"),
    OPT_PATH("model", "PATH", model, "model directory or checkpoint to start from", .letter = 'm'),
    OPT_PATH("init", "PATH", init, "config.json of a model to start with random weights"),
    OPT_FLAG("init-only", init_only, "write the fresh model to --output-dir and exit"),
    OPT_PATH("tokenizer", "DIR", tokenizer, "directory of the tokenizer",
             .absent = "the model's"),
    OPT_TEXT("eos-token", "TOKEN", eos_token,
             "token of the vocabulary that ends texts, also in the files that are saved",
             .absent = "the tokenizer's"),
    OPT_TEXT("pad-token", "TOKEN", pad_token,
             "token of the vocabulary that pads, also in the files that are saved",
             .absent = "the tokenizer's"),
    OPT_TEXT("bos-token", "TOKEN", bos_token,
             "token that begins texts: the tokenizer's, another is refused",
             .absent = "the tokenizer's"),
    OPT_TEXT("unk-token", "TOKEN", unk_token,
             "token for what is unknown: the tokenizer's, another is refused",
             .absent = "the tokenizer's"),
    OPT_HEADING("Adapter (LoRA)"),
    OPT_PATH("adapter", "DIR", adapter, "PEFT adapter to continue training"),
    OPT_INT("lora-rank", "N", lora_rank, 0, 65536,
            "rank of a new LoRA adapter; the model itself is frozen; 0: no adapter"),
    OPT_REAL("lora-alpha", "X", lora_alpha, 0, 1e9,
             "LoRA alpha; updates are scaled by alpha / rank"),
    OPT_REAL("lora-dropout", "X", lora_dropout, 0, 1,
             "dropout probability of the adapter's input, 0 to 1"),
    OPT_LIST_OF("target-modules", "NAMES", target_modules, n_target_modules,
                "modules that get an adapter: ends of their names, one pattern, or all-linear; "
                "repeatable", .absent = "PEFT's choice for the family"),
    OPT_LIST_OF("exclude-modules", "NAMES", exclude_modules, n_exclude_modules,
                "modules that get no adapter; repeatable"),
    OPT_LIST_OF("modules-to-save", "NAMES", modules_to_save, n_modules_to_save,
                "modules trained in full and saved with the adapter; repeatable"),
    OPT_LIST_OF("rank-pattern", "NAME=N", rank_pattern, n_rank_pattern,
                "rank of modules of this name or pattern; repeatable", .absent = "--lora-rank"),
    OPT_LIST_OF("alpha-pattern", "NAME=X", alpha_pattern, n_alpha_pattern,
                "alpha of modules of this name or pattern; repeatable", .absent = "--lora-alpha"),
    OPT_LIST_OF("trainable-token-indices", "IDS", trainable_token_indices,
                n_trainable_token_indices,
                "ids of tokens whose embedding rows are trained too; repeatable"),
    OPT_FLAG("use-rslora", use_rslora, "scale updates by alpha / sqrt(rank)"),
    OPT_FLAG("use-dora", use_dora, "train magnitude and direction of weights separately (DoRA)"),
    OPT_ENUM("lora-bias", "WHICH", lora_bias, "none all lora_only",
             "biases to train: of no module, of all, or of those with an adapter"),
    OPT_ENUM("init-lora-weights", "HOW", init_lora_weights, "true false gaussian",
             "initial factors; true and gaussian start at the unchanged model, false does not"),
    OPT_HEADING("Data"),
    OPT_LIST_OF("train-file", "PATH", train, n_train,
                "training data: a file, pattern or directory; repeatable", .letter = 't',
                .bytes = OPT_BYTES_FILE),
    OPT_LIST_OF("eval-file", "PATH", eval, n_eval,
                "evaluation data: a file, pattern or directory; repeatable",
                .bytes = OPT_BYTES_FILE),
    OPT_TEXT("train-split", "SPLIT", train_split,
             "part of --train-file, such as train[:80%]+test", .absent = "all"),
    OPT_TEXT("eval-split", "SPLIT", eval_split,
             "part of --eval-file, or of --train-file without one", .absent = "all"),
    OPT_INT("start-idx", "N", start_idx, 0, 1e15, "index of the first training record, from 0"),
    OPT_INT("end-idx", "N", end_idx, 0, 1e15,
            "index after the last training record; 0: no end"),
    OPT_INT("num-shards", "N", num_shards, 0, 1e9,
            "number of shards that the training records are cut into, as by Dataset.shard; "
            "0: no cut"),
    OPT_INT("shard-index", "N", shard_index, 0, 1e9, "index of the shard to train on, from 0"),
    OPT_FLAG("shard-strided", shard_strided,
             "a shard is every N-th record instead of a contiguous run"),
    OPT_INT("max-train-samples", "N", max_train_samples, 0, 1e15,
            "training records to use at most; 0: all"),
    OPT_INT("max-eval-samples", "N", max_eval_samples, 0, 1e15,
            "evaluation records to use at most; 0: all"),
    OPT_REAL("train-split-ratio", "X", train_split_ratio, 0, 0.999999,
             "fraction of the data to train on; the rest is kept for evaluation; 0: no split"),
    OPT_REAL("val-test-split-ratio", "X", val_test_split_ratio, 0, 1,
             "fraction of that rest for validation; what remains is for tests"),
    OPT_PATH("data-dir", "DIR", data_dir,
             "directory of split data; a split that exists is used again"),
    OPT_TEXT("dataset-name", "NAME", dataset_name,
             "name of the data's folder in --data-dir; without --train-file also the data: a path, "
             "or a data set of the Hub", .absent = "after --train-file"),
};

static const struct opt run_rows[] = {
    OPT_ENUM("train-sampling-strategy", "NAME", train_sampling_strategy,
             "random distributed sequential group_by_length",
             "order of samples: random as HF Trainer's, distributed as torch's "
             "DistributedSampler's, as in the file, or by length"),
    OPT_FLAG("dataloader-drop-last", dataloader_drop_last,
             "drop the incomplete last batch of an epoch"),
    OPT_INT("data-seed", "N", data_seed, -1, 4294967295.0,
            "random seed of the data order; -1: --seed"),
    OPT_ENUM("excess-length-strategy", "WHAT", excess_length_strategy, "truncate drop raise",
             "what happens to samples that are longer than --max-seq-length: they are cut, left "
             "out, or end the run before its first step"),
    OPT_FLAG("packing", packing,
             "fill micro-batches with whole documents; attention does not cross them"),
    OPT_FLAG("loss-on-padding", loss_on_padding,
             "pad samples to --max-seq-length, and take the loss on the padding too, as labels "
             "that are copies of padded inputs do"),
    OPT_ENUM("padding-side", "SIDE", padding_side, "auto right left",
             "with --loss-on-padding: after or before the text; auto: as the tokenizer pads"),
    OPT_ENUM("data-cache", "WHEN", data_cache, "auto on off",
             "cache tokenised samples on disk; auto: those that are read more than once"),
    OPT_HEADING("Training"),
    OPT_PATH("output-dir", "DIR", output_dir, "directory for checkpoints and metrics.jsonl",
             .letter = 'o'),
    OPT_REAL("num-train-epochs", "X", num_train_epochs, 0, 1e9,
             "epochs: passes over the training data"),
    OPT_INT("max-steps", "N", max_steps, 0, 1e15,
            "optimizer steps, instead of epochs; 0: by epochs"),
    OPT_INT("per-device-train-batch-size", "N", per_device_train_batch_size, 1, 1 << 20,
            "samples in a micro-batch of one rank"),
    OPT_INT("per-device-eval-batch-size", "N", per_device_eval_batch_size, 1, 1 << 20,
            "samples in an evaluation batch of one rank"),
    OPT_INT("gradient-accumulation-steps", "N", gradient_accumulation_steps, 1, 1 << 20,
            "micro-batches in an optimizer step"),
    OPT_INT("train-batch-size", "N", train_batch_size, 0, 1 << 30,
            "samples in an optimizer step of all ranks: the micro-batch or the accumulation that "
            "is not given follows from it; 0: as they come to"),
    OPT_FLAG("auto-find-batch-size", auto_find_batch_size,
             "take the largest micro-batch, up to --per-device-train-batch-size, that the plan of "
             "memory holds"),
    OPT_REAL("learning-rate", "X", learning_rate, 0, 1e3, "peak learning rate"),
    OPT_REAL("min-lr", "X", min_lr, 0, 1e3,
             "final learning rate of cosine_with_min_lr and polynomial",
             .absent = "0; polynomial: 1e-7"),
    OPT_ENUM("lr-scheduler-type", "NAME", lr_scheduler_type,
             "constant constant_with_warmup linear cosine cosine_with_min_lr "
             "cosine_warmup_with_min_lr cosine_with_restarts polynomial inverse_sqrt "
             "warmup_stable_decay reduce_lr_on_plateau WarmupLR WarmupDecayLR WarmupCosineLR "
             "OneCycle",
             "learning rate schedule"),
    OPT_TEXT("lr-scheduler-kwargs", "K=V,...", lr_scheduler_kwargs,
             "further numbers of the schedule, as K=V,... or a JSON object", .absent = "none"),
    OPT_INT("warmup-steps", "N", warmup_steps, 0, 1e15, "optimizer steps of linear warmup"),
    OPT_REAL("warmup-ratio", "X", warmup_ratio, 0, 1,
             "warmup as a fraction of all steps, if --warmup-steps is 0"),
    OPT_ENUM("warmup-type", "NAME", warmup_type, "log linear",
             "how DeepSpeed's schedules warm up: by the logarithm of the step, or the step"),
    OPT_REAL("warmup-min-lr", "X", warmup_min_lr, 0, 1e3,
             "learning rate at which DeepSpeed's WarmupLR and WarmupDecayLR begin"),
    OPT_REAL("cos-min-ratio", "X", cos_min_ratio, 0, 1,
             "final learning rate of WarmupCosineLR as a fraction of the peak"),
    OPT_INT("total-num-steps", "N", total_num_steps, 0, 1e15,
            "step at which DeepSpeed's WarmupDecayLR and WarmupCosineLR end; 0: the last"),
    OPT_REAL("weight-decay", "X", weight_decay, 0, 1e3,
             "decoupled weight decay coefficient; biases and norms do not decay"),
    OPT_REAL("adam-beta1", "X", adam_beta1, 0, 1, "AdamW's beta1, decay of the first moment"),
    OPT_REAL("adam-beta2", "X", adam_beta2, 0, 1, "AdamW's beta2, decay of the second moment"),
    OPT_REAL("adam-epsilon", "X", adam_epsilon, 0, 1,
             "AdamW's epsilon, added to the root of the second moment"),
    OPT_REAL("max-grad-norm", "X", max_grad_norm, 0, 1e9,
             "clip the gradient to this L2 norm; 0: do not clip"),
    OPT_REAL("label-smoothing-factor", "X", label_smoothing_factor, 0, 0.999999,
             "share of the target that is spread evenly over the vocabulary"),
    OPT_REAL("z-loss", "X", z_loss, 0, 1e3,
             "factor of a loss that keeps logits small: the squared log of softmax's denominator"),
    OPT_REAL("neftune-noise-alpha", "X", neftune_noise_alpha, 0, 1e6,
             "size of uniform noise added to embedded tokens in training (NEFTune); 0: none"),
    OPT_ENUM("optim", "NAME", optim,
             "adamw_torch adamw_torch_fused adamw_8bit adamw_bnb_8bit adamw_anyprecision "
             "paged_adamw paged_adamw_32bit paged_adamw_8bit sgd lion_32bit lion_8bit "
             "paged_lion_32bit paged_lion_8bit adafactor muon",
             "AdamW with moments in float32 (adamw_torch), 8 bits (adamw_8bit) or bfloat16 "
             "(adamw_anyprecision), SGD, Lion with moments in float32 or 8 bits, Adafactor or "
             "Muon; paged_: moments may move to host memory"),
    OPT_TEXT("optim-args", "K=V,...", optim_args,
             "further numbers of sgd (momentum, dampening, nesterov), adafactor and muon",
             .absent = "none"),
    OPT_LIST_OF("lr-for", "PATTERN=X", lr_for, n_lr_for,
                "peak learning rate of parameters whose names have the pattern; repeatable",
                .absent = "--learning-rate"),
    OPT_LIST_OF("weight-decay-for", "PATTERN=X", weight_decay_for, n_weight_decay_for,
                "weight decay of parameters whose names have the pattern; repeatable",
                .absent = "--weight-decay"),
    OPT_REAL("loraplus-lr-ratio", "X", loraplus_lr_ratio, 0, 1e6,
             "LoRA+: learning rate of the factors B, as a multiple of --learning-rate; 0: alike"),
    OPT_REAL("loraplus-lr-embedding", "X", loraplus_lr_embedding, 0, 1e3,
             "LoRA+: learning rate of adapters of embeddings"),
    OPT_INT("max-skipped-steps", "N", max_skipped_steps, 0, 1e15,
            "steps in a row that may be skipped because their gradient is not finite; 0: the first "
            "ends the run"),
    OPT_UINT("seed", "N", seed, 4294967295.0,
             "random seed of fresh weights, data order and dropout"),
    OPT_FLAG("gradient-checkpointing", gradient_checkpointing,
             "keep only the inputs of blocks and recompute the rest in the backward pass: less "
             "memory, about a third slower"),
    OPT_ENUM("recompute", "WHICH", recompute, "auto none norms full",
             "what the backward pass recomputes: nothing, norms and activation functions (a few "
             "percent slower), or all as --gradient-checkpointing; auto: norms if memory is short"),
    OPT_FLAG("bf16", bf16, "compute in bfloat16; master weights stay float32"),
    OPT_FLAG("master-weights", master_weights,
             "keep float32 master weights beside those of --bf16; --no-master-weights rounds the "
             "bfloat16 ones stochastically"),
    OPT_FLAG("fp16", fp16,
             "compute in float16 with a scaled loss; master weights stay float32"),
    OPT_REAL("loss-scale", "X", scaler.loss_scale, 0, 1e60,
             "factor of the loss with --fp16; 0: adapted to the gradients"),
    OPT_INT("initial-scale-power", "N", scaler.initial_scale_power, 0, 200,
            "an adapted loss scale starts at 2^N"),
    OPT_INT("loss-scale-window", "N", scaler.loss_scale_window, 1, 1e15,
            "steps without overflow before the loss scale doubles"),
    OPT_INT("hysteresis", "N", scaler.hysteresis, 1, 1e15,
            "overflows before the loss scale is halved"),
    OPT_REAL("min-loss-scale", "X", scaler.min_loss_scale, 1e-30, 1e30,
             "lower bound of an adapted loss scale"),
    OPT_FLAG("tf32", tf32, "on a GPU: multiply float32 matrices in TensorFloat-32"),
    OPT_FLAG("fp8", fp8,
             "on a GPU, with --bf16: multiply the projections of blocks in 8 bits where that is "
             "faster"),
    OPT_ENUM("fp8-format", "NAME", fp8_format, "hybrid e4m3",
             "hybrid: e5m2 for gradients of outputs, e4m3 for the rest; or e4m3 for all"),
    OPT_FLAG("logging-first-step", logging_first_step, "log the first step too"),
    OPT_ENUM("log-format", "HOW", log_format, "table kv dict",
             "log lines as a table, as key=value pairs (loss=, eval_loss=) or as HF Trainer prints "
             "them"),
    OPT_FLAG("logging-nan-inf-filter", logging_nan_inf_filter,
             "leave losses that are not finite out of logged means"),
    OPT_ENUM("include-num-input-tokens-seen", "WHICH", include_num_input_tokens_seen,
             "no all non_padding true false",
             "log the number of tokens trained on so far; there is no padding, so that all and "
             "non_padding are the same"),
    OPT_LIST_OF("report-to", "NAMES", report_to, n_report_to,
                "also write the run for tensorboard, wandb (offline), csv or all; repeatable",
                .absent = "none"),
    OPT_PATH("logging-dir", "DIR", logging_dir, "directory of TensorBoard's event files",
             .absent = "a new one in runs/ of --output-dir"),
    OPT_TEXT("run-name", "NAME", run_name, "name of the run in W&B", .absent = "WANDB_NAME"),
    OPT_INT("histogram-steps", "N", histogram_steps, 0, 1e15,
            "optimizer steps between histograms of parameters and gradients in the reports; "
            "0: none"),
    OPT_ENUM("logging-strategy", "WHEN", logging_strategy, "no steps epoch",
             "when a line is logged: never, every --logging-steps, or at the end of each epoch"),
    OPT_REAL("logging-steps", "N", logging_steps, 1e-9, 1e15,
             "optimizer steps between log lines; below 1: as a fraction of all steps"),
    OPT_ENUM("eval-strategy", "WHEN", eval_strategy, "no steps epoch",
             "when evaluation data is evaluated: never, every --eval-steps, or at the end of each "
             "epoch"),
    OPT_REAL("eval-steps", "N", eval_steps, 0, 1e15,
             "optimizer steps between evaluations; below 1: as a fraction of all steps; 0: at the "
             "end only"),
    OPT_FLAG("eval-on-start", eval_on_start, "evaluate before the first step too"),
    OPT_REAL("eval-delay", "X", eval_delay, 0, 1e15,
             "no evaluation before so many steps (epochs with --eval-strategy epoch)"),
    OPT_ENUM("save-strategy", "WHEN", save_strategy, "no steps epoch best",
             "when a checkpoint is saved: never, every --save-steps, at the end of each epoch, or "
             "after each evaluation that is the best so far"),
    OPT_REAL("save-steps", "N", save_steps, 0, 1e15,
             "optimizer steps between checkpoints; below 1: as a fraction of all steps; 0: at the "
             "end only"),
    OPT_INT("save-total-limit", "N", save_total_limit, 0, 1e9,
            "number of checkpoints to keep: the best one and the newest; 0: all"),
    OPT_ENUM("async-save", "WHEN", async_save, "auto true false",
             "write checkpoints while steps go on, from a copy in host memory: if it fits (auto), "
             "always or not at all (true), never (false)"),
    OPT_ENUM("on-save-error", "WHAT", on_save_error, "end continue",
             "after a checkpoint that could not be written, as on a full disk: end the run, or "
             "warn and continue"),
    OPT_ENUM("checkpoint-format", "FORMAT", checkpoint_format, "auto dcp",
             "how a checkpoint stores weights and optimizer: as HF Trainer does, with DeepSpeed's "
             "shards at --zero-stage 1 to 3 (auto); as torch.distributed.checkpoint in the folders "
             "of FSDP, each rank its part (dcp)"),
    OPT_ENUM("output-layout", "LAYOUT", output_layout, "hf ray",
             "folders in --output-dir: checkpoint-<step> (hf); a trial of Ray Train for each run, "
             "TorchTrainer_<id>_00000_0_<date> with checkpoint_000000 and so on, result.json and "
             "params.json (ray)"),
    OPT_FLAG("save-only-model", save_only_model,
             "save weights without optimizer, schedule and random states: a run that resumes from "
             "them has a fresh optimizer"),
    OPT_TEXT("metric-for-best-model", "NAME", metric_for_best_model,
             "what makes a checkpoint the best: loss or perplexity of the evaluation data",
             .absent = "loss"),
    OPT_ENUM("greater-is-better", "WHICH", greater_is_better, "auto true false",
             "whether more of that metric is better; auto: not of these two"),
    OPT_FLAG("load-best-model-at-end", load_best_model_at_end,
             "the final model is that of the best checkpoint"),
    OPT_INT("early-stopping-patience", "N", early_stopping_patience, 0, 1e9,
            "end after N evaluations in a row without progress; 0: do not"),
    OPT_REAL("early-stopping-threshold", "X", early_stopping_threshold, 0, 1e9,
             "a metric that is better by no more than X is no progress"),
    OPT_REAL("max-wall-time", "SECONDS", max_wall_time, 0, 1e9,
             "save and stop with status 75 after the first step that ends so late; 0: no limit"),
    OPT_FLAG("final-model", final_model,
             "write the trained model, its card and results to --output-dir itself at the end"),
    OPT_PATH("resume-from-checkpoint", "PATH", resume_from_checkpoint,
             "checkpoint to resume from, of this or another program; latest, auto or true: the "
             "newest complete one in --output-dir, if there is one; none or false: a fresh start"),
    OPT_PATH("resume-file", "FILE", resume_file,
             "weights to go on from, with a fresh optimizer; --initial-epoch or --initial-step "
             "say where in the run they belong"),
    OPT_REAL("initial-epoch", "X", initial_epoch, -1, 1e9,
             "with --resume-file: epochs done before; -1: by --initial-step"),
    OPT_INT("initial-step", "N", initial_step, -1, 1e15,
            "with --resume-file: steps done before; -1: by --initial-epoch"),
    OPT_FLAG("ignore-data-skip", ignore_data_skip,
             "a resumed run may have other data than its checkpoint, and begins them, while steps, "
             "epochs, optimizer and schedule go on"),
    OPT_FLAG("overwrite-output-dir", overwrite_output_dir,
             "before the first step, remove checkpoints of earlier runs that this run would write "
             "again"),
    OPT_TEXT("state-dict-file", "NAME", state_dict_file,
             "at each save also write the whole model as one torch file NAME, ending in .pt, in "
             "--output-dir; {start}, {end}, {n} and {step} in it are the data's slice, the epoch "
             "and the step", .absent = "none"),
    OPT_PATH("dump-grads", "FILE", dump_grads,
             "write the gradients of the first step as safetensors"),
    OPT_HEADING("Ranks"),
    OPT_PATH("deepspeed", "FILE", deepspeed,
             "ds_config.json of DeepSpeed; its values must not contradict options"),
    OPT_INT("nproc", "N", nproc, 0, 4096,
            "ranks to start on this host, or gpu: one for each GPU; 0: none", .choices = "gpu"),
    OPT_INT("simulate-world", "N", simulate_world, 0, 100000,
            "time the steps of one of N ranks on one GPU, with a model of the collectives; train "
            "and write nothing; 0: train"),
    OPT_INT("simulate-node", "N", simulate_node, 1, 4096, "simulated GPUs of a node"),
    OPT_REAL("simulate-network", "GB/s", simulate_network, 0.001, 1e6,
             "simulated network between nodes, for each GPU and direction"),
    OPT_REAL("simulate-link", "GB/s", simulate_link, 0.001, 1e6,
             "simulated speed at which data reaches a GPU from others of its node"),
    OPT_INT("ddp-timeout", "SECONDS", ddp_timeout, 1, 1000000000,
            "seconds that ranks wait for each other at the start, and later while none of them "
            "comes any further"),
    OPT_INT("zero-stage", "N", zero_stage, 0, 3,
            "ZeRO stage; 0: every rank holds everything; 1: optimizer state is sharded; 2: and "
            "gradients; 3: and weights"),
    OPT_ENUM("fsdp", "NAME", fsdp,
             "no_shard shard_grad_op full_shard hybrid_shard hybrid_shard_zero2",
             "the stage by FSDP's name: 0, 2 or 3; hybrid_shard (3) and hybrid_shard_zero2 (2) "
             "shard inside each node and replicate across nodes", .absent = "the stage decides"),
    OPT_INT("hybrid-shard-size", "N", hybrid_shard_size, 0, 100000,
            "hybrid sharding: groups of N consecutive ranks shard, each among itself; 0: all "
            "ranks, or those of a node as --fsdp says"),
    OPT_ENUM("reduce-dtype", "TYPE", reduce_dtype, "float32 bfloat16 float16",
             "type in which GPUs exchange gradients at stages 1 to 3; each GPU adds up its own in "
             "float32"),
    OPT_ENUM("reshard-after-forward", "WHEN", reshard_after_forward, "auto true false",
             "stage 3: free gathered weights after each use (true), keep them from step to step "
             "(false), or keep them if GPU memory suffices (auto; on the CPU: free them)"),
    OPT_FLAG("stage3-gather-16bit-weights-on-model-save",
             stage3_gather_16bit_weights_on_model_save,
             "write model.safetensors in addition to the shards"),
    OPT_DEVICE(device, "where to compute; auto: on a GPU if one can be used"),
    OPT_SIZE("device-memory-limit", device_memory_limit,
             "bytes of GPU memory to use at most", .absent = "no limit"),
    OPT_ENUM("offload-optimizer", "WHERE", offload_optimizer, "none cpu",
             "where moments, and master weights of --bf16 and --fp16, are kept: on the device "
             "(none) or on the host, from where they pass through the device in each step"),
    OPT_ENUM("offload-param", "WHERE", offload_param, "none cpu",
             "cpu: weights and gradients are kept on the host too, except those of the blocks in "
             "work; needs --bf16 or --fp16, and of several ranks a --zero-stage above 0"),
    OPT_INT("threads", "N", threads, 0, 4096,
            "CPU threads of a rank; 0: one for each CPU, or 1 with several ranks"),
    OPT_REAL("memory-log", "SECONDS", memory_log, 0, 86400,
             "seconds between samples of the device's memory, written to memory.csv in "
             "--output-dir; 0: none"),
    OPT_FLAG("profile", profile, "measure ten steps and print the time of each operation"),
    OPT_FLAG("dry-run", dry_run, "print the plan of memory and steps; train and write nothing"),
};
#undef OPT_VALUES

/* Checks of values are in settings_check. */
const struct opt_rule train_rows_rule[] = {
    {OPT_ONLY, "init-only", "init tokenizer output-dir seed zero-stage nproc threads"},
    {OPT_NEEDS, "val-test-split-ratio data-dir", "train-split-ratio"},
    {OPT_NEEDS, "max-eval-samples", "eval-file eval-split train-split-ratio"},
    {OPT_BARS, "dry-run", "profile dump-grads"},
    {OPT_BARS, "hostfile", "nproc"},
    {OPT_NEEDS, "include exclude num-nodes num-gpus master-addr master-port ssh-port "
     "launcher", "hostfile"},
    {OPT_BARS, "include", "exclude num-nodes num-gpus"},
    {OPT_BARS, "exclude", "num-nodes num-gpus"},
    {OPT_NEEDS, "max-restarts", "nproc hostfile"},
    {OPT_NEEDS, "min-ranks", "max-restarts"},
    {OPT_NEEDS, "simulate-node simulate-network simulate-link", "simulate-world"},
    {OPT_BARS, "simulate-world", "nproc hostfile dry-run profile dump-grads memory-log eval-steps "
     "output-layout save-steps save-total-limit load-best-model-at-end resume-from-checkpoint "
     "resume-file report-to overwrite-output-dir on-save on-log on-eval on-end push-to "
     "stage3-gather-16bit-weights-on-model-save"},
};
const size_t train_rows_n_rules = sizeof train_rows_rule / sizeof train_rows_rule[0];

struct opt_section train_rows_model(struct settings *s)
{
    return (struct opt_section)OPT_SECTION(model_rows, s);
}

struct opt_section train_rows_run(struct settings *s)
{
    return (struct opt_section)OPT_SECTION(run_rows, s);
}

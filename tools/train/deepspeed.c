/* train/deepspeed - a ds_config.json: the names of its members, nested ones with dots, and what
 * becomes of them; see train/names.h.
 *
 * Source: DeepSpeed 0.19 and its documentation (docs/_pages/config-json.md).  "auto" leaves a
 * member to the option; another value must be the option's, if that is given too, as HF Trainer
 * demands. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/mem.h"
#include "tools/train/names.h"

#define STAGE "zero_optimization.stage"

/* A member of a Muon's params as a pair of optim_args; "" where the file has none. */
static const char *pair(const struct opt_put *put, const char *member, const char *key)
{
    char name[64];
    const char *value, *text;

    snprintf(name, sizeof name, "optimizer.params.%s", member);
    value = opt_put_other(put, name);
    text = value && strcmp(value, "auto") != 0
               ? ckpt_arena_printf(opt_put_arena(put), ",%s=%s", key, value) : "";
    return text ? text : "";
}

/* lr, or muon_lr, is of hidden matrices; adam_lr of all else. */
static int muon(struct opt_put *put, struct ckpt_err *err)
{
    char *args = ckpt_arena_printf(opt_put_arena(put), "%s%s%s", pair(put, "momentum", "momentum"),
                                   pair(put, "ns_steps", "ns_steps"),
                                   pair(put, "adam_lr", "adam_lr"));
    int rc = args ? opt_put_option(put, "optim", "muon", err) : ckpt_nomem(err, 64);

    return rc || !*args ? rc : opt_put_option(put, "optim-args", args + 1, err);
}

/* They are read with the type. */
static int of_muon(struct opt_put *put, const char *const *value, size_t n, struct ckpt_err *err)
{
    const char *type = opt_put_other(put, "optimizer.type");

    (void)value;
    (void)n;
    return type && (strcmp(type, "Muon") == 0 || strcmp(type, "muon") == 0)
               ? 0 : opt_put_refuse(put, err, "momentum, ns_steps and adam_lr are for the "
                                    "optimizer Muon");
}

/* AdamW by its three names; Adam decays as AdamW does, unless adam_w_mode is off. */
static int optimizer(struct opt_put *put, const char *const *value, size_t n, struct ckpt_err *err)
{
    const char *optim = opt_put_text(put, "optim");

    (void)n;
    if (strcmp(value[0], "Muon") == 0 || strcmp(value[0], "muon") == 0)
        return muon(put, err);
    if (strcmp(value[0], "AdamW") != 0 && strcmp(value[0], "Adam") != 0 &&
        strcmp(value[0], "adamw") != 0 && strcmp(value[0], "adam") != 0)
        return opt_put_refuse(put, err, "optimizer %s is not done: AdamW, Adam and Muon are",
                              value[0]);
    if (optim && strncmp(optim, "adamw_torch", 11) == 0)
        return 0;
    return opt_put_option(put, "optim", "adamw_torch", err);
}

static int betas(struct opt_put *put, const char *const *value, size_t n, struct ckpt_err *err)
{
    int rc;

    if (n != 2)
        return opt_put_refuse(put, err, "betas are two numbers, %zu are here", n);
    rc = opt_put_option(put, "adam-beta1", value[0], err);
    return rc ? rc : opt_put_option(put, "adam-beta2", value[1], err);
}

/* The type brings defaults of its own for members that are absent. */
static int scheduler(struct opt_put *put, const char *const *value, size_t n, struct ckpt_err *err)
{
    int rc = opt_put_option(put, "lr-scheduler-type", value[0], err);

    (void)n;
    if (rc == 0 && !opt_put_other(put, "scheduler.params.warmup_num_steps"))
        rc = opt_put_default(put, "warmup-steps", "1000", err);
    return rc;
}

/* Whether losses are scaled, here or by --fp16. */
static bool is_fp16(const struct opt_put *put)
{
    const char *here = opt_put_other(put, "fp16.enabled"), *option = opt_put_text(put, "fp16");

    return here && strcmp(here, "auto") != 0 ? strcmp(here, "true") == 0
                                             : option && strcmp(option, "on") == 0;
}

/* Members of fp16 stand in files of bfloat16 too. */
static int scale(struct opt_put *put, const char *option, const char *value, struct ckpt_err *err)
{
    return is_fp16(put) ? opt_put_option(put, option, value, err) : 0;
}

#define SCALE(function, option) \
    static int function(struct opt_put *put, const char *const *value, size_t n, \
                        struct ckpt_err *err) \
    { \
        (void)n; \
        return scale(put, option, value[0], err); \
    }
SCALE(loss_scale, "loss-scale")
SCALE(initial_scale_power, "initial-scale-power")
SCALE(loss_scale_window, "loss-scale-window")
SCALE(hysteresis, "hysteresis")
SCALE(min_loss_scale, "min-loss-scale")

/* Members of stage 3 stand in files of other stages too. */
static int gather(struct opt_put *put, const char *const *value, size_t n, struct ckpt_err *err)
{
    const char *here = opt_put_other(put, STAGE);

    (void)n;
    if (here && strcmp(here, "3") != 0)
        return 0;
    return opt_put_option(put, "stage3-gather-16bit-weights-on-model-save", value[0], err);
}

static const char logs[] = "losses go to metrics.jsonl and trainer_state.json";
static const char plus[] = "ZeRO++ is not done";
static const char not_done[] = "this part of DeepSpeed is not done";

static const struct opt_field fields[] = {
    OPT_DOES("train_batch_size", "train-batch-size"),
    OPT_DOES("train_micro_batch_size_per_gpu", "per-device-train-batch-size"),
    OPT_DOES("gradient_accumulation_steps", "gradient-accumulation-steps"),
    OPT_DOES("gradient_clipping", "max-grad-norm"),
    OPT_DOES("communication_data_type", "reduce-dtype",
             .values = "fp32=float32 fp16=float16 bf16=bfloat16 bfp16=bfloat16"),
    OPT_HARMLESS("fp32_allreduce"),
    OPT_HARMLESS("steps_per_print"),
    OPT_HARMLESS("wall_clock_breakdown"),
    OPT_HARMLESS("dump_state"),
    OPT_HARMLESS("memory_breakdown"),
    OPT_HARMLESS("prescale_gradients"),
    OPT_HARMLESS("gradient_predivide_factor"),
    OPT_NOT_DONE("sparse_gradients", "false", "gradients are dense"),
    OPT_HARMLESS("disable_allgather"),
    OPT_HARMLESS("zero_allow_untested_optimizer"),
    OPT_HARMLESS("zero_force_ds_cpu_optimizer"),
    OPT_DOES("dataloader_drop_last", "dataloader-drop-last"),
    OPT_HARMLESS("seed_layers"),

    OPT_DOES("optimizer.type", "optim", .convert = optimizer),
    OPT_DOES("optimizer.params.lr", "learning-rate"),
    OPT_DOES("optimizer.params.betas", NULL, .convert = betas,
             .says = "--adam-beta1 and --adam-beta2"),
    OPT_DOES("optimizer.params.eps", "adam-epsilon"),
    OPT_DOES("optimizer.params.weight_decay", "weight-decay"),
    OPT_DOES("optimizer.params.momentum", NULL, .convert = of_muon, .says = "momentum of Muon"),
    OPT_DOES("optimizer.params.ns_steps", NULL, .convert = of_muon, .says = "ns_steps of Muon"),
    OPT_DOES("optimizer.params.muon_lr", "learning-rate"),
    OPT_DOES("optimizer.params.adam_lr", NULL, .convert = of_muon, .says = "adam_lr of Muon"),
    OPT_HARMLESS("optimizer.params.torch_adam"),
    OPT_HARMLESS("optimizer.params.fused"),
    OPT_HARMLESS("optimizer.params.fp32_optimizer_states"),
    OPT_NOT_DONE("optimizer.params.adam_w_mode", "true", "weight decay is decoupled"),
    OPT_NOT_DONE("optimizer.params.bias_correction", "true", "AdamW corrects its moments"),
    OPT_NOT_DONE("optimizer.params.amsgrad", "false", "AMSGrad is not done"),
    OPT_NOT_DONE("optimizer.legacy_fusion", "false", not_done),

    OPT_DOES("scheduler.type", "lr-scheduler-type", .convert = scheduler),
    OPT_DOES("scheduler.params.warmup_min_lr", "warmup-min-lr"),
    OPT_DOES("scheduler.params.warmup_max_lr", "learning-rate"),
    OPT_DOES("scheduler.params.warmup_num_steps", "warmup-steps"),
    OPT_DOES("scheduler.params.warmup_type", "warmup-type"),
    OPT_DOES("scheduler.params.total_num_steps", "total-num-steps"),
    OPT_NOT_DONE("scheduler.params.warmup_min_ratio", "0", "warmup begins at 0"),
    OPT_DOES("scheduler.params.cos_min_ratio", "cos-min-ratio"),
    OPT_HARMLESS("scheduler.params.last_batch_iteration"),

    OPT_DOES("fp16.enabled", "fp16"),
    OPT_HARMLESS("fp16.auto_cast"),
    OPT_DOES("fp16.loss_scale", "loss-scale", .convert = loss_scale),
    OPT_DOES("fp16.initial_scale_power", "initial-scale-power", .convert = initial_scale_power),
    OPT_DOES("fp16.loss_scale_window", "loss-scale-window", .convert = loss_scale_window),
    OPT_DOES("fp16.hysteresis", "hysteresis", .convert = hysteresis),
    OPT_DOES("fp16.min_loss_scale", "min-loss-scale", .convert = min_loss_scale),
    OPT_NOT_DONE("fp16.consecutive_hysteresis", "false", "hysteresis counts all overflows"),
    OPT_NOT_DONE("fp16.fp16_master_weights_and_grads", "false", "master weights are float32"),
    OPT_HARMLESS("fp16.opt_level"),
    OPT_DOES("bf16.enabled", "bf16"),
    OPT_DOES("bfloat16.enabled", "bf16"),
    OPT_HARMLESS("bf16.immediate_grad_update"),
    OPT_HARMLESS("bf16.check_grad_overflow"),
    OPT_NOT_DONE("bf16.bf16_master_weights_and_grads", "false", "master weights are float32"),
    OPT_NOT_DONE("bf16.bf16_optimizer_states", "false", "--optim adamw_anyprecision does that"),
    OPT_NOT_DONE("amp.enabled", "false", "--bf16 and --fp16 are done"),
    OPT_HARMLESS("amp.opt_level"),
    OPT_NOT_DONE("data_types.grad_accum_dtype", "fp32", "gradients are added up in float32"),
    OPT_NOT_DONE("torch_autocast.enabled", "false", "--bf16 and --fp16 are done"),

    OPT_DOES(STAGE, "zero-stage"),
    OPT_DOES("zero_optimization.offload_optimizer.device", "offload-optimizer"),
    OPT_DOES("zero_optimization.offload_param.device", "offload-param"),
    OPT_DOES("zero_optimization.cpu_offload", "offload-optimizer", .values = "true=cpu false"),
    OPT_DOES("zero_optimization.cpu_offload_params", "offload-param", .values = "true=cpu false"),
    OPT_HARMLESS("zero_optimization.cpu_offload_use_pin_memory"),
    OPT_NOT_DONE("zero_optimization.offload_optimizer.ratio", "1", "all states are offloaded"),
    OPT_HARMLESS("zero_optimization.offload_optimizer.pin_memory"),
    OPT_HARMLESS("zero_optimization.offload_optimizer.nvme_path"),
    OPT_HARMLESS("zero_optimization.offload_optimizer.buffer_count"),
    OPT_HARMLESS("zero_optimization.offload_optimizer.fast_init"),
    OPT_HARMLESS("zero_optimization.offload_optimizer.pipeline"),
    OPT_HARMLESS("zero_optimization.offload_optimizer.pipeline_read"),
    OPT_HARMLESS("zero_optimization.offload_optimizer.pipeline_write"),
    OPT_NOT_DONE("zero_optimization.offload_optimizer.super_offload", "false", not_done),
    OPT_HARMLESS("zero_optimization.offload_param.pin_memory"),
    OPT_HARMLESS("zero_optimization.offload_param.nvme_path"),
    OPT_HARMLESS("zero_optimization.offload_param.buffer_count"),
    OPT_HARMLESS("zero_optimization.offload_param.buffer_size"),
    OPT_HARMLESS("zero_optimization.offload_param.max_in_cpu"),
    OPT_DOES("zero_optimization.stage3_gather_16bit_weights_on_model_save",
             "stage3-gather-16bit-weights-on-model-save", .convert = gather),
    OPT_DOES("zero_optimization.stage3_gather_fp16_weights_on_model_save",
             "stage3-gather-16bit-weights-on-model-save", .convert = gather),
    OPT_DOES("zero_optimization.gather_16bit_weights_on_model_save",
             "stage3-gather-16bit-weights-on-model-save", .convert = gather),
    OPT_HARMLESS("zero_optimization.allgather_partitions"),
    OPT_HARMLESS("zero_optimization.allgather_bucket_size"),
    OPT_HARMLESS("zero_optimization.overlap_comm"),
    OPT_HARMLESS("zero_optimization.reduce_scatter"),
    OPT_HARMLESS("zero_optimization.reduce_bucket_size"),
    OPT_HARMLESS("zero_optimization.use_multi_rank_bucket_allreduce"),
    OPT_HARMLESS("zero_optimization.contiguous_gradients"),
    OPT_HARMLESS("zero_optimization.round_robin_gradients"),
    OPT_HARMLESS("zero_optimization.sub_group_size"),
    OPT_HARMLESS("zero_optimization.stage3_max_live_parameters"),
    OPT_HARMLESS("zero_optimization.max_live_parameters"),
    OPT_HARMLESS("zero_optimization.stage3_max_reuse_distance"),
    OPT_HARMLESS("zero_optimization.max_reuse_distance"),
    OPT_HARMLESS("zero_optimization.stage3_prefetch_bucket_size"),
    OPT_HARMLESS("zero_optimization.prefetch_bucket_size"),
    OPT_HARMLESS("zero_optimization.stage3_param_persistence_threshold"),
    OPT_HARMLESS("zero_optimization.param_persistence_threshold"),
    OPT_HARMLESS("zero_optimization.stage3_model_persistence_threshold"),
    OPT_HARMLESS("zero_optimization.model_persistence_threshold"),
    OPT_HARMLESS("zero_optimization.stage3_module_granularity_threshold"),
    OPT_HARMLESS("zero_optimization.stage3_use_all_reduce_for_fetch_params"),
    OPT_HARMLESS("zero_optimization.ignore_unused_parameters"),
    OPT_HARMLESS("zero_optimization.elastic_checkpoint"),
    OPT_HARMLESS("zero_optimization.load_from_fp32_weights"),
    OPT_HARMLESS("zero_optimization.legacy_stage1"),
    OPT_HARMLESS("zero_optimization.memory_efficient_linear"),
    OPT_HARMLESS("zero_optimization.override_module_apply"),
    OPT_HARMLESS("zero_optimization.log_trace_cache_warnings"),
    OPT_HARMLESS("zero_optimization.pipeline_loading_checkpoint"),
    OPT_DOES("zero_optimization.mics_shard_size", "hybrid-shard-size", .values = "-1=0"),
    OPT_NOT_DONE("zero_optimization.mics_hierarchical_params_gather", "false",
                 "shards within groups are not done"),
    OPT_NOT_DONE("zero_optimization.zero_hpz_partition_size", "1", plus),
    OPT_NOT_DONE("zero_optimization.zero_quantized_weights", "false", plus),
    OPT_NOT_DONE("zero_optimization.zero_quantized_nontrainable_weights", "false", plus),
    OPT_NOT_DONE("zero_optimization.zero_quantized_gradients", "false", plus),
    OPT_NOT_DONE("zero_optimization.zeropp_loco_param", "", plus),
    OPT_NOT_DONE("zero_optimization.zenflow", "", not_done),

    OPT_HARMLESS("activation_checkpointing", .says = "--gradient-checkpointing decides"),
    OPT_HARMLESS("aio"),
    OPT_HARMLESS("checkpoint"),
    OPT_HARMLESS("compile"),
    OPT_HARMLESS("comms_logger"),
    OPT_HARMLESS("flops_profiler", .says = "--profile"),
    OPT_HARMLESS("hybrid_engine"),
    OPT_HARMLESS("nebula"),
    OPT_NOT_DONE("tensorboard.enabled", "false", logs),
    OPT_HARMLESS("tensorboard.output_path"),
    OPT_HARMLESS("tensorboard.job_name"),
    OPT_NOT_DONE("wandb.enabled", "false", logs),
    OPT_HARMLESS("wandb.group"),
    OPT_HARMLESS("wandb.team"),
    OPT_HARMLESS("wandb.project"),
    OPT_NOT_DONE("comet.enabled", "false", logs),
    OPT_NOT_DONE("csv_monitor.enabled", "false", logs),
    OPT_HARMLESS("csv_monitor.output_path"),
    OPT_HARMLESS("csv_monitor.job_name"),
    OPT_HARMLESS("monitor_config"),
    OPT_HARMLESS("comms_config"),
    OPT_HARMLESS("_comment"),
    OPT_NOT_DONE("autotuning.enabled", "false", "--auto-find-batch-size and --dry-run plan"),
    OPT_NOT_DONE("elasticity.enabled", "false", "--max-restarts with --min-ranks does that"),
    OPT_NOT_DONE("compression_training", "", not_done),
    OPT_NOT_DONE("sparse_attention", "", not_done),
    OPT_NOT_DONE("data_efficiency.enabled", "false", not_done),
    OPT_NOT_DONE("curriculum_learning.enabled", "false", not_done),
    OPT_NOT_DONE("progressive_layer_drop.enabled", "false", not_done),
    OPT_NOT_DONE("eigenvalue.enabled", "false", not_done),
    OPT_NOT_DONE("tensor_parallel.autotp_size", "0 1", "ranks share data alone"),
    OPT_NOT_DONE("sequence_parallel_size", "1", "ranks share data alone"),
    OPT_NOT_DONE("pipeline", "", "ranks share data alone"),
};

const struct opt_dialect train_deepspeed = {
    .name = "DeepSpeed", .skip = "auto", .firm = true,
    .tells = "zero_optimization train_micro_batch_size_per_gpu steps_per_print "
             "wall_clock_breakdown gradient_clipping zero_allow_untested_optimizer",
    .field = fields, .n_field = sizeof fields / sizeof fields[0],
};

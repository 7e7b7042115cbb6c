/* settings - see settings.h. */
#include "trainer/run/settings.h"

#include <math.h>
#include <string.h>

#include "trainer/optim/schedule.h"

void settings_default(struct settings *s)
{
    *s = (struct settings){
        .lora_alpha = 8,
        .lora_bias = "none",
        .init_lora_weights = "true",
        .val_test_split_ratio = 0.5,
        .data_dir = "datasets",
        .train_sampling_strategy = "random",
        .data_seed = -1,
        .output_dir = "output",
        .num_train_epochs = 3.0,
        .per_device_train_batch_size = 8,
        .per_device_eval_batch_size = 8,
        .gradient_accumulation_steps = 1,
        .learning_rate = 5e-5,
        .min_lr = NAN,
        .lr_scheduler_type = "linear",
        .adam_beta1 = 0.9,
        .adam_beta2 = 0.999,
        .adam_epsilon = 1e-8,
        .max_grad_norm = 1.0,
        .optim = "adamw_torch",
        .scaler = {.initial_scale_power = 16, .loss_scale_window = 1000, .hysteresis = 2,
                   .min_loss_scale = 1},
        .seed = 42,
        .recompute = "auto",
        .device = "auto",
        .offload_optimizer = "none", .offload_param = "none",
        .fp8_format = "hybrid",
        .data_cache = "auto",
        .logging_steps = 10,
        .save_steps = 500,
    };
    data_settings_default(&s->data);
}

enum ckpt_dtype settings_weights(const struct settings *s)
{
    return s->bf16 ? CKPT_BF16 : s->fp16 ? CKPT_F16 : CKPT_F32;
}

enum recompute settings_recompute(const struct settings *s)
{
    if (s->gradient_checkpointing || strcmp(s->recompute, "full") == 0)
        return RECOMPUTE_FULL;
    return strcmp(s->recompute, "norms") == 0  ? RECOMPUTE_NORMS
           : strcmp(s->recompute, "none") == 0 ? RECOMPUTE_NONE : RECOMPUTE_AUTO;
}

enum op_moments settings_moments(const struct settings *s)
{
    if (strcmp(s->optim, "adamw_anyprecision") == 0)
        return OP_MOMENTS_BF16;
    return strstr(s->optim, "8bit") ? OP_MOMENTS_8BIT : OP_MOMENTS_F32;
}

bool settings_paged(const struct settings *s)
{
    return strncmp(s->optim, "paged_", 6) == 0;
}

struct device_opts settings_device(const struct settings *s)
{
    return (struct device_opts){.name = s->device, .threads = (int)s->threads,
                                .weights = settings_weights(s), .tf32 = s->tf32,
                                .fp8 = !s->fp8                             ? DEVICE_FP8_OFF
                                       : strcmp(s->fp8_format, "e4m3") == 0 ? DEVICE_FP8_E4M3
                                                                            : DEVICE_FP8_HYBRID,
                                .memory_limit = s->device_memory_limit};
}

static int clash(struct ckpt_err *err, const char *what)
{
    return ckpt_fail(err, CKPT_ECONFIG, "%s", what);
}

/* Options that only count when an adapter is made. */
static int check_adapter(const struct settings *s, struct ckpt_err *err)
{
    const struct { const char *name; bool given; } of[] = {
        {"target_modules", s->n_target_modules > 0}, {"exclude_modules", s->n_exclude_modules > 0},
        {"modules_to_save", s->n_modules_to_save > 0}, {"rank_pattern", s->n_rank_pattern > 0},
        {"alpha_pattern", s->n_alpha_pattern > 0}, {"use_rslora", s->use_rslora},
        {"trainable_token_indices", s->n_trainable_token_indices > 0}, {"use_dora", s->use_dora},
        {"lora_dropout", s->lora_dropout > 0}, {"lora_alpha", s->lora_alpha != 8},
        {"lora_bias", strcmp(s->lora_bias, "none") != 0},
        {"init_lora_weights", strcmp(s->init_lora_weights, "true") != 0},
    };

    if (s->adapter && s->lora_rank > 0)
        return clash(err, "`adapter` brings its own rank: `lora_rank` excludes it");
    for (size_t i = 0; s->lora_rank == 0 && i < sizeof of / sizeof of[0]; i++)
        if (of[i].given)
            return ckpt_fail(err, CKPT_ECONFIG, "`%s` needs `lora_rank N`", of[i].name);
    if (s->lora_rank > 0 && s->init)
        return clash(err, "`lora_rank` needs `model`: an adapter is of no use without its base");
    if (s->adapter && s->init)
        return clash(err, "`adapter` and `init` exclude each other");
    return 0;
}

/* Options that only count in float16. */
static int check_scale(const struct settings *s, struct ckpt_err *err)
{
    const struct scaler_opts *o = &s->scaler;
    const struct { const char *name; bool given; } of[] = {
        {"loss_scale", o->loss_scale > 0}, {"initial_scale_power", o->initial_scale_power != 16},
        {"loss_scale_window", o->loss_scale_window != 1000}, {"hysteresis", o->hysteresis != 2},
        {"min_loss_scale", o->min_loss_scale != 1},
    };

    for (size_t i = 0; !s->fp16 && i < sizeof of / sizeof of[0]; i++)
        if (of[i].given)
            return ckpt_fail(err, CKPT_ECONFIG, "`%s` needs `fp16`: other losses are not scaled",
                             of[i].name);
    return 0;
}

int settings_check(const struct settings *s, struct ckpt_err *err)
{
    enum schedule_kind kind;

    if (check_adapter(s, err) || check_scale(s, err))
        return err->code;
    if (!s->model == !s->init && !s->resume_from_checkpoint && !(s->adapter && !s->model))
        return clash(err, s->model ? "`model` and `init` exclude each other"
                                   : "what to train is missing: `model DIR` or `init CONFIG`");
    if (s->init && !s->tokenizer)
        return clash(err, "`init` needs `tokenizer DIR`: a fresh model has none of its own");
    if (s->init_only)
        return s->init ? 0 : clash(err, "`init_only` needs `init CONFIG`");
    if (s->n_train == 0)
        return clash(err, "training data is missing: `train_file PATH`");
    if (s->train_split_ratio > 0 && s->n_eval)
        return clash(err, "`train_split_ratio` makes held-out data: `eval_file` excludes it");
    if (s->end_idx > 0 && s->end_idx <= s->start_idx)
        return ckpt_fail(err, CKPT_ECONFIG, "`end_idx %lld` is not behind `start_idx %lld`",
                         (long long)s->end_idx, (long long)s->start_idx);
    if (s->num_shards > 0 ? s->shard_index >= s->num_shards : s->shard_index || s->shard_strided)
        return ckpt_fail(err, CKPT_ECONFIG, "`shard_index %lld` is none of `num_shards %lld`",
                         (long long)s->shard_index, (long long)s->num_shards);
    if (s->zero_stage != 0 && s->zero_stage != 3)
        return ckpt_fail(err, CKPT_ECONFIG, "`zero_stage` is %lld, 0 or 3 wanted",
                         (long long)s->zero_stage);
    if (!schedule_parse(&kind, s->lr_scheduler_type))
        return ckpt_fail(err, CKPT_ECONFIG, "`lr_scheduler_type` is %s, one of %s wanted",
                         s->lr_scheduler_type, schedule_names());
    if (kind == SCHEDULE_POLYNOMIAL && !(schedule_end(kind, s->min_lr) < s->learning_rate))
        return ckpt_fail(err, CKPT_ECONFIG, "polynomial ends at `min_lr %g`: it must be smaller "
                         "than `learning_rate %g`", schedule_end(kind, s->min_lr),
                         s->learning_rate);
    if (s->min_lr > 0 && kind != SCHEDULE_COSINE_WITH_MIN_LR && kind != SCHEDULE_POLYNOMIAL)
        return ckpt_fail(err, CKPT_ECONFIG,
                         "`min_lr` is not used by %s, only by cosine_with_min_lr and polynomial",
                         s->lr_scheduler_type);
    if (s->packing && strcmp(s->train_sampling_strategy, "group_by_length") == 0)
        return clash(err, "`packing` fills micro-batches itself: "
                     "`train_sampling_strategy group_by_length` excludes it");
    if (s->nproc > 1 && strncmp(s->device, "cuda", 4) == 0)
        return ckpt_fail(err, CKPT_ECONFIG, "`nproc %lld` trains on CPUs, `device %s` is of one "
                         "rank", (long long)s->nproc, s->device);
    if (s->gradient_checkpointing && strcmp(s->recompute, "norms") == 0)
        return clash(err, "`gradient_checkpointing` is `recompute full`: norms excludes it");
    if (strcmp(s->offload_param, "cpu") == 0 && !s->bf16 && !s->fp16)
        return clash(err, "`offload_param cpu` needs `bf16` or `fp16`");
    if (s->bf16 && s->fp16)
        return clash(err, "`bf16` and `fp16` exclude each other");
    if (s->tf32 && (s->bf16 || s->fp16))
        return ckpt_fail(err, CKPT_ECONFIG, "`tf32` is of float32 products: `%s` has none",
                         s->bf16 ? "bf16" : "fp16");
    if (s->fp8 && !s->bf16)
        return clash(err, "`fp8` needs `bf16`: what is not multiplied in 8 bits is bfloat16");
    if (!s->fp8 && strcmp(s->fp8_format, "hybrid") != 0)
        return clash(err, "`fp8_format` needs `fp8`");
    if (s->eval_steps > 0 && s->n_eval == 0 && !s->eval_split && s->train_split_ratio <= 0)
        return clash(err, "`eval_steps` needs `eval_file PATH`");
    if (s->zero_stage == 3 && settings_moments(s) != OP_MOMENTS_F32)
        return ckpt_fail(err, CKPT_ECONFIG, "`optim %s` needs `zero_stage 0`: DeepSpeed's shards "
                         "hold moments in float32", s->optim);
    if (s->device_memory_limit > 0 && strcmp(s->device, "cpu") == 0 && !s->dry_run)
        return clash(err, "`device_memory_limit` is of a GPU: with `device cpu` only "
                     "`dry_run` plans with it");
    if (s->stage3_gather_16bit_weights_on_model_save && s->zero_stage != 3)
        return clash(err, "`stage3_gather_16bit_weights_on_model_save` needs `zero_stage 3`");
    return 0;
}

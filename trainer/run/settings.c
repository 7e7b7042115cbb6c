/* settings - see settings.h. */
#include "trainer/run/settings.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
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
        .simulate_node = 8,
        .simulate_network = 50,
        .simulate_link = 136,
        .ddp_timeout = 1800,
        .device = "auto",
        .reduce_dtype = "float32",
        .reshard_after_forward = "auto",
        .offload_optimizer = "none",
        .offload_param = "none",
        .fp8_format = "hybrid",
        .data_cache = "auto",
        .logging_steps = 10,
        .save_steps = 500,
    };
    data_settings_default(&s->data);
}

bool settings_write(const struct settings *s) { return !s->dry_run && s->simulate_world == 0; }

int settings_planned(const struct settings *s)
{
    return (int)(s->simulate_world > 0 ? s->simulate_world : s->dry_run ? s->nproc : 0);
}

struct simulate_net settings_net(const struct settings *s)
{
    return (struct simulate_net){.node = s->simulate_world > 0 ? (int)s->simulate_node : 0,
                                 .network = s->simulate_network * 1e9,
                                 .link = s->simulate_link * 1e9};
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

/* Source: torch 2.11, distributed/fsdp/api.py, ShardingStrategy. */
static int fsdp_stage(const char *name)
{
    return strcmp(name, "full_shard") == 0 ? 3 : strcmp(name, "shard_grad_op") == 0 ? 2 : 0;
}

int settings_stage(const struct settings *s)
{
    return s->fsdp ? fsdp_stage(s->fsdp) : (int)s->zero_stage;
}

enum ckpt_dtype settings_reduce(const struct settings *s)
{
    return strcmp(s->reduce_dtype, "bfloat16") == 0  ? CKPT_BF16
           : strcmp(s->reduce_dtype, "float16") == 0 ? CKPT_F16 : CKPT_F32;
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

bool settings_given(const struct settings *s, const char *name)
{
    for (size_t i = 0; i < s->n_given; i++)
        if (strcmp(s->given[i], name) == 0)
            return true;
    return false;
}

/* -- what does not go together ---------------------------------------------------------------- */

/* A combination that is refused.  {} in the sentence is the word, or the numbers one by one. */
struct rule {
    bool        broken;
    const char *says;
    const char *word;
    double      a, b;
};

static int refuse(const struct rule *r, struct ckpt_err *err)
{
    const char *one = strstr(r->says, "{}"), *two = one ? strstr(one + 2, "{}") : NULL;
    char a[32], b[32];

    if (!one)
        return ckpt_fail(err, CKPT_ECONFIG, "%s", r->says);
    snprintf(a, sizeof a, "%.15g", r->a);
    snprintf(b, sizeof b, "%.15g", r->b);
    return ckpt_fail(err, CKPT_ECONFIG, "%.*s%s%.*s%s%s", (int)(one - r->says), r->says,
                     r->word ? r->word : a, two ? (int)(two - one - 2) : INT_MAX, one + 2,
                     two ? b : "", two ? two + 2 : "");
}

static int check(const struct rule *r, size_t n, struct ckpt_err *err)
{
    for (size_t i = 0; i < n; i++)
        if (r[i].broken)
            return refuse(&r[i], err);
    return 0;
}

/* A condition, the sentence, and its word or numbers. */
#define RULE(condition, ...) {.broken = (condition), .says = __VA_ARGS__}
#define CHECK(rules, err) check(rules, sizeof(rules) / sizeof((rules)[0]), err)

/* Settings that have an effect only with another one. */
static int check_needs(const struct settings *s, struct ckpt_err *err)
{
    static const char *const adapter[] = {
        "target_modules", "exclude_modules", "modules_to_save", "rank_pattern", "alpha_pattern",
        "trainable_token_indices", "use_rslora", "use_dora", "lora_dropout", "lora_alpha",
        "lora_bias", "init_lora_weights", NULL};
    static const char *const scale[] = {"loss_scale", "initial_scale_power", "loss_scale_window",
                                        "hysteresis", "min_loss_scale", NULL};
    static const char *const fp8[] = {"fp8_format", NULL};
    static const char *const shards[] = {"shard_index", "shard_strided", NULL};
    const struct { const char *const *names; bool met; const char *says; } of[] = {
        {adapter, s->lora_rank > 0, "`{}` needs `lora_rank N`"},
        {scale, s->fp16, "`{}` needs `fp16`: other losses are not scaled"},
        {fp8, s->fp8, "`{}` needs `fp8`"},
        {shards, s->num_shards > 0, "`{}` needs `num_shards N`"},
    };

    for (size_t i = 0; i < sizeof of / sizeof of[0]; i++)
        for (const char *const *name = of[i].names; !of[i].met && *name; name++)
            if (settings_given(s, *name))
                return refuse(&(struct rule){.says = of[i].says, .word = *name}, err);
    return 0;
}

static int check_model(const struct settings *s, struct ckpt_err *err)
{
    bool elsewhere = s->resume_from_checkpoint || s->adapter;
    const struct rule rules[] = {
        RULE(s->adapter && s->lora_rank > 0,
             "`adapter` brings its own rank: `lora_rank` excludes it"),
        RULE(s->lora_rank > 0 && s->init,
             "`lora_rank` needs `model`: an adapter is of no use without its base"),
        RULE(s->adapter && s->init, "`adapter` and `init` exclude each other"),
        RULE(s->model && s->init && !s->resume_from_checkpoint,
             "`model` and `init` exclude each other"),
        RULE(!s->model && !s->init && !elsewhere,
             "nothing to train: `model DIR` or `init CONFIG` is missing"),
        RULE(s->init && !s->tokenizer, "`init` needs `tokenizer DIR`: a fresh model has none"),
        RULE(s->init_only && !s->init, "`init_only` needs `init CONFIG`"),
    };

    return CHECK(rules, err);
}

static int check_data(const struct settings *s, struct ckpt_err *err)
{
    const struct rule rules[] = {
        RULE(s->n_train == 0, "training data is missing: `train_file PATH`"),
        RULE(s->train_split_ratio > 0 && s->n_eval,
             "`train_split_ratio` makes evaluation data: `eval_file` excludes it"),
        RULE(s->end_idx > 0 && s->end_idx <= s->start_idx,
             "`end_idx {}` is not after `start_idx {}`", .a = (double)s->end_idx,
             .b = (double)s->start_idx),
        RULE(s->num_shards > 0 && s->shard_index >= s->num_shards,
             "`shard_index {}` is none of `num_shards {}`", .a = (double)s->shard_index,
             .b = (double)s->num_shards),
        RULE(s->packing && strcmp(s->train_sampling_strategy, "group_by_length") == 0,
             "`packing` fills micro-batches itself: `train_sampling_strategy group_by_length` "
             "excludes it"),
        RULE(s->eval_steps > 0 && s->n_eval == 0 && !s->eval_split && s->train_split_ratio <= 0,
             "`eval_steps` needs `eval_file PATH`"),
    };

    return CHECK(rules, err);
}

static int check_schedule(const struct settings *s, struct ckpt_err *err)
{
    enum schedule_kind kind;

    if (!schedule_parse(&kind, s->lr_scheduler_type))
        return ckpt_fail(err, CKPT_ECONFIG, "`lr_scheduler_type %s` is none of: %s",
                         s->lr_scheduler_type, schedule_names());
    const struct rule rules[] = {
        RULE(kind == SCHEDULE_POLYNOMIAL && !(schedule_end(kind, s->min_lr) < s->learning_rate),
             "polynomial ends at `min_lr {}`: it must be smaller than `learning_rate {}`",
             .a = schedule_end(kind, s->min_lr), .b = s->learning_rate),
        RULE(settings_given(s, "min_lr") && kind != SCHEDULE_COSINE_WITH_MIN_LR &&
             kind != SCHEDULE_POLYNOMIAL,
             "`min_lr` is not used by {}, only by cosine_with_min_lr and polynomial",
             s->lr_scheduler_type),
    };

    return CHECK(rules, err);
}

static int check_precision(const struct settings *s, struct ckpt_err *err)
{
    bool half = s->bf16 || s->fp16;
    const struct rule rules[] = {
        RULE(s->gradient_checkpointing && settings_given(s, "recompute") &&
             strcmp(s->recompute, "full") != 0,
             "`gradient_checkpointing` is `recompute full`: `recompute {}` excludes it",
             s->recompute),
        RULE(strcmp(s->offload_param, "cpu") == 0 && !half,
             "`offload_param cpu` needs `bf16` or `fp16`"),
        RULE(s->bf16 && s->fp16, "`bf16` and `fp16` exclude each other"),
        RULE(s->tf32 && half, "`tf32` is for float32 products: `{}` has none",
             s->bf16 ? "bf16" : "fp16"),
        RULE(s->fp8 && !s->bf16,
             "`fp8` needs `bf16`: what is not multiplied in 8 bits is bfloat16"),
    };

    return CHECK(rules, err);
}

static int check_ranks(const struct settings *s, struct ckpt_err *err)
{
    bool cpu = strcmp(s->device, "cpu") == 0, sharded = settings_stage(s) > 0;
    const struct rule rules[] = {
        RULE(s->fsdp && settings_given(s, "zero_stage") && s->zero_stage != settings_stage(s),
             "`fsdp {}` is not `zero_stage {}`", s->fsdp, .b = (double)s->zero_stage),
        RULE(settings_reduce(s) != CKPT_F32 && !sharded,
             "`reduce_dtype {}` needs `zero_stage` 1, 2 or 3", s->reduce_dtype),
        RULE(settings_reduce(s) != CKPT_F32 && cpu,
             "`reduce_dtype {}` needs GPUs: ranks on CPUs sum in float32", s->reduce_dtype),
        RULE(settings_given(s, "reshard_after_forward") && settings_stage(s) != 3,
             "`reshard_after_forward` needs `zero_stage 3`"),
        RULE(sharded && settings_moments(s) == OP_MOMENTS_BF16,
             "`optim {}` needs `zero_stage 0`: DeepSpeed's shards hold moments in float32",
             s->optim),
        RULE(settings_given(s, "device_memory_limit") && cpu && !s->dry_run,
             "`device_memory_limit` is for a GPU: with `device cpu` only `dry_run` plans "
             "with it"),
        RULE(s->simulate_world == 1, "`simulate_world 1` has no collectives: 2 ranks at least"),
        RULE(s->simulate_world > 0 && cpu, "`simulate_world` needs a GPU, the device is the CPU"),
        RULE(s->stage3_gather_16bit_weights_on_model_save && settings_stage(s) != 3,
             "`stage3_gather_16bit_weights_on_model_save` needs `zero_stage 3`"),
    };

    return CHECK(rules, err);
}

int settings_check(const struct settings *s, struct ckpt_err *err)
{
    static int (*const more[])(const struct settings *, struct ckpt_err *) = {
        check_data, check_schedule, check_precision, check_ranks};
    int rc = check_needs(s, err);

    if (rc == 0)
        rc = check_model(s, err);
    for (size_t i = 0; rc == 0 && !s->init_only && i < sizeof more / sizeof more[0]; i++)
        rc = more[i](s, err);
    return rc;
}

/* settings - see settings.h. */
#include "trainer/run/settings.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "trainer/optim/schedule.h"
#include "trainer/run/course.h"
#include "trainer/optim/table.h"

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
        .initial_epoch = -1,
        .initial_step = -1,
        .output_dir = "output",
        .num_train_epochs = 3.0,
        .per_device_train_batch_size = 8,
        .per_device_eval_batch_size = 8,
        .gradient_accumulation_steps = 1,
        .learning_rate = 5e-5,
        .min_lr = NAN,
        .lr_scheduler_type = "linear",
        .warmup_type = "log",
        .cos_min_ratio = 0.0001,
        .adam_beta1 = 0.9,
        .adam_beta2 = 0.999,
        .adam_epsilon = 1e-8,
        .max_grad_norm = 1.0,
        .optim = "adamw_torch",
        .master_weights = true,
        .loraplus_lr_embedding = 1e-6,
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
        .excess_length_strategy = "truncate",
        .padding_side = "auto",
        .logging_strategy = "steps",
        .eval_strategy = "steps",
        .save_strategy = "steps",
        .logging_steps = 10,
        .log_format = "table",
        .logging_nan_inf_filter = true,
        .include_num_input_tokens_seen = "no",
        .save_steps = 500,
        .greater_is_better = "auto",
        .async_save = "auto",
        .on_save_error = "end",
        .checkpoint_format = "auto",
        .output_layout = "hf",
        .final_model = true,
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
    const struct optim_row *row = optim_find(s->optim);

    return row ? row->moments : OP_MOMENTS_F32;
}

int settings_fewer(const struct settings *s)
{
    const struct optim_row *row = optim_find(s->optim);
    struct optim_keys keys;

    return row && optim_keys(&keys, row, s->optim_args, &(struct ckpt_err){0}) == 0
               ? 2 - optim_moments(row, &keys) : 0;
}

bool settings_paged(const struct settings *s)
{
    const struct optim_row *row = optim_find(s->optim);

    return row && row->paged;
}

/* Source: torch 2.11, distributed/fsdp/api.py, ShardingStrategy. */
static const struct fsdp {
    const char *name;
    int         stage;
    bool        hybrid;
} fsdps[] = {{"no_shard", 0, false},   {"shard_grad_op", 2, false}, {"full_shard", 3, false},
             {"hybrid_shard", 3, true}, {"hybrid_shard_zero2", 2, true}};

/* NULL: none is named. */
static const struct fsdp *fsdp_of(const struct settings *s)
{
    for (size_t i = 0; s->fsdp && i < sizeof fsdps / sizeof fsdps[0]; i++)
        if (strcmp(s->fsdp, fsdps[i].name) == 0)
            return &fsdps[i];
    return NULL;
}

int settings_stage(const struct settings *s)
{
    const struct fsdp *fsdp = fsdp_of(s);

    return fsdp ? fsdp->stage : (int)s->zero_stage;
}

bool settings_is_trial(const struct settings *s) { return strcmp(s->output_layout, "ray") == 0; }
bool settings_is_dcp(const struct settings *s) { return strcmp(s->checkpoint_format, "dcp") == 0; }

int settings_hybrid(const struct settings *s)
{
    const struct fsdp *fsdp = fsdp_of(s);

    return s->hybrid_shard_size > 0 ? (int)s->hybrid_shard_size
           : fsdp && fsdp->hybrid   ? SETTINGS_NODE : 0;
}

int settings_node_ranks(const struct settings *s)
{
    int64_t all = settings_planned(s);
    int64_t node = s->simulate_world > 0 ? s->simulate_node : s->node_ranks;

    return (int)(node > 0 && node < all ? node : all);
}

enum ckpt_dtype settings_reduce(const struct settings *s)
{
    return strcmp(s->reduce_dtype, "bfloat16") == 0  ? CKPT_BF16
           : strcmp(s->reduce_dtype, "float16") == 0 ? CKPT_F16 : CKPT_F32;
}

struct device_opts settings_device(const struct settings *s)
{
    return (struct device_opts){.name = s->device, .threads = (int)s->threads,
                                .weights = settings_weights(s),
                                .tf32 = s->tf32 && settings_weights(s) == CKPT_F32,
                                .fp8 = !s->fp8                             ? DEVICE_FP8_OFF
                                       : strcmp(s->fp8_format, "e4m3") == 0 ? DEVICE_FP8_E4M3
                                                                            : DEVICE_FP8_HYBRID,
                                .memory_limit = s->device_memory_limit};
}

int settings_schedule(struct schedule *out, const struct settings *s, struct ckpt_err *err)
{
    int rc = schedule_init(out, s->lr_scheduler_type, s->learning_rate, s->min_lr,
                           s->lr_scheduler_kwargs, err);

    if (rc)
        return rc;
    if (settings_given(s, "warmup_type"))       /* DeepSpeed's words, in its order */
        out->key.warmup_type = strcmp(s->warmup_type, "log") != 0;
    if (settings_given(s, "warmup_min_lr"))
        out->key.warmup_min_lr = s->warmup_min_lr;
    if (settings_given(s, "cos_min_ratio"))
        out->key.cos_min_ratio = s->cos_min_ratio;
    if (s->total_num_steps > 0)
        out->key.total_num_steps = s->total_num_steps;
    return 0;
}

bool settings_given(const struct settings *s, const char *name)
{
    for (size_t i = 0; i < s->n_given; i++)
        if (strcmp(s->given[i], name) == 0)
            return true;
    return false;
}

/* -- samples of a step ------------------------------------------------------------------------ */

/* Source: DeepSpeed 0.19, runtime/config.py, _set_batch_related_parameters. */
int settings_batch(struct settings *s, int64_t world_size, struct ckpt_err *err)
{
    bool micro = settings_given(s, "per_device_train_batch_size");
    bool accum = settings_given(s, "gradient_accumulation_steps");
    int64_t all = s->train_batch_size, *batch = &s->per_device_train_batch_size;
    int64_t *steps = &s->gradient_accumulation_steps;

    if (all == 0)
        return 0;
    if (accum && !micro)
        *batch = all / (*steps * world_size);
    else if (!accum && micro)
        *steps = all / (*batch * world_size);
    else if (!accum)
        *batch = all / world_size;
    if (*batch > 0 && *steps > 0 && *batch * *steps * world_size == all)
        return 0;
    return ckpt_fail(err, CKPT_ECONFIG, "`train_batch_size %lld` is not %lld ranks times "
                     "`per_device_train_batch_size %lld` times `gradient_accumulation_steps %lld`",
                     (long long)all, (long long)world_size, (long long)*batch, (long long)*steps);
}

bool settings_smaller_batch(struct settings *s, int64_t world_size)
{
    int64_t batch = s->per_device_train_batch_size / 2, all = s->train_batch_size;

    if (all > 0 && settings_given(s, "gradient_accumulation_steps"))
        return false;
    while (all > 0 && batch > 1 && all % (batch * world_size))
        batch--;
    if (batch < 1)
        return false;
    s->per_device_train_batch_size = batch;
    if (all > 0)
        s->gradient_accumulation_steps = all / (batch * world_size);
    return true;
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
        /* A rank of 0 that was asked for, as by full_ft, leaves a file's adapter out. */
        {adapter, s->lora_rank > 0 || settings_given(s, "lora_rank"), "`{}` needs `lora_rank N`"},
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
    bool elsewhere = s->resume_from_checkpoint || s->resume_file || s->adapter;
    const struct rule rules[] = {
        RULE(s->adapter && s->lora_rank > 0,
             "`adapter` brings its own rank: `lora_rank` excludes it"),
        RULE(s->lora_rank > 0 && s->init && settings_write(s),       /* but it may be planned */
             "`lora_rank` needs `model`: an adapter is of no use without its base"),
        RULE(s->adapter && s->init, "`adapter` and `init` exclude each other"),
        RULE(s->model && s->init && !s->resume_from_checkpoint,
             "`model` and `init` exclude each other"),
        RULE(!s->model && !s->init && !elsewhere,
             "nothing to train: `model DIR` or `init CONFIG` is missing"),
        RULE((s->initial_epoch > 0 || s->initial_step > 0) && !s->resume_file,
             "`initial_epoch` and `initial_step` need `resume_file FILE`"),
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
        RULE(s->packing && s->loss_on_padding,
             "`packing` leaves no padding: `loss_on_padding` excludes it"),
        RULE(settings_given(s, "padding_side") && !s->loss_on_padding,
             "`padding_side` needs `loss_on_padding`: other samples are not padded"),
        RULE(s->eval_steps > 0 && !course_evaluates(s) && strcmp(s->eval_strategy, "no") != 0,
             "`eval_steps` needs `eval_file PATH`, or a part of the data by `train_split_ratio X`"),
        RULE(strcmp(s->eval_strategy, "epoch") == 0 && !course_evaluates(s),
             "`eval_strategy epoch` needs `eval_file PATH`, or a part of the data by "
             "`train_split_ratio X`"),
    };

    return CHECK(rules, err);
}

static int check_schedule(const struct settings *s, struct ckpt_err *err)
{
    struct schedule schedule;
    int rc = settings_schedule(&schedule, s, err);
    const struct rule rules[] = {
        RULE(rc == 0 && schedule.kind == SCHEDULE_WARMUP_LR && s->warmup_min_lr > s->learning_rate,
             "`warmup_min_lr {}` is more than `learning_rate {}`", .a = s->warmup_min_lr,
             .b = s->learning_rate),
        RULE(rc == 0 && schedule.kind == SCHEDULE_REDUCE_ON_PLATEAU && !course_evaluates_often(s),
             "reduce_lr_on_plateau looks at evaluations: it needs `eval_steps N`"),
    };

    return rc ? rc : CHECK(rules, err);
}

static bool differs(double x, double from) { return x < from || x > from; }

/* As torch's optimizers demand: a moment that never decays has no unbiased mean. */
static int check_betas(const struct settings *s, struct ckpt_err *err)
{
    const struct rule rules[] = {
        RULE(s->adam_beta1 >= 1, "`adam_beta1 {}` is not below 1", .a = s->adam_beta1),
        RULE(s->adam_beta2 >= 1, "`adam_beta2 {}` is not below 1", .a = s->adam_beta2),
    };

    return CHECK(rules, err);
}

static int check_optimizer(const struct settings *s, struct ckpt_err *err)
{
    const struct optim_row *row = optim_find(s->optim);
    bool factored = row && row->rule == OP_RULE_ADAFACTOR;
    bool here = factored || (row && row->rule == OP_RULE_MUON);
    struct optim_keys keys = {0};
    int bad = row ? optim_keys(&keys, row, s->optim_args, err) : 0;
    const struct rule rules[] = {
        RULE(row && row->rule == OP_RULE_SGD &&
             (settings_given(s, "adam_beta1") || settings_given(s, "adam_beta2")),
             "`adam_beta1` and `adam_beta2` are not used by `optim sgd`"),
        RULE(factored && (differs(s->adam_beta1, 0.9) || differs(s->adam_beta2, 0.999) ||
                          differs(s->adam_epsilon, 1e-8)),
             "`adam_beta1`, `adam_beta2` and `adam_epsilon` are not used by `optim adafactor`, "
             "whose `optim_args` has beta1, eps1 and eps2"),
        RULE(here && (strcmp(s->offload_optimizer, "none") != 0 ||
                      strcmp(s->offload_param, "none") != 0),
             "`optim {}` steps where the weights are: `offload_optimizer` and "
             "`offload_param` are not for it", s->optim),
        RULE(factored && settings_is_dcp(s),
             "`checkpoint_format dcp` has no place for the rows and columns of `optim adafactor`"),
        RULE(factored && keys.adafactor.relative_step && settings_given(s, "learning_rate"),
             "`learning_rate` is not used with relative_step=True in `optim_args`"),
        RULE(s->loraplus_lr_ratio > 0 && s->lora_rank == 0 && !s->adapter,
             "`loraplus_lr_ratio` needs `lora_rank N`: it is of an adapter's factors"),
        RULE(settings_given(s, "loraplus_lr_embedding") && s->loraplus_lr_ratio <= 0,
             "`loraplus_lr_embedding` needs `loraplus_lr_ratio X`"),
        RULE(settings_given(s, "max_skipped_steps") && s->fp16,
             "`max_skipped_steps` is not for `fp16`, whose loss scale decides"),
    };

    if (!row)
        return ckpt_fail(err, CKPT_ECONFIG, "`optim %s` is no optimizer", s->optim);
    if (bad)
        return CKPT_ECONFIG;
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
        RULE(!s->master_weights && !s->bf16,
             "`master_weights false` needs `bf16`: other weights have none, or need them"),
        RULE(!s->master_weights && (strcmp(s->offload_optimizer, "none") != 0 ||
                                    strcmp(s->offload_param, "none") != 0),
             "`master_weights false` excludes `offload_optimizer` and `offload_param`"),
        RULE(!s->master_weights && (strcmp(s->optim, "adafactor") == 0 ||
                                    strcmp(s->optim, "muon") == 0),
             "`master_weights false` is not done with `optim {}`", s->optim),
        RULE(s->bf16 && s->fp16, "`bf16` and `fp16` exclude each other"),
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
        RULE(s->hybrid_shard_size > 0 && !sharded,
             "`hybrid_shard_size` needs `zero_stage` 1, 2 or 3"),
        RULE(s->hybrid_shard_size > 0 && fsdp_of(s) && !fsdp_of(s)->hybrid,
             "`fsdp {}` shards over all ranks: `hybrid_shard_size` excludes it", s->fsdp),
        RULE(settings_reduce(s) != CKPT_F32 && s->hybrid_shard_size == 1,
             "`reduce_dtype {}` needs groups of 2 ranks at least: `hybrid_shard_size 1` shards "
             "nothing", s->reduce_dtype),
        RULE(settings_hybrid(s) && strcmp(s->offload_param, "cpu") == 0,
             "`offload_param cpu` and hybrid sharding exclude each other"),
        RULE(settings_reduce(s) != CKPT_F32 && !sharded,
             "`reduce_dtype {}` needs `zero_stage` 1, 2 or 3", s->reduce_dtype),
        RULE(settings_reduce(s) != CKPT_F32 && cpu,
             "`reduce_dtype {}` needs GPUs: ranks on CPUs sum in float32", s->reduce_dtype),
        RULE(settings_given(s, "reshard_after_forward") && settings_stage(s) != 3,
             "`reshard_after_forward` needs `zero_stage 3`"),
        RULE(settings_given(s, "device_memory_limit") && cpu && !s->dry_run,
             "`device_memory_limit` is for a GPU: with `device cpu` only `dry_run` plans "
             "with it"),
        RULE(strcmp(s->offload_param, "cpu") == 0 && strcmp(s->reshard_after_forward, "false") == 0,
             "`reshard_after_forward false` keeps on the device what `offload_param cpu` has on "
             "the host"),
        RULE(s->simulate_world == 1, "`simulate_world 1` has no collectives: 2 ranks at least"),
        RULE(s->simulate_world > 0 && cpu, "`simulate_world` needs a GPU, the device is the CPU"),
        RULE(s->stage3_gather_16bit_weights_on_model_save && settings_stage(s) != 3,
             "`stage3_gather_16bit_weights_on_model_save` needs `zero_stage 3`"),
        RULE(s->save_only_model && settings_is_dcp(s),
             "`save_only_model` leaves out what `checkpoint_format dcp` writes: weights then are "
             "model.safetensors"),
    };

    return CHECK(rules, err);
}

/* The next word of a list with commas, and its length; NULL at its end. */
static const char *next_word(const char **at, size_t *n)
{
    const char *word = *at + strspn(*at, ", ");

    *n = strcspn(word, ", ");
    *at = word + *n;
    return *n ? word : NULL;
}

static bool is_word(const char *word, size_t n, const char *name)
{
    return strlen(name) == n && strncmp(word, name, n) == 0;
}

bool settings_reports(const struct settings *s, const char *to)
{
    bool on = false;
    size_t n;

    for (size_t i = 0; i < s->n_report_to; i++)
        for (const char *at = s->report_to[i], *word; (word = next_word(&at, &n)) != NULL;)
            on |= is_word(word, n, to) || is_word(word, n, "all");
    return on;
}

static int check_reports(const struct settings *s, struct ckpt_err *err)
{
    static const char *const known[] = {"none", "all", "tensorboard", "wandb", "csv"};
    bool none = settings_reports(s, "none"), events = settings_reports(s, "tensorboard");
    size_t words = 0, n;

    for (size_t i = 0; i < s->n_report_to; i++)
        for (const char *at = s->report_to[i], *word; (word = next_word(&at, &n)) != NULL;
             words++) {
            bool found = false;

            for (size_t k = 0; k < sizeof known / sizeof known[0]; k++)
                found |= is_word(word, n, known[k]);
            if (!found)
                return ckpt_fail(err, CKPT_ECONFIG, "`report_to %.*s` is none of: tensorboard, "
                                 "wandb, csv, all, none", (int)n, word);
        }
    const struct rule rules[] = {
        RULE(none && words > 1 && !settings_reports(s, "all"),
             "`report_to none` excludes other reports"),
        RULE(s->histogram_steps > 0 && !events && !settings_reports(s, "wandb"),
             "`histogram_steps` needs `report_to tensorboard` or `report_to wandb`"),
    };

    return CHECK(rules, err);
}

int settings_check(const struct settings *s, struct ckpt_err *err)
{
    static int (*const more[])(const struct settings *, struct ckpt_err *) = {
        check_data, course_check, check_schedule, check_betas, check_optimizer, check_precision,
        check_ranks, check_reports};
    int rc = check_needs(s, err);

    if (rc == 0)
        rc = check_model(s, err);
    for (size_t i = 0; rc == 0 && !s->init_only && i < sizeof more / sizeof more[0]; i++)
        rc = more[i](s, err);
    return rc;
}

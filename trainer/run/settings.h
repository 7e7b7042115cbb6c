/*
 * settings - the settings of a training run.  Names and defaults are those of HF's
 * TrainingArguments where one exists; a tool's option rows name fields of this struct.  Messages
 * name a setting in backquotes, `lora_rank` or `optim adamw_8bit`, which a tool prints as its
 * option; train and eval are called `train_file` and `eval_file`.
 */
#ifndef CKPT_TRAINER_RUN_SETTINGS_H
#define CKPT_TRAINER_RUN_SETTINGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "libckpt/dtype.h"
#include "trainer/comm/simulate.h"
#include "trainer/data/options.h"
#include "trainer/model/model.h"
#include "trainer/ops/ops.h"
#include "trainer/optim/scaler.h"

struct settings {
    /* model */
    const char  *model;                 /* directory or checkpoint to start from, or NULL */
    const char  *init;                  /* config.json (or its directory): fresh weights */
    bool         init_only;             /* write the fresh model to output_dir and end */
    const char  *tokenizer;             /* directory; NULL: beside the model */
    /* adapter: LoRA by the names of PEFT's LoraConfig */
    const char  *adapter;               /* directory of one to go on from, or NULL */
    int64_t      lora_rank;             /* 0: none, but with adapter */
    double       lora_alpha, lora_dropout;
    const char *const *target_modules;  /* names, all-linear, or one pattern */
    size_t       n_target_modules;
    const char *const *exclude_modules;
    size_t       n_exclude_modules;
    const char *const *modules_to_save;
    size_t       n_modules_to_save;
    const char *const *rank_pattern;    /* NAME=N */
    size_t       n_rank_pattern;
    const char *const *alpha_pattern;   /* NAME=X */
    size_t       n_alpha_pattern;
    const char *const *trainable_token_indices;
    size_t       n_trainable_token_indices;
    bool         use_rslora, use_dora;
    const char  *lora_bias;             /* none, all, lora_only */
    const char  *init_lora_weights;     /* true, false, gaussian */
    /* data */
    const char *const *train;           /* files or directories */
    size_t       n_train;
    const char *const *eval;
    size_t       n_eval;
    struct data_settings data;          /* how files are read, what a record is */
    const char  *train_split, *eval_split;
    int64_t      start_idx, end_idx;    /* of the training records; end 0: all */
    int64_t      num_shards, shard_index;   /* of what start and end leave; 0 shards: no cut */
    bool         shard_strided;
    int64_t      max_train_samples, max_eval_samples;   /* 0: all */
    double       train_split_ratio;     /* 0: no cut; see trainer/data/prepare.h */
    double       val_test_split_ratio;
    const char  *data_dir, *dataset_name;
    bool         packing;               /* fill micro-batches with whole documents */
    const char  *data_cache;            /* samples in the cache: auto, on, off */
    /* loop */
    const char  *output_dir;
    double       num_train_epochs;
    int64_t      max_steps;             /* > 0 wins over epochs */
    int64_t      per_device_train_batch_size;
    int64_t      per_device_eval_batch_size;
    int64_t      gradient_accumulation_steps;
    double       learning_rate;
    double       min_lr;                /* NaN: the schedule's own (schedule_end) */
    const char  *lr_scheduler_type;
    int64_t      warmup_steps;
    double       warmup_ratio;          /* of all steps, when warmup_steps is 0 */
    double       weight_decay, adam_beta1, adam_beta2, adam_epsilon, max_grad_norm;
    const char  *optim;                 /* what keeps the moments: HF's OptimizerNames */
    struct scaler_opts scaler;          /* of the loss, with fp16 (which `on` does not tell) */
    uint64_t     seed;
    int64_t      data_seed;             /* of the data order; -1: seed */
    const char  *train_sampling_strategy;
    bool         dataloader_drop_last;
    bool         gradient_checkpointing;/* recompute "full" by HF's name */
    const char  *recompute;             /* none, norms, full */
    bool         bf16, fp16;            /* passes see weights of that type */
    bool         tf32;                  /* f32 products of a GPU round their factors */
    bool         fp8;                   /* projections multiply in 8 bits, with bf16 */
    const char  *fp8_format;            /* hybrid, e4m3 */
    int64_t      logging_steps;
    int64_t      eval_steps;            /* 0: at the end only */
    int64_t      save_steps;            /* 0: at the end only */
    int64_t      save_total_limit;      /* 0: keep all */
    const char  *resume_from_checkpoint;/* path; latest, true: the newest in output_dir, if there
                                           is one; none, false: as if it were NULL */
    bool         overwrite_output_dir;  /* checkpoints in the run's way are removed */
    /* ranks */
    int64_t      zero_stage;            /* 0 to 3 (zero.h) */
    const char  *fsdp;                  /* its name in FSDP's words, or NULL */
    const char  *reduce_dtype;          /* in which ranks exchange gradients */
    const char  *reshard_after_forward; /* auto: as memory allows; true, false */
    bool         stage3_gather_16bit_weights_on_model_save;
    const char  *device;                /* as in struct device_opts */
    uint64_t     device_memory_limit;   /* bytes; 0: none */
    const char  *offload_optimizer;     /* where states lie: none (on the device), cpu */
    const char  *offload_param;         /* where weights and gradients do, likewise */
    int64_t      nproc;                 /* ranks to start on this host, or with dry_run to plan
                                           for; 0: as the process was started; SETTINGS_GPUS */
    int64_t      simulate_world;        /* ranks of a world that is timed, one rank of it; 0: no */
    int64_t      simulate_node;         /* its GPUs of a node */
    double       simulate_network;      /* GB/s between nodes, for each GPU */
    double       simulate_link;         /* GB/s that reach a GPU inside of a node */
    int64_t      ddp_timeout;           /* seconds that ranks wait for each other */
    int64_t      threads;               /* per rank; 0: by CPUs */
    double       memory_log;            /* seconds between samples of memory; 0: none */
    bool         dry_run;
    bool         profile;               /* tell where the time of some steps goes */
    const char  *dump_grads;            /* file for the first step's gradients, or NULL */
    /* Names of the settings that the user gave, also those given their default: what is refused
     * beside other settings goes by these. */
    const char *const *given;
    size_t       n_given;
    /* "NAME VALUE" of all that every rank must have alike. */
    const char *const *shared;
    size_t       n_shared;
};

#define SETTINGS_GPUS (-1)              /* nproc: as many as there are GPUs */

bool settings_given(const struct settings *s, const char *name);

/* Whether the run writes anything: a plan and a simulation do not. */
bool settings_write(const struct settings *s);
/* Ranks that are planned or simulated, not started; 0: as the process was started. */
int settings_planned(const struct settings *s);
/* The world that is simulated. */
struct simulate_net settings_net(const struct settings *s);
/* The type in which passes see weights. */
enum ckpt_dtype settings_weights(const struct settings *s);
/* What the backward pass recomputes. */
enum recompute settings_recompute(const struct settings *s);
/* How moments are kept. */
enum op_moments settings_moments(const struct settings *s);
/* Whether they, and true weights beside rounded ones, may lie on the host where memory is short. */
bool settings_paged(const struct settings *s);
/* The type in which ranks exchange gradients. */
enum ckpt_dtype settings_reduce(const struct settings *s);
/* The stage, by either name. */
int settings_stage(const struct settings *s);
struct device_opts settings_device(const struct settings *s);
void settings_default(struct settings *s);
/* Settings that clash, or lack another: CKPT_ECONFIG names them. */
int settings_check(const struct settings *s, struct ckpt_err *err);

#endif

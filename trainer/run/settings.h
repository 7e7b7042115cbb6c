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
    const char  *eos_token, *pad_token; /* tokens of its vocabulary; NULL: its own */
    const char  *bos_token, *unk_token; /* must be its own; NULL: any */
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
    const char  *excess_length_strategy;/* of samples that are too long: truncate, drop, raise */
    bool         packing;               /* fill micro-batches with whole documents */
    bool         loss_on_padding;       /* samples are padded to max_seq_length, and learned so */
    const char  *padding_side;          /* auto: the tokenizer's; left, right */
    const char  *data_cache;            /* samples in the cache: auto, on, off */
    /* loop */
    const char  *output_dir;
    double       num_train_epochs;
    int64_t      max_steps;             /* > 0 wins over epochs */
    int64_t      per_device_train_batch_size;
    int64_t      per_device_eval_batch_size;
    int64_t      gradient_accumulation_steps;
    int64_t      train_batch_size;      /* of a step over all ranks; 0: as they come to */
    bool         auto_find_batch_size;  /* the largest micro-batch that the plan of memory holds */
    double       learning_rate;
    double       min_lr;                /* NaN: the schedule's own (schedule_end) */
    const char  *lr_scheduler_type, *lr_scheduler_kwargs;
    int64_t      warmup_steps;
    double       warmup_ratio;          /* of all steps, when warmup_steps is 0 */
    const char  *warmup_type;           /* of DeepSpeed's schedules: log, linear */
    double       warmup_min_lr, cos_min_ratio;      /* likewise */
    int64_t      total_num_steps;       /* likewise: where they end; 0: with the run */
    double       weight_decay, adam_beta1, adam_beta2, adam_epsilon, max_grad_norm;
    double       label_smoothing_factor;
    double       z_loss;                /* factor of the squared log of softmax's denominator */
    double       neftune_noise_alpha;   /* 0: none */
    const char  *optim;                 /* HF's OptimizerNames (optim/table.h) */
    const char  *optim_args;            /* KEY=VALUE,... or NULL */
    const char *const *lr_for, *const *weight_decay_for;    /* PATTERN=X */
    size_t       n_lr_for, n_weight_decay_for;
    double       loraplus_lr_ratio;     /* 0: none */
    double       loraplus_lr_embedding;
    int64_t      max_skipped_steps;     /* that are not finite, one after another; 0: none */
    struct scaler_opts scaler;          /* of the loss, with fp16 (which `on` does not tell) */
    uint64_t     seed;
    int64_t      data_seed;             /* of the data order; -1: seed */
    const char  *train_sampling_strategy;
    bool         dataloader_drop_last;
    bool         gradient_checkpointing;/* recompute "full" by HF's name */
    const char  *recompute;             /* none, norms, full */
    bool         master_weights;        /* float32 ones, where passes see bf16 */
    bool         bf16, fp16;            /* passes see weights of that type */
    bool         tf32;                  /* f32 products of a GPU round their factors */
    bool         fp8;                   /* projections multiply in 8 bits, with bf16 */
    const char  *fp8_format;            /* hybrid, e4m3 */
    const char  *logging_strategy, *eval_strategy;  /* no, steps, epoch */
    const char  *save_strategy;         /* one of these, or best */
    double       logging_steps;         /* below 1: this fraction of all steps, as below */
    double       eval_steps;            /* 0: at the end only */
    double       save_steps;            /* 0: at the end only */
    bool         eval_on_start;
    double       eval_delay;            /* steps, or epochs, before the first evaluation */
    bool         logging_first_step;
    const char  *log_format;            /* of log lines: table, kv, dict (tell/line.h) */
    bool         logging_nan_inf_filter;/* means leave out losses that are not finite */
    const char  *include_num_input_tokens_seen; /* no, all, non_padding; as a truth value */
    const char *const *report_to;       /* none, all, or some of those of reports.h */
    size_t       n_report_to;
    const char  *logging_dir;           /* of TensorBoard's events; NULL: in output_dir */
    const char  *run_name;              /* for W&B; NULL: as its environment says */
    int64_t      histogram_steps;       /* 0: no histograms */
    int64_t      save_total_limit;      /* 0: keep all */
    const char  *async_save;            /* auto: write beside the steps where memory allows; true,
                                           false */
    const char  *on_save_error;         /* end, continue */
    const char  *checkpoint_format;     /* of weights and optimizer: auto, dcp */
    const char  *output_layout;         /* of the output's folder: hf, ray (run/trial.h) */
    bool         save_only_model;       /* no optimizer, schedule or random states */
    const char  *metric_for_best_model; /* loss, perplexity, with eval_ before it or not; or NULL */
    const char  *greater_is_better;     /* auto, true, false */
    bool         load_best_model_at_end;
    int64_t      early_stopping_patience;   /* evaluations without progress; 0: any number */
    double       early_stopping_threshold;
    double       max_wall_time;         /* seconds; 0: any */
    bool         final_model;           /* the trained model goes to output_dir itself */
    const char  *resume_from_checkpoint;/* path; latest, auto, true: the newest in output_dir, if
                                           there is one; none, false: as if it were NULL */
    const char  *resume_file;           /* weights to go on from where there is no checkpoint */
    double       initial_epoch;         /* epochs that those have seen; < 0: by initial_step */
    int64_t      initial_step;          /* steps; < 0: by initial_epoch */
    bool         ignore_data_skip;      /* data may be others than the checkpoint's: begin them */
    bool         overwrite_output_dir;  /* checkpoints in the run's way are removed */
    /* ranks */
    int64_t      zero_stage;            /* 0 to 3 (zero.h) */
    const char  *deepspeed;             /* file that other settings came from, or NULL */
    const char  *fsdp;                  /* its name in FSDP's words, or NULL */
    int64_t      hybrid_shard_size;     /* ranks of a group that shards, beside others; 0: as fsdp
                                           says, a node or all ranks */
    int64_t      node_ranks;            /* ranks of a node, of those that nproc says; 0: all */
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
    const char  *state_dict_file;       /* template of its name, or NULL (state_dict.h) */
    const char  *dump_grads;            /* file for the first step's gradients, or NULL */
    /* Names of the settings that the user gave, also those given their default: what is refused
     * beside other settings goes by these. */
    const char *const *given;
    size_t       n_given;
    /* "NAME VALUE" of all that reports tell of the settings. */
    const char *const *told;
    size_t       n_told;
    /* "NAME VALUE" of all that every rank must have alike. */
    const char *const *shared;
    size_t       n_shared;
};

#define SETTINGS_GPUS (-1)              /* nproc: as many as there are GPUs */
#define SETTINGS_NODE (-1)              /* settings_hybrid: as many as a node has */

bool settings_given(const struct settings *s, const char *name);

/* Whether the run is reported to tensorboard, wandb or csv. */
bool settings_reports(const struct settings *s, const char *to);
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
/* Moments that the optimizer lacks of AdamW's two. */
int settings_fewer(const struct settings *s);
/* Whether they, and true weights beside rounded ones, may lie on the host where memory is short. */
bool settings_paged(const struct settings *s);
/* The type in which ranks exchange gradients. */
enum ckpt_dtype settings_reduce(const struct settings *s);
/* The stage, by either name. */
int settings_stage(const struct settings *s);
/* Whether checkpoints are torch.distributed.checkpoint's. */
bool settings_is_dcp(const struct settings *s);
/* output_layout ray. */
bool settings_is_trial(const struct settings *s);
/* Ranks of a group that shards among itself: SETTINGS_NODE, those of a node; 0: all ranks do. */
int settings_hybrid(const struct settings *s);
/* Ranks of a node, where they are planned or simulated. */
int settings_node_ranks(const struct settings *s);
struct schedule;
/* The schedule without its span (schedule.h): CKPT_ECONFIG says what is wrong with its settings. */
int settings_schedule(struct schedule *out, const struct settings *s, struct ckpt_err *err);
struct device_opts settings_device(const struct settings *s);
/* What train_batch_size says of the micro-batch and the accumulation, with so many ranks:
 * CKPT_ECONFIG when their product is another. */
int settings_batch(struct settings *s, int64_t world_size, struct ckpt_err *err);
/* The next smaller micro-batch; with train_batch_size the accumulation grows.  False: none. */
bool settings_smaller_batch(struct settings *s, int64_t world_size);
void settings_default(struct settings *s);
/* Settings that clash, or lack another: CKPT_ECONFIG names them. */
int settings_check(const struct settings *s, struct ckpt_err *err);

#endif

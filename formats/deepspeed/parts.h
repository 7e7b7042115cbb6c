/*
 * deepspeed/parts - the open files of a DeepSpeed tag, and access to facts in them.
 *
 * Source: DeepSpeed 0.19.8 and 0.14.5 runtime/engine.py, zero/stage_1_and_2.py, zero/stage3.py,
 * bf16_optimizer.py, fp16/{fused,unfused}_optimizer.py.
 */
#ifndef CKPT_FORMATS_DEEPSPEED_PARTS_H
#define CKPT_FORMATS_DEEPSPEED_PARTS_H

#include "formats/torch/torch.h"

#define DS_MAX_RANKS 65536
#define DS_MAX_TAG   256        /* most bytes of a tag */

/*
 * One rank's files, in a pipeline those of one stage.  Stage 0 has no optim file; stages 0 to 2
 * have rank 0's model file alone; in a universal checkpoint rank 0's optim file is
 * zero/optimizer_state.pt.
 */
struct ds_rank {
    struct torch_archive *model, *optim;
    const struct value   *model_root;   /* dict */
    const struct value   *optim_file;   /* dict: the whole optim file */
    const struct value   *optim_root;   /* dict: its optimizer_state_dict */
};

struct ds_files {
    char            tag[DS_MAX_TAG];
    struct ds_rank *rank;               /* [n] */
    size_t          n;                  /* data-parallel ranks */
    bool            sharded;            /* every rank has its own model file */
    int             stage;              /* 0..3 */
    bool            bf16;               /* BF16_Optimizer: no zero_stage, and padding is stored */
    bool            bf16_names;         /* optim files are named bf16_zero_...: bf16 is enabled */
    size_t          world;              /* ranks of the saving run: n, except in universal
                                           checkpoints */
    struct ds_experts *experts;         /* files of MoE layers; NULL: no experts */
    struct ckpt_arena arena;
    const struct value *shapes;         /* replaces param_shapes where no file has it; NULL */
    size_t          mp;                 /* the mp_rank whose files these are: pipeline stage */
    struct ds_layers *layers;           /* of all stages of a pipeline; NULL: no pipeline */
    struct ds_swap *swap;               /* states in files of their own; NULL */
    struct ds_universal *universal;     /* states of a universal checkpoint; NULL: they are in
                                           the optim files */
    double          step;               /* the optimizer's own count, -1 where it stores none */
};

/* Open one file of a checkpoint, which must hold a dictionary. */
int ds_archive_open(struct torch_archive **out, const struct value **root, struct ckpt_dir *dir,
                    const char *name, struct ckpt_err *err);
/* partition_count of a rank: one number, or the largest of one per group; 0 when absent. */
size_t ds_partitions(const struct ds_files *f, size_t rank);
/* The same for flat group g alone. */
size_t ds_group_partitions(const struct ds_files *f, size_t rank, size_t g);
/* The number n of ZeroStageEnum(n), or of the plain int before 0.7; -1 when absent. */
int ds_stage(const struct ds_files *f, size_t rank);

/* All below give NULL where there is none. */
/* Value of a number key of a dictionary. */
const struct value *ds_numbered(const struct value *dict, size_t key);
/* The state of flat group g on a rank: step, exp_avg, exp_avg_sq. */
const struct value *ds_state(const struct ds_files *f, size_t rank, size_t g);
/* The optimizer's param_groups. */
const struct value *ds_param_groups(const struct ds_files *f, size_t rank);
/* One dictionary of name -> shape per flat group, from the place where this version stores it. */
size_t ds_shape_groups(const struct ds_files *f, size_t rank);
const struct value *ds_shapes(const struct ds_files *f, size_t rank, size_t g);

/* A parameter as listed by the shapes. */
struct ds_listed {
    const char       *name;
    struct ckpt_shape shape;
    int64_t           numel;
};
/* Entry i of a dictionary of shapes (torch.Size or plain tuples); what names the dictionary in
 * errors. */
int ds_shape_at(struct ds_listed *out, const struct value *shapes, size_t i, const char *what,
                struct ckpt_err *err);
/* An option of ds_config's zero_optimization; NULL also when the configuration is a path. */
const struct value *ds_zero_option(const struct ds_files *f, const char *key);

#endif

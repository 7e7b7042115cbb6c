/*
 * write/out - write DeepSpeed checkpoint folders, rank by rank, that DeepSpeed loads.
 *
 * Each rank writes its own files into a staging directory (ckpt_outdir); rank 0 writes `latest`
 * last.  Layout and keys as DeepSpeed 0.19.8 writes them.
 *
 * Abbreviations: ds (deepspeed).
 */
#ifndef CKPT_FORMATS_DEEPSPEED_WRITE_OUT_H
#define CKPT_FORMATS_DEEPSPEED_WRITE_OUT_H

#include "formats/container/value.h"
#include "formats/deepspeed/layout.h"
#include "formats/hf/trainer_files.h"
#include "libckpt/commit.h"

/* One parameter of the model, in the optimizer's order. */
struct ds_param {
    const char       *name;             /* as in torch's state_dict */
    struct ckpt_shape shape;
    int               group;            /* optimizer group: 0 decay, 1 no decay */
    bool              trainable;        /* false: a frozen weight, in no group */
};

/* A name that shares another's storage. */
struct ds_alias {
    const char *name;                   /* lm_head.weight */
    const char *kept;                   /* transformer.word_embeddings.weight */
};

/* The loss scaling of a run in float16. */
struct ds_scaling {
    bool    dynamic;
    double  scale, min_scale;
    int64_t iter, last_overflow, window, hysteresis, patience;
};

/* One rank's state of a run.  All arrays are borrowed for the call. */
struct ds_rank_state {
    int                     rank, world_size;
    int                     stage;              /* 1 or 2 (flat_out.h); 0 means 3 */
    const struct ds_scaling *scaling;           /* NULL: none */
    const struct ds_param  *param;              /* group 0's first, then group 1's */
    size_t                  n_param;
    const struct ds_alias  *alias;
    size_t                  n_alias;
    const struct adamw_group *group;            /* [n_group] */
    size_t                  n_group;
    enum ckpt_dtype         model_dtype;        /* of `module`: F32, BF16 or F16 */
    /*
     * In stage 3, this rank's part of each parameter: ds3_part(numel, W) elements, padding
     * included, which is written unchanged.  A frozen parameter needs no moments and is written in
     * model_dtype.  Given either as arrays, or by a reader of the part's elements.
     */
    const float *const     *master;             /* [n_param] */
    const float *const     *exp_avg;            /* [n_param] */
    const float *const     *exp_avg_sq;         /* [n_param] */
    struct adamw_reader     reader;
    int                     fewer;              /* moments that the optimizer lacks of two */
    const char             *moment;             /* the name of its only one */
    int64_t                 sub_group_size;     /* 0: DS_SUB_GROUP_SIZE */
    int64_t                 optimizer_step;     /* applied steps */
    int64_t                 global_steps, global_samples, skipped_steps;
    const json_t           *ds_config;          /* object */
    const struct value     *client_state;       /* dict without tensors, merged at top level, or
                                                   NULL; keys of DeepSpeed's own are refused */
};

/* Whether the optimizer has that array of a group: the only moment of one is in exp_avg's place. */
bool ds_keeps(const struct ds_rank_state *s, const struct adamw_group *g, enum adamw_array of);
/* The name of its first moment. */
const char *ds_moment_name(const struct ds_rank_state *s, const struct adamw_group *g);

/*
 * Write <tag>/zero_pp_rank_R_mp_rank_00_model_states.pt and
 * <tag>/[bf16_]zero_pp_rank_R_mp_rank_00_optim_states.pt into dir.  A group without trainable
 * parameters is left out, as by DeepSpeed.  Allocates a storage record for each sub-group and one
 * piece; no tensor.  CKPT_ESTATE when the state contradicts itself or client_state names a key of
 * DeepSpeed's own.
 */
int ds_write_rank(struct ckpt_outdir *dir, const char *tag, const struct ds_rank_state *state,
                  struct ckpt_err *err);
/* Write `latest` naming tag.  Rank 0, after every rank has written. */
int ds_write_latest(struct ckpt_outdir *dir, const char *tag, struct ckpt_err *err);
/* Write zero_to_fp32.py, which joins the shards where there is torch alone.  Once a directory. */
int ds_write_script(struct ckpt_outdir *dir, struct ckpt_err *err);

#endif

/*
 * hf/adafactor - optimizer.pt as transformers' Adafactor writes it: {'state': {i: {step, exp_avg,
 * exp_avg_sq_row and exp_avg_sq_col or exp_avg_sq, RMS}}, 'param_groups'}.
 * Source: transformers 5.24, optimization.py (Adafactor).
 */
#ifndef CKPT_FORMATS_HF_ADAFACTOR_H
#define CKPT_FORMATS_HF_ADAFACTOR_H

#include "formats/hf/trainer_files.h"

/* Numbers of a group beside learning rate and weight decay. */
struct adafactor_group {
    double eps, eps_rms, clip_threshold, decay_rate;
    double beta1;                           /* NaN: None */
    bool   scale_parameter, relative_step, warmup_init;
};

/* One parameter, in the order of the file. */
struct adafactor_param {
    struct ckpt_shape shape;
    int               group;
    const float      *row, *col;            /* col NULL: row is exp_avg_sq, of the whole shape */
    float             rms;
};

/* The hyper-parameters of a group as a value; NULL: no memory. */
struct value *hf_adafactor_group(struct ckpt_arena *a, const struct adamw_group *g);

/* Write it; takes out.  reader gives exp_avg (ADAMW_EXP_AVG); NULL: there is none, or it lies in
 * ranks' own files. */
int hf_adafactor_write(struct ckpt_out *out, const struct adafactor_param *param, size_t n_param,
                       const struct adamw_group *group, size_t n_group, int64_t step,
                       const struct adamw_reader *reader, struct ckpt_err *err);

#endif

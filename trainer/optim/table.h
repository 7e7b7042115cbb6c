/*
 * optim/table - the optimizers: names, rule of the step, moments and where they lie.
 */
#ifndef CKPT_TRAINER_OPTIM_TABLE_H
#define CKPT_TRAINER_OPTIM_TABLE_H

#include "libckpt/fail.h"
#include "trainer/model/params.h"
#include "trainer/ops/ops.h"
#include "trainer/optim/keys.h"

struct optim_row {
    const char     *name;           /* HF's OptimizerNames */
    enum op_rule    rule;
    enum op_moments moments;
    bool            paged;          /* states may lie on the host where memory is short */
    int             n_moments;      /* 0: of SGD and Adafactor, which have one with a momentum */
    bool            bnb;            /* its file is bitsandbytes' */
};

/* Keys of optim_args, by the names they have in torch and transformers. */
struct optim_keys {
    double momentum, dampening;
    bool   nesterov;
    struct op_adafactor adafactor;  /* eps1 and eps2 are its pair; as HF Trainer sets it up */
    struct op_muon muon;
    double adam_lr;                 /* of what Muon leaves to AdamW; NaN: learning_rate */
};

/* NULL: no such optimizer. */
const struct optim_row *optim_find(const char *name);
/* Read optim_args: CKPT_ECONFIG names what is wrong. */
int optim_keys(struct optim_keys *out, const struct optim_row *row, const char *args,
               struct ckpt_err *err);
/* The name of the i-th key that optim_args may have for it, and its value in words; NULL: there are
 * fewer. */
const char *optim_key(char text[KEYS_TEXT], const struct optim_row *row,
                      const struct optim_keys *keys, size_t i);
/* Moments that it has with these keys. */
int optim_moments(const struct optim_row *row, const struct optim_keys *keys);
/* The name of a parameter's moment k in its state dict: "exp_avg", "momentum_buffer" ...; NULL:
 * that parameter has none. */
const char *optim_moment_name(const struct optim_row *row, const struct param *p, int k);

#endif

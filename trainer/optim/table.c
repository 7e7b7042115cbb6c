/* optim/table - see optim/table.h. */
#include "trainer/optim/table.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

/* The first row of a rule names its moments. */
static const struct optim_row rows[] = {
    {"adamw_torch", OP_RULE_ADAMW, OP_MOMENTS_F32, false, 2, false},
    {"adamw_torch_fused", OP_RULE_ADAMW, OP_MOMENTS_F32, false, 2, false},
    {"adamw_8bit", OP_RULE_ADAMW, OP_MOMENTS_8BIT, false, 2, true},
    {"adamw_bnb_8bit", OP_RULE_ADAMW, OP_MOMENTS_8BIT, false, 2, true},
    {"adamw_anyprecision", OP_RULE_ADAMW, OP_MOMENTS_BF16, false, 2, false},
    {"paged_adamw", OP_RULE_ADAMW, OP_MOMENTS_F32, true, 2, false},
    {"paged_adamw_32bit", OP_RULE_ADAMW, OP_MOMENTS_F32, true, 2, false},
    {"paged_adamw_8bit", OP_RULE_ADAMW, OP_MOMENTS_8BIT, true, 2, true},
    {"sgd", OP_RULE_SGD, OP_MOMENTS_F32, false, 0, false},
    {"adafactor", OP_RULE_ADAFACTOR, OP_MOMENTS_F32, false, 0, false},
    {"muon", OP_RULE_MUON, OP_MOMENTS_F32, false, 2, false},
    {"lion_32bit", OP_RULE_LION, OP_MOMENTS_F32, false, 1, true},
    {"lion_8bit", OP_RULE_LION, OP_MOMENTS_8BIT, false, 1, true},
    {"paged_lion_32bit", OP_RULE_LION, OP_MOMENTS_F32, true, 1, true},
    {"paged_lion_8bit", OP_RULE_LION, OP_MOMENTS_8BIT, true, 1, true},
};

#define ADAFACTOR(field) offsetof(struct optim_keys, adafactor.field)
#define MUON(field)      offsetof(struct optim_keys, muon.field)

static const struct keys_row key_rows[] = {
    {"momentum", KEYS_REAL, offsetof(struct optim_keys, momentum), 0, 1, NULL},
    {"dampening", KEYS_REAL, offsetof(struct optim_keys, dampening), 0, 1, NULL},
    {"nesterov", KEYS_BOOL, offsetof(struct optim_keys, nesterov), 0, 0, NULL},
    {"eps1", KEYS_REAL, ADAFACTOR(eps), 0, 1, NULL},
    {"eps2", KEYS_REAL, ADAFACTOR(eps_rms), 0, 1, NULL},
    {"clip_threshold", KEYS_REAL, ADAFACTOR(clip_threshold), 1e-6, 1e6, NULL},
    {"decay_rate", KEYS_REAL, ADAFACTOR(decay_rate), -10, 0, NULL},
    {"beta1", KEYS_REAL, ADAFACTOR(beta1), 0, 0.999999, NULL},
    {"scale_parameter", KEYS_BOOL, ADAFACTOR(scale_parameter), 0, 0, NULL},
    {"relative_step", KEYS_BOOL, ADAFACTOR(relative_step), 0, 0, NULL},
    {"warmup_init", KEYS_BOOL, ADAFACTOR(warmup_init), 0, 0, NULL},
    {"eps", KEYS_REAL, MUON(eps), 1e-30, 1, NULL},
    {"ns_steps", KEYS_INT, MUON(ns_steps), 1, 99, NULL},
    {"ns_coefficients", KEYS_THREE, MUON(a), -1e3, 1e3, NULL},
    {"adjust_lr_fn", KEYS_WORD, MUON(adjust), 0, 0, "original match_rms_adamw spectral_unclamped"},
    {"adam_lr", KEYS_REAL, offsetof(struct optim_keys, adam_lr), 0, 1e3, NULL},
};

/* Keys of optim_args that a rule has. */
static const char *const allowed[] = {
    [OP_RULE_ADAMW] = "", [OP_RULE_LION] = "", [OP_RULE_SGD] = "momentum dampening nesterov",
    [OP_RULE_ADAFACTOR] = "eps1 eps2 clip_threshold decay_rate beta1 scale_parameter relative_step "
                          "warmup_init",
    [OP_RULE_MUON] = "momentum nesterov ns_steps ns_coefficients eps adjust_lr_fn adam_lr",
};

const struct optim_row *optim_find(const char *name)
{
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (strcmp(rows[i].name, name) == 0)
            return &rows[i];
    return NULL;
}

int optim_keys(struct optim_keys *out, const struct optim_row *row, const char *args,
               struct ckpt_err *err)
{
    const struct keys_table t = {"optim_args", key_rows, sizeof key_rows / sizeof key_rows[0]};
    bool muon = row->rule == OP_RULE_MUON;
    int rc;

    *out = (struct optim_keys){.momentum = muon ? 0.95 : 0, .nesterov = muon, .adam_lr = NAN,
                               .adafactor = {.eps = 1e-30, .eps_rms = 1e-3, .clip_threshold = 1,
                                             .decay_rate = -0.8, .beta1 = NAN},
                               .muon = {.eps = 1e-7, .ns_steps = 5, .a = 3.4445, .b = -4.7750,
                                        .c = 2.0315}};
    rc = keys_set(out, &t, args, allowed[row->rule], row->name, err);
    out->muon.momentum = out->momentum;
    out->muon.nesterov = out->nesterov;
    if (rc == 0 && !muon && out->nesterov && (out->momentum <= 0 || out->dampening != 0))
        rc = ckpt_fail(err, CKPT_ECONFIG, "`optim_args`: nesterov needs a momentum and no "
                       "dampening");
    if (rc == 0 && out->adafactor.warmup_init && !out->adafactor.relative_step)
        rc = ckpt_fail(err, CKPT_ECONFIG, "`optim_args`: warmup_init needs relative_step=True");
    return rc;
}

const char *optim_key(char text[KEYS_TEXT], const struct optim_row *row,
                      const struct optim_keys *keys, size_t i)
{
    const char *word;
    size_t n = keys_word_at(&word, allowed[row->rule], i), k = 0;

    if (n == 0)
        return NULL;
    while (strlen(key_rows[k].name) != n || strncmp(key_rows[k].name, word, n) != 0)
        k++;                                    /* each key of a rule has a row */
    keys_text(text, keys, &key_rows[k]);
    return key_rows[k].name;
}

int optim_moments(const struct optim_row *row, const struct optim_keys *keys)
{
    return row->rule == OP_RULE_SGD         ? keys->momentum > 0
           : row->rule == OP_RULE_ADAFACTOR ? !isnan(keys->adafactor.beta1)
                                            : row->n_moments;
}

const char *optim_moment_name(const struct optim_row *row, const struct param *p, int k)
{
    if (row->rule == OP_RULE_MUON && params_is_hidden(p))
        return k ? NULL : "momentum_buffer";
    return row->rule == OP_RULE_SGD ? "momentum_buffer" : k ? "exp_avg_sq" : "exp_avg";
}

/*
 * role - the parameters of models under family-independent names: which of them a description
 * has, their shapes, and their initial values.
 */
#ifndef CKPT_FORMATS_FAMILIES_ROLE_H
#define CKPT_FORMATS_FAMILIES_ROLE_H

#include <stdbool.h>
#include <stdint.h>

#include "libckpt/shape.h"

struct arch;

/* _W is a matrix or a norm's gain, _B its bias, which comes right after it. */
enum role {
    ROLE_TOKENS, ROLE_POS, ROLE_TOKEN_TYPE, ROLE_PROJ_IN, ROLE_EMB_NORM_W, ROLE_EMB_NORM_B,
    ROLE_NORM1_W, ROLE_NORM1_B, ROLE_QKV_W, ROLE_QKV_B, ROLE_Q_W, ROLE_Q_B, ROLE_K_W, ROLE_K_B,
    ROLE_V_W, ROLE_V_B, ROLE_Q_NORM, ROLE_K_NORM, ROLE_OUT_W, ROLE_OUT_B,
    ROLE_REL_BIAS,                                     /* in a stack's first block only */
    ROLE_CROSS_NORM_W, ROLE_CROSS_Q_W, ROLE_CROSS_K_W, ROLE_CROSS_V_W, ROLE_CROSS_OUT_W,
    ROLE_NORM2_W, ROLE_NORM2_B, ROLE_GATE_W, ROLE_GATE_B, ROLE_GATE_UP_W, ROLE_UP_W, ROLE_UP_B,
    ROLE_DOWN_W, ROLE_DOWN_B, ROLE_ROUTER_W,
    ROLE_EXPERT_GATE, ROLE_EXPERT_UP, ROLE_EXPERT_DOWN,     /* one per expert */
    ROLE_SHARED_ROUTER, ROLE_SHARED_GATE, ROLE_SHARED_UP, ROLE_SHARED_DOWN,     /* named only */
    ROLE_ENCODER_NORM_W,                                    /* in the encoder's last block */
    ROLE_FINAL_NORM_W, ROLE_FINAL_NORM_B, ROLE_PROJ_OUT, ROLE_HEAD_W,
    ROLE_COUNT
};

enum role_init { ROLE_NORMAL, ROLE_ONES, ROLE_ZEROS };

/* Whether this description has such a parameter in that block (-1: outside of blocks); not, for
 * example, a bias, a tied head or an embedding norm that the model lacks. */
bool role_exists(const struct arch *arch, enum role role, int64_t layer);
bool role_is_expert(enum role role);
bool role_is_bias(enum role role);
/* Whether it is a projection's matrix; and one of a block, stored [in, out] if the description
 * says so. */
bool role_is_linear(enum role role);
bool role_is_transposed(enum role role);
/* Every backward pass computes this gradient in one operation, and so may overwrite it instead
 * of adding. */
bool role_overwrites_grad(const struct arch *arch, enum role role);
struct ckpt_shape role_shape(const struct arch *arch, enum role role);
enum role_init role_init(enum role role);
/* HF Trainer's rule: no weight decay on norms and biases. */
bool role_decays(enum role role);

#endif

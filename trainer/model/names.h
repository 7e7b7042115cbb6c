/*
 * names - the parameters a model is made of (roles), and how each family spells them.
 */
#ifndef CKPT_TRAINER_MODEL_NAMES_H
#define CKPT_TRAINER_MODEL_NAMES_H

#include <stdbool.h>
#include <stdint.h>

#include "libckpt/mem.h"
#include "libckpt/shape.h"

struct arch;

/* _W a matrix or a norm's gain, _B its bias. */
enum role {
    ROLE_TOKENS, ROLE_POS, ROLE_TOKEN_TYPE, ROLE_PROJ_IN, ROLE_EMB_NORM_W, ROLE_EMB_NORM_B,
    ROLE_NORM1_W, ROLE_NORM1_B, ROLE_QKV_W, ROLE_QKV_B, ROLE_Q_W, ROLE_Q_B, ROLE_K_W, ROLE_K_B,
    ROLE_V_W, ROLE_V_B, ROLE_Q_NORM, ROLE_K_NORM, ROLE_OUT_W, ROLE_OUT_B,
    ROLE_REL_BIAS,                                          /* in a stack's first block */
    ROLE_CROSS_NORM_W, ROLE_CROSS_Q_W, ROLE_CROSS_K_W, ROLE_CROSS_V_W, ROLE_CROSS_OUT_W,
    ROLE_NORM2_W, ROLE_NORM2_B, ROLE_GATE_W, ROLE_GATE_B, ROLE_GATE_UP_W, ROLE_UP_W, ROLE_UP_B,
    ROLE_DOWN_W, ROLE_DOWN_B, ROLE_ROUTER_W,
    ROLE_EXPERT_GATE, ROLE_EXPERT_UP, ROLE_EXPERT_DOWN,     /* one of each an expert */
    ROLE_ENCODER_NORM_W,                                    /* in the encoder's last block */
    ROLE_FINAL_NORM_W, ROLE_FINAL_NORM_B, ROLE_PROJ_OUT, ROLE_HEAD_W,
    ROLE_COUNT
};

enum role_init { ROLE_NORMAL, ROLE_ONES, ROLE_ZEROS };

/* One published name.  In a block's name %d stands for the block's number, in an expert's the
 * second one for the expert's. */
struct name {
    enum role   role;
    const char *text;               /* behind the family's prefix, or whole when bare */
    bool        bare;
};

/* Lists in torch's order, each ended by a NULL text. */
extern const struct name names_bloom_before[], names_bloom_block[], names_bloom_after[];
extern const struct name names_opt_before[], names_opt_block[], names_opt_after[];
extern const struct name names_gpt2_before[], names_gpt2_block[], names_gpt2_after[];
extern const struct name names_llama_before[], names_llama_block[], names_llama_after[];
extern const struct name names_mixtral_block[];
extern const struct name names_phi3_block[];    /* before and after as Llama */
extern const struct name names_t5_before[], names_t5_encoder[], names_t5_gated_encoder[];
extern const struct name names_t5_block[], names_t5_gated_block[], names_t5_after[];
extern const struct name names_bert_before[], names_bert_block[], names_bert_after[];

/* False: this description has no such parameter (no bias, tied head, no embedding norm) in that
 * block (-1: outside of blocks). */
bool role_exists(const struct arch *arch, enum role role, int64_t layer);
bool role_is_expert(enum role role);
/* A projection's matrix; and one that is stored [in, out] where the description says so. */
bool role_is_linear(enum role role);
bool role_is_transposed(enum role role);
/* A matrix or bias whose gradient is made at once in every backward pass, so that the pass can
 * write it instead of adding to it. */
bool role_is_written(const struct arch *arch, enum role role);
struct ckpt_shape role_shape(const struct arch *arch, enum role role);
enum role_init role_init(enum role role);
/* HF Trainer's rule: no weight decay on norms and biases. */
bool role_decays(enum role role);
/* The whole name in the arena; layer counts inside its stack.  NULL when memory is refused. */
char *name_expand(struct ckpt_arena *arena, const char *prefix, const struct name *name,
                  int64_t layer, int64_t expert);

#endif

/* role - see role.h. */
#include "formats/families/role.h"

#include "formats/families/arch.h"

/* Sizes of a description that shapes are made of. */
enum extent { ONE, VOCAB, HIDDEN, EMBED, POSITIONS, TOKEN_TYPES, BUCKETS, HEADS, HEADS_Q, HEADS_KV,
              HEADS_ALL, HEAD, FF, FF2, EXPERTS, EXPERT_FF, EXTENTS };

/* What a description must have for a parameter to exist. */
enum need {
    GAIN = 1, SHIFT = 2, EMB_NORM = 4, FINAL_NORM = 8, PROJECTED = 16, TYPED = 32, QKV_BIAS = 64,
    OUT_BIAS = 128, MLP_BIAS = 256, QK_NORM = 512, RELATIVE = 1024, CROSS = 2048,
    ENCODER_END = 4096, DENSE = 8192, ROUTED = 16384, UNTIED = 32768
};

#define BLOCK true                      /* a block's matrix: [cols, rows] if order is IN_OUT */

static const struct {
    enum extent    rows, cols;          /* cols ONE: a vector */
    enum role_init init;
    unsigned       needs;
    bool           block;
} roles[ROLE_COUNT] = {
    [ROLE_TOKENS] = {VOCAB, EMBED, ROLE_NORMAL, 0, 0},
    [ROLE_POS] = {POSITIONS, HIDDEN, ROLE_NORMAL, 0, 0},
    [ROLE_TOKEN_TYPE] = {TOKEN_TYPES, HIDDEN, ROLE_NORMAL, TYPED, 0},
    [ROLE_PROJ_IN] = {HIDDEN, EMBED, ROLE_NORMAL, PROJECTED, 0},
    [ROLE_EMB_NORM_W] = {HIDDEN, ONE, ROLE_ONES, EMB_NORM | GAIN, 0},
    [ROLE_EMB_NORM_B] = {HIDDEN, ONE, ROLE_ZEROS, EMB_NORM | SHIFT, 0},
    [ROLE_NORM1_W] = {HIDDEN, ONE, ROLE_ONES, GAIN, 0},
    [ROLE_NORM1_B] = {HIDDEN, ONE, ROLE_ZEROS, SHIFT, 0},
    [ROLE_QKV_W] = {HEADS_ALL, HIDDEN, ROLE_NORMAL, 0, BLOCK},
    [ROLE_QKV_B] = {HEADS_ALL, ONE, ROLE_ZEROS, QKV_BIAS, 0},
    [ROLE_Q_W] = {HEADS_Q, HIDDEN, ROLE_NORMAL, 0, BLOCK},
    [ROLE_Q_B] = {HEADS_Q, ONE, ROLE_ZEROS, QKV_BIAS, 0},
    [ROLE_K_W] = {HEADS_KV, HIDDEN, ROLE_NORMAL, 0, BLOCK},
    [ROLE_K_B] = {HEADS_KV, ONE, ROLE_ZEROS, QKV_BIAS, 0},
    [ROLE_V_W] = {HEADS_KV, HIDDEN, ROLE_NORMAL, 0, BLOCK},
    [ROLE_V_B] = {HEADS_KV, ONE, ROLE_ZEROS, QKV_BIAS, 0},
    [ROLE_Q_NORM] = {HEAD, ONE, ROLE_ONES, QK_NORM, 0},
    [ROLE_K_NORM] = {HEAD, ONE, ROLE_ONES, QK_NORM, 0},
    [ROLE_OUT_W] = {HIDDEN, HEADS_Q, ROLE_NORMAL, 0, BLOCK},
    [ROLE_OUT_B] = {HIDDEN, ONE, ROLE_ZEROS, OUT_BIAS, 0},
    [ROLE_REL_BIAS] = {BUCKETS, HEADS, ROLE_NORMAL, RELATIVE, 0},
    [ROLE_CROSS_NORM_W] = {HIDDEN, ONE, ROLE_ONES, CROSS | GAIN, 0},
    [ROLE_CROSS_Q_W] = {HEADS_Q, HIDDEN, ROLE_NORMAL, CROSS, BLOCK},
    [ROLE_CROSS_K_W] = {HEADS_KV, HIDDEN, ROLE_NORMAL, CROSS, BLOCK},
    [ROLE_CROSS_V_W] = {HEADS_KV, HIDDEN, ROLE_NORMAL, CROSS, BLOCK},
    [ROLE_CROSS_OUT_W] = {HIDDEN, HEADS_Q, ROLE_NORMAL, CROSS, BLOCK},
    [ROLE_NORM2_W] = {HIDDEN, ONE, ROLE_ONES, GAIN, 0},
    [ROLE_NORM2_B] = {HIDDEN, ONE, ROLE_ZEROS, SHIFT, 0},
    [ROLE_GATE_W] = {FF, HIDDEN, ROLE_NORMAL, DENSE, BLOCK},
    [ROLE_GATE_B] = {FF, ONE, ROLE_ZEROS, DENSE | MLP_BIAS, 0},
    [ROLE_GATE_UP_W] = {FF2, HIDDEN, ROLE_NORMAL, 0, BLOCK},
    [ROLE_UP_W] = {FF, HIDDEN, ROLE_NORMAL, DENSE, BLOCK},
    [ROLE_UP_B] = {FF, ONE, ROLE_ZEROS, DENSE | MLP_BIAS, 0},
    [ROLE_DOWN_W] = {HIDDEN, FF, ROLE_NORMAL, DENSE, BLOCK},
    [ROLE_DOWN_B] = {HIDDEN, ONE, ROLE_ZEROS, DENSE | MLP_BIAS, 0},
    [ROLE_ROUTER_W] = {EXPERTS, HIDDEN, ROLE_NORMAL, ROUTED, 0},
    [ROLE_EXPERT_GATE] = {EXPERT_FF, HIDDEN, ROLE_NORMAL, ROUTED, 0},
    [ROLE_EXPERT_UP] = {EXPERT_FF, HIDDEN, ROLE_NORMAL, ROUTED, 0},
    [ROLE_EXPERT_DOWN] = {HIDDEN, EXPERT_FF, ROLE_NORMAL, ROUTED, 0},
    [ROLE_ENCODER_NORM_W] = {HIDDEN, ONE, ROLE_ONES, ENCODER_END | GAIN, 0},
    [ROLE_FINAL_NORM_W] = {HIDDEN, ONE, ROLE_ONES, FINAL_NORM | GAIN, 0},
    [ROLE_FINAL_NORM_B] = {HIDDEN, ONE, ROLE_ZEROS, FINAL_NORM | SHIFT, 0},
    [ROLE_PROJ_OUT] = {EMBED, HIDDEN, ROLE_NORMAL, PROJECTED, 0},
    [ROLE_HEAD_W] = {VOCAB, EMBED, ROLE_NORMAL, UNTIED, 0},
};

/* The properties of a description, in a block or outside of blocks. */
static unsigned has(const struct arch *a, int64_t layer)
{
    bool routed = layer >= 0 && layer < a->num_hidden_layers && arch_routed(a, layer);
    bool both = a->stack == ARCH_ENCODER_DECODER;

    return (a->norm_bare ? 0 : GAIN) |
           (a->norm_bare || a->norm != ARCH_LAYER_NORM ? 0 : SHIFT) |
           (a->emb_norm ? EMB_NORM : 0) | (a->final_norm ? FINAL_NORM : 0) |
           (a->word_embed_proj_dim != a->hidden_size ? PROJECTED : 0) |
           (a->type_vocab_size > 0 ? TYPED : 0) | (a->qkv_bias ? QKV_BIAS : 0) |
           (a->out_bias ? OUT_BIAS : 0) | (a->mlp_bias ? MLP_BIAS : 0) |
           (a->qk_norm == ARCH_QK_NORM_HEAD ? QK_NORM : 0) |
           (a->pos == ARCH_POS_BUCKETS && layer == arch_stack_first(a, layer) ? RELATIVE : 0) |
           (arch_has_cross(a, layer) ? CROSS : 0) |
           (both && layer == a->num_encoder_layers - 1 ? ENCODER_END : 0) |
           (routed ? ROUTED : DENSE) | (a->tie_word_embeddings ? 0 : UNTIED);
}

bool role_exists(const struct arch *a, enum role role, int64_t layer)
{
    return (roles[role].needs & ~has(a, layer)) == 0;
}

bool role_is_expert(enum role role)
{
    return role == ROLE_EXPERT_GATE || role == ROLE_EXPERT_UP || role == ROLE_EXPERT_DOWN;
}

bool role_is_bias(enum role role) { return roles[role].init == ROLE_ZEROS; }

bool role_is_transposed(enum role role) { return roles[role].block; }

bool role_is_linear(enum role role)
{
    return role_is_transposed(role) || role == ROLE_PROJ_IN || role == ROLE_PROJ_OUT;
}

bool role_overwrites_grad(const struct arch *a, enum role role)
{
    if (role == ROLE_TOKENS)            /* the head writes it first, then lookups add to it */
        return a->tie_word_embeddings;
    return role == ROLE_HEAD_W || role_is_linear(role) ||
           (role_is_bias(role) && role_is_linear(role - 1));
}

static int64_t extent(const struct arch *a, enum extent e)
{
    int64_t q = a->num_attention_heads * a->head_dim, kv = a->num_key_value_heads * a->head_dim;
    const int64_t size[EXTENTS] = {
        [ONE] = 1, [VOCAB] = a->vocab_size, [HIDDEN] = a->hidden_size,
        [EMBED] = a->word_embed_proj_dim,
        [POSITIONS] = a->max_position_embeddings + a->pos_offset,
        [TOKEN_TYPES] = a->type_vocab_size, [BUCKETS] = a->num_buckets,
        [HEADS] = a->num_attention_heads, [HEADS_Q] = q, [HEADS_KV] = kv,
        [HEADS_ALL] = q + 2 * kv, [HEAD] = a->head_dim, [FF] = a->intermediate_size,
        [FF2] = 2 * a->intermediate_size, [EXPERTS] = a->num_experts,
        [EXPERT_FF] = a->moe_intermediate_size,
    };

    return size[e];
}

struct ckpt_shape role_shape(const struct arch *a, enum role role)
{
    int64_t rows = extent(a, roles[role].rows), cols = extent(a, roles[role].cols);

    if (roles[role].cols == ONE)
        return ckpt_shape_1d(rows);
    return roles[role].block && a->weight_order == ARCH_IN_OUT ? ckpt_shape_2d(cols, rows)
                                                               : ckpt_shape_2d(rows, cols);
}

enum role_init role_init(enum role role) { return roles[role].init; }

bool role_decays(enum role role)
{
    /* The published name of the relative attention bias contains the word bias. */
    return role_init(role) == ROLE_NORMAL && role != ROLE_REL_BIAS;
}

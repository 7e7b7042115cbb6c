/*
 * arch - the description of a model: choices and sizes, no family's name; and how config.json
 * becomes one.
 *
 * A description combines a family's fixed choices (family.h) and its config.json.  The trainer's
 * passes read the description and nothing else.  The enums include choices that no pass
 * implements yet; these are refused.
 *
 * The JSON is stored as read and is written beside new weights, unknown keys included.  A key
 * that would change the mathematics and has no field here is refused by name; an unknown key is
 * noted once.
 */
#ifndef CKPT_FORMATS_FAMILIES_ARCH_H
#define CKPT_FORMATS_FAMILIES_ARCH_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "libckpt/file.h"

struct family;

enum arch_stack   { ARCH_DECODER, ARCH_ENCODER_DECODER, ARCH_ENCODER };
enum arch_pos     { ARCH_POS_NONE, ARCH_POS_LEARNED, ARCH_POS_ROPE, ARCH_POS_ALIBI,
                    ARCH_POS_BUCKETS };
enum arch_norm    { ARCH_LAYER_NORM, ARCH_RMS_NORM, ARCH_RMS_NORM_1P };
enum arch_place   { ARCH_PRE_NORM, ARCH_POST_NORM, ARCH_SANDWICH_NORM };
enum arch_qkv     { ARCH_QKV_SEPARATE, ARCH_QKV_BLOCKS, ARCH_QKV_HEAD_INTERLEAVED };
enum arch_qk_norm { ARCH_QK_NORM_NONE, ARCH_QK_NORM_HEAD };
enum arch_mlp     { ARCH_MLP_PLAIN, ARCH_MLP_GATED };  /* experts are gated */
enum arch_act     { ARCH_RELU, ARCH_GELU_ERF, ARCH_GELU_TANH, ARCH_SILU, ARCH_QUICK_GELU };
enum arch_order   { ARCH_OUT_IN, ARCH_IN_OUT };         /* layout of a block's matrices */
enum arch_rope    { ARCH_ROPE_DEFAULT, ARCH_ROPE_LINEAR, ARCH_ROPE_DYNAMIC, ARCH_ROPE_LLAMA3,
                    ARCH_ROPE_YARN, ARCH_ROPE_LONG };

#define ARCH_MAX_ROTARY_DIM 8192

/* Rotary positions, named as in config.json's rope_parameters (rope_config.h fills this). */
struct rope {
    enum arch_rope kind;
    int64_t rotary_dim;                         /* R: leading elements of a head, rotated */
    int64_t original_max_position_embeddings;   /* 0: not said */
    double  theta, factor;
    double  low_freq_factor, high_freq_factor;
    double  beta_fast, beta_slow;
    double  attention_factor;                   /* factor of cosines and sines */
    bool    truncate;
    double *short_factor, *long_factor;         /* [R / 2], for ARCH_ROPE_LONG */
};

struct arch {
    const struct family *family;
    json_t              *config;                /* config.json as it was read; written back */

    /* -- sizes, by config.json's names ---------------------------------------------------- */
    int64_t vocab_size, hidden_size;
    int64_t num_hidden_layers;                  /* L: blocks of all stacks */
    int64_t num_encoder_layers;                 /* the encoder's, which come first */
    int64_t num_attention_heads, num_key_value_heads, head_dim;
    int64_t intermediate_size;
    int64_t num_experts, num_experts_per_tok;   /* 0: no block has experts */
    int64_t moe_intermediate_size;              /* of one expert */
    int64_t sliding_window;                     /* 0: none */
    int64_t max_position_embeddings;
    int64_t word_embed_proj_dim;                /* width of embedding and head */
    int64_t pos_offset;                         /* unused rows at the start of the position table */
    int64_t pad_token_id;                       /* its lookup has no gradient; -1: none */
    int64_t decoder_start_token_id;             /* first id fed to a decoder beside an encoder */
    int64_t label_pad_token_id;                 /* id fed to it for an unlabelled token */
    int64_t num_buckets, max_distance;          /* of ARCH_POS_BUCKETS */
    int64_t type_vocab_size;                    /* number of token types; 0: none */

    /* -- choices -------------------------------------------------------------------------- */
    enum arch_stack   stack;
    enum arch_pos     pos;
    enum arch_norm    norm;
    enum arch_place   place;
    enum arch_qkv     qkv;
    enum arch_qk_norm qk_norm;
    enum arch_mlp     mlp;
    enum arch_act     act;
    enum arch_order   weight_order;
    bool pos_from_mask;                         /* positions count visible tokens only */
    bool pos_from_ids;                          /* positions count ids that are not padding; a
                                                   padding id has the one before the first */
    bool emb_norm, final_norm;                  /* norm after the embedding, before the head */
    bool norm_bare;                             /* norms have neither gain nor bias */
    bool resid_from_norm;                       /* the residual is the norm's output */
    bool scale_by_layer;                        /* attn_scale is divided by the block's number,
                                                   counted from 1 */
    bool init_by_depth;                         /* a sublayer's last matrix is initialised
                                                   smaller by sqrt(2 L) */
    bool init_by_fan;                           /* a matrix is initialised by its fan-in */
    bool qkv_bias, out_bias, mlp_bias;
    bool norm_topk_prob;                    /* the top_k experts' weights are normalised to sum 1 */
    bool tie_word_embeddings;

    /* -- constants ------------------------------------------------------------------------ */
    double norm_eps;
    double attn_scale;                          /* of q.k */
    double emb_mul, head_mul;
    double router_aux;                          /* weight of the routers' load-balancing loss; 0:
                                                   none */
    double router_jitter;                       /* range of noise on routed rows in training */
    double initializer_range;
    double hidden_dropout, attention_dropout;    /* before each residual sum; of attention
                                                    probabilities */
    double embed_dropout;                       /* of the first block's input */
    double ff_dropout;                          /* inside the feed-forward, of g */
    double final_dropout;                       /* after a stack's last norm */
    struct rope rope;
    bool       *dense;                          /* [L] blocks without experts, in a model with
                                                   experts; NULL: none */
    bool       *windowed;                       /* [L] which blocks have the window; NULL: all */
};

/* Whether the block is an encoder's: its rows attend to all of their document. */
bool arch_is_encoder(const struct arch *arch, int64_t layer);
/* Whether the block also attends to the encoder's output. */
bool arch_has_cross(const struct arch *arch, int64_t layer);
/* The first block of the block's stack. */
int64_t arch_stack_first(const struct arch *arch, int64_t layer);
/* Whether a block's feed-forward consists of experts. */
bool arch_routed(const struct arch *arch, int64_t layer);
/* The window of a block's attention (0: none), and its scale of q.k. */
int64_t arch_window(const struct arch *arch, int64_t layer);
double arch_scale(const struct arch *arch, int64_t layer);

/* Read a directory's config.json, or the file in its place.  CKPT_ENOTFOUND, CKPT_EFORMAT,
 * CKPT_EUNSUPPORTED (lists the known families). */
int arch_read(struct arch **out, struct ckpt_dir *dir, const char *name, struct ckpt_err *err);
/* The same from a parsed object, of which it takes its own reference. */
int arch_read_json(struct arch **out, const json_t *config, struct ckpt_err *err);
void arch_free(struct arch *arch);

/* The JSON to write back; borrowed. */
json_t *arch_config(const struct arch *arch);
/* The activation of that name; false when it is not implemented. */
bool arch_act_of(enum arch_act *act, const char *name);
/* Name that a tied head may have in a checkpoint; NULL when the head is not tied. */
const char *arch_tied_name(const struct arch *arch);
/* Name of the embedding after the family's prefix; borrowed. */
const char *arch_tokens_name(const struct arch *arch);
/* Largest length that positions allow; 0: unlimited. */
int64_t arch_max_positions(const struct arch *arch);
/* Give the head a matrix of its own, also in config.json. */
int arch_untie(struct arch *arch, struct ckpt_err *err);
/* "bloom: 4 blocks, hidden 256, 8 heads of 32, ..."; cut to fit.  Returns dst. */
const char *arch_describe(char *dst, size_t size, const struct arch *arch);
int64_t arch_numel(const struct arch *arch);

#endif

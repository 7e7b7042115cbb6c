/* early - BLOOM, OPT and GPT-2.  Defaults are those of the configuration classes named per row. */
#include <string.h>

#include "formats/families/keys.h"
#include "libckpt/base/json.h"

/* transformers 5.17, models/bloom/configuration_bloom.py */
static const struct family_key bloom_keys[] = {
    {"vocab_size", NULL, KEY_INT, AT(vocab_size), 250880, 1, MAX_VOCAB},
    {"hidden_size", "n_embed", KEY_INT, AT(hidden_size), 64, 1, MAX_HIDDEN},
    {"n_layer", "num_hidden_layers", KEY_INT, AT(num_hidden_layers), 2, 1, MAX_LAYERS},
    {"n_head", "num_attention_heads", KEY_INT, AT(num_attention_heads), 8, 1, MAX_HIDDEN},
    {"layer_norm_epsilon", NULL, KEY_NUM, AT(norm_eps), 1e-5, 1e-30, 1},
    {"initializer_range", NULL, KEY_NUM, AT(initializer_range), 0.02, 0, 100},
    {"hidden_dropout", NULL, KEY_NUM, AT(hidden_dropout), 0, 0, 1},
    {"attention_dropout", NULL, KEY_NUM, AT(attention_dropout), 0, 0, 1},
    {"apply_residual_connection_post_layernorm", NULL, KEY_BOOL, AT(resid_from_norm), 0, 0, 0},
    {"tie_word_embeddings", NULL, KEY_BOOL, AT(tie_word_embeddings), 1, 0, 0},
    END,
};
/* pretraining_tp and slow_but_exact only split a sum; the others are Megatron's fusions. */
static const char *const bloom_ignored[] = {
    "pretraining_tp", "slow_but_exact", "attention_softmax_in_fp32", "bias_dropout_fusion",
    "masked_softmax_fusion", "offset_alibi", "seq_length", "skip_bias_add", "skip_bias_add_qkv",
    "n_inner", NULL,
};

static const struct family_name bloom_before[] = {
    {ROLE_TOKENS, "word_embeddings.weight"}, {ROLE_EMB_NORM_W, "word_embeddings_layernorm.$"},
    NAMES_END,
};
static const struct family_name bloom_block[] = {
    {ROLE_NORM1_W, "h.#.input_layernorm.$"},
    {ROLE_QKV_W, "h.#.self_attention.query_key_value.$"},
    {ROLE_OUT_W, "h.#.self_attention.dense.$"},
    {ROLE_NORM2_W, "h.#.post_attention_layernorm.$"},
    {ROLE_UP_W, "h.#.mlp.dense_h_to_4h.$"},
    {ROLE_DOWN_W, "h.#.mlp.dense_4h_to_h.$"}, NAMES_END,
};
/* Also GPT-2's. */
static const struct family_name bloom_after[] = {
    {ROLE_FINAL_NORM_W, "ln_f.$"}, {ROLE_HEAD_W, "^lm_head.weight"}, NAMES_END,
};
/* llama.cpp's context length, which BLOOM's files seldom have; the hidden size otherwise. */
static const struct family_gguf_key bloom_gguf[] = {
    {"context_length", "seq_length|hidden_size|n_embed"},
    {"attention.head_count_kv", "n_head|num_attention_heads"}, {NULL, NULL},
};

/* transformers 5.17, models/opt/configuration_opt.py */
static const struct family_key opt_keys[] = {
    {"vocab_size", NULL, KEY_INT, AT(vocab_size), 50272, 1, MAX_VOCAB},
    {"hidden_size", NULL, KEY_INT, AT(hidden_size), 768, 1, MAX_HIDDEN},
    {"num_hidden_layers", NULL, KEY_INT, AT(num_hidden_layers), 12, 1, MAX_LAYERS},
    {"num_attention_heads", NULL, KEY_INT, AT(num_attention_heads), 12, 1, MAX_HIDDEN},
    {"ffn_dim", NULL, KEY_INT, AT(intermediate_size), 3072, 1, MAX_HIDDEN},
    {"max_position_embeddings", NULL, KEY_INT, AT(max_position_embeddings), 2048, 1, MAX_POSITIONS},
    {"word_embed_proj_dim", NULL, KEY_INT, AT(word_embed_proj_dim), 0, 0, MAX_HIDDEN},
    {"pad_token_id", NULL, KEY_INT, AT(pad_token_id), 1, 0, MAX_VOCAB},
    {"activation_function", NULL, KEY_ACT, AT(act), ARCH_RELU, 0, 0},
    {"init_std", NULL, KEY_NUM, AT(initializer_range), 0.02, 0, 100},
    {"dropout", NULL, KEY_NUM, AT(hidden_dropout), 0.1, 0, 1},
    {"attention_dropout", NULL, KEY_NUM, AT(attention_dropout), 0, 0, 1},
    {"tie_word_embeddings", NULL, KEY_BOOL, AT(tie_word_embeddings), 1, 0, 0},
    {"enable_bias", NULL, KEY_BOOL, AT(qkv_bias), 1, 0, 0},
    END,
};
static const char *const opt_ignored[] = {"activation_dropout", NULL};
static const char *const opt_read[] = {
    "do_layer_norm_before", "_remove_final_layer_norm", "layer_norm_elementwise_affine",
    "layerdrop", NULL,
};

static int opt_finish(struct arch *a, const json_t *config, struct ckpt_err *err)
{
    bool before, removed, affine;
    double layerdrop;
    int rc;

    if ((rc = ckpt_json_bool_or(&before, config, "do_layer_norm_before", true, err)) != 0 ||
        (rc = ckpt_json_bool_or(&removed, config, "_remove_final_layer_norm", false,
                                err)) != 0 ||
        (rc = ckpt_json_bool_or(&affine, config, "layer_norm_elementwise_affine", true,
                                err)) != 0 ||
        (rc = ckpt_json_num_or(&layerdrop, config, "layerdrop", 0, err)) != 0)
        return rc;
    a->out_bias = a->mlp_bias = a->qkv_bias;
    a->place = before ? ARCH_PRE_NORM : ARCH_POST_NORM;
    a->final_norm = before && !removed;
    a->norm_bare = !affine;
    if (layerdrop == 0)
        return 0;
    return ckpt_fail_as(err, CKPT_EUNSUPPORTED, "config-key", "key layerdrop changes the "
                        "mathematics, and opt has no such choice here");
}

static const struct family_name opt_before[] = {
    {ROLE_TOKENS, "decoder.embed_tokens.weight"}, {ROLE_POS, "decoder.embed_positions.weight"},
    {ROLE_PROJ_IN, "decoder.project_in.weight"}, NAMES_END,
};
static const struct family_name opt_block[] = {
    {ROLE_K_W, "decoder.layers.#.self_attn.k_proj.$"},
    {ROLE_V_W, "decoder.layers.#.self_attn.v_proj.$"},
    {ROLE_Q_W, "decoder.layers.#.self_attn.q_proj.$"},
    {ROLE_OUT_W, "decoder.layers.#.self_attn.out_proj.$"},
    {ROLE_NORM1_W, "decoder.layers.#.self_attn_layer_norm.$"},
    {ROLE_UP_W, "decoder.layers.#.fc1.$"},
    {ROLE_DOWN_W, "decoder.layers.#.fc2.$"},
    {ROLE_NORM2_W, "decoder.layers.#.final_layer_norm.$"}, NAMES_END,
};
static const struct family_name opt_after[] = {
    {ROLE_PROJ_OUT, "decoder.project_out.weight"},
    {ROLE_FINAL_NORM_W, "decoder.final_layer_norm.$"}, {ROLE_HEAD_W, "^lm_head.weight"},
    NAMES_END,
};
static const char *const opt_spare[] = {"*decoder.version", NULL};

/* transformers 5.17, models/gpt2/configuration_gpt2.py */
static const struct family_key gpt2_keys[] = {
    {"vocab_size", NULL, KEY_INT, AT(vocab_size), 50257, 1, MAX_VOCAB},
    {"n_embd", "hidden_size", KEY_INT, AT(hidden_size), 768, 1, MAX_HIDDEN},
    {"n_layer", "num_hidden_layers", KEY_INT, AT(num_hidden_layers), 12, 1, MAX_LAYERS},
    {"n_head", "num_attention_heads", KEY_INT, AT(num_attention_heads), 12, 1, MAX_HIDDEN},
    {"n_inner", NULL, KEY_INT, AT(intermediate_size), 0, 0, MAX_HIDDEN},
    {"n_positions", "max_position_embeddings", KEY_INT, AT(max_position_embeddings), 1024, 1,
     MAX_POSITIONS},
    {"activation_function", NULL, KEY_ACT, AT(act), ARCH_GELU_TANH, 0, 0},
    {"layer_norm_epsilon", NULL, KEY_NUM, AT(norm_eps), 1e-5, 1e-30, 1},
    {"initializer_range", NULL, KEY_NUM, AT(initializer_range), 0.02, 0, 100},
    {"resid_pdrop", NULL, KEY_NUM, AT(hidden_dropout), 0.1, 0, 1},
    {"attn_pdrop", NULL, KEY_NUM, AT(attention_dropout), 0.1, 0, 1},
    {"embd_pdrop", NULL, KEY_NUM, AT(embed_dropout), 0.1, 0, 1},
    {"scale_attn_by_inverse_layer_idx", NULL, KEY_BOOL, AT(scale_by_layer), 0, 0, 0},
    {"tie_word_embeddings", NULL, KEY_BOOL, AT(tie_word_embeddings), 1, 0, 0},
    END,
};
static const char *const gpt2_ignored[] = {"n_ctx", "reorder_and_upcast_attn", NULL};
static const char *const gpt2_read[] = {"scale_attn_weights", NULL};

static int gpt2_finish(struct arch *a, const json_t *config, struct ckpt_err *err)
{
    bool scaled = true;
    int rc = ckpt_json_bool_or(&scaled, config, "scale_attn_weights", true, err);

    if (!scaled)
        a->attn_scale = 1;
    return rc;
}

static const struct family_name gpt2_before[] = {
    {ROLE_TOKENS, "wte.weight"}, {ROLE_POS, "wpe.weight"}, NAMES_END,
};
static const struct family_name gpt2_block[] = {
    {ROLE_NORM1_W, "h.#.ln_1.$"}, {ROLE_QKV_W, "h.#.attn.c_attn.$"},
    {ROLE_OUT_W, "h.#.attn.c_proj.$"}, {ROLE_NORM2_W, "h.#.ln_2.$"},
    {ROLE_UP_W, "h.#.mlp.c_fc.$"}, {ROLE_DOWN_W, "h.#.mlp.c_proj.$"}, NAMES_END,
};
/* Causal masks in older files. */
static const char *const gpt2_spare[] = {"*h.*.attn.bias", "*h.*.attn.masked_bias", NULL};

const struct family families_early[] = {
    {
        .model_type = "bloom", .architecture = "BloomForCausalLM", .prefix = "transformer.",
        .fixed = {
            .stack = ARCH_DECODER, .pos = ARCH_POS_ALIBI, .pos_from_mask = true,
            .norm = ARCH_LAYER_NORM, .place = ARCH_PRE_NORM, .emb_norm = true,
            .final_norm = true, .qkv = ARCH_QKV_HEAD_INTERLEAVED, .mlp = ARCH_MLP_PLAIN,
            .act = ARCH_GELU_TANH, .weight_order = ARCH_OUT_IN,
            .qkv_bias = true, .out_bias = true, .mlp_bias = true,
            .emb_mul = 1, .head_mul = 1,
        },
        .ff_factor = 4, .keys = bloom_keys, .ignored = bloom_ignored,
        .before = bloom_before, .block = bloom_block, .after = bloom_after,
        .lora_targets = "query_key_value", .gguf = "bloom", .gguf_keys = bloom_gguf,
    },
    {
        .model_type = "opt", .architecture = "OPTForCausalLM", .prefix = "model.",
        .fixed = {
            .stack = ARCH_DECODER, .pos = ARCH_POS_LEARNED, .pos_from_mask = true,
            .pos_offset = 2, .norm = ARCH_LAYER_NORM, .norm_eps = 1e-5,
            .qkv = ARCH_QKV_SEPARATE, .mlp = ARCH_MLP_PLAIN, .weight_order = ARCH_OUT_IN,
            .emb_mul = 1, .head_mul = 1,
        },
        .ends_first = true,
        .keys = opt_keys, .ignored = opt_ignored, .read = opt_read, .finish = opt_finish,
        .before = opt_before, .block = opt_block, .after = opt_after, .spare = opt_spare,
        .lora_targets = "q_proj,v_proj",
    },
    {
        .model_type = "gpt2", .architecture = "GPT2LMHeadModel", .prefix = "transformer.",
        .fixed = {
            .stack = ARCH_DECODER, .pos = ARCH_POS_LEARNED, .norm = ARCH_LAYER_NORM,
            .place = ARCH_PRE_NORM, .final_norm = true, .qkv = ARCH_QKV_BLOCKS,
            .mlp = ARCH_MLP_PLAIN, .weight_order = ARCH_IN_OUT, .qkv_bias = true,
            .out_bias = true, .mlp_bias = true, .init_by_depth = true, .emb_mul = 1,
            .head_mul = 1,
        },
        .ff_factor = 4, .keys = gpt2_keys, .ignored = gpt2_ignored, .read = gpt2_read,
        .finish = gpt2_finish,
        .before = gpt2_before, .block = gpt2_block, .after = bloom_after, .spare = gpt2_spare,
        .lora_targets = "c_attn", .gguf = "gpt2",
    },
    {.model_type = NULL},
};

/* families - see families.h.  Defaults are those of the configuration classes named per row. */
#include "trainer/model/families.h"

#include <stdio.h>
#include <string.h>

#define AT(field) offsetof(struct arch, field)
/* Beyond any published model; they keep products of two sizes far from overflow. */
#define MAX_VOCAB  (1 << 24)
#define MAX_HIDDEN (1 << 20)
#define MAX_LAYERS 4096

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
    {NULL, NULL, KEY_INT, 0, 0, 0, 0},
};
/* pretraining_tp and slow_but_exact only split a sum; the others are Megatron's fusions. */
static const char *const bloom_ignored[] = {
    "pretraining_tp", "slow_but_exact", "attention_softmax_in_fp32", "bias_dropout_fusion",
    "masked_softmax_fusion", "offset_alibi", "seq_length", "skip_bias_add", "skip_bias_add_qkv",
    "n_inner", NULL,
};

static const struct family families[] = {
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
        .before = names_bloom_before, .block = names_bloom_block, .after = names_bloom_after,
    },
};

#define N_FAMILIES (sizeof families / sizeof families[0])

const struct family *family_find(const char *model_type, const char *architecture)
{
    for (size_t i = 0; i < N_FAMILIES; i++)
        if ((model_type && strcmp(model_type, families[i].model_type) == 0) ||
            (architecture && strcmp(architecture, families[i].architecture) == 0))
            return &families[i];
    return NULL;
}

const char *family_known(char *dst, size_t size)
{
    size_t n = 0;

    dst[0] = '\0';
    for (size_t i = 0; i < N_FAMILIES && n < size; i++)
        n += (size_t)snprintf(dst + n, size - n, "%s%s", i ? ", " : "", families[i].model_type);
    return dst;
}

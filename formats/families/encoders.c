/*
 * encoders - the families with an encoder: T5, which has a decoder beside it, and BERT
 * and its kin, which have none.  Defaults are those of the configuration classes named per row.
 */
#include <math.h>
#include <string.h>

#include "formats/families/keys.h"
#include "libckpt/base/json.h"

/* transformers 5.17, models/t5/configuration_t5.py */
static const struct family_key t5_keys[] = {
    {"vocab_size", NULL, KEY_INT, AT(vocab_size), 32128, 1, MAX_VOCAB},
    {"d_model", "hidden_size", KEY_INT, AT(hidden_size), 512, 1, MAX_HIDDEN},
    {"d_kv", NULL, KEY_INT, AT(head_dim), 64, 1, MAX_HIDDEN},
    {"d_ff", NULL, KEY_INT, AT(intermediate_size), 2048, 1, MAX_HIDDEN},
    {"num_layers", "num_hidden_layers", KEY_INT, AT(num_encoder_layers), 6, 1, MAX_LAYERS},
    {"num_heads", "num_attention_heads", KEY_INT, AT(num_attention_heads), 8, 1, MAX_HIDDEN},
    {"relative_attention_num_buckets", NULL, KEY_INT, AT(num_buckets), 32, 4, 4096},
    {"relative_attention_max_distance", NULL, KEY_INT, AT(max_distance), 128, 2, 1 << 20},
    {"dropout_rate", NULL, KEY_NUM, AT(hidden_dropout), 0.1, 0, 1},
    {"layer_norm_epsilon", NULL, KEY_NUM, AT(norm_eps), 1e-6, 1e-30, 1},
    {"initializer_factor", NULL, KEY_NUM, AT(initializer_range), 1, 0, 100},
    {"decoder_start_token_id", NULL, KEY_INT, AT(decoder_start_token_id), 0, 0, MAX_VOCAB},
    {"pad_token_id", NULL, KEY_INT, AT(label_pad_token_id), 0, 0, MAX_VOCAB},
    {"tie_word_embeddings", NULL, KEY_BOOL, AT(tie_word_embeddings), 1, 0, 0},
    END,
};
/* n_positions limits nothing; the next two repeat feed_forward_proj. */
static const char *const t5_ignored[] = {
    "n_positions", "dense_act_fn", "is_gated_act", "classifier_dropout", "output_past", NULL,
};
static const char *const t5_read[] = {
    "num_decoder_layers", "feed_forward_proj", "is_encoder_decoder", "scale_decoder_outputs", NULL,
};
/* A file without shared tensors may have the embedding only in the stacks. */
static const struct family_older_name t5_older[] = {
    {"encoder.embed_tokens.weight", "shared.weight"},
    {"decoder.embed_tokens.weight", "shared.weight"}, {NULL, NULL},
};
/* Other names of the embedding, and a table in old files that no model uses. */
static const char *const t5_spare[] = {
    "encoder.embed_tokens.weight", "decoder.embed_tokens.weight",
    "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight", NULL,
};

/* "relu", or "gated-gelu", which means the tanh form. */
static int read_feed_forward(struct arch *a, const json_t *config, struct ckpt_err *err)
{
    const char *text, *act;
    int rc;

    if ((rc = ckpt_json_str_or(&text, config, "feed_forward_proj", "relu", err)) != 0)
        return rc;
    act = strncmp(text, "gated-", 6) == 0 ? text + 6 : text;
    a->mlp = act == text ? ARCH_MLP_PLAIN : ARCH_MLP_GATED;
    if (strcmp(text, "gated-gelu") == 0)
        a->act = ARCH_GELU_TANH;
    else if (!arch_act_of(&a->act, act))
        return ckpt_fail_as(err, CKPT_EUNSUPPORTED, "config-key",
                            "key feed_forward_proj: no activation %s here", act);
    return 0;
}

static int t5_finish(struct arch *a, const json_t *config, struct ckpt_err *err)
{
    int64_t decoder;
    bool both, scaled, tied = a->tie_word_embeddings;
    int rc;

    if ((rc = ckpt_json_int_or(&decoder, config, "num_decoder_layers", a->num_encoder_layers,
                               err)) != 0 ||
        (rc = ckpt_json_bool_or(&both, config, "is_encoder_decoder", true, err)) != 0 ||
        (rc = ckpt_json_bool_or(&scaled, config, "scale_decoder_outputs", tied, err)) != 0 ||
        (rc = read_feed_forward(a, config, err)) != 0)
        return rc;
    if (decoder < 1 || decoder > MAX_LAYERS)
        return ckpt_fail(err, CKPT_EFORMAT, "num_decoder_layers is %lld", (long long)decoder);
    if (!both)
        return ckpt_fail_as(err, CKPT_EUNSUPPORTED, "config-key", "is_encoder_decoder is false: "
                            "t5 has both stacks here");
    if (a->max_distance <= a->num_buckets / 2)
        return ckpt_fail(err, CKPT_EFORMAT, "relative_attention_max_distance is %lld for %lld "
                         "buckets", (long long)a->max_distance, (long long)a->num_buckets);
    a->num_hidden_layers = a->num_encoder_layers + decoder;
    a->attention_dropout = a->embed_dropout = a->hidden_dropout;
    a->ff_dropout = a->final_dropout = a->hidden_dropout;
    if (scaled)
        a->head_mul = 1.0 / sqrt((double)a->hidden_size);
    return 0;
}

/* transformers 5.17, models/{bert,roberta}/configuration_*.py */
#define BERT_KEYS(vocab, pad)                                                                  \
    {"vocab_size", NULL, KEY_INT, AT(vocab_size), vocab, 1, MAX_VOCAB},                        \
    {"hidden_size", NULL, KEY_INT, AT(hidden_size), 768, 1, MAX_HIDDEN},                       \
    {"num_hidden_layers", NULL, KEY_INT, AT(num_hidden_layers), 12, 1, MAX_LAYERS},            \
    {"num_attention_heads", NULL, KEY_INT, AT(num_attention_heads), 12, 1, MAX_HIDDEN},        \
    {"intermediate_size", NULL, KEY_INT, AT(intermediate_size), 3072, 1, MAX_HIDDEN},          \
    {"hidden_act", NULL, KEY_ACT, AT(act), ARCH_GELU_ERF, 0, 0},                               \
    {"max_position_embeddings", NULL, KEY_INT, AT(max_position_embeddings), 512, 1,            \
     MAX_POSITIONS},                                                                              \
    {"type_vocab_size", NULL, KEY_INT, AT(type_vocab_size), 2, 1, MAX_VOCAB},                  \
    {"layer_norm_eps", NULL, KEY_NUM, AT(norm_eps), 1e-12, 1e-30, 1},                          \
    {"initializer_range", NULL, KEY_NUM, AT(initializer_range), 0.02, 0, 100},                 \
    {"pad_token_id", NULL, KEY_INT, AT(pad_token_id), pad, 0, MAX_VOCAB}

static const struct family_key bert_keys[] = {BERT_KEYS(30522, 0), END};
static const struct family_key roberta_keys[] = {BERT_KEYS(50265, 1), END};
/* Dropout applies to training only; the tie is with a head that an encoder does not have. */
static const char *const bert_ignored[] = {
    "hidden_dropout_prob", "attention_probs_dropout_prob", "classifier_dropout",
    "tie_word_embeddings", "gradient_checkpointing", "pooler_fc_size", "pooler_num_attention_heads",
    "pooler_num_fc_layers", "pooler_size_per_head", "pooler_type", "directionality", NULL,
};
static const char *const bert_read[] = {"position_embedding_type", "is_decoder", NULL};
static const char *const bert_spare[] = {
    "*position_ids", "*pooler.*", "cls.*", "lm_head.*", "classifier.*", "qa_outputs.*", NULL,
};

/* The names of TensorFlow's norms. */
static const struct family_older_name bert_older[] = {
    {"LayerNorm.gamma", "LayerNorm.weight"}, {"LayerNorm.beta", "LayerNorm.bias"}, {NULL, NULL},
};

static int bert_finish(struct arch *a, const json_t *config, struct ckpt_err *err)
{
    const char *places;
    bool decoder;
    int rc;

    if ((rc = ckpt_json_str_or(&places, config, "position_embedding_type", "absolute",
                               err)) != 0 ||
        (rc = ckpt_json_bool_or(&decoder, config, "is_decoder", false, err)) != 0)
        return rc;
    if (decoder || strcmp(places, "absolute") != 0)
        return ckpt_fail_as(err, CKPT_EUNSUPPORTED, "config-key", "key %s changes the "
                            "mathematics, and %s has no such choice here",
                            decoder ? "is_decoder" : "position_embedding_type",
                            a->family->model_type);
    a->num_encoder_layers = a->num_hidden_layers;
    return 0;
}

/* The table's first rows are for padding: other ids count from pad_token_id + 1. */
static int roberta_finish(struct arch *a, const json_t *config, struct ckpt_err *err)
{
    a->pos_offset = a->pad_token_id + 1;
    a->max_position_embeddings -= a->pos_offset;
    if (a->max_position_embeddings < 1)
        return ckpt_fail(err, CKPT_EFORMAT, "max_position_embeddings is %lld, the padding's alone",
                         (long long)(a->max_position_embeddings + a->pos_offset));
    return bert_finish(a, config, err);
}

static const struct family_name t5_before[] = {{ROLE_TOKENS, "shared.weight"}, NAMES_END};
static const struct family_name t5_after[] = {
    {ROLE_FINAL_NORM_W, "decoder.final_layer_norm.weight"}, {ROLE_HEAD_W, "^lm_head.weight"},
    NAMES_END,
};

#define T5_SELF(stack)                                                                         \
    {ROLE_Q_W, stack "layer.0.SelfAttention.q.weight"},                                        \
    {ROLE_K_W, stack "layer.0.SelfAttention.k.weight"},                                        \
    {ROLE_V_W, stack "layer.0.SelfAttention.v.weight"},                                        \
    {ROLE_OUT_W, stack "layer.0.SelfAttention.o.weight"},                                      \
    {ROLE_REL_BIAS, stack "layer.0.SelfAttention.relative_attention_bias.weight"},        \
    {ROLE_NORM1_W, stack "layer.0.layer_norm.weight"}
#define T5_MLP(layer)                                                                          \
    {ROLE_UP_W, "-" layer "DenseReluDense.wi.weight"},                                         \
    {ROLE_GATE_W, "+" layer "DenseReluDense.wi_0.weight"},                                     \
    {ROLE_UP_W, "+" layer "DenseReluDense.wi_1.weight"},                                       \
    {ROLE_DOWN_W, layer "DenseReluDense.wo.weight"},                                           \
    {ROLE_NORM2_W, layer "layer_norm.weight"}

static const struct family_name t5_encoder[] = {
    T5_SELF("encoder.block.#."), T5_MLP("encoder.block.#.layer.1."),
    {ROLE_ENCODER_NORM_W, "encoder.final_layer_norm.weight"}, NAMES_END,
};
static const struct family_name t5_block[] = {
    T5_SELF("decoder.block.#."),
    {ROLE_CROSS_Q_W, "decoder.block.#.layer.1.EncDecAttention.q.weight"},
    {ROLE_CROSS_K_W, "decoder.block.#.layer.1.EncDecAttention.k.weight"},
    {ROLE_CROSS_V_W, "decoder.block.#.layer.1.EncDecAttention.v.weight"},
    {ROLE_CROSS_OUT_W, "decoder.block.#.layer.1.EncDecAttention.o.weight"},
    {ROLE_CROSS_NORM_W, "decoder.block.#.layer.1.layer_norm.weight"},
    T5_MLP("decoder.block.#.layer.2."), NAMES_END,
};

/* The pooler after the last block belongs to a classifier and is left out. */
static const struct family_name bert_before[] = {
    {ROLE_TOKENS, "embeddings.word_embeddings.weight"},
    {ROLE_POS, "embeddings.position_embeddings.weight"},
    {ROLE_TOKEN_TYPE, "embeddings.token_type_embeddings.weight"},
    {ROLE_EMB_NORM_W, "embeddings.LayerNorm.$"}, NAMES_END,
};
static const struct family_name bert_block[] = {
    {ROLE_Q_W, "encoder.layer.#.attention.self.query.$"},
    {ROLE_K_W, "encoder.layer.#.attention.self.key.$"},
    {ROLE_V_W, "encoder.layer.#.attention.self.value.$"},
    {ROLE_OUT_W, "encoder.layer.#.attention.output.dense.$"},
    {ROLE_NORM1_W, "encoder.layer.#.attention.output.LayerNorm.$"},
    {ROLE_UP_W, "encoder.layer.#.intermediate.dense.$"},
    {ROLE_DOWN_W, "encoder.layer.#.output.dense.$"},
    {ROLE_NORM2_W, "encoder.layer.#.output.LayerNorm.$"}, NAMES_END,
};
static const struct family_name bert_after[] = {NAMES_END};

#define BERT_LIKE                                                                              \
    .stack = ARCH_ENCODER, .pos = ARCH_POS_LEARNED, .norm = ARCH_LAYER_NORM,                   \
    .place = ARCH_POST_NORM, .emb_norm = true, .qkv = ARCH_QKV_SEPARATE,                       \
    .mlp = ARCH_MLP_PLAIN, .weight_order = ARCH_OUT_IN, .qkv_bias = true, .out_bias = true,    \
    .mlp_bias = true, .tie_word_embeddings = true, .emb_mul = 1, .head_mul = 1
#define BERT_NAMES                                                                             \
    .ignored = bert_ignored, .read = bert_read, .before = bert_before, .block = bert_block,    \
    .after = bert_after, .spare = bert_spare, .older = bert_older

const struct family families_encoders[] = {
    {
        .model_type = "t5", .architecture = "T5ForConditionalGeneration", .prefix = "",
        .tokenizer_class = "T5Tokenizer",
        .before = t5_before, .encoder = t5_encoder, .block = t5_block, .after = t5_after,
        .spare = t5_spare, .older = t5_older, .lora_targets = "q,v",
        .fixed = {
            .stack = ARCH_ENCODER_DECODER, .pos = ARCH_POS_BUCKETS, .norm = ARCH_RMS_NORM,
            .place = ARCH_PRE_NORM, .final_norm = true, .qkv = ARCH_QKV_SEPARATE,
            .weight_order = ARCH_OUT_IN, .init_by_fan = true, .attn_scale = 1, .emb_mul = 1,
            .head_mul = 1,
        },
        .keys = t5_keys, .ignored = t5_ignored, .read = t5_read, .finish = t5_finish,
    },
    {
        .model_type = "bert", .architecture = "BertModel", .prefix = "bert.",
        .fixed = {BERT_LIKE}, .keys = bert_keys, .finish = bert_finish, BERT_NAMES,
    },
    {
        .model_type = "roberta", .architecture = "RobertaModel", .prefix = "roberta.",
        .tokenizer_class = "RobertaTokenizer",
        .fixed = {BERT_LIKE, .pos_from_ids = true}, .keys = roberta_keys,
        .finish = roberta_finish, BERT_NAMES,
    },
    {.model_type = NULL},
};

/* names - see names.h.  Lists follow transformers 5.17, models/<family>/modeling_*.py.  */
#include "trainer/model/names.h"

#include <string.h>

#include "trainer/model/arch.h"

const struct name names_bloom_before[] = {
    {ROLE_TOKENS, "word_embeddings.weight", false},
    {ROLE_EMB_NORM_W, "word_embeddings_layernorm.weight", false},
    {ROLE_EMB_NORM_B, "word_embeddings_layernorm.bias", false},
    {ROLE_COUNT, NULL, false},
};
const struct name names_bloom_block[] = {
    {ROLE_NORM1_W, "h.%d.input_layernorm.weight", false},
    {ROLE_NORM1_B, "h.%d.input_layernorm.bias", false},
    {ROLE_QKV_W, "h.%d.self_attention.query_key_value.weight", false},
    {ROLE_QKV_B, "h.%d.self_attention.query_key_value.bias", false},
    {ROLE_OUT_W, "h.%d.self_attention.dense.weight", false},
    {ROLE_OUT_B, "h.%d.self_attention.dense.bias", false},
    {ROLE_NORM2_W, "h.%d.post_attention_layernorm.weight", false},
    {ROLE_NORM2_B, "h.%d.post_attention_layernorm.bias", false},
    {ROLE_UP_W, "h.%d.mlp.dense_h_to_4h.weight", false},
    {ROLE_UP_B, "h.%d.mlp.dense_h_to_4h.bias", false},
    {ROLE_DOWN_W, "h.%d.mlp.dense_4h_to_h.weight", false},
    {ROLE_DOWN_B, "h.%d.mlp.dense_4h_to_h.bias", false},
    {ROLE_COUNT, NULL, false},
};
const struct name names_bloom_after[] = {
    {ROLE_FINAL_NORM_W, "ln_f.weight", false},
    {ROLE_FINAL_NORM_B, "ln_f.bias", false},
    {ROLE_HEAD_W, "lm_head.weight", true},
    {ROLE_COUNT, NULL, false},
};

const struct name names_opt_before[] = {
    {ROLE_TOKENS, "decoder.embed_tokens.weight", false},
    {ROLE_POS, "decoder.embed_positions.weight", false},
    {ROLE_PROJ_IN, "decoder.project_in.weight", false},
    {ROLE_COUNT, NULL, false},
};
const struct name names_opt_block[] = {
    {ROLE_K_W, "decoder.layers.%d.self_attn.k_proj.weight", false},
    {ROLE_K_B, "decoder.layers.%d.self_attn.k_proj.bias", false},
    {ROLE_V_W, "decoder.layers.%d.self_attn.v_proj.weight", false},
    {ROLE_V_B, "decoder.layers.%d.self_attn.v_proj.bias", false},
    {ROLE_Q_W, "decoder.layers.%d.self_attn.q_proj.weight", false},
    {ROLE_Q_B, "decoder.layers.%d.self_attn.q_proj.bias", false},
    {ROLE_OUT_W, "decoder.layers.%d.self_attn.out_proj.weight", false},
    {ROLE_OUT_B, "decoder.layers.%d.self_attn.out_proj.bias", false},
    {ROLE_NORM1_W, "decoder.layers.%d.self_attn_layer_norm.weight", false},
    {ROLE_NORM1_B, "decoder.layers.%d.self_attn_layer_norm.bias", false},
    {ROLE_UP_W, "decoder.layers.%d.fc1.weight", false},
    {ROLE_UP_B, "decoder.layers.%d.fc1.bias", false},
    {ROLE_DOWN_W, "decoder.layers.%d.fc2.weight", false},
    {ROLE_DOWN_B, "decoder.layers.%d.fc2.bias", false},
    {ROLE_NORM2_W, "decoder.layers.%d.final_layer_norm.weight", false},
    {ROLE_NORM2_B, "decoder.layers.%d.final_layer_norm.bias", false},
    {ROLE_COUNT, NULL, false},
};
const struct name names_opt_after[] = {
    {ROLE_PROJ_OUT, "decoder.project_out.weight", false},
    {ROLE_FINAL_NORM_W, "decoder.final_layer_norm.weight", false},
    {ROLE_FINAL_NORM_B, "decoder.final_layer_norm.bias", false},
    {ROLE_HEAD_W, "lm_head.weight", true},
    {ROLE_COUNT, NULL, false},
};

const struct name names_gpt2_before[] = {
    {ROLE_TOKENS, "wte.weight", false}, {ROLE_POS, "wpe.weight", false},
    {ROLE_COUNT, NULL, false},
};
const struct name names_gpt2_block[] = {
    {ROLE_NORM1_W, "h.%d.ln_1.weight", false},   {ROLE_NORM1_B, "h.%d.ln_1.bias", false},
    {ROLE_QKV_W, "h.%d.attn.c_attn.weight", false}, {ROLE_QKV_B, "h.%d.attn.c_attn.bias", false},
    {ROLE_OUT_W, "h.%d.attn.c_proj.weight", false}, {ROLE_OUT_B, "h.%d.attn.c_proj.bias", false},
    {ROLE_NORM2_W, "h.%d.ln_2.weight", false},   {ROLE_NORM2_B, "h.%d.ln_2.bias", false},
    {ROLE_UP_W, "h.%d.mlp.c_fc.weight", false},  {ROLE_UP_B, "h.%d.mlp.c_fc.bias", false},
    {ROLE_DOWN_W, "h.%d.mlp.c_proj.weight", false}, {ROLE_DOWN_B, "h.%d.mlp.c_proj.bias", false},
    {ROLE_COUNT, NULL, false},
};
const struct name names_gpt2_after[] = {
    {ROLE_FINAL_NORM_W, "ln_f.weight", false}, {ROLE_FINAL_NORM_B, "ln_f.bias", false},
    {ROLE_HEAD_W, "lm_head.weight", true},     {ROLE_COUNT, NULL, false},
};

const struct name names_llama_before[] = {
    {ROLE_TOKENS, "embed_tokens.weight", false}, {ROLE_COUNT, NULL, false},
};
/* Also Mistral, Qwen2, Qwen3 and Qwen3-MoE: role_exists leaves out what a family has not. */
const struct name names_llama_block[] = {
    {ROLE_Q_W, "layers.%d.self_attn.q_proj.weight", false},
    {ROLE_Q_B, "layers.%d.self_attn.q_proj.bias", false},
    {ROLE_K_W, "layers.%d.self_attn.k_proj.weight", false},
    {ROLE_K_B, "layers.%d.self_attn.k_proj.bias", false},
    {ROLE_V_W, "layers.%d.self_attn.v_proj.weight", false},
    {ROLE_V_B, "layers.%d.self_attn.v_proj.bias", false},
    {ROLE_OUT_W, "layers.%d.self_attn.o_proj.weight", false},
    {ROLE_OUT_B, "layers.%d.self_attn.o_proj.bias", false},
    {ROLE_Q_NORM, "layers.%d.self_attn.q_norm.weight", false},
    {ROLE_K_NORM, "layers.%d.self_attn.k_norm.weight", false},
    {ROLE_ROUTER_W, "layers.%d.mlp.gate.weight", false},
    {ROLE_EXPERT_GATE, "layers.%d.mlp.experts.%d.gate_proj.weight", false},
    {ROLE_EXPERT_UP, "layers.%d.mlp.experts.%d.up_proj.weight", false},
    {ROLE_EXPERT_DOWN, "layers.%d.mlp.experts.%d.down_proj.weight", false},
    {ROLE_GATE_W, "layers.%d.mlp.gate_proj.weight", false},
    {ROLE_GATE_B, "layers.%d.mlp.gate_proj.bias", false},
    {ROLE_UP_W, "layers.%d.mlp.up_proj.weight", false},
    {ROLE_UP_B, "layers.%d.mlp.up_proj.bias", false},
    {ROLE_DOWN_W, "layers.%d.mlp.down_proj.weight", false},
    {ROLE_DOWN_B, "layers.%d.mlp.down_proj.bias", false},
    {ROLE_NORM1_W, "layers.%d.input_layernorm.weight", false},
    {ROLE_NORM2_W, "layers.%d.post_attention_layernorm.weight", false},
    {ROLE_COUNT, NULL, false},
};
const struct name names_llama_after[] = {
    {ROLE_FINAL_NORM_W, "norm.weight", false}, {ROLE_HEAD_W, "lm_head.weight", true},
    {ROLE_COUNT, NULL, false},
};
const struct name names_phi3_block[] = {
    {ROLE_OUT_W, "layers.%d.self_attn.o_proj.weight", false},
    {ROLE_QKV_W, "layers.%d.self_attn.qkv_proj.weight", false},
    {ROLE_GATE_UP_W, "layers.%d.mlp.gate_up_proj.weight", false},
    {ROLE_DOWN_W, "layers.%d.mlp.down_proj.weight", false},
    {ROLE_NORM1_W, "layers.%d.input_layernorm.weight", false},
    {ROLE_NORM2_W, "layers.%d.post_attention_layernorm.weight", false},
    {ROLE_COUNT, NULL, false},
};

const struct name names_mixtral_block[] = {
    {ROLE_Q_W, "layers.%d.self_attn.q_proj.weight", false},
    {ROLE_K_W, "layers.%d.self_attn.k_proj.weight", false},
    {ROLE_V_W, "layers.%d.self_attn.v_proj.weight", false},
    {ROLE_OUT_W, "layers.%d.self_attn.o_proj.weight", false},
    {ROLE_ROUTER_W, "layers.%d.block_sparse_moe.gate.weight", false},
    {ROLE_EXPERT_GATE, "layers.%d.block_sparse_moe.experts.%d.w1.weight", false},
    {ROLE_EXPERT_DOWN, "layers.%d.block_sparse_moe.experts.%d.w2.weight", false},
    {ROLE_EXPERT_UP, "layers.%d.block_sparse_moe.experts.%d.w3.weight", false},
    {ROLE_NORM1_W, "layers.%d.input_layernorm.weight", false},
    {ROLE_NORM2_W, "layers.%d.post_attention_layernorm.weight", false},
    {ROLE_COUNT, NULL, false},
};
const struct name names_t5_before[] = {
    {ROLE_TOKENS, "shared.weight", false}, {ROLE_COUNT, NULL, false},
};
/* The four lists of blocks differ in the feed-forward and in what only one stack has. */
const struct name names_t5_encoder[] = {
    {ROLE_Q_W, "encoder.block.%d.layer.0.SelfAttention.q.weight", false},
    {ROLE_K_W, "encoder.block.%d.layer.0.SelfAttention.k.weight", false},
    {ROLE_V_W, "encoder.block.%d.layer.0.SelfAttention.v.weight", false},
    {ROLE_OUT_W, "encoder.block.%d.layer.0.SelfAttention.o.weight", false},
    {ROLE_REL_BIAS, "encoder.block.%d.layer.0.SelfAttention.relative_attention_bias.weight", false},
    {ROLE_NORM1_W, "encoder.block.%d.layer.0.layer_norm.weight", false},
    {ROLE_UP_W, "encoder.block.%d.layer.1.DenseReluDense.wi.weight", false},
    {ROLE_DOWN_W, "encoder.block.%d.layer.1.DenseReluDense.wo.weight", false},
    {ROLE_NORM2_W, "encoder.block.%d.layer.1.layer_norm.weight", false},
    {ROLE_ENCODER_NORM_W, "encoder.final_layer_norm.weight", false},
    {ROLE_COUNT, NULL, false},
};
const struct name names_t5_block[] = {
    {ROLE_Q_W, "decoder.block.%d.layer.0.SelfAttention.q.weight", false},
    {ROLE_K_W, "decoder.block.%d.layer.0.SelfAttention.k.weight", false},
    {ROLE_V_W, "decoder.block.%d.layer.0.SelfAttention.v.weight", false},
    {ROLE_OUT_W, "decoder.block.%d.layer.0.SelfAttention.o.weight", false},
    {ROLE_REL_BIAS, "decoder.block.%d.layer.0.SelfAttention.relative_attention_bias.weight", false},
    {ROLE_NORM1_W, "decoder.block.%d.layer.0.layer_norm.weight", false},
    {ROLE_CROSS_Q_W, "decoder.block.%d.layer.1.EncDecAttention.q.weight", false},
    {ROLE_CROSS_K_W, "decoder.block.%d.layer.1.EncDecAttention.k.weight", false},
    {ROLE_CROSS_V_W, "decoder.block.%d.layer.1.EncDecAttention.v.weight", false},
    {ROLE_CROSS_OUT_W, "decoder.block.%d.layer.1.EncDecAttention.o.weight", false},
    {ROLE_CROSS_NORM_W, "decoder.block.%d.layer.1.layer_norm.weight", false},
    {ROLE_UP_W, "decoder.block.%d.layer.2.DenseReluDense.wi.weight", false},
    {ROLE_DOWN_W, "decoder.block.%d.layer.2.DenseReluDense.wo.weight", false},
    {ROLE_NORM2_W, "decoder.block.%d.layer.2.layer_norm.weight", false},
    {ROLE_COUNT, NULL, false},
};
const struct name names_t5_gated_encoder[] = {
    {ROLE_Q_W, "encoder.block.%d.layer.0.SelfAttention.q.weight", false},
    {ROLE_K_W, "encoder.block.%d.layer.0.SelfAttention.k.weight", false},
    {ROLE_V_W, "encoder.block.%d.layer.0.SelfAttention.v.weight", false},
    {ROLE_OUT_W, "encoder.block.%d.layer.0.SelfAttention.o.weight", false},
    {ROLE_REL_BIAS, "encoder.block.%d.layer.0.SelfAttention.relative_attention_bias.weight", false},
    {ROLE_NORM1_W, "encoder.block.%d.layer.0.layer_norm.weight", false},
    {ROLE_GATE_W, "encoder.block.%d.layer.1.DenseReluDense.wi_0.weight", false},
    {ROLE_UP_W, "encoder.block.%d.layer.1.DenseReluDense.wi_1.weight", false},
    {ROLE_DOWN_W, "encoder.block.%d.layer.1.DenseReluDense.wo.weight", false},
    {ROLE_NORM2_W, "encoder.block.%d.layer.1.layer_norm.weight", false},
    {ROLE_ENCODER_NORM_W, "encoder.final_layer_norm.weight", false},
    {ROLE_COUNT, NULL, false},
};
const struct name names_t5_gated_block[] = {
    {ROLE_Q_W, "decoder.block.%d.layer.0.SelfAttention.q.weight", false},
    {ROLE_K_W, "decoder.block.%d.layer.0.SelfAttention.k.weight", false},
    {ROLE_V_W, "decoder.block.%d.layer.0.SelfAttention.v.weight", false},
    {ROLE_OUT_W, "decoder.block.%d.layer.0.SelfAttention.o.weight", false},
    {ROLE_REL_BIAS, "decoder.block.%d.layer.0.SelfAttention.relative_attention_bias.weight", false},
    {ROLE_NORM1_W, "decoder.block.%d.layer.0.layer_norm.weight", false},
    {ROLE_CROSS_Q_W, "decoder.block.%d.layer.1.EncDecAttention.q.weight", false},
    {ROLE_CROSS_K_W, "decoder.block.%d.layer.1.EncDecAttention.k.weight", false},
    {ROLE_CROSS_V_W, "decoder.block.%d.layer.1.EncDecAttention.v.weight", false},
    {ROLE_CROSS_OUT_W, "decoder.block.%d.layer.1.EncDecAttention.o.weight", false},
    {ROLE_CROSS_NORM_W, "decoder.block.%d.layer.1.layer_norm.weight", false},
    {ROLE_GATE_W, "decoder.block.%d.layer.2.DenseReluDense.wi_0.weight", false},
    {ROLE_UP_W, "decoder.block.%d.layer.2.DenseReluDense.wi_1.weight", false},
    {ROLE_DOWN_W, "decoder.block.%d.layer.2.DenseReluDense.wo.weight", false},
    {ROLE_NORM2_W, "decoder.block.%d.layer.2.layer_norm.weight", false},
    {ROLE_COUNT, NULL, false},
};
const struct name names_t5_after[] = {
    {ROLE_FINAL_NORM_W, "decoder.final_layer_norm.weight", false},
    {ROLE_HEAD_W, "lm_head.weight", true}, {ROLE_COUNT, NULL, false},
};

/* Also RoBERTa.  The pooler behind the last block is a classifier's: not among them. */
const struct name names_bert_before[] = {
    {ROLE_TOKENS, "embeddings.word_embeddings.weight", false},
    {ROLE_POS, "embeddings.position_embeddings.weight", false},
    {ROLE_TOKEN_TYPE, "embeddings.token_type_embeddings.weight", false},
    {ROLE_EMB_NORM_W, "embeddings.LayerNorm.weight", false},
    {ROLE_EMB_NORM_B, "embeddings.LayerNorm.bias", false},
    {ROLE_COUNT, NULL, false},
};
const struct name names_bert_block[] = {
    {ROLE_Q_W, "encoder.layer.%d.attention.self.query.weight", false},
    {ROLE_Q_B, "encoder.layer.%d.attention.self.query.bias", false},
    {ROLE_K_W, "encoder.layer.%d.attention.self.key.weight", false},
    {ROLE_K_B, "encoder.layer.%d.attention.self.key.bias", false},
    {ROLE_V_W, "encoder.layer.%d.attention.self.value.weight", false},
    {ROLE_V_B, "encoder.layer.%d.attention.self.value.bias", false},
    {ROLE_OUT_W, "encoder.layer.%d.attention.output.dense.weight", false},
    {ROLE_OUT_B, "encoder.layer.%d.attention.output.dense.bias", false},
    {ROLE_NORM1_W, "encoder.layer.%d.attention.output.LayerNorm.weight", false},
    {ROLE_NORM1_B, "encoder.layer.%d.attention.output.LayerNorm.bias", false},
    {ROLE_UP_W, "encoder.layer.%d.intermediate.dense.weight", false},
    {ROLE_UP_B, "encoder.layer.%d.intermediate.dense.bias", false},
    {ROLE_DOWN_W, "encoder.layer.%d.output.dense.weight", false},
    {ROLE_DOWN_B, "encoder.layer.%d.output.dense.bias", false},
    {ROLE_NORM2_W, "encoder.layer.%d.output.LayerNorm.weight", false},
    {ROLE_NORM2_B, "encoder.layer.%d.output.LayerNorm.bias", false},
    {ROLE_COUNT, NULL, false},
};
const struct name names_bert_after[] = {{ROLE_COUNT, NULL, false}};

/* What a role is: its shape in sizes of the description, and how it starts. */
enum extent { ONE, VOCAB, HIDDEN, EMBED, PLACES, KINDS, BUCKETS, HEADS, HEADS_Q, HEADS_KV,
              HEADS_ALL, HEAD, FF, FF2, EXPERTS, EXPERT_FF };

static const struct {
    enum extent    rows, cols;          /* cols ONE: a vector */
    enum role_init init;
    bool           turned;              /* a block's matrix: [cols, rows] where order is IN_OUT */
} kinds[ROLE_COUNT] = {
    [ROLE_TOKENS] = {VOCAB, EMBED, ROLE_NORMAL, false},
    [ROLE_POS] = {PLACES, HIDDEN, ROLE_NORMAL, false},
    [ROLE_TOKEN_TYPE] = {KINDS, HIDDEN, ROLE_NORMAL, false},
    [ROLE_PROJ_IN] = {HIDDEN, EMBED, ROLE_NORMAL, false},
    [ROLE_EMB_NORM_W] = {HIDDEN, ONE, ROLE_ONES, false},
    [ROLE_EMB_NORM_B] = {HIDDEN, ONE, ROLE_ZEROS, false},
    [ROLE_NORM1_W] = {HIDDEN, ONE, ROLE_ONES, false},
    [ROLE_NORM1_B] = {HIDDEN, ONE, ROLE_ZEROS, false},
    [ROLE_QKV_W] = {HEADS_ALL, HIDDEN, ROLE_NORMAL, true},
    [ROLE_QKV_B] = {HEADS_ALL, ONE, ROLE_ZEROS, false},
    [ROLE_Q_W] = {HEADS_Q, HIDDEN, ROLE_NORMAL, true},
    [ROLE_Q_B] = {HEADS_Q, ONE, ROLE_ZEROS, false},
    [ROLE_K_W] = {HEADS_KV, HIDDEN, ROLE_NORMAL, true},
    [ROLE_K_B] = {HEADS_KV, ONE, ROLE_ZEROS, false},
    [ROLE_V_W] = {HEADS_KV, HIDDEN, ROLE_NORMAL, true},
    [ROLE_V_B] = {HEADS_KV, ONE, ROLE_ZEROS, false},
    [ROLE_Q_NORM] = {HEAD, ONE, ROLE_ONES, false},
    [ROLE_K_NORM] = {HEAD, ONE, ROLE_ONES, false},
    [ROLE_OUT_W] = {HIDDEN, HEADS_Q, ROLE_NORMAL, true},
    [ROLE_OUT_B] = {HIDDEN, ONE, ROLE_ZEROS, false},
    [ROLE_REL_BIAS] = {BUCKETS, HEADS, ROLE_NORMAL, false},
    [ROLE_CROSS_NORM_W] = {HIDDEN, ONE, ROLE_ONES, false},
    [ROLE_CROSS_Q_W] = {HEADS_Q, HIDDEN, ROLE_NORMAL, true},
    [ROLE_CROSS_K_W] = {HEADS_KV, HIDDEN, ROLE_NORMAL, true},
    [ROLE_CROSS_V_W] = {HEADS_KV, HIDDEN, ROLE_NORMAL, true},
    [ROLE_CROSS_OUT_W] = {HIDDEN, HEADS_Q, ROLE_NORMAL, true},
    [ROLE_NORM2_W] = {HIDDEN, ONE, ROLE_ONES, false},
    [ROLE_NORM2_B] = {HIDDEN, ONE, ROLE_ZEROS, false},
    [ROLE_GATE_W] = {FF, HIDDEN, ROLE_NORMAL, true},
    [ROLE_GATE_B] = {FF, ONE, ROLE_ZEROS, false},
    [ROLE_GATE_UP_W] = {FF2, HIDDEN, ROLE_NORMAL, true},
    [ROLE_UP_W] = {FF, HIDDEN, ROLE_NORMAL, true},
    [ROLE_UP_B] = {FF, ONE, ROLE_ZEROS, false},
    [ROLE_DOWN_W] = {HIDDEN, FF, ROLE_NORMAL, true},
    [ROLE_DOWN_B] = {HIDDEN, ONE, ROLE_ZEROS, false},
    [ROLE_ROUTER_W] = {EXPERTS, HIDDEN, ROLE_NORMAL, false},
    [ROLE_EXPERT_GATE] = {EXPERT_FF, HIDDEN, ROLE_NORMAL, false},
    [ROLE_EXPERT_UP] = {EXPERT_FF, HIDDEN, ROLE_NORMAL, false},
    [ROLE_EXPERT_DOWN] = {HIDDEN, EXPERT_FF, ROLE_NORMAL, false},
    [ROLE_ENCODER_NORM_W] = {HIDDEN, ONE, ROLE_ONES, false},
    [ROLE_FINAL_NORM_W] = {HIDDEN, ONE, ROLE_ONES, false},
    [ROLE_FINAL_NORM_B] = {HIDDEN, ONE, ROLE_ZEROS, false},
    [ROLE_PROJ_OUT] = {EMBED, HIDDEN, ROLE_NORMAL, false},
    [ROLE_HEAD_W] = {VOCAB, EMBED, ROLE_NORMAL, false},
};

bool role_is_expert(enum role role)
{
    return role == ROLE_EXPERT_GATE || role == ROLE_EXPERT_UP || role == ROLE_EXPERT_DOWN;
}

bool role_is_transposed(enum role role) { return kinds[role].turned; }

bool role_is_linear(enum role role)
{
    return role_is_transposed(role) || role == ROLE_PROJ_IN || role == ROLE_PROJ_OUT;
}

bool role_is_written(const struct arch *a, enum role role)
{
    switch (role) {
    case ROLE_QKV_B:
    case ROLE_Q_B:
    case ROLE_K_B:
    case ROLE_V_B:
    case ROLE_OUT_B:
    case ROLE_GATE_B:
    case ROLE_UP_B:
    case ROLE_DOWN_B:
    case ROLE_HEAD_W:
        return true;
    case ROLE_TOKENS:                   /* first by the head, then lookups add to it */
        return a->tie_word_embeddings;
    default:
        return role_is_linear(role);
    }
}

bool role_exists(const struct arch *a, enum role role, int64_t layer)
{
    bool gain = !a->norm_bare, shift = gain && a->norm == ARCH_LAYER_NORM;
    bool projected = a->word_embed_proj_dim != a->hidden_size;

    switch (role) {
    case ROLE_PROJ_IN:
    case ROLE_PROJ_OUT:
        return projected;
    case ROLE_TOKEN_TYPE:
        return a->type_vocab_size > 0;
    case ROLE_EMB_NORM_W:
        return a->emb_norm && gain;
    case ROLE_EMB_NORM_B:
        return a->emb_norm && shift;
    case ROLE_NORM1_W:
    case ROLE_NORM2_W:
        return gain;
    case ROLE_NORM1_B:
    case ROLE_NORM2_B:
        return shift;
    case ROLE_FINAL_NORM_W:
        return a->final_norm && gain;
    case ROLE_FINAL_NORM_B:
        return a->final_norm && shift;
    case ROLE_QKV_B:
    case ROLE_Q_B:
    case ROLE_K_B:
    case ROLE_V_B:
        return a->qkv_bias;
    case ROLE_Q_NORM:
    case ROLE_K_NORM:
        return a->qk_norm == ARCH_QK_NORM_HEAD;
    case ROLE_OUT_B:
        return a->out_bias;
    case ROLE_REL_BIAS:
        return a->pos == ARCH_POS_BUCKETS && layer == arch_stack_first(a, layer);
    case ROLE_CROSS_NORM_W:
    case ROLE_CROSS_Q_W:
    case ROLE_CROSS_K_W:
    case ROLE_CROSS_V_W:
    case ROLE_CROSS_OUT_W:
        return arch_crosses(a, layer) && (gain || role != ROLE_CROSS_NORM_W);
    case ROLE_ENCODER_NORM_W:
        return gain && a->stack == ARCH_ENCODER_DECODER && layer == a->num_encoder_layers - 1;
    case ROLE_GATE_B:
    case ROLE_UP_B:
    case ROLE_DOWN_B:
        return a->mlp_bias && !arch_routed(a, layer);
    case ROLE_GATE_W:
    case ROLE_UP_W:
    case ROLE_DOWN_W:
        return !arch_routed(a, layer);
    case ROLE_ROUTER_W:
    case ROLE_EXPERT_GATE:
    case ROLE_EXPERT_UP:
    case ROLE_EXPERT_DOWN:
        return arch_routed(a, layer);
    case ROLE_HEAD_W:
        return !a->tie_word_embeddings;
    default:
        return role != ROLE_COUNT;
    }
}

static int64_t extent(const struct arch *a, enum extent e)
{
    int64_t q = a->num_attention_heads * a->head_dim, kv = a->num_key_value_heads * a->head_dim;

    switch (e) {
    case ONE:
        return 1;
    case VOCAB:
        return a->vocab_size;
    case HIDDEN:
        return a->hidden_size;
    case EMBED:
        return a->word_embed_proj_dim;
    case PLACES:
        return a->max_position_embeddings + a->pos_offset;
    case KINDS:
        return a->type_vocab_size;
    case BUCKETS:
        return a->num_buckets;
    case HEADS:
        return a->num_attention_heads;
    case HEADS_Q:
        return q;
    case HEADS_KV:
        return kv;
    case HEADS_ALL:
        return q + 2 * kv;
    case HEAD:
        return a->head_dim;
    case FF:
        return a->intermediate_size;
    case FF2:
        return 2 * a->intermediate_size;
    case EXPERTS:
        return a->num_experts;
    case EXPERT_FF:
        return a->moe_intermediate_size;
    }
    return 0;
}

struct ckpt_shape role_shape(const struct arch *a, enum role role)
{
    int64_t rows = extent(a, kinds[role].rows), cols = extent(a, kinds[role].cols);

    if (kinds[role].cols == ONE)
        return ckpt_shape_1d(rows);
    return kinds[role].turned && a->weight_order == ARCH_IN_OUT ? ckpt_shape_2d(cols, rows)
                                                                : ckpt_shape_2d(rows, cols);
}

enum role_init role_init(enum role role) { return kinds[role].init; }

bool role_decays(enum role role)
{
    /* The published name of the table of distances has the word bias in it. */
    return role_init(role) == ROLE_NORMAL && role != ROLE_REL_BIAS;
}

char *name_expand(struct ckpt_arena *arena, const char *prefix, const struct name *name,
                  int64_t layer, int64_t expert)
{
    const char *number = strstr(name->text, "%d"), *second;

    if (name->bare)
        prefix = "";
    if (!number)
        return ckpt_arena_printf(arena, "%s%s", prefix, name->text);
    second = strstr(number + 2, "%d");
    if (!second)
        return ckpt_arena_printf(arena, "%s%.*s%lld%s", prefix, (int)(number - name->text),
                                 name->text, (long long)layer, number + 2);
    return ckpt_arena_printf(arena, "%s%.*s%lld%.*s%lld%s", prefix, (int)(number - name->text),
                             name->text, (long long)layer, (int)(second - number - 2), number + 2,
                             (long long)expert, second + 2);
}

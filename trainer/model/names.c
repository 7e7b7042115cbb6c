/* names - see names.h.  Lists follow transformers 5.17: models/bloom/modeling_bloom.py. */
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

bool role_exists(const struct arch *a, enum role role)
{
    bool shift = a->norm == ARCH_LAYER_NORM;

    switch (role) {
    case ROLE_EMB_NORM_W:
        return a->emb_norm;
    case ROLE_EMB_NORM_B:
        return a->emb_norm && shift;
    case ROLE_NORM1_B:
    case ROLE_NORM2_B:
        return shift;
    case ROLE_FINAL_NORM_W:
        return a->final_norm;
    case ROLE_FINAL_NORM_B:
        return a->final_norm && shift;
    case ROLE_QKV_B:
        return a->qkv_bias;
    case ROLE_OUT_B:
        return a->out_bias;
    case ROLE_UP_B:
    case ROLE_DOWN_B:
        return a->mlp_bias;
    case ROLE_HEAD_W:
        return !a->tie_word_embeddings;
    default:
        return role != ROLE_COUNT;
    }
}

struct ckpt_shape role_shape(const struct arch *a, enum role role)
{
    int64_t h = a->hidden_size, f = a->intermediate_size;
    int64_t q = a->num_attention_heads * a->head_dim;
    int64_t qkv = q + 2 * a->num_key_value_heads * a->head_dim;

    switch (role) {
    case ROLE_TOKENS:
    case ROLE_HEAD_W:
        return ckpt_shape_2d(a->vocab_size, h);
    case ROLE_QKV_W:
        return ckpt_shape_2d(qkv, h);
    case ROLE_QKV_B:
        return ckpt_shape_1d(qkv);
    case ROLE_OUT_W:
        return ckpt_shape_2d(h, q);
    case ROLE_UP_W:
        return ckpt_shape_2d(f, h);
    case ROLE_UP_B:
        return ckpt_shape_1d(f);
    case ROLE_DOWN_W:
        return ckpt_shape_2d(h, f);
    default:
        return ckpt_shape_1d(h);
    }
}

enum role_init role_init(enum role role)
{
    switch (role) {
    case ROLE_EMB_NORM_W:
    case ROLE_NORM1_W:
    case ROLE_NORM2_W:
    case ROLE_FINAL_NORM_W:
        return ROLE_ONES;
    case ROLE_TOKENS:
    case ROLE_QKV_W:
    case ROLE_OUT_W:
    case ROLE_UP_W:
    case ROLE_DOWN_W:
    case ROLE_HEAD_W:
        return ROLE_NORMAL;
    default:
        return ROLE_ZEROS;
    }
}

bool role_decays(enum role role) { return role_init(role) == ROLE_NORMAL; }

char *name_expand(struct ckpt_arena *arena, const char *prefix, const struct name *name,
                  int64_t layer)
{
    const char *number = strstr(name->text, "%d");

    if (name->bare)
        prefix = "";
    if (!number)
        return ckpt_arena_printf(arena, "%s%s", prefix, name->text);
    return ckpt_arena_printf(arena, "%s%.*s%lld%s", prefix, (int)(number - name->text),
                             name->text, (long long)layer, number + 2);
}

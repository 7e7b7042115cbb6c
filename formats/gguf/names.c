/* gguf/names - see gguf/names.h. */
#include "formats/gguf/names.h"

#include <stdio.h>
#include <string.h>


/* What all that descend from Llama share. */
#define DECODER                                                                                \
    {"embed_tokens.weight", "token_embd.weight", GGUF_AS_IS},                                  \
    {"norm.$", "output_norm.$", GGUF_AS_IS},                                                   \
    {"^lm_head.$", "output.$", GGUF_AS_IS},                                                    \
    {"layers.#.input_layernorm.$", "blk.#.attn_norm.$", GGUF_AS_IS},                           \
    {"layers.#.post_attention_layernorm.$", "blk.#.ffn_norm.$", GGUF_AS_IS},                   \
    {"layers.#.self_attn.o_proj.$", "blk.#.attn_output.$", GGUF_AS_IS},                        \
    {"layers.#.self_attn.rotary_emb.inv_freq", NULL, GGUF_LEFT_OUT}

#define GATED                                                                                  \
    {"layers.#.mlp.gate_proj.$", "blk.#.ffn_gate.$", GGUF_AS_IS},                              \
    {"layers.#.mlp.up_proj.$", "blk.#.ffn_up.$", GGUF_AS_IS},                                  \
    {"layers.#.mlp.down_proj.$", "blk.#.ffn_down.$", GGUF_AS_IS}

#define HALVES                                                                                 \
    {"layers.#.self_attn.q_proj.$", "blk.#.attn_q.$", GGUF_ROPE_Q},                            \
    {"layers.#.self_attn.k_proj.$", "blk.#.attn_k.$", GGUF_ROPE_K},                            \
    {"layers.#.self_attn.v_proj.$", "blk.#.attn_v.$", GGUF_AS_IS}

#define NEOX                                                                                   \
    {"layers.#.self_attn.q_proj.$", "blk.#.attn_q.$", GGUF_AS_IS},                             \
    {"layers.#.self_attn.k_proj.$", "blk.#.attn_k.$", GGUF_AS_IS},                             \
    {"layers.#.self_attn.v_proj.$", "blk.#.attn_v.$", GGUF_AS_IS}

#define EXPERTS                                                                                \
    {"layers.#.mlp.gate.weight", "blk.#.ffn_gate_inp.weight", GGUF_AS_IS},                     \
    {"layers.#.mlp.experts.@.gate_proj.weight", "blk.#.ffn_gate_exps.weight", GGUF_EXPERT},    \
    {"layers.#.mlp.experts.@.up_proj.weight", "blk.#.ffn_up_exps.weight", GGUF_EXPERT},        \
    {"layers.#.mlp.experts.@.down_proj.weight", "blk.#.ffn_down_exps.weight", GGUF_EXPERT}

static const struct gguf_name llama[] = {DECODER, GATED, HALVES, {NULL, NULL, GGUF_AS_IS}};

static const struct gguf_name mixtral[] = {
    DECODER, HALVES,
    {"layers.#.block_sparse_moe.gate.weight", "blk.#.ffn_gate_inp.weight", GGUF_AS_IS},
    {"layers.#.block_sparse_moe.experts.@.w1.weight", "blk.#.ffn_gate_exps.weight", GGUF_EXPERT},
    {"layers.#.block_sparse_moe.experts.@.w3.weight", "blk.#.ffn_up_exps.weight", GGUF_EXPERT},
    {"layers.#.block_sparse_moe.experts.@.w2.weight", "blk.#.ffn_down_exps.weight", GGUF_EXPERT},
    {NULL, NULL, GGUF_AS_IS},
};

static const struct gguf_name qwen2[] = {DECODER, GATED, NEOX, {NULL, NULL, GGUF_AS_IS}};

static const struct gguf_name qwen2_moe[] = {
    DECODER, GATED, NEOX, EXPERTS,
    {"layers.#.mlp.shared_expert_gate.weight", "blk.#.ffn_gate_inp_shexp.weight", GGUF_AS_IS},
    {"layers.#.mlp.shared_expert.gate_proj.weight", "blk.#.ffn_gate_shexp.weight", GGUF_AS_IS},
    {"layers.#.mlp.shared_expert.up_proj.weight", "blk.#.ffn_up_shexp.weight", GGUF_AS_IS},
    {"layers.#.mlp.shared_expert.down_proj.weight", "blk.#.ffn_down_shexp.weight", GGUF_AS_IS},
    {NULL, NULL, GGUF_AS_IS},
};

#define HEAD_NORMS                                                                             \
    {"layers.#.self_attn.q_norm.weight", "blk.#.attn_q_norm.weight", GGUF_AS_IS},              \
    {"layers.#.self_attn.k_norm.weight", "blk.#.attn_k_norm.weight", GGUF_AS_IS}

static const struct gguf_name qwen3[] = {
    DECODER, GATED, NEOX, HEAD_NORMS, {NULL, NULL, GGUF_AS_IS},
};

static const struct gguf_name qwen3_moe[] = {
    DECODER, GATED, NEOX, HEAD_NORMS, EXPERTS, {NULL, NULL, GGUF_AS_IS},
};

static const struct gguf_name phi3[] = {
    DECODER,
    {"layers.#.self_attn.qkv_proj.$", "blk.#.attn_qkv.$", GGUF_AS_IS},
    {"layers.#.mlp.gate_up_proj.$", "blk.#.ffn_up.$", GGUF_AS_IS},
    {"layers.#.mlp.down_proj.$", "blk.#.ffn_down.$", GGUF_AS_IS},
    {NULL, NULL, GGUF_AS_IS},
};

static const struct gguf_name gpt2[] = {
    {"wte.weight", "token_embd.weight", GGUF_AS_IS},
    {"wpe.weight", "position_embd.weight", GGUF_AS_IS},
    {"ln_f.$", "output_norm.$", GGUF_AS_IS},
    {"^lm_head.weight", "output.weight", GGUF_AS_IS},
    {"h.#.ln_1.$", "blk.#.attn_norm.$", GGUF_AS_IS},
    {"h.#.attn.c_attn.bias", "blk.#.attn_qkv.bias", GGUF_AS_IS},
    {"h.#.attn.c_attn.weight", "blk.#.attn_qkv.weight", GGUF_TRANSPOSED},
    {"h.#.attn.c_proj.bias", "blk.#.attn_output.bias", GGUF_AS_IS},
    {"h.#.attn.c_proj.weight", "blk.#.attn_output.weight", GGUF_TRANSPOSED},
    {"h.#.ln_2.$", "blk.#.ffn_norm.$", GGUF_AS_IS},
    {"h.#.mlp.c_fc.bias", "blk.#.ffn_up.bias", GGUF_AS_IS},
    {"h.#.mlp.c_fc.weight", "blk.#.ffn_up.weight", GGUF_TRANSPOSED},
    {"h.#.mlp.c_proj.bias", "blk.#.ffn_down.bias", GGUF_AS_IS},
    {"h.#.mlp.c_proj.weight", "blk.#.ffn_down.weight", GGUF_TRANSPOSED},
    {"h.#.attn.bias", NULL, GGUF_LEFT_OUT},             /* the mask, in old files */
    {"h.#.attn.masked_bias", NULL, GGUF_LEFT_OUT},
    {NULL, NULL, GGUF_AS_IS},
};

static const struct gguf_name bloom[] = {
    {"word_embeddings.weight", "token_embd.weight", GGUF_AS_IS},
    {"word_embeddings_layernorm.$", "token_embd_norm.$", GGUF_AS_IS},
    {"ln_f.$", "output_norm.$", GGUF_AS_IS},
    {"^lm_head.weight", "output.weight", GGUF_AS_IS},
    {"h.#.input_layernorm.$", "blk.#.attn_norm.$", GGUF_AS_IS},
    {"h.#.self_attention.query_key_value.$", "blk.#.attn_qkv.$", GGUF_QKV},
    {"h.#.self_attention.dense.$", "blk.#.attn_output.$", GGUF_AS_IS},
    {"h.#.post_attention_layernorm.$", "blk.#.ffn_norm.$", GGUF_AS_IS},
    {"h.#.mlp.dense_h_to_4h.$", "blk.#.ffn_up.$", GGUF_AS_IS},
    {"h.#.mlp.dense_4h_to_h.$", "blk.#.ffn_down.$", GGUF_AS_IS},
    {NULL, NULL, GGUF_AS_IS},
};

/* The first of an architecture is what a file of unknown origin is read as. */
static const struct gguf_family families[] = {
    {"llama", "llama", "LlamaForCausalLM", "model.", llama, false},
    {"mistral", "llama", "MistralForCausalLM", "model.", llama, false},
    {"mixtral", "llama", "MixtralForCausalLM", "model.", mixtral, true},
    {"qwen2", "qwen2", "Qwen2ForCausalLM", "model.", qwen2, false},
    {"qwen2_moe", "qwen2moe", "Qwen2MoeForCausalLM", "model.", qwen2_moe, true},
    {"qwen3", "qwen3", "Qwen3ForCausalLM", "model.", qwen3, false},
    {"qwen3_moe", "qwen3moe", "Qwen3MoeForCausalLM", "model.", qwen3_moe, true},
    {"phi3", "phi3", "Phi3ForCausalLM", "model.", phi3, false},
    {"gpt2", "gpt2", "GPT2LMHeadModel", "transformer.", gpt2, false},
    {"bloom", "bloom", "BloomForCausalLM", "transformer.", bloom, false},
};

#define N_FAMILIES (sizeof families / sizeof families[0])

const struct gguf_family *gguf_family(const char *model_type)
{
    for (size_t i = 0; i < N_FAMILIES; i++)
        if (strcmp(families[i].model_type, model_type) == 0)
            return &families[i];
    return NULL;
}

const struct gguf_family *gguf_family_of(const char *architecture, bool experts)
{
    for (size_t i = 0; i < N_FAMILIES; i++)
        if (strcmp(families[i].architecture, architecture) == 0 && families[i].experts == experts)
            return &families[i];
    return NULL;
}

/* A number as it is written without a sign or zeros in front, at most nine digits. */
static const char *digits(const char *s, int64_t *out)
{
    size_t n = strspn(s, "0123456789");

    if (n == 0 || n > 9 || (n > 1 && s[0] == '0'))
        return NULL;
    *out = 0;
    for (size_t i = 0; i < n; i++)
        *out = *out * 10 + (s[i] - '0');
    return s + n;
}

static bool match(const char *pattern, const char *name, struct gguf_place *at)
{
    *at = (struct gguf_place){-1, -1, NULL};
    for (; *pattern; pattern++) {
        if (*pattern == '#' || *pattern == '@') {
            name = digits(name, *pattern == '#' ? &at->layer : &at->expert);
            if (!name)
                return false;
        } else if (*pattern == '$') {
            at->what = strcmp(name, "weight") == 0 ? "weight" : "bias";
            return strcmp(name, at->what) == 0;
        } else if (*pattern != *name++) {
            return false;
        }
    }
    return *name == '\0';
}

const struct gguf_name *gguf_name_of_hf(const struct gguf_family *f, const char *name,
                                        struct gguf_place *at, bool *prefixed)
{
    size_t n = strlen(f->prefix);

    *prefixed = strncmp(name, f->prefix, n) == 0;
    for (const struct gguf_name *row = f->name; row->hf; row++) {
        bool outside = row->hf[0] == '^';

        if (match(row->hf + outside, outside || !*prefixed ? name : name + n, at))
            return row;
    }
    return NULL;
}

const struct gguf_name *gguf_name_of_gguf(const struct gguf_family *f, const char *name,
                                          struct gguf_place *at)
{
    for (const struct gguf_name *row = f->name; row->hf; row++)
        if (row->gguf && match(row->gguf, name, at))
            return row;
    return NULL;
}

bool gguf_spell(char *dst, size_t size, const char *pattern, const char *prefix,
                const struct gguf_place *at)
{
    int n = snprintf(dst, size, "%s", *pattern == '^' ? "" : prefix);

    for (pattern += *pattern == '^'; n >= 0 && (size_t)n < size && *pattern; pattern++) {
        char *to = dst + n;
        size_t room = size - (size_t)n;

        n += *pattern == '#'   ? snprintf(to, room, "%lld", (long long)at->layer)
             : *pattern == '@' ? snprintf(to, room, "%lld", (long long)at->expert)
             : *pattern == '$' ? snprintf(to, room, "%s", at->what ? at->what : "weight")
                               : snprintf(to, room, "%c", *pattern);
    }
    return n >= 0 && (size_t)n < size;
}

bool gguf_wants_f32(const char *name)
{
    static const char *const tails[] = {"_norm.weight", ".bias", "ffn_gate_inp.weight",
                                        "ffn_gate_inp_shexp.weight", "position_embd.weight"};
    size_t n = strlen(name);

    for (size_t i = 0; i < sizeof tails / sizeof tails[0]; i++)
        if (n >= strlen(tails[i]) && strcmp(name + n - strlen(tails[i]), tails[i]) == 0)
            return true;
    return strncmp(name, "rope_", 5) == 0;
}

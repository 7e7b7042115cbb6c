/*
 * llama - Llama and the families derived from it.  Defaults are those of the configuration
 * classes named per row.
 */
#include <string.h>

#include "formats/families/keys.h"
#include "formats/families/rope_config.h"
#include "libckpt/base/json.h"
#include "libckpt/mem.h"

/* Sizes of Llama and its derivatives; defaults are each family's own. */
#define LLAMA_KEYS(vocab, ff, kv, places, eps)                                                 \
    {"vocab_size", NULL, KEY_INT, AT(vocab_size), vocab, 1, MAX_VOCAB},                        \
    {"hidden_size", NULL, KEY_INT, AT(hidden_size), 4096, 1, MAX_HIDDEN},                      \
    {"intermediate_size", NULL, KEY_INT, AT(intermediate_size), ff, 1, MAX_HIDDEN},            \
    {"num_hidden_layers", NULL, KEY_INT, AT(num_hidden_layers), 32, 1, MAX_LAYERS},            \
    {"num_attention_heads", NULL, KEY_INT, AT(num_attention_heads), 32, 1, MAX_HIDDEN},        \
    {"num_key_value_heads", NULL, KEY_INT, AT(num_key_value_heads), kv, 0, MAX_HIDDEN},        \
    {"hidden_act", NULL, KEY_ACT, AT(act), ARCH_SILU, 0, 0},                                   \
    {"max_position_embeddings", NULL, KEY_INT, AT(max_position_embeddings), places, 1,         \
     MAX_POSITIONS},                                                                              \
    {"rms_norm_eps", NULL, KEY_NUM, AT(norm_eps), eps, 1e-30, 1},                              \
    {"initializer_range", NULL, KEY_NUM, AT(initializer_range), 0.02, 0, 100},                 \
    {"attention_dropout", NULL, KEY_NUM, AT(attention_dropout), 0, 0, 1},                      \
    {"pad_token_id", NULL, KEY_INT, AT(pad_token_id), -1, -1, MAX_VOCAB},                      \
    {"tie_word_embeddings", NULL, KEY_BOOL, AT(tie_word_embeddings), 0, 0, 0}

/* transformers 5.17, models/{llama,mistral,qwen2,qwen3,phi3}/configuration_*.py */
static const struct family_key llama_keys[] = {
    LLAMA_KEYS(32000, 11008, 0, 2048, 1e-6),
    {"head_dim", NULL, KEY_INT, AT(head_dim), 0, 0, MAX_HIDDEN},
    {"mlp_bias", NULL, KEY_BOOL, AT(mlp_bias), 0, 0, 0}, END,
};
static const struct family_key mistral_keys[] = {
    LLAMA_KEYS(32000, 14336, 8, 131072, 1e-6),
    {"head_dim", NULL, KEY_INT, AT(head_dim), 0, 0, MAX_HIDDEN},
    {"sliding_window", NULL, KEY_INT, AT(sliding_window), 0, 0, MAX_POSITIONS}, END,
};
static const struct family_key qwen2_keys[] = {
    LLAMA_KEYS(151936, 22016, 32, 32768, 1e-6), END,
};
static const struct family_key qwen3_keys[] = {
    LLAMA_KEYS(151936, 22016, 32, 32768, 1e-6),
    {"head_dim", NULL, KEY_INT, AT(head_dim), 128, 1, MAX_HIDDEN}, END,
};
static const struct family_key phi3_keys[] = {
    LLAMA_KEYS(32064, 8192, 0, 4096, 1e-5),
    {"sliding_window", NULL, KEY_INT, AT(sliding_window), 0, 0, MAX_POSITIONS},
    {"resid_pdrop", NULL, KEY_NUM, AT(hidden_dropout), 0, 0, 1}, END,
};
static const struct family_key mixtral_keys[] = {
    LLAMA_KEYS(32000, 14336, 8, 131072, 1e-5),
    {"head_dim", NULL, KEY_INT, AT(head_dim), 0, 0, MAX_HIDDEN},
    {"sliding_window", NULL, KEY_INT, AT(sliding_window), 0, 0, MAX_POSITIONS},
    {"num_local_experts", NULL, KEY_INT, AT(num_experts), 8, 1, MAX_EXPERTS},
    {"num_experts_per_tok", NULL, KEY_INT, AT(num_experts_per_tok), 2, 1, MAX_EXPERTS},
    {"router_jitter_noise", NULL, KEY_NUM, AT(router_jitter), 0, 0, 1}, END,
};
static const struct family_key qwen3_moe_keys[] = {
    LLAMA_KEYS(151936, 6144, 4, 32768, 1e-6),
    {"head_dim", NULL, KEY_INT, AT(head_dim), 0, 0, MAX_HIDDEN},
    {"num_experts", "num_local_experts", KEY_INT, AT(num_experts), 128, 0, MAX_EXPERTS},
    {"num_experts_per_tok", NULL, KEY_INT, AT(num_experts_per_tok), 8, 1, MAX_EXPERTS},
    {"moe_intermediate_size", NULL, KEY_INT, AT(moe_intermediate_size), 768, 1, MAX_HIDDEN},
    {"norm_topk_prob", NULL, KEY_BOOL, AT(norm_topk_prob), 0, 0, 0}, END,
};
static const struct family_key qwen2_moe_keys[] = {
    LLAMA_KEYS(151936, 5632, 16, 32768, 1e-6),
    {"num_experts", "num_local_experts", KEY_INT, AT(num_experts), 60, 0, MAX_EXPERTS},
    {"num_experts_per_tok", NULL, KEY_INT, AT(num_experts_per_tok), 4, 1, MAX_EXPERTS},
    {"moe_intermediate_size", NULL, KEY_INT, AT(moe_intermediate_size), 1408, 1, MAX_HIDDEN}, END,
};
static const char *const llama_ignored[] = {"pretraining_tp", NULL};
static const char *const phi3_ignored[] = {"embd_pdrop", "pretraining_tp", NULL};
#define ROPE_READ                                                                              \
    "rope_parameters", "rope_scaling", "rope_theta", "attention_bias",                         \
    "original_max_position_embeddings"
#define WINDOW_READ                                                                            \
    ROPE_READ, "layer_types", "use_sliding_window", "sliding_window", "max_window_layers"
static const char *const llama_read[] = {ROPE_READ, NULL};
static const char *const window_read[] = {WINDOW_READ, "partial_rotary_factor", NULL};
static const char *const experts_read[] = {
    WINDOW_READ, "output_router_logits", "router_aux_loss_coef", "decoder_sparse_step",
    "mlp_only_layers", NULL,
};

static const struct family_name llama_before[] = {
    {ROLE_TOKENS, "embed_tokens.weight"}, NAMES_END,
};
static const struct family_name llama_after[] = {
    {ROLE_FINAL_NORM_W, "norm.$"}, {ROLE_HEAD_W, "^lm_head.weight"}, NAMES_END,
};

#define ATTENTION                                                                              \
    {ROLE_Q_W, "layers.#.self_attn.q_proj.$"}, {ROLE_K_W, "layers.#.self_attn.k_proj.$"},      \
    {ROLE_V_W, "layers.#.self_attn.v_proj.$"}, {ROLE_OUT_W, "layers.#.self_attn.o_proj.$"}
#define HEAD_NORMS                                                                             \
    {ROLE_Q_NORM, "layers.#.self_attn.q_norm.weight"},                                         \
    {ROLE_K_NORM, "layers.#.self_attn.k_norm.weight"}
#define EXPERTS                                                                                \
    {ROLE_ROUTER_W, "layers.#.mlp.gate.weight"},                                               \
    {ROLE_EXPERT_GATE, "layers.#.mlp.experts.@.gate_proj.weight"},                             \
    {ROLE_EXPERT_UP, "layers.#.mlp.experts.@.up_proj.weight"},                                 \
    {ROLE_EXPERT_DOWN, "layers.#.mlp.experts.@.down_proj.weight"}
#define GATED                                                                                  \
    {ROLE_GATE_W, "layers.#.mlp.gate_proj.$"}, {ROLE_UP_W, "layers.#.mlp.up_proj.$"},          \
    {ROLE_DOWN_W, "layers.#.mlp.down_proj.$"}
#define NORMS                                                                                  \
    {ROLE_NORM1_W, "layers.#.input_layernorm.$"},                                              \
    {ROLE_NORM2_W, "layers.#.post_attention_layernorm.$"}, NAMES_END

static const struct family_name llama_block[] = {ATTENTION, GATED, NORMS};
static const struct family_name qwen3_block[] = {ATTENTION, HEAD_NORMS, GATED, NORMS};
static const struct family_name qwen3_moe_block[] = {ATTENTION, HEAD_NORMS, EXPERTS, GATED, NORMS};
static const struct family_name qwen2_moe_block[] = {
    ATTENTION, EXPERTS,
    {ROLE_SHARED_GATE, "layers.#.mlp.shared_expert.gate_proj.weight"},
    {ROLE_SHARED_UP, "layers.#.mlp.shared_expert.up_proj.weight"},
    {ROLE_SHARED_DOWN, "layers.#.mlp.shared_expert.down_proj.weight"},
    {ROLE_SHARED_ROUTER, "layers.#.mlp.shared_expert_gate.weight"}, GATED, NORMS,
};
static const struct family_name mixtral_block[] = {
    ATTENTION,
    {ROLE_ROUTER_W, "layers.#.block_sparse_moe.gate.weight"},
    {ROLE_EXPERT_GATE, "layers.#.block_sparse_moe.experts.@.w1.weight"},
    {ROLE_EXPERT_DOWN, "layers.#.block_sparse_moe.experts.@.w2.weight"},
    {ROLE_EXPERT_UP, "layers.#.block_sparse_moe.experts.@.w3.weight"}, NORMS,
};
static const struct family_name phi3_block[] = {
    {ROLE_OUT_W, "layers.#.self_attn.o_proj.$"}, {ROLE_QKV_W, "layers.#.self_attn.qkv_proj.$"},
    {ROLE_GATE_UP_W, "layers.#.mlp.gate_up_proj.weight"},
    {ROLE_DOWN_W, "layers.#.mlp.down_proj.$"}, NORMS,
};
/* Rotary frequencies in older files. */
static const char *const llama_spare[] = {"*.rotary_emb.inv_freq", NULL};
static const struct family_gguf_key qwen2_moe_gguf[] = {
    {"expert_shared_feed_forward_length", "shared_expert_intermediate_size"}, {NULL, NULL},
};

/* Which blocks have the window: from layer_types, or all from first on. */
static int read_windows(struct arch *a, const json_t *config, int64_t first,
                        struct ckpt_err *err)
{
    const json_t *types = json_object_get(config, "layer_types");
    size_t n = (size_t)a->num_hidden_layers;

    if (a->sliding_window == 0)
        return 0;
    if (json_is_array(types) && json_array_size(types) != n)
        return ckpt_fail(err, CKPT_EFORMAT, "layer_types has %zu entries for %zu blocks",
                         json_array_size(types), n);
    a->windowed = ckpt_alloc(n, sizeof *a->windowed);
    if (!a->windowed)
        return ckpt_nomem(err, n);
    for (size_t i = 0; i < n; i++) {
        const char *type = json_string_value(json_array_get(types, i));

        a->windowed[i] = type ? strcmp(type, "sliding_attention") == 0 : (int64_t)i >= first;
        if (type && !a->windowed[i] && strcmp(type, "full_attention") != 0)
            return ckpt_fail_as(err, CKPT_EUNSUPPORTED, "config-key",
                                "layer_types: %s is not known here", type);
    }
    return 0;
}

/* The window applies if use_sliding_window is set, in blocks from max_window_layers on. */
static int read_qwen_windows(struct arch *a, const json_t *config, struct ckpt_err *err)
{
    int64_t window, first;
    bool used;
    int rc;

    if ((rc = ckpt_json_bool_or(&used, config, "use_sliding_window", false, err)) != 0 ||
        (rc = ckpt_json_int_or(&window, config, "sliding_window", 4096, err)) != 0 ||
        (rc = ckpt_json_int_or(&first, config, "max_window_layers", 28, err)) != 0)
        return rc;
    if (window < 0 || window > MAX_POSITIONS)
        return ckpt_fail(err, CKPT_EFORMAT, "sliding_window is %lld", (long long)window);
    a->sliding_window = used ? window : 0;
    return read_windows(a, config, first, err);
}

/* Check the router's options other than routing itself. */
static int check_router(struct arch *a, const json_t *config, struct ckpt_err *err)
{
    double coef;
    bool aux;
    int rc;

    if ((rc = ckpt_json_num_or(&coef, config, "router_aux_loss_coef", 0.001, err)) != 0 ||
        (rc = ckpt_json_bool_or(&aux, config, "output_router_logits", false, err)) != 0)
        return rc;
    if (!(coef >= 0 && coef <= 1e6))
        return ckpt_fail(err, CKPT_EFORMAT, "router_aux_loss_coef is %g", coef);
    a->router_aux = aux && a->num_experts ? coef : 0;
    if (a->num_experts_per_tok > a->num_experts && a->num_experts)
        return ckpt_fail(err, CKPT_EFORMAT, "num_experts_per_tok is %lld of %lld experts",
                         (long long)a->num_experts_per_tok, (long long)a->num_experts);
    return 0;
}

/* Blocks without experts: those listed, and all except every n-th. */
static int read_dense(struct arch *a, const json_t *config, struct ckpt_err *err)
{
    const json_t *only = json_object_get(config, "mlp_only_layers");
    int64_t step, L = a->num_hidden_layers;
    int rc;

    if ((rc = ckpt_json_int_or(&step, config, "decoder_sparse_step", 1, err)) != 0)
        return rc;
    if (step < 1)
        return ckpt_fail(err, CKPT_EFORMAT, "decoder_sparse_step is %lld", (long long)step);
    a->dense = ckpt_alloc((size_t)L, sizeof *a->dense);
    if (!a->dense)
        return ckpt_nomem(err, (size_t)L);
    for (int64_t l = 0; l < L; l++)
        a->dense[l] = (l + 1) % step != 0;
    for (size_t i = 0; i < json_array_size(only); i++) {
        int64_t l = json_integer_value(json_array_get(only, i));

        if (l >= 0 && l < L)
            a->dense[l] = true;
    }
    return 0;
}

/* Parts of a family's config.json beyond its keys. */
enum { WINDOWS = 1, QWEN_WINDOWS = 2, BIAS = 4, ROUTER = 8, DENSE = 16 };

static int llama_finish(struct arch *a, const json_t *config, struct ckpt_err *err)
{
    unsigned says = a->family->says;
    int rc = says & ROUTER ? check_router(a, config, err) : 0;

    if (a->num_experts && a->moe_intermediate_size == 0)
        a->moe_intermediate_size = a->intermediate_size;
    if (rc == 0 && says & DENSE)
        rc = read_dense(a, config, err);
    if (rc == 0 && says & WINDOWS)
        rc = read_windows(a, config, 0, err);
    if (rc == 0 && says & QWEN_WINDOWS)
        rc = read_qwen_windows(a, config, err);
    if (rc == 0 && says & BIAS) {
        rc = ckpt_json_bool_or(&a->qkv_bias, config, "attention_bias", false, err);
        a->out_bias = a->qkv_bias;
    }
    return rc ? rc : rope_config_read(a, config, err);
}

/* Choices that Llama and its kin share. */
#define LLAMA_LIKE                                                                             \
    .stack = ARCH_DECODER, .pos = ARCH_POS_ROPE, .norm = ARCH_RMS_NORM,                        \
    .place = ARCH_PRE_NORM, .final_norm = true, .mlp = ARCH_MLP_GATED,                         \
    .weight_order = ARCH_OUT_IN, .emb_mul = 1, .head_mul = 1
#define LLAMA_NAMES                                                                            \
    .prefix = "model.", .before = llama_before, .after = llama_after, .spare = llama_spare,    \
    .finish = llama_finish

const struct family families_llama[] = {
    {
        .model_type = "llama", .architecture = "LlamaForCausalLM", LLAMA_NAMES,
        .tokenizer_class = "LlamaTokenizer",
        .block = llama_block, .lora_targets = "q_proj,v_proj", .gguf = "llama",
        .gguf_llama = true, .fixed = {LLAMA_LIKE}, .keys = llama_keys, .ignored = llama_ignored,
        .read = llama_read, .says = BIAS,
    },
    {
        .model_type = "mistral", .architecture = "MistralForCausalLM", LLAMA_NAMES,
        .tokenizer_class = "LlamaTokenizer",
        .block = llama_block, .lora_targets = "q_proj,v_proj", .gguf = "llama",
        .gguf_llama = true, .fixed = {LLAMA_LIKE}, .keys = mistral_keys,
        .ignored = llama_ignored, .read = window_read, .says = WINDOWS,
    },
    {
        .model_type = "qwen2", .architecture = "Qwen2ForCausalLM", LLAMA_NAMES,
        .tokenizer_class = "Qwen2Tokenizer",
        .block = llama_block, .lora_targets = "q_proj,v_proj", .gguf = "qwen2",
        .fixed = {LLAMA_LIKE, .qkv_bias = true}, .keys = qwen2_keys, .ignored = llama_ignored,
        .read = window_read, .says = QWEN_WINDOWS,
    },
    {
        .model_type = "qwen3", .architecture = "Qwen3ForCausalLM", LLAMA_NAMES,
        .tokenizer_class = "Qwen2Tokenizer",
        .block = qwen3_block, .lora_targets = "q_proj,v_proj", .gguf = "qwen3",
        .fixed = {LLAMA_LIKE, .qk_norm = ARCH_QK_NORM_HEAD}, .keys = qwen3_keys,
        .ignored = llama_ignored, .read = window_read, .says = QWEN_WINDOWS | BIAS,
    },
    {
        .model_type = "mixtral", .architecture = "MixtralForCausalLM", LLAMA_NAMES,
        .tokenizer_class = "LlamaTokenizer",
        .block = mixtral_block, .lora_targets = "q_proj,v_proj", .gguf = "llama",
        .gguf_llama = true, .fixed = {LLAMA_LIKE, .norm_topk_prob = true, .rope.theta = 1e6},
        .keys = mixtral_keys, .ignored = llama_ignored, .read = experts_read,
        .says = ROUTER | WINDOWS,
    },
    {
        .model_type = "qwen3_moe", .architecture = "Qwen3MoeForCausalLM", LLAMA_NAMES,
        .block = qwen3_moe_block, .gguf = "qwen3moe",
        .fixed = {LLAMA_LIKE, .qk_norm = ARCH_QK_NORM_HEAD}, .experts_first = true,
        .keys = qwen3_moe_keys, .ignored = llama_ignored, .read = experts_read,
        .says = ROUTER | DENSE | QWEN_WINDOWS | BIAS,
    },
    {
        .model_type = "qwen2_moe", .architecture = "Qwen2MoeForCausalLM", LLAMA_NAMES,
        .block = qwen2_moe_block, .gguf = "qwen2moe", .gguf_keys = qwen2_moe_gguf,
        .fixed = {LLAMA_LIKE, .qkv_bias = true}, .untrained = true, .keys = qwen2_moe_keys,
    },
    {
        .model_type = "phi3", .architecture = "Phi3ForCausalLM", LLAMA_NAMES,
        .block = phi3_block, .gguf = "phi3", .fixed = {LLAMA_LIKE, .qkv = ARCH_QKV_BLOCKS},
        .longrope = true, .keys = phi3_keys, .ignored = phi3_ignored, .read = window_read,
        .says = WINDOWS,
    },
    {.model_type = NULL},
};

/* family - see family.h.  Defaults are those of the configuration classes named per row. */
#include "formats/families/family.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "libckpt/base/json.h"
#include "libckpt/mem.h"
#include "formats/families/keys.h"
#include "formats/families/rope_config.h"

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

/* transformers 5.17, models/opt/configuration_opt.py */
static const struct family_key opt_keys[] = {
    {"vocab_size", NULL, KEY_INT, AT(vocab_size), 50272, 1, MAX_VOCAB},
    {"hidden_size", NULL, KEY_INT, AT(hidden_size), 768, 1, MAX_HIDDEN},
    {"num_hidden_layers", NULL, KEY_INT, AT(num_hidden_layers), 12, 1, MAX_LAYERS},
    {"num_attention_heads", NULL, KEY_INT, AT(num_attention_heads), 12, 1, MAX_HIDDEN},
    {"ffn_dim", NULL, KEY_INT, AT(intermediate_size), 3072, 1, MAX_HIDDEN},
    {"max_position_embeddings", NULL, KEY_INT, AT(max_position_embeddings), 2048, 1, MAX_PLACES},
    {"word_embed_proj_dim", NULL, KEY_INT, AT(word_embed_proj_dim), 0, 0, MAX_HIDDEN},
    {"pad_token_id", NULL, KEY_INT, AT(pad_token_id), 1, 0, MAX_VOCAB},
    {"activation_function", NULL, KEY_ACT, AT(act), ARCH_RELU, 0, 0},
    {"init_std", NULL, KEY_NUM, AT(initializer_range), 0.02, 0, 100},
    {"dropout", NULL, KEY_NUM, AT(hidden_dropout), 0.1, 0, 1},
    {"attention_dropout", NULL, KEY_NUM, AT(attention_dropout), 0, 0, 1},
    {"tie_word_embeddings", NULL, KEY_BOOL, AT(tie_word_embeddings), 1, 0, 0},
    END,
};
static const char *const opt_ignored[] = {"activation_dropout", NULL};
static const char *const opt_read[] = {
    "do_layer_norm_before", "_remove_final_layer_norm", "enable_bias",
    "layer_norm_elementwise_affine", "layerdrop", NULL,
};

static int opt_finish(struct arch *a, const json_t *config, struct ckpt_err *err)
{
    bool before, removed, affine;
    double layerdrop;

    if (ckpt_json_bool_or(&before, config, "do_layer_norm_before", true, err) ||
        ckpt_json_bool_or(&removed, config, "_remove_final_layer_norm", false, err) ||
        ckpt_json_bool_or(&a->qkv_bias, config, "enable_bias", true, err) ||
        ckpt_json_bool_or(&affine, config, "layer_norm_elementwise_affine", true, err) ||
        ckpt_json_num_or(&layerdrop, config, "layerdrop", 0, err))
        return err->code;
    a->out_bias = a->mlp_bias = a->qkv_bias;
    a->place = before ? ARCH_PRE_NORM : ARCH_POST_NORM;
    a->final_norm = before && !removed;
    a->norm_bare = !affine;
    if (layerdrop == 0)
        return 0;
    return ckpt_fail_as(err, CKPT_EUNSUPPORTED, "config-key", "key layerdrop changes the "
                        "mathematics, and opt has no such choice here");
}

/* transformers 5.17, models/gpt2/configuration_gpt2.py */
static const struct family_key gpt2_keys[] = {
    {"vocab_size", NULL, KEY_INT, AT(vocab_size), 50257, 1, MAX_VOCAB},
    {"n_embd", "hidden_size", KEY_INT, AT(hidden_size), 768, 1, MAX_HIDDEN},
    {"n_layer", "num_hidden_layers", KEY_INT, AT(num_hidden_layers), 12, 1, MAX_LAYERS},
    {"n_head", "num_attention_heads", KEY_INT, AT(num_attention_heads), 12, 1, MAX_HIDDEN},
    {"n_inner", NULL, KEY_INT, AT(intermediate_size), 0, 0, MAX_HIDDEN},
    {"n_positions", "max_position_embeddings", KEY_INT, AT(max_position_embeddings), 1024, 1,
     MAX_PLACES},
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
    bool scaled;

    if (ckpt_json_bool_or(&scaled, config, "scale_attn_weights", true, err))
        return err->code;
    if (!scaled)
        a->attn_scale = 1;
    return 0;
}

/* Causal masks and rotary frequencies that older files carry, and OPT's version number. */
static const char *const opt_spare[] = {"*decoder.version", NULL};
static const char *const gpt2_spare[] = {"*h.*.attn.bias", "*h.*.attn.masked_bias", NULL};
static const char *const llama_spare[] = {"*.rotary_emb.inv_freq", NULL};

/* Sizes of Llama and its kin; defaults are a family's own. */
#define LLAMA_KEYS(vocab, ff, kv, places, eps)                                                 \
    {"vocab_size", NULL, KEY_INT, AT(vocab_size), vocab, 1, MAX_VOCAB},                        \
    {"hidden_size", NULL, KEY_INT, AT(hidden_size), 4096, 1, MAX_HIDDEN},                      \
    {"intermediate_size", NULL, KEY_INT, AT(intermediate_size), ff, 1, MAX_HIDDEN},            \
    {"num_hidden_layers", NULL, KEY_INT, AT(num_hidden_layers), 32, 1, MAX_LAYERS},            \
    {"num_attention_heads", NULL, KEY_INT, AT(num_attention_heads), 32, 1, MAX_HIDDEN},        \
    {"num_key_value_heads", NULL, KEY_INT, AT(num_key_value_heads), kv, 0, MAX_HIDDEN},        \
    {"hidden_act", NULL, KEY_ACT, AT(act), ARCH_SILU, 0, 0},                                   \
    {"max_position_embeddings", NULL, KEY_INT, AT(max_position_embeddings), places, 1,         \
     MAX_PLACES},                                                                              \
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
    {"sliding_window", NULL, KEY_INT, AT(sliding_window), 0, 0, MAX_PLACES}, END,
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
    {"sliding_window", NULL, KEY_INT, AT(sliding_window), 0, 0, MAX_PLACES},
    {"resid_pdrop", NULL, KEY_NUM, AT(hidden_dropout), 0, 0, 1}, END,
};
static const struct family_key mixtral_keys[] = {
    LLAMA_KEYS(32000, 14336, 8, 131072, 1e-5),
    {"head_dim", NULL, KEY_INT, AT(head_dim), 0, 0, MAX_HIDDEN},
    {"sliding_window", NULL, KEY_INT, AT(sliding_window), 0, 0, MAX_PLACES},
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
static const char *const llama_ignored[] = {"pretraining_tp", NULL};
static const char *const phi3_ignored[] = {"embd_pdrop", "pretraining_tp", NULL};
static const char *const llama_read[] = {
    "rope_parameters", "rope_scaling", "rope_theta", "attention_bias",
    "original_max_position_embeddings", NULL,
};
static const char *const experts_read[] = {
    "rope_parameters", "rope_scaling", "rope_theta", "attention_bias", "layer_types",
    "use_sliding_window", "sliding_window", "max_window_layers",
    "original_max_position_embeddings", "output_router_logits", "router_aux_loss_coef",
    "decoder_sparse_step", "mlp_only_layers", NULL,
};
static const char *const window_read[] = {
    "rope_parameters", "rope_scaling", "rope_theta", "attention_bias", "layer_types",
    "use_sliding_window", "sliding_window", "max_window_layers", "partial_rotary_factor",
    "original_max_position_embeddings", NULL,
};

/* Which blocks have the window: layer_types says, or those from first on. */
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

static int llama_finish(struct arch *a, const json_t *config, struct ckpt_err *err)
{
    if (ckpt_json_bool_or(&a->qkv_bias, config, "attention_bias", false, err))
        return err->code;
    a->out_bias = a->qkv_bias;
    return rope_config_read(a, config, false, false, err);
}

static int mistral_finish(struct arch *a, const json_t *config, struct ckpt_err *err)
{
    return read_windows(a, config, 0, err) ? err->code
                                           : rope_config_read(a, config, false, false, err);
}

/* The window counts where use_sliding_window says so, in blocks from max_window_layers on. */
static int read_qwen_windows(struct arch *a, const json_t *config, struct ckpt_err *err)
{
    int64_t window, first;
    bool used;

    if (ckpt_json_bool_or(&used, config, "use_sliding_window", false, err) ||
        ckpt_json_int_or(&window, config, "sliding_window", 4096, err) ||
        ckpt_json_int_or(&first, config, "max_window_layers", 28, err))
        return err->code;
    if (window < 0 || window > MAX_PLACES)
        return ckpt_fail(err, CKPT_EFORMAT, "sliding_window is %lld", (long long)window);
    a->sliding_window = used ? window : 0;
    return read_windows(a, config, first, err);
}

static int qwen2_finish(struct arch *a, const json_t *config, struct ckpt_err *err)
{
    return read_qwen_windows(a, config, err) ? err->code
                                             : rope_config_read(a, config, false, false, err);
}

static int qwen3_finish(struct arch *a, const json_t *config, struct ckpt_err *err)
{
    return read_qwen_windows(a, config, err) ? err->code : llama_finish(a, config, err);
}

/* What a router does besides routing. */
static int check_router(struct arch *a, const json_t *config, struct ckpt_err *err)
{
    double coef;
    bool aux;

    if (ckpt_json_num_or(&coef, config, "router_aux_loss_coef", 0.001, err) ||
        ckpt_json_bool_or(&aux, config, "output_router_logits", false, err))
        return err->code;
    if (!(coef >= 0 && coef <= 1e6))
        return ckpt_fail(err, CKPT_EFORMAT, "router_aux_loss_coef is %g", coef);
    a->router_aux = aux && a->num_experts ? coef : 0;
    if (a->num_experts_per_tok > a->num_experts && a->num_experts)
        return ckpt_fail(err, CKPT_EFORMAT, "num_experts_per_tok is %lld of %lld experts",
                         (long long)a->num_experts_per_tok, (long long)a->num_experts);
    return 0;
}

static int mixtral_finish(struct arch *a, const json_t *config, struct ckpt_err *err)
{
    a->moe_intermediate_size = a->intermediate_size;
    return check_router(a, config, err) ? err->code : mistral_finish(a, config, err);
}

/* Blocks without experts: those listed, and all but every n-th. */
static int read_dense(struct arch *a, const json_t *config, struct ckpt_err *err)
{
    const json_t *only = json_object_get(config, "mlp_only_layers");
    int64_t step, L = a->num_hidden_layers;

    if (ckpt_json_int_or(&step, config, "decoder_sparse_step", 1, err))
        return err->code;
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

static int qwen3_moe_finish(struct arch *a, const json_t *config, struct ckpt_err *err)
{
    if (check_router(a, config, err) || read_dense(a, config, err))
        return err->code;
    return qwen3_finish(a, config, err);
}

static int phi3_finish(struct arch *a, const json_t *config, struct ckpt_err *err)
{
    return read_windows(a, config, 0, err) ? err->code
                                           : rope_config_read(a, config, true, true, err);
}

/* Choices that Llama and its kin share. */
#define LLAMA_LIKE                                                                             \
    .stack = ARCH_DECODER, .pos = ARCH_POS_ROPE, .norm = ARCH_RMS_NORM,                        \
    .place = ARCH_PRE_NORM, .final_norm = true, .mlp = ARCH_MLP_GATED,                         \
    .weight_order = ARCH_OUT_IN, .emb_mul = 1, .head_mul = 1
#define LLAMA_NAMES                                                                            \
    .before = names_llama_before, .block = names_llama_block, .after = names_llama_after,      \
    .spare = llama_spare

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
        .before = names_opt_before, .block = names_opt_block, .after = names_opt_after,
        .spare = opt_spare,
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
        .before = names_gpt2_before, .block = names_gpt2_block, .after = names_gpt2_after,
        .spare = gpt2_spare,
    },
    {
        .model_type = "llama", .architecture = "LlamaForCausalLM", .prefix = "model.",
        .fixed = {LLAMA_LIKE, .qkv = ARCH_QKV_SEPARATE},
        .keys = llama_keys, .ignored = llama_ignored, .read = llama_read, .finish = llama_finish,
        LLAMA_NAMES,
    },
    {
        .model_type = "mistral", .architecture = "MistralForCausalLM", .prefix = "model.",
        .fixed = {LLAMA_LIKE, .qkv = ARCH_QKV_SEPARATE},
        .keys = mistral_keys, .ignored = llama_ignored, .read = window_read,
        .finish = mistral_finish, LLAMA_NAMES,
    },
    {
        .model_type = "qwen2", .architecture = "Qwen2ForCausalLM", .prefix = "model.",
        .fixed = {LLAMA_LIKE, .qkv = ARCH_QKV_SEPARATE, .qkv_bias = true},
        .keys = qwen2_keys, .ignored = llama_ignored, .read = window_read,
        .finish = qwen2_finish, LLAMA_NAMES,
    },
    {
        .model_type = "qwen3", .architecture = "Qwen3ForCausalLM", .prefix = "model.",
        .fixed = {LLAMA_LIKE, .qkv = ARCH_QKV_SEPARATE, .qk_norm = ARCH_QK_NORM_HEAD},
        .keys = qwen3_keys, .ignored = llama_ignored, .read = window_read,
        .finish = qwen3_finish, LLAMA_NAMES,
    },
    {
        .model_type = "mixtral", .architecture = "MixtralForCausalLM", .prefix = "model.",
        .fixed = {LLAMA_LIKE, .qkv = ARCH_QKV_SEPARATE, .norm_topk_prob = true},
        .keys = mixtral_keys, .ignored = llama_ignored, .read = experts_read,
        .finish = mixtral_finish,
        .before = names_llama_before, .block = names_mixtral_block, .after = names_llama_after,
        .spare = llama_spare,
    },
    {
        .model_type = "qwen3_moe", .architecture = "Qwen3MoeForCausalLM", .prefix = "model.",
        .fixed = {LLAMA_LIKE, .qkv = ARCH_QKV_SEPARATE, .qk_norm = ARCH_QK_NORM_HEAD},
        .experts_first = true, .keys = qwen3_moe_keys, .ignored = llama_ignored,
        .read = experts_read,
        .finish = qwen3_moe_finish, LLAMA_NAMES,
    },
    {
        .model_type = "phi3", .architecture = "Phi3ForCausalLM", .prefix = "model.",
        .fixed = {LLAMA_LIKE, .qkv = ARCH_QKV_BLOCKS},
        .keys = phi3_keys, .ignored = phi3_ignored, .read = window_read, .finish = phi3_finish,
        .before = names_llama_before, .block = names_phi3_block, .after = names_llama_after,
        .spare = llama_spare,
    },
};

#define N_FAMILIES (sizeof families / sizeof families[0])

/* Over both tables. */
static const struct family *first_family(void) { return families; }

static const struct family *next_family(const struct family *f)
{
    f++;
    if (f == families + N_FAMILIES)
        f = families_encoders;
    return f->model_type ? f : NULL;
}

const struct family *family_find(const char *model_type, const char *architecture)
{
    for (const struct family *f = first_family(); f; f = next_family(f))
        if ((model_type && strcmp(model_type, f->model_type) == 0) ||
            (architecture && strcmp(architecture, f->architecture) == 0))
            return f;
    return NULL;
}

const struct name *family_block(const struct arch *arch, int64_t layer)
{
    const struct family *f = arch->family;

    return f->encoder && arch_is_encoder(arch, layer) ? f->encoder : f->block;
}

const char *family_known(char *dst, size_t size)
{
    const char *last = "";
    size_t n = 0;

    dst[0] = '\0';
    for (const struct family *f = first_family(); f && n < size; f = next_family(f)) {
        if (strcmp(f->model_type, last) != 0)
            n += (size_t)snprintf(dst + n, size - n, "%s%s", n ? ", " : "", f->model_type);
        last = f->model_type;
    }
    return dst;
}

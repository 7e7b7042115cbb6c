/* arch - see arch.h. */
#include "formats/families/arch.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "formats/quant/quant.h"
#include "formats/quant/config.h"
#include "libckpt/base/json.h"
#include "libckpt/log.h"
#include "libckpt/mem.h"
#include "formats/families/family.h"

#define MAX_CONFIG_BYTES ((uint64_t)16 << 20)   /* id2label of a large classifier takes 1 MB */

/* Keys of every model: names, ids, dtype, generation and output switches. */
static const char *const harmless[] = {
    "model_type", "architectures", "transformers_version", "torch_dtype", "dtype",
    "_name_or_path", "name_or_path", "use_cache", "bos_token_id", "eos_token_id",
    "pad_token_id", "unk_token_id", "sep_token_id", "cls_token_id", "tokenizer_class",
    "task_specific_params",
    "prefix", "id2label", "label2id", "num_labels", "problem_type", "finetuning_task",
    "return_dict", "return_dict_in_generate", "output_attentions", "output_hidden_states",
    "output_scores", "torchscript", "is_decoder", "chunk_size_feed_forward", "do_sample",
    "max_length", "min_length", "early_stopping", "num_beams", "num_beam_groups",
    "num_return_sequences", "diversity_penalty", "temperature", "top_k", "top_p", "typical_p",
    "repetition_penalty", "length_penalty", "no_repeat_ngram_size",
    "exponential_decay_length_penalty", "encoder_no_repeat_ngram_size", "bad_words_ids",
    "suppress_tokens", "begin_suppress_tokens",
    "forced_bos_token_id", "forced_eos_token_id", "remove_invalid_values",
    "decoder_start_token_id", "use_bfloat16", "tf_legacy_loss", "auto_map",
    "attn_implementation", "_attn_implementation", "_attn_implementation_autoset",
    "gradient_checkpointing", "max_position_embeddings", "_commit_hash", "summary_type",
    "summary_use_proj", "summary_activation", "summary_proj_to_labels", "summary_first_dropout",
    NULL,
};
/* Keys that select a mechanism: neutral when absent, null, false, 0 or empty. */
static const char *const mechanisms[] = {
    "rope_scaling", "rope_parameters", "rope_theta", "partial_rotary_factor", "sliding_window",
    "use_sliding_window", "layer_types", "num_key_value_heads", "head_dim", "multi_query",
    "parallel_attn", "new_decoder_architecture", "qk_layernorm", "use_qk_norm",
    "attn_logit_softcapping", "final_logit_softcapping", "logit_scale", "logits_scaling",
    "query_pre_attn_scalar", "num_local_experts", "num_experts", "n_routed_experts",
    "is_encoder_decoder", "add_cross_attention", "cross_attention_hidden_size", "pruned_heads",
    "tie_encoder_decoder", "word_embed_proj_dim",
    "scale_attn_by_inverse_layer_idx", NULL,
};

static bool listed(const char *const *list, const char *key)
{
    for (; list && *list; list++)
        if (strcmp(*list, key) == 0)
            return true;
    return false;
}

static const struct family_key *key_of(const struct family *f, const char *name)
{
    for (const struct family_key *k = f->keys; k->name; k++)
        if (strcmp(k->name, name) == 0 || (k->alias && strcmp(k->alias, name) == 0))
            return k;
    return NULL;
}

static bool neutral(const json_t *v)
{
    return json_is_null(v) || json_is_false(v) ||
           (json_is_number(v) && json_number_value(v) == 0) ||
           (json_is_array(v) && json_array_size(v) == 0) ||
           (json_is_object(v) && json_object_size(v) == 0);
}

/* Every key of the file must be read by the family, without effect, or else is refused. */
static int check_keys(const struct family *f, const json_t *config, struct ckpt_err *err)
{
    const char *key;
    json_t *value;

    /* jansson iterates through a non-const pointer and changes nothing. */
    json_object_foreach((json_t *)(uintptr_t)config, key, value) {
        if (key_of(f, key) || listed(harmless, key) || listed(f->ignored, key) ||
            listed(f->read, key) || neutral(value))
            continue;
        if (listed(mechanisms, key))
            return ckpt_fail_as(
                err, CKPT_EUNSUPPORTED, "config-key",
                "key %s changes the mathematics, and %s has no such choice here", key,
                f->model_type);
        ckpt_log(CKPT_LOG_NOTE, "config.json: key %s is unknown; it is kept and has no effect",
                 key);
    }
    return 0;
}

static const struct {
    const char   *name;
    enum arch_act act;
} acts[] = {
    {"relu", ARCH_RELU}, {"gelu", ARCH_GELU_ERF}, {"gelu_python", ARCH_GELU_ERF},
    {"gelu_new", ARCH_GELU_TANH}, {"gelu_pytorch_tanh", ARCH_GELU_TANH},
    {"gelu_fast", ARCH_GELU_TANH}, {"silu", ARCH_SILU}, {"swish", ARCH_SILU},
    {"quick_gelu", ARCH_QUICK_GELU},
};

bool arch_act_of(enum arch_act *act, const char *name)
{
    for (size_t i = 0; i < sizeof acts / sizeof acts[0]; i++)
        if (strcmp(acts[i].name, name) == 0) {
            *act = acts[i].act;
            return true;
        }
    return false;
}

/* fallback is the enum's value. */
static int read_act(enum arch_act *act, const struct family_key *k, const json_t *config,
                    const char *name, struct ckpt_err *err)
{
    const char *text;
    int rc = ckpt_json_str_or(&text, config, name, NULL, err);

    *act = (enum arch_act)k->fallback;
    if (rc || !text)
        return rc;
    return arch_act_of(act, text)
               ? 0
               : ckpt_fail_as(err, CKPT_EUNSUPPORTED, "config-key",
                              "key %s: no activation %s here", name, text);
}

static int out_of_range(const struct family_key *k, double v, struct ckpt_err *err)
{
    return ckpt_fail(err, CKPT_EFORMAT, "key %s is %g, wanted %g to %g", k->name, v, k->min,
                     k->max);
}

static int read_key(struct arch *a, const struct family_key *k, const json_t *config,
                    struct ckpt_err *err)
{
    const char *name = k->alias && !json_object_get(config, k->name) ? k->alias : k->name;
    unsigned char *at = (unsigned char *)a + k->at;
    int64_t i = 0;
    double d = 0;
    bool b = false;
    int rc;

    switch (k->kind) {
    case KEY_INT:
        rc = ckpt_json_int_or(&i, config, name, (int64_t)k->fallback, err);
        if (rc == 0 && (i < (int64_t)k->min || i > (int64_t)k->max))
            rc = out_of_range(k, (double)i, err);
        memcpy(at, &i, sizeof i);
        return rc;
    case KEY_NUM:
        rc = ckpt_json_num_or(&d, config, name, k->fallback, err);
        if (rc == 0 && !(d >= k->min && d <= k->max))
            rc = out_of_range(k, d, err);
        memcpy(at, &d, sizeof d);
        return rc;
    case KEY_BOOL:
        rc = ckpt_json_bool_or(&b, config, name, k->fallback != 0, err);
        memcpy(at, &b, sizeof b);
        return rc;
    case KEY_ACT:
        return read_act((enum arch_act *)(void *)at, k, config, name, err);
    }
    return ckpt_fail(err, CKPT_ESTATE, "key %s: kind %d", k->name, (int)k->kind);
}

/* Derive sizes from others. */
static int derive(struct arch *a, struct ckpt_err *err)
{
    int64_t h = a->hidden_size, heads = a->num_attention_heads;

    if (a->num_key_value_heads == 0)
        a->num_key_value_heads = heads;
    if (a->head_dim == 0) {
        if (h % heads)
            return ckpt_fail(err, CKPT_EFORMAT,
                             "hidden_size is %lld, which %lld attention heads do not divide",
                             (long long)h, (long long)heads);
        a->head_dim = h / heads;
    }
    if (heads % a->num_key_value_heads)
        return ckpt_fail(err, CKPT_EFORMAT, "%lld attention heads, which %lld key/value heads do "
                         "not divide", (long long)heads, (long long)a->num_key_value_heads);
    if (a->intermediate_size == 0)
        a->intermediate_size = a->family->ff_factor * h;
    if (a->word_embed_proj_dim == 0)
        a->word_embed_proj_dim = h;
    if (a->attn_scale == 0)
        a->attn_scale = 1.0 / sqrt((double)a->head_dim);
    return 0;
}

static int find_family(const struct family **out, const json_t *config, struct ckpt_err *err)
{
    const json_t *classes = json_object_get(config, "architectures");
    const char *type, *class = json_string_value(json_array_get(classes, 0));
    char known[256];
    int rc;

    if ((rc = ckpt_json_str_or(&type, config, "model_type", NULL, err)) != 0)
        return rc;
    if (!type && !class)
        return ckpt_fail(err, CKPT_EFORMAT, "neither model_type nor architectures is there");
    *out = family_find(type, type ? NULL : class);
    if (*out && (*out)->keys && !(*out)->untrained)
        return 0;
    return ckpt_fail_as(err, CKPT_EUNSUPPORTED, "model-type",
                        "%s %s is not known here, known are: %s",
                        type ? "model_type" : "architecture", type ? type : class,
                        family_known(known, sizeof known));
}

/* CKPT_EUNSUPPORTED names the choice that the passes do not implement. */
static int check_supported(const struct arch *a, struct ckpt_err *err)
{
    const char *what = a->norm == ARCH_RMS_NORM_1P    ? "norms that add 1 to their gain"
                       : a->place == ARCH_SANDWICH_NORM ? "norms on both sides of a sublayer"
                       : a->act == ARCH_QUICK_GELU      ? "the activation quick_gelu"
                       : a->emb_mul != 1                ? "scaled embeddings"
                                                        : NULL;

    if (!what)
        return 0;
    return ckpt_fail(err, CKPT_EUNSUPPORTED, "%s needs %s, which is not built",
                     a->family->model_type, what);
}

static int read_arch(struct arch **out, json_t *config, struct ckpt_err *err)
{
    const struct family *f;
    struct arch *a;
    int rc;

    if ((rc = find_family(&f, config, err)) != 0 || (rc = check_keys(f, config, err)) != 0)
        return rc;
    a = ckpt_alloc(1, sizeof *a);
    if (!a)
        return ckpt_nomem(err, sizeof *a);
    *a = f->fixed;
    a->pad_token_id = -1;
    a->family = f;
    a->config = json_incref(config);
    for (const struct family_key *k = f->keys; rc == 0 && k->name; k++)
        rc = read_key(a, k, config, err);
    if (rc == 0)
        rc = derive(a, err);
    if (rc == 0 && f->finish)
        rc = f->finish(a, config, err);
    if (rc == 0)
        rc = check_supported(a, err);
    if (rc)
        arch_free(a);
    else
        *out = a;
    return rc;
}

int arch_read_json(struct arch **out, const json_t *config, struct ckpt_err *err)
{
    json_t *plain;              /* quantised weights are dequantised, and saved so */
    int rc;

    *out = NULL;
    if (!json_is_object(config))
        return ckpt_fail(err, CKPT_EFORMAT, "the document is no object");
    if ((rc = quant_check_config(config, err)) != 0)
        return rc;
    plain = json_deep_copy(config);
    if (!plain)
        return ckpt_nomem(err, sizeof *plain);
    quant_config_strip(plain);
    rc = read_arch(out, plain, err);
    json_decref(plain);
    return rc;
}

int arch_read(struct arch **out, struct ckpt_dir *dir, const char *name, struct ckpt_err *err)
{
    struct ckpt_file *file = NULL;
    json_t *config = NULL;
    int rc = ckpt_file_open_at(&file, dir, name, err);

    *out = NULL;
    if (rc == 0)
        rc = ckpt_json_read(&config, file, MAX_CONFIG_BYTES, CKPT_JSON_PYTHON, err);
    if (rc == 0 && (rc = arch_read_json(out, config, err)) != 0)
        ckpt_err_in(err, "%s", ckpt_file_name(file));
    json_decref(config);
    ckpt_file_close(file);
    return rc;
}

void arch_free(struct arch *arch)
{
    if (!arch)
        return;
    json_decref(arch->config);
    ckpt_free(arch->rope.short_factor);
    ckpt_free(arch->rope.long_factor);
    ckpt_free(arch->windowed);
    ckpt_free(arch->dense);
    ckpt_free(arch);
}

json_t *arch_config(const struct arch *arch) { return arch->config; }

const char *arch_tied_name(const struct arch *arch)
{
    const char *name = family_pattern(arch->family, ROLE_HEAD_W);

    return arch->tie_word_embeddings && name ? name + (name[0] == '^') : NULL;
}

bool arch_is_encoder(const struct arch *arch, int64_t layer)
{
    return layer < arch->num_encoder_layers;
}

bool arch_has_cross(const struct arch *arch, int64_t layer)
{
    return arch->stack == ARCH_ENCODER_DECODER && layer >= arch->num_encoder_layers;
}

int64_t arch_stack_first(const struct arch *arch, int64_t layer)
{
    return arch_has_cross(arch, layer) ? arch->num_encoder_layers : 0;
}

bool arch_routed(const struct arch *arch, int64_t layer)
{
    return arch->num_experts > 0 && !(arch->dense && arch->dense[layer]);
}

int64_t arch_window(const struct arch *arch, int64_t layer)
{
    return arch->windowed && !arch->windowed[layer] ? 0 : arch->sliding_window;
}

double arch_scale(const struct arch *arch, int64_t layer)
{
    return arch->scale_by_layer ? arch->attn_scale / (double)(layer + 1) : arch->attn_scale;
}

int64_t arch_max_positions(const struct arch *arch)
{
    return arch->pos == ARCH_POS_LEARNED ? arch->max_position_embeddings : 0;
}

const char *arch_tokens_name(const struct arch *arch)
{
    return family_pattern(arch->family, ROLE_TOKENS);
}

int arch_untie(struct arch *arch, struct ckpt_err *err)
{
    json_t *copy = json_copy(arch->config);

    /* A config.json without the key would mean tied: say explicitly that the head is not. */
    if (!copy || json_object_set_new(copy, "tie_word_embeddings", json_false()) ||
        (arch->head_mul != 1 && json_object_set_new(copy, "scale_decoder_outputs", json_true()))) {
        json_decref(copy);
        return ckpt_nomem(err, 64);
    }
    json_decref(arch->config);
    arch->config = copy;
    arch->tie_word_embeddings = false;
    return 0;
}

int64_t arch_numel(const struct arch *arch)
{
    struct family_name part[ROLE_COUNT];
    int64_t sum = 0, n;

    for (int64_t l = -1; l <= arch->num_hidden_layers; l++)
        for (size_t i = family_parts(part, arch, l); i-- > 0;) {
            struct ckpt_shape s = role_shape(arch, part[i].role);

            if (ckpt_shape_numel(&n, &s))
                sum += n * (role_is_expert(part[i].role) ? arch->num_experts : 1);
        }
    return sum;
}

const char *arch_describe(char *dst, size_t size, const struct arch *a)
{
    snprintf(dst, size,
             "%s: %.2f M parameters, %lld blocks, hidden %lld, %lld heads of %lld, "
             "feed-forward %lld, vocabulary %lld%s",
             a->family->model_type, (double)arch_numel(a) * 1e-6,
             (long long)a->num_hidden_layers, (long long)a->hidden_size,
             (long long)a->num_attention_heads, (long long)a->head_dim,
             (long long)a->intermediate_size, (long long)a->vocab_size,
             a->tie_word_embeddings ? ", tied head" : "");
    return dst;
}

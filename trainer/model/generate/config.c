/* generate/config - see generate/config.h. */
#include "trainer/model/generate/config.h"

#include <math.h>
#include <string.h>

#include "libckpt/base/json.h"
#include "libckpt/log.h"
#include "formats/families/arch.h"
#include "trainer/model/generate/logits.h"

#define FILE_NAME "generation_config.json"

/* When a key that is not implemented changes the result. */
enum when { ALWAYS, WHEN_DRAWN, WHEN_SEARCHED };

static const struct {
    const char *key;
    double      neutral;                /* the value that has no effect */
    enum when   when;
} unbuilt[] = {
    {"guidance_scale", 1, ALWAYS},       {"watermarking_config", 0, ALWAYS},
    {"penalty_alpha", 0, ALWAYS},        {"dola_layers", 0, ALWAYS},
    {"constraints", 0, ALWAYS},
    {"force_words_ids", 0, ALWAYS},      {"stop_strings", 0, WHEN_SEARCHED},
    {"max_time", 0, ALWAYS},             {"token_healing", 0, ALWAYS},
    {"num_return_sequences", 1, ALWAYS}, {"num_beam_groups", 1, WHEN_SEARCHED},
    {"diversity_penalty", 0, WHEN_SEARCHED}, {"renormalize_logits", 0, WHEN_SEARCHED},
    {"top_h", 0, WHEN_DRAWN},
};

/* Keys that are read, and those of transformers 5.24 that do not change the text: how results are
 * returned, how caches are laid out, drafts, which greedy and drawn texts do not depend on, and
 * remove_invalid_values, since logits that are not finite are an error here. */
static const char *const known[] = {
    "max_new_tokens", "max_length", "min_new_tokens", "min_length", "top_k", "num_beams",
    "no_repeat_ngram_size", "encoder_no_repeat_ngram_size", "temperature", "top_p", "min_p",
    "repetition_penalty", "length_penalty", "encoder_repetition_penalty", "typical_p",
    "epsilon_cutoff", "eta_cutoff", "frequency_penalty", "presence_penalty", "do_sample",
    "early_stopping", "eos_token_id", "suppress_tokens", "begin_suppress_tokens",
    "forced_bos_token_id", "forced_eos_token_id", "stop_strings", "decoder_start_token_id",
    "bos_token_id", "sequence_bias", "bad_words_ids", "exponential_decay_length_penalty",
    "pad_token_id", "transformers_version", "_from_model_config", "_commit_hash", "use_cache",
    "output_attentions", "output_hidden_states", "output_logits", "output_scores",
    "return_dict_in_generate", "remove_invalid_values", "low_memory", "cache_implementation",
    "cache_config", "max_cache_len", "compile_config", "disable_compile", "prefill_chunk_size",
    "continuous_batching_config", "is_assistant", "num_assistant_tokens",
    "num_assistant_tokens_schedule", "assistant_confidence_threshold", "assistant_early_exit",
    "assistant_lookbehind", "assistant_ensemble_weight", "target_lookbehind",
    "prompt_lookup_num_tokens", "max_matching_ngram_size", "speculation_type", "use_mtp",
    "return_legacy_cache", "trust_remote_code",
};

/* A key that nobody knows is told: whether it changes the text is not known either. */
static void tell_unknown(json_t *json)
{
    const char *key;
    json_t *v;

    json_object_foreach(json, key, v) {
        bool is = json_is_null(v);

        for (size_t i = 0; !is && i < sizeof known / sizeof known[0]; i++)
            is = strcmp(key, known[i]) == 0;
        for (size_t i = 0; !is && i < sizeof unbuilt / sizeof unbuilt[0]; i++)
            is = strcmp(key, unbuilt[i].key) == 0;
        if (!is)
            ckpt_log(CKPT_LOG_WARNING, FILE_NAME ": key %.100s is not known, and has no effect",
                     key);
    }
}

/* A cache of few bits rounds keys and values; that of this program has the activations' type. */
static void tell_rounded(const json_t *json)
{
    const char *how = json_string_value(json_object_get(json, "cache_implementation"));

    if (how && strcmp(how, "quantized") == 0)
        ckpt_log(CKPT_LOG_WARNING, FILE_NAME ": key cache_implementation: keys and values are not "
                 "quantized here; texts may differ from those that transformers generates");
}

static bool neutral(const json_t *v, double number)
{
    return !v || json_is_null(v) || json_is_false(v) ||
           (json_is_number(v) && json_number_value(v) == number) ||
           (json_is_array(v) && json_array_size(v) == 0) ||
           (json_is_object(v) && json_object_size(v) == 0);
}

/* Ids of which one is forced, by a key, may not all be suppressed: none could be chosen. */
static int check_forced(const struct generate_ids *forced, const char *key,
                        const struct generate_opts *o, struct ckpt_err *err)
{
    size_t n = 0;

    while (n < forced->n && generate_has_id(&o->suppress, forced->id[n]))
        n++;
    return n < forced->n || n == 0
               ? 0 : ckpt_fail_as(err, CKPT_EFORMAT, "config-key", FILE_NAME ": key %s: all of its "
                                  "tokens are in suppress_tokens too", key);
}

int generate_config_built(const struct generate_config *c, const struct generate_opts *o,
                          struct ckpt_err *err)
{
    int rc = check_forced(&o->forced_bos, "forced_bos_token_id", o, err);

    if (rc || (rc = check_forced(&o->forced_eos, "forced_eos_token_id", o, err)) != 0)
        return rc;
    for (size_t i = 0; i < sizeof unbuilt / sizeof unbuilt[0]; i++) {
        bool counts = unbuilt[i].when == ALWAYS ||
                      (unbuilt[i].when == WHEN_DRAWN ? o->do_sample : o->num_beams > 1);

        if (counts && !neutral(json_object_get(c->json, unbuilt[i].key), unbuilt[i].neutral))
            return ckpt_fail_as(err, CKPT_EUNSUPPORTED, "config-key",
                                FILE_NAME ": key %s changes "
                                          "what is generated, and is not built here",
                                unbuilt[i].key);
    }
    return 0;
}

/* An id, or a list of them. */
static int ids_of(struct generate_ids *out, struct generate_config *c, const json_t *v,
                  const char *key, struct ckpt_err *err)
{
    size_t n = json_is_array(v) ? json_array_size(v) : 1;
    int32_t *id;

    *out = (struct generate_ids){0};
    if (!v || json_is_null(v) || n == 0)
        return 0;
    id = ckpt_arena_alloc(&c->arena, n, sizeof *id);
    if (!id)
        return ckpt_nomem(err, n * sizeof *id);
    for (size_t i = 0; i < n; i++) {
        const json_t *one = json_is_array(v) ? json_array_get(v, i) : v;

        /* Old files use -1 and the like for no token: they equal no id. */
        if (!json_is_integer(one) || json_integer_value(one) > INT32_MAX ||
            json_integer_value(one) < INT32_MIN)
            return ckpt_fail(err, CKPT_EFORMAT, "key %s: entry %zu is no id of a token", key, i);
        id[i] = (int32_t)json_integer_value(one);
    }
    *out = (struct generate_ids){.id = id, .n = n};
    return 0;
}

static int read_ids(struct generate_ids *out, struct generate_config *c, const char *key,
                    struct ckpt_err *err)
{
    return ids_of(out, c, json_object_get(c->json, key), key, err);
}

/* bad_words_ids: lists of ids; a single eos is none.  sequence_bias: pairs of such a list and its
 * bias. */
static int read_words(const struct generate_words **out, size_t *n_out, struct generate_config *c,
                      const char *key, bool bad, struct ckpt_err *err)
{
    const json_t *v = json_object_get(c->json, key);
    size_t n = json_array_size(v);
    struct generate_words *w;
    int rc;

    *n_out = 0;
    if (!v || json_is_null(v))
        return 0;
    w = ckpt_arena_alloc(&c->arena, n + 1, sizeof *w);
    if (!w)
        return ckpt_nomem(err, n * sizeof *w);
    *out = w;
    if (!json_is_array(v))
        return ckpt_fail(err, CKPT_EFORMAT, "key %s: a list is wanted", key);
    for (size_t i = 0; i < n; i++) {
        const json_t *one = json_array_get(v, i), *ids = bad ? one : json_array_get(one, 0);
        const json_t *bias = bad ? NULL : json_array_get(one, 1);
        struct generate_ids list;

        if (!json_is_array(ids) || json_array_size(ids) == 0 || (!bad && !json_is_number(bias)))
            return ckpt_fail(err, CKPT_EFORMAT, "key %s: entry %zu is no list of ids%s", key, i,
                             bad ? "" : " with a number");
        if ((rc = ids_of(&list, c, ids, key, err)) != 0)
            return rc;
        if (bad && list.n == 1 && generate_is_eos(&c->opts, list.id[0]))
            continue;
        w[(*n_out)++] = (struct generate_words){
            .id = list.id, .n = list.n, .bias = bad ? -INFINITY : json_number_value(bias)};
    }
    return 0;
}

/* [tokens before it, factor] */
static int read_decay(struct generate_opts *o, const json_t *json, struct ckpt_err *err)
{
    const json_t *v = json_object_get(json, "exponential_decay_length_penalty");
    const json_t *start = json_array_get(v, 0), *factor = json_array_get(v, 1);

    if (!v || json_is_null(v))
        return 0;
    if (json_array_size(v) != 2 || !json_is_integer(start) || !json_is_number(factor) ||
        !(json_number_value(factor) > 0))
        return ckpt_fail(err, CKPT_EFORMAT, "key exponential_decay_length_penalty: a number of "
                         "tokens and a factor above 0 are wanted");
    o->decay_start = json_integer_value(start);
    o->decay_factor = json_number_value(factor);
    return 0;
}

static int read_stops(struct generate_config *c, struct ckpt_err *err)
{
    const json_t *v = json_object_get(c->json, "stop_strings");
    size_t n = json_is_array(v) ? json_array_size(v) : !v || json_is_null(v) ? 0 : 1;

    c->stop = ckpt_arena_alloc(&c->arena, n + 1, sizeof *c->stop);
    if (!c->stop)
        return ckpt_nomem(err, n * sizeof *c->stop);
    for (size_t i = 0; i < n; i++) {
        c->stop[i] = json_string_value(json_is_array(v) ? json_array_get(v, i) : v);
        if (!c->stop[i] || !c->stop[i][0])
            return ckpt_fail(err, CKPT_EFORMAT, "key stop_strings: entry %zu is no text", i);
    }
    c->n_stop = n;
    return 0;
}

static int read_early(enum generate_early *out, const json_t *json, struct ckpt_err *err)
{
    const json_t *v = json_object_get(json, "early_stopping");
    const char *text = json_string_value(v);

    *out = json_is_true(v) ? GENERATE_FULL : GENERATE_LIKELY;
    if (text && strcmp(text, "never") == 0)
        *out = GENERATE_NEVER;
    else if (v && !json_is_boolean(v) && !json_is_null(v))
        return ckpt_fail(err, CKPT_EFORMAT,
                         "key early_stopping: true, false or \"never\" is wanted");
    return 0;
}

static int read_numbers(struct generate_opts *o, const json_t *json, struct ckpt_err *err)
{
    const struct {
        const char *key;
        int64_t    *at;
        int64_t     fallback;
    } whole[] = {
        {"max_new_tokens", &o->max_new_tokens, 0}, {"max_length", &o->max_length, 0},
        {"min_new_tokens", &o->min_new_tokens, 0}, {"min_length", &o->min_length, 0},
        {"top_k", &o->top_k, 50}, {"num_beams", &o->num_beams, 1},
        {"no_repeat_ngram_size", &o->no_repeat_ngram_size, 0},
        {"encoder_no_repeat_ngram_size", &o->encoder_no_repeat_ngram_size, 0},
    };
    const struct {
        const char *key;
        double     *at, fallback;
    } real[] = {
        {"temperature", &o->temperature, 1}, {"top_p", &o->top_p, 1}, {"min_p", &o->min_p, 0},
        {"repetition_penalty", &o->repetition_penalty, 1},
        {"length_penalty", &o->length_penalty, 1},
        {"encoder_repetition_penalty", &o->encoder_repetition_penalty, 1},
        {"typical_p", &o->typical_p, 1}, {"epsilon_cutoff", &o->epsilon_cutoff, 0},
        {"eta_cutoff", &o->eta_cutoff, 0}, {"frequency_penalty", &o->frequency_penalty, 0},
        {"presence_penalty", &o->presence_penalty, 0},
    };
    int rc;

    for (size_t i = 0; i < sizeof whole / sizeof whole[0]; i++) {
        rc = ckpt_json_int_or(whole[i].at, json, whole[i].key, whole[i].fallback, err);
        if (rc)
            return rc;
        if (*whole[i].at < 0 || *whole[i].at > 1 << 30)
            return ckpt_fail(err, CKPT_EFORMAT, "key %s is %lld, wanted 0 to 2^30", whole[i].key,
                             (long long)*whole[i].at);
    }
    for (size_t i = 0; i < sizeof real / sizeof real[0]; i++)
        if ((rc = ckpt_json_num_or(real[i].at, json, real[i].key, real[i].fallback, err)) != 0)
            return rc;
    return ckpt_json_bool_or(&o->do_sample, json, "do_sample", false, err);
}

/* The decoder's first token: its own id, or that of bos. */
static int read_start(struct generate_config *c, struct ckpt_err *err)
{
    int rc = read_ids(&c->opts.start, c, "decoder_start_token_id", err);

    if (rc)
        return rc;
    return c->opts.start.n ? 0 : read_ids(&c->opts.start, c, "bos_token_id", err);
}

int generate_config_of(struct generate_config *out, const json_t *json, struct ckpt_err *err)
{
    struct generate_opts *o = &out->opts;
    struct generate_ids eos;
    int rc;

    memset(out, 0, sizeof *out);
    if (!json_is_object(json))
        return ckpt_fail(err, CKPT_EFORMAT, "the document is no object");
    out->json = json_deep_copy(json);
    if (!out->json)
        return ckpt_nomem(err, sizeof *out->json);
    if ((rc = read_numbers(o, json, err)) != 0 ||
        (rc = read_early(&o->early_stopping, json, err)) != 0 ||
        (rc = read_ids(&eos, out, "eos_token_id", err)) != 0 ||
        (rc = read_ids(&o->suppress, out, "suppress_tokens", err)) != 0 ||
        (rc = read_ids(&o->begin_suppress, out, "begin_suppress_tokens", err)) != 0 ||
        (rc = read_ids(&o->forced_bos, out, "forced_bos_token_id", err)) != 0 ||
        (rc = read_ids(&o->forced_eos, out, "forced_eos_token_id", err)) != 0 ||
        (rc = read_stops(out, err)) != 0 || (rc = read_start(out, err)) != 0)
        return rc;
    o->eos = eos.id;
    o->n_eos = eos.n;
    if ((rc = read_words(&o->bias, &o->n_bias, out, "sequence_bias", false, err)) != 0 ||
        (rc = read_words(&o->bad, &o->n_bad, out, "bad_words_ids", true, err)) != 0 ||
        (rc = read_decay(o, json, err)) != 0)
        return rc;
    if (o->max_new_tokens > 0)          /* it wins */
        o->max_length = 0;
    return 0;
}

int generate_config_read(struct generate_config *out, struct ckpt_dir *dir,
                         const struct arch *arch, struct ckpt_err *err)
{
    struct ckpt_file *file = NULL;
    json_t *json = NULL;
    bool own = ckpt_dir_has(dir, FILE_NAME);
    int rc = 0;

    memset(out, 0, sizeof *out);
    if (own)
        rc = ckpt_file_open_at(&file, dir, FILE_NAME, err);
    if (own && rc == 0)
        rc = ckpt_json_read(&json, file, CKPT_JSON_MAX_BYTES, CKPT_JSON_PYTHON, err);
    if (!own)
        json = json_incref(arch_config(arch));
    if (rc == 0 && generate_config_of(out, json, err))
        rc = ckpt_err_in(err, "%s/%s", ckpt_dir_path(dir), own ? FILE_NAME : "config.json");
    if (own && rc == 0) {
        tell_unknown(json);
        tell_rounded(json);
    }
    /* The model's description has a decoder's start token; bos does not replace it. */
    if (!own)
        out->opts.start = (struct generate_ids){0};
    json_decref(json);
    ckpt_file_close(file);
    return rc;
}

void generate_config_release(struct generate_config *c)
{
    json_decref(c->json);
    ckpt_arena_release(&c->arena);
    memset(c, 0, sizeof *c);
}

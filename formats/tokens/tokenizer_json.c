/*
 * tokenizer_json - tokenizer.json -> tokenizer.
 *
 * Top level: version "1.0", truncation, padding, added_tokens, normalizer, pre_tokenizer,
 * post_processor, decoder, model.
 * Source: huggingface/tokenizers 0.23 tokenizers/src/tokenizer/{serialization,
 * added_vocabulary}.rs.
 */
#include <string.h>

#include "formats/tokens/component.h"
#include "formats/tokens/tokenizer_parts.h"
#include "libckpt/base/json.h"

/* Normalise an added token's text: it is searched for, and decoding shows it. */
static int normalise(struct tokenizer *t, struct added_token *a, struct norm_run *run,
                     struct ckpt_err *err)
{
    struct piece p = {.text = (const unsigned char *)a->content, .n = a->len};
    char *text;
    int rc;

    if ((rc = norm_apply(t->norm, run, &p, err)) != 0)
        return rc;
    if (p.n == a->len && memcmp(p.text, a->content, p.n) == 0)
        return 0;
    text = ckpt_arena_strndup(&t->arena, (const char *)p.text, p.n);
    if (!text)
        return ckpt_nomem(err, p.n);
    a->content = text;
    a->len = p.n;
    t->vocab.token[a->id].special = false;
    return vocab_show(&t->vocab, a->id, text, p.n, err);
}

static int read_added_one(struct tokenizer *t, const json_t *v, struct added_token *a,
                          struct norm_run *run, struct ckpt_err *err)
{
    bool verbatim;
    const char *content;
    int64_t id;
    int rc;

    if ((rc = ckpt_json_str(&content, v, "content", err)) != 0 ||
        (rc = ckpt_json_int(&id, v, "id", err)) != 0 ||
        (rc = ckpt_json_bool_or(&a->single_word, v, "single_word", false, err)) != 0 ||
        (rc = ckpt_json_bool_or(&a->lstrip, v, "lstrip", false, err)) != 0 ||
        (rc = ckpt_json_bool_or(&a->rstrip, v, "rstrip", false, err)) != 0 ||
        (rc = ckpt_json_bool_or(&a->special, v, "special", false, err)) != 0 ||
        (rc = ckpt_json_bool_or(&a->normalized, v, "normalized", !a->special, err)) != 0 ||
        (rc = ckpt_json_bool_or(&verbatim, v, "verbatim", false, err)) != 0)
        return rc;
    a->id = (int32_t)id;
    a->len = strlen(content);
    if (a->len == 0)
        return ckpt_fail(err, CKPT_EFORMAT, "id %d has empty content", a->id);
    if (a->len > UINT32_MAX / 2)
        return ckpt_fail(err, CKPT_ELIMIT, "id %d has %zu bytes of content", a->id, a->len);
    a->content = ckpt_arena_strndup(&t->arena, content, a->len);
    if (!a->content)
        return ckpt_nomem(err, a->len);
    if ((rc = vocab_add(&t->vocab, a->id, a->content, a->len, err)) != 0)
        return rc;
    t->vocab.token[id].special |= a->special;
    return a->normalized && !verbatim ? normalise(t, a, run, err) : 0;
}

static int read_added(struct tokenizer *t, const json_t *added, struct ckpt_err *err)
{
    struct norm_run *run = NULL;
    size_t n = json_array_size(added), kept = 0;
    int rc;

    t->added = ckpt_arena_alloc(&t->arena, n, sizeof *t->added);
    if (!t->added)
        return ckpt_nomem(err, n * sizeof *t->added);
    rc = norm_run_new(&run, t->norm, err);
    for (size_t i = 0; rc == 0 && i < n; i++) {
        t->added[kept] = (struct added_token){0};
        rc = read_added_one(t, json_array_get(added, i), &t->added[kept], run, err);
        if (rc)
            ckpt_err_in(err, "added_tokens[%zu]", i);
        /* A token of which the normalizer leaves nothing can never match. */
        kept += t->added[kept].len > 0;
    }
    norm_run_free(run);
    if (rc)
        return rc;
    t->n_added = kept;
    if (added_new(&t->added_raw, t->added, kept, false, err) ||
        added_new(&t->added_normalized, t->added, kept, true, err))
        return ckpt_err_in(err, "added_tokens");
    return 0;
}

/* A BPE model whose words are spelt in the ByteLevel alphabet works directly on bytes: the same
 * ids from half the memory. */
static bool works_on_bytes(struct tokenizer *t, const json_t *model)
{
    static const char *const others[] = {"continuing_subword_prefix", "end_of_word_suffix"};
    const char *s;

    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        s = json_string_value(json_object_get(model, others[i]));
        if (s && *s)
            return false;
    }
    s = json_string_value(json_object_get(model, "type"));
    if ((s && strcmp(s, "BPE") != 0) || json_is_true(json_object_get(model, "byte_fallback")) ||
        !(json_object_get(model, "merges") || json_object_get(model, "ranks")))
        return false;
    return pretok_take_bytes(t->pretok);
}

/* [[id, text], ...]: decoded forms, in trees made from files other than tokenizer.json. */
static int read_shown(struct tokenizer *t, const json_t *list, struct ckpt_err *err)
{
    int rc;

    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *row = json_array_get(list, i);
        json_int_t id = json_integer_value(json_array_get(row, 0));
        const char *text = json_string_value(json_array_get(row, 1));
        char *kept;

        if (!text || id < 0 || id >= t->vocab.n || !t->vocab.token[id].token)
            return ckpt_fail(err, CKPT_EFORMAT, "shown[%zu] is not id and text", i);
        kept = ckpt_arena_strndup(&t->arena, text, strlen(text));
        if (!kept)
            return ckpt_nomem(err, strlen(text));
        if ((rc = vocab_show(&t->vocab, (int32_t)id, kept, strlen(kept), err)) != 0)
            return rc;
    }
    return 0;
}

static int read_parts(struct tokenizer *t, const json_t *root, const json_t *model,
                      const json_t *added, struct ckpt_err *err)
{
    struct model_source src = {.json = model, .vocab = &t->vocab};
    int rc = norm_new(&t->norm, json_object_get(root, "normalizer"), err);

    if (rc == 0)
        rc = read_shown(t, json_object_get(root, "shown"), err);
    if (rc == 0)
        rc = read_added(t, added, err);
    if (rc == 0)
        rc = pretok_new(&t->pretok, json_object_get(root, "pre_tokenizer"), err);
    if (rc)
        return rc;
    t->bytes = src.bytes = works_on_bytes(t, model);
    if ((rc = model_open(&t->model, &src, err)) == 0 &&
        (rc = decoder_new(&t->decoder, json_object_get(root, "decoder"), err)) == 0 &&
        (rc = post_read(&t->post, &t->vocab, json_object_get(root, "post_processor"), err)) == 0)
        rc = window_read_truncation(&t->truncation, &t->truncates,
                                    json_object_get(root, "truncation"), err);
    return rc ? rc : window_read_padding(&t->padding, &t->pads, json_object_get(root, "padding"),
                                         err);
}

int tokenizer_json_read(struct tokenizer *t, const json_t *root, int64_t limit,
                        struct ckpt_err *err)
{
    const char *version;
    json_t *model, *vocab, *added = json_object_get(root, "added_tokens");
    int rc;

    if ((rc = ckpt_json_str(&version, root, "version", err)) != 0)
        return rc;
    if (strcmp(version, "1.0") != 0)
        return ckpt_fail(err, CKPT_EUNSUPPORTED, "version \"%s\", only \"1.0\" is read",
                         version);
    if (!component_is_absent(added) && (rc = ckpt_json_get(&added, root, "added_tokens",
                                                           JSON_ARRAY, err)) != 0)
        return rc;
    if ((rc = ckpt_json_get(&model, root, "model", JSON_OBJECT, err)) != 0)
        return rc;
    vocab = json_object_get(model, "vocab");
    if (!json_is_array(vocab) && ckpt_json_get(&vocab, model, "vocab", JSON_OBJECT, err))
        return ckpt_err_in(err, "model");
    if ((rc = vocab_read(&t->vocab, &t->arena, vocab, added, limit, err)) != 0)
        return rc;
    return read_parts(t, root, model, added, err);
}

/* A special token is a string or an object with "content". */
static int config_token(struct tokenizer *t, int32_t *out, const json_t *root, const char *key,
                        struct ckpt_err *err)
{
    const json_t *v = json_object_get(root, key);
    const char *s = json_string_value(json_is_object(v) ? json_object_get(v, "content") : v);

    if (component_is_absent(v))
        return 0;
    if (!s)
        return ckpt_fail(err, CKPT_EFORMAT, "%s is neither a string nor an object with content",
                         key);
    *out = tokenizer_id(t, s);
    if (*out < 0)
        return ckpt_fail(err, CKPT_EMISMATCH, "%s is \"%s\", which the tokenizer does not have",
                         key, s);
    return 0;
}

/* The token for what is unknown decides nothing: the vocabulary may lack it. */
static void config_unk(struct tokenizer *t, const json_t *root)
{
    const json_t *v = json_object_get(root, "unk_token");
    const char *s = json_string_value(json_is_object(v) ? json_object_get(v, "content") : v);

    if (s)
        t->unk = tokenizer_id(t, s);
}

/* Classes that add their own start and end tokens, by add_bos_token and add_eos_token, with the
 * defaults of these. */
static const struct { const char *name; bool bos, eos, always; } ends_of[] = {
    {"Llama", true, false, false}, {"CodeLlama", true, false, false},
    {"Gemma", true, false, false}, {"GPT2", false, false, false},
    {"T5", false, true, true},     {"MT5", false, true, true},
};

static int config_ends(struct tokenizer *t, const json_t *config, bool ends,
                       struct ckpt_err *err)
{
    const char *s = json_string_value(json_object_get(config, "tokenizer_class"));
    bool said = !component_is_absent(json_object_get(config, "add_bos_token")) ||
                !component_is_absent(json_object_get(config, "add_eos_token"));
    int rc;

    for (size_t i = 0; s && i < sizeof ends_of / sizeof *ends_of; i++) {
        bool bos, eos;

        if (strncmp(s, ends_of[i].name, strlen(ends_of[i].name)) != 0)
            continue;
        if (!ends && (!said || ends_of[i].always))
            return 0;
        if ((rc = ckpt_json_bool_or(&bos, config, "add_bos_token", ends_of[i].bos, err)) != 0 ||
            (rc = ckpt_json_bool_or(&eos, config, "add_eos_token", ends_of[i].eos, err)) != 0)
            return rc;
        return post_set(&t->post, &t->vocab, bos ? t->bos : -1, eos ? t->eos : -1, err);
    }
    return 0;
}

int tokenizer_config(struct tokenizer *t, const json_t *config, bool ends,
                     struct ckpt_err *err)
{
    const char *side = json_string_value(json_object_get(config, "padding_side"));
    bool prefix;
    int rc;

    t->pads_left = side && strcmp(side, "left") == 0;
    config_unk(t, config);
    if ((rc = config_token(t, &t->bos, config, "bos_token", err)) != 0 ||
        (rc = config_token(t, &t->eos, config, "eos_token", err)) != 0 ||
        (rc = config_token(t, &t->pad, config, "pad_token", err)) != 0 ||
        (rc = config_ends(t, config, ends, err)) != 0 ||
        (rc = ckpt_json_bool_or(&t->clean_up, config, "clean_up_tokenization_spaces",
                                t->clean_up, err)) != 0)
        return rc;
    if (!component_is_absent(json_object_get(config, "add_prefix_space"))) {
        if ((rc = ckpt_json_bool_or(&prefix, config, "add_prefix_space", false, err)) != 0)
            return rc;
        pretok_set_prefix_space(t->pretok, prefix);
    }
    return 0;
}

/*
 * tokenizer_json - tokenizer.json -> tokenizer.
 *
 * Top level: version "1.0", truncation and padding (the caller's business: not read),
 * added_tokens, normalizer, pre_tokenizer, post_processor, decoder, model.  Read are byte-level
 * BPE models; whatever else a file asks for is refused by name.
 * Source: huggingface/tokenizers 0.21 tokenizers/src/tokenizer/serialization.rs,
 * models/bpe/serialization.rs.
 */
#include <string.h>

#include "formats/tokens/bytelevel.h"
#include "formats/tokens/tokenizer_parts.h"
#include "libckpt/json.h"

static int kept(struct tokenizer *t, const char **out, const char *s, size_t len,
                struct ckpt_err *err)
{
    *out = ckpt_arena_strndup(&t->arena, s, len);
    return *out ? 0 : ckpt_nomem(err, len);
}

/* True, false or absent members; "null" counts as absent. */
static bool is_absent(const json_t *v)
{
    return !v || json_is_null(v);
}

/* One past the largest id of model.vocab and added_tokens.  An id takes five bytes of file or
 * more, so a larger one than the file is a lie. */
static int count_ids(struct tokenizer *t, const json_t *vocab, const json_t *added,
                     uint64_t file_bytes, struct ckpt_err *err)
{
    int64_t limit = file_bytes < INT32_MAX ? (int64_t)file_bytes : INT32_MAX, id;
    const char *name;
    json_t *v;
    size_t i;

    json_object_foreach((json_t *)vocab, name, v) {
        id = json_is_integer(v) ? json_integer_value(v) : -1;
        if (id < 0 || id >= limit)
            return ckpt_fail(err, CKPT_EFORMAT,
                             "model.vocab: token \"%s\" has no id in 0..%lld", name,
                             (long long)limit - 1);
        t->n = id >= t->n ? (int32_t)id + 1 : t->n;
    }
    json_array_foreach(added, i, v) {
        if (ckpt_json_int(&id, v, "id", err))
            return ckpt_err_in(err, "added_tokens[%zu]", i);
        if (id < 0 || id >= limit)
            return ckpt_fail(err, CKPT_EFORMAT, "added_tokens[%zu]: id %lld is not in 0..%lld",
                             i, (long long)id, (long long)limit - 1);
        t->n = id >= t->n ? (int32_t)id + 1 : t->n;
    }
    return 0;
}

/* token must be kept already. */
static int put_token(struct tokenizer *t, int32_t id, const char *token, size_t len,
                     struct ckpt_err *err)
{
    struct token *to = &t->token[id];
    unsigned char *raw;
    size_t n;

    if (to->token)
        return ckpt_fail(err, CKPT_EFORMAT, "id %d stands for \"%s\" and for \"%s\"", id,
                         to->token, token);
    raw = ckpt_arena_alloc(&t->arena, len + 1, 1);
    if (!raw)
        return ckpt_nomem(err, len + 1);
    to->token = token;
    to->len = (uint32_t)len;
    to->raw = raw;
    to->literal = !bytelevel_decode(raw, &n, token, len);
    t->token_bytes[id] = (uint32_t)n;
    return ckpt_map_add(t->by_token, token, len, (size_t)id, err);
}

static int read_vocab(struct tokenizer *t, const json_t *vocab, struct ckpt_err *err)
{
    const char *name, *token;
    size_t len;
    json_t *v;

    json_object_foreach((json_t *)vocab, name, v) {
        len = strlen(name);
        if (len > UINT32_MAX / 2)
            return ckpt_fail(err, CKPT_ELIMIT, "model.vocab: a token of %zu bytes", len);
        if (kept(t, &token, name, len, err) ||
            put_token(t, (int32_t)json_integer_value(v), token, len, err))
            return ckpt_err_in(err, "model.vocab");
    }
    return 0;
}

static int read_added_one(struct tokenizer *t, const json_t *v, struct added_token *a,
                          struct ckpt_err *err)
{
    const char *content;
    size_t known;
    int64_t id;

    if (ckpt_json_str(&content, v, "content", err) || ckpt_json_int(&id, v, "id", err) ||
        ckpt_json_bool_or(&a->single_word, v, "single_word", false, err) ||
        ckpt_json_bool_or(&a->lstrip, v, "lstrip", false, err) ||
        ckpt_json_bool_or(&a->rstrip, v, "rstrip", false, err) ||
        ckpt_json_bool_or(&a->special, v, "special", false, err) ||
        ckpt_json_bool_or(&a->normalized, v, "normalized", !a->special, err))
        return err->code;
    a->id = (int32_t)id;
    a->len = strlen(content);
    if (a->len == 0)
        return ckpt_fail(err, CKPT_EFORMAT, "id %d has empty content", a->id);
    known = ckpt_map_get(t->by_token, content, a->len);
    if (known != CKPT_MAP_NONE && known != (size_t)id)
        return ckpt_fail(err, CKPT_EFORMAT, "\"%s\" has id %d here and id %zu before", content,
                         a->id, known);
    if (kept(t, &a->content, content, a->len, err) ||
        (known == CKPT_MAP_NONE && put_token(t, a->id, a->content, a->len, err)))
        return err->code;
    t->token[id].special |= a->special;
    return 0;
}

static int read_added(struct tokenizer *t, const json_t *added, struct ckpt_err *err)
{
    size_t n = json_array_size(added);

    t->added = ckpt_arena_alloc(&t->arena, n, sizeof *t->added);
    if (!t->added)
        return ckpt_nomem(err, n * sizeof *t->added);
    for (size_t i = 0; i < n; i++)
        if (read_added_one(t, json_array_get(added, i), &t->added[i], err))
            return ckpt_err_in(err, "added_tokens[%zu]", i);
    t->n_added = n;
    return added_new(&t->added_raw, t->added, n, false, err)
               ? err->code : added_new(&t->added_normalized, t->added, n, true, err);
}

/* The two halves of a merge: ["a", "b"] or "a b". */
static int merge_halves(const json_t *v, const char *half[2], size_t len[2],
                        struct ckpt_err *err)
{
    const char *s = json_string_value(v), *space;

    if (json_is_array(v) && json_array_size(v) == 2) {
        for (size_t i = 0; i < 2; i++) {
            half[i] = json_string_value(json_array_get(v, i));
            if (!half[i])
                return ckpt_fail(err, CKPT_EFORMAT, "half %zu is no string", i);
            len[i] = json_string_length(json_array_get(v, i));
        }
        return 0;
    }
    space = s ? strchr(s, ' ') : NULL;
    if (!space || strchr(space + 1, ' '))
        return ckpt_fail(err, CKPT_EFORMAT, "neither a pair of strings nor two words with one "
                         "space between");
    half[0] = s;
    len[0] = (size_t)(space - s);
    half[1] = space + 1;
    len[1] = strlen(half[1]);
    return 0;
}

static int read_merge(const struct tokenizer *t, const json_t *v, struct bpe_merge *m,
                      struct ckpt_buf *joined, struct ckpt_err *err)
{
    const char *half[2];
    size_t len[2], id[3];

    if (merge_halves(v, half, len, err))
        return err->code;
    joined->len = 0;
    for (size_t i = 0; i < 2; i++) {
        id[i] = ckpt_map_get(t->by_token, half[i], len[i]);
        ckpt_buf_put(joined, half[i], len[i]);
        if (id[i] == CKPT_MAP_NONE)
            return ckpt_fail(err, CKPT_EFORMAT, "\"%s\" is not in the vocabulary", half[i]);
    }
    if (!ckpt_buf_str(joined))
        return ckpt_nomem(err, len[0] + len[1]);
    id[2] = ckpt_map_get(t->by_token, (const char *)joined->data, joined->len);
    if (id[2] == CKPT_MAP_NONE)
        return ckpt_fail(err, CKPT_EFORMAT, "\"%s\" is not in the vocabulary",
                         (const char *)joined->data);
    *m = (struct bpe_merge){.left = (int32_t)id[0], .right = (int32_t)id[1],
                            .joined = (int32_t)id[2]};
    return 0;
}

static int32_t whole_word(void *ctx, const unsigned char *s, size_t n)
{
    const struct tokenizer *t = ctx;
    size_t id = ckpt_map_get(t->by_raw, (const char *)s, n);

    return id == CKPT_MAP_NONE ? -1 : (int32_t)id;
}

/* Words as bytes, for ignore_merges: only what is spelt in the alphabet can be a word. */
static int index_raw(struct tokenizer *t, const json_t *vocab, struct ckpt_err *err)
{
    json_t *v;
    const char *name;

    if (ckpt_map_new(&t->by_raw, json_object_size(vocab), err))
        return err->code;
    json_object_foreach((json_t *)vocab, name, v) {
        int32_t id = (int32_t)json_integer_value(v);
        const struct token *to = &t->token[id];

        if (!to->literal && to->len > 0 &&
            ckpt_map_add(t->by_raw, (const char *)to->raw, t->token_bytes[id], (size_t)id, err))
            return err->code;
    }
    return 0;
}

/* Members of the model that change what comes out and are not followed here. */
static int check_model(const json_t *model, struct ckpt_err *err)
{
    const char *const strings[] = {"continuing_subword_prefix", "end_of_word_suffix"};
    const json_t *dropout = json_object_get(model, "dropout");
    const char *type, *s;

    if (ckpt_json_str_or(&type, model, "type", json_object_get(model, "merges") ? "BPE" : "",
                         err))
        return err->code;
    if (strcmp(type, "BPE") != 0)
        return ckpt_fail(err, CKPT_EUNSUPPORTED, "model of type \"%s\" is not read, only BPE",
                         type);
    for (size_t i = 0; i < 2; i++) {
        if (ckpt_json_str_or(&s, model, strings[i], "", err))
            return err->code;
        if (s[0])
            return ckpt_fail(err, CKPT_EUNSUPPORTED, "model.%s \"%s\" is not followed",
                             strings[i], s);
    }
    if (!is_absent(dropout) && json_number_value(dropout) != 0)
        return ckpt_fail(err, CKPT_EUNSUPPORTED, "model.dropout would make ids random");
    return 0;
}

static int model_opts(struct tokenizer *t, const json_t *model, struct bpe_opts *o,
                      int32_t byte_id[256], struct ckpt_err *err)
{
    const char *unk;

    if (ckpt_json_bool_or(&o->fuse_unk, model, "fuse_unk", false, err) ||
        ckpt_json_bool_or(&o->ignore_merges, model, "ignore_merges", false, err) ||
        ckpt_json_str_or(&unk, model, "unk_token", NULL, err))
        return err->code;
    o->unk_id = unk ? tokenizer_id(t, unk) : -1;
    if (unk && o->unk_id < 0)
        return ckpt_fail(err, CKPT_EFORMAT, "model.unk_token \"%s\" is not in the vocabulary",
                         unk);
    for (int b = 0; b < 256; b++) {
        char spelt[3] = {0};
        uint32_t cp = bytelevel_char((unsigned char)b);

        spelt[0] = (char)(cp < 0x80 ? cp : 0xc0 | cp >> 6);
        spelt[1] = (char)(cp < 0x80 ? 0 : 0x80 | (cp & 0x3f));
        byte_id[b] = tokenizer_id(t, spelt);
    }
    o->byte_id = byte_id;
    o->token_bytes = t->token_bytes;
    o->n_vocab = t->n;
    o->whole = whole_word;
    o->whole_ctx = t;
    return 0;
}

static int read_model(struct tokenizer *t, const json_t *model, const json_t *vocab,
                      struct ckpt_err *err)
{
    struct bpe_opts o = {0};
    struct bpe_merge *merge = NULL;
    struct ckpt_buf joined;
    int32_t byte_id[256];
    json_t *merges, *v;
    size_t i;
    int rc;

    ckpt_buf_init(&joined, SIZE_MAX);
    rc = check_model(model, err);
    if (rc == 0)
        rc = ckpt_json_get(&merges, model, "merges", JSON_ARRAY, err);
    if (rc == 0)
        rc = model_opts(t, model, &o, byte_id, err);
    if (rc == 0 && o.ignore_merges)
        rc = index_raw(t, vocab, err);
    if (rc)
        goto out;
    o.n_merge = json_array_size(merges);
    o.merge = merge = ckpt_alloc(o.n_merge, sizeof *merge);
    if (!merge) {
        rc = ckpt_nomem(err, o.n_merge * sizeof *merge);
        goto out;
    }
    json_array_foreach(merges, i, v)
        if ((rc = read_merge(t, v, &merge[i], &joined, err))) {
            ckpt_err_in(err, "model.merges[%zu]", i);
            goto out;
        }
    rc = bpe_new(&t->bpe, &o, err);
out:
    ckpt_free(merge);
    ckpt_buf_release(&joined);
    return rc;
}

/* What surrounds the model: each is a component with a type, or null. */
static int read_components(struct tokenizer *t, const json_t *root, struct ckpt_err *err)
{
    const json_t *normalizer = json_object_get(root, "normalizer");
    const json_t *decoder = json_object_get(root, "decoder");
    const char *type;

    if (!is_absent(normalizer)) {
        type = json_string_value(json_object_get(normalizer, "type"));
        return ckpt_fail(err, CKPT_EUNSUPPORTED, "normalizer of type \"%s\" is not read",
                         type ? type : "?");
    }
    type = json_string_value(json_object_get(decoder, "type"));
    if (!type || strcmp(type, "ByteLevel") != 0)
        return ckpt_fail(err, CKPT_EUNSUPPORTED, "decoder of type \"%s\" is not read, only "
                         "ByteLevel", type ? type : "null");
    if (pretok_new(&t->pretok, json_object_get(root, "pre_tokenizer"), err))
        return err->code;
    if (!pretok_bytes(t->pretok))
        return ckpt_fail(err, CKPT_EUNSUPPORTED, "pre_tokenizer: without ByteLevel this is no "
                         "byte-level model, which is the only kind read");
    return tokenizer_post_read(t, json_object_get(root, "post_processor"), err);
}

static int read_root(struct tokenizer *t, const json_t *root, uint64_t file_bytes,
                     struct ckpt_err *err)
{
    const char *version;
    json_t *model, *vocab, *added;

    if (ckpt_json_str(&version, root, "version", err))
        return err->code;
    if (strcmp(version, "1.0") != 0)
        return ckpt_fail(err, CKPT_EUNSUPPORTED, "version \"%s\", only \"1.0\" is read",
                         version);
    added = json_object_get(root, "added_tokens");
    if (!is_absent(added) && ckpt_json_get(&added, root, "added_tokens", JSON_ARRAY, err))
        return err->code;
    if (ckpt_json_get(&model, root, "model", JSON_OBJECT, err) ||
        ckpt_json_get(&vocab, model, "vocab", JSON_OBJECT, err) ||
        count_ids(t, vocab, added, file_bytes, err))
        return err->code;
    if (t->n == 0)
        return ckpt_fail(err, CKPT_EFORMAT, "the vocabulary is empty");
    t->token = ckpt_arena_alloc(&t->arena, (size_t)t->n, sizeof *t->token);
    t->token_bytes = ckpt_arena_alloc(&t->arena, (size_t)t->n, sizeof *t->token_bytes);
    if (!t->token || !t->token_bytes)
        return ckpt_nomem(err, (size_t)t->n * sizeof *t->token);
    if (ckpt_map_new(&t->by_token, json_object_size(vocab) + json_array_size(added), err) ||
        read_vocab(t, vocab, err) || read_added(t, added, err) ||
        read_model(t, model, vocab, err))
        return err->code;
    return read_components(t, root, err);
}

int tokenizer_json_read(struct tokenizer *t, struct ckpt_file *file, struct ckpt_err *err)
{
    json_t *root = NULL;
    int rc = ckpt_json_read(&root, file, CKPT_JSON_MAX_TOKENIZER_BYTES, CKPT_JSON_STRICT, err);

    if (rc == 0)
        rc = read_root(t, root, ckpt_file_size(file), err);
    json_decref(root);
    return rc;
}

/* A special token is a string or an object with "content". */
static int config_token(struct tokenizer *t, int32_t *out, const json_t *root, const char *key,
                        struct ckpt_err *err)
{
    const json_t *v = json_object_get(root, key);
    const char *s = json_string_value(json_is_object(v) ? json_object_get(v, "content") : v);

    if (is_absent(v))
        return 0;
    if (!s)
        return ckpt_fail(err, CKPT_EFORMAT, "%s is neither a string nor an object with content",
                         key);
    *out = tokenizer_id(t, s);
    if (*out < 0)
        return ckpt_fail(err, CKPT_EMISMATCH,
                         "%s is \"%s\", which tokenizer.json does not have", key, s);
    return 0;
}

int tokenizer_json_config(struct tokenizer *t, struct ckpt_file *file, struct ckpt_err *err)
{
    json_t *root = NULL;
    bool prefix;
    int rc = ckpt_json_read(&root, file, CKPT_JSON_MAX_BYTES, CKPT_JSON_PYTHON, err);

    if (rc == 0)
        rc = config_token(t, &t->bos, root, "bos_token", err);
    if (rc == 0)
        rc = config_token(t, &t->eos, root, "eos_token", err);
    if (rc == 0)
        rc = config_token(t, &t->pad, root, "pad_token", err);
    if (rc == 0 && !is_absent(json_object_get(root, "add_prefix_space"))) {
        rc = ckpt_json_bool_or(&prefix, root, "add_prefix_space", false, err);
        if (rc == 0)
            pretok_set_prefix_space(t->pretok, prefix);
    }
    json_decref(root);
    return rc;
}

/* gguf/vocab - see gguf/vocab.h. */
#include "formats/gguf/vocab.h"

#include <stdlib.h>
#include <string.h>

#include "formats/container/value.h"
#include "formats/gguf/header.h"
#include "formats/gguf/tokens.h"
#include "libckpt/base/buf.h"
#include "libckpt/log.h"
#include "libckpt/base/map.h"

#define MAX_BYTES  ((uint64_t)256 << 20)
#define MAX_SPLITS 256          /* longest token, in characters, for which merges are searched */

struct vocab {
    const struct gguf_header *h;
    struct ckpt_file         *file;
    struct ckpt_arena         arena;
    struct value_text        *token;
    size_t                    n;
    const unsigned char      *type, *score;     /* i32 and f32, little-endian; or NULL */
    struct ckpt_map          *ids;              /* ids of tokens that merges can make */
};

/* Read the elements of an array of that kind; NULL if it is absent. */
static int fetch(const unsigned char **out, struct vocab *v, const char *key, enum gguf_kind of,
                 uint64_t *n, struct ckpt_err *err)
{
    const struct gguf_pair *p = gguf_pair(v->h, key);
    unsigned char *bytes;

    *out = NULL;
    *n = p ? p->n : 0;
    if (!p)
        return 0;
    if (p->kind != GGUF_ARRAY || p->of != of)
        return ckpt_fail(err, CKPT_EFORMAT, "%s: is no array of %s", key, gguf_kind_name(of));
    if (p->end - p->at > MAX_BYTES)
        return ckpt_fail(err, CKPT_ELIMIT, "%s: %llu bytes, %llu at most", key,
                         (unsigned long long)(p->end - p->at), (unsigned long long)MAX_BYTES);
    bytes = ckpt_arena_alloc(&v->arena, (size_t)(p->end - p->at) + 1, 1);
    *out = bytes;
    return bytes ? ckpt_file_read_at(v->file, bytes, (size_t)(p->end - p->at), p->at, err)
                 : ckpt_nomem(err, (size_t)(p->end - p->at));
}

/* Read an array of strings, each preceded by its length. */
static int fetch_texts(struct value_text **out, size_t *n, struct vocab *v, const char *key,
                       struct ckpt_err *err)
{
    const unsigned char *bytes;
    struct ckpt_cursor c;
    uint64_t count;
    int rc;

    *n = 0;
    if ((rc = fetch(&bytes, v, key, GGUF_STRING, &count, err)) != 0)
        return rc;
    *out = ckpt_arena_alloc(&v->arena, (size_t)count + 1, sizeof **out);
    if (!*out)
        return ckpt_nomem(err, (size_t)count * sizeof **out);
    ckpt_cursor_init(&c, bytes, bytes ? (size_t)(gguf_pair(v->h, key)->end -
                                                 gguf_pair(v->h, key)->at) : 0);
    for (; *n < count; ++*n) {
        uint64_t len = ckpt_cursor_u64le(&c);
        const unsigned char *p = len <= ckpt_cursor_left(&c) ? ckpt_cursor_bytes(&c, (size_t)len)
                                                             : NULL;

        if (!p || !ckpt_utf8_valid((const char *)p, (size_t)len) || memchr(p, 0, (size_t)len))
            return ckpt_fail(err, CKPT_EFORMAT, "%s: element %zu is no text", key, *n);
        (*out)[*n] = (struct value_text){(const char *)p, (size_t)len};
    }
    return 0;
}

static int32_t type_of(const struct vocab *v, size_t i)
{
    int32_t type = GGUF_TOKEN_NORMAL;

    if (v->type)
        memcpy(&type, v->type + 4 * i, 4);
    return type;
}

static float score_of(const struct vocab *v, size_t i)
{
    float score = 0;

    if (v->score)
        memcpy(&score, v->score + 4 * i, 4);
    return score;
}

/* -- merges of SentencePiece's BPE ----------------------------------------------------------- */

struct merge {
    float    score;
    uint32_t token, left, right, left_len, right_len;       /* lengths in characters */
};

/* By score, highest first, then by length; merges of one token by the ids of the parts. */
static int by_score(const void *a, const void *b)
{
    const struct merge *x = a, *y = b;

    if (x->score != y->score)
        return x->score > y->score ? -1 : 1;
    if (x->left_len != y->left_len)
        return x->left_len > y->left_len ? -1 : 1;
    if (x->right_len != y->right_len)
        return x->right_len > y->right_len ? -1 : 1;
    if (x->token != y->token)
        return x->token < y->token ? -1 : 1;
    return x->left != y->left ? x->left < y->left ? -1 : 1 : 0;
}

static bool starts_char(char c) { return ((unsigned char)c & 0xc0) != 0x80; }

/* List every way to split token i into two others; with list NULL count them. */
static size_t cut(const struct vocab *v, size_t i, struct merge *list)
{
    const struct value_text *t = &v->token[i];
    uint32_t chars = 0, at = 0;
    size_t n = 0;

    for (size_t k = 0; k < t->n; k++)
        chars += starts_char(t->p[k]);
    if (chars > MAX_SPLITS || type_of(v, i) != GGUF_TOKEN_NORMAL)
        return 0;
    for (size_t k = 1; k < t->n; k++) {
        size_t left, right;

        if (!starts_char(t->p[k]))
            continue;
        at++;
        left = ckpt_map_get(v->ids, t->p, k);
        right = left == CKPT_MAP_NONE ? left : ckpt_map_get(v->ids, t->p + k, t->n - k);
        if (right == CKPT_MAP_NONE)
            continue;
        if (list)
            list[n] = (struct merge){score_of(v, i), (uint32_t)i, (uint32_t)left, (uint32_t)right,
                                     at, chars - at};
        n++;
    }
    return n;
}

static int merges_by_score(json_t *out, struct vocab *v, struct ckpt_err *err)
{
    struct merge *list;
    size_t n = 0, at = 0;
    int rc = 0;

    for (size_t i = 0; i < v->n; i++)
        n += cut(v, i, NULL);
    list = ckpt_alloc(n + 1, sizeof *list);
    if (!list)
        return ckpt_nomem(err, n * sizeof *list);
    for (size_t i = 0; i < v->n; i++)
        at += cut(v, i, list + at);
    qsort(list, n, sizeof *list, by_score);
    for (size_t i = 0; rc == 0 && i < n; i++) {
        const struct value_text *l = &v->token[list[i].left], *r = &v->token[list[i].right];

        if (json_array_append_new(out, json_pack("[s%,s%]", l->p, l->n, r->p, r->n)))
            rc = ckpt_nomem(err, 64);
    }
    ckpt_free(list);
    return rc;
}

/* -- the parts of tokenizer.json ------------------------------------------------------------- */

/* List tokens that were added by users or the model's maker, besides those that merges make. */
static int put_tokens(json_t *vocab, json_t *added, struct vocab *v, bool bytes,
                      struct ckpt_err *err)
{
    int rc;

    for (size_t i = 0; i < v->n; i++) {
        const struct value_text *t = &v->token[i];
        int32_t type = type_of(v, i);
        bool listed = type == GGUF_TOKEN_CONTROL || type == GGUF_TOKEN_USER_DEFINED ||
                     type == GGUF_TOKEN_UNKNOWN;

        if (type == GGUF_TOKEN_UNUSED && t->n > 4 && memcmp(t->p, "[PAD", 4) == 0)
            continue;                   /* an unused id */
        if (listed && json_array_append_new(added, json_pack(
                         "{s:I,s:s%,s:b,s:b,s:b,s:b,s:b}", "id", (json_int_t)i, "content", t->p,
                         t->n, "single_word", 0, "lstrip", 0, "rstrip", 0, "normalized", 0,
                         "special", type != GGUF_TOKEN_USER_DEFINED)))
            return ckpt_nomem(err, 64);
        if (listed && !bytes)
            continue;
        if (json_object_getn(vocab, t->p, t->n))
            return ckpt_fail(err, CKPT_EFORMAT, "tokenizer.ggml.tokens: %.*s stands twice",
                             (int)(t->n < 200 ? t->n : 200), t->p);
        if (json_object_setn_new(vocab, t->p, t->n, json_integer((json_int_t)i)))
            return ckpt_nomem(err, 64);
        if ((rc = ckpt_map_add(v->ids, t->p, t->n, i, err)) != 0)
            return rc;
    }
    return 0;
}

/* Merges as in the file: "left right". */
static int put_merges(json_t *merges, struct vocab *v, struct ckpt_err *err)
{
    struct value_text *text;
    size_t n;
    int rc = fetch_texts(&text, &n, v, "tokenizer.ggml.merges", err);

    for (size_t i = 0; rc == 0 && i < n; i++)
        if (json_array_append_new(merges, json_stringn(text[i].p, text[i].n)))
            rc = ckpt_nomem(err, 64);
    return rc;
}

static json_t *byte_level(bool regex, bool prefix)
{
    return json_pack("{s:s,s:b,s:b,s:b}", "type", "ByteLevel", "add_prefix_space", prefix,
                     "trim_offsets", 1, "use_regex", regex);
}

/* llama.cpp's names of pre-tokenizers, and the equivalent known here. */
static const struct split { const char *name, *like; bool ignores_merges; } ways[] = {
    {"gpt-2", NULL, false},           {"gpt2", NULL, false},
    {"mpt", NULL, false},             {"olmo", NULL, false},
    {"jais", NULL, false},            {"phi-2", NULL, false},
    {"dbrx", "llama-bpe", false},     {"smaug-bpe", "llama-bpe", false},
    {"llama3", "llama-bpe", true},    {"llama-v3", "llama-bpe", true},
    {"llama-bpe", "llama-bpe", true}, {"falcon3", "llama-bpe", true},
    {"pixtral", "llama-bpe", true},   {"qwen2", "qwen2", false},
    {"megrez", "qwen2", false},       {"deepseek-r1-qwen", "qwen2", false},
    {"bloom", "bloom", false},        {"poro-chat", "bloom", false},
    {"gpt3-finnish", "bloom", false},
};

static const struct split *find_split(const char *name)
{
    for (size_t i = 0; name && i < sizeof ways / sizeof ways[0]; i++)
        if (strcmp(ways[i].name, name) == 0)
            return &ways[i];
    return NULL;
}

static json_t *pre_tokenizer(const struct split *way)
{
    if (!way->like)
        return byte_level(true, false);
    return json_pack("{s:s,s:[{s:s,s:{s:s},s:s,s:b},o]}", "type", "Sequence", "pretokenizers",
                     "type", "Split", "pattern", "Regex", gguf_split_regex(way->like), "behavior",
                     "Isolated", "invert", 0, byte_level(false, false));
}

static const struct value_text *special(const struct vocab *v, const char *name)
{
    const struct gguf_pair *p = gguf_pair(v->h, name);
    json_int_t id = p && json_is_integer(p->value) ? json_integer_value(p->value) : -1;

    return id >= 0 && (uint64_t)id < v->n ? &v->token[id] : NULL;
}

static bool adds(const struct vocab *v, const char *key, bool otherwise)
{
    const struct gguf_pair *p = gguf_pair(v->h, key);

    return p && json_is_boolean(p->value) ? json_is_true(p->value) : otherwise;
}

static json_t *special_piece(const struct value_text *t, int type_id)
{
    return json_pack("{s:{s:s%,s:i}}", "SpecialToken", "id", t->p, t->n, "type_id", type_id);
}

/* The tokens around one text, and around two. */
static json_t *template_of(const struct value_text *bos, const struct value_text *eos, int texts)
{
    json_t *list = json_array();

    for (int i = 0; i < texts; i++) {
        if (bos)
            json_array_append_new(list, special_piece(bos, i));
        json_array_append_new(list, json_pack("{s:{s:s,s:i}}", "Sequence", "id", i ? "B" : "A",
                                              "type_id", i));
        if (eos)
            json_array_append_new(list, special_piece(eos, i));
    }
    return list;
}

static json_t *post_processor(const struct vocab *v, bool bytes)
{
    const struct value_text *bos = special(v, "tokenizer.ggml.bos_token_id");
    const struct value_text *eos = special(v, "tokenizer.ggml.eos_token_id"), *both[2];
    json_t *tokens;

    both[0] = bos = adds(v, "tokenizer.ggml.add_bos_token", bytes) ? bos : NULL;
    both[1] = eos = adds(v, "tokenizer.ggml.add_eos_token", false) ? eos : NULL;
    if (!bos && !eos)
        return bytes ? json_null() : byte_level(true, true);
    tokens = json_object();
    for (size_t i = 0; i < 2; i++)
        if (both[i])
            json_object_setn_new(tokens, both[i]->p, both[i]->n, json_pack(
                "{s:s%,s:[i],s:[s%]}", "id", both[i]->p, both[i]->n, "ids",
                (int)(both[i] - v->token), "tokens", both[i]->p, both[i]->n));
    return json_pack("{s:s,s:o,s:o,s:o}", "type", "TemplateProcessing", "single",
                     template_of(bos, eos, 1), "pair", template_of(bos, eos, 2),
                     "special_tokens", tokens);
}

/* SentencePiece: blanks are U+2581, one is put in front; bytes are separate tokens. */
static json_t *sentencepiece_normalizer(bool prefix)
{
    json_t *replace = json_pack("{s:s,s:{s:s},s:s}", "type", "Replace", "pattern", "String", " ",
                                "content", "\xe2\x96\x81");

    return prefix ? json_pack("{s:s,s:[{s:s,s:s},o]}", "type", "Sequence", "normalizers", "type",
                              "Prepend", "prepend", "\xe2\x96\x81", replace)
                  : json_pack("{s:s,s:[o]}", "type", "Sequence", "normalizers", replace);
}

static json_t *sentencepiece_decoder(bool prefix)
{
    json_t *list = json_pack("[{s:s,s:{s:s},s:s},{s:s},{s:s}]", "type", "Replace", "pattern",
                             "String", "\xe2\x96\x81", "content", " ", "type", "ByteFallback",
                             "type", "Fuse");

    if (prefix)
        json_array_append_new(list, json_pack("{s:s,s:s,s:i,s:i}", "type", "Strip", "content", " ",
                                              "start", 1, "stop", 0));
    return json_pack("{s:s,s:o}", "type", "Sequence", "decoders", list);
}

/* The parts of tokenizer.json that do not depend on the vocabulary; takes split. */
static json_t *frame(const struct vocab *v, bool bytes, json_t *split, bool ignores)
{
    const struct value_text *unknown = special(v, "tokenizer.ggml.unknown_token_id");
    bool prefix = adds(v, "tokenizer.ggml.add_space_prefix", true);
    json_t *model = json_pack(
        "{s:s,s:n,s:o,s:n,s:n,s:b,s:b,s:b,s:{},s:[]}", "type", "BPE", "dropout", "unk_token",
        bytes && unknown ? json_stringn(unknown->p, unknown->n) : json_null(),
        "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk", bytes, "byte_fallback",
        bytes, "ignore_merges", ignores, "vocab", "merges");

    return json_pack(
        "{s:s,s:n,s:n,s:[],s:o,s:o,s:o,s:o,s:o}", "version", "1.0", "truncation", "padding",
        "added_tokens", "normalizer", bytes ? sentencepiece_normalizer(prefix) : json_null(),
        "pre_tokenizer", split, "post_processor", post_processor(v, bytes), "decoder",
        bytes ? sentencepiece_decoder(prefix) : byte_level(true, true), "model", model);
}

static int build(json_t **out, struct vocab *v, bool bytes, json_t *split, bool ignores,
                 struct ckpt_err *err)
{
    json_t *root = *out = frame(v, bytes, split, ignores);
    json_t *model = json_object_get(root, "model"), *merges = json_object_get(model, "merges");
    int rc = root ? put_tokens(json_object_get(model, "vocab"),
                               json_object_get(root, "added_tokens"), v, bytes, err)
                  : ckpt_nomem(err, 256);

    if (rc == 0)
        rc = bytes ? merges_by_score(merges, v, err) : put_merges(merges, v, err);
    return rc;
}

/* tokenizer_config.json: the special tokens. */
static json_t *settings_of(const struct vocab *v)
{
    static const struct { const char *key, *name; } rows[] = {
        {"tokenizer.ggml.bos_token_id", "bos_token"}, {"tokenizer.ggml.eos_token_id", "eos_token"},
        {"tokenizer.ggml.unknown_token_id", "unk_token"},
        {"tokenizer.ggml.padding_token_id", "pad_token"},
    };
    json_t *out = json_pack("{s:s}", "tokenizer_class", "PreTrainedTokenizerFast");

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const struct value_text *t = special(v, rows[i].key);

        if (t)
            json_object_set_new(out, rows[i].name, json_stringn(t->p, t->n));
    }
    return out;
}

static int read_lists(struct vocab *v, struct ckpt_err *err)
{
    uint64_t types, scores;
    int rc;

    if ((rc = fetch_texts(&v->token, &v->n, v, "tokenizer.ggml.tokens", err)) != 0 ||
        (rc = fetch(&v->type, v, "tokenizer.ggml.token_type", GGUF_I32, &types, err)) != 0 ||
        (rc = fetch(&v->score, v, "tokenizer.ggml.scores", GGUF_F32, &scores, err)) != 0)
        return rc;
    if ((v->type && types != v->n) || (v->score && scores != v->n) || v->n > INT32_MAX)
        return ckpt_fail(err, CKPT_EFORMAT, "tokenizer.ggml: %zu tokens, %llu types, %llu scores",
                         v->n, (unsigned long long)types, (unsigned long long)scores);
    return ckpt_map_new(&v->ids, v->n + 1, err);
}

int gguf_vocab(json_t **tokenizer, json_t **settings, struct ckpt_file *file,
               struct ckpt_err *err)
{
    struct gguf_header h = {0};
    struct vocab v = {.h = &h, .file = file};
    const struct split *way = NULL;
    const char *model, *pre;
    bool bytes;
    int rc = gguf_header_read(&h, file, err);

    *tokenizer = *settings = NULL;
    model = rc == 0 ? gguf_string(&h, "tokenizer.ggml.model") : NULL;
    pre = rc == 0 ? gguf_string(&h, "tokenizer.ggml.pre") : NULL;
    bytes = model && strcmp(model, "llama") == 0;
    if (model && strcmp(model, "gpt2") == 0)
        way = find_split(pre);
    if (way || bytes) {
        rc = read_lists(&v, err);
        if (rc == 0)
            rc = build(tokenizer, &v, bytes, way ? pre_tokenizer(way) : json_null(),
                       way && way->ignores_merges, err);
        *settings = rc == 0 ? settings_of(&v) : NULL;
    } else if (model && strcmp(model, "none") != 0) {
        ckpt_log(CKPT_LOG_NOTE, "a vocabulary of the kind %s%s%s is left out", model,
                 pre ? ", split as " : "", pre ? pre : "");
    }
    if (rc) {
        json_decref(*tokenizer);
        *tokenizer = NULL;
    }
    ckpt_map_free(v.ids);
    ckpt_arena_release(&v.arena);
    gguf_header_release(&h);
    return rc;
}

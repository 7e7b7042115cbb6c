/* gguf/tokens - see gguf/tokens.h. */
#include "formats/gguf/tokens.h"

#include <stdio.h>
#include <string.h>

#include "libckpt/base/buf.h"
#include "libckpt/log.h"
#include "libckpt/base/map.h"
#include "libckpt/mem.h"

#define MAX_TOKENS 4000000          /* the largest known vocabularies have half a million */

struct tokens {
    const char **text;              /* [n], NULL: an id that has no token */
    int         *type;              /* [n] enum gguf_token */
    double      *score;             /* [n] */
    size_t       n;
    bool         bytes;             /* byte fallback: SentencePiece's BPE */
    const json_t *added;            /* added_tokens */
    struct ckpt_arena arena;
};

/* Pre-tokenizers: the regular expression in tokenizer.json, and llama.cpp's name. */
static const struct { const char *regex, *name; } splits[] = {
    {"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| "
     "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+", "llama-bpe"},
    {"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| "
     "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+", "qwen2"},
    {" ?[^(\\s|[.,!?…。，、।۔،])]+", "bloom"},
};

/* Names of special tokens in settings and config, and in GGUF. */
static const struct { const char *token, *id, *key, *add; } specials[] = {
    {"bos_token", "bos_token_id", "tokenizer.ggml.bos_token_id", "add_bos_token"},
    {"eos_token", "eos_token_id", "tokenizer.ggml.eos_token_id", "add_eos_token"},
    {"unk_token", "unk_token_id", "tokenizer.ggml.unknown_token_id", NULL},
    {"sep_token", "sep_token_id", "tokenizer.ggml.seperator_token_id", NULL},
    {"pad_token", "pad_token_id", "tokenizer.ggml.padding_token_id", NULL},
    {"mask_token", "mask_token_id", "tokenizer.ggml.mask_token_id", NULL},
};

const char *gguf_split_regex(const char *name)
{
    for (size_t i = 0; i < sizeof splits / sizeof splits[0]; i++)
        if (strcmp(splits[i].name, name) == 0)
            return splits[i].regex;
    return NULL;
}

static const char *str(const json_t *obj, const char *key)
{
    return json_string_value(json_object_get(obj, key));
}

/* -- tokens ---------------------------------------------------------------------------------- */

static int64_t highest(const json_t *vocab, const json_t *added, int64_t most)
{
    const char *key;
    const json_t *v;
    size_t i;

    json_object_foreach ((json_t *)vocab, key, v)
        most = json_integer_value(v) > most ? (int64_t)json_integer_value(v) : most;
    json_array_foreach ((json_t *)added, i, v) {
        int64_t id = json_integer_value(json_object_get(v, "id"));

        most = id > most ? id : most;
    }
    return most;
}

static bool is_byte(const char *s)
{
    unsigned v;
    int n = 0;

    return strlen(s) == 6 && sscanf(s, "<0x%2X>%n", &v, &n) == 1 && n == 6;
}

static int put_token(struct tokens *t, int64_t id, const char *text, int type,
                     struct ckpt_err *err)
{
    if (id < 0 || (uint64_t)id >= t->n || !text)
        return ckpt_fail(err, CKPT_EFORMAT, "tokenizer.json: a token of id %lld", (long long)id);
    t->text[id] = text;
    t->type[id] = type;
    return 0;
}

/* Blanks instead of U+2581, in tokens that users added. */
static const char *blanks(struct tokens *t, const char *s)
{
    size_t n = strlen(s), at = 0;
    char *copy = ckpt_arena_alloc(&t->arena, n + 1, 1);

    while (copy && *s) {
        if (strncmp(s, "\xe2\x96\x81", 3) == 0) {
            copy[at++] = ' ';
            s += 3;
        } else {
            copy[at++] = *s++;
        }
    }
    return copy;
}

static bool looks_special(const char *s)
{
    size_t n = strlen(s);

    return strcmp(s, "<pad>") == 0 || strcmp(s, "<mask>") == 0 || strcmp(s, "<2mass>") == 0 ||
           strcmp(s, "[@BOS@]") == 0 ||
           (n >= 4 && strncmp(s, "<|", 2) == 0 && strcmp(s + n - 2, "|>") == 0) ||
           (n >= 8 && strncmp(s, "<\xef\xbd\x9c", 4) == 0 &&
            strcmp(s + n - 4, "\xef\xbd\x9c>") == 0) ||
           (n >= 8 && strncmp(s, "<unused", 7) == 0 && s[n - 1] == '>');
}

static int read_vocab(struct tokens *t, const json_t *tokenizer, int64_t vocab_size,
                      struct ckpt_err *err)
{
    const json_t *model = json_object_get(tokenizer, "model"), *v;
    const json_t *vocab = json_object_get(model, "vocab");
    const char *unknown = str(model, "unk_token"), *key;
    int64_t n = highest(vocab, t->added, vocab_size - 1) + 1;
    size_t i;
    int rc = 0;

    if (n < 1 || n > MAX_TOKENS)
        return ckpt_fail(err, CKPT_ELIMIT, "tokenizer.json: %lld tokens, %d at most",
                         (long long)n, MAX_TOKENS);
    t->n = (size_t)n;
    t->text = ckpt_alloc(t->n, sizeof *t->text);
    t->type = ckpt_alloc(t->n, sizeof *t->type);
    t->score = ckpt_alloc(t->n, sizeof *t->score);
    if (!t->text || !t->type || !t->score)
        return ckpt_nomem(err, t->n * 16);
    json_object_foreach ((json_t *)vocab, key, v)
        if ((rc = put_token(t, json_is_integer(v) ? (int64_t)json_integer_value(v) : -1, key,
                            t->bytes && is_byte(key) ? GGUF_TOKEN_BYTE : GGUF_TOKEN_NORMAL,
                            err)) != 0)
            return rc;
    json_array_foreach ((json_t *)t->added, i, v) {
        const char *text = str(v, "content");
        bool special = json_is_true(json_object_get(v, "special"));
        int type = GGUF_TOKEN_USER_DEFINED;

        if (text && t->bytes && unknown && strcmp(text, unknown) == 0)
            type = GGUF_TOKEN_UNKNOWN;
        else if (special || (text && !t->bytes && looks_special(text)))
            type = GGUF_TOKEN_CONTROL;
        if (text && type == GGUF_TOKEN_USER_DEFINED && !(text = blanks(t, text)))
            return ckpt_nomem(err, 64);
        if ((rc = put_token(t, json_integer_value(json_object_get(v, "id")), text, type,
                            err)) != 0)
            return rc;
    }
    return 0;
}

/* -- merges ---------------------------------------------------------------------------------- */

/* "left right": a blank within a part would be read as the separator, so it must be spelt
 * U+0120. */
static bool put_part(struct ckpt_buf *b, const char *s)
{
    for (; *s; s++)
        if (*s == ' ')
            ckpt_buf_put_str(b, "\xc4\xa0");
        else
            ckpt_buf_put_u8(b, (uint8_t)*s);
    return ckpt_buf_ok(b);
}

static json_t *merge_text(const json_t *merge, struct ckpt_buf *b)
{
    const char *left = json_string_value(json_array_get(merge, 0));
    const char *right = json_string_value(json_array_get(merge, 1));

    if (json_is_string(merge))
        return json_incref((json_t *)merge);
    if (!left || !right)
        return NULL;
    b->len = 0;
    if (!put_part(b, left))
        return NULL;
    ckpt_buf_put_u8(b, ' ');
    return put_part(b, right) ? json_stringn((char *)b->data, b->len) : NULL;
}

static int put_merges(struct gguf_keys *keys, const json_t *merges, struct ckpt_err *err)
{
    json_t *list = json_array(), *merge;
    struct ckpt_buf b;
    size_t i;
    int rc = list ? 0 : ckpt_nomem(err, 64);

    ckpt_buf_init(&b, (size_t)1 << 20);
    json_array_foreach ((json_t *)merges, i, merge) {
        json_t *text = rc == 0 ? merge_text(merge, &b) : NULL;

        if (rc == 0 && (!text || json_array_append_new(list, text)))
            rc = ckpt_fail(err, CKPT_EFORMAT, "tokenizer.json: merge %zu is no pair", i);
    }
    ckpt_buf_release(&b);
    if (rc == 0 && json_array_size(list) > 0)
        gguf_put(keys, "tokenizer.ggml.merges", "string[]", json_incref(list));
    json_decref(list);
    return rc;
}

/*
 * SentencePiece's scores, which tokenizer.json has lost: earlier merges score higher.  Merges
 * that make the same token are adjacent, so that a token counts once.
 */
static int put_ranks(struct tokens *t, const json_t *merges, struct ckpt_err *err)
{
    struct ckpt_map *ids;
    json_t *merge;
    struct ckpt_buf b;
    double rank = 0;
    size_t i;
    int rc = ckpt_map_new(&ids, t->n, err);

    if (rc)
        return rc;
    ckpt_buf_init(&b, (size_t)1 << 20);
    for (i = 0; rc == 0 && i < t->n; i++) {
        t->score[i] = t->type[i] == GGUF_TOKEN_NORMAL;      /* 1: no merge has made it so far */
        if (t->type[i] == GGUF_TOKEN_NORMAL && t->text[i])
            rc = ckpt_map_add(ids, t->text[i], strlen(t->text[i]), i, err);
    }
    json_array_foreach ((json_t *)merges, i, merge) {
        const char *whole = json_string_value(merge);
        const char *left = json_string_value(json_array_get(merge, 0));
        const char *right = json_string_value(json_array_get(merge, 1));
        const char *gap = whole ? strchr(whole, ' ') : NULL;
        size_t id;

        b.len = 0;
        if (gap) {
            ckpt_buf_put(&b, whole, (size_t)(gap - whole));
            ckpt_buf_put_str(&b, gap + 1);
        } else if (left && right) {
            ckpt_buf_put_str(&b, left);
            ckpt_buf_put_str(&b, right);
        }
        id = b.len ? ckpt_map_get(ids, (char *)b.data, b.len) : CKPT_MAP_NONE;
        if (id != CKPT_MAP_NONE && t->score[id] > 0)
            t->score[id] = rank--;
    }
    for (i = 0; i < t->n; i++)                             /* single characters, after all others */
        t->score[i] = t->score[i] > 0 ? rank-- : t->score[i];
    if (rc == 0 && !ckpt_buf_ok(&b))
        rc = ckpt_nomem(err, 64);
    ckpt_buf_release(&b);
    ckpt_map_free(ids);
    return rc;
}

/* -- keys ------------------------------------------------------------------------------------ */

static void put_lists(struct gguf_keys *keys, const struct tokens *t)
{
    json_t *text = json_array(), *type = json_array(), *score = json_array();
    bool ok = text && type && score;
    char pad[32];

    for (size_t i = 0; ok && i < t->n; i++) {
        snprintf(pad, sizeof pad, "[PAD%zu]", i);
        ok = json_array_append_new(text, json_string(t->text[i] ? t->text[i] : pad)) == 0 &&
             json_array_append_new(type, json_integer(t->text[i] ? t->type[i]
                                                                 : GGUF_TOKEN_UNUSED)) == 0 &&
             (!t->bytes || json_array_append_new(score, json_real(t->score[i])) == 0);
    }
    keys->failed |= !ok;
    gguf_put(keys, "tokenizer.ggml.tokens", "string[]", text);
    if (t->bytes)
        gguf_put(keys, "tokenizer.ggml.scores", "f32[]", score);
    else
        json_decref(score);
    gguf_put(keys, "tokenizer.ggml.token_type", "i32[]", type);
}

/* The regular expression of the pre-tokenizer, or NULL. */
static const char *split_of(const json_t *pre)
{
    const json_t *list = json_object_get(pre, "pretokenizers"), *p;
    const char *found = NULL;
    size_t i;

    if (!list)
        return str(json_object_get(pre, "pattern"), "Regex");
    json_array_foreach ((json_t *)list, i, p)
        if (str(json_object_get(p, "pattern"), "Regex"))
            found = str(json_object_get(p, "pattern"), "Regex");
    return found;
}

static const char *pre_name(const json_t *tokenizer)
{
    const json_t *pre = json_object_get(tokenizer, "pre_tokenizer");
    const char *type = str(pre, "type"), *regex = split_of(pre);

    if (type && strcmp(type, "ByteLevel") == 0 &&
        !json_is_false(json_object_get(pre, "use_regex")))
        return "gpt-2";
    for (size_t i = 0; regex && i < sizeof splits / sizeof splits[0]; i++)
        if (strcmp(splits[i].regex, regex) == 0)
            return splits[i].name;
    ckpt_log(CKPT_LOG_NOTE, "tokenizer.json: its way of splitting has no name here, the file "
             "says \"default\"");
    return "default";
}

/* The text of a special token in settings, or NULL. */
static const char *special(const json_t *settings, const char *name)
{
    const json_t *v = json_object_get(settings, name);

    return json_is_object(v) ? str(v, "content") : json_string_value(v);
}

static const json_t *id_of(const json_t *added, const char *text)
{
    const json_t *v;
    size_t i;

    json_array_foreach ((json_t *)added, i, v)
        if (text && str(v, "content") && strcmp(str(v, "content"), text) == 0)
            return json_object_get(v, "id");
    return NULL;
}

static void put_special_ids(struct gguf_keys *keys, const struct tokens *t,
                            const json_t *settings, const json_t *config)
{
    for (size_t i = 0; i < sizeof specials / sizeof specials[0]; i++) {
        const json_t *id = id_of(t->added, special(settings, specials[i].token));

        if (!json_is_integer(id))
            id = json_object_get(config, specials[i].id);
        if (json_is_integer(id) && json_integer_value(id) >= 0 &&
            (uint64_t)json_integer_value(id) < t->n)
            gguf_put(keys, specials[i].key, "u32", json_integer(json_integer_value(id)));
    }
}

/* What the post-processor puts before (which 0) or after (which 1) a text: -1 unknown, else
 * whether it is that token. */
static int adds(const json_t *post, int which, const char *token)
{
    const json_t *list = json_object_get(post, "processors"), *p = post;
    int says = -1;

    for (size_t i = 0; i < (list ? json_array_size(list) : 1); i++) {
        const char *type, *id;
        const json_t *single;

        p = list ? json_array_get(list, i) : post;
        type = str(p, "type");
        single = json_object_get(p, "single");
        if (type && strcmp(type, "ByteLevel") == 0 && says < 0)
            says = 0;
        if (type && strcmp(type, "RobertaProcessing") == 0)
            says = 1;
        if (!type || strcmp(type, "TemplateProcessing") != 0 || json_array_size(single) < 2)
            continue;
        id = str(json_object_get(json_array_get(single, which ? json_array_size(single) - 1 : 0),
                                 "SpecialToken"), "id");
        if (id)
            says = !token || strcmp(id, token) == 0;
    }
    return says;
}

static void put_adds(struct gguf_keys *keys, const json_t *tokenizer, const json_t *settings)
{
    const json_t *post = json_object_get(tokenizer, "post_processor");

    for (int which = 0; which < 2; which++) {
        int says = adds(post, which, special(settings, specials[which].token));
        const json_t *v = json_object_get(settings, specials[which].add);
        char key[64];

        if (says < 0 && json_is_boolean(v))
            says = json_is_true(v);
        snprintf(key, sizeof key, "tokenizer.ggml.%s", specials[which].add);
        if (says >= 0)
            gguf_put(keys, key, "bool", json_boolean(says));
    }
}

/* The template itself, or of several the one called "default". */
static const char *template_of(const json_t *settings, const char *chat_template)
{
    const json_t *v = json_object_get(settings, "chat_template"), *one;
    size_t i;

    if (json_is_string(v))
        return json_string_value(v);
    json_array_foreach ((json_t *)v, i, one)
        if (str(one, "name") && strcmp(str(one, "name"), "default") == 0)
            return str(one, "template");
    return chat_template;
}

int gguf_token_keys(struct gguf_keys *keys, const json_t *tokenizer, const json_t *settings,
                    const json_t *config, const char *chat_template, struct ckpt_err *err)
{
    const json_t *model = json_object_get(tokenizer, "model");
    const json_t *merges = json_object_get(model, "merges");
    const json_t *prefix = json_object_get(settings, "add_prefix_space");
    struct tokens t = {.added = json_object_get(tokenizer, "added_tokens"),
                       .bytes = json_is_true(json_object_get(model, "byte_fallback"))};
    const char *type = str(model, "type");
    int rc;

    if (!tokenizer) {                   /* weights only: llama.cpp then takes ids */
        gguf_put(keys, "tokenizer.ggml.model", "string", json_string("none"));
        return 0;
    }
    if (!type || strcmp(type, "BPE") != 0 || !json_is_object(json_object_get(model, "vocab"))) {
        ckpt_log(CKPT_LOG_NOTE, "tokenizer.json: a model of type %s is not written as tokens",
                 type ? type : "unknown");
        return 0;
    }
    rc = read_vocab(&t, tokenizer, json_integer_value(json_object_get(config, "vocab_size")), err);
    if (rc == 0 && t.bytes)
        rc = put_ranks(&t, merges, err);
    if (rc == 0) {
        gguf_put(keys, "tokenizer.ggml.model", "string", json_string(t.bytes ? "llama" : "gpt2"));
        gguf_put(keys, "tokenizer.ggml.pre", "string",
                 json_string(t.bytes ? "default" : pre_name(tokenizer)));
        put_lists(keys, &t);
    }
    if (rc == 0 && !t.bytes)
        rc = put_merges(keys, merges, err);
    if (rc == 0) {
        put_special_ids(keys, &t, settings, config);
        put_adds(keys, tokenizer, settings);
    }
    if (t.bytes && json_is_boolean(prefix))
        gguf_put(keys, "tokenizer.ggml.add_space_prefix", "bool", json_incref((json_t *)prefix));
    chat_template = template_of(settings, chat_template);
    if (chat_template)
        gguf_put(keys, "tokenizer.chat_template", "string", json_string(chat_template));
    ckpt_free(t.text);
    ckpt_free(t.type);
    ckpt_free(t.score);
    ckpt_arena_release(&t.arena);
    return rc;
}

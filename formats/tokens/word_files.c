/* word_files - see word_files.h. */
#include "formats/tokens/word_files.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/tokens/component.h"
#include "formats/tokens/unicode/scan.h"
#include "formats/tokens/unicode/unicode.h"
#include "libckpt/base/json.h"
#include "libckpt/mem.h"

#define MOST_SENTINELS 10000
#define QWEN_PATTERN                                                                           \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}"                        \
    "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

/* A special token that config names under key, or fallback. */
static const char *named(const json_t *config, const char *key, const char *fallback)
{
    const json_t *v = json_object_get(config, key);
    const char *s = json_string_value(json_is_object(v) ? json_object_get(v, "content") : v);

    return s ? s : fallback;
}

static json_t *id_of(const json_t *vocab, const char *token)
{
    return json_object_get(vocab, token);
}

static int read_lines(json_t *vocab, const char *text, size_t n, struct ckpt_err *err)
{
    json_int_t id = 0;

    for (size_t at = 0; at < n; id++) {
        const char *s = text + at, *eol = memchr(s, '\n', n - at);
        size_t len = eol ? (size_t)(eol - s) : n - at, width, i;

        at += len + (eol != NULL);
        if (memchr(s, '\0', len) || utf8_valid_prefix((const unsigned char *)s, len) != len)
            return ckpt_fail(err, CKPT_EFORMAT, "line %lld is not UTF-8", (long long)id + 1);
        while (len > 0) {
            for (i = len - 1; i > 0 && ((unsigned char)s[i] & 0xc0) == 0x80; i--)
                ;
            if (!unicode_is_space(utf8_get((const unsigned char *)s + i, &width)))
                break;
            len = i;
        }
        if (json_object_setn_new_nocheck(vocab, s, len, json_integer(id)))
            return ckpt_nomem(err, len);
    }
    return id ? 0 : ckpt_fail(err, CKPT_EFORMAT, "no lines");
}

/* A template of the tokens around one text, or two. */
static json_t *bert_template(const char *cls, const char *sep, const json_t *vocab)
{
    return json_pack(
        "{s:s,s:[{s:{s:s,s:i}},{s:{s:s,s:i}},{s:{s:s,s:i}}],"
        "s:[{s:{s:s,s:i}},{s:{s:s,s:i}},{s:{s:s,s:i}},{s:{s:s,s:i}},{s:{s:s,s:i}}],"
        "s:{s:{s:s,s:[O],s:[s]},s:{s:s,s:[O],s:[s]}}}",
        "type", "TemplateProcessing", "single", "SpecialToken", "id", cls, "type_id", 0,
        "Sequence", "id", "A", "type_id", 0, "SpecialToken", "id", sep, "type_id", 0, "pair",
        "SpecialToken", "id", cls, "type_id", 0, "Sequence", "id", "A", "type_id", 0,
        "SpecialToken", "id", sep, "type_id", 0, "Sequence", "id", "B", "type_id", 1,
        "SpecialToken", "id", sep, "type_id", 1, "special_tokens", cls, "id", cls, "ids",
        id_of(vocab, cls), "tokens", cls, sep, "id", sep, "ids", id_of(vocab, sep), "tokens",
        sep);
}

int word_files_vocab_txt(json_t **out, const char *text, size_t n, const json_t *config,
                         struct ckpt_err *err)
{
    const char *cls = named(config, "cls_token", "[CLS]"), *sep = named(config, "sep_token",
                                                                        "[SEP]");
    bool lower, chinese, accents;
    json_t *vocab = json_object(), *post = NULL;
    int rc = vocab ? read_lines(vocab, text, n, err) : ckpt_nomem(err, n);

    *out = NULL;
    if (rc == 0 && (ckpt_json_bool_or(&lower, config, "do_lower_case", true, err) ||
                    ckpt_json_bool_or(&chinese, config, "tokenize_chinese_chars", true, err) ||
                    ckpt_json_bool_or(&accents, config, "strip_accents", lower, err)))
        rc = ckpt_err_code(err);
    if (rc) {
        json_decref(vocab);
        return rc;
    }
    if (id_of(vocab, cls) && id_of(vocab, sep) && strcmp(cls, sep) != 0)
        post = bert_template(cls, sep, vocab);
    *out = json_pack("{s:s,s:{s:s,s:b,s:b,s:b,s:b},s:{s:s},s:o*,s:{s:s,s:s,s:b},"
                     "s:{s:s,s:s,s:s,s:o}}",
                     "version", "1.0", "normalizer", "type", "BertNormalizer", "clean_text", 1,
                     "handle_chinese_chars", chinese, "strip_accents", accents, "lowercase",
                     lower, "pre_tokenizer", "type", "BertPreTokenizer", "post_processor", post,
                     "decoder", "type", "WordPiece", "prefix", "##", "cleanup", 1, "model",
                     "type", "WordPiece", "unk_token", named(config, "unk_token", "[UNK]"),
                     "continuing_subword_prefix", "##", "vocab", vocab);
    return *out ? 0 : ckpt_nomem(err, n);
}

static int read_merges(json_t *list, const char *text, size_t n, struct ckpt_err *err)
{
    uint64_t line = 1;

    for (size_t at = 0; at < n; line++) {
        const char *s = text + at, *eol = memchr(s, '\n', n - at);
        size_t len = eol ? (size_t)(eol - s) : n - at;

        at += len + (eol != NULL);
        len -= len > 0 && s[len - 1] == '\r';
        if (len == 0 || (len >= 8 && memcmp(s, "#version", 8) == 0))
            continue;
        if (memchr(s, '\0', len) || utf8_valid_prefix((const unsigned char *)s, len) != len)
            return ckpt_fail(err, CKPT_EFORMAT, "merges.txt:%llu: not UTF-8",
                             (unsigned long long)line);
        if (json_array_append_new(list, json_stringn(s, len)))
            return ckpt_nomem(err, len);
    }
    return 0;
}

static bool is_class(const json_t *config, const char *name)
{
    const char *s = json_string_value(json_object_get(config, "tokenizer_class"));

    return s && strncmp(s, name, strlen(name)) == 0;
}

/* The pre-tokenizer, by class; the first row applies to all others. */
static json_t *splitter(const json_t *config, bool prefix)
{
    if (!is_class(config, "Qwen"))
        return json_pack("{s:s,s:b,s:b}", "type", "ByteLevel", "add_prefix_space", prefix,
                         "use_regex", 1);
    return json_pack("{s:s,s:[{s:s,s:{s:s},s:s,s:b},{s:s,s:b,s:b}]}", "type", "Sequence",
                     "pretokenizers", "type", "Split", "pattern", "Regex", QWEN_PATTERN,
                     "behavior", "Isolated", "invert", 0, "type", "ByteLevel",
                     "add_prefix_space", prefix, "use_regex", 0);
}

static json_t *around(const json_t *config, const json_t *vocab, bool prefix)
{
    const char *cls = named(config, "cls_token", "<s>"), *sep = named(config, "sep_token",
                                                                      "</s>");

    if ((is_class(config, "Roberta") || is_class(config, "Bart")) && id_of(vocab, cls) &&
        id_of(vocab, sep))
        return json_pack("{s:s,s:[s,O],s:[s,O],s:b,s:b}", "type", "RobertaProcessing", "sep", sep,
                         id_of(vocab, sep), "cls", cls, id_of(vocab, cls), "trim_offsets", 1,
                         "add_prefix_space", prefix);
    return json_pack("{s:s,s:b,s:b}", "type", "ByteLevel", "add_prefix_space", prefix,
                     "trim_offsets", 0);
}

int word_files_vocab_merges(json_t **out, json_t *vocab, const char *merges, size_t n,
                            const json_t *config, struct ckpt_err *err)
{
    json_t *list = json_array(), *norm = NULL;
    bool prefix;
    int rc = list ? read_merges(list, merges, n, err) : ckpt_nomem(err, n);

    *out = NULL;
    if (rc == 0 && !json_is_object(vocab))
        rc = ckpt_fail(err, CKPT_EFORMAT, "vocab.json is not an object");
    if (rc == 0 && is_class(config, "CLIP"))
        rc = ckpt_fail(err, CKPT_EUNSUPPORTED, "tokenizer_class CLIPTokenizer without a "
                       "tokenizer.json is not read");
    if (rc == 0)
        rc = ckpt_json_bool_or(&prefix, config, "add_prefix_space", false, err);
    if (rc) {
        json_decref(list);
        return rc;
    }
    if (is_class(config, "Qwen"))
        norm = json_pack("{s:s}", "type", "NFC");
    *out = json_pack("{s:s,s:o*,s:o,s:o,s:{s:s},s:{s:s,s:O,s:o}}", "version", "1.0",
                     "normalizer", norm, "pre_tokenizer", splitter(config, prefix),
                     "post_processor", around(config, vocab, prefix), "decoder", "type",
                     "ByteLevel", "model", "type", "BPE", "vocab", vocab, "merges", list);
    return *out ? 0 : ckpt_nomem(err, n);
}

/* The row of id in list, or NULL. */
static json_t *row_of(json_t *list, json_int_t id)
{
    size_t i;
    json_t *row;

    json_array_foreach(list, i, row)
        if (json_integer_value(json_object_get(row, "id")) == id)
            return row;
    return NULL;
}

/* Add a token that config names as special, if the vocabulary has it and no row does. */
static int add_special(json_t *list, const json_t *vocab, const json_t *config, const char *key)
{
    const char *token = named(config, key, NULL);
    const json_t *id = token ? id_of(vocab, token) : NULL;

    if (!json_is_integer(id) || row_of(list, json_integer_value(id)))
        return 0;
    return json_array_append_new(list, json_pack("{s:I,s:s,s:b,s:b}", "id",
                                                 json_integer_value(id), "content", token,
                                                 "special", 1, "normalized", 0));
}

int word_files_added(json_t *root, const json_t *added, const json_t *config,
                     struct ckpt_err *err)
{
    static const char *const keys[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                       "pad_token", "cls_token", "mask_token"};
    const json_t *vocab = json_object_get(json_object_get(root, "model"), "vocab");
    json_t *list = json_object_get(root, "added_tokens"), *row, *copy;
    const char *key;

    if (!list) {
        list = json_array();
        json_object_set_new(root, "added_tokens", list);
    }
    json_object_foreach(json_object_get(config, "added_tokens_decoder"), key, row) {
        char *end;
        long long id = strtoll(key, &end, 10);

        if (*end || end == key || id < 0 || !json_is_object(row))
            return ckpt_fail(err, CKPT_EFORMAT, "added_tokens_decoder: \"%s\" is no id", key);
        if (row_of(list, id))
            continue;
        copy = json_copy(row);
        if (!copy || json_object_set_new(copy, "id", json_integer(id)) ||
            json_array_append_new(list, copy))
            return ckpt_nomem(err, sizeof *copy);
    }
    json_object_foreach((json_t *)added, key, row)
        if (!json_is_integer(row))
            return ckpt_fail(err, CKPT_EFORMAT, "added_tokens.json: \"%s\" has no id", key);
        else if (!row_of(list, json_integer_value(row)) &&
                 json_array_append_new(list, json_pack("{s:s,s:O}", "content", key, "id", row)))
            return ckpt_nomem(err, sizeof *row);
    for (size_t i = 0; json_is_object(vocab) && i < sizeof keys / sizeof *keys; i++)
        if (add_special(list, vocab, config, keys[i]))
            return ckpt_nomem(err, sizeof *row);
    return 0;
}

int word_files_sentinels(json_t *root, const json_t *config, struct ckpt_err *err)
{
    json_t *list = json_object_get(root, "added_tokens");
    json_int_t pieces = (json_int_t)json_array_size(
        json_object_get(json_object_get(root, "model"), "vocab"));
    int64_t n;
    int rc;

    if (!is_class(config, "T5") && !is_class(config, "MT5"))
        return 0;
    if ((rc = ckpt_json_int_or(&n, config, "extra_ids", 100, err)) != 0)
        return rc;
    if (n < 0 || n > MOST_SENTINELS)
        return ckpt_fail(err, CKPT_EFORMAT, "extra_ids is %lld: at most %d", (long long)n,
                         MOST_SENTINELS);
    for (json_int_t i = 0; i < n; i++) {
        char name[40];

        snprintf(name, sizeof name, "<extra_id_%lld>", (long long)(n - 1 - i));
        if (!row_of(list, pieces + i) &&
            json_array_append_new(list, json_pack("{s:I,s:s,s:b,s:b}", "id", pieces + i, "content",
                                                  name, "special", 1, "normalized", 0)))
            return ckpt_nomem(err, sizeof name);
    }
    return 0;
}

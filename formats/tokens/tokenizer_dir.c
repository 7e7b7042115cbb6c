/*
 * tokenizer_dir - which files make up a tokenizer, and the settings beside them.
 *
 * tokenizer.json has precedence; then spiece.model and tokenizer.model (sentencepiece, or
 * tiktoken ranks, depending on content), *.tiktoken, vocab.json with merges.txt, vocab.txt.
 * tokenizer_config.json and special_tokens_map.json are applied on top.  Without the former, the
 * class and the end-of-text token come from the model's config.json, as in transformers'
 * AutoTokenizer. Source: transformers 5.23 models/auto/tokenization_auto.py,
 * models/t5/tokenization_t5.py.
 */
#include <string.h>

#include "formats/families/family.h"
#include "formats/tokens/component.h"
#include "formats/tokens/spm.h"
#include "formats/tokens/tiktoken.h"
#include "formats/tokens/tokenizer_parts.h"
#include "formats/tokens/word_files.h"
#include "libckpt/digest.h"
#include "libckpt/base/json.h"
#include "libckpt/err.h"

#define PIECE ((size_t)1 << 20)     /* bytes that are hashed at once */

/* State of opening a tokenizer. */
struct opening {
    struct ckpt_dir  *dir;          /* NULL: a single file */
    struct ckpt_arena arena;        /* texts of files */
    const char       *source;       /* name of the file, or of the directory of several files */
    json_t           *config;       /* tokenizer_config.json, special_tokens_map.json */
    struct spm_ids    ids;
    bool              spm;
    int32_t           eos;          /* from config.json, if needed; else -1 */
    uint64_t          read;         /* bytes of files with ids: an id takes at least two, so a
                                       larger one is invalid */
    unsigned char     digest[16];   /* digest of everything read */
};

/* Add a file that determines the tokenizer's results to the digest. */
static int note_file(struct opening *o, struct ckpt_file *file, struct ckpt_err *err)
{
    struct { unsigned char before[16], piece[16]; } both;
    uint64_t size = ckpt_file_size(file);
    size_t most = size < PIECE ? (size_t)size : PIECE;
    unsigned char *bytes = ckpt_alloc_buffer(most);
    int rc = bytes ? 0 : ckpt_nomem(err, most);

    for (uint64_t at = 0; rc == 0 && at < size; at += most) {
        size_t n = size - at < most ? (size_t)(size - at) : most;

        rc = ckpt_file_read_at(file, bytes, n, at, err);
        ckpt_xxh128(both.piece, bytes, n);
        memcpy(both.before, o->digest, sizeof both.before);
        ckpt_xxh128(o->digest, &both, sizeof both);
    }
    o->read += size;
    ckpt_free(bytes);
    return rc;
}

static int slurp(struct opening *o, struct ckpt_file *file, char **text, size_t *n,
                 struct ckpt_err *err)
{
    int rc;

    if ((rc = note_file(o, file, err)) != 0)
        return rc;
    return ckpt_file_slurp(file, &o->arena, CKPT_JSON_MAX_TOKENIZER_BYTES, text, n, err);
}

/* The value of a JSON file of the directory; NULL when it is not there. */
static int read_json(struct opening *o, const char *name, json_t **out, struct ckpt_err *err)
{
    struct ckpt_file *file = NULL;
    int rc;

    *out = NULL;
    if (!o->dir || !ckpt_dir_has(o->dir, name))
        return 0;
    rc = ckpt_file_open_at(&file, o->dir, name, err);
    if (rc == 0)
        rc = note_file(o, file, err);
    if (rc == 0)
        rc = ckpt_json_read(out, file, CKPT_JSON_MAX_BYTES, CKPT_JSON_PYTHON, err);
    ckpt_file_close(file);
    return rc;
}

/* Read tokenizer_config.json, and special tokens that only special_tokens_map.json names. */
static int read_config(struct opening *o, struct ckpt_err *err)
{
    json_t *map = NULL, *v;
    const char *key;
    int rc = read_json(o, "tokenizer_config.json", &o->config, err);

    if (rc == 0)
        rc = read_json(o, "special_tokens_map.json", &map, err);
    if (rc == 0 && !o->config && !(o->config = json_object()))
        rc = ckpt_nomem(err, sizeof *o->config);
    if (rc == 0)
        json_object_foreach(map, key, v)
            if (component_is_absent(json_object_get(o->config, key)))
                json_object_set(o->config, key, v);
    json_decref(map);
    return rc;
}

/* Name a special token as if tokenizer_config.json did. */
static int put_special(struct opening *o, const char *key, const char *token,
                       struct ckpt_err *err)
{
    struct { unsigned char before[16], key[16], token[16]; } all;

    if (!token)
        return 0;
    if (json_object_set_new(o->config, key, json_string(token)))
        return ckpt_fail(err, CKPT_EFORMAT, "%s: not UTF-8", key);
    memcpy(all.before, o->digest, sizeof all.before);
    ckpt_xxh128(all.key, key, strlen(key));
    ckpt_xxh128(all.token, token, strlen(token));
    ckpt_xxh128(o->digest, &all, sizeof all);
    return 0;
}

/* Classes of tokenizers by model_type, for models without a row in families. */
static const struct { const char *type, *name; } class_of[] = {
    {"mt5", "T5Tokenizer"},      {"umt5", "T5Tokenizer"},      {"gemma", "GemmaTokenizer"},
    {"gemma2", "GemmaTokenizer"}, {"bart", "BartTokenizer"},
};

/* The class of tokenizers that a config.json implies; NULL: unknown. */
static const char *class_by(const json_t *model)
{
    const char *name = json_string_value(json_object_get(model, "tokenizer_class"));
    const char *type = json_string_value(json_object_get(model, "model_type"));
    const struct family *family = type ? family_find(type, NULL) : NULL;

    if (!name && family)
        return family->tokenizer_class;
    for (size_t i = 0; !name && type && i < sizeof class_of / sizeof *class_of; i++)
        if (strcmp(type, class_of[i].type) == 0)
            name = class_of[i].name;
    return name;
}

/* Without a tokenizer_config.json, take class and end-of-text token from config.json. */
static int read_model_config(struct opening *o, struct ckpt_err *err)
{
    struct { unsigned char before[16], said[16]; } both;
    struct ckpt_file *file = NULL;
    json_t *model = NULL, *eos;
    bool named = !component_is_absent(json_object_get(o->config, "tokenizer_class"));
    const char *name;
    int rc;

    if (ckpt_dir_has(o->dir, "tokenizer_config.json") || !ckpt_dir_has(o->dir, "config.json"))
        return 0;
    rc = ckpt_file_open_at(&file, o->dir, "config.json", err);
    if (rc == 0)
        rc = ckpt_json_read(&model, file, CKPT_JSON_MAX_BYTES, CKPT_JSON_PYTHON, err);
    ckpt_file_close(file);
    name = class_by(model);
    if (rc == 0 && !named && name) {
        json_object_set_new(o->config, "tokenizer_class", json_string(name));
        memcpy(both.before, o->digest, sizeof both.before);
        ckpt_xxh128(both.said, name, strlen(name));
        ckpt_xxh128(o->digest, &both, sizeof both);
    }
    eos = json_object_get(model, "eos_token_id");
    eos = json_is_array(eos) ? json_array_get(eos, 0) : eos;
    if (json_is_integer(eos) && json_integer_value(eos) >= 0 &&
        json_integer_value(eos) <= INT32_MAX)
        o->eos = (int32_t)json_integer_value(eos);
    json_decref(model);
    return rc;
}

static int model_root(struct opening *o, struct ckpt_file *file, json_t **root,
                      struct ckpt_err *err)
{
    char *text;
    size_t n;
    int rc;

    if ((rc = slurp(o, file, &text, &n, err)) != 0)
        return rc;
    if (tiktoken_is(text, n))
        return tiktoken_read(root, text, n, err);
    o->spm = true;
    return spm_read(root, &o->ids, (const unsigned char *)text, n, err);
}

/* Convert the file to the form of a tokenizer.json. */
static int file_root(struct opening *o, struct ckpt_file *file, json_t **root,
                     struct ckpt_err *err)
{
    unsigned char first = 0;
    int rc;

    for (uint64_t i = 0; i < ckpt_file_size(file) && i < 64; i++) {
        if ((rc = ckpt_file_read_at(file, &first, 1, i, err)) != 0)
            return rc;
        if (first != ' ' && first != '\n' && first != '\r' && first != '\t')
            break;
    }
    if (ckpt_file_size(file) == 0)
        return ckpt_fail(err, CKPT_EFORMAT, "is empty");
    /* A sentencepiece model begins with the key of a piece, 0x0a, which is also white space. */
    if (first != '{')
        return model_root(o, file, root, err);
    rc = note_file(o, file, err);
    return rc ? rc : ckpt_json_read(root, file, CKPT_JSON_MAX_TOKENIZER_BYTES, CKPT_JSON_STRICT,
                                    err);
}

static int merges_root(struct opening *o, json_t **root, struct ckpt_err *err)
{
    struct ckpt_file *file = NULL;
    json_t *vocab = NULL;
    char *text;
    size_t n;
    int rc = read_json(o, "vocab.json", &vocab, err);

    if (rc == 0)
        rc = ckpt_file_open_at(&file, o->dir, "merges.txt", err);
    if (rc == 0)
        rc = slurp(o, file, &text, &n, err);
    if (rc == 0)
        rc = word_files_vocab_merges(root, vocab, text, n, o->config, err);
    ckpt_file_close(file);
    json_decref(vocab);
    return rc;
}

static int txt_root(struct opening *o, json_t **root, struct ckpt_err *err)
{
    struct ckpt_file *file = NULL;
    char *text;
    size_t n;
    int rc = ckpt_file_open_at(&file, o->dir, "vocab.txt", err);

    if (rc == 0)
        rc = slurp(o, file, &text, &n, err);
    if (rc == 0 && (rc = word_files_vocab_txt(root, text, n, o->config, err)))
        ckpt_err_in(err, "%s", ckpt_file_name(file));
    ckpt_file_close(file);
    return rc;
}

/* Find the only file of the directory that ends in .tiktoken. */
static int find_tiktoken(struct opening *o, const char **name, struct ckpt_err *err)
{
    struct ckpt_entry *entry;
    size_t n;
    int rc;

    *name = NULL;
    if ((rc = ckpt_dir_list(o->dir, &o->arena, &entry, &n, err)) != 0)
        return rc;
    for (size_t i = 0; i < n && !*name; i++) {
        const char *dot = strrchr(entry[i].name, '.');

        if (entry[i].is_file && dot && strcmp(dot, ".tiktoken") == 0)
            *name = entry[i].name;
    }
    return 0;
}

static int make(struct opening *o, struct tokenizer **out, json_t *root, struct ckpt_err *err)
{
    struct tokenizer *t = NULL;
    int rc = tokenizer_from_json(&t, root, (int64_t)o->read, err);

    if (rc)
        ckpt_err_in(err, "%s", o->source);
    if (rc == 0 && o->spm) {
        t->bos = o->ids.bos;
        t->eos = o->ids.eos;
        t->pad = o->ids.pad;
    }
    if (rc == 0 && t->eos < 0 && o->eos >= 0 && tokenizer_token(t, o->eos))
        t->eos = o->eos;
    if (rc == 0 && o->dir && (rc = tokenizer_config(t, o->config, o->spm, err)))
        ckpt_err_in(err, "%s: tokenizer_config.json", ckpt_dir_path(o->dir));
    if (rc == 0)
        memcpy((*out = t)->digest, o->digest, sizeof t->digest);
    else
        tokenizer_close(t);
    return rc;
}

int tokenizer_open(struct tokenizer **out, struct ckpt_file *file, struct ckpt_err *err)
{
    struct opening o = {.eos = -1};
    json_t *root = NULL;
    int rc = file_root(&o, file, &root, err);

    *out = NULL;
    o.source = ckpt_file_name(file);
    rc = rc ? ckpt_err_in(err, "%s", o.source) : make(&o, out, root, err);
    json_decref(root);
    ckpt_arena_release(&o.arena);
    return rc;
}

static const char *const files[] = {"tokenizer.json", "spiece.model", "tokenizer.model"};

bool tokenizer_in_dir(struct ckpt_dir *dir)
{
    struct opening o = {.dir = dir};
    struct ckpt_err ignored = {0};
    const char *name = NULL;

    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        if (ckpt_dir_has(dir, files[i]))
            return true;
    if ((ckpt_dir_has(dir, "vocab.json") && ckpt_dir_has(dir, "merges.txt")) ||
        ckpt_dir_has(dir, "vocab.txt"))
        return true;
    find_tiktoken(&o, &name, &ignored);
    ckpt_arena_release(&o.arena);
    return name != NULL;
}

/* Use the first of the files that the directory has. */
static int dir_root(struct opening *o, json_t **root, struct ckpt_err *err)
{
    struct ckpt_file *file = NULL;
    const char *name = NULL;
    json_t *added = NULL;
    int rc = 0;

    for (size_t i = 0; !name && i < sizeof files / sizeof *files; i++)
        if (ckpt_dir_has(o->dir, files[i]))
            name = files[i];
    if (!name)
        rc = find_tiktoken(o, &name, err);
    if (rc == 0 && name) {
        rc = ckpt_file_open_at(&file, o->dir, name, err);
        if (rc == 0 && (rc = file_root(o, file, root, err)))
            ckpt_err_in(err, "%s", ckpt_file_name(file));
        if (rc == 0 && !(o->source = ckpt_arena_printf(&o->arena, "%s", ckpt_file_name(file))))
            rc = ckpt_nomem(err, strlen(name));
        ckpt_file_close(file);
    } else if (rc == 0 && ckpt_dir_has(o->dir, "vocab.json") &&
               ckpt_dir_has(o->dir, "merges.txt")) {
        rc = merges_root(o, root, err);
    } else if (rc == 0 && ckpt_dir_has(o->dir, "vocab.txt")) {
        rc = txt_root(o, root, err);
    } else if (rc == 0) {
        rc = ckpt_fail(err, CKPT_ENOTFOUND, "%s: no tokenizer: neither tokenizer.json nor "
                       "another file of one", ckpt_dir_path(o->dir));
    }
    if (rc || (name && strcmp(name, files[0]) == 0))
        return rc;
    rc = read_json(o, "added_tokens.json", &added, err);
    if (rc == 0)
        rc = word_files_added(*root, added, o->config, err);
    if (rc == 0 && o->spm)
        rc = word_files_sentinels(*root, o->config, err);
    json_decref(added);
    return rc;
}

int tokenizer_open_dir(struct tokenizer **out, struct ckpt_dir *dir, struct ckpt_err *err)
{
    return tokenizer_open_dir_as(out, dir, &(struct tokenizer_special){0}, err);
}

int tokenizer_open_dir_as(struct tokenizer **out, struct ckpt_dir *dir,
                          const struct tokenizer_special *special, struct ckpt_err *err)
{
    struct opening o = {.dir = dir, .eos = -1};
    json_t *root = NULL;
    int rc = read_config(&o, err);

    *out = NULL;
    o.source = ckpt_dir_path(dir);
    if (rc == 0)
        rc = read_model_config(&o, err);
    if (rc == 0)
        rc = put_special(&o, "eos_token", special->eos, err);
    if (rc == 0)
        rc = put_special(&o, "pad_token", special->pad, err);
    if (rc == 0)
        rc = dir_root(&o, &root, err);
    if (rc == 0)
        rc = make(&o, out, root, err);
    json_decref(root);
    json_decref(o.config);
    ckpt_arena_release(&o.arena);
    return rc;
}

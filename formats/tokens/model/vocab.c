/* vocab - see vocab.h. */
#include "formats/tokens/model/vocab.h"

#include <stdio.h>
#include <string.h>

#include "formats/tokens/bytelevel.h"
#include "libckpt/base/json.h"

/* The token and id of member i of an array vocabulary. */
static int array_token(const json_t *vocab, size_t i, const char **name, struct ckpt_err *err)
{
    const json_t *row = json_array_get(vocab, i);

    *name = json_string_value(json_array_get(row, 0));
    if (*name && json_is_number(json_array_get(row, 1)))
        return 0;
    return ckpt_fail(err, CKPT_EFORMAT, "model.vocab[%zu] is no pair of token and score", i);
}

/* One past the largest id. */
static int count_ids(struct vocab *v, const json_t *vocab, const json_t *added, int64_t limit,
                     struct ckpt_err *err)
{
    const char *name;
    json_t *item;
    int64_t id;
    size_t i;

    if (limit > INT32_MAX)
        limit = INT32_MAX;
    if (json_is_array(vocab) && (int64_t)json_array_size(vocab) > limit)
        return ckpt_fail(err, CKPT_ELIMIT, "model.vocab: %zu tokens", json_array_size(vocab));
    if (json_is_array(vocab))
        v->n = (int32_t)json_array_size(vocab);
    json_object_foreach((json_t *)vocab, name, item) {
        id = json_is_integer(item) ? json_integer_value(item) : -1;
        if (id < 0 || id >= limit)
            return ckpt_fail(err, CKPT_EFORMAT, "model.vocab: token \"%s\" has no id in 0..%lld",
                             name, (long long)limit - 1);
        v->n = id >= v->n ? (int32_t)id + 1 : v->n;
    }
    json_array_foreach(added, i, item) {
        if (ckpt_json_int(&id, item, "id", err))
            return ckpt_err_in(err, "added_tokens[%zu]", i);
        if (id < 0 || id >= limit)
            return ckpt_fail(err, CKPT_EFORMAT, "added_tokens[%zu]: id %lld is not in 0..%lld",
                             i, (long long)id, (long long)limit - 1);
        v->n = id >= v->n ? (int32_t)id + 1 : v->n;
    }
    return 0;
}

int vocab_show(struct vocab *v, int32_t id, const char *text, size_t len, struct ckpt_err *err)
{
    struct vocab_token *to = &v->token[id];
    unsigned char *raw = ckpt_arena_alloc(v->arena, len + 1, 1);
    size_t n;

    if (!raw)
        return ckpt_nomem(err, len + 1);
    to->shown = text;
    to->shown_len = (uint32_t)len;
    to->raw = raw;
    to->literal = !bytelevel_decode(raw, &n, text, len);
    v->token_bytes[id] = (uint32_t)n;
    return 0;
}

/* token is kept already. */
static int put_token(struct vocab *v, int32_t id, const char *token, size_t len,
                     struct ckpt_err *err)
{
    if (v->token[id].token)
        return ckpt_fail(err, CKPT_EFORMAT, "id %d stands for \"%s\" and for \"%s\"", id,
                         v->token[id].token, token);
    v->token[id].token = token;
    v->token[id].len = (uint32_t)len;
    return vocab_show(v, id, token, len, err);
}

static int keep_token(struct vocab *v, int32_t id, const char *name, struct ckpt_err *err)
{
    size_t len = strlen(name);
    const char *token;

    if (len > UINT32_MAX / 2)
        return ckpt_fail(err, CKPT_ELIMIT, "a token of %zu bytes", len);
    token = ckpt_arena_strndup(v->arena, name, len);
    return token ? put_token(v, id, token, len, err) : ckpt_nomem(err, len);
}

static int read_model(struct vocab *v, const json_t *vocab, struct ckpt_err *err)
{
    const char *name;
    json_t *item;
    int rc;

    for (size_t i = 0; i < json_array_size(vocab); i++) {
        const struct vocab_token *to = &v->token[i];

        if (array_token(vocab, i, &name, err) || keep_token(v, (int32_t)i, name, err))
            return ckpt_err_in(err, "model.vocab");
        /* A repeated piece: models use ids, and lookup by name finds the first. */
        if (vocab_find(v, to->token, to->len) < 0 &&
            (rc = ckpt_map_add(v->by_token, to->token, to->len, i, err)) != 0)
            return rc;
    }
    json_object_foreach((json_t *)vocab, name, item) {
        int32_t id = (int32_t)json_integer_value(item);

        if (keep_token(v, id, name, err) ||
            ckpt_map_add(v->by_token, v->token[id].token, v->token[id].len, (size_t)id, err))
            return ckpt_err_in(err, "model.vocab");
    }
    return 0;
}

int vocab_read(struct vocab *v, struct ckpt_arena *arena, const json_t *vocab,
               const json_t *added, int64_t limit, struct ckpt_err *err)
{
    size_t n = json_is_array(vocab) ? json_array_size(vocab) : json_object_size(vocab);
    int rc;

    v->arena = arena;
    if ((rc = count_ids(v, vocab, added, limit, err)) != 0)
        return rc;
    if (v->n == 0)
        return ckpt_fail(err, CKPT_EFORMAT, "the vocabulary is empty");
    v->token = ckpt_arena_alloc(arena, (size_t)v->n, sizeof *v->token);
    v->token_bytes = ckpt_arena_alloc(arena, (size_t)v->n, sizeof *v->token_bytes);
    if (!v->token || !v->token_bytes)
        return ckpt_nomem(err, (size_t)v->n * sizeof *v->token);
    if ((rc = ckpt_map_new(&v->by_token, n, err)) != 0 ||
        (rc = ckpt_map_new(&v->by_added, json_array_size(added), err)) != 0)
        return rc;
    return read_model(v, vocab, err);
}

void vocab_release(struct vocab *v)
{
    ckpt_map_free(v->by_token);
    ckpt_map_free(v->by_added);
}

int vocab_add(struct vocab *v, int32_t id, const char *token, size_t len, struct ckpt_err *err)
{
    int32_t known = vocab_find(v, token, len);
    int rc;

    if (known >= 0 && known != id)
        return ckpt_fail(err, CKPT_EFORMAT, "\"%s\" has id %d here and id %d before", token, id,
                         known);
    rc = known < 0 ? put_token(v, id, token, len, err) : vocab_show(v, id, token, len, err);
    if (rc)
        return rc;
    v->token[id].added = true;
    return ckpt_map_add(v->by_added, token, len, (size_t)id, err);
}

int32_t vocab_find_any(const struct vocab *v, const char *s, size_t n)
{
    size_t id = ckpt_map_get(v->by_added, s, n);

    return id == CKPT_MAP_NONE ? vocab_find(v, s, n) : (int32_t)id;
}

void vocab_find_bytes(const struct vocab *v, int32_t id[256])
{
    for (int b = 0; b < 256; b++) {
        char name[8];

        snprintf(name, sizeof name, "<0x%02X>", (unsigned)b);
        id[b] = vocab_find(v, name, 6);
    }
}

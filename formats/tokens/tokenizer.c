/* tokenizer - see tokenizer.h.  Source: huggingface/tokenizers 0.21 src/tokenizer/mod.rs. */
#include "formats/tokens/tokenizer.h"

#include <string.h>

#include "formats/tokens/tokenizer_parts.h"
#include "formats/tokens/unicode.h"
#include "libckpt/buf.h"

/* One text on its way to ids. */
struct encode {
    const struct tokenizer *t;
    struct workspace       *ws;
    struct encoding        *enc;
    const unsigned char    *text;
    size_t                  len;
};

int tokenizer_open(struct tokenizer **out, struct ckpt_file *file, struct ckpt_err *err)
{
    struct tokenizer *t = ckpt_alloc(1, sizeof *t);

    *out = NULL;
    if (!t)
        return ckpt_nomem(err, sizeof *t);
    t->bos = t->eos = t->pad = -1;
    pthread_mutex_init(&t->lock, NULL);
    if (tokenizer_json_read(t, file, err)) {
        tokenizer_close(t);
        return ckpt_err_in(err, "%s", ckpt_file_name(file));
    }
    *out = t;
    return 0;
}

/* Later files win over earlier ones where they say something. */
static int overlay(struct tokenizer *t, struct ckpt_dir *dir, const char *name,
                   struct ckpt_err *err)
{
    struct ckpt_file *file = NULL;
    int rc;

    if (!ckpt_dir_has(dir, name))
        return 0;
    rc = ckpt_file_open_at(&file, dir, name, err);
    if (rc == 0 && (rc = tokenizer_json_config(t, file, err)))
        ckpt_err_in(err, "%s", ckpt_file_name(file));
    ckpt_file_close(file);
    return rc;
}

int tokenizer_open_dir(struct tokenizer **out, struct ckpt_dir *dir, struct ckpt_err *err)
{
    struct ckpt_file *file = NULL;
    struct tokenizer *t = NULL;
    int rc;

    *out = NULL;
    rc = ckpt_file_open_at(&file, dir, "tokenizer.json", err);
    if (rc == 0)
        rc = tokenizer_open(&t, file, err);
    if (rc == 0)
        rc = overlay(t, dir, "special_tokens_map.json", err);
    if (rc == 0)
        rc = overlay(t, dir, "tokenizer_config.json", err);
    if (rc == 0) {
        *out = t;
        t = NULL;
    }
    tokenizer_close(t);
    ckpt_file_close(file);
    return rc;
}

static void workspace_free(struct workspace *ws)
{
    if (!ws)
        return;
    pretok_run_free(ws->pretok);
    bpe_run_free(ws->bpe);
    ckpt_free(ws);
}

void tokenizer_close(struct tokenizer *t)
{
    struct workspace *next;

    if (!t)
        return;
    for (struct workspace *ws = t->idle; ws; ws = next) {
        next = ws->next;
        workspace_free(ws);
    }
    pretok_free(t->pretok);
    bpe_free(t->bpe);
    added_free(t->added_raw);
    added_free(t->added_normalized);
    ckpt_map_free(t->by_token);
    ckpt_map_free(t->by_raw);
    pthread_mutex_destroy(&t->lock);
    ckpt_arena_release(&t->arena);
    ckpt_free(t);
}

/* An idle workspace or a new one: word caches stay warm, and no two threads share one.  The
 * list is the one thing of a tokenizer that changes; its lock is why t may be shared. */
static int workspace_take(const struct tokenizer *shared, struct workspace **out,
                          struct ckpt_err *err)
{
    struct tokenizer *t = (struct tokenizer *)shared;
    struct workspace *ws;

    pthread_mutex_lock(&t->lock);
    ws = t->idle;
    if (ws)
        t->idle = ws->next;
    pthread_mutex_unlock(&t->lock);
    if (!ws) {
        ws = ckpt_alloc(1, sizeof *ws);
        if (!ws)
            return ckpt_nomem(err, sizeof *ws);
        if (pretok_run_new(&ws->pretok, t->pretok, err) || bpe_run_new(&ws->bpe, err)) {
            workspace_free(ws);
            return err->code;
        }
    }
    *out = ws;
    return 0;
}

static void workspace_give(const struct tokenizer *shared, struct workspace *ws)
{
    struct tokenizer *t = (struct tokenizer *)shared;

    pthread_mutex_lock(&t->lock);
    ws->next = t->idle;
    t->idle = ws;
    pthread_mutex_unlock(&t->lock);
}

/* Room for n more tokens. */
static int encoding_reserve(struct encoding *enc, size_t n, struct ckpt_err *err)
{
    size_t cap = enc->cap < 64 ? 64 : enc->cap;
    void *p;

    if (n <= enc->cap - enc->n)
        return 0;
    while (cap - enc->n < n)
        cap *= 2;
    if (!(p = ckpt_grow(enc->id, cap, sizeof *enc->id)))
        return ckpt_nomem(err, cap * sizeof *enc->id);
    enc->id = p;
    if (!(p = ckpt_grow(enc->start, cap, sizeof *enc->start)))
        return ckpt_nomem(err, cap * sizeof *enc->start);
    enc->start = p;
    if (!(p = ckpt_grow(enc->end, cap, sizeof *enc->end)))
        return ckpt_nomem(err, cap * sizeof *enc->end);
    enc->end = p;
    enc->cap = cap;
    return 0;
}

void encoding_release(struct encoding *enc)
{
    ckpt_free(enc->id);
    ckpt_free(enc->start);
    ckpt_free(enc->end);
    memset(enc, 0, sizeof *enc);
}

/* Room must be there. */
static inline void put_token(struct encoding *enc, int32_t id, size_t start, size_t end)
{
    enc->id[enc->n] = id;
    enc->start[enc->n] = (int64_t)start;
    enc->end[enc->n++] = (int64_t)end;
}

/* A word from the pre-tokenizer.  A token that holds part of a character covers all of it. */
static int emit_word(void *ctx, const struct piece *piece, struct ckpt_err *err)
{
    struct encode *e = ctx;
    struct bpe_word word;
    size_t pos = 0, start, end, prefix = piece->prefixed;

    if (bpe_encode(e->t->bpe, e->ws->bpe, piece->text, piece->n, &word, err) ||
        encoding_reserve(e->enc, word.n, err))
        return err->code;
    for (size_t i = 0; i < word.n; i++) {
        start = piece->at + (pos > prefix ? pos - prefix : 0);
        pos += word.len[i];
        end = piece->at + (pos > prefix ? pos - prefix : prefix);
        while (start > 0 && start < e->len && (e->text[start] & 0xc0) == 0x80)
            start--;
        while (end < e->len && (e->text[end] & 0xc0) == 0x80)
            end++;
        put_token(e->enc, word.id[i], start, end);
    }
    return 0;
}

static int emit_added(struct encode *e, const struct added_token *token, size_t start,
                      size_t end, struct ckpt_err *err)
{
    if (encoding_reserve(e->enc, 1, err))
        return err->code;
    put_token(e->enc, token->id, start, end);
    return 0;
}

/* Bytes [from, to) hold no added token of the raw text. */
static int encode_plain(struct encode *e, size_t from, size_t to, struct ckpt_err *err)
{
    const unsigned char *s = e->text + from;
    const struct added_token *token;
    struct piece piece;
    size_t n = to - from, i = 0, start, end;
    int rc = 0;

    while (rc == 0 && i < n) {
        token = added_next(e->t->added_normalized, s, n, i, &start, &end);
        piece = (struct piece){.text = s + i, .at = from + i, .n = (token ? start : n) - i};
        rc = pretok_split(e->t->pretok, e->ws->pretok, &piece, emit_word, e, err);
        if (rc == 0 && token)
            rc = emit_added(e, token, from + start, from + end, err);
        i = token ? end : n;
    }
    return rc;
}

static int encode_text(struct encode *e, struct ckpt_err *err)
{
    const struct added_token *token;
    size_t from = 0, start, end;
    int rc = 0;

    while (rc == 0 && from < e->len) {
        token = added_next(e->t->added_raw, e->text, e->len, from, &start, &end);
        rc = encode_plain(e, from, token ? start : e->len, err);
        if (rc == 0 && token)
            rc = emit_added(e, token, start, end, err);
        from = token ? end : e->len;
    }
    return rc;
}

/* Blank characters at the two ends of a token: the byte 0x20 where bytes are spelt, any white
 * space in a literal token. */
static void blanks(const struct token *t, size_t n, size_t *leading, size_t *trailing)
{
    size_t i = 0, width = 1;

    *leading = *trailing = 0;
    while (i < n && (t->literal ? unicode_is_space(utf8_get(t->raw + i, &width))
                                : t->raw[i] == ' ')) {
        i += width;
        ++*leading;
    }
    while (n > 0) {
        i = n - 1;
        while (t->literal && i > 0 && (t->raw[i] & 0xc0) == 0x80)
            i--;
        if (t->literal ? !unicode_is_space(utf8_get(t->raw + i, &width)) : t->raw[i] != ' ')
            break;
        n = i;
        ++*trailing;
    }
}

/* start and end moved inwards by characters of the text: what stands for a blank there may be
 * wider than one, when the blank was put in front of it. */
static void shrink(const unsigned char *text, int64_t *start, int64_t *end, size_t leading,
                   size_t trailing)
{
    int64_t at;

    for (; leading > 0 && *start < *end; leading--)
        *start += (int64_t)utf8_width(text[*start]);
    for (at = *end; trailing > 0 && at > 0; trailing--)
        do
            at--;
        while (at > 0 && (text[at] & 0xc0) == 0x80);
    /* Fewer characters than blanks in front of the end: the reference leaves it. */
    if (trailing == 0)
        *end = at > *start ? at : *start;
}

/* ByteLevel's trim_offsets on tokens [from, n). */
static void trim_offsets(const struct encode *e, size_t from)
{
    const struct tokenizer *t = e->t;

    for (size_t i = from; i < e->enc->n; i++) {
        int32_t id = e->enc->id[i];
        size_t leading, trailing;

        blanks(&t->token[id], t->token_bytes[id], &leading, &trailing);
        /* A lone space at the start may have been put there and then takes no place; where
         * there are more, none was. */
        if (leading == 1 && t->post.trim_prefix_space && (i == from || e->enc->start[i] == 0))
            leading = 0;
        if (leading + trailing > 0)
            shrink(e->text, &e->enc->start[i], &e->enc->end[i], leading, trailing);
    }
}

int tokenizer_encode(const struct tokenizer *t, struct encoding *enc, const char *text,
                     size_t len, bool special, struct ckpt_err *err)
{
    struct encode e = {.t = t, .enc = enc, .text = (const unsigned char *)text, .len = len};
    size_t good = utf8_valid_prefix(e.text, len), first = enc->n;
    int rc;

    if (good != len)
        return ckpt_fail(err, CKPT_EFORMAT, "text is not UTF-8 at byte %zu of %zu (0x%02x)",
                         good, len, e.text[good]);
    rc = workspace_take(t, &e.ws, err);
    if (rc)
        return rc;
    rc = encoding_reserve(enc, t->post.n_before + len / 4, err);
    for (size_t i = 0; rc == 0 && special && i < t->post.n_before; i++)
        put_token(enc, t->post.before[i], 0, 0);
    if (rc == 0)
        rc = encode_text(&e, err);
    workspace_give(t, e.ws);
    if (rc == 0 && t->post.trim)
        trim_offsets(&e, first + (special ? t->post.n_before : 0));
    if (rc == 0 && special && t->post.n_after > 0) {
        rc = encoding_reserve(enc, t->post.n_after, err);
        for (size_t i = 0; rc == 0 && i < t->post.n_after; i++)
            put_token(enc, t->post.after[i], 0, 0);
    }
    if (rc)
        enc->n = first;
    return rc;
}

int tokenizer_decode(const struct tokenizer *t, char **out, size_t *len, const int32_t *id,
                     size_t n, bool skip_special, struct ckpt_err *err)
{
    struct ckpt_buf raw, text;
    int rc = 0;

    *out = NULL;
    ckpt_buf_init(&raw, SIZE_MAX);
    ckpt_buf_init(&text, SIZE_MAX);
    for (size_t i = 0; i < n; i++) {
        if (id[i] < 0 || id[i] >= t->n || !t->token[id[i]].token) {
            rc = ckpt_fail(err, CKPT_EFORMAT,
                           "id %d (number %zu) is not in the vocabulary of %d", id[i], i, t->n);
            goto out;
        }
        if (!skip_special || !t->token[id[i]].special)
            ckpt_buf_put(&raw, t->token[id[i]].raw, t->token_bytes[id[i]]);
    }
    utf8_put_lossy(&text, raw.data, raw.len);
    *len = text.len;
    if (!ckpt_buf_ok(&raw) || !(*out = ckpt_buf_str(&text))) {
        rc = ckpt_nomem(err, raw.len);
        goto out;
    }
    memset(&text, 0, sizeof text);      /* given away */
out:
    ckpt_buf_release(&raw);
    ckpt_buf_release(&text);
    return rc;
}

int32_t tokenizer_size(const struct tokenizer *t) { return t->n; }

int32_t tokenizer_id(const struct tokenizer *t, const char *token)
{
    size_t id = ckpt_map_get(t->by_token, token, strlen(token));

    return id == CKPT_MAP_NONE ? -1 : (int32_t)id;
}

const char *tokenizer_token(const struct tokenizer *t, int32_t id)
{
    return id < 0 || id >= t->n ? NULL : t->token[id].token;
}

int32_t tokenizer_bos(const struct tokenizer *t) { return t->bos; }
int32_t tokenizer_eos(const struct tokenizer *t) { return t->eos; }
int32_t tokenizer_pad(const struct tokenizer *t) { return t->pad; }

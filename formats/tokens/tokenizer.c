/* tokenizer - see tokenizer.h.  Source: huggingface/tokenizers 0.23 src/tokenizer/mod.rs. */
#include "formats/tokens/tokenizer.h"

#include <string.h>

#include "formats/tokens/encoding.h"
#include "formats/tokens/tokenizer_parts.h"
#include "formats/tokens/unicode/unicode.h"
#include "libckpt/base/buf.h"

/* State of encoding one text. */
struct encode {
    const struct tokenizer *t;
    struct workspace       *ws;
    struct encoding        *enc;
    const unsigned char    *text;
    size_t                  len;
};

int tokenizer_from_json(struct tokenizer **out, const json_t *root, int64_t limit,
                        struct ckpt_err *err)
{
    struct tokenizer *t = ckpt_alloc(1, sizeof *t);
    int rc;

    *out = NULL;
    if (!t)
        return ckpt_nomem(err, sizeof *t);
    t->bos = t->eos = t->pad = t->unk = -1;
    pthread_mutex_init(&t->lock, NULL);
    rc = tokenizer_json_read(t, root, limit, err);
    if (rc) {
        tokenizer_close(t);
        return rc;
    }
    *out = t;
    return 0;
}

static void workspace_free(struct workspace *ws)
{
    if (!ws)
        return;
    norm_run_free(ws->norm);
    pretok_run_free(ws->pretok);
    model_run_free(ws->model);
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
    norm_free(t->norm);
    pretok_free(t->pretok);
    model_release(&t->model);
    decoder_free(t->decoder);
    added_free(t->added_raw);
    added_free(t->added_normalized);
    vocab_release(&t->vocab);
    pthread_mutex_destroy(&t->lock);
    ckpt_arena_release(&t->arena);
    ckpt_free(t);
}

/* Take an idle workspace or a new one: word caches stay warm, and no two threads share one.  The
 * list is the only part of a tokenizer that changes; with its lock t may be shared. */
static int workspace_take(const struct tokenizer *shared, struct workspace **out,
                          struct ckpt_err *err)
{
    struct tokenizer *t = (struct tokenizer *)shared;
    struct workspace *ws;
    int rc;

    pthread_mutex_lock(&t->lock);
    ws = t->idle;
    if (ws)
        t->idle = ws->next;
    pthread_mutex_unlock(&t->lock);
    if (!ws) {
        ws = ckpt_alloc(1, sizeof *ws);
        if (!ws)
            return ckpt_nomem(err, sizeof *ws);
        if ((rc = norm_run_new(&ws->norm, t->norm, err)) != 0 ||
            (rc = pretok_run_new(&ws->pretok, t->pretok, err)) != 0 ||
            (rc = model_run_new(&ws->model, &t->model, err)) != 0) {
            workspace_free(ws);
            return rc;
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

/* The origin of bytes [from, to) of a piece: whole characters of the given text. */
static inline struct span covered(const struct encode *e, const struct piece *p, size_t from,
                                  size_t to)
{
    size_t start, end;

    if (p->span)
        return (struct span){p->span[from].start, p->span[to - 1].end};
    start = p->at + from;
    end = p->at + to;
    while (start > 0 && start < e->len && (e->text[start] & 0xc0) == 0x80)
        start--;
    while (end < e->len && (e->text[end] & 0xc0) == 0x80)
        end++;
    return (struct span){(uint32_t)start, (uint32_t)end};
}

static inline void put_token(struct encode *e, int32_t id, struct span span)
{
    struct encoding *enc = e->enc;

    enc->id[enc->n] = id;
    enc->start[enc->n] = span.start;
    enc->end[enc->n] = span.end;
    enc->type[enc->n] = 0;
    enc->text[enc->n++] = 0;
}

/* A word from the pre-tokenizer. */
static int emit_word(void *ctx, const struct piece *piece, struct ckpt_err *err)
{
    struct encode *e = ctx;
    struct word word;
    int rc;

    for (size_t at = 0, n; at < piece->n; at += n) {
        size_t pos = at;

        n = model_part(&e->t->model, piece->text + at, piece->n - at);
        rc = model_encode(&e->t->model, e->ws->model, piece->text + at, n, &word, err);
        if (rc == 0)
            rc = encoding_reserve(e->enc, word.n, err);
        if (rc)
            return rc;
        for (size_t i = 0; i < word.n; i++) {
            size_t from = word.start ? at + word.start[i] : pos;

            pos = from + word.len[i];
            put_token(e, word.id[i], covered(e, piece, from, pos));
        }
    }
    return 0;
}

static struct piece slice(const struct piece *p, size_t from, size_t to)
{
    struct piece part = {.text = p->text + from, .n = to - from, .at = p->at + from};

    if (p->span && to > from) {
        part.span = p->span + from;
        part.at = part.span->start;
    }
    return part;
}

/* Encode bytes [from, to), which contain no added token of the raw text. */
static int encode_plain(struct encode *e, size_t from, size_t to, struct ckpt_err *err)
{
    struct piece p = {.text = e->text + from, .n = to - from, .at = from}, part;
    const struct added_token *token;
    size_t i = 0, start, end;
    int rc = p.n ? norm_apply(e->t->norm, e->ws->norm, &p, err) : 0;

    while (rc == 0 && i < p.n) {
        token = added_next(e->t->added_normalized, p.text, p.n, i, &start, &end);
        part = slice(&p, i, token ? start : p.n);
        rc = pretok_split(e->t->pretok, e->ws->pretok, &part, emit_word, e, err);
        if (rc == 0 && token && (rc = encoding_reserve(e->enc, 1, err)) == 0)
            put_token(e, token->id, covered(e, &p, start, end));
        i = token ? end : p.n;
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
        if (rc == 0 && token && (rc = encoding_reserve(e->enc, 1, err)) == 0)
            put_token(e, token->id, (struct span){(uint32_t)start, (uint32_t)end});
        from = token ? end : e->len;
    }
    return rc;
}

/* Count blanks at the two ends of s: byte 0x20 where bytes are spelt, any white space if
 * literal. */
static void blanks(const unsigned char *s, size_t n, bool literal, size_t *leading,
                   size_t *trailing)
{
    size_t i = 0, width = 1;

    *leading = *trailing = 0;
    while (i < n && (literal ? unicode_is_space(utf8_get(s + i, &width)) : s[i] == ' ')) {
        i += width;
        ++*leading;
    }
    while (n > 0) {
        i = n - 1;
        while (literal && i > 0 && (s[i] & 0xc0) == 0x80)
            i--;
        if (literal ? !unicode_is_space(utf8_get(s + i, &width)) : s[i] != ' ')
            break;
        n = i;
        ++*trailing;
    }
}

/* Move start and end inwards by characters of the text: a blank that was inserted before a
 * character has that character's span, which may be wider than a blank. */
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
    /* Fewer characters than blanks at the end: the reference leaves it unchanged. */
    if (trailing == 0)
        *end = at > *start ? at : *start;
}

/* ByteLevel's trim_offsets on tokens [from, n). */
static void trim_offsets(const struct encode *e, size_t from)
{
    const struct tokenizer *t = e->t;

    for (size_t i = from; i < e->enc->n; i++) {
        int32_t id = e->enc->id[i];
        const struct vocab_token *token = &t->vocab.token[id];
        int64_t start = e->enc->start[i];
        size_t leading, trailing;

        /* An added token covers the text it matched, with blanks taken by lstrip and rstrip. */
        if (token->added)
            blanks(e->text + start, (size_t)(e->enc->end[i] - start), true, &leading, &trailing);
        else
            blanks(token->raw, t->vocab.token_bytes[id], token->literal, &leading, &trailing);
        /* A single space at the start may have been inserted and then covers nothing; if there
         * are more, none was. */
        if (leading == 1 && t->post.trim_prefix_space && (i == from || e->enc->start[i] == 0))
            leading = 0;
        if (leading + trailing > 0)
            shrink(e->text, &e->enc->start[i], &e->enc->end[i], leading, trailing);
    }
}

/* Tokens of one text, without those of the post-processor. */
static int encode_one(const struct tokenizer *t, struct encoding *enc, const char *text,
                      size_t len, struct ckpt_err *err)
{
    struct encode e = {.t = t, .enc = enc, .text = (const unsigned char *)text, .len = len};
    size_t good = utf8_valid_prefix(e.text, len), first = enc->n;
    int rc;

    if (good != len)
        return ckpt_fail(err, CKPT_EFORMAT, "text is not UTF-8 at byte %zu of %zu (0x%02x)",
                         good, len, e.text[good]);
    if (len >= UINT32_MAX)
        return ckpt_fail(err, CKPT_ELIMIT, "a text of %zu bytes; the limit is 4 GiB", len);
    rc = workspace_take(t, &e.ws, err);
    if (rc)
        return rc;
    rc = encoding_reserve(enc, len / 4, err);
    if (rc == 0)
        rc = encode_text(&e, err);
    workspace_give(t, e.ws);
    if (rc == 0 && t->post.trim)
        trim_offsets(&e, first);
    return rc;
}

int tokenizer_encode(const struct tokenizer *t, struct encoding *enc, const char *text,
                     size_t len, bool special, struct ckpt_err *err)
{
    const struct post_template *tpl = &t->post.single;
    size_t first = enc->n, i = 0;
    int rc = 0;

    /* If each text occurs once in the template, encode in place. */
    if (!special || tpl->n != tpl->n_token + 1) {
        struct encode_opts o = {.special = special};

        return tokenizer_encode_pair(t, enc, text, len, NULL, 0, &o, err);
    }
    rc = encoding_reserve(enc, tpl->n, err);
    for (; rc == 0 && tpl->part[i].kind == POST_TOKEN; i++)
        encoding_put_added(enc, tpl->part[i].id, tpl->part[i].type);
    if (rc == 0) {
        size_t from = enc->n;

        rc = encode_one(t, enc, text, len, err);
        for (size_t k = from; rc == 0 && tpl->part[i].type != 0 && k < enc->n; k++)
            enc->type[k] = tpl->part[i].type;
    }
    if (rc == 0)
        rc = encoding_reserve(enc, tpl->n, err);
    for (i++; rc == 0 && i < tpl->n; i++)
        encoding_put_added(enc, tpl->part[i].id, tpl->part[i].type);
    if (rc)
        enc->n = first;
    return rc;
}

/* A template around tokens [from, to) of each text. */
struct cut { const struct encoding *enc; size_t from, to; };

static int assemble(const struct post_template *tpl, struct encoding *enc, const struct cut *a,
                    const struct cut *b, bool special, struct ckpt_err *err)
{
    for (size_t i = 0; i < tpl->n; i++) {
        const struct post_part *part = &tpl->part[i];
        const struct cut *c = part->kind == POST_B ? b : a;
        int rc = 0;

        if (part->kind != POST_TOKEN) {
            rc = encoding_append(enc, c->enc, c->from, c->to, part->type,
                                 part->kind == POST_B, err);
        } else if (special) {
            rc = encoding_reserve(enc, 1, err);
            if (rc == 0)
                encoding_put_added(enc, part->id, part->type);
        }
        if (rc)
            return rc;
    }
    return 0;
}

/* Give the windows after the first of one text, each within the template. */
static int give_windows(const struct tokenizer *t, const struct encoding *a, size_t n_a,
                        const struct encode_opts *o, struct ckpt_err *err)
{
    struct encoding enc = {0};
    struct cut c = {.enc = a};
    int rc = 0;

    for (size_t i = 1;
         rc == 0 && window_range(o->truncation, a->n, n_a, i, &c.from, &c.to); i++) {
        enc.n = 0;
        rc = assemble(&t->post.single, &enc, &c, NULL, o->special, err);
        if (rc == 0)
            rc = o->window(o->window_ctx, &enc, err);
    }
    encoding_release(&enc);
    return rc;
}

int tokenizer_encode_pair(const struct tokenizer *t, struct encoding *enc, const char *a,
                          size_t len_a, const char *b, size_t len_b,
                          const struct encode_opts *opts, struct ckpt_err *err)
{
    const struct post_template *tpl = b ? &t->post.pair : &t->post.single;
    const struct truncation *cut = opts->truncation;
    struct encoding one = {0}, two = {0};
    struct cut ca = {.enc = &one}, cb = {.enc = &two};
    size_t first = enc->n, n_a, n_b;
    int rc = encode_one(t, &one, a, len_a, err);

    if (rc == 0 && b)
        rc = encode_one(t, &two, b, len_b, err);
    n_a = ca.to = one.n;
    n_b = cb.to = two.n;
    if (rc == 0 && cut)
        rc = window_lengths(cut, opts->special ? tpl->n_token : 0, &n_a, &n_b, b != NULL,
                            err);
    if (rc == 0 && cut && ((n_a && n_a < one.n && cut->stride >= n_a) ||
                           (n_b && n_b < two.n && cut->stride >= n_b)))
        rc = ckpt_fail(err, CKPT_EUSAGE, "truncation to %zu and %zu tokens with a stride of %zu",
                       n_a, n_b, cut->stride);
    if (rc == 0 && cut) {
        window_range(cut, one.n, n_a, 0, &ca.from, &ca.to);
        window_range(cut, two.n, n_b, 0, &cb.from, &cb.to);
    }
    if (rc == 0)
        rc = assemble(tpl, enc, &ca, &cb, opts->special, err);
    if (rc == 0 && cut && opts->window && !b)
        rc = give_windows(t, &one, n_a, opts, err);
    if (rc)
        enc->n = first;
    encoding_release(&one);
    encoding_release(&two);
    return rc;
}

/* Text of the tokens by the decoder's steps. */
static int decode_steps(const struct tokenizer *t, struct ckpt_buf *text, const int32_t *id,
                        size_t n, bool skip_special, struct ckpt_err *err)
{
    struct decoder_list list;
    int rc;

    decoder_list_init(&list);
    for (size_t i = 0; i < n; i++) {
        const struct vocab_token *to = &t->vocab.token[id[i]];

        if (!skip_special || !to->special)
            decoder_list_add(&list, to->shown, to->shown_len);
    }
    rc = decoder_run(t->decoder, &list, text, err);
    decoder_list_release(&list);
    return rc;
}

static int decode_bytes(const struct tokenizer *t, struct ckpt_buf *text, const int32_t *id,
                        size_t n, bool skip_special, struct ckpt_err *err)
{
    struct ckpt_buf raw;
    int rc = 0;

    ckpt_buf_init(&raw, SIZE_MAX);
    for (size_t i = 0; i < n; i++)
        if (!skip_special || !t->vocab.token[id[i]].special)
            ckpt_buf_put(&raw, t->vocab.token[id[i]].raw, t->vocab.token_bytes[id[i]]);
    utf8_put_lossy(text, raw.data, raw.len);
    if (!ckpt_buf_ok(&raw))
        rc = ckpt_nomem(err, raw.len);
    ckpt_buf_release(&raw);
    return rc;
}

int tokenizer_decode(const struct tokenizer *t, char **out, size_t *len, const int32_t *id,
                     size_t n, bool skip_special, struct ckpt_err *err)
{
    struct ckpt_buf text, clean;
    int rc = 0;

    *out = NULL;
    for (size_t i = 0; i < n; i++)
        if (id[i] < 0 || id[i] >= t->vocab.n || !t->vocab.token[id[i]].token)
            return ckpt_fail(err, CKPT_EFORMAT,
                             "id %d (number %zu) is not in the vocabulary of %d", id[i], i,
                             t->vocab.n);
    ckpt_buf_init(&text, SIZE_MAX);
    ckpt_buf_init(&clean, SIZE_MAX);
    rc = decoder_is_bytes(t->decoder) ? decode_bytes(t, &text, id, n, skip_special, err)
                                      : decode_steps(t, &text, id, n, skip_special, err);
    if (rc == 0 && t->clean_up) {
        decoder_clean_up(&clean, (const char *)text.data, text.len);
        ckpt_buf_release(&text);
        text = clean;
        ckpt_buf_init(&clean, SIZE_MAX);
    }
    *len = text.len;
    if (rc == 0 && !(*out = ckpt_buf_str(&text)))
        rc = ckpt_nomem(err, text.len);
    if (rc == 0)
        memset(&text, 0, sizeof text);      /* given away */
    ckpt_buf_release(&text);
    return rc;
}

int32_t tokenizer_size(const struct tokenizer *t) { return t->vocab.n; }

int32_t tokenizer_own_size(const struct tokenizer *t)
{
    int32_t n = t->vocab.n;

    while (n > 0 && (!t->vocab.token[n - 1].token ||
                     vocab_find(&t->vocab, t->vocab.token[n - 1].token,
                                t->vocab.token[n - 1].len) != n - 1))
        n--;
    return n;
}

int32_t tokenizer_id(const struct tokenizer *t, const char *token)
{
    return vocab_find_any(&t->vocab, token, strlen(token));
}

const char *tokenizer_token(const struct tokenizer *t, int32_t id)
{
    return id < 0 || id >= t->vocab.n ? NULL : t->vocab.token[id].token;
}

void tokenizer_digest(const struct tokenizer *t, unsigned char digest[16])
{
    memcpy(digest, t->digest, sizeof t->digest);
}

int32_t tokenizer_bos(const struct tokenizer *t) { return t->bos; }
int32_t tokenizer_eos(const struct tokenizer *t) { return t->eos; }
int32_t tokenizer_pad(const struct tokenizer *t) { return t->pad; }
int32_t tokenizer_unk(const struct tokenizer *t) { return t->unk; }
bool tokenizer_pads_left(const struct tokenizer *t) { return t->pads_left; }

const struct truncation *tokenizer_truncation(const struct tokenizer *t)
{
    return t->truncates ? &t->truncation : NULL;
}

const struct padding *tokenizer_padding(const struct tokenizer *t)
{
    return t->pads ? &t->padding : NULL;
}

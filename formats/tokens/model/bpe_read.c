/*
 * bpe_read - a BPE model from the value of "model" in tokenizer.json, or from equivalents made
 * from other files: "ranks" (tiktoken: a pair may be merged if the result is a token, whose id is
 * the rank) and "scores" (sentencepiece: the same, highest score first).
 *
 * Sources: huggingface/tokenizers 0.23 src/models/bpe/serialization.rs; tiktoken 0.9 src/lib.rs;
 * sentencepiece src/bpe_model.cc (2734490).
 */
#include <stdlib.h>
#include <string.h>

#include "formats/tokens/model/bpe.h"
#include "formats/tokens/bytelevel.h"
#include "formats/tokens/component.h"
#include "formats/tokens/model/model.h"
#include "formats/tokens/unicode/unicode.h"
#include "libckpt/base/json.h"

#define MAX_CUT 2048    /* longest token, in bytes, of which every cut is tried; the longest
                           known has 128 */

struct bpe_model {
    struct bpe         *bpe;
    const struct vocab *vocab;
    struct ckpt_map    *by_raw;         /* tokens by their bytes; only in a model of bytes */
    char               *prefix, *suffix;
};

/* A model being read. */
struct reading {
    struct bpe_model          *m;
    const struct model_source *src;
    struct bpe_opts            o;
    struct bpe_merge          *merge;
    size_t                     n_merge, cap_merge;
    struct bpe_char           *chr;
    int32_t                    byte_id[256];
};

static void release(void *model)
{
    struct bpe_model *m = model;

    bpe_free(m->bpe);
    ckpt_map_free(m->by_raw);
    ckpt_free(m->prefix);
    ckpt_free(m->suffix);
}

static int32_t find_raw(const void *ctx, const unsigned char *s, size_t n)
{
    const struct bpe_model *m = ctx;
    size_t id = ckpt_map_get(m->by_raw, (const char *)s, n);

    return id == CKPT_MAP_NONE ? -1 : (int32_t)id;
}

static int32_t find_text(const void *ctx, const unsigned char *s, size_t n)
{
    const struct bpe_model *m = ctx;

    return vocab_find(m->vocab, (const char *)s, n);
}

/* Whether an id is one of the model's own. */
static bool is_own(const struct vocab *v, int32_t id)
{
    const struct vocab_token *to = &v->token[id];

    return to->token && vocab_find(v, to->token, to->len) == id;
}

/* Index words by their bytes: only tokens spelt in the alphabet can be words. */
static int index_raw(struct bpe_model *m, struct ckpt_err *err)
{
    const struct vocab *v = m->vocab;
    int rc;

    if ((rc = ckpt_map_new(&m->by_raw, (size_t)v->n, err)) != 0)
        return rc;
    for (int32_t id = 0; id < v->n; id++) {
        const struct vocab_token *to = &v->token[id];

        if (is_own(v, id) && !to->literal && to->len > 0 &&
            (rc = ckpt_map_add(m->by_raw, (const char *)to->raw, v->token_bytes[id], (size_t)id,
                               err)) != 0)
            return rc;
    }
    return 0;
}

/* Tokens that are one byte, or one character. */
static int find_symbols(struct reading *r, struct ckpt_err *err)
{
    const struct vocab *v = r->src->vocab;
    size_t n = 0, width;

    r->o.byte_id = r->byte_id;
    if (r->src->bytes) {
        for (int b = 0; b < 256; b++) {
            unsigned char spelt[4];

            r->byte_id[b] = vocab_find(v, (char *)spelt,
                                       utf8_put(spelt, bytelevel_char((unsigned char)b)));
        }
        return 0;
    }
    vocab_find_bytes(v, r->byte_id);
    r->chr = ckpt_alloc((size_t)v->n, sizeof *r->chr);
    if (!r->chr)
        return ckpt_nomem(err, (size_t)v->n * sizeof *r->chr);
    for (int32_t id = 0; id < v->n; id++) {
        const struct vocab_token *to = &v->token[id];

        if (to->len > 0 && utf8_width((unsigned char)to->token[0]) == to->len && is_own(v, id))
            r->chr[n++] = (struct bpe_char){
                utf8_get((const unsigned char *)to->token, &width), id};
    }
    r->o.chr = r->chr;
    r->o.n_chr = n;
    return 0;
}

static int add_merge(struct reading *r, int32_t left, int32_t right, int32_t joined,
                     uint32_t rank, struct ckpt_err *err)
{
    if (ckpt_reserve(&r->merge, r->n_merge, &r->cap_merge, sizeof *r->merge, err))
        return CKPT_ENOMEM;
    r->merge[r->n_merge++] = (struct bpe_merge){left, right, joined, rank};
    return 0;
}

/* "a b" or ["a", "b"]. */
static int split_merge(const json_t *v, const char **a, size_t *n_a, const char **b, size_t *n_b,
                       struct ckpt_err *err)
{
    const char *s = json_string_value(v);

    if (s) {
        *a = s;
        *b = strchr(s, ' ');
        if (!*b || strchr(*b + 1, ' '))
            return ckpt_fail(err, CKPT_EFORMAT, "\"%s\" is not two parts and a space", s);
        *n_a = (size_t)(*b - s);
        *n_b = strlen(++*b);
        return 0;
    }
    *a = json_string_value(json_array_get(v, 0));
    *b = json_string_value(json_array_get(v, 1));
    if (!*a || !*b || json_array_size(v) != 2)
        return ckpt_fail(err, CKPT_EFORMAT, "a merge is neither a string nor a pair");
    *n_a = strlen(*a);
    *n_b = strlen(*b);
    return 0;
}

static int known(int32_t *id, const struct vocab *v, const char *s, size_t n,
                 struct ckpt_err *err)
{
    *id = vocab_find(v, s, n);
    return *id >= 0 ? 0 : ckpt_fail(err, CKPT_EFORMAT, "\"%.*s\" is not in the vocabulary",
                                    (int)(n > 200 ? 200 : n), s);
}

static int read_merge(struct reading *r, const json_t *json, struct ckpt_buf *joined,
                      struct ckpt_err *err)
{
    const struct vocab *v = r->src->vocab;
    size_t n_a = 0, n_b = 0, prefix = r->o.prefix ? strlen(r->o.prefix) : 0;
    const char *a, *b;
    int32_t left, right, to;
    int rc;

    if ((rc = split_merge(json, &a, &n_a, &b, &n_b, err)) != 0 ||
        (rc = known(&left, v, a, n_a, err)) != 0 || (rc = known(&right, v, b, n_b, err)) != 0)
        return rc;
    if (n_b < prefix)
        return ckpt_fail(err, CKPT_EFORMAT, "\"%s\" is shorter than the prefix", b);
    joined->len = 0;
    ckpt_buf_put(joined, a, n_a);
    ckpt_buf_put(joined, b + prefix, n_b - prefix);
    if (!ckpt_buf_ok(joined))
        return ckpt_nomem(err, n_a + n_b);
    rc = known(&to, v, (const char *)joined->data, joined->len, err);
    return rc ? rc : add_merge(r, left, right, to, (uint32_t)r->n_merge, err);
}

static int read_merges(struct reading *r, struct ckpt_err *err)
{
    struct ckpt_buf joined;
    json_t *merges, *v;
    size_t i;
    int rc;

    ckpt_buf_init(&joined, SIZE_MAX);
    rc = ckpt_json_get(&merges, r->src->json, "merges", JSON_ARRAY, err);
    if (rc == 0)
        json_array_foreach(merges, i, v)
            if ((rc = read_merge(r, v, &joined, err))) {
                ckpt_err_in(err, "merges[%zu]", i);
                break;
            }
    ckpt_buf_release(&joined);
    return rc;
}

/* Try every cut of a token's text into two tokens. */
static int cut_token(struct reading *r, int32_t id, const unsigned char *s, size_t n,
                     uint32_t rank, struct ckpt_err *err)
{
    int rc;

    if (n > MAX_CUT)
        return ckpt_fail(err, CKPT_ELIMIT, "a token of %zu bytes; the limit is %d", n, MAX_CUT);
    for (size_t i = 1; i < n; i++) {
        int32_t left, right;

        if (r->o.chars && (s[i] & 0xc0) == 0x80)
            continue;
        left = r->o.find(r->m, s, i);
        right = left < 0 ? -1 : r->o.find(r->m, s + i, n - i);
        if (right >= 0 && (rc = add_merge(r, left, right, id, rank, err)) != 0)
            return rc;
    }
    return 0;
}

static int cut_by_rank(struct reading *r, struct ckpt_err *err)
{
    const struct vocab *v = r->src->vocab;
    int rc;

    for (int32_t id = 0; id < v->n; id++)
        if (is_own(v, id) && !v->token[id].literal &&
            (rc = cut_token(r, id, v->token[id].raw, v->token_bytes[id], (uint32_t)id,
                            err)) != 0)
            return rc;
    return 0;
}

struct scored { double score; int32_t id; };

static int by_score(const void *a, const void *b)
{
    const struct scored *x = a, *y = b;

    if (x->score != y->score)
        return x->score > y->score ? -1 : 1;
    return (x->id > y->id) - (x->id < y->id);
}

/* Tokens of equal score have equal rank: among these the leftmost pair is merged first.  null: a
 * token that no merge makes. */
static int cut_by_score(struct reading *r, const json_t *scores, struct ckpt_err *err)
{
    const struct vocab *v = r->src->vocab;
    size_t n = json_array_size(scores), n_scored = 0;
    struct scored *list = ckpt_alloc(n, sizeof *list);
    uint32_t rank = 0;
    int rc = list ? 0 : ckpt_nomem(err, n * sizeof *list);

    for (size_t i = 0; rc == 0 && i < n && i < (size_t)v->n; i++)
        if (json_is_number(json_array_get(scores, i)))
            list[n_scored++] = (struct scored){json_number_value(json_array_get(scores, i)),
                                               (int32_t)i};
    if (rc == 0 && n_scored > 1)
        qsort(list, n_scored, sizeof *list, by_score);
    for (size_t i = 0; rc == 0 && i < n_scored; i++) {
        const struct vocab_token *to = &v->token[list[i].id];

        rank += i > 0 && list[i].score < list[i - 1].score;
        rc = cut_token(r, list[i].id, (const unsigned char *)to->token, to->len, rank, err);
    }
    ckpt_free(list);
    return rc;
}

#define MARK "\xe2\x96\x81"     /* U+2581 */

static bool is_marks(const struct vocab_token *to)
{
    size_t i = 0;

    while (i + 3 <= to->len && memcmp(to->token + i, MARK, 3) == 0)
        i += 3;
    return i == to->len;
}

/* Whether no merge joins a U+2581 to anything before it but other such marks. */
static bool has_parts(const struct reading *r)
{
    const struct vocab *v = r->src->vocab;

    if (!r->o.chars || r->o.prefix || r->o.suffix || r->o.ignore_merges ||
        vocab_find(v, MARK, 3) < 0)
        return false;
    for (size_t i = 0; i < r->n_merge; i++) {
        const struct vocab_token *left = &v->token[r->merge[i].left];
        const struct vocab_token *right = &v->token[r->merge[i].right];

        if (right->len >= 3 && memcmp(right->token, MARK, 3) == 0 && !is_marks(left))
            return false;
    }
    return true;
}

/* Read a member that is text; empty counts as absent. */
static int read_affix(char **out, const json_t *json, const char *key, struct ckpt_err *err)
{
    const char *s;
    int rc;

    if ((rc = ckpt_json_str_or(&s, json, key, "", err)) != 0)
        return rc;
    if (!*s)
        return 0;
    *out = ckpt_strdup(s);
    return *out ? 0 : ckpt_nomem(err, strlen(s));
}

static int read_opts(struct reading *r, struct ckpt_err *err)
{
    const json_t *json = r->src->json, *dropout = json_object_get(json, "dropout");
    struct bpe_model *m = r->m;
    const char *unk;
    int rc;

    if (!component_is_absent(dropout) && json_number_value(dropout) != 0)
        return ckpt_fail(err, CKPT_EUNSUPPORTED, "dropout would make ids random");
    if ((rc = ckpt_json_bool_or(&r->o.fuse_unk, json, "fuse_unk", false, err)) != 0 ||
        (rc = ckpt_json_bool_or(&r->o.ignore_merges, json, "ignore_merges", false, err)) != 0 ||
        (rc = ckpt_json_bool_or(&r->o.byte_fallback, json, "byte_fallback", false, err)) != 0 ||
        (rc = ckpt_json_str_or(&unk, json, "unk_token", NULL, err)) != 0 ||
        (rc = read_affix(&m->prefix, json, "continuing_subword_prefix", err)) != 0 ||
        (rc = read_affix(&m->suffix, json, "end_of_word_suffix", err)) != 0)
        return rc;
    if (r->o.byte_fallback && (m->prefix || m->suffix))
        return ckpt_fail(err, CKPT_EUNSUPPORTED, "byte_fallback together with "
                         "continuing_subword_prefix or end_of_word_suffix is not followed");
    r->o.unk_id = unk ? vocab_find(m->vocab, unk, strlen(unk)) : -1;
    if (unk && r->o.unk_id < 0)
        return ckpt_fail(err, CKPT_EFORMAT, "unk_token \"%s\" is not in the vocabulary", unk);
    r->o.prefix = m->prefix;
    r->o.suffix = m->suffix;
    r->o.chars = !r->src->bytes;
    r->o.find = r->src->bytes ? find_raw : find_text;
    r->o.find_ctx = m;
    return 0;
}

static int read_all(struct reading *r, struct ckpt_err *err)
{
    const json_t *scores = json_object_get(r->src->json, "scores");
    bool ranks = json_is_true(json_object_get(r->src->json, "ranks"));
    int rc = read_opts(r, err);

    if (rc == 0 && r->src->bytes && (r->o.ignore_merges || ranks))
        rc = index_raw(r->m, err);
    if (rc == 0)
        rc = find_symbols(r, err);
    if (rc == 0)
        rc = ranks ? cut_by_rank(r, err) : scores ? cut_by_score(r, scores, err)
                                                  : read_merges(r, err);
    if (rc)
        return rc;
    r->o.merge = r->merge;
    r->o.n_merge = r->n_merge;
    r->o.parts = has_parts(r);
    return bpe_new(&r->m->bpe, &r->o, err);
}

static int read_bpe(void *model, const struct model_source *src, struct ckpt_err *err)
{
    struct reading r = {.src = src, .m = model};
    int rc;

    r.m->vocab = src->vocab;
    rc = read_all(&r, err);
    ckpt_free(r.merge);
    ckpt_free(r.chr);
    return rc;
}

static void run_release(void *run)
{
    bpe_run_release(run);
}

static int encode(const void *model, void *run, const unsigned char *s, size_t n,
                  struct word *out, struct ckpt_err *err)
{
    return bpe_encode(((const struct bpe_model *)model)->bpe, run, s, n, out, err);
}

static size_t part(const void *model, const unsigned char *s, size_t n)
{
    return bpe_part(((const struct bpe_model *)model)->bpe, s, n);
}

const struct model_ops model_bpe = {
    .type = "BPE", .size = sizeof(struct bpe_model), .run_size = sizeof(struct bpe_run),
    .read = read_bpe, .release = release, .run_release = run_release, .encode = encode,
    .part = part,
};

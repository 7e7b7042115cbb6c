/*
 * unigram - split a word into the tokens with the largest sum of scores.
 *
 * From each character on, every matching token is tried; where none is exactly that character,
 * the character may be unknown, with a score below all others.  Among equal sums the one found
 * first is kept.  Adjacent unknowns become one. Sources: huggingface/tokenizers 0.23
 * src/models/unigram/model.rs (sums in double); sentencepiece src/unigram_model.cc,
 * src/sentencepiece_processor.cc (2734490; sums in float, and only some kinds of tokens take
 * part).
 */
#include <math.h>
#include <string.h>

#include "formats/tokens/model/model.h"
#include "formats/tokens/model/trie.h"
#include "formats/tokens/unicode/unicode.h"
#include "libckpt/base/json.h"

#define UNK_PENALTY 10.0
#define MAX_WORD    ((size_t)1 << 26)   /* bytes; an unsplit word takes 28 times that */

/* What sentencepiece calls the kinds of its pieces. */
enum { NORMAL = 1, UNKNOWN = 2, CONTROL = 3, USER_DEFINED = 4, UNUSED = 5, BYTE = 6 };

struct unigram {
    struct trie *trie;
    double      *score;             /* [n] by id */
    double       unk_score;
    int32_t      unk_id;            /* -1: there is none */
    bool         byte_fallback;     /* byte_id is complete, and unknown text is spelt with it */
    bool         floats;            /* sums in float */
    int32_t      byte_id[256];
};

/* The best path to a position of the word. */
struct node { double score; uint32_t from; int32_t id; };
#define NOWHERE UINT32_MAX

struct unigram_run {
    struct node *node;
    int32_t     *id;
    uint32_t    *len, *start;
    size_t       cap;
};

static void release(void *model)
{
    struct unigram *m = model;

    trie_free(m->trie);
    ckpt_free(m->score);
}

/* kinds: as sentencepiece has them, or NULL when every token takes part. */
static int kind_of(const json_t *kinds, int32_t id)
{
    return kinds ? (int)json_integer_value(json_array_get(kinds, (size_t)id)) : NORMAL;
}

static int read_scores(struct unigram *m, const json_t *vocab, const json_t *kinds,
                       const struct vocab *v, struct ckpt_err *err)
{
    size_t n = json_array_size(vocab), n_key = 0;
    struct trie_key *key = ckpt_alloc(n, sizeof *key);
    double least = INFINITY, most = -INFINITY;
    int rc;

    m->score = ckpt_alloc(n, sizeof *m->score);
    if (!key || !m->score) {
        rc = ckpt_nomem(err, n * sizeof *key);
        goto out;
    }
    for (int32_t id = 0; id < (int32_t)n; id++) {
        const struct vocab_token *to = &v->token[id];
        int kind = kind_of(kinds, id);

        m->score[id] = json_number_value(json_array_get(json_array_get(vocab, (size_t)id), 1));
        if (kind == NORMAL) {
            least = m->score[id] < least ? m->score[id] : least;
            most = m->score[id] > most ? m->score[id] : most;
        }
        if (kind == NORMAL || kind == USER_DEFINED)
            key[n_key++] = (struct trie_key){(const unsigned char *)to->token, to->len, id};
    }
    for (int32_t id = 0; kinds && id < (int32_t)n; id++)
        if (kind_of(kinds, id) == USER_DEFINED)
            m->score[id] = (float)((float)v->token[id].len * (float)most - 0.1f);
    m->unk_score = m->floats ? (float)((float)least - (float)UNK_PENALTY) : least - UNK_PENALTY;
    rc = trie_new(&m->trie, key, n_key, err);
out:
    ckpt_free(key);
    return rc;
}

static int read_unigram(void *model, const struct model_source *src, struct ckpt_err *err)
{
    struct unigram *m = model;
    const json_t *kinds = json_object_get(src->json, "kinds");
    json_t *vocab;
    int64_t unk;
    int rc;

    if ((rc = ckpt_json_get(&vocab, src->json, "vocab", JSON_ARRAY, err)) != 0 ||
        (rc = ckpt_json_int_or(&unk, src->json, "unk_id", -1, err)) != 0 ||
        (rc = ckpt_json_bool_or(&m->byte_fallback, src->json, "byte_fallback", false, err)) != 0)
        return rc;
    if (unk < -1 || unk >= (int64_t)json_array_size(vocab))
        return ckpt_fail(err, CKPT_EFORMAT, "unk_id %lld, of %zu tokens", (long long)unk,
                         json_array_size(vocab));
    m->unk_id = (int32_t)unk;
    m->floats = kinds != NULL;
    vocab_find_bytes(src->vocab, m->byte_id);
    return read_scores(m, vocab, kinds, src->vocab, err);
}

static void run_release(void *memory)
{
    struct unigram_run *run = memory;

    ckpt_free(run->node);
    ckpt_free(run->id);
    ckpt_free(run->len);
    ckpt_free(run->start);
}

/* Room for the places of n bytes, and for as many tokens. */
static int reserve(struct unigram_run *run, size_t n, struct ckpt_err *err)
{
    const struct ckpt_array all[] = {
        {&run->node, sizeof *run->node}, {&run->id, sizeof *run->id},
        {&run->len, sizeof *run->len},   {&run->start, sizeof *run->start},
    };

    return ckpt_reserve_all(all, sizeof all / sizeof *all, &run->cap, n + 1, err);
}

static inline void consider(const struct unigram *m, struct node *to, double sum, size_t from,
                            int32_t id)
{
    if (m->floats)
        sum = (float)sum;
    if (to->from != NOWHERE && !(sum > to->score))
        return;
    *to = (struct node){sum, (uint32_t)from, id};
}

/* Find the best path to every position of s.  False when an unknown character has no id. */
static bool search(const struct unigram *m, struct node *node, const unsigned char *s, size_t n)
{
    const struct trie *t = m->trie;

    for (size_t i = 0; i <= n; i++)
        node[i] = (struct node){0, NOWHERE, -1};
    for (size_t at = 0, width; at < n; at += width) {
        double here = node[at].score;
        uint32_t k = TRIE_ROOT;
        bool single = false;

        width = utf8_width(s[at]);
        for (size_t i = at; i < n && (k = trie_step(t, k, s[i])) != TRIE_NONE; i++) {
            int32_t id = t->value[k];

            if (id < 0)
                continue;
            consider(m, &node[i + 1], m->score[id] + here, at, id);
            single |= i + 1 - at == width;
        }
        if (single)
            continue;
        if (m->unk_id < 0)
            return false;
        consider(m, &node[at + width], m->unk_score + here, at, m->unk_id);
    }
    return true;
}

/* The id of exactly s, or -1. */
static int32_t exact(const struct trie *t, const unsigned char *s, size_t n)
{
    uint32_t k = TRIE_ROOT;

    for (size_t i = 0; i < n && k != TRIE_NONE; i++)
        k = trie_step(t, k, s[i]);
    return k == TRIE_NONE ? -1 : t->value[k];
}

/* Tokens are written from the end of run's arrays towards the front, since the path is followed
 * backwards. */
struct back { struct unigram_run *run; size_t at; bool spread; };

static void put(struct back *b, int32_t id, size_t from, size_t to)
{
    b->at--;
    b->run->id[b->at] = id;
    b->run->start[b->at] = (uint32_t)from;
    b->run->len[b->at] = (uint32_t)(to - from);
}

static void put_unknown(const struct unigram *m, struct back *b, const unsigned char *s,
                        size_t from, size_t to)
{
    int32_t id = m->floats ? -1 : exact(m->trie, s + from, to - from);
    bool bytes = id < 0 && m->byte_fallback;

    for (size_t i = from; bytes && i < to; i++)
        bytes = m->byte_id[s[i]] >= 0;
    if (!bytes) {
        put(b, id < 0 ? m->unk_id : id, from, to);
        return;
    }
    /* Each byte covers all of the unknown text. */
    b->spread |= to - from > 1;
    for (size_t i = to; i > from; i--)
        put(b, m->byte_id[s[i - 1]], from, to);
}

static int encode(const void *model, void *memory, const unsigned char *s, size_t n,
                  struct word *out, struct ckpt_err *err)
{
    const struct unigram *m = model;
    struct unigram_run *run = memory;
    struct back b = {.run = run};
    size_t to = n, unknown = 0;     /* [to, unknown) is unknown text so far */
    int rc;

    if (n > MAX_WORD)
        return ckpt_fail(err, CKPT_ELIMIT, "a word of %zu bytes; the limit is %zu", n,
                         MAX_WORD);
    if ((rc = reserve(run, n, err)) != 0)
        return rc;
    if (!search(m, run->node, s, n))
        return ckpt_fail(err, CKPT_EFORMAT, "a character is unknown, and there is no unk_id");
    b.at = run->cap;
    while (to > 0) {
        const struct node *node = &run->node[to];

        if (node->id == m->unk_id) {
            unknown = unknown ? unknown : to;
        } else {
            if (unknown)
                put_unknown(m, &b, s, to, unknown);
            unknown = 0;
            put(&b, node->id, node->from, to);
        }
        to = node->from;
    }
    if (unknown)
        put_unknown(m, &b, s, 0, unknown);
    *out = (struct word){.id = run->id + b.at, .len = run->len + b.at,
                         .start = b.spread ? run->start + b.at : NULL, .n = run->cap - b.at};
    return 0;
}

const struct model_ops model_unigram = {
    .type = "Unigram", .size = sizeof(struct unigram), .run_size = sizeof(struct unigram_run),
    .read = read_unigram, .release = release, .run_release = run_release, .encode = encode,
};

/*
 * wordpiece - a word is split from the left into the longest tokens, those after the first with a
 * prefix; if some rest is not a token, the whole word is unknown.
 *
 * Source: huggingface/tokenizers 0.23 src/models/wordpiece/mod.rs.
 */
#include <string.h>

#include "formats/tokens/model/model.h"
#include "formats/tokens/model/trie.h"
#include "libckpt/base/json.h"

struct wordpiece {
    struct trie *trie;
    uint32_t     inner;             /* the node after the prefix, or TRIE_NONE */
    int32_t      unk_id;            /* -1: there is none */
    size_t       max_chars;         /* a longer word is unknown */
};

struct wordpiece_run {
    int32_t  *id;
    uint32_t *len;
    size_t    cap;
};

static void release(void *model)
{
    trie_free(((struct wordpiece *)model)->trie);
}

static int make_trie(struct wordpiece *m, const struct vocab *v, struct ckpt_err *err)
{
    struct trie_key *key = ckpt_alloc((size_t)v->n, sizeof *key);
    size_t n = 0;
    int rc;

    if (!key)
        return ckpt_nomem(err, (size_t)v->n * sizeof *key);
    for (int32_t id = 0; id < v->n; id++)
        if (v->token[id].token && vocab_find(v, v->token[id].token, v->token[id].len) == id)
            key[n++] = (struct trie_key){(const unsigned char *)v->token[id].token,
                                         v->token[id].len, id};
    rc = trie_new(&m->trie, key, n, err);
    ckpt_free(key);
    return rc;
}

static int read_wordpiece(void *model, const struct model_source *src, struct ckpt_err *err)
{
    struct wordpiece *m = model;
    const char *unk, *prefix;
    int64_t max_chars;
    int rc;

    if ((rc = ckpt_json_str_or(&unk, src->json, "unk_token", "[UNK]", err)) != 0 ||
        (rc = ckpt_json_str_or(&prefix, src->json, "continuing_subword_prefix", "##", err)) != 0 ||
        (rc = ckpt_json_int_or(&max_chars, src->json, "max_input_chars_per_word", 100, err)) != 0)
        return rc;
    if (max_chars < 0)
        return ckpt_fail(err, CKPT_EFORMAT, "max_input_chars_per_word is %lld",
                         (long long)max_chars);
    m->max_chars = (size_t)max_chars;
    m->unk_id = vocab_find(src->vocab, unk, strlen(unk));
    if ((rc = make_trie(m, src->vocab, err)) != 0)
        return rc;
    for (m->inner = TRIE_ROOT; *prefix && m->inner != TRIE_NONE; prefix++)
        m->inner = trie_step(m->trie, m->inner, (unsigned char)*prefix);
    return 0;
}

static void run_release(void *memory)
{
    struct wordpiece_run *run = memory;

    ckpt_free(run->id);
    ckpt_free(run->len);
}

static int reserve(struct wordpiece_run *run, size_t n, struct ckpt_err *err)
{
    const struct ckpt_array all[] = {{&run->id, sizeof *run->id}, {&run->len, sizeof *run->len}};

    return ckpt_reserve_all(all, 2, &run->cap, n, err);
}

/* Bytes of the longest token at s, its id in *id; 0 when there is none. */
static size_t longest(const struct trie *t, uint32_t node, const unsigned char *s, size_t n,
                      int32_t *id)
{
    size_t found = 0;

    for (size_t i = 0; i < n && node != TRIE_NONE; i++) {
        node = trie_step(t, node, s[i]);
        if (node != TRIE_NONE && t->value[node] >= 0) {
            found = i + 1;
            *id = t->value[node];
        }
    }
    return found;
}

static int encode(const void *model, void *memory, const unsigned char *s, size_t n,
                  struct word *out, struct ckpt_err *err)
{
    const struct wordpiece *m = model;
    struct wordpiece_run *run = memory;
    size_t chars = 0, len = 1, k = 0;
    int rc;

    for (size_t i = 0; i < n; i++)
        chars += (s[i] & 0xc0) != 0x80;
    if ((rc = reserve(run, chars > m->max_chars ? 1 : chars, err)) != 0)
        return rc;
    for (size_t i = 0; chars <= m->max_chars && i < n && len > 0; i += len) {
        len = longest(m->trie, i ? m->inner : TRIE_ROOT, s + i, n - i, &run->id[k]);
        run->len[k++] = (uint32_t)len;
    }
    if (chars > m->max_chars || len == 0) {
        if (m->unk_id < 0)
            return ckpt_fail(err, CKPT_EFORMAT, "a word is unknown, and there is no unk_token");
        run->id[0] = m->unk_id;
        run->len[0] = (uint32_t)n;
        k = 1;
    }
    *out = (struct word){.id = run->id, .len = run->len, .n = k};
    return 0;
}

const struct model_ops model_wordpiece = {
    .type = "WordPiece", .size = sizeof(struct wordpiece),
    .run_size = sizeof(struct wordpiece_run), .read = read_wordpiece, .release = release,
    .run_release = run_release, .encode = encode,
};

/* model - see model.h. */
#include "formats/tokens/model/model.h"

#include <string.h>
#include <sys/random.h>

#include "formats/tokens/component.h"
#include "libckpt/base/json.h"
#include "libckpt/mem.h"

#define CACHE_BITS  15              /* slots of 64 bytes: 2 MiB per run, about a core's L2 */
#define CACHE_KEY   24              /* longest cached word, in bytes */
#define CACHE_IDS   7

struct slot {
    uint64_t key[CACHE_KEY / 8];
    int32_t  id[CACHE_IDS];
    uint8_t  len[CACHE_IDS];        /* bytes of each */
    uint8_t  n_key;                 /* 0: empty */
    uint8_t  n;
    uint8_t  unused[3];
};

_Static_assert(sizeof(struct slot) == 64, "a cache slot is one line");

struct model_run {
    const struct model_ops *ops;
    void                   *run;
    uint64_t                seed;   /* so that no text can provoke collisions */
    struct slot            *cache;
    uint32_t                len[CACHE_IDS];
};

static const struct model_ops *const kinds[] = {
    &model_bpe, &model_unigram, &model_wordpiece, &model_wordlevel,
};

/* The type in files from before types were written. */
static const char *type_of(const json_t *json)
{
    if (json_object_get(json, "merges"))
        return "BPE";
    if (json_is_array(json_object_get(json, "vocab")))
        return "Unigram";
    return json_object_get(json, "continuing_subword_prefix") ? "WordPiece" : "WordLevel";
}

int model_open(struct token_model *m, const struct model_source *src, struct ckpt_err *err)
{
    const char *type;

    if (ckpt_json_str_or(&type, src->json, "type", type_of(src->json), err))
        return ckpt_err_in(err, "model");
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (strcmp(kinds[i]->type, type) == 0) {
            m->ops = kinds[i];
            m->model = ckpt_alloc(1, m->ops->size);
            if (!m->model)
                return ckpt_nomem(err, m->ops->size);
            return m->ops->read(m->model, src, err) ? ckpt_err_in(err, "model") : 0;
        }
    return ckpt_fail(err, CKPT_EUNSUPPORTED, "model: type \"%s\" is not read", type);
}

void model_release(struct token_model *m)
{
    if (m->model && m->ops->release)
        m->ops->release(m->model);
    ckpt_free(m->model);
}

int model_run_new(struct model_run **out, const struct token_model *m, struct ckpt_err *err)
{
    struct model_run *run = ckpt_alloc(1, sizeof *run);

    *out = NULL;
    if (!run)
        return ckpt_nomem(err, sizeof *run);
    run->ops = m->ops;
    run->run = ckpt_alloc(1, m->ops->run_size);
    run->cache = ckpt_alloc((size_t)1 << CACHE_BITS, sizeof *run->cache);
    if (!run->run || !run->cache) {
        model_run_free(run);
        return ckpt_nomem(err, sizeof(struct slot) << CACHE_BITS);
    }
    if (getrandom(&run->seed, sizeof run->seed, GRND_NONBLOCK) != (ssize_t)sizeof run->seed)
        run->seed = (uint64_t)(uintptr_t)run;
    *out = run;
    return 0;
}

void model_run_free(struct model_run *run)
{
    if (!run)
        return;
    if (run->run && run->ops->run_release)
        run->ops->run_release(run->run);
    ckpt_free(run->run);
    ckpt_free(run->cache);
    ckpt_free(run);
}

/* n < 8 bytes as a number, zero-extended. */
static inline uint64_t load_tail(const unsigned char *s, size_t n)
{
    uint32_t a, b;
    uint16_t c, d;

    if (n >= 4) {
        memcpy(&a, s, 4);
        memcpy(&b, s + n - 4, 4);
        return a | (uint64_t)b << 8 * (n - 4);
    }
    if (n >= 2) {
        memcpy(&c, s, 2);
        memcpy(&d, s + n - 2, 2);
        return c | (uint64_t)d << 8 * (n - 2);
    }
    return n ? s[0] : 0;
}

static inline void load_key(uint64_t key[3], const unsigned char *s, size_t n)
{
    key[0] = key[1] = key[2] = 0;
    for (size_t i = 0; n > 0; i++) {
        if (n >= 8)
            memcpy(&key[i], s, 8);
        else
            key[i] = load_tail(s, n);
        s += n >= 8 ? 8 : n;
        n -= n >= 8 ? 8 : n;
    }
}

static inline size_t cache_slot(const struct model_run *run, const uint64_t key[3], size_t n)
{
    uint64_t h = (key[0] ^ run->seed) * UINT64_C(0x9e3779b97f4a7c15);

    h = (h ^ h >> 29 ^ key[1]) * UINT64_C(0xbf58476d1ce4e5b9);
    h = (h ^ h >> 32 ^ key[2] ^ n) * UINT64_C(0x94d049bb133111eb);
    return (size_t)(h >> (64 - CACHE_BITS));
}

static void cache_put(struct slot *slot, const uint64_t key[3], size_t n_key,
                      const struct word *word)
{
    if (word->n == 0 || word->n > CACHE_IDS || word->start)
        return;
    memcpy(slot->key, key, sizeof slot->key);
    memcpy(slot->id, word->id, word->n * sizeof *slot->id);
    for (size_t i = 0; i < word->n; i++)
        slot->len[i] = (uint8_t)word->len[i];
    slot->n = (uint8_t)word->n;
    slot->n_key = (uint8_t)n_key;
}

int model_encode(const struct token_model *m, struct model_run *run, const unsigned char *s,
                 size_t n, struct word *out, struct ckpt_err *err)
{
    struct slot *slot;
    uint64_t key[3];
    int rc;

    if (n > CACHE_KEY)
        return m->ops->encode(m->model, run->run, s, n, out, err);
    load_key(key, s, n);
    slot = &run->cache[cache_slot(run, key, n)];
    if (slot->n_key == n && memcmp(slot->key, key, sizeof key) == 0) {
        for (size_t i = 0; i < slot->n; i++)
            run->len[i] = slot->len[i];
        *out = (struct word){.id = slot->id, .len = run->len, .n = slot->n};
        return 0;
    }
    if ((rc = m->ops->encode(m->model, run->run, s, n, out, err)) != 0)
        return rc;
    cache_put(slot, key, n, out);
    return 0;
}

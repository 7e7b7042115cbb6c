/* map - see map.h.  Open addressing over a seeded XXH3. */
#include "libckpt/base/map.h"

#include <string.h>
#include <sys/auxv.h>
#include <xxhash.h>

#include "libckpt/mem.h"

struct slot {
    const char *key;            /* NULL: empty */
    size_t      value;
    uint32_t    len;
    uint32_t    hash;
};

struct ckpt_map {
    struct slot *slot;
    size_t       n, cap;        /* cap is a power of two, at least 4/3 n */
    uint64_t     seed;
};

static struct slot *find_slot(const struct ckpt_map *m, const char *key, size_t len,
                              uint32_t hash)
{
    size_t i = (size_t)hash & (m->cap - 1);

    while (m->slot[i].key && (m->slot[i].hash != hash || m->slot[i].len != len ||
                              memcmp(m->slot[i].key, key, len) != 0))
        i = (i + 1) & (m->cap - 1);
    return &m->slot[i];
}

static int resize(struct ckpt_map *m, size_t cap, struct ckpt_err *err)
{
    struct ckpt_map bigger = {.n = m->n, .cap = cap, .seed = m->seed};

    bigger.slot = ckpt_alloc(cap, sizeof *bigger.slot);
    if (!bigger.slot)
        return ckpt_nomem(err, cap * sizeof *bigger.slot);
    for (size_t i = 0; i < m->cap; i++)
        if (m->slot[i].key)
            *find_slot(&bigger, m->slot[i].key, m->slot[i].len, m->slot[i].hash) = m->slot[i];
    ckpt_free(m->slot);
    *m = bigger;
    return 0;
}

/* The seed, which no author of a file can know: kernel random bytes, drawn once per process. */
static uint64_t secret(void)
{
    const void *bytes = (const void *)(uintptr_t)getauxval(AT_RANDOM);
    uint64_t seed = 0;

    if (bytes)
        memcpy(&seed, bytes, sizeof seed);
    return seed;
}

int ckpt_map_new(struct ckpt_map **out, size_t expected, struct ckpt_err *err)
{
    struct ckpt_map *m = ckpt_alloc(1, sizeof *m);
    size_t cap = 16;
    int rc;

    *out = NULL;
    if (!m)
        return ckpt_nomem(err, sizeof *m);
    while (cap / 4 * 3 < expected && cap < SIZE_MAX / 4)
        cap *= 2;
    m->seed = secret() ^ (uint64_t)(uintptr_t)m;
    rc = resize(m, cap, err);
    if (rc) {
        ckpt_free(m);
        return rc;
    }
    *out = m;
    return 0;
}

void ckpt_map_free(struct ckpt_map *m)
{
    if (m)
        ckpt_free(m->slot);
    ckpt_free(m);
}

int ckpt_map_add(struct ckpt_map *m, const char *key, size_t len, size_t value,
                 struct ckpt_err *err)
{
    uint32_t hash = (uint32_t)XXH3_64bits_withSeed(key, len, m->seed);
    struct slot *s;
    int rc;

    if (len > UINT32_MAX)
        return ckpt_fail(err, CKPT_ELIMIT, "a key of %zu bytes", len);
    s = find_slot(m, key, len, hash);
    if (s->key)
        return ckpt_fail_as(err, CKPT_EFORMAT, "duplicate", "%.*s: appears twice",
                            len < 200 ? (int)len : 200, key);
    if (m->n + 1 > m->cap / 4 * 3) {
        if ((rc = resize(m, m->cap * 2, err)) != 0)
            return rc;
        s = find_slot(m, key, len, hash);
    }
    *s = (struct slot){.key = key, .value = value, .len = (uint32_t)len, .hash = hash};
    m->n++;
    return 0;
}

size_t ckpt_map_get(const struct ckpt_map *m, const char *key, size_t len)
{
    uint32_t hash = (uint32_t)XXH3_64bits_withSeed(key, len, m->seed);
    const struct slot *s = find_slot(m, key, len, hash);

    return s->key ? s->value : CKPT_MAP_NONE;
}

size_t ckpt_map_count(const struct ckpt_map *m) { return m->n; }

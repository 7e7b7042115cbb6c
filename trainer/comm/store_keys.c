/* comm/store_keys - see store_keys.h. */
#include "trainer/comm/store_keys.h"

#include <assert.h>
#include <string.h>

#include "libckpt/base/map.h"
#include "libckpt/err.h"
#include "libckpt/mem.h"
#include "trainer/comm/store.h"

#define MAX_ENTRIES (1u << 20)
#define MAX_HELD    ((size_t)1 << 30)       /* bytes of all values */

struct store_keys {
    struct ckpt_map    *index;              /* key -> entry; a deleted key keeps its entry */
    struct store_entry *entry;
    size_t              n, cap, n_set, held;
};

int store_keys_new(struct store_keys **out, struct ckpt_err *err)
{
    struct store_keys *k = ckpt_alloc(1, sizeof *k);
    int rc = k ? ckpt_map_new(&k->index, 64, err) : ckpt_nomem(err, sizeof *k);

    if (rc) {
        ckpt_free(k);
        k = NULL;
    }
    *out = k;
    return rc;
}

void store_keys_free(struct store_keys *k)
{
    for (size_t i = 0; k && i < k->n; i++) {
        ckpt_free(k->entry[i].key);
        ckpt_free(k->entry[i].value);
    }
    if (k) {
        ckpt_map_free(k->index);
        ckpt_free(k->entry);
    }
    ckpt_free(k);
}

static struct store_entry *entry_of(const struct store_keys *k, struct store_bytes key)
{
    size_t i = ckpt_map_get(k->index, (const char *)key.p, key.n);

    return i == CKPT_MAP_NONE ? NULL : &k->entry[i];
}

const struct store_entry *store_keys_find(const struct store_keys *k, struct store_bytes key)
{
    const struct store_entry *e = entry_of(k, key);

    return e && e->value ? e : NULL;
}

static struct store_entry *add_entry(struct store_keys *k, struct store_bytes key)
{
    struct store_entry *e;
    struct ckpt_err err;

    if (k->n == MAX_ENTRIES)
        return NULL;
    if (ckpt_reserve(&k->entry, k->n, &k->cap, sizeof *k->entry, &err))
        return NULL;
    assert(k->entry);
    e = &k->entry[k->n];
    *e = (struct store_entry){.key = ckpt_alloc(key.n + 1, 1), .key_len = key.n};
    if (!e->key)
        return NULL;
    if (key.n)
        memcpy(e->key, key.p, key.n);
    if (ckpt_map_add(k->index, e->key, e->key_len, k->n, &err)) {
        ckpt_free(e->key);
        return NULL;
    }
    k->n++;
    return e;
}

bool store_keys_put(struct store_keys *k, struct store_bytes key, struct store_bytes head,
                    struct store_bytes tail)
{
    struct store_entry *e = entry_of(k, key);
    size_t n = head.n + tail.n;
    unsigned char *value;

    if (n > STORE_MAX_VALUE || k->held - (e ? e->n : 0) + n > MAX_HELD)
        return false;
    value = ckpt_alloc(n + 1, 1);
    if (value && !e)
        e = add_entry(k, key);
    if (!value || !e) {
        ckpt_free(value);
        return false;
    }
    if (head.n)
        memcpy(value, head.p, head.n);
    if (tail.n)
        memcpy(value + head.n, tail.p, tail.n);
    k->held += n - e->n;
    k->n_set += !e->value;
    ckpt_free(e->value);
    e->value = value;
    e->n = n;
    return true;
}

int store_keys_delete(struct store_keys *k, struct store_bytes key)
{
    struct store_entry *e = entry_of(k, key);

    if (!e || !e->value)
        return 0;
    ckpt_free(e->value);
    e->value = NULL;
    k->held -= e->n;
    e->n = 0;
    k->n_set--;
    return 1;
}

size_t store_keys_count(const struct store_keys *k) { return k->n_set; }

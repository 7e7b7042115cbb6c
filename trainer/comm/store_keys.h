/*
 * comm/store_keys - the keys and values that a store (store_server.h) holds, within limits.
 */
#ifndef CKPT_TRAINER_COMM_STORE_KEYS_H
#define CKPT_TRAINER_COMM_STORE_KEYS_H

#include <stdbool.h>
#include <stddef.h>

#include "libckpt/fail.h"

struct store_bytes {
    const unsigned char *p;
    size_t               n;
};

struct store_entry {
    char          *key;
    size_t         key_len;
    unsigned char *value;           /* [n]; NULL: not set, or set no more */
    size_t         n;
};

struct store_keys;

int store_keys_new(struct store_keys **out, struct ckpt_err *err);
void store_keys_free(struct store_keys *k);
/* The entry of a key that is set; NULL when it is not.  Until the next put. */
const struct store_entry *store_keys_find(const struct store_keys *k, struct store_bytes key);
/* Set the key to head followed by tail, which may be its own value.  False beyond a limit (a
 * million keys, 1 GiB), or without memory: nothing has changed then. */
bool store_keys_put(struct store_keys *k, struct store_bytes key, struct store_bytes head,
                    struct store_bytes tail);
/* How many keys it was: 1 or 0. */
int store_keys_delete(struct store_keys *k, struct store_bytes key);
size_t store_keys_count(const struct store_keys *k);

#endif

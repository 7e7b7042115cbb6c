/*
 * trie - strings of bytes and a number for each, walked byte by byte.
 *
 * Children of a node lie side by side, so that a step is a look through a few bytes; memory is
 * nine bytes a node, whatever the strings are.
 */
#ifndef CKPT_FORMATS_TOKENS_MODEL_TRIE_H
#define CKPT_FORMATS_TOKENS_MODEL_TRIE_H

#include <string.h>

#include "libckpt/fail.h"

#include <stddef.h>
#include <stdint.h>

#define TRIE_ROOT 0u
#define TRIE_NONE UINT32_MAX

struct trie_key { const unsigned char *s; size_t n; int32_t value; };

struct trie {
    uint32_t      *child;       /* [n_node + 1] first child; those of i end where i + 1's begin */
    unsigned char *label;       /* [n_node] the byte that leads to a node */
    int32_t       *value;       /* [n_node] -1: no string ends here */
    uint32_t       top[256];    /* children of the root by byte */
    size_t         n_node;
};

/* key[n] is sorted in place; of equal strings the later one in key counts.  Values are >= 0. */
int trie_new(struct trie **out, struct trie_key *key, size_t n, struct ckpt_err *err);
void trie_free(struct trie *t);

/* The node after node by byte c, or TRIE_NONE. */
static inline uint32_t trie_step(const struct trie *t, uint32_t node, unsigned char c)
{
    uint32_t first, n;
    const unsigned char *at;

    if (node == TRIE_ROOT)
        return t->top[c];
    first = t->child[node];
    n = t->child[node + 1] - first;
    for (at = t->label + first; n > 0 && n < 9; n--, at++)
        if (*at == c)
            return (uint32_t)(at - t->label);
    if (n == 0 || !(at = memchr(at, c, n)))
        return TRIE_NONE;
    return (uint32_t)(at - t->label);
}

#endif

/* trie - see trie.h. */
#include "formats/tokens/model/trie.h"

#include <stdlib.h>

#include "libckpt/mem.h"

/* Keys of one node: key[lo, hi), which share their first depth bytes. */
struct range { uint32_t lo, hi, depth; };

static int by_string(const void *a, const void *b)
{
    const struct trie_key *x = a, *y = b;
    size_t n = x->n < y->n ? x->n : y->n;
    int d = n ? memcmp(x->s, y->s, n) : 0;

    if (d)
        return d;
    if (x->n != y->n)
        return x->n < y->n ? -1 : 1;
    return (x->value > y->value) - (x->value < y->value);
}

/* Count nodes: one per distinct prefix. */
static uint64_t count_nodes(const struct trie_key *key, size_t n)
{
    uint64_t nodes = 1;

    for (size_t i = 0; i < n; i++) {
        size_t same = 0;

        if (i > 0)
            while (same < key[i].n && same < key[i - 1].n && key[i].s[same] == key[i - 1].s[same])
                same++;
        nodes += key[i].n - same;
    }
    return nodes;
}

/* Breadth first, so that the children of a node have consecutive numbers. */
static void lay_out(struct trie *t, const struct trie_key *key, size_t n, struct range *todo)
{
    size_t made = 1;

    todo[0] = (struct range){0, (uint32_t)n, 0};
    for (size_t i = 0; i < made; i++) {
        struct range r = todo[i];

        t->value[i] = -1;
        for (; r.lo < r.hi && key[r.lo].n == r.depth; r.lo++)
            t->value[i] = key[r.lo].value;
        t->child[i] = (uint32_t)made;
        while (r.lo < r.hi) {
            unsigned char c = key[r.lo].s[r.depth];
            uint32_t from = r.lo;

            while (r.lo < r.hi && key[r.lo].s[r.depth] == c)
                r.lo++;
            t->label[made] = c;
            todo[made++] = (struct range){from, r.lo, r.depth + 1};
        }
    }
    t->child[made] = (uint32_t)made;
}

int trie_new(struct trie **out, struct trie_key *key, size_t n, struct ckpt_err *err)
{
    struct trie *t = NULL;
    struct range *todo = NULL;
    uint64_t nodes;
    int rc = 0;

    *out = NULL;
    if (n > 1)
        qsort(key, n, sizeof *key, by_string);
    nodes = count_nodes(key, n);
    if (n >= UINT32_MAX || nodes >= UINT32_MAX - 1)
        return ckpt_fail(err, CKPT_ELIMIT, "a vocabulary of %llu bytes",
                         (unsigned long long)nodes);
    t = ckpt_alloc(1, sizeof *t);
    todo = ckpt_alloc(nodes, sizeof *todo);
    if (t) {
        t->n_node = nodes;
        t->child = ckpt_alloc(nodes + 1, sizeof *t->child);
        t->label = ckpt_alloc(nodes, 1);
        t->value = ckpt_alloc(nodes, sizeof *t->value);
    }
    if (!t || !todo || !t->child || !t->label || !t->value) {
        rc = ckpt_nomem(err, nodes * 24);
        goto out;
    }
    lay_out(t, key, n, todo);
    for (size_t c = 0; c < 256; c++)
        t->top[c] = TRIE_NONE;
    for (uint32_t i = t->child[0]; i < t->child[1]; i++)
        t->top[t->label[i]] = i;
    *out = t;
    t = NULL;
out:
    trie_free(t);
    ckpt_free(todo);
    return rc;
}

void trie_free(struct trie *t)
{
    if (!t)
        return;
    ckpt_free(t->child);
    ckpt_free(t->label);
    ckpt_free(t->value);
    ckpt_free(t);
}

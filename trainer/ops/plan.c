/* plan - see plan.h. */
#include "trainer/ops/plan.h"

#include <assert.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/mem.h"

#define MAX_ARENA ((uint64_t)1 << 48)

size_t plan_add(struct plan *p, void **to, const char *name, uint64_t bytes, int first, int last)
{
    struct plan_item *item;
    size_t cap;

    assert(first <= last);
    if (p->n == p->cap) {
        cap = p->cap ? 2 * p->cap : 64;
        item = ckpt_grow(p->item, cap, sizeof *item);
        if (!item) {
            p->failed = CKPT_ENOMEM;
            return 0;
        }
        p->item = item;
        p->cap = cap;
    }
    if (bytes > MAX_ARENA) {
        p->failed = CKPT_ELIMIT;
        bytes = 0;
    }
    bytes = (bytes + PLAN_ALIGN - 1) / PLAN_ALIGN * PLAN_ALIGN;
    p->item[p->n] = (struct plan_item){.name = name, .to = {to}, .bytes = bytes, .first = first,
                                       .last = last};
    return p->n++;
}

void plan_share(struct plan *p, size_t i, void **also)
{
    if (i < p->n)                       /* not where the add was refused */
        p->item[i].to[1] = also;
}

static int larger_first(const void *a, const void *b)
{
    const struct plan_item *x = *(struct plan_item *const *)a,
                           *y = *(struct plan_item *const *)b;

    if (x->bytes != y->bytes)
        return x->bytes > y->bytes ? -1 : 1;
    return x < y ? -1 : x > y;
}

static bool meet(const struct plan_item *a, const struct plan_item *b)
{
    return a->first <= b->last && b->first <= a->last;
}

/*
 * Lowest offset where item fits among the placed ones, which are sorted by offset.  Keeps them
 * sorted by putting item in its place.
 */
static void place(struct plan_item **placed, size_t n, struct plan_item *item)
{
    uint64_t at = 0;
    size_t i;

    for (i = 0; i < n; i++) {
        if (!meet(placed[i], item))
            continue;
        if (placed[i]->offset >= at + item->bytes)
            break;
        if (placed[i]->offset + placed[i]->bytes > at)
            at = placed[i]->offset + placed[i]->bytes;
    }
    item->offset = at;
    for (i = n; i > 0 && placed[i - 1]->offset > at; i--)
        placed[i] = placed[i - 1];
    placed[i] = item;
}

static int too_large(const struct plan *p, struct ckpt_err *err)
{
    return ckpt_fail(err, CKPT_ELIMIT, "a plan of %zu buffers is beyond 2^48 bytes", p->n);
}

int plan_pack(struct plan *p, struct ckpt_err *err)
{
    struct plan_item **order = ckpt_alloc(p->n ? p->n : 1, sizeof *order);
    struct plan_item **placed = ckpt_alloc(p->n ? p->n : 1, sizeof *placed);
    int rc = 0;

    if (!order || !placed || p->failed) {
        rc = p->failed == CKPT_ELIMIT ? too_large(p, err)
                                      : ckpt_nomem(err, p->n * sizeof *p->item);
        goto out;
    }
    p->bytes = 0;
    for (size_t i = 0; i < p->n; i++)
        order[i] = &p->item[i];
    qsort(order, p->n, sizeof *order, larger_first);
    for (size_t i = 0; i < p->n; i++) {
        place(placed, i, order[i]);
        if (order[i]->offset + order[i]->bytes > p->bytes)
            p->bytes = order[i]->offset + order[i]->bytes;
    }
    if (p->bytes > MAX_ARENA)
        rc = too_large(p, err);
out:
    ckpt_free(order);
    ckpt_free(placed);
    return rc;
}

void plan_hand_out(const struct plan *p, void *base)
{
    for (size_t i = 0; i < p->n; i++)
        for (int k = 0; k < 2; k++)
            if (p->item[i].to[k])
                *p->item[i].to[k] = (unsigned char *)base + p->item[i].offset;
}

void plan_release(struct plan *p)
{
    ckpt_free(p->item);
    memset(p, 0, sizeof *p);
}

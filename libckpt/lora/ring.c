/* lora/ring - see lora/ring.h. */
#include "libckpt/lora/ring.h"

#include <pthread.h>
#include <stdbool.h>

#include "libckpt/mem.h"

struct slot {
    pthread_mutex_t lock;       /* held while loading; guards ready */
    bool            ready;
    size_t          users;      /* these two are guarded by the ring's lock */
    bool            stays;
};

struct lora_ring {
    const struct lora_ring_ops *ops;
    void            *ctx;
    struct slot     *slot;
    size_t           n;
    pthread_mutex_t  lock;
    size_t          *staying, n_staying, max_staying, next;     /* a circular buffer: the entry
                                                                   at next is evicted first */
};

int lora_ring_new(struct lora_ring **out, size_t n, size_t stay, const struct lora_ring_ops *ops,
                  void *ctx, struct ckpt_err *err)
{
    struct lora_ring *r = ckpt_alloc(1, sizeof *r);
    struct slot *slot = ckpt_alloc(n, sizeof *slot);
    size_t *staying = ckpt_alloc(stay, sizeof *staying);

    *out = NULL;
    if (!r || !slot || !staying) {
        ckpt_free(r);
        ckpt_free(slot);
        ckpt_free(staying);
        return ckpt_nomem(err, n * sizeof *slot);
    }
    *r = (struct lora_ring){.ops = ops, .ctx = ctx, .slot = slot, .n = n, .staying = staying,
                            .max_staying = stay};
    pthread_mutex_init(&r->lock, NULL);
    for (size_t i = 0; i < n; i++)
        pthread_mutex_init(&slot[i].lock, NULL);
    *out = r;
    return 0;
}

static void unload(struct lora_ring *r, size_t i)
{
    r->ops->unload(r->ctx, i);
    r->slot[i].ready = false;
}

void lora_ring_free(struct lora_ring *r)
{
    if (!r)
        return;
    for (size_t i = 0; i < r->n; i++) {
        unload(r, i);
        pthread_mutex_destroy(&r->slot[i].lock);
    }
    pthread_mutex_destroy(&r->lock);
    ckpt_free(r->staying);
    ckpt_free(r->slot);
    ckpt_free(r);
}

/* With the lock held: keep i from now on, and evict the oldest kept entry unless it is in use. */
static void stay(struct lora_ring *r, size_t i)
{
    size_t old = r->staying[r->next];

    if (r->slot[i].stays)
        return;
    if (r->n_staying == r->max_staying) {
        r->slot[old].stays = false;
        if (r->slot[old].users == 0)
            unload(r, old);
    } else {
        r->n_staying++;
    }
    r->staying[r->next] = i;
    r->next = (r->next + 1) % r->max_staying;
    r->slot[i].stays = true;
}

int lora_ring_begin(struct lora_ring *r, size_t i, struct ckpt_err *err)
{
    struct slot *s = &r->slot[i];
    int rc;

    pthread_mutex_lock(&r->lock);
    s->users++;
    stay(r, i);
    pthread_mutex_unlock(&r->lock);
    pthread_mutex_lock(&s->lock);
    rc = s->ready ? 0 : r->ops->load(r->ctx, i, err);
    s->ready = rc == 0;
    if (rc)
        unload(r, i);
    pthread_mutex_unlock(&s->lock);
    if (rc)
        lora_ring_end(r, i);
    return rc;
}

void lora_ring_end(struct lora_ring *r, size_t i)
{
    struct slot *s = &r->slot[i];

    pthread_mutex_lock(&r->lock);
    if (--s->users == 0 && !s->stays)
        unload(r, i);
    pthread_mutex_unlock(&r->lock);
}

/*
 * lora/ring - entries that are loaded on demand.  A few stay in memory besides those in use, so
 * that neighbouring ranges need not load them again.
 */
#ifndef CKPT_LIBCKPT_LORA_RING_H
#define CKPT_LIBCKPT_LORA_RING_H

#include <stddef.h>

#include "libckpt/err.h"

struct lora_ring;

/* load never runs twice at once for one entry; unload also follows a load that failed. */
struct lora_ring_ops {
    int  (*load)(void *ctx, size_t i, struct ckpt_err *err);
    void (*unload)(void *ctx, size_t i);
};

/* n entries, of which `stay` are kept after use.  Keeps ops and ctx until free, which unloads
 * all. */
int lora_ring_new(struct lora_ring **out, size_t n, size_t stay, const struct lora_ring_ops *ops,
                  void *ctx, struct ckpt_err *err);
void lora_ring_free(struct lora_ring *r);           /* NULL accepted */

/* Entry i stays loaded until end.  Any thread.  Call end only after a begin that returned 0. */
int lora_ring_begin(struct lora_ring *r, size_t i, struct ckpt_err *err);
void lora_ring_end(struct lora_ring *r, size_t i);

#endif

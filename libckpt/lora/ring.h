/*
 * lora/ring - things that are loaded when they are needed.  A few stay in memory besides those in
 * use, so that neighbouring ranges find them.
 */
#ifndef CKPT_LIBCKPT_LORA_RING_H
#define CKPT_LIBCKPT_LORA_RING_H

#include <stddef.h>

#include "libckpt/err.h"

struct lora_ring;

/* load runs once at a time for each thing; unload also follows a load that failed. */
struct lora_ring_ops {
    int  (*load)(void *ctx, size_t i, struct ckpt_err *err);
    void (*unload)(void *ctx, size_t i);
};

/* n things, of which `stay` stay.  Keeps ops and ctx until free, which unloads all. */
int lora_ring_new(struct lora_ring **out, size_t n, size_t stay, const struct lora_ring_ops *ops,
                  void *ctx, struct ckpt_err *err);
void lora_ring_free(struct lora_ring *r);           /* NULL accepted */

/* Thing i is loaded until end.  Any thread.  end only after a begin that gave 0. */
int lora_ring_begin(struct lora_ring *r, size_t i, struct ckpt_err *err);
void lora_ring_end(struct lora_ring *r, size_t i);

#endif

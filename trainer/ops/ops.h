/*
 * ops - the row of operations: the law for cpu/ and cuda/.
 *
 * Letters in comments: B batch, T positions, V vocabulary, L layers, D hidden size, H query
 * heads, K key/value heads, d head size, F feed-forward width, N = rows (tokens of a packed
 * batch), R ranks.
 *
 * Gradients of parameters are ADDED, gradients of activations are OVERWRITTEN, except where an
 * entry says otherwise.  Sums are accumulated in f32 at least, in a fixed order, so a rerun on
 * the same machine gives the same bits.  Operations return nothing: the first failure marks the
 * device, later ones do nothing, and device_sync reports it.
 */
#ifndef CKPT_OPS_H
#define CKPT_OPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "libckpt/dtype.h"
#include "libckpt/err.h"

struct device;

/* Scalars of one AdamW step, as torch.optim.AdamW applies them (decoupled decay first). */
struct adamw {
    float lr, beta1, beta2, eps, weight_decay;
    float grad_scale;               /* gradients are multiplied by it first (clipping) */
    int64_t step;                   /* 1 for the first: bias correction */
};

struct ops {
    const char *name;               /* "cpu", "cuda" */

    /* -- memory and order (device pointers; on the CPU plain memory) ------------------------ */
    void *(*alloc)(struct device *dev, size_t bytes);           /* 256-byte aligned, zeroed */
    void (*free)(struct device *dev, void *p);
    void (*zero)(struct device *dev, void *p, size_t bytes);
    void (*to_device)(struct device *dev, void *dst, const void *src, size_t bytes);
    void (*to_host)(struct device *dev, void *dst, const void *src, size_t bytes);
    void (*copy)(struct device *dev, void *dst, const void *src, size_t bytes);
    void (*sync)(struct device *dev);

    /* -- optimizer ------------------------------------------------------------------------- */
    /* param[n], exp_avg[n], exp_avg_sq[n] updated in place from grad[n]; all f32.
     * Source: torch/optim/adamw.py, _single_tensor_adamw (2.x). */
    void (*adamw)(struct device *dev, float *param, float *exp_avg, float *exp_avg_sq,
                  const float *grad, int64_t n, const struct adamw *a);
    /* *sum (host) <- sum of grad[i]^2 in f64, fixed order. */
    void (*sum_squares)(struct device *dev, double *sum, const float *grad, int64_t n);

    /* -- model: embedding, norms, projections, attention, head and loss ---------------------- */
};

/* The head of every device; a backend puts its own fields behind it. */
struct device {
    const struct ops *ops;
    struct ckpt_err   err;          /* err.code != 0: broken, with the name of the op */
    int               threads;      /* CPU: threads of this rank */
};

/* Open the CPU device with so many threads (0: by CPUs). */
int device_open_cpu(struct device **out, int threads, struct ckpt_err *err);
void device_close(struct device *dev);
/* Wait for everything; 0 or the sticky failure. */
int device_sync(struct device *dev, struct ckpt_err *err);

#endif

/*
 * flat - how a model's parameters lie in one rank's flat arrays.
 *
 * A rank's arrays (master weights, gradients, moments) hold, in the order of the parameter list,
 * the part of every parameter that the rank owns: all of it (stage 0), or, at the other stages,
 * DeepSpeed's stage-3 part, ceil(numel / world_size) elements with padding at the last ranks'
 * ends.  The parameters of a layer are neighbours in the list, so a layer's part is one run of the
 * arrays: what is gathered and reduced at once.  Arrays of gradients and moments hold the parts of
 * trained parameters only, in the same order.  Padding elements are kept zero.  The arithmetic of
 * a part is DeepSpeed's (formats/deepspeed/layout), so that files and memory agree.
 */
#ifndef CKPT_TRAINER_SHARD_FLAT_H
#define CKPT_TRAINER_SHARD_FLAT_H

#include "trainer/model/params.h"

struct device;

struct flat {
    const struct params *params;        /* borrowed */
    int                  stage;         /* 0: all of it; else parts */
    int                  rank, world_size;
    size_t              *first;         /* [n_layers + 1] first parameter of each layer */
    int64_t             *base;          /* [n + 1] where parameter i's part begins, elements */
    int64_t              numel;         /* of the rank's weights */
    int64_t             *grad_base;     /* [n + 1] likewise in gradients and moments */
    int64_t              grad_numel;    /* of those */
};

/* A run of a parameter's elements that a rank owns. */
struct flat_piece {
    int64_t start;                      /* first element of the parameter */
    int64_t count;                      /* 0 when all of the part is padding */
    int64_t at;                         /* in the rank's arrays */
};

int flat_init(struct flat *f, const struct params *params, int stage, int rank, int world_size,
              struct ckpt_err *err);
void flat_release(struct flat *f);
/* Elements of parameter i's part, padding included. */
int64_t flat_part(const struct flat *f, size_t i);
/* What a rank (this one or another) owns of parameter i; `at` is in its weights. */
struct flat_piece flat_piece(const struct flat *f, size_t i, int rank);
/* The same with `at` in gradients and moments; count 0 for a frozen parameter. */
struct flat_piece flat_grad_piece(const struct flat *f, size_t i, int rank);
/* First and one past the last parameter of a layer. */
void flat_layer(const struct flat *f, int layer, size_t *first, size_t *end);
/* Where a layer's part begins in the rank's arrays, and its elements. */
int64_t flat_layer_base(const struct flat *f, int layer);
int64_t flat_layer_part(const struct flat *f, int layer);
/* The same of gradients and moments. */
int64_t flat_grad_base(const struct flat *f, int layer);
int64_t flat_grad_part(const struct flat *f, int layer);

/*
 * Between gathered parts and whole parameters.  Assembling makes weights of
 * `size` bytes each: parts is [world_size][layer part], whole [layer_numel] in the layer's layout.
 * Scattering splits gradients: whole is [layer_grad], parts [world_size][gradient part];
 * padding becomes zeros.
 */
void flat_assemble(const struct flat *f, int layer, void *whole, const void *parts, size_t size);
void flat_scatter(const struct flat *f, int layer, float *parts, float *whole);
/* The way back of gradients. */
void flat_assemble_grads(const struct flat *f, int layer, float *whole, const float *parts);

/* Zeros to a layer's gradients [layer_grad], at `grad` on the device: to parameters that a pass
 * writes, or to those that it adds to (param.written), and to padding. */
void flat_clear(const struct flat *f, struct device *dev, float *grad, int layer, bool written);

#endif

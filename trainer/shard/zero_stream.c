/*
 * zero_stream - weights and gradients that lie on the host: a layer's weights are in a slot of
 * the device while a pass uses them, the next layer's are fetched meanwhile; a layer's
 * gradients are added up in a slot and leave when the pass has finished them.
 *
 * Slots are those of gathering (zero.c): the first and the last layer have their own, blocks
 * share three: one is in work, one comes, one leaves.  Events of a slot: it has been
 * fetched, what used it is done, it has been written back.  A pass goes through the layers in
 * one direction, so that the next one is known; on the way back its gradients are fetched ahead
 * as well, where earlier passes of the step made some.  The norm of the gradient is made layer
 * by layer, before each leaves: the sum of the last pass over a layer counts.
 */
#include "trainer/shard/zero_own.h"

#include <string.h>


/* What lies on the host of a layer goes into the slot, once nothing uses that any more. */
static void fetch(struct zero *z, struct slots *of, struct slot *s, int layer, const void *from,
                  size_t bytes)
{
    const struct ops *ops = z->dev->ops;

    ops->stream_wait_event(z->dev, OP_STREAM_IN, zero_mark(z, of, s, ZERO_USED));
    ops->stream_wait_event(z->dev, OP_STREAM_IN, zero_mark(z, of, s, ZERO_LEFT));
    ops->stream_copy(z->dev, OP_STREAM_IN, s->whole, from, bytes);
    ops->event_record(z->dev, OP_STREAM_IN, zero_mark(z, of, s, ZERO_FILLED));
    s->layer = layer;
}

static void fetch_weights(struct zero *z, struct slot *s, int layer)
{
    size_t wide = ckpt_dtype_size(z->type);

    fetch(z, &z->weight, s, layer,
          (unsigned char *)z->rounded + (size_t)flat_layer_base(&z->flat, layer) * wide,
          (size_t)flat_layer_part(&z->flat, layer) * wide);
}

/* What earlier passes of the step made. */
static void fetch_grads(struct zero *z, struct slot *s, int layer)
{
    zero_follow(z, OP_STREAM_IN, OP_STREAM_OUT);
    fetch(z, &z->grad, s, layer, z->grads + flat_grad_base(&z->flat, layer),
          (size_t)z->flat.params->layer_grad[layer] * sizeof(float));
}

/* A free slot of gradients for the next layer, where this one has its own or finds another. */
static struct slot *spare_grad(struct zero *z, int layer, int next)
{
    struct slot *found = NULL;
    int n = 0;

    for (int i = SLOT_BLOCKS; i < z->grad.n; i++) {
        if (z->grad.slot[i].layer == next)
            return NULL;
        if (z->grad.slot[i].users == 0 && z->grad.slot[i].layer < 0) {
            found = &z->grad.slot[i];
            n++;
        }
        n += z->grad.slot[i].layer == layer;
    }
    return n >= 2 ? found : NULL;
}

/* On the way back gradients are fetched ahead too, once there are some. */
static void fetch_ahead(struct zero *z, int layer, int next)
{
    struct slot *weight = zero_slot(z, &z->weight, next), *grad;

    if (weight && weight->layer != next)
        fetch_weights(z, weight, next);
    if (!z->back || next > layer || z->fresh[next])
        return;
    grad = spare_grad(z, layer, next);
    if (grad)
        fetch_grads(z, grad, next);
}

const void *zero_stream_acquire(struct zero *z, int layer)
{
    struct slot *s = zero_slot_now(z, &z->weight, layer);
    int next = zero_next(z, layer);

    if (s->layer != layer)
        fetch_weights(z, s, layer);
    s->users++;
    z->dev->ops->stream_wait_event(z->dev, OP_STREAM_MAIN,
                                   zero_mark(z, &z->weight, s, ZERO_FILLED));
    if (next >= 0)
        fetch_ahead(z, layer, next);
    if (layer != 0 || z->before <= 1)
        z->before = layer;
    return s->whole;
}

void zero_stream_release(struct zero *z, struct slot *s)
{
    s->users--;
    z->dev->ops->event_record(z->dev, OP_STREAM_MAIN, zero_mark(z, &z->weight, s, ZERO_USED));
}

void *zero_stream_grad(struct zero *z, int layer)
{
    struct slot *s = zero_slot_now(z, &z->grad, layer);

    z->back = true;
    if (z->fresh[layer] && s->layer != layer) {
        z->dev->ops->stream_wait_event(z->dev, OP_STREAM_MAIN,
                                       zero_mark(z, &z->grad, s, ZERO_LEFT));
        flat_clear(&z->flat, z->dev, s->whole, layer, false);
    } else if (s->layer != layer) {
        fetch_grads(z, s, layer);
    }
    if (!z->fresh[layer])                /* it may have been fetched ahead */
        z->dev->ops->stream_wait_event(z->dev, OP_STREAM_MAIN,
                                       zero_mark(z, &z->grad, s, ZERO_FILLED));
    s->layer = layer;
    s->users = 1;
    return s->whole;
}

void zero_stream_grad_done(struct zero *z, int layer)
{
    const struct ops *ops = z->dev->ops;
    struct slot *s = zero_slot(z, &z->grad, layer);
    int64_t n = z->flat.params->layer_grad[layer];

    z->fresh[layer] = false;
    z->back = z->back && layer != 0;     /* with layer 0 a pass ends */
    if (!s || s->layer != layer)
        return;
    if (n > 0)
        ops->sum_squares(z->dev, &z->squares[1 + layer], s->whole, n);
    ops->event_record(z->dev, OP_STREAM_MAIN, zero_mark(z, &z->grad, s, ZERO_USED));
    ops->stream_wait_event(z->dev, OP_STREAM_OUT, zero_mark(z, &z->grad, s, ZERO_USED));
    ops->stream_copy(z->dev, OP_STREAM_OUT, z->grads + flat_grad_base(&z->flat, layer), s->whole,
                   (size_t)n * sizeof(float));
    ops->event_record(z->dev, OP_STREAM_OUT, zero_mark(z, &z->grad, s, ZERO_LEFT));
    s->layer = -1;
    s->users = 0;
}

void zero_stream_ready(struct zero *z)
{
    for (int k = 0; k < 2; k++) {
        const struct slots *of = k ? &z->grad : &z->weight;

        for (int i = 0; i < of->n; i++)
            z->dev->ops->event_record(z->dev, OP_STREAM_MAIN,
                                      zero_mark(z, of, &of->slot[i], ZERO_USED));
    }
}

void zero_stream_begin(struct zero *z)
{
    int n = z->flat.params->n_layers;

    z->before = 0;
    z->back = false;
    for (int u = 0; u < n; u++)
        z->fresh[u] = true;
    z->dev->ops->zero(z->dev, z->squares, (size_t)(1 + n) * sizeof *z->squares);
}

void zero_stream_reduce(struct zero *z)
{
    for (int u = 0; u < z->flat.params->n_layers; u++)
        if (z->fresh[u]) {              /* there was no pass */
            zero_settle(z);
            memset(z->grads + flat_grad_base(&z->flat, u), 0,
                   (size_t)flat_grad_part(&z->flat, u) * sizeof *z->grads);
            z->fresh[u] = false;
        }
}

void zero_stream_judge(struct zero *z, double max_norm, double scale)
{
    double part[64], sum = 0;
    int some;

    for (int u = 0; u < z->flat.params->n_layers; u += some) {
        some = z->flat.params->n_layers - u < 64 ? z->flat.params->n_layers - u : 64;
        z->dev->ops->to_host(z->dev, part, &z->squares[1 + u], (size_t)some * sizeof *part);
        for (int i = 0; i < some; i++)
            sum += part[i];
    }
    z->dev->ops->to_device(z->dev, z->squares, &sum, sizeof sum);
    z->dev->ops->judge(z->dev, z->verdict, z->squares, max_norm, scale);
}

void zero_stream_stepped(struct zero *z)
{
    zero_forget(z);
    zero_follow(z, OP_STREAM_IN, OP_STREAM_OUT);   /* the next fetches read what the step writes */
}

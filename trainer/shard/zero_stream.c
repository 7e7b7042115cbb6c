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

#include "trainer/ops/verdict.h"

enum { FETCHED, USED, WRITTEN, PER_SLOT };

static int mark_of(const struct zero *z, const struct slot *s, int what)
{
    bool grad = s >= z->grad && s < z->grad + N_SLOTS;
    int i = (int)(grad ? N_SLOTS + (s - z->grad) : s - z->weight);

    return ZERO_EVENT_SLOTS + i * PER_SLOT + what;
}

/* What lies on the host of a layer goes into the slot, once nothing uses that any more. */
static void fetch(struct zero *z, struct slot *s, int layer, const void *from, size_t bytes)
{
    const struct ops *ops = z->dev->ops;

    ops->stream_wait_event(z->dev, OP_STREAM_IN, mark_of(z, s, USED));
    ops->stream_wait_event(z->dev, OP_STREAM_IN, mark_of(z, s, WRITTEN));
    ops->stream_copy(z->dev, OP_STREAM_IN, s->whole, from, bytes);
    ops->event_record(z->dev, OP_STREAM_IN, mark_of(z, s, FETCHED));
    s->layer = layer;
}

static void fetch_weights(struct zero *z, struct slot *s, int layer)
{
    size_t wide = ckpt_dtype_size(z->type);

    fetch(z, s, layer,
          (unsigned char *)z->rounded + (size_t)flat_layer_base(&z->flat, layer) * wide,
          (size_t)flat_layer_part(&z->flat, layer) * wide);
}

/* The layer that follows in this pass; -1: not known. */
static int next_of(const struct zero *z, int layer)
{
    int last = z->flat.params->n_layers - 1;

    if (layer == 0)                      /* a pass begins; or its head, which is tied, ends it */
        return z->before <= 1 ? 1 : -1;
    if (layer == z->before)
        return -1;
    return layer > z->before ? (layer < last ? layer + 1 : -1) : (layer > 1 ? layer - 1 : -1);
}

/* What earlier passes of the step made. */
static void fetch_grads(struct zero *z, struct slot *s, int layer)
{
    z->dev->ops->event_record(z->dev, OP_STREAM_OUT, ZERO_EVENT_MAIN);
    z->dev->ops->stream_wait_event(z->dev, OP_STREAM_IN, ZERO_EVENT_MAIN);
    fetch(z, s, layer, z->grads + flat_grad_base(&z->flat, layer),
          (size_t)z->flat.params->layer_grad[layer] * sizeof(float));
}

/* A free slot of gradients for the next layer, where this one has its own or finds another. */
static struct slot *spare_grad(struct zero *z, int layer, int next)
{
    struct slot *found = NULL;
    int n = 0;

    for (int i = SLOT_BLOCKS; i < N_SLOTS; i++) {
        if (z->grad[i].layer == next)
            return NULL;
        if (z->grad[i].users == 0 && z->grad[i].layer < 0) {
            found = &z->grad[i];
            n++;
        }
        n += z->grad[i].layer == layer;
    }
    return n >= 2 ? found : NULL;
}

/* On the way back gradients are fetched ahead too, once there are some. */
static void fetch_ahead(struct zero *z, int layer, int next)
{
    struct slot *weight = zero_slot(z, z->weight, next), *grad;

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
    struct slot *s = zero_slot(z, z->weight, layer);
    int next = next_of(z, layer);

    if (!s) {
        ckpt_fail(&z->dev->err, CKPT_ESTATE, "layer %d: more layers in use than planned", layer);
        return z->weight[SLOT_BLOCKS].whole;
    }
    if (s->layer != layer)
        fetch_weights(z, s, layer);
    s->users++;
    z->dev->ops->stream_wait_event(z->dev, OP_STREAM_MAIN, mark_of(z, s, FETCHED));
    if (next >= 0)
        fetch_ahead(z, layer, next);
    if (layer != 0 || z->before <= 1)
        z->before = layer;
    return s->whole;
}

void zero_stream_release(struct zero *z, struct slot *s)
{
    s->users--;
    z->dev->ops->event_record(z->dev, OP_STREAM_MAIN, mark_of(z, s, USED));
}

void *zero_stream_grad(struct zero *z, int layer)
{
    struct slot *s = zero_slot(z, z->grad, layer);

    z->back = true;
    if (!s) {
        ckpt_fail(&z->dev->err, CKPT_ESTATE, "layer %d: more gradients in use than planned", layer);
        return z->grad[SLOT_BLOCKS].whole;
    }
    if (z->fresh[layer] && s->layer != layer) {
        z->dev->ops->stream_wait_event(z->dev, OP_STREAM_MAIN, mark_of(z, s, WRITTEN));
        flat_clear(&z->flat, z->dev, s->whole, layer, false);
    } else if (s->layer != layer) {
        fetch_grads(z, s, layer);
    }
    if (!z->fresh[layer])                /* it may have been fetched ahead */
        z->dev->ops->stream_wait_event(z->dev, OP_STREAM_MAIN, mark_of(z, s, FETCHED));
    s->layer = layer;
    s->users = 1;
    return s->whole;
}

void zero_stream_grad_done(struct zero *z, int layer)
{
    const struct ops *ops = z->dev->ops;
    struct slot *s = zero_slot(z, z->grad, layer);
    int64_t n = z->flat.params->layer_grad[layer];

    z->fresh[layer] = false;
    z->back = z->back && layer != 0;     /* with layer 0 a pass ends */
    if (!s || s->layer != layer)
        return;
    if (n > 0)
        ops->grad_norm(z->dev, &z->verdict[1 + layer], s->whole, n, 0, 1);
    ops->event_record(z->dev, OP_STREAM_MAIN, mark_of(z, s, USED));
    ops->stream_wait_event(z->dev, OP_STREAM_OUT, mark_of(z, s, USED));
    ops->stream_copy(z->dev, OP_STREAM_OUT, z->grads + flat_grad_base(&z->flat, layer), s->whole,
                   (size_t)n * sizeof(float));
    ops->event_record(z->dev, OP_STREAM_OUT, mark_of(z, s, WRITTEN));
    s->layer = -1;
    s->users = 0;
}

void zero_stream_ready(struct zero *z)
{
    for (int i = 0; i < N_SLOTS; i++) {
        z->dev->ops->event_record(z->dev, OP_STREAM_MAIN, mark_of(z, &z->weight[i], USED));
        z->dev->ops->event_record(z->dev, OP_STREAM_MAIN, mark_of(z, &z->grad[i], USED));
    }
}

void zero_stream_begin(struct zero *z)
{
    int n = z->flat.params->n_layers;

    z->before = 0;
    z->back = false;
    for (int u = 0; u < n; u++)
        z->fresh[u] = true;
    z->dev->ops->zero(z->dev, z->verdict, (size_t)(1 + n) * sizeof *z->verdict);
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
    struct op_verdict v[64];
    double sum = 0;
    int some;

    for (int u = 0; u < z->flat.params->n_layers; u += some) {
        some = z->flat.params->n_layers - u < 64 ? z->flat.params->n_layers - u : 64;
        z->dev->ops->to_host(z->dev, v, &z->verdict[1 + u], (size_t)some * sizeof *v);
        for (int i = 0; i < some; i++)
            sum += v[i].norm * v[i].norm;
    }
    v[0] = verdict_of(sum, max_norm, scale);
    z->dev->ops->to_device(z->dev, z->verdict, v, sizeof *v);
}

void zero_stream_stepped(struct zero *z)
{
    /* The next fetches read what the step writes. */
    z->dev->ops->event_record(z->dev, OP_STREAM_OUT, ZERO_EVENT_MAIN);
    z->dev->ops->stream_wait_event(z->dev, OP_STREAM_IN, ZERO_EVENT_MAIN);
}

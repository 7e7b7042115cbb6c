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
 *
 * Of several ranks each has its own parts on the host.  Layers are gathered and reduced as
 * zero_ranks does, on GPUs with the host at either end: a rank's part of the weights is fetched to
 * its places in the slot, from where it is gathered; the sums of its gradients are made in a place
 * of their own, to which those of earlier passes are fetched, and leave while the next layer is
 * in work.  Their squares are made one layer later, so that no operation waits for a reduction.
 * On CPUs what lies on the host is where collectives read and write anyway: nothing is fetched.
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

/* No pass has made gradients of the layer. */
static void clear_grads(struct zero *z, int layer)
{
    zero_settle(z);
    memset(z->grads + flat_grad_base(&z->flat, layer), 0,
           (size_t)flat_grad_part(&z->flat, layer) * sizeof *z->grads);
}

void zero_stream_reduce(struct zero *z)
{
    for (int u = 0; u < z->flat.params->n_layers; u++)
        if (z->fresh[u]) {
            clear_grads(z, u);
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
    if (z->sharded)
        zero_ranks_add(z, z->squares);
    z->dev->ops->judge(z->dev, z->verdict, z->squares, max_norm, scale);
}

void zero_stream_stepped(struct zero *z)
{
    zero_forget(z);
    zero_follow(z, OP_STREAM_IN, OP_STREAM_OUT);   /* the next fetches read what the step writes */
}

/* -- of several ranks on GPUs ------------------------------------------------------------------ */

void zero_stream_bring(struct zero *z, const struct slot *s, int layer)
{
    const struct ops *ops = z->dev->ops;
    const struct flat *f = &z->flat;
    size_t wide = ckpt_dtype_size(z->type), i, end;

    ops->stream_wait_event(z->dev, OP_STREAM_IN, zero_mark(z, &z->weight, s, ZERO_USED));
    /* What was gathered before may have been forgotten unused. */
    ops->stream_wait_event(z->dev, OP_STREAM_IN, zero_mark(z, &z->weight, s, ZERO_FILLED));
    flat_layer(f, layer, &i, &end);
    for (; i < end; i++) {
        int64_t part = flat_part(f, i), at = f->params->item[i].offset + f->rank * part;

        ops->stream_copy(z->dev, OP_STREAM_IN, (unsigned char *)s->whole + (size_t)at * wide,
                         (unsigned char *)z->rounded + (size_t)f->base[i] * wide,
                         (size_t)part * wide);
    }
    zero_follow(z, OP_STREAM_COMM, OP_STREAM_IN);
}

static int own_mark(int place, int what) { return ZERO_EVENT_OWN + place * ZERO_OWN_MARKS + what; }

/* The squares of the sums that were made last. */
static void square(struct zero *z)
{
    const struct ops *ops = z->dev->ops;
    struct own_grads *own = &z->own;

    if (own->unsquared < 0)
        return;
    ops->stream_wait_event(z->dev, OP_STREAM_MAIN, own_mark(own->turn, ZERO_OWN_SUMMED));
    ops->sum_squares(z->dev, &z->squares[1 + own->unsquared], own->at[own->turn],
                     flat_grad_part(&z->flat, own->unsquared));
    ops->event_record(z->dev, OP_STREAM_MAIN, own_mark(own->turn, ZERO_OWN_SQUARED));
    own->unsquared = -1;
}

float *zero_stream_sums(struct zero *z, int layer)
{
    const struct ops *ops = z->dev->ops;
    struct own_grads *own = &z->own;
    bool edge = layer == 0 || layer == z->flat.params->n_layers - 1, more = z->reached[layer];
    enum op_stream first = more ? OP_STREAM_IN : OP_STREAM_COMM;

    square(z);
    own->turn = edge ? 0 : !own->turn;
    ops->stream_wait_event(z->dev, first, own_mark(own->turn, ZERO_OWN_SQUARED));
    ops->stream_wait_event(z->dev, first, own_mark(own->turn, ZERO_OWN_LEFT));
    if (more) {
        zero_follow(z, OP_STREAM_IN, OP_STREAM_OUT);
        ops->stream_copy(z->dev, OP_STREAM_IN, own->at[own->turn],
                         z->grads + flat_grad_base(&z->flat, layer),
                         (size_t)flat_grad_part(&z->flat, layer) * sizeof(float));
        zero_follow(z, OP_STREAM_COMM, OP_STREAM_IN);
    }
    return own->at[own->turn];
}

void zero_stream_summed(struct zero *z, int layer)
{
    const struct ops *ops = z->dev->ops;
    struct own_grads *own = &z->own;

    ops->event_record(z->dev, OP_STREAM_COMM, own_mark(own->turn, ZERO_OWN_SUMMED));
    ops->stream_wait_event(z->dev, OP_STREAM_OUT, own_mark(own->turn, ZERO_OWN_SUMMED));
    ops->stream_copy(z->dev, OP_STREAM_OUT, z->grads + flat_grad_base(&z->flat, layer),
                     own->at[own->turn],
                     (size_t)flat_grad_part(&z->flat, layer) * sizeof(float));
    ops->event_record(z->dev, OP_STREAM_OUT, own_mark(own->turn, ZERO_OWN_LEFT));
    own->unsquared = layer;
}

void zero_stream_settle(struct zero *z)
{
    square(z);
    for (int u = 0; u < z->flat.params->n_layers; u++)
        if (!z->reached[u])
            clear_grads(z, u);
}

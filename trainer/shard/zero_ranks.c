/*
 * zero_ranks - layers that belong to several ranks: gathered before a pass needs them, their
 * gradients reduced to the owners.
 *
 * Collectives run on OP_STREAM_COMM.  A layer is gathered while the one before it is in work; its
 * gradients are reduced while the pass goes on to the next.  Slots (zero.c) hold the layers of a
 * pass: a few that layers pass through, or one for each layer, which stays.  Of kept weights only
 * what is trained is gathered again, as soon as a step has changed it, beside the other layers'
 * steps and the first operations after it; kept gradients are added up over the passes of a step
 * and reduced by the last.  The sums over a part's replicas in other groups follow the last pass's
 * reduction of each layer, or all at once on the host.
 *
 * On GPUs each parameter is gathered to and reduced from its place in the layer, all of a layer in
 * one group.  On the host small collectives are slow: a layer's parts travel together and are
 * copied to their places and back (flat_assemble, flat_scatter).
 *
 * Where a rank's parts lie on the host (offload_param), zero_stream brings them to the GPU's
 * collectives and takes their sums back.
 */
#include "trainer/shard/zero_own.h"

enum { AHEAD = 2 };                     /* kept layers that are gathered before they are needed,
                                           where the step did not */

static bool grouped(const struct zero *z) { return comm_groups(comm_on_device(z->comm)); }

static bool trains(const struct zero *z, int layer)
{
    return z->flat.params->layer_grad[layer] > 0;
}

/* -- weights ---------------------------------------------------------------------------------- */

/* Each parameter to its place, or only those that are trained. */
static void gather_places(struct zero *z, const struct slot *s, int layer, bool trained)
{
    struct comm *comm = comm_on_device(z->comm);
    const struct flat *f = &z->flat;
    size_t wide = ckpt_dtype_size(z->type), i, end;
    const unsigned char *from = z->rounded ? z->rounded : (const void *)z->master;

    if (z->streamed)
        zero_stream_bring(z, s, layer);
    flat_layer(f, layer, &i, &end);
    comm_group_begin(comm);
    for (; i < end; i++) {
        const struct param *p = &f->params->item[i];
        unsigned char *to = (unsigned char *)s->whole + (size_t)p->offset * wide;
        int64_t part = flat_part(f, i);

        if (!trained || p->trainable)
            comm_all_gather(comm, to,
                            z->streamed ? to + (size_t)(f->rank * part) * wide
                                        : from + (size_t)f->base[i] * wide, part, z->type);
    }
    comm_group_end(comm);
}

static void gather_parts(struct zero *z, const struct slot *s, int layer)
{
    size_t wide = ckpt_dtype_size(z->type);
    const unsigned char *from = z->rounded ? z->rounded : (const void *)z->master;

    comm_all_gather(comm_on_device(z->comm), z->parts,
                    from + (size_t)flat_layer_base(&z->flat, layer) * wide,
                    flat_layer_part(&z->flat, layer), z->type);
    flat_assemble(&z->flat, layer, s->whole, z->parts, wide);
}

/* Fill a slot once nothing uses what was in it. */
static void gather(struct zero *z, struct slot *s, int layer)
{
    const struct ops *ops = z->dev->ops;

    if (!z->weight.keep)
        ops->stream_wait_event(z->dev, OP_STREAM_COMM, zero_mark(z, &z->weight, s, ZERO_USED));
    if (grouped(z))
        gather_places(z, s, layer, s->layer == layer);
    else
        gather_parts(z, s, layer);
    ops->event_record(z->dev, OP_STREAM_COMM, zero_mark(z, &z->weight, s, ZERO_FILLED));
    s->layer = layer;
    s->stale = false;
}

static bool lacks(const struct slot *s, int layer) { return s->layer != layer || s->stale; }

static void gather_ahead(struct zero *z, int layer)
{
    int next = zero_next(z, layer), n = z->flat.params->n_layers;
    struct slot *s;

    for (int u = layer + 1; z->weight.keep && u < n && u <= layer + AHEAD; u++)
        if (lacks(&z->weight.slot[u], u))
            gather(z, &z->weight.slot[u], u);
    if (z->weight.keep || next < 0 || !z->dev->discrete)
        return;
    s = zero_slot(z, &z->weight, next);
    if (s && lacks(s, next))
        gather(z, s, next);
}

const void *zero_ranks_acquire(struct zero *z, int layer)
{
    struct slot *s = zero_slot_now(z, &z->weight, layer);

    if (lacks(s, layer))
        gather(z, s, layer);
    s->users++;
    z->dev->ops->stream_wait_event(z->dev, OP_STREAM_MAIN,
                                   zero_mark(z, &z->weight, s, ZERO_FILLED));
    gather_ahead(z, layer);
    if (layer != 0 || z->before <= 1)
        z->before = layer;
    return s->whole;
}

void zero_ranks_release(struct zero *z, struct slot *s)
{
    s->users--;
    if (!z->weight.keep)
        z->dev->ops->event_record(z->dev, OP_STREAM_MAIN,
                                  zero_mark(z, &z->weight, s, ZERO_USED));
}

void zero_ranks_stepped(void *ctx, int layer)
{
    struct zero *z = ctx;
    int from, end;

    if (!trains(z, layer))
        return;
    zero_slots_of(z, &z->weight, layer, &from, &end);
    for (int i = from; i < end; i++) {
        struct slot *s = &z->weight.slot[i];

        if (s->layer == layer)
            s->stale = true;
        if (s->layer == layer && !z->weight.keep)
            s->layer = -1;
    }
    zero_follow(z, OP_STREAM_COMM, OP_STREAM_MAIN);
    if (z->weight.keep && grouped(z))   /* while the other layers are stepped */
        gather(z, &z->weight.slot[layer], layer);
}

/* -- gradients -------------------------------------------------------------------------------- */

void *zero_ranks_grad(struct zero *z, int layer)
{
    struct slot *s = zero_slot_now(z, &z->grad, layer);

    if (s->layer == layer)
        return s->whole;
    z->dev->ops->stream_wait_event(z->dev, OP_STREAM_MAIN, zero_mark(z, &z->grad, s, ZERO_LEFT));
    flat_clear(&z->flat, z->dev, s->whole, layer, false);
    z->fresh[layer] = true;
    s->layer = layer;
    s->users = 1;
    return s->whole;
}

/* Each parameter's sums to `to` [layer part], from its place. */
static void reduce_places(struct zero *z, const void *whole, int layer, void *to,
                          enum ckpt_dtype type)
{
    struct comm *comm = comm_on_device(z->comm);
    const struct flat *f = &z->flat;
    size_t wide = ckpt_dtype_size(type), i, end;
    int64_t base = flat_grad_base(f, layer);

    flat_layer(f, layer, &i, &end);
    comm_group_begin(comm);
    for (; i < end; i++) {
        const struct param *p = &f->params->item[i];

        if (p->trainable)
            comm_reduce_scatter(comm, (unsigned char *)to + (size_t)(f->grad_base[i] - base) * wide,
                                (const unsigned char *)whole + (size_t)p->grad_offset * wide,
                                flat_part(f, i), type);
    }
    comm_group_end(comm);
}

/* The same in a narrower type. */
static void reduce_narrow(struct zero *z, const struct slot *s, int layer, float *to)
{
    const struct ops *ops = z->dev->ops;
    enum ckpt_dtype type = z->opts.reduce;

    ops->cast(z->dev, OP_STREAM_COMM, z->narrow, type, s->whole, CKPT_F32,
              z->flat.params->layer_grad[layer]);
    reduce_places(z, z->narrow, layer, z->narrow_own, type);
    ops->cast(z->dev, OP_STREAM_COMM, to, CKPT_F32, z->narrow_own, type,
              flat_grad_part(&z->flat, layer));
}

/* The ranks' sums of a layer to their owners; the slot is free after that. */
static void reduce(struct zero *z, struct slot *s, int layer)
{
    const struct ops *ops = z->dev->ops;
    int64_t part = flat_grad_part(&z->flat, layer);
    bool leaves = part > 0 && z->own.at[0];
    float *own = leaves ? zero_stream_sums(z, layer) : z->grads + flat_grad_base(&z->flat, layer);
    float *to = z->reached[layer] ? z->reduced : own;

    ops->event_record(z->dev, OP_STREAM_MAIN, zero_mark(z, &z->grad, s, ZERO_USED));
    ops->stream_wait_event(z->dev, OP_STREAM_COMM, zero_mark(z, &z->grad, s, ZERO_USED));
    if (part > 0 && z->narrow) {
        reduce_narrow(z, s, layer, to);
    } else if (part > 0 && grouped(z)) {
        reduce_places(z, s->whole, layer, to, CKPT_F32);
    } else if (part > 0) {              /* the same on every rank */
        flat_scatter(&z->flat, layer, z->parts, s->whole);
        comm_reduce_scatter(comm_on_device(z->comm), to, z->parts, part, CKPT_F32);
    }
    if (part > 0 && to != own)
        ops->add(z->dev, OP_STREAM_COMM, own, to, part);
    if (leaves)
        zero_stream_summed(z, layer);
    ops->event_record(z->dev, OP_STREAM_COMM, zero_mark(z, &z->grad, s, ZERO_LEFT));
    z->reached[layer] = true;
    s->layer = -1;
    s->users = 0;
}

void zero_ranks_grad_done(struct zero *z, int layer)
{
    struct slot *s = zero_slot(z, &z->grad, layer);

    if (s && s->layer == layer && (z->last || !z->grad.keep)) {
        reduce(z, s, layer);
        if (z->last && z->replicas && grouped(z))
            zero_ranks_sum(z, layer);
    }
}

void zero_ranks_reduce(struct zero *z)
{
    zero_follow(z, OP_STREAM_COMM, OP_STREAM_MAIN);
    for (int u = 0; u < z->flat.params->n_layers; u++) {
        struct slot *s = z->grad.keep ? &z->grad.slot[u] : NULL;

        if (s && s->layer == u)         /* the last pass was not named */
            reduce(z, s, u);
        if (!z->reached[u] && !z->own.at[0])    /* there was no pass */
            z->dev->ops->zero(z->dev, z->grads + flat_grad_base(&z->flat, u),
                              (size_t)flat_grad_part(&z->flat, u) * sizeof(float));
        if (z->replicas && grouped(z) && !z->replicated[u])
            zero_ranks_sum(z, u);
    }
    if (z->replicas && !grouped(z))     /* small collectives are slow on the host */
        comm_all_reduce(comm_on_device(z->replicas), z->grads, z->flat.grad_numel, CKPT_F32,
                        COMM_SUM);
    zero_follow(z, OP_STREAM_MAIN, OP_STREAM_COMM);
    if (z->own.at[0])
        zero_stream_settle(z);
}

void zero_ranks_sum(struct zero *z, int layer)
{
    const struct ops *ops = z->dev->ops;
    struct comm *replicas = comm_on_device(z->replicas);
    float *own = z->grads + flat_grad_base(&z->flat, layer);
    int64_t n = flat_grad_part(&z->flat, layer);

    zero_follow(z, OP_STREAM_COMM, OP_STREAM_MAIN);
    if (n > 0 && z->narrow) {
        ops->cast(z->dev, OP_STREAM_COMM, z->narrow_own, z->opts.reduce, own, CKPT_F32, n);
        comm_all_reduce(replicas, z->narrow_own, n, z->opts.reduce, COMM_SUM);
        ops->cast(z->dev, OP_STREAM_COMM, own, CKPT_F32, z->narrow_own, z->opts.reduce, n);
    } else {
        comm_all_reduce(replicas, own, n, CKPT_F32, COMM_SUM);
    }
    z->replicated[layer] = true;
}

void zero_ranks_add(struct zero *z, double *x)
{
    zero_follow(z, OP_STREAM_COMM, OP_STREAM_MAIN);
    comm_all_reduce(comm_on_device(z->comm), x, 1, CKPT_F64, COMM_SUM);
    zero_follow(z, OP_STREAM_MAIN, OP_STREAM_COMM);
}

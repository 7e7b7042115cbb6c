/* zero - see zero.h. */
#include "trainer/shard/zero.h"

#include "libckpt/mem.h"

#define STAGE   ((int64_t)1 << 18)      /* floats of a piece that is rounded as it comes */
#define N_SLOTS 3               /* slot 0 is unit 0's: a tied head keeps it while others pass */

/* Room for one gathered unit. */
struct slot {
    float *whole;               /* [capacity] */
    int    unit;                /* -1: nothing in it */
    int    users;
};

struct zero {
    struct flat          flat;
    struct zero_state    state;
    struct device       *dev;
    struct comm         *comm;
    struct model_weights door;
    bool                 sharded;       /* stage 3 and more than one rank */
    bool                 lean;          /* master has trained parameters only */
    enum ckpt_dtype      type;          /* of the weights that a pass sees */
    void                *rounded;       /* [flat.numel] of that type; NULL when it is f32 */
    struct slot          weight[N_SLOTS];
    struct slot          grad[N_SLOTS];
    float               *parts;         /* [world_size][largest unit part]: gather and spread */
    float               *reduced;       /* [largest unit part] */
    struct zero_state    host;          /* copies, where the device's memory is apart */
    float               *unit_host;     /* [largest unit], there too, or where master is lean */
    float               *near;          /* lean: [STAGE] on the device */
};

/* A slot that holds the unit, or a free one emptied for it; NULL when all are in use. */
static struct slot *slot_for(struct slot *slot, int unit)
{
    int from = unit == 0 ? 0 : 1, to = unit == 0 ? 1 : N_SLOTS;

    for (int i = from; i < to; i++)
        if (slot[i].unit == unit)
            return &slot[i];
    for (int i = from; i < to; i++)
        if (slot[i].users == 0) {
            slot[i].unit = -1;
            return &slot[i];
        }
    return NULL;
}

/* This rank's part of a unit, in the type of a pass. */
static const void *part_of(const struct zero *z, int unit)
{
    int64_t base = flat_unit_base(&z->flat, unit);

    return z->rounded ? (const unsigned char *)z->rounded + (size_t)base * ckpt_dtype_size(z->type)
                      : (const void *)(z->state.master + base);
}

static void gather(struct zero *z, int unit, float *whole, const void *part, enum ckpt_dtype type)
{
    comm_all_gather(z->comm, z->parts, part, flat_unit_part(&z->flat, unit), type);
    flat_assemble(&z->flat, unit, whole, z->parts, ckpt_dtype_size(type));
}

static const void *acquire(void *ctx, int unit)
{
    struct zero *z = ctx;
    struct slot *s;

    if (!z->sharded)
        return part_of(z, unit);
    s = slot_for(z->weight, unit);
    if (!s) {
        ckpt_fail(&z->dev->err, CKPT_ESTATE, "unit %d: more units in use than planned", unit);
        return z->weight[1].whole;
    }
    if (s->unit != unit) {
        gather(z, unit, s->whole, part_of(z, unit), z->type);
        s->unit = unit;
    }
    s->users++;
    return s->whole;
}

bool zero_lean(const struct zero *z) { return z->lean; }

struct flat_piece zero_piece(const struct zero *z, size_t i)
{
    return z->lean ? flat_grad_piece(&z->flat, i, z->flat.rank)
                   : flat_piece(&z->flat, i, z->flat.rank);
}

/* n elements of type `from` on the device to floats on the host, by way of near [STAGE]. */
static void widen(struct zero *z, float *to, const unsigned char *src, int64_t n)
{
    const struct ops *ops = z->dev->ops;
    size_t wide = ckpt_dtype_size(z->type);

    for (int64_t at = 0; at < n; at += STAGE) {
        int64_t some = n - at < STAGE ? n - at : STAGE;

        ops->cast(z->dev, z->near, CKPT_F32, src + (size_t)at * wide, z->type, some);
        ops->to_host(z->dev, to + at, z->near, (size_t)some * sizeof *to);
    }
}

/* A unit put together: trained parameters from the master, the others from what is rounded. */
static const float *lean_unit(struct zero *z, int unit)
{
    const struct params *p = z->flat.params;
    size_t wide = ckpt_dtype_size(z->type), first, end;

    flat_unit(&z->flat, unit, &first, &end);
    for (size_t i = first; i < end; i++) {
        float *to = z->unit_host + p->item[i].offset;

        if (p->item[i].trainable)
            z->dev->ops->to_host(z->dev, to, z->state.master + z->flat.grad_base[i],
                                 (size_t)p->item[i].numel * sizeof *to);
        else
            widen(z, to, (const unsigned char *)z->rounded + (size_t)z->flat.base[i] * wide,
                  p->item[i].numel);
    }
    return z->unit_host;
}

/* n floats of a unit where the host can read them. */
static const float *on_host(struct zero *z, const float *from, int64_t n)
{
    if (!z->dev->apart)
        return from;
    z->dev->ops->to_host(z->dev, z->unit_host, from, (size_t)n * sizeof *from);
    return z->unit_host;
}

const float *zero_master(struct zero *z, int unit)
{
    float *base = z->state.master + flat_unit_base(&z->flat, unit);
    struct slot *s;

    if (z->lean)
        return lean_unit(z, unit);
    if (!z->sharded)
        return on_host(z, base, z->flat.params->unit_numel[unit]);
    s = &z->weight[unit == 0 ? 0 : 1];
    s->unit = -1;                       /* not what a pass may find there */
    gather(z, unit, s->whole, base, CKPT_F32);
    return on_host(z, s->whole, z->flat.params->unit_numel[unit]);
}

static void release(void *ctx, int unit)
{
    struct zero *z = ctx;

    for (int i = 0; z->sharded && i < N_SLOTS; i++)
        if (z->weight[i].unit == unit && z->weight[i].users > 0) {
            z->weight[i].users--;
            return;
        }
}

static void *grad_of(void *ctx, int unit)
{
    struct zero *z = ctx;
    struct slot *s;

    if (!z->sharded)
        return z->state.grad + flat_grad_base(&z->flat, unit);
    s = slot_for(z->grad, unit);
    if (!s) {
        ckpt_fail(&z->dev->err, CKPT_ESTATE, "unit %d: more gradients in use than planned", unit);
        return z->grad[1].whole;
    }
    if (s->unit != unit) {
        z->dev->ops->zero(z->dev, s->whole,
                          (size_t)z->flat.params->unit_grad[unit] * sizeof(float));
        s->unit = unit;
        s->users = 1;
    }
    return s->whole;
}

static void grad_done(void *ctx, int unit)
{
    struct zero *z = ctx;
    struct slot *s = z->sharded ? slot_for(z->grad, unit) : NULL;
    int64_t part;
    float *own;

    if (!s || s->unit != unit)
        return;
    part = flat_grad_part(&z->flat, unit);
    own = z->state.grad + flat_grad_base(&z->flat, unit);
    if (part > 0) {                     /* the same on every rank */
        flat_spread(&z->flat, unit, z->parts, s->whole);
        comm_reduce_scatter(z->comm, z->reduced, z->parts, part, CKPT_F32);
    }
    for (int64_t i = 0; i < part; i++)
        own[i] += z->reduced[i];
    s->unit = -1;
    s->users = 0;
}

/* Elements of the largest unit from `from` on, by one of the flat arrays' sizes. */
static int64_t largest(const struct flat *f, int from,
                       int64_t (*size)(const struct flat *f, int unit))
{
    int64_t most = 0;

    for (int u = from; u < f->params->n_unit; u++) {
        int64_t n = size(f, u);

        most = n > most ? n : most;
    }
    return most;
}

static int64_t whole_weights(const struct flat *f, int unit) { return f->params->unit_numel[unit]; }

static int64_t whole_grads(const struct flat *f, int unit) { return f->params->unit_grad[unit]; }

/* What all slots of a kind hold. */
static int64_t slots(const struct flat *f, int64_t (*size)(const struct flat *f, int unit))
{
    return size(f, 0) + (N_SLOTS - 1) * largest(f, 1, size);
}

/* Elements of all buffers beyond the rank's own arrays. */
static int64_t gathered_numel(const struct flat *f, bool train)
{
    return slots(f, whole_weights) + (train ? slots(f, whole_grads) : 0) +
           largest(f, 0, flat_unit_part) * f->world_size +
           (train ? largest(f, 0, flat_grad_part) : 0);
}

/* Frozen weights need no true ones beside what passes see of them. */
static bool is_lean(const struct flat *f, bool train, enum ckpt_dtype type)
{
    return train && type != CKPT_F32 && f->grad_numel < f->numel &&
           !(f->stage == 3 && f->world_size > 1);
}

/* n floats on the device; *ok turns false when they are refused. */
static float *floats(struct zero *z, int64_t n, bool *ok)
{
    float *p = *ok ? z->dev->ops->alloc(z->dev, (size_t)n * sizeof(float)) : NULL;

    *ok = p != NULL;
    return p;
}

static bool allocate(struct zero *z, bool train)
{
    const struct flat *f = &z->flat;
    bool ok = true;

    if (train || z->type == CKPT_F32)
        z->state.master = floats(z, z->lean ? f->grad_numel : f->numel, &ok);
    if (z->lean)
        z->near = floats(z, STAGE, &ok);
    if (ok && z->type != CKPT_F32) {
        z->rounded = z->dev->ops->alloc(z->dev, (size_t)f->numel * ckpt_dtype_size(z->type));
        ok = z->rounded != NULL;
    }
    if (train) {
        z->state.grad = floats(z, f->grad_numel, &ok);
        z->state.exp_avg = floats(z, f->grad_numel, &ok);
        z->state.exp_avg_sq = floats(z, f->grad_numel, &ok);
    }
    for (int i = 0; i < N_SLOTS; i++) {
        z->weight[i].unit = z->grad[i].unit = -1;
        if (z->sharded)
            z->weight[i].whole = floats(z, i == 0 ? whole_weights(f, 0)
                                                  : largest(f, 1, whole_weights), &ok);
        if (z->sharded && train)
            z->grad[i].whole = floats(z, i == 0 ? whole_grads(f, 0)
                                                : largest(f, 1, whole_grads), &ok);
    }
    if (z->sharded) {
        z->parts = floats(z, largest(f, 0, flat_unit_part) * f->world_size, &ok);
        if (train)
            z->reduced = floats(z, largest(f, 0, flat_grad_part), &ok);
    }
    if (ok && (z->dev->apart || z->lean)) {
        z->unit_host = ckpt_alloc_buffer((size_t)largest(f, 0, whole_weights) * sizeof(float));
        ok = z->unit_host != NULL;
    }
    return ok;
}

int zero_new(struct zero **out, const struct params *params, int stage, bool train,
             struct device *dev, struct comm *comm, struct ckpt_err *err)
{
    struct zero *z = ckpt_alloc(1, sizeof *z);

    *out = NULL;
    if (!z)
        return ckpt_nomem(err, sizeof *z);
    z->dev = dev;
    z->comm = comm;
    z->type = dev->weight;
    z->sharded = stage == 3 && comm->world_size > 1;
    z->door = (struct model_weights){.ctx = z, .acquire = acquire, .release = release,
                                     .grad = grad_of, .grad_done = grad_done};
    if (flat_init(&z->flat, params, stage, comm->rank, comm->world_size, err))
        goto fail;
    z->lean = is_lean(&z->flat, train, z->type);
    if (!allocate(z, train)) {
        *err = dev->err;                /* says more, where the device refused */
        if (!err->code)
            ckpt_nomem(err, (size_t)zero_bytes(params, stage, train, comm->world_size, z->type));
        goto fail;
    }
    *out = z;
    return 0;
fail:
    zero_free(z);
    return err->code;
}

void zero_free(struct zero *z)
{
    if (!z)
        return;
    z->dev->ops->free(z->dev, z->state.master);
    z->dev->ops->free(z->dev, z->rounded);
    z->dev->ops->free(z->dev, z->state.grad);
    z->dev->ops->free(z->dev, z->state.exp_avg);
    z->dev->ops->free(z->dev, z->state.exp_avg_sq);
    for (int i = 0; i < N_SLOTS; i++) {
        z->dev->ops->free(z->dev, z->weight[i].whole);
        z->dev->ops->free(z->dev, z->grad[i].whole);
    }
    z->dev->ops->free(z->dev, z->near);
    z->dev->ops->free(z->dev, z->parts);
    z->dev->ops->free(z->dev, z->reduced);
    zero_host_done(z, false);
    ckpt_free(z->unit_host);
    flat_release(&z->flat);
    ckpt_free(z);
}

const struct flat *zero_flat(const struct zero *z) { return &z->flat; }
const struct zero_state *zero_state(const struct zero *z) { return &z->state; }
const struct model_weights *zero_weights(struct zero *z) { return &z->door; }

uint64_t zero_bytes(const struct params *params, int stage, bool train, int world_size,
                    enum ckpt_dtype weight)
{
    struct ckpt_err err = {0};
    uint64_t rounded = 0;
    struct flat f;
    int64_t n;

    if (flat_init(&f, params, stage, 0, world_size, &err))
        return 0;
    n = is_lean(&f, train, weight) ? f.grad_numel : train || weight == CKPT_F32 ? f.numel : 0;
    n += train ? 3 * f.grad_numel : 0;
    if (weight != CKPT_F32)
        rounded = (uint64_t)f.numel * ckpt_dtype_size(weight);
    if (stage == 3 && world_size > 1)
        n += gathered_numel(&f, train);
    flat_release(&f);
    return (uint64_t)n * sizeof(float) + rounded;
}

/* What was gathered is stale. */
static void forget(struct zero *z)
{
    for (int i = 0; i < N_SLOTS; i++) {
        z->weight[i].unit = z->grad[i].unit = -1;
        z->weight[i].users = z->grad[i].users = 0;
    }
}

void *zero_rounded(const struct zero *z, size_t i)
{
    return z->rounded ? (unsigned char *)z->rounded +
                            (size_t)z->flat.base[i] * ckpt_dtype_size(z->type)
                      : NULL;
}

void zero_stepped(struct zero *z) { forget(z); }

void zero_changed(struct zero *z)
{
    const struct flat *f = &z->flat;

    forget(z);
    if (!z->rounded || !z->state.master)
        return;
    if (!z->lean)
        z->dev->ops->cast(z->dev, z->rounded, z->type, z->state.master, CKPT_F32, f->numel);
    for (size_t i = 0; z->lean && i < f->params->n; i++)
        if (f->params->item[i].trainable)
            z->dev->ops->cast(z->dev, zero_rounded(z, i), z->type,
                              z->state.master + f->grad_base[i], CKPT_F32,
                              f->grad_base[i + 1] - f->grad_base[i]);
}

void zero_begin(struct zero *z)
{
    forget(z);
    z->dev->ops->zero(z->dev, z->state.grad, (size_t)z->flat.grad_numel * sizeof(float));
}

void zero_reduce(struct zero *z)
{
    if (z->flat.stage == 0)
        comm_all_reduce(z->comm, z->state.grad, z->flat.grad_numel, CKPT_F32, COMM_SUM);
}

const float *zero_gather_grad(struct zero *z, int unit)
{
    float *whole = z->grad[unit == 0 ? 0 : 1].whole, *own = z->state.grad;
    int64_t part = flat_grad_part(&z->flat, unit);

    own += flat_grad_base(&z->flat, unit);
    if (!z->sharded)
        return on_host(z, own, z->flat.params->unit_grad[unit]);
    if (part > 0) {
        comm_all_gather(z->comm, z->parts, own, part, CKPT_F32);
        flat_assemble_grads(&z->flat, unit, whole, z->parts);
    }
    return on_host(z, whole, z->flat.params->unit_grad[unit]);
}

double zero_grad_sum_squares(struct zero *z)
{
    double sum = 0;

    z->dev->ops->sum_squares(z->dev, &sum, z->state.grad, z->flat.grad_numel);
    if (z->flat.stage == 3)
        comm_all_reduce(z->comm, &sum, 1, CKPT_F64, COMM_SUM);
    return sum;
}

/* The arrays of both sides, each with its elements. */
struct mirror {
    float  *device, **host;
    int64_t n;
};

enum { N_MIRRORS = 3 };

static void mirrors(struct zero *z, struct mirror m[N_MIRRORS])
{
    m[0] = (struct mirror){z->state.master, &z->host.master,
                           z->lean ? z->flat.grad_numel : z->flat.numel};
    m[1] = (struct mirror){z->state.exp_avg, &z->host.exp_avg, z->flat.grad_numel};
    m[2] = (struct mirror){z->state.exp_avg_sq, &z->host.exp_avg_sq, z->flat.grad_numel};
}

const struct zero_state *zero_host(struct zero *z, struct ckpt_err *err)
{
    struct mirror m[N_MIRRORS];

    if (!z->dev->apart)
        return &z->state;
    mirrors(z, m);
    for (int i = 0; i < N_MIRRORS; i++) {
        size_t bytes = (size_t)m[i].n * sizeof(float);

        if (!m[i].device)
            continue;
        *m[i].host = ckpt_alloc_buffer(bytes);
        if (!*m[i].host) {
            zero_host_done(z, false);
            ckpt_nomem(err, bytes);
            return NULL;
        }
        z->dev->ops->to_host(z->dev, *m[i].host, m[i].device, bytes);
    }
    return device_sync(z->dev, err) ? NULL : &z->host;
}

void zero_host_done(struct zero *z, bool changed)
{
    struct mirror m[N_MIRRORS];

    if (!z->dev->apart)
        return;
    mirrors(z, m);
    for (int i = 0; i < N_MIRRORS; i++) {
        if (changed && *m[i].host)
            z->dev->ops->to_device(z->dev, m[i].device, *m[i].host,
                                   (size_t)m[i].n * sizeof(float));
        ckpt_free(*m[i].host);
        *m[i].host = NULL;
    }
}

/* Where a piece is filled by way of a buffer of the host: into the master or the rounded copy. */
struct fill {
    zero_fill_fn *fn;
    void         *ctx;
    float        *stage;            /* [STAGE] */
    float        *near;             /* [STAGE] on the device, where it is apart */
};

/* The stage's n elements, rounded, to the copy at `to`. */
static void round_stage(struct zero *z, const struct fill *f, unsigned char *to, int64_t n)
{
    const struct ops *ops = z->dev->ops;

    if (z->dev->apart)
        ops->to_device(z->dev, f->near, f->stage, (size_t)n * sizeof *f->stage);
    ops->cast(z->dev, to, z->type, z->dev->apart ? f->near : f->stage, CKPT_F32, n);
}

/* Parameter i's piece: into the master where that has it, else rounded. */
static int fill_piece(struct zero *z, const struct fill *f, size_t i, struct ckpt_err *err)
{
    struct flat_piece all = flat_piece(&z->flat, i, z->flat.rank), own = zero_piece(z, i);
    bool master = z->state.master && own.count > 0;
    size_t width = master ? sizeof(float) : ckpt_dtype_size(z->type);
    unsigned char *to = master ? (unsigned char *)(z->state.master + own.at)
                               : (unsigned char *)z->rounded + (size_t)all.at * width;

    for (int64_t at = 0; at < all.count; at += STAGE, to += (size_t)STAGE * width) {
        int64_t n = all.count - at < STAGE ? all.count - at : STAGE;
        int rc = f->fn(f->ctx, i, all.start + at, n, f->stage, err);

        if (rc)
            return rc;
        if (master)
            z->dev->ops->to_device(z->dev, to, f->stage, (size_t)n * width);
        else
            round_stage(z, f, to, n);
    }
    return 0;
}

int zero_fill(struct zero *z, zero_fill_fn *fn, void *ctx, struct ckpt_err *err)
{
    bool straight = z->state.master && !z->dev->apart && !z->lean;
    bool near = z->dev->apart && (!z->state.master || z->lean);
    size_t bytes = STAGE * sizeof(float);
    struct fill f = {fn, ctx, straight ? NULL : ckpt_alloc_buffer(bytes), NULL};
    int rc = 0;

    if (near)
        f.near = z->dev->ops->alloc(z->dev, bytes);
    if (!straight && (!f.stage || (near && !f.near)))
        rc = ckpt_nomem(err, bytes);
    for (size_t i = 0; rc == 0 && i < z->flat.params->n; i++) {
        struct flat_piece p = flat_piece(&z->flat, i, z->flat.rank);

        if (p.count > 0)
            rc = straight ? fn(ctx, i, p.start, p.count, z->state.master + p.at, err)
                          : fill_piece(z, &f, i, err);
        rc = rc == ZERO_LEAVES ? 0 : rc;
    }
    z->dev->ops->free(z->dev, f.near);
    ckpt_free(f.stage);
    zero_changed(z);
    return rc ? rc : device_sync(z->dev, err);
}

/* zero - see zero.h. */
#include "trainer/shard/zero_own.h"

#include "libckpt/mem.h"

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

void zero_gather(struct zero *z, int unit, float *whole, const void *part, enum ckpt_dtype type)
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
        zero_gather(z, unit, s->whole, part_of(z, unit), z->type);
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

static bool fresh(void *ctx, int unit)
{
    const struct zero *z = ctx;

    return z->fresh[unit];
}

static void grad_done(void *ctx, int unit)
{
    struct zero *z = ctx;
    struct slot *s = z->sharded ? slot_for(z->grad, unit) : NULL;
    int64_t part;
    float *own;

    z->fresh[unit] = false;
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
    if (ok && z->dev->apart) {
        z->stage = z->dev->ops->pin(z->dev, 2 * ZERO_STAGE);
        ok = z->stage != NULL;
    }
    return ok;
}

int zero_new(struct zero **out, const struct params *params, const struct zero_opts *opts,
             struct device *dev, struct comm *comm, struct ckpt_err *err)
{
    struct zero *z = ckpt_alloc(1, sizeof *z);

    *out = NULL;
    if (!z)
        return ckpt_nomem(err, sizeof *z);
    z->dev = dev;
    z->comm = comm;
    z->type = dev->weight;
    z->sharded = opts->stage == 3 && comm->world_size > 1;
    z->door = (struct model_weights){.ctx = z, .acquire = acquire, .release = release,
                                     .grad = grad_of, .grad_done = grad_done, .fresh = fresh,
                                     .fixed = !z->sharded};
    if (flat_init(&z->flat, params, opts->stage, comm->rank, comm->world_size, err))
        goto fail;
    z->fresh = ckpt_alloc((size_t)params->n_unit, sizeof *z->fresh);
    if (!z->fresh) {
        ckpt_nomem(err, (size_t)params->n_unit);
        goto fail;
    }
    z->lean = is_lean(&z->flat, opts->train, z->type);
    if (!allocate(z, opts->train)) {
        *err = dev->err;                /* says more, where the device refused */
        if (!err->code)
            ckpt_nomem(err, (size_t)zero_bytes(params, opts, comm->world_size, z->type));
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
    z->dev->ops->free(z->dev, z->parts);
    z->dev->ops->free(z->dev, z->reduced);
    z->dev->ops->unpin(z->dev, z->stage);
    ckpt_free(z->unit_host);
    ckpt_free(z->fresh);
    flat_release(&z->flat);
    ckpt_free(z);
}

const struct flat *zero_flat(const struct zero *z) { return &z->flat; }
const struct zero_state *zero_state(const struct zero *z) { return &z->state; }
const struct model_weights *zero_weights(struct zero *z) { return &z->door; }

uint64_t zero_bytes(const struct params *params, const struct zero_opts *opts, int world_size,
                    enum ckpt_dtype weight)
{
    bool train = opts->train;
    struct ckpt_err err = {0};
    uint64_t rounded = 0;
    struct flat f;
    int64_t n;

    if (flat_init(&f, params, opts->stage, 0, world_size, &err))
        return 0;
    n = is_lean(&f, train, weight) ? f.grad_numel : train || weight == CKPT_F32 ? f.numel : 0;
    n += train ? 3 * f.grad_numel : 0;
    if (weight != CKPT_F32)
        rounded = (uint64_t)f.numel * ckpt_dtype_size(weight);
    if (opts->stage == 3 && world_size > 1)
        n += gathered_numel(&f, train);
    flat_release(&f);
    return (uint64_t)n * sizeof(float) + rounded;
}

void zero_forget(struct zero *z)
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

void zero_stepped(struct zero *z)
{
    z->dev->stepped++;
    zero_forget(z);
}

void zero_changed(struct zero *z)
{
    const struct flat *f = &z->flat;

    z->dev->loaded++;
    zero_forget(z);
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
    int n = z->flat.params->n_unit;

    zero_forget(z);
    if (z->sharded)
        z->dev->ops->zero(z->dev, z->state.grad, (size_t)z->flat.grad_numel * sizeof(float));
    for (int u = 0; !z->sharded && u < n; u++) {
        flat_clear(&z->flat, z->dev, z->state.grad, u, false);
        z->fresh[u] = true;
    }
}

void zero_reduce(struct zero *z)
{
    for (int u = 0; u < z->flat.params->n_unit; u++)
        if (z->fresh[u]) {              /* there was no pass */
            flat_clear(&z->flat, z->dev, z->state.grad, u, true);
            z->fresh[u] = false;
        }
    if (z->flat.stage == 0)
        comm_all_reduce(z->comm, z->state.grad, z->flat.grad_numel, CKPT_F32, COMM_SUM);
}

double zero_grad_sum_squares(struct zero *z)
{
    double sum = 0;

    z->dev->ops->sum_squares(z->dev, &sum, z->state.grad, z->flat.grad_numel);
    if (z->flat.stage == 3)
        comm_all_reduce(z->comm, &sum, 1, CKPT_F64, COMM_SUM);
    return sum;
}

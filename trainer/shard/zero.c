/* zero - see zero.h. */
#include "trainer/shard/zero_own.h"

#include "libckpt/mem.h"
#include "trainer/ops/verdict.h"

void zero_slots_of(const struct zero *z, int layer, int *from, int *end)
{
    bool edge = layer == 0 || layer == z->flat.params->n_layers - 1;

    *from = edge ? layer != 0 : SLOT_BLOCKS;
    *end = edge ? *from + 1 : z->streamed ? N_SLOTS : N_SLOTS - 1;
}

struct slot *zero_slot(const struct zero *z, struct slot *slot, int layer)
{
    int from, to;

    zero_slots_of(z, layer, &from, &to);
    for (int i = from; i < to; i++)
        if (slot[i].layer == layer)
            return &slot[i];
    for (int empty = 1; empty >= 0; empty--)        /* rather than one with something in it */
        for (int i = from; i < to; i++)
            if (slot[i].users == 0 && (slot[i].layer < 0 || !empty)) {
                slot[i].layer = -1;
                return &slot[i];
            }
    return NULL;
}

/* This rank's part of a layer, in the type of a pass. */
static const void *part_of(const struct zero *z, int layer)
{
    int64_t base = flat_layer_base(&z->flat, layer);

    return z->rounded ? (const unsigned char *)z->rounded + (size_t)base * ckpt_dtype_size(z->type)
                      : (const void *)(z->master + base);
}

void zero_gather(struct zero *z, int layer, float *whole, const void *part, enum ckpt_dtype type)
{
    comm_all_gather(comm_on_device(z->comm), z->parts, part, flat_layer_part(&z->flat, layer),
                    type);
    flat_assemble(&z->flat, layer, whole, z->parts, ckpt_dtype_size(type));
}

static const void *acquire(void *ctx, int layer)
{
    struct zero *z = ctx;
    struct slot *s;

    if (z->streamed)
        return zero_stream_acquire(z, layer);
    if (!z->sharded)
        return part_of(z, layer);
    s = zero_slot(z, z->weight, layer);
    if (!s) {
        ckpt_fail(&z->dev->err, CKPT_ESTATE, "layer %d: more layers in use than planned", layer);
        return z->weight[SLOT_BLOCKS].whole;
    }
    if (s->layer != layer) {
        zero_gather(z, layer, s->whole, part_of(z, layer), z->type);
        s->layer = layer;
    }
    s->users++;
    return s->whole;
}

static void release(void *ctx, int layer)
{
    struct zero *z = ctx;

    for (int i = 0; i < N_SLOTS; i++)
        if (z->weight[i].layer == layer && z->weight[i].users > 0) {
            if (z->streamed)
                zero_stream_release(z, &z->weight[i]);
            else
                z->weight[i].users--;
            return;
        }
}

static void *grad_of(void *ctx, int layer)
{
    struct zero *z = ctx;
    struct slot *s;

    if (z->streamed)
        return zero_stream_grad(z, layer);
    if (!z->sharded)
        return z->grads + flat_grad_base(&z->flat, layer);
    s = zero_slot(z, z->grad, layer);
    if (!s) {
        ckpt_fail(&z->dev->err, CKPT_ESTATE, "layer %d: more gradients in use than planned", layer);
        return z->grad[SLOT_BLOCKS].whole;
    }
    if (s->layer != layer) {
        z->dev->ops->zero(z->dev, s->whole,
                          (size_t)z->flat.params->layer_grad[layer] * sizeof(float));
        s->layer = layer;
        s->users = 1;
    }
    return s->whole;
}

static bool fresh(void *ctx, int layer)
{
    const struct zero *z = ctx;

    return z->fresh[layer];
}

static void grad_done(void *ctx, int layer)
{
    struct zero *z = ctx;
    struct slot *s = z->sharded ? zero_slot(z, z->grad, layer) : NULL;
    int64_t part;
    float *own;

    if (z->streamed) {
        zero_stream_grad_done(z, layer);
        return;
    }
    z->fresh[layer] = false;
    if (!s || s->layer != layer)
        return;
    part = flat_grad_part(&z->flat, layer);
    own = z->grads + flat_grad_base(&z->flat, layer);
    if (part > 0) {                     /* the same on every rank */
        flat_scatter(&z->flat, layer, z->parts, s->whole);
        comm_reduce_scatter(comm_on_device(z->comm), z->reduced, z->parts, part, CKPT_F32);
    }
    for (int64_t i = 0; i < part; i++)
        own[i] += z->reduced[i];
    s->layer = -1;
    s->users = 0;
}

/* Elements of the largest layer, by one of the flat arrays' sizes. */
static int64_t largest(const struct flat *f, int64_t (*size)(const struct flat *f, int layer))
{
    int64_t most = 0;

    for (int u = 0; u < f->params->n_layers; u++) {
        int64_t n = size(f, u);

        most = n > most ? n : most;
    }
    return most;
}

static int64_t whole_weights(const struct flat *f, int layer)
{
    return f->params->layer_numel[layer];
}

static int64_t whole_grads(const struct flat *f, int layer) { return f->params->layer_grad[layer]; }

/* What slot i must hold: an edge's layer, or any block. */
static int64_t slot_size(const struct flat *f, int i,
                         int64_t (*size)(const struct flat *f, int layer))
{
    int last = f->params->n_layers - 1;
    int64_t most = 0;

    if (i < SLOT_BLOCKS)
        return size(f, i == 0 ? 0 : last);
    for (int u = 1; u < last; u++)
        most = size(f, u) > most ? size(f, u) : most;
    return most;
}

/* What the first n slots of a kind hold. */
static int64_t slots(const struct flat *f, int n, int64_t (*size)(const struct flat *f, int layer))
{
    int64_t sum = 0;

    for (int i = 0; i < n; i++)
        sum += slot_size(f, i, size);
    return sum;
}

/* A slot's floats for n elements of so many bytes. */
static int64_t slot_floats(int64_t n, int64_t wide) { return (n * wide + 3) / 4; }

/* One for the step; of what streams one for each layer too. */
static size_t verdicts_of(const struct flat *f, const struct zero_opts *opts)
{
    return 1 + (opts->offload_param ? (size_t)f->params->n_layers : 0);
}

/* Elements of all buffers beyond the rank's own arrays. */
static int64_t gathered_numel(const struct flat *f, bool train)
{
    return slots(f, N_SLOTS - 1, whole_weights) +
           (train ? slots(f, N_SLOTS - 1, whole_grads) : 0) +
           largest(f, flat_layer_part) * f->world_size + (train ? largest(f, flat_grad_part) : 0);
}

/* Whether states have the true weights of what is trained: passes see rounded ones of one rank. */
static bool own_masters(const struct flat *f, bool train, enum ckpt_dtype type)
{
    return train && type != CKPT_F32 && !(f->stage == 3 && f->world_size > 1);
}

static struct optim_state_opts states_of(const struct zero_opts *opts, const struct flat *f,
                                    enum ckpt_dtype type)
{
    return (struct optim_state_opts){.moments = opts->moments,
                                .chunk = opts->chunk,
                                .master = own_masters(f, opts->train, type),
                                .grad_on_host = opts->offload_param,
                                .rounded_on_host = opts->offload_param ? ckpt_dtype_size(type) : 0,
                                .on_device = opts->offload || opts->offload_param ? 0
                                             : opts->paged ? opts->optim_on_device : UINT64_MAX};
}

/* Memory of the device, or pinned; NULL, with *rc and err, when it or one before was refused. */
static void *memory(struct zero *z, size_t bytes, bool pinned, int *rc, struct ckpt_err *err)
{
    void *p = *rc == 0 ? (pinned ? device_pin : device_alloc)(z->dev, bytes, err) : NULL;

    if (*rc == 0 && !p)
        *rc = ckpt_err_code(err);
    return p;
}

static float *floats(struct zero *z, int64_t n, int *rc, struct ckpt_err *err)
{
    return memory(z, (size_t)n * sizeof(float), false, rc, err);
}

/* Slots for layers that come and go.  Gathered weights may be the true ones, f32. */
static int allocate_slots(struct zero *z, bool train, struct ckpt_err *err)
{
    const struct flat *f = &z->flat;
    int64_t wide = z->sharded ? (int64_t)sizeof(float) : (int64_t)ckpt_dtype_size(z->type);
    int rc = 0;

    for (int i = 0; i < (z->streamed ? N_SLOTS : N_SLOTS - 1); i++) {
        z->weight[i].whole = floats(z, slot_floats(slot_size(f, i, whole_weights), wide), &rc,
                                    err);
        if (train)
            z->grad[i].whole = floats(z, slot_size(f, i, whole_grads), &rc, err);
    }
    return rc;
}

static int allocate(struct zero *z, const struct zero_opts *opts, struct ckpt_err *err)
{
    const struct flat *f = &z->flat;
    struct optim_state_opts states = states_of(opts, f, z->type);
    size_t rounded = (size_t)f->numel * ckpt_dtype_size(z->type);
    size_t verdicts = sizeof *z->verdict * verdicts_of(f, opts);
    bool train = opts->train;
    int rc = 0;

    for (int i = 0; i < N_SLOTS; i++)
        z->weight[i].layer = z->grad[i].layer = -1;
    if (!states.master && (train || z->type == CKPT_F32))
        z->master = floats(z, f->numel, &rc, err);
    if (z->type != CKPT_F32)
        z->rounded = memory(z, rounded, z->streamed, &rc, err);
    if (train) {
        z->grads = memory(z, (size_t)f->grad_numel * sizeof(float), z->streamed, &rc, err);
        z->verdict = memory(z, verdicts, false, &rc, err);
        rc = rc ? rc : optim_state_new(&z->optim, f, &states, z->dev, ZERO_EVENT_OPTIM, err);
    }
    if (rc == 0 && (z->sharded || z->streamed))
        rc = allocate_slots(z, train, err);
    if (rc == 0 && z->streamed)
        zero_stream_ready(z);
    if (z->sharded) {
        z->parts = floats(z, largest(f, flat_layer_part) * f->world_size, &rc, err);
        if (train)
            z->reduced = floats(z, largest(f, flat_grad_part), &rc, err);
    }
    if (z->dev->discrete)
        z->stage = memory(z, 2 * ZERO_STAGE, true, &rc, err);
    return rc;
}

/* Whether the ranks and the device's type allow what is asked for. */
static int check_opts(const struct zero_opts *opts, const struct device *dev,
                      const struct comm *comm, struct ckpt_err *err)
{
    if ((opts->paged || opts->offload || opts->offload_param) && comm->world_size > 1)
        return ckpt_fail(err, CKPT_EUNSUPPORTED, "states on the host: of one rank alone, there "
                         "are %d", comm->world_size);
    if (opts->stage == 3 && comm->world_size > 1 && dev->discrete)
        return ckpt_fail(err, CKPT_EUNSUPPORTED, "ZeRO stage 3 on GPUs: of one rank alone so far, "
                         "there are %d", comm->world_size);
    if (opts->offload_param && dev->weight == CKPT_F32)
        return ckpt_fail(err, CKPT_EUNSUPPORTED, "weights on the host: of 16 bits alone");
    return 0;
}

int zero_new(struct zero **out, const struct params *params, const struct zero_opts *opts,
             struct device *dev, struct comm *comm, struct ckpt_err *err)
{
    struct zero *z = ckpt_alloc(1, sizeof *z);
    int rc;

    *out = NULL;
    if (!z)
        return ckpt_nomem(err, sizeof *z);
    z->dev = dev;
    z->comm = comm;
    z->opts = *opts;
    z->type = dev->weight;
    z->sharded = opts->stage == 3 && comm->world_size > 1;
    z->streamed = opts->offload_param;
    z->door = (struct model_weights){.ctx = z, .acquire = acquire, .release = release,
                                     .grad = grad_of, .grad_done = grad_done, .fresh = fresh,
                                     .fixed = !z->sharded && !z->streamed};
    rc = check_opts(opts, dev, comm, err);
    if (rc == 0)
        rc = flat_init(&z->flat, params, opts->stage, comm->rank, comm->world_size, err);
    if (rc == 0 && !(z->fresh = ckpt_alloc((size_t)params->n_layers, sizeof *z->fresh)))
        rc = ckpt_nomem(err, (size_t)params->n_layers);
    if (rc == 0)
        rc = allocate(z, opts, err);
    if (rc)
        zero_free(z);
    else
        *out = z;
    return rc;
}

void zero_free(struct zero *z)
{
    if (!z)
        return;
    optim_state_free(z->optim);
    z->dev->ops->free(z->dev, z->master);
    if (z->streamed) {
        z->dev->ops->unpin(z->dev, z->rounded);
        z->dev->ops->unpin(z->dev, z->grads);
    } else {
        z->dev->ops->free(z->dev, z->rounded);
        z->dev->ops->free(z->dev, z->grads);
    }
    for (int i = 0; i < N_SLOTS; i++) {
        z->dev->ops->free(z->dev, z->weight[i].whole);
        z->dev->ops->free(z->dev, z->grad[i].whole);
    }
    z->dev->ops->free(z->dev, z->verdict);
    z->dev->ops->free(z->dev, z->parts);
    z->dev->ops->free(z->dev, z->reduced);
    z->dev->ops->unpin(z->dev, z->stage);
    ckpt_free(z->layer_host);
    ckpt_free(z->fresh);
    flat_release(&z->flat);
    ckpt_free(z);
}

const struct flat *zero_flat(const struct zero *z) { return &z->flat; }
enum op_moments zero_moments(const struct zero *z, size_t i)
{
    return optim_state_kind(z->flat.params, i, z->opts.moments);
}

float *zero_grads(const struct zero *z) { return z->grads; }
const struct model_weights *zero_weights(struct zero *z) { return &z->door; }

/* What lies on the host instead of the device, where only slots are. */
static void size_streamed(struct zero_size *size, const struct flat *f, bool train, int64_t wide)
{
    size->weights_host = size->weights;
    size->grads_host = size->grads;
    size->weights = 0;
    for (int i = 0; i < N_SLOTS; i++)
        size->weights += sizeof(float) *
                         (uint64_t)slot_floats(slot_size(f, i, whole_weights), wide);
    size->grads = train ? (uint64_t)slots(f, N_SLOTS, whole_grads) * sizeof(float) : 0;
}

int zero_size(struct zero_size *out, const struct params *params, const struct zero_opts *opts,
              int world_size, enum ckpt_dtype weight, struct ckpt_err *err)
{
    struct optim_state_size states = {0};
    struct optim_state_opts so;
    struct flat f;
    int rc = flat_init(&f, params, opts->stage, 0, world_size, err);

    *out = (struct zero_size){0};
    if (rc)
        return rc;
    so = states_of(opts, &f, weight);
    out->weights = (uint64_t)f.numel * ckpt_dtype_size(weight);
    if (opts->train) {
        rc = optim_state_size(&states, &f, &so, err);
        out->grads = (uint64_t)f.grad_numel * sizeof(float);
        out->optim = states.device;
        out->optim_host = states.host;
        out->ring = states.ring;
        if (!so.master && weight != CKPT_F32)
            out->optim += (uint64_t)f.numel * sizeof(float);
    }
    if (opts->offload_param)
        size_streamed(out, &f, opts->train, (int64_t)ckpt_dtype_size(weight));
    if (opts->train)
        out->grads += verdicts_of(&f, opts) * sizeof(struct op_verdict);
    if (opts->stage == 3 && world_size > 1)
        out->gathered = (uint64_t)gathered_numel(&f, opts->train) * sizeof(float);
    flat_release(&f);
    return rc;
}

void zero_forget(struct zero *z)
{
    for (int i = 0; i < N_SLOTS; i++) {
        z->weight[i].layer = z->grad[i].layer = -1;
        z->weight[i].users = z->grad[i].users = 0;
    }
}

void zero_step(struct zero *z, const struct adamw *a, double weight_decay)
{
    optim_state_step(z->optim, &(struct optim_state_step){
        .adamw = a, .weight_decay = weight_decay, .master = z->master, .grad = z->grads,
        .rounded = z->rounded});
    if (z->streamed)
        zero_stream_stepped(z);
    z->dev->stepped++;
    zero_forget(z);
}

void zero_begin(struct zero *z)
{
    int n = z->flat.params->n_layers;

    zero_forget(z);
    if (z->streamed) {
        zero_stream_begin(z);
        return;
    }
    if (z->sharded)
        z->dev->ops->zero(z->dev, z->grads, (size_t)z->flat.grad_numel * sizeof(float));
    for (int u = 0; !z->sharded && u < n; u++) {
        flat_clear(&z->flat, z->dev, z->grads + flat_grad_base(&z->flat, u), u, false);
        z->fresh[u] = true;
    }
}

void zero_reduce(struct zero *z)
{
    if (z->streamed) {
        zero_stream_reduce(z);
        return;
    }
    for (int u = 0; u < z->flat.params->n_layers; u++)
        if (z->fresh[u]) {              /* there was no pass */
            flat_clear(&z->flat, z->dev, z->grads + flat_grad_base(&z->flat, u), u, true);
            z->fresh[u] = false;
        }
    if (z->flat.stage == 0)
        comm_all_reduce(comm_on_device(z->comm), z->grads, z->flat.grad_numel, CKPT_F32,
                        COMM_SUM);
}

void zero_judge(struct zero *z, double max_norm, double scale)
{
    struct op_verdict v;
    double sum = 0;

    if (z->streamed) {
        zero_stream_judge(z, max_norm, scale);
        return;
    }
    if (!z->sharded) {                  /* every rank has the sums of all */
        z->dev->ops->grad_norm(z->dev, z->verdict, z->grads, z->flat.grad_numel, max_norm,
                               scale);
        return;
    }
    z->dev->ops->sum_squares(z->dev, &sum, z->grads, z->flat.grad_numel);
    comm_all_reduce(z->comm, &sum, 1, CKPT_F64, COMM_SUM);
    v = verdict_of(sum, max_norm, scale);
    z->dev->ops->to_device(z->dev, z->verdict, &v, sizeof v);
}

const struct op_verdict *zero_verdict(const struct zero *z) { return z->verdict; }

struct op_verdict zero_verdict_host(struct zero *z)
{
    struct op_verdict v = {0};

    z->dev->ops->to_host(z->dev, &v, z->verdict, sizeof v);
    return v;
}

/* zero - see zero.h. */
#include "trainer/shard/zero_own.h"

#include <string.h>

#include "libckpt/mem.h"

/* -- slots ------------------------------------------------------------------------------------ */

void zero_slots_of(const struct zero *z, const struct slots *of, int layer, int *from, int *end)
{
    bool edge = layer == 0 || layer == z->flat.params->n_layers - 1;

    *from = of->keep ? layer : edge ? layer != 0 : SLOT_BLOCKS;
    *end = of->keep || edge ? *from + 1 : of->n;
}

/* The free slot that has been free for longest: work on what was in the last one may go on. */
static struct slot *free_slot(struct slot *slot, int from, int to, bool empty)
{
    struct slot *found = NULL;

    for (int i = from; i < to; i++)
        if (slot[i].users == 0 && (slot[i].layer < 0 || !empty) &&
            (!found || slot[i].taken < found->taken))
            found = &slot[i];
    return found;
}

struct slot *zero_slot(const struct zero *z, struct slots *of, int layer)
{
    struct slot *slot = of->slot, *found;
    int from, to;

    zero_slots_of(z, of, layer, &from, &to);
    for (int i = from; i < to; i++)
        if (slot[i].layer == layer)
            return &slot[i];
    found = free_slot(slot, from, to, true);        /* rather than one with something in it */
    if (!found && !(found = free_slot(slot, from, to, false)))
        return NULL;
    found->layer = -1;
    found->taken = ++of->taken;
    return found;
}

struct slot *zero_slot_now(struct zero *z, struct slots *of, int layer)
{
    struct slot *s = zero_slot(z, of, layer);

    if (s)
        return s;
    ckpt_fail(&z->dev->err, CKPT_ESTATE, "layer %d: more layers in use than planned", layer);
    return &of->slot[of->n - 1];
}

int zero_mark(const struct zero *z, const struct slots *of, const struct slot *s, int what)
{
    int i = (int)(s - of->slot) % ZERO_IN_FLIGHT + (of == &z->grad ? ZERO_IN_FLIGHT : 0);

    return ZERO_EVENT_SLOTS + i * ZERO_MARKS + what;
}

int zero_next(const struct zero *z, int layer)
{
    int last = z->flat.params->n_layers - 1;

    if (layer == 0)                      /* a pass begins; or its head, which is tied, ends it */
        return z->before <= 1 ? 1 : -1;
    if (layer == z->before)
        return -1;
    return layer > z->before ? (layer < last ? layer + 1 : -1) : (layer > 1 ? layer - 1 : -1);
}

void zero_follow(struct zero *z, enum op_stream stream, enum op_stream other)
{
    z->dev->ops->event_record(z->dev, other, ZERO_EVENT_MAIN);
    z->dev->ops->stream_wait_event(z->dev, stream, ZERO_EVENT_MAIN);
}

/* -- the door --------------------------------------------------------------------------------- */

/* This rank's part of a layer, in the type of a pass. */
static const void *part_of(const struct zero *z, int layer)
{
    int64_t base = flat_layer_base(&z->flat, layer);

    return z->rounded ? (const unsigned char *)z->rounded + (size_t)base * ckpt_dtype_size(z->type)
                      : (const void *)(z->master + base);
}

static const void *acquire(void *ctx, int layer)
{
    struct zero *z = ctx;

    return z->sharded    ? zero_ranks_acquire(z, layer)
           : z->streamed ? zero_stream_acquire(z, layer)
                         : part_of(z, layer);
}

static void release(void *ctx, int layer)
{
    struct zero *z = ctx;

    for (int i = 0; i < z->weight.n; i++)
        if (z->weight.slot[i].layer == layer && z->weight.slot[i].users > 0) {
            (z->sharded ? zero_ranks_release : zero_stream_release)(z, &z->weight.slot[i]);
            return;
        }
}

static void *grad_of(void *ctx, int layer)
{
    struct zero *z = ctx;

    return z->sharded    ? zero_ranks_grad(z, layer)
           : z->streamed ? zero_stream_grad(z, layer)
                         : z->grads + flat_grad_base(&z->flat, layer);
}

static bool fresh(void *ctx, int layer)
{
    const struct zero *z = ctx;

    return z->fresh[layer];
}

static void grad_done(void *ctx, int layer)
{
    struct zero *z = ctx;

    if (z->streamed && !z->sharded) {
        zero_stream_grad_done(z, layer);
        return;
    }
    z->fresh[layer] = false;
    if (z->sharded)
        zero_ranks_grad_done(z, layer);
    else if (z->last && comm_groups(comm_on_device(z->replicas)))
        zero_ranks_sum(z, layer);
}

/* -- memory ----------------------------------------------------------------------------------- */

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

/* What a slot must hold: its own layer, an edge's, or any block. */
static int64_t slot_size(const struct flat *f, int i, bool keep,
                         int64_t (*size)(const struct flat *f, int layer))
{
    int last = f->params->n_layers - 1;
    int64_t most = 0;

    if (keep || i < SLOT_BLOCKS)
        return size(f, keep ? i : i == 0 ? 0 : last);
    for (int u = 1; u < last; u++)
        most = size(f, u) > most ? size(f, u) : most;
    return most;
}

/* Which layers come and go, and through how many slots. */
struct passing {
    int  slots;                         /* where not each layer has its own; 0: none are needed */
    bool keep_weights, keep_grads;
    bool parts;                         /* collectives move all parts of a layer at once */
    bool own;                           /* own gradients come from the host and go there */
};

static struct passing passing_of(const struct zero_opts *o, int world_size, bool discrete)
{
    bool sharded = o->stage > 0 && world_size > 1;

    return (struct passing){
        .slots = sharded            ? (discrete && !o->few ? N_SLOTS : N_SLOTS - 1)
                 : o->offload_param ? N_SLOTS : 0,
        .keep_weights = sharded && !o->offload_param && (o->stage < 3 || o->keep_weights),
        .keep_grads = sharded && !o->offload_param && (o->stage < 2 || o->keep_grads),
        .parts = sharded && !discrete,
        .own = sharded && discrete && o->offload_param && o->train};
}

static int slot_count(const struct flat *f, const struct passing *p, bool keep)
{
    return keep ? f->params->n_layers : p->slots;
}

/* A slot's bytes for n elements of so many bytes. */
static uint64_t slot_bytes(int64_t n, size_t wide) { return ((uint64_t)n * wide + 3) / 4 * 4; }

/* Gathered weights are the true ones, f32, where a collective's buffers are the host's. */
static size_t slot_wide(const struct passing *p, enum ckpt_dtype type)
{
    return p->parts ? sizeof(float) : ckpt_dtype_size(type);
}

/* Bytes of all slots of a kind. */
static uint64_t slots_bytes(const struct flat *f, const struct passing *p, bool keep, size_t wide,
                            int64_t (*size)(const struct flat *f, int layer))
{
    uint64_t sum = 0;

    for (int i = 0; i < slot_count(f, p, keep); i++)
        sum += slot_bytes(slot_size(f, i, keep, size), wide);
    return sum;
}

/* Elements of f32 beside slots, for collectives. */
static int64_t parts_numel(const struct flat *f, const struct passing *p)
{
    return p->parts ? largest(f, flat_layer_part) * f->world_size : 0;
}

static int64_t reduced_numel(const struct flat *f, const struct passing *p, bool train)
{
    return train && p->slots && f->world_size > 1 && !p->keep_grads ? largest(f, flat_grad_part)
                                                                    : 0;
}

/* Elements of such gradients' i-th place. */
static int64_t own_numel(const struct flat *f, const struct passing *p, int i)
{
    int64_t most = 0;

    for (int u = i; p->own && u < f->params->n_layers - i; u++)     /* [1]: no edges */
        most = flat_grad_part(f, u) > most ? flat_grad_part(f, u) : most;
    return most;
}

/* Whether gradients are exchanged in another type than f32. */
static bool narrows(const struct zero_opts *o, int world_size)
{
    return o->train && o->stage > 0 && world_size > 1 && o->reduce != CKPT_DTYPE_NONE &&
           o->reduce != CKPT_F32;
}

/* Bytes of what travels then, and of its sums. */
static uint64_t narrow_bytes(const struct flat *f, const struct zero_opts *o,
                             int64_t (*size)(const struct flat *f, int layer))
{
    return narrows(o, f->world_size) ? (uint64_t)largest(f, size) * ckpt_dtype_size(o->reduce) : 0;
}

/* Sums of squares: one for the step; of what streams one for each layer too. */
static size_t squares_of(const struct flat *f, const struct zero_opts *opts)
{
    return 1 + (opts->offload_param ? (size_t)f->params->n_layers : 0);
}

/* Whether states have the true weights of what is trained: passes see rounded ones. */
static bool own_masters(bool train, enum ckpt_dtype type) { return train && type != CKPT_F32; }

static struct optim_state_opts states_of(const struct zero_opts *opts, enum ckpt_dtype type)
{
    return (struct optim_state_opts){.moments = opts->moments,
                                .fewer = opts->fewer, .muon = opts->muon,
                                .chunk = opts->chunk,
                                .master = own_masters(opts->train, type) && !opts->narrow,
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

static int allocate_slots(struct zero *z, struct slots *of, const struct passing *p, bool keep,
                          size_t wide, int64_t (*size)(const struct flat *f, int layer),
                          struct ckpt_err *err)
{
    int n = slot_count(&z->flat, p, keep), rc = 0;

    *of = (struct slots){.slot = ckpt_alloc((size_t)n + 1, sizeof *of->slot), .keep = keep};
    if (!of->slot)
        return ckpt_nomem(err, (size_t)n * sizeof *of->slot);
    for (; rc == 0 && of->n < n; of->n++) {
        struct slot *s = &of->slot[of->n];

        s->layer = -1;
        s->whole = memory(z, slot_bytes(slot_size(&z->flat, of->n, keep, size), wide), false, &rc,
                          err);
    }
    return rc;
}

static int allocate(struct zero *z, const struct zero_opts *opts, struct ckpt_err *err)
{
    const struct flat *f = &z->flat;
    struct passing p = passing_of(opts, f->world_size, z->dev->discrete);
    struct optim_state_opts states = states_of(opts, z->type);
    size_t rounded = (size_t)f->numel * ckpt_dtype_size(z->type);
    bool train = opts->train;
    int rc = 0;

    if (!states.master && !opts->narrow && (train || z->type == CKPT_F32))
        z->master = floats(z, f->numel, &rc, err);
    if (z->type != CKPT_F32)
        z->rounded = memory(z, rounded, z->streamed, &rc, err);
    if (train) {
        z->grads = memory(z, (size_t)f->grad_numel * sizeof(float), z->streamed, &rc, err);
        z->verdict = memory(z, sizeof *z->verdict, false, &rc, err);
        z->squares = memory(z, squares_of(f, opts) * sizeof *z->squares, false, &rc, err);
        rc = rc ? rc : optim_state_new(&z->optim, f, &states, z->dev, ZERO_EVENT_OPTIM, err);
        rc = rc || !opts->factored ? rc : zero_factored_new(z, true, err);
        rc = rc || !opts->muon ? rc : zero_muon_new(z, err);
    }
    if (rc == 0 && p.slots)
        rc = allocate_slots(z, &z->weight, &p, p.keep_weights, slot_wide(&p, z->type),
                            whole_weights, err);
    if (rc == 0 && p.slots && train)
        rc = allocate_slots(z, &z->grad, &p, p.keep_grads, sizeof(float), whole_grads, err);
    if (rc == 0 && z->streamed)
        zero_stream_ready(z);
    if (parts_numel(f, &p))
        z->parts = floats(z, parts_numel(f, &p), &rc, err);
    if (reduced_numel(f, &p, train))
        z->reduced = floats(z, reduced_numel(f, &p, train), &rc, err);
    for (int i = 0; i < N_OWN; i++)
        if (own_numel(f, &p, i))
            z->own.at[i] = floats(z, own_numel(f, &p, i), &rc, err);
    if (narrows(opts, f->world_size)) {
        z->narrow = memory(z, narrow_bytes(f, opts, whole_grads), false, &rc, err);
        z->narrow_own = memory(z, narrow_bytes(f, opts, flat_grad_part), false, &rc, err);
    }
    if (z->dev->discrete)
        z->stage = memory(z, 2 * ZERO_STAGE, true, &rc, err);
    return rc;
}

/* Whether the ranks and the device's type allow what is asked for. */
static int check_opts(const struct zero_opts *opts, const struct params *params,
                      const struct device *dev, struct comm *comm, struct ckpt_err *err)
{
    if (opts->offload_param && comm->world_size > 1 && opts->stage == 0)
        return ckpt_fail(err, CKPT_EUNSUPPORTED, "weights on the host: at stage 0 of one rank "
                         "alone, there are %d", comm->world_size);
    if (opts->offload_param && opts->replicas)
        return ckpt_fail(err, CKPT_EUNSUPPORTED, "weights on the host: in one group of ranks "
                         "alone, not with replicas");
    if (opts->offload_param && dev->weight == CKPT_F32)
        return ckpt_fail(err, CKPT_EUNSUPPORTED, "weights on the host: of 16 bits alone");
    if (narrows(opts, comm->world_size) && !comm_groups(comm_on_device(comm)))
        return ckpt_fail(err, CKPT_ECONFIG, "`reduce_dtype`: ranks on CPUs sum in float32 only");
    if (opts->stage > 0 && comm->world_size > 1 && comm_groups(comm_on_device(comm)) &&
        params->ranks != comm->world_size)
        return ckpt_fail(err, CKPT_ESTATE, "parameters are laid out for %d ranks, there are %d",
                         params->ranks, comm->world_size);
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
    z->sharded = opts->stage > 0 && comm->world_size > 1;
    z->replicas = opts->replicas || z->sharded ? opts->replicas : comm;
    z->streamed = opts->offload_param;
    z->own.unsquared = -1;
    z->door = (struct model_weights){.ctx = z, .acquire = acquire, .release = release,
                                     .grad = grad_of, .grad_done = grad_done, .fresh = fresh,
                                     .fixed = !z->sharded && !z->streamed};
    rc = check_opts(opts, params, dev, comm, err);
    if (rc == 0)
        rc = flat_init(&z->flat, params, opts->stage, comm->rank, comm->world_size, err);
    if (rc == 0 && !(z->fresh = ckpt_alloc(3 * (size_t)params->n_layers, sizeof *z->fresh)))
        rc = ckpt_nomem(err, 3 * (size_t)params->n_layers);
    z->reached = z->fresh ? z->fresh + params->n_layers : NULL;
    z->replicated = z->fresh ? z->reached + params->n_layers : NULL;
    if (rc == 0)
        rc = allocate(z, opts, err);
    if (rc)
        zero_free(z);
    else
        *out = z;
    return rc;
}

static void free_slots(struct zero *z, struct slots *of)
{
    for (int i = 0; i < of->n; i++)
        z->dev->ops->free(z->dev, of->slot[i].whole);
    ckpt_free(of->slot);
}

void zero_free(struct zero *z)
{
    if (!z)
        return;
    optim_state_free(z->optim);
    zero_factored_free(z);
    zero_muon_free(z);
    z->dev->ops->free(z->dev, z->master);
    if (z->streamed) {
        z->dev->ops->unpin(z->dev, z->rounded);
        z->dev->ops->unpin(z->dev, z->grads);
    } else {
        z->dev->ops->free(z->dev, z->rounded);
        z->dev->ops->free(z->dev, z->grads);
    }
    free_slots(z, &z->weight);
    free_slots(z, &z->grad);
    z->dev->ops->free(z->dev, z->verdict);
    z->dev->ops->free(z->dev, z->squares);
    z->dev->ops->free(z->dev, z->parts);
    z->dev->ops->free(z->dev, z->reduced);
    for (int i = 0; i < N_OWN; i++)
        z->dev->ops->free(z->dev, z->own.at[i]);
    z->dev->ops->free(z->dev, z->narrow);
    z->dev->ops->free(z->dev, z->narrow_own);
    z->dev->ops->unpin(z->dev, z->stage);
    ckpt_free(z->layer_host);
    ckpt_free(z->parts_host);
    ckpt_free(z->fresh);
    flat_release(&z->flat);
    ckpt_free(z);
}

const struct flat *zero_flat(const struct zero *z) { return &z->flat; }
int zero_threads(const struct zero *z) { return z->dev->threads > 0 ? z->dev->threads : 1; }
enum op_moments zero_moments(const struct zero *z, size_t i)
{
    return optim_state_kind(z->flat.params, i, z->opts.moments);
}

int zero_fewer(const struct zero_opts *opts, const struct params *p, size_t i)
{
    return optim_state_fewer(p, i, opts->fewer, opts->muon);
}

float *zero_grads(const struct zero *z) { return z->grads; }
const struct model_weights *zero_weights(struct zero *z) { return &z->door; }

int zero_size(struct zero_size *out, const struct params *params, const struct zero_opts *opts,
              int world_size, const struct device *dev, struct ckpt_err *err)
{
    struct passing p = passing_of(opts, world_size, dev->discrete);
    struct optim_state_opts so = states_of(opts, dev->weight);
    size_t wide = ckpt_dtype_size(dev->weight);
    struct optim_state_size states = {0};
    uint64_t slots, grad_slots;
    int64_t others;
    struct flat f;
    int rc = flat_init(&f, params, opts->stage, 0, world_size, err);

    *out = (struct zero_size){0};
    if (rc)
        return rc;
    out->weights = (uint64_t)f.numel * wide;
    slots = slots_bytes(&f, &p, p.keep_weights, slot_wide(&p, dev->weight), whole_weights);
    grad_slots = opts->train ? slots_bytes(&f, &p, p.keep_grads, sizeof(float), whole_grads) : 0;
    if (opts->train) {
        rc = optim_state_size(&states, &f, &so, err);
        out->grads = (uint64_t)f.grad_numel * sizeof(float);
        out->optim = states.device + (opts->factored ? zero_factored_bytes(params, true) : 0) +
                     (opts->muon ? zero_muon_bytes(params, f.world_size) : 0);
        out->optim_host = states.host;
        out->ring = states.ring;
    }
    others = parts_numel(&f, &p) + reduced_numel(&f, &p, opts->train);
    for (int i = 0; i < N_OWN; i++)
        others += own_numel(&f, &p, i);
    out->gathered = narrow_bytes(&f, opts, whole_grads) + narrow_bytes(&f, opts, flat_grad_part) +
                    (uint64_t)others * sizeof(float);
    if (opts->offload_param) {
        out->weights_host = out->weights;
        out->grads_host = out->grads;
        out->weights = slots;
        out->grads = grad_slots;
    } else {
        out->gathered += slots + grad_slots;
    }
    if (opts->train)
        out->grads += sizeof(struct op_verdict) + squares_of(&f, opts) * sizeof(double);
    flat_release(&f);
    return rc;
}

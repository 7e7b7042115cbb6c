/* zero_copy - see zero_copy.h. */
#include "trainer/shard/zero_copy.h"

#include <string.h>

#include "libckpt/mem.h"
#include "trainer/shard/zero_own.h"

/* Operations of the copy's device: the CPU's, with memory from where a GPU copies to. */
struct pinned_row {
    struct ops     row;
    struct device *gpu;
};

struct zero_copy {
    struct zero      *from, *zero;
    struct device    *dev;              /* the copy's */
    struct pinned_row pinned;
    bool              holds;
};

static struct device *gpu_of(const struct device *dev)
{
    return ((const struct pinned_row *)(const void *)dev->ops)->gpu;
}

static void *pinned_alloc(struct device *dev, size_t bytes)
{
    return gpu_of(dev)->ops->pin(gpu_of(dev), bytes);
}

static void pinned_free(struct device *dev, void *p) { gpu_of(dev)->ops->unpin(gpu_of(dev), p); }

/* Whether a weight that is saved has no true one among the states. */
static bool keeps_frozen(const struct params *p)
{
    for (size_t i = 0; i < p->n; i++)
        if (params_is_saved(p, i) && !p->item[i].trainable)
            return true;
    return false;
}

/* The arrays, as those of c->from but all in one place. */
static int allocate(struct zero_copy *c, struct ckpt_err *err)
{
    const struct zero *from = c->from;
    struct zero *z = c->zero;
    const struct optim_state_opts states = {.moments = from->opts.moments,
                                            .fewer = from->opts.fewer,
                                            .muon = from->opts.muon,
                                            .master = from->rounded && !from->opts.narrow,
                                            .on_device = UINT64_MAX};
    size_t n = (size_t)z->flat.numel;

    if (from->master && !(z->master = device_alloc(z->dev, n * sizeof(float), err)))
        return ckpt_err_code(err);
    if (from->rounded && (from->opts.narrow || keeps_frozen(z->flat.params)) &&
        !(z->rounded = device_alloc(z->dev, n * ckpt_dtype_size(z->type), err)))
        return ckpt_err_code(err);
    if (optim_state_new(&z->optim, &z->flat, &states, z->dev, ZERO_EVENT_OPTIM, err))
        return ckpt_err_code(err);
    return from->factored ? zero_factored_new(z, false, err) : 0;
}

static int open_zero(struct zero_copy *c, struct comm *comm, struct ckpt_err *err)
{
    const struct zero *from = c->from;
    const struct flat *f = &from->flat;
    struct zero *z = c->zero = ckpt_alloc(1, sizeof *z);
    int rc;

    if (!z)
        return ckpt_nomem(err, sizeof *z);
    z->dev = c->dev;
    z->comm = comm;
    z->opts = (struct zero_opts){.stage = from->opts.stage, .train = true,
                                 .moments = from->opts.moments, .narrow = from->opts.narrow};
    z->type = from->type;
    z->sharded = from->sharded;
    z->is_copy = true;
    z->own.unsquared = -1;
    rc = flat_init(&z->flat, f->params, from->opts.stage, f->rank, f->world_size, err);
    return rc ? rc : allocate(c, err);
}

int zero_copy_new(struct zero_copy **out, struct zero *z, struct comm *comm, bool holds,
                  struct ckpt_err *err)
{
    bool pinned = z->dev->discrete && holds && !z->flat.params->adapted;
    struct zero_copy *c = ckpt_alloc(1, sizeof *c);
    int rc;

    *out = NULL;
    if (!c)
        return ckpt_nomem(err, sizeof *c);
    c->from = z;
    c->holds = holds;
    if ((rc = device_open_cpu(&c->dev, z->dev->discrete ? 1 : z->dev->threads, err)) == 0) {
        c->pinned = (struct pinned_row){*c->dev->ops, z->dev};
        c->pinned.row.alloc = pinned_alloc;
        c->pinned.row.free = pinned_free;
        c->dev->ops = pinned ? &c->pinned.row : c->dev->ops;
        c->dev->weight = z->type;
        rc = open_zero(c, comm, err);
    }
    if (rc)
        zero_copy_free(c);
    else
        *out = c;
    return rc;
}

void zero_copy_free(struct zero_copy *c)
{
    if (!c)
        return;
    zero_free(c->zero);
    device_close(c->dev);
    ckpt_free(c);
}

struct zero *zero_copy_zero(const struct zero_copy *c) { return c->zero; }

static uint64_t bytes_of(const struct flat *f, const struct zero_opts *o, enum ckpt_dtype type)
{
    const struct params *p = f->params;
    uint64_t sum = o->factored ? zero_factored_bytes(p, false) : 0;

    for (size_t i = 0; i < p->n; i++) {
        int64_t n = flat_part(f, i);

        if (params_is_saved(p, i))
            sum += (uint64_t)n * (p->item[i].trainable && !o->narrow ? sizeof(float)
                                                                      : ckpt_dtype_size(type));
        if (p->item[i].trainable)
            sum += optim_state_moment_bytes(p, i, o->moments, zero_fewer(o, p, i), n);
    }
    return sum;
}

uint64_t zero_copy_bytes(const struct zero *z) { return bytes_of(&z->flat, &z->opts, z->type); }

int zero_copy_plan(uint64_t *bytes, const struct params *params, const struct zero_opts *opts,
                   int world_size, const struct device *dev, struct ckpt_err *err)
{
    struct flat f;
    int rc = flat_init(&f, params, opts->stage, 0, world_size, err);

    *bytes = rc ? 0 : bytes_of(&f, opts, dev->weight);
    flat_release(&f);
    return rc;
}

/* n elements of so many bytes; what lies on the host is copied now. */
static void copy_run(struct zero *z, void *to, const void *from, size_t bytes, bool host)
{
    if (host)
        memcpy(to, from, bytes);
    else
        z->dev->ops->stream_copy(z->dev, OP_STREAM_OUT, to, from, bytes);
}

static void copy_weights(struct zero_copy *c, size_t i)
{
    int64_t n = flat_part(&c->from->flat, i), some;

    for (int64_t at = 0; at < n; at += some) {
        struct zero_spot from = zero_spot(c->from, ZERO_MASTER, i, at);
        struct zero_spot to = zero_spot(c->zero, ZERO_MASTER, i, at);

        some = from.n < to.n ? from.n : to.n;
        some = some < n - at ? some : n - at;
        copy_run(c->from, to.at, from.at, (size_t)some * ckpt_dtype_size(from.type), from.host);
    }
}

/* One of the arrays of moments and scales, if the rule has it. */
static void copy_states(struct zero_copy *c, enum optim_state_array of, size_t i)
{
    enum op_moments kind = zero_moments(c->from, i);
    int64_t n = flat_part(&c->from->flat, i), some;

    if (!optim_state_spot(c->from->optim, of, i, 0).at)
        return;
    for (int64_t at = 0; at < n && optim_state_bytes(of, kind, n); at += some) {
        struct optim_state_spot from = optim_state_spot(c->from->optim, of, i, at);
        struct optim_state_spot to = optim_state_spot(c->zero->optim, of, i, at);

        some = from.n < to.n ? from.n : to.n;
        some = some < n - at ? some : n - at;
        copy_run(c->from, to.at, from.at, optim_state_bytes(of, kind, some), from.host);
    }
}

void zero_copy_take(struct zero_copy *c)
{
    const struct zero_opts *o = &c->from->opts;
    const struct params *p = c->from->flat.params;

    if (o->paged || o->offload || o->offload_param)
        zero_settle(c->from);           /* what the last step's optimizer has on its way there */
    zero_follow(c->from, OP_STREAM_OUT, OP_STREAM_MAIN);
    for (size_t i = 0; c->holds && i < p->n; i++) {
        if (params_is_saved(p, i))
            copy_weights(c, i);
        for (int of = OPTIM_STATE_AVG; p->item[i].trainable && of < OPTIM_STATE_ARRAYS; of++)
            copy_states(c, (enum optim_state_array)of, i);
    }
    if (c->holds && c->from->factored)
        zero_factored_copy(c->zero, c->from);
    c->from->dev->ops->event_record(c->from->dev, OP_STREAM_OUT, ZERO_EVENT_COPY);
    c->from->copied = true;
}

void zero_copied(struct zero *z)
{
    if (z->copied)
        z->dev->ops->stream_wait_event(z->dev, OP_STREAM_MAIN, ZERO_EVENT_COPY);
    z->copied = false;
}

int zero_copy_wait(struct zero_copy *c, struct ckpt_err *err)
{
    c->from->dev->ops->event_sync(c->from->dev, ZERO_EVENT_COPY);
    return device_error(c->from->dev, err);
}

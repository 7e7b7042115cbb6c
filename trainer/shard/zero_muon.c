/*
 * zero_muon - Muon's step of the hidden matrices, see zero.h and ops/optimizer.h.
 *
 * Each rank has the momentum of its own part of a matrix.  One matrix after another, the direction
 * in which it moves is gathered from the ranks that own parts of it, and every rank makes all of it
 * orthogonal and steps its own part: a matrix is in memory once, whatever the model's size is.
 */
#include "trainer/shard/zero_own.h"

#include "libckpt/mem.h"

struct zero_muon {
    float *direction, *work;            /* of the largest matrix */
};

/* Floats of the largest of both. */
static void largest(int64_t *direction, int64_t *work, const struct params *p, int world_size)
{
    *direction = *work = 0;
    for (size_t i = 0; i < p->n; i++) {
        const struct param *q = &p->item[i];
        int64_t room, extra;

        if (!q->trainable || !params_is_hidden(q))
            continue;
        room = (q->numel + world_size - 1) / world_size * world_size;
        extra = op_muon_work(q->shape.dim[0], q->shape.dim[1]);
        *direction = room > *direction ? room : *direction;
        *work = extra > *work ? extra : *work;
    }
}

uint64_t zero_muon_bytes(const struct params *p, int world_size)
{
    int64_t direction, work;

    largest(&direction, &work, p, world_size);
    return (uint64_t)(direction + work) * sizeof(float);
}

int zero_muon_new(struct zero *z, struct ckpt_err *err)
{
    struct zero_muon *m = z->muon = ckpt_alloc(1, sizeof *m);
    int64_t direction, work;

    if (!m)
        return ckpt_nomem(err, sizeof *m);
    largest(&direction, &work, z->flat.params, z->flat.world_size);
    if (!(m->direction = ckpt_alloc((size_t)direction + 1, sizeof *m->direction)) ||
        !(m->work = ckpt_alloc((size_t)work + 1, sizeof *m->work)))
        return ckpt_nomem(err, (size_t)zero_muon_bytes(z->flat.params, z->flat.world_size));
    return 0;
}

void zero_muon_free(struct zero_muon *m)
{
    if (!m)
        return;
    ckpt_free(m->direction);
    ckpt_free(m->work);
    ckpt_free(m);
}

/* What is stepped, with the group's numbers of this step. */
static struct op_matrix matrix_of(const struct zero *z, size_t i, const struct optim_state_step *s)
{
    const struct flat *flat = &z->flat;
    const struct param *p = &flat->params->item[i];
    struct flat_piece own = flat_grad_piece(flat, i, flat->rank);
    struct op_matrix m = {
        .param = (float *)(void *)zero_spot(z, ZERO_MASTER, i, 0).at,
        .grad = z->grads + flat->grad_base[i],
        .momentum = (float *)(void *)zero_spot(z, ZERO_EXP_AVG, i, 0).at,
        .n = own.count, .start = own.count ? own.start : 0,
        .rows = p->shape.dim[0], .cols = p->shape.dim[1],
        .direction = z->muon->direction, .work = z->muon->work,
        .lr = s->group ? s->group[p->group].lr : s->adamw->lr,
        .weight_decay = s->group ? s->group[p->group].weight_decay
                        : p->decay ? s->weight_decay : 0};

    if (z->rounded)
        m.rounded = (unsigned char *)z->rounded +
                    (size_t)flat->base[i] * ckpt_dtype_size(z->type);
    return m;
}

/* Every rank gets the others' parts of parameter i's direction. */
static void gather(struct zero *z, size_t i)
{
    int64_t part = flat_part(&z->flat, i);
    float *to = z->muon->direction;

    if (!z->sharded)                    /* every rank has all of it */
        return;
    zero_follow(z, OP_STREAM_COMM, OP_STREAM_MAIN);
    comm_all_gather(comm_on_device(z->comm), to, to + part * z->flat.rank, part, CKPT_F32);
    zero_follow(z, OP_STREAM_MAIN, OP_STREAM_COMM);
}

void zero_muon_step(struct zero *z, const struct optim_state_step *s)
{
    const struct params *p = z->flat.params;
    const struct ops *ops = z->dev->ops;

    for (size_t i = 0; i < p->n; i++) {
        struct op_matrix m;

        if (!p->item[i].trainable || !params_is_hidden(&p->item[i]))
            continue;
        m = matrix_of(z, i, s);
        ops->muon(z->dev, OP_MUON_MOMENTUM, &m, s->adamw);
        gather(z, i);
        ops->muon(z->dev, OP_MUON_UPDATE, &m, s->adamw);
    }
}

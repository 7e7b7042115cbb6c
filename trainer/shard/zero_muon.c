/*
 * zero_muon - Muon's step of the hidden matrices, see zero.h and ops/optimizer.h.
 *
 * Each rank has the momentum of its own part of a matrix.  Matrices are dealt out, one to each rank
 * at a time: all give their parts of a direction to the rank that makes the matrix orthogonal, and
 * get all of that from it, of which they step their own part.  Those of one round have nearly one
 * size, so that no rank waits long.  A rank has its own matrix and one that passes in memory,
 * whatever the model's size is.  Every replica of a part does the same.
 */
#include "trainer/shard/zero_own.h"

#include <stdlib.h>

#include "libckpt/mem.h"

/* A hidden matrix, and what it costs. */
struct dealt {
    size_t  param;
    int64_t cost;
};

struct zero_muon {
    float        *direction, *work;     /* of the largest matrix: of this rank's in a round */
    float        *passing;              /* of another's; several ranks */
    struct dealt *matrix;               /* [n] */
    size_t        n;
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
    return (uint64_t)((world_size > 1 ? 2 : 1) * direction + work) * sizeof(float);
}

static int by_cost(const void *x, const void *y)
{
    const struct dealt *a = x, *b = y;

    return a->cost != b->cost ? (a->cost < b->cost) - (a->cost > b->cost)
                              : (a->param > b->param) - (a->param < b->param);
}

/* The costliest first. */
static int deal(struct zero_muon *m, const struct params *p, struct ckpt_err *err)
{
    if (!(m->matrix = ckpt_alloc(p->n + 1, sizeof *m->matrix)))
        return ckpt_nomem(err, p->n * sizeof *m->matrix);
    for (size_t i = 0; i < p->n; i++) {
        const struct ckpt_shape *s = &p->item[i].shape;
        int64_t least;

        if (!p->item[i].trainable || !params_is_hidden(&p->item[i]))
            continue;
        least = s->dim[0] < s->dim[1] ? s->dim[0] : s->dim[1];
        m->matrix[m->n++] = (struct dealt){i, p->item[i].numel * least};
    }
    qsort(m->matrix, m->n, sizeof *m->matrix, by_cost);
    return 0;
}

static float *floats(struct zero *z, int64_t n, struct ckpt_err *err)
{
    return device_alloc(z->dev, (size_t)(n + 1) * sizeof(float), err);
}

int zero_muon_new(struct zero *z, struct ckpt_err *err)
{
    struct zero_muon *m = z->muon = ckpt_alloc(1, sizeof *m);
    int64_t direction, work;

    if (!m)
        return ckpt_nomem(err, sizeof *m);
    largest(&direction, &work, z->flat.params, z->flat.world_size);
    if (!(m->direction = floats(z, direction, err)) || !(m->work = floats(z, work, err)) ||
        (z->flat.world_size > 1 && !(m->passing = floats(z, direction, err))))
        return ckpt_err_code(err);
    return deal(m, z->flat.params, err);
}

void zero_muon_free(struct zero *z)
{
    struct zero_muon *m = z->muon;

    if (!m)
        return;
    z->dev->ops->free(z->dev, m->direction);
    z->dev->ops->free(z->dev, m->work);
    z->dev->ops->free(z->dev, m->passing);
    ckpt_free(m->matrix);
    ckpt_free(m);
}

/* What is stepped, with the group's numbers of this step; the direction is this rank's own. */
static struct op_matrix matrix_of(const struct zero *z, size_t i, bool mine,
                                  const struct optim_state_step *s)
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
        .direction = mine ? z->muon->direction : z->muon->passing, .work = z->muon->work,
        .lr = s->group ? s->group[p->group].lr : s->adamw->lr,
        .weight_decay = s->group ? s->group[p->group].weight_decay
                        : p->decay ? s->weight_decay : 0};

    if (z->rounded)
        m.rounded = (unsigned char *)z->rounded +
                    (size_t)flat->base[i] * ckpt_dtype_size(z->type);
    return m;
}

/* Every rank's part of parameter i's direction. */
static void gather(struct zero *z, size_t i, float *to)
{
    int64_t part = flat_part(&z->flat, i);

    if (!z->sharded)                    /* every rank has all of it */
        return;
    zero_follow(z, OP_STREAM_COMM, OP_STREAM_MAIN);
    comm_all_gather(comm_on_device(z->comm), to, to + part * z->flat.rank, part, CKPT_F32);
    zero_follow(z, OP_STREAM_MAIN, OP_STREAM_COMM);
}

/* What a rank has made of it, to all.  GPUs may choose products of other orders of sums for one
 * shape: replicas in other groups take the first group's, so that all weights stay the same. */
static void share(struct zero *z, const struct op_matrix *m, int from)
{
    bool others = z->sharded && z->replicas && z->dev->discrete;
    int64_t n = m->rows * m->cols;

    if (z->flat.world_size == 1 && !others)
        return;
    zero_follow(z, OP_STREAM_COMM, OP_STREAM_MAIN);
    if (z->flat.world_size > 1)
        comm_broadcast(comm_on_device(z->comm), m->direction, n, CKPT_F32, from);
    if (others)
        comm_broadcast(comm_on_device(z->replicas), m->direction, n, CKPT_F32, 0);
    zero_follow(z, OP_STREAM_MAIN, OP_STREAM_COMM);
}

/* A matrix for each rank, or for some of them. */
static void round_of(struct zero *z, const struct dealt *matrix, int n,
                 const struct optim_state_step *s)
{
    const struct ops *ops = z->dev->ops;
    int rank = z->flat.rank;

    for (int k = 0; k < n; k++) {
        struct op_matrix m = matrix_of(z, matrix[k].param, k == rank, s);

        ops->muon(z->dev, OP_MUON_MOMENTUM, &m, s->adamw);
        gather(z, matrix[k].param, m.direction);
    }
    if (rank < n) {
        struct op_matrix m = matrix_of(z, matrix[rank].param, true, s);

        ops->muon(z->dev, OP_MUON_ORTHOGONAL, &m, s->adamw);
    }
    for (int k = 0; k < n; k++) {
        struct op_matrix m = matrix_of(z, matrix[k].param, k == rank, s);

        share(z, &m, k);
        ops->muon(z->dev, OP_MUON_UPDATE, &m, s->adamw);
    }
}

void zero_muon_step(struct zero *z, const struct optim_state_step *s)
{
    const struct zero_muon *m = z->muon;
    size_t ranks = (size_t)z->flat.world_size;

    for (size_t at = 0; at < m->n; at += ranks)
        round_of(z, m->matrix + at, (int)(m->n - at < ranks ? m->n - at : ranks), s);
}

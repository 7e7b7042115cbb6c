/*
 * zero_factored - Adafactor's step over a rank's parts, see zero.h and ops/optimizer.h.
 *
 * The numbers of rows and columns are small, and every rank has all of them: the sums over its
 * part of a matrix are added to those of the ranks that own the other parts, wherever the flat
 * partition cuts the matrix.  The matrices of all experts of a layer are one tensor, as in
 * transformers 5, where gate and up are one matrix.
 */
#include "trainer/shard/zero_own.h"

#include "libckpt/mem.h"

/* One parameter, or all parts of one. */
struct tensor {
    int64_t at;                         /* its numbers among stat */
    int64_t n_row, n_col, numel;
};

struct zero_factored {
    struct op_factored *op;             /* [n] */
    size_t             *index;          /* [n] its parameter; parts of a tensor are neighbours */
    struct tensor      *tensor;         /* [n_tensors] */
    size_t             *of;             /* [params] which tensor it is in */
    float              *stat;           /* [n_stat] row, col, rms of each tensor, on the device */
    float              *host;           /* the same on the host: stat itself where that is there */
    double             *sum;            /* [n_sum] of rows and columns of each parameter, then
                                           [n_tensors] of weights and as many of updates; on the
                                           device */
    int64_t             n, n_tensors, n_stat, n_sum;
};

/* A parameter's rows and columns, as in op_factored. */
struct sides {
    int64_t rows, cols, height;
    int64_t matrix, above, tall;        /* where it lies in its tensor */
};

static struct sides sides_of(const struct params *p, size_t i)
{
    const struct ckpt_shape *s = &p->item[i].shape;
    int64_t cols = s->rank >= 2 ? s->dim[s->rank - 1] : 0, numel = p->item[i].numel;
    struct sides d = {.rows = cols ? numel / cols : numel, .cols = cols,
                      .height = cols ? s->dim[s->rank - 2] : numel};
    struct params_stacked in = {.height = d.height};

    params_stacked(&in, p, i);
    d.matrix = in.matrix;
    d.above = in.above;
    d.tall = in.height;
    return d;
}

static bool is_first(const struct sides *d) { return d->matrix == 0 && d->above == 0; }
static int64_t columns(const struct sides *d)
{
    return d->cols ? d->rows / d->height * d->cols : 0;
}

/* Its numbers that are no other's. */
static int64_t own_stats(const struct sides *d)
{
    return d->rows + (d->above ? 0 : columns(d));
}

uint64_t zero_factored_bytes(const struct params *p, bool sums)
{
    uint64_t floats = 0, doubles = 0;

    for (size_t i = 0; i < p->n; i++) {
        struct sides d = sides_of(p, i);

        if (!p->item[i].trainable)
            continue;
        floats += (uint64_t)own_stats(&d) + is_first(&d);
        doubles += (uint64_t)(d.rows + columns(&d)) + 2 * is_first(&d);
    }
    return floats * sizeof(float) + (sums ? doubles * sizeof(double) : 0);
}

static size_t stat_bytes(const struct zero_factored *f)
{
    return (size_t)f->n_stat * sizeof *f->stat;
}

/* A parameter takes its place after the others of its tensor. */
static void list(struct zero_factored *f, const struct params *p, size_t i)
{
    struct sides d = sides_of(p, i);
    struct tensor *t;

    if (is_first(&d))
        f->tensor[f->n_tensors++] = (struct tensor){.at = f->n_stat++};
    t = &f->tensor[f->n_tensors - 1];
    t->n_row += d.rows;
    t->n_col += d.above ? 0 : columns(&d);
    t->numel += p->item[i].numel;
    f->n_stat += own_stats(&d);
    f->n_sum += d.rows + columns(&d);
    f->of[i] = (size_t)f->n_tensors - 1;
    f->index[f->n++] = i;
}

/* Which tensor of its layer it is in: one of its own, or one of those of experts. */
enum { ALONE, GATE_UP, DOWN, KINDS };
static int kind_of(const struct params *p, size_t i)
{
    struct params_stacked in;

    if (!params_stacked(&in, p, i))
        return ALONE;
    return in.down ? DOWN : GATE_UP;
}

static void list_all(struct zero *z)
{
    const struct params *p = z->flat.params;

    for (int layer = 0; layer < p->n_layers; layer++) {
        size_t first, end;

        flat_layer(&z->flat, layer, &first, &end);
        for (int kind = ALONE; kind < KINDS; kind++)
            for (size_t i = first; i < end; i++)
                if (p->item[i].trainable && kind_of(p, i) == kind)
                    list(z->factored, p, i);
    }
}

int zero_factored_new(struct zero *z, bool sums, struct ckpt_err *err)
{
    const struct params *p = z->flat.params;
    struct zero_factored *f = z->factored = ckpt_alloc(1, sizeof *f);

    if (!f)
        return ckpt_nomem(err, sizeof *f);
    if (!(f->tensor = ckpt_alloc(p->n + 1, sizeof *f->tensor)) ||
        !(f->of = ckpt_alloc(p->n + 1, sizeof *f->of)) ||
        !(f->op = ckpt_alloc(p->n + 1, sizeof *f->op)) ||
        !(f->index = ckpt_alloc(p->n + 1, sizeof *f->index)))
        return ckpt_nomem(err, p->n * sizeof *f->op);
    list_all(z);
    if (!(f->stat = device_alloc(z->dev, stat_bytes(f), err)) ||
        (sums && !(f->sum = device_alloc(z->dev, (size_t)(f->n_sum + 2 * f->n_tensors) *
                                         sizeof *f->sum, err))))
        return ckpt_err_code(err);
    f->host = z->dev->discrete ? ckpt_alloc((size_t)f->n_stat + 1, sizeof *f->host) : f->stat;
    return f->host ? 0 : ckpt_nomem(err, stat_bytes(f));
}

void zero_factored_free(struct zero *z)
{
    struct zero_factored *f = z->factored;

    if (!f)
        return;
    if (f->host != f->stat)
        ckpt_free(f->host);
    z->dev->ops->free(z->dev, f->stat);
    z->dev->ops->free(z->dev, f->sum);
    ckpt_free(f->op);
    ckpt_free(f->index);
    ckpt_free(f->tensor);
    ckpt_free(f->of);
    ckpt_free(f);
    z->factored = NULL;
}

/* The numbers of parameter i's tensor among all of them. */
static struct zero_factors factors_at(const struct zero *z, float *stat, size_t i)
{
    struct zero_factors out = {0};
    const struct tensor *t;

    if (!z->factored || !z->flat.params->item[i].trainable)
        return out;
    t = &z->factored->tensor[z->factored->of[i]];
    out.n_row = t->n_row;
    out.n_col = t->n_col;
    out.row = stat + t->at;
    out.col = t->n_col ? out.row + t->n_row : NULL;
    out.rms = out.row + t->n_row + t->n_col;
    return out;
}

struct zero_factors zero_factors(const struct zero *z, size_t i)
{
    return factors_at(z, z->factored ? z->factored->host : NULL, i);
}

void zero_factors_read(struct zero *z)
{
    struct zero_factored *f = z->factored;

    if (f && f->host != f->stat)
        z->dev->ops->to_host(z->dev, f->host, f->stat, stat_bytes(f));
}

void zero_factors_write(struct zero *z)
{
    struct zero_factored *f = z->factored;

    if (f && f->host != f->stat)
        z->dev->ops->to_device(z->dev, f->stat, f->host, stat_bytes(f));
}

void zero_factored_copy(struct zero *to, struct zero *from)
{
    from->dev->ops->stream_copy(from->dev, OP_STREAM_OUT, to->factored->stat, from->factored->stat,
                                stat_bytes(from->factored));
}

/* What is stepped, with the group's numbers of this step. */
static struct op_factored op_of(const struct zero *z, size_t i, double *sum,
                                const struct optim_state_step *s)
{
    const struct zero_factored *all = z->factored;
    size_t tensor = all->of[i];
    double *squares = all->sum + all->n_sum + tensor;
    struct sides d = sides_of(z->flat.params, i);
    const struct flat *flat = &z->flat;
    const struct param *p = &flat->params->item[i];
    struct flat_piece own = flat_grad_piece(flat, i, flat->rank);
    struct zero_factors at = factors_at(z, z->factored->stat, i);
    struct zero_spot m = zero_spot(z, ZERO_EXP_AVG, i, 0);
    struct op_factored f = {
        .param = (float *)(void *)zero_spot(z, ZERO_MASTER, i, 0).at,
        .grad = z->grads + flat->grad_base[i], .exp_avg = (float *)(void *)m.at,
        .n = own.count, .start = own.count ? own.start : 0,
        .rows = d.rows, .cols = d.cols, .height = d.height, .above = d.above, .tall = d.tall,
        .first = is_first(&d), .numel = all->tensor[tensor].numel,
        .row = at.row + d.matrix * d.tall + d.above,
        .col = at.col ? at.col + d.matrix * d.cols : NULL, .rms = at.rms, .sum = sum,
        .weight_square = squares, .update_square = squares + all->n_tensors,
        .lr = s->group ? s->group[p->group].lr : s->adamw->lr,
        .weight_decay = s->group ? s->group[p->group].weight_decay
                        : p->decay ? s->weight_decay : 0};

    if (z->rounded)
        f.rounded = (unsigned char *)z->rounded +
                    (size_t)flat->base[i] * ckpt_dtype_size(z->type);
    return f;
}

/* Numbers of each rank become their sums. */
static void add(struct zero *z, double *x, int64_t n)
{
    if (!z->sharded)                    /* every rank has the gradients of all */
        return;
    zero_follow(z, OP_STREAM_COMM, OP_STREAM_MAIN);
    comm_all_reduce(comm_on_device(z->comm), x, n, CKPT_F64, COMM_SUM);
    zero_follow(z, OP_STREAM_MAIN, OP_STREAM_COMM);
}

void zero_factored_step(struct zero *z, const struct optim_state_step *s)
{
    struct zero_factored *f = z->factored;
    double *sum = f->sum;
    const struct ops *ops = z->dev->ops;

    for (int64_t k = 0; k < f->n; k++) {
        struct sides d = sides_of(z->flat.params, f->index[k]);

        f->op[k] = op_of(z, f->index[k], sum, s);
        if (d.above > 0)
            f->op[k - 1].beside = sum + d.rows;
        sum += d.rows + columns(&d);
    }
    ops->factored(z->dev, OP_FACTORED_SUMS, f->op, f->n, s->adamw);
    add(z, f->sum, f->n_sum + f->n_tensors);
    ops->factored(z->dev, OP_FACTORED_MOMENTS, f->op, f->n, s->adamw);
    add(z, f->sum + f->n_sum + f->n_tensors, f->n_tensors);
    ops->factored(z->dev, OP_FACTORED_UPDATE, f->op, f->n, s->adamw);
    for (int u = 0; s->done && u < z->flat.params->n_layers; u++)
        s->done(s->ctx, u);
}

/*
 * zero_factored - Adafactor's step over a rank's parts, see zero.h and ops/optimizer.h.
 *
 * The numbers of rows and columns are small, and every rank has all of them: the sums over its
 * part of a matrix are added to those of the ranks that own the other parts, wherever the flat
 * partition cuts the matrix.
 */
#include "trainer/shard/zero_own.h"

#include "libckpt/mem.h"

struct zero_factored {
    struct op_factored *op;             /* [n] */
    size_t             *index;          /* [n] its parameter */
    int64_t            *at;             /* [params + 1] its numbers among stat */
    float              *stat;           /* [n_stat] row, col, rms of each parameter, on the
                                           device */
    float              *host;           /* the same on the host: stat itself where that is there */
    double             *sum;            /* [n_sum] of rows and columns, then [n] of weights
                                           and [n] of updates; on the device */
    int64_t             n, n_stat, n_sum;
};

/* A parameter's numbers: of rows, of columns. */
static void sides(int64_t *rows, int64_t *cols, int64_t *height, const struct param *p)
{
    const struct ckpt_shape *s = &p->shape;

    *cols = s->rank >= 2 ? s->dim[s->rank - 1] : 0;
    *rows = *cols > 0 ? p->numel / *cols : p->numel;
    *height = s->rank >= 2 ? s->dim[s->rank - 2] : p->numel;
}

static int64_t stats_of(const struct param *p)
{
    int64_t rows, cols, height;

    sides(&rows, &cols, &height, p);
    return rows + (cols ? rows / height * cols : 0);
}

uint64_t zero_factored_bytes(const struct params *p, bool sums)
{
    uint64_t bytes = 0;

    for (size_t i = 0; i < p->n; i++)
        if (p->item[i].trainable)
            bytes += ((uint64_t)stats_of(&p->item[i]) + 1) * sizeof(float) +
                     (sums ? ((uint64_t)stats_of(&p->item[i]) + 2) * sizeof(double) : 0);
    return bytes;
}

static size_t stat_bytes(const struct zero_factored *f)
{
    return (size_t)f->n_stat * sizeof *f->stat;
}

int zero_factored_new(struct zero *z, bool sums, struct ckpt_err *err)
{
    const struct params *p = z->flat.params;
    struct zero_factored *f = z->factored = ckpt_alloc(1, sizeof *f);

    if (!f)
        return ckpt_nomem(err, sizeof *f);
    if (!(f->at = ckpt_alloc(p->n + 1, sizeof *f->at)) ||
        !(f->op = ckpt_alloc(p->n + 1, sizeof *f->op)) ||
        !(f->index = ckpt_alloc(p->n + 1, sizeof *f->index)))
        return ckpt_nomem(err, p->n * sizeof *f->op);
    for (size_t i = 0; i < p->n; i++) {
        int64_t n = p->item[i].trainable ? stats_of(&p->item[i]) : 0;

        f->at[i + 1] = f->at[i] + (p->item[i].trainable ? n + 1 : 0);
        f->n_sum += n;
        if (p->item[i].trainable)
            f->index[f->n++] = i;
    }
    f->n_stat = f->at[p->n];
    if (!(f->stat = device_alloc(z->dev, stat_bytes(f), err)) ||
        (sums && !(f->sum = device_alloc(z->dev, (size_t)(f->n_sum + 2 * f->n) * sizeof *f->sum,
                                         err))))
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
    ckpt_free(f->at);
    ckpt_free(f);
    z->factored = NULL;
}

/* The numbers of parameter i among all of them. */
static struct zero_factors factors_at(const struct zero *z, float *stat, size_t i)
{
    const struct param *p = &z->flat.params->item[i];
    struct zero_factors out = {0};
    int64_t height;
    float *at;

    if (!z->factored || !p->trainable)
        return out;
    at = stat + z->factored->at[i];
    sides(&out.n_row, &out.n_col, &height, p);
    out.n_col = out.n_col ? out.n_row / height * out.n_col : 0;
    out.row = at;
    out.col = out.n_col ? at + out.n_row : NULL;
    out.rms = at + out.n_row + out.n_col;
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
static struct op_factored op_of(const struct zero *z, size_t i, double *sum, double *squares,
                                const struct optim_state_step *s)
{
    const struct flat *flat = &z->flat;
    const struct param *p = &flat->params->item[i];
    struct flat_piece own = flat_grad_piece(flat, i, flat->rank);
    struct zero_factors at = factors_at(z, z->factored->stat, i);
    struct zero_spot m = zero_spot(z, ZERO_EXP_AVG, i, 0);
    struct op_factored f = {
        .param = (float *)(void *)zero_spot(z, ZERO_MASTER, i, 0).at,
        .grad = z->grads + flat->grad_base[i], .exp_avg = (float *)(void *)m.at,
        .n = own.count, .start = own.count ? own.start : 0, .row = at.row, .col = at.col,
        .rms = at.rms, .sum = sum, .weight_square = squares,
        .update_square = squares + z->factored->n,
        .lr = s->group ? s->group[p->group].lr : s->adamw->lr,
        .weight_decay = s->group ? s->group[p->group].weight_decay
                        : p->decay ? s->weight_decay : 0};

    sides(&f.rows, &f.cols, &f.height, p);
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
    double *sum = f->sum, *squares = f->sum + f->n_sum;
    const struct ops *ops = z->dev->ops;

    for (int64_t k = 0; k < f->n; k++) {
        f->op[k] = op_of(z, f->index[k], sum, squares + k, s);
        sum += stats_of(&z->flat.params->item[f->index[k]]);
    }
    ops->factored(z->dev, OP_FACTORED_SUMS, f->op, f->n, s->adamw);
    add(z, f->sum, f->n_sum + f->n);
    ops->factored(z->dev, OP_FACTORED_MOMENTS, f->op, f->n, s->adamw);
    add(z, squares + f->n, f->n);
    ops->factored(z->dev, OP_FACTORED_UPDATE, f->op, f->n, s->adamw);
    for (int u = 0; s->done && u < z->flat.params->n_layers; u++)
        s->done(s->ctx, u);
}

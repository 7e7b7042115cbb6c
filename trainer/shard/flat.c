/* flat - see flat.h. */
#include "trainer/shard/flat.h"

#include <string.h>

#include "formats/deepspeed/layout.h"
#include "trainer/ops/ops.h"

int flat_init(struct flat *f, const struct params *params, int stage, int rank, int world_size,
              struct ckpt_err *err)
{
    *f = (struct flat){.params = params, .stage = stage, .rank = rank, .world_size = world_size};
    f->first = ckpt_alloc((size_t)params->n_layers + 1, sizeof *f->first);
    f->base = ckpt_alloc(2 * (params->n + 1), sizeof *f->base);
    if (!f->first || !f->base) {
        flat_release(f);
        return ckpt_nomem(err, 2 * (params->n + 1) * sizeof *f->base);
    }
    for (size_t i = params->n; i-- > 0;)
        f->first[params->item[i].layer] = i;
    f->first[params->n_layers] = params->n;
    for (int u = params->n_layers - 1; u >= 0; u--)     /* layers without parameters */
        if (f->first[u] == 0 && (params->n == 0 || params->item[0].layer != u))
            f->first[u] = f->first[u + 1];
    f->grad_base = f->base + params->n + 1;
    for (size_t i = 0; i < params->n; i++) {
        f->base[i + 1] = f->base[i] + flat_part(f, i);
        f->grad_base[i + 1] = f->grad_base[i] +
                              (params->item[i].trainable ? flat_part(f, i) : 0);
    }
    f->numel = f->base[params->n];
    f->grad_numel = f->grad_base[params->n];
    return 0;
}

void flat_release(struct flat *f)
{
    ckpt_free(f->first);
    ckpt_free(f->base);
    memset(f, 0, sizeof *f);
}

int64_t flat_part(const struct flat *f, size_t i)
{
    int64_t numel = f->params->item[i].numel;

    return f->stage > 0 ? ds3_part(numel, f->world_size) : numel;
}

struct flat_piece flat_piece(const struct flat *f, size_t i, int rank)
{
    int64_t numel = f->params->item[i].numel;
    struct ds_piece p = {.start = 0, .count = numel, .at = f->base[i]};

    if (f->stage > 0)
        p = ds3_piece(numel, f->base[i], rank, f->world_size);
    return (struct flat_piece){.start = p.start, .count = p.count, .at = p.at};
}

struct flat_piece flat_grad_piece(const struct flat *f, size_t i, int rank)
{
    struct flat_piece p = flat_piece(f, i, rank);

    p.at += f->grad_base[i] - f->base[i];
    if (!f->params->item[i].trainable)
        p.count = 0;
    return p;
}

void flat_layer(const struct flat *f, int layer, size_t *first, size_t *end)
{
    *first = f->first[layer];
    *end = f->first[layer + 1];
}

/* A layer's part of an array: where it begins, by the parameters' bases, and its elements. */
struct run {
    int64_t at, n;
};

static struct run run_of(const struct flat *f, int layer, const int64_t *base)
{
    size_t first, end;

    flat_layer(f, layer, &first, &end);
    return (struct run){base[first], base[end] - base[first]};
}

int64_t flat_layer_base(const struct flat *f, int layer) { return run_of(f, layer, f->base).at; }
int64_t flat_layer_part(const struct flat *f, int layer) { return run_of(f, layer, f->base).n; }
int64_t flat_grad_base(const struct flat *f, int layer)
{
    return run_of(f, layer, f->grad_base).at;
}
int64_t flat_grad_part(const struct flat *f, int layer)
{
    return run_of(f, layer, f->grad_base).n;
}

static void assemble(const struct flat *f, int layer, void *whole, const void *parts, size_t size,
                     bool grads)
{
    const int64_t *base = grads ? f->grad_base : f->base;
    struct run run = run_of(f, layer, base);
    size_t first, end;

    flat_layer(f, layer, &first, &end);
    for (int r = 0; r < f->world_size; r++)
        for (size_t i = first; i < end; i++) {
            const struct param *q = &f->params->item[i];
            struct flat_piece p = grads ? flat_grad_piece(f, i, r) : flat_piece(f, i, r);
            int64_t to = (grads ? q->grad_offset : q->offset) + p.start;
            int64_t from = r * run.n + (base[i] - run.at);

            if (p.count > 0)
                memcpy((char *)whole + (size_t)to * size, (const char *)parts + (size_t)from * size,
                       (size_t)p.count * size);
        }
}

void flat_assemble(const struct flat *f, int layer, void *whole, const void *parts, size_t size)
{
    assemble(f, layer, whole, parts, size, false);
}

void flat_assemble_grads(const struct flat *f, int layer, float *whole, const float *parts)
{
    assemble(f, layer, whole, parts, sizeof *whole, true);
}

void flat_scatter(const struct flat *f, int layer, float *parts, float *whole)
{
    struct run run = run_of(f, layer, f->grad_base);
    size_t first, end;

    flat_layer(f, layer, &first, &end);
    for (int r = 0; r < f->world_size; r++)
        for (size_t i = first; i < end; i++) {
            struct flat_piece p = flat_grad_piece(f, i, r);
            float *to = parts + r * run.n + (f->grad_base[i] - run.at);

            if (p.count > 0)
                memcpy(to, whole + f->params->item[i].grad_offset + p.start,
                       (size_t)p.count * sizeof(float));
            if (f->params->item[i].trainable)
                memset(to + p.count, 0, (size_t)(flat_part(f, i) - p.count) * sizeof(float));
        }
}

/* Elements [from, to) of a layer's gradients that lie one after another. */
static void clear(struct device *dev, float *grad, int64_t from, int64_t to)
{
    if (to > from)
        dev->ops->zero(dev, grad + from, (size_t)(to - from) * sizeof *grad);
}

void flat_clear(const struct flat *f, struct device *dev, float *grad, int layer, bool written)
{
    int64_t from = 0, to = 0;           /* to be zeroed so far */
    size_t i, end;

    flat_layer(f, layer, &i, &end);
    for (; i < end; i++) {
        const struct param *p = &f->params->item[i];
        int64_t next = p->grad_offset + params_room(f->params, p->numel);
        int64_t at = p->written == written ? p->grad_offset : p->grad_offset + p->numel;

        if (!p->trainable)
            continue;
        if (at != to) {
            clear(dev, grad, from, to);
            from = at;
        }
        to = next;
    }
    clear(dev, grad, from, to);
}

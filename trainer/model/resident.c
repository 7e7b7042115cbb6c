/* resident - see resident.h. */
#include "trainer/model/resident.h"

#include "libckpt/mem.h"

struct resident {
    struct model_weights door;
    const struct params *params;
    struct device       *dev;
    int64_t             *base, *grad_base;      /* [n_layers], elements */
    float               *weights, *grads;
};

static const void *acquire(void *ctx, int layer)
{
    const struct resident *r = ctx;

    return r->weights + r->base[layer];
}

static void release(void *ctx, int layer)
{
    (void)ctx;
    (void)layer;
}

static void *grad(void *ctx, int layer)
{
    const struct resident *r = ctx;

    return r->grads + r->grad_base[layer];
}

int resident_new(struct resident **out, const struct params *params, bool grads,
                 struct device *dev, struct ckpt_err *err)
{
    struct resident *r = ckpt_alloc(1, sizeof *r);
    size_t bytes = (size_t)params->numel * sizeof(float);
    size_t grad_bytes = (size_t)params->grad_numel * sizeof(float);
    int64_t at = 0, grad_at = 0;

    *out = NULL;
    if (!r || !(r->base = ckpt_alloc(2 * (size_t)params->n_layers, sizeof *r->base))) {
        ckpt_free(r);
        return ckpt_nomem(err, sizeof *r);
    }
    r->params = params;
    r->dev = dev;
    r->grad_base = r->base + params->n_layers;
    for (int u = 0; u < params->n_layers; u++) {
        r->base[u] = at;
        r->grad_base[u] = grad_at;
        at += params->layer_numel[u];
        grad_at += params->layer_grad[u];
    }
    r->weights = dev->ops->alloc(dev, bytes);
    r->grads = grads && r->weights ? dev->ops->alloc(dev, grad_bytes) : NULL;
    if (!r->weights || (grads && !r->grads)) {
        resident_free(r);
        return ckpt_nomem(err, bytes);
    }
    r->door = (struct model_weights){.ctx = r, .acquire = acquire, .release = release,
                                     .grad = grad, .grad_done = release, .fixed = true};
    *out = r;
    return 0;
}

void resident_free(struct resident *r)
{
    if (!r)
        return;
    r->dev->ops->free(r->dev, r->weights);
    r->dev->ops->free(r->dev, r->grads);
    ckpt_free(r->base);
    ckpt_free(r);
}

const struct model_weights *resident_door(const struct resident *r) { return &r->door; }

float *resident_weights(const struct resident *r) { return r->weights; }

float *resident_grads(const struct resident *r) { return r->grads; }

float *resident_weight(const struct resident *r, size_t i)
{
    const struct param *p = &r->params->item[i];

    return r->weights + r->base[p->layer] + p->offset;
}

float *resident_grad(const struct resident *r, size_t i)
{
    const struct param *p = &r->params->item[i];

    return p->grad_offset < 0 ? NULL : r->grads + r->grad_base[p->layer] + p->grad_offset;
}
